"""Batches of what has kernels of its own, by the rules that stand with these (ops/machinery/batching.py); the rest runs one by one."""

from __future__ import annotations

import warnings
from typing import Any

from tabtorch.engine.graph import Node, emit, inst
from tabtorch.func.batch import Level, in_front, level_of, shifted, slice_of, spread, stacked, unreadable
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


__all__ = ["custom", "one_by_one"]
