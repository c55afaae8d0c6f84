"""Samples laid out otherwise in memory: the same values, with other strides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.opinfo.core import SampleInput


def _reversed(x: torch.Tensor) -> torch.Tensor:
    """The first dimension varies fastest, as a transposed matrix has it."""
    order = tuple(reversed(range(x.dim())))
    return x.permute(order).contiguous().permute(order)


def _channels_last(x: torch.Tensor) -> torch.Tensor:
    """The second dimension varies fastest, whatever the number of dimensions."""
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


def _with_gaps(x: torch.Tensor) -> torch.Tensor:
    """Every other element of rows twice as long."""
    return torch.stack([x, torch.ones_like(x)], -1).flatten(-2)[..., ::2]


LAYOUTS = (_reversed, _channels_last, _with_gaps)


def samples(found: list[SampleInput]) -> Iterator[SampleInput]:
    """Each sample in every layout that differs from its own."""
    for sample in found:
        seen = {_strides(sample)}
        for layout in LAYOUTS:
            args, kwargs = _relaid(tuple(sample.args), layout), _relaid(sample.kwargs, layout)
            other = SampleInput(_relaid(sample.input, layout), args=args, kwargs=kwargs)
            other.output_process_fn_grad = sample.output_process_fn_grad
            if (strides := _strides(other)) not in seen:
                seen.add(strides)
                yield other


def _relaid(x: Any, layout: Any) -> Any:
    if isinstance(x, torch.Tensor):
        if x.layout is not torch.strided or x.dim() < 2 or x.numel() < 2 or not x.is_contiguous():
            return x
        return layout(x.detach()).requires_grad_(x.requires_grad)
    if isinstance(x, dict):
        return {k: _relaid(v, layout) for k, v in x.items()}
    return type(x)(_relaid(v, layout) for v in x) if type(x) in (list, tuple) else x


def _strides(x: Any) -> Any:
    """The strides of all tensors in a sample, or in part of one."""
    if isinstance(x, SampleInput):
        return _strides((x.input, tuple(x.args), x.kwargs))
    if isinstance(x, torch.Tensor):
        return x.stride() if x.layout is torch.strided else ()
    if isinstance(x, dict):
        x = tuple(x.values())
    return tuple(map(_strides, x)) if isinstance(x, (list, tuple)) else ()
