"""Plans: a window's kernels, their buffers and parameters, kept and replayed for every window of the same structure.

`make_plan` gets a window from `graph.py`, has `fuse.py` cut it into groups, and `builder.py` write a kernel for each; the steps
and the slots that they bind go to JavaScript once. `Plan.run` sends buffers and scalars.
"""

from __future__ import annotations

import os
from typing import Any

from tabtorch import _lazy
from tabtorch.base.errors import OutOfMemoryError

from . import schedules, window
from .builder import Builder
from .fuse import MAX_NODES, Graph
from .lowering import Lowering
from .memory import Buffer, bridge, lost
from .nodes import Node
from .schedules import Schedule, Sized
from .steps import names
from .target import Target, target
from .trace import Trace
from .window import counts


def make_plan(
    device: Any,
    nodes: list[Any],
    live: list[bool],
    inputs: list[Any],
    free: list[bool],
    targets: list[tuple[int, int]] = [],  # noqa: B006  # never written
    keep: frozenset[int] = frozenset(),
    layouts: dict[int, Any] | None = None,
) -> Plan:
    """A plan for a window: of a schedule that serves its sizes, or of a new one. `targets`: (position, input) where a value has
    to end in the memory of an input, which nobody else reads; it gets memory of its own besides if it is in `keep`. `layouts`: of
    contractions, by position; if it is None, those that were measured (tuning.py), while they are wanted."""
    t = target(device.number)
    if layouts is None:
        layouts = window.measured(t, nodes) if window.measured is not None else {}
    more = (device, *vars(t).values(), tuple(live), tuple(free), tuple(targets), keep, *layouts.items())
    sized = Sized(nodes, inputs, more)
    work = sum([n.inst.work for n in nodes])
    found = schedules.find(sized)
    if found is not None:
        return Plan(*found, work)
    shadows, trace, pattern = schedules.shadows(sized)
    try:
        made = _scheduled(t, trace, shadows.nodes, live, shadows.inputs, free, targets, keep, layouts)
    except Exception:  # a kernel that cannot be written with symbols, or not at all: then this raises, too
        if schedules.strict:
            raise
        made = _scheduled(t, trace, nodes, live, inputs, free, targets, keep, layouts)
        trace.pin()
    counts["schedules"] += 1
    schedules.add(sized, made, trace, pattern)
    return Plan(made, made.at_hand(), work)


def _scheduled(
    t: Target,
    trace: Trace,
    nodes: list[Any],
    live: list[bool],
    inputs: list[Any],
    free: list[bool],
    targets: list[tuple[int, int]],
    keep: frozenset[int],
    layouts: dict[int, Any],
) -> Schedule:
    """Fuses the nodes and writes their kernels."""
    nodes = once(nodes)
    # Fusion asks which sizes are equal in order to join what has as many points, and is right where it joins less. So what is
    # equal by chance, for one length of a sequence, is no reason for another schedule.
    trace.lenient = True
    g, tight = _grouped(t, nodes, live, MAX_NODES)
    if tight:  # chains that are recomputed from many values may be why
        g = min(g, _grouped(t, nodes, live, 2)[0], key=lambda g: sum(1 for x in g.groups if x.nodes))
    trace.lenient = False
    return Builder(t, g, g.stored(), inputs, free, targets, keep, layouts).schedule()


def once(nodes: list[Any]) -> list[Any]:
    """The nodes of a window, where who reads one of several equal nodes reads the first of them; so the others are computed only
    if they are kept, and then in memory of their own.

    Equal are nodes of one instruction with the same sources. The structure of a window does not say what scalars are, nor where views
    begin, so nodes with such are equal to none. Nor are those that write, or do what only their operation knows.
    """
    first: dict[tuple, Any] = {}
    instead: dict[int, Any] = {}  # position -> the node to read
    out: list[Any] = []
    for n in nodes:
        if instead:
            srcs = tuple(instead.get(s.pos, s) if s.buf is None else s for s in n.srcs)
            if any(a is not b for a, b in zip(srcs, n.srcs, strict=True)):
                pos = n.pos
                n = Node(n.inst, srcs, n.scalars)
                n.pos = pos
        if n.inst.op.pure and not n.inst.scalars and not n.inst.offsets:
            i = n.inst
            # views are interned; an input's place is below 0
            key = (i.op, i.compute, i.static, *map(id, i.ins), id(i.out), *(s.pos for s in n.srcs))
            found = first.setdefault(key, n)
            if found is not n:
                instead[n.pos] = found
        out.append(n)
    return out


