"""Several small kernels in one dispatch.

On a GPU a launch costs some microseconds however little it does, and a training step is full of little ones: the sum of each bias's
gradient, the second stage of each long sum. They need nothing of each other, so the number of a workgroup decides which of
them it works for. A `Part` waits here until a step of the plan needs what it makes, or writes what it reads; then it goes out,
together with what else waits and is ready.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .expr import Expr, variable
from .lower import Kernel, grid_for, groups_head, threads_head
from .steps import Touches

if TYPE_CHECKING:
    from .builder import Builder
    from .fuse import Group
    from .repeats import Alone, Moved

#: most parts of one kernel
MOST_PARTS = 16
#: a part of at most so many workgroups may share a launch whose workgroups have more threads than it needs
MOST_ENLARGED = 1024
#: bytes of values that may live on only because a part waits that reads them
KEPT = 64 << 20


class Part:
    """Work that can stand beside other work in one kernel.

    `body(k, item)` writes what is done for item number `item`, of which there are `count`: by a thread each, or, where `size` is
    given, by a workgroup: of that size, or, unless `exact`, of a larger one. It is called once for each kernel in which it is
    tried. `threads`: how many of them a workgroup has where any number will do.
    """

    __slots__ = ("body", "count", "exact", "item", "moved", "name", "places", "reads", "size", "threads", "writes")

    def __init__(
        self,
        name: str,
        count: int,
        item: str,
        body: Callable[[Kernel, Expr], None],
        *,
        size: int = 0,
        exact: bool = False,
        threads: int = 64,
        reads: Iterable[Any] = (),
        writes: Iterable[Any] = (),
    ) -> None:
        self.name = name
        self.count = count
        self.item = item
        self.body = body
        self.size = size
        self.exact = exact
        self.threads = size or threads
        self.reads = set(reads)  # what it touches in the buffer that long reductions share, see `row_chunks.States`
        self.writes = set(writes)
        self.moved: Moved | None = None  # from the group that the body was written for
        self.places: list[int] | None = None  # the nodes of its group, where another may be like it, see repeats.py


def alone(number: int, part: Part) -> tuple[Kernel, str, list[int]]:
    """The kernel of one part, its text and grid."""
    k = Kernel(number, part.name)
    k.workgroup = (part.threads, 1, 1)
    n = k.dim(part.count, "items")
    part.body(k, variable(part.item, "u32"))
    if part.size:
        return k, k.source(groups_head(k, n, part.item)), grid_for(part.count, 1)
    return k, k.source(threads_head(k, n, name=part.item)), grid_for(part.count, k.workgroup[0])


def together(number: int, parts: list[Part]) -> tuple[Kernel, str, list[int]]:
    """The same for several, in workgroups of the largest size that is given."""
    size = max(p.size for p in parts) or parts[0].threads
    names = list(dict.fromkeys(p.name for p in parts))
    k = Kernel(number, " | ".join(names if len(names) <= 4 else [*names[:3], f"{len(names) - 3} more"]))
    k.workgroup = (size, 1, 1)
    r = k.r
    total = 0
    first = "0u"
    for j, p in enumerate(parts):
        k.part()
        n = r.text(k.dim(p.count))
        total += p.count if p.size else -(-p.count // size)
        end = r.text(k.dim(total))
        r.push(f"{'else ' if j else ''}if (w < {end})")
        r.line(f"let {p.item} = " + (f"w - {first};" if p.size else f"(w - {first}) * {size}u + lid;"))
        if not p.size:
            r.push(f"if ({p.item} < {n})")
        k.moved = p.moved
        p.body(k, variable(p.item, "u32"))
        k.moved = None
        if not p.size:
            r.pop()
        r.pop()
        first = end
    head = [
        f"@compute @workgroup_size({size}, 1, 1)",
        "fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, "
        "@builtin(local_invocation_index) lid: u32) {",
        "  let w = (wg.z * nwg.y + wg.y) * nwg.x + wg.x;",
    ]
    return k, k.source(head), grid_for(total, 1)


def _suit(a: Part, b: Part) -> bool:
    """Whether none of the two has to run in many workgroups that are larger than it needs."""
    if a.size == b.size or not a.size or not b.size:
        return True
    smaller = min(a, b, key=lambda p: p.size)
    return not smaller.exact and smaller.count <= MOST_ENLARGED


class _Waiting:
    """A part, its own kernel, and what that binds and touches."""

    __slots__ = ("binds", "group", "launch", "part", "reads", "writes")

    def __init__(
        self,
        part: Part,
        group: Group | None,
        launch: tuple[Kernel, str, list[int]],
        reads: set[Any],
        writes: set[Any],
    ) -> None:
        self.part = part
        self.group = group
        self.launch = launch
        self.binds = {(b.key, b.type) for b in launch[0].bindings}
        self.reads = reads
        self.writes = writes

    def after(self, other: _Waiting) -> bool:
        """Whether it must not run beside `other`, nor before it."""
        return bool(other.writes & self.reads or other.writes & self.writes or other.reads & self.writes)


class Parts:
    """The parts that wait for others to share a launch with, in the plan of a builder."""

    def __init__(self, b: Builder) -> None:
        self.b = b
        self.waiting: list[_Waiting] = []

    def add(self, part: Part) -> None:
        launch = alone(self.b.target.number, part)
        record = self.b.repeats.record
        if record is not None:
            record.written.append((part, launch))
            part.places = record.places
        self.put(part, launch)

    def put(self, part: Part, launch: Alone) -> None:
        """launch: what runs it alone."""
        k = launch[0]
        reads, writes = self._touched([(b.key, b.access) for b in k.bindings])
        self.waiting.append(_Waiting(part, self.b.group, launch, reads | part.reads, writes | part.writes))
        if self._kept(self.waiting) > KEPT:  # those that keep nothing alive, as second stages, go on waiting
            self.flush([w for w in self.waiting if self._kept([w])])

    def _touched(self, buffers: Touches) -> tuple[set[Any], set[Any]]:
        """The memory that is read, and that is written. Parts of the states' buffer have names of their own."""
        b = self.b
        mine = [(b.memory(key), access) for key, access in buffers if key not in b.arenas.values()]
        return {m for m, _ in mine}, {m for m, access in mine if access == "rw"}

    def _kept(self, waiting: list[_Waiting]) -> int:
        """Bytes of values that live on only because one of these parts waits that reads them."""
        b = self.b
        now = b.place[b.group.index] if b.group else 0
        keys = {key for w in waiting for key, _ in w.binds if key.kind == "value" and not b.graph.live[key.number]}
        return sum(b.nbytes(key.number) for key in keys if b.last_read.get(key.number, now) <= now)

    def before(self, buffers: Touches) -> None:
        """To be called before a step that touches these buffers: sends what has to run first."""
        if self.waiting:
            reads, writes = self._touched(buffers)
            first = [w for w in self.waiting if w.writes & (reads | writes) or w.reads & writes]
            if first:
                self.flush(first)

    def flush(self, wanted: list[_Waiting]) -> None:
        """Sends these, what they need, and what fits beside them."""
        need: dict[int, int] = {}  # of each: how many launches there are at least before all that is wanted is done
        for i in range(len(self.waiting) - 1, -1, -1):
            w = self.waiting[i]
            behind = [need[id(x)] for x in self.waiting[i + 1 :] if id(x) in need and x.after(w)]
            if behind or any(w is x for x in wanted):
                need[id(w)] = 1 + max(behind, default=0)
        while any(id(w) in need for w in self.waiting):
            ready = [w for i, w in enumerate(self.waiting) if not any(w.after(x) for x in self.waiting[:i])]
            ready.sort(key=lambda w: -need.get(id(w), 0))
            batch = self._batch(ready)
            self.waiting = [w for w in self.waiting if w not in batch]
            if len(batch) == 1:
                launch = batch[0].launch
            else:
                launch = self.b.repeats.together([(w.part, w.launch) for w in batch])
            self.b.parts_of[len(self.b.steps)] = [(w.group, w.part.name) for w in batch]
            self.b.steps.append(self.b.launched(*launch))

    def _batch(self, ready: list[_Waiting]) -> list[_Waiting]:
        """Those of `ready`, the first among them, that one kernel can take."""
        batch = ready[:1]
        binds = set(batch[0].binds)
        for w in ready[1:]:
            if len(batch) == MOST_PARTS:
                break
            if len(binds | w.binds) <= self.b.target.buffers and all(_suit(w.part, x.part) for x in batch):
                batch.append(w)
                binds |= w.binds
        return batch
