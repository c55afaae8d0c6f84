"""Attention: the scaled dot product, and the multi-head form over it."""

import math
import warnings

import tabtorch as torch
from tabtorch.autograd.tape import named, record
from tabtorch.core.shapes import remembered
from tabtorch.engine.graph import Map, inst
from tabtorch.engine.view import contiguous_meta, contiguous_strides, ordered_strides
from tabtorch.ops.functional._common import scalar_type, widened
from tabtorch.ops.functional.activation import softmax
from tabtorch.ops.functional.dropout import dropout
from tabtorch.ops.functional.linear import linear
from tabtorch.ops.machinery.dispatch import layout_of
from tabtorch.ops.machinery.inplace import is_dense
from tabtorch.ops.machinery.operation import run
from tabtorch.ops.machinery.recorded import Recorded
from tabtorch.ops.neural.attention import attention, served
from tabtorch.ops.random_numbers.dropout import dropout_numbers, dropout_of
from tabtorch.ops.shaping.convert import as_cloned
from tabtorch.ops.shaping.pad import pad

#: what `torch.nn.functional` shows
__all__ = [
    "multi_head_attention_forward",
    "scaled_dot_product_attention",
]


@remembered
def _default_scale(query, key, value, masked, is_causal, enable_gqa):
    """1/√E, of the Metas; PyTorch's errors for what does not belong together."""
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise RuntimeError(
            "Expected query, key, and value to all be  at least 2 dimensional, but got "
            f"query.dim: {query.ndim} key.dim: {key.ndim} and value.dim: {value.ndim} instead."
        )
    if not query.dtype == key.dtype == value.dtype:
        raise RuntimeError(
            "Expected query, key, and value to have the same dtype, but got "
            f"query.dtype: {_dtype_word(query)} key.dtype: {_dtype_word(key)} and "
            f"value.dtype: {_dtype_word(value)} instead."
        )
    if query.dtype.category < 2:
        raise RuntimeError(f"expected scalar type Float but found {scalar_type(query.dtype)}")
    if masked and is_causal:
        raise RuntimeError("_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True")
    if enable_gqa:
        heads = query.shape[-3]
        for t in (key, value):
            if heads % t.shape[-3]:
                raise RuntimeError(
                    "Number of heads in key and value must divide the number of heads in query when enable_gqa=True"
                )
    return 1.0 / math.sqrt(query.shape[-1]) if query.shape[-1] else 1.0


def scaled_dot_product_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    """softmax(Q Kᵀ · scale + mask) V. ``query`` (*, H, L, E), ``key`` (*, H, S, E), ``value`` (*, H, S, Ev).

    ``attn_mask`` broadcasts to (*, H, L, S): bool, True takes part; or a float that is added. ``scale``: 1/√E.
    ``enable_gqa``: fewer heads of keys and values, each shared by a group of query heads. Returns (*, H, L, Ev).
    """
    metas = query._tab_meta, key._tab_meta, value._tab_meta
    own = _default_scale(*metas, attn_mask is not None, bool(is_causal), bool(enable_gqa))
    if scale is None:
        scale = own
    # PyTorch has a kernel for the common case, and the formula for others
    learnt = attn_mask is not None and attn_mask.requires_grad
    lies = None
    if dropout_p == 0.0 and not learnt:
        lies = _lies(*metas, None if attn_mask is None else attn_mask._tab_meta, bool(enable_gqa))
    if dropout_p < 1.0 and served(query, key, value, attn_mask, enable_gqa):
        numbers = dropout_numbers(dropout_p) if dropout_p > 0.0 else ()

        def gradients(g, q, k, v, mask):
            return _gradients(g, q, k, v, mask, is_causal, scale, numbers)

        return _laid(
            attention(query, key, value, attn_mask, is_causal, scale, gradients, dropout=numbers), metas[0], lies
        )
    if dropout_p == 0.0 and attn_mask is None and _simple(*metas):
        return _laid(_attention(query, key, value, bool(is_causal), float(scale)), metas[0], lies)
    if enable_gqa:
        key, value = _for_heads(key, query), _for_heads(value, query)
    dtype = query.dtype
    query, key, value = widened(query), widened(key), widened(value)  # as PyTorch's kernel has the scores of halves
    weights = _weights(query, key, attn_mask, is_causal, scale)
    if dropout_p > 0.0:
        weights = torch.dropout(weights, dropout_p, True)
    out = torch.matmul(weights, value).to(dtype)
    if query.dim() == 4 and dropout_p == 0.0 and query.size(-1) == value.size(-1) and not learnt:
        named(out, _BACKWARD)
    return _laid(out, metas[0], lies)


