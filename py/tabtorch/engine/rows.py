"""Row kernels: reductions and contractions with the maps before, between and after them, in one pass or a few over each row.

A group of `fuse.py` comes in, launches of the plan go out. Rows that are long and few are cut into chunks: then each pass is a
launch of its own, in which every chunk leaves the states of its reductions, and the next one joins those. Contractions that a
tuned kernel serves go to `tiles.py` instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tabtorch.base import dtypes

from .expr import Complex, Expr, cast, const, fit, idiv, isnan, minimum, variable, where
from .lower import PACKED, U0, Factor, Kernel, Ref, index_of, map_kernel
from .share import Part
from .wgsl import TYPES

if TYPE_CHECKING:
    from .fuse import Group
    from .plan import Builder

#: a thread adds so many elements before it adds their sum to what came before
_BLOCK = const(16, "u32")
#: so many elements of a packed dtype are exchanged in their words, one by one, rather than packed by another launch
_EXCHANGED = 1 << 20
#: where the states of a reduction are kept between two launches
_STATE_DTYPE = {
    "f32": dtypes.float32,
    "i32": dtypes.int32,
    "u32": dtypes.int32,
    "i64": dtypes.int64,
    "bool": dtypes.int32,
}


def emit(b: Builder, g: Group) -> None:
    """Writes the launches of a `row` or `contract` group."""
    split = b.target.split(g.O, g.K, _neighbours(b, g))
    if split is None:
        _launch(b, g, RowKernel)
    else:
        _emit_chunks(b, g, *split)


def _neighbours(b: Builder, g: Group) -> bool:
    """Whether the elements of a row lie next to each other, so that a workgroup can walk it."""
    for p in g.nodes:
        for m in b.nodes[p].inst.ins:
            if m.numel == g.O * g.K and m.ndim and not (m.flat or m.strides[-1] in (0, 1)):
                return False
    return True


def _initial(b: Builder, p: int) -> tuple:
    """The neutral state of a reduction or contraction."""
    n = b.nodes[p].inst
    if n.op.kind == "contract":
        zero = const(0, n.compute)
        return (zero.re, zero.im) if isinstance(zero, Complex) else (zero,)
    return n.op.init(n.compute)


class States:
    """Where launches leave the states of reductions for those after them: `count` for each row, each part of each state apart.

    They lie in a buffer that all groups of a plan share, one for each element type, so that kernels which share a launch bind
    one buffer for all their states.
    """

    def __init__(self, b: Builder, g: Group, reduces: list[int], count: int) -> None:
        self.count = count
        self.places: dict[int, list[tuple[Ref, int, str]]] = {}  # of each part: the buffer, where it begins, its type
        for p in reduces:
            self.places[p] = []
            for x in _initial(b, p):
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
        return k.let(o if self.count == 1 else o * k.dim(self.count, ("chunks", id(self))) + c, "i")


class Chunks:
    """How the rows of a group are cut, and where the states of its reductions are."""

    def __init__(self, count: int, length: int) -> None:
        self.count = count
        self.length = length
        self.states: dict[int, States] = {}

    def dear_to_join(self, wide: bool) -> bool:
        """Whether each chunk had better not join the states of all chunks of its row."""
        return self.count * (4 if wide else 8) > self.length


def _emit_chunks(b: Builder, g: Group, count: int, length: int) -> None:
    """Long rows: a launch for each pass over them, and one for what is left to do for each row."""
    chunks = Chunks(count, length)
    wide = b.target.barriers and _neighbours(b, g)
    reduces = {p: g.phase[p] for p in g.nodes if b.nodes[p].inst.op.kind in ("reduce", "contract")}
    for phase in range(max(g.phase[p] for p in g.nodes) + 1):
        before = [p for p, at in reduces.items() if at == phase]
        mine = [p for p, at in reduces.items() if at == phase + 1]
        full = any(g.level[p] == "full" and g.phase[p] == phase and p in b.stored for p in g.nodes)
        if (mine or full) and before and chunks.dear_to_join(wide):
            joined = States(b, g, before, 1)
            _launch(b, g, JoinKernel, chunks, before, joined)
            chunks.states |= dict.fromkeys(before, joined)
        if mine or full:
            new = States(b, g, mine, count)
            _launch(b, g, ChunkKernel, chunks, phase, new)
            chunks.states |= dict.fromkeys(mine, new)
        elif any(g.phase[p] == phase and p in b.stored for p in g.nodes):
            _launch(b, g, LastKernel, chunks, phase)


def _launch(b: Builder, g: Group, form: type[RowKernel], *args: Any) -> None:
    """One kernel of a group, in the form of one of the classes below."""
    if b.target.serial:
        w = form(b, g, Kernel(b.target.number, b.label(g)), *args)
        k = w.k
        k.r.loop("o", "0", k.r.text(k.dim(g.O, "rows")))
        w.write(variable("o", "u32"))
        k.r.pop()
        b.launch(k, k.source([]), [1, 1, 1])
        return
    shape = form(b, g, Kernel(b.target.number, ""), *args)
    pack: dict[Any, tuple[Ref, Ref, int]] = {}

    def body(k: Kernel, item: Expr) -> None:
        w = form(b, g, k, *args)
        w.pack = pack
        w.write(item)

    b.parts.add(
        Part(
            shape.name,
            shape.items,
            shape.item,
            body,
            size=shape.size if shape.wide else 0,
            threads=shape.size,
            reads=shape.reads,
            writes=shape.writes,
        )
    )
    for tmp, ref, total in pack.values():
        _pack_words(b, tmp, ref, total)


def _pack_words(b: Builder, tmp: Ref, ref: Ref, total: int) -> None:
    """A launch that packs what `put` left as 32-bit words."""
    k = Kernel(b.target.number, "pack " + ref.dtype.name)
    src, grid = map_kernel(k, total, lambda i: [(ref, cast(k.load(tmp, i), ref.dtype.compute))])
    b.launch(k, src, grid)


class RowKernel:
    """A kernel that does all that a group does: an item is a row.

    Two forms. Barrier-free: one thread (on the cpu device, one turn of a loop) walks a row. With barriers (`wide`): a workgroup
    walks a row and joins the threads' states in shared memory. A value at row level is a variable; full-level values are
    computed again in each pass over the row that needs them.
    """

    item = "o"
    chunks: Chunks | None = None

    def __init__(self, b: Builder, g: Group, k: Kernel) -> None:
        self.b = b
        self.g = g
        self.k = k
        self.v = b.values(k)
        self.name = b.label(g)
        self.items = g.O
        self.pack: dict[Any, tuple[Ref, Ref, int]] = {}
        self.reads: set[Any] = set()
        self.writes: set[Any] = set()
        self.wide = b.target.barriers and g.K >= 128 and _neighbours(b, g)
        self.size = self._size(g.K)

    def _size(self, longest: int) -> int:
        """Threads of a workgroup."""
        if self.b.target.software:
            return 16
        return 256 if self.wide and longest > 1024 else 64

    def write(self, item: Expr) -> None:
        """The statements for one item."""
        if self.wide:  # a launch that is shared may have more threads
            self.size = self.k.workgroup[0]
        self.body(item)

    # ---- pieces

    def reduce_state(self, p: int) -> tuple[Any, Any, Any]:
        """(init, lift, combine) of a reduction or contraction."""
        n = self.b.nodes[p].inst
        init = _initial(self.b, p)
        if n.op.kind == "contract":
            return (
                init,
                (lambda v, k: (v.re, v.im)) if len(init) == 2 else (lambda v, k: (v,)),
                lambda a, b: tuple(x + y for x, y in zip(a, b, strict=True)),
            )
        return init, n.op.lift, n.op.combine

    def operand(self, p: int, factors: list[Factor]) -> Any:
        n = self.b.nodes[p].inst
        if n.op.kind == "contract":
            x = cast(self.v.source(p, 0, factors), n.compute)
            y = cast(self.v.source(p, 1, factors), n.compute)
            return x * y
        return cast(self.v.source(p, 0, factors), n.compute)

    def lost(self, p: int, state: list[Any]) -> list[Any]:
        """What rounding takes from the sums of a state: a variable for each part that is one."""
        op = self.b.nodes[p].inst.op
        sums = not self.k.js and (op.kind == "contract" or op.sums)
        return [self.k.var(const(0, "f32")) if sums and x.type == "f32" else None for x in state]

    def join(self, p: int, state: list[Any], lost: list[Any], new: Any) -> None:
        """Joins a block's state to that of those before; the errors of sums are added up (Knuth's two-sum)."""
        k = self.k
        totals = [k.let(x, "s") for x in self.reduce_state(p)[2](tuple(state), tuple(new))]
        for var, c, x, total in zip(state, lost, new, totals, strict=True):
            if c is not None:
                part = k.let(total - var, "part")
                k.assign(c, c + ((var - (total - part)) + (x - part)))
            k.assign(var, total)

    def settle(self, state: list[Any], lost: list[Any]) -> None:
        """Gives back what was lost; where a sum is infinite or NaN that is no number."""
        for var, c in zip(state, lost, strict=True):
            if c is not None:
                self.k.assign(var, where(isnan(c), var, var + c))

    def finish(self, p: int, state: tuple) -> Any:
        n = self.b.nodes[p].inst
        if n.op.kind == "contract":
            v = Complex(state[0], state[1]) if len(state) == 2 else state[0]
        else:
            v = n.op.result(state)
        return fit(cast(v, n.out.dtype.compute), n.out.dtype.name)

    def put(self, p: int, at: Expr, v: Any) -> None:
        """Stores a value of the group. Of a packed dtype several elements share a word: where they are few they are exchanged in
        it, else they go out as 32-bit words, and are packed by a launch after this one."""
        n = self.b.nodes[p]
        ref = self.b.ref_of(n)
        if self.k.js or ref.dtype.name not in PACKED:
            self.k.store(ref, at, v)
            return
        if n.inst.out.numel <= _EXCHANGED:
            self.k.store_bits(ref, at, v)
            return
        if ref.key not in self.pack:
            wide = dtypes.float32 if ref.dtype.compute == "f32" else dtypes.int32
            total = n.inst.out.numel
            self.pack[ref.key] = Ref(self.b.temp(total * 4), wide), ref, total
        tmp = self.pack[ref.key][0]
        self.k.store(tmp, at, cast(v, tmp.dtype.compute))

    def hoist(self, p: int, o: Factor, kf: tuple[int, Any]) -> None:
        """Computes, outside the loop, the part of the operands' places that does not vary along the row."""
        n = self.b.nodes[p]
        for i, m in enumerate(n.inst.ins):
            if not m.flat and n.srcs[i].pos not in self.v.virtual:
                self.k.let(index_of(self.k, m, [o, (U0, kf[0], kf[1])], (p, i)), "base")

    def _is_reduce(self, p: int) -> bool:
        return self.b.nodes[p].inst.op.kind in ("reduce", "contract")

    # ---- statements

    def body(self, o: Expr) -> None:
        g = self.g
        nodes = sorted(g.nodes)
        length = self.k.dim(g.K, "length")
        for phase in range(max(g.phase[p] for p in nodes) + 1):
            self.v.home = row_point = [(o, g.O, "o")]
            reduces = [p for p in nodes if self._is_reduce(p) and g.phase[p] == phase + 1]
            for p in nodes:
                if g.level[p] == "row" and g.phase[p] == phase and not self._is_reduce(p):
                    self.v.inside[p] = self.k.let(self.v.compute(p, row_point), "x")
                    self._store_row(p, o)
            full = self._full(phase)
            if reduces or full:
                states = self.walk(o, reduces, full, U0, length)
                self.v.home = row_point
                for p in reduces:
                    self.v.inside[p] = self.k.let(self.finish(p, states[p]), "x")
            for p in reduces:
                self._store_row(p, o)

    def _full(self, phase: int) -> list[int]:
        """The values of full level that a pass stores."""
        g = self.g
        return [p for p in sorted(g.nodes) if g.level[p] == "full" and g.phase[p] == phase and p in self.b.stored]

    def _store_row(self, p: int, o: Expr, first: str = "") -> None:
        """`first`: the condition under which it is this workgroup, or thread, that stores values of the row."""
        if p not in self.b.stored:
            return
        conditions = [x for x in (first, "lid == 0u" if self.wide else "") if x]
        if conditions:
            self.k.r.push(f"if ({' && '.join(conditions)})")
        self.put(p, o, self.v.inside[p])
        if conditions:
            self.k.r.pop()

    def walk(self, o: Expr, reduces: list[int], full: list[int], start: Expr, end: Expr) -> dict[int, tuple]:
        """One walk along the row, or a chunk of it: stores these values, and gives the states of these reductions."""
        k, g, r, v = self.k, self.g, self.k.r, self.v
        o_factor: Factor = (o, g.O, "o")
        for p in reduces:
            self.hoist(p, o_factor, (g.K, "k"))
        states = {p: [k.var(x) for x in self.reduce_state(p)[0]] for p in reduces}
        blocked = bool(reduces) and not k.js and not self.wide and self._is_float(reduces)
        if blocked:
            # sums in blocks: the rounding error then grows with the number of blocks, not of elements
            lost = {p: self.lost(p, states[p]) for p in reduces}
            outer = k.loop(end, start, hint="kb", step=_BLOCK)
            kb = outer.__enter__()
            stop = r.text(minimum(kb + _BLOCK, end))
            inner = {p: [k.var(x) for x in self.reduce_state(p)[0]] for p in reduces}
            kk = r.name("k")
            r.loop(kk, r.text(kb), stop)
        else:
            inner = states
            kk = r.name("k")
            if self.wide:
                begin = "lid" if start is U0 else f"{r.text(start)} + lid"
                r.loop(kk, begin, r.text(end), f"{self.size}u")
            else:
                r.loop(kk, r.text(start), r.text(end))
        ke = variable(kk, "u32")
        point: list[Factor] = [o_factor, (ke, g.K, "k")]
        before, v.home = v.home, point
        mine: list[int] = []
        for p in self._full_needed(reduces, full):
            v.inside[p] = k.let(v.compute(p, point), "x")
            mine.append(p)
            if p in full:
                self.put(p, k.let(o * k.dim(g.K, "length") + ke, "i"), v.inside[p])
        for p in reduces:
            _, lift, combine = self.reduce_state(p)
            new = combine(tuple(inner[p]), lift(self.operand(p, point), ke))
            new = tuple(k.let(x, "s") for x in new)
            for var, x in zip(inner[p], new, strict=True):
                k.assign(var, x)
        r.pop()
        for p in mine:
            del v.inside[p]
        if blocked:
            for p in reduces:
                self.join(p, states[p], lost[p], inner[p])
            outer.__exit__()
            for p in reduces:
                self.settle(states[p], lost[p])
        v.home = before
        return {p: self._join_threads(p, tuple(x)) if self.wide else tuple(x) for p, x in states.items()}

    def _is_float(self, reduces: list[int]) -> bool:
        return any(self.b.nodes[p].inst.compute in ("f32", "c64") for p in reduces)

    def _full_needed(self, reduces: list[int], full: list[int]) -> list[int]:
        """Full-level members, in order, that this pass has to compute."""
        return sorted({*full, *(p for p in self._needed([*reduces, *full]) if self.g.level[p] == "full")})

    def _needed(self, wanted: list[int]) -> set[int]:
        """Members of the group that these are computed from, seen through virtual nodes and other members. What a reduction of
        row level is computed from does not count."""
        g = self.g
        out: set[int] = set()
        stack = list(wanted)
        seen = set(stack)
        while stack:
            for s in self.b.nodes[stack.pop()].srcs:
                q = s.pos
                if s.buf is not None or q in seen:
                    continue
                if q in self.b.graph.virtual or self.b.graph.of.get(q) is g:
                    seen.add(q)
                    if q not in self.b.graph.virtual:
                        out.add(q)
                        if self._is_reduce(q):
                            continue
                    stack.append(q)
        return out

    def _join_threads(self, p: int, state: tuple) -> tuple:
        """The workgroup's states joined in shared memory; all threads get the result."""
        k, r = self.k, self.k.r
        _, _, combine = self.reduce_state(p)
        names = []
        for x in state:
            n = k.shared_array(TYPES[x.type])
            names.append(n)
            r.line(f"{n}[lid] = {r.text(x)};")
        r.line("workgroupBarrier();")
        step = r.name("step")
        r.push(f"for (var {step} = {self.size // 2}u; {step} > 0u; {step} >>= 1u)")
        r.push(f"if (lid < {step})")
        a = tuple(variable(f"{n}[lid]", x.type) for n, x in zip(names, state, strict=True))
        b = tuple(variable(f"{n}[lid + {step}]", x.type) for n, x in zip(names, state, strict=True))
        new = [k.let(x, "s") for x in combine(tuple(k.let_copy(x) for x in a), tuple(k.let_copy(x) for x in b))]
        for n, x in zip(names, new, strict=True):
            r.line(f"{n}[lid] = {r.text(x)};")
        r.pop()
        r.line("workgroupBarrier();")
        r.pop()
        out = []
        for n, x in zip(names, state, strict=True):
            got = r.name("s")
            r.line(f"let {got} = {n}[0];")
            out.append(variable(got, x.type))
        return tuple(out)

    # ---- of rows in chunks

    def joined(self, p: int, o: Expr) -> tuple:
        """The state of a reduction of an earlier pass."""
        assert self.chunks is not None
        k, s = self.k, self.chunks.states[p]
        self.reads.add(s)
        if s.count == 1:
            return tuple(s.load(k, p, o, U0))
        state = [k.var(x) for x in self.reduce_state(p)[0]]
        lost = self.lost(p, state)
        start, step = (variable("lid", "u32"), const(self.size, "u32")) if self.wide else (U0, None)
        with k.loop(k.dim(s.count, ("chunks", id(s))), start, step=step) as c:
            self.join(p, state, lost, s.load(k, p, o, c))
        self.settle(state, lost)
        return self._join_threads(p, tuple(state)) if self.wide else tuple(state)

    def of_row(self, o: Expr, phase: int, wanted: list[int], first: str = "") -> None:
        """The values of row level that these need, and those of this phase that are to be stored."""
        g, v = self.g, self.v
        v.home = point = [(o, g.O, "o")]
        own = [p for p in g.nodes if g.level[p] == "row" and g.phase[p] == phase and p in self.b.stored]
        need = self._needed([p for p in [*wanted, *own] if not (p in own and self._is_reduce(p))])
        for p in sorted({*own, *(p for p in need if g.level[p] == "row")}):
            value = self.finish(p, self.joined(p, o)) if self._is_reduce(p) else v.compute(p, point)
            v.inside[p] = self.k.let(value, "x")
            if p in own:
                self._store_row(p, o, first)


