"""`torch.webgpu`: what PyTorch asks of a device's module, and what scripts ask of `torch.cuda`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from tabtorch import _lazy
from tabtorch.backend import random_kernels
from tabtorch.backend.tensors import DEVICE, NAME, check_index, place
from tabtorch.bridge import get_bridge

_ours = _lazy.webgpu
#: `torch.utils.checkpoint` asks it before it saves the state of the device's generator
_initialized = True


def _index(device: Any) -> int:
    """The number of the one device. RuntimeError for another."""
    if device is None:
        return 0
    index = device if isinstance(device, int) else torch.device(device).index
    if not isinstance(device, int) and torch.device(device).type != NAME:
        raise ValueError(f"Expected a {NAME} device, but got: {device}")
    check_index(None if index == -1 else index)
    return 0


def is_available() -> bool:
    """Whether there is something to compute on: WebGPU by Node, or what TABTORCH_DEVICE names. Starts it."""
    try:
        place()
    except RuntimeError:
        return False
    return True


def is_initialized() -> bool:
    """Whether the device was started."""
    return True


def init() -> None:
    """Starts the device."""
    place()


def device_count() -> int:
    """1."""
    return 1


def current_device() -> int:
    """0: there is one."""
    return 0


def set_device(device: Any) -> None:
    """There is one device; RuntimeError for another."""
    _index(device)


class device(_ours.device):
    """`with torch.webgpu.device(0):`, for the one device there is."""

    def __init__(self, device: Any) -> None:
        self.idx = _index(device)


class device_of(device):
    """The device of a tensor, as a region."""

    def __init__(self, obj: Any) -> None:
        super().__init__(0)


def _is_in_bad_fork() -> bool:
    return False  # a forked process starts a runtime of its own


def get_device_name(device: Any = None) -> str:
    """The adapter's name."""
    _index(device)
    place()
    if place().type == "cpu":
        return "JavaScript"
    return str(_ours.get_device_name())


class DeviceProperties(NamedTuple):
    """What is known of the device. total_memory: bytes of the largest buffer, for WebGPU does not tell how much memory there is."""

    name: str
    total_memory: int
    limits: dict[str, int]
    features: tuple[str, ...]
    major: int = 0
    minor: int = 0
    multi_processor_count: int = 0


def get_device_properties(device: Any = None) -> DeviceProperties:
    """What WebGPU tells of the adapter, and its limits."""
    name = get_device_name(device)
    info = get_bridge().info
    limits = dict(info.get("limits", {}))
    return DeviceProperties(name, int(limits.get("maxBufferSize", 0)), limits, tuple(info.get("features", ())))


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """(0, 0): WebGPU has features and limits, and no numbered capabilities."""
    _index(device)
    return 0, 0


# ---- work and memory


def synchronize(device: Any = None) -> None:
    """Waits until the device has done everything; its errors are raised."""
    _index(device)
    place()
    _lazy.engine_graph.flush()
    get_bridge().synchronize()


def _memory() -> tuple[Any, int]:
    return _lazy.engine_graph.memory, place().number


def memory_allocated(device: Any = None) -> int:
    """Bytes of the values that are referred to. What was computed and not sent yet has none."""
    _index(device)
    memory, number = _memory()
    _lazy.engine_graph.flush()
    return int(memory.live[number])


def max_memory_allocated(device: Any = None) -> int:
    """The most that `memory_allocated` was, since the start or `reset_peak_memory_stats`."""
    _index(device)
    memory, number = _memory()
    return int(memory.peak[number])


def _reserved() -> int:
    stats = get_bridge().stats()
    of = "gpu" if place().number == 0 else "cpu"
    return int(stats.get(f"{of}Bytes", 0)) + int(stats.get(f"{of}PooledBytes", 0))


def memory_reserved(device: Any = None) -> int:
    """Bytes that the runtime holds: live values, and the pool that waits to be used again."""
    _index(device)
    place()
    return max(_reserved(), memory_allocated())


