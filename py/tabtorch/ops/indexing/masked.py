"""Operations that a mask selects places for: `masked_fill`, `masked_select`, `masked_scatter`."""

from __future__ import annotations

from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.tape import record
from tabtorch.autograd.views import check_inplace
from tabtorch.base import dtypes
from tabtorch.base.dtypes import CXX_NAMES
from tabtorch.core.shapes import type_name
from tabtorch.core.tensor import Tensor
from tabtorch.engine.expr import where
from tabtorch.engine.graph import Map, emit, inst
from tabtorch.engine.view import broadcast_shapes, contiguous_meta
from tabtorch.ops.indexing.gather import index_prepared
from tabtorch.ops.indexing.index_maps import every_example, expanded, row_sums
from tabtorch.ops.indexing.scatter import base_node, finish
from tabtorch.ops.machinery.arguments import class_name
from tabtorch.ops.machinery.asserts import Complaint, assert_range
from tabtorch.ops.machinery.inplace import check_overlap, repeated
from tabtorch.ops.machinery.integer_bounds import Range
from tabtorch.ops.machinery.operand_devices import moved, on_device_of
from tabtorch.ops.machinery.out_types import same
from tabtorch.ops.machinery.registry import register
from tabtorch.ops.reductions.nonzero import nonzero_tuple

# the mask arrives in the compute type of the values
_FILL = Map("masked_fill", lambda x, mask, v: where(mask != 0, v, x))
_FILL_BOOL = Map("masked_fill", lambda x, mask, v: where(mask, v, x))


def _fill_node(x: Tensor, mask: Tensor, value: Any, shape: tuple[int, ...]) -> Any:
    """`x` broadcast to `shape`, with `value` (a number, or a 0-d tensor on the same device) where the mask holds."""
    m = x._tab_meta
    out = contiguous_meta(shape, m.dtype, m.device)
    op = _FILL_BOOL if m.dtype.compute == "bool" else _FILL
    ins = (expanded(m, shape), expanded(mask._tab_meta, shape))
    nodes = (x._tab_storage.node, mask._tab_storage.node)
    if isinstance(value, Tensor):
        return emit(inst(op, (*ins, expanded(value._tab_meta, shape)), out), (*nodes, value._tab_storage.node))
    return emit(inst(op, ins, out, (m.dtype.compute,)), nodes, (value,))


def fill_at(x: Tensor, mask: Tensor, value: Any, given: Tensor) -> None:
    """`x[given] = value`, where `mask` is `given` with a dimension for each of `x`."""
    _masked_fill(x, mask, value, True, given)


def _masked_fill(x: Tensor, mask: Tensor, value: Any, in_place: bool, given: Tensor | None = None) -> Tensor:
    if isinstance(value, str) or value is None:
        got = f"(Tensor, {class_name(value)})"
        bad = f"      didn't match because some of the arguments have invalid types: (Tensor, !{class_name(value)}!)\n"
        raise TypeError(
            f"masked_fill{'_' * in_place}() received an invalid combination of arguments - got {got}, but expected one of:\n"
            f" * (Tensor mask, Tensor value)\n{bad} * (Tensor mask, Number value)\n{bad}"
        )
    if in_place:
        check_inplace(x, (value,))
    m = x._tab_meta
    if not in_place and mask._tab_meta.shape != m.shape:  # whether they fit is looked at first
        broadcast_shapes(mask._tab_meta.shape, m.shape)
    if mask._tab_meta.dtype is not dtypes.bool_:
        raise RuntimeError(
            f"masked_fill_ only supports boolean masks, but got mask with dtype {CXX_NAMES[mask._tab_meta.dtype.name]}"
        )
    tensor_value = value if isinstance(value, Tensor) else None
    if tensor_value is not None and tensor_value._tab_meta.ndim:
        raise RuntimeError(
            f"masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {tensor_value._tab_meta.ndim} dimension(s)."
        )
    mask = on_device_of(x, mask)
    shapes = (m.shape, mask._tab_meta.shape) if in_place else (mask._tab_meta.shape, m.shape)
    shape = broadcast_shapes(*shapes) if mask._tab_meta.shape != m.shape else tuple(m.shape)
    if in_place and shape != m.shape:
        raise RuntimeError(f"output with shape {list(m.shape)} doesn't match the broadcast shape {list(shape)}")
    filled = mask
    if in_place:
        check_overlap(x, (mask,), repeats=True)
        again = repeated(m)
        if not set(again) <= set(repeated(expanded(mask._tab_meta, m.shape))):
            filled = mask.expand(shape).any(
                tuple(again), keepdim=True
            )  # what is shown again is filled wherever it is shown
    if tensor_value is not None:
        v: Any = tensor_value.detach()
        if v._tab_meta.device.number != m.device.number:
            v = moved(v, m.device)
        if v._tab_meta.dtype.is_complex and not m.dtype.is_complex:
            raise RuntimeError("value cannot be converted to type float without overflow")
    else:
        v = _lazy.creation.number(value, m.dtype)

    def value_grad(g: Any, mask: Any) -> Any:
        return g.masked_fill(~mask, 0).sum()

    name = "MaskedFillBackward0" if tensor_value is None else "MaskedFillBackward1"
    grads = (lambda g, mask: g.masked_fill(mask, 0), value_grad)
    if given is not None:
        wide = mask._tab_meta.shape
        grads = (
            lambda g, mask: g.masked_fill(mask.reshape(wide), 0),
            lambda g, mask: value_grad(g, mask.reshape(wide)),
        )
        return finish(
            x, lambda t: _fill_node(t, filled, v, shape), True, "IndexPutBackward0", (tensor_value,), grads, (given,)
        )
    if shape == m.shape:
        return finish(x, lambda t: _fill_node(t, filled, v, shape), in_place, name, (tensor_value,), grads, (mask,))
    r = Tensor._wrap(_fill_node(x, mask, v, shape), contiguous_meta(shape, m.dtype, m.device))
    if x._tab_requires_grad or (tensor_value is not None and tensor_value._tab_requires_grad):
        record(name, (x, tensor_value), r, grads, (mask,))
    return r


