"""The operations. `ops.NAME` is the function of the registry, as `torch.NAME` is; modules load when first needed."""

from __future__ import annotations

import importlib.util
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


def load_library(path: Any) -> None:
    """OSError: operators compiled for PyTorch do not run here."""
    raise OSError(f"Could not load this library: {path} (tabtorch runs no compiled operators)")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name == "aten":  # `torch.ops.aten`
        return importlib.import_module("tabtorch.ops.aten")
    f: Any = core.function(name)
    if f is None and not name.startswith("_") and importlib.util.find_spec(f"{__name__}.{name}") is None:
        # `torch.ops.NAMESPACE.NAME`: an operator of `torch.library`, or an AttributeError
        from ..library import Namespace

        f = Namespace(name)
    if f is None:
        raise core.Missing(f"module 'tabtorch.ops' has no attribute '{name}'")
    globals()[name] = f
    return f
