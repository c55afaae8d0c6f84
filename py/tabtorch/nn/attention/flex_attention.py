"""FlexAttention: attention whose scores and mask are functions of (batch, head, query index, key index).

Paper: https://arxiv.org/abs/2412.05496. On GPUs with workgroup memory functions that can be traced are part of the kernels
(ops/neural/attention_functions.py), and only gradients of what they read have scores in memory. Elsewhere they are mapped over
all indices with `vmap`; the scores are materialized, as in PyTorch without `torch.compile`, and gradients flow through
everything, captured tensors included.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict

import tabtorch as torch
from tabtorch.autograd import engine
from tabtorch.base.thread_state import STATE
from tabtorch.nn.attention._block_mask import (
    _DEFAULT_SPARSE_BLOCK_SIZE,  # noqa: F401  transformers asks for it here
    _LARGE_SPARSE_BLOCK_SIZE,
    BlockMask,
    _allowed,
    _lines,
    _over_all,
    _sliced_mask_mod_error,
    _table,
    and_masks,
    create_block_mask,
    create_mask,
    noop_mask,
    or_masks,
)
from tabtorch.ops.neural.attention import attention, served
from tabtorch.ops.neural.attention_functions import trace

__all__ = [
    "AuxOutput",
    "AuxRequest",
    "BlockMask",
    "FlexKernelOptions",
    "and_masks",
    "create_block_mask",
    "create_mask",
    "flex_attention",
    "noop_mask",
    "or_masks",
]

_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = (
    False  # in PyTorch: runs the unfused form without its warning; here there is one form
)

Tensor: Any = torch.Tensor  # its operators are found at run time

for _f in (BlockMask, and_masks, create_block_mask, create_mask, noop_mask, or_masks):
    _f.__module__ = __name__  # the place where PyTorch has them


class FlexKernelOptions(TypedDict, total=False):
    """Options of PyTorch's Triton kernels. They are accepted, and change nothing here."""

    num_warps: int
    num_stages: int
    BLOCK_M: int
    BLOCK_N: int
    PRESCALE_QK: bool
    ROWS_GUARANTEED_SAFE: bool
    BLOCKS_ARE_CONTIGUOUS: bool
    WRITE_DQ: bool
    FORCE_USE_FLEX_ATTENTION: bool
    USE_TMA: bool
    BACKEND: str


