"""onnxruntime's own operators, `com.microsoft`, that are of floats: what its optimizer and its exporters of language models write."""

from __future__ import annotations

import math
from typing import Any

import tabtorch as torch
import tabtorch.nn.functional as F
from tabtorch.onnx.operators.attention import attention, join_heads, rotated, split_heads
from tabtorch.onnx.operators.elementwise import gelu, swish
from tabtorch.onnx.operators.normalization import layer_normalization, rms_normalization
from tabtorch.onnx.registry import Int, Tensor, operator
from tabtorch.onnx.values import Unsupported

MICROSOFT = "com.microsoft"

operator("Gelu", domain=MICROSOFT)(gelu)


@operator("QuickGelu", domain=MICROSOFT)
def quick_gelu(x: Tensor, *, alpha: float = 1.702) -> Tensor:
    return swish(x, alpha=alpha)


@operator("BiasGelu", domain=MICROSOFT)
def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(x + bias)


@operator("FastGelu", domain=MICROSOFT)
def fast_gelu(x: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.gelu(x if bias is None else x + bias, approximate="tanh")


@operator("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(
    a: Tensor,
    b: Tensor,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Tensor:
    a, b = a.movedim(0, -2) if transBatchA else a, b.movedim(0, -2) if transBatchB else b
    a, b = a.transpose(-1, -2) if transA and a.dim() > 1 else a, b.transpose(-1, -2) if transB and b.dim() > 1 else b
    return a @ b if alpha == 1 else alpha * (a @ b)


# ---- normalizations


@operator("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    beta: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
    outputs: int = 1,
) -> Any:
    total = x + skip if bias is None else x + skip + bias
    if outputs == 1:
        return layer_normalization(total, gamma, beta, epsilon=epsilon)
    return (*layer_normalization(total, gamma, beta, epsilon=epsilon, outputs=3), total)[:outputs]


@operator("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(
    x: Tensor, skip: Tensor, gamma: Tensor, bias: Tensor | None = None, *, epsilon: float = 1e-12, outputs: int = 1
) -> Any:
    total = x + skip if bias is None else x + skip + bias
    y, inverse = rms_normalization(total, gamma, epsilon=epsilon, outputs=2)
    # there is no mean, though it has an output
    return (y, None, inverse, total)[:outputs]


@operator("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(
    ids: Tensor,
    segments: Tensor | None,
    words: Tensor,
    positions: Tensor,
    segment_words: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    mask: Tensor | None = None,
    position_ids: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 1,
    outputs: int = 1,
) -> Any:
    at = positions[: ids.shape[1]] if position_ids is None else positions[position_ids.long()]
    total = words[ids.long()] + at
    if segments is not None and segment_words is not None:
        total = total + segment_words[segments.long()]
    valid = torch.zeros(ids.shape[0], dtype=torch.int32, device=ids.device) if mask is None else mask.sum(1).int()
    return (layer_normalization(total, gamma, beta, epsilon=epsilon), valid, total)[:outputs]


# ---- attention


@operator("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(
    x: Tensor,
    position_ids: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Tensor:
    size = rotary_embedding_dim or 2 * cos_cache.shape[1]
    if x.dim() == 4:
        heads = x.transpose(1, 2)
    else:
        heads = x.reshape(*x.shape[:2], num_heads or x.shape[2] // size, -1)
    at = position_ids.long()
    if at.numel() == 1 and at.dim() < 2:  # where the first one is
        at = (at.reshape(1, 1) + torch.arange(heads.shape[1], device=x.device)).expand(*heads.shape[:2])
    found = rotated(heads, cos_cache[at], sin_cache[at], interleaved, size)
    return found.transpose(1, 2) if x.dim() == 4 else found.reshape(x.shape)


def _padding(mask: Tensor | None, batch: int, queries: int, keys: int, value: float, like: Tensor) -> Tensor | None:
    """What a mask adds to the scores: `value` where it is zero. It is lengths, first and last places, or (batch, …, keys)."""
    if mask is None:
        return None
    if mask.dim() > 3 or mask.dim() == 1 and mask.shape[0] not in (batch, 2 * batch):
        raise Unsupported(f"a mask of the shape {list(mask.shape)} is not supported for a batch of {batch}")
    if mask.dim() == 1:
        at = torch.arange(keys, device=mask.device)
        seen = at < mask[:batch].unsqueeze(1)
        mask = seen & (at >= mask[batch:].unsqueeze(1)) if mask.shape[0] > batch else seen
    shape = (batch, 1, 1, keys) if mask.dim() == 2 else (batch, 1, queries, keys)
    return torch.where(mask.reshape(shape) != 0, 0.0, torch.full((), value, device=like.device)).to(like.dtype)


def _attended(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, past: Any, given: Any) -> Any:
    """(result, keys, values) of heads (batch, heads, length, size)."""
    keys = k.shape[2] + (past[0].shape[2] if past[0] is not None else 0)
    filled = given.pop("mask_filter_value", -10000.0)
    added = _padding(mask, q.shape[0], q.shape[2], keys, filled, q)
    if bias is not None:
        added = bias if added is None else added + bias
    causal, scale = given.pop("unidirectional", 0), given.pop("scale", None)
    if any(given.values()):
        raise Unsupported(f"attention with {', '.join(given)} is not supported")
    y, k, v = attention(q, k, v, added, *past, is_causal=causal, scale=scale or None, outputs=3)
    return join_heads(y), k, v


@operator("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    bias: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    *,
    num_heads: int,
    outputs: int = 1,
    **given: Any,
) -> Any:
    q, k, v = query, key, value
    if k is None:  # (batch, length, heads, 3, size)
        q, k, v = (t.flatten(2) for t in query.unbind(3))
    elif v is None:  # (batch, length, heads, 2, size)
        k, v = (t.flatten(2) for t in k.unbind(3))
    assert k is not None and v is not None
    if bias is not None:
        n = q.shape[-1]
        q = q + bias[:n]
        if k.dim() == 3:
            k, v = k + bias[n : 2 * n], v + bias[2 * n :]
    # of another sequence they may come as heads already
    q, k, v = (t if t.dim() == 4 else split_heads(t, num_heads) for t in (q, k, v))
    return _attended(q, k, v, key_padding_mask, attention_bias, (past_key, past_value), given)[:outputs]


@operator("Attention", domain=MICROSOFT)
def packed_attention(
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    mask_index: Tensor | None = None,
    past: Tensor | None = None,
    attention_bias: Tensor | None = None,
    *,
    num_heads: int,
    qkv_hidden_sizes: list[int] | None = None,
    outputs: int = 1,
    **given: Any,
) -> Any:
    y = x @ weights
    y = y if bias is None else y + bias
    sizes = qkv_hidden_sizes or [y.shape[-1] // 3] * 3
    q, k, v = (split_heads(t, num_heads) for t in y.split(sizes, -1))
    before = (None, None) if past is None else (past[0], past[1])
    y, k, v = _attended(q, k, v, mask_index, attention_bias, before, given)
    return (y, torch.stack([k, v]))[:outputs] if outputs > 1 else y


@operator("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    past_key: Tensor | None,
    past_value: Tensor | None,
    seqlens_k: Tensor,
    total_sequence_length: Int,
    cos_cache: Tensor | None = None,
    sin_cache: Tensor | None = None,
    position_ids: Tensor | None = None,
    attention_bias: Tensor | None = None,
    head_sink: Tensor | None = None,
    *,
    do_rotary: int = 0,
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    smooth_softmax: int = 0,
    softcap: float = 0.0,
    outputs: int = 1,
) -> Any:
    """`seqlens_k`: of each of the batch, the place of its last key. The past may have room for more than is in it."""
    q, k, v = query, key, value
    if k is None or v is None:
        size = query.shape[-1] // (num_heads + 2 * kv_num_heads)
        q, k, v = query.split([num_heads * size, kv_num_heads * size, kv_num_heads * size], -1)
    q, k, v = split_heads(q, num_heads), split_heads(k, kv_num_heads), split_heads(v, kv_num_heads)
    batch, _, length, size = q.shape
    room = past_key.shape[2] if past_key is not None else 0
    first = length == total_sequence_length
    keys = max(room, total_sequence_length)
    begin = torch.zeros_like(seqlens_k) if first else seqlens_k + 1 - length
    begin = begin.long().reshape(batch, 1)
    at = begin + torch.arange(length, device=q.device)
    if do_rotary:
        assert cos_cache is not None and sin_cache is not None
        turn = at if position_ids is None else position_ids.long()
        angles = cos_cache[turn], sin_cache[turn], rotary_interleaved, 2 * cos_cache.shape[1]
        q, k = (rotated(t.transpose(1, 2), *angles).transpose(1, 2) for t in (q, k))
    place = torch.arange(keys, device=q.device)
    if first:
        k, v = (F.pad(t, [0, 0, 0, keys - length]) for t in (k, v))
    elif batch == 1 and room + length == keys:
        k, v = torch.cat([past_key, k], 2), torch.cat([past_value, v], 2)
    else:
        new = place - begin
        source = torch.where((new >= 0) & (new < length), new + room, place.clamp(max=room - 1))
        k, v = (
            torch.cat([a, b], 2).gather(2, source[:, None, :, None].expand(-1, kv_num_heads, -1, size))
            for a, b in ((past_key, k), (past_value, v))
        )
    present = k, v
    seen = place <= at.unsqueeze(-1)
    if local_window_size >= 0:
        seen = seen & (place > at.unsqueeze(-1) - local_window_size)
    none = torch.full((), -math.inf, device=q.device)
    added = torch.where(seen, 0.0, none).to(q.dtype).unsqueeze(1)
    if attention_bias is not None:
        added = added + F.pad(attention_bias, [0, keys - attention_bias.shape[-1]])
    if smooth_softmax == 1 or head_sink is not None:  # a key of zeros takes a part of the weights, and gives none
        sink = torch.zeros(1, device=q.device) if head_sink is None else head_sink
        k, v = F.pad(k, [0, 0, 0, 1]), F.pad(v, [0, 0, 0, 1])
        column = sink.to(q.dtype).reshape(1, -1, 1, 1).expand(batch, -1, length, 1)
        added = torch.cat([added.expand(-1, column.shape[1], -1, -1), column], -1)
    (y,) = attention(q, k, v, added, scale=scale or None, softcap=softcap)
    return (join_heads(y), *present)[:outputs]
