"""Modules that load their names when they are first asked for, and load them all when somebody goes through their `__dict__`."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

_own: Any = vars(ModuleType)["__dict__"]


class Whole(ModuleType):
    """A module whose `__dict__` has every name of `__all__`: Pyro, for one, wraps what it finds in `torch.optim.__dict__`."""

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        space: dict[str, Any] = _own.__get__(self)
        for name in space["__all__"]:
            getattr(self, name)
        return space


def whole(name: str) -> None:
    """Makes the module of this name one."""
    sys.modules[name].__class__ = Whole
