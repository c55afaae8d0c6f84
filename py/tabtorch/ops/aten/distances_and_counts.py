"""Distances between rows, distinct values, histograms and segments, as ATen splits them."""

from __future__ import annotations

from typing import Any

from tabtorch import ops
from tabtorch.base import dtypes
from tabtorch.nn import functional as F
from tabtorch.ops.aten.table import Tensor, aten, grad_of, grads_of


@aten("cdist", "_cdist_forward")
def _cdist_forward(x1: Tensor, x2: Tensor, p: float = 2, compute_mode: int | None = None) -> Tensor:
    """compute_mode: when PyTorch takes a product for p = 2; here the distances are always of differences."""
    return ops.cdist(x1, x2, p)


@aten("_cdist_backward")
def _cdist_backward(grad: Tensor, x1: Tensor, x2: Tensor, p: float, cdist: Tensor) -> Tensor:
    """The gradient of x1."""
    (found,) = grads_of(lambda x: ops.cdist(x, x2, p), (x1,), grad)
    return x1.new_zeros(x1.shape) if found is None else found


@aten("_euclidean_dist")
def _euclidean_dist(x1: Tensor, x2: Tensor) -> Tensor:
    return ops.cdist(x1, x2, 2.0)


@aten("_pdist_forward")
def _pdist_forward(self: Tensor, p: float = 2) -> Tensor:
    return F.pdist(self, p)


@aten("_pdist_backward")
def _pdist_backward(grad: Tensor, self: Tensor, p: float, pdist: Tensor) -> Tensor:
    return grad_of(lambda x: _pdist_forward(x, p), self, grad)


# ---- distinct values: every result is there, those that were not asked for are empty


def _filled(found: Any, inverse: bool, counts: bool, like: Tensor) -> tuple[Tensor, ...]:
    rest = list(found[1:]) if isinstance(found, tuple) else []
    values = found[0] if isinstance(found, tuple) else found
    none = like.new_empty((0,), dtype=dtypes.int64)
    return values, rest.pop(0) if inverse else none, rest.pop(0) if counts else none


@aten("_unique2")
def _unique2(
    self: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, ...]:
    return _filled(ops.unique(self, sorted, return_inverse, return_counts), return_inverse, return_counts, self)


@aten("_unique")
def _unique(self: Tensor, sorted: bool = True, return_inverse: bool = False) -> tuple[Tensor, ...]:
    return _unique2(self, sorted, return_inverse)[:2]


@aten("unique_dim")
def _unique_dim(
    self: Tensor, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, ...]:
    """All three are computed, whatever was asked for, as in PyTorch."""
    return _filled(ops.unique(self, sorted, True, True, dim), True, True, self)


@aten("unique_consecutive")
def _unique_consecutive(
    self: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, ...]:
    if dim is not None:
        return _unique_dim_consecutive(self, dim)
    found = ops.unique_consecutive(self, return_inverse, return_counts)
    return _filled(found, return_inverse, return_counts, self)


@aten("unique_dim_consecutive")
def _unique_dim_consecutive(
    self: Tensor, dim: int, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, ...]:
    return _filled(ops.unique_consecutive(self, True, True, dim), True, True, self)


# ---- segments


@aten("_segment_reduce_backward")
def _segment_reduce_backward(
    grad: Tensor,
    output: Tensor,
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    initial: Any = None,
) -> Tensor:
    bounds = {"lengths": lengths} if offsets is None else {"offsets": offsets}
    return grad_of(
        lambda x: ops.segment_reduce(x, reduce, **bounds, axis=axis, unsafe=True, initial=initial), data, grad
    )


# ---- histograms


@aten("histc")
def _histc(self: Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> Tensor:
    """Integers are counted, too, as PyTorch's kernels for GPUs do; its CPU's has none for them."""
    if self.dtype.is_floating_point or self.dtype is dtypes.bool_:
        return ops.histc(self, bins, min, max)
    if bins <= 0:
        raise RuntimeError(f"bins must be > 0, but got {bins} for dimension 0")
    x, low, high = self.reshape(-1).to(dtypes.int64), int(min), int(max)
    if low > high:
        raise RuntimeError("torch.histc: max must be larger than min")
    if low == high and x.numel():
        least, most = x.aminmax()
        one = (least == most).to(dtypes.int64)
        low, high = least - one, most + one
    elif low == high:
        low, high = low - 1, high + 1
    inside = (x >= low) & (x <= high)
    at = ops.where(inside, (x - low) * bins // (high - low), 0).clamp(max=bins - 1)
    return self.new_zeros((bins,)).scatter_add(0, at, inside.to(self.dtype))


@aten("_histogramdd_bin_edges")
def _histogramdd_bin_edges(
    self: Tensor, bins: Any, *, range: Any = None, weight: Tensor | None = None, density: bool = False
) -> tuple[Tensor, ...]:
    return tuple(ops.histogramdd(self, list(bins), range=range, weight=weight, density=density)[1])


@aten("_histogramdd_from_bin_cts")
def _histogramdd_from_bin_cts(
    self: Tensor, bins: Any, *, range: Any = None, weight: Tensor | None = None, density: bool = False
) -> Tensor:
    return ops.histogramdd(self, list(bins), range=range, weight=weight, density=density)[0]


@aten("_histogramdd_from_bin_tensors")
def _histogramdd_from_bin_tensors(
    self: Tensor, bins: Any, *, weight: Tensor | None = None, density: bool = False
) -> Tensor:
    return ops.histogramdd(self, list(bins), weight=weight, density=density)[0]
