"""New sparse tensors of indices and values, or of a size: `torch.sparse_coo_tensor`, `sparse_csr_tensor` and their kin."""

from __future__ import annotations

import weakref
from math import prod
from typing import Any

from tabtorch import _lazy
from tabtorch.base import dtypes
from tabtorch.core.shapes import ints
from tabtorch.core.tensor import Tensor
from tabtorch.sparse.convert import keys
from tabtorch.sparse.tensor import BLOCKED, BSC, BSR, BY_ROW, COO, CSC, CSR, WORDS, made, refused

#: whether new tensors are checked where the call does not say
checking = [False]


def _tensor(x: Any, dtype: Any, device: Any) -> Any:
    if not isinstance(x, Tensor):
        return _lazy.torch.tensor(x, dtype=dtype, device=device)
    return x if dtype is None and device is None else x.to(device=device, dtype=dtype)


def _finished(t: Any, requires_grad: bool) -> Any:
    if requires_grad:
        if t.dtype.category < 2:
            raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
        t = t.detach()
        t._tab_requires_grad = True
    return t


def sparse_coo_tensor(
    indices: Any = None,
    values: Any = None,
    size: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
    layout: Any = None,
) -> Any:
    """A tensor of `values` (nnz, dense dimensions) at `indices` (sparse dimensions, nnz); what occurs several times counts as the
    sum. `sparse_coo_tensor(size)`: one without elements.

    size: default: as small as the indices let it be. check_invariants: whether all indices are looked at, which waits for the
    device. RuntimeError for parts that do not fit together.
    """
    if values is None:
        size = indices if size is None else size
        if size is None:
            raise TypeError("sparse_coo_tensor() received an invalid combination of arguments - got ()")
        return _finished(_empty(ints((size,), "sparse_coo_tensor"), COO, dtype, device), requires_grad)
    if device is None and isinstance(values, Tensor):
        device = values.device
    values = _tensor(values, dtype, device)
    indices = _tensor(indices, dtypes.int64, values.device).detach()
    if indices.ndim != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(indices.shape)}")
    if values.ndim == 0:
        values = values.expand(1)
    sd, nnz = indices.shape
    check = checking[0] if check_invariants is None else check_invariants
    given = size is not None
    if not given:
        if nnz:
            low, high = indices.amin(1).tolist() if sd else [], indices.amax(1).tolist() if sd else []
            _negative(low)
            size = (*[n + 1 for n in high], *values.shape[1:])
        else:
            size = (*[0] * sd, *values.shape[1:])
    size = ints((size,), "sparse_coo_tensor")
    if len(size) != sd + values.ndim - 1:
        raise RuntimeError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, sparse_dim = {sd}, dense_dim = "
            f"{values.ndim - 1}"
        )
    if values.shape[0] != nnz:
        raise RuntimeError(
            f"indices and values must have same nnz, but got nnz from indices: {nnz}, nnz from values: {values.shape[0]}"
        )
    if tuple(values.shape[1:]) != size[sd:]:
        raise RuntimeError(f"values has incorrect size, expected {[nnz, *size[sd:]]}, got {list(values.shape)}")
    if check:
        check_indices(indices, size, is_coalesced)
    t = made("SparseCooTensorWithDimsAndTensors", COO, (indices,), values, size, is_coalesced)
    return _finished(t, requires_grad)


def check_indices(indices: Any, size: Any, is_coalesced: Any) -> None:
    """RuntimeError, as PyTorch's, for indices out of range, or that are not in order where they should. Waits for the device."""
    sd, nnz = indices.shape
    if not nnz or not sd:
        return
    _negative(indices.amin(1).tolist())
    for d, top in enumerate(indices.amax(1).tolist()):
        if top >= size[d]:
            raise RuntimeError(
                f"size is inconsistent with indices: for dim {d}, size is {size[d]} but found index {top}"
            )
    if is_coalesced and not bool((keys(indices, size[:sd]).diff() > 0).all()):
        raise RuntimeError("cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor")


#: tensors of a file, which are looked at when it is loaded: until then their numbers are not there
_loaded: list[Any] = []


def validate_loaded() -> None:
    """RuntimeError for a tensor of a file whose indices are none of its size."""
    pending = [ref() for ref in _loaded]
    _loaded.clear()
    for t in pending:
        if t is not None and t.layout is COO:
            check_indices(t._tab_storage.parts[0], t.shape, t._tab_storage.coalesced)
        elif t is not None:
            c, p, v = t._tab_storage.parts
            block = tuple(v.shape[p.ndim : p.ndim + 2]) if t.layout in BLOCKED else (1, 1)
            _validate(t.layout, c, p, v, t.shape, block)


