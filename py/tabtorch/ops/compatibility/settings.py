"""Settings and assertions of the torch namespace that compute nothing."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

from tabtorch import _lazy
from tabtorch.ops.machinery.registry import register

_always = False


@register("set_warn_always")
def set_warn_always(b: bool, /) -> None:
    """Whether a warning comes every time, not once."""
    global _always
    _always = bool(b)
    if b:
        warnings.simplefilter("always")


_said: set[str] = set()


def warn_once(text: str, stacklevel: int = 3) -> None:
    """A UserWarning that comes once in a process, unless `set_warn_always` says otherwise."""
    if _always or text not in _said:
        _said.add(text)
        warnings.warn(text, UserWarning, stacklevel=stacklevel)


register("is_warn_always_enabled", lambda: _always, doc="What `set_warn_always` has set.")
register("get_num_interop_threads", lambda: 1, doc="1: one thread runs operations.")
register(
    "set_flush_denormal", lambda mode: False, doc="False: the devices cannot be told what to do with small numbers."
)


@register("set_num_interop_threads")
def set_num_interop_threads(n: int) -> None:
    """One thread runs operations: any other number only warns."""
    if n != 1:
        warnings.warn("tabtorch runs operations in one thread; set_num_interop_threads has no effect", stacklevel=2)


_DEBUG_MODES = ("default", "warn", "error")
_deterministic = 0


def deterministic() -> bool:
    """Whether writes that meet are to be made in a fixed order: what alone has none on a GPU."""
    return _deterministic > 0


@register("use_deterministic_algorithms")
def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Sums at repeated indices are made in order, the same in every run; slower. Every operation can, so none warns."""
    set_deterministic_debug_mode((1 if warn_only else 2) if mode else 0)


@register("set_deterministic_debug_mode")
def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """`use_deterministic_algorithms` by a name or its number: "default" (0), "warn" (1), "error" (2)."""
    global _deterministic
    if not isinstance(debug_mode, (int, str)):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    if isinstance(debug_mode, str):
        if debug_mode not in _DEBUG_MODES:
            raise RuntimeError(
                f"invalid value of debug_mode, expected one of `default`, `warn`, `error`, but got {debug_mode}"
            )
        debug_mode = _DEBUG_MODES.index(debug_mode)
    if debug_mode not in (0, 1, 2):
        raise RuntimeError(f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}")
    _deterministic = debug_mode


register("get_deterministic_debug_mode", lambda: _deterministic, doc="0, 1 or 2: what was set.")
register("are_deterministic_algorithms_enabled", deterministic, doc="Whether `use_deterministic_algorithms` is on.")
register(
    "is_deterministic_algorithms_warn_only_enabled", lambda: _deterministic == 1, doc="Whether it is on with warn_only."
)


@register("get_device_module")
def get_device_module(device: Any = None) -> Any:
    """The module of a device type: `torch.cuda` for "cuda"."""
    kind = _lazy.accelerator.current_accelerator() if device is None else _lazy.torch.device(device)
    name = "cpu" if kind is None else kind.type
    if not hasattr(_lazy.torch, name):
        raise RuntimeError(f"Device '{name}' does not have a corresponding module registered as 'torch.{name}'.")
    return getattr(_lazy.torch, name)


@register("from_dlpack")
def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Any:
    """A tensor of what another library holds in memory that NumPy can see; always a copy. BufferError for `copy=False`."""
    if copy is False:
        raise BufferError("tabtorch keeps tensors on a device of its own: from_dlpack has to copy")
    if isinstance(ext_tensor, _lazy.torch.Tensor):
        return ext_tensor.clone()
    import numpy

    source = ext_tensor if hasattr(ext_tensor, "__dlpack__") else _Capsule(ext_tensor)
    return _lazy.from_host.tensor(numpy.from_dlpack(source), device=device)


class _Capsule:
    """A DLPack capsule as an object that gives it out, which is what NumPy takes."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


# ---- assertions


@register("_assert")
def _assert(condition: Any, message: str) -> None:
    """AssertionError with `message` where it does not hold."""
    if not condition:
        raise AssertionError(message)


@register("_assert_async")
def _assert_async(input: Any, assert_msg: str = "Expected Tensor with single nonzero value, but got zero") -> None:
    """RuntimeError with `assert_msg` where the one element of `input` is zero. It is read at once: an error names its line.

    A tensor on the meta device has no element, and is not asked. TypeError for what is no tensor.
    """
    if not isinstance(input, _lazy.tensor.Tensor):
        raise _lazy.arguments.must_be_tensor("_assert_async", "input", 0, input)
    if not input.is_meta and not bool(input):
        raise RuntimeError(assert_msg)


def _checker(name: str, error: type[Exception]) -> None:
    def f(cond: bool, message: Callable[[], str] | None = None) -> None:
        if not isinstance(cond, bool):
            raise TypeError(f"cond must be a bool, but got {type(cond)}")
        if not cond:
            raise error("Expected cond to be True, but got False." if message is None else message())

    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"{error.__name__} with `message()` where `cond` is False."
    register(name, f)


for _name, _error in (
    ("_check", RuntimeError),
    ("_check_index", IndexError),
    ("_check_value", ValueError),
    ("_check_type", TypeError),
    ("_check_not_implemented", NotImplementedError),
):
    _checker(_name, _error)


@register("_check_is_size")
def _check_is_size(i: int, message: Callable[[], str] | None = None, *, max: int = sys.maxsize) -> None:
    """RuntimeError where `i` cannot be a size."""
    if not 0 <= i <= max:
        raise RuntimeError("Expected cond to be True, but got False." if message is None else message())
