"""Windows of pooling: arguments and sizes, the view that shows every window, and its transpose."""

from __future__ import annotations

from typing import Any

from tabtorch.autograd.tape import record
from tabtorch.core.layout import contiguous_format
from tabtorch.core.shapes import one_or_more, permuted, remembered
from tabtorch.core.tensor import Tensor
from tabtorch.engine.expr import Expr, cast, const, idiv, minimum, where
from tabtorch.engine.graph import Inst, Map, inst
from tabtorch.engine.view import Meta, contiguous_meta, meta, ordered_strides
from tabtorch.ops.machinery.operation import run, view_meta
from tabtorch.ops.reductions.reduce import SUM
from tabtorch.ops.sliding.sliding_views import Ints, out_size, padded

#: kernel, stride, padding, dilation, size of the input, size of the output; one number a dimension each
Geometry = tuple[Ints, Ints, Ints, Ints, Ints, Ints]

# ---- arguments


def pool_ints(value: Any, n: int, name: str, arg: str) -> Ints:
    if isinstance(value, int):
        return (value,) * n
    v = one_or_more(value, name, arg)
    if len(v) == 1:
        return v * n
    if len(v) != n:
        if n == 1:
            raise RuntimeError(f"{name}() argument '{arg}' should contain one int (got {len(v)})")
        verb = (
            "either be"
            if arg in ("kernel_size", "output_size")
            else "be either"
            if arg == "dilation"
            else "either be omitted,"
        )
        raise RuntimeError(f"{name}: {arg} must {verb} a single int, or a tuple of {('two', 'three')[n - 2]} ints")
    return v


def _geometry(
    name: str, x: Meta, n: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> Geometry:
    """The checked arguments of a pool over `n` dimensions, each as a tuple, and the size of what it gives. PyTorch's errors."""
    k = pool_ints(kernel, n, name, "kernel_size")
    st = (
        k
        if stride is None or (isinstance(stride, (tuple, list)) and not stride)
        else pool_ints(stride, n, name, "stride")
    )
    pa, di = pool_ints(padding, n, name, "padding"), pool_ints(dilation, n, name, "dilation")
    if x.ndim not in (n + 1, n + 2):
        if name == "max_pool1d":
            raise RuntimeError(
                f"{name}: Expected 2D or 3D (batch mode) tensor with optional 0 dim batch size for input, but got:{list(x.shape)}"
            )
        if name == "avg_pool1d":
            raise RuntimeError(
                f"Expected 2 to 3 dimensions, but got {x.ndim}-dimensional tensor for argument #1 'self' (while checking "
                "arguments for avg_pool1d)"
            )
        if name == "avg_pool2d" and x.ndim < 3:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-x.ndim}, {x.ndim - 1}], but got -3)"
            )
        raise RuntimeError(f"non-empty {n + 1}D or {n + 2}D (batch mode) tensor expected for input")
    one = name == "max_pool1d"  # has messages of its own
    if min(st) <= 0 and not (one and k[0] <= 0):
        raise RuntimeError(
            f"{name}() stride must be greater than zero, but got {st[0]}" if one else "stride should not be zero"
        )
    if min(k) <= 0:
        raise RuntimeError(
            f"{name}() kernel_size must be greater than zero, but got {k[0]}"
            if one
            else "kernel size should be greater than zero, but got " + _named(k)
        )
    if min(di) <= 0:
        raise RuntimeError(
            f"{name}() dilation must be greater than zero, but got {di[0]}"
            if one
            else "dilation should be greater than zero, but got " + _named(di, "dilation")
        )
    for p, s, d in zip(pa, k, di):
        if p < 0:
            raise RuntimeError(
                f"{name}() padding must be non-negative, but got {p}"
                if one
                else f"pad must be non-negative, but got pad: {p}"
            )
        if p > ((s - 1) * d + 1) // 2:
            raise RuntimeError(
                f"{name}() padding should be at most half of kernel size, but got padding={p} and kernel_size={s}"
                if one
                else f"pad should be at most half of effective kernel size, but got pad={p}, kernel_size={s} and dilation={d}"
            )
    if name not in ("avg_pool1d", "avg_pool3d") and 0 in x.shape[-n - 1 :]:
        given = list(x.shape)
        if n == 3:
            where = x.shape.index(0, x.ndim - 4) - (x.ndim - 4)
            raise RuntimeError(
                f"{name}_with_indices_out_cpu_template(): Expected input's non-batch dimensions to have positive length, but "
                f"input has a shape of {given} and non-batch dimension {where} has length zero!"
            )
        raise RuntimeError(
            f"{name + ': ' if one else ''}Expected {n + 1}D or {n + 2}D (batch mode) tensor with optional 0 dim batch size "
            f"for input, but got:{given}"
        )
    size = tuple(x.shape[-n:])
    out = tuple(out_size(s, a, p, t, d, ceil) for s, a, p, t, d in zip(size, k, pa, st, di, strict=True))
    if min(out) < 1:
        if one:
            raise RuntimeError(f"{name}() Invalid computed output size: {out[0]}")
        if name == "avg_pool3d" and not ceil:
            shown = " ".join(f"{a}: {b}" for a, b in zip("THW", size))
            raise RuntimeError(f"input image ({shown}) smaller than kernel size ({_named(k)})")
        lead = (x.shape[-n - 1],) + ((1,) if n == 1 else ())  # a 1-d pool is a 2-d one for PyTorch
        show = "x".join(map(str, (*lead, *size)))
        shown_out = "x".join(map(str, (*lead, *out)))
        raise RuntimeError(
            f"Given input size: ({show}). Calculated output size: ({shown_out}). Output size is too small"
        )
    return k, st, pa, di, size, out


