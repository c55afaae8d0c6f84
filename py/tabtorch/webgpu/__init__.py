"""`torch.webgpu`: the GPU, in the manner of `torch.cuda`. There is one device, and one stream: the order of the program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from tabtorch import _lazy
from tabtorch.base.errors import AcceleratorError as AcceleratorError
from tabtorch.base.errors import OutOfMemoryError as OutOfMemoryError

#: what `torch.cuda` has too, and raises for where "cuda" means nothing
GUARDED = (
    "current_device current_stream default_stream get_device_capability get_device_name get_device_properties "
    "get_rng_state init initial_seed ipc_collect mem_get_info set_rng_state synchronize"
)
#: and the rest
PLAIN = (
    "AcceleratorError CUDAGraph Event OutOfMemoryError Stream StreamContext "
    "can_device_access_peer device device_count device_of empty_cache graph "
    "host_memory_stats is_current_stream_capturing is_tf32_supported make_graphed_callables manual_seed "
    "manual_seed_all max_memory_allocated max_memory_cached memory_allocated memory_cached memory_snapshot "
    "memory_stats memory_summary reset_accumulated_memory_stats reset_max_memory_allocated "
    "reset_max_memory_cached reset_peak_memory_stats seed seed_all set_device set_rng_state_all set_stream stream "
    "utilization "
)


def _runtime() -> Any:
    return _lazy.bridge.get_bridge()


def _require() -> dict[str, Any]:
    info: dict[str, Any] | None = _runtime().info.get("webgpu")
    if info is None:
        why = _runtime().info.get("reason") or "no adapter was found"
        raise RuntimeError(f"No WebGPU device is available ({why})")
    return info


def is_available() -> bool:
    """Whether there is a GPU."""
    return _runtime().info.get("webgpu") is not None


def is_initialized() -> bool:
    """Whether it runs: it is started when it is first asked for."""
    return is_available()


def init() -> None:
    """Starts the device if it is not running."""
    _require()


def device_count() -> int:
    """1, or 0 without a GPU."""
    return 1 if is_available() else 0


def current_device() -> int:
    """0: there is one."""
    _require()
    return 0


def _index(device: Any) -> int:
    if device is None or (isinstance(device, int) and device in (0, -1)):
        return 0
    if isinstance(device, int):
        raise AssertionError("Invalid device id")
    if _lazy.device.resolve(device).type != "webgpu":
        raise ValueError(f"Expected a cuda device, but got: {device}")
    return 0


def set_device(device: Any) -> None:
    """There is one device: anything else is an error."""
    _index(device)


def get_device_name(device: Any = None) -> str:
    """The adapter's name, as far as the browser tells it."""
    a = _require().get("adapter", {})
    _index(device)
    name = a.get("description") or " ".join(w for w in (a.get("vendor"), a.get("architecture")) if w)
    return f"{name or 'WebGPU adapter'} (WebGPU)"


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """(0, 0): what there is is no CUDA device, so nothing may be switched on by its generation."""
    _require()
    _index(device)
    return (0, 0)


class DeviceProperties:
    """What can be said of a WebGPU adapter: `name`, limits in bytes and threads, `features`.

    `total_memory` is the largest buffer, for WebGPU does not tell how much memory there is.
    """

    major = minor = 0
    multi_processor_count = 0

    def __init__(self, info: dict[str, Any]) -> None:
        limits = info.get("limits", {})
        self.name = get_device_name()
        self.total_memory = int(limits.get("maxBufferSize", 0))
        self.shared_memory_per_block = int(limits.get("maxComputeWorkgroupStorageSize", 0))
        self.max_threads_per_block = int(limits.get("maxComputeInvocationsPerWorkgroup", 0))
        self.is_integrated = bool(info.get("adapter", {}).get("isFallback"))
        self.features = tuple(info.get("features", ()))
        self.limits = dict(limits)

    def __repr__(self) -> str:
        return f"_CudaDeviceProperties(name='{self.name}', major=0, minor=0, total_memory={self.total_memory >> 20}MB)"


def get_device_properties(device: Any = None) -> DeviceProperties:
    """Name, limits and features of the adapter: see `DeviceProperties`."""
    _index(device)
    return DeviceProperties(_require())


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """bfloat16 is stored as such and computed in float32, which PyTorch calls emulation."""
    return is_available() and including_emulation


def is_tf32_supported() -> bool:
    """False: products of float32 are computed in float32."""
    return False


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """False: there is no other device."""
    return False


def synchronize(device: Any = None) -> None:
    """Waits until everything sent so far is done, and raises its errors."""
    _index(device)
    _lazy.engine_graph.flush()
    _runtime().synchronize()
    _lazy.asserts.raise_found()
    if _lazy.engine_graph.waited is not None:
        _lazy.engine_graph.waited()


