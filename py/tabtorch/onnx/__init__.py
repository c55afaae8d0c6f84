"""`torch.onnx`, and `tabtorch.onnx.load`: models that are ONNX files.

`load(f)` gives an `nn.Module`, which runs, trains and compiles; `export` writes one of a model of ours.
See https://onnx.ai/onnx/operators for the operators.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tabtorch.onnx.model import Model, load, load_async

if TYPE_CHECKING:
    from tabtorch.onnx.exporting import ONNXProgram, export

__all__ = ["Model", "ONNXProgram", "export", "is_in_onnx_export", "load", "load_async"]


def is_in_onnx_export() -> bool:
    """False: code is not run in another way while it is exported."""
    return False


def __getattr__(name: str) -> Any:
    """What exports is loaded when it is asked for."""
    if name in ("export", "ONNXProgram"):
        return getattr(importlib.import_module("tabtorch.onnx.exporting"), name)
    if name == "errors":
        return importlib.import_module("tabtorch.onnx.exporting.errors")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
