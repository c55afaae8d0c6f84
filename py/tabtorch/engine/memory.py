"""Memory on devices: buffers, how many bytes of them there are, and what becomes of them when their runtime ends."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from tabtorch.base.device import BACKENDS
from tabtorch.base.errors import AcceleratorError, OutOfMemoryError

from .. import bridge as _bridges
from ..bridge.base import LOCK
from .symbols import concrete
from .view import Meta


class Buffer:
    """Memory on a device. Freed, in stream order, when the last reference goes. `id` is 0 once the runtime that held it has ended."""

    __slots__ = ("__weakref__", "base", "device", "free", "id", "nbytes", "offset")

    def __init__(self, id: int, nbytes: int, device: int, base: Buffer | None = None, offset: int = 0) -> None:
        self.base = base  # a window onto that buffer, from byte `offset` on; it counts as no memory of its own
        self.offset = offset
        self.id = id
        self.nbytes = nbytes
        self.device = device
        self.free = release[0]
        memory.add(device, nbytes)

    def __del__(self) -> None:
        if self.id and memory is not None:  # it is None where Python is ending
            memory.live[self.device] -= self.nbytes
            self.free(self.id)


class Lost(Buffer):
    """In the place of memory, of a value that will never have any. why: the error of the operation that was to make it, if it is that."""

    __slots__ = ("why",)

    def __init__(self, why: BaseException | None = None) -> None:
        super().__init__(0, 0, 0)
        # not the error itself: what it tells of where it was raised holds nodes
        self.why = None if why is None else (type(why), why.args)


class Memory:
    """Bytes held by live values, per device number."""

    __slots__ = ("live", "peak")

    def __init__(self) -> None:
        self.live = [0] * (max(BACKENDS) + 1)
        self.peak = [0] * (max(BACKENDS) + 1)

    def add(self, device: int, n: int) -> None:
        # no call, so no other thread, comes between the look and the change
        v = self.live[device] + n
        self.live[device] = v
        if v > self.peak[device]:
            self.peak[device] = v


memory = Memory()


#: the bridge's `free`, at hand for buffers to be
release: list[Callable[[int], None]] = [lambda ident: None]


def bridge() -> Any:
    """The one bridge; its `free` is kept at hand for dying buffers."""
    b = _bridges.get_bridge()
    release[0] = b.free
    return b


def lost(name: str = "", b: Buffer | None = None) -> BaseException:
    """The error for a value that went with its runtime, or whose operation failed: what that said, where `b` knows."""
    if type(b) is Lost and b.why is not None:
        try:
            return b.why[0](*b.why[1])
        except TypeError:  # it is made in another way
            return RuntimeError(*b.why[1])
    if _bridges.forked:
        return AcceleratorError(
            f"{name + ': ' if name else ''}a tensor from before the fork has no value in this process, which has a runtime of "
            "its own. Make it here, send it through a queue or a pipe, or use the 'spawn' start method."
        )
    return AcceleratorError(
        f"{name + ': ' if name else ''}a tensor has no value any more: the device that held it was lost, or the operation "
        "that was to make it failed. Make it again, or load it."
    )


def _runtime_ended() -> None:
    """No buffer of the last runtime means anything to the next."""
    _limits.clear()
    for o in gc.get_objects():
        if type(o) is Buffer and o.id:
            memory.live[o.device] -= o.nbytes
            o.id = 0


_bridges.on_close(_runtime_ended)


def copied(b: Buffer, device: int, nbytes: int) -> Buffer:
    """Another buffer, on `device`, with the first bytes of `b`: on a host device those of a GPU come later, and who uses it waits."""
    if not b.id:
        raise lost()
    with LOCK:
        return Buffer(bridge().copy(device, b.id, nbytes), concrete(nbytes), device)


def largest(device: int) -> int:
    """Bytes of the largest buffer that a kernel can bind."""
    limit = _limits.get(device)
    if limit is None:
        known = bridge().info.get(BACKENDS[device].name)
        lim = known["limits"] if known else {}
        limit = min(lim.get("maxBufferSize", 2**32 - 4), lim.get("maxStorageBufferBindingSize", 2**32 - 4), 2**32 - 4)
        _limits[device] = limit
    return limit


def check_size(nbytes: int, m: Meta) -> None:
    """Raises RuntimeError for a tensor that the device cannot hold in one buffer."""
    if m.device.type == "meta":
        return
    limit = largest(m.device.number)
    if nbytes > limit:
        raise OutOfMemoryError(
            f"a tensor of shape {list(m.shape)} and type {m.dtype!r} needs {nbytes} bytes, but device {m.device} "
            f"allows at most {limit} bytes in one buffer: use a smaller one, or split it."
        )


_limits: dict[int, int] = {}
_bridges.keeps(globals(), "_limits")
