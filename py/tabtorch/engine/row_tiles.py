"""Rows whose elements lie apart, such as columns, in chunks on GPUs: a workgroup takes a tile of them.

Threads side by side take rows side by side, four each where one load serves those. The others of the workgroup take other
elements of the same rows, and what they found is joined in shared memory. So memory is asked for whole lines of it, by many threads
at once, and one state is left for each row and chunk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .expr import Expr, const, idiv, imod, minimum, variable
from .row_chunks import ChunkKernel, Chunks, States
from .row_joins import Joiner
from .row_kernel import initial
from .row_lanes import LANES, sites

if TYPE_CHECKING:
    from .fuse import Group
    from .lower import Kernel
    from .plan import Builder

#: threads of a workgroup; where there is less work than `_LITTLE`, so few as most kernels have that may share a launch (share.py)
_THREADS, _FEWER, _LITTLE = 256, 64, 2**25
#: (rows, or vectors of them, at most; threads side by side); for more a quarter of the workgroup
_SIDES = ((4, 4), (16, 16))


def serves(b: Builder, g: Group) -> bool:
    """Whether the states of a tile's threads have room in shared memory."""
    reduces = [p for p in g.nodes if b.nodes[p].inst.op.reduces]
    each = sum(8 if x.type == "i64" else 4 for p in reduces for x in initial(b, p))
    return each * LANES * _THREADS <= b.target.workgroup_bytes and _THREADS <= b.target.invocations


class TileKernel(ChunkKernel):
    """One pass over rows in chunks: an item is a chunk of some rows side by side."""

    exact = True
    along = 0

    def __init__(self, b: Builder, g: Group, k: Kernel, chunks: Chunks, phase: int, new: States) -> None:
        super().__init__(b, g, k, chunks, phase, new)
        self.use_lanes(sites(b, g, 0))
        self.grouped = True
        self.size = _THREADS if g.O * g.K >= _LITTLE else _FEWER
        beside = -(-g.O // self.width)
        self.side = next((threads for most, threads in _SIDES if beside <= most), self.size // 4)
        self.tiles = -(-beside // self.side)
        self.items = self.tiles * chunks.count

    def body(self, t: Expr) -> None:
        k, g, chunks = self.k, self.g, self.chunks
        lid, side, width = variable("lid", "u32"), const(self.side, "u32"), self.width
        rows, length = k.dim(g.O, "rows"), k.dim(chunks.length, "chunk")
        tiles = k.dim(self.tiles, "tiles")
        chunk = k.let(idiv(t, tiles), "chunk")
        beside = k.let((t - chunk * tiles) * self.side + imod(lid, side), "beside")
        begin = k.let(beside * width, "begin")
        self.exists = k.let(begin < rows, "exists")
        o = k.let(minimum(begin, rows - width), "o")
        turn = k.let(idiv(lid, side), "turn")
        start = k.let(chunk * length, "start")
        end = k.let(minimum(start + length, k.dim(g.K, "length")), "end")
        reduces = list(self.new.places)
        full = self._full(self.phase)
        first = f"{k.r.text(turn)} == 0u && {k.r.text(self.exists)}"
        for j in range(width):
            at = k.let(o + j, "o") if j else o
            self.v.inside.clear()
            self.of_row(at, self.phase, [*reduces, *full], f"{k.r.text(chunk)} == 0u && {first}")
            self.in_lane.append(dict(self.v.inside))
        self.v.inside.clear()
        for p in reduces:
            self.hoist(p, (o, g.O, "o"), (g.K, "k"))
        lanes = self.loops(o, reduces, full, start + turn, end, self.size // self.side)
        if not reduces:
            return
        lanes = self._joined(lanes)
        k.r.push(f"if ({first})")
        for j, states in enumerate(lanes):
            at = k.let(o + j, "o") if j else o
            for p in reduces:
                self.new.store(k, p, at, chunk, states[p])
        k.r.pop()

    def _joined(self, lanes: list[dict[int, tuple]]) -> list[dict[int, tuple]]:
        """The states of the threads that have the same rows, joined in the first of them: half of those that are left take over
        what the other half has, until one is left."""
        r = self.k.r
        arrays = [Joiner(self.b, self.k).arrays(states) for states in lanes]
        for names, states in zip(arrays, lanes, strict=True):
            for p, state in states.items():
                self.joiner.put(names[p], "lid", state)
        left = self.size
        while left > self.side:
            left //= 2
            r.line("workgroupBarrier();")
            r.push(f"if (lid < {left}u)")
            for names, states in zip(arrays, lanes, strict=True):
                for p, state in states.items():
                    self.joiner.update(p, state, self.joiner.get(names[p], f"lid + {left}u", state))
                    if left > self.side:
                        self.joiner.put(names[p], "lid", state)
            r.pop()
        return lanes
