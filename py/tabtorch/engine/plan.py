"""Plans: a window's kernels, their buffers and parameters, kept and replayed for every window of the same structure.

`make_plan` gets a window from `graph.py`, has `fuse.py` cut it into groups, and has a kernel written for each; the steps and
the slots that they bind go to JavaScript once. `Plan.run` sends buffers and scalars.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabtorch.base.errors import OutOfMemoryError

from .. import bridge as _bridges
from . import rows, schedules, tiles
from .expr import Expr, cast, fit, variable
from .fuse import MAX_NODES, Graph, Group
from .lower import PACKED, Kernel, Ref, Values, index_of, map_kernel
from .memory import Buffer, bridge, check_size, lost
from .nodes import Node
from .schedules import Schedule, Sized
from .share import Part, Parts, alone
from .symbols import Trace
from .target import Target, target
from .view import Meta
from .window import counts

_HOST_TYPE = {"f32": "f32", "f64": "f64", "i32": "i32", "u32": "u32", "i64": "i64", "bool": "u32"}


_kernels: dict[tuple, int] = {}
_bridges.on_close(_kernels.clear)

#: maps of at most so many elements may share a launch with others
MOST_SHARED = 1 << 20


def make_plan(
    device: Any,
    nodes: list[Any],
    live: list[bool],
    inputs: list[Any],
    free: list[bool],
    targets: list[tuple[int, int]] = [],  # noqa: B006  # never written
    keep: frozenset[int] = frozenset(),
) -> Plan:
    """A plan for a window: of a schedule that serves its sizes, or of a new one. `targets`: (position, input) where a value has
    to end in the memory of an input, which nobody else reads; it gets memory of its own besides if it is in `keep`."""
    t = target(device.number)
    more = (device, *vars(t).values(), tuple(live), tuple(free), tuple(targets), keep)
    window = Sized(nodes, inputs, more)
    work = sum([n.inst.work for n in nodes])
    found = schedules.find(window)
    if found is not None:
        return Plan(*found, work)
    shadows, trace, pattern = schedules.shadows(window)
    try:
        made = _scheduled(t, trace, shadows.nodes, live, shadows.inputs, free, targets, keep)
    except Exception:  # a kernel that cannot be written with symbols, or not at all: then this raises, too
        if schedules.strict:
            raise
        made = _scheduled(t, trace, nodes, live, inputs, free, targets, keep)
        trace.pin()
    counts["schedules"] += 1
    schedules.add(window, made, trace, pattern)
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
    return Builder(t, g, g.stored(), inputs, free, targets, keep).schedule()


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
        if n.inst.op.kind in ("map", "reduce", "contract") and not n.inst.scalars and not n.inst.offsets:
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
            for p in g.deep(x):
                if sizes.get(p, MAX_NODES) > 1:
                    smaller[p] = max(1, min(sizes.get(p, MAX_NODES), len(x.nodes) + 1) // 2)
        if not smaller:
            return g, bool(sizes)
        sizes.update(smaller)


class Lowering:
    """What a custom operation uses to write its launches."""

    def __init__(self, b: Builder, pos: int) -> None:
        self.b = b
        self.pos = pos
        self.inst = b.graph.nodes[pos].inst
        self.device = b.target.number
        self.target = b.target
        self.output = b.ref_of(b.graph.nodes[pos])

    def input(self, j: int) -> Ref:
        """Buffer of input `j`; its layout is `inst.ins[j]`."""
        n = self.b.graph.nodes[self.pos]
        m = n.inst.ins[j]
        return Ref(self.b.ref_of(n.srcs[j]).key, m.dtype, m.mark)

    def temp(self, nbytes: int, dtype: Any) -> Ref:
        return Ref(self.b.temp(nbytes), dtype)

    def copy(self, src: Ref, dst: Ref, nbytes: int) -> None:
        self.b.copy(src.key, dst.key, nbytes)

    def clear(self, ref: Ref) -> None:
        self.b.clear(ref.key)

    @staticmethod
    def index(k: Kernel, m: Meta, i: Expr, role: Any) -> Expr:
        """Flat logical index of view `m` -> place in its storage."""
        return index_of(k, m, [(i, m.numel, ("flat", m.numel if m.ndim > 1 else 0))], ("x", role))

    def scalar(self, k: Kernel, j: int) -> Any:
        return k.scalar((self.pos, j), self.inst.scalars[j])

    def launch(self, name: str, threads: int, body: Any) -> None:
        """One dispatch; `body(k, i)` writes the statements of thread i. On the cpu device threads run one after another."""
        if threads == 0:
            return
        if self.device != 1:
            part = Part(name, threads, "i", body)
            if threads <= MOST_SHARED:
                self.b.parts.add(part)
            else:
                self.b.launch(*alone(self.device, part))
            return
        k = Kernel(self.device, name)
        n = k.dim(threads, "threads")
        k.r.loop("i", "0", k.r.text(n))
        body(k, variable("i", "u32"))
        k.r.pop()
        self.b.launch(k, k.source([]), [1, 1, 1])

    def kernel(self, name: str) -> Kernel:
        """A kernel for the operation to write; then `dispatch` launches it."""
        return Kernel(self.device, name)

    def dispatch(self, k: Kernel, source: str, grid: list[int]) -> None:
        self.b.launch(k, source, grid)

    def host(self, name: str, source: str, refs: list[tuple[Ref, str]], words: list[int], patches: list[Any]) -> None:
        """A launch of JavaScript text as it is (cpu device)."""
        if self.device != 1:
            raise AssertionError(f"{name} is JavaScript")
        k = Kernel(1, name)
        for r, access in refs:
            k.bindings.append((r.key, r.dtype.store if not isinstance(r.dtype, str) else r.dtype, access))
        k.words = list(words)
        k.patches = [(w, (self.pos, j), t) for w, j, t in patches]
        self.b.launch(k, source, [1, 1, 1])


class Builder:
    """Makes one plan."""

    def __init__(
        self,
        t: Target,
        graph: Graph,
        stored: set[int],
        inputs: list[Any],
        free: list[bool],
        targets: list[tuple[int, int]],
        keep: frozenset[int],
    ) -> None:
        self.target = t
        self.graph = graph
        self.nodes = graph.nodes
        self.stored = stored
        self.inputs = inputs
        self.free = free
        self.group: Group | None = None  # whose kernels are being written
        self.steps: list[dict[str, Any]] = []
        self.temps: list[int] = []  # bytes
        self.parts = Parts(self)
        self.arenas: dict[str, Any] = {}  # dtype -> the buffer of the states of long reductions
        self.order = graph.order()
        self.place: dict[int, int] = {g.index: i for i, g in enumerate(self.order)}
        self.last_read: dict[Any, int] = {}
        self.shared: dict[int, Any] = {}  # position -> slot key it takes over
        self._find_last_reads()
        self._share()
        #: values that are copied to their place in the end, and all that have one
        self.copied = [(p, k) for p, k in targets if p in keep or not self._at_once(p, k)]
        self.settled = {p: k for p, k in targets if p not in keep}

    # ---- buffers: ("in", k), ("p", position), ("t", temp)

    def key_of(self, node: Any) -> Any:
        if node.buf is not None:
            return ("in", -node.pos - 1)
        return self.shared.get(node.pos, ("p", node.pos))

    def ref_of(self, node: Any) -> Ref:
        return Ref(self.key_of(node), node.inst.out.dtype)

    def temp(self, nbytes: int) -> Any:
        self.temps.append((nbytes + 3) // 4 * 4 or 4)
        return ("t", len(self.temps) - 1)

    def arena(self, dtype: Any, count: int) -> tuple[Ref, int]:
        """Room for `count` elements in a buffer that all kernels share: the buffer, and where they begin."""
        key = self.arenas.get(dtype.name)
        if key is None:
            key = self.arenas[dtype.name] = ("t", len(self.temps))
            self.temps.append(0)
        begin = self.temps[key[1]] // dtype.itemsize
        self.temps[key[1]] += count * dtype.itemsize
        return Ref(key, dtype), begin

    def memory(self, key: Any) -> Any:
        """What a buffer's key stands for: inputs may be windows onto the same memory."""
        return ("memory", id(_root(self.inputs[key[1]]))) if key[0] == "in" else key

    def nbytes(self, pos: int) -> int:
        m = self.nodes[pos].inst.out
        return m.numel * m.dtype.itemsize

    def _find_last_reads(self) -> None:
        for g in self.order:
            at = self.place[g.index]
            for p in g.nodes:
                for s in self._deep_sources(p):
                    self.last_read[s] = max(self.last_read.get(s, -1), at)

    def _deep_sources(self, pos: int) -> set[Any]:
        """What node `pos` reads from buffers, through virtual nodes: ("in", k) or positions."""
        out: set[Any] = set()
        stack = [pos]
        while stack:
            p = stack.pop()
            for s in self.nodes[p].srcs:
                if s.buf is not None:
                    out.add(("in", -s.pos - 1))
                elif s.pos in self.graph.virtual:
                    stack.append(s.pos)
                else:
                    out.add(s.pos)
        return out

    def _share(self) -> None:
        """Lets writes happen in place: in a buffer nobody else reads later."""
        for g in self.order:
            p = g.nodes[0]
            op = self.nodes[p].inst.op
            if not (op.kind == "write" or (op.kind == "custom" and op.in_place)):
                continue
            base = self.nodes[p].srcs[0]
            others = list(self.nodes[p].srcs[1:])
            at = self.place[g.index]
            if any(s is base for s in others):
                continue
            if base.buf is not None:
                k = ("in", -base.pos - 1)
                if self.free[k[1]] and base.buf.base is None and self.last_read[k] == at and self._only_here(k, p, 0):
                    self.shared[p] = k
            elif (
                not self.graph.live[base.pos]
                and base.pos not in self.graph.virtual
                and self.last_read.get(base.pos) == at
                and self._only_here(base.pos, p, 0)
            ):
                self.shared[p] = self.key_of(base)

    def _at_once(self, p: int, k: int) -> bool:
        """Lets value `p` be written to the memory of input `k` where it is computed, if nothing reads that afterwards."""
        if p in self.shared:
            return self.shared[p] == ("in", k)
        g = self.graph.of.get(p)
        op = self.nodes[p].inst.op
        if g is None or ("in", k) in self.shared.values() or op.kind == "write" or getattr(op, "in_place", False):
            return False  # a write takes what it shares for its base
        root = _root(self.inputs[k])
        at = self.place[g.index]
        for j, x in enumerate(self.inputs):
            last = self.last_read.get(("in", j), -1)
            if _root(x) is root and last >= at and (j != k or last > at or not self._own_point(g, k, p)):
                return False
        self.shared[p] = ("in", k)
        return True

    def _own_point(self, g: Group, k: int, p: int) -> bool:
        """Whether each thread of the kernel of `g` reads of input `k` the element alone that it then writes."""
        if g.kind != "map" or self.nodes[p].inst.out.dtype.name in PACKED:
            return False
        stack = [(q, not self.nodes[q].inst.op.indexed) for q in g.nodes]
        while stack:
            q, here = stack.pop()
            n = self.nodes[q]
            for s, m in zip(n.srcs, n.inst.ins):
                if s.buf is not None:
                    if -s.pos - 1 == k and not (here and m.flat and m.numel == g.O and m.dtype is s.inst.out.dtype):
                        return False
                elif s.pos in self.graph.virtual:
                    x = s.inst
                    stack.append((s.pos, here and m.flat and m.numel == x.out.numel and not x.op.indexed))
        return True

    def _only_here(self, src: Any, pos: int, i: int) -> bool:
        """Whether, in its own group, node `pos` takes `src` only as input `i`."""
        for j, s in enumerate(self.nodes[pos].srcs):
            if j == i:
                continue
            stack = [s]
            while stack:
                x = stack.pop()
                if x.buf is not None:
                    if ("in", -x.pos - 1) == src:
                        return False
                elif x.pos in self.graph.virtual:
                    stack.extend(self.nodes[x.pos].srcs)
                elif x.pos == src:
                    return False
        return True

    # ---- launches

    def copy(self, src: Any, dst: Any, nbytes: int) -> None:
        self.parts.before([(src, "", "r"), (dst, "", "rw")])
        self.steps.append({"copy": [src, dst, nbytes]})

    def clear(self, key: Any) -> None:
        self.parts.before([(key, "", "rw")])
        self.steps.append({"clear": [key]})

    def launch(self, k: Kernel, source: str, grid: list[int]) -> None:
        """A dispatch, after what waits and has to run before it."""
        self.parts.before(k.bindings)
        self.append(k, source, grid)

    def append(
        self, k: Kernel, source: str, grid: list[int], parts: list[tuple[Group | None, str]] | None = None
    ) -> None:
        """A dispatch, now. parts: what it does, as (group, name) each; by default a part of the group that is being written."""
        # JavaScript text does not say of which type its buffers are
        key = (k.device, source, *k.constants.values(), *(el for _, el, _ in k.bindings))
        kid = _kernels.get(key)
        if kid is None:
            spec = {
                "name": k.name,
                "device": k.device,
                "source": source,
                "bindings": [{"type": el, "access": acc} for _, el, acc in k.bindings],
                "constants": k.constants,
            }
            kid = _kernels[key] = bridge().define_kernel(spec)
        self.steps.append(
            {
                "parts": parts or [(self.group, k.name)],
                "kernel": kid,
                "bind": [key for key, _, _ in k.bindings],
                "access": [access for _, _, access in k.bindings],
                "words": k.words,
                "patch": [[w, key, _HOST_TYPE[t]] for w, key, t in k.patches],
                "grid": grid,
                "label": k.name,
            }
        )

    def values(self, k: Kernel) -> Values:
        v = Values(k, self.nodes, self.ref_of, lambda s: s.pos if s.buf is None else -1)
        v.virtual = self.graph.virtual
        return v

    def label(self, g: Group, nodes: list[int] | None = None) -> str:
        """The operations of a group's kernel, or of those of its nodes that one of its kernels is for."""
        names = [self.nodes[p].inst.op.name for p in nodes or g.nodes]
        return "+".join(names if len(names) <= 6 else [*names[:5], f"{len(names) - 5} more"])

    def emit_map(self, g: Group, given: dict[int, Callable[[Kernel, Expr], Expr]] = {}) -> None:  # noqa: B006  # never written
        """One dispatch, a thread an element. `given`: position -> how the kernel gets the value of that node."""
        if g.O == 0:
            return
        number = self.target.number
        threads = 64 if self.target.software else 256

        def values(k: Kernel, i: Expr) -> list[tuple[Ref, Any]]:
            v = self.values(k)
            v.home = [(i, g.O, "i")]
            stores = []
            for p in sorted(g.nodes):
                found = given.get(p)
                if found is None:
                    val = v.compute(p, v.home)
                else:
                    out = self.nodes[p].inst.out.dtype
                    val = fit(cast(found(k, i), out.compute), out.name)
                v.inside[p] = val = k.let(val, "x")
                if p in self.stored:
                    stores.append((self.ref_of(self.nodes[p]), val))
            return stores

        packed = any(self.nodes[p].inst.out.dtype.name in PACKED for p in g.nodes if p in self.stored)
        if number == 1 or packed or g.O > MOST_SHARED:
            k = Kernel(number, self.label(g))
            if not k.js:
                k.workgroup = (threads, 1, 1)
            source, grid = map_kernel(k, g.O, lambda i: values(k, i))
            self.launch(k, source, grid)
            return

        def body(k: Kernel, i: Expr) -> None:
            for ref, x in values(k, i):
                k.store(ref, i, x)

        self.parts.add(Part(self.label(g), g.O, "i", body, threads=threads))

    def emit_write(self, g: Group) -> None:
        p = g.nodes[0]
        n = self.nodes[p]
        region: Meta = n.inst.static
        out = self.ref_of(n)
        if p not in self.shared:
            self.copy(self.key_of(n.srcs[0]), out.key, n.inst.out.numel * out.dtype.itemsize)
        if region.numel == 0:
            return
        low = Lowering(self, p)

        def body(k: Kernel, i: Expr) -> None:
            v = self.values(k)
            v.home = [(i, region.numel, "i")]
            val = v.source(p, 1, v.home)
            val = fit(cast(val, region.dtype.compute), region.dtype.name)
            k.store_bits(Ref(out.key, region.dtype), index_of(k, region, v.home, (p, len(n.srcs))), val)

        low.launch(self.label(g), region.numel, body)

    def emit_custom(self, g: Group) -> None:
        p = g.nodes[0]
        n = self.nodes[p]
        if n.inst.op.in_place and p not in self.shared:
            nbytes = n.inst.out.numel * n.inst.out.dtype.itemsize
            if nbytes:
                self.copy(self.key_of(n.srcs[0]), self.key_of(n), nbytes)
        n.inst.op.lower(n.inst, Lowering(self, p))

    # ---- row kernels

    def emit_row(self, g: Group) -> None:
        if g.O == 0:
            return
        if g.kind == "contract" and tiles.serves(self.target, self.nodes[tiles.contraction(self, g)].inst):
            tiles.emit(self, g)
        else:
            rows.emit(self, g)

    # ---- the whole

    def emit(self, g: Group) -> None:
        """Writes what computes a group: one kernel, or a few."""
        self.group = g
        if g.kind == "map":
            self.emit_map(g)
        elif g.kind == "write":
            self.emit_write(g)
        elif g.kind == "custom":
            self.emit_custom(g)
        else:
            self.emit_row(g)

    def schedule(self) -> Schedule:
        try:
            for g in self.order:
                self.emit(g)
            for p, k in self.copied:
                m = self.nodes[p].inst.out
                self.copy(self.key_of(self.nodes[p]), ("in", k), m.numel * m.dtype.itemsize)
            self.parts.flush(self.parts.waiting)
            return self._finish()
        finally:
            del self.parts  # which refers to this builder: the nodes would stay until a collection, and count as held

    def _finish(self) -> Schedule:
        """The steps with slots in place of buffers' keys, and numbers in place of scalars' keys."""
        slots: dict[Any, int] = {("in", k): k for k in range(len(self.inputs))}
        fresh, taken = self._outputs(slots)
        nslots = len(slots)
        temps = self._temporaries(slots)
        apart = self._apart(slots, nslots)
        scalar_of, types = self._scalars()
        steps = []
        for s in self.steps:
            s = dict(s)
            if "bind" in s:
                s["bind"] = [slots[key] for key in s["bind"]]
                del s["access"], s["parts"]
                s["patch"] = [[w, scalar_of[key], t] for w, key, t in s["patch"]]
            elif "copy" in s:
                a, b, n = s["copy"]
                s["copy"] = [slots[a], slots[b], n]
                if n == 0:
                    continue
            else:
                s["clear"] = [slots[s["clear"][0]]]
            steps.append(s)
        pairs = any(t in ("c64", "c128") for n in self.nodes for t in n.inst.scalars)
        return Schedule(self.target.number, nslots, fresh, taken, temps, apart, types, steps, pairs)

    def _outputs(self, slots: dict[Any, int]) -> tuple[list[tuple[int, int, int]], list[tuple[int, int]]]:
        """Slots for the live values that need memory: (position, slot, bytes), and (position, input) of those that take over
        the memory of an input."""
        fresh: list[tuple[int, int, int]] = []
        taken: list[tuple[int, int]] = []
        for p in [p for p, on in enumerate(self.graph.live) if on]:
            key = self.shared.get(p, ("p", p))
            if key[0] == "in":
                taken.append((p, key[1]))
            elif p in self.settled:
                taken.append((p, self.settled[p]))
            elif key not in slots:
                m = self.nodes[p].inst.out
                nbytes = m.numel * m.dtype.itemsize
                check_size(nbytes, m)
                fresh.append((p, len(slots), nbytes))
                slots[key] = len(slots)
        return fresh, taken

    def _temporaries(self, slots: dict[Any, int]) -> list[tuple[int, int, int]]:
        """Slots for what only this plan reads: of each the first and the last step that names it, and its bytes."""
        life: dict[Any, list[int]] = {}
        for at, s in enumerate(self.steps):
            for key in s.get("bind", s.get("copy", s.get("clear")) or []):
                if isinstance(key, tuple) and key not in slots:
                    life.setdefault(key, [at, at])[1] = at
        temps: list[tuple[int, int, int]] = []
        for key in sorted(life, key=lambda x: life[x][0]):
            if key[0] == "t":
                size = self.temps[key[1]]
            else:
                m = self.nodes[key[1]].inst.out
                size = (m.numel * m.dtype.itemsize + 3) // 4 * 4 or 4
            slots[key] = len(slots)
            temps.append((*life[key], size))
        return temps

    def _apart(self, slots: dict[Any, int], first: int) -> list[list[int]]:
        """Of each temporary those of which one step reads one and writes the other."""
        apart: list[set[int]] = [set() for _ in range(len(slots) - first)]
        for s in self.steps:
            if "bind" in s:
                keys = list(zip(s["bind"], s["access"], strict=True))
            elif "copy" in s:
                keys = [(s["copy"][0], "r"), (s["copy"][1], "rw")]
            else:
                continue
            mine = [(slots[key] - first, access) for key, access in keys if slots[key] >= first]
            for i, access in mine:
                apart[i].update(j for j, other in mine if other != access and j != i)
        return [sorted(x) for x in apart]

    def _scalars(self) -> tuple[dict[Any, int], list[str]]:
        """Key of each scalar (beginnings of views, then the node's own) -> its number, and their types."""
        scalar_of: dict[Any, int] = {}
        types: list[str] = []
        for p, n in enumerate(self.nodes):
            if n.inst.offsets:
                for i, m in enumerate(n.inst.views()):
                    if m.offset:
                        scalar_of["begin", p, i] = len(types)
                        types.append("u32")
            for i, t in enumerate(n.inst.scalars):
                if t in ("c64", "c128"):
                    for part in (0, 1):
                        scalar_of[p, i, part] = len(types)
                        types.append("f64")
                else:
                    scalar_of[p, i] = len(types)
                    types.append(t)
        return scalar_of, types


