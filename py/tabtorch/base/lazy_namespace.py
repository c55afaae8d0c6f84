"""Modules that load their names when they are first asked for, and load them all when somebody goes through their `__dict__`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

_own: Any = vars(ModuleType)["__dict__"]


class Whole(ModuleType):
    """A module whose `__dict__` has every name that it shows: Pyro, for one, wraps what it finds in `torch.optim.__dict__`."""

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        space: dict[str, Any] = _own.__get__(self)
        for name in space["_shown"]:
            getattr(self, name)
        return space

    def __dir__(self) -> list[str]:
        return sorted({*_own.__get__(self), *_own.__get__(self)["_shown"]})


def whole(name: str, shown: Iterable[str] | None = None) -> None:
    """Makes the module of this name one. shown: the names that its `__getattr__` loads (default: its `__all__`)."""
    module: Any = sys.modules[name]
    module._shown = module.__all__ if shown is None else tuple(shown)
    module.__class__ = Whole


def homes(package: str) -> dict[str, str]:
    """Name -> the module of the package that has it in its `__all__`, without loading any: a wheel has a list (build_wheel.py)."""
    try:
        listed = importlib.import_module("tabtorch.ops.names").HOMES.get(package)
    except (ModuleNotFoundError, AttributeError):
        listed = None
    found = {f"{package}.{module}": names for module, names in (listed or written(package)).items()}
    return {name: module for module, names in found.items() for name in names.split()}


def written(package: str) -> dict[str, str]:
    """Module of a package in a checkout -> the names of its `__all__`, as its text has them."""
    import re  # only a checkout asks
    from pathlib import Path

    found = {}
    for path in sorted(Path(importlib.import_module(package).__path__[0]).glob("[!_]*.py")):
        listed = re.search(r"^__all__ = \[(.*?)\]", path.read_text(), re.DOTALL | re.MULTILINE)
        if listed:
            found[path.stem] = " ".join(re.findall(r'"(\w+)"', listed[1]))
    return found
