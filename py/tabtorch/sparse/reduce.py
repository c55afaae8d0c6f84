"""Sums, norms and softmax of sparse tensors."""

from __future__ import annotations

from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.tape import named, record
from tabtorch.base import dtypes
from tabtorch.core.shapes import wrap_dim
from tabtorch.sparse.convert import coalesce, coo, from_keys, keys, loose, merged, parts, to_coo, to_layout
from tabtorch.sparse.convert import compressed as to_compressed
from tabtorch.sparse.tensor import BLOCKED, COO, like, made, op, refused, values_of


def _dims(x: Any, dim: Any) -> list[int]:
    given = [dim] if isinstance(dim, int) else list(dim)
    found = [wrap_dim(d, x.ndim) for d in given]
    if len(set(found)) != len(found):
        raise RuntimeError(f"dim {found[0]} appears multiple times in the list of dims")
    return sorted(found)


def total(x: Any, dtype: Any, label: str) -> Any:
    """The sum of all elements; its gradient is dense, as PyTorch's."""
    r = parts(x)[-1].sum(dtype=dtype)
    shape = tuple(x.shape)
    record(label, (x,), r, lambda g: g.expand(shape))
    return r


@op("sum")
def sum_(x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The sum of all elements, a dense scalar, or sums along dimensions: sparse, unless no sparse dimension is left."""
    return _summed(x, dim, keepdim, dtype, "SumBackward0" if dim is None else "SumBackward1")


def _summed(x: Any, dim: Any, keepdim: bool, dtype: Any, label: str) -> Any:
    if dim is None or dim == () or dim == []:
        return total(x, dtype, label)
    dims = _dims(x, dim)
    if x.layout is not COO:
        return _compressed(x, dims, keepdim, dtype)
    at, v = loose(x)
    sd = at.shape[0]
    to = dtype or (dtypes.int64 if v.dtype.category < 2 else v.dtype)
    v = v.to(to)
    dense = [d - sd + 1 for d in dims if d >= sd]
    if dense:
        v = v.sum(dense, keepdim=keepdim)
    left = [d for d in range(sd) if d not in dims]
    shape = [1 if d in dims else n for d, n in enumerate(x.shape) if keepdim or d not in dims]
    if not left:  # no sparse dimension is left
        return named(v.sum(0).reshape(shape), label, x)
    if len(left) == sd:
        return made(
            label.removesuffix("Backward0").removesuffix("Backward1"), COO, (at,), v, shape, x._tab_storage.coalesced
        )
    sizes = [x.shape[d] for d in left]
    k, v = merged(keys(at[left], sizes) if left else at.new_zeros(at.shape[1]), v)
    some = from_keys(k, sizes)
    if keepdim:
        rows = iter(some.unbind(0))
        some = _lazy.torch.stack([next(rows) if d in left else k.new_zeros(k.shape) for d in range(sd)])
    return made(label.removesuffix("Backward0").removesuffix("Backward1"), COO, (some,), v, shape, True)


def _compressed(x: Any, dims: list[int], keepdim: bool, dtype: Any) -> Any:
    if not keepdim:
        raise RuntimeError("reduction operations on CSR tensors with keepdim=False is unsupported")
    if x.layout in BLOCKED or x.layout.name != "sparse_csr":
        raise refused("sum", x)
    r = _summed(to_coo(x), dims, True, dtype, "SumBackward1")
    if r.layout is not COO:
        return to_layout(r, x.layout)
    at, v = coo(r)
    return to_compressed(r.shape, at, v, x.layout)


@op("_sparse_csr_sum")
def csr_sum(x: Any, dim: Any, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The sums of a CSR tensor's elements along dimensions, which have to be kept, in that layout; without a gradient."""
    return _lazy.sparse_masked.csr("sum", x, _dims(x, dim), keepdim, dtype)


@op("_sparse_csr_prod")
def csr_prod(x: Any, dim: Any, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The products of a CSR tensor's elements along dimensions, which have to be kept, in that layout; without a gradient."""
    return _lazy.sparse_masked.csr("prod", x, _dims(x, dim), keepdim, dtype)


@op("_sparse_sum")
def sparse_sum(x: Any, dim: Any = None, dtype: Any = None) -> Any:
    """`torch.sparse.sum`."""
    if dim is None:
        return total(x, dtype, "SumBackward0")
    if x.layout is not COO:
        return _compressed(x, _dims(x, dim), False, dtype)
    if dtype is None and x.dtype.category < 2:
        dtype = x.dtype  # as PyTorch: the type is kept
    return _summed(x, dim, False, dtype, "SparseSumBackward0")


@op("any")
def any_(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """Whether some element is not 0."""
    if x.layout is not COO or dim is not None:
        raise refused("any", x)
    return values_of(coalesce(x)).any()


@op("norm", "native_norm")
def norm(x: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """The norm of all elements. RuntimeError for norms along dimensions."""
    if x.layout is not COO:
        raise refused("norm.out", x)
    if dim not in (None, (), []) and sorted(_dims(x, dim)) != list(range(x.ndim)):
        raise RuntimeError(
            "norm_sparse currently only supports full reductions, so 'dim' must either be empty or contain all dimensions of the "
            "input"
        )
    v = values_of(coalesce(x)).reshape(-1)
    return named(v.norm(2 if p in (None, "fro") else p, dtype=dtype), "NormBackward0", x)


def _softmax(x: Any, dim: int, dtype: Any, log: bool) -> Any:
    torch = _lazy.torch
    if dtype is not None:
        x = x.to(dtype)
    if x.layout is not COO:
        raise refused("_sparse_log_softmax" if log else "_sparse_softmax", x)
    x = coalesce(x)
    dim = wrap_dim(dim, x.ndim)
    at, v = parts(x)[0], values_of(x)
    if not v.dtype.is_floating_point:
        raise NotImplementedError(f"\"softmax\" not implemented for '{_lazy.shapes.type_name(v.dtype)}'")
    label = "SparseLogSoftmax" if log else "SparseSoftmax"
    sd = at.shape[0]
    if dim >= sd:
        f = torch.log_softmax if log else torch.softmax
        return like(label, x, f(v, dim - sd + 1))
    if not v.numel():
        return like(label, x, v)
    # what is not stored counts as -inf: a group is what is stored of the other indices
    rest = [d for d in range(sd) if d != dim]
    k = keys(at[rest], [x.shape[d] for d in rest]) if rest else at.new_zeros(at.shape[1])
    _, group = torch.unique(k, return_inverse=True)
    flat = v.reshape(v.shape[0], -1)
    n = v.shape[0]
    where = group.unsqueeze(1).expand(flat.shape)
    top = torch.full_like(flat.detach(), float("-inf")).scatter_reduce(0, where, flat.detach(), "amax")
    moved = flat - top.index_select(0, group)
    e = moved.exp()
    total = e.new_zeros((n, e.shape[1])).index_add(0, group, e).index_select(0, group)
    return like(label, x, (moved - total.log() if log else e / total).reshape(v.shape))


op("_sparse_softmax")(lambda x, dim, dtype=None: _softmax(x, dim, dtype, False))
op("_sparse_log_softmax")(lambda x, dim, dtype=None: _softmax(x, dim, dtype, True))
