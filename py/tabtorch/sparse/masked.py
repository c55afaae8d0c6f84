"""What `torch.masked` does with sparse tensors: sums, products, means, largest and smallest elements of those that a mask lets through.

The mask says which elements there are. One that it lets through and that the tensor does not store is a 0; one that it hides is part
of no result, and where it hides all of a row or column the result stores nothing. (PyTorch has the values of hidden rows of a CSR
tensor without indices to them, and raises for most masks of hybrid tensors: neither can be meant.)
"""

from __future__ import annotations

from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.tape import named, record
from tabtorch.base import dtypes
from tabtorch.masked import _ops
from tabtorch.ops.machinery.promotion import FLOATING, check_kernel
from tabtorch.sparse.convert import (
    added,
    coalesce,
    compressed,
    coo,
    from_keys,
    keys,
    looked_up,
    parts,
    sparse_dims,
    to_coo,
    to_dense,
    to_layout,
    to_sparse,
)
from tabtorch.sparse.rows import broadcast
from tabtorch.sparse.tensor import COO, CSR, is_sparse, made, refused

#: of a CSR tensor: those that PyTorch reduces by scattering, with gradients; its sums and products are operations without one
_SCATTERED = ("amax", "amin", "mean")
_NARROW = (dtypes.float16, dtypes.bfloat16)


def refuse(name: str, x: Any, mask: Any) -> None:
    """Raises PyTorch's ValueError of an operation of strided tensors."""
    _check_layout(x, mask)
    raise ValueError(f"masked {name} expects strided tensor (got {x.layout!r} tensor)")


def _check_layout(x: Any, mask: Any) -> None:
    if mask is not None and x.layout not in (COO, CSR):
        raise ValueError(f"_input_mask expects strided or sparse COO or sparse CSR tensor but got {x.layout!r}")


def dense_mask(mask: Any, shape: Any) -> Any:
    """A sparse mask of a strided tensor of this shape."""
    return to_dense(_shaped(mask, shape))


def _shaped(mask: Any, shape: Any) -> Any:
    """A mask repeated to a shape; of a sparse one whose shape is another, a COO tensor comes of it."""
    if mask.shape == shape:
        return mask
    if mask.ndim > len(shape):
        raise IndexError("_input_mask expected broadcastable mask (got mask dimensionality higher than of the input)")
    if not is_sparse(mask):
        return mask.expand(shape)
    if mask.layout not in (COO, CSR):
        raise AssertionError(f"expected sparse_csr layout, got {mask.layout!r}")
    return broadcast(to_coo(mask), shape)


def _input_mask(x: Any, mask: Any) -> tuple[Any, Any]:
    """(indices, bools) of a mask as a coalesced tensor of the same sparse dimensions as `x`."""
    _check_layout(x, mask)
    m = _shaped(mask.detach(), x.shape)
    m = coalesce(to_coo(m) if is_sparse(m) else to_sparse(m, sparse_dims(x)))
    if sparse_dims(m) != sparse_dims(x):
        dense = [x.ndim - sparse_dims(t) for t in (m, x)]
        raise AssertionError(f"mask.dense_dim() must match input.dense_dim(): {dense[0]} vs {dense[1]}")
    at, let = parts(m)
    return at, let.to(dtypes.bool_)


def input_mask(x: Any, mask: Any) -> Any:
    """A mask as bool, in the shape and the layout of a sparse tensor."""
    if x.layout not in (COO, CSR):
        raise ValueError(f"_input_mask expects strided or sparse COO or sparse CSR tensor but got {x.layout!r}")
    if mask is None:
        raise ValueError("_input_mask requires explicit mask")
    mask = _shaped(mask, x.shape)
    if x.layout is CSR:
        return to_layout(mask, CSR).to(dtypes.bool_)
    return coalesce(to_coo(mask) if is_sparse(mask) else to_sparse(mask, sparse_dims(x))).to(dtypes.bool_)


def _only_matrices(x: Any) -> None:
    if x.layout is CSR and x.ndim != 2:
        raise RuntimeError(
            "coo_to_sparse_csr: conversion from Sparse to SparseCsr for input tensors with sparse_dim()!=2 is not supported"
        )


def _let_through(x: Any, at: Any, let: Any, hidden: Any) -> tuple[Any, Any]:
    """(indices in order, values) of the elements of `x` that a mask lets through; `hidden`: what else a dense part holds."""
    torch = _lazy.torch
    some = (let.flatten(1).any(1) if let.ndim > 1 else let).nonzero().reshape(-1)
    at = at.index_select(1, some)
    have, v = coo(x)
    sizes = x.shape[: at.shape[0]]
    v = looked_up(keys(have, sizes), v, keys(at, sizes))
    if let.ndim > 1:
        v = torch.where(let.index_select(0, some), v, torch.tensor(hidden, dtype=v.dtype, device=v.device))
    return at, v


