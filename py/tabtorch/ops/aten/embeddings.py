"""Rows of a table and bags of them: the forward passes that say what is in which bag, and gradients that are told it."""

from __future__ import annotations

from tabtorch import ops
from tabtorch.base import dtypes
from tabtorch.nn import functional as F
from tabtorch.ops.aten.table import Tensor, aten, grad_of
from tabtorch.ops.functional import bags

_MODES = ("sum", "mean", "max")


@aten("embedding_dense_backward")
def _embedding_dense_backward(
    grad_output: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Tensor:
    """The gradient of a table of `num_weights` rows; that of row `padding_idx`, where it is not negative, is 0."""
    weight = grad_output.new_zeros((num_weights, grad_output.shape[-1]))  # whose values its gradient does not read
    pad = padding_idx if padding_idx >= 0 else None
    return grad_of(
        lambda w: F.embedding(indices, w, pad, scale_grad_by_freq=scale_grad_by_freq),
        weight,
        grad_output,
    )


@aten("embedding_backward")
def _embedding_backward(
    grad: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool, sparse: bool
) -> Tensor:
    return _embedding_dense_backward(grad, indices, num_weights, padding_idx, scale_grad_by_freq)


@aten("embedding_renorm_")
def _embedding_renorm_(self: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Rows that `indices` name, in place, to a norm of at most `max_norm`."""
    bags.renorm_rows(self, indices, max_norm, norm_type)
    return self


@aten("embedding_renorm")
def _embedding_renorm(self: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    return _embedding_renorm_(self.clone(), indices, max_norm, norm_type)


# ---- bags


def _bag_of(offsets: Tensor, n: int, bags: int) -> Tensor:
    """The bag of each of n indices (n,)."""
    place = ops.arange(n, device=offsets.device, dtype=offsets.dtype)
    return (ops.searchsorted(offsets, place, right=True) - 1).clamp(0, max(bags - 1, 0))


@aten("_embedding_bag", "_embedding_bag_forward_only")
def _embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(bags (B, D), the bag of each index (N,), how many each bag has (B,), and for maxima where they are (B, D), else empty)."""
    pad = padding_idx if padding_idx >= 0 else None
    out = bags.embedding_bag(
        indices,
        weight,
        offsets,
        mode=_MODES[mode],
        per_sample_weights=per_sample_weights,
        include_last_offset=include_last_offset,
        padding_idx=pad,
    )
    count, width = out.shape
    bag = _bag_of(offsets, indices.shape[0], count)
    kept = ops.ones_like(indices) if pad is None else (indices != pad).to(indices.dtype)
    size = indices.new_zeros((count,)).index_add(0, bag, kept)
    if mode != 2:
        return out, bag, size, indices.new_empty((0,))
    # the first index of a bag whose row has the maximum
    hit = (weight[indices] == out[bag]) & kept.bool().unsqueeze(1)
    place = ops.arange(indices.shape[0], device=indices.device).unsqueeze(1)
    place = ops.where(hit, place, indices.shape[0])
    first = place.new_full((count, width), indices.shape[0]).scatter_reduce(
        0, bag.to(dtypes.int64).unsqueeze(1).expand(place.shape), place, "amin"
    )
    rows = ops.cat([indices, indices.new_full((1,), 0)])[first]
    return out, bag, size, rows


@aten("_embedding_bag_backward")
def _embedding_bag_backward(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Tensor:
    """The gradient of the table, dense."""
    if offset2bag.shape != indices.shape:
        offset2bag = _bag_of(offsets, indices.shape[0], grad.shape[0])
    rest = (num_weights, scale_grad_by_freq, mode, per_sample_weights, padding_idx)
    return _embedding_bag_dense_backward(grad, indices, offset2bag, bag_size, maximum_indices, *rest)


@aten("_embedding_bag_dense_backward")
def _embedding_bag_dense_backward(
    grad: Tensor,
    indices: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Tensor:
    weight = grad.new_zeros((num_weights, grad.shape[1]))
    if mode == 2:
        g = ops.where((bag_size > 0).unsqueeze(1), grad, 0)
        return weight.scatter_add(0, maximum_indices.to(dtypes.int64), g)
    if mode == 1:
        grad = grad / bag_size.clamp(min=1).unsqueeze(1)
    rows = grad[offset2bag]
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    if scale_grad_by_freq:
        rows = rows * bags.per_use(weight, indices).unsqueeze(1)
    if padding_idx >= 0:
        rows = ops.where((indices != padding_idx).unsqueeze(1), rows, 0)
    return weight.index_add(0, indices, rows)


@aten("_embedding_bag_per_sample_weights_backward")
def _per_sample_weights_backward(
    grad: Tensor,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    mode: int,
    padding_idx: int = -1,
) -> Tensor:
    if offset2bag.shape != indices.shape:
        offset2bag = _bag_of(offsets, indices.shape[0], grad.shape[0])
    found: Tensor = (grad[offset2bag] * weight[indices]).sum(1)
    return found if padding_idx < 0 else ops.where(indices != padding_idx, found, 0)


@aten("embedding_bag", "embedding_bag.padding_idx")
def _bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    pad = -1 if padding_idx is None else padding_idx % weight.shape[0]
    rest = (scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, pad)
    return _embedding_bag(weight, indices, offsets, *rest)
