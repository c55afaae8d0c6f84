"""Where values go in and out of a compiled graph: PyTorch's tensors to ours and back, for a model on "webgpu" or on the CPU.

A tensor on "webgpu" has ours as its storage: nothing is copied. One on the CPU is uploaded, and a result for the CPU is
downloaded. Parameters and buffers of a model on the CPU are kept on the device as long as their storage lives and their version
stands; so a step of inference uploads its input alone. PyTorch counts a version with every write but those through `.data` and
by NumPy: for these the bytes are kept on the host, too, and compared at each call. That is 1 to 3 ms for ten million parameters,
and as much memory again as they take; a model on "webgpu" has neither.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

from tabtorch import _lazy
from tabtorch.backend.tensors import NAME, OURS, THEIRS, place, unwrap, upload, wrap
from tabtorch.base import dtypes
from tabtorch.bridge import on_loss
from tabtorch.bridge.base import LOCK
from tabtorch.core.layout import contiguous_format
from tabtorch.core.tensor import Tensor
from tabtorch.engine import graph

#: numbers that PyTorch has made tensors of: they may be less exact where a device has no such type
_NUMBERS = {torch.float64: torch.float32, torch.complex128: torch.complex64}
#: counts devices that were lost: what was kept on one is gone
_losses = [0]


def _lost() -> None:
    _losses[0] += 1


on_loss(_lost)


class _Kept:
    """The device's copy of a CPU tensor, which lives with that tensor's storage, as an attribute of it."""

    __slots__ = ("address", "bytes", "layout", "loss", "nbytes", "value", "version")

    def __init__(self, value: Tensor, t: torch.Tensor) -> None:
        self.value = value
        self.layout = _layout(t)
        self.loss = _losses[0]
        self.address = t.data_ptr()
        extent = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True)) if t.numel() else 0
        self.nbytes = extent * t.element_size()
        self.note(t)

    def note(self, t: torch.Tensor) -> None:
        """The value is what the tensor has now."""
        self.version = t._version
        self.bytes = ctypes.string_at(self.address, self.nbytes)

    def stands(self, t: torch.Tensor) -> bool:
        """Whether the value is still that of the tensor, which has this layout."""
        if self.version != t._version or self.loss != _losses[0]:
            return False
        return not _memcmp(self.address, self.bytes, self.nbytes)


_memcmp = ctypes.CDLL("msvcrt" if sys.platform == "win32" else None).memcmp
_memcmp.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
_memcmp.restype = ctypes.c_int


def _layout(t: torch.Tensor) -> Any:
    return (t.data_ptr(), t.shape, t.stride(), t.dtype)


def to_device(t: torch.Tensor, keep: bool) -> Tensor:
    """Our tensor of an argument. keep: whether a CPU tensor's values are to stay on the device for calls to come."""
    if t.device.type == NAME:
        return unwrap(t)
    if t.device.type != "cpu":
        raise RuntimeError(
            f"torch.compile(backend='webgpu'): a tensor on {t.device}, where 'webgpu' or 'cpu' is expected"
        )
    if not t.dim() and t.dtype in _NUMBERS and place().lacks(OURS[t.dtype]):
        t = t.to(_NUMBERS[t.dtype])
    if t.is_inference():  # has no version
        return upload(t)
    storage = t.untyped_storage()
    with LOCK:
        kept = getattr(storage, "_tabtorch_copy", None)
        if kept is not None and kept.layout == _layout(t):
            keep = True
            if kept.stands(t):
                found: Tensor = kept.value
                return found
        value = upload(t)
        if keep:
            storage._tabtorch_copy = _Kept(value, t)
    return value


def whole_on_host(t: torch.Tensor) -> None:
    """NotImplementedError for a tensor on the CPU that shows only a part of its memory, which `as_strided` may ask for."""
    if t.device.type == "cpu" and t.untyped_storage().nbytes() != t.nbytes:
        raise NotImplementedError(
            "torch.compile(backend='webgpu'): as_strided of an argument on the CPU that is a view of a part"
        )


