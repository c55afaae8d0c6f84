"""`torch.onnx`: models are not exported here. `is_in_onnx_export()` says so to code that asks; `export` is a RuntimeError."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["export", "is_in_onnx_export"]


def is_in_onnx_export() -> bool:
    """False."""
    return False


def export(model: Any, args: Any = (), f: Any = None, **kwargs: Any) -> NoReturn:
    """RuntimeError: save the weights (torch.save, or tabtorch.safetensors), and export in PyTorch."""
    raise RuntimeError("torch.onnx.export is not available in tabtorch: save the weights, and export them with PyTorch")
