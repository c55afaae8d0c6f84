"""`torch.utils._triton`: libraries ask whether Triton's kernels can be compiled. They cannot: kernels here are WGSL's."""

from __future__ import annotations

__all__ = [
    "has_triton",
    "has_triton_experimental_host_tma",
    "has_triton_package",
    "has_triton_stable_tma_api",
    "has_triton_tma",
    "has_triton_tma_device",
]


def has_triton_package() -> bool:
    """False: should there be one, it cannot use these tensors."""
    return False


has_triton = has_triton_tma = has_triton_tma_device = has_triton_package
has_triton_experimental_host_tma = has_triton_stable_tma_api = has_triton_package
