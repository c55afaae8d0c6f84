"""`torch.ao.quantization`: the marks that models carry to be quantized one day. They run as they do in PyTorch before that day.

There are no quantized tensors here, so whatever would make some is a NotImplementedError when it is called. Weights of few bits are
in `tabtorch.packed`, and behind the names of torchao.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from tabtorch.core.tensor import Tensor
from tabtorch.nn.modules.module import Module

__all__ = ["DeQuantStub", "QuantStub", "QuantWrapper"]


class QuantStub(Module):
    """Where values become quantized; until the model is converted it gives what it gets."""

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Tensor) -> Tensor:
        """x"""
        return x


class DeQuantStub(QuantStub):
    """Where values become real numbers again; until the model is converted it gives what it gets."""


class QuantWrapper(Module):
    """A module between a `QuantStub` and a `DeQuantStub`."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        self.quant = QuantStub()
        self.dequant = DeQuantStub()
        self.add_module("module", module)
        self.train(module.training)

    def forward(self, X: Tensor) -> Tensor:
        """The module's result."""
        made: Tensor = self.dequant(self.module(self.quant(X)))
        return made


def __getattr__(name: str) -> Callable[..., NoReturn]:
    if name.startswith("__"):
        raise AttributeError(name)

    def unavailable(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"torch.ao.quantization.{name}: tabtorch has no quantized tensors; for weights of few bits see tabtorch.packed"
        )

    unavailable.__name__ = name
    return unavailable
