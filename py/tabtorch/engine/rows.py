"""Row kernels: reductions and contractions with the maps before, between and after them, in one pass or a few over each row.

A group of `fuse.py` comes in, launches of the plan go out. Contractions that a tuned kernel serves go to `tiles.py` instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tabtorch.base import dtypes

from .expr import Complex, Expr, cast, const, fit, idiv, isnan, minimum, variable, where
from .lower import PACKED, U0, Factor, Kernel, Ref, grid_for, groups_head, index_of, map_kernel, threads_head
from .wgsl import TYPES

if TYPE_CHECKING:
    from .fuse import Group
    from .plan import Builder

#: a thread adds so many elements before it adds their sum to what came before
_BLOCK = const(16, "u32")
#: where the states of a reduction are kept between its two stages
_STATE_DTYPE = {
    "f32": dtypes.float32,
    "f64": dtypes.float64,
    "i32": dtypes.int32,
    "u32": dtypes.int32,
    "i64": dtypes.int64,
    "bool": dtypes.int32,
}


class RowKernel:
    """Writes the kernel of a `row` or `contract` group.

    Two forms. Barrier-free: one thread (on the cpu device, one turn of a loop) walks a row. With barriers: a workgroup
    walks a row and joins the threads' states in shared memory. A value at row level is a variable; full-level values are
    computed again in each pass over the row that needs them.
    """

    def __init__(self, b: Builder, g: Group, partial: dict[int, tuple[list[Ref], int]]) -> None:
        self.b = b
        self.g = g
        self.partial = partial
        self.k = Kernel(b.target.number, b.label(g))
        self.v = b.values(self.k)
        self.pack: list[tuple[Ref, Ref, int]] = []
        long_rows = bool(partial) or (g.K >= 128 and self._inner_contiguous())
        self.wide = b.target.barriers and long_rows
        longest = max([chunks for _, chunks in partial.values()], default=g.K)
        self.k.workgroup = (256 if self.wide and longest > 1024 else 64, 1, 1)
        if b.target.software:
            self.k.workgroup = (16, 1, 1)

    def _inner_contiguous(self) -> bool:
        for p in self.g.nodes:
            n = self.b.nodes[p]
            for m in n.inst.ins:
                if m.numel == self.g.O * self.g.K and m.ndim and not (m.flat or m.strides[-1] in (0, 1)):
                    return False
        return True

    # ---- pieces

    def reduce_state(self, p: int) -> tuple[Any, Any, Any]:
        """(init, lift, combine) of a reduction or contraction."""
        n = self.b.nodes[p].inst
        if n.op.kind == "contract":
            t = n.compute
            zero = const(0, t)
            if isinstance(zero, Complex):
                return (
                    (zero.re, zero.im),
                    lambda v, k: (v.re, v.im),
                    lambda a, b: tuple(x + y for x, y in zip(a, b, strict=True)),
                )
            return (zero,), lambda v, k: (v,), lambda a, b: (a[0] + b[0],)
        return n.op.init(n.compute), n.op.lift, n.op.combine

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
        """Stores a value of the group; a packed dtype goes out as 32-bit words and is packed by a launch after this one."""
        n = self.b.nodes[p]
        ref = self.b.ref_of(n)
        if self.k.js or ref.dtype.name not in PACKED:
            self.k.store(ref, at, v)
            return
        wide = dtypes.float32 if ref.dtype.compute == "f32" else dtypes.int32
        total = n.inst.out.numel
        tmp = next((t for t, r, _ in self.pack if r.key == ref.key), None)
        if tmp is None:
            tmp = Ref(self.b.temp(total * 4), wide)
            self.pack.append((tmp, ref, total))
        self.k.store(tmp, at, cast(v, wide.compute))

    def hoist(self, p: int, o: Factor, kf: tuple[int, Any]) -> None:
        """Computes, outside the loop, the part of the operands' places that does not vary along the row."""
        n = self.b.nodes[p]
        for i, m in enumerate(n.inst.ins):
            if not m.flat and n.srcs[i].pos not in self.v.virtual:
                self.k.let(index_of(self.k, m, [o, (U0, kf[0], kf[1])], (p, i)), "base")

    # ---- forms

    def emit(self) -> None:
        k, g, r = self.k, self.g, self.k.r
        rows = k.dim(g.O, "rows")
        length = k.dim(g.K, "length") if g.kind != "row" or not self.partial else None
        o = variable("o", "u32")
        if k.js:
            r.loop("o", "0", r.text(rows))
            self.body(o, length)
            r.pop()
            src, grid = k.source([]), [1, 1, 1]
        elif self.wide:
            head = groups_head(k, rows, "o")
            self.body(o, length)
            src, grid = k.source(head), grid_for(g.O, 1)
        else:
            self.body(o, length)
            src = k.source(threads_head(k, rows, name="o"))
            grid = grid_for(g.O, k.workgroup[0])
        self.b.launch(k, src, grid)
        for tmp, ref, total in self.pack:
            self.pack_words(tmp, ref, total)

    def pack_words(self, tmp: Ref, ref: Ref, total: int) -> None:
        """A launch that packs what `put` left as 32-bit words."""
        k = Kernel(self.b.target.number, "pack " + ref.dtype.name)
        src, grid = map_kernel(k, total, lambda i: [(ref, cast(k.load(tmp, i), ref.dtype.compute))])
        self.b.launch(k, src, grid)

    def body(self, o: Expr, length: Expr | None) -> None:
        g, v = self.g, self.v
        nodes = sorted(g.nodes)
        row_point = [(o, g.O, "o")]
        last = max([g.phase[p] for p in nodes])
        for phase in range(last + 1):
            v.home = row_point
            reduces = [p for p in nodes if self._is_reduce(p) and g.phase[p] == phase + 1]
            for p in nodes:
                if g.level[p] == "row" and g.phase[p] == phase and not self._is_reduce(p):
                    self._row_map(p, o, row_point)
            full = [p for p in nodes if g.level[p] == "full" and g.phase[p] == phase and p in self.b.stored]
            if reduces or full:
                self._pass(o, length, reduces, full, phase)
            for p in reduces:
                self._store_row(p, o)

    def _is_reduce(self, p: int) -> bool:
        return self.b.nodes[p].inst.op.kind in ("reduce", "contract")

    def _row_map(self, p: int, o: Expr, point: list[Factor]) -> None:
        self.v.inside[p] = self.k.let(self.v.compute(p, point), "x")
        self._store_row(p, o)

    def _store_row(self, p: int, o: Expr) -> None:
        if p not in self.b.stored:
            return
        if self.wide:
            self.k.r.push("if (lid == 0u)")
        self.put(p, o, self.v.inside[p])
        if self.wide:
            self.k.r.pop()

    def _pass(self, o: Expr, length: Expr | None, reduces: list[int], full: list[int], phase: int) -> None:
        """One walk along the row: the states of these reductions, and these stores."""
        k, g, r, v = self.k, self.g, self.k.r, self.v
        if self.partial:
            self._join_partial(o, reduces)
            return
        assert length is not None
        o_factor: Factor = (o, g.O, "o")
        for p in reduces:
            self.hoist(p, o_factor, (g.K, "k"))
        states = {p: [k.var(x) for x in self.reduce_state(p)[0]] for p in reduces}
        blocked = bool(reduces) and not k.js and not self.wide and self._is_float(reduces)
        if blocked:
            # sums in blocks: the rounding error then grows with the number of blocks, not of elements
            lost = {p: self.lost(p, states[p]) for p in reduces}
            outer = k.loop(length, hint="kb", step=_BLOCK)
            kb = outer.__enter__()
            end = r.text(minimum(kb + _BLOCK, length))
            inner = {p: [k.var(x) for x in self.reduce_state(p)[0]] for p in reduces}
            kk = r.name("k")
            r.loop(kk, r.text(kb), end)
        else:
            inner = states
            kk = r.name("k")
            if self.wide:
                r.loop(kk, "lid", r.text(length), f"{k.workgroup[0]}u")
            else:
                r.loop(kk, "0" if k.js else "0u", r.text(length))
        ke = variable(kk, "u32")
        point: list[Factor] = [o_factor, (ke, g.K, "k")]
        v.home = point
        mine: list[int] = []
        need = self._full_needed(reduces, full)
        for p in need:
            val = v.compute(p, point)
            v.inside[p] = k.let(val, "x")
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
        v.home = [(o, g.O, "o")]
        for p in reduces:
            state = tuple(states[p])
            if self.wide:
                state = self._join_threads(p, state)
            v.inside[p] = k.let(self.finish(p, tuple(state)), "x")

    def _is_float(self, reduces: list[int]) -> bool:
        return any(self.b.nodes[p].inst.compute in ("f32", "c64") for p in reduces)

    def _full_needed(self, reduces: list[int], full: list[int]) -> list[int]:
        """Full-level members, in order, that this pass has to compute."""
        g = self.g
        want = set(full)
        stack = [*reduces, *full]
        seen = set(stack)
        while stack:
            p = stack.pop()
            for s in self.b.nodes[p].srcs:
                if s.buf is not None:
                    continue
                q = s.pos
                if q in seen:
                    continue
                if q in self.b.graph.virtual or (self.b.graph.of.get(q) is g and g.level[q] == "full"):
                    seen.add(q)
                    stack.append(q)
                    if q not in self.b.graph.virtual:
                        want.add(q)
        return sorted(want)

    def _join_threads(self, p: int, state: tuple) -> tuple:
        """The workgroup's states joined in shared memory; all threads get the result."""
        k, r = self.k, self.k.r
        _, _, combine = self.reduce_state(p)
        names = []
        for x in state:
            n = f"sh{len(k.globals)}"
            k.globals.append(f"var<workgroup> {n}: array<{TYPES[x.type]}, {k.workgroup[0]}>;")
            names.append(n)
            r.line(f"{n}[lid] = {r.text(x)};")
        r.line("workgroupBarrier();")
        step = r.name("step")
        r.push(f"for (var {step} = {k.workgroup[0] // 2}u; {step} > 0u; {step} >>= 1u)")
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

    # ---- long rows in two stages

    def emit_partial(self, p: int, chunks: int, length: int) -> list[Ref]:
        """First stage: a launch that leaves the state of each chunk in buffers, one for each part of the state."""
        k, g, r = self.k, self.g, self.k.r
        k.name = self.b.nodes[p].inst.op.name + " of chunks"
        init, lift, combine = self.reduce_state(p)
        refs = [
            Ref(self.b.temp(g.O * chunks * (8 if x.type in ("i64", "f64") else 4)), _STATE_DTYPE[x.type]) for x in init
        ]
        neighbours = self._inner_contiguous()
        self.wide = wide = self.b.target.barriers and neighbours
        k.workgroup = (256, 1, 1) if wide else k.workgroup
        total, row_len = k.dim(g.O * chunks, "chunks in all"), k.dim(g.K, "length")
        nchunks, clen = k.dim(chunks, "chunks"), k.dim(length, "chunk")
        t = variable("t", "u32")
        if neighbours:
            o = k.let(idiv(t, nchunks), "o")
            chunk, at = t - o * nchunks, t
        else:  # the elements of a row lie apart: threads side by side take rows side by side
            rows = k.dim(g.O, "rows")
            chunk = k.let(idiv(t, rows), "chunk")
            o = k.let(t - chunk * rows, "o")
            at = o * nchunks + chunk
        start = k.let(chunk * clen, "start")
        end = k.let(minimum(start + clen, row_len), "end")
        o_factor: Factor = (o, g.O, "o")
        self.hoist(p, o_factor, (g.K, "k"))
        state = [k.var(x) for x in init]
        kk = r.name("k")
        if wide:
            r.loop(kk, f"{r.text(start)} + lid", r.text(end), "256u")
            inner = state
        else:
            lost = self.lost(p, state)
            kb = r.name("kb")
            r.loop(kb, r.text(start), r.text(end), r.text(_BLOCK))
            stop = r.text(minimum(variable(kb, "u32") + _BLOCK, end))
            inner = [k.var(x) for x in init]
            r.loop(kk, kb, stop)
        ke = variable(kk, "u32")
        point: list[Factor] = [o_factor, (ke, g.K, "k")]
        self.v.home = point
        new = [k.let(x, "s") for x in combine(tuple(inner), lift(self.operand(p, point), ke))]
        for var, x in zip(inner, new, strict=True):
            k.assign(var, x)
        r.pop()
        if not wide:
            self.join(p, state, lost, inner)
            r.pop()
            self.settle(state, lost)
        final: Any = tuple(state)
        if wide:
            final = self._join_threads(p, final)
            r.push("if (lid == 0u)")
        for ref, x in zip(refs, final, strict=True):
            k.store(ref, at, cast(x, ref.dtype.compute))
        if wide:
            r.pop()
            self.b.launch(k, k.source(groups_head(k, total, "t")), grid_for(g.O * chunks, 1))
        else:
            src = k.source(threads_head(k, total, name="t"))
            self.b.launch(k, src, grid_for(g.O * chunks, k.workgroup[0]))
        return refs

    def _join_partial(self, o: Expr, reduces: list[int]) -> None:
        """Second stage: joins the chunks' states of each row."""
        k = self.k
        for p in reduces:
            refs, chunks = self.partial[p]
            init = self.reduce_state(p)[0]
            n = k.dim(chunks, ("chunks", p))
            state = [k.var(x) for x in init]
            lost = self.lost(p, state)
            start, step = (variable("lid", "u32"), const(k.workgroup[0], "u32")) if self.wide else (U0, None)
            with k.loop(n, start, step=step) as c:
                at = k.let(o * n + c, "i")
                got = [k.let(cast(k.load(ref, at), x.type), "c") for ref, x in zip(refs, init, strict=True)]
                self.join(p, state, lost, got)
            self.settle(state, lost)
            joined = self._join_threads(p, tuple(state)) if self.wide else tuple(state)
            self.v.inside[p] = k.let(self.finish(p, joined), "x")
