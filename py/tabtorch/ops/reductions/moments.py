"""Variance, standard deviation, logsumexp: formulas of two reductions and the maps between, which the engine joins."""

from __future__ import annotations

import math
from typing import Any

from tabtorch.autograd.grad_mode import STATE
from tabtorch.autograd.tape import own, record
from tabtorch.base import dtypes
from tabtorch.core.shapes import as_float, remembered
from tabtorch.core.tensor import Tensor
from tabtorch.engine.expr import sqrt
from tabtorch.engine.graph import Map, inst
from tabtorch.engine.view import Meta, contiguous_meta
from tabtorch.ops.machinery.operation import dims_of, hashable, into, operation, run
from tabtorch.ops.machinery.out_types import castable
from tabtorch.ops.reductions.reduce import AMAX, MEAN, SUM, _spread_meta, mean, quiet, reduce, reduction, spread, sum
from tabtorch.ops.rows.row_helpers import conj

#: the square of a distance; halves in float32
_SQUARE_OFF = Map("square off", lambda x, m: (x - m) * (x - m))
_OVER = Map("over", lambda s, n: s / n)
_ROOT_OVER = Map("root over", lambda s, n: sqrt(s / n))


@remembered
def _moment_plan(m: Meta, dim: Any, keepdim: bool, root: bool) -> tuple[Any, ...]:
    d = m.dtype
    wide = dtypes.float32 if d.itemsize == 2 else d
    s, shown, dims = reduction(SUM, m, dim, True, wide, d.compute)
    n = math.prod(m.shape[k] for k in dims)
    mean_inst = inst(MEAN, (s.out,), s.out, (wide.compute,))
    off_meta = contiguous_meta(m.shape, wide, m.device)
    back = _spread_meta(contiguous_meta(shown.shape, wide, m.device), m.shape, dims, True)
    off = inst(_SQUARE_OFF, (m, back), off_meta)
    s2, shown2, _ = reduction(SUM, off_meta, dim, keepdim, wide, None)
    last = inst(_ROOT_OVER if root else _OVER, (s2.out,), contiguous_meta(s2.out.shape, d, m.device), (wide.compute,))
    mean_shown = contiguous_meta(shown2.shape, wide, m.device)
    return s, mean_inst, off, s2, last, contiguous_meta(shown2.shape, d, m.device), mean_shown, dims, n


def _moments(x: Tensor, dim: Any, correction: float, keepdim: bool, root: bool, name: str) -> tuple[Tensor, Tensor]:
    """(variance or its root, mean), not recorded; the mean of a half is float32."""
    m = x._tab_meta
    if m.dtype.category < 2:
        raise RuntimeError(f"{name} only support floating point and complex dtypes")
    s, mean_inst, off, s2, last, shown, mean_shown, dims, n = _moment_plan(m, dim, keepdim, root)
    free = n - correction
    if free <= 0:
        import warnings

        warnings.warn(
            f"{name}: degrees of freedom is <= 0. Correction should be strictly less than the reduction factor (input "
            f"numel divided by output numel).",
            stacklevel=4,
        )
    total = run(s, s.out, x)
    mu = run(mean_inst, mean_shown, total, scalars=(as_float(n),))
    squares = run(off, off.out, x, mu)
    r = run(last, shown, run(s2, s2.out, squares), scalars=(as_float(free if free > 0 else 0),))
    return r, mu


def _var_back(g: Any, x: Any, dim: Any, correction: float, keepdim: bool) -> Tensor:
    dims = dims_of(x.ndim, dim)
    n = math.prod(x.shape[d] for d in dims)
    g = spread(g, x.shape, dims, keepdim)
    if n - correction <= 0:
        return g * math.inf * (x - mean(x, dims, True))
    return g * (2.0 / (n - correction)) * (x - mean(x, dims, True) if dims else x - x)


def _std_back(g: Any, x: Any, r: Any, dim: Any, correction: float, keepdim: bool) -> Tensor:
    half = (g / (r * 2)).masked_fill(r == 0, 0)
    return _var_back(half, x, dim, correction, keepdim)


