"""Multi-head attention and a whole encoder layer as one operator each: what `torch.nn` calls of them for inference."""

from __future__ import annotations

import math

from tabtorch import ops
from tabtorch.base import dtypes
from tabtorch.nn import functional as F
from tabtorch.ops.aten.table import ADAPTERS, Tensor, aten


@aten("_transform_bias_rescale_qkv")
def _transform_bias_rescale_qkv(qkv: Tensor, qkv_bias: Tensor, num_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """(N, L, 3 · E) as queries, divided by the root of their width, keys and values (N, H, L, E / H)."""
    q, k, v = (t.unflatten(-1, (num_heads, -1)).transpose(1, 2).contiguous() for t in (qkv + qkv_bias).chunk(3, -1))
    return q / math.sqrt(q.shape[-1]), k, v


@aten("_native_multi_head_attention")
def _native_multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """(result (N, L, E), weights, or None). mask: True hides; mask_type 0: (L, S); 1: (N, S); 2: (N, H, L, S)."""
    sizes = [embed_dim] * 3
    q, k, v = (
        F.linear(x, w, b).unflatten(-1, (num_head, -1)).transpose(1, 2)
        for x, w, b in zip((query, key, value), qkv_weight.split(sizes), qkv_bias.split(sizes), strict=True)
    )
    scores = ops.matmul(q / math.sqrt(q.shape[-1]), k.transpose(-2, -1))
    if mask is None:
        weights = ops.softmax(scores, -1)
    else:
        weights = ADAPTERS["_masked_softmax"](scores, mask.to(dtypes.bool_), 3, mask_type)
    out = ops.matmul(weights, v).transpose(1, 2).flatten(2)
    out = F.linear(out, proj_weight, proj_bias)
    if not need_weights:
        return out, None
    return out, weights.mean(1) if average_attn_weights else weights


@aten("_transformer_encoder_layer_fwd")
def _transformer_encoder_layer_fwd(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """Attention and two products, each with a norm before (`norm_first`) or after it. `src` (N, L, E)."""

    def first(x: Tensor) -> Tensor:
        normal: Tensor = F.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)
        return normal

    def second(x: Tensor) -> Tensor:
        normal: Tensor = F.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)
        return normal

    x = first(src) if norm_first else src
    weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
    x = _native_multi_head_attention(x, x, x, embed_dim, num_heads, *weights, mask, False, True, mask_type)[0] + src
    x = x if norm_first else first(x)
    y = second(x) if norm_first else x
    y = F.linear(y, ffn_weight_1, ffn_bias_1)
    y = F.linear(F.gelu(y) if use_gelu else F.relu(y), ffn_weight_2, ffn_bias_2) + x
    return y if norm_first else second(y)
