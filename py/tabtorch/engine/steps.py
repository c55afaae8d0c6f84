"""The steps of a plan and what they name: plain data, to be compared field by field and written as JSON.

The builder writes `Launch`, `Copy` and `Clear` over buffer keys. In a schedule they are `Dispatch`, `Copy` and `Clear` over slots. What
hangs on sizes (parameter words, grids, bytes) may be Symbols there: a plan has the numbers apart, in the order of `numbers()`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

Access = Literal["r", "rw"]


class BufferKey(NamedTuple):
    """A buffer before it has a slot. number: of the input or temporary; a value's is its node's position in the window."""

    kind: Literal["input", "value", "temporary"]
    number: int


#: the buffers that a step reads, or may write
Touches = list[tuple[BufferKey, Access]]


class Binding(NamedTuple):
    """A buffer that a kernel binds, as elements of a type of the kernel's language."""

    key: BufferKey
    type: str
    access: Access


class ScalarKey(NamedTuple):
    """A number that each run brings. what: "" for scalar `number` of the node at that position, "re" or "im" for a part of it,
    "begin" for where view `number` of the node begins."""

    position: int
    number: int
    what: Literal["", "re", "im", "begin"] = ""


class Patch(NamedTuple):
    """A scalar that is written over the parameter words of a launch, from `word` on. scalar: its key; in a schedule, its number."""

    word: int
    scalar: Any
    type: str


class Launch(NamedTuple):
    """A run of a kernel. grid: workgroups along x, y and z."""

    kernel: int
    bindings: list[Binding]
    words: list[Any]
    patches: list[Patch]
    grid: list[Any]
    label: str

    def touches(self) -> Touches:
        return [(b.key, b.access) for b in self.bindings]

    def placed(self, slots: Mapping[BufferKey, int], scalars: Mapping[ScalarKey, int]) -> Dispatch:
        bind = [slots[b.key] for b in self.bindings]
        patches = [Patch(p.word, scalars[p.scalar], p.type) for p in self.patches]
        return Dispatch(self.kernel, bind, self.words, patches, self.grid, self.label)


class Dispatch(NamedTuple):
    """The same over slots."""

    kernel: int
    bind: list[int]
    words: list[Any]
    patch: list[Patch]
    grid: list[Any]
    label: str

    def numbers(self) -> list[Any]:
        return [*self.words, *self.grid]

    def spec(self, numbers: Iterator[int]) -> dict[str, Any]:
        """What JavaScript is told of it: see `StepSpec` of js/src/protocol.ts."""
        words = [next(numbers) & 0xFFFFFFFF for _ in self.words]
        grid = [next(numbers) for _ in self.grid]
        return self._asdict() | {"words": words, "grid": grid}


class Copy(NamedTuple):
    """Copies the first bytes of a buffer to another."""

    source: Any
    target: Any
    nbytes: Any

    def touches(self) -> Touches:
        return [(self.source, "r"), (self.target, "rw")]

    def placed(self, slots: Mapping[BufferKey, int], scalars: object) -> Copy:
        return Copy(slots[self.source], slots[self.target], self.nbytes)

    def numbers(self) -> list[Any]:
        return [self.nbytes]

    def spec(self, numbers: Iterator[int]) -> dict[str, Any]:
        return {"copy": [self.source, self.target, next(numbers)]}


class Clear(NamedTuple):
    """Fills a buffer with zeros."""

    buffer: Any

    def touches(self) -> Touches:
        return [(self.buffer, "rw")]

    def placed(self, slots: Mapping[BufferKey, int], scalars: object) -> Clear:
        return Clear(slots[self.buffer])

    def numbers(self) -> list[Any]:
        return []

    def spec(self, numbers: Iterator[int]) -> dict[str, Any]:
        return {"clear": [self.buffer]}


Step = Dispatch | Copy | Clear


def names(steps: list[Step]) -> str:
    """The operations whose kernels these steps run."""
    return ",".join(dict.fromkeys(step.label for step in steps if type(step) is Dispatch))