class AuxRequest(NamedTuple):
    """Which results `flex_attention` gives besides the output."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was asked for: the scores' log-sum-exp and maxima, both (B, Hq, L)."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def _check(query: Tensor, key: Tensor, value: Tensor, block_mask: BlockMask | None, enable_gqa: bool) -> None:
    if not query.dtype == key.dtype == value.dtype:
        raise ValueError(
            "Expected query, key, and value to have the same dtype, "
            f"but got query.dtype: {query.dtype}, key.dtype: {key.dtype}, and value.dtype: {value.dtype} instead."
        )
    if query.size(-1) != key.size(-1):
        raise ValueError(
            "Expect query and key/value to have the same embedding dimension "
            f"but got E={query.size(-1)} and E={key.size(-1)}."
        )
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise NotImplementedError("NYI: query, key, and value must be 4D tensors")
    hq, hkv = query.size(1), key.size(1)
    if not enable_gqa and hq != hkv:
        raise ValueError(
            "Expect query and key/value to have the same number of heads "
            f"but got Hq={hq} and Hkv={hkv}. Try setting enable_gqa=True for GQA."
        )
    if hq % hkv:
        raise ValueError(
            f"Expect number of query heads to be a multiple of kv heads for GQA but got Hq={hq} and Hkv={hkv}."
        )
    if query.size(0) != key.size(0) and (block_mask is None or block_mask.kv_num_blocks.size(0) != query.size(0)):
        raise ValueError(
            "Expect query and key/value to have the same batch size, or "
            + (
                f"non-none block_mask, but got block_mask=None, Bq={query.size(0)}, and Bkv={key.size(0)}."
                if block_mask is None
                else "block_mask and query to have the same batch size, but got "
                f"Bq={query.size(0)}, Bkv={key.size(0)}, B_block_mask={block_mask.kv_num_blocks.size(0)}."
            )
        )
    if block_mask is None:
        return
    if block_mask.mask_mod is _sliced_mask_mod_error:
        raise RuntimeError("Cannot use mask_mod from a sliced BlockMask")
    if block_mask.BLOCK_SIZE != (_LARGE_SPARSE_BLOCK_SIZE, _LARGE_SPARSE_BLOCK_SIZE):
        lengths, made_for = (query.size(-2), key.size(-2)), block_mask.shape[-2:]
        if lengths != made_for:
            smaller = lengths[0] > made_for[0] or lengths[1] > made_for[1]
            raise ValueError(
                f"block_mask was created for block_mask.shape={block_mask.shape} but got q_len={lengths[0]} and "
                f"kv_len={lengths[1]}. As the block mask was created for a {'smaller' if smaller else 'larger'} length than "
                "you're using it for, you "
                + (
                    "likely need to create a new block mask."
                    if smaller
                    else "can either 1. create a new block mask with the correct length, or 2. 'adjust' the existing block "
                    "mask to the correct length by calling block_mask._adjust(q_len, kv_len). This essentially 'crops' the "
                    "block mask to the upper left corner, which does not work for all mask_mods!"
                )
            )
    if query.device != block_mask.kv_num_blocks.device:
        raise RuntimeError(
            "Expect q/k/v and block_mask to be on the same device "
            f"but got {query.device} and {block_mask.kv_num_blocks.device}."
        )


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor] | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: FlexKernelOptions | None = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """softmax(score_mod(Q Kᵀ · scale) where the mask lets through) V. query (B, Hq, L, E), key (B, Hkv, S, E), value (B, Hkv, S, Ev).

    score_mod: (score, b, h, q_idx, kv_idx) -> score, on 0-dimensional tensors. block_mask: of `create_block_mask`.
    scale: 1/√E. enable_gqa: Hq may be a multiple of Hkv. return_aux: gives (output, AuxOutput); return_lse, its older form:
    (output, lse). Else the output alone, (B, Hq, L, Ev). A row in which nothing takes part is 0.
    """
    _check(query, key, value, block_mask, enable_gqa)
    if return_lse and return_aux is not None:
        raise ValueError(
            "Cannot specify both return_lse and return_aux. "
            "return_lse is deprecated, please use return_aux=AuxRequest(lse=True) instead."
        )
    if return_lse:
        warnings.warn(
            "return_lse is deprecated and will be removed in v2.10. Please use return_aux=AuxRequest(lse=True) instead.",
            FutureWarning,
            stacklevel=2,
        )
    if scale is None:
        scale = 1.0 / math.sqrt(query.size(-1))
    want = return_aux or AuxRequest(lse=return_lse)
    results = None if want.max_scores else _by_kernels(query, key, value, score_mod, block_mask, scale, want.lse)
    out, lse, top = results or _by_formula(query, key, value, score_mod, block_mask, scale, want)
    if return_aux is not None:
        return out, AuxOutput(lse, top)
    return (out, lse) if return_lse else out


def _for_heads(t: Tensor, query: Tensor) -> Tensor:
    """Keys or values with each head as often as it has heads of queries."""
    groups = query.size(1) // t.size(1)
    return t if groups == 1 else t.repeat_interleave(groups, 1)


def _scores(query: Tensor, key: Tensor, scale: float) -> Tensor:
    """Q Kᵀ · scale, (B, Hq, L, S), float32 or float64."""
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    return query.to(wide) @ _for_heads(key, query).to(wide).transpose(-2, -1) * scale


def _by_formula(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Any,
    block_mask: BlockMask | None,
    scale: float,
    want: AuxRequest,
) -> Any:
    """The result, and what is wanted besides."""
    scores = _scores(query, key, scale)
    value = _for_heads(value, query)
    wide = scores.dtype
    lines = _lines(query.device, *scores.shape)
    if score_mod is not None:
        scores = _over_all(score_mod, 0)(scores, *lines).to(wide)
    allowed = None if block_mask is None else _allowed(block_mask, lines)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -math.inf)
    empty = (scores == -math.inf).all(-1, keepdim=True)
    weights = torch.softmax(scores.masked_fill(empty, 0.0), -1).masked_fill(empty, 0.0)
    out = weights.to(query.dtype) @ value
    lse = scores.masked_fill(empty, 0.0).logsumexp(-1).masked_fill(empty.squeeze(-1), -math.inf) if want.lse else None
    return out, lse, scores.amax(-1) if want.max_scores else None


def _by_kernels(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Any,
    block_mask: BlockMask | None,
    scale: float,
    want_lse: bool,
) -> Any:
    """The same by the kernels of attention, with the functions in them; None where they cannot."""
    if not served(query, key, value, None, True):
        return None
    sizes = (*query.shape[:-1], key.size(-2))
    blocks = None
    if block_mask is not None and block_mask.BLOCK_SIZE != (_LARGE_SPARSE_BLOCK_SIZE, _LARGE_SPARSE_BLOCK_SIZE):
        table, size = _table(block_mask), block_mask.BLOCK_SIZE
        full = (*sizes[:2], *table.shape[-2:])
        fits = all(n in (1, all_of_them) for n, all_of_them in zip(reversed(table.shape), reversed(full)))
        reached = all(n * step >= length for n, step, length in zip(table.shape[-2:], size, sizes[2:], strict=True))
        if not fits or not reached or table.device != query.device:
            return None
        blocks = table.expand(full), size
    mask_mod = None if block_mask is None or block_mask.mask_mod is noop_mask else block_mask.mask_mod
    gradient = STATE.grad and (query.requires_grad or key.requires_grad or value.requires_grad)
    traced = trace(sizes, query._tab_meta.device, score_mod, mask_mod, gradient)
    if traced is None:
        return None

    read = {id(t._tab_storage.node) for t in traced.captured}

    def check_unchanged() -> None:
        """Before the functions are called again: they must read what they have read."""
        now = trace(sizes, query._tab_meta.device, score_mod, mask_mod, False)
        if now is not None and any(id(t._tab_storage.node) not in read for t in now.captured):
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: a tensor "
                "that score_mod or mask_mod reads"
            )

    def of_read(d: Tensor, q: Tensor, k: Tensor) -> Any:
        """Gradients of what `score_mod` reads; these alone are computed of scores in memory."""
        check_unchanged()
        scores = _scores(q, k, scale)
        with torch.enable_grad():
            out = _over_all(score_mod, 0)(scores, *_lines(q.device, *scores.shape))
        return engine.run([out._tab_grad_fn], [d.to(out.dtype)], True, False, traced.wanted, accumulate=False, cut=True)

    def gradients(g: Any, q: Tensor, k: Tensor, v: Tensor, _: None) -> Any:
        """To be differentiated again."""
        check_unchanged()

        def again(q: Tensor, k: Tensor, v: Tensor) -> Any:
            out, lse, _ = _by_formula(q, k, v, score_mod, block_mask, scale, AuxRequest(lse=want_lse))
            return (out, lse) if want_lse else out

        out, back = torch.func.vjp(again, q, k, v)
        if want_lse:
            g = tuple(torch.zeros_like(x) if d is None else d for d, x in zip(g, out, strict=True))
        found = *back(g), None
        if traced.wanted:
            create = STATE.grad
            with torch.enable_grad():  # as far as to q, k and v, which may be made of the same
                xs = [x.view_as(x) for x in (q, k, v)]
                out = again(*xs)
            results, given = (out, g) if want_lse else ([out], [g])
            ends = [*traced.wanted, *[x for x in xs if x.requires_grad]]
            of_all = engine.run(
                [x._tab_grad_fn for x in results], given, True, create, ends, accumulate=False, cut=True
            )
            found += tuple(of_all[: len(traced.wanted)])
        return found

    found = attention(query, key, value, None, False, scale, gradients, traced, blocks, want_lse, of_read=of_read)
    if not want_lse:
        return found, None, None
    out, lse = found
    return out, torch.where(lse == math.inf, -math.inf, lse), None  # of a row in which nothing takes part
