"""Automatic differentiation: the tape, the backward pass, custom functions, and the modes."""

from __future__ import annotations

from typing import Any

from tabtorch import _lazy
from tabtorch.autograd import function
from tabtorch.autograd import grad_mode as mode
from tabtorch.autograd.engine import backward, grad
from tabtorch.autograd.function import Function
from tabtorch.autograd.grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled

grad_mode = mode

__all__ = [
    "Function",
    "backward",
    "enable_grad",
    "function",
    "grad",
    "grad_mode",
    "inference_mode",
    "no_grad",
    "set_grad_enabled",
]


def __getattr__(name: str) -> Any:
    if name in ("detect_anomaly", "set_detect_anomaly"):
        return getattr(_lazy.anomaly_mode, name)
    if name == "Variable":
        return _lazy.variable.Variable
    if name == "SavedTensor":
        return _lazy.saved_tensors.SavedTensor
    if name in ("anomaly_mode", "forward_ad", "functional", "graph", "profiler", "variable"):
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    if name in ("gradcheck", "gradgradcheck", "GradcheckError"):
        import importlib

        module = importlib.import_module(f"{__name__}.gradcheck")
        globals()["gradcheck"] = module.gradcheck  # the import has put the module there
        return getattr(module, name)
    raise AttributeError(f"module 'torch.autograd' has no attribute '{name}'")
