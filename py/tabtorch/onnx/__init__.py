"""`torch.onnx`, and `tabtorch.onnx.load`: models that are ONNX files.

`load(f)` gives an `nn.Module`, which runs, trains and compiles. See https://onnx.ai/onnx/operators for the operators.
"""

from __future__ import annotations

from typing import Any

from tabtorch.onnx.model import Model, load, load_async

__all__ = ["Model", "export", "is_in_onnx_export", "load", "load_async"]


def is_in_onnx_export() -> bool:
    """False: code is not run in another way while it is exported."""
    return False


def export(model: Any, args: Any = (), f: Any = None, **kwargs: Any) -> Any:
    """RuntimeError: save the weights (torch.save, or tabtorch.safetensors), and export in PyTorch."""
    raise RuntimeError("torch.onnx.export is not available in tabtorch: save the weights, and export them with PyTorch")
