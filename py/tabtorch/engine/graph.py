"""Deferred nodes. An operation appends one; nothing runs until `flush`.

A `Node` is a value: flat, contiguous, never changed once made. Storages point at nodes; in-place writes move the pointer.
A node is *live* if anything but the graph still refers to it when its window is flushed, see liveness.py.
"""

from __future__ import annotations

import gc
import os
from _thread import get_ident
from collections.abc import Callable
from itertools import repeat
from time import sleep
from typing import TYPE_CHECKING, Any

from tabtorch.base import interrupts
from tabtorch.base.device import check_has
from tabtorch.base.thread_state import FIRST, STATE, met

from .. import bridge as _bridges
from ..bridge.base import LOCK
from .liveness import by, held_beyond
from .symbols import concrete, is_number
from .view import Meta, concrete_meta, started

if TYPE_CHECKING:
    from .plan import Lowering

#: nodes collected before a window is sent although nobody reads
WINDOW = 256
#: the same in a compiled function, which is planned as a whole
HELD = 8192
#: bytes that wait with a window after which it is sent, so that they are freed: see `_weight`
WATERMARK = 256 << 20
#: kinds of operations whose values need no buffer of their own, as long as nobody keeps them
FUSED = frozenset({"map", "reduce"})
#: work of an operation that is not counted
LITTLE = 1 << 16


class Op:
    """What a node does. `kind` says how the engine treats it; see the subclasses.

    `sized`: the numbers in the `static` of its instructions are sizes, and its kernels take them as parameters. A schedule then
    holds for others too (schedules.py), and a kernel must not look them up in a dict or set together with other numbers.
    """

    __slots__ = ("name",)
    kind = ""
    sized = False

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}>"


class Map(Op):
    """Element by element: `expr(*values)` in the node's compute type, inputs broadcast to the output's shape.

    With `indexed`, `expr(ctx)` gets the lowering context instead: coordinates, and loads at computed places.
    `cost` is a rough count of operations: cheap maps are recomputed where they are used rather than stored.
    """

    __slots__ = ("cost", "expr", "indexed", "sized")
    kind = "map"

    def __init__(
        self, name: str, expr: Callable[..., Any], *, indexed: bool = False, cost: int = 1, sized: bool = False
    ) -> None:
        super().__init__(name)
        self.sized = sized
        self.expr = expr
        self.indexed = indexed
        self.cost = cost


class Reduce(Op):
    """A monoid over the trailing dimensions of its input (the view puts them last; `static` = how many are kept).

    `lift(x, k)` makes a state (tuple of expressions) of an element and its index, `combine` joins two, `result` ends it.
    `init(type)` is the neutral state. `sums`: joining adds the states' parts.
    """

    __slots__ = ("combine", "init", "lift", "result", "sums")
    kind = "reduce"

    def __init__(
        self,
        name: str,
        init: Callable[[str], tuple],
        lift: Callable[[Any, Any], tuple],
        combine: Callable[[tuple, tuple], tuple],
        result: Callable[[tuple], Any],
        sums: bool = False,
    ) -> None:
        super().__init__(name)
        self.sums = sums
        self.init = init
        self.lift = lift
        self.combine = combine
        self.result = result


class Contract(Op):
    """Sum of products. Both inputs are views of shape (batch…, m…, n…, k…) with stride 0 where they do not vary;
    `static` = (batch, m, n, k) numbers of dimensions. The output is (batch…, m…, n…)."""

    __slots__ = ()
    kind = "contract"


class Write(Op):
    """`base` with a region replaced by `value` (already broadcast to it). `static` = the region's Meta.

    Done in place where nobody else reads `base`.
    """

    __slots__ = ()
    kind = "write"


