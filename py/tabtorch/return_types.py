"""The classes of results with several named tensors: `torch.return_types.max`."""

from __future__ import annotations

from typing import Any

from .ops import core
from .ops.launch import RETURN_TYPES


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if core.function(name) is None:  # loads the module that defines it
        core.function(name.removeprefix("linalg_"))
    if name not in RETURN_TYPES:
        raise core.Missing(f"module 'torch.return_types' has no attribute '{name}' (tabtorch does not have it yet)")
    return RETURN_TYPES[name]


def __dir__() -> list[str]:
    core.all_functions()
    return sorted(RETURN_TYPES)
