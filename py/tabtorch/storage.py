"""A storage: what tensors share. It points at the node that is its present value."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from .engine.graph import Node

if TYPE_CHECKING:
    from .tensor import Tensor

_addresses = itertools.count(1 << 40, 1 << 40)


class Storage:
    """`node` is the present value (flat); an in-place write sets another one and adds 1 to `version`.

    `views`: weak references to the differentiable views made of it, which an in-place write has to tell; None: no such view.
    """

    __slots__ = ("__weakref__", "_address", "node", "version", "views")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.version = 0
        self.views: Any = None

    @property
    def root(self) -> Storage:
        """The storage that owns the value."""
        return self

    def untracked(self) -> Storage:
        """The same memory with a version of its own: `Tensor.data`."""
        return Untracked(self)

    @property
    def address(self) -> int:
        """A number no other storage has, as far from every other as the largest storage is long."""
        try:
            return self._address
        except AttributeError:
            self._address: int = next(_addresses)
            return self._address

    @property
    def nbytes(self) -> int:
        m = self.node.inst.out
        return m.numel * m.dtype.itemsize


class Untracked(Storage):
    """Another storage's memory, with a version that writes to that one do not touch, nor the other way round."""

    __slots__ = ("owner",)

    def __init__(self, owner: Storage) -> None:
        self.owner = owner.root
        self.version = 0
        self.views = None

    @property
    def node(self) -> Node:
        return self.owner.node

    @node.setter
    def node(self, value: Node) -> None:
        self.owner.node = value

    @property
    def root(self) -> Storage:
        return self.owner

    @property
    def address(self) -> int:
        return self.owner.address


class UntypedStorage:
    """`tensor.untyped_storage()`: what can be said of the memory behind a tensor."""

    def __init__(self, tensor: Tensor) -> None:
        self._storage = tensor._storage.root
        self.device = tensor.device

    def nbytes(self) -> int:
        return self._storage.nbytes

    size = __len__ = nbytes

    def data_ptr(self) -> int:
        return self._storage.address

    @property
    def _cdata(self) -> int:
        return self._storage.address

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and self._storage is other._storage

    def __hash__(self) -> int:
        return hash(self._storage.address)
