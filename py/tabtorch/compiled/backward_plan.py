"""A compiled function that is differentiated outside: a stage of its tape (history.py) is one function, which is one plan.

While it is recorded, the gradients of all that may need one are computed too, of gradients of the results that are not there
yet. What that part of the graph takes from the first part is what the forward plan has to save; maps that are cheap to
compute again from what is there are computed again. The plan of the backward pass is made when it first runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tabtorch.autograd import engine
from tabtorch.autograd.edges import meta_at, output, standing_for
from tabtorch.autograd.grad_mode import STATE, no_grad
from tabtorch.autograd.tape import FREED, LEAF, GradFn, freed_error, modified_error, next_seq
from tabtorch.compiled.inputs import Source
from tabtorch.compiled.storage_offsets import Begins
from tabtorch.core.tensor import Tensor
from tabtorch.engine import graph
from tabtorch.engine.graph import Buffer, Node
from tabtorch.engine.plan import make_plan
from tabtorch.engine.view import contiguous_meta
from tabtorch.ops.machinery import registry

#: the cost (see `Map.cost`) up to which a value is computed again rather than saved
AGAIN = 24


class Joint:
    """The backward pass of one recording."""

    def __init__(self, roots: list[Any], ends: list[Any], order: list[GradFn]) -> None:
        """Computes gradients; the windows are held open. Raises ValueError with the reason where that cannot be done.

        roots: edges to the outputs; ends: edges to what gradients are wanted of; order: the functions between, oldest first.
        """
        check_hooks(order)
        self.saves = any(fn.saves for fn in order)
        metas = [meta_at(e) for e in roots]
        self.outputs = [(m, contiguous_meta(m.shape, m.dtype, m.device)) for m in metas]
        inputs = [standing_for(e) for e in ends]
        self.input_metas = tuple([t._tab_meta for t in inputs])
        #: of each input, the outputs that depend on it: it has a gradient only if one of them has
        self.reaching = self._reaching(roots, ends)
        (self.queue,) = {graph.queue_of(m.device) for m in metas}
        start = len(self.queue.nodes)
        self.own: list[Any] = []
        try:
            try:
                self._compute(roots, inputs)
            finally:
                self.own = self.queue.nodes[start:]
        except BaseException:
            self.drop()
            raise

    @staticmethod
    def _reaching(roots: list[Any], ends: list[Any]) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in ends]
        last = list({e.fn: 0 for e in ends if e.edge_kind != LEAF})
        for j, root in enumerate(roots):
            order, _ = engine._collect([root], last)
            led = {output(e) for fn in order if fn not in last for e in fn.edges if e is not None} | {output(root)}
            for k, e in enumerate(ends):
                if output(e) in led:
                    found[k].append(j)
        return found

    def _compute(self, roots: list[Any], inputs: list[Tensor]) -> None:
        given = []
        self.nothing = Buffer(0, 0, self.outputs[0][1].device.number)
        self.places: dict[int, Source] = {}
        self.given: list[Any] = []
        for j, (_, m) in enumerate(self.outputs):
            node = graph.blank(m)
            node.buf = self.nothing
            self.given.append(node)
            self.places[id(node)] = Source("grad", j)
            given.append(Tensor._wrap(node, m))
        found = engine.run(roots, given, True, False, inputs, accumulate=False, cut=True)
        clone: Any = registry.function("clone")
        with no_grad():
            self.grads = [g if g is None or 0 in g._tab_meta.strides else clone(g) for g in found]

    def drop(self) -> None:
        """Takes what was computed for the gradients out of the window again, where other threads' may have come in between."""
        q, own = self.queue, set(map(id, self.own))
        with graph.LOCK:
            nodes = q.nodes[:]
            places = {id(nodes[p]) for p in q.windows}
            kept = [n for n in nodes if id(n) not in own]
            q.nodes[: len(nodes)] = kept
            q.windows = [p for p, n in enumerate(kept) if id(n) in places]
        self.own = self.grads = []

    def partition(self, first: list[Any], ref: Any, results: Sequence[Tensor], begins: Begins) -> list[Any]:
        """The nodes of the first part that have to be saved. `ref` tells of other nodes where they come from."""
        second = self.own
        needed = {id(g._tab_storage.node) for g in self.grads if g is not None}
        for n in reversed(second):
            if id(n) in needed:
                needed.update(map(id, n.srcs))
        early = {id(n) for n in first}
        #: results whose values the second part takes: they must not be written to in between
        self.taken = [k for k, t in enumerate(results) if id(t._tab_storage.root.node) in needed & early]
        again = self._again(first, needed)
        self.nodes: list[Any] = []
        self.holes: list[Any] = []
        self.refs: list[Source] = []
        saved: list[Any] = []
        made: dict[int, Any] = {}

        def get(n: Any) -> Any:
            twin = made.get(id(n))
            if twin is not None:
                return twin
            if id(n) in again or (id(n) not in early and n.buf is None):
                twin = Node(n.inst, tuple([get(s) for s in n.srcs]), n.scalars)
                self.nodes.append(twin)
            else:
                twin = graph.blank(n.inst.out)
                twin.buf = self.nothing
                where = None if id(n) in early else self.places.get(id(n)) or ref(n)
                if where is None or where.kind in ("made", "base"):
                    where = Source("saved", len(saved))
                    saved.append(n)
                self.refs.append(where)
                self.holes.append(twin)
            made[id(n)] = twin
            return twin

        for n in second:
            if id(n) in needed:
                get(n)
        self.results = [None if g is None else get(g._tab_storage.node) for g in self.grads]
        get = None  # type: ignore[assignment]  # it refers to itself, and so would hold the recording, and what that holds, until cycles are collected
        self.metas: list[Any] = [None if g is None else g._tab_meta for g in self.grads]
        self.drop()
        for p, n in enumerate(self.nodes):
            n.pos = p
        for k, n in enumerate(self.holes):
            n.pos = -k - 1
        self.key = tuple(x for n in self.nodes for x in (n.inst.base, *[s.pos for s in n.srcs]))
        self.key += (tuple(None if r is None else r.pos for r in self.results),)
        old = {id(n): r.number for n, r in zip(self.holes, self.refs, strict=True) if r.kind == "old"}
        self.scalars = begins.scalars(self.nodes, old)
        self.plan: Any = None
        return saved

    @staticmethod
    def _again(first: list[Any], needed: set[int]) -> set[int]:
        """Which of the values that the second part takes are computed again: cheap maps of what is at hand anyway."""
        own = {id(n) for n in first}
        cost: dict[int, int] = {}
        for n in first:
            op = n.inst.op
            if not op.elementwise:
                continue
            total = op.cost if n.srcs else 0
            for s in n.srcs:
                if s.buf is not None or id(s) not in own:
                    continue
                if id(s) in needed and not s.inst.op.elementwise:
                    continue  # saved in any case
                total += cost.get(id(s), 1 << 20)
            if total <= AGAIN:
                cost[id(n)] = total
        return set(cost)

    def attach(
        self,
        ends: list[Any],
        results: Sequence[Tensor],
        saved: list[Tensor],
        values: list[Any],
        roots: list[Any],
        scalars: list[Any],
    ) -> CompiledFunctionBackward:
        """The function of the tape for one run. ends: edges to the inputs of that run."""
        fn: Any = object.__new__(CompiledFunctionBackward)
        fn.joint = self
        fn.scalars = scalars
        used = {r.number for r in self.refs if r.kind == "old"}
        fn.saved = (
            saved,
            {i: (values[i], roots[i], roots[i].version) for i in used},
            [(results[k]._tab_storage, results[k]._tab_storage.version) for k in self.taken],
        )
        fn.edges = tuple([e if m is not None else None for e, m in zip(ends, self.metas, strict=True)])
        fn.metas = self.input_metas
        fn.outs = tuple([m for m, _ in self.outputs])
        fn.seq = next_seq()
        return fn

    def run(self, fn: Any, saved: Any, given: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Gradients of the inputs. saved: what `fn` had saved when it was asked."""
        tensors, values, watched = saved
        with graph.LOCK:
            if self.plan is None:
                self._plan()
        for root, version in watched:
            if root.version != version:
                raise _modified(root, version)
        sources = []
        for kind, k, _, constant in self.refs:
            if kind == "saved":
                sources.append(tensors[k]._tab_storage.node)
            elif kind == "grad":
                sources.append(_given(given[k], self.outputs[k][1]))
            elif kind == "old":
                node, root, version = values[k]
                if root.version != version:
                    raise _modified(root, version)
                sources.append(node)
            else:
                sources.append(constant)
        with graph.LOCK:
            graph.bridge()  # if the last runtime has died, this is where its buffers are found to be gone
            ids = [graph.buffer_of(n).id for n in sources]
            if 0 in ids:
                raise graph.lost()
            own = {-k - 1: n for k, n in enumerate(sources)}  # a gradient may be one that was given
            for p, b in self.plan.start(ids, fn.scalars):
                own[p] = n = Node(self.insts[p], (), ())
                n.buf = b
        there = [any(given[j] is not None for j in outputs) for outputs in self.reaching]
        return [
            Tensor._wrap(own[p], m) if p is not None and on else None
            for p, m, on in zip(self.places_of, self.metas, there, strict=True)
        ]

    def _plan(self) -> None:
        live = [False] * len(self.nodes)
        for r in self.results:
            if r is not None and r.pos >= 0:
                live[r.pos] = True
        graph.counts["plans"] += 1
        device = self.outputs[0][1].device
        self.plan = make_plan(device, self.nodes, live, self.holes, [False] * len(self.holes))
        self.places_of = [None if r is None else r.pos for r in self.results]
        self.insts = {r.pos: r.inst for r in self.results if r is not None}
        self.nodes = self.holes = self.results = []


def check_hooks(fns: Sequence[GradFn]) -> None:
    """Raises ValueError if one has hooks: what stands for it has none."""
    if any(fn.tensor_hooks or fn.retains or fn.pre_hooks or fn.post_hooks for fn in fns):
        raise ValueError("its gradients have hooks")


def _modified(root: Any, version: int) -> Exception:
    t = Tensor._wrap(root.node, root.node.inst.out)
    t._tab_storage = root
    return modified_error(t, version, None)


def _given(g: Tensor | None, m: Any) -> Any:
    if g is None:
        zeros: Any = registry.function("zeros")
        g = zeros(m.shape, dtype=m.dtype, device=m.device)
    elif not g._tab_meta.whole or g._tab_storage.node.inst.out.numel != m.numel:
        clone: Any = registry.function("clone")
        g = clone(g)
        if not g._tab_meta.whole:
            g = g.contiguous()
    return g._tab_storage.node


class CompiledFunctionBackward(GradFn):
    """The backward pass of a compiled function."""

    joint: Joint
    saved: Any  # tensors; (value, root, its version) of what was there before; (root, its version) of what is looked at
    scalars: Any

    def apply(self, g: Any) -> Sequence[Tensor | None]:
        saved = self.saved
        if saved is FREED:
            raise freed_error()
        if STATE.grad:
            raise RuntimeError("torch.compile with aot_autograd does not currently support double backward")
        return self.joint.run(self, saved, g)

    @property
    def saves(self) -> bool:
        return self.joint.saves

    def release(self) -> None:
        if self.saves:  # where no function of the tape has saved anything, a second pass goes through, as in eager
            self.saved = FREED
