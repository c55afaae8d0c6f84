"""`torch.cpu.amp`: `torch.amp` on "cpu"."""

from .. import dtypes
from ..cuda.amp import classes

__all__ = ["GradScaler", "autocast"]

autocast, GradScaler = classes("cpu", dtypes.bfloat16)
