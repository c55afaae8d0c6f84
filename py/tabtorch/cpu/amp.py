"""`torch.cpu.amp`: `torch.amp` on "cpu"."""

from tabtorch.base import dtypes
from tabtorch.cuda.amp import classes

__all__ = ["GradScaler", "autocast"]

autocast, GradScaler = classes("cpu", dtypes.bfloat16)
