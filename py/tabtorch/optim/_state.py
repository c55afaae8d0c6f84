"""Step counts and their like: 0-dim tensors of an optimizer's state, whose values Python knows."""

import struct
from typing import Any

import tabtorch as torch
from tabtorch.base.device import resolve
from tabtorch.core.storage import Storage
from tabtorch.core.tensor import Tensor
from tabtorch.engine.graph import Node, from_host
from tabtorch.engine.view import Meta, contiguous_meta

#: the entries of a state that PyTorch keeps as 0-dim tensors and reads at each step
NUMBERS = frozenset(("step", "mu_product", "eta", "mu"))


class NumberStorage(Storage):
    """The memory of a 0-dim tensor whose value is a Python number, until somebody writes to the tensor.

    So bias corrections are Python numbers, and no step reads, or adds to, a tensor; and who holds the tensor sees it follow.
    """

    __slots__ = ("_made", "_meta", "_of", "box")

    def __init__(self, value: float, m: Meta) -> None:
        self.box: dict[str, Any] = {"value": value}  # None: what the tensor was last written is not read yet
        self._meta = m
        self._of: Any = None
        self._made: Any = None
        self.version = 0
        self.views = None

    @property
    def node(self) -> Node:
        value = self.box["value"]
        if value is not None and value is not self._of:
            form = "d" if self._meta.dtype is torch.float64 else "f"
            data = struct.pack("<" + form, float(value))
            self._made = from_host(data, self._meta, list(struct.unpack("<" + form, data)))
            self._of = value
        made: Node = self._made
        return made

    @node.setter
    def node(self, node: Node) -> None:
        self._made = node
        self._of = self.box["value"] = None


def number_tensor(value: float, device: Any) -> Tensor:
    """A 0-dim tensor of a number."""
    where = resolve(device)
    wide = where.type == "cpu" and torch.get_default_dtype() is torch.float64
    m = contiguous_meta((), torch.float64 if wide else torch.float32, where)
    t: Tensor = object.__new__(Tensor)
    t._tab_storage = NumberStorage(value, m)
    t._tab_meta = m
    return t


def _adopt(t: Tensor, value: Any) -> None:
    """From now on Python knows the value of this tensor, whose memory nobody else is expected to look at."""
    version = t._tab_storage.version
    m = contiguous_meta((), t._tab_meta.dtype, t._tab_meta.device)
    t._tab_storage, t._tab_meta = NumberStorage(value, m), m
    t._tab_storage.version = version


def number(state: dict[str, Any], key: str, device: Any = "cpu") -> Any:
    """The number of an entry: a tensor made elsewhere is read once, and a plain number becomes a tensor on `device`."""
    t = state[key]
    if not isinstance(t, torch.Tensor):
        state[key] = t = number_tensor(t, device)
    storage: Any = t._tab_storage
    if type(storage) is not NumberStorage:
        value = _read(key, t)
        if t.dim() == 0 and t.dtype in (torch.float32, torch.float64):
            _adopt(t, value)
        return value
    value = storage.box["value"]
    if value is None:
        storage.box["value"] = storage._of = value = _read(key, t)
    return value


def _read(key: str, t: Tensor) -> Any:
    value = t.item()
    return int(value) if key == "step" else value


def set_number(state: dict[str, Any], key: str, value: Any) -> None:
    """Gives the tensor of an entry another number, in place."""
    t = state[key]
    if type(t._tab_storage) is not NumberStorage:
        _adopt(t, value)
    t._tab_storage.box["value"] = value
    t._tab_storage.written()


def advance(state: dict[str, Any], device: Any = "cpu") -> int:
    """Counts one step; returns the new count."""
    count: int = number(state, "step", device) + 1
    if type(state["step"]._tab_storage) is NumberStorage:
        set_number(state, "step", count)
    else:
        state["step"].fill_(count)
    return count
