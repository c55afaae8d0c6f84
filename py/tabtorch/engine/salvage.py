"""A window for which there is no plan: an operation of it cannot be planned, and the others must not suffer for it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from .graph import attempt, give_up
from .queues import Queue
from .window import Window


def send_apart(w: Window, q: Queue, error: Exception) -> Exception:
    """For each value that somebody holds sends what that is computed of, alone. What cannot be planned even so keeps its error
    for who reads it. Returns `error`."""
    if not hasattr(w, "aliased"):
        give_up(w.nodes, error)
        return error
    _clear(error)
    # None: sent, or given up. Nobody else here refers to one, so that it is seen who holds it
    nodes: list[Any] = w.nodes
    place = {id(n): p for p, n in enumerate(nodes)}
    reads = [[s.pos for s in n.srcs if s.buf is None] for n in nodes]
    held = {p for p, live in enumerate(w.live) if live}.union([n.pos for n, _ in w.aliased])
    w.aliased.clear()
    for p in sorted(held):
        part: set[int] = set()
        stack = [p]
        while stack:
            at = stack.pop()
            if at not in part and nodes[at] is not None:
                part.add(at)
                stack += reads[at]
        alone = Queue(q.device)
        for at in sorted(part):
            alone.nodes.append(nodes[at])
            nodes[at] = None
        v = Window(alone)
        failed = attempt(v, alone)
        if failed is not None:
            _clear(failed)
            for at, n in [(place[id(n)], n) for n in v.nodes]:
                nodes[at] = n
            n = v = None  # type: ignore[assignment]
            if nodes[p] is not None:  # else it reads what was lost
                give_up([nodes[p]], failed)
                nodes[p] = None
    give_up([n for n in nodes if n is not None], error)
    return error


def _clear(e: BaseException | None) -> None:
    """Takes the local variables from an error's traceback: they would count as holders of nodes."""
    while e is not None:
        tb = e.__traceback__
        while tb is not None:
            with suppress(RuntimeError):  # one that still runs
                tb.tb_frame.clear()
            tb = tb.tb_next
        e = e.__context__


__all__ = ["send_apart"]
