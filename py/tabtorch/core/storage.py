"""What tensors share: a storage points at the node that is its present value.

Scripts see it as `torch.UntypedStorage` (tabtorch/storage.py).
"""

from __future__ import annotations

import itertools
from typing import Any

from tabtorch.engine.nodes import Node
from tabtorch.engine.view import Meta

_addresses = itertools.count(1 << 40, 1 << 40)

#: `Tensor._tab_stale` of a view that had no history until its base was written to
UNRECORDED: Any = ("unrecorded",)


class Storage:
    """`node` is the present value (flat); an in-place write sets another one and calls `written`.

    `views`: (weak reference, version when it was made) of the differentiable views of it; None: no such view.
    """

    __slots__ = ("__weakref__", "_address", "node", "version", "views")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.version = 0
        self.views: Any = None

    def written(self) -> None:
        """There is another version: the views of what requires grad have to look for their history anew."""
        self.version += 1
        if self.views is not None:
            self.tell()

    def tell(self) -> None:
        """Tells the views that there is another version."""
        live = []
        for entry in self.views:
            v = entry[0]()
            if v is not None:
                live.append(entry)
                if v._tab_grad_fn is not None or v._base._tab_requires_grad:
                    v._tab_stale = v._tab_grad_fn or v._tab_stale or UNRECORDED
                    v._tab_grad_fn = None
                    v._tab_requires_grad = True
        self.views = live or None

    @property
    def out(self) -> Meta:
        """What the value is, as a view of itself."""
        return self.node.inst.out

    def refuse(self) -> None:
        """RuntimeError for a storage that cannot be written to."""

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
