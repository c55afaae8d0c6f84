"""What becomes of a window for which there is no plan: one operation of it cannot be planned, and the others must not suffer for it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from .graph import attempt, give_up
from .queues import Queue
from .window import Window


def send_apart(w: Window, q: Queue, error: Exception) -> Exception:
    """Sends a window for which there is no plan: for each value that somebody holds what that is computed of, alone. What cannot
    be planned even so keeps its error for its readers."""
    if not hasattr(w, "aliased"):
        give_up(w.nodes, error)
        return error
    _clear(error)
    nodes: list[Any] = (
        w.nodes
    )  # None: sent, or given up. Nobody else here refers to one, so that it is seen who holds it
    place = {id(n): p for p, n in enumerate(nodes)}
    reads = [[s.pos for s in n.srcs if s.buf is None] for n in nodes]
    held = {p for p, live in enumerate(w.live) if live}.union([n.pos for n, _ in w.aliased])
    w.aliased.clear()
    for p in sorted(held):
        if nodes[p] is None:
            continue
        part: set[int] = set()
        stack = [p]
        while stack:
            at = stack.pop()
            if at not in part and nodes[at] is not None:
                part.add(at)
                stack += reads[at]
        if len(part) == len(nodes):
            give_up([nodes[p]], error)
            continue
        alone = Queue(q.device)
        for at in sorted(part):
            alone.nodes.append(nodes[at])
            nodes[at] = None
        v = Window(alone)

        def failed(e: Exception, v: Window = v, last: int = p) -> Exception:
            for n in v.nodes:
                nodes[place[id(n)]] = n
            give_up([nodes[last]], e)
            nodes[last] = None
            return e

        attempt(v, alone, failed)
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