def _negative(low: list[int]) -> None:
    for d, n in enumerate(low):
        if n < 0:
            raise RuntimeError(f"found negative index {n} for dim {d}")


def _empty(size: Any, layout: Any, dtype: Any, device: Any, name: str = "zeros_sparse_compressed") -> Any:
    """A tensor without elements."""
    torch = _lazy.torch
    size = tuple(size)
    values = torch.empty((0,), dtype=dtype, device=device)
    new = lambda *s: torch.zeros(s, dtype=dtypes.int64, device=values.device)  # noqa: E731
    if layout is COO:
        return made("", COO, (new(len(size), 0),), values, size)
    if layout in BLOCKED:
        raise RuntimeError(f"{name} expected sparse compressed (non-block) tensor layout but got {WORDS[layout][0]}")
    if len(size) < 2:
        raise RuntimeError(
            f"torch.zeros: Only batched sparse compressed (non-block) tensors are supported, but got size {list(size)}"
        )
    lines = size[-2] if layout is CSR else size[-1]
    values = values.reshape(*size[:-2], 0)
    return made("", layout, (new(*size[:-2], lines + 1), new(*size[:-2], 0)), values, size)


def filled(name: str, size: Any, value: Any, dtype: Any, device: Any, layout: Any, requires_grad: bool = False) -> Any:
    """`zeros`, `empty` and others with `layout=`. Errors as PyTorch's for what is not all zeros."""
    if name.startswith(("zeros", "empty", "new_zeros", "new_empty")):
        return _finished(_empty(size, layout, dtype, device), requires_grad)
    if name in ("ones", "full"):
        raise RuntimeError("full(...) is not implemented for sparse layout")
    raise refused(name, _empty((0, 0), COO, None, None))


def _compressed(name: str, layout: Any, args: Any, kwargs: Any) -> Any:
    first, second = ("crow_indices", "col_indices") if layout in BY_ROW else ("ccol_indices", "row_indices")
    given = dict(zip((first, second, "values", "size"), args), **kwargs)
    if "compressed_indices" in given:
        given[first], given[second] = given.pop("compressed_indices"), given.pop("plain_indices")
    for needed in (first, second, "values"):
        if needed not in given:
            raise TypeError(f"{name}() received an invalid combination of arguments: '{needed}' is missing")
    return compressed_tensor(name, layout, given.pop(first), given.pop(second), **given)


