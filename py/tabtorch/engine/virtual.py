"""Virtual nodes: cheap maps that are stored nowhere, because each of their readers computes them for itself.

These are maps that are read at other places than their own (through a transposed, sliced or broadcast view, or by a contraction), so that
their readers cannot stand in one kernel with them. What a virtual map alone is made of is recomputed with it.
"""

from __future__ import annotations

from math import prod
from typing import Any

from .view import Meta
from .wgsl import PACKED

#: nodes in one kernel
MAX_NODES = 48
#: what it may cost to compute a map again (`Op.cost`), for any number of readers
CHEAP = 4
#: the same for a single reader
SINGLE = 24


def _elements(m: Meta) -> int:
    """How many elements a view shows, those that are repeated counted once."""
    return prod(n for n, s in zip(m.shape, m.strides, strict=True) if s)


class Virtual:
    """Who reads whom in a window, and which of its nodes are virtual: `nodes`, by position."""

    def __init__(self, window: list[Any], live: list[bool], serial: bool, sizes: dict[int, int], leaves: int) -> None:
        """serial: whether the device runs one thread after another. sizes: most nodes in the kernel of a node, where that is not
        MAX_NODES. leaves: from how many values in buffers a chain of virtual nodes may be computed."""
        self.window = window
        self.live = live
        self.serial = serial
        self.sizes = sizes
        self.leaves = leaves
        self.needed = self._needed()
        self.readers: list[list[tuple[int, int]]] = [[] for _ in window]  # (position, which of its inputs)
        for pos, n in enumerate(window):
            if self.needed[pos]:
                for i, s in enumerate(n.srcs):
                    if s.buf is None:
                        self.readers[s.pos].append((pos, i))
        self.after_product: set[int] = set()  # maps that follow a product which is stored anyway
        self.cost: dict[int, int] = {}  # of each map with what it is made of
        self.nodes: set[int] = set()
        self._find()

    def _needed(self) -> list[bool]:
        need = list(self.live)
        for pos in range(len(self.window) - 1, -1, -1):
            if need[pos]:
                for s in self.window[pos].srcs:
                    if s.buf is None:
                        need[s.pos] = True
        return need

    def _joinable(self, pos: int, reader: int, i: int) -> bool:
        """Whether the reader takes this input at its own point, so that both can stand in one kernel."""
        n = self.window[reader]
        m = n.inst.ins[i]
        out = self.window[pos].inst.out
        return m.flat and m.dtype is out.dtype and n.inst.op.takes_own_point(n.inst, i, out.numel)

    def _find(self) -> None:
        """Which maps are recomputed by each reader, and what that costs. What a virtual map alone is made of is
        recomputed with it: a chain as a whole, as long as it is cheap enough for whoever reads its end."""
        own = self._recomputable()
        barred: set[int] = set()
        for _ in range(4):  # a chain that is too long is cut, and what precedes the cut judged again
            limits = self._limits(own - barred)
            self.nodes = set()
            late: set[int] = set()
            for pos, n in enumerate(self.window):
                if not self.needed[pos] or not n.inst.op.elementwise:
                    continue
                inner = [s for s in n.srcs if s.buf is None and s.pos in self.nodes]
                cost = self.cost[pos] = n.inst.op.cost + sum(self.cost[s.pos] for s in inner)
                if pos not in limits:
                    continue
                limit, often = limits[pos]
                chain = any(s.srcs for s in inner)
                if cost <= limit and not (
                    chain
                    and ((often and self.serial) or self._leaves(pos) > (min(2, self.leaves) if often else self.leaves))
                ):
                    self.nodes.add(pos)
                else:
                    late.add(pos)
            if not late - barred:
                break
            barred |= late

    def _recomputable(self) -> set[int]:
        """The maps that may be virtual, whatever it costs."""
        per_row: set[int] = set()  # reductions of this window, and maps of as many points that follow them
        out: set[int] = set()
        for pos, n in enumerate(self.window):
            op = n.inst.op
            size = n.inst.out.numel
            if op.reduces or any(
                s.buf is None
                and s.pos in per_row
                and s.inst.out.numel == size
                and (not op.elementwise or self._joinable(s.pos, pos, i))
                for i, s in enumerate(n.srcs)
            ):
                per_row.add(pos)
            if not self.needed[pos] or not op.elementwise or self.live[pos]:
                continue
            if any(
                s.buf is None and self._joinable(s.pos, pos, i) and self._stored_product(s)
                for i, s in enumerate(n.srcs)
            ):
                self.after_product.add(pos)
            readers = [(self.window[r].inst, i) for r, i in self.readers[pos]]
            # what follows a reduction belongs in its kernel, where the rest of the row can read it
            ok = pos not in per_row or all(x.ins[i].numel <= size for x, i in readers)
            if any(
                s.buf is None
                and s.inst.op.group == "contract"
                and len(self.readers[s.pos]) == 1
                and not self.live[s.pos]
                and self._joinable(s.pos, pos, i)
                for i, s in enumerate(n.srcs)
            ):
                ok = ok and n.inst.out.dtype.name in PACKED  # stored in place of the product
            if n.srcs and self.sizes.get(pos) == 1:
                ok = False  # the last resort of a kernel that binds too much: each node by itself
            if ok and not any(x.op.wants_buffer(i) or x.ins[i].dtype is not n.inst.out.dtype for x, i in readers):
                out.add(pos)
        return out

    def _stored_product(self, n: Any) -> bool:
        """Whether this is a contraction that several nodes read, or a map that follows such a one."""
        if n.inst.op.rereads:
            return self.live[n.pos] or len(self.readers[n.pos]) > 1
        return n.pos in self.after_product

    def _limits(self, candidates: set[int]) -> dict[int, tuple[int, bool]]:
        """Of the candidates that somebody reads elsewhere than at their own point, through other candidates or not: what it may
        cost to recompute them, and whether a reader does so many times for each element."""
        out: dict[int, tuple[int, bool]] = {}
        for pos in range(len(self.window) - 1, -1, -1):
            if pos not in candidates:
                continue
            n = self.window[pos]
            readers = self.readers[pos]
            most = self.sizes.get(pos, MAX_NODES)
            limit, often = most, False
            outside = not n.srcs  # a constant is never worth a buffer
            if n.srcs and 2 * sum(_elements(m) for m in n.inst.ins) <= n.inst.out.numel:
                # nor is what is mostly broadcast: there is less to read in what it is made of
                outside, limit = True, min(most, CHEAP)
            reading = [self.window[r].inst.op for r, _ in readers]
            if pos in self.after_product and (
                any(op.fused and op.reduces for op in reading)
                or any(r in out and r in self.after_product for r, _ in readers)
            ):
                outside, limit = True, min(limit, CHEAP)  # the reduction reads the product, rather than this besides
            for r, i in readers:
                ri = self.window[r].inst
                if not self._joinable(pos, r, i):
                    outside = True
                    grows = ri.ins[i].numel > 2 * n.inst.out.numel
                    again = grows or ri.op.rereads
                    often = often or again
                    limit = min(limit, CHEAP if again or len(readers) > 1 else SINGLE)
                elif r in out:
                    outside = True
                    limit = min(limit, out[r][0], CHEAP if len(readers) > 1 else SINGLE)
                    often = often or out[r][1]
            if outside:
                out[pos] = limit, often
        return out

    def _leaves(self, pos: int) -> int:
        """How many values in buffers a virtual node is computed from."""
        found: set[int] = set()
        seen: set[int] = set()
        stack = [pos]
        while stack:
            for s in self.window[stack.pop()].srcs:
                if s.buf is None and s.pos in self.nodes:
                    if s.pos not in seen:
                        seen.add(s.pos)
                        stack.append(s.pos)
                else:
                    found.add(s.pos)
        return len(found)

    def paths(self, pos: int) -> tuple[list[tuple[int, Meta]], set[int]]:
        """What node `pos` reads, seen through virtual nodes: sources read at its own point, with their views; sources read elsewhere."""
        here: list[tuple[int, Meta]] = []
        other: set[int] = set()
        n = self.window[pos]
        stack = [(pos, n.inst.op.fused and not n.inst.op.indexed)]
        seen: set[tuple[int, bool]] = set()
        while stack:
            p, at_point = stack.pop()
            n = self.window[p]
            indexed = n.inst.op.indexed
            for i, s in enumerate(n.srcs):
                if s.buf is not None:
                    continue
                m = n.inst.ins[i]
                q = s.pos
                if q in self.nodes:
                    nxt = (q, at_point and not indexed and m.flat and m.numel == s.inst.out.numel)
                    if nxt not in seen:
                        seen.add(nxt)
                        stack.append(nxt)
                elif at_point and not indexed and m.dtype is s.inst.out.dtype:
                    here.append((q, m))
                else:
                    other.add(q)
        return here, other
