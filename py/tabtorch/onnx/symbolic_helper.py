"""`torch.onnx.symbolic_helper`, and `symbolic_opset9` to `symbolic_opset20`: what functions for PyTorch's older exporter are
written with.

They can be written, and registered; they are never called, as `torch.onnx.export` is another here. Whatever of these modules such
a function would use is a RuntimeError when it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

__all__ = ["parse_args"]


def parse_args(*arg_descriptors: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that says what the arguments of such a function are; the function stays as it is."""

    def decorator(fn: Callable[..., Any]) -> Callable[..., Any]:
        fn._arg_descriptors = arg_descriptors  # type: ignore[attr-defined]
        return fn

    return decorator


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)

    def unavailable(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            f"torch.onnx: {name!r} is of PyTorch's older exporter (TorchScript), which is not here; see torch.onnx.export"
        )

    unavailable.__name__ = name
    return unavailable
