"""Sizes that vary: one recording of a compiled function for calls with tensors of other sizes.

While such a function is recorded, sizes of its arguments are Symbols (symbolic_sizes.py): ints to its Python, which note what is
computed from them, and what is asked of them, as guards. So every number of the recording (views, beginnings, scalars,
what is returned) is an expression of the sizes. `DynamicRecording.at` evaluates those for other sizes: a `Replay` with plans that are
bound to them, for which neither the function runs nor, where a schedule is there, anything is scheduled.

As with other numbers (symbolic_numbers.py), the first call with other sizes runs the plain function, which has to come out as
foretold. Where C code, or anything that knows nothing of Symbols, needs the very number, the Symbol is pinned: the recording
serves that size only, and the size counts as static from then on. 0 and 1 are always static.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any

from tabtorch.compiled.backward_plan import Joint
from tabtorch.compiled.inputs import DrawAhead
from tabtorch.compiled.replay import Replay
from tabtorch.compiled.storage_offsets import Begin
from tabtorch.compiled.symbolic_sizes import Sizes, whole
from tabtorch.compiled.tree import with_sizes
from tabtorch.core.tensor import Tensor
from tabtorch.engine import graph
from tabtorch.engine.graph import Buffer, Inst, Node, inst
from tabtorch.engine.plan import make_plan
from tabtorch.engine.recipes import compiled
from tabtorch.engine.symbols import Symbol, is_number
from tabtorch.engine.view import Meta, Size, concrete_meta, meta
from tabtorch.engine.window import plain


class Numbers:
    """All numbers of a recording as expressions of its sizes."""

    def __init__(self) -> None:
        self.listed: list[Any] = []
        self._at: dict[int, int] = {}
        self.metas: list[Meta] = []
        self._meta_at: dict[int, int] = {}
        self.insts: list[tuple[Any, ...]] = []
        self._inst_at: dict[int, int] = {}
        self._kept: list[Any] = []

    def number(self, x: Any) -> int:
        """The place of a Symbol or Real."""
        at = self._at.get(id(x))
        if at is None:
            at = self._at[id(x)] = len(self.listed)
            self.listed.append(x)
        return at

    def _classed(self, x: Any) -> None:
        """A schedule's structure says which sizes and strides are 0 or 1."""
        if type(x) is Symbol and not x >= 2:
            x.pinned()

    def meta(self, m: Meta) -> int:
        """The place of a view."""
        at = self._meta_at.get(id(m))
        if at is None:
            at = self._meta_at[id(m)] = len(self.metas)
            self.metas.append(m)
            for x in (*m.shape, *m.strides):
                self._classed(x)
            offset: Any = m.offset
            if is_number(offset) and not offset >= 1:
                offset.pinned()
            for x in (*m.shape, *m.strides, m.offset):
                if is_number(x):
                    self.number(x)
        return at

    def inst(self, i: Inst) -> int:
        """The place of an instruction."""
        at = self._inst_at.get(id(i))
        if at is None:
            at = self._inst_at[id(i)] = len(self.insts)
            self._kept.append(i)
            if i.concrete is None:
                self.insts.append((i,))
            else:
                self.insts.append(
                    (
                        None,
                        i.op,
                        [self.meta(m) for m in i.ins],
                        self.meta(i.out),
                        i.scalars,
                        self.static(i.static, i.op.sized),
                        i.asked,
                    )
                )
        return at

    def static(self, x: Any, sized: bool) -> Any:
        if type(x) is Meta:
            return ("meta", self.meta(x))
        if type(x) is tuple:
            return ("tuple", [self.static(y, sized) for y in x])
        if hasattr(x, "of_parts"):
            return ("parts", type(x), self.static(x.sizes(), True), x.rest())
        if is_number(x):
            if not sized:
                x.pinned()
            self._classed(x)
            return ("number", self.number(x))
        return ("constant", x)