_BACKWARD = "ScaledDotProductFlashAttentionForCpuBackward0"


@remembered
def _lies(query, key, value, mask, enable_gqa):
    """The strides of the result where PyTorch's kernel takes these (Metas; the mask's may be None): a clone's of the queries."""
    taken = (
        all(m.ndim == 4 and m.numel > 0 and m.strides[3] == 1 for m in (query, key, value))
        and query.shape[0] == key.shape[0] == value.shape[0]
        and query.shape[3] == key.shape[3] == value.shape[3]
        and key.shape[1] == value.shape[1]
        and (enable_gqa or query.shape[1] == key.shape[1])
        and (mask is None or mask.ndim in (2, 4))
    )
    if not taken:
        return None
    if is_dense(query):
        return query.strides
    order = layout_of([query], query.shape)
    return ordered_strides(query.shape, order) if order else contiguous_strides(query.shape)


def _laid(out, query, lies):
    """The result with these strides, a clone's of what the Meta `query` views, if any. Joining heads again is a view then."""
    if lies is None or out._tab_meta.strides == lies:
        return out
    new = as_cloned(out.detach(), query)
    record(_BACKWARD, (out,), new, lambda g: g)
    return new


@remembered
def _simple(query, key, value):
    """Whether these (Metas) are (N, H, L, E), (N, H, S, E) and (N, H, S, E), real, and not empty: as PyTorch's kernel has them."""
    return (
        query.ndim == 4
        and query.shape[:2] == key.shape[:2]
        and key.shape == value.shape
        and query.shape[3] == key.shape[3]
        and query.dtype.category == 2
        and query.numel > 0
        and key.numel > 0
    )


def _attention_forward(query, key, value, is_causal, scale):
    weights = _weights(widened(query), widened(key), None, is_causal, scale)
    return torch.matmul(weights, widened(value)).to(query.dtype), weights


def _attention_back(g, query, key, value, weights, is_causal, scale, needs):
    """The gradients that are wanted of query, key and value."""
    g, dtype = widened(g), query.dtype
    found = []
    if needs[0] or needs[1]:
        d = torch.matmul(g, widened(value).transpose(-2, -1)) * weights
        d = d - weights * d.sum(-1, keepdim=True)
        if is_causal:
            d = d.masked_fill(_later(query, key), 0.0)
        d = d * scale
        if needs[0]:
            found.append(torch.matmul(d, widened(key)).to(dtype))
        if needs[1]:
            # turned, as a gradient of the transposed keys lies: heads that are joined again need no copy then
            found.append(torch.matmul(widened(query).transpose(-2, -1), d).transpose(-2, -1).to(dtype))
    if needs[2]:
        found.append(torch.matmul(weights.transpose(-2, -1), g).to(dtype))
    return tuple(found)


_simple_attention, _of_attention = Recorded(_attention_forward), Recorded(_attention_back)


def _attention(query, key, value, is_causal, scale):
    """The dot product of what is `_simple`, recorded as one function."""
    out, weights = _simple_attention((query, key, value), (is_causal, scale))
    needs = tuple([t._tab_requires_grad for t in (query, key, value)])

    def back(g, query, key, value, weights):
        if torch.is_grad_enabled():
            return _gradients(g, query, key, value, None, is_causal, scale, ())[:3]
        found = iter(_of_attention((g, query, key, value, weights), (is_causal, scale, needs)))
        return [next(found) if need else None for need in needs]

    record(_BACKWARD, (query, key, value), out, back, (query, key, value, weights))
    return out


