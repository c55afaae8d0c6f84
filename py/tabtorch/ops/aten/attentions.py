"""The forms of `scaled_dot_product_attention` that PyTorch has kernels of: each gives what its gradient needs besides the result."""

from __future__ import annotations

import math
from typing import Any

from tabtorch import ops
from tabtorch.autograd import grad_mode
from tabtorch.base import dtypes
from tabtorch.nn import functional as F
from tabtorch.ops.aten.table import Tensor, aten, grads_of
from tabtorch.ops.functional import attention as formula
from tabtorch.ops.neural.attention import attention, served


def _attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float, causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    """(result, log(sum(exp(scores))) (*, H, L) float32). Heads of keys may be shared by several of queries."""
    if dropout_p:
        raise NotImplementedError(
            "a fused attention with dropout has no gradient here, for its mask is not kept: _fused_sdp_choice gives 0"
        )
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1]) if query.shape[-1] else 1.0
    recorded = grad_mode.is_grad_enabled() and (
        query._tab_requires_grad
        or key._tab_requires_grad
        or value._tab_requires_grad
        or (mask is not None and mask._tab_requires_grad)
    )
    if not recorded and served(query, key, value, mask, _grouped(query, key)):
        out, totals = _kernel(query, key, value, mask, causal, scale)
        return out, totals
    out = F.scaled_dot_product_attention(
        query, key, value, mask, 0.0, causal, scale=scale, enable_gqa=_grouped(query, key)
    )
    k = _per_query(key, query) if _grouped(query, key) else key
    scores = ops.matmul(query.float(), k.float().transpose(-2, -1)) * scale
    if causal:
        rows = ops.arange(query.shape[-2], device=query.device).unsqueeze(-1)
        columns = ops.arange(key.shape[-2], device=query.device)
        scores = scores.masked_fill(columns > rows, -math.inf)
    if mask is not None:
        hidden = mask.dtype.name == "bool"
        scores = scores.masked_fill(mask.logical_not(), -math.inf) if hidden else scores + mask
    return out, ops.logsumexp(scores, -1)


def _grouped(query: Tensor, key: Tensor) -> bool:
    """Whether fewer heads of keys are shared by several of queries."""
    return bool(query.ndim > 2 and key.shape[-3] != query.shape[-3])


def _kernel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    made: tuple[Tensor, Tensor] | None = None,
) -> Any:
    """By one kernel: (result, totals), or the result that is `made` already, with its gradient."""

    def gradients(g: Tensor, q: Tensor, k: Tensor, v: Tensor, m: Tensor | None) -> Any:
        return formula._gradients(g, q, k, v, m, causal, scale, ())

    return attention(query, key, value, mask, causal, scale, gradients, totals=made is None, made=made)


def _per_query(key: Tensor, query: Tensor) -> Tensor:
    return ops.repeat_interleave(key, query.shape[-3] // key.shape[-3], -3)


def _gradients(
    g: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    made: tuple[Tensor, Tensor],
    wanted: Any,
    causal: bool,
    scale: float | None,
) -> tuple[Tensor | None, ...]:
    """Those of query, key, value and mask, by the result and the totals that the forward pass gave."""
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1]) if query.shape[-1] else 1.0
    grouped = _grouped(query, key)
    by_kernel = served(query, key, value, mask, grouped)

    def result(q: Tensor, k: Tensor, v: Tensor, m: Tensor | None) -> Tensor:
        if by_kernel:
            return _kernel(q, k, v, m, causal, scale, made)
        return F.scaled_dot_product_attention(q, k, v, m, 0.0, causal, scale=scale, enable_gqa=grouped)

    return grads_of(result, (query, key, value, mask), g, wanted)


def _seeds(query: Tensor) -> tuple[Tensor, Tensor]:
    """The two that say which numbers dropout drew: none."""
    return ops.zeros((), dtype=dtypes.int64, device=query.device), ops.zeros(
        (), dtype=dtypes.int64, device=query.device
    )


# ---- PyTorch's CPU


