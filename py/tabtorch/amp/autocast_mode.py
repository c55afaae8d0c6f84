"""`torch.autocast`: a region in which products run in 16 bits and what needs its digits in float32."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tabtorch.amp import _switch
from tabtorch.base import dtypes
from tabtorch.core.tensor import Tensor

__all__ = ["autocast", "autocast_decorator", "custom_bwd", "custom_fwd", "is_autocast_available"]

_NUMBERS = {"cuda": 0, "webgpu": 0, "cpu": 1}
#: devices that PyTorch knows and that are not here: it is off for them, and their lower type is PyTorch's
_ABSENT = {
    **dict.fromkeys(("mps", "mtia", "privateuseone", "xpu", "ipu"), dtypes.float16),
    **dict.fromkeys(("hpu", "maia", "xla"), dtypes.bfloat16),
}


def is_autocast_available(device_type: str) -> bool:
    """Whether `autocast` takes this device type: "webgpu", "cuda" (the same) or "cpu"."""
    return device_type in _NUMBERS


def _number(device_type: Any) -> int:
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if device_type not in _NUMBERS:
        raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
    return _NUMBERS[device_type]


# ---- the settings one by one, as PyTorch has them


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Whether it is on for this device type (default: "cuda")."""
    return device_type not in _ABSENT and _switch.NOW.enabled[_number(device_type or "cuda")]


def set_autocast_enabled(device_type: Any, enabled: bool | None = None) -> None:
    """Switches it for a device type; with one argument, for "cuda"."""
    if enabled is None:
        device_type, enabled = "cuda", device_type
    _switch.NOW.enabled[_number(device_type)] = bool(enabled)
    _switch.update()


def get_autocast_dtype(device_type: str) -> Any:
    """The lower type: by default float16 on the GPU and bfloat16 on "cpu"."""
    return _ABSENT.get(device_type) or _switch.NOW.low_dtype[_number(device_type)]


def set_autocast_dtype(device_type: str, dtype: Any) -> None:
    """Sets the lower type."""
    n = _number(device_type)
    if _switch.NOW.low_dtype[n] is not dtype:
        _switch.NOW.low_dtype[n] = dtype
        _switch.clear_copies()


def is_autocast_cache_enabled() -> bool:
    """Whether a weight's copy in the lower type is kept until the outermost region ends."""
    return _switch.NOW.cache_enabled


def set_autocast_cache_enabled(enabled: bool) -> None:
    """See `is_autocast_cache_enabled`."""
    _switch.NOW.cache_enabled = bool(enabled)


def clear_autocast_cache() -> None:
    """Forgets the copies of weights."""
    _switch.clear_copies()


def autocast_increment_nesting() -> int:
    """One region deeper; gives the depth."""
    _switch.NOW.nesting += 1
    return _switch.NOW.nesting


def autocast_decrement_nesting() -> int:
    """One region less; gives the depth."""
    _switch.NOW.nesting -= 1
    return _switch.NOW.nesting


def _older(name: str, of: Callable[..., Any], device_type: str) -> None:
    def f(*args: Any) -> Any:
        return of(device_type, *args)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = f'`{of.__name__}("{device_type}", …)`.'
    globals()[name] = f


for _kind, _type in (("cpu", "cpu"), ("gpu", "cuda")):
    _older(f"is_autocast_{_kind}_enabled", is_autocast_enabled, _type)
    _older(f"set_autocast_{_kind}_enabled", set_autocast_enabled, _type)
    _older(f"get_autocast_{_kind}_dtype", get_autocast_dtype, _type)
    _older(f"set_autocast_{_kind}_dtype", set_autocast_dtype, _type)


# ---- the region


def autocast_decorator(autocast_instance: Any, func: Callable[..., Any]) -> Callable[..., Any]:
    """`func` within `autocast_instance`."""

    @functools.wraps(func)
    def decorate_autocast(*args: Any, **kwargs: Any) -> Any:
        with autocast_instance:
            return func(*args, **kwargs)

    return decorate_autocast


