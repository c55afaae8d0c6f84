"""Views, copies and sizes: what ATen names that a Python user has no name for, and the gradients of views and of indexing."""

from __future__ import annotations

from typing import Any

from tabtorch import ops
from tabtorch.ops.aten.table import ADAPTERS, Tensor, aten, grad_of
from tabtorch.ops.indexing.scatter import put_at


@aten("_unsafe_view")
def _unsafe_view(self: Tensor, size: Any) -> Tensor:
    return self.view(tuple(size))


@aten("_reshape_alias")
def _reshape_alias(self: Tensor, size: Any, stride: Any) -> Tensor:
    return self.as_strided(tuple(size), tuple(stride), self.storage_offset())


@aten("_reshape_copy", "_reshape_alias_copy")
def _reshape_copy(self: Tensor, size: Any, stride: Any = None) -> Tensor:
    return self.reshape(tuple(size)).clone()


@aten("_conj")
def _conj(self: Tensor) -> Tensor:
    return self.conj()


@aten("_conj_copy")
def _conj_copy(self: Tensor) -> Tensor:
    return self.conj().resolve_conj().clone()


@aten("_neg_view_copy")
def _neg_view_copy(self: Tensor) -> Tensor:
    return -self


@aten("lift", "lift_fresh")
def _lift(self: Tensor) -> Tensor:
    """Itself: there is no functionalization that it would have to be lifted to."""
    return self


@aten("lift_fresh_copy", "_lazy_clone", "_fw_primal_copy")
def _lift_fresh_copy(self: Tensor, *args: Any) -> Tensor:
    return self.clone()


