"""`torch.mps`: not available; the GPU of a Mac is reached through WebGPU, as the device "webgpu"."""

from __future__ import annotations

__all__ = ["device_count", "empty_cache", "is_available", "manual_seed"]


def is_available() -> bool:
    return False


def device_count() -> int:
    return 0


def empty_cache() -> None:
    """There is nothing to empty."""


def manual_seed(seed: int) -> None:
    """There is no generator to seed; `torch.manual_seed` seeds them all."""
