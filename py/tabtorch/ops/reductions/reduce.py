"""Reductions: sums, products, extremes, moments, norms.

One `Reduce` node each where it can be; what is a formula of reductions (mean, var, logsumexp) is written as one, and the
engine joins its parts. Gradients are formulas too.
"""

from __future__ import annotations

import math
from typing import Any

from tabtorch.autograd.grad_mode import STATE
from tabtorch.autograd.tape import record
from tabtorch.base import dtypes
from tabtorch.core.shapes import as_float, remembered, type_name, wrap_dim, wrap_dims
from tabtorch.core.tensor import Tensor
from tabtorch.engine.expr import Complex, Expr, absolute, cast, const, isnan, sqrt, where
from tabtorch.engine.graph import Inst, Map, Reduce, inst
from tabtorch.engine.view import Meta, contiguous_meta
from tabtorch.ops.machinery import registry
from tabtorch.ops.machinery.operation import dims_of, hashable, into, into_two, named, operation, run, view_meta
from tabtorch.ops.machinery.out_types import ASK, CASTABLE, EXACT, castable, same
from tabtorch.ops.machinery.promotion import REAL, check_kernel, not_implemented

# ---- the monoids


def _parts(v: Any) -> tuple:
    return (v.re, v.im) if isinstance(v, Complex) else (v,)


def _whole(s: tuple) -> Any:
    return Complex(s[0], s[1]) if len(s) == 2 else s[0]


def _add(a: tuple, b: tuple) -> tuple:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _lowest(t: str) -> Any:
    if t == "bool":
        return const(False, t)
    return const(-math.inf if t[0] == "f" else -(2 ** (63 if t == "i64" else 31)), t)


def _highest(t: str) -> Any:
    if t == "bool":
        return const(True, t)
    return const(math.inf if t[0] == "f" else 2 ** (63 if t == "i64" else 31) - 1, t)


def greater(a: Expr, b: Expr) -> Expr:
    """a > b in the order where NaN is above everything; equal NaNs are equal. Asks for NaN first: WGSL's > may not see it."""
    if a.type[0] != "f":
        return a > b
    return ~isnan(b) & (isnan(a) | (a > b))


def less(a: Expr, b: Expr) -> Expr:
    """a < b in the order where NaN is below everything."""
    if a.type[0] != "f":
        return a < b
    return ~isnan(b) & (isnan(a) | (a < b))


def _extreme(name: str, before: Any, start: Any) -> Reduce:
    return Reduce(
        name,
        lambda t: (start(t),),
        lambda v, k: (v,),
        lambda a, b: (where(before(b[0], a[0]), b[0], a[0]),),
        lambda s: s[0],
    )


def _arg(name: str, before: Any, start: Any, last_nan: bool = False) -> Reduce:
    """The first place of the extreme value, or the last one of NaN: state = (value, place)."""

    def combine(a: tuple, b: tuple) -> tuple:
        earlier = b[1] < a[1]
        if last_nan and a[0].type[0] == "f":
            earlier = where(isnan(a[0]), b[1] > a[1], earlier)
        take = before(b[0], a[0]) | (~before(a[0], b[0]) & earlier)
        return where(take, b[0], a[0]), where(take, b[1], a[1])

    return Reduce(name, lambda t: (start(t), const(0xFFFFFFFF, "u32")), lambda v, k: (v, k), combine, lambda s: s[1])


def _sum_like(name: str, lift: Any, result: Any = _whole) -> Reduce:
    return Reduce(name, lambda t: _parts(const(0, t)), lambda v, k: _parts(lift(v)), _add, result, True)


