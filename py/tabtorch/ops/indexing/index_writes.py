"""Writing at the places that a vector of indices names: `index_add`, `index_copy`, `index_fill`, and `put` at flat ones.

Each has an in-place form.
"""

from __future__ import annotations

from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.views import check_inplace
from tabtorch.base import dtypes
from tabtorch.core.shapes import type_name, wrap_dim
from tabtorch.core.tensor import Tensor
from tabtorch.ops.indexing.gather import OUT_OF_RANGE, TAKE_ERROR, check_index_dtype, range_error
from tabtorch.ops.indexing.index_maps import check_range
from tabtorch.ops.indexing.scatter import finish, index_put_node
from tabtorch.ops.machinery.inplace import check_overlap, repeated
from tabtorch.ops.machinery.operand_devices import on_device_of
from tabtorch.ops.machinery.operation import into, with_out
from tabtorch.ops.machinery.out_types import EXACT
from tabtorch.ops.machinery.registry import register

# ---- along one dimension, with a vector of indices


def vector_dim(name: str, x: Tensor, dim: int, index: Tensor) -> int:
    """`dim` counted from the front; IndexError where `index` is no vector."""
    d = wrap_dim(dim, x._tab_meta.ndim)
    if index._tab_meta.ndim > 1:
        raise IndexError(
            f"{name}(): Index is supposed to be a vector, but got dim: {index._tab_meta.ndim} with type: "
            f"{type_name(index.dtype)} and size: {list(index.shape)}"
        )
    return d


def _along(d: int, index: Tensor) -> tuple[Tensor | None, ...]:
    return (*(None,) * d, index if index._tab_meta.ndim else index.reshape(1))


def _at_least_1d(t: Tensor) -> Tensor:
    return t if t._tab_meta.ndim else t.reshape(1)


def _of_source(source: Tensor) -> tuple[Tensor, ...]:
    """What PyTorch's gradient for the source has of it: its shape, for which all of it is saved."""
    return (source,) if source._tab_requires_grad else ()


def _index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, alpha: Any, in_place: bool) -> Tensor:
    if in_place:
        check_inplace(x, (source,))
    d = vector_dim("index_add_", x, dim, index)
    index, source = on_device_of(x, index), on_device_of(x, source)
    m, ms = x._tab_meta, source._tab_meta
    check_index_dtype(index, "index_add_(): Expected dtype int32/int64 for index")
    if ms.dtype is not m.dtype:
        raise RuntimeError(
            f"index_add_(): self ({type_name(m.dtype)}) and source ({type_name(ms.dtype)}) must have the same scalar type"
        )
    n = index._tab_meta.numel
    if ms.ndim and n != ms.shape[d]:
        raise RuntimeError(
            f"index_add_(): Number of indices ({n}) should be equal to source.size(dim): ({ms.shape[d]}), for dim: {d}"
        )
    if ms.shape[:d] != m.shape[:d] or ms.shape[d + 1 :] != m.shape[d + 1 :]:
        raise RuntimeError(
            "source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = "
            f"{list(m.shape)} source.shape = {list(ms.shape)}"
        )
    if in_place:
        check_overlap(x, (index, source), True)
    size = m.shape[d] if m.ndim else 1
    check_range(index, size, 0, range_error(d) if m.ndim > 1 else OUT_OF_RANGE, "index_add")
    value = source if alpha == 1 else source.detach() * alpha

    def node(t: Tensor) -> Any:
        t = t.detach()
        if m.ndim == 0:
            t = t.reshape(1)
        return index_put_node(t, _along(d, index), _at_least_1d(value.detach()), True)

    def source_grad(g: Tensor, i: Tensor) -> Tensor:
        r = g.index_select(d, i)
        r = r if alpha == 1 else r * alpha
        return r.reshape(ms.shape)

    return finish(
        x,
        node,
        in_place,
        "IndexAddBackward0",
        (source,),
        (lambda g, i: g, source_grad),
        (index if source._tab_requires_grad else None,),
        _of_source(source),
    )


def index_add(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1, out: Tensor | None = None
) -> Tensor:
    """A copy of `input` with the slices of `source` (times alpha) added to the slices along `dim` that `index` names."""
    return into(out, _index_add(input, dim, index, source, alpha, False), rule=EXACT)


def index_add_(self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """`index_add` in place."""
    return _index_add(self, dim, index, source, alpha, True)


def _index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor, in_place: bool) -> Tensor:
    if in_place:
        check_inplace(x, (source,))
    d = vector_dim("index_copy_", x, dim, index)
    index, source = on_device_of(x, index), on_device_of(x, source)
    m, ms = x._tab_meta, source._tab_meta
    check_index_dtype(
        index, "index_copy_(): Expected a long tensor for index, but got " + type_name(index.dtype), long=True
    )
    if ms.dtype is not m.dtype:
        raise RuntimeError(
            f"index_copy_(): self and source expected to have the same dtype, but got (self) {type_name(m.dtype)} and "
            f"(source) {type_name(ms.dtype)}"
        )
    n = index._tab_meta.numel
    if ms.ndim and n != ms.shape[d]:
        raise IndexError(f"index_copy_(): Number of indices ({n}) should be equal to source.size(dim) ({ms.shape[d]})")
    if in_place:
        check_overlap(x, (index, source), True)
    size = m.shape[d] if m.ndim else 1
    check_range(index, size, 0, range_error(d, IndexError, "index_copy_(): "), "index_copy")
    if m.ndim and (ms.shape[:d] != m.shape[:d] or ms.shape[d + 1 :] != m.shape[d + 1 :]):
        raise RuntimeError(
            "index_copy_(): Source/destination tensor must have same slice shapes. "
            f"Destination slice shape: {list(m.shape[:d] + m.shape[d + 1 :])} at dimension {d} and source slice shape: "
            f"{list(ms.shape[:d] + ms.shape[d + 1 :])} at dimension {d}."
        )

    def node(t: Tensor) -> Any:
        t = t.detach()
        return index_put_node(t if m.ndim else t.reshape(1), _along(d, index), _at_least_1d(source.detach()), False)

    return finish(
        x,
        node,
        in_place,
        "IndexCopyBackward0",
        (source,),
        (lambda g, i: g.index_fill(d, i, 0), lambda g, i: g.index_select(d, i).reshape(ms.shape)),
        (index,),
        _of_source(source),
    )


