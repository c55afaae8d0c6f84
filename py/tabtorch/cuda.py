"""`torch.cuda` over webgpu, as `tabtorch.install()` sets it up: scripts that ask for CUDA get the GPU there is.

Before `install()`, or with `install(cuda=False)`, it answers as a PyTorch without CUDA does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from .errors import AcceleratorError, OutOfMemoryError
from .ops.core import Missing

__all__ = [
    "AcceleratorError",
    "Event",
    "OutOfMemoryError",
    "Stream",
    "current_device",
    "device_count",
    "empty_cache",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "is_available",
    "manual_seed",
    "manual_seed_all",
    "mem_get_info",
    "memory_allocated",
    "set_device",
    "synchronize",
]


def _aliased() -> bool:
    return bool(sys.modules["tabtorch.device"]._cuda_alias)


def _webgpu() -> dict[str, Any] | None:
    from .bridge import get_bridge

    return get_bridge().info.get("webgpu")


def _require() -> dict[str, Any]:
    info = _webgpu() if _aliased() else None
    if info is None:
        raise AssertionError("Torch not compiled with CUDA enabled")
    return info


def is_available() -> bool:
    """Whether "cuda" can be used: `install()` was called, and the default device is a GPU."""
    if not _aliased():
        return False
    from .device import default_device

    return default_device().type == "webgpu" or _webgpu() is not None


def is_initialized() -> bool:
    return is_available()


def init() -> None:
    """Starts the device if it is not running."""
    _require()


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """bfloat16 is stored as such and computed in float32, which PyTorch calls emulation."""
    return is_available() and including_emulation


def device_count() -> int:
    return 1 if is_available() else 0


def current_device() -> int:
    _require()
    return 0


def set_device(device: Any) -> None:
    """There is one device: anything else is an error."""
    _index(device)


def _index(device: Any) -> int:
    if device is None or (isinstance(device, int) and device in (0, -1)):
        return 0
    if isinstance(device, int):
        raise AssertionError("Invalid device id")
    from .device import resolve

    resolve(device)
    return 0


def get_device_name(device: Any = None) -> str:
    """The adapter's name, as far as the browser tells it."""
    a = _require().get("adapter", {})
    _index(device)
    words = [a.get("description") or " ".join(w for w in (a.get("vendor"), a.get("architecture")) if w)]
    return f"{words[0] or 'WebGPU adapter'} (WebGPU)"


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """(0, 0): what there is is no CUDA device, so nothing may be switched on by its generation."""
    _require()
    return (0, 0)


class DeviceProperties:
    """What `get_device_properties` can say of a WebGPU adapter."""

    def __init__(self, info: dict[str, Any]) -> None:
        limits = info.get("limits", {})
        self.name = get_device_name()
        self.major = self.minor = 0
        self.total_memory = int(limits.get("maxBufferSize", 0))
        self.multi_processor_count = 0
        self.shared_memory_per_block = int(limits.get("maxComputeWorkgroupStorageSize", 0))
        self.max_threads_per_block = int(limits.get("maxComputeInvocationsPerWorkgroup", 0))

    def __repr__(self) -> str:
        return f"_CudaDeviceProperties(name='{self.name}', total_memory={self.total_memory >> 20}MB)"


def get_device_properties(device: Any = None) -> DeviceProperties:
    """Name and limits. `total_memory` is the largest buffer: WebGPU does not tell how much memory there is."""
    return DeviceProperties(_require())


def synchronize(device: Any = None) -> None:
    """Waits until everything sent so far is done, and raises its errors."""
    from .bridge import get_bridge
    from .engine import graph

    graph.flush()
    get_bridge().synchronize()


def manual_seed(seed: int) -> None:
    """Seeds the generator: there is one, which `torch.manual_seed` seeds too."""
    from .random import manual_seed as set_seed

    set_seed(seed)


manual_seed_all = manual_seed


def seed() -> None:
    """Seeds the generator with a number of chance."""
    from .random import seed as chance

    chance()


seed_all = seed


# ---- memory


def memory_allocated(device: Any = None) -> int:
    """Bytes of live values on the device."""
    from .engine.graph import memory

    return memory.live[0]


