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


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Any, opset_version: int) -> None:
    """Takes note of how PyTorch's older exporter writes an operator. That of tabtorch has operators of ONNX only, and says at an
    export which one it lacks."""
    if "::" not in symbolic_name:
        raise _errors().OnnxExporterError(
            f"Failed to register operator {symbolic_name}. The symbolic name must match the format domain::name, and should "
            "start with a letter and contain only alphanumerical characters"
        )
    symbolics[symbolic_name, opset_version] = symbolic_fn


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Undoes `register_custom_op_symbolic`."""
    symbolics.pop((symbolic_name, opset_version), None)


#: what `register_custom_op_symbolic` was given
symbolics: dict[tuple[str, int], Any] = {}


def _errors() -> Any:
    return importlib.import_module("tabtorch.onnx.exporting.errors")


def __getattr__(name: str) -> Any:
    """What exports is loaded when it is asked for."""
    if name in ("export", "ONNXProgram"):
        return getattr(importlib.import_module("tabtorch.onnx.exporting"), name)
    if name == "errors":
        return _errors()
    if name in ("symbolic_helper", "_legacy") or name.startswith("symbolic_opset"):
        return importlib.import_module("tabtorch.onnx.symbolic_helper")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
