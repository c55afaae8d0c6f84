"""One walk along each row: the statements of a reduction or contraction with the maps before, between and after it.

Two forms. Barrier-free: one thread (on the cpu device, one turn of a loop) walks a row. With barriers (`wide`): a workgroup
walks a row and joins the threads' states (`row_joins.py`), four elements at a time where these lie so that one load is for all
(`row_lanes.py`). `row_registers.py` and `row_chunks.py` have kernels made of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tabtorch.base import dtypes

from .expr import Expr, cast, const, fit, isnan, minimum, variable, where
from .lower import U0, Factor, Kernel, Ref, index_of
from .map_kernel import map_kernel
from .row_joins import Joiner, fresh, together
from .row_lanes import LANES, LaneValues, Served, sites
from .share import Part

if TYPE_CHECKING:
    from .fuse import Group
    from .plan import Builder

#: a thread adds so many elements before it adds their sum to what came before
_BLOCK = const(16, "u32")
#: elements of a row that a thread of a GPU has in flight at once, where there is little to do for each
_AT_ONCE = 8
#: rows of so many elements in all are walked several elements at once on a software adapter; in smaller ones that does not make up
#: for the time that the longer kernel takes to compile
_LARGE = 1 << 15
#: what a value costs (`Op.cost`) that is kept for later passes over a row rather than computed again
_DEAR = 10
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
            size=shape.size if shape.wide or shape.grouped else 0,
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
    computed again in each pass over the row that needs them. Where a thread walks a row, what is dear waits for later passes in
    the memory of a result that is not there yet (`_lent`)."""

    item = "o"
    exact = False  # whether a workgroup may have no more threads than `size`
    along = 1  # lanes are neighbours in a row; 0: they are rows side by side

    def __init__(self, b: Builder, g: Group, k: Kernel) -> None:
        self.b = b
        self.g = g
        self.k = k
        self.name = b.label(g)
        self.items = g.O
        self.pack: dict[Any, tuple[Ref, Ref, int]] = {}
        self.reads: set[Any] = set()
        self.writes: set[Any] = set()
        self.neighbours = neighbours(b, g)
        self.wide = b.target.barriers and g.K >= 128 and self.neighbours
        self.use_lanes(sites(b, g, 1) if self.wide else None)
        self.size = self._size(g.K)
        self.joiner = Joiner(b, k)
        #: where a workgroup has several rows: the threads of each, and the first of them
        self.several: tuple[int, str] | None = None
        #: the same: whether there is such a row
        self.exists: Expr | None = None
        #: where lanes are rows: the values of row level of each
        self.in_lane: list[dict[int, Any]] = []
        #: whether an item is a workgroup's, though it does not walk one row
        self.grouped = False
        #: values that earlier passes have left in memory, and those that this one leaves there, with the stored value whose it is
        self.held: dict[int, int] = {}
        self.leaves: dict[int, int] = {}

    def _size(self, longest: int) -> int:
        """Threads of a workgroup."""
        if self.b.target.software:
            return 16
        return 256 if self.wide and longest > 1024 else 64

    def use_lanes(self, served: Served | None) -> None:
        """Says how many elements a thread takes at a time: so many as a vector has, if vector loads serve these reads."""
        self.width = 1 if served is None else LANES
        self.v = LaneValues(self.b, self.k, served or {})

    def write(self, item: Expr) -> None:
        """The statements for one item."""
        if (self.wide or self.grouped) and self.k.workgroup[
            0
        ] != self.size:  # a launch that is shared may have more threads
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
        passes = [
            ([p for p in nodes if self._is_reduce(p) and g.phase[p] == phase + 1], self._full(phase))
            for phase in range(max(g.phase[p] for p in nodes) + 1)
        ]
        lent = self._lent(passes)
        for phase, (reduces, full) in enumerate(passes):
            self.v.point = row_point = [(o, g.O, "o")]
            for p in nodes:
                if g.level[p] == "row" and g.phase[p] == phase and not self._is_reduce(p):
                    self.v.inside[p] = self.k.let(self.v.compute(p, row_point), "x")
                    self._store_row(p, o)
            if reduces or full:
                self.leaves = {q: p for q, (when, p) in lent.items() if when == phase}
                states = self.walk(o, reduces, full, U0, length)
                self.held |= self.leaves
                self.v.point = row_point
                for p in reduces:
                    self.v.inside[p] = self.k.let(self.finish(p, states[p]), "x")
            for p in reduces:
                self._store_row(p, o)

    def _lent(self, passes: list[tuple[list[int], list[int]]]) -> dict[int, tuple[int, int]]:
        """The values of full level that are dear, and wanted by several passes: the first of those, and a value which the last of
        them, or one after it, stores: until then its memory is free. Only where one thread has all of a row."""
        if self.wide or self.b.target.barriers:
            return {}
        wanted = [self._full_needed(*each) for each in passes]
        stores = {p: at for at, (_, full) in enumerate(passes) for p in full}
        found: dict[int, tuple[int, int]] = {}
        for q in sorted({q for each in wanted for q in each}):
            inst = self.b.nodes[q].inst
            at = [i for i, each in enumerate(wanted) if q in each]
            dtype = inst.out.dtype
            if len(at) < 2 or inst.op.cost < _DEAR or dtype.compute not in ("f32", "f64"):
                continue
            if (
                self.k.r.packs(dtype.name) > 1
            ):  # elements that share a word may reach memory by a launch after this one only
                continue
            taken = [p for _, p in found.values()]
            for p in [q] if q in stores else stores:
                free = stores[p] >= at[-1] and stores[p] > at[0] and p not in taken
                if p == q or (free and self.b.nodes[p].inst.out.dtype is dtype):
                    found[q] = at[0], p
                    break
        return found

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
        large = self.b.target.software and self.g.O * self.g.K >= _LARGE
        if self.wide or large or (self.b.target.barriers and not self.neighbours):
            return self._by_several(o, reduces, full, start, end)
        k = self.k
        states = {p: tuple(k.var(x) for x in self.reduce_state(p)[0]) for p in reduces}
        if k.r.doubles or not self._is_float(reduces):
            with k.loop(end, start) as ke:
                self.update(states, *self.elements(o, ke, [states], full))
            return states
        # sums in blocks: the rounding error then grows with the number of blocks, not of elements
        lost = {p: self.lost(p, states[p]) for p in reduces}
        with k.loop(end, start, hint="kb", step=_BLOCK) as kb:
            stop = k.r.text(k.let(minimum(kb + _BLOCK, end), "end"))
            inner = {p: tuple(k.var(x) for x in self.reduce_state(p)[0]) for p in reduces}
            with k.loop(variable(stop, "u32"), kb) as ke:
                self.update(inner, *self.elements(o, ke, [inner], full))
            for p in reduces:
                self.join(p, states[p], lost[p], inner[p])
        for p in reduces:
            self.settle(states[p], lost[p])
        return states

    def _by_several(self, o: Expr, reduces: list[int], full: list[int], start: Expr, end: Expr) -> dict[int, tuple]:
        """The same where memory takes long to answer, and many threads ask it, or where the turns of a loop are dear."""
        if not self.wide:
            (states,) = self.loops(o, reduces, full, start, end, 1)
            return states
        (states,) = self.loops(
            o, reduces, full, start + variable("lid", "u32") * self.width, end, self.size * self.width
        )
        return self.join_threads(states) if reduces else states

    def loops(
        self, o: Expr, reduces: list[int], full: list[int], start: Expr, end: Expr, step: int
    ) -> list[dict[int, tuple]]:
        """What this thread finds in a row, or in those of its lanes, at every `step`th element from `start` on.

        Several elements at once, which are written out, so that no load waits for another, and none has to be asked whether it is
        there; what is left at the end goes one by one. Sums are in blocks of what is written out, as above.
        """
        k, r = self.k, self.k.r
        n = self._at_once(reduces, full)
        kb = k.var(start, "kb")
        several = self.width if self.along == 0 else 1
        states = [fresh(self, reduces) for _ in range(several)]
        lost = [{p: self.lost(p, mine[p]) for p in reduces} for mine in states]

        def add_up(lanes: list[dict[int, tuple]]) -> None:
            found = lanes if self.along == 0 else [together(self, lanes)]
            for mine, gone, new in zip(states, lost, found, strict=True):
                for p in reduces:
                    self.join(p, mine[p], gone[p], new[p])

        if n > 1:
            r.push(f"for (; {kb.value} + {(n - 1) * step}u < {r.text(end)}; {kb.value} += {n * step}u)")
            new = [{p: self.reduce_state(p)[0] for p in reduces} for _ in range(self.width)]
            for j in range(n):
                new = self.elements(o, k.let(kb + j * step, "k") if j else kb, new, full)
            add_up(new)
            r.pop()
        rest = [fresh(self, reduces) for _ in range(self.width)]
        r.push(f"for (; {kb.value} < {r.text(end)}; {kb.value} += {step}u)")
        for mine, found in zip(rest, self.elements(o, kb, rest, full), strict=True):
            self.update(mine, found)
        r.pop()
        add_up(rest)
        for mine, gone in zip(states, lost, strict=True):
            for p in reduces:
                self.settle(mine[p], gone[p])
        return states

    def _at_once(self, reduces: list[int], full: list[int]) -> int:
        """How many elements, or vectors of them, are written out: fewer where the text for each is long."""
        nodes = self.b.graph.maps(self._full_needed(reduces, full)) + len(reduces)
        if self.width > 1:
            return max(1, _AT_ONCE // 2 >> (nodes // 3))
        return max(2, _AT_ONCE >> (nodes // 3))

    def elements(
        self,
        o: Expr,
        ke: Expr,
        states: list[dict[int, tuple]],
        full: list[int],
        counts: Expr | None = None,
        known: list[dict[int, Any]] | None = None,
    ) -> list[dict[int, tuple]]:
        """The statements for element `ke` of a row, and its neighbours in the other lanes: stores these values, and gives the
        states of each lane joined with those of its element.

        counts: whether they are elements at all. known: of each lane, values of full level that have names already, and get them here.
        """
        k, v, lanes = self.k, self.v, range(len(states))
        known = [{} for _ in lanes] if known is None else known
        first = [(o, self.g.O, "o"), (ke, self.g.K, "k")] if len(states) > 1 else None
        places: list[tuple[Expr, Expr]] = [
            (o, ke) if not j else (o, ke + j) if self.along else (o + j, ke) for j in lanes
        ]
        new = []
        for j, place in enumerate(places):
            v.first, v.lane = first, j
            if self.in_lane:
                v.inside |= self.in_lane[j]
            new.append(self._element(*place, states[j], full, counts, known[j]))
        v.first = None
        v.places.clear()
        stored = [*((p, p) for p in full), *((p, q) for q, p in self.leaves.items() if p != q)]
        if stored:
            length = k.dim(self.g.K, "length")
            conditions = [k.r.text(x) for x in (counts, self.exists) if x is not None]
            if conditions:
                k.r.push(f"if ({' && '.join(conditions)})")
            if len(states) > 1 and self.along:
                at = k.let(o * length + ke, "i")
                for p in full:
                    k.store_lanes(self.b.ref_of(self.b.nodes[p]), at, [known[j][p] for j in lanes])
            else:
                for j, (row, element) in enumerate(places):
                    at = k.let(row * length + element, "i")
                    for p, q in stored:
                        self.put(p, at, known[j][q])
            if conditions:
                k.r.pop()
        return new

    def _element(
        self, o: Expr, ke: Expr, states: dict[int, tuple], full: list[int], counts: Expr | None, known: dict[int, Any]
    ) -> dict[int, tuple]:
        """The same of one element, but for what is stored."""
        k, g, v = self.k, self.g, self.v
        point: list[Factor] = [(o, g.O, "o"), (ke, g.K, "k")]
        before, v.point = v.point, point
        v.enter(point, v.first)
        v.inside |= known
        for p in self._full_needed(list(states), full):
            if p in self.held:
                left = self.b.ref_of(self.b.nodes[self.held[p]])
                known[p] = v.inside[p] = k.let(k.load(left, k.let(o * k.dim(g.K, "length") + ke, "i")), "x")
            elif p not in known:
                known[p] = v.inside[p] = k.let(v.compute(p, point), "x")
        new: dict[int, tuple] = {}
        for p, state in states.items():
            _, lift, combine = self.reduce_state(p)
            joined = combine(tuple(state), lift(self.operand(p, point), ke))
            if counts is not None:
                joined = tuple(where(counts, x, y) for x, y in zip(joined, state, strict=True))
            new[p] = tuple(k.let(x, "s") for x in joined)
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
                        if self._is_reduce(q) or q in self.held:
                            continue
                    stack.append(q)
        return out

    def join_threads(self, states: dict[int, tuple]) -> dict[int, tuple]:
        """The threads' states of a row as one, which every thread of it then has."""
        return self.joiner.join(states, *(self.several or (self.size, "0u")))
