"""Pooling: reductions over a view that shows every window of the padded input.

Gradients are in gather form: each input place sums over the kernel positions from which a window could have read it, so
nothing is written twice and no atomics are needed.
"""

from __future__ import annotations

from typing import Any

from tabtorch import _lazy, ops
from tabtorch.autograd.grad_mode import STATE
from tabtorch.autograd.tape import named, record
from tabtorch.base import dtypes
from tabtorch.core.layout import suggested_order
from tabtorch.core.shapes import as_float, remembered, type_name, unsqueezed
from tabtorch.core.tensor import Tensor
from tabtorch.engine.expr import Expr, cast, const, idiv, maximum, minimum, where
from tabtorch.engine.graph import Map, inst
from tabtorch.engine.view import Meta, contiguous_meta, meta, ordered_strides
from tabtorch.ops.indexing.index_maps import check_range
from tabtorch.ops.machinery.asserts import Complaint
from tabtorch.ops.machinery.operation import into, run
from tabtorch.ops.machinery.out_types import EXACT
from tabtorch.ops.machinery.promotion import FLOATING, FLOATING_LONG, REAL_NUMBERS, check_kernel
from tabtorch.ops.machinery.registry import register
from tabtorch.ops.reductions.reduce import AMAX, SUM, WINDOW_ARGMAX
from tabtorch.ops.shaping.convert import in_order, recorded_in_order
from tabtorch.ops.sliding.pool_views import (
    SPREAD_MAX,
    SPREAD_SUM,
    Geometry,
    back_to_places,
    frame,
    geometry,
    over,
    pool_ints,
)
from tabtorch.ops.sliding.sliding_views import Ints

# ---- maximum


def _place_at(p: Any) -> Any:
    """The place in its plane of the chosen kernel position of a window."""
    k, st, pa, di, size, _ = p.static
    n = len(k)
    win = p.coords[len(p.coords) - n :]
    rest = cast(p.value(0), "u32")
    pos: list[Expr] = []
    for d in range(n - 1, -1, -1):
        if d == 0:
            pos.append(rest)
        else:
            kd = p.dim(k[d], ("kernel", d))
            q = p.k.let(idiv(rest, kd), "q")
            pos.append(rest - q * kd)
            rest = q
    pos.reverse()
    flat: Any = None
    for d in range(n):
        at = win[d] * p.dim(st[d], ("stride", d)) + (pos[d] * p.dim(di[d], ("dilation", d)) if di[d] != 1 else pos[d])
        if pa[d]:
            # only a window of nothing but -inf can choose the padding: it gets its first place inside
            pad, dil = p.dim(pa[d], ("pad", d)), p.dim(di[d], ("dilation", d))
            at = p.k.let(at, "at")
            lift = idiv(pad - at + dil - 1, dil) * dil
            at = where(at < pad, at + lift, at) - pad
        at = minimum(at, p.dim(size[d] - 1, ("last", d)))
        flat = at if flat is None else flat * p.dim(size[d], ("size", d)) + at
    return cast(flat, "i64")


_PLACE = Map("place of maximum", _place_at, indexed=True, cost=12, sized=True)


@remembered
def _order(m: Meta, n: int) -> Ints:
    """The order of dimensions in which PyTorch gives a pool of `m` over `n` dimensions: channels last where it takes `m` to be
    so, else row-major: (). A 1-d pool is a 2-d one to it."""
    if not suggested_order(unsqueezed(m, m.ndim - 1) if n == 1 else m):
        return ()
    return (0, *range(2, m.ndim), 1)


def _max_pool(name: str, kernel_name: str, x: Tensor, geo: Geometry, want_indices: bool) -> Any:
    d = x._tab_meta.dtype
    check_kernel(kernel_name, d, REAL_NUMBERS)
    xp = frame(x, geo, "lowest")
    tracked = STATE.grad and x._tab_requires_grad
    # the maxima alone of vectors are the work of another kernel of PyTorch's
    order = _order(x._tab_meta, len(geo[0])) if len(geo[0]) > 1 or want_indices or tracked else ()
    y = over(AMAX, xp, geo, d, order)
    if not (want_indices or tracked):
        return y, None
    local = over(WINDOW_ARGMAX, xp, geo, dtypes.int32)  # the place inside the window
    indices = in_order(_places(local, geo), order) if want_indices else None
    if tracked:
        if indices is None:
            record(name, (x,), y, lambda g, local: _from_maxima(g, local, geo), (local,))
        else:
            record(name, (x,), (y, indices), lambda g, local: _from_maxima(g[0], local, geo), (local,))
    return y, indices


