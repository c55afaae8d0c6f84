"""`torch.autograd.Variable` of old programs: today's tensors are all variables."""

from __future__ import annotations

import warnings
from typing import Any

from tabtorch import _lazy
from tabtorch.core.tensor import Tensor


class _ExecutionEngine:
    """What of PyTorch's engine other packages ask."""

    @staticmethod
    def queue_callback(callback: Any) -> None:
        """Calls it when the backward pass that is running is done. RuntimeError if none is."""
        _lazy.engine.queue_callback(callback)


class _VariableMeta(type):
    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, Tensor)


class Variable(metaclass=_VariableMeta):
    """`Variable(t)` is an alias of the tensor `t`, outside of the graph. TypeError for what is no tensor."""

    __module__ = "torch.autograd.variable"
    _execution_engine = _ExecutionEngine()

    def __new__(cls, data: Any = None, requires_grad: bool | None = None, volatile: bool | None = None) -> Any:
        if data is None:
            empty: Any = _lazy.registry.function("empty")
            data = empty(0)
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        if volatile:
            warnings.warn(
                "volatile was removed (Variable.volatile is always False). Use torch.no_grad() instead.", stacklevel=2
            )
        t: Any = data.detach()
        return t.requires_grad_(bool(requires_grad))