@aten("_scaled_dot_product_flash_attention_for_cpu")
def _for_cpu(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    return _attention(query, key, value, attn_mask, dropout_p, is_causal, scale)


@aten("_scaled_dot_product_flash_attention_for_cpu_backward")
def _for_cpu_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    wanted = (True, True, True, False)
    return _gradients(grad_out, query, key, value, attn_mask, (out, logsumexp), wanted, is_causal, scale)[:3]


# ---- accelerators


@aten("_scaled_dot_product_flash_attention")
def _flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    out, totals = _attention(query, key, value, None, dropout_p, is_causal, scale)
    return _with_lengths(out, totals, query, key)


def _with_lengths(out: Tensor, totals: Tensor, query: Tensor, key: Tensor) -> tuple[Any, ...]:
    none = query.new_empty((0,))
    return (out, totals, None, None, query.shape[-2], key.shape[-2], *_seeds(query), none)


@aten("_scaled_dot_product_flash_attention_backward")
def _flash_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Any,
    cum_seq_k: Any,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Tensor,
    philox_offset: Tensor,
    *,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    wanted = (True, True, True, False)
    return _gradients(grad_out, query, key, value, None, (out, logsumexp), wanted, is_causal, scale)[:3]


@aten("_scaled_dot_product_efficient_attention")
def _efficient(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    return (*_attention(query, key, value, attn_bias, dropout_p, is_causal, scale), *_seeds(query))


@aten("_scaled_dot_product_efficient_attention_backward")
def _efficient_backward(
    grad_out_: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    philox_seed: Tensor,
    philox_offset: Tensor,
    dropout_p: float,
    grad_input_mask: Any,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    return _gradients(grad_out_, query, key, value, attn_bias, (out, logsumexp), grad_input_mask, is_causal, scale)


@aten("_scaled_dot_product_fused_attention_overrideable")
def _overrideable(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    out, totals = _attention(query, key, value, attn_bias, dropout_p, is_causal, scale)
    return _with_lengths(out, totals, query, key)


@aten("_scaled_dot_product_fused_attention_overrideable_backward")
def _overrideable_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    grad_input_mask: Any,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Any,
    cum_seq_k: Any,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Tensor,
    philox_offset: Tensor,
    *,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    return _gradients(grad_out, query, key, value, attn_bias, (out, logsumexp), grad_input_mask, is_causal, scale)


@aten("_fused_sdp_choice")
def _fused_sdp_choice(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> int:
    """Which form PyTorch is to call: 0, the formula, with dropout or without four dimensions; 4, the overrideable kernel."""
    return 0 if dropout_p or query.ndim != 4 else 4


@aten("_scaled_dot_product_attention_math")
def _math(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    dropout_mask: Tensor | None = None,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Tensor, Tensor]:
    """(result, the weights after dropout). dropout_mask: what is kept, where that was drawn before."""
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1]) if query.shape[-1] else 1.0
    if enable_gqa and query.ndim > 2 and key.shape[-3] != query.shape[-3]:
        key, value = _per_query(key, query), _per_query(value, query)
    weights = formula._weights(query, key, attn_mask, is_causal, scale)
    if dropout_mask is not None:
        weights = weights * dropout_mask * (1 / (1 - dropout_p))
    elif dropout_p:
        weights = ops.dropout(weights, dropout_p, True)
    return ops.matmul(weights, value), weights


@aten("_masked_softmax")
def _masked_softmax(self: Tensor, mask: Tensor, dim: int | None = None, mask_type: int | None = None) -> Tensor:
    """softmax over `dim` (the last) of what `mask` does not hide (True hides). mask_type 0: (L, L); 1: (N, L); 2: as scores."""
    if mask_type == 1 and mask.shape != self.shape:
        mask = mask.reshape(mask.shape[0], *(1 for _ in range(self.ndim - 2)), mask.shape[-1])
    return ops.softmax(self.masked_fill(mask.to(dtypes.bool_), -math.inf), -1 if dim is None else dim)


@aten("_masked_softmax_backward")
def _masked_softmax_backward(grad_output: Tensor, output: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    inner = grad_output * output
    return (inner - output * inner.sum(-1 if dim is None else dim, keepdim=True)).masked_fill(
        mask.to(dtypes.bool_), 0.0
    )
