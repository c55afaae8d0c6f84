"""Kernels that write at places that depend on data. The output starts as a copy of input 0, or takes its buffer over.

Several threads may meet at one place. Where they set it, any of them may win, as PyTorch says of CUDA (on the cpu device the
last wins); where they add or compare, atomics do it. Only 32-bit types, and 64-bit sums, have atomics: the callers see to it.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tabtorch.engine.expr import Complex, Expr, bitcast, cast, const, fit, isnan, variable, where
from tabtorch.engine.graph import Custom, Inst, Map, emit, inst
from tabtorch.engine.lower import Kernel, Ref, coordinates
from tabtorch.engine.view import Meta, contiguous_meta, meta
from tabtorch.ops.indexing.index_maps import Layout, offset_at, source_coords, wrapped
from tabtorch.ops.machinery.batching import Call, Examples


def _place(k: Kernel, m: Meta, coords: list[Expr], role: Any) -> Expr:
    at = offset_at(k, m, coords, role)
    return const(at, "u32") if isinstance(at, int) else at


def combine(mode: str, old: Any, v: Any) -> Any:
    """The new value of a place. NaN wins a comparison, as in PyTorch's amax and amin."""
    if mode == "prod":
        return old * v
    better = v > old if mode == "amax" else v < old
    return where(better | isnan(v), v, old) if v.type in ("f32", "f64") else where(better, v, old)


def _apply(k: Kernel, ref: Ref, at: Expr, v: Any, mode: str, shared: bool = True) -> None:
    """Brings value `v` to element `at`; `shared`: other threads may do so at once."""
    d = ref.dtype
    v = cast(v, d.compute)
    if mode == "set":
        v = fit(v, d.name)
        if isinstance(v, Complex):
            k.store(ref, at, v)
        else:
            k.store_bits(ref, at, v)
    elif mode == "add":
        k.atomic_add(ref, at, v)
    elif k.r.serial or not shared:
        at = k.let(at, "at")
        k.store(ref, at, fit(combine(mode, k.load(ref, at), v), d.name))
    else:
        r = k.r
        n = k.bind(ref, "rw")
        k.atomics.add(n)
        v = k.let(v, "x")
        place = r.text(k.let(at, "at"))
        old = r.name("old")
        r.line(f"var {old} = atomicLoad(&{n}[{place}]);")
        r.push("loop")
        new = r.text(bitcast(combine(mode, bitcast(variable(old, "u32"), d.compute), v), "u32"))
        r.line(
            f"let x = atomicCompareExchangeWeak(&{n}[{place}], {old}, {new}); "
            f"if (x.exchanged) {{ break; }} {old} = x.old_value;"
        )
        r.pop()


def _index_put(i: Inst, low: Any) -> None:
    lay, mode, ordered = i.static

    def put(k: Kernel, coords: list[Expr]) -> None:
        def load(j: int, c: list[Expr]) -> Any:
            return k.load(low.input(1 + j), _place(k, i.ins[1 + j], c, (low.pos, 1 + j)))

        at = _place(k, lay.source, source_coords(k, lay, coords, load, k.dim), "out")
        if i.scalars:
            v = low.scalar(k, 0)
        else:
            last = len(i.ins) - 1
            v = k.load(low.input(last), _place(k, i.ins[last], coords, (low.pos, last)))
        _apply(k, low.output, at, v, mode)

    def one(k: Kernel, t: Expr) -> None:
        put(k, [k.let(c, "c") for c in coordinates(k, lay.domain, [(t, prod(lay.domain), "d")], "c")])

    def line(k: Kernel, t: Expr) -> None:
        named = lay.domain[lay.at : lay.at + lay.n]
        rest = (*lay.domain[: lay.at], *lay.domain[lay.at + lay.n :])
        c = [k.let(x, "c") for x in coordinates(k, rest, [(t, prod(rest), "d")], "c")]
        with k.loop(k.dim(prod(named), "length")) as j:
            p = [k.let(x, "p") for x in coordinates(k, named, [(j, prod(named), "e")], "p")]
            put(k, [*c[: lay.at], *p, *c[lay.at :]])

    if ordered and not low.target.serial:  # a thread makes all the writes that can meet, one after the other
        low.launch(
            f"{i.op.name} {mode} lines", prod(lay.domain) // max(prod(lay.domain[lay.at : lay.at + lay.n]), 1), line
        )
    else:
        low.launch(f"{i.op.name} {mode}", prod(lay.domain), one)


