"""Norms: `norm`, `linalg.norm`, `linalg.vector_norm`, `linalg.matrix_norm`, `dist`, `renorm`."""

from __future__ import annotations

import math
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.tape import named, record
from tabtorch.base import dtypes
from tabtorch.core.shapes import wrap_dim
from tabtorch.core.tensor import Tensor
from tabtorch.ops.machinery.operation import dims_of, hashable, in_place, into, operation
from tabtorch.ops.machinery.out_types import EXACT, same
from tabtorch.ops.machinery.registry import function
from tabtorch.ops.reductions.reduce import (
    AMAX,
    AMIN,
    NONZERO,
    SUM_ABS,
    SUM_SQUARES,
    _shared,
    quiet,
    reduce,
    spread,
    sum,
)
from tabtorch.ops.shaping.convert import recorded_in_order


def _check(x: Tensor, name: str) -> None:
    d = x._tab_meta.dtype
    if d.category < 2:
        raise RuntimeError(
            f"{name}: Expected a floating point or complex tensor as input. Got {_lazy.shapes.type_name(d)}"
        )


def vector_norm(x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """(sum of |x|^ord)^(1/ord) over `dim` (None: all); inf, -inf and 0 are the largest, the smallest, the number of non-zeros."""
    _check(x, "linalg.vector_norm")
    if isinstance(ord, str):
        raise TypeError("linalg_vector_norm(): argument 'ord' must be Number, not str")
    if dtype is not None and dtype is not x._tab_meta.dtype:
        x = x.to(dtype)
    dim = hashable(dim)
    if dim == ():
        dim = None
    p = float(ord)
    a = x
    with quiet():
        if x._tab_meta.dtype.is_complex:
            a = x.abs()
        if a._tab_meta.numel == 0 and (p < 0 or p == math.inf):
            _need_elements(x, p, dim)
        r = _vector_norm(a, p, dim, keepdim)
    back = (lambda g, x, r: _vector_norm_back(g, x, r, p, dim, keepdim)) if p else None  # a count has no gradient
    record("LinalgVectorNormBackward0", (x,), r, (back,), (x, r) if p else ())
    return r


def _need_elements(x: Tensor, p: float, dim: Any) -> None:
    shape = tuple(x.shape)
    if dim is None:
        raise RuntimeError(
            f"linalg.vector_norm cannot compute the {p:g} norm on an empty tensor because the operation does not have an identity"
        )
    for d in dims_of(x.ndim, dim):
        if shape[d] == 0:
            raise RuntimeError(
                f"linalg.vector_norm cannot compute the {p:g} norm on the dimension {d} because this dimension is empty "
                "and the operation does not have an identity"
            )


def _vector_norm(a: Tensor, p: float, dim: Any, keepdim: bool) -> Tensor:
    if p == 2:
        return reduce(SUM_SQUARES, a, dim, keepdim)
    if p == 1:
        return reduce(SUM_ABS, a, dim, keepdim)
    if p == math.inf:
        return reduce(AMAX, a.abs(), dim, keepdim)
    if p == -math.inf:
        return reduce(AMIN, a.abs(), dim, keepdim)
    if p == 0:
        return reduce(NONZERO, a, dim, keepdim, None, a._tab_meta.dtype.compute)
    wide = a.float() if a._tab_meta.dtype.itemsize == 2 else a
    return sum(wide.abs() ** p, dim, keepdim).pow(1.0 / p).to(a._tab_meta.dtype)


def _vector_norm_back(g: Tensor, x: Any, r: Tensor, p: float, dim: Any, keepdim: bool) -> Tensor:
    """As PyTorch's norm_backward: zero where the norm is zero."""
    gs, rs = spread(g, x.shape, dim, keepdim), spread(r, x.shape, dim, keepdim)
    if p == 1:
        return x.sgn() * gs
    if p == 2:
        return gs * (x / rs).masked_fill(rs == 0, 0)
    if math.isinf(p):
        return x.sgn() * _shared(g, x.abs(), r, dim, keepdim)
    if p < 1:
        scaled = x.sgn() * x.abs().pow(p - 1).masked_fill(x == 0, 0)
        return scaled * gs * rs.pow(1 - p)
    if p < 2:
        scaled = x.sgn() * x.abs().pow(p - 1)
        return scaled * (gs / rs.pow(p - 1)).masked_fill(rs == 0, 0)
    return x * x.abs().pow(p - 2) * (gs / rs.pow(p - 1)).masked_fill(rs == 0, 0)


def _extreme(x: Tensor, ord: float, dim: int, keepdim: bool = False) -> Tensor:
    """The largest (of none: 0) or the smallest along `dim`, by the sign of `ord`."""
    if ord < 0:
        return x.amin(dim, keepdim)
    return x.amax(dim, keepdim) if x.shape[dim] else x.sum(dim, keepdim)


def matrix_norm(x: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, dtype: Any = None) -> Tensor:
    """Norm of matrices: "fro"; inf, -inf, 1, -1 (of the sums of absolute values of rows or columns); "nuc", 2, -2 (of the
    singular values)."""
    _check(x, "linalg.matrix_norm")
    if dtype is not None:
        x = x.to(dtype)
    if x.ndim < 2:
        raise RuntimeError("linalg.matrix_norm: The input tensor A must have at least 2 dimensions.")
    rows, cols = (wrap_dim(d, x.ndim) for d in dim)
    if rows == cols:
        raise RuntimeError(f"linalg.matrix_norm: dims must be different. Got ({dim[0]}, {dim[1]})")
    if ord == "fro":
        return vector_norm(x, 2, (rows, cols), keepdim)
    if isinstance(ord, str) and ord != "nuc":
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    if ord == "nuc" or abs(ord) == 2:
        _lazy.host_kernels.need_float("linalg.matrix_norm", x, low=False)
        v = _lazy.spectral.svdvals(x.movedim((rows, cols), (-2, -1)))
        r = v.sum(-1) if ord == "nuc" else _extreme(v, ord, -1)
        return r.unsqueeze(min(rows, cols)).unsqueeze(max(rows, cols)) if keepdim else r
    if abs(ord) not in (1, math.inf):
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    inner, outer = (rows, cols) if abs(ord) == 1 else (cols, rows)
    s = vector_norm(x, 1, inner, True)
    r = _extreme(s, ord, outer, True)
    return r if keepdim else r.squeeze((rows, cols))


def norm(x: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """`linalg.norm`: a vector norm, or a matrix norm where two dimensions are named or `ord` asks for one."""
    dim = hashable(dim)
    if dim is not None or ord is None:
        if isinstance(dim, tuple) and len(dim) == 2 and ord is not None:
            return matrix_norm(x, ord, dim, keepdim, dtype)
        if isinstance(ord, str):
            raise RuntimeError(
                "linalg.norm: If dim is specified, it must be of length 1 or 2. Got " + str(dim)
                if isinstance(dim, tuple)
                else f"linalg.norm: Order {ord} not supported."
            )
        return vector_norm(x, 2 if ord is None else ord, dim, keepdim, dtype)
    if x.ndim == 1 and not isinstance(ord, str):
        return vector_norm(x, ord, None, keepdim, dtype)
    if x.ndim == 2:
        return matrix_norm(x, ord, (0, 1), keepdim, dtype)
    raise RuntimeError(
        "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got " + f"{x.ndim}D."
    )


MATRIX_NORM_OUT = same("linalg.matrix_norm expected out tensor dtype {Want} but got: {Have}")


@operation("norm")
def torch_norm(
    input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, out: Any = None, dtype: Any = None
) -> Tensor:
    """The p-norm over `dim` (None: all elements). "fro" is 2."""
    if p == "nuc":
        r = matrix_norm(input, p, (-2, -1) if dim is None else dim, keepdim, dtype)
        return into(out, r, rule=MATRIX_NORM_OUT)
    if isinstance(p, str) and p != "fro":
        raise RuntimeError(f"linalg.matrix_norm: Order {p} not supported.")
    if input._tab_meta.dtype.category < 2 and dtype is None:
        raise RuntimeError(
            "linalg.vector_norm: Expected a floating point or complex tensor as input. Got " + _name(input)
        )
    return into(out, vector_norm(input, 2 if p in ("fro", None) else p, dim, keepdim, dtype), rule=EXACT)


def _name(x: Tensor) -> str:
    return _lazy.shapes.type_name(x._tab_meta.dtype)


@operation("dist")
def dist(input: Any, other: Tensor, p: Any = 2) -> Tensor:
    """The p-norm of input - other."""
    return named(vector_norm(input - other, p), "DistBackward0", input, other)


def distances(d: Tensor, p: float) -> Tensor:
    """The p-norms of differences over their last dimension. With p = 0 they have a gradient, of zeros; a norm has none."""
    if p:
        return vector_norm(d, p, -1)
    return d.abs().ceil().clamp_max(1).sum(-1)


@operation("renorm")
def renorm(input: Tensor, p: Any, dim: int, maxnorm: Any, *, out: Any = None) -> Tensor:
    """Slices along `dim` whose p-norm is larger than `maxnorm`, scaled down to it."""
    if p <= 0:
        raise RuntimeError("renorm: non-positive-norm not supported")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm:g}")
    if input.ndim < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {input.ndim} dimensions")
    d = wrap_dim(dim, input.ndim)
    n: Any = vector_norm(input, p, tuple(k for k in range(input.ndim) if k != d), True)
    where = function("where")
    assert where is not None
    scale = where(n > maxnorm, maxnorm / (n + 1e-7), n.new_ones(()))
    return into(out, named(recorded_in_order(input * scale), "RenormBackward0", input), rule=EXACT)


in_place(renorm)


@operation("nuclear_norm", method=False)
def nuclear_norm(input: Tensor, dim: Any = (-2, -1), keepdim: bool = False) -> Tensor:
    """The sum of singular values of matrices."""
    return matrix_norm(input, "nuc", dim, keepdim)


@operation("frobenius_norm", method=False)
def frobenius_norm(input: Tensor, dim: Any, keepdim: bool = False, *, out: Any = None) -> Tensor:
    """The root of the sum of squares over `dim`."""
    return into(out, vector_norm(input, 2, hashable(dim) or None, keepdim), rule=EXACT)


__all__ = ["dtypes", "matrix_norm", "norm", "vector_norm"]
