"""`torch.webgpu`: what PyTorch asks of a device's module, and what scripts ask of `torch.cuda`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch

from tabtorch import _lazy
from tabtorch.backend.tensors import NAME, place
from tabtorch.bridge import get_bridge

_ours = _lazy.webgpu
_parent = os.getpid()


def _index(device: Any) -> int:
    """The number of the one device. RuntimeError for another."""
    if device is None:
        return 0
    index = device if isinstance(device, int) else torch.device(device).index
    if not isinstance(device, int) and torch.device(device).type != NAME:
        raise ValueError(f"Expected a {NAME} device, but got: {device}")
    if index not in (None, 0, -1):
        raise RuntimeError(f"invalid device ordinal: there is one {NAME} device, index {index} was asked for")
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


def _is_in_bad_fork() -> bool:
    return False  # a forked process starts a runtime of its own


def get_device_name(device: Any = None) -> str:
    """The adapter's name."""
    _index(device)
    place()
    if place().type == "cpu":
        return "JavaScript"
    return str(_ours.get_device_name())


def get_device_properties(device: Any = None) -> Any:
    """What WebGPU tells of the adapter, and its limits."""
    _index(device)
    place()
    return _ours.get_device_properties()


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


def _stat(name: str) -> int:
    place()
    _lazy.engine_graph.flush()
    return int(get_bridge().stats().get(name, 0))


def memory_allocated(device: Any = None) -> int:
    """Bytes of the values that are referred to."""
    _index(device)
    return int(memory_stats()["allocated_bytes.all.current"])


def max_memory_allocated(device: Any = None) -> int:
    """The most that `memory_allocated` ever was, or has been since `reset_peak_memory_stats`."""
    _index(device)
    return int(memory_stats()["allocated_bytes.all.peak"])


def memory_reserved(device: Any = None) -> int:
    """Bytes of the buffers that the device has for us, those in the pool included."""
    _index(device)
    return int(memory_stats()["reserved_bytes.all.current"])


def max_memory_reserved(device: Any = None) -> int:
    """The most that `memory_reserved` has been."""
    _index(device)
    return int(memory_stats()["reserved_bytes.all.peak"])


def memory_stats(device: Any = None) -> dict[str, Any]:
    """Counters of memory and work."""
    _index(device)
    place()
    found: dict[str, Any] = _ours.memory_stats()
    return found


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The figures of `memory_stats` as a table."""
    _index(device)
    return str(_ours.memory_summary(None, abbreviated))


def reset_peak_memory_stats(device: Any = None) -> None:
    """Begins to look for the peaks anew."""
    _index(device)
    _ours.reset_peak_memory_stats()


def empty_cache() -> None:
    """Sends what waits, so that memory nobody refers to any more goes back to the pool."""
    _ours.empty_cache()


# ---- random numbers: the stream is that of PyTorch's generator for the CPU


def manual_seed(seed: int) -> None:
    """Seeds the stream from which draws for the device are taken: that of PyTorch's default generator."""
    torch.default_generator.manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """`torch.manual_seed` calls this, and has seeded that stream itself."""


def seed() -> None:
    """Seeds it with a number from the system."""
    torch.default_generator.seed()


seed_all = seed


def initial_seed() -> int:
    """The seed it was last given."""
    return torch.default_generator.initial_seed()


def get_rng_state(device: Any = NAME) -> torch.Tensor:
    """The state of that stream: the one of `torch.get_rng_state()`."""
    _index(device)
    return torch.default_generator.get_state()


def set_rng_state(new_state: torch.Tensor, device: Any = NAME) -> None:
    """Goes on from a state that `get_rng_state` gave."""
    _index(device)
    torch.default_generator.set_state(new_state)


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


Stream = _ours.Stream
Event = _ours.Event


def current_stream(device: Any = None) -> Any:
    """The stream there is."""
    _index(device)
    return Stream()


default_stream = current_stream


def set_stream(stream: Any) -> None:
    """There is one stream, so this changes nothing."""


@contextlib.contextmanager
def stream(stream: Any) -> Iterator[None]:
    """A region in a stream; there is one."""
    yield