def _root(n: Any) -> Buffer:
    return n.buf.base or n.buf


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
            names = ",".join(dict.fromkeys(s["label"] for s in self.steps if "label" in s))
            raise OutOfMemoryError(
                f"{names} needs {max(self.temps)} bytes for what it computes meanwhile: more than a buffer has."
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
        steps: list[dict[str, Any]] = []
        for step in s.steps:
            if "bind" in step:
                words = [next(rest) & 0xFFFFFFFF for _ in step["words"]]
                step = {**step, "words": words, "grid": [next(rest) for _ in step["grid"]]}
            elif "copy" in step:
                step = {"copy": [*step["copy"][:2], next(rest)]}
            steps.append(step)
        return {
            "name": ",".join(dict.fromkeys(step.get("label", "") for step in steps))[:200],
            "device": s.device,
            "slots": s.slots,
            "outputs": {str(slot): nbytes for slot, (_, nbytes) in zip(s.output_slots, self.fresh, strict=True)},
            "temps": self.temps,
            "places": places,
            "scalars": s.types,
            "work": work,
            "steps": steps,
        }

    def run(self, nodes: list[Any], inputs: list[Any], scalars: list[Any]) -> None:
        bridge = self.bridge
        ids = [x.buf.id for x in inputs]
        if 0 in ids:
            raise lost(",".join(dict.fromkeys(n.inst.op.name for n in nodes)))
        new = bridge.new_buffer
        out = []
        for _, nbytes in self.fresh:
            b = Buffer(new(), nbytes, self.device)
            out.append(b)
            ids.append(b.id)
        self.send(ids, scalars)
        for (p, _), b in zip(self.fresh, out, strict=True):
            nodes[p].buf = b
        for p, k in self.taken:
            nodes[p].buf = inputs[k].buf
        for n in nodes:
            n.srcs = n.scalars = ()

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