SUM = _sum_like("sum", lambda v: v)
NANSUM = _sum_like("nansum", lambda v: where(isnan(v), const(0, v.type), v))
SUM_ABS = _sum_like("norm1", absolute)
SUM_SQUARES = _sum_like("norm2", lambda v: v * v, lambda s: sqrt(s[0]))
AMAX = _extreme("amax", greater, _lowest)
AMIN = _extreme("amin", less, _highest)
ARGMAX = _arg("argmax", greater, _lowest)
ARGMIN = _arg("argmin", less, _highest)
WINDOW_ARGMAX = _arg("argmax of a window", greater, _lowest, last_nan=True)
PROD = Reduce(
    "prod",
    lambda t: _parts(const(1, t)),
    lambda v, k: _parts(v),
    lambda a, b: _parts(_whole(a) * _whole(b)),
    _whole,
)
ANY = Reduce(
    "any", lambda t: (const(False, "bool"),), lambda v, k: (_truth(v),), lambda a, b: (a[0] | b[0],), lambda s: s[0]
)
ALL = Reduce(
    "all", lambda t: (const(True, "bool"),), lambda v, k: (_truth(v),), lambda a, b: (a[0] & b[0],), lambda s: s[0]
)
NONZERO = Reduce(
    "count_nonzero",
    lambda t: (const(0, "u32"),),
    lambda v, k: (where(_truth(v), const(1, "u32"), const(0, "u32")),),
    lambda a, b: (a[0] + b[0],),
    lambda s: s[0],
)


def _truth(v: Any) -> Expr:
    """v != 0, where NaN counts as true."""
    if isinstance(v, Complex):
        return _truth(v.re) | _truth(v.im)
    c = cast(v, "bool")
    return c | isnan(v) if v.type[0] == "f" else c


class quiet:
    """Records nothing inside: for forward formulas that have a gradient of their own."""

    def __enter__(self) -> None:
        self.before = STATE.grad
        STATE.grad = False

    def __exit__(self, *exc: Any) -> None:
        STATE.grad = self.before


# ---- launching


@remembered
def reduction(
    op: Reduce, m: Meta, dim: Any, keepdim: bool, dtype: Any, compute: str | None
) -> tuple[Inst, Meta, tuple]:
    """(instruction, Meta of the result, reduced dimensions)."""
    dims = dims_of(m.ndim, dim)
    kept = [d for d in range(m.ndim) if d not in dims]
    order = (*kept, *dims)
    view = view_meta(m, tuple(m.shape[d] for d in order), tuple(m.strides[d] for d in order))
    out = contiguous_meta(tuple(m.shape[d] for d in kept), dtype, m.device)
    shown = out
    if keepdim:
        shown = contiguous_meta(tuple(1 if d in dims else n for d, n in enumerate(m.shape)), dtype, m.device)
    return inst(op, (view,), out, static=len(kept), compute=compute), shown, dims


def reduce(
    op: Reduce, x: Tensor, dim: Any, keepdim: bool = False, dtype: Any = None, compute: str | None = None
) -> Tensor:
    """`op` over the dimensions `dim` (None or (): all), as a new tensor, not recorded."""
    i, shown, _ = reduction(op, x._tab_meta, dim, keepdim, dtype or x._tab_meta.dtype, compute)
    return run(i, shown, x)


@remembered
def _spread_meta(g: Meta, shape: tuple[int, ...], dims: tuple[int, ...], keepdim: bool) -> Meta:
    strides = []
    at = iter(g.strides)
    for d in range(len(shape)):
        if d in dims:
            strides.append(0)
            if keepdim:
                next(at)
        else:
            strides.append(next(at))
    return g.view(shape, tuple(strides), g.offset)


def spread(g: Tensor, shape: tuple[int, ...], dim: Any, keepdim: bool) -> Any:
    """A result of a reduction over `dim` seen in the shape of what was reduced."""
    dims = dims_of(len(shape), dim)
    recorded = STATE.grad and g._tab_requires_grad
    if recorded and not keepdim and dim is not None:
        for d in sorted(dims):  # so that what is recorded has PyTorch's names
            g = g.unsqueeze(d)
        keepdim = True
    out = Tensor._view_of(g, _spread_meta(g._tab_meta, tuple(shape), dims, keepdim))
    if recorded:
        record("ExpandBackward0", (g,), out, lambda gg: sum(gg, dims if keepdim else None, keepdim) if dims else gg)
    return out


@operation("sum_to_size")
def sum_to_size(self: Tensor, *size: Any) -> Tensor:
    """Summed over the dimensions along which a tensor of that size would be broadcast."""
    if not size:
        raise registry.missing("sum_to_size", ["size"])
    shape = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else tuple(size)
    have = self._tab_meta.shape
    lead = len(have) - len(shape)
    if lead < 0 or [1 for a, b in zip(shape, have[lead:]) if a != b and a != 1]:
        raise RuntimeError(f"size {{{list(shape)}}} is not expandable to size {{{list(have)}}}.")
    if not shape:
        return sum(self)
    dims = tuple(d for d, n in enumerate(have) if d < lead or (shape[d - lead] == 1 and n != 1))
    r = sum(self, dims, True) if dims else self
    return r.view(shape) if lead else r


