"""Plans for the windows of a recorded call.

Values that replace others are planned into their memory, where nobody else can see it; so the state of a training step stays where
it is, and a replay binds the same buffers each time. Results get memory of their own.
"""

from __future__ import annotations

import gc
from typing import Any

from tabtorch.compiled import symbolic_numbers
from tabtorch.compiled.capture import Capture
from tabtorch.compiled.dynamic import DynamicRecording, Numbers, WindowPlan
from tabtorch.compiled.guards import Guards
from tabtorch.compiled.history import Histories
from tabtorch.compiled.inputs import Source
from tabtorch.compiled.memory import separated, twin_of, unshared
from tabtorch.compiled.replay import Replay
from tabtorch.compiled.results import Bases
from tabtorch.compiled.storage_offsets import Begin, Begins
from tabtorch.compiled.symbolic_sizes import Sizes, settled
from tabtorch.compiled.tree import with_sizes
from tabtorch.core.tensor import Tensor
from tabtorch.engine import graph
from tabtorch.engine.graph import Node, Window
from tabtorch.engine.liveness import by, held_beyond
from tabtorch.engine.plan import make_plan
from tabtorch.engine.symbols import concrete, fixed
from tabtorch.engine.view import concrete_meta
from tabtorch.ops.machinery.integer_bounds import Range


def _number(x: Any) -> Any:
    return (
        int(x)
        if isinstance(x, symbolic_numbers.SymbolicInt)
        else float.__float__(x)
        if isinstance(x, symbolic_numbers.SymbolicNumber)
        else x
    )


def _memory(node: Any) -> Any:
    """The whole of the buffer that a value lies in."""
    return node.buf.base or node.buf


class Unrecorded(Exception):
    """Why a run cannot be replayed."""


