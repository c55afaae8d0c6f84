"""Sparse tensors with other dimensions, parts of them, and several joined."""

from __future__ import annotations

from typing import Any

from tabtorch import _lazy
from tabtorch.core.shapes import wrap_dim
from tabtorch.core.tensor import Tensor
from tabtorch.sparse.convert import parts, sparse_dims, to_coo
from tabtorch.sparse.tensor import (
    BLOCKED,
    BSC,
    BSR,
    COO,
    CSC,
    CSR,
    is_sparse,
    like,
    made,
    op,
    refused,
    values_of,
)

_TURNED = {CSR: CSC, CSC: CSR, BSR: BSC, BSC: BSR}


@op("transpose", "swapaxes", "swapdims")
def transpose(x: Any, dim0: int, dim1: int) -> Any:
    """Two dimensions swapped: both sparse, or of the same kind. RuntimeError for others."""
    a, b = sorted((wrap_dim(dim0, x.ndim), wrap_dim(dim1, x.ndim)))
    shape = list(x.shape)
    if a == b:
        return like("Transpose", x, values_of(x))
    shape[a], shape[b] = shape[b], shape[a]
    if x.layout is COO:
        sd = sparse_dims(x)
        if b >= sd:
            raise RuntimeError(
                f"sparse transpose: transposed dimensions must be sparse Got sparse_dim: {sd}, d0: {wrap_dim(dim0, x.ndim)}, d1: "
                f"{wrap_dim(dim1, x.ndim)}"
            )
        rows = list(parts(x)[0].unbind(0))
        rows[a], rows[b] = rows[b], rows[a]
        name = "T" if x.ndim == 2 else "Transpose"
        return made(name, COO, (_lazy.torch.stack(rows),), values_of(x), shape, False)
    p = parts(x)
    nb = p[1].ndim - 1
    if (a, b) == (nb, nb + 1):
        v = values_of(x)
        return made(
            "Transpose", _TURNED[x.layout], p[:2], v.transpose(nb + 1, nb + 2) if x.layout in BLOCKED else v, shape
        )
    if b < nb:
        return made("Transpose", x.layout, [q.transpose(a, b) for q in p[:2]], values_of(x).transpose(a, b), shape)
    raise RuntimeError(
        f"transpose(): can only transpose tensors of layout {x.layout!r} within batch, or the two sparse dimensions"
    )


op("t")(lambda x: transpose(x, 0, 1) if x.ndim == 2 else like("T", x, values_of(x)))
op("adjoint")(lambda x: transpose(x, -2, -1))


@op()
def permute(x: Any, *dims: Any) -> Any:
    """Dimensions in another order: sparse ones among themselves, dense ones among themselves."""
    given = tuple(dims[0]) if len(dims) == 1 and not isinstance(dims[0], int) else dims
    if len(given) != x.ndim:
        raise RuntimeError(
            f"permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering of "
            f"dimensions i.e. input.dim() = {x.ndim} is not equal to len(dims) = {len(given)}"
        )
    order = tuple([wrap_dim(d, x.ndim) for d in given])
    if len(set(order)) != len(order):
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    if x.layout is not COO:
        swapped = [d for d, to in enumerate(order) if d != to]
        if not swapped:
            return like("Permute", x, values_of(x))
        if len(swapped) == 2:
            return transpose(x, *swapped)
        raise refused("permute", x)
    sd = sparse_dims(x)
    if any((d < sd) != (k < sd) for k, d in enumerate(order)):
        raise RuntimeError(
            f"transpositions between sparse and dense dimensions are not allowed.Got dims: {list(order)}"
        )
    at, v = parts(x)[0], values_of(x)
    if sd:
        at = _lazy.torch.stack([at[d] for d in order[:sd]])
    v = v.permute(0, *[d - sd + 1 for d in order[sd:]])
    kept = x._tab_storage.coalesced and order[:sd] == tuple(range(sd))
    return made("Permute", COO, (at,), v, [x.shape[d] for d in order], kept)


@op("movedim", "moveaxis")
def movedim(x: Any, source: Any, destination: Any) -> Any:
    """Dimensions moved to other places."""
    a = [source] if isinstance(source, int) else source
    b = [destination] if isinstance(destination, int) else destination
    moved = dict(zip([wrap_dim(d, x.ndim) for d in b], [wrap_dim(d, x.ndim) for d in a], strict=True))
    rest = iter([d for d in range(x.ndim) if d not in moved.values()])
    return permute(x, tuple([moved[d] if d in moved else next(rest) for d in range(x.ndim)]))


@op()
def unsqueeze(x: Any, dim: int) -> Any:
    """A dimension of size 1: sparse, or dense behind the last of the sparse ones."""
    if x.layout is not COO:
        raise refused("unsqueeze", x)
    dim = wrap_dim(dim, x.ndim + 1)
    sd = sparse_dims(x)
    shape = [*x.shape[:dim], 1, *x.shape[dim:]]
    at, v = parts(x)[0], values_of(x)
    if dim <= sd:
        at = _lazy.torch.cat([at[:dim], at.new_zeros((1, at.shape[1])), at[dim:]])
    else:
        v = v.unsqueeze(dim - sd + 1)
    return made("Unsqueeze", COO, (at,), v, shape, x._tab_storage.coalesced)


