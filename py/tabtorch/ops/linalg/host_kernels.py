"""Decompositions: their tensors as NumPy arrays on the host and back, their checks of input, and the errors of LAPACK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabtorch import _lazy
from tabtorch.base import dtypes
from tabtorch.base.errors import LinAlgError
from tabtorch.core.shapes import type_name
from tabtorch.core.tensor import Tensor
from tabtorch.engine.graph import from_host
from tabtorch.engine.view import broadcast_shapes, contiguous_meta, meta
from tabtorch.ops.machinery.batching import batches
from tabtorch.ops.machinery.operand_devices import together
from tabtorch.ops.machinery.promotion import FLOATING_COMPLEX, check_kernel

#: the types that it has kernels for
LAPACK = frozenset(d for d in FLOATING_COMPLEX if d.itemsize > 2)


def numpy() -> Any:
    """The module. ModuleNotFoundError that names it where it is not installed."""
    try:
        import numpy
    except ModuleNotFoundError as e:
        raise ModuleNotFoundError(
            "torch.linalg computes this on the host and needs NumPy, which is not installed: install it "
            '(in Pyodide: `import micropip; await micropip.install("numpy")`)',
            name="numpy",
        ) from e
    return numpy


def host(f: Callable[..., Any], *tensors: Tensor, order: str = "C") -> Any:
    """`f(*arrays)` over the tensors as NumPy arrays; the arrays that it returns, as tensors on the device of the first.

    Waits for the device. Nothing is recorded: the caller does that. One array gives a tensor, a tuple a tuple.
    order: a letter for each result (or one for all): "F" makes matrices column by column, as LAPACK leaves them.
    """
    numpy()
    tensors = tuple(together(tensors))
    device = tensors[0]._tab_meta.device
    if batches[0]:
        batched = _lazy.batch_kernels.on_host(f, tensors, order)
        if batched is not None:
            return batched
    r = f(*[_lazy.to_host.to_numpy(t, True) for t in tensors])
    if type(r) is not tuple:
        return _tensor(r, device, order)
    return tuple([_tensor(a, device, order[i % len(order)]) for i, a in enumerate(r)])


def _tensor(a: Any, device: Any, order: str) -> Tensor:
    d = dtypes.PUBLIC[a.dtype.name]
    m = contiguous_meta(a.shape, d, device)
    if order == "F" and a.ndim > 1:
        a = a.swapaxes(-1, -2)
        m = meta(m.shape, (*m.strides[:-2], 1, max(m.shape[-2], 1)), 0, d, device)
    return Tensor._wrap(from_host(a.tobytes(), contiguous_meta(a.shape, d, device)), m)


def by_columns(x: Tensor) -> Tensor:
    """A copy of matrices (*, m, n) that lies column by column, as LAPACK leaves its results."""
    return x.mT.contiguous().mT.clone()


# ---- checks of input


def need_matrix(name: str, A: Tensor, argument: str = "A", square: bool = False) -> None:
    """RuntimeError for less than two dimensions, and for matrices that are not square where they must be."""
    if A.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor {argument} must have at least 2 dimensions.")
    rows, columns = A.shape[-2:]
    if square and rows != columns:
        raise RuntimeError(
            f"{name}: {argument} must be batches of square matrices, but they are {rows} by {columns} matrices"
        )


def need_float(name: str, A: Tensor, low: bool = True) -> None:
    """RuntimeError for a type that is neither floating nor complex, and for 16-bit ones where not `low`."""
    d = A._tab_meta.dtype
    if d.category < 2:
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {type_name(d)}")
    if not low and d.itemsize == 2:
        raise RuntimeError(f"{name}: Low precision dtypes not supported. Got {type_name(d)}")


def need_kernel(kernel: str, A: Tensor) -> None:
    """NotImplementedError for types that LAPACK has not."""
    check_kernel(kernel, A._tab_meta.dtype, LAPACK)


def need_equation(name: str, A: Tensor, B: Tensor, left: bool) -> None:
    """RuntimeError where A X = B (X A = B) has no meaning."""
    need_matrix(name, A, square=True)
    need_matrix(name, B, "B")
    (m, n), (r, c) = A.shape[-2:], B.shape[-2:]
    if n != (r if left else c):
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} ({m}x{n} and {r}x{c})"
        )
    broadcast_shapes(B.shape[:-2], A.shape[:-2])


def need_system(name: str, b: Tensor, A: Tensor) -> None:
    """The same checks in the words of the older functions."""
    if A.dtype is not b.dtype:
        raise RuntimeError(
            f"Expected b and A to have the same dtype, but found b of type {type_name(b.dtype)} and A of type "
            f"{type_name(A.dtype)} instead."
        )
    (m, n), (r, c) = A.shape[-2:], b.shape[-2:]
    if m != n:
        raise RuntimeError(f"A must be batches of square matrices, but they are {m} by {n} matrices")
    if n != r:
        raise RuntimeError(
            f"Incompatible matrix sizes for {name}: each A matrix is {n} by {n} but each b matrix is {r} by {c}"
        )
    broadcast_shapes(b.shape[:-2], A.shape[:-2])


# ---- errors of LAPACK

#: part of a function's name -> what a positive `info` means
_MEANING = {
    "inv": "The diagonal element {} is zero, the inversion could not be completed because the input matrix is singular.",
    "solve": "The solver failed because the input matrix is singular.",
    "cholesky": "The factorization could not be completed because the input is not positive-definite (the leading minor of "
    "order {} is not positive-definite).",
    "eig": "The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated "
    "eigenvalues (error code: {}).",
    "svd": "The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated singular "
    "values (error code: {}).",
    "lstsq": "The least squares solution could not be computed because the input matrix does not have full rank (error "
    "code: {}).",
    "lu_factor": "U[{0},{0}] is zero and using it on lu_solve would result in a division by zero. If you still want to "
    "perform the factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)",
}


def check_info(name: str, info: Any) -> None:
    """LinAlgError, in PyTorch's words, for the first matrix whose `info` (an array over the batch) is not 0."""
    bad = info.ravel().nonzero()[0]
    if not len(bad):
        return
    i = int(bad[0])
    where = f": (Batch element {i})" if info.ndim else ""
    value = int(info.ravel()[i])
    if value < 0:
        raise LinAlgError(
            f"{name}{where}: The algorithm failed to converge because the input matrix contained non-finite values."
        )
    text = next((t for part, t in _MEANING.items() if part in name), "Unknown error code: {}.")
    error = RuntimeError if "_factor" in name else LinAlgError
    raise error(f"{name}{where}: {text.format(value)}")
