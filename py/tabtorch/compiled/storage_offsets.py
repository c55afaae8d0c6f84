"""Where arguments begin in their storages: `x[i : i + 32]` is the same plan for every i, with other numbers.

A plan takes the beginnings of views as numbers. Those of views of an argument move with it, so they are recorded as where it
begins and so much more (`recipe`, see symbolic_numbers.py); arguments of one storage have to move together. As with other numbers, a
beginning that has changed is relied on once a run with another one has come out as foretold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tabtorch.compiled.symbolic_numbers import Notes, symbolic_int
from tabtorch.core.tensor import Tensor
from tabtorch.engine.graph import Node
from tabtorch.engine.symbols import Symbol, concrete
from tabtorch.engine.view import Meta


def shifted(m: Meta, by: int) -> Meta:
    """The same view of another place."""
    return m.view(m.shape, m.strides, m.offset + by) if by else m


class Begin:
    """Where a view begins that moves with number `number`, and so much more (`more`, a Symbol: see dynamic.py)."""

    __slots__ = ("more", "number", "value")

    def __init__(self, number: int, more: Any, value: int = 0) -> None:
        """value: where it begins in the recorded run."""
        self.number = number
        self.more = more
        self.value = value

    def plain(self) -> Any:
        """The same for the sizes at hand."""
        return symbolic_int(self.value, ("+", ("v", self.number, -1), concrete(self.more)))


class Begins:
    """Of one run. `values`: where each argument begins, which are the numbers from `first` on."""

    def __init__(self, arguments: Sequence[Tensor], first: int) -> None:
        self.first = first
        self.values = [t._tab_meta.offset for t in arguments]
        #: place of a storage -> the number that says where views of it move
        self.of: dict[int, int] = {}

    def tie(self, places: Sequence[int], notes: Notes) -> None:
        """places: of the storages of the arguments. Views of a storage move with the first argument that lies there."""
        for a, i in enumerate(places):
            k = self.of.setdefault(i, self.first + a)
            if k != self.first + a:  # which of them a view is of cannot be told
                apart = self.values[a] - self.values[k - self.first]
                notes.tests["==", ("-", ("v", self.first + a, -1), ("v", k, -1)), apart, True] = None

    def scalars(
        self, nodes: Sequence[Node], place: dict[int, int], symbolic: Sequence[tuple[Any, tuple]] = ()
    ) -> list[Any]:
        """The numbers of nodes, as plans take them. place: id of a value from before -> that of its storage. symbolic: the
        instructions and scalars of the nodes, where they have Symbols for sizes."""
        found: list[Any] = []
        for n, (inst, scalars) in zip(nodes, symbolic or [(n.inst, n.scalars) for n in nodes], strict=True):
            if inst.offsets:
                # what is written to, the region of which comes last, is the first of the sources
                for m, s in zip(inst.views(), (*n.srcs, n.srcs[0]), strict=False):
                    if m.offset:
                        found.append(self._begin(m.offset, _whose(s, place)))
            found += scalars
        return found

    def _begin(self, offset: Any, i: int | None) -> Any:
        k = None if i is None else self.of.get(i)
        if type(offset) is Symbol:
            return offset if k is None else Begin(k, offset - self.values[k - self.first], offset.value)
        return offset if k is None else symbolic_int(offset, ("+", ("v", k, -1), offset - self.values[k - self.first]))


def _whose(n: Any, place: dict[int, int]) -> int | None:
    """The place of the storage whose value `n` is, or was before the function has written to parts of it."""
    while id(n) not in place and n.srcs and n.inst.op.in_place:
        n = n.srcs[0]
    return place.get(id(n))