def _places(local: Tensor, geo: Geometry) -> Tensor:
    m = local._tab_meta
    i = inst(_PLACE, (m,), contiguous_meta(m.shape, dtypes.int64, m.device), (), geo)
    return run(i, i.out, local)


def _from_maxima(g: Tensor, local: Tensor, geo: Geometry) -> Tensor:
    """Each window's gradient at the place of its maximum."""
    r = back_to_places(SPREAD_MAX, (g, local), geo)
    if STATE.grad and g._tab_requires_grad:
        n = len(geo[0])

        def gather(h: Tensor, local: Tensor) -> Tensor:
            return h.flatten(-n).gather(-1, _places(local, geo).flatten(-n)).reshape(local.shape)

        record("MaxPoolBackwardBackward0", (g,), r, gather, (local,))
    return r


def max_pool1d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """Largest value of each window of (N, C, L) or (C, L); with `return_indices`, (values, places)."""
    geo = geometry("max_pool1d", input, 1, kernel_size, stride, padding, dilation, ceil_mode)
    y, i = _max_pool("SqueezeBackward1", "max_pool1d_impl", input, geo, return_indices)
    return (y, i) if return_indices else y


def max_pool2d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """Largest value of each window of (N, C, H, W) or (C, H, W); with `return_indices`, (values, places in the plane)."""
    geo = geometry("max_pool2d", input, 2, kernel_size, stride, padding, dilation, ceil_mode)
    y, i = _max_pool("MaxPool2DWithIndicesBackward0", "max_pool2d", input, geo, return_indices)
    return (y, i) if return_indices else y


def max_pool3d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """Largest value of each window of (N, C, D, H, W) or (C, D, H, W); with `return_indices`, (values, places)."""
    geo = geometry("max_pool3d", input, 3, kernel_size, stride, padding, dilation, ceil_mode)
    y, i = _max_pool("MaxPool3DWithIndicesBackward0", "max_pool3d", input, geo, return_indices)
    return (y, i) if return_indices else y


# ---- mean


def _count_at(p: Any) -> Any:
    """How many places of a window count: inside the input, or inside input and padding."""
    k, st, pa, _, size, _, with_pad = p.static
    total: Any = None
    for d, c in enumerate(p.coords):
        begin = p.k.let(c * p.dim(st[d], ("stride", d)), "begin")  # all places are shifted by the padding
        pad = p.dim(pa[d], ("pad", d))
        limit = p.dim(size[d] + 2 * pa[d], ("limit", d)) if with_pad else p.dim(size[d] + pa[d], ("limit", d))
        end = minimum(begin + p.dim(k[d], ("kernel", d)), limit)
        n = end - (begin if with_pad else maximum(begin, pad))
        total = n if total is None else total * n
    return cast(total, p.inst.out.dtype.compute)


_COUNT = Map("window count", _count_at, indexed=True, cost=4, sized=True)
_DIVIDE = Map("over", lambda s, n: s / n)


def _divided(y: Tensor, geo: Geometry, with_pad: bool, divisor: Any) -> Tensor:
    """Sums of windows (…, *out) over what counts in each; not recorded."""
    k, st, pa, di, size, out = geo
    m = y._tab_meta
    whole = all((o - 1) * t + a <= s + 2 * p for o, t, a, s, p in zip(out, st, k, size, pa))
    if divisor is None and whole and (with_pad or not any(pa)):
        divisor = 1
        for a in k:
            divisor *= a
    whole_numbers = m.dtype.category < 2
    if whole_numbers and divisor is not None:
        return ops.div(y, int(divisor), rounding_mode="trunc")
    if divisor is not None:
        i = inst(_DIVIDE, (m,), contiguous_meta(m.shape, m.dtype, m.device), (m.dtype.compute,))
        return run(i, i.out, y, scalars=(as_float(divisor),))
    wide = dtypes.float64 if m.dtype is dtypes.float64 else dtypes.float32
    c = inst(_COUNT, (), contiguous_meta(out, wide, m.device), (), (*geo, with_pad))
    count = run(c, c.out)
    if whole_numbers:
        return ops.div(y, count.to(m.dtype), rounding_mode="trunc")
    along = meta(m.shape, (*(0,) * (m.ndim - len(out)), *c.out.strides), 0, wide, m.device)
    i = inst(_DIVIDE, (m, along), contiguous_meta(m.shape, m.dtype, m.device))
    return run(i, i.out, y, count)


