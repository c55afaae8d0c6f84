"""A compiled function that is differentiated outside: its results have one function of the tape, which is one plan.

While it is recorded, the gradients of all that may need one are computed too, of gradients of the results that are not there
yet. What that part of the graph takes from the first part is what the forward plan has to save; maps that are cheap to
compute again from what is there are computed again. The plan of the backward pass is made when it first runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..autograd import engine
from ..autograd.mode import STATE, no_grad
from ..autograd.tape import FREED, LEAF, GradFn, Port, edge, freed_error, modified_error, next_seq
from ..engine import graph
from ..engine.graph import Buffer, Node, inst
from ..engine.plan import make_plan
from ..engine.view import contiguous_meta
from ..ops import core
from ..tensor import Tensor

#: the cost (see `Map.cost`) up to which a value is computed again rather than saved
AGAIN = 24


class Joint:
    """The backward pass of one recording."""

    def __init__(self, outputs: list[Tensor], inputs: list[Tensor], known: set[int]) -> None:
        """Computes gradients; the windows are held open. Raises ValueError with the reason where that cannot be done."""
        self.outputs = [(t._meta, contiguous_meta(t.shape, t.dtype, t._meta.device)) for t in outputs]
        roots = [t._fn for t in outputs]
        ends = {(t._fn.fn, t._fn.nr if t._fn.is_port else 0): 0 for t in inputs if t._fn is not None}
        before = {fn for fn, _ in ends}
        order, leaves = engine._collect(roots, list(before))
        order = [fn for fn in order if fn not in before]
        if any(fn.tensor_hooks or fn.retains or fn.pre_hooks or fn.post_hooks for fn in order):
            raise ValueError("its gradients have hooks")
        edges = [e for fn in order for e in fn.edges if e is not None and e.edge_kind != LEAF and e.fn in before]
        if not all(id(leaf) in known for leaf in leaves) or any(
            (e.fn, e.nr if e.is_port else 0) not in ends for e in edges
        ):
            raise ValueError("a gradient flows to a tensor that does not belong to what its Python sees")
        self.inputs = [t for t in inputs if t._fn is not None or t in leaves]
        #: of each input, the outputs that depend on it: it has a gradient only if one of them has
        self.reaching = self._reaching(roots, before)
        (self.queue,) = {t._storage.node.inst.queue for t in outputs}
        self.start = len(self.queue.nodes)
        self.own: list[Any] = []
        try:
            try:
                self._compute(roots)
            finally:
                self.own = self.queue.nodes[self.start :]
        except BaseException:
            self.drop()
            raise

    def _reaching(self, roots: list[Any], before: set[Any]) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.inputs]
        for j, root in enumerate(roots):
            order, leaves = engine._collect([root], list(before))
            edges = [root, *[e for fn in order if fn not in before for e in fn.edges if e is not None]]
            ends = {(e.fn, e.nr if e.is_port else 0) for e in edges if e.edge_kind != LEAF}
            for k, t in enumerate(self.inputs):
                if t in leaves or (t._fn is not None and (t._fn.fn, t._fn.nr if t._fn.is_port else 0) in ends):
                    found[k].append(j)
        return found

    def _compute(self, roots: list[Any]) -> None:
        given = []
        self.nothing = Buffer(0, 0, self.outputs[0][1].device.number)
        self.places: dict[int, tuple[Any, ...]] = {}
        self.given: list[Any] = []
        for j, (_, m) in enumerate(self.outputs):
            node = Node(inst(graph._upload, (), m), (), ())
            node.buf = self.nothing
            self.given.append(node)
            self.places[id(node)] = ("grad", j)
            given.append(Tensor._wrap(node, m))
        found = engine.run(roots, given, True, False, self.inputs, accumulate=False, cut=True)
        clone: Any = core.function("clone")
        with no_grad():
            self.grads = [g if g is None or 0 in g._meta.strides else clone(g) for g in found]

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

    def partition(self, ref: Any, results: Sequence[Tensor]) -> list[Any]:
        """The nodes of the first part that have to be saved. `ref` tells of other nodes where they come from."""
        first, second = self.queue.nodes[: self.start], self.queue.nodes[self.start :]
        needed = {id(g._storage.node) for g in self.grads if g is not None}
        for n in reversed(second):
            if id(n) in needed:
                needed.update(map(id, n.srcs))
        early = {id(n) for n in first}
        #: results whose values the second part takes: they must not be written to in between
        self.taken = [k for k, t in enumerate(results) if id(t._storage.root.node) in needed & early]
        again = self._again(first, needed)
        self.nodes: list[Any] = []
        self.holes: list[Any] = []
        self.refs: list[tuple[Any, ...]] = []
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
                twin = Node(inst(graph._upload, (), n.inst.out), (), ())
                twin.buf = self.nothing
                where = ("saved", len(saved)) if id(n) in early else self.places.get(id(n)) or ref(n)
                if where[0] in ("made", "base"):
                    where = ("saved", len(saved))
                if where[0] == "saved":
                    saved.append(n)
                self.refs.append(where)
                self.holes.append(twin)
            made[id(n)] = twin
            return twin

        for n in second:
            if id(n) in needed:
                get(n)
        self.results = [None if g is None else get(g._storage.node) for g in self.grads]
        get = None  # type: ignore[assignment]  # it refers to itself, and so would hold the recording, and what that holds, until cycles are collected
        self.metas: list[Any] = [None if g is None else g._meta for g in self.grads]
        self.drop()
        for p, n in enumerate(self.nodes):
            n.pos = p
        for k, n in enumerate(self.holes):
            n.pos = -k - 1
        self.key = tuple(x for n in self.nodes for x in (n.inst.base, *[s.pos for s in n.srcs]))
        self.key += (tuple(None if r is None else r.pos for r in self.results),)
        self.scalars = [x for n in self.nodes for x in (*n.inst.offsets, *n.scalars)]
        self.plan: Any = None
        return saved

    @staticmethod
    def _again(first: list[Any], needed: set[int]) -> set[int]:
        """Which of the values that the second part takes are computed again: cheap maps of what is at hand anyway."""
        own = {id(n) for n in first}
        cost: dict[int, int] = {}
        for n in first:
            op = n.inst.op
            if op.kind != "map":
                continue
            total = op.cost if n.srcs else 0
            for s in n.srcs:
                if s.buf is not None or id(s) not in own:
                    continue
                if id(s) in needed and s.inst.op.kind != "map":
                    continue  # saved in any case
                total += cost.get(id(s), 1 << 20)
            if total <= AGAIN:
                cost[id(n)] = total
        return set(cost)

    def attach(
        self,
        outputs: Sequence[Tensor],
        results: Sequence[Tensor],
        saved: list[Tensor],
        values: list[Any],
        roots: list[Any],
        inputs: Sequence[Tensor],
        scalars: list[Any],
    ) -> None:
        """Puts results on the tape."""
        fn: Any = object.__new__(CompiledFunctionBackward)
        fn.joint = self
        fn.saved = saved
        fn.scalars = scalars
        used = {r[1] for r in self.refs if r[0] == "old"}
        fn.values = {i: (values[i], roots[i], roots[i].version) for i in used}
        fn.watched = [(results[k]._storage, results[k]._storage.version) for k in self.taken]
        fn.others = [r for r in self.refs if r[0] not in ("old", "saved", "grad")]
        fn.edges = tuple(
            [(t._fn or edge(t)) if m is not None else None for t, m in zip(inputs, self.metas, strict=True)]
        )
        fn.metas = tuple([t._meta for t in inputs])
        fn.outs = tuple([t._meta for t in outputs])
        fn.seq = next_seq()
        for nr, t in enumerate(outputs):
            t._rg = True
            t._fn = Port(fn, nr)

    def run(self, fn: Any, given: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Gradients of the inputs."""
        with graph.LOCK:
            if self.plan is None:
                self._plan()
        for root, version in fn.watched:
            if root.version != version:
                raise _modified(root, version)
        sources = []
        for kind, k, *_ in self.refs:
            if kind == "saved":
                sources.append(fn.saved[k]._storage.node)
            elif kind == "grad":
                sources.append(_given(given[k], self.outputs[k][1]))
            elif kind == "old":
                node, root, version = fn.values[k]
                if root.version != version:
                    raise _modified(root, version)
                sources.append(node)
            else:
                sources.append(k)
        with graph.LOCK:
            bridge = graph.bridge()
            ids = [graph.buffer_of(n).id for n in sources]
            plan = self.plan
            own = {-k - 1: n for k, n in enumerate(sources)}  # a gradient may be one that was given
            for p, nbytes in plan.fresh:
                n = Node(self.insts[p], (), ())
                n.buf = Buffer(bridge.new_buffer(), nbytes, plan.device)
                own[p] = n
                ids.append(n.buf.id)
            plan.pack(*ids, *plan.flat(fn.scalars))
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


def _modified(root: Any, version: int) -> Exception:
    t = Tensor._wrap(root.node, root.node.inst.out)
    t._storage = root
    return modified_error(t, version, None)


def _given(g: Tensor | None, m: Any) -> Any:
    if g is None:
        zeros: Any = core.function("zeros")
        g = zeros(m.shape, dtype=m.dtype, device=m.device)
    elif not g._meta.whole or g._storage.node.inst.out.numel != m.numel:
        clone: Any = core.function("clone")
        g = clone(g)
        if not g._meta.whole:
            g = g.contiguous()
    return g._storage.node


class CompiledFunctionBackward(GradFn):
    """The backward pass of a compiled function."""

    joint: Joint
    saved: Any
    scalars: Any
    values: Any
    watched: Any

    def apply(self, g: Any) -> Sequence[Tensor | None]:
        if self.saved is FREED:
            raise freed_error()
        if STATE.grad:
            raise RuntimeError("torch.compile with aot_autograd does not currently support double backward")
        return self.joint.run(self, g)

    def release(self) -> None:
        self.saved = FREED
        self.values = self.watched = None
