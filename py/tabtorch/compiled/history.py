"""The histories of what a compiled function returns: a few functions of the tape that stand for all that it has recorded.

A result may lead to another, as a loss does to the logits that are returned with it, and whoever has a hook on those, retains
their gradient, or asks for it, finds there what comes from the loss. So the tape is parted into stages, each of which is one
function (backward_plan.py): what the results lead to that lead to no other result, then what else the next of them lead to, and so on.
Where an edge leads from one stage into an earlier one, that has an output more.

Views get functions of their own, which take gradients to what was there, or is a result, by the formulas that were recorded.
Where those do not lead to such a tensor, `refresh` makes a history from the base when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from tabtorch.autograd import engine
from tabtorch.autograd.edges import output
from tabtorch.autograd.match_input import fit_gradient
from tabtorch.autograd.tape import LEAF, GradFn, Port, edge, grad_class, next_seq
from tabtorch.autograd.views import PLAIN
from tabtorch.compiled.backward_plan import Joint, check_hooks
from tabtorch.compiled.storage_offsets import Begins
from tabtorch.core.tensor import Tensor
from tabtorch.engine.view import concrete_meta


class ViewsBackward(GradFn):
    """Of views that one function of the tape had made. `formulas`: its own, then those of the views between them and its edge."""

    formulas: list[Callable[[Any], Any]]

    def apply(self, g: Any) -> Sequence[Tensor | None]:
        for formula in self.formulas:
            g = formula(g)
        return (g,)


def _formula(fn: GradFn) -> Callable[[Any], Tensor] | None:
    """That of the gradient of a view, which takes the gradient alone; None: it is none."""
    formula: Any = getattr(fn, "backward", None)
    return None if getattr(fn, "saved", ()) or len(fn.edges) != 1 or not callable(formula) else formula


def _fitting(fn: GradFn) -> Callable[[Any], Any]:
    """A gradient that `fn` has given as one of its input: summed where that was broadcast."""
    m = concrete_meta(fn.metas[0])
    return lambda g: fit_gradient(g, m, fn, 0)


def _among(nr: int, count: int) -> Callable[[Any], Any]:
    """A gradient as that of output `nr` of several."""
    return lambda g: [g if k == nr else None for k in range(count)]


class Views:
    """Results that function `fn` has made, and of which tensor they are views; after `place`, where those are."""

    def __init__(self, fn: GradFn, formulas: list[Callable[[Any], Any]], parent: Tensor, members: list[Tensor]) -> None:
        self.own = [fn]
        self.formulas = formulas
        self.name = type(fn).__name__
        self.outs = fn.outs
        self.tensors = [parent, *members]
        self.numbers = [output(t._tab_grad_fn)[1] for t in members]

    def number(self, e: Any) -> int:
        """Which of the outputs an edge leads to."""
        return e.nr if e.is_port else 0

    def place(self, at: dict[int, int]) -> None:
        self.at = [at[id(t)] for t in self.tensors]
        self.own, self.tensors = [], []

    def attach(self, tensors: Sequence[Tensor]) -> GradFn:
        parent, *members = [tensors[k] for k in self.at]
        fn: Any = object.__new__(grad_class(self.name, ViewsBackward))
        fn.edges = (_edge_of(parent) if parent._tab_requires_grad else None,)
        fn.metas = (parent._tab_meta,)
        fn.outs = self.outs
        fn.formulas = self.formulas
        fn.seq = next_seq()
        for t, nr in zip(members, self.numbers, strict=True):
            t._tab_requires_grad = True
            t._tab_grad_fn = _edge_to(fn, nr)
        return fn


def _edge_of(t: Tensor) -> Any:
    return t._tab_grad_fn or edge(t)


def _edge_to(fn: GradFn, nr: int) -> Any:
    return Port(fn, nr) if isinstance(fn.outs, tuple) else fn


class Stage:
    """Functions of the tape that become one. `roots`: edges to the outputs that it has."""

    def __init__(self, roots: list[Any], ends: set[GradFn]) -> None:
        self.roots = roots
        found, _ = engine._collect(roots, list(ends))
        self.order = [fn for fn in found if fn not in ends]
        self.own = set(self.order)

    def number(self, e: Any) -> int:
        """Which of the outputs an edge from a later stage leads to."""
        at = [output(r) for r in self.roots]
        if output(e) not in at:
            self.roots.append(e)
            at.append(output(e))
        return at.index(output(e))

    def ends(self) -> list[Any]:
        """The edges that lead out of it, as a backward pass comes to the end of each: where a hook of a leaf raises, those
        after it have no gradient."""
        last: dict[Any, Any] = {}
        for e in [e for fn in reversed(self.order) for e in fn.edges if e is not None]:
            if e.edge_kind == LEAF or e.fn not in self.own:
                last.pop(output(e), None)
                last[output(e)] = e
        return list(last.values())


class Histories:
    """The functions of the tape that stand for one recording: `steps`, each after those that it leads to.

    Of an edge to one of them, ("output", which step, which of its outputs) is kept; of others, ("tensor", to which).
    """

    def __init__(
        self, points: Sequence[Tensor], views: Sequence[Tensor], inputs: Sequence[Tensor], known: set[int]
    ) -> None:
        """points: the results that are no views, and what views among them are views of; views: those, if they are of the
        points or of what was there; inputs: what was there and requires grad; known: the ids of all that was there.

        Computes gradients; the windows are held open. Raises ValueError with the reason where that cannot be done.
        """
        self.known = known
        self.inputs = {output(t._tab_grad_fn): t for t in inputs if t._tab_grad_fn is not None}
        self.before = {fn for fn, _ in self.inputs}
        self.points = {output(t._tab_grad_fn): t for t in points}
        self.made: dict[GradFn, list[Tensor]] = {}  # by each function, of the views
        for t in views:
            self.made.setdefault(t._tab_grad_fn.fn, []).append(t)
        check_hooks(list(self.made))
        self.level = self._levels()
        steps = self._in_order(self._stages())
        at = {fn: (k, s) for k, s in enumerate(steps) for fn in s.own}
        ends = [s.ends() if isinstance(s, Stage) else [] for s in steps]
        self.edges = [[self._said(e, at) for e in found] for found in ends]
        #: results that are outputs of a stage: (tensor, which step, which output)
        self.outputs: list[Any] = [(t, *self._said(t._tab_grad_fn, at)[1:]) for t in points]
        self.members = {id(t) for s in steps if isinstance(s, Views) for t in s.tensors[1:]}
        self.steps: list[Views | Joint] = []
        self.joints: list[Joint] = []
        try:
            for s, found in zip(steps, ends, strict=True):
                self._add(s if isinstance(s, Views) else Joint(s.roots, found, s.order))
        except BaseException:
            self.drop()
            raise

    def _add(self, step: Views | Joint) -> None:
        self.steps.append(step)
        if isinstance(step, Joint):
            self.joints.append(step)

    # ---- what leads where

    def _levels(self) -> dict[GradFn, int]:
        """In which stage a result is, by its function: after all those that it leads to."""
        level: dict[GradFn, int] = {}
        for t in sorted(self.points.values(), key=lambda t: t._tab_grad_fn.fn.seq):
            order, _ = engine._collect([t._tab_grad_fn], list(self.before))
            led = [level[fn] + 1 for fn in order if fn in level and fn is not t._tab_grad_fn.fn]
            level[t._tab_grad_fn.fn] = max([level.get(t._tab_grad_fn.fn, 0), *led])
        return level

    def _stages(self) -> list[Stage]:
        stages: list[Stage] = []
        ends = self.before | self.made.keys()
        for n in range(max(self.level.values(), default=-1) + 1):
            roots = [t._tab_grad_fn for (fn, _), t in self.points.items() if self.level[fn] == n]
            stages.append(Stage(roots, ends))
            ends = ends | stages[-1].own
        return stages

    def _parent(self, fn: GradFn, there: dict[Any, Tensor]) -> tuple[Tensor | None, list[Callable[[Any], Any]]]:
        """Of which of the tensors that are there `fn` makes views (None: of none), and how gradients come to it."""
        formulas: list[Callable[[Any], Any]] = []
        while (formula := _formula(fn)) is not None and (e := fn.edges[0]) is not None:
            formulas.append(formula)
            if e.edge_kind == LEAF:
                return (e if id(e) in self.known else None), formulas
            if output(e) in there:
                return there[output(e)], formulas
            formulas.append(_fitting(fn))
            fn = e.fn
            if e.is_port:
                formulas.append(_among(e.nr, len(fn.outs)))
        return None, formulas

    def _in_order(self, stages: list[Stage]) -> list[Stage | Views]:
        """The stages, and the views that are of something known, each after what they are views of."""
        led = {e.fn for s in stages for e in s.ends() if e.edge_kind != LEAF}
        after: list[list[Views]] = [[] for _ in range(len(stages) + 1)]
        there = {**self.inputs, **self.points}
        level = self.level.copy()
        for fn in sorted(self.made, key=lambda fn: fn.seq):
            members = self.made[fn]
            parent, formulas = self._parent(fn, there)
            if parent is None and (fn in led or any(t._tab_view_state != PLAIN for t in members)):
                raise ValueError("it returns a view of a tensor that does not belong to what its Python sees")
            if parent is not None:
                level[fn] = -1 if parent._tab_grad_fn is None else level.get(parent._tab_grad_fn.fn, -1)
                after[level[fn] + 1].append(Views(fn, formulas, parent, members))
                there |= {output(t._tab_grad_fn): t for t in members}
        steps: list[Stage | Views] = [*after[0]]
        for stage, views in zip(stages, after[1:], strict=True):
            steps += [stage, *views]
        return steps

    def _said(self, e: Any, at: dict[GradFn, tuple[int, Any]]) -> tuple[Any, ...]:
        if e.edge_kind == LEAF:
            if id(e) in self.known:
                return ("tensor", e)
        elif output(e) in self.inputs:
            return ("tensor", self.inputs[output(e)])
        elif e.fn in at:
            k, step = at[e.fn]
            return ("output", k, step.number(e))
        raise ValueError("a gradient flows to a tensor that does not belong to what its Python sees")

    # ---- what is recorded

    def drop(self) -> None:
        """Takes what was computed for the gradients out of the windows again."""
        for joint in self.joints:
            joint.drop()

    def partition(self, ref: Any, results: Sequence[Tensor], begins: Begins) -> list[Any]:
        """The nodes that have to be saved. `ref` tells of others where they come from."""
        second = {id(n) for joint in self.joints for n in joint.own}
        first = [[n for n in joint.queue.nodes if id(n) not in second] for joint in self.joints]
        saved = [joint.partition(f, ref, results, begins) for joint, f in zip(self.joints, first, strict=True)]
        self.counts = [(len(nodes), len(joint.scalars)) for nodes, joint in zip(saved, self.joints, strict=True)]
        self.refs = [r for joint in self.joints for r in joint.refs]
        self.scalars = [x for joint in self.joints for x in joint.scalars]
        return [n for nodes in saved for n in nodes]

    def place(self, tensors: Sequence[Tensor]) -> None:
        """Which of the tensors of a run (arguments, those of the scope, results) is which. KeyError for one that is not there."""
        at = {id(t): k for k, t in reversed(list(enumerate(tensors)))}
        for s in self.steps:
            if isinstance(s, Views):
                s.place(at)
        self.edges = [[("tensor", at[id(e[1])]) if e[0] == "tensor" else e for e in edges] for edges in self.edges]
        self.outputs = [(at[id(t)], step, nr) for t, step, nr in self.outputs]
        self.inputs, self.points, self.made, self.level, self.before = {}, {}, {}, {}, set()

    def with_joints(self, joints: list[Joint]) -> Histories:
        """The same of other sizes, with these instead of its own. All its steps are such."""
        new = copy(self)
        new.steps, new.joints = [*joints], joints
        return new

    def signature(self) -> Any:
        """What two runs have in common that have the same histories."""
        keys = [(s.name, s.at, s.numbers) if isinstance(s, Views) else s.key for s in self.steps]
        return keys, self.edges, [r.structure() for r in self.refs]

    def attach(
        self,
        tensors: Sequence[Tensor],
        results: Sequence[Tensor],
        saved: list[Tensor],
        values: list[Any],
        roots: list[Any],
        scalars: list[Any],
    ) -> None:
        """Puts the results of a run on the tape. `results`: what is new; `saved`: as `partition` says; `values` and `roots`: nodes
        and storages of what was there."""
        fns: list[GradFn] = []
        counts = iter(self.counts)
        for s, said in zip(self.steps, self.edges, strict=True):
            if isinstance(s, Views):
                fns.append(s.attach(tensors))
                continue
            n, m = next(counts)
            ends = [_edge_to(fns[e[1]], e[2]) if e[0] == "output" else _edge_of(tensors[e[1]]) for e in said]
            fns.append(s.attach(ends, results, saved[:n], values, roots, scalars[:m]))
            saved, scalars = saved[n:], scalars[m:]
            for t, nr in [(tensors[k], nr) for k, step, nr in self.outputs if step == len(fns) - 1]:
                t._tab_requires_grad = True
                t._tab_grad_fn = Port(fns[-1], nr)
