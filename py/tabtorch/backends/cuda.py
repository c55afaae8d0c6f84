"""`torch.backends.cuda`: everything is computed in float32, the choice of attention kernel is the engine's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Matmul:
    """Permissions that scripts may give; float32 is what is computed either way."""

    allow_tf32 = False
    allow_fp16_reduced_precision_reduction = True
    allow_bf16_reduced_precision_reduction = True
    fp32_precision = "none"


matmul = _Matmul()


def is_built() -> bool:
    """Whether "cuda" means something here: after `install()`."""
    from ..cuda import is_available

    return is_available()


def flash_sdp_enabled() -> bool:
    return False


def mem_efficient_sdp_enabled() -> bool:
    return False


def math_sdp_enabled() -> bool:
    return True


def enable_flash_sdp(enabled: bool) -> None:
    """Permission for a kernel that is not there: attention is computed as its formula, fused by the engine."""


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Permission for a kernel that is not there: attention is computed as its formula, fused by the engine."""


def enable_math_sdp(enabled: bool) -> None:
    """RuntimeError for False: there is no other way to compute it."""
    if not enabled:
        raise RuntimeError("No viable backend for scaled_dot_product_attention was found.")


@contextmanager
def sdp_kernel(
    enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True, **kw: Any
) -> Iterator[None]:
    enable_math_sdp(enable_math)
    yield
