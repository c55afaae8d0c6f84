"""`torch.linalg`: what is registered as linalg_NAME. Decompositions are computed on the host, with NumPy."""

from __future__ import annotations

from typing import Any

from tabtorch.base.errors import LinAlgError
from tabtorch.ops.machinery import registry


def __getattr__(name: str) -> Any:
    f = None if name.startswith("_") else registry.in_space("linalg_" + name)
    if f is None:
        raise registry.Missing(
            f"module 'torch.linalg' has no attribute '{name}' (if PyTorch has it: tabtorch does not have it yet)"
        )
    globals()[name] = f
    return f


def __dir__() -> list[str]:
    registry.load_all()
    return sorted([n.removeprefix("linalg_") for n in registry.FUNCTIONS if n.startswith("linalg_")] + ["LinAlgError"])


__all__ = ["LinAlgError"]
