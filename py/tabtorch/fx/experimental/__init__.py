"""`torch.fx.experimental`: each module loads when it is asked for."""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = "_config const_fold optimization proxy_tensor symbolic_shapes".split()


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'torch.fx.experimental' has no attribute '{name}'")
