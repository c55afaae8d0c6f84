"""The operations. `ops.NAME` is the function of the registry, as `torch.NAME` is; modules load when first needed."""

from __future__ import annotations

from typing import Any

from . import core

#: modules looked into first, commonest names first; the other modules of this package follow by name
ORDER = (
    "elementwise",
    "transcendental",
    "tabtorch.creation",
    "tabtorch.views",
    "convert",
    "reduce",
    "matmul",
    "tabtorch.indexing",
    "tabtorch.random",
)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    f = core.function(name)
    if f is None:
        raise core.Missing(f"module 'tabtorch.ops' has no attribute '{name}'")
    globals()[name] = f
    return f
