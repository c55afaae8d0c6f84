"""`torch.distributed.device_mesh`: devices laid out for many processes. There is one: RuntimeError."""

from __future__ import annotations

from typing import Any

from tabtorch.distributed import _unavailable

__all__ = ["DeviceMesh", "init_device_mesh"]


class DeviceMesh:
    """RuntimeError: there is one process. It is there for annotations and `isinstance`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _unavailable("DeviceMesh")()


init_device_mesh = _unavailable("init_device_mesh")
