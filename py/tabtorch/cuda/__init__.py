"""`torch.cuda` over `torch.webgpu`, as `tabtorch.install()` sets it up: scripts that ask for CUDA get the GPU there is.

Before `install()`, or with `install(cuda=False)`, it answers as a PyTorch without CUDA does.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

from tabtorch import _lazy
from tabtorch import webgpu as _webgpu

_MODULES = ("amp", "nvtx", "tunable")


def _aliased() -> bool:
    return bool(sys.modules["tabtorch.base.device"]._cuda_alias)


def is_available() -> bool:
    """Whether "cuda" can be used: `install()` was called, and there is a GPU."""
    return _aliased() and _webgpu.is_available()


is_initialized = is_available


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """bfloat16 is stored as such and computed in float32, which PyTorch calls emulation."""
    return is_available() and including_emulation


def device_count() -> int:
    """1, or 0 where "cuda" means nothing."""
    return 1 if is_available() else 0


def get_rng_state_all() -> list[Any]:
    """`get_rng_state` of every device."""
    return _webgpu.get_rng_state_all() if is_available() else []


def get_arch_list() -> list[str]:
    """None: nothing is compiled for a generation of CUDA devices."""
    return []


#: without CUDA these are nought
_NOUGHT = (
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
)


def _guarded(name: str) -> Callable[..., Any]:
    f = getattr(_webgpu, name)

    @functools.wraps(f)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        if is_available():
            return f(*args, **kwargs)
        if name in _NOUGHT:
            return 0
        raise AssertionError("Torch not compiled with CUDA enabled")

    guarded.__module__ = "torch.cuda"
    return guarded


for _name in (*_webgpu.GUARDED.split(), *_NOUGHT):
    globals()[_name] = _guarded(_name)
for _name in _webgpu.PLAIN.split():
    globals().setdefault(_name, getattr(_webgpu, _name))

# modules of PyTorch that scripts import these from
for _name in ("memory", "random", "streams"):
    sys.modules[f"{__name__}.{_name}"] = globals()[_name] = sys.modules[__name__]


def __getattr__(name: str) -> Any:
    if name == "_initialized":
        return is_initialized()
    if name == "default_generators":
        return (_lazy.random.device_generator,)
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name.endswith("Tensor"):
        made = _lazy.constructors.cuda_type(name)
        if made is not None:
            globals()[name] = made
            return made
    raise AttributeError(f"module 'torch.cuda' has no attribute '{name}'")


__all__ = sorted(
    {"device_count", "get_rng_state_all", "is_available", "is_bf16_supported", "is_initialized"}
    | {*_webgpu.GUARDED.split(), *_webgpu.PLAIN.split()}
)