def _in_range(name: str, x: Any, dim: int, index: int) -> int:
    n = x.shape[dim]
    if not -n <= index < n:
        raise IndexError(f"{name}(): index {index} out of range for tensor of size {list(x.shape)} at dimension {dim}")
    return index % n


@op("select")
def select(x: Any, dim: int, index: int) -> Any:
    """One slice along a dimension: a COO tensor, or a dense one where no sparse dimension is left."""
    if not x.ndim:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    dim = wrap_dim(dim, x.ndim)
    index = _in_range("select", x, dim, int(index))
    if x.layout is not COO:
        p = parts(x)
        nb = p[1].ndim - 1
        if dim < nb:
            shape = [*x.shape[:dim], *x.shape[dim + 1 :]]
            return made(
                "Select", x.layout, [q.select(dim, index) for q in p[:2]], values_of(x).select(dim, index), shape
            )
        if nb and dim < nb + 2:
            raise RuntimeError(f"select(): selecting rows or columns is not implemented for batched {x.layout!r}")
        x = to_coo(x)
    shape = [*x.shape[:dim], *x.shape[dim + 1 :]]
    sd = sparse_dims(x)
    at, v = parts(x)[0], values_of(x)
    if dim >= sd:
        return made("Select", COO, (at,), v.select(dim - sd + 1, index), shape, x._tab_storage.coalesced)
    here = (at[dim] == index).nonzero().reshape(-1)
    v = v.index_select(0, here)
    if sd == 1:
        return v.sum(0, dtype=v.dtype) if v.shape[0] != 1 else v[0]
    rest = _lazy.torch.cat([at[:dim], at[dim + 1 :]]).index_select(1, here)
    return made("Select", COO, (rest,), v, shape, x._tab_storage.coalesced)


@op()
def unbind(x: Any, dim: int = 0) -> Any:
    """All slices along a dimension."""
    return tuple([select(x, dim, i) for i in range(x.shape[wrap_dim(dim, x.ndim)])])


op("__iter__")(lambda x: iter(unbind(x)))


@op()
def narrow_copy(x: Any, dim: int, start: int, length: int) -> Any:
    """`length` slices from `start` on. RuntimeError for a range out of bounds."""
    dim = wrap_dim(dim, x.ndim)
    if x.layout is not COO:
        raise refused("narrow_copy", x)
    n = x.shape[dim]
    if length < 0 or start + length > n:
        raise RuntimeError(f"Invalid range to narrow. range(start, start+length) must be a subset of range(0, {n}).")
    shape = [*x.shape[:dim], length, *x.shape[dim + 1 :]]
    sd = sparse_dims(x)
    at, v = parts(x)[0], values_of(x)
    if dim >= sd:
        return made("NarrowCopy", COO, (at,), v.narrow(dim - sd + 1, start, length), shape, x._tab_storage.coalesced)
    here = ((at[dim] >= start) & (at[dim] < start + length)).nonzero().reshape(-1)
    at = at.index_select(1, here)
    at = _lazy.torch.cat([at[:dim], at[dim : dim + 1] - start, at[dim + 1 :]])
    return made("NarrowCopy", COO, (at,), v.index_select(0, here), shape, x._tab_storage.coalesced)


@op()
def index_select(x: Any, dim: int, index: Any) -> Any:
    """Slices along a dimension, as `index` lists them. IndexError for one that is not there."""
    if not is_sparse(x) or is_sparse(index):
        raise refused("index_select", index)
    if x.layout is not COO:
        raise refused("index_select", x)
    dim = wrap_dim(dim, x.ndim)
    if index.ndim != 1:
        raise IndexError("index_select() argument index must be 1-D long-tensor.")
    index = index.long()
    n = x.shape[dim]
    for i in index.tolist():
        if not -n <= i < n:
            raise IndexError(
                f"index_select(): index contains {i} that is out of range for tensor of size {list(x.shape)} at dimension {dim}"
            )
    index = index % max(n, 1)
    shape = [*x.shape[:dim], index.shape[0], *x.shape[dim + 1 :]]
    sd = sparse_dims(x)
    at, v = parts(x)[0], values_of(x)
    if dim >= sd:
        return made("IndexSelect", COO, (at,), v.index_select(dim - sd + 1, index), shape, x._tab_storage.coalesced)
    # for each slice that is asked for, the elements of it
    torch = _lazy.torch
    order = at[dim].argsort(stable=True)
    lines = at[dim].index_select(0, order)
    first = torch.searchsorted(lines, index)
    count = torch.searchsorted(lines, index, right=True) - first
    total = int(count.sum()) if count.numel() else 0
    which = torch.arange(index.shape[0], device=at.device).repeat_interleave(count, output_size=total)
    before = count.cumsum(0) - count
    place = torch.arange(total, device=at.device) - before.index_select(0, which) + first.index_select(0, which)
    taken = order.index_select(0, place)
    rest = at.index_select(1, taken)
    at = torch.cat([rest[:dim], which.unsqueeze(0), rest[dim + 1 :]])
    return made("IndexSelect", COO, (at,), v.index_select(0, taken), shape, x._tab_storage.coalesced and dim == 0)


