"""PyTorch's composites that are something else here: what makes numbers of float64 on the way, where the device has none, has
numbers of float32; and attention is one kernel, where there is one for it."""

from __future__ import annotations

from typing import Any

import torch

from tabtorch.backend.out_forms import resize_out
from tabtorch.backend.tensors import NAME, OURS, place
from tabtorch.base.dtypes import float64
from tabtorch.engine.view import Meta, contiguous_meta
from tabtorch.ops.neural.attention import fits

aten = torch.ops.aten
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd

_RANKS_OUT = {
    "out": "default",
    "out_tol_tensor": "tol_tensor",
    "atol_rtol_float_out": "atol_rtol_float",
    "atol_rtol_tensor_out": "atol_rtol_tensor",
}


def _tolerances(x: torch.Tensor, atol: float | None, rtol: float | None) -> dict[str, torch.Tensor]:
    """The defaults of PyTorch: no absolute one; a relative one, if there is no absolute, by the type and the larger side."""
    absolute = 0.0 if atol is None else atol
    if rtol is None:
        rtol = 0.0 if absolute > 0 else torch.finfo(x.dtype).eps * max(x.shape[-2:])
    dtype = x.abs().dtype if x.is_complex() else x.dtype
    return {
        "atol": torch.full((), absolute, dtype=dtype, device=x.device),
        "rtol": torch.full((), rtol, dtype=dtype, device=x.device),
    }


def _by_tolerances(op: Any, to: Any) -> Any:
    def kernel(x: torch.Tensor, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Any:
        if not place().lacks(float64):
            return op._op_dk(_COMPOSITE, x, atol=atol, rtol=rtol, hermitian=hermitian)
        return to(x, **_tolerances(x, atol, rtol), hermitian=hermitian)

    return kernel


def _by_one(op: Any, to: Any, name: str) -> Any:
    """The older form. name: what its one tolerance is."""

    def kernel(x: torch.Tensor, tolerance: float, hermitian: bool = False) -> Any:
        if not place().lacks(float64):
            return op._op_dk(_COMPOSITE, x, tolerance, hermitian)
        both = {"atol": 0.0, "rtol": 0.0, name: tolerance}
        return to(x, **_tolerances(x, **both), hermitian=hermitian)

    return kernel


def _by_tensors(op: Any) -> Any:
    """The form that takes tensors, one of which, or both, may be missing."""

    def kernel(x: torch.Tensor, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Any:
        if place().lacks(float64) and (atol is None or rtol is None):
            defaults = _tolerances(x, None, None)
            if atol is not None:
                defaults["rtol"] = torch.where(atol > 0, torch.zeros_like(defaults["rtol"]), defaults["rtol"])
            atol, rtol = (defaults["atol"] if atol is None else atol), (defaults["rtol"] if rtol is None else rtol)
        return op._op_dk(_COMPOSITE, x, atol=atol, rtol=rtol, hermitian=hermitian)

    return kernel


def _renorm(x: torch.Tensor, p: Any, dim: int, maxnorm: Any) -> torch.Tensor:
    """The slices along `dim` whose norm is larger than `maxnorm`, scaled down to it. PyTorch's gradient has float64 numbers."""
    aten.renorm(torch.empty_like(x, device="meta"), p, dim, maxnorm)  # says what is wrong with the arguments
    others = [d for d in range(x.dim()) if d != dim % x.dim()]
    wide = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else None
    norm = torch.linalg.vector_norm(x, p, others, keepdim=True, dtype=wide)
    factor = torch.where(norm > maxnorm, maxnorm / (norm + 1e-7), torch.ones_like(norm))
    return x * factor.to(x.dtype)


def _to_out(op: Any) -> Any:
    """An operation with `out=`, of integers, by the form without."""

    def kernel(*args: Any, out: torch.Tensor, **kw: Any) -> torch.Tensor:
        r = op(*args, **kw)
        if not torch.can_cast(r.dtype, out.dtype):
            raise RuntimeError(
                f"Expected result to be safely castable from Long dtype, but got result with dtype {out.dtype}"
            )
        resize_out(out, tuple(r.shape))
        return out.copy_(r)

    return kernel


def _seen(t: torch.Tensor) -> Meta | None:
    """How a tensor looks to us, at the sizes it has now."""
    sizes = [n if isinstance(n, int) else n.node.hint for n in t.shape]
    if None in sizes or t.device.type != NAME or t.dtype not in OURS:
        return None
    return contiguous_meta(tuple(sizes), OURS[t.dtype], place())


def _one_kernel(query: Any, key: Any, value: Any, mask: Any, dropout: float, causal: bool, grouped: bool) -> bool:
    """Whether attention is a kernel that has a gradient of its own, which in turn has none, as on other devices."""
    if dropout or not torch._C._get_flash_sdp_enabled() or torch.autograd.forward_ad._current_level >= 0:
        return False
    if query.dim() != 4 or not query.dtype == key.dtype == value.dtype or (mask is not None and causal):
        return False
    if mask is not None and (mask.requires_grad or mask.dtype not in (torch.bool, query.dtype)):
        return False
    q, k, v, m = _seen(query), _seen(key), _seen(value), None if mask is None else _seen(mask)
    return (
        q is not None
        and k is not None
        and v is not None
        and (m is None) is (mask is None)
        and fits(
            q,
            k,
            v,
            m,
            grouped,
            torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad),
        )
    )


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    if _one_kernel(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa):
        # of PyTorch's forms of a fused attention the one that has no dropout, and so no seeds to hand on
        fused = aten._scaled_dot_product_flash_attention_for_cpu
        return fused(query, key, value, 0.0, is_causal, attn_mask=attn_mask, scale=scale)[0]
    op = aten.scaled_dot_product_attention.default
    more = {"scale": scale, "enable_gqa": enable_gqa}
    return op._op_dk(_COMPOSITE, query, key, value, attn_mask, dropout_p, is_causal, **more)


def register() -> list[Any]:
    """Registers them, above autograd, which records their parts. Returns what has to be kept."""
    kept = []
    for key in ("AutogradPrivateUse1", "PrivateUse1"):
        library = torch._C._dispatch_library("IMPL", "aten", key, "", 0)
        for name, one in (("linalg_pinv", "rtol"), ("linalg_matrix_rank", "atol")):
            packet = getattr(aten, name)
            to = packet.atol_rtol_tensor
            library.impl(f"{name}.atol_rtol_float", key, _by_tolerances(packet.atol_rtol_float, to))
            library.impl(name, key, _by_one(packet.default, to, one))
        library.impl("linalg_matrix_rank.atol_rtol_tensor", key, _by_tensors(aten.linalg_matrix_rank.atol_rtol_tensor))
        rank = aten.linalg_matrix_rank
        for overload, plain in _RANKS_OUT.items():
            library.impl(f"linalg_matrix_rank.{overload}", key, _to_out(getattr(rank, plain)))
        library.impl("scaled_dot_product_attention", key, _attention)
        kept.append(library)
    above = torch._C._dispatch_library("IMPL", "aten", "AutogradPrivateUse1", "", 0)
    above.impl("renorm", "AutogradPrivateUse1", _renorm)
    return [*kept, above]
