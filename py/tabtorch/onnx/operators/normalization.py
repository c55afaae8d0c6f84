"""Normalizations."""

from __future__ import annotations

from typing import Any

import tabtorch as torch
import tabtorch.nn.functional as F
from tabtorch.onnx.registry import Tensor, operator


@operator("BatchNormalization", since=14)
def batch_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    outputs: int = 1,
) -> Any:
    if not training_mode:
        return F.batch_norm(x, mean, var, scale, bias, False, 0.0, epsilon)
    axes = [i for i in range(x.dim()) if i != 1]
    now, spread = x.mean(axes), x.var(axes, unbiased=False)
    y = F.batch_norm(x, now, spread, scale, bias, False, 0.0, epsilon)
    found = y, mean * momentum + now * (1 - momentum), var * momentum + spread * (1 - momentum)
    return found[:outputs]


@operator("BatchNormalization")
def batch_normalization_first(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 1e-5,
    is_test: Any = None,
    momentum: float = 0.9,
    spatial: int = 1,
    consumed_inputs: Any = None,
) -> Tensor:
    if not spatial:
        return (x - mean) / torch.sqrt(var + epsilon) * scale + bias
    return F.batch_norm(x, mean, var, scale, bias, False, 0.0, epsilon)


@operator("InstanceNormalization")
def instance_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5, consumed_inputs: Any = None
) -> Tensor:
    return F.instance_norm(x, None, None, scale, bias, True, 0.0, epsilon)


@operator("LayerNormalization")
def layer_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    outputs: int = 1,
) -> Any:
    axis %= x.dim()
    sizes = list(x.shape[axis:])
    fits = list(scale.shape) == sizes and (bias is None or list(bias.shape) == sizes)
    if outputs == 1 and fits:
        return F.layer_norm(x, sizes, scale, bias, epsilon)
    axes = list(range(axis, x.dim()))
    mean = x.mean(axes, keepdim=True)
    inverse = ((x - mean) ** 2).mean(axes, keepdim=True).add(epsilon).rsqrt()
    y = (x - mean) * inverse * scale
    return (y if bias is None else y + bias, mean, inverse)[:outputs]


# onnxruntime has the second name for it, without a domain
@operator("RMSNormalization", "SimplifiedLayerNormalization")
def rms_normalization(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1, outputs: int = 1
) -> Any:
    axes = list(range(axis % x.dim(), x.dim()))
    wide = x.float() if stash_type == 1 and x.dtype in (torch.float16, torch.bfloat16) else x
    inverse = (wide * wide).mean(axes, keepdim=True).add(epsilon).rsqrt()
    return ((wide * inverse).to(x.dtype) * scale, inverse)[:outputs]


@operator("GroupNormalization")
def group_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    each = x.shape[1] // num_groups
    if scale.numel() != x.shape[1]:  # as opset 18 had it: one for each group
        scale, bias = scale.repeat_interleave(each), bias.repeat_interleave(each)
    return F.group_norm(x, num_groups, scale, bias, epsilon)


@operator("LRN")
def lrn(x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Tensor:
    low, high = (size - 1) // 2, size // 2
    squares = F.pad(x * x, [0, 0] * (x.dim() - 2) + [low, high])
    total = squares.narrow(1, 0, x.shape[1])
    for i in range(1, size):
        total = total + squares.narrow(1, i, x.shape[1])
    return x / (bias + alpha / size * total) ** beta


@operator("LpNormalization")
def lp_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    n = x.abs().sum(axis, keepdim=True) if p == 1 else (x * x).sum(axis, keepdim=True).sqrt()
    return torch.where(n == 0, torch.zeros_like(x), x / n)


@operator("MeanVarianceNormalization")
def mean_variance_normalization(x: Tensor, *, axes: list[int] | None = None) -> Tensor:
    over = axes if axes is not None else [0, 2, 3]
    mean = x.mean(over, keepdim=True)
    return (x - mean) / (((x * x).mean(over, keepdim=True) - mean * mean).sqrt() + 1e-9)
