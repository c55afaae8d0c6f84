"""From one layout to another, and to the same elements once: `coalesce`, `to_dense`, `to_sparse*`, `sparse_mask`.

COO is what all others are converted through. Its elements are put in order by their keys: the number of an element among those of
a dense tensor of the sparse dimensions.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.tape import needs_record, record
from tabtorch.base import dtypes
from tabtorch.core.layout import layout as Layout
from tabtorch.core.layout import strided
from tabtorch.engine.view import contiguous_strides
from tabtorch.sparse.tensor import (
    BLOCKED,
    BSC,
    BSR,
    BY_ROW,
    COO,
    CSC,
    CSR,
    WORDS,
    is_sparse,
    like,
    made,
    new,
    op,
    refused,
    values_of,
)

_int64 = dtypes.int64


def parts(x: Any) -> Any:
    """The tensors it consists of, the values last; none is on the tape."""
    found: Any = x._tab_storage.parts
    return found


def sparse_dims(x: Any) -> int:
    """How many dimensions its indices are of."""
    return int(parts(x)[0].shape[0]) if x.layout is COO else 2


def keys(indices: Any, sizes: Any) -> Any:
    """The number of each element, row by row."""
    if not len(sizes):
        return indices.new_zeros(indices.shape[1])
    k: Any = None
    for row, step in zip(indices.unbind(0), contiguous_strides(tuple(sizes)), strict=True):
        part = row * step if step != 1 else row
        k = part if k is None else k + part
    return k


def from_keys(k: Any, sizes: Any) -> Any:
    """The indices of elements of these numbers."""
    if not len(sizes):
        return k.new_zeros((0, k.shape[0]))
    steps = contiguous_strides(tuple(sizes))
    return _lazy.torch.stack([(k // s if s != 1 else k) % max(n, 1) for s, n in zip(steps, sizes, strict=True)])


def added(target: Any, index: Any, values: Any, dim: int = 0) -> Any:
    """`target.index_add`, where bools are `or`ed."""
    if values.dtype is dtypes.bool_:
        return target.int().index_add(dim, index, values.int()).bool()
    return target.index_add(dim, index, values)


def merged(k: Any, values: Any) -> tuple[Any, Any]:
    """Different keys in order, and the sums of the values of each."""
    some, place = _lazy.torch.unique(k, return_inverse=True)
    return some, added(values.new_zeros((some.shape[0], *values.shape[1:])), place, values)


def occurrences(x: Any) -> Any:
    """How often the element that each value is of occurs."""
    at, v = parts(x)
    _, place = _lazy.torch.unique(keys(at, x.shape[: at.shape[0]]), return_inverse=True)
    return v.new_zeros(v.shape[:1]).index_add(0, place, v.new_ones(v.shape[:1])).index_select(0, place)


# ---- COO


@op("coalesce", "_coalesce")
def coalesce(x: Any) -> Any:
    """The same tensor with each element once, in order; itself if it is so already. RuntimeError for another layout."""
    _expect(x, "coalesce")
    s = x._tab_storage
    if s.coalesced:
        return x
    plain = x.detach()
    if s.parts[-1].shape[0] < 2:
        r = like("Coalesce", plain, s.parts[-1], True)
    else:
        sizes = x.shape[: sparse_dims(x)]
        k, v = merged(keys(s.parts[0], sizes), s.parts[-1])
        r = new(COO, (from_keys(k, sizes), v), x.shape, True)
    if needs_record(x):
        record("CoalesceBackward0", (x,), r, lambda g: g)
    return r


def _expect(x: Any, name: str, layout: Any = COO) -> None:
    if x.layout is not layout:
        raise RuntimeError(f"{name} expected sparse coordinate tensor layout but got {WORDS[x.layout][0]}")


@op()
def is_coalesced(x: Any) -> bool:
    """Whether each element is there once, in order."""
    _expect(x, "is_coalesced")
    return bool(x._tab_storage.coalesced)


@op("_coalesced_")
def coalesced_(x: Any, coalesced: bool) -> Any:
    """Says of a tensor whether it is coalesced."""
    x._tab_storage.coalesced = bool(coalesced)
    return x


def coo(x: Any) -> tuple[Any, Any]:
    """(indices, values on the tape) of a tensor of any sparse layout, coalesced."""
    c = to_coo(x)
    c = coalesce(c)
    return parts(c)[0], values_of(c)


def loose(x: Any) -> tuple[Any, Any]:
    """The same, coalesced only where gradients need it: for what adds elements up anyway."""
    return coo(x) if needs_record(x) or x.layout is not COO else parts(x)


def to_coo(x: Any) -> Any:
    """Any sparse tensor in the coordinate layout: (batches, row, column)."""
    if x.layout is COO:
        return x
    at, blocks = positions(x)
    values = values_of(x)
    nb = len(parts(x)[1].shape) - 1
    values = values.flatten(0, nb)
    if x.layout in BLOCKED:
        r, c = values.shape[1:3]
        n = values.shape[0]
        within = _lazy.torch.arange(r * c, device=x.device)
        at = at.unsqueeze(-1).expand(*at.shape, r * c)
        rows, cols = at[-2] * r + within // c, at[-1] * c + within % c
        at = _lazy.torch.cat([at[:-2], rows[None], cols[None]]).reshape(at.shape[0], n * r * c)
        values = values.flatten(0, 2)
    # by columns, or in blocks, elements are not in the order of rows
    flat = x.layout is CSR
    r = made("ToSparse", COO, (at,), values, x.shape, flat)
    return r if flat else coalesce(r)


def positions(x: Any) -> tuple[Any, Any]:
    """(indices (batches + 2, n) of the blocks of a compressed tensor, the size of a block or ())."""
    compressed, plain, values = parts(x)
    batch = tuple(plain.shape[:-1])
    n, each = prod(batch), plain.shape[-1]
    lines = compressed.shape[-1] - 1
    torch = _lazy.torch
    counts = compressed.diff(dim=-1).reshape(-1).long()
    line = torch.arange(n * lines, device=x.device).repeat_interleave(counts, output_size=n * each)
    if lines:
        line = line % lines
    rows = [line, plain.reshape(-1).long()] if x.layout in BY_ROW else [plain.reshape(-1).long(), line]
    if batch:
        which = torch.arange(n, device=x.device).unsqueeze(1).expand(n, each).reshape(-1)
        rows = [*from_keys(which, batch).unbind(0), *rows]
    block = tuple(values.shape[len(batch) + 1 : len(batch) + 3]) if x.layout in BLOCKED else ()
    return torch.stack(rows), block


# ---- dense


@op("to_dense", "_to_dense")
def to_dense(x: Any, dtype: Any = None, *, masked_grad: bool | None = None) -> Any:
    """The strided tensor of the same elements: what occurs several times is added up."""
    if not is_sparse(x):
        return x if dtype is None else x.to(dtype)
    if dtype is not None:
        raise RuntimeError("dtype argument is not supported by sparse_to_dense")
    indices, values = loose(x)
    sizes = x.shape[: indices.shape[0]]
    flat = values.new_zeros((prod(sizes), *values.shape[1:]))
    r = added(flat, keys(indices, sizes), values).reshape(x.shape)
    if r is not values and r._tab_grad_fn is not None:
        r = _lazy.tape.named(r, "ToDenseBackward0", x)
    return r


def values_at(g: Any, x: Any) -> Any:
    """The values of a gradient, sparse or dense, where `x` has elements."""
    if is_sparse(g) and g.layout is x.layout and parts(g)[0] is not None:
        a, b = parts(g), parts(x)
        if all(
            p._tab_storage.node is q._tab_storage.node and p._tab_meta is q._tab_meta for p, q in zip(a[:-1], b[:-1])
        ):
            if x.layout is not COO or x._tab_storage.coalesced:
                return values_of(g)
    if x.layout is COO:
        return _picked(g, parts(x)[0])
    at, block = positions(x)
    values = parts(x)[-1]
    if block:
        r, c = block
        torch = _lazy.torch
        within = torch.arange(r * c, device=x.device)
        wide = at.unsqueeze(-1).expand(*at.shape, r * c)
        rows, cols = wide[-2] * r + within // c, wide[-1] * c + within % c
        at = torch.cat([wide[:-2], rows[None], cols[None]]).reshape(at.shape[0], at.shape[1] * r * c)
    return _picked(g, at).reshape(values.shape)


def _picked(g: Any, indices: Any) -> Any:
    sd = indices.shape[0]
    sizes = g.shape[:sd]
    k = keys(indices, sizes)
    if not is_sparse(g):
        return g.reshape(prod(sizes), *g.shape[sd:]).index_select(0, k)
    at, v = coo(g)
    if at.shape[0] < sd:  # dense in dimensions that are sparse here
        return _picked(to_dense(g), indices)
    if at.shape[0] > sd:
        raise NotImplementedError("a gradient with more sparse dimensions than its tensor")
    return looked_up(keys(at, sizes), v, k)


def looked_up(have: Any, values: Any, k: Any) -> Any:
    """The values that stand at keys in order, for other keys; 0 where there is none."""
    if not have.shape[0]:
        return values.new_zeros((k.shape[0], *values.shape[1:]))
    torch = _lazy.torch
    place = torch.searchsorted(have, k).clamp(max=have.shape[0] - 1)
    there = (have.index_select(0, place) == k).reshape(-1, *[1] * (values.ndim - 1))
    return torch.where(there, values.index_select(0, place), torch.zeros((), dtype=values.dtype, device=values.device))


# ---- to other layouts


def to_layout(x: Any, to: Any, blocksize: Any = None, dense_dim: Any = None) -> Any:
    """Any tensor in a compressed layout."""
    if to in BLOCKED and not blocksize:
        f = "dense" if not is_sparse(x) else "coo" if x.layout is COO else "sparse_compressed"
        raise RuntimeError(
            f"{f}_to_sparse: conversion from {WORDS[x.layout][0]} to {WORDS[to][0]} without blocksize argument given is not supported"
        )
    if is_sparse(x) and x.layout is to and (to not in BLOCKED or tuple(blocksize) == tuple(positions(x)[1])):
        return x
    if is_sparse(x):
        if x.layout is COO and sparse_dims(x) != 2:
            word = WORDS[to][0]
            raise RuntimeError(
                f"coo_to_sparse_{word[6:].lower()}: conversion from Sparse to {word} for input tensors with sparse_dim()!=2 is not "
                "supported"
            )
        at, values = coo(x)
    else:
        if x.ndim < 2:
            raise IndexError(f"to_sparse: a matrix is needed for layout {to!r}, not a tensor of {x.ndim} dimensions")
        if to in BLOCKED and (x.shape[-2] % blocksize[0] or x.shape[-1] % blocksize[1]) and not dense_dim:
            raise RuntimeError(
                f"dense_to_{to.name}: tensor sparse size ({x.shape[-2]},{x.shape[-1]}) must be divisible by given blocksize "
                f"({blocksize[0]},{blocksize[1]})"
            )
        c = from_dense(x, x.ndim - (dense_dim or 0))
        at, values = parts(c)[0], values_of(c)
    return compressed(x.shape, at, values, to, tuple(blocksize) if blocksize else ())


def compressed(shape: Any, at: Any, values: Any, to: Any, block: tuple[int, ...] = ()) -> Any:
    """A tensor of a compressed layout, of coalesced elements (batches, row, column)."""
    torch = _lazy.torch
    nb = at.shape[0] - 2
    batch, (rows, cols) = tuple(shape[:nb]), shape[nb : nb + 2]
    row, col = at[-2], at[-1]
    if to in BLOCKED:
        if len(block) != 2:
            raise RuntimeError("blocksize must be given")
        if block[0] < 1 or block[1] < 1 or rows % block[0] or cols % block[1]:
            raise RuntimeError(
                f"tensor sparse size ({rows}, {cols}) must be divisible by given blocksize ({block[0]}, {block[1]})"
            )
        within = (row % block[0]) * block[1] + col % block[1]
        row, col, rows, cols = row // block[0], col // block[1], rows // block[0], cols // block[1]
    by_row = to in BY_ROW
    line, plain, lines, width = (row, col, rows, cols) if by_row else (col, row, cols, rows)
    which = keys(at[:-2], batch) if nb else torch.zeros_like(line)
    k = (which * lines + line) * width + plain
    if to in BLOCKED:
        some, place = torch.unique(k, return_inverse=True)
        size = block[0] * block[1]
        flat = values.new_zeros((some.shape[0] * size, *values.shape[1:]))
        values = added(flat, place * size + within, values).reshape(some.shape[0], *block, *values.shape[1:])
        k = some
    elif not by_row:
        k, order = k.sort()
        values = values.index_select(0, order)
    n = prod(batch)
    line_of = k // max(width, 1)
    counts = torch.zeros(n * lines, dtype=_int64, device=k.device).index_add(0, line_of, torch.ones_like(line_of))
    counts = counts.reshape(*batch, lines)
    ends = counts.cumsum(-1)
    offsets = torch.cat([ends.new_zeros((*batch, 1)), ends], -1)
    plain = k % max(width, 1)
    if nb:
        each = k.shape[0] // max(n, 1)
        if n and bool((offsets[..., -1] != each).any()):
            raise RuntimeError("Expect the same number of specified elements per batch.")
        plain, values = plain.reshape(*batch, each), values.reshape(*batch, each, *values.shape[1:])
    return made("ToSparse", to, (offsets, plain), values, shape)


def from_dense(x: Any, sparse_dim: int) -> Any:
    """The elements of a strided tensor that are not 0, or the slices that hold one."""
    torch = _lazy.torch
    plain = x.detach()
    mask = plain != 0
    if sparse_dim < x.ndim:
        mask = mask.flatten(sparse_dim).any(-1) if sparse_dim else mask.any().reshape(())
    at = mask.nonzero().t() if sparse_dim else torch.zeros((0, int(mask.item())), dtype=_int64, device=x.device)
    sizes = tuple(x.shape[:sparse_dim])
    flat = x.reshape(prod(sizes), *x.shape[sparse_dim:])
    values = flat.index_select(0, keys(at, sizes))
    t = made("ToSparse", COO, (at.contiguous(),), values, x.shape, True)
    if t._tab_requires_grad and sparse_dim == x.ndim:
        _lazy.tape.named(t, "ToSparseBackward1")
    return t


@op("to_sparse", "_to_sparse")
def to_sparse(
    x: Any, sparse_dim: Any = None, *, layout: Any = None, blocksize: Any = None, dense_dim: Any = None
) -> Any:
    """A copy in a sparse layout: COO with `sparse_dim` sparse dimensions (default: all), or `layout`, with `blocksize`."""
    if isinstance(sparse_dim, Layout):
        sparse_dim, layout = None, sparse_dim
    if sparse_dim is not None and layout is not None:
        raise TypeError("to_sparse() received an invalid combination of arguments: sparse_dim and layout")
    to = COO if layout is None else layout
    if to is strided:
        raise RuntimeError(f"to_sparse: conversion from {WORDS[x.layout][0]} to Strided is not supported")
    if to not in BLOCKED and blocksize is not None:
        raise RuntimeError(
            f"to_sparse: conversion from {WORDS[x.layout][0]} to {WORDS[to][0]} with blocksize argument given is not supported"
        )
    if to is not COO:
        return to_layout(x, to, blocksize, dense_dim)
    if is_sparse(x):
        if x.layout is COO and sparse_dim not in (None, sparse_dims(x)):
            raise RuntimeError(
                "to_sparse: conversion from Sparse to Sparse with sparse_dim argument !=self.sparse_dim() is not supported"
            )
        return to_coo(x)
    n = x.ndim if sparse_dim is None else sparse_dim
    if not 0 <= n <= x.ndim:
        raise RuntimeError(f"dense_to_sparse: sparse_dim argument must be in [0,{x.ndim}] range, but {n} is given")
    if not n and x.ndim:
        raise RuntimeError("dense_to_sparse: sparse_dim argument must be in >0 when self.dim()>0")
    return from_dense(x, n)


def _named(name: str, to: Any, blocked: bool) -> None:
    def f(x: Any, blocksize: Any, dense_dim: Any = None) -> Any:
        return to_layout(x, to, blocksize, dense_dim)

    op("to_sparse_" + name, "_to_sparse_" + name)(
        f if blocked else lambda x, dense_dim=None: to_layout(x, to, None, dense_dim)
    )


op("to_sparse_coo")(lambda x: to_sparse(x))
for _name, _to in (("csr", CSR), ("csc", CSC), ("bsr", BSR), ("bsc", BSC)):
    _named(_name, _to, _to in BLOCKED)


@op("sparse_mask", "_sparse_mask_projection")
def sparse_mask(x: Any, mask: Any, accumulate_matches: bool = False) -> Any:
    """The elements of `x` where `mask` has some: with its indices and layout. RuntimeError for other shapes."""
    if not is_sparse(mask):
        raise refused("sparse_mask", x)
    if x.shape != mask.shape:
        raise RuntimeError(
            f"sparse_mask(): operands have incompatible sizes; self has size {list(x.shape)} but mask has size {list(mask.shape)}"
        )
    m = mask.detach()
    return like("SparseMask", m, values_at(x, m))