class Planner:
    """What a `CallRecorder` plans with, and how. The attributes are of the world before the call, unless they say otherwise."""

    arguments: list[Tensor]
    scope: Guards  # whose tensors the function sees besides
    roots: list[Any]  # the storages of all of these tensors, and of their gradients
    nodes: list[Any]  # their values
    index: dict[int, int]  # id of a storage -> its number in `roots`
    place: dict[int, int]  # id of a value -> the same
    idents: list[int]  # of the buffers of the values
    grads: list[Any]
    hold: Capture
    begins: Begins
    notes: Any
    sizes: Sizes | None
    recording: DynamicRecording | None
    refusal: str
    shown_saved: list[Any]
    tape: Histories | None  # of the results, if somebody may differentiate them
    bases: Bases
    views: list[Tensor]  # made in the call, that results are views of
    fresh: list[Tensor]  # all tensors that the call has made and that live on
    new_grads: list[tuple[int, Tensor]]  # (leaf, its gradient), where there was none
    regrads: list[tuple[int, int, Tensor]]  # (leaf, place of the old gradient, the new one)
    histories: list[tuple[Tensor, Any]]
    plans: dict[Any, Any]
    why: str

    def looked(self) -> list[tuple[int, Any, Any, int | None]]:
        """What the host has looked at of values that were there: (place, view, Range, the number with which the view moves)."""
        looks = [(self.place[i], concrete_meta(m), wanted) for i, m, wanted in self.hold.looks if i in self.place]
        found = [(i, m, Range(*map(fixed, wanted))) for i, m, wanted in looks]
        whole = [m is self.nodes[i].inst.out for i, m, _ in found]
        return [
            (*look, None if all_of_it else self.begins.of.get(look[0]))
            for look, all_of_it in zip(found, whole, strict=True)
        ]

    def _planned(self, windows: list[Window], spec: Any, results: list[Tensor], saved: list[Tensor]) -> Replay:
        """Plans the windows so that results get memory of their own, and new values of old storages the memory of those."""
        waiting = {id(n): (w, n.pos) for w, window in enumerate(windows) for n in window.nodes}
        place_of = {id(n): flat for window in windows for n, flat in window.aliased}
        self.scalars = [x for w in windows for x in self.begins.scalars(w.nodes, self.place)]
        self.symbolic_scalars: list[Any] = []
        if self.sizes is not None:
            shown = [self.begins.scalars(w.nodes, self.place, w.symbolic) for w in windows]
            self.symbolic_scalars = [x for each in shown for x in each]
        self.expressions = Numbers()
        self.planned: list[WindowPlan] = []

        def ref(node: Any) -> Source:
            found = waiting.get(id(node))
            return self._ref(node) if found is None else Source("new", *found)

        # values that get memory of their own: results, and gradients where there were none
        wanted: list[set[int]] = [set() for _ in windows]
        keep: list[set[int]] = [set() for _ in windows]
        fresh: list[Any] = []  # storages
        refs: list[Source] = []
        self.hidden = [*[g for _, g in self.new_grads if all(g is not t for t in results)], *self.views, *saved]
        self.shown: dict[int, Any] = {}  # which of the results has which view, where that has Symbols
        if self.sizes is not None:
            self._settle([*results, *self.hidden], len(saved))
        for t in [*results, *self.hidden]:
            root = t._tab_storage.root
            if id(root) not in self.index and all(root is not x for x in fresh):
                found = ref(root.node)
                if found.kind == "base" or id(root.node) in place_of:
                    raise Unrecorded("it returns part of the parameters")
                if found.kind == "new":
                    keep[found.number].add(found.position)
                    wanted[found.number].add(found.position)
                fresh.append(root)
                refs.append(found)
        # values that replace others
        changed = [i for i, (r, n) in enumerate(zip(self.roots, self.nodes)) if r.node is not n]
        targets: list[list[tuple[int, int]]] = [[] for _ in windows]
        rebound: list[tuple[int, int]] = []  # (place, what was made ahead)
        flats: dict[int, tuple[Any, list[tuple[Any, int]]]] = {}
        replaced = [(i, self.roots[i].node) for i in changed] + [
            (i, g._tab_storage.root.node) for _, i, g in self.regrads
        ]
        self._separate([i for i, n in replaced if i not in changed or ref(n).kind != "made"], windows)
        for i, new in replaced:
            old, found = self.nodes[i], ref(new)
            a, b = new.inst.out, old.inst.out
            if (a.numel, a.dtype) != (b.numel, b.dtype):
                raise Unrecorded("it changes the size of a tensor")
            if found.kind == "made" and i in changed:
                rebound.append((i, found.number))
            elif found.kind != "new":
                raise Unrecorded("it gives a tensor the value of another")
            elif id(new) in place_of and old.buf.base is not None:
                flat = place_of[id(new)]
                flats.setdefault(id(flat), (flat, []))[1].append((new, i))
            else:
                targets[found.number].append((found.position, self._input(windows[found.number], old)))
                wanted[found.number].add(found.position)
        old = new = None
        for flat, members in flats.values():
            w = waiting[id(flat)][0]
            targets[w].append((flat.pos, self._flat_input(windows[w], flat, members)))
            wanted[w].add(flat.pos)
        everyone = [*self.arguments, *self.scope.tensors, *results, *self.hidden]
        if self.tape is not None:
            if {i for i, _ in replaced} & {r.number for r in self.tape.refs if r.kind == "old"}:
                raise Unrecorded("its backward pass needs a value that is written over")
            self.tape.place(everyone)
        self.shown_ahead = self.hold.ahead
        self.hold.ahead = [a.with_sizes(concrete, concrete_meta) for a in self.hold.ahead]
        self.ahead = [a.placed(self._source) for a in self.hold.ahead]
        found_in = [[ref(n) for n in window.inputs] for window in windows]
        for w, window in enumerate(windows):
            self._only(window, wanted[w], {flat.pos for _, flat in window.aliased})
        for i, _ in replaced:
            self._alone(i, windows)
        steps = []
        for w, window in enumerate(windows):
            plan = self._plan(window, wanted[w], targets[w], frozenset(keep[w]))
            steps.append((plan, found_in[w], window))
        self.signature: Any = (
            [(tuple(x.key), [r.structure() for r in ins]) for _, ins, x in steps],
            [a.alike() for a in self.hold.ahead],
        )
        self.uploads = list(self.hold.uploads.values())
        values = self.nodes.copy()
        for plan, _, window in steps:
            graph.counts["flushes"] += 1
            plan.run(window.nodes, window.inputs, window.scalars)
        for _, members in flats.values():
            for new, i in members:
                new.buf = self.nodes[i].buf
        self.spec = spec
        if self.tape is not None:
            self.signature = (*self.signature, self.tape.signature())
            if self.sizes is not None:
                self.symbolic_scalars += self.tape.scalars
                for joint in self.tape.joints:
                    joint.scalars = [x.plain() if type(x) is Begin else concrete(x) for x in joint.scalars]
                self.tape.scalars = [x for joint in self.tape.joints for x in joint.scalars]
            self.scalars += self.tape.scalars
        recorder: Any = self
        made = Replay(
            recorder,
            [(p, ins, len(x.scalars)) for p, ins, x in steps],
            with_sizes(spec, concrete),
            results,
            fresh,
            refs,
            changed,
            rebound,
        )
        if self.tape is not None:
            at = {id(t): k for k, t in enumerate([*results, *self.hidden])}
            made.differentiated(self.tape, [at[id(t)] for t in self.fresh], len(at) - len(saved))
        if self.sizes is not None:
            try:
                self.recording = DynamicRecording(self.sizes, made, self)
            except ValueError as e:
                self.refusal = str(e)
        if self.tape is not None:
            scalars = [_number(x) for x in self.tape.scalars]
            self.tape.attach(everyone, self.fresh, saved, values, self.roots, scalars)
        return made

    def _settle(self, tensors: list[Tensor], saved: int) -> None:
        """Gives tensors that outlive the run plain views; `shown` has those with Symbols. The last ones are what is saved."""
        first = len(tensors) - saved
        shown = {id(t): t._tab_meta for t in tensors if t._tab_meta.symbolic}
        self.shown = {k: shown[id(t)] for k, t in enumerate(tensors) if id(t) in shown}
        self.shown |= {first + k: m for k, m in enumerate(self.shown_saved) if m.symbolic}
        for t in tensors:
            settled(t)
        self.shown_looks = [
            (place, m, wanted, k)
            for (place, _, wanted, k), (_, m, _) in zip(
                self.looked(), [x for x in self.hold.looks if x[0] in self.place], strict=True
            )
        ]

    def _source(self, ident: int) -> Source:
        """Where a buffer comes from that is read ahead of the plan."""
        if ident in self.hold.made:
            return Source("made", self.hold.made[ident])
        found = [i for i, n in enumerate(self.idents) if n == ident]
        if len(found) == 1:
            return Source("old", found[0])
        raise Unrecorded("it copies a tensor of which it is not known whose it is")

    def _ref(self, node: Any) -> Source:
        if id(node) in self.place:
            return Source("old", self.place[id(node)])
        if node.buf is None:  # it waits, and not here
            raise Unrecorded("another thread takes part in it")
        k = self.hold.made.get(node.buf.id)
        if k is not None:
            return Source("made", k)
        if node.buf.id in self.hold.uploads:
            return Source("constant", node=node)
        for i, n in enumerate(self.nodes):
            if n.buf.base is node.buf:
                return Source("base", i)
        raise Unrecorded("it uses a tensor that does not belong to what its Python sees")

    def _input(self, window: Window, node: Any) -> int:
        """Which input of the window a value from before is; it becomes one where it is none."""
        for k, n in enumerate(window.inputs):
            if n is node:
                return k
        window.inputs.append(node)
        node.pos = -len(window.inputs)
        node.uses = 0
        return len(window.inputs) - 1

    def _flat_input(self, window: Window, flat: Any, members: list[tuple[Any, int]]) -> int:
        """The same of the buffer onto which the members were windows, as they are now onto `flat`."""
        base = self.nodes[members[0][1]].buf.base
        size = flat.inst.out.dtype.itemsize
        known = sum(n.buf.base is base for n in self.nodes)
        for new, i in members:
            b = self.nodes[i].buf
            if b.base is not base or base is None or b.offset != new.inst.ins[0].offset * size:
                raise Unrecorded("parameters are laid out anew")
        if known != len(members) or base.nbytes != flat.inst.out.numel * size:
            raise Unrecorded("parameters are laid out anew")
        for k, n in enumerate(window.inputs):
            if n.buf is base:
                return k
        node = Node(flat.inst, (), ())
        node.buf = base
        return self._input(window, node)

    def _only(self, window: Window, wanted: set[int], flats: set[int]) -> None:
        """Raises Unrecorded if a value stays alive of which it is not known who has it.

        Where there is a tape, its histories may hold it. They go, so there is no way back, and it is stored too.
        """
        more = [p for p, on in enumerate(window.live) if on and p not in wanted and p not in flats]
        if not more:
            return
        if self.tape is not None:
            self.histories = []
        nodes = [window.nodes[p] for p in more]
        for collect in (self.tape is None, True):
            if collect:
                gc.collect()
            known = [by("Window.nodes") + n.uses for n in nodes]
            found = [p for p, other in zip(more, held_beyond(nodes, known), strict=True) if other]
            if not found:
                return
        self.why = f"a tensor outlives it: that of {window.nodes[found[0]].inst.op.name}"
        if self.tape is None:
            raise Unrecorded(self.why)
        wanted.update(found)

    def _alone(self, i: int, windows: list[Window]) -> None:
        """Sees to it that nobody but the storage has value `i`, which is about to be written over."""
        value, storage = [self.nodes[i]], [self.roots[i]]
        inputs = sum(n is value[0] for w in windows for n in w.inputs)
        own = by("CallRecorder.nodes") + inputs + (value[0].uses if inputs else 0)
        shared = held_beyond(value, [own])
        if storage[0].node is value[0]:  # a gradient, whose place another takes: it and its storage should be gone
            shared = [
                *held_beyond(value, [own + by("Storage.node")]),
                *held_beyond(storage, [by("CallRecorder.roots")]),
            ]
        if any(shared):
            node = value[0]
            self._replace(node, twin_of(node), windows)
            unshared(node)

    def _separate(self, written: list[int], windows: list[Window]) -> None:
        """Sees to it that values that are about to be written over lie in memory where nothing else lies."""
        inputs = [n for w in windows for n in w.inputs]
        for node, twin in separated(self.nodes, written, inputs):
            self._replace(node, twin, windows)

    def _replace(self, node: Node, twin: Node, windows: list[Window]) -> None:
        """`twin`, the same value, in the place of `node`, which a gradient that somebody keeps goes on with."""
        if hasattr(node, "uses"):
            twin.pos, twin.uses = node.pos, node.uses
        for w in windows:
            w.inputs[:] = [twin if n is node else n for n in w.inputs]
        i = self.place.pop(id(node), None)
        if i is not None:
            self.nodes[i] = twin
            self.place[id(twin)] = i

    def _plan(self, window: Window, wanted: set[int], targets: list[tuple[int, int]], keep: frozenset[int]) -> Any:
        q = window.nodes[0].inst.out.device
        live = [p in wanted for p in range(len(window.nodes))]
        roots = [_memory(n) for n in window.inputs]
        own = {k for p, k in targets if p not in keep and sum(r is roots[k] for r in roots) == 1}
        free = [k in own for k in range(len(roots))]
        key = (tuple(window.key), tuple(live), tuple(free), tuple(targets), keep)
        if self.sizes is not None:
            self.planned.append(WindowPlan(self.expressions, window, (live, free, targets, keep)))
        plan = self.plans.get(key)
        if plan is None:
            graph.counts["plans"] += 1
            plan = self.plans[key] = make_plan(q, window.nodes, live, window.inputs, free, targets, keep)
        return plan
