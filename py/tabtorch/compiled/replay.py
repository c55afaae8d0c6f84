"""A recorded run as data, and carrying it out again: commands into the block, and one call into JavaScript."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import repeat
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any

from tabtorch.base import interrupts
from tabtorch.compiled.guards import PLAIN
from tabtorch.compiled.memory import copied, moves, twin_of, unshared
from tabtorch.compiled.results import Made
from tabtorch.compiled.storage_offsets import shifted
from tabtorch.compiled.symbolic_numbers import Numbers
from tabtorch.compiled.tree import build
from tabtorch.core.storage import Storage
from tabtorch.core.tensor import Tensor
from tabtorch.engine import graph
from tabtorch.engine.graph import Buffer, Inst, Node
from tabtorch.engine.liveness import Known, by, held_beyond
from tabtorch.engine.schedules import of_inst
from tabtorch.engine.view import Size
from tabtorch.ops.machinery import asserts

if TYPE_CHECKING:
    from tabtorch.compiled.history import Histories
    from tabtorch.compiled.inputs import Source
    from tabtorch.compiled.record import CallRecorder
    from tabtorch.engine.plan import Plan

_node = attrgetter("node")
_grad = attrgetter("_grad")
_size = attrgetter("inst.out.numel", "inst.out.dtype")
_buffer = attrgetter("buf")
_ident = attrgetter("id")


def _same_numbers(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two lists of scalars are the same. A size may be an int, or that as a float."""
    return repr(a) == repr(b) or (
        len(a) == len(b)
        and all(
            repr(x) == repr(y) or (type(x) in (int, float) and type(y) in (int, float) and x == y and x)
            for x, y in zip(a, b, strict=True)
        )
    )


def structure(x: Any) -> Any:
    """A signature with what instructions are in their place: some are not the same object for the same."""
    if type(x) is Inst:
        return of_inst(x)[:2]
    return tuple(map(structure, x)) if type(x) in (tuple, list) else x


def _plain_parts(spec: Any) -> list[Any]:
    """The numbers, strings and shapes in what is returned."""
    if spec[0] == "same":
        return [(type(spec[1]), spec[1])] if isinstance(spec[1], (*PLAIN, Size)) else []
    return [] if spec[0] == "tensor" else [x for y in spec[-1] for x in _plain_parts(y)]


class Stale(Exception):
    """The world is not as it was recorded: the function has to run."""


#: who has a value that is written over: its storage, and the replay (an argument's only while it runs)
KEPT = by("Storage.node", "Replay.nodes", "Replay.kept_nodes")
GIVEN = by("Storage.node", "Replay.nodes")
#: who has a gradient that is written over, and its storage
GRADIENT = by("Tensor._grad", "Replay.grads")
ITS_STORAGE = by("Tensor._tab_storage", "Replay.roots", "Replay.kept_roots")