@with_out
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy of `input` in which the slices along `dim` that `index` names are those of `source`."""
    return _index_copy(input, dim, index, source, False)


def index_copy_(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """`index_copy` in place."""
    return _index_copy(self, dim, index, source, True)


def _index_fill(x: Tensor, dim: int, index: Tensor, value: Any, in_place: bool) -> Tensor:
    if in_place:
        check_inplace(x, (value,))
    d = vector_dim("index_fill_", x, dim, index)
    index = on_device_of(x, index)
    check_index_dtype(index, "index_fill_(): Expected dtype int64 for index.", IndexError, True)
    m = x._tab_meta
    tensor_value = value if isinstance(value, Tensor) else None
    if tensor_value is not None and tensor_value._tab_meta.ndim:
        raise RuntimeError(
            f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {tensor_value._tab_meta.ndim} dimension(s)."
        )
    if in_place:
        check_overlap(x, (index,), True, True)
    size = m.shape[d] if m.ndim else 1
    check_range(index, size, -size, range_error(d, IndexError), "index_fill")
    filled = index
    if in_place and index._tab_meta.numel and d in repeated(m):  # one place, shown again and again
        filled = _lazy.ranges.arange(size, device=m.device)
    v = (
        _lazy.creation.number(value, m.dtype)
        if tensor_value is None
        else tensor_value.detach().to(m.dtype).to(m.device)
    )

    def node(t: Tensor) -> Any:
        t = t.detach()
        return index_put_node(t if m.ndim else t.reshape(1), _along(d, filled), v, False)

    def value_grad(g: Tensor, i: Tensor) -> Tensor:  # a place that is named twice counts once
        filled = g.new_zeros((size,), dtype=dtypes.bool_).index_fill(0, i, True)
        filled = filled.reshape([size if k == d else 1 for k in range(m.ndim)])
        return g.where(filled, 0).sum()

    return finish(
        x,
        node,
        in_place,
        "IndexFillBackward0" if tensor_value is None else "IndexFillBackward1",
        (tensor_value,),
        (lambda g, i: g.index_fill(d, i, 0), value_grad),
        (index,),
        cloned=True,
    )


def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A copy of `input` in which the slices along `dim` that `index` names hold `value`."""
    return _index_fill(input, dim, index, value, False)


def index_fill_(self: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """`index_fill` in place."""
    return _index_fill(self, dim, index, value, True)


register("index_add", index_add, method=True, inplace=index_add_)
register("index_copy", index_copy, method=True, inplace=index_copy_)
register("index_fill", index_fill, method=True, inplace=index_fill_)

# ---- flat places


def _put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool, in_place: bool) -> Tensor:
    if in_place:
        check_inplace(x, (source,))
    index, source = on_device_of(x, index), on_device_of(x, source)
    m = x._tab_meta
    check_index_dtype(index, f"put_(): Expected a long tensor for index, but got {type_name(index.dtype)}", long=True)
    if source._tab_meta.dtype is not m.dtype:
        raise RuntimeError(
            f"put_(): self and source expected to have the same dtype, but got self.dtype = {type_name(m.dtype)} and "
            f"source.dtype = {type_name(source.dtype)}"
        )
    if source._tab_meta.numel != index._tab_meta.numel:
        raise IndexError(
            "put_(): Expected source and index to have the same number of elements, but got source.numel() = "
            f"{source._tab_meta.numel}, index.numel() = {index._tab_meta.numel}"
        )
    if not m.numel and index._tab_meta.numel:
        raise IndexError("put_(): Tried to put elements into an empty tensor")
    if in_place:
        check_overlap(x, (index, source), True)
    check_range(index, m.numel, -m.numel, TAKE_ERROR, "put")

    def node(t: Tensor) -> Any:
        flat = t.detach().reshape(-1)
        return index_put_node(flat, (index.reshape(-1),), source.detach().reshape(-1), accumulate)

    return finish(
        x,
        node,
        in_place,
        "PutBackward0",
        (source,),
        (
            lambda g, i: g if accumulate else g.put(i, g.new_zeros(i.shape), False),
            lambda g, i: g.take(i).reshape(source._tab_meta.shape),
        ),
        (index,),
        _of_source(source),
        cloned=True,
    )


def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of `input` with the elements of `source` at flat indices."""
    return _put(input, index, source, accumulate, False)


def put_(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """`put` in place."""
    return _put(self, index, source, accumulate, True)


register("put", put, method=True, inplace=put_)
