"""`torch.accelerator`: the device that scripts should use, whatever it is called."""

from __future__ import annotations

from typing import Any

from tabtorch.base.device import device, webgpu
from tabtorch.webgpu import (
    current_stream,
    device_count,
    empty_cache,
    get_device_capability,
    is_available,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
    set_stream,
    synchronize,
)
from tabtorch.webgpu import mem_get_info as get_memory_info

__all__ = [
    "current_accelerator",
    "current_device_idx",
    "current_device_index",
    "current_stream",
    "device_count",
    "device_index",
    "empty_cache",
    "empty_host_cache",
    "get_device_capability",
    "get_memory_info",
    "is_available",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_device_idx",
    "set_device_index",
    "set_stream",
    "synchronize",
]


def current_accelerator(check_available: bool = False) -> device | None:
    """The webgpu device; None without a GPU."""
    return device("webgpu") if is_available() else None


def current_device_index() -> int:
    """0: there is one."""
    return webgpu.index or 0


current_device_idx = current_device_index


def set_device_index(index: Any) -> None:
    """RuntimeError for any index but 0."""
    device("webgpu", index if isinstance(index, int) else device(index).index)


set_device_idx = set_device_index


class device_index:
    """`with torch.accelerator.device_index(0):`, for the one device there is; None changes nothing."""

    def __init__(self, device: int | None) -> None:
        if device is not None:
            set_device_index(device)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: Any) -> None:
        return None


def empty_host_cache() -> None:
    """There is no cache of pinned memory."""
