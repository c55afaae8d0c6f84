"""Batches of what has kernels of its own, by the rules that stand with these (ops/machinery/batching.py); the rest runs one by one."""

from __future__ import annotations

import warnings
from typing import Any

from tabtorch import _lazy
from tabtorch.engine.graph import Node, emit, inst
from tabtorch.func.batch import Level, enter, in_front, leave, level_of, shifted, slice_of, spread, stacked, unreadable
from tabtorch.ops.machinery.batching import Examples


def custom(n: Node, level: Level, srcs: list[Node]) -> Node:
    """The values of a Custom node for all examples. `srcs`: the nodes with the values of all, or the one that they share."""
    i = n.inst
    op: Any = i.op
    size = level.size
    given = [s if level_of(s) is level else None for s in n.srcs]
    ins = [shifted(m, size, s) for m, s in zip(i.ins, given)]
    if op.in_place and given[0] is None:  # the result starts as a copy of it
        srcs[0] = spread(srcs[0], size)
    if op.in_place:
        ins[0] = in_front(i.ins[0], size)
    out = in_front(i.out, size)
    own = [s is not None for s in given]
    call = op.batched(Examples(n, size, own, ins, srcs, unreadable)) if op.batched is not None else None
    if call is None:
        return one_by_one(n, level)
    return emit(inst(op, tuple(call.ins), out, i.scalars, call.static, i.compute), tuple(call.srcs or srcs), n.scalars)


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


def on_host(f: Any, tensors: Any, order: str) -> Any:
    """`ops.host_arrays.host` of batched tensors: one read, `f` of each example's arrays, one upload. None: none is batched."""
    found = [n for n in (level_of(t._tab_storage.node) for t in tensors) if n is not None]
    if not found:
        return None
    level = max(found, key=lambda x: x.start)
    mine = [level_of(t._tab_storage.node) is level for t in tensors]

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
