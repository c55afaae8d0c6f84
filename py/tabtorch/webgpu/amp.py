"""`torch.webgpu.amp`: `torch.amp` on "webgpu"."""

from .. import dtypes
from ..cuda.amp import classes

__all__ = ["GradScaler", "autocast"]

autocast, GradScaler = classes("webgpu", dtypes.float16)
