"""`torch.nn.attention.bias`: causal masks for `scaled_dot_product_attention` that need not be written out."""

from __future__ import annotations

import warnings
from enum import IntEnum
from typing import Any

import tabtorch as torch

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(IntEnum):
    """In which corner the triangle of a mask that is not square begins."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias(torch.Tensor):
    """A causal mask of (seq_len_q, seq_len_kv), for the `attn_mask` of `scaled_dot_product_attention`.

    Warns where rows would be without any key: LOWER_RIGHT with seq_len_q > seq_len_kv gives NaN.
    """

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> Any:
        return super().__new__(cls)

    def __init__(self, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> None:
        if not isinstance(variant, CausalVariant):
            raise AssertionError(f"variant must be a CausalVariant, got {type(variant).__name__}")
        self.variant = variant
        self.seq_len_q = seq_len_q
        self.seq_len_kv = seq_len_kv
        if seq_len_q > seq_len_kv and variant == CausalVariant.LOWER_RIGHT:
            warnings.warn(
                "Lower right causal bias will produce NaNs in the output when seq_len_q > seq_len_kv!", stacklevel=2
            )

    def _materialize(self, device: Any = None) -> torch.Tensor:
        """The mask written out; True: takes part."""
        n, m = self.seq_len_q, self.seq_len_kv
        diagonal = 0 if self.variant == CausalVariant.UPPER_LEFT else m - n
        return torch.ones(n, m, device=device or "cpu", dtype=torch.bool).tril(diagonal)

    @staticmethod
    def _dispatch(query: Any, key: Any, value: Any, attn_mask: Any, *rest: Any, **options: Any) -> Any:
        names = ("dropout_p", "is_causal", "scale", "enable_gqa")
        options.update(zip(names, rest))
        if options.pop("is_causal", False):
            raise ValueError("CausalBias should not be used with causal=True")
        attention = torch.nn.functional.scaled_dot_product_attention
        if attn_mask.seq_len_q == attn_mask.seq_len_kv or attn_mask.variant == CausalVariant.UPPER_LEFT:
            return attention(query, key, value, attn_mask=None, is_causal=True, **options)
        return attention(query, key, value, attn_mask=attn_mask._materialize(query.device), **options)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.nn.functional.scaled_dot_product_attention:
            return cls._dispatch(*args, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs)

    def __repr__(self, *, tensor_contents: str | None = None) -> str:  # type: ignore[override]
        return repr(self._materialize())


def causal_upper_left(*size: int) -> CausalBias:
    """The mask of `is_causal=True`: row i sees the keys up to i."""
    if len(size) != 2:
        raise AssertionError("causal_upper_left only supports 2D tensors")
    return CausalBias(CausalVariant.UPPER_LEFT, *size)


def causal_lower_right(*size: int) -> CausalBias:
    """The mask whose last row sees all keys: of queries that come last, as with a cache of keys."""
    if len(size) != 2:
        raise AssertionError("causal_lower_right only supports 2D tensors")
    return CausalBias(CausalVariant.LOWER_RIGHT, *size)
