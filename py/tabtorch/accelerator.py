"""`torch.accelerator`: the device that scripts should use, whatever it is called."""

from __future__ import annotations

from typing import Any

from .cuda import (
    empty_cache,
    max_memory_allocated,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_peak_memory_stats,
    synchronize,
)
from .device import device, webgpu

__all__ = [
    "current_accelerator",
    "current_device_index",
    "device_count",
    "empty_cache",
    "is_available",
    "max_memory_allocated",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_peak_memory_stats",
    "set_device_index",
    "synchronize",
]


def is_available() -> bool:
    """Whether there is a GPU."""
    from .bridge import get_bridge

    return get_bridge().info.get("webgpu") is not None


def current_accelerator(check_available: bool = False) -> device | None:
    """The webgpu device; None without a GPU."""
    return device("webgpu") if is_available() else None


def device_count() -> int:
    return 1 if is_available() else 0


def current_device_index() -> int:
    """0: there is one."""
    return webgpu.index or 0


current_device_idx = current_device_index


def set_device_index(index: Any) -> None:
    """RuntimeError for any index but 0."""
    device("webgpu", index if isinstance(index, int) else device(index).index)


set_device_idx = set_device_index


def current_stream(d: Any = None) -> Any:
    from .cuda import current_stream as stream

    return stream(d)
