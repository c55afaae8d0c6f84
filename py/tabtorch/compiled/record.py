"""From one run of a function to a plan that stands for it.

A `CallRecorder` runs the function with the windows held open and looks at what has become of the world: which storages have
another value, which gradients are new, what is returned. planning.py makes plans of the windows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabtorch.autograd.tape import GradFn, freed_error, grad_class
from tabtorch.autograd.views import PLAIN, refresh
from tabtorch.compiled import recording, symbolic_numbers
from tabtorch.compiled.capture import Capture
from tabtorch.compiled.dynamic import DynamicRecording
from tabtorch.compiled.guards import Guards, hooks_of, marks
from tabtorch.compiled.history import Histories
from tabtorch.compiled.memory import twin_of, unshared
from tabtorch.compiled.planning import Planner, Unrecorded
from tabtorch.compiled.replay import Replay
from tabtorch.compiled.results import Bases, differentiable, oddity
from tabtorch.compiled.storage_offsets import Begins
from tabtorch.compiled.symbolic_sizes import Sizes, Specialized, settled
from tabtorch.compiled.tree import Unknown, altered, describe
from tabtorch.core.tensor import Tensor
from tabtorch.engine import graph
from tabtorch.engine.graph import Window
from tabtorch.optim._state import NumberStorage


class Freed(GradFn):
    """Where the history of a result was, when a backward pass has used it up."""

    real = True  # it led to leaves: forward_ad.py need not look for them

    def apply(self, g: Any) -> Any:
        raise freed_error()


def freed(fn: Any) -> Any:
    """Its stand-in."""
    if fn is None:
        return None
    f: Any = object.__new__(grad_class(type(fn.fn).__name__, Freed))
    f.outs = fn.fn.outs if not isinstance(fn.fn.outs, tuple) else fn.fn.outs[fn.nr]
    return f


class CallRecorder(Planner):
    """One run of `function`, whose tensors are those of the arguments and those of `scope`."""

    def __init__(
        self,
        scope: Guards,
        arguments: list[Tensor],
        boxes: list[Any],
        plain: bool,
        plans: dict[Any, Any],
        sizes: Sizes | None = None,
        varying: bool = False,
    ) -> None:
        """sizes: Symbols for sizes of the arguments that may vary. varying: whether what is recorded is for other sizes, too."""
        self.sizes = sizes
        self.varying = varying
        self.recording: DynamicRecording | None = None
        self.refused = False  # whether the function failed with Symbols
        self.refusal = ""  # why the run serves no other sizes
        self.scope = scope
        self.boxes = boxes
        self.plans = plans
        self.plain = plain  # with no live numbers: to check what a recording predicts
        self.arguments = arguments
        self.why = ""
        self.histories: list[tuple[Tensor, Any]] = []  # of results, which are given another
        self.tensors = list({id(t): t for t in [*arguments, *scope.tensors]}.values())

    def run(self, hold: Capture, call: Callable[[], Any]) -> tuple[Any, Replay | None]:
        """The result of the function, and the replay of this run, or None (`why` says why)."""
        self.hold = hold
        with hold:
            try:
                self._before()
            except (RuntimeError, NotImplementedError) as e:  # a tensor has no value: the function may not mind
                hold.reason = str(e)
            self._make_numbers_symbolic()
            if self.sizes is not None:
                self.sizes.put()
            try:
                out = self._called(call)
                self._differentiate(out)
            finally:
                self._make_numbers_plain()
                if self.sizes is not None:
                    self.given_metas = [(t, shown) for t, _, shown, _, _ in self.sizes.before]
                    self.sizes.take()
        with graph.LOCK:
            try:
                recording.settle()
                if hold.reason:
                    raise Unrecorded(hold.reason)
                made = self._made(out)
                if self.why:
                    made = None
            except (Unrecorded, Unknown) as e:
                self.why = str(e)
                made = None
                if self.tape is not None:
                    self.tape.drop()
                for t, fn in self.histories:
                    t._tab_grad_fn, t._tab_stale = fn, False
            finally:
                self.histories = []
                if self.sizes is not None:
                    out = settled(out)
                    for t in [*self.tensors, *self.leaves]:
                        settled(t)
                        settled(t._grad)
                graph.flush()
        return out, made

    def _called(self, call: Callable[[], Any]) -> Any:
        """Runs the function; where it fails for Symbols, again without."""
        if self.sizes is None:
            return call()
        try:
            out = call()
        except Exception:
            if not self._undone():
                raise
            return call()
        found = [] if self.hold.reason else self.sizes.specialized()
        if found:
            self._undone()
            raise Specialized(found)
        return out

    def _undone(self) -> bool:
        """Makes the world as it was before the run, which has failed. Whether that could be done."""
        hold = self.hold
        if hold.reason or hold.ahead or hold.words or hold.disturbed or self.sizes is None:
            return False
        if list(map(hooks_of, self.tensors)) != self.hooks:
            return False
        for t, had in zip(self.tensors, self.marks, strict=True):
            if (now := marks(t)).keys() != had.keys() or any(now[k] is not had[k] for k in now):
                return False
        if altered(self.boxes) or any(s.version != v for s, v in zip(self.scope.counters, self.counter_versions)):
            return False
        self.sizes.take()
        self._make_numbers_plain()
        if self.after or not self.scope.unchanged():
            return False
        for q in graph.all_queues():
            q.nodes.take()
            q.windows = []
        for root, node, version in zip(self.roots, self.nodes, self.versions, strict=True):
            root.node, root.version = node, version
        for leaf, g in zip(self.leaves, self.grads, strict=True):
            leaf._grad = g
        for t, fn in zip(self.tensors, self.fns, strict=True):
            t._tab_grad_fn = fn
        hold.uploads.clear()
        hold.looks.clear()
        hold.freed.clear()
        hold.asked = False
        self.sizes, self.refused = None, True
        self._make_numbers_symbolic()
        return True

    # ---- the world before, and numbers in it

    def _before(self) -> None:
        self.roots: list[Any] = []
        self.index: dict[int, int] = {}  # id of a storage -> its place
        self.nodes: list[Any] = []
        self.place: dict[int, int] = {}  # id of a node -> the same place
        self.leaves = [
            t for t in self.tensors if t._tab_grad_fn is None and (t._tab_requires_grad or t._grad is not None)
        ]
        self.grads: list[Any] = [t._grad for t in self.leaves]
        self.had = [g is not None and (g._tab_meta, g._tab_requires_grad) for g in self.grads]
        self.fns = [t._tab_grad_fn for t in self.tensors]
        self.marks = list(map(marks, self.tensors))
        self.hooks = list(map(hooks_of, self.tensors))
        self.looks = [(t._tab_meta, t._tab_requires_grad, t._tab_storage) for t in self.arguments]
        for t in [*self.tensors, *[g for g in self.grads if g is not None]]:
            self._add(t._tab_storage.root)
        self.versions = [r.version for r in self.roots]
        self.counter_versions = [s.version for s in self.scope.counters]
        # of tensors that have versions of their own, as `data` gives them: the first with each
        storages = [t._tab_storage for t in [*self.arguments, *self.scope.tensors]]
        first = {id(s): k for k, s in reversed(list(enumerate(storages)))}
        self.own = [
            (k, storages[k], storages[k].version) for k in first.values() if storages[k].root is not storages[k]
        ]
        self.idents = [n.buf.id for n in self.nodes]
        self.of_grad = {self.index[id(g._tab_storage.root)]: j for j, g in enumerate(self.grads) if g is not None}

    def _add(self, root: Any) -> None:
        if id(root) in self.index:
            return
        node = root.node
        graph.buffer_of(node)
        if id(node) in self.place:  # two storages with one value: they may part
            node = twin_of(node)
            with self.hold.aside():
                unshared(node)
            root.node = node
        self.index[id(root)] = self.place[id(node)] = len(self.roots)
        self.roots.append(root)
        self.nodes.append(node)

    def _make_numbers_symbolic(self) -> None:
        symbolic_numbers.notes = self.notes = symbolic_numbers.Notes()
        self.numbers = self.scope.numbers
        self.begins = Begins(self.arguments, len(self.numbers))
        self.values: list[Any] = [*[dict.get(d, k) for d, k in self.numbers], *self.begins.values]
        if not self.plain:
            for i, (d, k) in enumerate(self.numbers):
                dict.__setitem__(d, k, symbolic_numbers.symbolic(self.values[i], ("v", i, -1)))

    def _make_numbers_plain(self) -> None:
        """Plain numbers again; notes which of them were changed."""
        self.after: list[tuple[int, Any]] = []
        for i, (d, k) in enumerate(self.numbers):
            now = dict.get(d, k)
            if getattr(now, "recipe", None) == ("v", i, -1) or now is self.values[i]:
                dict.__setitem__(d, k, self.values[i])
                continue
            self.after.append((i, now))
            if isinstance(now, float) and type(now) is not float:
                value = float.__float__(now)
                dict.__setitem__(d, k, int(value) if type(self.values[i]) is int and value.is_integer() else value)
        for opt in self.scope.optimizers:
            for d in [*opt.param_groups, *opt.state.values()]:
                boxes = [
                    v._tab_storage.box
                    for v in d.values()
                    if isinstance(v, Tensor) and type(v._tab_storage) is NumberStorage
                ]
                for own in (d, *boxes):
                    for k in [k for k, v in own.items() if type(v) is symbolic_numbers.SymbolicNumber]:
                        own[k] = float.__float__(own[k])

    def _differentiate(self, out: Any) -> None:
        """Computes the gradients of what is returned, if somebody may ask for them."""
        self.tape: Histories | None = None
        self.outputs: list[Tensor] = []
        self.histories = []
        self.hold.closed = True
        self.bases = Bases([])
        if self.hold.reason:
            return
        results: list[Tensor] = []
        known = {id(t) for t in self.tensors}
        try:
            describe(out, {**self.scope._seen, **dict.fromkeys(known)}, results, self.boxes)
        except Unknown as e:
            self.hold.reason = str(e)
            return
        self.bases = Bases([*self.arguments, *self.scope.tensors])
        self.outputs = [t for t in self.bases.roots(results) if not self._used_up(t)]
        inputs = [t for t in self.tensors if t._tab_requires_grad and t._tab_meta.dtype.category > 1]
        self.hold.fixed = True
        try:
            views = self._views(results)
            if self.varying and all(t._tab_view_state == PLAIN for t in views):
                views = []  # their histories are made from their bases, when they are asked for
            if self.outputs or views:
                self.tape = Histories(self.outputs, views, inputs, known)
        except Exception as e:  # it says so again when it is asked for
            self.hold.reason = self.hold.reason or f"its gradients: {e}"
        finally:
            self.hold.fixed = False

    def _views(self, results: list[Tensor]) -> list[Tensor]:
        """Views, made in the call and with a history, of what was there before or of `outputs`."""
        outputs = set(map(id, self.outputs))
        found = []
        for t in self.bases.new(results):
            if id(t) not in outputs and differentiable(t) and (self.bases.of(t) is not None or id(t._base) in outputs):
                if t._tab_stale:
                    refresh(t)
                found.append(t)
        return found

    def _used_up(self, t: Tensor) -> bool:
        """Whether a backward pass has used up the history of a tensor."""
        if t._tab_stale:
            refresh(t)
        return t._tab_grad_fn.fn in self.hold.freed

    # ---- the world after

    def _made(self, out: Any) -> Replay | None:
        """What a replay has to do, after a run that gave `out`; then the windows are planned and sent. Unrecorded: none can do it."""
        hold = self.hold
        results: list[Tensor] = []
        known = {**self.scope._seen, **{id(t): t for t in self.tensors}}
        spec = describe(out, known, results, self.boxes)
        for t, fn in zip(self.tensors, self.fns):
            if t._tab_grad_fn is not fn:
                raise Unrecorded("it changes the history of a tensor")
        for t, had in zip(self.tensors, self.marks):
            if (now := marks(t)).keys() != had.keys() or any(now[k] is not had[k] for k in now):
                raise Unrecorded("it sets an attribute of a tensor")
        if list(map(hooks_of, self.tensors)) != self.hooks:
            raise Unrecorded("it adds or removes a hook")
        if any(t is g for t in results for g in self.grads):
            raise Unrecorded("it returns a gradient that was there before")
        new = [t for t in results if id(t) not in known]
        self.views = self.bases.made(new)
        for t in [*new, *self.views]:
            if odd := oddity(t):
                raise Unrecorded(odd)
        outputs = set(map(id, self.outputs))
        for t in [*new, *self.views]:
            if t._tab_stale:
                refresh(t)
            if t._tab_grad_fn is None:
                continue
            if t._tab_grad_fn.fn not in hold.freed or self.bases.of(t) is not None:
                self.histories.append((t, t._tab_grad_fn))  # until it has another
            if self.tape is not None and id(t) in self.tape.members:
                t._tab_grad_fn = None
            elif self.bases.of(t) is not None or (t._base is not None and id(t._base) in outputs):
                t._tab_grad_fn, t._tab_stale = None, True  # made when it is asked for
            else:
                t._tab_grad_fn = freed(t._tab_grad_fn)
        hold.freed.clear()
        if [(t._tab_meta, t._tab_requires_grad, t._tab_storage) for t in self.arguments] != self.looks:
            raise Unrecorded("it makes another tensor of an argument")
        if altered(self.boxes):
            raise Unrecorded("it changes a list or dict that it was given")
        tensors = self.scope.tensors
        if not self.scope.unchanged() or self.scope.tensors is not tensors:  # not even by a tensor like the one before
            raise Unrecorded("it changes what its Python sees")
        self._grads_after({id(t._tab_storage.root) for t in results})
        self.begins.tie([self.index[id(t._tab_storage.root)] for t in self.arguments], self.notes)
        self.fresh = [*new, *self.views]
        saved = [] if self.tape is None else self.tape.partition(self._ref, self.fresh, self.begins)
        self.shown_saved = [n.inst.out for n in saved]
        queues = [q for q in graph.all_queues() if q.nodes]
        with graph.undisturbed():
            windows = [Window(q) for q in queues]
            try:
                for w in windows:
                    w.survey()
                    if w.lost:
                        raise graph.lost()
                return self._planned(windows, spec, results, [Tensor._wrap(n, n.inst.out) for n in saved])
            except Unrecorded:
                for q, w in zip(queues, windows):  # as if nothing had been: they go the ordinary way
                    if any(n.buf is None for n in w.nodes):
                        w.put_back(q)
                raise
            except BaseException:
                for w in windows:
                    graph.give_up(w.nodes)
                raise

    def _grads_after(self, returned: set[int]) -> None:
        """Sorts gradients: (leaf, the new one) where there is one, and those that are gone. `returned`: ids of storages."""
        leaf: Any
        old: Any
        new: Any
        self.new_grads: list[tuple[int, Tensor]] = []
        self.regrads: list[tuple[int, int, Tensor]] = []  # leaf, place of the old value, the new gradient
        self.gone: list[int] = []
        for j, (leaf, old) in enumerate(zip(self.leaves, self.grads)):
            new = leaf._grad
            if new is old:
                continue
            if new is None:
                self.gone.append(j)
            elif odd := oddity(new):
                raise Unrecorded(odd)
            elif new._tab_requires_grad or differentiable(new):
                raise Unrecorded("it leaves a gradient with a history")
            elif (
                old is not None
                and id(new._tab_storage.root) not in self.index
                and old._tab_meta is new._tab_meta
                and id(new._tab_storage.root) not in returned
            ):
                i = self.index[id(old._tab_storage.root)]
                if self.roots[i].node is self.nodes[i] and self.nodes[i].inst.out is new._tab_storage.node.inst.out:
                    self.regrads.append((j, i, new))
                    self.grads[j] = None  # so that it can be seen who else has it
                else:
                    self.new_grads.append((j, new))
            else:
                self.new_grads.append((j, new))
        leaf = old = new = None