# ---- sum, mean, prod


_NANSUM_OUT = same("nansum: provided dtype must match dtype of result. Got {Have} and {Want}.")
_MEAN_OUT = castable("mean.dtype_out(): input types can't be cast to the desired output type {Have}")


def _sum_dtype(name: str, d: Any, dtype: Any) -> Any:
    if dtype is not None:
        return dtypes.given_dtype(name, dtype)
    return dtypes.int64 if d.category < 2 else d


@operation("sum")
def sum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None) -> Tensor:
    """Sum over `dim` (an int, several, or None for all). Integers and bools are summed in int64."""
    m = input._tab_meta
    if isinstance(dim, (list, tuple)):  # of a subclass too
        dim = tuple(dim)
    if out is not None:
        dtype = dtype or out._tab_meta.dtype
    d = _sum_dtype("sum", m.dtype, dtype)
    i, shown, dims = reduction(ANY if d is dtypes.bool_ else SUM, m, dim, keepdim, d, None)
    r = run(i, shown, input)
    if input._tab_requires_grad and STATE.grad:
        shape = m.shape
        name = "SumBackward0" if dim is None else "SumBackward1"
        record(name, (input,), r, lambda g: spread(g, shape, None if dim is None else dims, keepdim))
    return into(out, r, rule=EXACT) if out is not None else r


@operation("nansum")
def nansum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None) -> Tensor:
    """Sum over `dim` in which NaN counts as zero."""
    if input._tab_meta.dtype.is_complex:
        raise RuntimeError("nansum on CPU does not support complex inputs")
    if input._tab_meta.dtype.category < 2:
        return sum(input, dim, keepdim, dtype=dtype, out=out)
    dim = hashable(dim)
    d = dtypes.given_dtype("nansum", dtype)
    if out is not None:
        d = d or out._tab_meta.dtype
    if d is not None and d.category != 2:
        raise not_implemented("nansum_cpu", d)
    r = reduce(NANSUM, input, dim, keepdim, d)
    record(
        "NansumBackward0",
        (input,),
        r,
        lambda g, x: spread(g, x.shape, dim, keepdim) * x.isnan().logical_not(),
        (input,),
    )
    return into(out, r, rule=_NANSUM_OUT)


def _scaled(s: Any, n: Expr) -> Any:
    return Complex(s.re / n, s.im / n) if isinstance(s, Complex) else s / n


MEAN = Map("mean", _scaled)
_REAL_SCALAR = {"c64": "f32", "c128": "f64"}


@remembered
def _mean_plan(m: Meta, dim: Any, keepdim: bool, dtype: Any) -> tuple[Inst, Inst, Meta, tuple, Any]:
    d = dtypes.given_dtype("mean", dtype) or m.dtype
    if d.category < 2:
        what = "Input dtype" if dtype is None else "Optional dtype"
        raise RuntimeError(
            f"mean(): could not infer output dtype. {what} must be either a floating point or complex dtype. "
            f"Got: {type_name(d)}"
        )
    wide = dtypes.float32 if d.itemsize == 2 else d  # halves are summed and divided in float32
    i, shown, dims = reduction(SUM, m, dim, keepdim, wide, d.compute)
    n = math.prod(m.shape[k] for k in dims)
    o = i.out
    scale = inst(MEAN, (o,), contiguous_meta(o.shape, d, m.device), (_REAL_SCALAR.get(d.compute, d.compute),))
    return i, scale, contiguous_meta(shown.shape, d, m.device), dims, as_float(n)


