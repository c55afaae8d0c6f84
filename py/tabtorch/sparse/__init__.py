"""`torch.sparse`: what PyTorch has for sparse tensors beside their own operations. Loaded when a sparse name is first used."""

from __future__ import annotations

from typing import Any

import tabtorch as torch
from tabtorch import _lazy
from tabtorch.autograd import engine
from tabtorch.sparse import convert, create, products
from tabtorch.sparse import copies as copies  # these register operations
from tabtorch.sparse import info as info
from tabtorch.sparse import reduce as reduce
from tabtorch.sparse import rows as rows
from tabtorch.sparse import shape as shape
from tabtorch.sparse.gradcheck import wrapped
from tabtorch.sparse.tensor import COO, CSR, OPS, SparseTensor, is_sparse, made, methods, refused, renewed

methods(OPS)
_operators = {
    "__add__": "add", "__radd__": "add", "__sub__": "sub", "__mul__": "mul", "__rmul__": "mul", "__truediv__": "div",
    "__pow__": "pow", "__matmul__": "matmul", "__floordiv__": "floor_divide", "__neg__": "neg", "__abs__": "abs",
    "__iadd__": "add_", "__isub__": "sub_", "__imul__": "mul_", "__itruediv__": "div_",
}  # fmt: skip


def _operator(name: str, swapped: bool) -> Any:
    def operator(self: Any, *other: Any) -> Any:
        if other and not isinstance(other[0], (torch.Tensor, int, float, complex)):
            return NotImplemented
        return OPS[name](other[0], self) if swapped else OPS[name](self, *other)

    return operator


def _install() -> None:
    for method, name in _operators.items():
        swapped = method == "__radd__"
        setattr(SparseTensor, method, _operator(name, swapped))
    for method, name in (("__rsub__", "sub"), ("__rmatmul__", "matmul"), ("__rtruediv__", "div")):
        setattr(SparseTensor, method, _operator(name, True))
    plain = engine._add

    def summed(a: Any, b: Any) -> Any:
        """Gradients of one tensor, of which some may be sparse: a dense one makes the sum dense."""
        return plain(b, a) if is_sparse(a) and not is_sparse(b) else plain(a, b)

    engine._add = summed


_install()


def mm(mat1: Any, mat2: Any, reduce: Any = None) -> Any:
    """The product of a sparse matrix (n, m) and a dense or sparse one (m, k). Its gradient for a sparse one is sparse.

    reduce: "sum", "mean", "amax" or "amin" of the terms, for a CSR matrix.
    """
    return OPS["_sparse_mm"](mat1, mat2, reduce)


def addmm(mat: Any, mat1: Any, mat2: Any, *, beta: Any = 1.0, alpha: Any = 1.0) -> Any:
    """beta · mat + alpha · mat1 @ mat2, of a sparse `mat1`; the gradient for it is sparse."""
    return OPS["_sparse_addmm"](mat, mat1, mat2, beta=beta, alpha=alpha)


def sampled_addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1.0, alpha: Any = 1.0, out: Any = None) -> Any:
    """alpha · (mat1 @ mat2) at the elements of the CSR tensor `input`, + beta · input."""
    if out is not None and out.dtype is not input.dtype:
        got, own = (_lazy.shapes.type_name(x.dtype) for x in (out, input))
        raise RuntimeError(f"sampled_addmm: Expected result and self to have the same dtype, but got {got} and {own}")
    r = products.sampled_addmm(input, mat1, mat2, beta=beta, alpha=alpha)
    return r if out is None else renewed(out, r)


def sum(input: Any, dim: Any = None, dtype: Any = None) -> Any:
    """The sum of all elements, or along dimensions: sparse, unless all sparse dimensions are summed."""
    return (
        OPS["_sparse_sum"](input, dim, dtype)
        if is_sparse(input)
        else input.sum(*([] if dim is None else [dim]), dtype=dtype)
    )


def softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """Softmax along a dimension of what is stored: what is not counts as -inf."""
    return OPS["_sparse_softmax"](input, dim, dtype)


def log_softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """The logarithm of `softmax`."""
    return OPS["_sparse_log_softmax"](input, dim, dtype)


def spsolve(input: Any, other: Any, *, left: bool = True) -> Any:
    """NotImplementedError, as of a PyTorch without cuDSS."""
    raise refused("_spsolve", input)