@op("_getitem")
def getitem(x: Any, index: Any) -> Any:
    """`x[...]` of numbers, `:`, `None`. NotImplementedError, as PyTorch's, for slices and tensors."""
    dim, r = 0, x
    whole = index if isinstance(index, tuple) else (index,)
    taken = sum(i is not None and i is not ... for i in whole)
    if taken > x.ndim:
        raise IndexError(f"too many indices for tensor of dimension {x.ndim}")
    if whole == (...,):
        return x.detach() if not x.requires_grad else like("Alias", x, values_of(x))
    for i in whole:
        if i is ...:
            dim += x.ndim - taken
        elif i is None:
            r, dim = (unsqueeze(r, dim) if is_sparse(r) else r.unsqueeze(dim)), dim + 1
        elif isinstance(i, slice):
            n = r.shape[dim]
            if i.indices(n) != (0, n, 1):
                raise refused("as_strided", x)
            dim += 1
        elif (
            isinstance(i, bool)
            or (isinstance(i, Tensor) and (i.ndim or i.dtype.category == 0))
            or not hasattr(i, "__index__")
        ):
            raise refused("index.Tensor", x)
        else:
            i = int(i)
            n = r.shape[dim]
            if not -n <= i < n:
                raise IndexError(f"index {i} is out of bounds for dimension {dim} with size {n}")
            r = select(r, dim, i) if is_sparse(r) else r.select(dim, i)
    return r


# ---- joined


@op("cat", "concat", "concatenate")
def cat(tensors: Any, dim: int = 0) -> Any:
    """COO tensors joined along a dimension. RuntimeError for other layouts, or shapes that do not fit."""
    torch = _lazy.torch
    for i, t in enumerate(tensors):
        if not is_sparse(t):
            raise RuntimeError(f"Concatenating sparse tensors, but a dense tensor was found at position {i}.")
        if t.layout is not COO:
            raise refused("cat", t)
    first = tensors[0]
    dim = wrap_dim(dim, first.ndim)
    sd = sparse_dims(first)
    to = first.dtype
    for i, t in enumerate(tensors):
        if [*t.shape[:dim], *t.shape[dim + 1 :]] != [*first.shape[:dim], *first.shape[dim + 1 :]]:
            raise RuntimeError(
                f"All tensors must have the same shape: {list(first.shape)} (except in the concatenating dimension), but found "
                f"shape: {list(t.shape)}"
            )
        if sparse_dims(t) != sd:
            raise RuntimeError(
                f"All tensors must have the same sparse_dim and dense_dim: {sd}, {first.ndim - sd}, but tensor at position {i} has "
                f"{sparse_dims(t)}, {t.ndim - sparse_dims(t)}."
            )
        to = torch.promote_types(to, t.dtype)
    shape = [*first.shape]
    shape[dim] = sum(t.shape[dim] for t in tensors)
    rows, values, start = [], [], 0
    for t in tensors:
        at, v = parts(t)[0], values_of(t).to(to)
        if dim < sd:
            at = torch.cat([at[:dim], at[dim : dim + 1] + start, at[dim + 1 :]])
        else:
            wide = [*v.shape]
            d = dim - sd + 1
            wide[d] = start
            after = [*v.shape]
            after[d] = shape[dim] - start - t.shape[dim]
            v = torch.cat([v.new_zeros(wide), v, v.new_zeros(after)], d)
        rows.append(at)
        values.append(v)
        start += t.shape[dim]
    return made("Cat", COO, (torch.cat(rows, 1),), torch.cat(values), shape)


@op()
def stack(tensors: Any, dim: int = 0) -> Any:
    """The same along a new dimension."""
    return cat([unsqueeze(t, dim) for t in tensors], dim)


op("vstack", "row_stack")(lambda tensors: cat([t if t.ndim > 1 else unsqueeze(t, 0) for t in tensors], 0))
op("hstack")(lambda tensors: cat(tensors, 0 if tensors[0].ndim == 1 else 1))


def _refusing(*names: str, text: str) -> None:
    def f(*args: Any, **kw: Any) -> Any:
        raise RuntimeError(text)

    op(*names)(f)


_refusing(
    "reshape",
    "flatten",
    "view_as",
    "ravel",
    "reshape_as",
    "unflatten",
    text="reshape is not implemented for sparse tensors",
)
_refusing("expand", "repeat", "expand_as", "broadcast_to", "tile", text="expand is unsupported for Sparse tensors")