def compressed_tensor(
    name: str,
    layout: Any,
    compressed: Any,
    plain: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Any:
    """A tensor of a compressed layout."""
    if device is None and isinstance(values, Tensor):
        device = values.device
    values = _tensor(values, dtype, device)
    compressed = _tensor(compressed, None, values.device).detach()
    plain = _tensor(plain, None, values.device).detach()
    wide = {compressed.dtype, plain.dtype} != {dtypes.int32}
    compressed, plain = (t.to(dtypes.int64 if wide else dtypes.int32) for t in (compressed, plain))
    nb = compressed.ndim - 1
    blocks = 2 if layout in BLOCKED else 0
    if values.ndim < nb + 1 + blocks:
        raise RuntimeError(
            f"values must have dimensionality > sum of batch and block dimensionalities (={nb} + {blocks}) but got {values.ndim}"
        )
    block = tuple(values.shape[nb + 1 : nb + 3]) if blocks else (1, 1)
    by_row = layout in BY_ROW
    if size is None:
        lines, width = compressed.shape[-1] - 1, int(plain.max()) + 1 if plain.numel() else 0
        pair = (lines, width) if by_row else (width, lines)
        size = (*compressed.shape[:-1], pair[0] * block[0], pair[1] * block[1], *values.shape[nb + 1 + blocks :])
    size = ints((size,), name)
    if checking[0] if check_invariants is None else check_invariants:
        _validate(layout, compressed, plain, values, size, block)
    t = made("SparseCompressedTensor", layout, (compressed, plain), values, size)
    return _finished(t, requires_grad)


def _validate(layout: Any, c: Any, p: Any, v: Any, size: Any, block: Any) -> None:
    """RuntimeError, as PyTorch's, for parts that are no tensor of that size."""
    by_row = layout in BY_ROW
    one, two = ("crow_indices", "col_indices") if by_row else ("ccol_indices", "row_indices")
    nb = c.ndim - 1
    rows, cols = size[nb] // block[0], size[nb + 1] // block[1]
    lines, width = (rows, cols) if by_row else (cols, rows)
    a, b = ("rows", "ncols") if by_row else ("columns", "nrows")
    if c.shape[-1] != lines + 1:
        raise RuntimeError(
            f"{one}.shape[-1] must be equal to the number of {a} + 1 (={lines + 1}), but got {c.shape[-1]}"
        )
    nnz = v.shape[nb]
    if p.shape[-1] != nnz:
        raise RuntimeError(
            f"{two}.shape[-1] must be equal to nnz (={nnz}) as defined by values.shape[{nb}], but got {p.shape[-1]}"
        )
    counts = c.diff(dim=-1)
    k = _lazy.torch.arange(lines, device=c.device).repeat(prod(c.shape[:-1]))

    def sorted_() -> Any:
        line = k.repeat_interleave(counts.reshape(-1).long(), output_size=prod(p.shape))
        whole = (line * max(width, 1) + p.reshape(-1)).reshape(p.shape)
        return (whole.diff(dim=-1) > 0).all()

    each = "nrows" if by_row else "ncols"
    what = (
        f"`{two}[..., {one}[..., i - 1]:{one}[..., i]] for all i = 1, ..., {each} are sorted and distinct along the last dimension "
        "values`"
    )
    for holds, text in (
        (lambda: (c[..., 0] == 0).all(), f"`{one}[..., 0] == 0`"),
        (lambda: (c[..., -1] == nnz).all(), f"`{one}[..., -1] == nnz`"),
        (
            lambda: ((counts >= 0) & (counts <= width)).all(),
            f"`0 <= {one}[..., 1:] - {one}[..., :-1] <= {b}`",
        ),
        (lambda: ((p >= 0) & (p < width)).all(), f"`0 <= {two} < {b}`"),
        (sorted_, what),
    ):
        if not bool(holds()):
            raise RuntimeError(f"{text} is not satisfied.")


def sparse_csr_tensor(*args: Any, **kwargs: Any) -> Any:
    """`sparse_csr_tensor(crow_indices, col_indices, values, size=None)`: the columns of row i are
    `col_indices[crow_indices[i]:crow_indices[i + 1]]`. Leading dimensions of all three are batches."""
    return _compressed("sparse_csr_tensor", CSR, args, kwargs)


def sparse_csc_tensor(*args: Any, **kwargs: Any) -> Any:
    """`sparse_csc_tensor(ccol_indices, row_indices, values, size=None)`: the same by columns."""
    return _compressed("sparse_csc_tensor", CSC, args, kwargs)


def sparse_bsr_tensor(*args: Any, **kwargs: Any) -> Any:
    """`sparse_bsr_tensor(crow_indices, col_indices, values, size=None)`: of blocks, `values` (nnz, rows, columns)."""
    return _compressed("sparse_bsr_tensor", BSR, args, kwargs)


def sparse_bsc_tensor(*args: Any, **kwargs: Any) -> Any:
    """`sparse_bsc_tensor(ccol_indices, row_indices, values, size=None)`: of blocks, by columns."""
    return _compressed("sparse_bsc_tensor", BSC, args, kwargs)


def sparse_compressed_tensor(*args: Any, layout: Any = None, **kwargs: Any) -> Any:
    """One of the four compressed layouts. RuntimeError for another `layout`."""
    if layout not in (CSR, CSC, BSR, BSC):
        got = "none" if layout is None else WORDS[layout][0]
        raise RuntimeError(f"sparse_compressed_tensor expected sparse compressed tensor layout but got {got}")
    return _compressed("sparse_compressed_tensor", layout, args, kwargs)


def rebuilt(layout: Any, data: Any) -> Any:
    """What a pickle of a sparse tensor calls. NotImplementedError for a layout that none has."""
    if layout is COO:
        indices, values, size = data[:3]
        coalesced = data[3] if len(data) > 3 else None
        t = sparse_coo_tensor(indices, values, size, check_invariants=False, is_coalesced=coalesced)
    elif layout in (CSR, CSC, BSR, BSC):
        t = compressed_tensor("", layout, data[0], data[1], data[2], data[3], check_invariants=False)
    else:
        raise NotImplementedError(f"rebuilding sparse tensor for layout {layout}")
    _loaded.append(weakref.ref(t))
    return t