# ---- random numbers: those on tensors of the GPU come from the default generator, dropout's from the GPU's own


def manual_seed(seed: int) -> None:
    """Seeds what draws numbers on the GPU; `torch.manual_seed` does the same."""
    _lazy.random.manual_seed(seed)


def seed() -> None:
    """Seeds it with a number of chance."""
    _lazy.random.seed()


manual_seed_all = manual_seed
seed_all = seed


def initial_seed() -> int:
    """The seed of the GPU's generator."""
    return _lazy.random.device_generator.initial_seed()


def get_rng_state(device: Any = "webgpu") -> Any:
    """The 16 bytes (seed, offset) of the GPU's Philox generator, as PyTorch's on CUDA."""
    return _lazy.random.state_of(_lazy.random.device_generator, _lazy.random.default_generator)


def set_rng_state(new_state: Any, device: Any = "webgpu") -> None:
    """Sets what `get_rng_state` gave."""
    _lazy.random.set_state_of(_lazy.random.device_generator, _lazy.random.default_generator, new_state)


def get_rng_state_all() -> list[Any]:
    """`get_rng_state` of every device: of the one there is."""
    return [get_rng_state() for _ in range(device_count())]


def set_rng_state_all(new_states: Iterable[Any]) -> None:
    """Sets what `get_rng_state_all` gave."""
    for state in new_states:
        set_rng_state(state)


# ---- memory


def _memory() -> Any:
    return _lazy.engine_graph.memory


def memory_allocated(device: Any = None) -> int:
    """Bytes of live values on the device."""
    return int(_memory().live[0])


def max_memory_allocated(device: Any = None) -> int:
    """The most that `memory_allocated` has been since the start or `reset_peak_memory_stats`: what tensors held. With what kernels
    needed beside them it is `memory_stats()["gpuPeakBytes"]`, which `reset_accumulated_memory_stats` starts anew."""
    return int(_memory().peak[0])


_most_reserved = 0


def memory_reserved(device: Any = None) -> int:
    """Bytes that the runtime holds on the GPU: live values, and the pool that waits to be used again."""
    global _most_reserved
    stats = _runtime().stats()
    held = int(stats.get("gpuBytes", 0)) + int(stats.get("gpuPooledBytes", 0))
    _most_reserved = max(_most_reserved, held)
    return held


def max_memory_reserved(device: Any = None) -> int:
    """The most that `memory_reserved` was when it was asked for, and at least the most that was allocated."""
    memory_reserved()
    return max(_most_reserved, max_memory_allocated())


def reset_peak_memory_stats(device: Any = None) -> None:
    """Starts the peaks anew, from what is there now."""
    global _most_reserved
    m = _memory()
    m.peak[0] = m.live[0]
    _most_reserved = 0


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Sets the runtime's counters back to nought, and its peaks to what is there."""
    _runtime().reset_stats()


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats
memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def memory_stats(device: Any = None) -> dict[str, Any]:
    """PyTorch's keys for what is known (`allocated_bytes.all.current`, …), and the counters of the runtime by their names."""
    if not is_available():
        return {}
    counters = _runtime().stats()
    return {
        "allocated_bytes.all.current": memory_allocated(),
        "allocated_bytes.all.peak": max_memory_allocated(),
        "reserved_bytes.all.current": memory_reserved(),
        "reserved_bytes.all.peak": max_memory_reserved(),
        "segment.all.current": int(counters.get("gpuBuffers", 0)),
        "segment.all.allocated": int(counters.get("buffersCreated", 0)),
        "segment.all.freed": int(counters.get("buffersDestroyed", 0)),
        **counters,
    }


def host_memory_stats() -> dict[str, Any]:
    """The same of the cpu device."""
    m = _memory()
    return {"allocated_bytes.current": m.live[1], "allocated_bytes.peak": m.peak[1]}


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The figures of `memory_stats` as a table."""
    s = memory_stats()
    line = "|" + "=" * 61 + "|"
    rows = [line, f"|{f'{get_device_name()} memory summary, device 0'[:60]:^61}|", line]
    rows.append(f"| {'Metric':<23} | {'Cur Usage':>15} | {'Peak Usage':>15} |")
    for title, key in (("Allocated memory", "allocated_bytes"), ("GPU reserved memory", "reserved_bytes")):
        current, peak = (_size(s[f"{key}.all.{part}"]) for part in ("current", "peak"))
        rows.append(f"| {title:<23} | {current:>15} | {peak:>15} |")
    if not abbreviated:
        for name in ("buffers", "dispatches", "submits", "kernels", "uploads", "reads"):
            value = s["segment.all.current"] if name == "buffers" else s.get(name, 0)
            rows.append(f"| {name.capitalize():<23} | {value:>15} | {'':>15} |")
    return "\n".join([*rows, line, ""])


def _size(n: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if n < 10240:
            return f"{n} {unit}"
        n >>= 10
    return f"{n} GiB"


def memory_snapshot(*args: Any, **kwargs: Any) -> list[dict[str, Any]]:
    """The live buffers of the GPU that values lie in: a list of {"device", "address" (an id), "total_size"}."""
    import gc

    found = [
        b
        for b in gc.get_objects()
        if type(b) is _lazy.engine_graph.Buffer and b.device == 0 and b.id and b.base is None
    ]
    return [{"device": 0, "address": b.id, "total_size": b.nbytes, "segment_type": "buffer"} for b in found]


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes. WebGPU tells neither, so it is an error."""
    raise RuntimeError("mem_get_info: WebGPU does not tell how much memory the GPU has")