def _for_heads(t, query):
    """Keys or values with each head as often as it has heads of queries."""
    if t.dim() < 3 or t.size(-3) == query.size(-3):
        return t
    return t.repeat_interleave(query.size(-3) // t.size(-3), -3)


def _weights(query, key, mask, is_causal, scale):
    """softmax(Q Kᵀ · scale + mask), (*, H, L, S)."""
    scores = torch.matmul(query, key.transpose(-2, -1)) * scale
    if is_causal:
        return softmax(scores.masked_fill(_later(query, key), -math.inf), -1)
    if mask is None:
        return softmax(scores, -1)
    if mask.dtype == torch.bool:
        return _safe_softmax(scores.masked_fill(mask.logical_not(), -math.inf))
    return _safe_softmax(scores + mask)


def _follows(p):
    rows, columns = p.coords
    return columns > rows


_FOLLOWS = Map("follows", _follows, indexed=True)


def _later(query, key):
    """Which keys (S) come after which query (L), (L, S)."""
    m = contiguous_meta((query.size(-2), key.size(-2)), torch.bool, query._tab_meta.device)
    return run(inst(_FOLLOWS, (), m), m)


def _gradients(g, query, key, value, mask, is_causal, scale, numbers):
    """Gradients of query, key, value and mask of the dot product, which have all derivatives themselves. numbers: of dropout."""
    g, q = widened(g), widened(query)
    k, v = widened(_for_heads(key, query)), widened(_for_heads(value, query))
    weights = kept = _weights(q, k, mask, is_causal, scale)
    d = torch.matmul(g, v.transpose(-2, -1))
    if numbers:
        kept, d = dropout_of(weights, numbers), dropout_of(d, numbers)
    d = weights * (d - (weights * d).sum(-1, keepdim=True))
    of_mask = d if mask is not None and mask.requires_grad else None
    d = d * scale
    found = torch.matmul(d, k), torch.matmul(d.transpose(-2, -1), q), torch.matmul(kept.transpose(-2, -1), g)
    return *[_to_heads(x, like).to(like.dtype) for x, like in zip(found, (query, key, value), strict=True)], of_mask


def _to_heads(g, like):
    """The sum over the heads of queries that share one of `like`."""
    return g if g.shape == like.shape else g.unflatten(-3, (like.size(-3), -1)).sum(-3)


def _dtype_word(t):
    return {"float32": "float", "float64": "double", "float16": "c10::Half", "bfloat16": "c10::BFloat16"}.get(
        str(t.dtype).rpartition(".")[2], str(t.dtype)
    )


def _safe_softmax(scores):
    """softmax over the last dimension, but zeros, not NaN, for a row that is masked as a whole."""
    top = scores.detach().amax(-1, keepdim=True)
    e = (scores - torch.where(top == -math.inf, 0.0, top)).exp()
    total = e.sum(-1, keepdim=True)
    return e / torch.where(total == 0, 1.0, total)


# -- multi-head attention


def _mha_shape_check(query, key, value, key_padding_mask, attn_mask, num_heads):
    """Whether the inputs are batched; AssertionError where their ranks do not fit."""
    if query.dim() not in (2, 3):
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {query.dim()}-D query tensor"
        )
    n = query.dim()
    kind = "batched (3-D)" if n == 3 else "unbatched (2-D)"
    if key.dim() != n or value.dim() != n:
        raise AssertionError(
            f"For {kind} `query`, expected `key` and `value` to be {n}-D but found {key.dim()}-D and "
            f"{value.dim()}-D tensors respectively"
        )
    if key_padding_mask is not None and key_padding_mask.dim() != n - 1:
        raise AssertionError(
            f"For {kind} `query`, expected `key_padding_mask` to be `None` or {n - 1}-D but found "
            f"{key_padding_mask.dim()}-D tensor instead"
        )
    if attn_mask is not None:
        if attn_mask.dim() not in (2, 3):
            raise AssertionError(
                f"For {kind} `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found "
                f"{attn_mask.dim()}-D tensor instead"
            )
        if n == 2 and attn_mask.dim() == 3:
            expected = (num_heads, query.shape[0], key.shape[0])
            if tuple(attn_mask.shape) != expected:
                raise AssertionError(f"Expected `attn_mask` shape to be {expected} but got {attn_mask.shape}")
    return n == 3


