"""`torch.accelerator`, where it asks the device in C++ for what no device written in Python can answer."""

from __future__ import annotations

import functools
from typing import Any

import torch

from tabtorch.backend import device
from tabtorch.backend.tensors import NAME


def _answered(module: Any, name: str, ours: Any) -> None:
    """`module.name` is `ours` while the accelerator is our device."""
    theirs = getattr(module, name, None)
    if theirs is None:
        return

    @functools.wraps(theirs)
    def function(*args: Any, **kw: Any) -> Any:
        where = torch._C._accelerator_getAccelerator()
        return (ours if where is not None and where.type == NAME else theirs)(*args, **kw)

    setattr(module, name, function)
    if getattr(torch.accelerator, name, None) is theirs:
        setattr(torch.accelerator, name, function)


def _memory_info(device_index: Any = None) -> Any:
    return device.mem_get_info(device_index)


def register() -> None:
    """Puts the answers of `torch.webgpu` in their places."""
    _answered(torch.accelerator, "synchronize", device.synchronize)
    memory = torch.accelerator.memory
    for name in (
        "empty_cache memory_stats memory_allocated max_memory_allocated memory_reserved max_memory_reserved "
        "reset_peak_memory_stats reset_accumulated_memory_stats"
    ).split():
        _answered(memory, name, getattr(device, name))
    _answered(memory, "get_memory_info", _memory_info)