@aten("copy")
def _copy(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """The values of `src`, broadcast, in the type, place and layout of `self`."""
    return ops.empty_like(self).copy_(src, non_blocking)


def _to(self: Tensor, non_blocking: bool, copy: bool, memory_format: Any, **kw: Any) -> Tensor:
    kw = {k: v for k, v in kw.items() if v is not None}
    form = {} if memory_format is None else {"memory_format": memory_format}
    return self.to(**kw, non_blocking=non_blocking, copy=copy, **form)


@aten("to.dtype")
def _to_dtype(
    self: Tensor, dtype: Any, non_blocking: bool = False, copy: bool = False, memory_format: Any = None
) -> Tensor:
    return _to(self, non_blocking, copy, memory_format, dtype=dtype)


@aten("to.device")
def _to_device(
    self: Tensor, device: Any, dtype: Any, non_blocking: bool = False, copy: bool = False, memory_format: Any = None
) -> Tensor:
    return _to(self, non_blocking, copy, memory_format, device=device, dtype=dtype)


@aten("to.other")
def _to_other(
    self: Tensor, other: Tensor, non_blocking: bool = False, copy: bool = False, memory_format: Any = None
) -> Tensor:
    return _to(self, non_blocking, copy, memory_format, device=other.device, dtype=other.dtype)


@aten("to.dtype_layout")
def _to_dtype_layout(
    self: Tensor,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = None,
) -> Tensor:
    return _to(self, non_blocking, copy, memory_format, dtype=dtype, device=device)


@aten("numpy_T")
def _numpy_t(self: Tensor) -> Tensor:
    return self.permute(tuple(reversed(range(self.ndim))))


@aten("matrix_H")
def _matrix_h(self: Tensor) -> Tensor:
    return self.mH


@aten("_local_scalar_dense")
def _local_scalar_dense(self: Tensor) -> Any:
    return self.item()


@aten("_efficientzerotensor")
def _efficientzerotensor(size: Any, **kw: Any) -> Tensor:
    return ops.zeros(tuple(size), **kw)


@aten("_new_zeros_with_same_feature_meta")
def _new_zeros_with_same_feature_meta(self: Tensor, other: Tensor, *, self_num_batch_dims: int = 0) -> Tensor:
    return other.new_zeros((*self.shape[:self_num_batch_dims], *other.shape))


@aten("_stack")
def _stack(tensors: Any, dim: int = 0) -> Tensor:
    return ops.stack(list(tensors), dim)


@aten("zero")
def _zero(self: Tensor) -> Tensor:
    return ops.zeros_like(self)


@aten("_resize_output_")
def _resize_output_(self: Tensor, size: Any, device: Any) -> Tensor:
    return self.resize_(tuple(size))


@aten("resize")
def _resize(self: Tensor, size: Any, *, memory_format: Any = None) -> Tensor:
    kw = {} if memory_format is None else {"memory_format": memory_format}
    return self.clone().resize_(tuple(size), **kw)


@aten("resize_as")
def _resize_as(self: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
    return _resize(self, the_template.shape, memory_format=memory_format)


@aten("set.source_Tensor")
def _set(self: Tensor, source: Tensor) -> Tensor:
    return source.view_as(source)


@aten("is_same_size")
def _is_same_size(self: Tensor, other: Tensor) -> bool:
    return self.shape == other.shape


@aten("_is_all_true")
def _is_all_true(self: Tensor) -> Tensor:
    return self.all()


@aten("_is_any_true")
def _is_any_true(self: Tensor) -> Tensor:
    return self.any()


@aten("_has_same_storage_numel")
def _has_same_storage_numel(self: Tensor, other: Tensor) -> bool:
    a, b = self.untyped_storage(), other.untyped_storage()
    return bool(a.nbytes() // self.element_size() == b.nbytes() // other.element_size())


@aten("_logcumsumexp")
def _logcumsumexp(self: Tensor, dim: int) -> Tensor:
    return self.logcumsumexp(dim)


@aten("_aminmax", "_aminmax.dim")
def _aminmax(self: Tensor, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    low, high = ops.aminmax(self, dim=dim, keepdim=keepdim)
    return low, high


@aten("_dim_arange")
def _dim_arange(like: Tensor, dim: int) -> Tensor:
    return ops.arange(like.shape[dim], device=like.device)


@aten("pad_sequence")
def _pad_sequence(
    sequences: Any, batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    longest = max(len(t) for t in sequences)
    side = 2 * (sequences[0].ndim - 1)
    rows = []
    for t in sequences:
        gap = longest - len(t)
        pad = [0] * side + ([0, gap] if padding_side == "right" else [gap, 0])
        rows.append(ops.constant_pad_nd(t, pad, padding_value))
    return ops.stack(rows, 0 if batch_first else 1)


@aten("__ilshift__")
def _ilshift(self: Tensor, other: Any) -> Tensor:
    return self.bitwise_left_shift_(other)


@aten("__irshift__")
def _irshift(self: Tensor, other: Any) -> Tensor:
    return self.bitwise_right_shift_(other)


@aten("__iand__")
def _iand(self: Tensor, other: Any) -> Tensor:
    return self.bitwise_and_(other)


@aten("__ior__")
def _ior(self: Tensor, other: Any) -> Tensor:
    return self.bitwise_or_(other)


@aten("__ixor__")
def _ixor(self: Tensor, other: Any) -> Tensor:
    return self.bitwise_xor_(other)


# ---- sizes: numbers that Python has


@aten("sym_size.int")
def _sym_size(self: Tensor, dim: int) -> int:
    return self.shape[dim]


@aten("sym_size")
def _sym_sizes(self: Tensor) -> tuple[int, ...]:
    return tuple(self.shape)


@aten("sym_stride.int")
def _sym_stride(self: Tensor, dim: int) -> int:
    return self.stride()[dim]


@aten("sym_stride")
def _sym_strides(self: Tensor) -> tuple[int, ...]:
    return self.stride()


@aten("sym_numel")
def _sym_numel(self: Tensor) -> int:
    return self.numel()


@aten("sym_storage_offset")
def _sym_storage_offset(self: Tensor) -> int:
    return self.storage_offset()


@aten("sym_is_contiguous")
def _sym_is_contiguous(self: Tensor, memory_format: Any = None) -> bool:
    return self.is_contiguous() if memory_format is None else self.is_contiguous(memory_format=memory_format)


# ---- gradients of views


@aten("select_backward")
def _select_backward(grad_output: Tensor, input_sizes: Any, dim: int, index: int) -> Tensor:
    return ops.select_scatter(grad_output.new_zeros(tuple(input_sizes)), grad_output, dim, index)


@aten("slice_backward")
def _slice_backward(grad_output: Tensor, input_sizes: Any, dim: int, start: int, end: int, step: int) -> Tensor:
    whole = grad_output.new_zeros(tuple(input_sizes))
    return ops.slice_scatter(whole, grad_output, dim, start, end, step)


@aten("diagonal_backward")
def _diagonal_backward(grad_output: Tensor, input_sizes: Any, offset: int, dim1: int, dim2: int) -> Tensor:
    whole = grad_output.new_zeros(tuple(input_sizes))
    return ops.diagonal_scatter(whole, grad_output, offset, dim1, dim2)


@aten("unfold_backward")
def _unfold_backward(grad_in: Tensor, input_sizes: Any, dim: int, size: int, step: int) -> Tensor:
    return grad_of(lambda x: x.unfold(dim, size, step), grad_in.new_zeros(tuple(input_sizes)), grad_in)


@aten("masked_scatter_backward")
def _masked_scatter_backward(grad_output: Tensor, mask: Tensor, sizes: Any) -> Tensor:
    source = grad_output.new_zeros(tuple(sizes))
    return grad_of(lambda x: ops.masked_scatter(grad_output, mask, x), source, grad_output)


@aten("value_selecting_reduction_backward")
def _value_selecting_backward(grad: Tensor, dim: int, indices: Tensor, sizes: Any, keepdim: bool) -> Tensor:
    if not keepdim and sizes:
        grad, indices = grad.unsqueeze(dim), indices.unsqueeze(dim)
    return grad.new_zeros(tuple(sizes)).scatter(dim, indices, grad)


# ---- indices


@aten("_unsafe_index")
def _unsafe_index(self: Tensor, indices: Any) -> Tensor:
    return self[tuple(slice(None) if i is None else i for i in indices)]


@aten("index_put", "_unsafe_index_put")
def _index_put(self: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    return _index_put_(self.clone(), indices, values, accumulate)


@aten("index_put_")
def _index_put_(self: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """`indices` may have None for a dimension that is taken whole."""
    return put_at(self, tuple(indices), values, accumulate, True)


@aten("_index_put_impl_")
def _index_put_impl_(
    self: Tensor, indices: Any, values: Tensor, accumulate: bool = False, unsafe: bool = False
) -> Tensor:
    return _index_put_(self, indices, values, accumulate)


@aten("_index_put_impl")
def _index_put_impl(
    self: Tensor, indices: Any, values: Tensor, accumulate: bool = False, unsafe: bool = False
) -> Tensor:
    return _index_put(self, indices, values, accumulate)


# ---- assertions of graphs


def _assert_number(self: Any, assert_msg: str) -> None:
    if not self:
        raise RuntimeError(assert_msg)


def _constrain(size: Any, *, min: int | None = None, max: int | None = None) -> None:
    if (min is not None and size < min) or (max is not None and size > max):
        raise RuntimeError(f"Invalid value range for {size} between [{min}, {max}].")


def _metadata(
    a: Tensor,
    size: Any = None,
    stride: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    layout: Any = None,
) -> None:
    for name, want, have in (("sizes", size, a.shape), ("strides", stride, a.stride())):
        if want is not None and tuple(want) != tuple(have):
            raise RuntimeError(f"Tensor {name} mismatch! Expected: {list(want)}, Got: {list(have)}")
    if dtype is not None and a.dtype != dtype:
        raise RuntimeError(f"Tensor dtype mismatch! Expected: {dtype}, Got: {a.dtype}")


ADAPTERS["_assert_scalar"] = _assert_number
ADAPTERS["_assert_tensor_metadata"] = _metadata
ADAPTERS["sym_constrain_range"] = ADAPTERS["sym_constrain_range_for_size"] = _constrain
