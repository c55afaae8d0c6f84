"""Automatic differentiation: the tape, the backward pass, custom functions, and the modes."""

from __future__ import annotations

from typing import Any

from . import function, mode
from .engine import backward, grad
from .function import Function
from .mode import enable_grad, inference_mode, no_grad, set_grad_enabled

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


class detect_anomaly:
    """Not there yet."""

    def __init__(self, check_nan: bool = True) -> None:
        raise NotImplementedError("torch.autograd.detect_anomaly is not there yet in tabtorch")


def set_detect_anomaly(mode: bool, check_nan: bool = True) -> None:
    """Only `False`, the present state, can be set yet."""
    if mode:
        raise NotImplementedError("torch.autograd.set_detect_anomaly(True) is not there yet in tabtorch")


def __getattr__(name: str) -> Any:
    if name == "Variable":
        from .variable import Variable

        return Variable
    if name == "variable":
        import importlib

        return importlib.import_module(__name__ + ".variable")
    if name in ("gradcheck", "gradgradcheck", "functional", "profiler", "forward_ad", "graph"):
        raise NotImplementedError(f"torch.autograd.{name} is not there yet in tabtorch")
    raise AttributeError(f"module 'torch.autograd' has no attribute '{name}'")
