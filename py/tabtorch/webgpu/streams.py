"""`torch.Stream` and `torch.Event`, of whichever device: each has one stream, in which all runs in order."""

from __future__ import annotations

from typing import Any

from tabtorch import webgpu
from tabtorch.base.device import default_device
from tabtorch.base.device import device as _device


def _of(device: Any) -> _device:
    return default_device().public if device is None else _device(device)


class Stream(webgpu.Stream):
    """The stream of a device, by default of the default device. All streams of a device are equal."""

    def __init__(self, device: Any = None, *, priority: int = 0, **_ids: Any) -> None:
        self.device = _of(device)
        self.priority = priority

    def record_event(self, event: Any = None) -> Any:
        """Records an event, by default a new one."""
        event = event or Event(self.device)
        event.record(self)
        return event

    def __eq__(self, other: object) -> bool:
        return isinstance(other, webgpu.Stream) and other.device.type == self.device.type

    def __hash__(self) -> int:
        return hash(self.device.number)

    def __repr__(self) -> str:
        return f"torch.Stream device_type={self.device.type}, device_index={self.device.index or 0}, stream_id=0"


class Event(webgpu.Event):
    """A point in a device's stream. With `enable_timing` it is timed once the device has come there, so it waits."""

    event_id = 0

    def __init__(
        self,
        device: Any = None,
        *,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
    ) -> None:
        super().__init__(enable_timing, blocking, interprocess)
        self.device = _of(device)

    def __repr__(self) -> str:
        where = f"device_type={self.device.type}, device_index={self.device.index or 0}"
        return f"torch.Event {where}, event_flag={int(self.enable_timing)}, event_id=0"