def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """A copy of `input` with `value` where `mask` (bool, broadcastable) is True."""
    return _masked_fill(input, mask, value, False)


def masked_fill_(self: Tensor, mask: Tensor, value: Any) -> Tensor:
    """`masked_fill` in place."""
    return _masked_fill(self, mask, value, True)


register("masked_fill", masked_fill, method=True, inplace=masked_fill_)


_SELECT_OUT = same("masked_select(): self and result must have the same scalar type")


@register("masked_select", method=True)
def masked_select(input: Tensor, mask: Tensor, *, out: Tensor | None = None) -> Tensor:
    """A vector of the elements where `mask` is True. Waits for the device: it has to know how many."""
    if mask._tab_meta.dtype is not dtypes.bool_:
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    mask = on_device_of(input, mask)
    shape = broadcast_shapes(mask._tab_meta.shape, input._tab_meta.shape)
    x = Tensor._view_of(input, expanded(input._tab_meta, shape))
    m = Tensor._view_of(mask, expanded(mask._tab_meta, shape))
    if not shape:
        x, m = x.reshape(1), m.reshape(1)
    places = nonzero_tuple(m)
    r = index_prepared(x, places)
    if input._tab_requires_grad:
        wide = x._tab_meta.shape

        def backward(g: Tensor, *at: Tensor) -> Tensor:
            r = g.new_zeros(wide).index_put(at, g, True)
            return r if shape else r.reshape(())

        record("MaskedSelectBackward0", (input,), r, backward, places)
    return _lazy.operation.into(out, r, input, mask, rule=_SELECT_OUT)


_TOO_FEW = Complaint(RuntimeError, "Number of elements of source < number of ones in mask")


def _masked_scatter(x: Tensor, mask: Tensor, source: Tensor, in_place: bool) -> Tensor:
    if in_place:
        check_inplace(x, (source,))
    if source._tab_meta.dtype is not x._tab_meta.dtype:
        raise RuntimeError(
            f"masked_scatter: expected self and source to have same dtypes but got{type_name(x.dtype)} and {type_name(source.dtype)}"
        )
    if mask._tab_meta.dtype is not dtypes.bool_:
        raise RuntimeError(
            "masked_scatter_ only supports boolean masks, but got mask with dtype " + mask._tab_meta.dtype.name
        )
    mask, source = on_device_of(x, mask), on_device_of(x, source)
    if in_place:
        check_overlap(x, (mask, source))
    shape = broadcast_shapes(x._tab_meta.shape, mask._tab_meta.shape)
    if shape != x._tab_meta.shape:
        if in_place:
            mask.expand(x._tab_meta.shape)  # raises
        x = x.expand(shape)
    size = source._tab_meta.numel
    wide = Tensor._view_of(mask, expanded(mask._tab_meta, shape))
    assert_range(row_sums(every_example(wide.reshape(-1))), Range(0, size), _TOO_FEW, "masked_scatter")

    def number(mask: Tensor) -> Any:
        """Which of the elements under the mask each is, (numel,)."""
        return (mask.expand(shape).reshape(-1).cumsum(0) - 1).clamp(0, max(size - 1, 0))

    def node(t: Tensor) -> Any:
        t = t.detach()
        if not size or not wide._tab_meta.numel:
            return base_node(t)
        taken = source.detach().reshape(-1).index_select(0, number(wide)).reshape(shape)
        return taken.where(wide, t).contiguous()._tab_storage.node

    def source_grad(g: Tensor, mask: Tensor) -> Tensor:
        mine: Any = number(mask).masked_fill(mask.expand(shape).reshape(-1).logical_not(), size)
        got = g.new_zeros((size + 1,)).scatter_add(0, mine, g.reshape(-1)).narrow(0, 0, size)
        return got.reshape(source._tab_meta.shape)

    return finish(
        x,
        node,
        in_place,
        "MaskedScatterBackward0",
        (source,),
        (lambda g, mask: g.masked_fill(mask, 0), source_grad),
        (mask,),
    )


def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy of `input` whose elements under `mask` are those of `source`, in order. RuntimeError for too few."""
    return _masked_scatter(input, mask, source, False)


def masked_scatter_(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """`masked_scatter` in place."""
    return _masked_scatter(self, mask, source, True)


register("masked_scatter", masked_scatter, method=True, inplace=masked_scatter_)