class Custom(Op):
    """Anything else: `lower(inst, low)` makes its own launches. All inputs are in buffers, all as `inst.ins` says.

    `batched`: its rule for `vmap`, see ops/machinery/batching.py; without one it is called for one example after the other.
    """

    __slots__ = ("batched", "in_place", "lower", "sized", "sliding")
    kind = "custom"

    def __init__(
        self,
        name: str,
        lower: Callable[[Inst, Lowering], None],
        *,
        in_place: bool = False,
        sliding: bool = False,
        sized: bool = False,
        batched: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(name)
        self.sized = sized
        self.lower = lower
        self.batched = batched
        self.in_place = in_place  # the output starts as a copy of input 0
        self.sliding = sliding  # its kernels ask for where views begin (`Kernel.offset`), as those of maps do


class Inst:
    """An operation with everything that does not vary from call to call: input views, output, static arguments.

    Interned by the operation tables, so a plan's key can be made of identities. Where a view begins does not belong to that
    structure: `base` is the same instruction with every offset but 0 as 1, and `offsets` are the real ones, which a plan takes
    as it takes scalars. So a window that slides over data, or a position that grows, schedules nothing anew.
    """

    __slots__ = (
        "asked",
        "base",
        "compute",
        "concrete",
        "ins",
        "offsets",
        "op",
        "out",
        "queue",
        "scalars",
        "static",
        "structure",
        "work",
    )
    work: int

    def __init__(
        self,
        op: Op,
        ins: tuple[Meta, ...],
        out: Meta,
        scalars: tuple[str, ...] = (),
        static: Any = None,
        compute: str | None = None,
    ) -> None:
        check_has(out.device, out.dtype, op.name)
        for m in ins:
            if m.device.number != out.device.number:
                raise RuntimeError(
                    "Expected all tensors to be on the same device, but found at least two devices, "
                    f"{out.device.public} and {m.device.public}!"
                )
        self.op = op
        self.ins = ins
        self.out = out
        self.scalars = scalars  # compute types of the node's scalars
        self.static = static
        self.compute = compute or out.dtype.compute
        self.queue = queue_of(out.device)
        self.structure: Any = None  # see schedules.py
        self.base: Inst = self
        self.offsets: tuple[int, ...] = ()
        #: where sizes are symbols of a capture (compiled/dynamic.py), the same with those at hand
        self.concrete: Inst | None = None
        if symbols_met and (known := _known(op, ins, out, static)) is not None:
            at_hand: Inst = inst(op, known[0], known[1], scalars, known[2], compute)
            self.concrete = at_hand
            self.work, self.base, self.offsets = at_hand.work, at_hand.base, at_hand.offsets
            self.asked = compute  # what `inst` was given
            return
        self.work = _work(op, ins, out)
        if op.kind != "custom" or getattr(op, "sliding", False):
            self.offsets = tuple(m.offset for m in self.views() if m.offset)
            if any(x != 1 for x in self.offsets):
                begun = tuple(started(m) for m in ins)
                region = started(static) if op.kind == "write" else static
                self.base = inst(op, begun, out, scalars, region, compute)

    def views(self) -> tuple[Meta, ...]:
        """The views whose beginnings vary: those of the inputs, and the region of a write."""
        return (*self.ins, self.static) if self.op.kind == "write" else self.ins


def _known(op: Op, ins: tuple[Meta, ...], out: Meta, static: Any) -> tuple[tuple[Meta, ...], Meta, Any] | None:
    """Views and `static` with the numbers that their symbols have; None where there are none. Where numbers in `static` are
    no parameters of kernels, those become guards."""
    shown = tuple([concrete_meta(m) for m in ins]), concrete_meta(out), _known_static(static, op.sized)
    if shown[1] is out and shown[2] is static and all(a is b for a, b in zip(shown[0], ins, strict=True)):
        return None
    return shown


def _known_static(x: Any, sized: bool) -> Any:
    if type(x) is Meta:
        return concrete_meta(x)
    if type(x) is tuple:
        found = tuple([_known_static(y, sized) for y in x])
        return x if all(a is b for a, b in zip(x, found, strict=True)) else found
    if hasattr(x, "of_parts"):
        sizes = x.sizes()
        found = _known_static(sizes, True)
        return x if found is sizes else type(x).of_parts(found, x.rest())
    if is_number(x):
        return concrete(x) if sized else x.pinned()
    return x


def _work(op: Op, ins: tuple[Meta, ...], out: Meta) -> int:
    """Roughly what it is for a device, in elements of a map. What is contracted takes longer: it is read, multiplied and added."""
    most = max([out.numel, *(m.numel for m in ins)])
    return 8 * most if op.kind == "contract" else most


_insts: dict[tuple, Inst] = {}


def inst(
    op: Op,
    ins: tuple[Meta, ...],
    out: Meta,
    scalars: tuple[str, ...] = (),
    static: Any = None,
    compute: str | None = None,
) -> Inst:
    """The one Inst with these properties; for callers that keep no table of their own."""
    key = (op, ins, out, scalars, static, compute)
    r = _insts.get(key)
    if r is None:
        if len(_insts) > 200_000:
            _insts.clear()
        r = _insts.setdefault(key, Inst(op, ins, out, scalars, static, compute))
    return r


class Buffer:
    """Memory on a device. Freed, in stream order, when the last reference goes. `id` is 0 once the runtime that held it has ended."""

    __slots__ = ("__weakref__", "base", "device", "free", "id", "nbytes", "offset")

    def __init__(self, id: int, nbytes: int, device: int, base: Buffer | None = None, offset: int = 0) -> None:
        self.base = base  # a window onto that buffer, from byte `offset` on; it counts as no memory of its own
        self.offset = offset
        self.id = id
        self.nbytes = nbytes
        self.device = device
        self.free = release[0]
        memory.add(device, nbytes)

    def __del__(self) -> None:
        if self.id and memory is not None:  # it is None where Python is ending
            memory.live[self.device] -= self.nbytes
            self.free(self.id)


class Memory:
    """Bytes held by live values, per device number."""

    __slots__ = ("live", "peak")

    def __init__(self) -> None:
        self.live = [0, 0]
        self.peak = [0, 0]

    def add(self, device: int, n: int) -> None:
        # no call, so no other thread, comes between the look and the change
        v = self.live[device] + n
        self.live[device] = v
        if v > self.peak[device]:
            self.peak[device] = v


memory = Memory()


#: the bridge's `free`, at hand for buffers to be
release: list[Callable[[int], None]] = [lambda ident: None]


def bridge() -> Any:
    """The one bridge; its `free` is kept at hand for dying buffers."""
    b = _bridges.get_bridge()
    release[0] = b.free
    return b


def lost(name: str = "") -> Exception:
    """The error for a value that went with its runtime."""
    from tabtorch.base.errors import AcceleratorError

    if _bridges.forked:
        return AcceleratorError(
            f"{name + ': ' if name else ''}a tensor from before the fork has no value in this process, which has a runtime of "
            "its own. Make it here, send it through a queue or a pipe, or use the 'spawn' start method."
        )
    return AcceleratorError(
        f"{name + ': ' if name else ''}a tensor has no value any more: the device that held it was lost, or the operation "
        "that was to make it failed. Make it again, or load it."
    )


def runtime_ended() -> None:
    """Nothing that was made for the last runtime means anything to the next: plans, kernels, and every value."""
    from . import plan, schedules, target

    _plans.clear()
    schedules.forget()
    _limits.clear()
    plan._kernels.clear()
    target._targets.clear()
    for q in _all:
        for nodes in (q.nodes, q.nodes.others):
            _give_up(nodes.take())
        q.windows = []
        q.bytes = q.work = 0
    for o in gc.get_objects():
        if type(o) is Buffer and o.id:
            memory.live[o.device] -= o.nbytes
            o.id = 0


_bridges.on_close(runtime_ended)


def _forked() -> None:
    """In the child of a fork there is but the thread that forked."""
    if recorder and recorder != get_ident():
        recorded()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Node:
    """A value to come (`buf` is None) or in memory. `host` keeps small uploaded data, so that it can be checked without a read."""

    __slots__ = ("buf", "host", "inst", "pos", "scalars", "srcs", "uses")
    host: Any
    pos: int  # in its window; an input's place in the plan, counted from -1 down
    uses: int  # how often the window reads it

    def __init__(self, inst: Inst, srcs: tuple[Node, ...], scalars: tuple) -> None:
        self.inst = inst
        self.srcs = srcs
        self.scalars = scalars
        self.buf: Buffer | None = None
        self.pos = 0


def plain(n: Node) -> None:
    """Puts the numbers that symbols of a capture have in their place."""
    if n.inst.concrete is not None:
        n.inst = n.inst.concrete
    if n.scalars:
        n.scalars = tuple(map(concrete, n.scalars))


class Nodes(list):
    """Nodes that wait. Those of other threads than the one whose function is being recorded are kept apart, in `others`."""

    __slots__ = ("others",)
    others: Nodes

    def take(self) -> list[Node]:
        """All that is there, taken out. What other threads append meanwhile stays."""
        taken = self[:]
        del self[: len(taken)]
        return taken


class Watched(Nodes):
    """The same while there are batched values, or a function is being recorded."""

    __slots__ = ()

    def append(self, n: Node) -> None:
        put = for_all if batches[0] else list.append
        if not recorder or get_ident() == recorder:
            put(self, n)
            return
        with LOCK:  # the recording may have ended meanwhile: what came to `others` after that would miss its window
            put(self.others if recorder else self, n)


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
        nodes = self.nodes
        return nodes.others if recorder and type(nodes) is Watched and get_ident() != recorder else nodes


_queues: dict[Any, Queue] = {}
#: each of them once
_all: tuple[Queue, ...] = ()

#: how many batched values there are; what is done with a node then: see func/batch.py
batches = [0]
for_all: Callable[[Nodes, Node], None] = list.append
#: the thread whose function is being recorded, until all that it has emitted was sent; 0: none. And its Hold: see compiled/hold.py
recorder = 0
recording: Any = None


#: whether a function was ever captured with symbols for sizes (compiled/dynamic.py)
symbols_met = False


#: whether there may be batched values: `batches` is counted without a lock, and this follows (func/batch.py says how)
batched = False


def watch() -> None:
    """To be called when `batched` or `recorder` has changed."""
    with LOCK:
        kind = Watched if recorder or batched else Nodes
        for q in _all:
            if type(q.nodes) is not _Nowhere:
                q.nodes.__class__ = kind


def queue_of(device: Any) -> Queue:
    q = _queues.get(device)
    if q is None:
        with LOCK:
            q = _queues.setdefault(device, Queue(device, _Nowhere if device.type == "meta" else Nodes))
            _listed()
            watch()
    return q


def share_queue(device: Any, other: Any) -> None:
    """Values of `device` wait in the window of `other`: both are one device."""
    with LOCK:
        _queues[device] = queue_of(other)
        _listed()


def _listed() -> None:
    global _all
    _all = tuple({id(q): q for q in _queues.values()}.values())


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
            if i.op.kind not in FUSED:
                q.bytes += nbytes
        q.work += i.work
        for s in srcs:
            if type(s.buf) is Buffer:  # one example of a batch has no memory of its own
                q.bytes += s.buf.nbytes
        if STATE.held is None and (
            (q.bytes > WATERMARK and _weight(q) > WATERMARK)
            or (q.device.type == "webgpu" and q.work > bridge().portion)
        ):
            flush_queue(q)
            bridge().flush()
    return n


def _weight(q: Queue) -> int:
    """Bytes that wait with a window, because sending it would free them: the inputs that nobody else holds, and what lies in a
    buffer between kernels. Values that are held take their memory sooner or later, and fused ones none. The window's count
    goes on from there."""
    nodes = q.waiting() if recorder else q.nodes
    total = 0
    reads: dict[int, int] = {}
    inputs: list[Node] = []
    for n in nodes[:]:
        if n.inst.op.kind not in FUSED:
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


#: stands in for the operation of values that came from the host
_upload = Op("upload")


def from_host(data: Any, m: Meta, host: Any = None) -> Node:
    """A node that holds `data` (bytes of a contiguous tensor)."""
    n = blank(m)
    if m.device.type == "meta":
        return n
    nbytes = m.numel * m.dtype.itemsize
    check_size(nbytes, m)
    with LOCK:  # an id means something only as long as the runtime lives, whose end is told to buffers
        n.buf = Buffer(bridge().upload(m.device.number, data), nbytes, m.device.number)
    n.host = host
    return n


def blank(m: Meta) -> Node:
    """A node with no memory yet. On the meta device it never has any."""
    return Node(inst(_upload, (), m), (), ())


def reserve(m: Meta) -> Node:
    """A node whose bytes come later, in pieces, with the bridge's `write`."""
    n = blank(m)
    nbytes = m.numel * m.dtype.itemsize
    check_size(nbytes, m)
    with LOCK:
        n.buf = Buffer(bridge().alloc(m.device.number, nbytes), nbytes, m.device.number)
    return n


def copied(b: Buffer, device: int, nbytes: int) -> Buffer:
    """Another buffer, on `device`, with the first bytes of `b`."""
    with LOCK:
        return Buffer(bridge().copy(device, b.id, nbytes), concrete(nbytes), device)


def largest(device: int) -> int:
    """Bytes of the largest buffer that a kernel can bind."""
    limit = _limits.get(device)
    if limit is None:
        gpu = bridge().info.get("webgpu") if device == 0 else None
        lim = gpu["limits"] if gpu else {}
        limit = min(lim.get("maxBufferSize", 2**32 - 4), lim.get("maxStorageBufferBindingSize", 2**32 - 4), 2**32 - 4)
        _limits[device] = limit
    return limit


def check_size(nbytes: int, m: Meta) -> None:
    """Raises RuntimeError for a tensor that the device cannot hold in one buffer."""
    if m.device.type == "meta":
        return
    limit = largest(m.device.number)
    if nbytes > limit:
        from tabtorch.base.errors import OutOfMemoryError

        raise OutOfMemoryError(
            f"a tensor of shape {list(m.shape)} and type {m.dtype!r} needs {nbytes} bytes, but device {m.device} "
            f"allows at most {limit} bytes in one buffer: use a smaller one, or split it."
        )


_limits: dict[int, int] = {}


_plans: dict[tuple, Any] = {}
#: kept of them
MOST_PLANS = 4096


class Window:
    """A window about to be sent: its structure (`key`, which `live` is to be added to), what it reads, its numbers."""

    __slots__ = ("aliased", "free", "inputs", "key", "live", "nodes", "scalars", "symbolic")

    def __init__(self, q: Queue) -> None:
        """In the LOCK."""
        waiting = q.waiting() if recorder else q.nodes
        nodes = self.nodes = waiting[:]
        del waiting[: len(nodes)]
        aliases: list[int] = []
        if waiting is q.nodes:
            aliases, q.windows = q.windows, []
        q.bytes = q.work = 0
        #: the instructions with the symbols of a capture, and scalars
        self.symbolic: list[tuple[Inst, tuple]] = []
        if symbols_met:
            self.symbolic = [(n.inst, n.scalars) for n in nodes]
            for n in nodes:
                plain(n)
        key: list[Any] = []
        add = key.append
        inputs: list[Node] = []
        scalars: list[Any] = []
        for pos, n in enumerate(nodes):
            n.pos = pos
            n.uses = 0
            i = n.inst
            add(i.base)
            if i.offsets:
                scalars.extend(i.offsets)
            for s in n.srcs:
                if s.buf is None:
                    s.uses += 1
                    add(s.pos)
                else:
                    # an input met before has its place, counted from -1 down, in pos
                    p = s.pos
                    if p < 0 and -p <= len(inputs) and inputs[-p - 1] is s:
                        s.uses += 1
                    else:
                        inputs.append(s)
                        p = s.pos = -len(inputs)
                        s.uses = 1
                    add(p)
            if n.scalars:
                scalars.extend(n.scalars)
        if symbols_met:
            for n in inputs:
                plain(n)
        n = s = None  # else the loop variables would count as holders
        self.live = live = held_beyond(nodes, [x.uses for x in nodes])
        self.free = free = [not x for x in held_beyond(inputs, [x.uses for x in inputs])]
        if True in free:  # what lies in the same memory (windows onto it, the same as another value) may be somebody's
            buffers: list[Any] = [x.buf for x in inputs]
            apart = held_beyond(buffers, repeat(by("Node.buf")))
            self.free = [a and not b and x.base is None for a, b, x in zip(free, apart, buffers, strict=True)]
        self.key = key
        self.inputs = inputs
        self.scalars = scalars
        self.aliased: list[tuple[Node, Node]] = []
        for p in aliases:
            if live[p] and nodes[p].srcs[0].buf is None:  # never stored: a place in what its source stores
                self.aliased.append((nodes[p], nodes[p].srcs[0]))
        for w, flat in self.aliased:
            live[w.pos] = False
            live[flat.pos] = True

    def alias(self) -> None:
        """Gives the nodes that are windows their memory, once there is some."""
        for w, flat in self.aliased:
            base = flat.buf
            assert base is not None
            m = w.inst.ins[0]
            size = m.dtype.itemsize
            ident = bridge().alias(base.id, m.offset * size, m.numel * size)
            w.buf = Buffer(ident, 0, base.device, base, m.offset * size)


#: the thread that plans a window. Should a finalizer or a signal handler interrupt it, its nodes have to wait
planning = 0


def flush_queue(q: Queue, wanted: Node | None = None) -> None:
    """Sends a window: looks its plan up by structure, or makes one, and runs it.

    wanted: a node that has to be in it, or before it, though it may be another thread's.
    """
    with LOCK:  # what another thread has taken out is sent by the time that it is had
        if q.nodes or q.nodes.others:
            _send(q, wanted)


def _send(q: Queue, wanted: Node | None = None) -> None:
    """In the LOCK."""
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
    if q.nodes.others or wanted is not None:
        apart(q, wanted)
    if recorder and not q.waiting():
        return
    handler = interrupts.hold()
    planning = me
    w = None
    try:
        w = Window(q)
        nodes, key = w.nodes, w.key
        key.append(tuple(w.live))
        key.append(tuple(w.free))
        k = tuple(key)
        plan = _plans.get(k)
        if plan is None:
            from .plan import make_plan

            if len(_plans) >= MOST_PLANS:
                evict(_plans)
            plan = _plans[k] = make_plan(q.device, nodes, w.live, w.inputs, w.free)
            plans_made.append(len(nodes))
            del plans_made[:-64]
            counts["plans"] += 1
        counts["flushes"] = plan.used = counts["flushes"] + 1
        plan.run(nodes, w.inputs, w.scalars)
        if w.aliased:
            w.alias()
    except BaseException:
        if w is not None:
            _give_up(w.nodes)
        raise
    finally:
        planning = 0
        interrupts.release(handler)


def evict(plans: dict[tuple, Any]) -> None:
    """Makes room: an eighth of them goes, those that were not used for longest. All at once would make a program that runs in
    a loop schedule its windows again."""
    for k in sorted(plans, key=lambda k: plans[k].used)[: max(1, len(plans) // 8)]:
        plans.pop(k).forget()


# ---- a function that is recorded, and other threads
#
# Its nodes must be its own, so those of other threads are kept apart until it ends. Should one of these need a value of the
# function's that waits, or the other way round, all is sent as one window, and the recording is given up.


def record(hold: Any) -> bool:
    """Begins a recording of this thread's; False if another one is under way."""
    global recorder, recording
    with LOCK:
        if recorder:
            return False
        recording, recorder = hold, get_ident()
        watch()
        try:
            for q in _all:  # what waited before is nobody's in particular
                if q.nodes:
                    flush_queue(q)
        except BaseException:
            recorded()
            raise
    return True


def recorded() -> None:
    """It has ended, and all that it has emitted was sent."""
    global recorder, recording
    with LOCK:
        recorder, recording = 0, None
        for q in _all:
            if q.nodes.others:
                _join(q, q.nodes)
        watch()


def settle() -> None:
    """For the end of a recording: what it needs of other threads' is sent, or it is given up. In the LOCK."""
    for q in _all:
        if q.nodes.others:
            apart(q)


def apart(q: Queue, wanted: Node | None = None) -> None:
    """Sees to it that what waits for this thread needs nothing of what waits for the others. In the LOCK."""
    waited = 0
    while recorder:
        mine = q.waiting()
        other = q.nodes if mine is not q.nodes else q.nodes.others
        if not _needs(mine, other) and not any(n is wanted for n in other):
            return
        if mine is q.nodes and not _needs(other, mine):
            _send_others(q)
            return
        if not recording.closed or mine is q.nodes:
            recording.shared()
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
    _join(q, q.waiting())


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


def _give_up(nodes: list[Node]) -> None:
    """Nodes that will never have a value say so when they are used."""
    gone = Buffer(0, 0, 0)
    for n in nodes:
        if n.buf is None:
            n.buf = gone
        n.srcs = n.scalars = ()


#: plans made (for sizes that were not there before), schedules made for them, and windows sent
counts = {"plans": 0, "schedules": 0, "flushes": 0}
plans_made: list[int] = []


def flush() -> None:
    """Sends everything that waits, on every device, in one call to JavaScript."""
    if STATE.held is not None:
        return
    with LOCK:
        for q in _all:
            if q.nodes or q.nodes.others:
                _send(q)
        if recorder and recorder == get_ident() and recording.over:
            recorded()
        runtime = bridge()
        errors = runtime.send()
    runtime.sent(errors)


def buffer_of(n: Node) -> Buffer:
    """The node's memory, after sending its window if need be."""
    if n.buf is None:
        flush_queue(n.inst.queue)
        if n.buf is None and recorder:
            flush_queue(n.inst.queue, n)
        if n.buf is None:
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    return n.buf


#: reads in place of `read_now` while a device may have something to say: see ops/asserts.py
read_checked: Callable[[list[tuple[Node, int, int]]], list[Any]] | None = None


def read_many(wanted: list[tuple[Node, int, int]]) -> list[Any]:
    """As `read` for each (node, offset, nbytes), with one wait for all of them."""
    return read_now(wanted) if read_checked is None else read_checked(wanted)


def read_now(wanted: list[tuple[Node, int, int]]) -> list[Any]:
    """The same, whatever the device has to say."""
    runtime = bridge()
    found = [(buffer_of(n), offset, nbytes) for n, offset, nbytes in wanted]
    if not all(b.id for b, _, nbytes in found if nbytes):
        raise lost()
    return runtime.read_many([(b.id, b.device, offset, nbytes) for b, offset, nbytes in found])


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
    return runtime.read(b.id, b.device, offset, nbytes)
