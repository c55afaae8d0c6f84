"""Groups that are alike: the kernels of a model's second layer are those of its first, with other buffers and scalars.

What a group comes to hangs on its nodes, on who of them reads whom, and on which buffers are one and the same; which buffers they
are, and where in the window the nodes stand, is data of the launches. So the second of two groups that are alike takes over what
was written for the first. A part that waits for others to share a launch with is written once more when it does (share.py): the
kernel that is being written then puts the buffers and scalars of the second in the place of the first's.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

from .lower import Kernel
from .share import together
from .steps import Binding, BufferKey, Clear, Copy, Launch, Patch, ScalarKey

if TYPE_CHECKING:
    from .builder import Builder
    from .fuse import Group
    from .share import Part

#: the kernel of a part that is alone in it, its text and grid
Alone = tuple[Kernel, str, list[int]]


class Moved(NamedTuple):
    """From a group to one that is alike: buffers, and positions of nodes in the window."""

    buffers: dict[BufferKey, BufferKey]
    places: dict[int, int]

    def scalar(self, key: ScalarKey) -> ScalarKey:
        return key._replace(position=self.places[key.position])

    def bindings(self, found: list[Binding]) -> list[Binding]:
        return [Binding(self.buffers[b.key], b.type, b.access) for b in found]

    def patches(self, found: list[Patch]) -> list[Patch]:
        return [Patch(p.word, self.scalar(p.scalar), p.type) for p in found]

    def step(self, step: Launch | Copy | Clear) -> Launch | Copy | Clear:
        if isinstance(step, Launch):
            return step._replace(bindings=self.bindings(step.bindings), patches=self.patches(step.patches))
        if isinstance(step, Copy):
            return Copy(self.buffers[step.source], self.buffers[step.target], step.nbytes)
        return Clear(self.buffers[step.buffer])

    def launch(self, launch: Alone) -> Alone:
        kernel = copy(launch[0])
        kernel.bindings = self.bindings(kernel.bindings)
        kernel.patches = self.patches(kernel.patches)
        return kernel, *launch[1:]

    def part(self, part: Part, launch: Alone) -> tuple[Part, Alone]:
        moved = copy(part)
        moved.moved, moved.places = self, list(self.places.values())
        return moved, self.launch(launch)


class Record:
    """What was written for a group: steps, and parts, in their order; the temporaries that it took, and its buffers."""

    def __init__(self, places: list[int], buffers: list[BufferKey], first: int) -> None:
        self.places = places
        self.buffers = buffers
        self.written: list[Launch | Copy | Clear | tuple[Part, Alone]] = []
        self.first = first  # of the temporaries
        self.temps: list[int] = []  # their bytes
        self.apart = False  # whether it has a place in what all kernels share, which no other can take over


class Repeats:
    """The groups that a builder has written."""

    def __init__(self, b: Builder) -> None:
        self.b = b
        self.known: dict[tuple, Record] = {}
        self.shared: dict[tuple, tuple[list[BufferKey], list[int], Alone]] = {}  # launches of several parts
        self.record: Record | None = None  # of the group that is being written

    def emit(self, g: Group) -> None:
        b = self.b
        form, places, buffers = self._form(g)
        known = self.known.get(form)
        if known is not None:
            self._again(known, places, buffers)
            return
        record = self.record = Record(places, buffers, len(b.temps))
        try:
            b.write(g)
        finally:
            self.record = None
        if not record.apart:
            self.known[form] = record

    def _form(self, g: Group) -> tuple[tuple, list[int], list[BufferKey]]:
        """All that the kernels of a group hang on but for places and buffers, which are listed: those are numbered."""
        b = self.b
        places = sorted(b.graph.deep(g.nodes))
        local = {p: k for k, p in enumerate(places)}
        numbers: dict[BufferKey, int] = {}
        form: list[Any] = [g.kind, _size(g.O), _size(g.K), g.near, *(local[p] for p in g.nodes)]
        for p in places:
            n = b.nodes[p]
            # instructions and Symbols are one object where they are equal, and live as long as the window is planned
            form += [
                *(id(n.inst), p in b.stored, p in b.shared, p in b.graph.virtual),
                *(g.level.get(p), g.phase.get(p), numbers.setdefault(b.key_of(n), len(numbers))),
            ]
            for s in n.srcs:
                if s.buf is None and s.pos in local:
                    form.append(("here", local[s.pos]))
                    continue
                blocks = s.buf is None and s.inst.op.blocks is not None
                out = s.inst.out.dtype if s.buf is not None else id(s.inst.out)
                form.append((numbers.setdefault(b.key_of(s), len(numbers)), out, blocks))
        return tuple(form), places, list(numbers)

    def _again(self, known: Record, places: list[int], buffers: list[BufferKey]) -> None:
        b = self.b
        moved = Moved(dict(zip(known.buffers, buffers, strict=True)), dict(zip(known.places, places, strict=True)))
        for k, nbytes in enumerate(known.temps):
            moved.buffers[BufferKey("temporary", known.first + k)] = b.temp(nbytes)
        for each in known.written:
            if type(each) is tuple:
                b.parts.put(*moved.part(*each))
            else:
                b.append(moved.step(each))  # type: ignore[arg-type]

    def together(self, batch: list[tuple[Part, Alone]]) -> Alone:
        """The launch that these parts share: taken over from one that parts were in that were written for the same groups, and
        that have the same in common."""
        number = self.b.target.number
        parts = [part for part, _ in batch]
        if any(part.places is None for part in parts):
            return together(number, parts)
        buffers: dict[BufferKey, int] = {}
        places: dict[int, int] = {}
        form: list[Any] = []
        for part, launch in batch:
            # groups that are alike have the body in common, which is kept here; an operation may launch one twice
            form += [part.body, part.name, _size(part.count)]
            form += [buffers.setdefault(b.key, len(buffers)) for b in launch[0].bindings]
            form += [places.setdefault(p, len(places)) for p in part.places or ()]
        known = self.shared.get(tuple(form))
        if known is None:
            launch = together(number, parts)
            self.shared[tuple(form)] = list(buffers), list(places), launch
            return launch
        moved = Moved(dict(zip(known[0], buffers, strict=True)), dict(zip(known[1], places, strict=True)))
        return moved.launch(known[2])


def _size(x: Any) -> Any:
    return x if type(x) is int else ("symbol", id(x))
