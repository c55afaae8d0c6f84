"""`torch.backends.cuda`: what is computed in float32 stays so, but where `torch.set_float32_matmul_precision` says; the choice of
attention kernel is the engine's."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tabtorch import _lazy


class _Matmul:
    """Permissions that scripts may give; `allow_tf32` is `torch.set_float32_matmul_precision("high")`, of the others nothing is made
    use of. AttributeError for names that are none."""

    _names: dict[str, Any] = {
        "allow_tf32": False,
        "allow_fp16_reduced_precision_reduction": True,
        "allow_bf16_reduced_precision_reduction": True,
        "allow_fp16_accumulation": False,
        "fp32_precision": "none",
    }

    def __init__(self) -> None:
        self.__dict__.update(self._names)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._names:
            raise AttributeError("Unknown attribute " + name)
        self.__dict__[name] = value
        if name == "allow_tf32":
            _lazy.torch.set_float32_matmul_precision("high" if value else "highest")


class _PlanCache:
    """There is no cuFFT, so no plans of it are kept."""

    size = max_size = 0

    def clear(self) -> None:
        """Nothing to clear."""

    def __getitem__(self, device: Any) -> _PlanCache:
        return self


matmul = _Matmul()
cufft_plan_cache = _PlanCache()


def is_built() -> bool:
    """Whether "cuda" means something here: after `install()`."""
    return _lazy.cuda.is_available()


# ---- permissions for kinds of attention kernels: there is one, which takes what is permitted as leave to run

_sdp = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}


def _permission(name: str) -> None:
    def is_enabled() -> bool:
        return _sdp[name]

    def enable(enabled: bool) -> None:
        if not enabled and not any(on for n, on in _sdp.items() if n != name):
            raise RuntimeError("No viable backend for scaled_dot_product_attention was found.")
        _sdp[name] = bool(enabled)

    for f, public, doc in (
        (is_enabled, f"{name}_sdp_enabled", "What `enable_{}_sdp` has set."),
        (enable, f"enable_{name}_sdp", "Permits this kind of kernel. RuntimeError when none would be left."),
    ):
        f.__name__ = f.__qualname__ = public
        f.__doc__ = doc.format(name)
        globals()[public] = f


for _name in _sdp:
    _permission(_name)


def set_sdp(**enabled: bool) -> dict[str, bool]:
    """Sets all permissions at once; gives those before. RuntimeError when none is left."""
    if not any(enabled.values()):
        raise RuntimeError("No viable backend for scaled_dot_product_attention was found.")
    before = dict(_sdp)
    _sdp.update(enabled)
    return before


_reduced = False


def fp16_bf16_reduction_math_sdp_allowed() -> bool:
    """What `allow_fp16_bf16_reduction_math_sdp` has set; sums are made in float32 either way."""
    return _reduced


def allow_fp16_bf16_reduction_math_sdp(enabled: bool) -> None:
    """Permission for sums in 16 bits, which are not made use of."""
    global _reduced
    _reduced = bool(enabled)


def is_flash_attention_available() -> bool:
    """False: attention is a fused formula."""
    return False


def preferred_linalg_library(backend: Any = None) -> str:
    """ "default": the engine's kernels, or NumPy's LAPACK on the host."""
    return "default"


preferred_blas_library = preferred_linalg_library


@contextmanager
def sdp_kernel(
    enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True, enable_cudnn: bool = True
) -> Iterator[None]:
    """Permissions for a with block; deprecated for `torch.nn.attention.sdpa_kernel`."""
    warnings.warn(
        "`torch.backends.cuda.sdp_kernel()` is deprecated. In the future, this context manager will be removed. "
        "Please see `torch.nn.attention.sdpa_kernel()` for the new context manager, with updated signature.",
        FutureWarning,
        stacklevel=3,
    )
    before = set_sdp(flash=enable_flash, math=enable_math, mem_efficient=enable_mem_efficient, cudnn=enable_cudnn)
    try:
        yield
    finally:
        _sdp.update(before)
