"""`torch.sparse._triton_ops_meta`: how Triton's kernels of block-sparse products are tuned. There are none here: RuntimeError."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["get_meta", "minimize", "update"]


def get_meta(op: str, *args: Any, **kwargs: Any) -> NoReturn:
    """RuntimeError."""
    raise RuntimeError(f"{op}: tabtorch has no Triton kernels to tune")


def minimize(target_func: Any, initial_parameters: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """RuntimeError."""
    raise RuntimeError("tabtorch has no Triton kernels to tune")


def update(op: str, *args: Any, **kwargs: Any) -> NoReturn:
    """RuntimeError."""
    raise RuntimeError(f"{op}: tabtorch has no Triton kernels to tune")
