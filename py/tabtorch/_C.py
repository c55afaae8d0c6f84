"""`torch._C`: in PyTorch the compiled module, of which other packages ask a few things. There is no more of it than this."""

from __future__ import annotations

from typing import Any

from tabtorch import _lazy
from tabtorch.base.device import device
from tabtorch.base.dtypes import dtype
from tabtorch.base.thread_state import STATE
from tabtorch.core.layout import layout, memory_format
from tabtorch.core.tensor import TensorMeta as _TensorMeta
from tabtorch.core.tensor import disabled_torch_function as _disabled_torch_function_impl
from tabtorch.engine.view import Size
from tabtorch.random import Generator

__all__ = [
    "Generator",
    "Size",
    "_TensorMeta",
    "_disabled_torch_function_impl",
    "device",
    "dtype",
    "layout",
    "memory_format",
]


def _get_tracing_state() -> None:
    """None: nothing is traced by `torch.jit.trace`."""


def _log_api_usage_once(event: str) -> None:
    """Nothing is logged, as in PyTorch unless a logger was put in."""


def _get_privateuse1_backend_name() -> str:
    """The type of a device that extends PyTorch: its name while there is none."""
    return "privateuseone"


def _are_functorch_transforms_active() -> bool:
    """Whether a function is being called inside of `torch.func`'s transforms."""
    return bool(STATE.nesting)


def __getattr__(name: str) -> Any:
    if name in ("DisableTorchFunction", "DisableTorchFunctionSubclass"):
        return getattr(_lazy.overrides, name)
    if name == "_nn":
        from types import SimpleNamespace

        return SimpleNamespace(_parse_to=_lazy._traverse._parse_to)
    raise AttributeError(f"module 'torch._C' has no attribute '{name}' (tabtorch has no compiled module)")
