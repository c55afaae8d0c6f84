"""Long rows that are few, in chunks: each pass over them is a launch, in which every chunk leaves the states of its
reductions, and the next one joins those."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tabtorch.base import dtypes

from .expr import Expr, cast, const, idiv, minimum, variable, where
from .lower import U0, Kernel, Ref
from .row_kernel import RowKernel, initial, launch, neighbours

if TYPE_CHECKING:
    from .fuse import Group
    from .plan import Builder

#: states that a thread of a GPU loads at once
_LOADED = 8
#: so many states of a row, whose elements lie apart, are one thread's to join
_FEW = 64
#: where the states of a reduction are kept between two launches
_STATE_DTYPE = {
    "f32": dtypes.float32,
    "i32": dtypes.int32,
    "u32": dtypes.int32,
    "i64": dtypes.int64,
    "bool": dtypes.int32,
}


class States:
    """Where launches leave the states of reductions for those after them: `count` for each row, each part of each state apart.

    They lie in a buffer that all groups of a plan share, one for each element type, so that kernels which share a launch bind
    one buffer for all their states.
    """

    def __init__(self, b: Builder, g: Group, reduces: list[int], count: int) -> None:
        self.count = count
        self.rows = g.O
        self.apart = not neighbours(b, g)  # then threads side by side have rows side by side
        self.places: dict[int, list[tuple[Ref, int, str]]] = {}  # of each part: the buffer, where it begins, its type
        for p in reduces:
            self.places[p] = []
            for x in initial(b, p):
                ref, begin = b.arena(_STATE_DTYPE[x.type], g.O * count)
                self.places[p].append((ref, begin, x.type))

    def load(self, k: Kernel, p: int, o: Expr, c: Expr) -> list[Expr]:
        i = self._at(k, o, c)
        return [
            k.let(cast(k.load(ref, k.dim(begin, ("states", id(self), p, j)) + i), type), "c")
            for j, (ref, begin, type) in enumerate(self.places[p])
        ]

    def store(self, k: Kernel, p: int, o: Expr, c: Expr, state: tuple) -> None:
        i = self._at(k, o, c)
        for j, ((ref, begin, _), x) in enumerate(zip(self.places[p], state, strict=True)):
            k.store(ref, k.dim(begin, ("states", id(self), p, j)) + i, cast(x, ref.dtype.compute))

    def _at(self, k: Kernel, o: Expr, c: Expr) -> Expr:
        if self.count == 1:
            return o
        if self.apart:
            return k.let(c * k.dim(self.rows, ("rows", id(self))) + o, "i")
        return k.let(o * k.dim(self.count, ("chunks", id(self))) + c, "i")


class Chunks:
    """How the rows of a group are cut, and where the states of its reductions are. A kernel may be written again when others have
    been that left other states (share.py), so each has a `Chunks` of its own."""

    def __init__(self, count: int, length: int, states: dict[int, States] | None = None) -> None:
        self.count = count
        self.length = length
        self.states = states or {}

    def after(self, reduces: list[int], states: States) -> Chunks:
        """The same once a kernel has left the states of these reductions there."""
        return Chunks(self.count, self.length, self.states | dict.fromkeys(reduces, states))

    def dear_to_join(self, wide: bool) -> bool:
        """Whether each chunk had better not join the states of all chunks of its row."""
        return self.count * (4 if wide else 8) > self.length


def emit_chunks(b: Builder, g: Group, count: int, length: int, kernel: type[ChunkKernel]) -> None:
    """Long rows: a launch of that form for each pass over them, and one for what is left to do for each row."""
    chunks = Chunks(count, length)
    wide = b.target.barriers and neighbours(b, g)
    reduces = {p: g.phase[p] for p in g.nodes if b.nodes[p].inst.op.reduces}
    for phase in range(max(g.phase[p] for p in g.nodes) + 1):
        before = [p for p, at in reduces.items() if at == phase]
        mine = [p for p, at in reduces.items() if at == phase + 1]
        full = any(g.level[p] == "full" and g.phase[p] == phase and p in b.stored for p in g.nodes)
        if (mine or full) and before and chunks.dear_to_join(wide):
            joined = States(b, g, before, 1)
            launch(b, g, JoinKernel, chunks, before, joined)
            chunks = chunks.after(before, joined)
        if mine or full:
            new = States(b, g, mine, count)
            launch(b, g, kernel, chunks, phase, new)
            chunks = chunks.after(mine, new)
        elif any(g.phase[p] == phase and p in b.stored for p in g.nodes):
            launch(b, g, LastKernel, chunks, phase)


class ChunkedKernel(RowKernel):
    """A kernel of rows in chunks: it takes up what the passes before left of each row."""

    def __init__(self, b: Builder, g: Group, k: Kernel, chunks: Chunks) -> None:
        super().__init__(b, g, k)
        self.chunks = chunks
        self.reads = set(chunks.states.values())

    def joined(self, reduces: list[int], o: Expr) -> dict[int, tuple]:
        """The states of reductions of earlier passes."""
        states = self.chunks.states
        out = {p: tuple(states[p].load(self.k, p, o, U0)) for p in reduces if states[p].count == 1}
        several = {p: self._over_chunks(p, o) for p in reduces if p not in out}
        return out | (self.join_threads(several) if self.wide and several else several)

    def _over_chunks(self, p: int, o: Expr) -> tuple:
        """The state of the chunks that this thread joins: all, or its share."""
        k, s = self.k, self.chunks.states[p]
        count = k.dim(s.count, ("chunks", id(s)))
        neutral = self.reduce_state(p)[0]
        state = [k.var(x) for x in neutral]
        lost = self.lost(p, state)
        n = _LOADED if self.b.target.barriers else 1
        start, stride = (variable("lid", "u32"), self.size) if self.wide else (U0, 1)
        with k.loop(count, start, step=const(n * stride, "u32")) as c:
            loaded: list[Any] = [s.load(k, p, o, c)]
            for j in range(1, n):  # those beyond the last chunk are that one again, and do not count
                at = k.let(c + j * stride, "c")
                found = s.load(k, p, o, k.let(minimum(at, count - 1), "c"))
                loaded.append([where(at < count, x, y) for x, y in zip(found, neutral, strict=True)])
            for new in loaded:
                k.r.push("")  # a scope each: the variables have other values in the next
                self.join(p, state, lost, [k.let(x, "c") for x in new])
                k.r.pop()
        self.settle(state, lost)
        return tuple(state)

    def of_row(self, o: Expr, phase: int, wanted: list[int], first: str = "") -> None:
        """The values of row level that these need, and those of this phase that are to be stored."""
        g, v = self.g, self.v
        v.point = point = [(o, g.O, "o")]
        own = [p for p in g.nodes if g.level[p] == "row" and g.phase[p] == phase and p in self.b.stored]
        need = self._needed([p for p in [*wanted, *own] if not (p in own and self._is_reduce(p))])
        values = sorted({*own, *(p for p in need if g.level[p] == "row")})
        states = self.joined([p for p in values if self._is_reduce(p)], o)
        for p in values:
            value = self.finish(p, states[p]) if p in states else v.compute(p, point)
            v.inside[p] = self.k.let(value, "x")
            if p in own:
                self._store_row(p, o, first)


class ChunkKernel(ChunkedKernel):
    """One pass over rows in chunks: an item is a chunk. It joins what the passes before left of its row."""

    item = "t"

    def __init__(self, b: Builder, g: Group, k: Kernel, chunks: Chunks, phase: int, new: States) -> None:
        super().__init__(b, g, k, chunks)
        self.phase = phase
        self.new = new
        self.items = g.O * chunks.count
        self.wide = b.target.barriers and self.neighbours
        self.size = self._size(chunks.length)
        done = [p for p in g.nodes if g.phase[p] == phase and not self._is_reduce(p)]
        self.name = b.label(g, sorted([*done, *new.places])) + " of chunks"
        self.writes = {new} if new.places else set()

    def body(self, t: Expr) -> None:
        k, g, chunks = self.k, self.g, self.chunks
        row_length, count, length = k.dim(g.K, "length"), k.dim(chunks.count, "count"), k.dim(chunks.length, "chunk")
        if self.neighbours:
            o = k.let(idiv(t, count), "o")
            chunk = k.let(t - o * count, "chunk")
        else:  # the elements of a row lie apart: threads side by side take rows side by side
            rows = k.dim(g.O, "rows")
            chunk = k.let(idiv(t, rows), "chunk")
            o = k.let(t - chunk * rows, "o")
        start = k.let(chunk * length, "start")
        end = k.let(minimum(start + length, row_length), "end")
        reduces = list(self.new.places)
        full = self._full(self.phase)
        self.of_row(o, self.phase, [*reduces, *full], f"{k.r.text(chunk)} == 0u")
        states = self.walk(o, reduces, full, start, end)
        if self.wide and reduces:
            k.r.push("if (lid == 0u)")
        for p in reduces:
            self.new.store(k, p, o, chunk, states[p])
        if self.wide and reduces:
            k.r.pop()


class LastKernel(ChunkedKernel):
    """What is left to do for each row once its chunks have been walked: an item is a row."""

    def __init__(self, b: Builder, g: Group, k: Kernel, chunks: Chunks, phase: int) -> None:
        super().__init__(b, g, k, chunks)
        self.phase = phase
        self.wide = b.target.barriers and (self.neighbours or chunks.count > _FEW)
        self.size = self._size(chunks.count)
        self.name = b.label(g, [p for p in g.nodes if g.phase[p] == phase])

    def body(self, o: Expr) -> None:
        self.of_row(o, self.phase, [])


class JoinKernel(LastKernel):
    """Joins the states of each row's chunks, so that not every chunk has to."""

    def __init__(self, b: Builder, g: Group, k: Kernel, chunks: Chunks, reduces: list[int], new: States) -> None:
        super().__init__(b, g, k, chunks, 0)
        self.reduces = reduces
        self.new = new
        self.name = b.label(g, reduces) + " joined"
        self.writes = {new}

    def body(self, o: Expr) -> None:
        states = self.joined(self.reduces, o)
        if self.wide:
            self.k.r.push("if (lid == 0u)")
        for p in self.reduces:
            self.new.store(self.k, p, o, U0, states[p])
        if self.wide:
            self.k.r.pop()
