"""Operators that look up, write at places, sort and search."""

from __future__ import annotations

import math
from typing import Any

import tabtorch as torch
from tabtorch.onnx.registry import Float, Int, Tensor, operator

_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def _wrapped(indices: Tensor, n: int) -> Tensor:
    """Indices counted from the front."""
    i = indices.long()
    return torch.where(i < 0, i + n, i)


@operator("Gather")
def gather(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    axis %= x.dim()
    found = x.index_select(axis, _wrapped(indices, x.shape[axis]).reshape(-1))
    return found.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


@operator("GatherElements")
def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    return torch.gather(x, axis, _wrapped(indices, x.shape[axis]))


def _places(shape: tuple[int, ...], indices: Tensor) -> Tensor:
    """Where in an array of the first sizes of `shape` the last axis of `indices` points."""
    at = torch.zeros(indices.shape[:-1], dtype=torch.int64, device=indices.device)
    for j in range(indices.shape[-1]):
        at = at * shape[j] + _wrapped(indices[..., j], shape[j])
    return at


@operator("GatherND")
def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    k, batch = indices.shape[-1], tuple(x.shape[:batch_dims])
    inner = tuple(x.shape[batch_dims : batch_dims + k])
    rest = tuple(x.shape[batch_dims + k :])
    at = _places(inner, indices)
    if batch:
        shape = batch + (1,) * (at.dim() - batch_dims)
        at = at + torch.arange(math.prod(batch), device=x.device).reshape(shape) * math.prod(inner)
    flat = x.reshape(math.prod(batch) * math.prod(inner), *rest)
    return flat.index_select(0, at.reshape(-1)).reshape(*indices.shape[:-1], *rest)


@operator("ScatterElements", "Scatter")
def scatter_elements(x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none") -> Tensor:
    i = _wrapped(indices, x.shape[axis])
    if reduction == "none":
        return x.scatter(axis, i, updates)
    return x.scatter_reduce(axis, i, updates, _REDUCTIONS[reduction])


@operator("ScatterND")
def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    k = indices.shape[-1]
    rest = tuple(x.shape[k:])
    n = math.prod(rest)
    at = _places(tuple(x.shape[:k]), indices).reshape(-1)
    flat = x.reshape(math.prod(x.shape[:k]), n)
    rows = updates.reshape(at.shape[0], n)
    i = at.unsqueeze(1).expand(at.shape[0], n)
    if reduction == "none":
        return flat.scatter(0, i, rows).reshape(x.shape)
    return flat.scatter_reduce(0, i, rows, _REDUCTIONS[reduction]).reshape(x.shape)


@operator("TensorScatter")
def tensor_scatter(
    past_cache: Tensor, update: Tensor, write_indices: Tensor | None = None, *, axis: int = -2, mode: str = "linear"
) -> Tensor:
    axis %= past_cache.dim()
    size = past_cache.shape[axis]
    shape = [1] * past_cache.dim()
    shape[axis] = update.shape[axis]
    at = torch.arange(update.shape[axis], device=update.device).reshape(shape)
    if write_indices is not None:
        at = at + write_indices.long().reshape([-1] + [1] * (past_cache.dim() - 1))
    if mode == "circular":
        at = at % size
    return past_cache.scatter(axis, at.expand(update.shape), update)


@operator("NonZero")
def non_zero(x: Tensor) -> Tensor:
    return torch.nonzero(x.unsqueeze(0)[0] if x.dim() else x).t()


@operator("Compress")
def compress(x: Tensor, condition: Tensor, *, axis: int | None = None) -> Tensor:
    i = torch.nonzero(condition).reshape(-1)
    return x.reshape(-1).index_select(0, i) if axis is None else x.index_select(axis, i)


@operator("TopK", since=10)
def topk(x: Tensor, k: Int, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Tensor, Tensor]:
    # of equal numbers the first comes first, which torch.topk does not promise
    values, i = torch.sort(x, dim=axis, descending=bool(largest), stable=True)
    return values.narrow(axis, 0, k), i.narrow(axis, 0, k)


@operator("TopK")
def topk_by_attribute(x: Tensor, *, k: int, axis: int = -1) -> tuple[Tensor, Tensor]:
    return topk(x, k, axis=axis)


@operator("Unique")
def unique(x: Tensor, *, axis: int | None = None, sorted: int = 1) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows = x.reshape(-1) if axis is None else x
    values, inverse, counts = torch.unique(rows, sorted=True, return_inverse=True, return_counts=True, dim=axis)
    n = counts.shape[0]
    # the first place of each: the least of the places that are its
    places = torch.arange(inverse.numel(), device=x.device)
    first = torch.full((n,), inverse.numel(), dtype=torch.int64, device=x.device)
    first = first.scatter_reduce(0, inverse.reshape(-1), places, "amin")
    if not sorted:
        order = torch.argsort(first)
        back = torch.argsort(order)
        values = values.index_select(0 if axis is None else axis, order)
        first, counts, inverse = first[order], counts[order], back[inverse]
    return values, first, inverse.reshape(-1), counts


def _extreme(name: str) -> Any:
    def run(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
        f = torch.argmax if name == "ArgMax" else torch.argmin
        if select_last_index:
            return x.shape[axis] - 1 - f(x.flip(axis), axis, bool(keepdims))
        return f(x, axis, bool(keepdims))

    return run


for _name in ("ArgMax", "ArgMin"):
    operator(_name)(_extreme(_name))


@operator("NonMaxSuppression")
def non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    max_output_boxes_per_class: Int | None = None,
    iou_threshold: Float | None = None,
    score_threshold: Float | None = None,
    *,
    center_point_box: int = 0,
) -> Tensor:
    most, limit = max_output_boxes_per_class or 0, iou_threshold or 0.0
    a, b, c, d = boxes.unbind(-1)
    if center_point_box:
        y1, x1, y2, x2 = b - d / 2, a - c / 2, b + d / 2, a + c / 2
    else:
        y1, y2, x1, x2 = torch.minimum(a, c), torch.maximum(a, c), torch.minimum(b, d), torch.maximum(b, d)
    area = (y2 - y1) * (x2 - x1)

    def overlap(low: Tensor, high: Tensor) -> Tensor:
        first, last = (
            torch.maximum(low.unsqueeze(2), low.unsqueeze(1)),
            torch.minimum(high.unsqueeze(2), high.unsqueeze(1)),
        )
        return (last - first).clamp(min=0)

    shared = overlap(y1, y2) * overlap(x1, x2)
    union = area.unsqueeze(2) + area.unsqueeze(1) - shared
    near = ((shared / union) > limit).tolist()
    found = []
    for i, (per_class, close) in enumerate(zip(scores.tolist(), near)):
        for k, row in enumerate(per_class):
            chosen: list[int] = []
            for j in sorted(range(len(row)), key=lambda j: (-row[j], j)):
                if len(chosen) >= most or (score_threshold is not None and row[j] <= score_threshold):
                    break
                if not any(close[j][other] for other in chosen):
                    chosen.append(j)
            found += [[i, k, j] for j in chosen]
    return torch.tensor(found, dtype=torch.int64, device=boxes.device).reshape(-1, 3)