def max_memory_reserved(device: Any = None) -> int:
    """At least the most that was allocated."""
    return max(memory_reserved(device), max_memory_allocated(device))


def memory_stats(device: Any = None) -> dict[str, Any]:
    """PyTorch's keys for what is known (`allocated_bytes.all.current`, …), and the counters of the runtime by their names."""
    _index(device)
    place()
    return {
        "allocated_bytes.all.current": memory_allocated(),
        "allocated_bytes.all.peak": max_memory_allocated(),
        "reserved_bytes.all.current": memory_reserved(),
        "reserved_bytes.all.peak": max_memory_reserved(),
        **get_bridge().stats(),
    }


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The figures of `memory_stats`, a line each."""
    return "\n".join(f"{name:<40} {value}" for name, value in memory_stats(device).items())


def reset_peak_memory_stats(device: Any = None) -> None:
    """Begins to look for the peak anew, from what is there now."""
    _index(device)
    memory, number = _memory()
    memory.peak[number] = memory.live[number]


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Sets the runtime's counters of events back to nought."""
    _index(device)
    get_bridge().reset_stats()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """RuntimeError: WebGPU tells neither how much memory there is, nor how much of it is free."""
    raise RuntimeError("mem_get_info: WebGPU does not tell how much memory the GPU has")


def empty_cache() -> None:
    """Sends what waits, so that memory nobody refers to any more goes back to the pool."""
    place()
    _lazy.engine_graph.flush()


# ---- random numbers: see random_kernels.py


def manual_seed(seed: int) -> None:
    """Seeds the device's own generator, of which dropout is drawn. `torch.manual_seed` does, and seeds that of all other draws."""
    random_kernels.seed(int(seed))


manual_seed_all = manual_seed


def seed() -> None:
    """Seeds it with a number from the system."""
    random_kernels.seed(int.from_bytes(os.urandom(8), "little"))


seed_all = seed


def initial_seed() -> int:
    """The seed it was last given."""
    return random_kernels.initial_seed()


def get_rng_state(device: Any = NAME) -> torch.Tensor:
    """The state of the device's own generator: 16 bytes."""
    _index(device)
    return random_kernels.state()


def set_rng_state(new_state: torch.Tensor, device: Any = NAME) -> None:
    """Goes on from a state that `get_rng_state` gave."""
    _index(device)
    random_kernels.set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices: of the one."""
    return [get_rng_state()]


def set_rng_state_all(new_states: Any) -> None:
    """Goes on from states that `get_rng_state_all` gave."""
    for state in new_states:
        set_rng_state(state)


# ---- automatic mixed precision


def get_amp_supported_dtype() -> list[torch.dtype]:
    """What `torch.autocast("webgpu", dtype=…)` takes."""
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 is there; it is computed in float32."""
    return including_emulation


# ---- streams: the device has one


class Event(_ours.Event):
    """A point in the stream. With `enable_timing` it is timed once the device has come there, so it waits."""


class Stream(torch.Stream):
    """The stream there is: all are equal, and nothing waits for another."""

    def __new__(cls, device: Any = None, priority: int = 0, **ids: Any) -> Any:
        _index(device)
        return super().__new__(cls, device=DEVICE)

    def synchronize(self) -> None:
        """Waits until everything sent so far is done."""
        synchronize()

    def wait_stream(self, stream: Any) -> None:
        """Nothing to wait for: all streams are one."""

    def wait_event(self, event: Any) -> None:
        """Nothing to wait for: all streams are one."""

    def record_event(self, event: Any = None) -> Any:
        """Records an event, by default a new one."""
        event = event or Event()
        event.record(self)
        return event

    def query(self) -> bool:
        """Whether everything is done; finds out by waiting."""
        synchronize()
        return True


def current_stream(device: Any = None) -> Any:
    """The stream there is."""
    return Stream(device)


default_stream = current_stream


def set_stream(stream: Any) -> None:
    """There is one stream, so this changes nothing."""


@contextlib.contextmanager
def stream(stream: Any) -> Iterator[None]:
    """A region in a stream; there is one."""
    yield
