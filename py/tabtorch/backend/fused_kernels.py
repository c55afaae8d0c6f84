"""Whole layers that PyTorch has as one operation for devices that have such kernels, "webgpu" among them: by their parts."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from tabtorch.backend.kernels import special

#: what a mask is: (target, source), (batch, source), or (batch, head, target, source). True is left out
_SOURCE, _PADDING = 0, 1


def _masked(scores: torch.Tensor, mask: torch.Tensor | None, kind: int | None) -> torch.Tensor:
    if mask is None:
        return scores
    if mask.dtype is not torch.bool:
        mask = mask.to(torch.bool)
    if kind == _PADDING or (kind is None and mask.dim() == 2 and mask.shape == (scores.shape[0], scores.shape[3])):
        mask = mask[:, None, None, :]
    return scores.masked_fill(mask, -math.inf)


@special("_native_multi_head_attention")
def multi_head_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    mask: torch.Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of (batch, length, embed_dim): the result, and the weights (an empty tensor if they are not needed)."""
    if query is key is value:
        projected: Any = F.linear(query, qkv_weight, qkv_bias).chunk(3, -1)
    else:
        weights, biases = qkv_weight.chunk(3), qkv_bias.chunk(3)
        projected = [F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases)]
    q, k, v = (x.unflatten(-1, (num_head, embed_dim // num_head)).transpose(1, 2) for x in projected)
    weights = torch.softmax(_masked(q @ k.transpose(-1, -2) / math.sqrt(embed_dim // num_head), mask, mask_type), -1)
    result = F.linear((weights @ v).transpose(1, 2).flatten(2), proj_weight, proj_bias)
    if not need_weights:
        return result, torch.empty(0, dtype=query.dtype, device=query.device)
    return result, weights.mean(1) if average_attn_weights else weights


@special("_transformer_encoder_layer_fwd")
def _encoder_layer(
    src: torch.Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: torch.Tensor,
    norm_bias_1: torch.Tensor,
    norm_weight_2: torch.Tensor,
    norm_bias_2: torch.Tensor,
    ffn_weight_1: torch.Tensor,
    ffn_bias_1: torch.Tensor,
    ffn_weight_2: torch.Tensor,
    ffn_bias_2: torch.Tensor,
    mask: torch.Tensor | None = None,
    mask_type: int | None = None,
) -> torch.Tensor:
    def first(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    def attend(x: torch.Tensor) -> torch.Tensor:
        weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return multi_head_attention(x, x, x, embed_dim, num_heads, *weights, mask, False, False, mask_type)[0]

    def feed(x: torch.Tensor) -> torch.Tensor:
        inner = F.linear(x, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(inner) if use_gelu else F.relu(inner), ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = src + attend(first(src))
        return x + feed(second(x))
    x = first(src + attend(src))
    return second(x + feed(x))