_NUMBERS = Map("arange", lambda p: p.coords[0], indexed=True)
_layouts: dict[Any, Layout] = {}


def _index_put_examples(e: Examples) -> Call:
    """The batch becomes an index too: 0, 1, 2, … beside the others."""
    lay, mode, ordered = e.static
    out = e.node.inst.out
    count = len(lay.ins)
    places = tuple(e.ins[1 : 1 + count])
    line = contiguous_meta((e.size,), places[0].dtype, out.device)
    first = meta(places[0].shape, (1, *(0,) * lay.n), 0, line.dtype, out.device)
    key = (lay, places, e.size)
    big = _layouts.get(key)
    if big is None:
        m = lay.source
        source = m.view((e.size, *m.shape), (out.numel, *m.strides), m.offset)
        pattern = (0, *[j + 1 if j >= 0 else j for j in lay.pattern])
        big = _layouts[key] = Layout(source, (first, *places), pattern, lay.at, lay.shape)
    rest = [_moved(m, lay.at) for m in e.ins[1 + count :]]
    numbers = emit(inst(_NUMBERS, (), line), ())
    return Call((big, mode, ordered), [e.ins[0], first, *places, *rest], [e.srcs[0], numbers, *e.srcs[1:]])


def _moved(m: Meta, at: int) -> Meta:
    """The first dimension `at` places further back."""
    order = (*range(1, at + 1), 0, *range(at + 1, m.ndim))
    return m.view(tuple([m.shape[d] for d in order]), tuple([m.strides[d] for d in order]), m.offset)


INDEX_PUT = Custom("index_put", _index_put, in_place=True, sliding=True, batched=_index_put_examples)


def _scatter(i: Inst, low: Any) -> None:
    axis, mode, out, ordered = i.static
    m = i.ins[1]
    n = out.shape[axis]

    def put(k: Kernel, coords: list[Expr], shared: bool) -> None:
        index = k.load(low.input(1), _place(k, m, coords, (low.pos, 1)))
        to = list(coords)
        to[axis] = k.let(wrapped(index, k.dim(n, "n"), k.dim(n - 1, "last"), False), "at")
        if i.scalars:
            v = low.scalar(k, 0)
        else:
            v = k.load(low.input(2), _place(k, i.ins[2], coords, (low.pos, 2)))
        _apply(k, low.output, _place(k, out, to, "out"), v, mode, shared)

    def one(k: Kernel, t: Expr) -> None:
        put(k, [k.let(c, "c") for c in coordinates(k, m.shape, [(t, m.numel, "d")], "c")], True)

    def line(k: Kernel, t: Expr) -> None:
        rest = (*m.shape[:axis], *m.shape[axis + 1 :])
        c = [k.let(x, "c") for x in coordinates(k, rest, [(t, prod(rest), "d")], "c")]
        with k.loop(k.dim(m.shape[axis], "length")) as j:
            put(k, [*c[:axis], j, *c[axis:]], False)

    wide = i.out.dtype.name == "int64" and mode in ("prod", "amax", "amin")  # for which there are no atomics
    if (wide or ordered) and not low.target.serial:  # a thread takes a whole line, which no other thread writes to
        low.launch(f"scatter {mode} lines", m.numel // max(m.shape[axis], 1), line)
    else:
        low.launch(f"scatter {mode}", m.numel, one)


def _scatter_examples(e: Examples) -> Call:
    axis, mode, out, ordered = e.static
    total = e.node.inst.out.numel
    return Call((axis + 1, mode, out.view((e.size, *out.shape), (total, *out.strides), out.offset), ordered), e.ins)


SCATTER = Custom("scatter", _scatter, in_place=True, sliding=True, sized=True, batched=_scatter_examples)