def empty_cache() -> None:
    """Sends what waits, so that memory nobody refers to any more goes back to the pool."""
    if is_available():
        _lazy.engine_graph.flush()


def ipc_collect() -> None:
    """There is one process: nothing to collect."""


# ---- streams and events


class Stream:
    """The one stream of the device: all are equal."""

    cuda_stream = stream_id = 0
    device_index = 0

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        _index(device)
        self.device = _lazy.device.webgpu
        self.priority = priority

    def synchronize(self) -> None:
        """Waits until everything sent so far is done."""
        synchronize()

    def wait_stream(self, stream: Stream) -> None:
        """Nothing to wait for: all streams are one."""

    def wait_event(self, event: Event) -> None:
        """Nothing to wait for: all streams are one."""

    def record_event(self, event: Event | None = None) -> Event:
        """Records an event, by default a new one."""
        event = event or Event()
        event.record(self)
        return event

    def query(self) -> bool:
        """Whether everything is done; finds out by waiting."""
        synchronize()
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream)

    def __hash__(self) -> int:
        return 0

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: Any) -> None:
        return None

    def __repr__(self) -> str:
        return "<torch.cuda.Stream device=webgpu:0 cuda_stream=0x0>"


class Event:
    """A point in the stream. With `enable_timing` it is timed on the host once the device has come there, so it waits."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **kwargs: Any
    ) -> None:
        if interprocess:
            raise RuntimeError("interprocess events are not supported: there is one process")
        self.enable_timing = enable_timing
        self.time: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Puts the event here."""
        if self.enable_timing:
            synchronize()
        self.time = perf_counter()

    def synchronize(self) -> None:
        """Waits until the device has come here."""
        synchronize()

    def wait(self, stream: Stream | None = None) -> None:
        """Nothing to wait for: all streams are one."""

    def query(self) -> bool:
        """Whether the device has come here; finds out by waiting."""
        synchronize()
        return True

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to the other. RuntimeError without `enable_timing`, or if one was not recorded."""
        if not (self.enable_timing and end_event.enable_timing):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        if self.time is None or end_event.time is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (end_event.time - self.time) * 1e3


def current_stream(device: Any = None) -> Stream:
    """The stream there is."""
    return Stream(device)


default_stream = current_stream


def set_stream(stream: Stream) -> None:
    """All streams are one, so this changes nothing."""


@contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    """A region in a stream. All streams are one, so this changes nothing."""
    yield


StreamContext = stream


class device:
    """`with torch.webgpu.device(0):`, for the one device there is."""

    def __init__(self, device: Any) -> None:
        self.idx = _index(device)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: Any) -> None:
        return None


class device_of(device):
    """The device of a tensor, as a region."""

    def __init__(self, obj: Any) -> None:
        super().__init__(0)


def is_current_stream_capturing() -> bool:
    """False: there is no capturing of streams; see `torch.compile`."""
    return False


def _untold(name: str, what: str) -> None:
    def f(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"{name}: {what}")

    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"RuntimeError: {what}."
    globals()[name] = f


_NO_GRAPHS = "there are no CUDA graphs in tabtorch; torch.compile keeps the plan of a function"
_untold("utilization", "WebGPU does not tell it")
for _name in ("graph", "make_graphed_callables"):
    _untold(_name, _NO_GRAPHS)


class CUDAGraph:
    """A class for annotations and `isinstance`. RuntimeError where one is made."""

    def __init__(self, keep_graph: bool = False) -> None:
        raise RuntimeError(f"CUDAGraph: {_NO_GRAPHS}")


def __getattr__(name: str) -> Any:
    if name in ("amp", "tunable"):
        import importlib

        return importlib.import_module(f"tabtorch.webgpu.{name}")
    raise AttributeError(f"module 'torch.webgpu' has no attribute '{name}'")
