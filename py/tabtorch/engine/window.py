"""Windows: what is sent together, as the structure by which its plan is kept, and what goes into that."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

from . import queues
from .instructions import Inst
from .liveness import by, held_beyond
from .memory import Buffer, Lost, bridge
from .nodes import Node
from .queues import Queue
from .symbols import concrete, given

#: plans made (for sizes that were not there before), schedules made for them, and windows sent
counts = {"plans": 0, "schedules": 0, "flushes": 0}
#: gives, of (target, nodes), the layouts of contractions that were measured, by position: while that is wanted, see tuning.py
measured: Callable[[Any, Any], dict[int, Any]] | None = None
#: how often others have been wanted: plans from before are of other layouts
layouts_version = 0


def plain(n: Node) -> None:
    """Puts the numbers that Symbols of a capture have in their place."""
    if n.inst.concrete is not None:
        n.inst = n.inst.concrete
    if n.scalars:
        n.scalars = tuple(map(concrete, n.scalars))


class Window:
    """A window about to be sent: its structure (`key`, which `live` is to be added to), what it reads, its numbers.

    lost: how many nodes were left out, because they read what was lost and so are lost too.
    """

    __slots__ = ("_aliases", "aliased", "free", "inputs", "key", "live", "lost", "nodes", "scalars", "symbolic")

    def __init__(self, q: Queue) -> None:
        """Takes what waits. In the LOCK, as all of it."""
        waiting = q.nodes if queues.recording is None else q.waiting()
        self.nodes: list[Node] = waiting[:]
        del waiting[: len(self.nodes)]
        self._aliases: list[int] = []
        if waiting is q.nodes:
            self._aliases, q.windows = q.windows, []
        q.bytes = q.work = 0
        self.lost = 0

    def put_back(self, q: Queue) -> None:
        """As if nothing had been taken."""
        waiting = q.waiting()
        waiting[:0] = self.nodes
        if self._aliases:
            q.windows = [*self._aliases, *[p + len(self.nodes) for p in q.windows]]

    def survey(self) -> None:
        """Finds out all the rest."""
        self._survey()
        if 0 in [n.buf.id for n in self.inputs]:  # type: ignore[union-attr]
            self._leave_out()
            self._survey()

    def _leave_out(self) -> None:
        """Nodes that read what was lost."""
        kept: list[Node] = []
        place: dict[int, int] = {}
        for n in self.nodes:
            gone = next((s.buf for s in n.srcs if s.buf is not None and not s.buf.id), None)
            if gone is None:
                place[n.pos] = len(kept)
                kept.append(n)
            else:
                n.buf = gone if type(gone) is Lost else Lost()
                n.srcs = n.scalars = ()
        self.lost += len(self.nodes) - len(kept)
        self.nodes = kept
        self._aliases = [place[p] for p in self._aliases if p in place]

    def _survey(self) -> None:
        nodes, aliases = self.nodes, self._aliases
        #: the instructions with the Symbols of a capture, and scalars
        self.symbolic: list[tuple[Inst, tuple]] = []
        if given[0]:
            self.symbolic = [(n.inst, n.scalars) for n in nodes]
            for n in nodes:
                plain(n)
        key: list[Any] = []
        add = key.append
        inputs: list[Node] = []
        scalars: list[Any] = []
        for pos, n in enumerate(nodes):
            n.pos = pos
            n.uses = 0
            i = n.inst
            add(i.base)
            if i.offsets:
                scalars.extend(i.offsets)
            for s in n.srcs:
                if s.buf is None:
                    s.uses += 1
                    add(s.pos)
                else:
                    # an input met before has its place, counted from -1 down, in pos
                    p = s.pos
                    if p < 0 and -p <= len(inputs) and inputs[-p - 1] is s:
                        s.uses += 1
                    else:
                        inputs.append(s)
                        p = s.pos = -len(inputs)
                        s.uses = 1
                    add(p)
            if n.scalars:
                scalars.extend(n.scalars)
        if given[0]:
            for n in inputs:
                plain(n)
        n = s = None  # type: ignore[assignment] # else the loop variables would count as holders
        self.live = live = held_beyond(nodes, [x.uses for x in nodes])
        self.free = free = [not x for x in held_beyond(inputs, [x.uses for x in inputs])]
        if True in free:  # what lies in the same memory (windows onto it, the same as another value) may be somebody's
            buffers: list[Any] = [x.buf for x in inputs]
            apart = held_beyond(buffers, repeat(by("Node.buf")))
            self.free = [a and not b and x.base is None for a, b, x in zip(free, apart, buffers, strict=True)]
        self.key = key
        self.inputs = inputs
        self.scalars = scalars
        self.aliased: list[tuple[Node, Node]] = []
        for p in aliases:
            if live[p] and nodes[p].srcs[0].buf is None:  # never stored: a place in what its source stores
                self.aliased.append((nodes[p], nodes[p].srcs[0]))
        for w, flat in self.aliased:
            live[w.pos] = False
            live[flat.pos] = True

    def alias(self) -> None:
        """Gives the nodes that are windows their memory, once there is some."""
        for w, flat in self.aliased:
            base = flat.buf
            assert base is not None
            m = w.inst.ins[0]
            size = m.dtype.itemsize
            ident = bridge().alias(base.id, m.offset * size, m.numel * size)
            w.buf = Buffer(ident, 0, base.device, base, m.offset * size)
