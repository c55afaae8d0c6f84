"""What every bridge does, whichever way its bytes go: ids, commands, reads, and errors that come back."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, TypeVar

from tabtorch.base import interrupts
from tabtorch.base.errors import AcceleratorError, OutOfMemoryError
from tabtorch.bridge.block import CPU, SHRINK_ABOVE, WEBGPU, BlockWriter

__all__ = ["LOCK", "Bridge", "on_loss", "raise_errors"]

#: Held by whoever tells the runtime something, and by who takes a window of the engine to plan and send it: the order of the
#: commands is that in which it was had. It is one, and no code of the user's runs in it, nor anything that waits for another
#: thread; a read is asked for in it and waited for outside. In a tab there is one thread, but while one of its tasks waits in
#: JavaScript (`run_sync`) others run, for which a re-entrant lock is open: so nothing may wait so in it, either.
LOCK = threading.RLock()

SEND_ABOVE = 1 << 23  # bytes of commands after which an upload sends what is there first

#: whether this thread has the LOCK
owned: Callable[[], bool] = getattr(LOCK, "_is_owned")  # noqa: B009  # threading.pyi does not know it

_T = TypeVar("_T")

_WORDS = {
    "compile": "the kernel did not compile",
    "early": "",  # the message says it all: a value is still on its way, where nothing can wait for it
    "internal": "the device failed",
    "gone": "",  # so does this one: a value that was on a device which has been lost
    "lost": "",  # so does this one, of the device itself
    "out-of-memory": "the device is out of memory",
    "validation": "the device refused the command",
}


def raise_errors(text: str) -> None:
    """Raise the first of the errors in `text` (JSON, as `takeErrors()` gives it); the others are counted in it."""
    errors: list[dict[str, str]] = json.loads(text)
    if not errors:
        return
    kinds = {e["kind"] for e in errors}
    # A lost device explains every other error; one that ran out of memory, the failures that follow.
    kind = next((k for k in ("lost", "gone", "out-of-memory") if k in kinds), errors[0]["kind"])
    first = next(e for e in errors if e["kind"] == kind)
    where = f"{first['operation']}: " if first.get("operation") else ""
    what = _WORDS.get(kind, kind)
    message = where + (f"{what}: {first['message']}" if what else first["message"])
    if len(errors) > 1:
        message += f" (and {len(errors) - 1} more)"
    if kind == "out-of-memory":
        raise OutOfMemoryError(message)
    if kind == "lost":
        for callback in _on_loss:
            callback()
    if kind in ("lost", "gone"):
        raise AcceleratorError(message)
    raise RuntimeError(message)


_on_loss: list[Callable[[], None]] = []


def on_loss(callback: Callable[[], None]) -> None:
    """Call `callback` before it is raised that the GPU device was lost: what was kept there for later is gone."""
    _on_loss.append(callback)


class Bridge:
    """The one way to the runtime. Subclasses carry the bytes: `_execute`, `_read`, `_call`."""

    kind = ""  # "node" or "pyodide"

    def __init__(self) -> None:
        block = self.block = BlockWriter()
        self.info: dict[str, Any] = {}
        self.alive = True
        self.behind = False  # the device: after a `send` that says so, `sent` waits
        self.timing = 0  # which `start_times` it was whose times are taken, or 0: another one ends it
        self._timings = 0
        self.watched = False  # whether a profiler counts what is sent
        self.portion = inf  # how much work is to be sent at once, as `graph.Inst.work` counts it
        # Bound methods, so that a call costs one lookup and no forwarding. All but `free` in the LOCK.
        self.new_buffer: Callable[[], int] = block.new_buffer
        self.free: Callable[[int], None] = block.freed.append
        self.run_packer: Callable[[int, int, Sequence[str]], Callable[..., None]] = block.run_packer
        self.define_kernel: Callable[[dict[str, Any]], int] = block.kernel
        self.define_plan: Callable[[dict[str, Any]], int] = block.plan
        self.bind_plan: Callable[[int, Sequence[int], int], int] = block.bind
        self.copy: Callable[[int, int, int], int] = block.copy
        self.alias: Callable[[int, int, int], int] = block.alias
        self.alloc: Callable[[int, int], int] = block.alloc

    # -- what each bridge implements

    def _execute(self, nbytes: int) -> str | None:
        """Send `block.data[:nbytes]`; errors that came back, as `takeErrors` gives them. Waits for nothing."""
        raise NotImplementedError

    def _read(self, ident: int, dev: int, offset: int, nbytes: int) -> bytes:
        raise NotImplementedError

    def _call(self, name: str, argument: str = "") -> str:
        """One of `fault`, `info`, `stats`, `resetStats`, `takeErrors`, `loseDevice`, `startTimes`, `takeTimes`: its text, "" for none."""
        raise NotImplementedError

    @property
    def can_wait(self) -> bool:
        """Whether who reads can wait here: then a `copy` from the GPU to cpu may be on its way while Python goes on."""
        return self.kind == "node"  # a question is answered when it can be

    async def read_async(self, ident: int, dev: int, offset: int, nbytes: int) -> bytes:
        """As `read`, but in the browser it never blocks."""
        return self.read(ident, dev, offset, nbytes)

    def synchronize(self) -> None:
        """Wait until the device has done everything sent so far; raise the errors of it."""
        raise NotImplementedError

    def close(self) -> None:
        """Let the runtime and all its buffers go."""
        self.alive = False

    # -- commands

    @property
    def default_device(self) -> int:
        """`WEBGPU` where there is an adapter and nobody asked for `cpu`."""
        return WEBGPU if self.info.get("webgpu") and requested_device() != "cpu" else CPU

    def upload(self, dev: int, data: Any) -> int:
        """A new buffer with the bytes of `data`, any C-contiguous bytes-like object: its id. In the LOCK."""
        block = self.block
        if block.pos and block.pos + memoryview(data).nbytes > SEND_ABOVE:
            self.flush()
        return block.upload(dev, data)

    def write(self, ident: int, offset: int, data: Any) -> None:
        """Bytes into a buffer from `offset` on, in the order of the stream; a piece of a large one, which goes at once."""
        with LOCK:
            block = self.block
            if block.pos and block.pos + len(data) > SEND_ABOVE:
                self.flush()
            block.write(ident, offset, data)

    def forget_plans(self, ids: Iterable[int]) -> None:
        """Drop plans that will not be run again. Safe from any finalizer."""
        self.block.forgotten.extend(ids)

    def flush(self) -> None:
        """Send the block in one call. Errors of this or of earlier work are raised."""
        with LOCK:
            errors = self.send()
        self.sent(errors)

    def sent(self, errors: str | None) -> None:
        """What is to be done after a `send`, outside of the LOCK; in a tab it may wait, for the device or for another one."""
        if errors:
            self._raise(errors)
        if self.behind:
            self.catch_up()

    def catch_up(self) -> None:
        """Wait until the device is `behind` no longer."""

    def send(self) -> str | None:
        """The same, in the LOCK: the errors are for `sent`, outside of it."""
        block = self.block
        return self._carry(self._execute) if block.pos or block.freed or block.forgotten else None

    def _carry(self, away: Callable[[int], _T]) -> _T:
        """`away(nbytes)` sends `block.data[:nbytes]`, which may be nothing, and the block is empty then. In the LOCK."""
        block = self.block
        handler = interrupts.hold()  # what is no longer in the block, and not yet on its way, would be lost
        try:
            if block.freed:
                block.write_frees()
            if block.forgotten:
                block.write_forgotten()
            try:
                return away(block.pos)
            finally:  # what was refused is not sent twice
                block.count += 1
                block.pos = 0
                if block.capacity > SHRINK_ABOVE:
                    block.shrink()
        finally:
            interrupts.release(handler)

    def read(self, ident: int, dev: int, offset: int, nbytes: int) -> bytes:
        """The bytes `[offset, offset + nbytes)` of a buffer, when everything before it is done."""
        self.flush()
        return self._read(ident, dev, offset, nbytes) if nbytes else b""

    def read_many(self, wanted: Sequence[tuple[int, int, int, int]]) -> list[Any]:
        """As `read` for each `(ident, dev, offset, nbytes)`, with one wait for all of them."""
        self.flush()
        return [self._read(*each) if each[3] else b"" for each in wanted]

    # -- seldom

    def stats(self) -> dict[str, Any]:
        """The runtime's counters: dispatches, submits, kernels, bytes, …"""
        self.flush()
        counters: dict[str, Any] = json.loads(self._call("stats"))
        return counters

    def reset_stats(self) -> None:
        """Set the counters that count events back to nought."""
        self.flush()
        self._call("resetStats")

    def start_times(self) -> bool:
        """Times every dispatch on the GPU from now on; False where it has no timestamps. What was timed before is dropped."""
        self.flush()
        if self.timing:
            self._call("takeTimes")
        on = self._call("startTimes") == "true"
        self._timings += 1
        self.timing = self._timings if on else 0
        return on

    def take_times(self) -> list[tuple[float, float]]:
        """Ends that: of each dispatch, in order, when it began (since the first) and how long it took, in ns. None are there if somebody
        else has begun to time meanwhile, which goes on."""
        mine = self.timing
        self.synchronize()
        return self.end_times() if self.timing == mine else []

    async def take_times_async(self) -> list[tuple[float, float]]:
        """The same, but in the browser it never blocks. None are there if there are errors, either, which who asks next hears of."""
        return self.take_times()

    def end_times(self) -> list[tuple[float, float]]:
        """Ends it without waiting: the times that have come back."""
        self.timing = 0
        times: list[tuple[float, float]] = json.loads(self._call("takeTimes"))
        return times

    def fault(self, **after: int) -> dict[str, int]:
        """Counts `allocations`, `commands` and `reads` anew, and fails where `after` says, once each. For tests.

        `fault(allocations=3)`: three go well, the fourth is refused. After so many commands, or reads, the GPU device is
        lost. Returns what was counted since the last call.
        """
        self.flush()
        counts: dict[str, int] = json.loads(self._call("fault", json.dumps(after)))
        return counts

    def lose_device(self) -> None:
        """Destroy the GPU device, as a driver reset would. For tests."""
        self.flush()
        self._call("loseDevice")

    def _raise_pending(self) -> None:
        self._raise(self._call("takeErrors") or "[]")

    def _raise(self, errors: str) -> None:
        raise_errors(errors)


def requested_device() -> str:
    """`TABTORCH_DEVICE`: "webgpu", "cpu" or "auto"."""
    import os

    name = os.environ.get("TABTORCH_DEVICE") or "auto"
    if name not in ("auto", "cpu", "webgpu"):
        raise RuntimeError(f"TABTORCH_DEVICE is {name!r}; it may be 'webgpu', 'cpu' or 'auto'")
    return name


def check_device(info: dict[str, Any]) -> None:
    """Raise if `TABTORCH_DEVICE=webgpu` and there is no adapter."""
    if requested_device() == "webgpu" and not info.get("webgpu"):
        raise RuntimeError(f"TABTORCH_DEVICE is 'webgpu', but there is no WebGPU: {info.get('reason', 'no adapter')}")
