"""The plan of a file, as JSON: what the recordings of one device come to. docs/plan-files.md says what each key means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import ref

from tabtorch.base.device import cpu
from tabtorch.compiled.inputs import CopyAhead, DrawAhead
from tabtorch.compiled.inputs import Source as From
from tabtorch.engine import draws
from tabtorch.engine.graph import Node
from tabtorch.engine.instructions import inst
from tabtorch.engine.plan import Plan, make_plan
from tabtorch.engine.schedules import Schedule, of_inst
from tabtorch.plan_files.expressions import Expressions, bindings, json_of
from tabtorch.plan_files.methods import Method, Recorded
from tabtorch.plan_files.paper import Paper
from tabtorch.plan_files.world import unwritten

_KERNEL = ("name", "source", "bindings", "constants")


def nbytes_of(node: Any) -> int:
    m = node.inst.out
    return int(m.numel * m.dtype.itemsize)


class Shared:
    """What is one for all devices of a file: numbers, generators, constants, dims."""

    def __init__(self, dims: dict[str, Any], numbers: dict[tuple[int, Any], str]) -> None:
        """numbers: (id of a dict, key) -> name."""
        self.dims = dims
        self.numbers = numbers
        self.number_names = list(dict.fromkeys(numbers.values()))
        self.generators: list[Any] = []
        self.first_constant = 0
        self.constants: dict[tuple[str, bytes], str] = {}

    def number(self, d: dict, key: Any) -> int:
        return self.number_names.index(self.numbers[id(d), key])

    def generator(self, g: Any) -> int:
        for k, known in enumerate(self.generators):
            if known is g:
                return k
        self.generators.append(g)
        return len(self.generators) - 1


class DeviceDocument:
    """The kernels, templates and state of one device, as its recordings are added."""

    def __init__(self, name: str, number: int, paper: Paper, shared: Shared) -> None:
        self.name = name
        self.number = number
        self.paper = paper
        self.shared = shared
        self.kernels: list[dict[str, Any]] = []
        self._kernel_at: dict[int, int] = {}
        self.templates: list[dict[str, Any]] = []
        self._template_at: dict[int, int] = {}
        self._schedules: list[Schedule] = []
        #: of each place: the storage, or the buffer of which such are windows
        self.state: list[Any] = []
        self._state_at: dict[int, int] = {}

    # ---- what is shared by the plans

    def kernel(self, ident: int) -> int:
        at = self._kernel_at.get(ident)
        if at is None:
            at = self._kernel_at[ident] = len(self.kernels)
            spec = self.paper.kernels[ident]
            self.kernels.append({k: spec[k] for k in _KERNEL} | {"device": spec["device"]})
        return at

    def template(self, schedule: Schedule, values: Sequence[int]) -> int:
        at = self._template_at.get(id(schedule))
        if at is None:
            at = self._template_at[id(schedule)] = len(self.templates)
            self._schedules.append(schedule)
            spec = self.paper.plans[schedule.template]
            steps = [s | {"kernel": self.kernel(s["kernel"])} if "kernel" in s else s for s in spec["steps"]]
            schedule.bound(tuple(values))
            assert schedule.recipe is not None
            self.templates.append(
                {
                    "plan": spec | {"steps": steps},
                    "lives": schedule.lives,
                    "apart": schedule.apart,
                    "recipe": json_of(schedule.recipe),
                }
            )
        return at

    def place(self, x: Any) -> int:
        """The place of a storage, or of a buffer that holds several."""
        at = self._state_at.get(id(x))
        if at is None:
            at = self._state_at[id(x)] = len(self.state)
            self.state.append(x)
        return at

    def memory(self, b: Any) -> int:
        """The place of a buffer that holds several. It is not kept alive: who counts its holders must find none here."""
        found = next((k for k, x in enumerate(self.state) if type(x) is ref and x() is b), None)
        if found is None:
            found = len(self.state)
            self.state.append(ref(b))
        return found

    def serves(self, variant: dict[str, Any], sizes: Sequence[int], numbers: Sequence[Any]) -> bool:
        """Whether a variant is for these dims and numbers."""
        holds, give, plans = variant["serves"]
        if not holds(sizes):
            return False
        found = give(sizes)
        if not all(self._schedules[t].recipe.holds([found[k] for k in values]) for t, values in plans):
            return False
        return bool(variant["live"].holds(sizes, numbers, ()))

    def after(self, variant: dict[str, Any], sizes: Sequence[int], numbers: Sequence[Any]) -> list[Any]:
        """The numbers that a call leaves behind."""
        changed = variant["after"]
        new = list(numbers)
        if changed:
            words = [(0, 0, 0, 0)] * len(variant["words"])
            for k, x in zip(changed, variant["live"].values(sizes, numbers, words)[-len(changed) :], strict=True):
                new[k] = x
        return new

    # ---- a recording

    def variant(self, method: Method, got: Recorded, dim_of: dict[tuple[int, int], int], fixed: dict[int, int]) -> Any:
        """One recording. dim_of: of each size of an input that is a dim, which; fixed: the dims of which it serves one value."""
        return _Variant(self, method, got, dim_of, fixed).json()


class _Variant:
    def __init__(
        self,
        of: DeviceDocument,
        method: Method,
        got: Recorded,
        dim_of: dict[tuple[int, int], int],
        fixed: dict[int, int],
    ) -> None:
        self.of = of
        self.got = got
        self.recorder, self.replay = got.recorder, got.replay
        self.notes = got.recorder.notes
        self.count = len(self.recorder.arguments)
        self.inputs = {id(t._tab_storage.root): k for k, t in enumerate(self.recorder.arguments)}
        trace = None if got.sizes is None else got.sizes.trace
        symbols = [] if got.sizes is None else [dim_of[w] for w in got.sizes.which]
        numbers = self.recorder.numbers

        def number(k: int) -> int | None:
            return of.shared.number(*numbers[k]) if k < len(numbers) else None

        self.sizes = Expressions(trace, symbols, number)
        self.live = Expressions(trace, symbols, number)
        self.results: list[int] = []
        for d, n in fixed.items():
            self.sizes.test("==", self.sizes.step("s", d), self.sizes.number(n))
        for d in set(symbols):
            self.sizes.test(">", self.sizes.step("s", d), self.sizes.number(1))
        for op, a, b, answer in trace.guards.values() if trace is not None else ():
            self.sizes.test(op, self.sizes.of(a), self.sizes.of(b), answer)

    def size(self, x: Any) -> int:
        """Which of the recipe's results a size is."""
        return self.result(self.sizes.size(x))

    def result(self, step: int) -> int:
        if step not in self.results:
            self.results.append(step)
        return self.results.index(step)

    # ---- where values come from

    def old(self, i: int) -> list[Any]:
        root = self.recorder.roots[i]
        k = self.inputs.get(id(root))
        return ["state", self.of.place(root)] if k is None else ["input", k]

    def source(self, r: From) -> list[Any]:
        if r.kind == "old":
            return self.old(r.number)
        if r.kind == "base":
            return ["state", self.of.memory(self.recorder.nodes[r.number].buf.base)]
        if r.kind == "made":
            return ["ahead", r.number]
        if r.kind == "new":
            _, plan, _ = self.plans[r.number]
            slot = dict(zip(plan.schedule.fresh, plan.schedule.output_slots, strict=True))[r.position]
            return ["new", r.number, slot]
        return self.constant(r.node)

    def constant(self, node: Any) -> list[Any]:
        data = self.of.paper.uploads[node.buf.id][: nbytes_of(node)]
        known = self.of.shared.constants
        key = (node.inst.out.dtype.name, data)
        return ["constant", known.setdefault(key, f"constant.{self.of.shared.first_constant + len(known)}")]

    def _inputs(self, order: Sequence[int]) -> list[Any]:
        n, m = len(self.recorder.roots), len(self.replay.ahead)
        found = []
        for k in order:
            if k < n:
                found.append(self.old(k))
            elif k < 2 * n:
                found.append(["state", self.of.memory(self.recorder.nodes[k - n].buf.base)])
            elif k < 2 * n + m:
                found.append(["ahead", k - 2 * n])
            else:
                found.append(self.constant(self.replay.constants[k - 2 * n - m]))
        return found

    # ---- plans

    def plan(self, plan: Plan, shown: Sequence[Any], inputs: list[Any]) -> dict[str, Any]:
        schedule = plan.schedule
        steps = bindings(self.sizes, schedule, shown)
        at_hand = [n for i in shown for n in _at_hand(i)]
        return {
            "template": self.of.template(schedule, at_hand),
            "values": [self.result(s) for s in steps],
            "inputs": inputs,
        }

    def scalars(self, plan: Plan, given: Sequence[Any]) -> list[int]:
        """The steps of a plan's scalars; complex ones are two."""
        found = []
        for x in given:
            if type(x) is complex:
                found += [self.live.number(x.real), self.live.number(x.imag)]
            else:
                found.append(self.live.scalar(x, self.notes))
        return found

    def draw(self, a: DrawAhead) -> dict[str, Any]:
        """A draw of the generator of the cpu: a plan of its own, whose first input is the generator's state."""
        d = a.distribution
        kernel = d.kernel
        pairs = list(zip(kernel.scalars, d.scalars, strict=True))
        types = tuple([s.type for s, _ in pairs if s.type != "u32"])
        sizes = tuple([v for s, v in pairs if s.type == "u32"])
        state = a.generator._state()
        nodes = [unwritten(i.out) for _, i in a.inputs]
        metas = (state.inst.out, *[n.inst.out for n in nodes])
        shown = inst(draws._op(kernel), metas, a.out, types, sizes)
        node = Node(shown.concrete or shown, (state, *nodes), ())
        node.pos = 0
        every = [state, *nodes]
        for k, n in enumerate(every):
            n.pos = -k - 1
        plan = make_plan(cpu, [node], [True], every, [False] * len(every))
        sources = [["generator", self.of.shared.generator(a.generator)], *[self.source(r) for r, _ in a.inputs]]
        entry = self.plan(plan, [shown], sources)
        return {"draw": entry, "numbers": self.scalars(plan, [v for s, v in pairs if s.type != "u32"])}

    def ahead(self, a: Any) -> dict[str, Any]:
        if type(a) is CopyAhead:
            return {"copy": self.source(a.source), "device": a.device, "nbytes": self.size(a.nbytes)}
        return self.draw(a)

    # ---- all of it

    def json(self) -> dict[str, Any]:
        recorder, replay = self.recorder, self.replay
        dynamic = recorder.recording
        self.plans = [(k, k.plan, k.shown) for k in recorder.kept]
        shown_ahead = replay.ahead if dynamic is None else dynamic.ahead
        ahead = [self.ahead(a) for a in shown_ahead]
        plans: list[dict[str, Any]] = []
        results: list[int] = []
        for a in ahead:
            if "draw" in a:
                a["draw"]["scalars"] = [len(results), len(a["numbers"])]
                results += a.pop("numbers")
        given = list(recorder.scalars if dynamic is None else recorder.symbolic_scalars)
        for kept, (plan, order, count) in zip(recorder.kept, replay.steps, strict=True):
            entry = self.plan(plan, kept.shown, self._inputs(order))
            steps = self.scalars(plan, given[:count])
            entry["scalars"] = [len(results), len(steps)]
            results += steps
            del given[:count]
            plans.append(entry)
        after = []
        for i, x in recorder.after:
            after.append(self.of.shared.number(*recorder.numbers[i]))
            results.append(self.live.tree(self.notes.origin(x)))
        for op, a, b, answer in self.notes.tests:
            self.live.test(op, self.live.tree(a), self.live.tree(b), answer)
        outputs = []
        metas = [r.meta for r in replay.results[: replay.count]] if dynamic is None else dynamic.metas[: replay.count]
        for r, m in zip(replay.results, metas, strict=False):
            source = self.old(r.storage) if r.new < 0 else self.source(replay.refs[r.new])
            outputs.append({"source": source, "dtype": m.dtype.name, "shape": [self.size(n) for n in m.shape]})
        tree, sizes = self.got.tree
        tree_sizes = [self.size(x) for x in sizes]
        words = [self.of.shared.generator(g) for g in self.got.hold.words]
        rebinds = [[self.old(i), k] for i, k in replay.rebound]
        written = sorted(
            {self.inputs[id(recorder.roots[i])] for i in replay.overwritten if id(recorder.roots[i]) in self.inputs}
        )
        live = self.live.recipe(("s", "v", "r"), results)
        found = self.sizes.recipe(("s",), self.results)
        return {
            "sizes": json_of(found),
            "numbers": json_of(live),
            "words": words,
            "ahead": ahead,
            "plans": plans,
            "after": after,
            "rebinds": rebinds,
            "written": written,
            "outputs": outputs,
            "tree": tree,
            "tree_sizes": tree_sizes,
            "serves": (found.holds, found.values, [(p["template"], p["values"]) for p in _every(plans, ahead)]),
            "live": live,
        }


def _every(plans: list[Any], ahead: list[Any]) -> list[Any]:
    return [*plans, *[a["draw"] for a in ahead if "draw" in a]]


def _at_hand(shown: Any) -> tuple[int, ...]:
    """The numbers of an instruction, as a window has them."""
    return of_inst(shown.concrete or shown)[1]


__all__ = ["DeviceDocument", "Shared", "nbytes_of"]
