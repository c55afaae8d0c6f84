"""`torch.autocast("webgpu")`: the operations that PyTorch casts on CUDA, cast as it casts them there.

Which they are is asked of PyTorch: those that have a kernel for CUDA's autocast. What is done with each is in `amp/_policies.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from tabtorch.amp._policies import BANNED, POLICIES
from tabtorch.backend.tensors import NAME, place
from tabtorch.base.dtypes import float64

KEY = "AutocastPrivateUse1"
_keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
_excluded = torch._C._ExcludeDispatchKeyGuard


def _casts(t: torch.Tensor) -> bool:
    return t.device.type == NAME and t.is_floating_point() and t.dtype is not torch.float64


def _cast(values: Any, dtype: torch.dtype) -> Any:
    return tree_map_only(torch.Tensor, lambda t: t.to(dtype) if _casts(t) else t, values)


def _low(op: Any) -> Any:
    def kernel(*args: Any, **kw: Any) -> Any:
        with _excluded(_keys):
            dtype = torch.get_autocast_dtype(NAME)
            return op(*_cast(args, dtype), **_cast(kw, dtype))

    return kernel


def _wide(op: Any) -> Any:
    def kernel(*args: Any, **kw: Any) -> Any:
        with _excluded(_keys):
            return op(*_cast(args, torch.float32), **_cast(kw, torch.float32))

    return kernel


def _sums(op: Any) -> Any:
    """In float32 unless a type is asked for. Where the schema takes none, as `_wide`."""
    if all(a.name != "dtype" for a in op._schema.arguments):
        return _wide(op)

    def kernel(*args: Any, **kw: Any) -> Any:
        with _excluded(_keys):
            given = len(args) == len(op._schema.arguments) and args[-1] is not None
            if not given and kw.get("dtype") is None and isinstance(args[0], torch.Tensor) and _casts(args[0]):
                return op(*_cast(args, torch.float32), **kw)
            return op(*args, **kw)

    return kernel


def _promote(op: Any) -> Any:
    """In the widest of the operands' types."""

    def kernel(*args: Any, **kw: Any) -> Any:
        with _excluded(_keys):
            found: list[torch.dtype] = []
            tree_map_only(torch.Tensor, lambda t: found.append(t.dtype) if _casts(t) else None, (args, kw))
            if not found:
                return op(*args, **kw)
            widest = torch.get_autocast_dtype(NAME)
            for dtype in found:
                widest = torch.promote_types(widest, dtype)
            return op(*_cast(args, widest), **_cast(kw, widest))

    return kernel


def _banned(op: Any) -> Any:
    def kernel(*args: Any, **kw: Any) -> Any:
        raise RuntimeError(BANNED)

    return kernel


_MAKERS: dict[str, Callable[[Any], Any]] = {
    "low": _low,
    "wide": _wide,
    "sums": _sums,
    "promote": _promote,
    "banned": _banned,
}


class _SinglePrecision:
    """A scale whose `double()` is itself: its reciprocal is taken in float32, as on MPS, which has no float64 either."""

    def __init__(self, scale: torch.Tensor) -> None:
        self.device = scale.device
        self.double = lambda: scale


def _unscaled_in_single_precision() -> None:
    """`GradScaler.unscale_` asks for float64, but of MPS alone."""
    plain = torch.amp.GradScaler.unscale_

    @functools.wraps(plain)
    def unscale_(self: Any, optimizer: Any) -> None:
        scale = getattr(self, "_scale", None)  # one that is not enabled has none
        if scale is None or scale.device.type != NAME or not place().lacks(float64):
            return plain(self, optimizer)
        self._scale = _SinglePrecision(scale)
        try:
            plain(self, optimizer)
        finally:
            self._scale = scale

    torch.amp.GradScaler.unscale_ = unscale_


def register() -> None:
    """Has `GradScaler` know the device."""
    _unscaled_in_single_precision()


def register_casts() -> list[Any]:
    """Registers the casts; what is on no list runs as if there were no autocast. Returns what has to be kept."""
    others = torch._C._dispatch_library("IMPL", "_", KEY, "", 0)
    others.fallback_fallthrough()
    own = torch._C._dispatch_library("IMPL", "aten", KEY, "", 0)
    policies = POLICIES[0]
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    for full in torch._C._dispatch_get_all_op_names():
        if full.startswith("aten::") and has(full, "AutocastCUDA"):
            name, _, overload = full[6:].partition(".")
            policy = policies.get(name)
            if policy is not None:
                op = getattr(getattr(torch.ops.aten, name), overload or "default")
                own.impl(full[6:], KEY, _MAKERS[policy](op))
    return [others, own]
