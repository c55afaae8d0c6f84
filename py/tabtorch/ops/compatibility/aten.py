"""`torch.ops.aten.NAME`: the registered operation NAME, whatever overload of it is named."""

from __future__ import annotations

import importlib
from typing import Any

from tabtorch.core import views
from tabtorch.ops.machinery import registry


def _slice(self: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    return views.slice_along(self, dim, start, end, step)


def _copied(self: Any, *, memory_format: Any = None, non_blocking: bool = False, **kw: Any) -> Any:
    kw = {k: v for k, v in kw.items() if k in ("dtype", "device") and v is not None}
    form = {} if memory_format is None else {"memory_format": memory_format}
    return self.to(**kw, non_blocking=non_blocking, copy=True, **form)


def _alias(self: Any) -> Any:
    return self.view_as(self)


def _index(self: Any, indices: Any) -> Any:
    return self[tuple(slice(None) if i is None else i for i in indices)]


def _sparse(*args: Any, **kw: Any) -> Any:
    raise NotImplementedError("tabtorch has no sparse tensors")


#: what has this name in aten only
_ONLY = {
    "_pin_memory": lambda self, device=None: self.pin_memory(),
    "_sparse_addmm": _sparse,
    "_sparse_mm_reduce_impl": _sparse,
    "_to_copy": _copied,
    "alias": _alias,
    "index": _index,
    "slice": _slice,
}
#: names that begin so are functions of a namespace
_SPACES = ("linalg", "fft", "special")


class Packet:
    """One operation. Calling it, or any of its overloads (`.default`, `.Tensor`, …), is calling the function."""

    def __init__(self, name: str, function: Any) -> None:
        self.name = name
        self.function = function
        self.__name__ = name.rpartition(".")[2]

    def __call__(self, *args: Any, **kw: Any) -> Any:
        return self.function(*args, **kw)

    def __getattr__(self, overload: str) -> Packet:
        if overload.startswith("__") or "." in self.name:
            raise AttributeError(f"The underlying op of 'aten.{self.name}' has no overload name '{overload}'")
        return Packet(f"{self.name}.{overload}", self.function)

    def __repr__(self) -> str:
        kind = "OpOverload" if "." in self.name else "OpOverloadPacket"
        return f"<{kind}(op='aten.{self.name}')>"


def _find(name: str) -> Any:
    f = _ONLY.get(name) or registry.function(name)
    if f is None:
        space, _, rest = name.partition("_")
        if space in _SPACES:
            f = getattr(importlib.import_module("tabtorch." + space), rest, None)
    return f or registry.method(name) or getattr(importlib.import_module("tabtorch.nn.functional"), name, None)


def __getattr__(name: str) -> Packet:
    f = None if name.startswith("__") else _find(name)
    if f is None:
        raise AttributeError(f"'_OpNamespace' 'aten' object has no attribute '{name}'")
    packet = globals()[name] = Packet(name, f)
    return packet
