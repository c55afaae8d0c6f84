"""`torch.backends`: what scripts ask of the libraries below PyTorch."""

from __future__ import annotations

from . import cuda, cudnn, mps

__all__ = ["cuda", "cudnn", "mps"]