class ChunkKernel(RowKernel):
    """One pass over rows in chunks: an item is a chunk. It joins what the passes before left of its row."""

    item = "t"

    def __init__(self, b: Builder, g: Group, k: Kernel, chunks: Chunks, phase: int, new: States) -> None:
        super().__init__(b, g, k)
        self.chunks = chunks
        self.phase = phase
        self.new = new
        self.items = g.O * chunks.count
        self.neighbours = _neighbours(b, g)
        self.wide = b.target.barriers and self.neighbours
        self.size = self._size(chunks.length)
        done = [p for p in g.nodes if g.phase[p] == phase and not self._is_reduce(p)]
        self.name = b.label(g, sorted([*done, *new.places])) + " of chunks"
        self.writes = {new} if new.places else set()
        self.reads = set(chunks.states.values())

    def body(self, t: Expr) -> None:
        k, g, chunks = self.k, self.g, self.chunks
        assert chunks is not None
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


class LastKernel(RowKernel):
    """What is left to do for each row once its chunks have been walked: an item is a row."""

    def __init__(self, b: Builder, g: Group, k: Kernel, chunks: Chunks, phase: int) -> None:
        super().__init__(b, g, k)
        self.chunks = chunks
        self.phase = phase
        self.wide = b.target.barriers
        self.size = self._size(chunks.count)
        self.name = b.label(g, [p for p in g.nodes if g.phase[p] == phase])
        self.reads = set(chunks.states.values())

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
        for p in self.reduces:
            state = self.joined(p, o)
            if self.wide:
                self.k.r.push("if (lid == 0u)")
            self.new.store(self.k, p, o, U0, state)
            if self.wide:
                self.k.r.pop()
