"""`torch.functional`: those functions of `torch` that PyTorch writes in Python."""

from __future__ import annotations

from typing import Any

from tabtorch import _lazy

__all__ = (
    "atleast_1d atleast_2d atleast_3d block_diag broadcast_shapes broadcast_tensors cartesian_prod cdist chain_matmul einsum "
    "istft lu meshgrid norm pca_lowrank split stft svd_lowrank tensordot unique unique_consecutive unravel_index"
).split()


def __getattr__(name: str) -> Any:
    if name == "F":
        return _lazy.torch.nn.functional
    if name in __all__ or name == "Tensor":
        return getattr(_lazy.torch, name)
    raise AttributeError(f"module 'torch.functional' has no attribute '{name}'")