def _canonical_mask(mask, mask_name, other_type, other_name, target_type, check_other=True):
    """A mask as a float that is added: -inf where a bool mask is True."""
    if mask is None:
        return None
    is_float = mask.is_floating_point()
    if mask.dtype != torch.bool and not is_float:
        raise AssertionError(f"only bool and floating types of {mask_name} are supported")
    if check_other and other_type is not None and mask.dtype != other_type:
        warnings.warn(
            f"Support for mismatched {mask_name} and {other_name} is deprecated. Use same type for both instead.",
            stacklevel=2,
        )
    if is_float:
        return mask
    return torch.zeros_like(mask, dtype=target_type).masked_fill_(mask, -math.inf)


def _none_or_dtype(input):
    return None if input is None else input.dtype


def _in_projection_packed(q, k, v, w, b=None):
    """The three projections from one weight (3E, E); one product where q, k, v are the same tensor."""
    if k is v and q is k:
        return linear(q, w, b).chunk(3, -1)
    w_q, w_k, w_v = w.chunk(3)
    b_q, b_k, b_v = (None, None, None) if b is None else b.chunk(3)
    return linear(q, w_q, b_q), linear(k, w_k, b_k), linear(v, w_v, b_v)


def _require(condition, message):
    if not condition:
        raise AssertionError(message)


