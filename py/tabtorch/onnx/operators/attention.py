"""Attention, positions by rotation, and recurrences over a state of keys and values."""

from __future__ import annotations

import math
from typing import Any

import tabtorch as torch
import tabtorch.nn.functional as F
from tabtorch.onnx.registry import Tensor, operator
from tabtorch.onnx.values import dtype_of


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(batch, length, heads · size) as (batch, heads, length, size)."""
    if heads < 1:
        raise ValueError("a tensor of three dimensions needs the number of its heads")
    return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


def shared_heads(x: Tensor, heads: int) -> Tensor:
    """Each head of `x` as often as heads of queries read it."""
    times = heads // x.shape[1]
    return x if times == 1 else x.repeat_interleave(times, 1)


def allowed_keys(
    queries: int, keys: int, offset: Any, causal: bool, left: int, right: int, device: Any
) -> Tensor | None:
    """Which keys each query sees; None: all. `offset`: keys before the first query, a number or (batch, 1, 1, 1)."""
    if not causal and left < 0 and right < 0:
        return None
    at = torch.arange(queries, device=device).unsqueeze(1) + offset
    key = torch.arange(keys, device=device)
    seen = key <= at + (min(right, 0) if causal and right >= 0 else 0) if causal else None
    if left >= 0:
        more = key >= at - left
        seen = more if seen is None else seen & more
    if right >= 0:
        more = key <= at + right
        seen = more if seen is None else seen & more
    return seen


def softmax_of_rows(scores: Tensor, seen: Tensor | None) -> Tensor:
    """Softmax along the last axis; a row that sees no key is zeros."""
    found = F.softmax(scores, -1)
    if seen is None:
        return found
    return torch.where((scores > -math.inf).any(-1, keepdim=True), found, torch.zeros_like(found))


@operator("Attention")
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    nonpad_kv_seqlen: Tensor | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int = 0,
    left_window_size: int = -1,
    q_num_heads: int = 0,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int = 0,
    outputs: int = 1,
) -> Any:
    flat = q.dim() == 3
    if flat:
        q, k, v = split_heads(q, q_num_heads), split_heads(k, kv_num_heads), split_heads(v, kv_num_heads)
    offset: Any = 0
    if past_key is not None and past_value is not None:
        offset = past_key.shape[2]
        k, v = torch.cat([past_key, k], 2), torch.cat([past_value, v], 2)
    present = k, v
    batch, heads, queries, size = q.shape
    keys = k.shape[2]
    if nonpad_kv_seqlen is not None:
        offset = (nonpad_kv_seqlen.long() - queries).reshape(batch, 1, 1, 1)
    k, v = shared_heads(k, heads), shared_heads(v, heads)
    factor = 1 / math.sqrt(size) if scale is None else scale
    seen = allowed_keys(queries, keys, offset, bool(is_causal), left_window_size, right_window_size, q.device)
    if nonpad_kv_seqlen is not None:
        valid = torch.arange(keys, device=q.device) < nonpad_kv_seqlen.long().reshape(batch, 1, 1, 1)
        seen = valid if seen is None else seen & valid
    added = None
    if attn_mask is not None:
        short = keys - attn_mask.shape[-1]
        if attn_mask.dtype == torch.bool:
            if short:
                attn_mask = F.pad(attn_mask.to(torch.uint8), [0, short]).to(torch.bool)
            seen = attn_mask if seen is None else seen & attn_mask
        else:
            added = F.pad(attn_mask, [0, short], value=-math.inf) if short else attn_mask
    if outputs < 4 and not softcap and not softmax_precision and seen is None and added is None:
        y = F.scaled_dot_product_attention(q, k, v, scale=factor)
        return (join_heads(y) if flat else y, *present)[:outputs]
    root = math.sqrt(factor)
    raw = (q * root) @ (k * root).transpose(-1, -2)
    capped = torch.tanh(raw / softcap) * softcap if softcap else raw
    scores = capped if added is None else capped + added
    if seen is not None:
        scores = torch.where(seen, scores, torch.full((), -math.inf, dtype=scores.dtype, device=scores.device))
    wide = scores.to(dtype_of(softmax_precision)) if softmax_precision else scores
    weights = softmax_of_rows(wide, seen if added is None else scores).to(q.dtype)
    y = weights @ v
    shown = (raw, capped, scores, weights)
    return (join_heads(y) if flat else y, *present, shown[qk_matmul_output_mode])[:outputs]


@operator("FlexAttention", domain="ai.onnx.preview")
def flex_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    prob_mod: Any = None,
    score_mod: Any = None,
    scale: float | None = None,
    softmax_precision: int = 0,
) -> Tensor:
    k, v = shared_heads(k, q.shape[1]), shared_heads(v, q.shape[1])
    wide = dtype_of(softmax_precision) if softmax_precision else torch.promote_types(q.dtype, torch.float32)
    scores = (q @ k.transpose(-1, -2)).to(wide) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if score_mod is not None:
        (scores,) = score_mod(scores)
    weights = F.softmax(scores, -1)
    if prob_mod is not None:
        (weights,) = prob_mod(weights)
    return (weights.to(v.dtype) @ v).to(q.dtype)


def rotated(x: Tensor, cos: Tensor, sin: Tensor, interleaved: int, size: int) -> Tensor:
    """(batch, length, heads, size) whose first `size` numbers are turned by angles (batch, length, size / 2)."""
    turned, rest = x[..., :size], x[..., size:]
    c, s = cos.unsqueeze(2), sin.unsqueeze(2)
    if interleaved:
        a, b = turned[..., 0::2], turned[..., 1::2]
        found = torch.stack([a * c - b * s, b * c + a * s], -1).reshape(turned.shape)
    else:
        a, b = turned[..., : size // 2], turned[..., size // 2 :]
        found = torch.cat([a * c - b * s, b * c + a * s], -1)
    return torch.cat([found, rest], -1) if rest.shape[-1] else found


@operator("RotaryEmbedding")
def rotary_embedding(
    x: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    position_ids: Tensor | None = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Tensor:
    if position_ids is not None:
        cos_cache, sin_cache = cos_cache[position_ids.long()], sin_cache[position_ids.long()]
    heads = x.transpose(1, 2) if x.dim() == 4 else x.reshape(x.shape[0], x.shape[1], num_heads, -1)
    found = rotated(heads, cos_cache, sin_cache, interleaved, rotary_embedding_dim or heads.shape[-1])
    return found.transpose(1, 2) if x.dim() == 4 else found.reshape(x.shape)


@operator("LinearAttention")
def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    past_state: Tensor | None = None,
    decay: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    chunk_size: int = 64,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> tuple[Tensor, Tensor]:
    of = query.dtype
    q, k, v = (
        split_heads(x.float() if x.dtype != torch.float64 else x, n)
        for x, n in ((query, q_num_heads), (key, kv_num_heads), (value, kv_num_heads))
    )
    batch, _, length, size = q.shape
    factor = scale or 1 / math.sqrt(size)
    state = (
        past_state.to(q.dtype)
        if past_state is not None
        else torch.zeros(batch, kv_num_heads, size, v.shape[-1], dtype=q.dtype, device=q.device)
    )
    fade = None if decay is None else split_heads(decay.to(q.dtype), kv_num_heads).exp()
    rate = None
    if beta is not None:
        rate = beta.to(q.dtype).transpose(1, 2).unsqueeze(-1).expand(batch, kv_num_heads, length, 1)
    gated, delta = "gated" in update_rule, "delta" in update_rule
    rows = []
    for t in range(length):
        kt, vt = k[:, :, t].unsqueeze(-1), v[:, :, t].unsqueeze(-2)
        if gated and fade is not None:
            state = state * fade[:, :, t].unsqueeze(-1)
        if delta and rate is not None:
            vt = (vt - (state * kt).sum(-2, keepdim=True)) * rate[:, :, t].unsqueeze(-1)
        state = state + kt * vt
        per_query = shared_heads(state, q_num_heads)
        rows.append((per_query * q[:, :, t].unsqueeze(-1)).sum(-2) * factor)
    y = torch.stack(rows, 2)
    return join_heads(y).to(of), state.to(past_state.dtype if past_state is not None else of)


@operator("CausalConvWithState")
def causal_conv_with_state(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, past_state: Tensor | None = None, *, activation: str = "none"
) -> tuple[Tensor, Tensor]:
    kept = weight.shape[-1] - 1
    whole = F.pad(x, [kept, 0]) if past_state is None else torch.cat([past_state, x], -1)
    y = F.conv1d(whole, weight, bias, groups=x.shape[1])
    if activation in ("silu", "swish"):
        y = F.silu(y)
    return y, whole[..., whole.shape[-1] - kept :]