def _avg_forward(x: Tensor, geo: Geometry, with_pad: bool, divisor: Any, name: str) -> Tensor:
    d = x._tab_meta.dtype
    wide = dtypes.float32 if d.itemsize == 2 else d
    y = _divided(over(SUM, frame(x, geo, "zero"), geo, wide), geo, with_pad, divisor)
    y = y if wide is d else y.to(d)
    y = in_order(y, _order(x._tab_meta, len(geo[0])) if len(geo[0]) < 3 else ())
    if STATE.grad and x._tab_requires_grad:
        record(
            name,
            (x,),
            y,
            lambda g: _avg_backward(g, geo, with_pad, divisor, name.replace("Backward0", "BackwardBackward0")),
        )
    return y


def _avg_backward(g: Tensor, geo: Geometry, with_pad: bool, divisor: Any, name: str) -> Tensor:
    r = back_to_places(SPREAD_SUM, (_divided(g, geo, with_pad, divisor),), geo)
    if STATE.grad and g._tab_requires_grad:
        record(name, (g,), r, lambda h: _avg_forward(h, geo, with_pad, divisor, name))
    return r


def _avg_pool(
    n: int, x: Tensor, kernel: Any, stride: Any, padding: Any, ceil: bool, with_pad: bool, divisor: Any
) -> Tensor:
    name = f"avg_pool{n}d"
    if divisor == 0:
        raise RuntimeError("divisor must be not zero")
    geo = geometry(name, x, n, kernel, stride, padding, 1, ceil)
    # 3-d pools of halves are what PyTorch's GPUs alone have
    check_kernel("avg_pool2d" if n < 3 else "avg_pool3d_out_frame", x._tab_meta.dtype, FLOATING_LONG)
    grad_name = "SqueezeBackward1" if n == 1 else f"AvgPool{n}DBackward0"
    return _avg_forward(x, geo, with_pad, divisor, grad_name)


def avg_pool1d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:  # fmt: skip
    """Mean of each window of (N, C, L) or (C, L)."""
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def avg_pool2d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: Any = None,
    *, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Mean of each window of (N, C, H, W) or (C, H, W)."""
    return into(
        out,
        _avg_pool(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override),
        rule=EXACT,
    )


def avg_pool3d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: Any = None,
    *, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Mean of each window of (N, C, D, H, W) or (C, D, H, W)."""
    return into(
        out,
        _avg_pool(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override),
        rule=EXACT,
    )


# ---- adaptive: windows floor(i·n/o) to ceil((i+1)·n/o)


def _lengths_at(p: Any) -> Any:
    """How many places a window holds."""
    size, out = p.static
    count: Any = None
    for d, i in enumerate(p.coords):
        s, o = p.dim(size[d], ("size", d)), p.dim(out[d], ("out", d))
        n = idiv((i + 1) * s + o - 1, o) - idiv(i * s, o)
        count = n if count is None else count * n
    return cast(count, p.inst.out.dtype.compute)


_LENGTHS = Map("adaptive lengths", _lengths_at, indexed=True, cost=10, sized=True)