def multi_head_attention_forward(
    query,
    key,
    value,
    embed_dim_to_check,
    num_heads,
    in_proj_weight,
    in_proj_bias,
    bias_k,
    bias_v,
    add_zero_attn,
    dropout_p,
    out_proj_weight,
    out_proj_bias,
    training=True,
    key_padding_mask=None,
    need_weights=True,
    attn_mask=None,
    use_separate_proj_weight=False,
    q_proj_weight=None,
    k_proj_weight=None,
    v_proj_weight=None,
    static_k=None,
    static_v=None,
    average_attn_weights=True,
    is_causal=False,
):
    """Multi-head attention (Vaswani et al., 2017). ``query`` (L, N, E), ``key``, ``value`` (S, N, E), or without N.

    Returns the output (L, N, E), and the weights (N, L, S), per head (N, H, L, S), or None.
    """
    is_batched = _mha_shape_check(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not is_batched:
        same_kv, same_qk = key is value, query is key
        query = query.unsqueeze(1)
        key = query if same_qk else key.unsqueeze(1)
        value = key if same_kv else value.unsqueeze(1)
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)

    tgt_len, bsz, embed_dim = query.shape
    src_len = key.shape[0]
    key_padding_mask = _canonical_mask(
        key_padding_mask, "key_padding_mask", _none_or_dtype(attn_mask), "attn_mask", query.dtype
    )
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. "
            "You may use the Transformer module method `generate_square_subsequent_mask` to create this mask."
        )
    if is_causal and key_padding_mask is None and not need_weights:
        attn_mask = None
    else:
        attn_mask = _canonical_mask(attn_mask, "attn_mask", None, "", query.dtype, False)
        if key_padding_mask is not None:
            is_causal = False

    _require(
        embed_dim == embed_dim_to_check,
        f"was expecting embedding dimension of {embed_dim_to_check}, but got {embed_dim}",
    )
    head_dim = embed_dim // num_heads
    _require(head_dim * num_heads == embed_dim, f"embed_dim {embed_dim} not divisible by num_heads {num_heads}")
    if use_separate_proj_weight:
        _require(
            key.shape[:2] == value.shape[:2],
            f"key's sequence and batch dims {key.shape[:2]} do not match value's {value.shape[:2]}",
        )
        b_q, b_k, b_v = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
        q = linear(query, q_proj_weight, b_q)
        k = linear(key, k_proj_weight, b_k)
        v = linear(value, v_proj_weight, b_v)
    else:
        if key.shape != value.shape:  # the text would make constants of sizes that vary
            _require(False, f"key shape {key.shape} does not match value shape {value.shape}")
        q, k, v = _in_projection_packed(query, key, value, in_proj_weight, in_proj_bias)

    if attn_mask is not None:
        sizes = {2: (tgt_len, src_len), 3: (bsz * num_heads, tgt_len, src_len)}
        expected = sizes[attn_mask.dim()]
        if tuple(attn_mask.shape) != expected:
            raise RuntimeError(
                f"The shape of the {attn_mask.dim()}D attn_mask is {attn_mask.shape}, but should be {expected}."
            )
        if attn_mask.dim() == 2:
            attn_mask = attn_mask.unsqueeze(0)

    def one_more_column():
        return [m if m is None else pad(m, (0, 1)) for m in (attn_mask, key_padding_mask)]

    if bias_k is not None and bias_v is not None:
        _require(static_k is None, "bias cannot be added to static key.")
        _require(static_v is None, "bias cannot be added to static value.")
        k = torch.cat([k, bias_k.repeat(1, bsz, 1)])
        v = torch.cat([v, bias_v.repeat(1, bsz, 1)])
        attn_mask, key_padding_mask = one_more_column()
    else:
        _require(bias_k is None, "bias_k is set but bias_v is None")
        _require(bias_v is None, "bias_v is set but bias_k is None")

    def heads_first(t):
        return t.reshape(t.shape[0], bsz * num_heads, head_dim).transpose(0, 1)  # (N·H, S, Eh)

    for name, t in (("static_k", static_k), ("static_v", static_v)):
        if t is not None:
            _require(
                t.size(0) == bsz * num_heads,
                f"expecting {name}.size(0) of {bsz * num_heads}, but got {t.size(0)}",
            )
            _require(t.size(2) == head_dim, f"expecting {name}.size(2) of {head_dim}, but got {t.size(2)}")
    q = heads_first(q)
    k = heads_first(k) if static_k is None else static_k
    v = heads_first(v) if static_v is None else static_v
    if add_zero_attn:
        zeros = k.new_zeros((bsz * num_heads, 1, head_dim))
        k, v = torch.cat([k, zeros], 1), torch.cat([v, zeros], 1)
        attn_mask, key_padding_mask = one_more_column()
    src_len = k.size(1)

    if key_padding_mask is not None:
        for d, expected in enumerate((bsz, src_len)):
            _require(
                key_padding_mask.shape[d] == expected,
                f"Expected key_padded_mask.shape[{d}] to be {expected}, but got {key_padding_mask.shape[d]}",
            )
        key_padding_mask = (
            key_padding_mask.view(bsz, 1, 1, src_len).expand(-1, num_heads, -1, -1).reshape(bsz * num_heads, 1, src_len)
        )
        attn_mask = key_padding_mask if attn_mask is None else attn_mask + key_padding_mask

    if not training:
        dropout_p = 0.0
    weights = None
    if need_weights:
        _require(not (is_causal and attn_mask is None), "FIXME: is_causal not implemented for need_weights")
        scaled = q * math.sqrt(1.0 / head_dim)
        if attn_mask is None:
            weights = torch.matmul(scaled, k.transpose(-2, -1))
        else:  # the sum is rounded once, in halves
            weights = torch.baddbmm(attn_mask, scaled, k.transpose(-2, -1))
        weights = softmax(weights, -1)
        if dropout_p > 0.0:
            weights = dropout(weights, dropout_p)
        output = torch.matmul(weights, v).transpose(0, 1)  # (L, N·H, Eh)
        weights = weights.view(bsz, num_heads, tgt_len, src_len)
        if average_attn_weights:
            weights = weights.mean(1)
        if not is_batched:
            weights = weights.squeeze(0)
    else:
        if attn_mask is not None:
            if attn_mask.size(0) == 1:
                attn_mask = attn_mask.unsqueeze(0)
            else:
                attn_mask = attn_mask.reshape(bsz, num_heads, -1, src_len)
        q = q.reshape(bsz, num_heads, tgt_len, head_dim)
        k = k.reshape(bsz, num_heads, src_len, head_dim)
        v = v.reshape(bsz, num_heads, src_len, head_dim)
        # by its public name: who traces or overrides it sees it
        output = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask, dropout_p, is_causal)
        output = output.permute(2, 0, 1, 3)
    output = linear(output.reshape(tgt_len, bsz, embed_dim), out_proj_weight, out_proj_bias)
    return (output if is_batched else output.squeeze(1)), weights
