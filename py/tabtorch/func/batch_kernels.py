"""Batches of what has kernels of its own: scans, sorts, scattering, transforms. What has no rule runs example by example."""

from __future__ import annotations

import warnings
from typing import Any

from tabtorch import _lazy
from tabtorch.engine.graph import Map, Node, emit, inst
from tabtorch.engine.view import Meta, contiguous_meta, meta
from tabtorch.func.batch import Level, enter, in_front, leave, level_of, shifted, slice_of, spread, stacked, unreadable
from tabtorch.ops.indexing.index_maps import Layout, folded

_NUMBERS = Map("arange", lambda p: p.coords[0], indexed=True)


def custom(n: Node, level: Level, srcs: list[Node]) -> Node:
    """The values of a Custom node for all examples. `srcs`: the nodes with the values of all, or the one that they share."""
    i = n.inst
    op: Any = i.op
    if op.name in ("nonzero", "nonzero count"):
        raise unreadable()
    size = level.size
    given = [s if level_of(s) is level else None for s in n.srcs]
    ins = [shifted(m, size, s) for m, s in zip(i.ins, given)]
    if op.in_place and given[0] is None:  # the result starts as a copy of it
        srcs[0] = spread(srcs[0], size)
    if op.in_place:
        ins[0] = in_front(i.ins[0], size)
    out = in_front(i.out, size)
    rule = _RULES.get(op.name) or (_scan if type(getattr(op.lower, "__self__", None)).__name__ == "Scan" else None)
    found = rule(n, size, given, ins, srcs) if rule is not None else None
    if found is None:
        return one_by_one(n, level)
    static, ins, *others = found
    return emit(inst(op, tuple(ins), out, i.scalars, static, i.compute), tuple(*others or [srcs]), n.scalars)


_warned: set[str] = set()


def one_by_one(n: Node, level: Level) -> Node:
    """What functorch calls the fallback: as many nodes as examples."""
    i = n.inst
    if i.op.name not in _warned:
        _warned.add(i.op.name)
        warnings.warn(
            f"There is a performance drop because we have not yet implemented the batching rule for aten::{i.op.name}. Please "
            "file us an issue on GitHub so that we can prioritize its implementation.",
            stacklevel=2,
        )
    parts = [emit(i, tuple([slice_of(s, level, b) for s in n.srcs]), n.scalars) for b in range(level.size)]
    return stacked(parts, i.out)


def _scan(n: Node, size: int, given: Any, ins: Any, srcs: Any) -> Any:
    dim, reverse = n.inst.static
    return (dim + 1, reverse), ins


def _sort(n: Node, size: int, given: Any, ins: Any, srcs: Any) -> Any:
    dim, descending, width = n.inst.static
    return None if width else ((dim + 1, descending, 0), ins)


def _scatter(n: Node, size: int, given: Any, ins: Any, srcs: Any) -> Any:
    axis, mode, out, ordered = n.inst.static
    total = n.inst.out.numel
    return (
        axis + 1,
        mode,
        out.view((size, *out.shape), (total, *out.strides), out.offset),
        ordered,
    ), ins


_layouts: dict[Any, Layout] = {}


def _index_put(n: Node, size: int, given: Any, ins: Any, srcs: Any) -> Any:
    """The batch becomes an index too: 0, 1, 2, … beside the others."""
    lay, mode, ordered = n.inst.static
    device = n.inst.out.device
    count = len(lay.ins)
    places = tuple(ins[1 : 1 + count])
    line = contiguous_meta((size,), places[0].dtype, device)
    first = meta(places[0].shape, (1, *(0,) * lay.n), 0, line.dtype, device)
    key = (lay, places, size)
    big = _layouts.get(key)
    if big is None:
        m = lay.source
        source = m.view((size, *m.shape), (n.inst.out.numel, *m.strides), m.offset)
        pattern = (0, *[j + 1 if j >= 0 else j for j in lay.pattern])
        big = _layouts[key] = Layout(source, (first, *places), pattern, lay.at, lay.shape)
    rest = [_moved(m, lay.at) for m in ins[1 + count :]]
    numbers = emit(inst(_NUMBERS, (), line), ())
    return (big, mode, ordered), [ins[0], first, *places, *rest], [srcs[0], numbers, *srcs[1:]]


def _moved(m: Meta, at: int) -> Meta:
    """The first dimension `at` places further back."""
    order = (*range(1, at + 1), 0, *range(at + 1, m.ndim))
    return m.view(tuple([m.shape[d] for d in order]), tuple([m.strides[d] for d in order]), m.offset)


def _overlap(n: Node, size: int, given: Any, ins: Any, srcs: Any) -> Any:
    return n.inst.static, ins


def _fft(n: Node, size: int, given: Any, ins: Any, srcs: Any) -> Any:
    *head, strides = n.inst.static
    return (*head, (n.inst.out.numel, *strides)), ins


def _search(n: Node, size: int, given: Any, ins: Any, srcs: Any) -> Any:
    right, one = n.inst.static
    seq, val = ins[0], ins[1]
    if not one:
        return (right, False), ins
    if given[0] is None and all(s is None for s in given[2:]):  # one sequence for all
        return (right, True), [n.inst.ins[0], val, *n.inst.ins[2:]]
    rows = folded(val, [(0, 1), (1, val.ndim)])
    return None if rows is None or seq.ndim != 2 else ((right, False), [seq, rows, *ins[2:]])


_RULES = {
    "scatter": _scatter,
    "index_put": _index_put,
    "sort": _sort,
    "overlap_add": _overlap,
    "fft": _fft,
    "searchsorted": _search,
}


def on_host(f: Any, tensors: Any, order: str) -> Any:
    """`ops.host_arrays.host` of batched tensors: one read, `f` of each example's arrays, one upload. None: none is batched."""
    found = [n for n in (level_of(t._storage.node) for t in tensors) if n is not None]
    if not found:
        return None
    level = max(found, key=lambda x: x.start)
    mine = [level_of(t._storage.node) is level for t in tensors]

    def every(*arrays: Any) -> Any:
        np = _lazy.host_arrays.numpy()
        parts = [f(*[a[b] if own else a for a, own in zip(arrays, mine)]) for b in range(level.size)]
        if type(parts[0]) is not tuple:
            return np.stack(parts)
        return tuple([np.stack(p) for p in zip(*parts)])

    r = _lazy.host_arrays.host(
        every, *[leave(t.detach(), level) if own else t for t, own in zip(tensors, mine)], order=order
    )
    return tuple([enter(t, level) for t in r]) if type(r) is tuple else enter(r, level)


__all__ = ["custom", "on_host", "one_by_one"]
