"""Operators that make one number of many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tabtorch as torch
from tabtorch.onnx.registry import Int, Ints, Tensor, operator


def _product(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    for a in sorted((a % x.dim() for a in axes), reverse=True):
        x = x.prod(a, keepdim=keep)
    return x


def _mean(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return x.mean(axes, keepdim=keep) if x.dtype.is_floating_point else x.double().mean(axes, keepdim=keep)


def _extreme(f: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(x: Tensor, axes: list[int], keep: bool) -> Tensor:
        wide = x.to(torch.uint8) if x.dtype == torch.bool else x
        return f(wide, axes, keep)

    return run


def _largest(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    if _nothing(x, axes):
        least = float("-inf") if x.dtype.is_floating_point else torch.iinfo(x.dtype).min
        return _filled(x, axes, keep, least)
    return x.amax(axes, keepdim=keep)


def _smallest(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    if _nothing(x, axes):
        most = float("inf") if x.dtype.is_floating_point else 1 if x.dtype == torch.bool else torch.iinfo(x.dtype).max
        return _filled(x, axes, keep, most)
    return x.amin(axes, keepdim=keep)


def _nothing(x: Tensor, axes: list[int]) -> bool:
    return any(x.shape[a] == 0 for a in axes)


def _filled(x: Tensor, axes: list[int], keep: bool, value: float) -> Tensor:
    out = {a % x.dim() for a in axes}
    shape = [1 if i in out else n for i, n in enumerate(x.shape) if keep or i not in out]
    return torch.full(shape, value, dtype=x.dtype, device=x.device)


def _float(x: Tensor) -> Tensor:
    return x if x.dtype.is_floating_point else x.float()


#: name -> (what the reduction is, what it is for no axes at all)
REDUCTIONS: dict[str, tuple[Callable[..., Tensor], Callable[[Tensor], Tensor]]] = {
    "ReduceSum": (lambda x, a, k: x.sum(a, keepdim=k), lambda x: x),
    "ReduceMean": (_mean, lambda x: x),
    "ReduceMax": (_extreme(_largest), lambda x: x),
    "ReduceMin": (_extreme(_smallest), lambda x: x),
    "ReduceProd": (_product, lambda x: x),
    "ReduceL1": (lambda x, a, k: x.abs().sum(a, keepdim=k), torch.abs),
    "ReduceL2": (lambda x, a, k: _float(x * x).sum(a, keepdim=k).sqrt(), torch.abs),
    "ReduceSumSquare": (lambda x, a, k: (x * x).sum(a, keepdim=k), lambda x: x * x),
    "ReduceLogSum": (lambda x, a, k: _float(x).sum(a, keepdim=k).log(), lambda x: _float(x).log()),
    "ReduceLogSumExp": (lambda x, a, k: torch.logsumexp(_float(x), a, keepdim=k), lambda x: x),
}


def _reduction(f: Callable[..., Tensor], alone: Callable[[Tensor], Tensor]) -> tuple[Any, Any]:
    def by_input(x: Tensor, axes: Ints | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Tensor:
        if not axes and noop_with_empty_axes:
            return alone(x).to(x.dtype)
        chosen = axes or list(range(x.dim()))
        return f(x, chosen, bool(keepdims)).to(x.dtype) if chosen else alone(x).to(x.dtype)

    def by_attribute(
        x: Tensor, axes: Ints | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0, **given: Any
    ) -> Tensor:
        chosen = given.get("axes") if axes is None else axes
        return by_input(x, chosen, keepdims=keepdims, noop_with_empty_axes=noop_with_empty_axes)

    return by_input, by_attribute


for _name, (_f, _alone) in REDUCTIONS.items():
    _by_input, _by_attribute = _reduction(_f, _alone)
    operator(_name)(_by_attribute)
    operator(_name, since=13 if _name == "ReduceSum" else 18)(_by_input)


def _scan(f: Callable[..., Tensor], neutral: float) -> Any:
    def run(x: Tensor, axis: Int, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
        if reverse:
            x = x.flip(axis)
        if exclusive:
            first = torch.full_like(x.narrow(axis, 0, 1), neutral)
            x = torch.cat([first, x.narrow(axis, 0, x.shape[axis] - 1)], axis)
        found = f(x, axis, dtype=x.dtype)
        return found.flip(axis) if reverse else found

    return run


operator("CumSum")(_scan(torch.cumsum, 0))
operator("CumProd")(_scan(torch.cumprod, 1))
