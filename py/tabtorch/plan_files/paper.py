"""Recording without a device: a bridge that only keeps what it is told, for an adapter that has what every adapter has."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tabtorch import bridge as bridges
from tabtorch.bridge.base import LOCK, Bridge
from tabtorch.compiled import recording
from tabtorch.engine import graph, queues
from tabtorch.engine.memory import Buffer, memory

#: what kernels of a file may take of an adapter: the limits that WebGPU guarantees, but for the size of a buffer, which is the
#: model's business and written in the file
LIMITS = {
    "maxStorageBuffersPerShaderStage": 8,
    "maxComputeWorkgroupStorageSize": 16384,
    "maxComputeInvocationsPerWorkgroup": 256,
    "maxComputeWorkgroupSizeX": 256,
    "maxComputeWorkgroupSizeY": 256,
    "maxComputeWorkgroupSizeZ": 64,
    "maxComputeWorkgroupsPerDimension": 65535,
    "maxStorageBufferBindingSize": 2**31,
    "maxBufferSize": 2**31,
}
#: ids of buffers begin here, so that none is one of the runtime's
_FIRST = 1 << 30


class Unread(RuntimeError):
    """A value is asked for that there is not."""


class Paper(Bridge):
    """In the place of a runtime. kernels, plans: the specs by id. uploads: the bytes by id of the buffer."""

    kind = "paper"

    def __init__(self) -> None:
        super().__init__()
        self.info = {"webgpu": {"adapter": {"vendor": "portable"}, "limits": LIMITS, "features": []}}
        self.block.top = _FIRST
        self.kernels: dict[int, dict[str, Any]] = {}
        self.plans: dict[int, dict[str, Any]] = {}
        self.uploads: dict[int, bytes] = {}
        define_kernel, define_plan = self.define_kernel, self.define_plan

        def kernel(spec: dict[str, Any]) -> int:
            ident = define_kernel(spec)
            self.kernels[ident] = spec
            return ident

        def plan(spec: dict[str, Any]) -> int:
            ident = define_plan(spec)
            self.plans[ident] = spec
            return ident

        self.define_kernel, self.define_plan = kernel, plan

    def upload(self, dev: int, data: Any) -> int:
        self.flush()
        ident = super().upload(dev, data)
        self.uploads[ident] = bytes(data)
        return ident

    def _execute(self, nbytes: int) -> str | None:
        return None

    def _read(self, ident: int, dev: int, offset: int, nbytes: int) -> bytes:
        raise Unread("a value is read")

    def _call(self, name: str, argument: str = "") -> str:
        return ""

    def synchronize(self) -> None:
        self.flush()


class _Staying(recording.Recording):
    """Keeps other threads' nodes apart until all methods were recorded, not only until one was."""

    def sent(self) -> None:
        pass


@contextmanager
def on_paper() -> Iterator[tuple[Paper, recording.Recording]]:
    """What is computed inside, by this thread, is only written down. Others that need the runtime wait."""
    with LOCK:
        if queues.recording is not None:
            raise RuntimeError("methods cannot be exported while a function is compiled")
        graph.flush()
        keeper = _Staying(None)
        queues.set_recording(keeper)
        paper = Paper()
        try:
            for q in graph.all_queues():  # what another thread has appended meanwhile
                if q.nodes:
                    graph.flush_queue(q)
            graph.bridge().flush()
            with bridges.exchanged(paper):
                graph.bridge()
                try:
                    yield paper, keeper
                finally:
                    for q in graph.all_queues():
                        q.nodes.take()
                        q.windows = []
                    paper.alive = False
        finally:
            graph.bridge()
            _forget(paper)
            recording.end()


def _forget(paper: Paper) -> None:
    """No buffer of it means anything from now on."""
    free = paper.block.freed
    for o in gc.get_objects():
        if type(o) is Buffer and o.id and getattr(o.free, "__self__", None) is free:
            memory.live[o.device] -= o.nbytes
            o.id = 0
