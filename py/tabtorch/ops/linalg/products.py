"""`torch.linalg`: norms, products, the matrix exponential, and other formulas that need no decomposition."""

from __future__ import annotations

import math
from typing import Any

from tabtorch import ops
from tabtorch.autograd.tape import record
from tabtorch.base import dtypes
from tabtorch.core.shapes import type_name
from tabtorch.core.tensor import Tensor
from tabtorch.ops.indexing.index_maps import every_example
from tabtorch.ops.linalg.host_kernels import need_float, need_matrix
from tabtorch.ops.linalg.matmul import MULTI_DOT_OUT, cross, matmul, matrix_power, multi_dot
from tabtorch.ops.machinery.operation import into, operation
from tabtorch.ops.machinery.out_types import EXACT, same
from tabtorch.ops.machinery.registry import register
from tabtorch.ops.reductions import norms

_NORM_OUT = same("linalg.norm expected out tensor dtype {Want} but got: {Have}")
_VECDOT_OUT = same("linalg.vecdot: Expected out of dtype{Want} but found {Have}")


@operation("linalg_norm", method=False)
def norm(
    A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, out: Any = None, dtype: Any = None
) -> Tensor:
    """A vector norm, or a matrix norm where two dimensions are named, or `ord` is given for a matrix."""
    return into(out, norms.norm(A, ord, dim, keepdim, dtype), rule=_NORM_OUT)


@operation("linalg_vector_norm", method=False)
def vector_norm(
    x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None
) -> Tensor:
    """(sum of |x|^ord)^(1/ord) over `dim` (None: all)."""
    return into(out, norms.vector_norm(x, ord, dim, keepdim, dtype), rule=EXACT)


@operation("linalg_matrix_norm", method=False)
def matrix_norm(
    A: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None, out: Any = None
) -> Tensor:
    """Norm of matrices: "fro", "nuc", 1, -1, 2, -2, inf, -inf."""
    return into(out, norms.matrix_norm(A, ord, dim, keepdim, dtype), rule=norms.MATRIX_NORM_OUT)


register("linalg_matmul", matmul)
register("linalg_matrix_power", matrix_power)


@operation("linalg_multi_dot", method=False)
def linalg_multi_dot(tensors: Any, *, out: Any = None) -> Tensor:
    """Product of several matrices (the first and last may be vectors), in the cheapest order."""
    return into(out, multi_dot(tensors), rule=MULTI_DOT_OUT)


@operation("linalg_cross", method=False)
def linalg_cross(input: Tensor, other: Tensor, *, dim: int = -1, out: Any = None) -> Tensor:
    """Cross products of 3-vectors along `dim`."""
    return cross(input, other, dim, out=out)


@operation("linalg_vecdot", method=False)
def vecdot(x: Any, y: Any, *, dim: int = -1, out: Any = None) -> Tensor:
    """Sums of products (of the conjugate of `x`) along `dim`."""
    if not (x.is_floating_point() or x.is_complex()):
        raise RuntimeError(
            f"linalg.vecdot: Expected a floating point or complex tensor as input. Got {type_name(x.dtype)}"
        )
    return into(out, ((x.conj() if x.is_complex() else x) * y).sum(dim), rule=_VECDOT_OUT)


@register("linalg_diagonal")
def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """`torch.diagonal` of the last two dimensions."""
    return A.diagonal(offset, dim1, dim2)


@register("linalg_vander")
def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """Powers 0 to N - 1 of each element, as rows."""
    if x.dtype is dtypes.bool_ or (x.dtype.is_floating_point and x.dtype.itemsize == 2):
        raise RuntimeError(
            f"linalg.vander supports floating point, complex, and integer tensors, but got {type_name(x.dtype)}"
        )
    n = x.shape[-1] if N is None else N
    if n <= 1:
        raise RuntimeError("N must be greater than 1.")
    x = x.contiguous() if x.ndim else x.unsqueeze(-1)
    return x.unsqueeze(-1) ** ops.arange(n, dtype=dtypes.int64, device=x.device)


# ---- exp

#: the 1-norm up to which a Taylor polynomial of so high a degree is exact to the last bit, in 32 and in 64 bits
#: (Bader, Blanes and Casas, "Computing the matrix exponential with an optimized Taylor polynomial approximation", 2019)
_DEGREES = (1, 2, 4, 8, 12, 18)
_REACH = {
    False: (1.19e-7, 5.97e-4, 5.11e-2, 0.580, 1.46, 3.01),
    True: (2.22e-16, 2.58e-8, 3.39e-4, 4.99e-2, 0.2996, 1.0908),
}


def _taylor(x: Any, degree: int) -> Any:
    """The sum of xᵏ / k! up to `degree`, in blocks of powers (Paterson and Stockmeyer, 1973)."""
    size = math.isqrt(degree)
    powers = [ops.eye(x.shape[-1], dtype=x.dtype, device=x.device), x]
    for _ in range(size - 1):
        powers.append(powers[-1] @ x)
    r = None
    for start in range(degree // size * size, -1, -size):
        block = ops.zeros_like(x)
        for k in range(start, min(start + size, degree + 1)):
            block = block + powers[k - start] / math.factorial(k)
        r = block if r is None else r @ powers[size] + block
    return r


def _exp(x: Any) -> Any:
    norm = x.abs().sum(-2).amax(-1)
    finite, norm = norm.isfinite()[..., None, None], norm.nan_to_num(0, 0, 0)
    top = every_example(norm).max().item()  # how many products there are depends on it
    reach = _REACH[x.dtype in (dtypes.float64, dtypes.complex128)]
    i = next((i for i, most in enumerate(reach) if top <= most), -1)
    times = math.ceil(math.log2(top / reach[-1])) if i < 0 else 0
    halvings = [norm[..., None, None] > reach[-1] * 2**k for k in range(times)]
    for more in halvings:  # each matrix as often as it needs: to halve is exact
        x = ops.where(more, x * 0.5, x)
    r = _taylor(x, _DEGREES[i])
    for more in halvings:
        r = ops.where(more, r @ r, r)
    return ops.where(finite, r, math.nan)


@operation("linalg_matrix_exp", method=False)
def linalg_matrix_exp(A: Tensor) -> Tensor:
    """exp(A) = I + A + A²/2 + …, of square matrices (*, n, n). Waits for the device once, for the norms."""
    need_matrix("linalg.matrix_exp", A, square=True)
    need_float("linalg.matrix_exp", A)
    d, n = A.dtype, A.shape[-1]
    if A.numel() == 0:
        return A.clone()
    if n == 1:
        return A.exp()

    def back(g: Any, A: Tensor) -> Tensor:
        # the derivative is a corner of the exponential of a larger matrix (Najfeld and Havel, 1995)
        H = A.mH
        large = ops.cat([ops.cat([H, g], -1), ops.cat([ops.zeros_like(H), H], -1)], -2)
        return linalg_matrix_exp(large)[..., :n, n:]

    x = A.detach()
    r: Tensor = _exp(x.float()).to(d) if d.itemsize == 2 else _exp(x)
    record("LinalgMatrixExpBackward0", (A,), r, back, (A,))
    return r


@operation("matrix_exp")
def matrix_exp(input: Tensor) -> Tensor:
    """`linalg.matrix_exp`."""
    return linalg_matrix_exp(input)