class Values:
    """The same for certain sizes."""

    def __init__(self, numbers: Numbers, found: Sequence[Any]) -> None:
        self.numbers = numbers
        self.found = found
        self._metas: dict[int, Meta] = {}
        self._insts: dict[int, Inst] = {}

    def number(self, x: Any) -> Any:
        return self.found[self.numbers._at[id(x)]] if is_number(x) else x

    def meta(self, at: int) -> Meta:
        m = self._metas.get(at)
        if m is None:
            m = self.numbers.metas[at]
            if m.symbolic:
                each = [self.number(x) for x in (*m.shape, *m.strides, m.offset)]
                m = meta(tuple(each[: m.ndim]), tuple(each[m.ndim : -1]), each[-1], m.dtype, m.device, m.mark)
            self._metas[at] = m
        return m

    def of(self, m: Meta) -> Meta:
        return self.meta(self.numbers._meta_at[id(m)]) if m.symbolic else m

    def inst(self, at: int) -> Inst:
        i = self._insts.get(at)
        if i is None:
            first, *rest = self.numbers.insts[at]
            if first is not None:
                i = first
            else:
                op, ins, out, scalars, static, compute = rest
                views = tuple([self.meta(k) for k in ins])
                i = inst(op, views, self.meta(out), scalars, self._static(static), compute)
            self._insts[at] = i
        return i

    def _static(self, x: Any) -> Any:
        kind = x[0]
        if kind == "meta":
            return self.meta(x[1])
        if kind == "tuple":
            return tuple([self._static(y) for y in x[1]])
        if kind == "parts":
            return x[1].of_parts(self._static(x[2]), x[3])
        return self.found[x[1]] if kind == "number" else x[1]

    def scalar(self, x: Any) -> Any:
        """A scalar of a plan: a number, or what says how it comes about."""
        return Begin(x.number, self.number(x.more)).plain() if type(x) is Begin else self.number(x)


class Steps:
    """Nodes of a window, or of a backward pass: what makes the like of them for other sizes."""

    def __init__(self, numbers: Numbers, insts: Iterable[Inst], nodes: Sequence[Node]) -> None:
        """insts: those of the nodes, with their Symbols. The nodes know their positions, and what they read has its own."""
        self.insts = [numbers.inst(i) for i in insts]
        self.sources = [[s.pos for s in n.srcs] for n in nodes]

    def key(self, v: Values) -> list[Any]:
        """As a `Window` has it."""
        out: list[Any] = []
        for i, sources in zip(self.insts, self.sources, strict=True):
            out.append(v.inst(i).base)
            out += sources
        return out

    def nodes(self, v: Values, inputs: Sequence[Node]) -> list[Node]:
        out: list[Node] = []
        for pos, (i, sources) in enumerate(zip(self.insts, self.sources, strict=True)):
            n = Node(v.inst(i), tuple([out[p] if p >= 0 else inputs[-p - 1] for p in sources]), ())
            n.pos = pos
            out.append(n)
        return out


def _inputs(kinds: Sequence[tuple[Any, int, bool]], device: int) -> list[Node]:
    """Inputs of a window that is only planned. kinds: of each the Meta, which memory it lies in, whether as a part of it."""
    memory: dict[int, Buffer] = {}
    out = []
    for k, (m, root, part) in enumerate(kinds):
        b = memory.setdefault(root, Buffer(0, 0, device))
        n = graph.blank(m)
        n.buf = Buffer(0, 0, device, b) if part else b
        n.pos = -k - 1
        out.append(n)
    return out