@operation("mean")
def mean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None) -> Tensor:
    """Mean over `dim`. RuntimeError for integers, unless `dtype` is a floating type."""
    m = input._tab_meta
    if isinstance(dim, (list, tuple)):  # of a subclass too
        dim = tuple(dim)
    if out is not None and m.dtype.category > 1:
        if dtype is None:
            (_MEAN_OUT if dim is None else CASTABLE)(m.dtype, out._tab_meta.dtype)
        dtype = dtype or out._tab_meta.dtype
    i, scale, shown, dims, n = _mean_plan(m, dim, keepdim, dtype)
    s = run(i, i.out, input)
    r = run(scale, shown, s, scalars=(n,))
    if input._tab_requires_grad and STATE.grad:
        shape = m.shape
        name = "MeanBackward0" if dim is None else "MeanBackward1"
        record(name, (input,), r, lambda g: spread(g, shape, None if dim is None else dims, keepdim) / n)
    return into(out, r, rule=EXACT) if out is not None else r


@operation("nanmean")
def nanmean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None) -> Tensor:
    """Mean over `dim` of what is not NaN."""
    if input._tab_meta.dtype.category < 2:
        raise RuntimeError(
            "nanmean(): expected input to have floating point or complex dtype but got "
            + type_name(input._tab_meta.dtype)
        )
    if out is not None:
        dtype = dtype or out._tab_meta.dtype
    total: Any = nansum(input, dim, keepdim, dtype=dtype)
    return into(out, total / sum(input.isnan().logical_not(), dim, keepdim))


@operation("prod")
def prod(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None) -> Tensor:
    """Product of all elements, or along one dimension."""
    m = input._tab_meta
    if dim is not None:
        dim = wrap_dim(dim, m.ndim)
    if out is not None:
        dtype = dtype or out._tab_meta.dtype
    d = _sum_dtype("prod", m.dtype, dtype)
    r = reduce(ALL if d is dtypes.bool_ else PROD, input, dim, keepdim, d)
    if dim is None:
        record("ProdBackward0", (input,), r, lambda g, x: _prod_back(g, x.reshape(-1), 0).reshape(x.shape), (input,))
    else:
        shape = m.shape
        record(
            "ProdBackward1",
            (input,),
            r,
            lambda g, x: _prod_back(spread(g, shape, dim, keepdim), x, dim) if x.ndim else g.expand(x.shape),
            (input,),
        )
    return into(out, r, rule=EXACT)


def _prod_back(g: Tensor, x: Tensor, dim: int) -> Tensor:
    """The product of all others, from both ends, so that zeros need no division."""
    n = x.shape[dim]
    if n == 0:
        return x.new_zeros(x.shape)
    shape = list(x.shape)
    shape[dim] = 1
    ones = x.new_ones(shape)
    cat = registry.function("cat")
    assert cat is not None
    before = cat([ones, x.narrow(dim, 0, n - 1)], dim).cumprod(dim)
    after = cat([ones, x.narrow(dim, 1, n - 1).flip(dim)], dim).cumprod(dim).flip(dim)
    r = before * after
    return g * (r.conj() if r.is_complex() else r)


# ---- extremes


def _need_elements(name: str, m: Meta, dim: Any) -> None:
    if m.numel:
        return
    if dim is None or dim == ():
        error: Any = IndexError if name[:3] == "arg" else RuntimeError
        hint = " Specify the reduction dim with the 'dim' argument." if name[:3] != "arg" else ""
        raise error(f"{name}(): Expected reduction dim to be specified for input.numel() == 0.{hint}")
    for d in dims_of(m.ndim, dim):
        if m.shape[d] == 0:
            raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size.")


def _need_order(name: str, m: Meta) -> None:
    if m.dtype.is_complex:
        raise RuntimeError(f"{name}(): does not support complex input")


def _shared(g: Tensor, x: Tensor, r: Tensor, dim: Any, keepdim: bool, nan: bool = True) -> Tensor:
    """A gradient dealt out evenly to the places that hold the extreme.

    nan: where that is NaN, to those that hold NaN; else nothing is equal to it, and the gradient of all is 0 / 0, as PyTorch's.
    """
    full = spread(r.detach(), x.shape, dim, keepdim)
    x = x.detach()
    mask = (x == full) | (x.isnan() & full.isnan()) if nan else x == full
    count = spread(sum(mask, dim, keepdim), x.shape, dim, keepdim)
    return spread(g, x.shape, dim, keepdim) * mask / count


def _order_compute(d: Any) -> str | None:
    return "i32" if d.name == "bool" else None


