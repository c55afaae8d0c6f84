"""`torch.cpu`: the cpu device, in the manner of `torch.cuda`. It is always there, and has run whatever it was sent."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tabtorch import _lazy

__all__ = [
    "Stream",
    "current_device",
    "current_stream",
    "device_count",
    "is_available",
    "set_device",
    "stream",
    "synchronize",
]


def is_available() -> bool:
    """True."""
    return True


def is_initialized() -> bool:
    """True."""
    return True


def device_count() -> int:
    """1."""
    return 1


def current_device() -> str:
    """ "cpu"."""
    return "cpu"


def set_device(device: Any) -> None:
    """There is one: nothing to choose."""


def synchronize(device: Any = None) -> None:
    """Runs what waits."""
    _lazy.engine_graph.flush()
    _lazy.asserts.raise_found()


class Stream:
    """The one stream: the order of the program."""

    def __init__(self, priority: int = -1) -> None:
        self.priority = priority

    def wait_stream(self, stream: Any) -> None:
        """Nothing to wait for: all streams are one."""


def current_stream(device: Any = None) -> Stream:
    """The stream there is."""
    return Stream()


@contextmanager
def stream(stream: Any) -> Iterator[None]:
    """All streams are one, so this changes nothing."""
    yield


def __getattr__(name: str) -> Any:
    if name == "amp":
        return importlib.import_module("tabtorch.cpu.amp")
    raise AttributeError(f"module 'torch.cpu' has no attribute '{name}'")
