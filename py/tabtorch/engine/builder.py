"""From groups to a schedule: a kernel is written for each, and buffers are given to values.

`Builder` makes one schedule; `plan.py` says of what, and runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabtorch import _lazy

from .. import bridge as _bridges
from .expr import Expr, cast, fit
from .fuse import Graph, Group
from .lower import Kernel, Ref, Values, index_of
from .lowering import MOST_SHARED, Lowering
from .map_kernel import MANY_IN_SOFTWARE, map_kernel
from .memory import Buffer, bridge, check_size
from .repeats import Repeats
from .schedules import Schedule
from .share import Part, Parts
from .steps import BufferKey, Clear, Copy, Launch, Patch, ScalarKey
from .target import Target
from .view import Meta
from .wgsl import PACKED

_HOST_TYPE = {"f32": "f32", "f64": "f64", "i32": "i32", "u32": "u32", "i64": "i64", "bool": "u32"}

_kernels: dict[tuple, int] = {}
_bridges.on_close(lambda: _kernels.clear())
_bridges.keeps(globals(), "_kernels")


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
        layouts: dict[int, Any],
    ) -> None:
        self.target = t
        self.layouts = layouts  # of contractions, by position, where they are not those that `tiles.parts` computes
        self.graph = graph
        self.nodes = graph.nodes
        self.stored = stored
        self.inputs = inputs
        self.free = free
        self.group: Group | None = None  # whose kernels are being written
        self.steps: list[Launch | Copy | Clear] = []
        #: step -> the groups that are computed there, each with the name of its part of the kernel: for the inspector
        self.parts_of: dict[int, list[tuple[Group | None, str]]] = {}
        self.temps: list[int] = []  # bytes
        self.parts = Parts(self)
        self.repeats = Repeats(self)
        self.arenas: dict[str, BufferKey] = {}  # dtype -> the buffer of the states of long reductions
        self.order = graph.order()
        self.place: dict[int, int] = {g.index: i for i, g in enumerate(self.order)}
        self.last_read: dict[Any, int] = {}
        self.shared: dict[int, BufferKey] = {}  # position -> what it takes over
        self._find_last_reads()
        self._share()
        #: values that are copied to their place in the end, and all that have one
        self.copied = [(p, k) for p, k in targets if p in keep or not self._at_once(p, k)]
        self.settled = {p: k for p, k in targets if p not in keep}

    # ---- buffers

    def key_of(self, node: Any) -> BufferKey:
        if node.buf is not None:
            return _input(-node.pos - 1)
        return self.shared.get(node.pos) or BufferKey("value", node.pos)

    def ref_of(self, node: Any) -> Ref:
        return Ref(self.key_of(node), node.inst.out.dtype)

    def temp(self, nbytes: int) -> BufferKey:
        if self.repeats.record is not None:
            self.repeats.record.temps.append(nbytes)
        self.temps.append((nbytes + 3) // 4 * 4 or 4)
        return BufferKey("temporary", len(self.temps) - 1)

    def arena(self, dtype: Any, count: int) -> tuple[Ref, int]:
        """Room for `count` elements in a buffer that all kernels share: the buffer, and where they begin."""
        if self.repeats.record is not None:
            self.repeats.record.apart = True
        key = self.arenas.get(dtype.name)
        if key is None:
            key = self.arenas[dtype.name] = BufferKey("temporary", len(self.temps))
            self.temps.append(0)
        begin = self.temps[key.number] // dtype.itemsize
        self.temps[key.number] += count * dtype.itemsize
        return Ref(key, dtype), begin

    def memory(self, key: BufferKey) -> Any:
        """What a buffer's key stands for: inputs may be windows onto the same memory."""
        return ("memory", id(_root(self.inputs[key.number]))) if key.kind == "input" else key

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
        """What node `pos` reads from buffers, through virtual nodes: inputs' keys, or positions."""
        out: set[Any] = set()
        stack = [pos]
        while stack:
            p = stack.pop()
            for s in self.nodes[p].srcs:
                if s.buf is not None:
                    out.add(_input(-s.pos - 1))
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
            if not op.in_place:
                continue
            base = self.nodes[p].srcs[0]
            others = list(self.nodes[p].srcs[1:])
            at = self.place[g.index]
            if any(s is base for s in others):
                continue
            if base.buf is not None:
                k = _input(-base.pos - 1)
                if (
                    self.free[k.number]
                    and base.buf.base is None
                    and self.last_read[k] == at
                    and self._only_here(k, p, 0)
                ):
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
            return self.shared[p] == _input(k)
        g = self.graph.of.get(p)
        op = self.nodes[p].inst.op
        if g is None or _input(k) in self.shared.values() or op.in_place:
            return False  # a write takes what it shares for its base
        root = _root(self.inputs[k])
        at = self.place[g.index]
        for j, x in enumerate(self.inputs):
            last = self.last_read.get(_input(j), -1)
            if _root(x) is root and last >= at and (j != k or last > at or not self._own_point(g, k, p)):
                return False
        self.shared[p] = _input(k)
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
                    if _input(-x.pos - 1) == src:
                        return False
                elif x.pos in self.graph.virtual:
                    stack.extend(self.nodes[x.pos].srcs)
                elif x.pos == src:
                    return False
        return True

    # ---- launches

    def copy(self, source: BufferKey, target: BufferKey, nbytes: int) -> None:
        self.append(Copy(source, target, nbytes))

    def clear(self, key: BufferKey) -> None:
        self.append(Clear(key))

    def launch(self, k: Kernel, source: str, grid: list[int]) -> None:
        self.append(self.launched(k, source, grid))

    def append(self, step: Launch | Copy | Clear) -> None:
        """A step, after what waits and has to run before it."""
        if self.repeats.record is not None:
            self.repeats.record.written.append(step)
        self.parts.before(step.touches())
        if type(step) is Launch:
            self.parts_of[len(self.steps)] = [(self.group, step.label)]
        self.steps.append(step)

    def launched(self, k: Kernel, source: str, grid: list[int]) -> Launch:
        """The step that runs a kernel, which the runtime knows from now on."""
        # JavaScript text does not say of which type its buffers are
        key = (k.device, source, *k.constants.values(), *(b.type for b in k.bindings))
        kid = _kernels.get(key)
        if kid is None:
            spec = {
                "name": k.name,
                "device": k.device,
                "source": source,
                "bindings": [{"type": b.type, "access": b.access} for b in k.bindings],
                "constants": k.constants,
            }
            if k.baseline is not None:
                spec["baseline"] = k.baseline
            kid = _kernels[key] = bridge().define_kernel(spec)
        patches = [Patch(p.word, p.scalar, _HOST_TYPE[p.type]) for p in k.patches]
        return Launch(kid, k.bindings, k.words, patches, grid, k.name)

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
            v.point = [(i, g.O, "i")]
            stores = []
            for p in sorted(g.nodes):
                found = given.get(p)
                if found is None:
                    val = v.compute(p, v.point)
                else:
                    out = self.nodes[p].inst.out.dtype
                    val = fit(cast(found(k, i), out.compute), out.name)
                v.inside[p] = val = k.let(val, "x")
                if p in self.stored:
                    stores.append((self.ref_of(self.nodes[p]), val))
            return stores

        packed = any(self.nodes[p].inst.out.dtype.name in PACKED for p in g.nodes if p in self.stored)
        alone = MANY_IN_SOFTWARE if self.target.software else MOST_SHARED + 1
        if self.target.serial or packed or g.O >= alone:
            k = Kernel(number, self.label(g))
            if not self.target.serial:
                k.workgroup = (threads, 1, 1)
            source, grid = map_kernel(
                k, g.O, lambda i: values(k, i), [m for p in g.nodes for m in self.nodes[p].inst.ins]
            )
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
            v.point = [(i, region.numel, "i")]
            val = v.source(p, 1, v.point)
            val = fit(cast(val, region.dtype.compute), region.dtype.name)
            k.store_bits(Ref(out.key, region.dtype), index_of(k, region, v.point, (p, len(n.srcs))), val)

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
        if g.kind == "contract" and self._of_blocks(g) and _lazy.block_products.emit(self, g):
            return
        if g.kind == "contract" and _lazy.tiles.serves(self.target, self.nodes[_lazy.tiles.contraction(self, g)].inst):
            _lazy.tiles.emit(self, g)
        else:
            _lazy.rows.emit(self, g)

    def _of_blocks(self, g: Group) -> bool:
        """Whether an operand of a contraction is unpacked from blocks by who reads it, on a device with workgroups."""
        return self.target.barriers and any(
            s.buf is None and s.inst.op.blocks is not None
            for p in g.nodes
            if self.nodes[p].inst.op.rereads
            for s in self.nodes[p].srcs
        )

    # ---- the whole

    def write(self, g: Group) -> None:
        """Writes what computes a group: one kernel, or a few."""
        emit = {"map": self.emit_map, "write": self.emit_write, "custom": self.emit_custom}.get(g.kind, self.emit_row)
        emit(g)

    def schedule(self) -> Schedule:
        try:
            for g in self.order:
                self.group = g
                self.repeats.emit(g)
            for p, k in self.copied:
                m = self.nodes[p].inst.out
                self.copy(self.key_of(self.nodes[p]), _input(k), m.numel * m.dtype.itemsize)
            self.parts.flush(self.parts.waiting)
            return self._finish()
        finally:
            # They refer to this builder: the nodes would stay until a collection, and count as held.
            del self.parts, self.repeats

    def _finish(self) -> Schedule:
        """The steps with slots in place of buffers' keys, and numbers in place of scalars' keys."""
        slots = {_input(k): k for k in range(len(self.inputs))}
        fresh, taken = self._outputs(slots)
        nslots = len(slots)
        temps = self._temporaries(slots)
        apart = self._apart(slots, nslots)
        scalars, types = self._scalars()
        steps = [s.placed(slots, scalars) for s in self.steps if type(s) is not Copy or s.nbytes != 0]
        pairs = any(t in ("c64", "c128") for n in self.nodes for t in n.inst.scalars)
        return Schedule(self.target.number, nslots, fresh, taken, temps, apart, types, steps, pairs)

    def _outputs(self, slots: dict[BufferKey, int]) -> tuple[list[tuple[int, int, int]], list[tuple[int, int]]]:
        """Slots for the live values that need memory: (position, slot, bytes), and (position, input) of those that take over
        the memory of an input."""
        fresh: list[tuple[int, int, int]] = []
        taken: list[tuple[int, int]] = []
        for p in [p for p, on in enumerate(self.graph.live) if on]:
            key = self.shared.get(p) or BufferKey("value", p)
            if key.kind == "input":
                taken.append((p, key.number))
            elif p in self.settled:
                taken.append((p, self.settled[p]))
            elif key not in slots:
                m = self.nodes[p].inst.out
                nbytes = m.numel * m.dtype.itemsize
                check_size(nbytes, m)
                fresh.append((p, len(slots), nbytes))
                slots[key] = len(slots)
        return fresh, taken

    def _temporaries(self, slots: dict[BufferKey, int]) -> list[tuple[int, int, int]]:
        """Slots for what only this plan reads: of each the first and the last step that names it, and its bytes."""
        life: dict[BufferKey, list[int]] = {}
        for at, s in enumerate(self.steps):
            for key, _ in s.touches():
                if key not in slots:
                    life.setdefault(key, [at, at])[1] = at
        temps: list[tuple[int, int, int]] = []
        for key in sorted(life, key=lambda x: life[x][0]):
            if key.kind == "temporary":
                size = self.temps[key.number]
            else:
                m = self.nodes[key.number].inst.out
                size = (m.numel * m.dtype.itemsize + 3) // 4 * 4 or 4
            slots[key] = len(slots)
            first, last = life[key]
            temps.append((first, last, size))
        return temps

    def _apart(self, slots: dict[BufferKey, int], first: int) -> list[list[int]]:
        """Of each temporary those of which one step reads one and writes the other."""
        apart: list[set[int]] = [set() for _ in range(len(slots) - first)]
        for s in self.steps:
            mine = [(slots[key] - first, access) for key, access in s.touches() if slots[key] >= first]
            for i, access in mine:
                apart[i].update(j for j, other in mine if other != access and j != i)
        return [sorted(x) for x in apart]

    def _scalars(self) -> tuple[dict[ScalarKey, int], list[str]]:
        """Key of each scalar (beginnings of views, then the node's own) -> its number, and their types."""
        scalar_of: dict[ScalarKey, int] = {}
        types: list[str] = []
        for p, n in enumerate(self.nodes):
            if n.inst.offsets:
                for i, m in enumerate(n.inst.views()):
                    if m.offset:
                        scalar_of[ScalarKey(p, i, "begin")] = len(types)
                        types.append("u32")
            for i, t in enumerate(n.inst.scalars):
                if t in ("c64", "c128"):
                    scalar_of[ScalarKey(p, i, "re")] = len(types)
                    scalar_of[ScalarKey(p, i, "im")] = len(types) + 1
                    types += ["f64", "f64"]
                else:
                    scalar_of[ScalarKey(p, i)] = len(types)
                    types.append(t)
        return scalar_of, types


def _input(k: int) -> BufferKey:
    return BufferKey("input", k)


def _root(n: Any) -> Buffer:
    return n.buf.base or n.buf