def reduced(name: str, x: Any, dim: Any, keepdim: bool, dtype: Any, mask: Any) -> Any:
    """A reduction, in the layout of `x`. As in PyTorch, that of a COO tensor is not on the tape."""
    early = name in ("sum", "prod")  # PyTorch looks at the dimensions before the mask
    dims = _ops._dims(dim, x.ndim) if early else ()
    if name == "mean" and x.layout is not CSR:
        raise ValueError(f"masked mean expects strided or sparse_csr tensor (got {x.layout!r} tensor)")
    known = None
    if mask is not None:
        _only_matrices(x)
        known = _input_mask(x, mask)
        hidden = 0 if name == "mean" else _ops._identity(name, x.dtype)
    if not early:
        dims = _ops._dims(dim, x.ndim)
    if x.layout not in (COO, CSR):
        raise ValueError(f"masked {name} expects strided, sparse_coo or sparse_csr tensor (got {x.layout!r} tensor)")
    if known is None and name != "sum":  # what is not stored would be part of the result
        said = "amax" if name == "amin" and x.layout is COO else name
        raise ValueError(f"masked {said} expects explicit mask for {x.layout.name} tensor input")
    if x.layout is CSR and not keepdim:
        kind: Any = AssertionError if name in _SCATTERED else RuntimeError
        raise kind("reduction operations on CSR tensors with keepdim=False is unsupported")
    _only_matrices(x)
    source = x if x.layout is CSR and name in _SCATTERED else x.detach()
    if known is not None:
        at, v = _let_through(source, *known, hidden)
    else:
        at, v = parts(source) if x.layout is COO else coo(source)
    if x.layout is CSR:
        return _csr(name, x, at, v, dims, dtype)
    return _coo(name, x, at, v, dims, keepdim, dtype or (_ops._summed(x, None) if early else x.dtype))


def _along(name: str, v: Any, dim: int, keepdim: bool = False) -> Any:
    """The reduction of values along a dimension, in their type."""
    if name in ("amax", "amin") and not v.shape[dim]:
        shape = [n for d, n in enumerate(v.shape) if d != dim]
        return v.new_full(shape, _ops._identity(name, v.dtype))
    return getattr(v, name)(dim, keepdim).to(v.dtype)


def _grouped(name: str, k: Any, v: Any) -> tuple[Any, Any]:
    """Different keys in order, and the reduction of the values of each."""
    some, place = _lazy.torch.unique(k, return_inverse=True)
    wide = v.to(dtypes.float32) if v.dtype in _NARROW else v
    target = wide.new_zeros((some.shape[0], *v.shape[1:]))
    if name == "sum":
        return some, added(target, place, wide).to(v.dtype)
    if name == "prod" and v.dtype.is_complex:  # which no scatter multiplies
        return some, _products(place, v, some.shape[0])
    where = place.reshape(-1, *[1] * (v.ndim - 1)).expand(v.shape)
    return some, target.scatter_reduce(0, where, wide, name, include_self=False).to(v.dtype)


def _products(place: Any, v: Any, n: int) -> Any:
    """The products of the values of each of `n` groups, as rows of a matrix that ones fill up."""
    torch = _lazy.torch
    place, order = place.sort()
    sizes = torch.bincount(place, minlength=n)
    column = torch.arange(place.shape[0], device=v.device) - (sizes.cumsum(0) - sizes).index_select(0, place)
    width = int(sizes.max()) if n else 0
    table = v.new_ones((n * width, *v.shape[1:])).index_copy(0, place * width + column, v.index_select(0, order))
    return table.reshape(n, width, *v.shape[1:]).prod(1)


def _coo(name: str, x: Any, at: Any, v: Any, dims: Any, keepdim: bool, to: Any) -> Any:
    sd = at.shape[0]
    v = v.to(to)
    for d in reversed(dims):
        if sd <= d < x.ndim:  # a scalar has a dimension 0 that is none
            v = _along(name, v, d - sd + 1, keepdim)
    left = [d for d in range(sd) if d not in dims]
    if not left:
        v = _along(name, v, 0)
        return to_sparse(v.reshape([1] * sd + list(v.shape)) if keepdim else v)
    sizes = [x.shape[d] for d in left]
    k, v = _grouped(name, keys(at[left], sizes), v)
    some = from_keys(k, sizes)
    if keepdim:
        rows = iter(some.unbind(0))
        some = _lazy.torch.stack([next(rows) if d in left else k.new_zeros(k.shape) for d in range(sd)])
    shape = [1 if d in dims else n for d, n in enumerate(x.shape) if keepdim or d not in dims]
    # its elements are in order, but PyTorch does not say so of more than one
    return made("SparseCooTensorWithDimsAndTensors", COO, (some,), v, shape, v.shape[0] < 2)


def csr(name: str, x: Any, dims: Any, keepdim: bool, dtype: Any) -> Any:
    """`torch._sparse_csr_sum` and `_sparse_csr_prod`. RuntimeError without `keepdim`; NotImplementedError for other layouts."""
    if x.layout is not CSR:
        raise refused(f"_sparse_csr_{name}.dim_dtype", x)
    if not keepdim:
        raise RuntimeError("reduction operations on CSR tensors with keepdim=False is unsupported")
    return _csr(name, x, *coo(x.detach()), dims, dtype)


def _csr(name: str, x: Any, at: Any, v: Any, dims: Any, dtype: Any) -> Any:
    scattered = name in _SCATTERED
    if scattered and not dims:
        return compressed(x.shape, at, v, CSR)
    v = v.to(dtype or v.dtype)
    if not scattered and v.dtype.category < 2:
        v = v.to(dtypes.int64)
    if len(dims) == 1:
        (gone,) = dims
        if scattered and gone:
            check_kernel("_segment_reduce_cpu", v.dtype, FLOATING)
        some, v = _grouped(name, at[1 - gone], v)
        at = _lazy.torch.stack([some, some.new_zeros(some.shape)] if gone else [some.new_zeros(some.shape), some])
        shape = (x.shape[0], 1) if gone else (1, x.shape[1])
    else:
        n = min(1, v.shape[0])
        v = _along(name, v, 0, True) if n else v
        at = at.new_zeros((2, n))
        shape = (1, n if scattered else 1)
    r = compressed(shape, at, v, CSR)
    if scattered:
        return named(r, "SparseCompressedTensorBackward0", x)
    record("NotImplemented", (x,), r, lambda g: _no_derivative(name))
    return r


def _no_derivative(name: str) -> Any:
    raise RuntimeError(f"derivative for aten::_sparse_csr_{name} is not implemented")
