"""A function that is being recorded, and other threads.

Its nodes must be its own, so those of other threads are kept apart until it ends. Should one of these need a value of the
function's that waits, or the other way round, all is sent as one window, and the recording is given up. The engine asks through
the hook `queues.recording`.
"""

from __future__ import annotations

import os
from _thread import get_ident
from collections.abc import Callable
from time import sleep
from typing import Any

from tabtorch.base.thread_state import STATE
from tabtorch.engine import queues
from tabtorch.engine.graph import LOCK, Node, Nodes, Queue, flush_queue


class Recording:
    """The thread whose function is being recorded, until all that it has emitted was sent."""

    def __init__(self, hold: Any) -> None:
        """hold: the Capture of the run."""
        self.hold = hold
        self.thread = get_ident()

    # ---- what the engine asks, see queues.Recording

    def append(self, nodes: Nodes, n: Node, put: Callable[[Nodes, Node], None]) -> None:
        if get_ident() == self.thread:
            put(nodes, n)
            return
        with LOCK:  # the recording may have ended meanwhile: what came to `others` after that would miss its window
            put(nodes if queues.recording is None else nodes.others, n)

    def waiting(self, nodes: Nodes) -> Nodes:
        return nodes if get_ident() == self.thread else nodes.others

    def sent(self) -> None:
        if get_ident() == self.thread and self.hold.over:
            end()

    def apart(self, q: Queue, wanted: Node | None = None) -> None:
        """Sees to it that what waits for this thread needs nothing of what waits for the others. In the LOCK."""
        if not q.nodes.others and wanted is None:
            return
        waited = 0
        while queues.recording is self:
            mine = q.waiting()
            other = q.nodes if mine is not q.nodes else q.nodes.others
            if not _needs(mine, other) and not any(n is wanted for n in other):
                return
            if mine is q.nodes and not _needs(other, mine):
                _send_others(q)
                return
            if not self.hold.closed or mine is q.nodes:
                self.hold.shared()
                break
            waited += 1
            if waited > 10_000:
                raise RuntimeError(
                    "this tensor belongs to a function that another thread compiles, and waits for this one with"
                )
            LOCK.release()  # the function has ended, and will soon be sent
            try:
                sleep(0.001)
            finally:
                LOCK.acquire()
        if queues.recording is not None and queues.recording is not self:  # another one has begun meanwhile
            queues.recording.apart(q, wanted)
        else:
            _join(q, q.waiting())


def current() -> Recording | None:
    """The recording that is under way, in whichever thread."""
    return queues.recording if isinstance(queues.recording, Recording) else None


def of(hold: Any) -> bool:
    """Whether it is the one of this Capture."""
    now = current()
    return now is not None and now.hold is hold


def begin(hold: Any) -> bool:
    """Begins a recording of this thread's; False if another one is under way."""
    with LOCK:
        if queues.recording is not None:
            return False
        queues.set_recording(Recording(hold))
        try:
            for q in queues.all_queues():  # what waited before is nobody's in particular
                if q.nodes:
                    flush_queue(q)
        except BaseException:
            end()
            raise
    return True


def end() -> None:
    """It has ended, and all that it has emitted was sent."""
    with LOCK:
        queues.set_recording(None)
        for q in queues.all_queues():
            if q.nodes.others:
                _join(q, q.nodes)


def settle() -> None:
    """For the end of a recording: what it needs of other threads' is sent, or it is given up. In the LOCK."""
    now = current()
    for q in queues.all_queues():
        if q.nodes.others and now is not None:
            now.apart(q)


def _needs(nodes: list[Node], others: list[Node]) -> bool:
    found = set(map(id, others))
    return any(id(s) in found for n in nodes for s in n.srcs)


def _send_others(q: Queue) -> None:
    alone = Queue(q.device)
    alone.nodes += q.nodes.others.take()
    before, STATE.held = STATE.held, None
    try:
        flush_queue(alone)
    finally:
        STATE.held = before


def _join(q: Queue, into: Nodes) -> None:
    """Puts all that waits into one list, sources first."""
    found: dict[int, Node] = {id(n): n for n in (*q.nodes.others.take(), *q.nodes.take())}
    q.windows = []
    ordered: list[Node] = []
    for n in list(found.values()):
        stack = [n]
        while stack:
            n = stack[-1]
            before = [s for s in n.srcs if id(s) in found]
            if before:
                stack += before
            else:
                stack.pop()
                if found.pop(id(n), None) is not None:
                    ordered.append(n)
    into[:0] = ordered  # in one go, before what other threads have appended meanwhile, which may read these


def _forked() -> None:
    """In the child of a fork there is but the thread that forked."""
    now = current()
    if now is not None and now.thread != get_ident():
        end()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
