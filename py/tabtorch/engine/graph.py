"""The graph of what is not computed yet: operations emit nodes, which wait until they are sent, and values are read.

Nothing runs until `flush`. A node is *live* if anything but the graph still refers to it when its window is sent, see
liveness.py. What nodes, their instructions, queues and windows are is in files of their own, whose names are shown here for
those who make operations.
"""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tabtorch import _lazy
from tabtorch.base import interrupts
from tabtorch.base.thread_state import FIRST, STATE, met

from .. import bridge as _bridges
from ..bridge.base import LOCK
from . import queues
from .instructions import Inst, inst
from .kinds import Contract, Custom, Map, Op, Reduce, Write
from .liveness import held_beyond
from .memory import Buffer, Lost, bridge, check_size, copied, largest, lost, memory
from .nodes import Node, blank, from_host, reserve
from .queues import Nodes, Queue, all_queues, queue_of, share_queue
from .symbols import concrete
from .window import Window, counts

#: nodes after which a window is sent though no value of it is read
WINDOW = 256
#: the same in a compiled function, which is planned as a whole
HELD = 8192
#: bytes that a waiting window keeps from being freed, after which it is sent: see `_weight`
WATERMARK = 256 << 20
#: an operation of less work than this is not looked at for the watermark
LITTLE = 1 << 16

_plans: dict[tuple, Any] = {}
#: how many are kept
MOST_PLANS = 4096


def emit(i: Inst, srcs: tuple[Node, ...], scalars: tuple = ()) -> Node:
    """Appends a node to its device's window."""
    n = Node(i, srcs, scalars)
    q = i.queue
    nodes = q.nodes
    nodes.append(n)
    if len(nodes) >= WINDOW and (STATE.held is None or len(nodes) >= HELD):
        if planning and planning == get_ident():
            return n
        flush_queue(q)
        bridge().flush()  # so that the device works while Python goes on
    elif i.work > LITTLE:  # only what is large can reach the watermark
        size = concrete(i.out.numel)
        if size > LITTLE:
            nbytes = size * i.out.dtype.itemsize
            if nbytes > WATERMARK:
                try:
                    check_size(nbytes, i.out)  # now, when nothing else is refused with it
                except RuntimeError:
                    with LOCK:
                        if n in nodes:
                            nodes.remove(n)
                    raise
            if not i.op.fused:
                q.bytes += nbytes
        q.work += i.work
        for s in srcs:
            if type(s.buf) is Buffer:  # one example of a batch has no memory of its own
                q.bytes += s.buf.nbytes
        if STATE.held is None and _is_due(q):
            flush_queue(q)
            bridge().flush()
    return n


class Script:
    """Instructions that are emitted together, again and again: see ops/machinery/recorded.py.

    steps: (instruction, what takes its sources of a list of the inputs and all nodes before: a function, a place, or None for
    none, scalars). ends: places of what is wanted in the end.
    """

    __slots__ = ("bytes", "ends", "queue", "reads", "steps", "work")

    def __init__(
        self, inputs: int, steps: list[tuple], ends: list[int], read: list[tuple[Inst, tuple[int, ...]]]
    ) -> None:
        """read: of each step the instruction, and the places of its sources."""
        self.steps = steps
        self.ends = ends
        self.queue = steps[0][0].queue
        # what `emit` adds up for the watermark
        large = [(i, srcs) for i, srcs in read if i.work > LITTLE]
        self.work = sum(i.work for i, _ in large)
        self.bytes = sum(
            i.out.numel * i.out.dtype.itemsize for i, _ in large if not i.op.fused and i.out.numel > LITTLE
        )
        self.reads = [s for _, srcs in large for s in srcs if s < inputs]


def run_script(script: Script, nodes: list[Node]) -> list[Node]:
    """Emits the instructions over these inputs; the nodes at its ends. The list is used up."""
    q = script.queue
    waiting = q.nodes  # whose `append` is asked for each time: another thread may begin to watch
    more = nodes.append
    for i, get, scalars in script.steps:
        if get is None:
            n = Node(i, (), scalars)
        elif type(get) is int:
            n = Node(i, (nodes[get],), scalars)
        else:
            n = Node(i, get(nodes), scalars)
        waiting.append(n)
        more(n)
    found = [nodes[k] for k in script.ends]
    if script.work:
        q.work += script.work
        q.bytes += script.bytes
        for k in script.reads:
            b = nodes[k].buf
            if type(b) is Buffer:
                q.bytes += b.nbytes
    nodes.clear()  # what nobody else holds need not be stored
    n = b = None  # type: ignore[assignment]
    if len(waiting) >= WINDOW and (STATE.held is None or len(waiting) >= HELD):
        if not planning or planning != get_ident():
            flush_queue(q)
            bridge().flush()
    elif script.work and STATE.held is None and _is_due(q):
        flush_queue(q)
        bridge().flush()
    return found