def _grouped(t: Target, nodes: list[Any], live: list[bool], leaves: int) -> tuple[Graph, bool]:
    """The groups of a window such that none binds too many buffers, and whether they had to be made smaller for it."""
    sizes: dict[int, int] = {}
    while True:
        g = Graph(nodes, live, t, sizes, leaves)
        stored = g.stored()
        tight = [x for x in g.groups if x.nodes and x.kind != "custom" and g.binds(x, stored) > t.buffers]
        smaller = {}
        for x in tight:
            for p in g.deep(x.nodes):
                if sizes.get(p, MAX_NODES) > 1:
                    smaller[p] = max(1, min(sizes.get(p, MAX_NODES), len(x.nodes) + 1) // 2)
        if not smaller:
            return g, bool(sizes)
        sizes.update(smaller)


class Plan:
    """A schedule for certain sizes, ready to run: defined once in JavaScript, replayed with other buffers and scalars.

    The first of a schedule is sent whole; others as the numbers by which they differ from it.
    """

    def __init__(self, schedule: Schedule, numbers: list[int], work: int) -> None:
        """numbers: those of `schedule.numbers` for these sizes. work: that of all nodes, see `Inst.work`."""
        self.schedule = schedule
        self.device = schedule.device
        outputs = numbers[schedule.first_output : schedule.first_temp]
        self.fresh = list(zip(schedule.fresh, outputs, strict=True))
        self.taken = schedule.taken
        self.complex = schedule.pairs
        self.types = schedule.types
        self.steps = schedule.steps
        self.temps, places = schedule.placed(numbers[schedule.first_temp :])
        if max(self.temps, default=0) >= 2**32:
            raise OutOfMemoryError(
                f"{names(self.steps)} needs {max(self.temps)} bytes for what it computes meanwhile: more than a buffer has."
            )
        self.used = 0  # when it ran last, as `graph.counts["flushes"]` counts
        self.bridge = bridge()
        self.empty = not self.steps
        sizes = numbers[schedule.first_temp :]
        flat = [x for (piece, begin), size in zip(places, sizes, strict=True) for x in (piece, begin, size)]
        if schedule.template:
            sent = [*numbers[: schedule.first_temp], *flat, *self.temps]
            self.id = self.bridge.bind_plan(schedule.template, sent, work)
        else:
            self.id = schedule.template = self.bridge.define_plan(self._whole(numbers, flat, work))
            schedule.users += 1
        self.pack = self.bridge.run_packer(self.id, schedule.slots, self.types)

    def _whole(self, numbers: list[int], places: list[int], work: int) -> dict[str, Any]:
        """What JavaScript is told of a schedule, with its first numbers. See `PlanSpec` of js/src/protocol.ts."""
        s = self.schedule
        rest = iter(numbers)
        return {
            "name": names(s.steps)[:200],
            "device": s.device,
            "slots": s.slots,
            "outputs": {str(slot): nbytes for slot, (_, nbytes) in zip(s.output_slots, self.fresh, strict=True)},
            "temps": self.temps,
            "places": places,
            "scalars": s.types,
            "work": work,
            "steps": [step.spec(rest) for step in s.steps],
        }

    def run(self, nodes: list[Any], inputs: list[Any], scalars: list[Any]) -> None:
        ids = [x.buf.id for x in inputs]
        if 0 in ids:
            raise lost(",".join(dict.fromkeys(n.inst.op.name for n in nodes)))
        for p, b in self.start(ids, scalars):
            nodes[p].buf = b
        for p, k in self.taken:
            nodes[p].buf = inputs[k].buf
        for n in nodes:
            n.srcs = n.scalars = ()

    def start(self, ids: list[int], scalars: list[Any]) -> list[tuple[int, Buffer]]:
        """Sends it with these buffers as inputs: (position, new memory) of the values that get some. `ids` becomes those of all slots."""
        new, device = self.bridge.new_buffer, self.device
        made = []
        for p, nbytes in self.fresh:
            b = Buffer(new(), nbytes, device)
            made.append((p, b))
            ids.append(b.id)
        self.send(ids, scalars)
        return made

    def send(self, ids: list[int], scalars: list[Any]) -> None:
        """Appends the command that runs it, with the buffers in the order of their slots. Every run comes through here."""
        self.pack(*ids, *self.flat(scalars))

    def flat(self, scalars: list[Any]) -> list[Any]:
        """The scalars as `pack` takes them: complex ones are two."""
        if not self.complex:
            return scalars
        flat: list[Any] = []
        for s in scalars:
            if type(s) is complex:
                flat += (s.real, s.imag)
            else:
                flat.append(s)
        return flat

    def forget(self) -> None:
        """Drops the plan's record in JavaScript."""
        s = self.schedule
        if self.id == s.template:
            s.users -= 1
            if s.users:  # others are still made from it
                return
        self.bridge.forget_plans([self.id])


if os.environ.get("PYTORCH_TUNABLEOP_ENABLED") == "1":
    _lazy.tuning.switch()

__all__ = ["Lowering", "Plan", "make_plan", "once"]
