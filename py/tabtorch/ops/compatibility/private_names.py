"""What PyTorch keeps below its public functions and yet shows: `torch.native_layer_norm`, `torch.segment_reduce`, ….

Names that start with an underscore are looked for here only.
"""

from __future__ import annotations

import math
from typing import Any

from tabtorch import _lazy, ops
from tabtorch.base import dtypes
from tabtorch.core.layout import suggested_format, suggested_order
from tabtorch.core.shapes import wrap_dim
from tabtorch.core.tensor import Tensor
from tabtorch.ops.indexing.index_maps import every_example, row_sums
from tabtorch.ops.machinery.asserts import Complaint, assert_range
from tabtorch.ops.machinery.integer_bounds import Range
from tabtorch.ops.machinery.operation import into
from tabtorch.ops.machinery.out_types import DATA_TYPE
from tabtorch.ops.machinery.promotion import FLOATING, check_kernel
from tabtorch.ops.machinery.registry import register
from tabtorch.ops.shaping.convert import in_order, recorded_in_order
from tabtorch.ops.shaping.joining import CAT_OUT

# ---- normalizations that also return their statistics


def _standard(x: Tensor, dims: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """((x - mean) / sqrt(var + eps), mean, 1 / sqrt(var + eps)) over `dims`, which are kept."""
    mean = x.mean(dims, keepdim=True)
    d = x - mean
    rstd = ((d * d).mean(dims, keepdim=True) + eps).rsqrt()
    return d * rstd, mean, rstd


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype.name in ("float16", "bfloat16") else x


def _affine(y: Tensor, weight: Tensor | None, bias: Tensor | None, shape: Any) -> Tensor:
    if weight is not None:
        y = y * weight.reshape(shape)
    return y if bias is None else y + bias.reshape(shape)


@register("native_layer_norm")
def native_layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """(`layer_norm`, mean, 1 / sqrt(var + eps))."""
    shape = tuple(normalized_shape)
    _lazy.norm._check_normalized_shape(input, shape, weight, bias, "*, ")
    check_kernel("LayerNormKernelImpl", input.dtype, FLOATING)
    y, mean, rstd = _standard(_wide(input.contiguous()), tuple(range(-len(shape), 0)), eps)
    kind = input.dtype if weight is None else weight.dtype
    return _affine(y, weight, bias, shape).to(input.dtype), mean.detach().to(kind), rstd.detach().to(kind)


@register("native_group_norm")
def native_group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """(`group_norm`, mean, 1 / sqrt(var + eps)), the statistics (N, group)."""
    check_kernel("GroupNormKernelImpl", input.dtype, FLOATING)
    y, mean, rstd = _standard(_wide(input).reshape(N, group, C // group * HxW), (2,), eps)
    shape = (1, C, *[1] * (input.ndim - 2))
    y = _affine(y.reshape(input.shape), weight, bias, shape).to(input.dtype)
    y = recorded_in_order(y, suggested_order(input._tab_meta))
    return y, mean.to(input.dtype).reshape(N, group), rstd.to(input.dtype).reshape(N, group)


def _batch_norm(
    x: Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    if not training:
        y = _lazy.norm.normalize_batch(x, mean, var, weight, bias, False, momentum, eps)
        return y, x.new_empty((0,)), x.new_empty((0,))
    check_kernel("batch_norm", x.dtype, FLOATING)
    wide = _wide(x)
    dims = tuple(d for d in range(x.ndim) if d != 1)
    _, m, rstd = _standard(wide.detach(), dims, eps)
    y = _lazy.norm.normalize_batch(x, mean, var, weight, bias, True, momentum, eps)
    kind = x.dtype if weight is None else weight.dtype
    return y, m.reshape(-1).to(kind), rstd.reshape(-1).to(kind)


@register("native_batch_norm")
def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    *,
    out: Any = None,
) -> Any:
    """(`batch_norm`, mean, 1 / sqrt(var + eps)); without training the two are empty."""
    r = _batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)
    return r if out is None else tuple(into(o, t, rule=DATA_TYPE) for o, t in zip(out, r, strict=True))


@register("_native_batch_norm_legit")
def _native_batch_norm_legit(input: Tensor, weight: Any, bias: Any, *rest: Any, out: Any = None) -> Any:
    """`native_batch_norm`, with or without running statistics."""
    stats = rest[:2] if len(rest) == 5 else (None, None)
    return native_batch_norm(input, weight, bias, *stats, *rest[-3:], out=out)


@register("_batch_norm_with_update")
def _batch_norm_with_update(
    input: Tensor, weight: Any, bias: Any, running_mean: Tensor, running_var: Tensor, momentum: float, eps: float
) -> Any:
    """`native_batch_norm` in training, and an empty reserve."""
    r = _batch_norm(input, weight, bias, running_mean, running_var, True, momentum, eps)
    return (*r, input.new_empty((0,), dtype=dtypes.uint8))


# ---- softmax, dropout, pooling


@register("_safe_softmax")
def _safe_softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """`softmax`, and 0 in rows of -inf only."""
    if input.dtype.category < 2:
        return ops.softmax(input, dim, dtype=dtype)
    empty = ops.eq(input, -math.inf).all(dim, keepdim=True)
    return ops.softmax(input.masked_fill(empty, 0.0), dim, dtype=dtype).masked_fill(empty, 0.0)


def _check_softmax_backward(name: str, grad_output: Tensor, dim: int) -> None:
    last = "_lastdim" if wrap_dim(dim, grad_output.ndim) == max(grad_output.ndim, 1) - 1 else ""
    check_kernel(f"{name}_backward{last}_kernel_impl", grad_output.dtype, FLOATING)


@register("_softmax_backward_data")
def _softmax_backward_data(
    grad_output: Tensor, output: Any, dim: int, input_dtype: Any, *, grad_input: Any = None
) -> Tensor:
    """The gradient of softmax, of its output."""
    _check_softmax_backward("softmax", grad_output, dim)
    output = _wide(output)
    y = output * grad_output
    return into(grad_input, in_order((y - output * y.sum(dim, keepdim=True)).to(input_dtype)))


@register("_log_softmax_backward_data")
def _log_softmax_backward_data(
    grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any, *, out: Any = None
) -> Tensor:
    """The gradient of log_softmax, of its output."""
    _check_softmax_backward("log_softmax", grad_output, dim)
    return into(out, in_order((grad_output - output.exp() * grad_output.sum(dim, keepdim=True)).to(input_dtype)))


def _converted(name: str) -> None:
    @register("_" + name)
    def f(input: Tensor, dim: int, half_to_float: bool, *, out: Any = None) -> Tensor:
        """Of `dim`; `half_to_float` gives float32 for float16."""
        return into(out, getattr(ops, name)(input, dim, dtype=dtypes.float32 if half_to_float else None))


_converted("softmax")
_converted("log_softmax")


@register("native_dropout_backward")
def native_dropout_backward(grad_output: Any, mask: Any, scale: float) -> Tensor:
    """grad · mask · scale."""
    return grad_output * (mask.to(grad_output.dtype) * scale)


@register("max_pool2d_with_indices_backward")
def max_pool2d_with_indices_backward(
    grad_output: Tensor,
    self: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    """Gradients put where the maxima were."""
    check_kernel("max_pool2d_backward", grad_output.dtype, FLOATING)
    lead = self.shape[:-2]
    r = grad_output.new_zeros((*lead, self.shape[-2] * self.shape[-1]))
    r = r.scatter_add(-1, indices.flatten(-2), grad_output.flatten(-2)).reshape(self.shape)
    r = r.contiguous(memory_format=suggested_format(self._tab_meta))
    if self._tab_requires_grad:  # whose gradient is 0, and not missing
        r = ops.where(ops.zeros((), dtype=dtypes.bool_, device=r.device), self, r)
    return r


@register("conv_tbc")
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """1-d convolution of (time, batch, channels): `weight` (width, in, out)."""
    if input.ndim != 3:
        raise RuntimeError("Input must have 3 dims: time, batch, in_channel")
    if weight.ndim != 3:
        raise RuntimeError("Weight tensor must have 3 dims: kernel_width, in_channels, out_channels.")
    if bias.ndim != 1:
        raise RuntimeError("Bias must be 1-D")
    return ops.conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad).permute(2, 0, 1)


def _resized(mode: str) -> None:
    @register(f"_upsample_{mode}2d_aa")
    def f(
        input: Tensor,
        output_size: Any,
        align_corners: bool,
        scales_h: Any = None,
        scales_w: Any = None,
        *,
        scale_factors: Any = None,
        out: Any = None,
    ) -> Tensor:
        """`interpolate` with antialias."""
        if isinstance(scales_h, (tuple, list)):
            scale_factors, scales_h = scales_h, None
        if output_size is None:
            return _lazy.vision.interpolate(input, None, scale_factors, mode, align_corners, antialias=True)
        return into(out, _lazy.vision.resize_smoothly(input, output_size, (scales_h, scales_w), mode, align_corners))


_resized("bilinear")
_resized("bicubic")

# ---- indices


def _clamped(self: Tensor, indices: Any) -> list[Any]:
    return [i if i is None else i.clamp(-self.shape[d], self.shape[d] - 1) for d, i in enumerate(indices)]


@register("_unsafe_masked_index")
def _unsafe_masked_index(self: Tensor, mask: Tensor, indices: Any, fill: Any) -> Tensor:
    """self[indices] where `mask`, else `fill`; an index out of range reads the nearest element."""
    at = tuple(slice(None) if i is None else i for i in _clamped(self, indices))
    return self[at].masked_fill(mask.logical_not(), fill)


@register("_unsafe_masked_index_put_accumulate")
def _unsafe_masked_index_put_accumulate(self: Tensor, mask: Tensor, indices: Any, values: Tensor) -> Tensor:
    """`self` with `values` added at `indices` where `mask`."""
    return ops.index_put(self, _clamped(self, indices), values.masked_fill(mask.logical_not(), 0), accumulate=True)


@register("_chunk_cat")
def _chunk_cat(tensors: Any, dim: int, num_chunks: int, *, out: Any = None) -> Tensor:
    """Each tensor in `num_chunks` rows from dimension `dim` on (the last filled up with 0), one beside the other."""
    if not tensors:
        raise RuntimeError("_chunk_cat expects a non-empty input tensor list")
    if num_chunks < 1:
        raise RuntimeError("_chunk_cat expects positive num_chunks")
    first = tensors[0]
    at = dim
    if dim < 0:
        if any(t.ndim != first.ndim for t in tensors):
            raise RuntimeError("_chunk_cat expects non-negative dim when input tensors have different ndims")
        at = wrap_dim(dim, first.ndim)
    rows = []
    for t in tensors:
        if t.numel() == 0:
            raise RuntimeError("_chunk_cat expects non-empty tensor")
        if t.dtype is not first.dtype:
            raise RuntimeError("_chunk_cat expects all input tensors with same dtype")
        if t.ndim <= at:
            raise RuntimeError("_chunk_cat expects dim < ndim for all input tensors")
        if t.shape[:at] != first.shape[:at]:
            raise RuntimeError("_chunk_cat expects same sizes of 0,...,dim-1 dimensions for all tensors")
        n = t.shape[at]
        more = -n % num_chunks
        if more:
            t = ops.cat([t, t.new_zeros((*t.shape[:at], more, *t.shape[at + 1 :]))], at)
        rows.append(t.reshape(*t.shape[:at], num_chunks, -1))
    return into(out, ops.cat(rows, -1), rule=CAT_OUT)


# ---- segments

_NEGATIVE_LENGTH = Complaint(RuntimeError, "lengths contains negative value!")
_OTHER_LENGTH = Complaint(
    RuntimeError,
    "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when !unsafe.",
)
_NEGATIVE_SEGMENT = Complaint(RuntimeError, "Expected segment_length >= 0 to be true, but got false.")
_REDUCTIONS = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}


def _segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Tensor:
    """Reductions ("sum", "mean", "max", "min", "prod") of segments along `axis`, which `lengths` or `offsets` (one more) bound.

    `lengths` has the dimensions of `data` before `axis`, and a last one of segments. `initial`: what each reduction starts
    with, and what an empty segment gives. `unsafe`: the lengths are not looked at.
    """
    if reduce not in _REDUCTIONS:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    if data.numel() == 0 and data.ndim == 0:
        raise RuntimeError("segment_reduce(): Expected data to have at least one dimension")
    axis = wrap_dim(axis, data.ndim)
    if (lengths is None) == (offsets is None):
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    bounds: Any = lengths if offsets is None else offsets
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet.")
    if bounds.ndim != axis + 1:
        raise RuntimeError(f"Expected {'offsets' if lengths is None else 'lengths'}.dim() to be equal to axis + 1")
    check_kernel("_segment_reduce_cpu", data.dtype, FLOATING)
    n = data.shape[axis]
    if lengths is not None:
        size, ends = lengths, lengths.cumsum(-1)
        if not unsafe:
            seen = every_example(lengths)
            assert_range(seen, Range(0, 2**63 - 1), _NEGATIVE_LENGTH, "segment_reduce")
            assert_range(row_sums(seen), Range(n, n), _OTHER_LENGTH, "segment_reduce")
    else:
        size, ends = bounds.diff(dim=-1), bounds.narrow(-1, 1, bounds.shape[-1] - 1)
    if lengths is None or unsafe:
        assert_range(every_example(size), Range(0, 2**63 - 1), _NEGATIVE_SEGMENT, "segment_reduce")
    count = size.shape[-1]
    lead = data.shape[:axis]
    rest = [1] * (data.ndim - axis - 1)
    place = ops.arange(n, dtype=ends.dtype, device=data.device).expand(*lead, n)
    # what lies in no segment goes to one past the last
    segment: Any = ops.searchsorted(ends.contiguous(), place.contiguous(), right=True)
    if lengths is None:
        segment = ops.where(place < bounds.narrow(-1, 0, 1), count, segment)
    segment = segment.reshape(*lead, n, *rest).expand(data.shape)
    start = _REDUCTIONS[reduce] if initial is None else initial
    how = {"mean": "sum", "max": "amax", "min": "amin"}.get(reduce, reduce)
    wide = _wide(data)
    r: Any = wide.new_full((*lead, count + 1, *data.shape[axis + 1 :]), start)
    if how == "sum":
        r = r.scatter_add(axis, segment, wide)
    else:
        r = r.scatter_reduce(axis, segment, wide, how, include_self=True)
    r = r.narrow(axis, 0, count)
    if reduce == "mean":
        empty = size.reshape(*lead, count, *rest) == 0
        r = r / ops.where(empty, 1, size.reshape(*lead, count, *rest))
        if initial is None:
            r = ops.where(empty, math.nan, r)
    return r.to(data.dtype).contiguous()


register("segment_reduce", _segment_reduce)
register("_segment_reduce", _segment_reduce)


@register("chalf", method=True, torch=False)
def chalf(self: Tensor, *, memory_format: Any = None) -> Tensor:
    """TypeError: there is no complex32."""
    raise TypeError("torch.complex32 is not a type of tabtorch (no device computes in it): use torch.complex64")


# ---- products of groups


def _check_grouped(a: Tensor, b: Tensor, offs: Tensor | None, bias: Any, out_dtype: Any) -> None:
    for name, t in (("mat_a", a), ("mat_b", b)):
        if t.ndim not in (2, 3):
            raise RuntimeError(f"{name} has to be 2 or 3d")
    if a.dtype is not b.dtype:
        raise RuntimeError(f"Expected mat_a and mat_b to have the same dtype, got {a.dtype} and {b.dtype}")
    if a.shape[-1] != b.shape[-2]:
        raise RuntimeError("contraction dimension of mat_a and mat_b must match")
    if (offs is not None) != (a.ndim == 2 or b.ndim == 2):
        raise RuntimeError("Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d")
    if offs is not None:
        if offs.ndim != 1:
            raise RuntimeError("offs has to be 1D")
        if offs.dtype is not dtypes.int32:
            raise RuntimeError("Offsets have to be int32")
    elif a.shape[0] != b.shape[0]:
        raise RuntimeError("batched dimension has to match")
    if bias is not None:
        raise RuntimeError("Bias not supported yet")
    if out_dtype is not None and out_dtype is not a.dtype:
        raise RuntimeError("Grouped gemm output dtype must match `mat_a` dtype")


@register("_grouped_mm")
def _grouped_mm(self: Any, mat2: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Tensor:
    """Products of groups, of which `offs` (int32) says where each ends in the dimension that the 2-dimensional operands share.

    (total, K) and (G, K, N): (total, N), rows in no group 0. (G, M, K) and (K, total): (M, total). (M, total) and (total, N):
    (G, M, N). Both of 3 dimensions: `bmm`. The offsets are read, as `item()` reads.
    """
    _check_grouped(self, mat2, offs, bias, out_dtype)
    if offs is None:
        return ops.bmm(self, mat2)
    ends = [int(n) for n in offs.tolist()]
    for t in (self, mat2):
        if t.ndim == 3 and t.shape[0] != len(ends):
            raise RuntimeError("matrix batch sizes have to match")
    groups = list(zip([0, *ends[:-1]], ends, strict=True))
    if self.ndim == 2 and mat2.ndim == 2:
        return ops.stack([self[:, a:b] @ mat2[a:b] for a, b in groups])
    rows = self.ndim == 2  # which dimension of the result has the groups
    total = self.shape[0] if rows else mat2.shape[1]
    parts = [self[a:b] @ mat2[g] if rows else self[g] @ mat2[:, a:b] for g, (a, b) in enumerate(groups) if b > a]
    if not ends or ends[-1] < total:
        left = total - (ends[-1] if ends else 0)
        parts.append(self.new_zeros((left, mat2.shape[-1]) if rows else (self.shape[-2], left)))
    return ops.cat(parts, 0 if rows else 1)
