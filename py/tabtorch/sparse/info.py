"""What can be asked of a tensor of any layout: its parts, and how many dimensions are sparse."""

from __future__ import annotations

from typing import Any

from tabtorch.sparse.convert import is_sparse, parts, sparse_dims
from tabtorch.sparse.tensor import BY_ROW, COO, WORDS, SparseMeta, op, refused, values_of


def _coo_only(x: Any, name: str, once: bool = False) -> None:
    if x.layout is not COO:
        raise RuntimeError(f"{name} expected sparse coordinate tensor layout but got {WORDS[x.layout][0]}")
    if once and not x._tab_storage.coalesced:
        raise RuntimeError(f"Cannot get {name} on an uncoalesced tensor, please call .coalesce() first")


@op()
def indices(x: Any) -> Any:
    """The indices (sparse_dim, nnz) of a coalesced tensor."""
    _coo_only(x, "indices", True)
    return parts(x)[0].detach()


@op()
def values(x: Any) -> Any:
    """The values: (nnz, dense dimensions), or with batches and blocks as they are. RuntimeError for an uncoalesced tensor."""
    if not is_sparse(x):
        raise RuntimeError(f"values expected sparse tensor layout but got {WORDS[x.layout][0]}")
    if x.layout is COO:
        _coo_only(x, "values", True)
    return values_of(x)


def _private(name: str, part: int) -> None:
    def f(x: Any) -> Any:
        if x.layout is not COO:
            raise refused(name, x)
        return parts(x)[part].detach()

    op(name)(f)


_private("_indices", 0)
_private("_values", 1)


@op()
def _nnz(x: Any) -> int:
    """How many elements are stored, of each batch."""
    if not is_sparse(x):
        raise refused("_nnz", x)
    return int(parts(x)[-1].shape[0] if x.layout is COO else parts(x)[1].shape[-1])


def _compressed(name: str, part: int, by_row: bool) -> None:
    word = "row" if by_row else "column"

    def f(x: Any) -> Any:
        if x.layout is COO or not is_sparse(x) or (x.layout in BY_ROW) is not by_row:
            raise RuntimeError(f"{name} expected sparse {word} compressed tensor layout but got {WORDS[x.layout][0]}")
        return parts(x)[part].detach()

    op(name)(f)


_compressed("crow_indices", 0, True)
_compressed("col_indices", 1, True)
_compressed("ccol_indices", 0, False)
_compressed("row_indices", 1, False)


@op("sparse_dim", "_dimI")
def sparse_dim(x: Any) -> int:
    """How many dimensions are sparse; 0 of a strided tensor."""
    return sparse_dims(x) if is_sparse(x) else 0


@op("dense_dim", "_dimV")
def dense_dim(x: Any) -> int:
    """How many dimensions are dense; all of a strided tensor."""
    if not is_sparse(x):
        return int(x.ndim)
    if x.layout is COO:
        return int(x.ndim) - sparse_dims(x)
    p = parts(x)
    extra = p[2].ndim - p[1].ndim
    return extra - 2 if x.layout not in (BY_ROW[0],) and x.layout.name in ("sparse_bsr", "sparse_bsc") else extra


def _resized(x: Any, size: Any, sparse: int, dense: int, clear: bool) -> Any:
    size = tuple(size)
    if len(size) != sparse + dense:
        raise RuntimeError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, sparse_dim = {sparse}, "
            f"dense_dim = {dense}"
        )
    s = x._tab_storage
    at, v = s.parts
    if clear or not v.shape[0]:
        at, v = at.new_zeros((sparse, 0)), v.new_zeros((0, *size[sparse:]))
    elif (sparse, dense) != (sparse_dims(x), x.ndim - sparse_dims(x)):
        which = "sparse" if sparse != sparse_dims(x) else "dense"
        raise RuntimeError(
            f"changing the number of {which} dimensions (from {sparse_dims(x) if which == 'sparse' else dense_dim(x)} to "
            f"{sparse if which == 'sparse' else dense}) on a non-empty sparse tensor is not supported."
        )
    elif any(a < b for a, b in zip(size, x.shape)):
        which, own = "sparse", slice(0, sparse)
        if all(a >= b for a, b in zip(size[own], x.shape[own])):
            which, own = "dense", slice(sparse, None)
        raise RuntimeError(
            f"shrinking the size of {which} dimensions (from {list(x.shape[own])} to {list(size[own])}) on a non-empty sparse tensor "
            "is not supported."
        )
    elif size[sparse:] != tuple(v.shape[1:]):
        wide = v.new_zeros((v.shape[0], *size[sparse:]))
        wide[tuple([slice(n) for n in v.shape])] = v
        v = wide
    s.parts = (at, v)
    s.version += 1
    x._tab_meta = SparseMeta(size, x.dtype, x._tab_meta.device, COO)
    return x


@op()
def sparse_resize_(x: Any, size: Any, sparse_dim: int, dense_dim: int) -> Any:
    """Gives a COO tensor another size, in place. RuntimeError where elements would be lost."""
    return _resized(x, size, sparse_dim, dense_dim, False)


@op()
def sparse_resize_and_clear_(x: Any, size: Any, sparse_dim: int, dense_dim: int) -> Any:
    """Gives a COO tensor another size, and removes its elements."""
    return _resized(x, size, sparse_dim, dense_dim, True)


@op()
def resize_as_sparse_(x: Any, the_template: Any) -> Any:
    """`sparse_resize_` to the size of another sparse tensor."""
    return _resized(x, the_template.shape, sparse_dims(the_template), dense_dim(the_template), False)