def _is_due(q: Queue) -> bool:
    """Whether a window should be sent: for its memory, or because it is work enough for the device."""
    return (q.bytes > WATERMARK and _weight(q) > WATERMARK) or (q.device.type == "webgpu" and q.work > bridge().portion)


def _weight(q: Queue) -> int:
    """Bytes that wait with a window, because sending it would free them: the inputs that nobody else holds, and what lies in a
    buffer between kernels. Values that are held take their memory sooner or later, and fused ones none. The window's count
    goes on from there."""
    nodes = q.waiting()
    total = 0
    reads: dict[int, int] = {}
    inputs: list[Node] = []
    for n in nodes[:]:
        if not n.inst.op.fused:
            total += n.inst.out.numel * n.inst.out.dtype.itemsize
        for s in n.srcs:
            if s.buf is not None:
                if id(s) not in reads:
                    inputs.append(s)
                reads[id(s)] = reads.get(id(s), 0) + 1
    n = s = None  # else the loop variables would count as holders
    free = held_beyond(inputs, [reads[id(x)] for x in inputs])
    total += sum(x.buf.nbytes for x, held in zip(inputs, free) if not held and x.buf is not None)
    q.bytes = total
    return total


# ---- sending

#: the thread that plans a window. Should a finalizer or a signal handler interrupt it, its nodes have to wait
planning = 0


@contextmanager
def undisturbed() -> Iterator[None]:
    """What is done inside, in the LOCK, is no place for a signal handler or a finalizer to send nodes."""
    global planning
    handler = interrupts.hold()
    planning = get_ident()
    try:
        yield
    finally:
        planning = 0
        interrupts.release(handler)


def flush_queue(q: Queue, wanted: Node | None = None) -> None:
    """Sends a window: looks its plan up by structure, or makes one, and runs it.

    wanted: a node that has to be in it, or before it, though it may be another thread's.
    """
    with LOCK:  # what another thread has taken out is sent by the time that it is had
        if q.nodes or q.nodes.others:
            _send(q, wanted)


def _send(q: Queue, wanted: Node | None = None) -> Exception | None:
    """In the LOCK. Returns the error of what could not be planned, which who reads that hears of: others' values are computed."""
    global planning
    me = get_ident()
    if me != FIRST:
        met()
    if planning:
        raise RuntimeError(
            "this tensor cannot be used now: the thread was interrupted, by a signal handler or a finalizer, while it sent "
            "operations to the device, and has to go on with that first"
        )
    if STATE.held is not None:
        STATE.held.cut(q)
    if queues.recording is not None:
        queues.recording.apart(q, wanted)
    bridge()  # if the last one has died, this is where all that waited is found to be gone
    if not q.waiting():
        return None
    handler = interrupts.hold()  # `undisturbed`, which costs nine calls more: every window comes through here
    planning = me
    try:
        w = Window(q)
        error = attempt(w, q)
        return None if error is None else _lazy.salvage.send_apart(w, q, error)
    finally:
        planning = 0
        interrupts.release(handler)


def attempt(w: Window, q: Queue) -> Exception | None:
    """Plans a window and runs it, or returns why there is no plan: nothing was sent then."""
    try:
        w.survey()
        plan = _planned(w, q) if w.nodes else None
    except Exception as e:
        return e
    except BaseException:
        w.put_back(q)
        raise
    try:
        if plan is not None:
            counts["flushes"] = plan.used = counts["flushes"] + 1
            plan.run(w.nodes, w.inputs, w.scalars)
            if w.aliased:
                w.alias()
    except BaseException as e:
        if isinstance(e, Exception) and all(n.buf is None for n in w.nodes):
            return e
        give_up(w.nodes, e)
        raise
    return None


def _planned(w: Window, q: Queue) -> Any:
    """The plan of a window."""
    nodes, key = w.nodes, w.key
    key.append(tuple(w.live))
    key.append(tuple(w.free))
    k = tuple(key)
    plan = _plans.get(k)
    if plan is None:
        if len(_plans) >= MOST_PLANS:
            evict(_plans)
        plan = _plans[k] = _lazy.plan.make_plan(q.device, nodes, w.live, w.inputs, w.free)
        counts["plans"] += 1
    return plan