def _extreme_over(
    op: Reduce, name: str, x: Tensor, dim: Any, keepdim: bool, grad_name: str, kernel: str, nan: bool = False
) -> Tensor:
    """The extreme over `dim`. nan: see `_shared`."""
    dim = hashable(dim)
    m = x._tab_meta
    if m.numel == 0 or m.dtype.category == 3:
        wrap_dims(() if dim is None else (dim,) if isinstance(dim, int) else dim, m.ndim)
        check_kernel(kernel, m.dtype, REAL)
        _need_elements(name, m, dim)
    i, shown, _ = reduction(op, m, dim, keepdim, m.dtype, "i32" if m.dtype.category == 0 else None)
    r = run(i, shown, x)
    if x._tab_requires_grad and STATE.grad:
        record(grad_name, (x,), r, lambda g, x, r: _shared(g, x, r, dim, keepdim, nan), (x, r))
    return r


_EXTREME_OUT = same(
    "Expected the dtype for input and out to match, but got {Want} for input's dtype and {Have} for out's dtype."
)


@operation("amax")
def amax(input: Tensor, dim: Any = (), keepdim: bool = False, *, out: Any = None) -> Tensor:
    """Largest element over `dim`; its gradient is shared between equal ones."""
    return into(
        out, _extreme_over(AMAX, "amax", input, dim, keepdim, "AmaxBackward0", "max_values_cpu"), rule=_EXTREME_OUT
    )


@operation("amin")
def amin(input: Tensor, dim: Any = (), keepdim: bool = False, *, out: Any = None) -> Tensor:
    """Smallest element over `dim`; its gradient is shared between equal ones."""
    return into(
        out, _extreme_over(AMIN, "amin", input, dim, keepdim, "AminBackward0", "min_values_cpu"), rule=_EXTREME_OUT
    )


MaxResult = named("max", "values", "indices")
MinResult = named("min", "values", "indices")
AminmaxResult = named("aminmax", "min", "max")


def placed(g: Tensor, index: Tensor, shape: tuple[int, ...], dim: int, keepdim: bool) -> Tensor:
    """Zeros of `shape` with `g` at the places `index` along `dim`: the gradient of a selection of one element."""
    if not shape:
        return g
    if not keepdim:
        g, index = g.unsqueeze(dim), index.unsqueeze(dim)
    arange, select = registry.function("arange"), registry.function("where")
    assert arange is not None and select is not None
    at = [1] * len(shape)
    at[dim] = shape[dim]
    place = arange(shape[dim], device=g.device).reshape(at)
    return select(place == index, g, 0.0)


def _with_index(op: Reduce, arg: Reduce, name: str, x: Tensor, dim: int, keepdim: bool, kind: Any) -> Any:
    m = x._tab_meta
    d = wrap_dim(dim, m.ndim)
    if m.numel == 0 or m.dtype.category == 3:
        _need_order(name, m)
        _need_elements(name, m, d)
    c = _order_compute(m.dtype)
    values = reduce(op, x, d, keepdim, None, c)
    indices = reduce(arg, x, d, keepdim, dtypes.int64, c or m.dtype.compute)
    if x._tab_requires_grad and STATE.grad:
        shape = m.shape
        record(
            kind.__name__.capitalize() + "Backward0",
            (x,),
            (values, indices),
            lambda g, i: placed(g[0], i, shape, d, keepdim),
            (indices,),
        )
    return kind(values, indices)


_WHOLE_OUT = castable(
    "Expected canCast( typeMetaToScalarType(self.dtype()), typeMetaToScalarType(out.dtype())) to be true, but got false."
    + ASK
)


def _max_or_min(up: bool, input: Any, args: tuple, keepdim: bool, kw: dict[str, Any], out: Any) -> Any:
    name = "max" if up else "min"
    if not isinstance(input, Tensor):
        given = ", ".join(type(x).__name__ for x in (input, *args, *kw.values()))
        raise TypeError(f"{name}() received an invalid combination of arguments - got ({given})")
    op, arg, kind = (AMAX, ARGMAX, MaxResult) if up else (AMIN, ARGMIN, MinResult)
    if "other" in kw or (args and isinstance(args[0], Tensor)):
        f = registry.function("maximum" if up else "minimum")
        assert f is not None
        other = kw.get("other", args[0] if args else None)
        return f(input, other, **({"out": out} if out is not None else {}))
    dim = kw.get("dim", args[0] if args else None)
    if len(args) > 1:
        if len(args) > 2 or type(args[1]) is int:
            raise TypeError  # PyTorch's words are found by `complain`
        keepdim = args[1]
    if dim is None:
        kernel = f"{name}_all"
        r = _extreme_over(op, name, input, None, False, name.capitalize() + "Backward1", kernel, nan=True)
        return into(out, r, rule=_WHOLE_OUT)
    return into_two(out, _with_index(op, arg, name, input, dim, keepdim, kind))


