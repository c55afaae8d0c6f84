"""The classes of results with several named tensors: `torch.return_types.max`."""

from __future__ import annotations

from typing import Any

from tabtorch.ops.machinery import registry
from tabtorch.ops.machinery.operation import RETURN_TYPES


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if registry.function(name) is None:  # loads the module that defines it
        registry.function(name.removeprefix("linalg_"))
    if name not in RETURN_TYPES:
        raise registry.Missing(f"module 'torch.return_types' has no attribute '{name}' (tabtorch does not have it yet)")
    return RETURN_TYPES[name]


def __dir__() -> list[str]:
    registry.all_functions()
    return sorted(RETURN_TYPES)
