"""Edges of the tape: what they lead to, what stands for that, and where they leave what is new."""

from __future__ import annotations

from typing import Any

from tabtorch.autograd.tape import LEAF, edge
from tabtorch.core.tensor import Tensor


def output(e: Any) -> Any:
    """Which output of which function an edge leads to, or which leaf."""
    return e if e.edge_kind == LEAF else (e.fn, e.nr if e.is_port else 0)


def meta_at(e: Any) -> Any:
    """The Meta of what an edge leads to."""
    if e.edge_kind == LEAF:
        return e._tab_meta
    return e.fn.outs[e.nr] if e.is_port else e.fn.outs


def standing_for(e: Any) -> Tensor:
    """A tensor with no value for what an edge leads to, whose gradient is asked for; a leaf is itself."""
    if e.edge_kind == LEAF:
        return e
    t: Tensor = object.__new__(Tensor)
    t._tab_meta = meta_at(e)
    t._tab_grad_fn = e
    t._tab_requires_grad = True
    return t


def read_by(t: Tensor, since: int) -> list[Tensor]:
    """What stands for all that `t` was computed from by functions recorded since `since` (see `next_seq`), and that was there before,
    or is a leaf."""
    found: dict[Any, Any] = {}
    stack, seen = [t._tab_grad_fn or edge(t)] if t._tab_requires_grad else [], set()
    while stack:
        e = stack.pop()
        if e is None:
            continue
        if e.edge_kind == LEAF or e.fn.seq < since:
            found.setdefault(output(e), e)
        elif e.fn not in seen:
            seen.add(e.fn)
            stack += e.fn.edges
    return list(map(standing_for, found.values()))


__all__ = ["meta_at", "output", "read_by", "standing_for"]