def to_any_size(x: Tensor, order: list[int] | None, fixed: bool) -> Tensor:
    """An argument of a function whose sizes vary, which is compiled for tensors that lie row by row from the start of their
    memory: the dimensions in this order, and a copy of what lies otherwise. fixed: no copy will do; so it is compiled for each size."""
    if order is not None:
        x = x.permute(order)
    if fixed or (x._tab_meta.contiguous and not x._tab_meta.offset):
        return x
    return x.clone(memory_format=contiguous_format)


def write_back(t: torch.Tensor, value: Tensor, host: torch.Tensor) -> None:
    """What a graph has written to `value`, the device's copy of a CPU tensor, in that tensor. host: `value`, downloaded."""
    with torch.no_grad():
        t.copy_(host)
    if t.is_inference():
        return
    kept = getattr(t.untyped_storage(), "_tabtorch_copy", None)
    if kept is not None and kept.value is value:
        kept.note(t)


def apart(x: Tensor) -> Tensor:
    """The same value in a storage of its own: what is written to the other's is not seen. Nothing is copied, as values never change."""
    return Tensor._wrap(x._tab_storage.node, x._tab_meta)


def _strides(shape: Any, order: list[int] | None) -> list[int]:
    found, n = [0] * len(shape), 1
    for d in reversed(order if order is not None else range(len(shape))):
        found[d] = n
        n *= max(shape[d], 1)
    return found


def _lies(shape: Any, have: Any, want: Any) -> bool:
    return all(a == b for a, b, n in zip(have, want, shape) if n != 1)


def to_host(values: Sequence[Tensor]) -> list[torch.Tensor]:
    """CPU tensors, row by row, with the values of ours. Waits for the device once."""
    if not values:
        return []
    read = graph.read_many([_lazy.to_host._source(x) for x in values])
    found = []
    for x, data in zip(values, read, strict=True):
        t = torch.empty(tuple(x.shape), dtype=THEIRS[x.dtype], device="cpu")
        if t.numel():
            ctypes.memmove(t.data_ptr(), bytes(data), t.nbytes)
        found.append(t)
    return found


def laid_out(t: torch.Tensor, order: list[int] | None) -> torch.Tensor:
    """A CPU tensor, in this order of dimensions."""
    want = _strides(t.shape, order)
    if t.numel() and not _lies(t.shape, t.stride(), want):
        return torch.empty_strided(t.shape, want, dtype=t.dtype, device="cpu").copy_(t)
    return t


def to_webgpu(x: Tensor, order: list[int] | None) -> torch.Tensor:
    """A result for "webgpu"."""
    want = _strides(x.shape, order)
    if x.numel() and not _lies(x.shape, x.stride(), want):
        x = x.permute(order).contiguous() if order is not None else x.contiguous()
        if order is not None:
            x = x.permute([order.index(d) for d in range(x.dim())])
    return wrap(x)


def has_kernel(op: Any, host: bool) -> bool:
    """Whether an operator of the script's own (`torch.library`) can be called with tensors on the CPU (host), or on "webgpu"."""
    keys = ("CPU" if host else "PrivateUse1", "CompositeExplicitAutograd", "CompositeImplicitAutograd")
    return op.namespace not in ("aten", "prims") and any(map(op.has_kernel_for_dispatch_key, keys))


def foreign(f: Callable[..., Any], host: bool) -> Callable[..., Any]:
    """A function of PyTorch's tensors as one of ours. host: whether it is to have them on the CPU."""

    def to(x: Any) -> Any:
        if isinstance(x, Tensor):
            return to_host([x])[0] if host else wrap(x.contiguous())
        return THEIRS[x] if isinstance(x, dtypes.dtype) else x

    def back(x: Any) -> Any:
        return to_device(x, False) if isinstance(x, torch.Tensor) else x

    def call(*args: Any, device: Any = None, **kw: Any) -> Any:
        return tree_map(back, f(*tree_map(to, args), **tree_map(to, kw)))

    return call