def _moment_args(dim: Any, unbiased: Any, keepdim: bool, correction: Any) -> tuple[Any, float]:
    """var(x, unbiased), var(x, dim, unbiased, keepdim) and var(x, dim, correction=1) all have to be understood."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None:
        if type(unbiased) is int:
            raise TypeError("argument 'unbiased' must be bool, not int")
        correction = 1 if unbiased else 0
    return hashable(dim), 1 if correction is None else correction


def _var_or_std(x: Tensor, dim: Any, unbiased: Any, keepdim: bool, correction: Any, root: bool) -> Tensor:
    dim, c = _moment_args(dim, unbiased, keepdim, correction)
    name = "std" if root else "var"
    if x._tab_meta.dtype.is_complex:
        v: Any = _var_or_std(x.real, dim, None, keepdim, c, False)
        v = v + _var_or_std(x.imag, dim, None, keepdim, c, False)
        return v.sqrt() if root else v
    r, _ = _moments(x, dim, c, keepdim, root, name + "()" if x._tab_meta.dtype.category > 1 else "std and var")
    if not x._tab_requires_grad or not STATE.grad:
        return r
    if root:
        record("StdBackward0", (x,), r, lambda g, x, r: _std_back(g, x, r, dim, c, keepdim), (x, r))
    else:
        record("VarBackward0", (x,), r, lambda g, x: _var_back(g, x, dim, c, keepdim), (x,))
    return r


@operation("var")
def var(
    input: Tensor,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    *,
    correction: Any = None,
    out: Any = None,
) -> Tensor:
    """Variance over `dim`: squared distances from the mean, divided by n - correction (1 unless said)."""
    return into(out, _var_or_std(input, dim, unbiased, keepdim, correction, False))


@operation("std")
def std(
    input: Tensor,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    *,
    correction: Any = None,
    out: Any = None,
) -> Tensor:
    """The root of the variance over `dim`."""
    return into(out, _var_or_std(input, dim, unbiased, keepdim, correction, True))


def _with_mean(x: Tensor, dim: Any, unbiased: Any, keepdim: bool, correction: Any, root: bool) -> tuple[Tensor, Tensor]:
    dim, c = _moment_args(dim, unbiased, keepdim, correction)
    if x._tab_meta.dtype.is_complex:
        return _var_or_std(x, dim, None, keepdim, c, root), mean(x, dim, keepdim)
    r, mu = _moments(x, dim, c, keepdim, root, ("std_mean" if root else "var_mean") + "()")
    mu = mu.to(x._tab_meta.dtype)

    def back(g: list[Tensor | None], x: Tensor, r: Tensor) -> Any:
        total: Any = None
        if g[0] is not None:
            total = _std_back(g[0], x, r, dim, c, keepdim) if root else _var_back(g[0], x, dim, c, keepdim)
        if g[1] is not None:
            n = math.prod(x.shape[d] for d in dims_of(x.ndim, dim))
            m = spread(g[1], x.shape, dim, keepdim) / n
            total = m if total is None else total + m
        return total

    record("StdMeanBackward0" if root else "VarMeanBackward0", (x,), (r, mu), back, (x, r))
    return r, mu


@operation("var_mean", method=False)
def var_mean(
    input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None
) -> tuple[Tensor, Tensor]:
    """(variance, mean) over `dim`."""
    return _with_mean(input, dim, unbiased, keepdim, correction, False)


@operation("std_mean", method=False)
def std_mean(
    input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None
) -> tuple[Tensor, Tensor]:
    """(standard deviation, mean) over `dim`."""
    return _with_mean(input, dim, unbiased, keepdim, correction, True)


# ---- logsumexp


_LOGSUMEXP_OUT = castable("logsumexp(): Expected floating point type for result tensor, but got: {Have}")


@operation("logsumexp")
def logsumexp(input: Tensor, dim: Any, keepdim: bool = False, *, out: Any = None) -> Tensor:
    """log(sum(exp(x))) over `dim`, with the largest element taken out first."""
    x = input if input._tab_meta.dtype.category > 1 else input.to(dtypes.get_default_dtype())
    dim = hashable(dim)
    with quiet():
        if x._tab_meta.numel:
            top = reduce(AMAX, x, dim, True) if x._tab_meta.dtype.category == 2 else reduce(AMAX, x.real, dim, True)
            top = top.masked_fill(top.abs() == math.inf, 0)
            s = sum((x - top).exp(), dim, True).log() + top
        else:
            s = sum(x.exp(), dim, True).log()
        dims = dims_of(x.ndim, dim)
        r = s if keepdim else own(s.reshape(tuple(n for d, n in enumerate(x._tab_meta.shape) if d not in dims)))
    record(
        "LogsumexpBackward0",
        (x,),
        r,
        lambda g, x, r: spread(g, x.shape, dim, keepdim) * conj((x - spread(r, x.shape, dim, keepdim)).exp()),
        (x, r),
    )
    return into(out, r, rule=_LOGSUMEXP_OUT)
