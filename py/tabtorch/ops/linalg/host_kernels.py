"""Decompositions: JavaScript kernels of the cpu device, in double precision; their checks of input, and the errors of LAPACK.

Whatever the device and the type of the operands, they are float64 (complex128) on the cpu device here, and results are rounded
once, where they become the caller's (`given`). Kernels are engine/kernels/linalg*.js, which say where their algorithms are from.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tabtorch import _lazy
from tabtorch.base import dtypes
from tabtorch.base.device import resolve
from tabtorch.base.errors import LinAlgError
from tabtorch.base.package_files import kernel as text
from tabtorch.core.shapes import type_name
from tabtorch.core.tensor import Tensor
from tabtorch.engine.graph import Custom, Inst, emit, inst
from tabtorch.engine.lowering import Lowering
from tabtorch.engine.view import broadcast_shapes, contiguous_meta, meta
from tabtorch.ops.indexing.index_maps import every_example
from tabtorch.ops.machinery.batching import as_for_one
from tabtorch.ops.machinery.operand_devices import together
from tabtorch.ops.machinery.promotion import FLOATING_COMPLEX, check_kernel

#: the types that it has kernels for
LAPACK = frozenset(d for d in FLOATING_COMPLEX if d.itemsize > 2)

#: the file that a kernel is in
_FILES = {"lu": "solve", "cholesky": "solve", "solve": "solve", "triangular": "solve", "luSolve": "solve"}
_FILES |= {
    "permutation": "solve",
    "ldl": "ldl",
    "ldlSolve": "ldl",
    "qr": "qr",
    "eigh": "eigh",
    "svd": "svd",
    "eig": "eig",
}
_kernels: dict[str, Custom] = {}


def _kernel(name: str) -> Custom:
    op = _kernels.get(name)
    if op is not None:
        return op

    def lower(i: Inst, low: Lowering) -> None:
        inputs = range(len(i.ins))
        shape = i.out.shape[:-1]
        words = [i.out.dtype.is_complex + 1, len(shape), len(i.static), *i.static, *shape]
        for m in i.ins:
            words += [m.offset, *m.shape[-2:], *m.strides[-2:], *m.strides[:-2]]
        source = f"run([{', '.join(f'b{j}' for j in inputs)}], b{len(i.ins)}, {name});"
        source = "\n".join([text("linalg.js"), text(f"linalg_{_FILES[name]}.js"), source])
        bound: list[Any] = [(low.input(j), "r") for j in inputs]
        low.host(f"linalg {name}", source, [*bound, (low.output, "rw")], words, [])

    op = _kernels[name] = Custom(f"linalg_{name}", lower, sized=True, batched=as_for_one)
    return op


def doubles(*tensors: Tensor, wide: bool = False) -> list[Any]:
    """The tensors as float64 on the cpu device, or as complex128 where one of them is complex or with `wide`. No record."""
    tensors = tuple(together(tensors))
    d = dtypes.complex128 if wide or any(t.is_complex() for t in tensors) else dtypes.float64
    return [_lazy.convert.convert(t.detach(), d, resolve("cpu")) for t in tensors]


def run(name: str, matrices: list[Any], shapes: list[Any], *flags: int) -> list[Any]:
    """Results of a kernel over matrices (*, m, n), which `doubles` gave, with their batch dimensions broadcast.

    shapes: that of each result, for one matrix. A tuple is of elements, a list of real numbers. Matrices come column by column.
    """
    batch = broadcast_shapes(*[t.shape[:-2] for t in matrices])
    d = matrices[0].dtype
    ins = []
    for k, t in enumerate(matrices):
        if t._tab_meta.mark or t._tab_storage.node.inst.out.dtype is not d:
            matrices[k] = t = _lazy.convert.converted(t, t.shape, d)
        ins.append(t.expand(*batch, *t.shape[-2:])._tab_meta)
    sizes = [prod(shape) for shape in shapes]
    out = contiguous_meta((*batch, sum(sizes)), d, ins[0].device)
    node = emit(inst(_kernel(name), tuple(ins), out, (), tuple(flags)), tuple([t._tab_storage.node for t in matrices]))
    every = Tensor._wrap(node, out)
    parts: list[Any] = []
    for part, shape in zip(every.split(sizes, -1), shapes, strict=True):
        part = part.reshape((*batch, *shape[::-1]))
        part = part.mT if len(shape) == 2 else part
        parts.append(part.real if type(shape) is list and d.is_complex else part)
    return parts


def given(x: Any, like: Tensor, d: dtypes.dtype | None = None, order: str = "C") -> Tensor:
    """A result as the caller gets it: on the device of `like`, as `d` (None: of the type of `like`, or the real type of that).

    order: "F" makes matrices column by column, as LAPACK leaves them.
    """
    if d is None:
        d = like.dtype if x.is_complex() or not like.is_complex() else like.dtype.to_real()
    if x.is_complex() and not d.is_complex:
        x = x.real
    x = x.mT if order == "F" else x
    y = _lazy.convert.converted(x, x.shape, d)
    y = _lazy.convert.convert(y, d, like._tab_meta.device)
    if order == "F":
        m = y._tab_meta
        y = Tensor._wrap(
            y._tab_storage.node, meta(x.mT.shape, (*m.strides[:-2], 1, max(m.shape[-1], 1)), 0, d, m.device)
        )
    return y


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


def within(numbers: Tensor, most: int) -> bool:
    """Whether all are from 1 to `most`. Reads them."""
    return all(1 <= v <= most for v in every_example(numbers).reshape(-1).tolist())


def check_info(name: str, info: Tensor) -> None:
    """LinAlgError, in PyTorch's words, for the first matrix whose `info` (a tensor of the batch's shape) is not 0. Reads it."""
    info = every_example(info)
    found = info.reshape(-1).tolist()
    i = next((i for i, v in enumerate(found) if v), None)
    if i is None:
        return
    where = f": (Batch element {i})" if info.ndim else ""
    value = int(found[i])
    if value < 0:
        raise LinAlgError(
            f"{name}{where}: The algorithm failed to converge because the input matrix contained non-finite values."
        )
    text = next((t for part, t in _MEANING.items() if part in name), "Unknown error code: {}.")
    error = RuntimeError if "_factor" in name else LinAlgError
    raise error(f"{name}{where}: {text.format(value)}")
