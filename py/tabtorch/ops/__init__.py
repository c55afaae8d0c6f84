"""The operations. `ops.NAME` is the function of the registry, as `torch.NAME` is; modules load when first needed."""

from __future__ import annotations

import sys
from types import ModuleType
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
    "functional_names",
)


class _Operations(ModuleType):
    """A submodule may be named as a function of its own (`dropout`): `ops.dropout` is the function all the same."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and core.known(name):
            value = core.function(name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Operations


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    f = core.function(name)
    if f is None:
        raise core.Missing(f"module 'tabtorch.ops' has no attribute '{name}'")
    globals()[name] = f
    return f
