"""`torch.utils._python_dispatch`: modes that see the calls of ATen's operators. What they see is said in tabtorch.dispatching."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tabtorch import dispatching
from tabtorch.core.tensor import Tensor
from tabtorch.interception.operator_modes import STACK

__all__ = [
    "BaseTorchDispatchMode",
    "TorchDispatchMode",
    "is_in_torch_dispatch_mode",
    "is_traceable_wrapper_subclass",
    "return_and_correct_aliasing",
]


class TorchDispatchMode:
    """Within `with Mode():` every call of an ATen operator goes to `__torch_dispatch__(func, types, args, kwargs)` of the mode.

    What is called in there goes to the next mode out, or runs: `func(*args, **kwargs)` is the operator itself.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Any:
        dispatching.push(self)
        return self

    def __exit__(self, *exc: Any) -> None:
        dispatching.pop()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        import warnings

        warnings.warn("`Mode.push()` is no longer necessary and can be replaced with just `with Mode()`", stacklevel=2)
        return cls(*args, **kwargs)

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Whether it is one of PyTorch's own."""
        return False


class BaseTorchDispatchMode(TorchDispatchMode):
    """Calls the operator."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def is_in_torch_dispatch_mode(include_infra_modes: bool = True) -> bool:
    """Whether a mode is entered."""
    return bool(STACK.modes)


def _get_current_dispatch_mode() -> Any:
    return STACK.modes[-1] if STACK.modes else None


def _get_current_dispatch_mode_stack() -> list[Any]:
    return list(STACK.modes)


@contextlib.contextmanager
def _disable_current_modes() -> Iterator[list[Any]]:
    """Within it, no mode sees anything."""
    modes = [dispatching.pop() for _ in list(STACK.modes)]
    try:
        yield modes
    finally:
        for mode in reversed(modes):
            dispatching.push(mode)


@contextlib.contextmanager
def _pop_mode_temporarily(k: Any = None) -> Iterator[Any]:
    mode = dispatching.pop()
    try:
        yield mode
    finally:
        dispatching.push(mode)


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """Whether it is a tensor that says of which tensors it is made (`__tensor_flatten__`, `__tensor_unflatten__`)."""
    return (
        isinstance(t, Tensor)
        and type(t) is not Tensor
        and hasattr(t, "__tensor_flatten__")
        and hasattr(t, "__tensor_unflatten__")
    )


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    """The same of a class."""
    return (
        issubclass(t, Tensor)
        and t is not Tensor
        and hasattr(t, "__tensor_flatten__")
        and hasattr(t, "__tensor_unflatten__")
    )


def return_and_correct_aliasing(func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """`out`; of an operator that writes to its first argument, that argument."""
    name = getattr(func, "_name", "")
    if name.endswith("_") and not name.endswith("__"):
        return args[0]
    return kwargs["out"] if kwargs and kwargs.get("out") is not None else out