@operation("max")
def _max(input: Tensor, *args: Any, keepdim: bool = False, out: Any = None, **kw: Any) -> Any:
    """max(input), max(input, dim, keepdim=False) -> (values, indices), or max(input, other), which is `maximum`."""
    return _max_or_min(True, input, args, keepdim, _numpy_dim(kw), out)


@operation("min")
def _min(input: Tensor, *args: Any, keepdim: bool = False, out: Any = None, **kw: Any) -> Any:
    """min(input), min(input, dim, keepdim=False) -> (values, indices), or min(input, other), which is `minimum`."""
    return _max_or_min(False, input, args, keepdim, _numpy_dim(kw), out)


def _numpy_dim(kw: dict[str, Any]) -> dict[str, Any]:
    bad = [k for k in kw if k not in ("dim", "other")]
    if bad:
        raise TypeError(f"max() got an unexpected keyword argument '{bad[0]}'")
    return kw


def _argument(op: Reduce, name: str, x: Tensor, dim: Any, keepdim: bool) -> Tensor:
    m = x._tab_meta
    _need_order(name, m)
    if m.dtype.name == "bool":
        raise RuntimeError(f"{name}(): does not support bool input")
    dim = hashable(dim)
    _need_elements(name, m, dim)
    r = reduce(op, x, dim, False, dtypes.int64, m.dtype.compute)
    if keepdim:
        dims = dims_of(m.ndim, dim)
        r = r.reshape(tuple(1 if d in dims else n for d, n in enumerate(m.shape)))
    return r


@operation("argmax")
def argmax(input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Tensor:
    """Place of the first largest element, in the whole (flattened) tensor or along `dim`."""
    return into(out, _argument(ARGMAX, "argmax", input, dim, keepdim), rule=EXACT)


@operation("argmin")
def argmin(input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Tensor:
    """Place of the first smallest element, in the whole (flattened) tensor or along `dim`."""
    return into(out, _argument(ARGMIN, "argmin", input, dim, keepdim), rule=EXACT)


@operation("aminmax")
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False, out: Any = None) -> Any:
    """(smallest, largest) over `dim`, or of all."""
    if dim is None and input._tab_meta.numel == 0:
        raise RuntimeError(
            "aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity."
        )
    lo = _extreme_over(AMIN, "aminmax", input, dim, keepdim, "AminmaxBackward0", "aminmax_cpu")
    hi = _extreme_over(AMAX, "aminmax", input, dim, keepdim, "AminmaxBackward0", "aminmax_cpu")
    return into_two(out, AminmaxResult(lo, hi))


# ---- truth and counts


def _truth_over(op: Reduce, x: Tensor, dim: Any, keepdim: bool) -> Tensor:
    d = dtypes.uint8 if x._tab_meta.dtype is dtypes.uint8 else dtypes.bool_
    return reduce(op, x, hashable(dim), keepdim, d, x._tab_meta.dtype.compute)


_ANY_OUT, _ALL_OUT = (
    same(name + " only supports bool tensor for result, got: {Have}", dtypes.bool_, dtypes.uint8)
    for name in ("any", "all")
)


@operation("any")
def _any(input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Tensor:
    """Whether an element is not zero."""
    return into(out, _truth_over(ANY, input, dim, keepdim), rule=_ANY_OUT)


@operation("all")
def _all(input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Tensor:
    """Whether no element is zero."""
    return into(out, _truth_over(ALL, input, dim, keepdim), rule=_ALL_OUT)


@operation("count_nonzero")
def count_nonzero(input: Tensor, dim: Any = None) -> Tensor:
    """How many elements are not zero, as int64."""
    return reduce(NONZERO, input, hashable(dim), False, dtypes.int64, input._tab_meta.dtype.compute)
