"""`torch.cuda.tunable`: `torch.webgpu.tunable`, where "cuda" means something."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tabtorch import _lazy
from tabtorch.webgpu import tunable as _tunable

__all__ = [name for name in _tunable.__all__ if name != "tune"]


def _guarded(name: str) -> Callable[..., Any]:
    f = getattr(_tunable, name)

    @functools.wraps(f)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        if not _lazy.cuda.is_available():
            raise AssertionError("Torch not compiled with CUDA enabled")
        return f(*args, **kwargs)

    guarded.__module__ = "torch.cuda.tunable"
    return guarded


for _name in __all__:
    globals()[_name] = _guarded(_name)
