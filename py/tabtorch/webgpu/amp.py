"""`torch.webgpu.amp`: `torch.amp` on "webgpu"."""

from tabtorch.base import dtypes
from tabtorch.cuda.amp import classes

__all__ = ["GradScaler", "autocast"]

autocast, GradScaler = classes("webgpu", dtypes.float16)