def spdiags(diagonals: Any, offsets: Any, shape: Any, layout: Any = None) -> Any:
    """A matrix of `shape` with the rows of `diagonals` on the diagonals `offsets`; element (i, j) is `diagonals[k, j]`."""
    diagonals = diagonals if diagonals.ndim == 2 else diagonals.unsqueeze(0)
    offsets = offsets if offsets.ndim else offsets.unsqueeze(0)
    if len(shape) != 2:
        raise RuntimeError("Output shape must be 2d")
    if offsets.ndim != 1:
        raise RuntimeError("Offsets must be scalar or vector")
    if diagonals.ndim != 2:
        raise RuntimeError("Diagonals must be vector or matrix")
    if diagonals.shape[0] != offsets.shape[0]:
        raise RuntimeError(
            f"Number of diagonals ({diagonals.shape[0]}) does not match the number of offsets ({offsets.shape[0]})"
        )
    if layout not in (None, COO, CSR, torch.sparse_csc):
        raise RuntimeError(f"Only output layouts (Sparse, SparseCsc, SparseCsr) are supported, got {layout!r}")
    if offsets.dtype is not torch.int64:
        raise RuntimeError(f"Offset Tensor must have dtype Long but got {create._lazy.shapes.type_name(offsets.dtype)}")
    offs = offsets.tolist()
    if len(set(offs)) != len(offs):
        raise RuntimeError("Offset tensor contains duplicate values")
    at: list[Any] = []
    values = []
    for k, o in enumerate(offs):
        first = max(o, 0)
        n = max(min(diagonals.shape[1] - first, shape[0] + min(o, 0), shape[1] - first), 0)
        if n:
            j = torch.arange(first, first + n, device=diagonals.device)
            at.append(torch.stack([j - o, j]))
            values.append(diagonals[k].narrow(0, first, n))
    if at:
        r = made("Spdiags", COO, (torch.cat(at, 1),), torch.cat(values), tuple(shape))
    else:
        r = create.sparse_coo_tensor(tuple(shape), dtype=diagonals.dtype, device=diagonals.device)
    return r if layout in (None, COO) else convert.to_layout(r, layout)


class check_sparse_tensor_invariants:
    """Whether new sparse tensors are checked: `enable()`, `disable()`, `is_enabled()`, a context or a decorator."""

    def __init__(self, enable: bool = True) -> None:
        self.state = enable
        self.saved: bool | None = None

    @staticmethod
    def is_enabled() -> bool:
        """Whether they are."""
        return create.checking[0]

    @staticmethod
    def enable() -> None:
        """From now on."""
        create.checking[0] = True

    @staticmethod
    def disable() -> None:
        """Not any more."""
        create.checking[0] = False

    def __enter__(self) -> None:
        if self.saved is not None:
            raise RuntimeError(
                "This context manager instance is already activated. Use a different context manager instance for context nesting."
            )
        self.saved, create.checking[0] = create.checking[0], self.state

    def __exit__(self, *exc: Any) -> None:
        assert self.saved is not None
        create.checking[0], self.saved = self.saved, None

    def __call__(self, f: Any) -> Any:
        def checked(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.state):
                return f(*args, **kwargs)

        return checked


def as_sparse_gradcheck(gradcheck: Any) -> Any:
    """`gradcheck` for functions of sparse tensors: they are taken apart into values, which are what is differentiated."""
    return wrapped(gradcheck)


class SparseSemiStructuredTensor:
    """2:4 sparsity, which is CUDA's alone."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("2:4 sparsity needs CUDA's tensor cores; tabtorch has no kernels for it")


SparseSemiStructuredTensorCUTLASS = SparseSemiStructuredTensorCUSPARSELT = SparseSemiStructuredTensor


def to_sparse_semi_structured(original_tensor: Any, transposed: bool = False) -> Any:
    """RuntimeError: 2:4 sparsity is CUDA's alone."""
    raise RuntimeError(
        f"Error original_tensor.device= {original_tensor.device} is not supported! Only CUDA tensors are currently supported."
    )


def __getattr__(name: str) -> Any:
    kind = {v + "Tensor": k for k, v in torch.dtypes.TYPE_NAMES.items()}.get(name)
    if kind is None:
        raise AttributeError(f"module 'torch.sparse' has no attribute '{name}'")

    def legacy(*args: Any, **kwargs: Any) -> Any:
        """The constructor of old: indices, values and a size, or sizes."""
        if args and isinstance(args[0], int):
            args = (args,)
        return create.sparse_coo_tensor(*args, dtype=getattr(torch, kind), **kwargs)

    legacy.__name__ = name
    return legacy


__all__ = [
    "SparseSemiStructuredTensor",
    "SparseSemiStructuredTensorCUSPARSELT",
    "SparseSemiStructuredTensorCUTLASS",
    "addmm",
    "as_sparse_gradcheck",
    "check_sparse_tensor_invariants",
    "log_softmax",
    "mm",
    "sampled_addmm",
    "softmax",
    "spdiags",
    "spsolve",
    "sum",
    "to_sparse_semi_structured",
]
