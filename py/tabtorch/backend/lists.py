"""What PyTorch does to every tensor of a list, as its optimizers do, is one operation here: over one flat value of all of them.

The tensors of such a list are *pieces* of the flat value from then on: their storages know it, and where in it they lie. The next
operation over the same list finds the flat value at once, so a chain of them is one kernel however many tensors there are. Who
asks a piece for its own value gets a window onto the flat one's memory, and is a storage like any other again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tabtorch.backend.tensors import over_whole, unwrap, unwrap_operand
from tabtorch.base import dtypes
from tabtorch.base.thread_state import STATE
from tabtorch.bridge.base import LOCK
from tabtorch.core.storage import Storage
from tabtorch.core.tensor import Tensor
from tabtorch.engine import multi
from tabtorch.engine.graph import Node
from tabtorch.engine.view import Meta, contiguous_meta

#: operations that are of each element alone
MAPS = frozenset(
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round rsqrt "
    "sigmoid sign sin sinh sqrt tan tanh trunc add sub mul div maximum minimum clamp_max clamp_min lerp addcdiv addcmul".split()
)
#: bytes of a flat value: what WebGPU lets any kernel bind
MOST = 1 << 27

_slot: Any = Storage.__dict__["node"]
_get, _set = _slot.__get__, _slot.__set__
_new = object.__new__


class Flat:
    """A value in which tensors lie one after another, as `multi.pack` puts them."""

    __slots__ = ("metas", "node", "windows")

    def __init__(self, node: Node, metas: list[Meta]) -> None:
        self.node: Node | None = node
        self.metas = metas
        self.windows: list[Any] = []  # once one of them was asked for

    def take(self, k: int) -> Node:
        """The value of piece `k`, which asks once. In the LOCK. What has failed, or was lost, is so in each of them."""
        if self.node is not None:
            self.windows = multi.windows_or_lost(self.node, list(self.metas))
            self.node = None
        found: Node = self.windows[k]
        self.windows[k] = None
        return found


class Piece(Storage):
    """The storage of a tensor that lies in a flat value. In the place of its value it has (flat value, number of the piece)."""

    __slots__ = ()

    @property
    def node(self) -> Node:
        with LOCK:
            found = _get(self)
            if type(found) is tuple:
                flat, k = found
                self.node = found = flat.take(k)
            return found

    @node.setter
    def node(self, node: Node) -> None:
        _set(self, node)
        self.__class__ = Storage  # type: ignore[assignment]


#: views of tensors -> where runs of them begin and end that may be one flat value each; None: they may not
_runs: dict[tuple[Meta, ...], list[tuple[int, int]] | None] = {}


def _runs_of(metas: tuple[Meta, ...]) -> list[tuple[int, int]] | None:
    found: list[tuple[int, int]] | None = None
    if all(m.dtype is dtypes.float32 and m.contiguous and m.whole and m.numel and not m.mark for m in metas):
        found = []
        start = total = 0
        for k, m in enumerate(metas):
            nbytes = 4 * multi.padded(m.numel)
            if total and total + nbytes > MOST:
                found.append((start, k))
                start, total = k, 0
            total += nbytes
        found.append((start, len(metas)))
    if len(_runs) > 1000:
        _runs.clear()
    _runs[metas] = found
    return found


def _covers(s: Storage, m: Meta) -> bool:
    """Whether a tensor that looks so is all of a storage."""
    if type(s) is Piece:
        found = _get(s)
        return type(found) is not tuple or found[0].metas[found[1]].numel == m.numel
    if type(s) is not Storage:
        return False
    out = s.node.inst.out
    return out.numel == m.numel and out.dtype is m.dtype


def _flat(tensors: list[Tensor]) -> Tensor:
    """One tensor of them all."""
    found = [_get(t._tab_storage) for t in tensors]
    first = found[0]
    if type(first) is tuple:
        flat = first[0]
        if (
            flat.node is not None
            and len(flat.metas) == len(tensors)
            and all(type(f) is tuple and f[0] is flat and f[1] == k for k, f in enumerate(found))
        ):
            return Tensor._wrap(flat.node, flat.node.inst.out)
    del found, first  # they hold values
    nodes, metas = [t._tab_storage.node for t in tensors], [t._tab_meta for t in tensors]
    node = multi.flat_of(nodes, metas)
    if node is None:
        node = multi.pack(nodes, metas)
        _point(
            [t._tab_storage for t in tensors], Flat(node, metas)
        )  # so that they are packed once, and are not there twice
    return Tensor._wrap(node, node.inst.out)


class _Unequal(Exception):
    """A list has another number for each tensor."""


def _number(values: Any) -> Any:
    first = values[0]
    if type(first) not in (int, float) or any(v != first for v in values):
        raise _Unequal
    return first


def kernel(name: str, f: Callable[..., Any], otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel of `_foreach_NAME`. f: our function. otherwise: the kernel for lists that are not one flat value."""
    in_place = name.endswith("_")

    def arguments(args: Sequence[Any]) -> list[Any] | None:
        """Ours: lists of tensors, lists of numbers as numbers, others as they are."""
        found: list[Any] = []
        for a in args:
            if isinstance(a, (list, tuple)):
                if len(a) != len(args[0]):
                    return None  # which is an error, and not ours to tell
                found.append([unwrap(t) for t in a] if isinstance(a[0], torch.Tensor) else _number(a))
            elif isinstance(a, torch.Tensor):
                t = unwrap_operand(a)
                if t._tab_meta.shape or t._tab_meta.dtype is not dtypes.float32:
                    return None
                found.append(t)
            elif type(a) in (int, float):
                found.append(a)
            else:
                return None
        return found

    def runs_of(ours: list[Any]) -> list[tuple[int, int]] | None:
        """Where the lists may be flat."""
        runs = None
        own = {id(t._tab_storage): k for k, t in enumerate(ours[0])}
        if len(own) < len(ours[0]):
            return None
        for a in ours:
            if type(a) is not list:
                continue
            metas = tuple([t._tab_meta for t in a])
            runs = _runs[metas] if metas in _runs else _runs_of(metas)
            if runs is None or not all(_covers(t._tab_storage, t._tab_meta) for t in a):
                return None
            if any(m.shape != t._tab_meta.shape for m, t in zip(metas, ours[0], strict=True)):
                return None
            if a is not ours[0] and any(own.get(id(t._tab_storage), k) != k for k, t in enumerate(a)):
                return None  # what one has written the next reads
        return runs

    def apply(*args: Any, **kw: Any) -> Any:
        tensors = args[0]
        if len(tensors) < 2 or STATE.held is not None or any(type(v) not in (int, float) for v in kw.values()):
            return otherwise(*args, **kw)
        try:
            ours = arguments(args)
        except _Unequal:
            ours = None
        runs = None if ours is None else runs_of(ours)
        if ours is None or runs is None:
            return otherwise(*args, **kw)
        results: list[Any] = []
        for start, stop in runs:
            if stop - start == 1:
                part = [a[start:stop] if type(a) is list else a for a in ours]
                made = f(*part, **kw)
                results += [] if in_place else [over_new(made[0])]
                continue
            lists = [a[start:stop] if type(a) is list else None for a in ours]
            part = [a if own is None else [_flat(own)] for a, own in zip(ours, lists, strict=True)]
            made = f(*part, **kw)
            metas = [t._tab_meta for t in lists[0] or ()]
            flat = Flat((part[0] if in_place else made)[0]._tab_storage.node, metas)
            if in_place:
                storages = [t._tab_storage for t in lists[0] or ()]
                _point(storages, flat)
                for s in storages:
                    s.written()
            else:
                results += _pieces(flat)
        if in_place:
            written(tensors)
        return None if in_place else results

    return apply


def written(tensors: Sequence[torch.Tensor]) -> None:
    """Tells autograd so, which it is not told of lists."""
    torch.autograd.graph.increment_version(tensors)


def _point(storages: list[Storage], flat: Flat) -> None:
    """Makes them its pieces."""
    with LOCK:
        for k, s in enumerate(storages):
            s.__class__ = Piece
            _set(s, (flat, k))


def _pieces(flat: Flat) -> list[torch.Tensor]:
    """Tensors that are its pieces."""
    found = []
    for k, m in enumerate(flat.metas):
        s: Any = _new(Piece)
        _set(s, (flat, k))
        s.version, s.views = 0, None
        found.append(over_whole(s, contiguous_meta(m.shape, m.dtype, m.device)))
    return found


def over_new(x: Tensor) -> torch.Tensor:
    """The PyTorch tensor of a result that is a whole storage."""
    return over_whole(x._tab_storage, x._tab_meta)
