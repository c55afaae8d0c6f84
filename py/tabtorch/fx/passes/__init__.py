"""`torch.fx.passes`: what is done with graphs. Each module loads when it is asked for."""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = (
    "fake_tensor_prop graph_drawer graph_manipulation infra operator_support param_fetch shape_prop split_module split_utils "
    "tools_common utils"
).split()


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'torch.fx.passes' has no attribute '{name}'")