def forget_plans() -> None:
    """Drops all of them: windows are to be planned in another way. Schedules stay, by what they were made for."""
    with LOCK:
        while _plans:
            _plans.popitem()[1].forget()


def evict(plans: dict[tuple, Any]) -> None:
    """Makes room: an eighth of them goes, those that were not used for longest. All at once would make a program that runs in
    a loop schedule its windows again."""
    for k in sorted(plans, key=lambda k: plans[k].used)[: max(1, len(plans) // 8)]:
        plans.pop(k).forget()


def replan() -> None:
    """Sends what waits as it was planned; windows are planned anew from now on, for what kernels are like has changed."""
    flush()
    forget_plans()


def give_up(nodes: list[Node], why: BaseException | None = None) -> None:
    """Nodes that will never have a value say so when they are used, and `why`."""
    gone = Lost(why)
    for n in nodes:
        if n.buf is None:
            n.buf = gone
        n.srcs = n.scalars = ()


def _runtime_ended() -> None:
    """No plan of the last runtime means anything to the next, and what waited will have no value."""
    _plans.clear()
    for q in all_queues():
        for nodes in (q.nodes, q.nodes.others):
            give_up(nodes.take())
        q.windows = []
        q.bytes = q.work = 0


_bridges.on_close(_runtime_ended)
_bridges.keeps(globals(), "_plans")


def flush() -> None:
    """Sends everything that waits, on every device, in one call to JavaScript."""
    if STATE.held is not None:
        return
    error = None
    with LOCK:
        for q in all_queues():
            if q.nodes or q.nodes.others:
                error = _send(q) or error
        if queues.recording is not None:
            queues.recording.sent()
        runtime = bridge()
        errors = runtime.send()
    runtime.sent(errors)
    if error is not None:
        raise error


def buffer_of(n: Node) -> Buffer:
    """The node's memory, after sending its window if need be. Raises what the operation raised that was to make it."""
    if n.buf is None:
        flush_queue(n.inst.queue)
        if n.buf is None and queues.recording is not None:
            flush_queue(n.inst.queue, n)
        if n.buf is None:
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    if type(n.buf) is Lost and n.buf.why is not None:
        raise lost("", n.buf)
    return n.buf


#: called when who reads, or synchronizes, has waited for the device, which then has nothing to do: see measuring.py
waited: Callable[[], None] | None = None

#: reads in place of `read_now` while a device may have something to say: see ops/machinery/asserts.py
read_checked: Callable[[list[tuple[Node, int, int]]], list[Any]] | None = None


def read_many(wanted: list[tuple[Node, int, int]]) -> list[Any]:
    """As `read` for each (node, offset, nbytes), with one wait for all of them."""
    return read_now(wanted) if read_checked is None else read_checked(wanted)


def read_now(wanted: list[tuple[Node, int, int]]) -> list[Any]:
    """The same, whatever the device has to say."""
    runtime = bridge()
    # JavaScript would take a Symbol for an object, and add to it as to a text
    found = [(buffer_of(n), concrete(offset), concrete(nbytes)) for n, offset, nbytes in wanted]
    if not all(b.id for b, _, nbytes in found if nbytes):
        raise lost()
    values: list[Any] = runtime.read_many([(b.id, b.device, offset, nbytes) for b, offset, nbytes in found])
    if waited is not None:
        waited()
    return values


def read(n: Node, offset: int, nbytes: int) -> bytes:
    """Bytes of a value on the host; waits for the device."""
    if STATE.held is not None:
        STATE.held.read()
    runtime = bridge()  # first: if the last one has died, this is where its buffers are found to be gone
    b = buffer_of(n)
    if nbytes == 0:
        return b""
    if not b.id:
        raise lost()
    if read_checked is not None:
        return bytes(read_checked([(n, offset, nbytes)])[0])
    value: bytes = runtime.read(b.id, b.device, concrete(offset), concrete(nbytes))
    if waited is not None:
        waited()
    return value


__all__ = [
    "Buffer",
    "Contract",
    "Custom",
    "Inst",
    "LOCK",
    "Map",
    "Node",
    "Nodes",
    "Op",
    "Queue",
    "Reduce",
    "Script",
    "Window",
    "Write",
    "all_queues",
    "attempt",
    "blank",
    "bridge",
    "buffer_of",
    "check_size",
    "copied",
    "counts",
    "emit",
    "evict",
    "flush",
    "flush_queue",
    "from_host",
    "give_up",
    "inst",
    "largest",
    "lost",
    "memory",
    "queue_of",
    "read",
    "read_many",
    "read_now",
    "reserve",
    "run_script",
    "share_queue",
    "undisturbed",
]
