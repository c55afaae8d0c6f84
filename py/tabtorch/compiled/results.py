"""What a compiled function returns, or leaves as a gradient: tensors as a replay makes them again."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from tabtorch.core.storage import UNRECORDED, Storage
from tabtorch.core.tensor import Tensor
from tabtorch.core.tensor_base import inside

#: what a tensor may consist of that is made again
_PLAIN = frozenset(
    "_tab_storage _tab_meta _tab_requires_grad _tab_grad_fn _grad _base _tab_stale _tab_borrowed _tab_retype _tab_view_state "
    "_tab_inference _tab_retained".split()
)


def oddity(t: Tensor) -> str:
    """Why a new tensor cannot be made again; "" if it can."""
    if type(t) is not Tensor:
        return f"it returns a tensor of type {type(t).__name__}"
    if type(t._tab_storage) is not Storage:
        return "it returns a tensor that shares memory, and has a version of its own"
    if not inside(t).keys() <= _PLAIN:
        return "it returns a tensor with attributes or hooks"
    if t._grad is not None or t._tab_retained is not None:
        return "it returns a tensor with a gradient"
    return ""


def differentiable(t: Tensor) -> bool:
    """Whether it has a history."""
    return t._tab_grad_fn is not None or t._tab_stale


class Bases:
    """Of which tensors new ones are views. `tensors`: those that were there before the call."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.known: dict[int, int] = {}
        self.kept = list(tensors)
        for k, t in enumerate(tensors):
            self.known.setdefault(id(t), k)
        for k, t in enumerate(tensors):
            if t._base is not None:
                self.known.setdefault(id(t._base), k)
                self.kept.append(t._base)

    def of(self, t: Tensor) -> int | None:
        """Which of the tensors (itself, or what it is a view of) is its base; None for a base made in the call, or none."""
        return None if t._base is None else self.known.get(id(t._base))

    def new(self, results: Sequence[Tensor]) -> list[Tensor]:
        """The results that were made in the call."""
        return [t for t in results if id(t) not in self.known]

    def made(self, results: Sequence[Tensor]) -> list[Tensor]:
        """The bases of results that were made in the call and are no results themselves."""
        found: dict[int, Tensor] = {}
        for t in results:
            if id(t) not in self.known and t._base is not None and id(t._base) not in self.known:
                found[id(t._base)] = t._base
        for t in results:
            found.pop(id(t), None)
        return list(found.values())

    def roots(self, results: Sequence[Tensor]) -> list[Tensor]:
        """The new tensors whose histories results have: a view has that of its base. Views of what was there have their own."""
        found: dict[int, Tensor] = {}
        for t in results:
            if id(t) not in self.known and differentiable(t) and self.of(t) is None:
                base = t if t._base is None else t._base
                if differentiable(base):
                    found[id(base)] = base
        return list(found.values())


class Made:
    """One tensor of a replay. `known`: which tensor that was there it is; else it lies in storage `storage` of those that were
    there, or in the new storage `new`."""

    __slots__ = (
        "base",
        "base_known",
        "borrowed",
        "fn",
        "inference",
        "known",
        "meta",
        "new",
        "retype",
        "rg",
        "stale",
        "state",
        "storage",
    )

    def __init__(self, t: Tensor, known: int | None, storage: int, new: int) -> None:
        self.known = known
        self.storage = storage
        self.new = new
        self.meta = t._tab_meta
        self.rg = t._tab_requires_grad
        self.fn = t._tab_grad_fn
        self.inference = t._tab_inference
        self.base = -1  # which of the new tensors it is a view of
        self.base_known: int | None = None
        self.state = t._tab_view_state
        self.borrowed = t._tab_borrowed
        self.retype = t._tab_retype
        self.stale = t._tab_stale if t._tab_stale is UNRECORDED else bool(t._tab_stale)

    def make(self, storage: Any) -> Tensor:
        t: Tensor = object.__new__(Tensor)
        t._tab_storage = storage
        t._tab_meta = self.meta
        if self.inference:
            t._tab_inference = True
        if self.rg:
            t._tab_requires_grad = True
            if self.borrowed:
                t._tab_borrowed = True
            if self.stale:
                t._tab_stale = self.stale
            else:
                t._tab_grad_fn = self.fn
        return t

    def attach(self, t: Tensor, base: Tensor) -> None:
        """Makes `t` a view of `base` for autograd."""
        t._base = base
        if self.retype:
            t._tab_retype = self.retype
        if self.state:
            t._tab_view_state = self.state
        s = t._tab_storage
        if s.views is None:
            s.views = []
        s.views.append((weakref.ref(t), s.version))
