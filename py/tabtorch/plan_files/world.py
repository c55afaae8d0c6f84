"""The tensors that methods see, put on paper: of another device, with memory that holds nothing, until they are put back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tabtorch import random
from tabtorch.base.device import cpu, webgpu
from tabtorch.base.device import device as Device
from tabtorch.compiled.guards import Guards
from tabtorch.core.tensor import Tensor
from tabtorch.engine.graph import Buffer, Node, blank, bridge
from tabtorch.engine.view import Meta, meta
from tabtorch.optim._state import NumberStorage

DEVICES = {"webgpu": webgpu, "cpu": cpu}


def on(device: Device, m: Meta) -> Meta:
    """The same view on another device."""
    if m.device is device or m.device.type == "meta":
        return m
    return meta(m.shape, m.strides, m.offset, m.dtype, device, m.mark)


def unwritten(m: Meta) -> Node:
    """A value of which there is only the memory."""
    n = blank(m)
    number = m.device.number
    n.buf = Buffer(bridge().new_buffer(), m.numel * m.dtype.itemsize, number)
    return n


class World:
    """What methods can see and change besides their arguments: tensors, optimizers, generators, and the dicts that their Python sees."""

    def __init__(self, scopes: Iterable[Guards], tensors: Iterable[Tensor]) -> None:
        self.scopes = list(scopes)
        found = {id(t): t for s in self.scopes for t in s.tensors}
        found |= {id(t): t for t in tensors}
        self.optimizers = list({id(o): o for s in self.scopes for o in s.optimizers}.values())
        for o in self.optimizers:
            for d in o.state.values():
                found |= {id(v): v for v in d.values() if isinstance(v, Tensor)}
        #: (a dict, key, value) of numbers that are to be others than they are
        self.later: list[tuple[dict, Any, Any]] = []
        self.numbers = [t for t in found.values() if type(t._tab_storage) is NumberStorage]
        self.tensors = [t for t in found.values() if type(t._tab_storage) is not NumberStorage]

    def __enter__(self) -> World:
        """Remembers everything."""
        self._looks = [
            (t, t._tab_meta, t._tab_storage, t._grad, t._tab_grad_fn, t._tab_requires_grad)
            for t in [*self.tensors, *self.numbers]
        ]
        roots = {id(t._tab_storage.root): t._tab_storage.root for t in self.tensors}
        self._roots = [(r, r.node, r.version, r.views) for r in roots.values()]
        storages: list[Any] = [t._tab_storage for t in self.numbers]
        self._boxes = [(s, s._meta, s.box.copy()) for s in storages]
        dicts: dict[int, dict] = {id(d): d for s in self.scopes for d in s._dicts}
        for o in self.optimizers:
            dicts |= {id(d): d for d in [o.state, *o.state.values(), *o.param_groups] if isinstance(d, dict)}
        self._dicts = [(d, list(dict.items(d))) for d in dicts.values()]
        self._drawing = {id(g): (g, g._node) for g in random._drawing}
        return self

    def move(self, device: Device) -> None:
        """Puts all of it on that device, in memory of its own."""
        self.device = device
        for r, node, _, _ in self._roots:
            r.node = unwritten(on(device, node.inst.out))
        for t, m, *_ in self._looks:
            t._tab_meta = on(device, m)
            t._grad = None
        for s, m, _ in self._boxes:
            s._meta = on(device, m)
            s._of = s._made = None
        for g, _ in self._drawing.values():
            if g._node is not None:
                g._node = unwritten(g._node.inst.out)

    def rewind(self) -> None:
        """Gives numbers their values again, and nothing else."""
        for s, _, box in self._boxes:
            s.box.clear()
            s.box.update(box)
            s._of = s._made = None
        for d, items in self._dicts:
            for k, v in items:
                if isinstance(v, (int, float)) and dict.get(d, k) is not v:
                    dict.__setitem__(d, k, v)
        for d, k, v in self.later:
            dict.__setitem__(d, k, v)

    def __exit__(self, *exc: object) -> None:
        for d, items in self._dicts:
            if len(d) != len(items) or any(dict.get(d, k, d) is not v for k, v in items):
                for k in [k for k in dict.keys(d) if not any(k is a for a, _ in items)]:
                    dict.__delitem__(d, k)
                for k, v in items:
                    dict.__setitem__(d, k, v)
        for t, m, storage, grad, fn, rg in self._looks:
            t._tab_meta, t._tab_storage, t._grad, t._tab_grad_fn, t._tab_requires_grad = m, storage, grad, fn, rg
        for r, node, version, views in self._roots:
            r.node, r.version, r.views = node, version, views
        for s, m, box in self._boxes:
            s._meta = m
            s.box.clear()
            s.box.update(box)
            s._of = s._made = None
        for g in list(random._drawing):
            known = self._drawing.get(id(g))
            g._node = None if known is None else known[1]
            if known is None:
                random._drawing.discard(g)


__all__ = ["DEVICES", "World", "on", "unwritten"]
