"""ATen's names for our functions: `torch.ops.aten.NAME`, and `lookup` for what reads PyTorch's own graphs and calls.

A function found here takes ATen's arguments, as the operator's schema has them, over tabtorch tensors, and gives ATen's results:
a tuple where the schema has several, None for a gradient that is not defined. Most are the operations of the same name. Where
ATen's arguments are others, or the operation is one that only ATen has (`convolution_backward`), there is an adapter in
`tabtorch.ops.aten.table`, which is loaded when the first name is looked up.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from tabtorch import _lazy
from tabtorch.core import views
from tabtorch.core.tensor import Tensor
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


def _sparse(name: str, *args: Any, **kw: Any) -> Any:
    tensors: Any = _lazy.sparse_tensor
    return tensors.run(name, *args, **kw)


#: what has this name in aten only, and is here without the table too
_ONLY = {
    "_pin_memory": lambda self, device=None: self.pin_memory(),
    "_sparse_addmm": functools.partial(_sparse, "_sparse_addmm"),
    "_sparse_mm_reduce_impl": functools.partial(_sparse, "_sparse_mm"),
    "_to_copy": _copied,
    "alias": _alias,
    "index": _index,
    "slice": _slice,
}
#: names that begin so are functions of a namespace
_SPACES = ("linalg", "fft", "special")
_TABLE = "tabtorch.ops.aten.table"


@functools.cache
def _adapters() -> dict[str, Callable[..., Any]]:
    """Name, or name.overload, -> function, where it is not the namesake."""
    found: dict[str, Callable[..., Any]] = importlib.import_module(_TABLE).load()
    return found


def _find(name: str) -> Any:
    """The operation of the same name."""
    f = _ONLY.get(name) or registry.function(name)
    if f is None:
        space, _, rest = name.partition("_")
        if space in _SPACES:
            f = getattr(importlib.import_module("tabtorch." + space), rest, None)
    f = f or registry.method(name) or getattr(importlib.import_module("tabtorch.nn.functional"), name, None)
    return f or (None if name[0] == "_" else _method(name))


def _method(name: str) -> Any:
    """What is written in the class: `size`, `dim`, `is_contiguous`. A property (`mT`) is a function of the tensor."""
    found = getattr(Tensor, name, None)
    return found.fget if isinstance(found, property) else found if callable(found) else None


@functools.cache
def lookup(name: str, overload: str = "") -> Callable[..., Any] | None:
    """The function of an ATen operator, or None where there is none. lookup("aten::add", "Tensor"); "default" is no overload name.

    Of an overload that writes into given tensors (`out`, or several) it is the function that gives new ones; where there is
    one result, and no adapter, that takes `out=` too.
    """
    space, _, plain = name.rpartition("::")
    if space not in ("", "aten"):
        return None
    overload = "" if overload == "default" else overload
    table = _adapters()
    found = (overload and table.get(f"{plain}.{overload}")) or table.get(plain) or _find(plain)
    return found or None


def names() -> list[str]:
    """What `lookup` knows: "aten::name", and "aten::name.overload" where an overload has a function of its own."""
    registry.load_all()
    known = {*_ONLY, *_adapters(), *registry.FUNCTIONS, *registry.METHODS, *registry.ROW_NAMES}
    for space in _SPACES:
        known |= {f"{space}_{name}" for name in dir(importlib.import_module("tabtorch." + space))}
    return sorted("aten::" + name for name in known if not name.startswith("__"))


#: what calls of operators go through while a TorchDispatchMode is entered: `(operator, args, kwargs)` -> the result
DISPATCH: list[Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]] = []


class Packet:
    """An operation, or one overload of it: what both have."""

    namespace = "aten"

    def __init__(self, name: str, function: Any) -> None:
        self._name = name
        self.function = function
        self.__name__ = name
        self.__module__ = "torch._ops.aten"
        self._qualified_op_name = "aten::" + name

    def __call__(self, *args: Any, **kw: Any) -> Any:
        return DISPATCH[0](self, args, kw) if DISPATCH else self.function(*args, **kw)

    def __str__(self) -> str:
        return f"{self.namespace}.{self._name}"

    def __deepcopy__(self, memo: Any) -> Packet:
        return self


class Operation(Packet):
    """One operation. Calling it, or any of its overloads (`.default`, `.Tensor`, …), is calling the function."""

    def __getattr__(self, overload: str) -> Any:
        if overload.startswith("_"):
            raise AttributeError(f"The underlying op of '{self}' has no overload name '{overload}'")
        made = self.__dict__[overload] = Overload(self, overload, lookup(self._name, overload))
        return made

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"

    def __reduce__(self) -> Any:
        return _named, (self.namespace, self._name)


def _named(namespace: str, name: str) -> Any:
    """What pickles of an operation call."""
    return getattr(getattr(importlib.import_module("tabtorch.ops"), namespace), name)


class Overload(Packet):
    """One overload of an operation: the same object whenever it is asked for."""

    def __init__(self, packet: Packet, overload: str, function: Any) -> None:
        super().__init__(packet._name, function)
        self.overloadpacket = self._overloadpacket = packet
        self._overloadname = overload
        self.__name__ = f"{packet._name}.{overload}"

    def name(self) -> str:
        """As PyTorch's libraries have it: "aten::add.Tensor", or "aten::relu"."""
        return self._qualified_op_name + ("" if self._overloadname == "default" else "." + self._overloadname)

    def __getattr__(self, overload: str) -> Any:
        raise AttributeError(f"'OpOverload' object has no attribute '{overload}'")

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self.overloadpacket}', overload='{self._overloadname}')>"

    def __reduce__(self) -> Any:
        return getattr, (self.overloadpacket, self._overloadname)


def __getattr__(name: str) -> Operation:
    f = None if name.startswith("__") else lookup(name)
    if f is None:
        raise AttributeError(f"'_OpNamespace' 'aten' object has no attribute '{name}'")
    packet = globals()[name] = Operation(name, f)
    return packet