def _adaptive_args(name: str, x: Tensor, n: int, output_size: Any) -> Ints:
    single = output_size is None or isinstance(output_size, int)
    given = (output_size,) * n if single else tuple(output_size)
    full = f"adaptive_{name}_pool{n}d"
    if n > 1 and not single and x.ndim <= len(given):
        raise ValueError(f"Input dimension should be at least {len(given) + 1}")
    if x.ndim not in (n + 1, n + 2):
        raise RuntimeError(
            f"{full}(): Expected {n + 1}D or {n + 2}D tensor, but got{':' if name == 'max' else ''} {list(x.shape)}"
        )
    if len(given) != n:
        if n == 1:
            raise RuntimeError(f"{full}() argument 'output_size' should contain one int (got {len(given)})")
        internal = "(): internal error: output_size.size()" if name == "max" else ": output_size"
        raise RuntimeError(f"{full}{internal} must be {n}")
    o = tuple(int(s if v is None else v) for v, s in zip(given, x.shape[-n:], strict=True))
    if min(o) < 0:
        wide = o if n > 1 else (1, *o)  # to PyTorch a 1-d pool is a 2-d one
        if name == "max":
            shape = [*x.shape[:-n], *wide]
            raise RuntimeError(f"Trying to create tensor with negative dimension {min(o)}: {shape}")
        shown = ", ".join(map(str, wide[:2])) + "".join(f",{v}" for v in wide[2:])
        raise RuntimeError(
            f"adaptive_avg_pool{len(wide)}d: elements of output_size must be greater than or equal to 0 but received "
            f"{{{shown}}}"
        )
    for d in range(1, x.ndim):
        if x.shape[d] == 0 and d >= x.ndim - n:
            raise RuntimeError(
                f"adaptive_{name}_pool{n}d(): Expected input to have non-zero size for non-batch dimensions, but input has "
                f"sizes {list(x.shape)} with dimension {d} being empty"
            )
    return o