class autocast:
    """A with block, or decorator, in which operations choose their type by PyTorch's lists.

    device_type: "webgpu" or "cuda" (float16 by default), "cpu" (bfloat16): only tensors there are converted.
    dtype: the lower type. enabled=False: a region without it. cache_enabled: see `is_autocast_cache_enabled`.
    RuntimeError for another device type; on "cpu" a warning, and no effect, for another dtype.
    """

    def __init__(
        self, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        self._n = _number(device_type)
        self.device = device_type
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        self._cache_enabled = _switch.NOW.cache_enabled if cache_enabled is None else cache_enabled
        if enabled and device_type == "cuda" and not _cuda():
            warnings.warn("CUDA is not available or torch_xla is imported. Disabling autocast.", stacklevel=2)
            enabled = False
        if enabled and self._n and self.fast_dtype not in (dtypes.bfloat16, dtypes.float16):
            warnings.warn(
                f"In {device_type.upper()} autocast, but the target dtype is not supported. Disabling autocast.\n"
                f"{device_type.upper()} Autocast only supports dtypes of torch.bfloat16, torch.float16 currently.",
                stacklevel=2,
            )
            enabled = False
        self._enabled = enabled
        self._before: list[Any] = []

    def __enter__(self) -> autocast:
        n = self._n
        now = _switch.NOW
        self._before.append((now.inside, (now.enabled[n], now.low_dtype[n], now.cache_enabled)))
        now.nesting += 1
        now.inside = (
            False  # a region may be entered inside of a gradient formula: `checkpoint` runs the forward pass there
        )
        self._set(self._enabled, self.fast_dtype, self._cache_enabled)
        return self

    def __exit__(self, *exc: Any) -> None:
        if autocast_decrement_nesting() == 0:
            _switch.clear_copies()
        _switch.NOW.inside, settings = self._before.pop()
        self._set(*settings)

    def _set(self, enabled: bool, dtype: Any, cache: bool) -> None:
        _switch.NOW.enabled[self._n] = enabled
        set_autocast_dtype(self.device, dtype)
        _switch.NOW.cache_enabled = cache
        _switch.update()

    def __call__(self, func: Any) -> Any:
        if not callable(func):
            raise TypeError(
                f"autocast()(func) requires a callable, but got {type(func).__name__}. "
                "Did you mean to use autocast as a context manager? For example:\n"
                "    with torch.autocast(device_type=...):\n"
                "        output = model(input)"
            )
        return autocast_decorator(self, func)


def _cuda() -> bool:
    """Whether "cuda" means something here."""
    return bool(sys.modules["tabtorch.base.device"]._cuda_alias)


# ---- for autograd.Function


def _cast(value: Any, number: int, dtype: Any) -> Any:
    if isinstance(value, Tensor):
        return _switch._cast(value, number, dtype)
    if isinstance(value, (str, bytes)) or type(value).__module__ == "numpy":
        return value
    if isinstance(value, Mapping):
        return {_cast(k, number, dtype): _cast(v, number, dtype) for k, v in value.items()}
    if isinstance(value, Iterable):
        items = (_cast(v, number, dtype) for v in value)
        return type(value)(items) if isinstance(value, (list, tuple)) else items
    return value


def custom_fwd(fwd: Any = None, *, device_type: str, cast_inputs: Any = None) -> Any:
    """For the `forward` of an autograd.Function: notes the state for `custom_bwd`.

    cast_inputs: in an autocast region, converts floating inputs to this type and runs without autocast.
    """
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorate_fwd(*args: Any, **kwargs: Any) -> Any:
        on = is_autocast_enabled(device_type)
        args[0]._dtype = get_autocast_dtype(device_type)
        args[0]._fwd_used_autocast = on and cast_inputs is None
        if not on or cast_inputs is None:
            return fwd(*args, **kwargs)
        n = _number(device_type)
        with autocast(device_type=device_type, enabled=False):
            return fwd(args[0], *_cast(args[1:], n, cast_inputs), **_cast(kwargs, n, cast_inputs))

    return decorate_fwd


def custom_bwd(bwd: Any = None, *, device_type: str) -> Any:
    """For the `backward` of an autograd.Function: runs in the autocast state of `forward`."""
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorate_bwd(*args: Any, **kwargs: Any) -> Any:
        ctx = args[0]
        with autocast(device_type=device_type, enabled=ctx._fwd_used_autocast, dtype=ctx._dtype):
            return bwd(*args, **kwargs)

    return decorate_bwd
