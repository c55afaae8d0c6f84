"""Rows that are read four elements at a time: one load for four neighbours, and one store.

A GPU's memory answers so many requests at a time, whatever their size, and a thread has so many of them open. So a kernel takes
four *lanes* a turn where all that it reads at each point lies so that a vector load serves: neighbours without gaps, from a
multiple of 4 on. Whether sizes and strides are multiples of 4 is asked here, and so a guard of the schedule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .kernel import shown
from .lower import Factor, Kernel, Ref, Values, index_of, split_dims
from .wgsl import PACKED

if TYPE_CHECKING:
    from .fuse import Group
    from .plan import Builder
    from .steps import BufferKey
    from .view import Meta

#: elements of a vector load
LANES = 4

#: position of a node, which of its inputs, and of how many factors the domain is in which the node is computed: 2 for a group's
#: own, 1 for the flat index of a virtual node that is read through a view
Site = tuple[int, int, int]
#: of each read whether the lanes are a "vector" in memory, or all read the "same" element
Served = dict[Site, str]


def sites(b: Builder, g: Group, along: int) -> Served | None:
    """How the lanes of a group read, None where vector loads do not serve all that vary.

    along: the factor of the domain that lanes are neighbours in, 0: rows, 1: the elements of a row.
    """
    if (g.O, g.K)[along] % LANES:
        return None
    found: Served = {}
    vectors: set[BufferKey] = set()
    others: set[BufferKey] = set()  # none is to be bound both ways
    stack = [(p, 2 if g.level[p] == "full" or b.nodes[p].inst.op.reduces else 0) for p in g.nodes]
    seen = set(stack)
    while stack:
        p, factors = stack.pop()
        n = b.nodes[p].inst
        if n.op.indexed:  # it reads where it wants
            factors = 0
        for i, (s, m) in enumerate(zip(b.nodes[p].srcs, n.ins, strict=True)):
            virtual = s.buf is None and s.pos in b.graph.virtual
            if s.buf is None and not virtual and b.graph.of.get(s.pos) is g:
                continue
            inner, kind = 0, ""
            if factors and virtual and m.flat and m.numel == s.inst.out.numel:
                inner = factors
            elif factors:
                kind = _kind(m, [g.O, g.K], along) if factors == 2 else _kind(m, [m.numel], 0)
                if not kind or (kind == "vector" and not virtual and not _loads(m)):
                    return None
                found[p, i, factors] = kind
                inner = 1 if kind == "vector" else 0
            if not virtual:
                (vectors if kind == "vector" else others).add(b.ref_of(s).key)
            elif (s.pos, inner) not in seen:
                seen.add((s.pos, inner))
                stack.append((s.pos, inner))
    return None if vectors & others else found


def _kind(m: Meta, sizes: list[int], along: int) -> str:
    """How lanes that begin at a multiple of 4 read a view; "" for anything but the two ways of `Served`."""
    parts = split_dims(m.shape, m.strides, sizes)
    if parts is None:
        return ""
    own = parts[along]
    if not any(s for _, s in own):
        return "same"
    size, step = own[-1]
    if size % LANES:
        return ""
    if step == 0:
        return "same"
    rest = [*own[:-1], *(x for part in parts if part is not own for x in part)]
    return "vector" if step == 1 and not m.offset and not any(s % LANES for _, s in rest if s) else ""


def _loads(m: Meta) -> bool:
    """Whether there is a load for four elements of a dtype."""
    return m.dtype.name in PACKED or m.dtype.name in ("float32", "int32")


class LaneValues(Values):
    """Values of which each is computed for one of four lanes. `first`: the point of the first of them, None: there are no lanes."""

    def __init__(self, b: Builder, k: Kernel, served: Served) -> None:
        super().__init__(k, b.nodes, b.ref_of, lambda s: s.pos if s.buf is None else -1)
        self.virtual = b.graph.virtual
        self.served = served
        self.first: list[Factor] | None = None
        self.lane = 0
        self.places: dict[
            int, tuple[list[Factor], list[Factor]]
        ] = {}  # id of a point -> itself, and that of the first lane

    def enter(self, point: list[Factor], first: list[Factor] | None) -> None:
        """Says which point of the first lane one belongs to."""
        if first is not None:
            self.places[id(point)] = point, first

    def source(self, pos: int, i: int, factors: list[Factor]) -> Any:
        known = self.places.get(id(factors))
        kind = "" if known is None else self.served.get((pos, i, len(factors)), "")
        if known is None or not kind:
            return super().source(pos, i, factors)
        n = self.nodes[pos]
        src, m = n.srcs[i], n.inst.ins[i]
        at = index_of(self.k, m, known[1], (pos, i))
        p = self.pending(src)
        lane = self.lane if kind == "vector" else 0
        if p in self.virtual:
            at = self.k.let(at, "j")
            first: list[Factor] = [(at, src.inst.out.numel, ("at", pos, i))]
            point: list[Factor] = [(at + lane, *first[0][1:])] if lane else list(first)
            if kind == "vector":
                self.enter(point, first)
            return shown(self.compute(p, point), m.dtype, m.mark)
        ref = Ref(self.refs(src).key, m.dtype, m.mark)
        return self.k.load_lane(ref, at, lane) if kind == "vector" else self.k.load(ref, at)
