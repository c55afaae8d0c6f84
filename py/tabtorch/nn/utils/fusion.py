"""Batch normalization folded into the layer before it, for inference."""

from __future__ import annotations

import copy
from typing import Any

import tabtorch as torch
from tabtorch.nn.parameter import Parameter

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]


def _fused(weight: Any, bias: Any, mean: Any, var: Any, eps: float, gamma: Any, beta: Any, shape: list[int]) -> Any:
    old = torch.zeros_like(mean) if bias is None else bias
    gamma = torch.ones_like(mean) if gamma is None else gamma
    beta = torch.zeros_like(mean) if beta is None else beta
    scale = gamma * torch.rsqrt(var + eps)
    fused_weight = (weight * scale.reshape(shape)).to(weight.dtype)
    fused_bias = ((old - mean) * scale + beta).to(weight.dtype if bias is None else bias.dtype)
    return Parameter(fused_weight, weight.requires_grad), Parameter(fused_bias, old.requires_grad)


def fuse_conv_bn_weights(
    conv_w: Any, conv_b: Any, bn_rm: Any, bn_rv: Any, bn_eps: float, bn_w: Any, bn_b: Any, transpose: bool = False
) -> Any:
    """The weight and the bias of a convolution and the normalization after it as one convolution."""
    first = [1, -1] if transpose else [-1, 1]
    return _fused(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, first + [1] * (conv_w.dim() - 2))


def fuse_linear_bn_weights(
    linear_w: Any, linear_b: Any, bn_rm: Any, bn_rv: Any, bn_eps: float, bn_w: Any, bn_b: Any
) -> Any:
    """The weight (out, in) and the bias of a linear layer and the normalization after it as one layer."""
    return _fused(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, [-1, 1])


def _for_inference(layer: Any, bn: Any) -> Any:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None")
    return copy.deepcopy(layer)


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A copy of ``conv`` that does what ``conv`` and then ``bn`` do; both in eval mode."""
    made = _for_inference(conv, bn)
    made.weight, made.bias = fuse_conv_bn_weights(
        made.weight, made.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return made


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A copy of ``linear`` that does what ``linear`` and then ``bn`` do; both in eval mode."""
    made = _for_inference(linear, bn)
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, "
            f"got linear.out_features={linear.out_features} and bn.num_features={bn.num_features}"
        )
    made.weight, made.bias = fuse_linear_bn_weights(
        made.weight, made.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return made