class Replay:
    """What stands for a function, as long as the world is like that of the recording."""

    def __init__(
        self,
        of: CallRecorder,
        steps: list[tuple[Plan, list[Source], int]],
        spec: Any,
        results: list[Tensor],
        fresh: list[Any],
        refs: list[Source],
        changed: list[int],
        rebound: list[tuple[int, int]],
    ) -> None:
        self.scope = of.scope
        tensors = [*of.arguments, *of.scope.tensors]
        at = {id(t): k for k, t in reversed(list(enumerate(tensors)))}
        # where to find the storages: of which tensor, or of whose gradient
        self.leaves = [at[id(t)] for t in of.leaves]
        self.had = of.had
        place: dict[int, tuple[int, bool]] = {}
        for t in of.tensors:
            place.setdefault(of.index[id(t._tab_storage.root)], (at[id(t)], False))
        for i, j in of.of_grad.items():
            place.setdefault(i, (at[id(of.leaves[j])], True))
        self.where = [place[i] for i in range(len(of.roots))]
        self.sizes = list(map(_size, of.nodes))
        self.signature, self.uploads = of.signature, of.uploads
        self.alias = [of.index[id(t._tab_storage.root)] for t in of.arguments]
        self.looks = of.looked()
        # numbers
        self.dicts, self.keys = [d for d, _ in of.numbers], [k for _, k in of.numbers]
        self.kinds = list(map(type, of.values))
        self.make = Numbers([*of.scalars], [x for _, x in of.after], of.notes)
        self.after = [of.numbers[i] for i, _ in of.after]
        self.values = list(of.values)
        self.trusted = [False] * len(self.values)
        self.first = of.begins.first
        self.words = list(of.hold.words)
        self.ahead = of.ahead
        self.constants: list[Any] = []
        self.steps = []
        n, m = len(of.roots), len(self.ahead)
        for plan, inputs, count in steps:
            order = []
            for r in inputs:
                if r.kind == "old":
                    order.append(r.number)
                elif r.kind == "base":
                    order.append(n + r.number)
                elif r.kind == "made":
                    order.append(2 * n + r.number)
                else:
                    order.append(2 * n + m + len(self.constants))
                    self.constants.append(r.node)
            self.steps.append((plan, order, count))
        # what becomes of it
        self.spec = spec
        self.refs = refs
        self.insts = [(r.node.inst, r.version) for r in fresh]
        self.results: list[Made] = []
        made = {id(t): k for k, t in enumerate([*results, *of.hidden])}
        for t in [*results, *of.hidden]:
            root = t._tab_storage.root
            new = next((k for k, x in enumerate(fresh) if x is root), -1)
            each = Made(t, at.get(id(t)), of.index.get(id(root), -1), new)
            each.base_known = of.bases.of(t)
            each.base = -1 if t._base is None else made.get(id(t._base), -1)
            self.results.append(each)
        self.still = self._still(of)
        self.views = [
            (k, r) for k, r in enumerate(self.results) if r.known is None and (r.base >= 0 or r.base_known is not None)
        ]
        self.count = len(results)
        self.new_grads = [(j, made[id(g)]) for j, g in of.new_grads]
        self.gone = of.gone
        self.rebound = rebound
        self.regrads = [(j, i) for j, i, _ in of.regrads]
        self.grad_versions = [(i, g._tab_storage.version) for _, i, g in of.regrads]
        inside = {i for i, _ in rebound}
        self.overwritten = [i for i in changed if i not in inside]
        self.asserting = [n for n, log in asserts.logs.items() if any(of.roots[i] is log._tab_storage for i in changed)]
        self.bumps = [(i, r.version - v) for i, (r, v) in enumerate(zip(of.roots, of.versions)) if r.version != v]
        self.own = [(k, s.version - v) for k, s, v in of.own if s.version != v]
        self.counted = [(s, s.version - v) for s, v in zip(of.scope.counters, of.counter_versions) if s.version != v]
        self.tape: Any = None
        self.placed = [*self.overwritten, *[i for _, i in self.regrads]]
        self.placed += [r.number for _, inputs, _ in steps for r in inputs if r.kind == "base"]
        # results that are what a place held before it was written over
        over = set(self.placed)
        self.earlier = sorted({r.number for r in refs if r.kind == "old" and r.number in over})
        self.shares = self._shared(list(map(_buffer, of.nodes)))
        self.tensors: Any = None  # of the last replay
        self.count_given = 0
        self.given: list[tuple[int, int]] = []

    def _still(self, of: CallRecorder) -> set[int]:
        """The numbers of arguments that cannot begin elsewhere: results lie in their storages, or the function has asked."""
        if of.hold.asked:
            return set(range(self.first, len(self.values)))
        lying = {r.storage for r in self.results if r.known is None} | {r.number for r in self.refs if r.kind == "old"}
        return {self.first + a for a, i in enumerate(self.alias) if i in lying}

    def differentiated(self, tape: Histories, fresh: list[int], saved: int) -> None:
        """Some results are to be on the tape. fresh: which are new; saved: where what is saved begins."""
        self.tape = tape
        self.fresh = fresh
        self.saved = saved

    def keeps_on(self, device: int) -> bool:
        """Whether what the recorded run made of data of its own, which is used again and again, lies on that device."""
        refs = self.refs if self.tape is None else [*self.refs, *self.tape.refs]
        kept = [*self.constants, *[r.node for r in refs if r.node is not None]]
        return any(n.inst.out.device.number == device for n in kept)

    def _shared(self, buffers: list[Any]) -> list[Any]:
        """Which values lie in memory that is written over, and where in it."""
        written = {id(buffers[i].base or buffers[i]): i for i in self.placed}
        if not written:
            return []
        own = [written.get(id(b.base or b), -1) for b in buffers]
        return [(i, b.offset) if i >= 0 else -1 for i, b in zip(own, buffers, strict=True)]

    def agrees(self, plain: CallRecorder) -> bool:
        """Whether a run with plain numbers did what this one foretells; numbers that have changed are then relied on."""
        if self.uploads != plain.uploads:
            return False
        if self.signature != plain.signature and structure(self.signature) != structure(plain.signature):
            return False
        if not self._moves_with(plain):
            return False
        made = self.make(plain.values, plain.hold.raw)
        after = [plain.numbers[i] for i, _ in plain.after]
        if made is None or [(id(d), k) for d, k in after] != [(id(d), k) for d, k in self.after]:
            return False
        if not _same_numbers(made[0], plain.scalars) or repr(made[1]) != repr(tuple([x for _, x in plain.after])):
            return False
        self.trusted = [t or a != b for t, a, b in zip(self.trusted, self.values, plain.values, strict=True)]
        return True

    def alike(self, other: Replay) -> bool:
        """Whether what is made has the same views, and what is written the same sizes."""
        return (
            [(r.meta, r.known, r.storage, r.new) for r in self.results]
            == [(r.meta, r.known, r.storage, r.new) for r in other.results]
            and [i.out for i, _ in self.insts] == [i.out for i, _ in other.insts]
            and self.sizes == other.sizes
            and _plain_parts(self.spec) == _plain_parts(other.spec)
        )

    def moved(self, plain: CallRecorder) -> bool:
        """Whether an argument began elsewhere in that run."""
        return self.values[self.first :] != plain.begins.values

    def _moves_with(self, plain: CallRecorder) -> bool:
        """Whether what is there besides the plan's numbers came out as arguments that began elsewhere foretell."""
        if not self.moved(plain):
            return True
        if any(self.values[k] != plain.values[k] for k in self.still):
            return False
        return self._looks(plain.values) == [(i, m, wanted) for i, m, wanted, _ in plain.looked()]

    def _looks(self, values: list[Any]) -> list[tuple[int, Any, Any]]:
        """Which views of what is in memory have to be in which range."""
        return [
            (i, m if k is None else shifted(m, values[k] - self.values[k]), wanted) for i, m, wanted, k in self.looks
        ]

    # ---- running

    def let_go(self) -> None:
        """Holds no value that the last run found: whoever writes over one is its only holder then."""
        self.tensors = None
        for name in ("roots", "nodes", "kept_roots", "kept_nodes", "loose_roots", "leaf", "grads"):
            setattr(self, name, [])

    def run(self, arguments: Sequence[Tensor]) -> Any:
        """The result of the function. Raises Stale, before anything is done, if it has to run itself."""
        for q in graph.all_queues():
            if q.nodes:
                graph.flush_queue(q)
        if not self._steady(arguments):
            self._look(arguments)
        values = [*map(dict.get, self.dicts, self.keys), *[t._tab_meta.offset for t in arguments]]
        for i, m, wanted in self._looks(values) if self.looks else ():
            if not wanted.holds(self.nodes[i], m):
                raise Stale("an index is out of range, or only the device knows")  # its Python says so
        if values != self.values:
            if list(map(type, values)) != self.kinds:
                raise Stale("a setting has another type")
            if any(a != b and not ok for a, b, ok in zip(values, self.values, self.trusted, strict=True)):
                raise Stale("a number has changed")
        self._separate()
        before = [g._offset for g in self.words]
        made = self.make(values, [g.next() for g in self.words])
        if made is None:
            for g, offset in zip(self.words, before, strict=True):
                g._offset = offset
            raise Stale("a number leads elsewhere")
        self._alone()  # from here on there is no way back: the random numbers that were drawn are used
        handler = interrupts.hold()
        try:
            results = self._send(*made, arguments)
        finally:
            for i, _ in self.given:  # holds no argument, and no value that it does not write over
                self.roots[i] = self.nodes[i] = None
            for i in self.loose:
                self.nodes[i] = None
            interrupts.release(handler)
        graph.bridge().flush()
        return build(self.spec, results)

    def _steady(self, arguments: Sequence[Tensor]) -> bool:
        """Whether all but the arguments is where it was in the last replay; then finds the arguments."""
        if self.tensors is not self.scope.tensors or self.count_given != len(arguments) or self.moves != moves[0]:
            return False
        if not all(map(is_, map(_grad, self.leaf), self.grads)):
            return False
        roots, nodes, pool = self.roots, self.nodes, self.pool
        if not all(map(is_, map(_node, self.kept_roots), self.kept_nodes)):
            return False
        seen = set()
        taken = self.taken
        for i, root, out in zip(self.loose, self.loose_roots, self.loose_outs, strict=True):
            nodes[i] = node = root.node
            b = node.buf
            if b is None or node.inst.out is not out or not b.id or b.id in taken:
                return False
            if b.base is not None and b.base.id in taken:
                return False
            pool[i] = b.id
            seen.add(b.id)
        for i, a in self.given:
            roots[i] = root = arguments[a]._tab_storage.root
            nodes[i] = node = root.node
            b = node.buf
            if b is None:
                b = graph.buffer_of(node)
            if not b.id or b.id in taken or b.id in seen:
                return False
            if b.base is not None and (b.base.id in taken or i in self.over):  # a window onto an optimizer's flat value
                return False
            pool[i] = b.id
            seen.add(b.id)
        return all(roots[i] is t._tab_storage.root for t, i in zip(arguments, self.alias, strict=True))

    def _look(self, arguments: Sequence[Tensor]) -> None:
        """Finds everything. Raises Stale where it is not as it was recorded."""
        tensors = [*arguments, *self.scope.tensors]
        self.leaf = [tensors[k] for k in self.leaves]
        self.grads: list[Any] = [t._grad for t in self.leaf]
        for g, had in zip(self.grads, self.had, strict=True):
            if (g is not None and (g._tab_meta, g._tab_requires_grad)) != had:
                raise Stale("a gradient is not as it was")
        found: list[Any] = [tensors[k]._grad if of_grad else tensors[k] for k, of_grad in self.where]
        self.roots: list[Any] = [t._tab_storage.root for t in found]
        roots = self.roots
        if len(set(map(id, roots))) != len(roots) or not all(
            roots[i] is t._tab_storage.root for t, i in zip(arguments, self.alias, strict=True)
        ):
            raise Stale("tensors share memory otherwise")
        self.nodes = nodes = list(map(_node, roots))
        if list(map(_size, nodes)) != self.sizes:
            raise Stale("a tensor has another size")
        buffers = list(map(graph.buffer_of, nodes))
        self.pool = [b.id for b in buffers]
        if self._shared(buffers) != self.shares or not all(self.pool):
            raise Stale("tensors share buffers otherwise")
        self.pool += [b.base.id if b.base is not None else 0 for b in buffers]
        self.given = [(i, k) for i, (k, of_grad) in enumerate(self.where) if k < len(arguments) and not of_grad]
        self.count_given = len(arguments)
        mine = {i for i, _ in self.given}
        over = self.over = set(self.placed)
        kept = [i for i in range(len(roots)) if i not in mine and i in over]
        self.kept_roots = [roots[i] for i in kept]
        self.kept_nodes = [nodes[i] for i in kept]
        self.taken = {self.pool[i] for i in kept} | {self.pool[len(roots) + i] for i in kept}
        self.loose = [i for i in range(len(roots)) if i not in mine and i not in over]
        self.loose_roots = [roots[i] for i in self.loose]
        self.loose_outs = [nodes[i].inst.out for i in self.loose]
        n = len(self.regrads)
        self.alone = Known([GIVEN if i in mine else KEPT for i in self.overwritten])
        self.alone_grads = Known([GRADIENT] * n + [ITS_STORAGE] * n + [KEPT] * n)
        # memory that is written over, by a place in it each, and how many values are known to lie there; of arguments, only
        # while they are here
        bases = [b.base or b for b in buffers]
        self.lying_at = list({id(bases[i]): i for i in kept}.values())
        lying = Counter(map(id, bases))
        self.alone_in = Known([lying[id(bases[i])] for i in self.lying_at])
        self.given_over = [i for i in self.placed if i in mine]
        self.moves = moves[0]
        self.tensors = self.scope.tensors

    def _alone(self) -> None:
        """Gives a copy of a value that is about to be written over to whoever else has it."""
        over = [self.nodes[i] for i in self.overwritten]
        if not self.alone.all_there_is(over):
            shared = held_beyond(over, self.alone.own)
            del over  # a copy that is made there is for whoever else has it
            for i, other in zip(self.overwritten, shared, strict=True):
                if other:
                    self._part(i)
        if not self.regrads:
            return
        news = [self.grads[j] for j, _ in self.regrads]
        news += [g._tab_storage for g in news]
        news += [self.nodes[i] for _, i in self.regrads]
        if self.alone_grads.all_there_is(news):
            return
        shared = held_beyond(news, self.alone_grads.own)
        del news
        n = len(self.regrads)
        for k, (j, i) in enumerate(self.regrads):
            if shared[k] or shared[n + k] or shared[2 * n + k]:
                self._part(i, self.grads[j])
                self.grads[j] = self.leaf[j]._grad

    def _separate(self) -> None:
        """Raises Stale if something lies in memory that is about to be written over which did not in the recording."""
        memory: list[Any] = [self.nodes[i].buf for i in self.lying_at]
        memory = [b.base or b for b in memory]
        if not self.alone_in.all_there_is(memory) and any(held_beyond(memory, self.alone_in.own)):
            raise Stale("a tensor shares memory with something else")
        if self.given_over:
            memory = [self.nodes[i].buf for i in self.given_over]
            if any(held_beyond(memory, repeat(by("Node.buf")))):
                raise Stale("an argument shares memory with something else")

    def _part(self, i: int, gradient: Tensor | None = None) -> None:
        """Value `i` goes on in the buffer it has; who has it besides gets a copy. A gradient becomes another tensor."""
        old = self.nodes[i]
        twin = twin_of(old)
        unshared(old)
        self.nodes[i] = twin
        if gradient is None:
            self.roots[i].node = twin
        else:
            new = Tensor._wrap(twin, gradient._tab_meta)
            new._tab_requires_grad = gradient._tab_requires_grad
            for leaf in self.leaf:
                if leaf._grad is gradient:
                    leaf._grad = new
            self.kept_roots[self.kept_roots.index(self.roots[i])] = new._tab_storage
            self.roots[i] = new._tab_storage
        for k, n in enumerate(self.kept_nodes):
            if n is old:
                self.kept_nodes[k] = twin

    def _send(self, scalars: list[Any], after: tuple[Any, ...], arguments: Sequence[Tensor]) -> list[Any]:
        """Sends the plans with new buffers and scalars, and makes the world what it would be after a run: the results."""
        roots, nodes = self.roots, self.nodes
        made: list[Any] = []
        for a in self.ahead:
            made.append(a.run(nodes, made))
        pool = self.pool
        if made or self.constants:
            pool = [*pool, *map(_ident, made), *[n.buf.id for n in self.constants]]
        earlier = {i: twin_of(nodes[i], copied(nodes[i])) for i in self.earlier}
        new: list[dict[int, Buffer]] = []
        start = 0
        for plan, order, count in self.steps:
            ids = [pool[k] for k in order]
            new.append(dict(plan.start(ids, scalars[start : start + count])))
            start += count
        for device in self.asserting:
            asserts.arm(device)
        # the world after
        for i in self.overwritten:
            nodes[i].host = None
        for i, k in self.rebound:
            n = Node(nodes[i].inst, (), ())
            n.buf = made[k]
            roots[i].node = n
            self.tensors = None
        for i, bump in self.bumps:
            roots[i].version += bump
            if roots[i].views is not None:
                roots[i].tell()
        tensors = [*arguments, *self.scope.tensors]
        for k, bump in self.own:
            tensors[k]._tab_storage.version += bump
        for counter, bump in self.counted:
            counter.version += bump
        for (d, k), x in zip(self.after, after):
            dict.__setitem__(d, k, x)
        storages = []
        for ref, (inst, version) in zip(self.refs, self.insts):
            if ref.node is not None:
                n = ref.node
            elif ref.kind == "old":
                n = earlier.get(ref.number) or nodes[ref.number]
            else:
                n = Node(inst, (), ())
                n.buf = new[ref.number][ref.position] if ref.kind == "new" else made[ref.number]
            storages.append(Storage(n))
            storages[-1].version = version
        results: list[Tensor] = []
        for r in self.results:
            if r.known is not None:
                results.append(tensors[r.known])
            else:
                results.append(r.make(storages[r.new] if r.new >= 0 else roots[r.storage]))
        for k, r in self.views:
            known = tensors[r.base_known] if r.base_known is not None else None
            r.attach(results[k], results[r.base] if known is None else known if known._base is None else known._base)
        for j in self.gone:
            tensors[self.leaves[j]]._grad = None
        for i, version in self.grad_versions:
            nodes[i].host = None
            roots[i].version = version
        for j, k in self.new_grads:
            tensors[self.leaves[j]]._grad = results[k]
        if self.tape is not None:
            self.tape.attach(
                [*tensors, *results],
                [results[k] for k in self.fresh],
                results[self.saved :],
                nodes,
                roots,
                scalars[start:],
            )
        return results