def _adaptive_avg(n: int, x: Tensor, output_size: Any) -> Tensor:
    o = _adaptive_args("avg", x, n, output_size)
    size = tuple(x.shape[-n:])
    d = x._tab_meta.dtype
    if n < 3 and d.category != 2 and not x.numel():  # there is nothing to ask the kernel for
        return x.new_zeros((*x.shape[:-n], *o))
    order = _order(x._tab_meta, n) if n < 3 else ()
    if o == (1,) * n:
        return _strided(x.mean(tuple(range(-n, 0)), keepdim=True), order)
    check_kernel("adaptive_avg_pool2d" if n < 3 else "adaptive_avg_pool3d_cpu", d, FLOATING)
    if 0 in o:
        return x.new_zeros((*x.shape[:-n], *o)) + 0 * x.sum()
    if all(s % w == 0 for s, w in zip(size, o)):
        k = tuple(s // w for s, w in zip(size, o, strict=True))
        name = "SqueezeBackward1" if n == 1 else f"AdaptiveAvgPool{n}DBackward0"
        return _avg_forward(x, (k, k, (0,) * n, (1,) * n, size, o), True, None, name)
    wide = dtypes.float32 if d.itemsize == 2 else d
    i = inst(_LENGTHS, (), contiguous_meta(o, wide, x._tab_meta.device), (), (size, o))
    mean: Any = ops.div(_window_sums(x.to(wide) if wide is not d else x, n, o), run(i, i.out))
    y = named(mean, f"AdaptiveAvgPool{n}DBackward0", x)
    return recorded_in_order(y.to(d) if wide is not d else y, order)


def _windows(x: Tensor, n: int, o: Ints, start: str) -> tuple[Tensor, tuple[Ints, Ints, Ints]]:
    """The adaptive windows of `x`, (…, *o, *largest window), past the end of a shorter one what `start` says; their sizes."""
    m = x._tab_meta
    size = tuple(m.shape[-n:])
    # the largest window: ceil((i+1)n/o) - floor(in/o)
    k = tuple(max(-(-(i + 1) * s // w) - i * s // w for i in range(w)) if w else 1 for s, w in zip(size, o))
    full = contiguous_meta((*m.shape[:-n], *o, *k), m.dtype, m.device)
    return run(inst(_ADAPTIVE_WINDOW, (m,), full, (), (size, o, k, start)), full, x), (size, o, k)


def _window_sums(x: Tensor, n: int, o: Ints) -> Tensor:
    """Sums over adaptive windows. A place is in those windows that the same rule gives with the sizes exchanged."""
    w, (size, _, _) = _windows(x, n, o, "zero")
    m = x._tab_meta
    out = contiguous_meta((*m.shape[:-n], *o), m.dtype, m.device)
    r = run(inst(SUM, (w._tab_meta,), out, static=m.ndim), out, w)
    record("AdaptiveSumsBackward", (x,), r, lambda g: _window_sums(g, n, size))
    return r


def _strided(y: Tensor, order: Ints) -> Tensor:
    """Means (N, C, 1, …) with the strides of channels last, where `order` is that: the places are the same."""
    if order:
        m = y._tab_meta
        y._tab_meta = meta(m.shape, ordered_strides(m.shape, order), 0, m.dtype, m.device)
    return y


def _adaptive_window_at(p: Any) -> Any:
    """(…, *out, *largest window): the input; past the end of a shorter window the lowest value, or zero."""
    size, out, k, start = p.static
    n = len(k)
    c = p.coords
    lead = c[: len(c) - 2 * n]
    at: list[Expr] = []
    inside: Any = None
    for d in range(n):
        i, j = c[len(lead) + d], c[len(lead) + n + d]
        s, o = p.dim(size[d], ("size", d)), p.dim(out[d], ("out", d))
        begin = idiv(i * s, o)
        end = idiv((i + 1) * s + o - 1, o)
        t = p.k.let(begin + j, "t")
        ok = t < end
        inside = ok if inside is None else inside & ok
        at.append(minimum(t, p.dim(size[d] - 1, ("last", d))))
    v = p.at(0, [*lead, *at])
    return where(inside, v, _lazy.reduce._lowest(v.type) if start == "lowest" else const(0, v.type))


def _adaptive_place_at(p: Any) -> Any:
    size, out, k = p.static
    n = len(k)
    win = p.coords[len(p.coords) - n :]
    rest = cast(p.value(0), "u32")
    pos: list[Expr] = []
    for d in range(n - 1, 0, -1):
        kd = p.dim(k[d], ("kernel", d))
        q = p.k.let(idiv(rest, kd), "q")
        pos.append(rest - q * kd)
        rest = q
    pos.append(rest)
    pos.reverse()
    flat: Any = None
    for d in range(n):
        at = idiv(win[d] * p.dim(size[d], ("size", d)), p.dim(out[d], ("out", d))) + pos[d]
        flat = at if flat is None else flat * p.dim(size[d], ("size", d)) + at
    return cast(flat, "i64")


_ADAPTIVE_WINDOW = Map("adaptive windows", _adaptive_window_at, indexed=True, cost=12, sized=True)
_ADAPTIVE_PLACE = Map("place of maximum", _adaptive_place_at, indexed=True, cost=12, sized=True)


def _adaptive_max(n: int, x: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    o = _adaptive_args("max", x, n, output_size)
    m = x._tab_meta
    check_kernel("adaptive_max_pool2d" if n < 3 else "adaptive_max_pool3d_cpu", m.dtype, FLOATING)
    size = tuple(m.shape[-n:])
    lead = tuple(m.shape[: m.ndim - n])
    w, static = _windows(x, n, o, "lowest")
    full = w._tab_meta
    kept = len(lead) + n
    flat = contiguous_meta((*lead, *o), m.dtype, m.device)
    y = run(inst(AMAX, (full,), flat, static=kept), flat, w)
    im = contiguous_meta(flat.shape, dtypes.int32, m.device)
    local = run(inst(WINDOW_ARGMAX, (full,), im, static=kept, compute=m.dtype.compute), im, w)
    out = contiguous_meta(flat.shape, dtypes.int64, m.device)
    order = _order(m, n) if n < 3 else ()
    y, indices = in_order(y, order), in_order(run(inst(_ADAPTIVE_PLACE, (im,), out, (), static), out, local), order)

    def back(g: list[Any], indices: Tensor) -> Tensor:
        zeros = g[0].new_zeros((*lead, _numel(size)))
        return zeros.scatter_add(-1, indices.flatten(-n), g[0].flatten(-n)).reshape((*lead, *size))

    record(f"AdaptiveMaxPool{n}DBackward0" if n > 1 else "SqueezeBackward1", (x,), (y, indices), back, (indices,))
    return y, indices


def _numel(size: Ints) -> int:
    r = 1
    for s in size:
        r *= s
    return r


def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """Mean over windows chosen so that the output has `output_size` elements."""
    return _adaptive_avg(1, input, output_size)


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Mean over windows chosen so that the output has `output_size`; None keeps a size."""
    return _adaptive_avg(2, input, output_size)


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Mean over windows chosen so that the output has `output_size`; None keeps a size."""
    return _adaptive_avg(3, input, output_size)


def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Maximum over windows chosen so that the output has `output_size` elements; with `return_indices`, and its places."""
    y, i = _adaptive_max(1, input, output_size)
    return (y, i) if return_indices else y


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Maximum over windows chosen so that the output has `output_size`; None keeps a size."""
    y, i = _adaptive_max(2, input, output_size)
    return (y, i) if return_indices else y


def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Maximum over windows chosen so that the output has `output_size`; None keeps a size."""
    y, i = _adaptive_max(3, input, output_size)
    return (y, i) if return_indices else y


# ---- back from maxima to places


def _max_unpool(n: int, x: Tensor, indices: Tensor, kernel: Any, stride: Any, padding: Any, output_size: Any) -> Tensor:
    name = f"max_unpool{n}d"
    k = pool_ints(kernel, n, name, "kernel_size")
    st = k if stride is None else pool_ints(stride, n, name, "stride")
    pa = pool_ints(padding, n, name, "padding")
    size = tuple((s - 1) * t - 2 * p + a for s, t, p, a in zip(x.shape[-n:], st, pa, k, strict=True))
    if output_size is not None:
        given = tuple(output_size)
        if len(given) == n + 2:
            given = given[2:]
        if len(given) != n:
            raise ValueError(
                f"output_size should be a sequence containing {n} or {n + 2} elements, but it has a length of '{len(given)}'"
            )
        for d in range(n):
            low, high = size[d] - st[d], size[d] + st[d]
            if not low < given[d] < high:
                raise ValueError(f'invalid output_size "{given}" (dim {d} must be between {low} and {high})')
        size = given
    return unpooled(n, x, indices, size)


def unpooled(n: int, x: Tensor, indices: Tensor, size: tuple[int, ...]) -> Tensor:
    """The elements of x where `indices` say within planes of this size, zeros elsewhere."""
    if x.shape != indices.shape:
        raise RuntimeError(
            f"Expected shape of indices to be same as that of the input tensor ({list(x.shape)}) but got indices tensor with "
            f"shape: {list(indices.shape)}"
        )
    if indices.dtype is not dtypes.int64:
        raise RuntimeError(f"elements in indices should be type int64 but got: {type_name(indices.dtype)}")
    name = f"max_unpool{n}d"
    lead = tuple(x.shape[:-n])
    shown = "x".join(map(str, size if n > 1 else (*size, 1)))  # PyTorch unpools vectors as images
    text = f"Found an invalid max index: {{i}} (output volumes are of size {shown})"
    check_range(indices, _numel(size), 0, Complaint(RuntimeError, text), name)
    check_kernel(f"max_unpool{max(n, 2)}d", x._tab_meta.dtype, FLOATING)
    zeros = x.new_zeros((*lead, _numel(size)))
    y = zeros.scatter(-1, indices.flatten(-n), x.flatten(-n)).reshape((*lead, *size))
    return recorded_in_order(y, suggested_order(x._tab_meta) if n == 2 else ())


def max_unpool1d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """Zeros with the values of `input` at the places that `max_pool1d` took them from."""
    return _max_unpool(1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """Zeros with the values of `input` at the places that `max_pool2d` took them from."""
    return _max_unpool(2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """Zeros with the values of `input` at the places that `max_pool3d` took them from."""
    return _max_unpool(3, input, indices, kernel_size, stride, padding, output_size)


def lp_pool(
    n: int, input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """(sum of x^p)^(1/p) of each window, as PyTorch's formula has it."""
    k = pool_ints(kernel_size, n, f"lp_pool{n}d", "kernel_size")
    pool = (avg_pool1d, avg_pool2d, avg_pool3d)[n - 1]
    y = pool(input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    return (y.sign() * y.abs().relu() * float(_numel(k))).pow(1.0 / norm_type)


def _indices_form(f: Any) -> Any:
    def g(*args: Any, **kw: Any) -> Any:
        return f(*args, **kw, return_indices=True)

    g.__doc__ = f.__doc__ + " The places come with it."
    return g


for _f in (max_pool1d, max_pool2d, max_pool3d, avg_pool1d, adaptive_avg_pool1d):
    register(_f.__name__, _f)
register("max_pool1d_with_indices", _indices_form(max_pool1d))
register("adaptive_max_pool1d", _indices_form(adaptive_max_pool1d))
del _f
