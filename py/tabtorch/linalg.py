"""`torch.linalg`: norms and products. What needs a decomposition is not there yet, and says so."""

from __future__ import annotations

from typing import Any

from . import dtypes
from .ops.core import Missing, function
from .ops.launch import into
from .ops.matmul import cross as _cross
from .ops.matmul import matmul as _matmul
from .ops.matmul import matrix_power as _matrix_power
from .ops.matmul import multi_dot as _multi_dot
from .ops.norms import matrix_norm as _matrix_norm
from .ops.norms import norm as _norm
from .ops.norms import vector_norm as _vector_norm
from .tensor import Tensor


def norm(
    A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, out: Any = None, dtype: Any = None
) -> Tensor:
    """A vector norm, or a matrix norm where two dimensions are named, or `ord` is given for a matrix."""
    return into(out, _norm(A, ord, dim, keepdim, dtype))


def vector_norm(
    x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None
) -> Tensor:
    """(sum of |x|^ord)^(1/ord) over `dim` (None: all)."""
    return into(out, _vector_norm(x, ord, dim, keepdim, dtype))


def matrix_norm(
    A: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None, out: Any = None
) -> Tensor:
    """Norm of matrices: "fro", 1, -1, inf, -inf."""
    return into(out, _matrix_norm(A, ord, dim, keepdim, dtype))


def matmul(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """`torch.matmul`."""
    return _matmul(input, other, out=out)


def multi_dot(tensors: Any, *, out: Any = None) -> Tensor:
    """Product of several matrices (the first and last may be vectors), in the cheapest order."""
    return into(out, _multi_dot(tensors))


def matrix_power(A: Tensor, n: int, *, out: Any = None) -> Tensor:
    """The n-th power of square matrices."""
    return _matrix_power(A, n, out=out)


def cross(input: Tensor, other: Tensor, *, dim: int = -1, out: Any = None) -> Tensor:
    """Cross products of 3-vectors along `dim`."""
    return _cross(input, other, dim, out=out)


def vecdot(x: Any, y: Any, *, dim: int = -1, out: Any = None) -> Tensor:
    """Sums of products (of the conjugate of `x`) along `dim`."""
    if not (x.is_floating_point() or x.is_complex()):
        from .shapes import type_name

        raise RuntimeError(
            f"linalg.vecdot: Expected a floating point or complex tensor as input. Got {type_name(x.dtype)}"
        )
    return into(out, ((x.conj() if x.is_complex() else x) * y).sum(dim))


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """`torch.diagonal` of the last two dimensions."""
    return A.diagonal(offset, dim1, dim2)


def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """Powers 0 to N - 1 of each element, as rows."""
    n = x.shape[-1] if N is None else N
    if n <= 1:
        raise RuntimeError("N must be greater than 1.")
    arange = function("arange")
    assert arange is not None
    return x.unsqueeze(-1) ** arange(n, dtype=dtypes.int64, device=x.device)


def __getattr__(name: str) -> Any:
    raise Missing(f"module 'torch.linalg' has no attribute '{name}' (tabtorch does not have it yet)")
