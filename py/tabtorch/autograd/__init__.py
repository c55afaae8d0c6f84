"""Automatic differentiation: the tape, the backward pass, custom functions, and the modes."""

from __future__ import annotations

import importlib
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd import grad_mode as mode
from tabtorch.autograd.grad_mode import (
    enable_grad,
    enforce_grad_layout_policy,
    inference_mode,
    no_grad,
    set_grad_enabled,
)
from tabtorch.base.lazy_namespace import whole

grad_mode = mode

__all__ = [
    "Function",
    "backward",
    "enable_grad",
    "enforce_grad_layout_policy",
    "function",
    "grad",
    "grad_mode",
    "inference_mode",
    "no_grad",
    "set_grad_enabled",
]
whole(__name__)


def __getattr__(name: str) -> Any:
    if name in ("backward", "grad"):
        return globals().setdefault(name, getattr(_lazy.engine, name))
    if name == "Function":
        return globals().setdefault(name, importlib.import_module(f"{__name__}.function").Function)
    if name in ("detect_anomaly", "set_detect_anomaly"):
        return getattr(_lazy.anomaly_mode, name)
    if name == "Variable":
        return _lazy.variable.Variable
    if name == "SavedTensor":
        return _lazy.saved_tensors.SavedTensor
    if name in ("anomaly_mode", "engine", "forward_ad", "function", "functional", "graph", "profiler", "variable"):
        return importlib.import_module(f"{__name__}.{name}")
    if name in ("gradcheck", "gradgradcheck", "GradcheckError"):
        module = importlib.import_module(f"{__name__}.gradcheck")
        globals()["gradcheck"] = module.gradcheck  # the import has put the module there
        return getattr(module, name)
    raise AttributeError(f"module 'torch.autograd' has no attribute '{name}'")
