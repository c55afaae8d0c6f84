"""What the plans of a recording take: where each value comes from, and what is done ahead of the plans to have it.

Draws of the host's generators and copies between devices are no part of a plan: they are done again before each replay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from tabtorch.engine import graph
from tabtorch.engine.graph import Buffer, Inst, Node
from tabtorch.engine.view import Meta


class Source(NamedTuple):
    """Where a value comes from, in the recorded run and in those to come.

    old: the value that storage `number` had before. base: the whole buffer of which that is a window. made: what is done ahead, in
    step `number`. new: node `position` of window `number`. constant: `node`, which the function has made of data of its own.
    Of a backward pass besides: saved: value `number` of those that were saved for it. grad: the gradient of result `number`.
    """

    kind: Literal["old", "base", "made", "new", "constant", "saved", "grad"]
    number: int = -1
    position: int = -1
    node: Node | None = None

    def structure(self) -> Source:
        """What of it is the same in two runs that do the same."""
        return self._replace(node=None)


class CopyAhead(NamedTuple):
    """A copy of a buffer to `device`. source: the id of the buffer; in a replay, a Source."""

    device: int
    source: Any
    nbytes: Any

    def placed(self, source_of: Callable[[int], Source]) -> CopyAhead:
        return self._replace(source=source_of(self.source))

    def alike(self) -> tuple[Any, ...]:
        """What two runs have in common that copy the same."""
        return self.device, self.nbytes

    def sizes(self) -> list[Any]:
        return [self.nbytes]

    def with_sizes(self, number: Callable[[Any], Any], view: Callable[[Meta], Meta]) -> CopyAhead:
        """The same with other numbers and views: of Symbols, plain ones."""
        return self._replace(nbytes=number(self.nbytes))

    def with_sizes_of(self, other: Any) -> CopyAhead:
        return self._replace(nbytes=other.nbytes)

    def run(self, old: Sequence[Any], made: Sequence[Buffer]) -> Buffer:
        """Does it. old: the nodes of what was there; made: what was made ahead before."""
        ident = graph.bridge().copy(self.device, _buffer(self.source, old, made).id, self.nbytes)
        return Buffer(ident, self.nbytes, self.device)


class DrawAhead(NamedTuple):
    """A draw of a generator of the host. inputs: nodes; in a replay, (Source, instruction) of each."""

    generator: Any
    distribution: Any
    out: Meta
    inputs: Sequence[Any]

    def placed(self, source_of: Callable[[int], Source]) -> DrawAhead:
        inputs: list[tuple[Source, Inst]] = [(source_of(n.buf.id), n.inst) for n in self.inputs]
        return self._replace(inputs=inputs)

    def alike(self) -> tuple[Any, ...]:
        """What two runs have in common that draw the same."""
        d = self.distribution
        return id(self.generator), d.kernel.name, d.scalars, self.out, len(self.inputs)

    def sizes(self) -> list[Any]:
        return [*self.distribution.scalars, self.distribution.elements]

    def with_sizes(self, number: Callable[[Any], Any], view: Callable[[Meta], Meta]) -> DrawAhead:
        return self._replace(distribution=self.distribution.with_sizes(number), out=view(self.out))

    def with_sizes_of(self, other: Any) -> DrawAhead:
        return self._replace(distribution=other.distribution, out=other.out)

    def run(self, old: Sequence[Any], made: Sequence[Buffer]) -> Buffer:
        inputs = []
        for source, i in self.inputs:
            n = Node(i, (), ())
            n.buf = _buffer(source, old, made)
            inputs.append(n)
        b: Buffer = self.generator.draw(self.distribution, self.out, tuple(inputs)).buf
        return b


Ahead = CopyAhead | DrawAhead


def _buffer(source: Source, old: Sequence[Any], made: Sequence[Buffer]) -> Any:
    return old[source.number].buf if source.kind == "old" else made[source.number]
