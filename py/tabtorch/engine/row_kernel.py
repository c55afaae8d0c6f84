"""One walk along each row: the statements of a reduction or contraction with the maps before, between and after it.

Two forms. Barrier-free: one thread (on the cpu device, one turn of a loop) walks a row. With barriers (`wide`): a workgroup
walks a row and joins the threads' states in shared memory. `row_registers.py` and `row_chunks.py` have kernels made of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tabtorch.base import dtypes

from .expr import Expr, cast, const, fit, isnan, minimum, variable, where
from .lower import U0, Factor, Kernel, Ref, index_of, map_kernel
from .share import Part
from .wgsl import TYPES

if TYPE_CHECKING:
    from .fuse import Group
    from .plan import Builder

#: a thread adds so many elements before it adds their sum to what came before
_BLOCK = const(16, "u32")
#: elements of a row that a thread of a GPU has in flight at once, where there is little to do for each
_AT_ONCE = 8
#: so many elements of a packed dtype are exchanged in their words, one by one, rather than packed by another launch
_EXCHANGED = 1 << 20


def neighbours(b: Builder, g: Group) -> bool:
    """Whether the elements of a row lie next to each other, so that a workgroup can walk it."""
    for p in g.nodes:
        for m in b.nodes[p].inst.ins:
            if m.numel == g.O * g.K and m.ndim and not (m.flat or m.strides[-1] in (0, 1)):
                return False
    return True


def initial(b: Builder, p: int) -> tuple:
    """The neutral state of a reduction or contraction."""
    n = b.nodes[p].inst
    state: tuple = n.op.init(n.compute)
    return state


def launch(b: Builder, g: Group, form: type[RowKernel], *args: Any) -> None:
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
            exact=shape.exact,
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
    """A kernel that does all that a group does: an item is a row. A value at row level is a variable; full-level values are
    computed again in each pass over the row that needs them."""

    item = "o"
    exact = False  # whether a workgroup may have no more threads than `size`

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
        self.neighbours = neighbours(b, g)
        self.wide = b.target.barriers and g.K >= 128 and self.neighbours
        self.size = self._size(g.K)
        self.joins = 0
        self.pools: tuple[dict[str, list[str]], ...] = ({}, {})
        #: where a workgroup has several rows: the first thread of this one's, and the first of the next
        self.several: tuple[str, str] | None = None
        #: the same: whether there is such a row
        self.exists: Expr | None = None

    def _size(self, longest: int) -> int:
        """Threads of a workgroup."""
        if self.b.target.software:
            return 16
        return 256 if self.wide and longest > 1024 else 64

    def write(self, item: Expr) -> None:
        """The statements for one item."""
        if self.wide and self.k.workgroup[0] != self.size:  # a launch that is shared may have more threads
            if self.exact:
                raise AssertionError(f"{self.name} is for workgroups of {self.size} threads, not {self.k.workgroup[0]}")
            self.size = self.k.workgroup[0]
        self.body(item)

    # ---- pieces

    def reduce_state(self, p: int) -> tuple[Any, Any, Any]:
        """(init, lift, combine) of a reduction or contraction."""
        op = self.b.nodes[p].inst.op
        return initial(self.b, p), op.lift, op.combine

    def operand(self, p: int, factors: list[Factor]) -> Any:
        n = self.b.nodes[p].inst
        return n.op.element(*[cast(self.v.source(p, i, factors), n.compute) for i in range(n.op.operands)])

    def lost(self, p: int, state: Sequence[Any]) -> list[Any]:
        """What rounding takes from the sums of a state: a variable for each part that is one."""
        op = self.b.nodes[p].inst.op
        sums = op.sums and not self.k.r.doubles
        return [self.k.var(const(0, "f32")) if sums and x.type == "f32" else None for x in state]

    def join(self, p: int, state: Sequence[Any], lost: list[Any], new: Any) -> None:
        """Joins a block's state to that of those before; the errors of sums are added up (Knuth's two-sum)."""
        k = self.k
        totals = [k.let(x, "s") for x in self.reduce_state(p)[2](tuple(state), tuple(new))]
        for var, c, x, total in zip(state, lost, new, totals, strict=True):
            if c is not None:
                part = k.let(total - var, "part")
                k.assign(c, c + ((var - (total - part)) + (x - part)))
            k.assign(var, total)

    def settle(self, state: Sequence[Any], lost: list[Any]) -> None:
        """Gives back what was lost; where a sum is infinite or NaN that is no number."""
        for var, c in zip(state, lost, strict=True):
            if c is not None:
                self.k.assign(var, where(isnan(c), var, var + c))

    def finish(self, p: int, state: tuple) -> Any:
        n = self.b.nodes[p].inst
        return fit(cast(n.op.result(state), n.out.dtype.compute), n.out.dtype.name)

    def put(self, p: int, at: Expr, v: Any) -> None:
        """Stores a value of the group. Of a packed dtype several elements share a word: where they are few they are exchanged in
        it, else they go out as 32-bit words, and are packed by a launch after this one."""
        n = self.b.nodes[p]
        ref = self.b.ref_of(n)
        if self.k.r.packs(ref.dtype.name) == 1:
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
        return self.b.nodes[p].inst.op.reduces

    # ---- statements

    def body(self, o: Expr) -> None:
        g = self.g
        nodes = sorted(g.nodes)
        length = self.k.dim(g.K, "length")
        for phase in range(max(g.phase[p] for p in nodes) + 1):
            self.v.point = row_point = [(o, g.O, "o")]
            reduces = [p for p in nodes if self._is_reduce(p) and g.phase[p] == phase + 1]
            for p in nodes:
                if g.level[p] == "row" and g.phase[p] == phase and not self._is_reduce(p):
                    self.v.inside[p] = self.k.let(self.v.compute(p, row_point), "x")
                    self._store_row(p, o)
            full = self._full(phase)
            if reduces or full:
                states = self.walk(o, reduces, full, U0, length)
                self.v.point = row_point
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
        conditions = [x for x in (first, self.leader()) if x]
        if conditions:
            self.k.r.push(f"if ({' && '.join(conditions)})")
        self.put(p, o, self.v.inside[p])
        if conditions:
            self.k.r.pop()

    def leader(self) -> str:
        """The condition under which a thread is the one of its row that stores; empty where each is."""
        return "lid == 0u" if self.wide else ""

    def walk(self, o: Expr, reduces: list[int], full: list[int], start: Expr, end: Expr) -> dict[int, tuple]:
        """One walk along the row, or a chunk of it: stores these values, and gives the states of these reductions."""
        for p in reduces:
            self.hoist(p, (o, self.g.O, "o"), (self.g.K, "k"))
        if self.wide or (self.b.target.barriers and not self.neighbours):
            return self._by_several(o, reduces, full, start, end)
        k = self.k
        states = {p: tuple(k.var(x) for x in self.reduce_state(p)[0]) for p in reduces}
        if k.r.doubles or not self._is_float(reduces):
            with k.loop(end, start) as ke:
                self.update(states, self.element(o, ke, states, full))
            return states
        # sums in blocks: the rounding error then grows with the number of blocks, not of elements
        lost = {p: self.lost(p, states[p]) for p in reduces}
        with k.loop(end, start, hint="kb", step=_BLOCK) as kb:
            stop = k.r.text(minimum(kb + _BLOCK, end))
            inner = {p: tuple(k.var(x) for x in self.reduce_state(p)[0]) for p in reduces}
            with k.loop(variable(stop, "u32"), kb) as ke:
                self.update(inner, self.element(o, ke, inner, full))
            for p in reduces:
                self.join(p, states[p], lost[p], inner[p])
        for p in reduces:
            self.settle(states[p], lost[p])
        return states

    def _by_several(self, o: Expr, reduces: list[int], full: list[int], start: Expr, end: Expr) -> dict[int, tuple]:
        """The same where memory takes long to answer, and many threads ask it: several elements at once, which are written out,
        so that no load waits for another. Those beyond the end are the last one again, and do not count."""
        k = self.k
        n = self._at_once(reduces, full)
        stride = self.size if self.wide else 1
        begin = k.let(start + variable("lid", "u32"), "begin") if self.wide else start
        last = k.let(end - 1, "last")
        states = {p: tuple(k.var(x) for x in self.reduce_state(p)[0]) for p in reduces}
        blocks = not self.wide and self._is_float(reduces)
        lost = {p: self.lost(p, states[p]) for p in reduces} if blocks else {}
        with k.loop(end, begin, hint="kb", step=const(n * stride, "u32")) as kb:
            new = {p: self.reduce_state(p)[0] for p in reduces} if blocks else states
            for j in range(n):
                at = k.let(kb + j * stride, "k") if j else kb
                counts = k.let(at < end, "counts") if j else None
                new = self.element(o, k.let(minimum(at, last), "k") if j else at, new, full, counts)
            if blocks:
                for p in reduces:
                    self.join(p, states[p], lost[p], new[p])
            else:
                self.update(states, new)
        if blocks:
            for p in reduces:
                self.settle(states[p], lost[p])
        return self.join_threads(states) if self.wide and states else states

    def _at_once(self, reduces: list[int], full: list[int]) -> int:
        """How many elements are written out: fewer where the text for each is long."""
        nodes = len(self._full_needed(reduces, full)) + len(reduces)
        return max(2, _AT_ONCE >> (nodes // 3))

    def element(
        self,
        o: Expr,
        ke: Expr,
        states: dict[int, tuple],
        full: list[int],
        counts: Expr | None = None,
        known: dict[int, Any] | None = None,
    ) -> dict[int, tuple]:
        """The statements for element `ke` of a row: stores these values, and gives the states joined with those of the element.

        counts: whether it is an element at all. known: values of full level that have names already, and get them here.
        """
        k, g, v = self.k, self.g, self.v
        known = {} if known is None else known
        point: list[Factor] = [(o, g.O, "o"), (ke, g.K, "k")]
        before, v.point = v.point, point
        v.inside |= known
        for p in self._full_needed(list(states), full):
            if p not in known:
                known[p] = v.inside[p] = k.let(v.compute(p, point), "x")
        new: dict[int, tuple] = {}
        for p, state in states.items():
            _, lift, combine = self.reduce_state(p)
            joined = combine(tuple(state), lift(self.operand(p, point), ke))
            if counts is not None:
                joined = tuple(where(counts, x, y) for x, y in zip(joined, state, strict=True))
            new[p] = tuple(k.let(x, "s") for x in joined)
        if full:
            at = k.let(o * k.dim(g.K, "length") + ke, "i")
            conditions = [k.r.text(x) for x in (counts, self.exists) if x is not None]
            if conditions:
                k.r.push(f"if ({' && '.join(conditions)})")
            for p in full:
                self.put(p, at, v.inside[p])
            if conditions:
                k.r.pop()
        for p in known:
            del v.inside[p]
        v.point = before
        return new

    def update(self, states: dict[int, tuple], new: dict[int, tuple]) -> None:
        """Assigns to the variables of states."""
        for p, state in states.items():
            for var, x in zip(state, new[p], strict=True):
                self.k.assign(var, x)

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

    def _arrays(self, states: dict[int, tuple]) -> dict[int, list[str]]:
        """Names of shared arrays for these states. Every other time they are the same ones: no thread comes to the barrier of one
        time before all have read what they joined the time before."""
        pool: dict[str, list[str]] = self.pools[self.joins % 2]
        self.joins += 1
        used: dict[str, int] = {}
        arrays: dict[int, list[str]] = {}
        for p, state in states.items():
            arrays[p] = []
            for type in (TYPES[x.type] for x in state):
                at = used[type] = used.get(type, -1) + 1
                names = pool.setdefault(type, [])
                if at == len(names):
                    names.append(self.k.shared_array(type))
                arrays[p].append(names[at])
        return arrays

    def join_threads(self, states: dict[int, tuple]) -> dict[int, tuple]:
        """The threads' states of a row joined in shared memory, for all of them: some threads join those of several each, then every
        thread joins theirs. So it takes two barriers, whatever there is to join; where a workgroup has several rows, one."""
        k, r = self.k, self.k.r
        some = 1 << self.size.bit_length() // 2
        arrays = self._arrays(states)

        def put(p: int, state: tuple) -> None:
            for name, x in zip(arrays[p], state, strict=True):
                r.line(f"{name}[lid] = {r.text(x)};")

        def get(p: int, at: str) -> tuple:
            return tuple(k.let_copy(variable(f"{n}[{at}]", x.type)) for n, x in zip(arrays[p], states[p], strict=True))

        def joined(p: int, first: str, start: str, end: str, step: int) -> tuple:
            state = tuple(k.var(x) for x in get(p, first))
            at = r.name("j")
            r.loop(at, start, end, f"{step}u")
            new = self.reduce_state(p)[2](tuple(k.let_copy(x) for x in state), get(p, at))
            self.update({p: state}, {p: tuple(k.let(x, "s") for x in new)})
            r.pop()
            return state

        for p, state in states.items():
            put(p, state)
        r.line("workgroupBarrier();")
        if self.several is not None:
            first, end = self.several
            return {p: joined(p, first, f"{first} + 1u", end, 1) for p in states}
        r.push(f"if (lid < {some}u)")
        for p in states:
            put(p, joined(p, "lid", f"lid + {some}u", f"{self.size}u", some))
        r.pop()
        r.line("workgroupBarrier();")
        return {p: joined(p, "0u", "1u", f"{some}u", 1) for p in states}