def max_memory_allocated(device: Any = None) -> int:
    """The most that `memory_allocated` has been since the start or `reset_peak_memory_stats`."""
    from .engine.graph import memory

    return memory.peak[0]


def reset_peak_memory_stats(device: Any = None) -> None:
    from .engine.graph import memory

    memory.peak[0] = memory.live[0]


reset_max_memory_allocated = reset_peak_memory_stats


def memory_reserved(device: Any = None) -> int:
    """Bytes of live values and of the pool that waits to be used again."""
    from .bridge import get_bridge

    stats = get_bridge().stats()
    return int(stats.get("bytes", 0)) + int(stats.get("pooledBytes", 0))


def memory_stats(device: Any = None) -> dict[str, Any]:
    """The counters of the runtime, under PyTorch's names where they mean the same."""
    from .bridge import get_bridge

    live = memory_allocated()
    return {
        "allocated_bytes.all.current": live,
        "allocated_bytes.all.peak": max_memory_allocated(),
        **get_bridge().stats(),
    }


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The counters as text."""
    return "\n".join(f"{k}: {v}" for k, v in memory_stats().items())


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes. WebGPU tells neither, so it is an error."""
    raise RuntimeError("torch.cuda.mem_get_info: WebGPU does not tell how much memory the GPU has")


def empty_cache() -> None:
    """Sends what waits, so that memory nobody refers to any more goes back to the pool."""
    from .engine import graph

    graph.flush()


def ipc_collect() -> None:
    """There is one process: nothing to collect."""


# ---- streams and events: there is one stream, the order of the program


class Stream:
    """The one stream of the device."""

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        self.device = device

    def synchronize(self) -> None:
        synchronize()

    def wait_stream(self, stream: Stream) -> None:
        """Nothing to wait for: all streams are one."""

    def wait_event(self, event: Event) -> None:
        """Nothing to wait for: all streams are one."""

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def query(self) -> bool:
        """Whether everything is done; finds out by waiting."""
        synchronize()
        return True

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: Any) -> None:
        return None


class Event:
    """A point in the stream. Timed on the host, once the device has come there."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self.enable_timing = enable_timing
        self.time: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        if self.enable_timing:
            synchronize()
        self.time = perf_counter()

    def synchronize(self) -> None:
        synchronize()

    def wait(self, stream: Stream | None = None) -> None:
        """Nothing to wait for: all streams are one."""

    def query(self) -> bool:
        synchronize()
        return True

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to the other."""
        if not (self.enable_timing and end_event.enable_timing):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        if self.time is None or end_event.time is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (end_event.time - self.time) * 1e3


def current_stream(device: Any = None) -> Stream:
    return Stream(device)


default_stream = current_stream


@contextmanager
def stream(s: Stream | None) -> Iterator[None]:
    """All streams are one, so this changes nothing."""
    yield


class device:
    """`with torch.cuda.device(0):`, for the one device there is."""

    def __init__(self, device: Any) -> None:
        self.idx = _index(device)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: Any) -> None:
        return None


def is_current_stream_capturing() -> bool:
    return False


def utilization(device: Any = None) -> int:
    raise RuntimeError("torch.cuda.utilization: WebGPU does not tell it")


def _not_there(name: str) -> Callable[..., Any]:
    def missing(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"torch.cuda.{name} is not there yet in tabtorch")

    return missing


CUDAGraph = _not_there("CUDAGraph")
graph = _not_there("graph")
make_graphed_callables = _not_there("make_graphed_callables")


def __getattr__(name: str) -> Any:
    if name == "amp":
        import importlib

        try:
            return importlib.import_module("tabtorch.amp")
        except ModuleNotFoundError:
            raise Missing("module 'torch.cuda' has no attribute 'amp' (tabtorch does not have it yet)") from None
    if name.endswith("Tensor"):
        from .ops.legacy import cuda_type

        made = cuda_type(name)
        if made is not None:
            globals()[name] = made
            return made
    raise AttributeError(f"module 'torch.cuda' has no attribute '{name}'")
