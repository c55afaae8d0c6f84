"""Queues: the nodes that wait for a device, and the hooks through which `vmap` and compiled functions take part."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ..bridge.base import LOCK

if TYPE_CHECKING:
    from .nodes import Node


class Nodes(list):
    """Nodes that wait. Those of other threads than the one whose function is being recorded are kept apart, in `others`."""

    __slots__ = ("others",)
    others: Nodes

    def take(self) -> list[Node]:
        """All that is there, taken out. What other threads append meanwhile stays."""
        taken = self[:]
        del self[: len(taken)]
        return taken


#: appends a node to a list that has no hook
_put: Callable[[Nodes, Node], None] = list.append


class Watched(Nodes):
    """The same while a hook is set."""

    __slots__ = ()

    def append(self, n: Node) -> None:
        put, others = spread or _put, recording
        if others is None:
            put(self, n)
        else:
            others.append(self, n, put)


class _Nowhere(Nodes):
    """What waits on the meta device: nothing. A node there has a shape and a dtype, and never a value."""

    def append(self, n: Node) -> None:
        n.srcs = n.scalars = ()


class Queue:
    """The nodes of one device that have not been sent yet."""

    __slots__ = ("bytes", "device", "nodes", "windows", "work")

    def __init__(self, device: Any, kind: type[Nodes] = Nodes) -> None:
        self.device = device
        self.nodes = kind()
        self.nodes.others = Nodes()
        self.bytes = 0
        self.work = 0
        self.windows: list[int] = []  # positions in `nodes` of those that are to be windows onto another node's memory

    def waiting(self) -> Nodes:
        """The nodes of the thread that asks, and of those with which it shares a window."""
        nodes, others = self.nodes, recording
        return nodes if others is None or type(nodes) is not Watched else others.waiting(nodes)


# ---- hooks


class Recording(Protocol):
    """What sees to it that a function that is recorded gets no nodes of other threads: see compiled/recording.py."""

    def append(self, nodes: Nodes, n: Node, put: Callable[[Nodes, Node], None]) -> None:
        """A node is emitted: it is `put` on `nodes`, or on those of the other threads."""

    def waiting(self, nodes: Nodes) -> Nodes:
        """The nodes that the thread that asks would send."""

    def apart(self, q: Queue, wanted: Node | None) -> None:
        """Before a window is sent, in the LOCK: what waits for this thread needs nothing of what waits for others."""

    def sent(self) -> None:
        """All that waited was sent, in the LOCK."""


#: what `vmap` does with a node in place of appending it, while there may be batched values: see func/batch.py
spread: Callable[[Nodes, Node], None] | None = None
#: the recording that is under way
recording: Recording | None = None


def set_spread(hook: Callable[[Nodes, Node], None] | None) -> None:
    """Sets the hook of `vmap`, or takes it away."""
    global spread
    with LOCK:
        spread = hook
        _watch()


def set_recording(hook: Recording | None) -> None:
    """Sets the hook of a recording, or takes it away."""
    global recording
    with LOCK:
        recording = hook
        _watch()


def _watch() -> None:
    kind = Nodes if recording is None and spread is None else Watched
    for q in _all:
        if type(q.nodes) is not _Nowhere:
            q.nodes.__class__ = kind


# ---- all of them

known_queues: dict[Any, Queue] = {}
#: each of them once
_all: tuple[Queue, ...] = ()


def all_queues() -> tuple[Queue, ...]:
    return _all


def queue_of(device: Any) -> Queue:
    q = known_queues.get(device)
    if q is None:
        with LOCK:
            q = (
                known_queues.get(device)
                or _of_the_same(device)
                or Queue(device, _Nowhere if device.type == "meta" else Nodes)
            )
            known_queues[device] = q
            _listed()
            _watch()
    return q


def _of_the_same(device: Any) -> Queue | None:
    """The queue of what is the same device by another name: "cpu:0" and "cpu" compute together."""
    return next((q for d, q in known_queues.items() if d.number == device.number >= 0), None)


def share_queue(device: Any, other: Any) -> None:
    """Values of `device` wait in the window of `other`: both are one device."""
    with LOCK:
        known_queues[device] = queue_of(other)
        _listed()


def _listed() -> None:
    global _all
    _all = tuple({id(q): q for q in known_queues.values()}.values())