class WindowPlan:
    """One of the plans of a recording, for any sizes."""

    def __init__(self, numbers: Numbers, window: Any, plan: Sequence[Any]) -> None:
        """plan: (live, free, targets, keep), as `make_plan` takes them."""
        self.steps = Steps(numbers, [i for i, _ in window.symbolic], window.nodes)
        self.device = window.nodes[0].inst.out.device
        self.rest = plan
        roots: dict[int, int] = {}
        self.inputs = []
        for n in window.inputs:
            root = n.buf.base or n.buf
            self.inputs.append((n.inst.out, roots.setdefault(id(root), len(roots)), n.buf is not root))

    def at(self, v: Values) -> Any:
        live, free, targets, keep = self.rest
        inputs = _inputs(self.inputs, self.device.number)
        graph.counts["plans"] += 1
        return make_plan(self.device, self.steps.nodes(v, inputs), live, inputs, free, targets, keep)


class JointPlan:
    """A backward pass of a recording, for any sizes. See `Joint`."""

    def __init__(self, numbers: Numbers, joint: Joint) -> None:
        self.joint = joint
        self.steps = Steps(numbers, [n.inst for n in joint.nodes], joint.nodes)
        self.holes = [n.inst.out for n in joint.holes]
        self.outputs, self.input_metas, self.metas = joint.outputs, joint.input_metas, joint.metas
        self.results = [None if r is None else r.pos for r in joint.results]
        for m in (*self.holes, *[m for pair in self.outputs for m in pair], *self.input_metas, *self.metas):
            if m is not None:
                numbers.meta(m)
        for n in (*joint.nodes, *joint.holes):
            plain(n)
            if n.inst.out.symbolic:
                n.inst = graph.blank(concrete_meta(n.inst.out)).inst
        joint.outputs = [(concrete_meta(a), concrete_meta(b)) for a, b in joint.outputs]
        joint.input_metas = tuple(map(concrete_meta, joint.input_metas))
        joint.metas = [None if m is None else concrete_meta(m) for m in joint.metas]

    def at(self, v: Values) -> Joint:
        new = copy(self.joint)
        new.outputs = [(v.of(a), v.of(b)) for a, b in self.outputs]
        new.input_metas = tuple([v.of(m) for m in self.input_metas])
        new.metas = [None if m is None else v.of(m) for m in self.metas]
        new.holes = []
        for k, m in enumerate(self.holes):
            n = graph.blank(v.of(m))
            n.buf, n.pos = new.nothing, -k - 1
            new.holes.append(n)
        new.nodes = self.steps.nodes(v, new.holes)
        new.results = [None if p is None else new.nodes[p] if p >= 0 else new.holes[-p - 1] for p in self.results]
        new.key = (*self.steps.key(v), tuple(self.results))
        new.plan = None
        return new


