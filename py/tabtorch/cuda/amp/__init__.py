"""`torch.cuda.amp`: older names of what is in `torch.amp`."""

from __future__ import annotations

import warnings
from typing import Any

from tabtorch import amp
from tabtorch.base import dtypes
from tabtorch.cuda.amp import common

__all__ = ["GradScaler", "autocast", "common", "custom_bwd", "custom_fwd"]


def _old(where: str, name: str) -> None:
    if where != "webgpu":
        warnings.warn(
            f"`torch.{where}.amp.{name}(args...)` is deprecated. Please use `torch.amp.{name}('{where}', args...)` instead.",
            FutureWarning,
            stacklevel=3,
        )


def classes(where: str, lower: Any) -> tuple[type[amp.autocast], type[amp.GradScaler]]:
    """`autocast` and `GradScaler` of one device, deprecated but on "webgpu"."""

    class autocast(amp.autocast):
        def __init__(self, enabled: bool = True, dtype: Any = lower, cache_enabled: bool = True) -> None:
            _old(where, "autocast")
            super().__init__(where, enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)

    class GradScaler(amp.GradScaler):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            _old(where, "GradScaler")
            super().__init__(where, *args, **kwargs)

    return autocast, GradScaler


autocast, GradScaler = classes("cuda", dtypes.float16)


def custom_fwd(fwd: Any = None, **kwargs: Any) -> Any:
    """`torch.amp.custom_fwd(device_type="cuda")`."""
    return amp.custom_fwd(fwd, device_type="cuda", **kwargs)


def custom_bwd(bwd: Any = None) -> Any:
    """`torch.amp.custom_bwd(device_type="cuda")`."""
    return amp.custom_bwd(bwd, device_type="cuda")
