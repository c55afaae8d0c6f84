"""Modules made without their initial values."""

from __future__ import annotations

import inspect
from typing import Any

from tabtorch import _lazy
from tabtorch.nn.modules.module import Module

__all__ = ["skip_init"]


def skip_init(module_cls: Any, *args: Any, **kwargs: Any) -> Any:
    """A module whose parameters are not initialized: made on the "meta" device, then given storages on ``device``."""
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    device = kwargs.pop("device", None)
    if device is None:
        device = _lazy.torch.get_default_device()
    return module_cls(*args, **kwargs, device="meta").to_empty(device=device)