class DynamicRecording:
    """A recording for all sizes for which its guards hold."""

    def __init__(self, sizes: Sizes, replay: Replay, of: Any) -> None:
        """of: the CallRecorder. The plans are made. Raises ValueError with the reason where it serves no other sizes."""
        self.replay = replay
        self.which = sizes.which
        self.shapes = [
            tuple([-1 if (a, d) in set(sizes.which) else n for d, n in enumerate(shape)])
            for a, shape in enumerate(sizes.shapes)
        ]
        self.proven = False
        numbers = self.numbers = of.expressions
        self.windows = of.planned
        self.scalars = of.symbolic_scalars
        self.joints: list[JointPlan] = []
        if replay.tape is not None:
            self.joints = [JointPlan(numbers, j) for j in replay.tape.joints]
            for j in replay.tape.joints:
                j._plan()
            for s in replay.tape.steps:
                if not isinstance(s, Joint):
                    raise ValueError("it returns views with a history")
        self.spec = of.spec
        self.metas = [of.shown.get(k, r.meta) for k, r in enumerate(replay.results)]
        self.outs = [
            (k, r.fn.outs) for k, r in enumerate(replay.results) if isinstance(getattr(r.fn, "outs", None), Meta)
        ]
        for k, m in self.outs:
            replay.results[k].fn.outs = concrete_meta(m)
        self.looks = of.shown_looks
        for m in (*self.metas, *[m for _, m in self.outs], *[m for _, m, _, _ in self.looks]):
            numbers.meta(m)
        self.ahead = [own.with_sizes_of(shown) for shown, own in zip(of.shown_ahead, replay.ahead, strict=True)]
        for a in self.ahead:
            if type(a) is DrawAhead:
                numbers.meta(a.out)
        self.refs = [(r.number, r.position) if r.kind == "new" else None for r in replay.refs]
        self.whole = {
            of.index[id(t._tab_storage.root)]: shown.numel
            for t, shown in of.given_metas
            if whole(t._tab_meta, of.nodes[of.index[id(t._tab_storage.root)]].inst.out)
        }
        drawn = [x for a in self.ahead for x in a.sizes()]
        for x in (*self.whole.values(), *_listed(self.spec), *drawn):
            if is_number(x):
                numbers.number(x)
        for x in self.scalars:
            if is_number(y := x.more if type(x) is Begin else x):
                numbers.number(y)
        self._holds, self._give = compiled(sizes.trace, numbers.listed, words=False)
        sizes.trace.closed = True

    def fits(self, tensors: Sequence[Tensor]) -> list[int] | None:
        """The sizes of a call, if it serves those."""
        shapes = [t._tab_meta.shape for t in tensors]
        for shape, own in zip(shapes, self.shapes, strict=True):
            if any(n != m and m != -1 for n, m in zip(shape, own, strict=True)):
                return None
        sizes = [shapes[a][d] for a, d in self.which]
        try:
            return sizes if min(sizes) > 1 and self._holds(sizes) else None
        except ArithmeticError:
            return None

    def at(self, sizes: list[int]) -> Replay:
        """What stands for the function with these sizes. Raises ArithmeticError if a number cannot be computed."""
        v = Values(self.numbers, self._give(sizes))
        old = self.replay
        new = copy(old)
        new.tensors = None
        new.count_given = 0
        new.given = []
        new.steps = [(w.at(v), order, count) for w, (_, order, count) in zip(self.windows, old.steps, strict=True)]
        new.ahead = [a.with_sizes(v.number, v.of) for a in self.ahead]
        new.sizes = old.sizes.copy()
        for i, n in self.whole.items():
            new.sizes[i] = (v.number(n), new.sizes[i][1])
        new.looks = [(i, v.of(m), wanted, k) for i, m, wanted, k in self.looks]
        new.make = old.make.with_scalars([v.scalar(x) for x in self.scalars])
        new.spec = with_sizes(self.spec, v.number)
        new.results = list(map(copy, old.results))
        for r, m in zip(new.results, self.metas, strict=True):
            r.meta = v.of(m)
        for k, m in self.outs:
            new.results[k].fn = copy(new.results[k].fn)
            new.results[k].fn.outs = v.of(m)
        new.insts = [
            own if ref is None else (v.inst(self.windows[ref[0]].steps.insts[ref[1]]), own[1])
            for ref, own in zip(self.refs, old.insts, strict=True)
        ]
        new.trusted = old.trusted.copy()
        if old.tape is not None:
            joints = [j.at(v) for j in self.joints]
            new.tape = old.tape.with_joints(joints)
        keys = [tuple(w.steps.key(v)) for w in self.windows]
        old_windows, _, *rest = old.signature
        new.signature = (
            [(k, refs) for k, (_, refs) in zip(keys, old_windows, strict=True)],
            [a.alike() for a in new.ahead],
        )
        if rest:
            new.signature = (*new.signature, new.tape.signature())
        return new


def _listed(spec: Any) -> list[Any]:
    """The sizes in what is returned."""
    if spec[0] == "size":
        return list(spec[1]) if type(spec[1]) is Size else [spec[1]]
    if spec[0] in ("tensor", "same"):
        return []
    return [x for y in spec[-1] for x in _listed(y)]


__all__ = ["DynamicRecording", "Numbers", "WindowPlan"]
