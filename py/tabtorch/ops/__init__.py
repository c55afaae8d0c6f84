"""The operations. `ops.NAME` is the function of the registry, as `torch.NAME` is; modules load when first needed."""

from __future__ import annotations

import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

from tabtorch import _lazy
from tabtorch.ops.machinery import registry

#: modules looked into first, commonest names first; the others follow, family by family
ORDER = (
    "tabtorch.ops.rows.elementwise",
    "tabtorch.ops.rows.transcendental",
    "tabtorch.core.creation",
    "tabtorch.core.ranges",
    "tabtorch.core.to_host",
    "tabtorch.core.views",
    "tabtorch.core.sections",
    "tabtorch.ops.shaping.convert",
    "tabtorch.ops.reductions.reduce",
    "tabtorch.ops.linalg.matmul",
    "tabtorch.core.indexing",
    "tabtorch.autograd.hooks",
    "tabtorch.random",
    "tabtorch.ops.composite.functional_names",
)


class _Operations(ModuleType):
    """A submodule may be named as a function of its own (`dropout`): `ops.dropout` is the function all the same."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and registry.known(name):
            value = registry.function(name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Operations


#: libraries whose compiled operators are here -> the files that hold those
_LIBRARIES = {"torchvision": ("_C.",), "torchaudio": ("_torchaudio.", "libtorchaudio.")}


def load_library(path: Any) -> None:
    """The operators of a library that is known by its folder. OSError: none that are compiled for PyTorch run here."""
    folder, _, name = str(path).replace(os.sep, "/").rpartition("/")
    library = folder.removesuffix("/lib").rpartition("/")[2]
    if name.startswith(_LIBRARIES.get(library, ())) and _lazy.library.load_namespace(library):
        return
    raise OSError(f"Could not load this library: {path} (tabtorch runs no compiled operators)")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name == "aten":  # `torch.ops.aten`
        return importlib.import_module("tabtorch.ops.aten")
    f: Any = registry.function(name)
    public = not name.startswith("_") or name == "_torchaudio"
    if f is None and public and importlib.util.find_spec(f"{__name__}.{name}") is None:
        # `torch.ops.NAMESPACE.NAME`: an operator of `torch.library`, or an AttributeError
        f = _lazy.library.Namespace(name)
    if f is None:
        raise registry.Missing(f"module 'tabtorch.ops' has no attribute '{name}'")
    globals()[name] = f
    return f
