"""`torch.backends.mps`: the GPU of a Mac is reached through WebGPU, so there is no "mps" device."""

from __future__ import annotations


def is_available() -> bool:
    return False


def is_built() -> bool:
    return False
