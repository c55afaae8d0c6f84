"""Fusion: deals the nodes of a window to groups, each of which becomes one kernel, or a few.

Nodes nobody needs are dropped, and virtual ones (virtual.py) belong to whoever reads them. The rest are grouped greedily in program
order. A node joins the group of one of its sources if every value it takes from the group is taken at the point where the group
computes it, and no path leaves the group and comes back. The groups of its other sources are then merged with it; and one that
found no group goes to another over the same points that reads the same memory.

Groups: `map` (one point a thread), `row` (O rows of K elements with reductions along the row, and maps before, between and
after them, at row level or at full level), `contract` (a contraction with its epilogue), `write`, `custom`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .lower import split_dims
from .view import Meta
from .virtual import MAX_NODES, Virtual

if TYPE_CHECKING:
    from .target import Target

#: most nodes in the epilogue of a contraction: it stands in a loop of its kernel, where long text takes compilers minutes
MAX_EPILOGUE = 12

#: a buffer that a kernel binds: of a value, its position; of an input, its place and the type that it is read as
Bound = int | tuple[int, str]


class Group:
    """Nodes of one kernel, by position in the window."""

    __slots__ = ("K", "O", "anc", "index", "kind", "level", "near", "nodes", "phase")

    def __init__(self, kind: str, index: int, first: int, O: int, K: int = 1) -> None:
        self.kind = kind
        self.index = index
        self.nodes = [first]
        self.O = O
        self.K = K
        self.anc = 0  # bit set of the groups this one needs, directly or not
        self.level: dict[int, str] = {}
        self.phase: dict[int, int] = {}
        self.near = True  # whether the elements of a row lie next to each other


def reads_row(m: Meta, O: int, K: int) -> bool:
    """Whether a view of O*K points reads value o of a contiguous O-vector at point (o, k)."""
    if m.offset or m.numel != O * K:
        return False
    parts = split_dims(m.shape, m.strides, [O, K])
    if parts is None:
        return False
    outer, inner = parts
    if any(s for _, s in inner):
        return False
    step = 1
    for n, s in reversed(outer):
        if s != step:
            return False
        step *= n
    return True


class Graph:
    """The needed nodes of a window, who reads whom, and the groups they are dealt to."""

    def __init__(
        self, nodes: list[Any], live: list[bool], target: Target, sizes: dict[int, int], leaves: int = MAX_NODES
    ) -> None:
        self.nodes = nodes
        self.live = live
        self.target = target
        self.limit = target.buffers  # that a kernel may bind
        #: most nodes in the kernel of a node; fewer are tried where it would bind too many buffers
        self.sizes = sizes
        v = Virtual(nodes, live, target.serial, sizes, leaves)
        self.needed, self.readers, self.virtual, self.paths = v.needed, v.readers, v.nodes, v.paths
        self.deps: dict[int, set[int]] = {}
        self.reads: dict[int, tuple[list[tuple[int, Meta]], set[int]]] = {}
        self.groups: list[Group] = []
        self.of: dict[int, Group] = {}
        self._group()

    # ---- groups

    def _group(self) -> None:
        """Deals the nodes that are needed, and not virtual, to groups, in program order."""
        for pos, n in enumerate(self.nodes):
            if not self.needed[pos] or pos in self.virtual:
                continue
            here, other = self.reads[pos] = self.paths(pos)
            self.deps[pos] = other | {q for q, _ in here}
            op = n.inst.op
            joined = None
            if op.fused:
                seen = set()
                for q, _ in sorted(here, key=lambda x: -x[0]):
                    g = self.of[q]
                    if g.index in seen:
                        continue
                    seen.add(g.index)
                    if any(self._long_before(g, self.of[x], pos) for x, _ in here):
                        continue
                    if self._may_join(pos, g, here, other):
                        joined = g
                        break
            if joined is None:
                joined = self._new(pos)
            self._need(joined, {self.of[q].index for q in self.deps[pos]} - {joined.index})
            if op.fused:
                for q, _ in here:
                    if self.of[q] is not self.of[pos] and not self._long_before(self.of[q], self.of[pos], pos):
                        self._merge(self.of[pos], self.of[q])
                if self.of[pos].nodes == [pos]:
                    self._join_sibling(pos)

    def _long_before(self, a: Group, b: Group, reader: int) -> bool:
        """Whether `a` needs nothing of this window, `b` does, and others than `reader`, of both, wait for `a`: it can run beside what
        precedes `b`, see share.py. So the number of targets is not found together with the sum that it divides."""
        if self.target.serial or a.kind != "row" or b.kind != "row" or a.anc or not b.anc & ~(1 << a.index):
            return False
        mine = {x for p in a.nodes for x in self._bound(p, a)}
        return mine.isdisjoint(x for p in b.nodes for x in self._bound(p, b)) and any(
            self.needed[r] and r != reader and r not in a.nodes and r not in b.nodes
            for p in a.nodes
            for r, _ in self.readers[p]
        )

    def _join_sibling(self, pos: int) -> None:
        """A node that joined nobody: a group over the same points that reads the same memory can take it along."""
        g = self.of[pos]
        mine = self._bound(pos, g)
        for other in reversed(self.groups):
            if other is g or other.kind != g.kind or (other.O, other.K) != (g.O, g.K) or not other.nodes:
                continue
            if any(mine & self._bound(p, other) for p in other.nodes) and self._merge(g, other):
                return

    def _merge(self, a: Group, b: Group) -> bool:
        """Makes one group of two that share points, if nothing keeps them apart."""
        both = self._both(a, b)
        if isinstance(both, str):
            return False
        old = self._place(both)
        if self._binds_at_least(both) >= self.limit:
            self.of.update(old)
            return False
        gone = 1 << b.index
        both.anc = (a.anc | b.anc) & ~(gone | 1 << a.index)
        self.groups[a.index] = both
        b.nodes = []
        for x in self.groups:
            if x.anc & gone:
                x.anc = x.anc & ~gone | 1 << a.index
        for x in self.groups:
            if x.anc >> a.index & 1:
                x.anc |= both.anc
        return True

    def apart(self, a: Group, b: Group) -> str:
        """What keeps two groups from being one, in words; "" where nothing does: they were dealt so all the same."""
        both = self._both(a, b)
        if isinstance(both, str):
            return both
        old = self._place(both)
        binds = self._binds_at_least(both)
        self.of.update(old)
        return "" if binds < self.limit else f"together they bind {binds} buffers, and the device allows {self.limit}"

    def _both(self, a: Group, b: Group) -> Group | str:
        """Two groups as one, or what is against it."""
        count = len(a.nodes) + len(b.nodes)
        if {a.kind, b.kind} - {"map", "row", "contract"}:
            return "one of them has an algorithm of its own, which reads and writes whole buffers"
        most = MAX_EPILOGUE if "contract" in (a.kind, b.kind) else MAX_NODES
        if count > most:
            return f"together they are {count} operations, and such a kernel has {most} at most"
        if a.kind == b.kind == "row" and a.near != b.near:
            return "the elements of a row lie next to each other for one of them only, so threads walk them in another order"
        if self.sizes and count > self._most([*a.nodes, *b.nodes]):
            return f"together they bind more than the {self.limit} buffers that the device allows"
        shapes = {(g.O, g.K) for g in (a, b) if g.kind != "map"}
        if a.kind == b.kind == "contract":
            return "both are contractions, and a kernel computes one"
        if {a.kind, b.kind} == {"row", "contract"}:
            return "one is a reduction and one a contraction, and a kernel computes one of these"
        if len(shapes) > 1:
            return "their reductions go over rows of different lengths"
        O, K = next(iter(shapes)) if shapes else (a.O, 1)
        whole = {g.O for g in (a, b) if g.kind == "map"}
        if not whole <= {O, O * K}:
            return "they have different numbers of elements"
        for x in self.groups:
            if x.nodes and x is not a and x is not b:
                between = x.anc >> a.index & 1 and b.anc >> x.index & 1
                if between or (x.anc >> b.index & 1 and a.anc >> x.index & 1):
                    return "another kernel has to run between them"
        kind = next((g.kind for g in (a, b) if g.kind != "map"), "map")
        both = Group(kind, a.index, -1, O, K)
        both.near = a.near and b.near
        both.nodes = sorted(a.nodes + b.nodes)
        if not self._levels(both, a, b):
            return "one reads values of the other at other places than where they are computed"
        return both

    def _place(self, g: Group) -> dict[int, Group]:
        """Says of the nodes of a group that they are in it: where they were."""
        old = {p: self.of[p] for p in g.nodes}
        for p in g.nodes:
            self.of[p] = g
        return old

    def _binds_at_least(self, g: Group) -> int:
        """Buffers that the kernel of a group binds, as far as is known before all nodes are dealt."""
        binds: set[Bound] = {p for p in g.nodes if self.live[p]}
        for p in g.nodes:
            binds |= self._bound(p, g)
        return len(binds)

    def _levels(self, g: Group, a: Group, b: Group) -> bool:
        """Level and phase of every node of a merged group; False where a value would be needed away from its point."""
        members = set(g.nodes)
        for p in g.nodes:
            here, other = self.reads[p]
            if other & members:
                return False
            n = self.nodes[p].inst
            mine = [(q, m) for q, m in here if q in members]
            if n.op.reduces:
                if mine and not (n.ins[0].flat and self._aligned(g, mine, "full")):
                    return False
                g.level[p] = "row"
                g.phase[p] = max([g.phase[q] for q, _ in mine], default=0) + 1
                continue
            level = "full" if g.kind == "map" or (g.kind == "row" and g.K > 1 and n.out.numel == g.O * g.K) else "row"
            if level == "row" and n.out.numel != g.O:
                return False
            if not self._aligned(g, mine, level):
                return False
            g.level[p] = level
            g.phase[p] = max([g.phase[q] for q, _ in mine], default=1 if g.kind == "contract" else 0)
        return True

    def _new(self, pos: int) -> Group:
        ins = self.nodes[pos].inst
        op = ins.op
        g = Group(op.group, len(self.groups), pos, *op.points(ins))
        if op.group == "row":
            g.near = all(m.flat or m.strides[-1:] in ((0,), (1,)) for m in ins.ins)
        if op.reduces:
            g.level[pos] = "row"
            g.phase[pos] = 1
        else:
            g.level[pos] = "full"
            g.phase[pos] = 0
        self.groups.append(g)
        self.of[pos] = g
        return g

    def _may_join(self, pos: int, g: Group, here: list[tuple[int, Meta]], other: set[int]) -> bool:
        """Adds the node to a group of one of its sources, and says so, where nothing is against it (see above)."""
        n = self.nodes[pos]
        most = MAX_EPILOGUE if g.kind == "contract" else MAX_NODES
        if len(g.nodes) >= most or g.kind in ("write", "custom"):
            return False
        if self.sizes and len(g.nodes) >= self._most([*g.nodes, pos]):
            return False
        if any(self.of[q] is g for q in other):
            return False
        sources = {self.of[q] for q in self.deps[pos]} - {g}
        if any(h.anc >> g.index & 1 for h in sources):
            return False
        if not self._fits(pos, g):
            return False
        mine = [(q, m) for q, m in here if self.of[q] is g]
        out = n.inst.out
        if n.inst.op.reduces:
            o, k = n.inst.op.points(n.inst)
            if not n.inst.ins[0].flat or k == 1:
                return False
            if g.kind == "map":
                if g.O != o * k or not all(m.flat for _, m in mine):
                    return False
                g.kind, g.O, g.K = "row", o, k
            elif g.kind != "row" or (g.O, g.K) != (o, k) or not self._aligned(g, mine, "full"):
                return False
            phase = max(g.phase[q] for q, _ in mine) + 1
            self._add(g, pos, "row", phase)
            return True
        if g.kind == "map":
            if g.O != out.numel or not all(m.flat for _, m in mine):
                return False
            self._add(g, pos, "full", 0)
            return True
        level = None
        if g.O == out.numel and self._aligned(g, mine, "row"):
            level = "row"
        elif g.kind == "row" and g.O * g.K == out.numel and g.K > 1 and self._aligned(g, mine, "full"):
            level = "full"
        if level is None:
            return False
        self._add(g, pos, level, max(g.phase[q] for q, _ in mine))
        return True

    def _most(self, nodes: list[int]) -> int:
        """How many nodes the kernel of these may have."""
        return min(self.sizes.get(p, MAX_NODES) for p in nodes)

    def _fits(self, pos: int, g: Group) -> bool:
        """Whether the group with this node would still bind few enough buffers, as far as is known yet."""
        self.of[pos] = g
        binds: set[Bound] = set()
        for p in [*g.nodes, pos]:
            binds |= self._bound(p, g)
            if self.live[p]:
                binds.add(p)
        del self.of[pos]
        return len(binds) < self.limit

    @staticmethod
    def _aligned(g: Group, mine: list[tuple[int, Meta]], level: str) -> bool:
        """Whether all these reads are of values that exist at a point of that level."""
        for q, m in mine:
            if g.level[q] == level:
                if not m.flat:
                    return False
            elif level == "row" or not reads_row(m, g.O, g.K):
                return False
        return True

    def _add(self, g: Group, pos: int, level: str, phase: int) -> None:
        g.nodes.append(pos)
        g.level[pos] = level
        g.phase[pos] = phase
        self.of[pos] = g

    def _need(self, g: Group, others: set[int]) -> None:
        more = 0
        for h in others:
            more |= self.groups[h].anc | 1 << h
        if more & ~g.anc:
            g.anc |= more
            bit = 1 << g.index
            for x in self.groups:
                if x.anc & bit:
                    x.anc |= g.anc

    def order(self) -> list[Group]:
        """The groups so that each stands after those it needs, else as the program had them."""
        done = 0
        out: list[Group] = []
        waiting = sorted((g for g in self.groups if g.nodes), key=lambda g: g.nodes[0])
        while waiting:
            for i, g in enumerate(waiting):
                if not g.anc & ~done:
                    done |= 1 << g.index
                    out.append(waiting.pop(i))
                    break
            else:
                raise AssertionError("groups need each other")
        return out

    def stored(self) -> set[int]:
        """Positions that must lie in a buffer: live ones, and those another group reads."""
        out = {p for p, on in enumerate(self.live) if on}
        for pos, deps in self.deps.items():
            g = self.of[pos]
            out.update(q for q in deps if self.of[q] is not g)
        return out

    def maps(self, nodes: Iterable[int]) -> int:
        """How many maps these are made of: the same number however they are joined, and whichever are virtual."""
        return sum(self.nodes[p].inst.op.joined for p in self.deep(nodes))

    def deep(self, nodes: Iterable[int]) -> set[int]:
        """Nodes of a group and the virtual ones that it computes for them."""
        out = set(nodes)
        stack = list(out)
        while stack:
            for s in self.nodes[stack.pop()].srcs:
                if s.buf is None and s.pos in self.virtual and s.pos not in out:
                    out.add(s.pos)
                    stack.append(s.pos)
        return out

    def binds(self, g: Group, stored: set[int]) -> int:
        """Buffers the kernel of a group binds."""
        out: set[Bound] = {p for p in g.nodes if p in stored}
        for p in g.nodes:
            out |= self._bound(p, g)
        return len(out)

    def _bound(self, pos: int, g: Group) -> set[Bound]:
        """The buffers node `pos` reads when computed in group `g`."""
        out: set[Bound] = set()
        stack = [pos]
        seen = set()
        while stack:
            p = stack.pop()
            if p in seen:
                continue
            seen.add(p)
            n = self.nodes[p]
            for i, s in enumerate(n.srcs):
                if s.buf is not None:
                    out.add((s.pos, n.inst.ins[i].dtype.name))
                elif s.pos in self.virtual:
                    stack.append(s.pos)
                elif self.of.get(s.pos) is not g:
                    out.add(s.pos)
        return out