_remembered_geometry = remembered(_geometry)


def geometry(
    name: str, x: Tensor, n: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> Geometry:
    """The geometry of a pool of (N, C, *size) or (C, *size). RuntimeError as PyTorch's."""
    try:
        return _remembered_geometry(name, x._tab_meta, n, kernel, stride, padding, dilation, ceil)
    except TypeError:  # lists
        return _geometry(name, x._tab_meta, n, kernel, stride, padding, dilation, ceil)


def _named(v: Ints, what: str = "k") -> str:
    return " ".join(f"{what}{n}: {x}" for n, x in zip("HW" if len(v) < 3 else "THW", v if len(v) > 1 else (1, *v)))


# ---- windows


@remembered
def _window_view(x: Meta, geo: Geometry) -> Meta:
    """The padded input as (…, *out, *kernel)."""
    k, st, _, di, _, out = geo
    lead = x.ndim - len(k)
    sp = x.strides[lead:]
    return view_meta(
        x,
        (*x.shape[:lead], *out, *k),
        (*x.strides[:lead], *(s * t for s, t in zip(sp, st)), *(s * d for s, d in zip(sp, di))),
    )


def frame(x: Tensor, geo: Geometry, fill: str) -> Tensor:
    k, st, pa, di, size, out = geo
    # the last window may end outside (ceil_mode), or before the end
    after = tuple(
        max((o - 1) * t + d * (a - 1) + 1 - s - p, 0) for o, t, d, a, s, p in zip(out, st, di, k, size, pa, strict=True)
    )
    return padded(x, pa, after, fill)


@remembered
def _reduce_inst(op: Any, xp: Meta, geo: Geometry, dtype: Any, compute: str, order: Ints) -> tuple[Inst, Meta]:
    v = _window_view(xp, geo)
    kept = v.ndim - len(geo[0])
    shown = contiguous_meta(v.shape[:kept], dtype, v.device)
    if order:
        shown = meta(shown.shape, ordered_strides(shown.shape, order), 0, dtype, v.device)
        v = permuted(v, (*order, *range(kept, v.ndim)))
    out = contiguous_meta(v.shape[:kept], dtype, v.device)
    return inst(op, (v,), out, static=kept, compute=compute), shown


def over(op: Any, xp: Tensor, geo: Geometry, dtype: Any, order: Ints = ()) -> Tensor:
    """The windows reduced, laid out in `order` of dimensions (none: row-major)."""
    m = xp._tab_meta
    i, shown = _reduce_inst(op, m, geo, dtype, m.dtype.compute, order)
    return run(i, shown, xp)


def _from_windows(p: Any, value: Any) -> Any:
    """At a point (…, *place, *kernel position): `value(window, position)` of the window that reads the place from that
    position, 0 where there is none. A place in the padding is never asked for."""
    k, st, pa, di, size, out = p.static
    n = len(k)
    c = p.coords
    lead = c[: len(c) - 2 * n]
    place, pos = c[len(lead) : len(lead) + n], c[len(lead) + n :]
    at: list[Expr] = []
    inside: Any = None
    for d in range(n):
        t = place[d]
        if pa[d]:
            t = t + p.dim(pa[d], ("pad", d))
        off = pos[d] if di[d] == 1 else pos[d] * p.dim(di[d], ("dilation", d))
        t = p.k.let(t - off, "t")  # wraps to a large number where the window would begin before the input
        if st[d] == 1:
            q = t
            ok = q < p.dim(out[d], ("out", d))
        else:
            q = p.k.let(idiv(t, p.dim(st[d], ("stride", d))), "q")
            ok = (q * p.dim(st[d], ("stride", d)) == t) & (q < p.dim(out[d], ("out", d)))
        inside = ok if inside is None else inside & ok
        at.append(minimum(q, p.dim(out[d] - 1, ("last", d))))
    v = value([*lead, *at], pos)
    return where(inside, v, const(0, v.type))


def _from_one_window(p: Any, value: Any) -> Any:
    """At a place: `value(window, position)` of the one window that can read it, 0 where none does."""
    k, st, pa, _, size, out = p.static
    n = len(k)
    lead, place = p.coords[:-n], p.coords[-n:]
    at: list[Expr] = []
    pos: list[Expr] = []
    inside: Any = None
    for d in range(n):
        t = place[d] + p.dim(pa[d], ("pad", d)) if pa[d] else place[d]
        stride = p.dim(st[d], ("stride", d))
        q = p.k.let(idiv(t, stride), "q")
        r = p.k.let(t - q * stride, "r")
        ok = q < p.dim(out[d], ("out", d))
        if st[d] > k[d]:
            ok = ok & (r < p.dim(k[d], ("size", d)))
        inside = ok if inside is None else inside & ok
        at.append(minimum(q, p.dim(out[d] - 1, ("last", d))))
        pos.append(r)
    v = value([*lead, *at], pos)
    return where(inside, v, const(0, v.type))


def _sum_value(p: Any) -> Any:
    return lambda at, pos: p.at(0, at)


def _max_value(p: Any) -> Any:
    kernel = p.static[0]

    def value(at: list[Expr], pos: list[Expr]) -> Any:
        flat: Any = None
        for d, c in enumerate(pos):
            flat = c if flat is None else flat * p.dim(kernel[d], ("kernel", d)) + c
        g = p.at(0, at)
        return where(cast(p.at(1, at), "u32") == flat, g, const(0, g.type))

    return value


def _column_value(p: Any) -> Any:
    n = len(p.static[0])
    return lambda at, pos: p.at(0, [*at[:-n], *pos, *at[-n:]])


SPREAD_SUM = Map("windows", lambda p: _from_windows(p, _sum_value(p)), indexed=True, cost=12, sized=True)
SPREAD_MAX = Map("windows of maxima", lambda p: _from_windows(p, _max_value(p)), indexed=True, cost=16, sized=True)
SPREAD_COLUMNS = Map(
    "windows of columns", lambda p: _from_windows(p, _column_value(p)), indexed=True, cost=12, sized=True
)
#: the same where windows do not overlap: a place has one window, so there is nothing to sum
_ALONE = {
    SPREAD_SUM: Map("window", lambda p: _from_one_window(p, _sum_value(p)), indexed=True, cost=12, sized=True),
    SPREAD_MAX: Map(
        "window of maximum", lambda p: _from_one_window(p, _max_value(p)), indexed=True, cost=16, sized=True
    ),
    SPREAD_COLUMNS: Map(
        "window of columns", lambda p: _from_one_window(p, _column_value(p)), indexed=True, cost=12, sized=True
    ),
}


def _leading(op: Map, g: Meta, geo: Geometry) -> Ints:
    """The dimensions of `g` in front of those of its windows, and of their elements where it has those."""
    return g.shape[: g.ndim - len(geo[0]) * (2 if op is SPREAD_COLUMNS else 1)]


@remembered
def _spread_insts(op: Map, metas: tuple[Meta, ...], geo: Geometry) -> tuple[Inst, Inst]:
    k, _, _, _, size, _ = geo
    g = metas[0]
    lead = _leading(op, g, geo)
    full = contiguous_meta((*lead, *size, *k), g.dtype, g.device)
    kept = len(lead) + len(k)
    spread = inst(op, metas, full, (), geo)
    total = inst(SUM, (full,), contiguous_meta((*lead, *size), g.dtype, g.device), static=kept)
    return spread, total


def back_to_places(op: Map, tensors: tuple[Tensor, ...], geo: Geometry) -> Tensor:
    k, st, _, di, size, _ = geo
    if all(a <= b for a, b in zip(k, st)) and all(x == 1 for x in di):
        g = tensors[0]._tab_meta
        out = contiguous_meta((*_leading(op, g, geo), *size), g.dtype, g.device)
        return run(inst(_ALONE[op], tuple(t._tab_meta for t in tensors), out, (), geo), out, *tensors)
    spread, total = _spread_insts(op, tuple(t._tab_meta for t in tensors), geo)
    return run(total, total.out, run(spread, spread.out, *tensors))


# ---- windows as columns, and back


def columns(x: Tensor, geo: Geometry) -> Tensor:
    """The windows of (N, C, *size) as (N, C, *kernel, *out). Recorded."""
    n, lead = len(geo[0]), x.ndim - len(geo[0])
    framed = frame(x.detach(), geo, "zero")
    order = (*range(lead), *range(lead + n, lead + 2 * n), *range(lead, lead + n))
    r = Tensor._view_of(framed, permuted(_window_view(framed._tab_meta, geo), order)).clone(
        memory_format=contiguous_format
    )
    record("Im2ColBackward0", (x,), r, lambda g: from_columns(g, geo))
    return r


def from_columns(x: Tensor, geo: Geometry) -> Tensor:
    """The adjoint of `columns`: each element of (N, C, *kernel, *out) added to the place it came from. Recorded."""
    r = back_to_places(SPREAD_COLUMNS, (x.detach(),), geo)
    record("Col2ImBackward0", (x,), r, lambda g: columns(g, geo))
    return r
