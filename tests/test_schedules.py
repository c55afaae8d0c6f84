"""Schedules: a window is scheduled once, and bound to other sizes.

The proof that a bound plan is right: it is the plan that is made directly for those sizes, number by number. Random programs at
random sizes are planned both ways. Beside it: results against PyTorch's, and counts.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import tabtorch
from language_model import GPT
from sidebyside import to_tab, values
from tabtorch import nn
from tabtorch.compiled import backward_plan, planning
from tabtorch.engine import graph, plan, schedules
from tabtorch.engine.recipes import compiled
from tabtorch.engine.steps import Copy, Dispatch, Step
from tabtorch.engine.symbols import Symbol
from tabtorch.engine.target import target
from tabtorch.engine.trace import Trace

SEED = int(os.environ.get("TABTORCH_FUZZ_SEED") or 0)


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """No schedules and plans from other tests."""
    graph.flush()
    monkeypatch.setattr(graph, "_plans", {})
    monkeypatch.setattr(schedules, "_families", {})


# ---- symbols


def traced(*sizes: int) -> tuple[Trace, list[Any]]:
    trace = Trace(sizes)
    return trace, list(trace.symbols)


def asked(trace: Trace, *numbers: Any) -> tuple[Callable[..., bool], Callable[..., list[int]]]:
    holds, numbers_for = compiled(trace, numbers)
    return (lambda *sizes: holds(sizes)), (lambda *sizes: numbers_for(sizes))


def test_arithmetic_is_that_of_ints() -> None:
    """Random expressions of three sizes, for other sizes, and whether they still hold where their guards do."""
    r = random.Random(SEED)
    operators: list[Callable[[Any, Any], Any]] = [
        lambda a, b: a + b,
        lambda a, b: a - b,
        lambda a, b: a * b,
        lambda a, b: a // b,
        lambda a, b: a % b,
        lambda a, b: -(-a // b),
        lambda a, b: a if a < b else b,
        lambda a, b: max(a, b),
        lambda a, b: a + 1 if a == b else b + 2,
        lambda a, b: b if a else 5,
        lambda a, b: a & 7,
        lambda a, b: abs(a),
        lambda a, b: [10, 20, 30][a % 3],
        lambda a, b: int(f"{a}"),
    ]
    checked = 0
    for _ in range(400):
        steps = [(r.choice(operators), r.randrange(99), r.randrange(99)) for _ in range(r.randint(1, 8))]

        def run(sizes: list[Any], steps: list[Any] = steps) -> list[Any]:
            pool = [*sizes, 1, 3, 64, 0, -2]
            for f, i, j in steps:
                try:
                    pool.append(f(pool[i % len(pool)], pool[j % len(pool)]))
                except ZeroDivisionError:
                    pool.append(0)
            return pool[8:]

        trace, symbols = traced(*[r.randint(2, 70) for _ in range(3)])
        got = run(symbols)
        holds, numbers = asked(trace, *got)
        assert holds(*[s.value for s in symbols])
        for _ in range(30):
            sizes = [r.choice([2, 3, 4, 7, 8, 32, 63, 64, 65, r.randint(2, 5000)]) for _ in range(3)]
            if holds(*sizes):
                checked += 1
                assert [n & 0xFFFFFFFF for n in numbers(*sizes)] == [n & 0xFFFFFFFF for n in run(sizes)], sizes
    assert checked > 2000


def test_what_holds_for_all_sizes_is_no_guard() -> None:
    trace, (a, b) = traced(6, 35)
    assert a * b == b * a and a * b > a and a != 1 and a != 0 and a >= 2 and bool(a * b)
    assert a * b // a is b and a * b % b == 0 and a + b - b is a and -(-a * b // 64)
    assert not trace.guards


def test_a_comparison_is_a_guard() -> None:
    trace, (a, b) = traced(6, 35)
    assert a < b
    holds, _ = asked(trace)
    assert holds(2, 3) and not holds(3, 3) and not holds(4, 3)


def test_factors_in_common_do_not_matter() -> None:
    trace, (a, b, c) = traced(6, 35, 3)
    assert a * c * 4 < a * b * 4
    holds, _ = asked(trace)
    assert holds(1000, 9, 8) and not holds(6, 8, 9)


def test_a_number_that_python_needs_is_a_guard() -> None:
    trace, (a,) = traced(6)
    assert len(range(a)) == 6
    holds, _ = asked(trace)
    assert holds(6) and not holds(7)


def test_a_table_finds_equal_sizes() -> None:
    trace, (a, b, c) = traced(6, 6, 7)
    table = {(a, "role"): 1}
    assert table.get((b, "role")) == 1 and (c, "role") not in table
    holds, _ = asked(trace)
    assert holds(8, 8, 9) and not holds(8, 9, 9) and not holds(8, 8, 8)


def test_a_division_by_what_may_be_zero_is_a_guard() -> None:
    trace, (a, b) = traced(100, 30)
    x = a // (b // 8)
    holds, numbers = asked(trace, x)
    assert holds(100, 30) and numbers(100, 17) == [50] and not holds(100, 7)


def test_symbols_of_another_window_are_numbers() -> None:
    _, (a,) = traced(6)
    trace, (b,) = traced(6)
    assert a == b and (a + b == 12) and (b + a == 12)
    assert not asked(trace)[0](7)


# ---- bound plans are those made directly

#: sizes around what makes kernels take another form
SIZES = [1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 20, 31, 33, 40, 64, 65, 130, 260]

Program = Callable[..., Any]


def _soft(m: Any, x: Any, y: Any, z: Any) -> Any:
    return (x * 2 + 1).softmax(-1) @ y


def _norm(m: Any, x: Any, y: Any, z: Any) -> Any:
    return m.nn.functional.layer_norm(x, x.shape[1:]) * x.mean(0) + x.sum(1, keepdim=True)


def _views(m: Any, x: Any, y: Any, z: Any) -> Any:
    return m.cat([x.t().reshape(-1)[::2], y.flip(0).reshape(-1), x[1:, :-1].exp().sum(0)])


def _writes(m: Any, x: Any, y: Any, z: Any) -> Any:
    a = m.zeros(x.shape[0] + 3, x.shape[1])
    a[2:-1] = x
    a[:, 0] += 1
    return a, a.cumsum(0)


def _places(m: Any, x: Any, y: Any, z: Any) -> Any:
    i = (x[:, 0] * 100).long() % y.shape[0]
    g = y[i]
    return g, m.zeros_like(y).index_add(0, i, g), m.nn.functional.one_hot(i, y.shape[0]).float() @ y


def _order(m: Any, x: Any, y: Any, z: Any) -> Any:
    s, _ = x.sort(1)
    return s, x.argmax(1), x.topk(1 + x.shape[1] // 3, 1).values


def _packed(m: Any, x: Any, y: Any, z: Any) -> Any:
    return (x > 0.5), (x.half() @ y.half()).float(), (x * 9).to(m.int8).sum(1), (x > 0.3).any(0)


def _long(m: Any, x: Any, y: Any, z: Any) -> Any:
    return (x.unsqueeze(2) * y.unsqueeze(0)).sum(), x.expand(z.shape[0], *x.shape).sum((0, 1)), (y * y).mean(1)


def _batches(m: Any, x: Any, y: Any, z: Any) -> Any:
    q = x.expand(z.shape[0], *x.shape) * z.reshape(-1, 1, 1)
    return m.nn.functional.scaled_dot_product_attention(q, q, q * 2, is_causal=True)


def _windows(m: Any, x: Any, y: Any, z: Any) -> Any:
    w = z.reshape(-1, 1, 1, 1).expand(z.shape[0], 1, 2, 1)
    c = m.nn.functional.conv2d(x[None, None], w, padding=1)
    return c.relu(), m.nn.functional.max_pool2d(c, 2), m.nn.functional.pad(x, (1, 2, 0, 1))


def _backward(m: Any, x: Any, y: Any, z: Any) -> Any:
    a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
    loss = ((a @ b).tanh() * z.sum()).logsumexp(1).mean()
    loss.backward()
    return loss.detach(), a.grad, b.grad


def _complex(m: Any, x: Any, y: Any, z: Any) -> Any:
    c = m.complex(x, x * 2)
    return (c * c.conj()).real, (c @ c.conj().t()).imag


PROGRAMS: list[Program] = [
    _soft,
    _norm,
    _views,
    _writes,
    _places,
    _order,
    _packed,
    _long,
    _batches,
    _windows,
    _backward,
    _complex,
]


def run(f: Program, a: int, b: int, c: int, device: str, check: bool = True) -> None:
    """The program with x of (a, b), y of (b, c), z of (c,) on both libraries."""
    g = torch.Generator().manual_seed(a * 10007 + b * 101 + c)
    xs = [torch.rand(a, b, generator=g), torch.rand(b, c, generator=g), torch.rand(c, generator=g)]

    def call(m: Any, *xs: Any) -> list[Any]:
        r = f(m, *xs)
        return list(r) if isinstance(r, tuple) else [r]

    with torch.device("cpu"):
        want = call(torch, *xs)
    with tabtorch.device(device):
        got = call(tabtorch, *[to_tab(x, device) for x in xs])
        found = [values(t) for t in got]
    if check:
        for w, v in zip(want, found, strict=True):
            np.testing.assert_allclose(
                v, values(w), rtol=2e-3 if f is _packed else 2e-4, atol=2e-3 if f is _packed else 1e-4
            )


class Exact(Trace):
    """One that notes all: so that what is equal by chance is no excuse for a difference."""

    @property
    def lenient(self) -> bool:
        return False

    @lenient.setter
    def lenient(self, on: bool) -> None:
        pass


class Checks:
    """Plans each window that comes up directly, too."""

    def __init__(self) -> None:
        self.bound = self.scheduled = 0
        self.planned = plan.make_plan

    def make_plan(
        self,
        device: Any,
        nodes: list[Any],
        live: list[bool],
        inputs: list[Any],
        free: list[bool],
        targets: Any = (),
        keep: frozenset[int] = frozenset(),
    ) -> Any:
        t = target(device.number)
        more = (device, *vars(t).values(), tuple(live), tuple(free), tuple(targets), keep)
        window = schedules.Sized(nodes, inputs, more)
        found = schedules.find(window)
        made = self.planned(device, nodes, live, inputs, free, list(targets), keep)
        again = schedules.find(window)
        assert again is not None, "what was made for a window does not serve it"
        self.bound += found is not None
        self.scheduled += found is None
        want = plan._scheduled(t, Trace([]), nodes, live, inputs, free, list(targets), keep, {})
        name = ",".join(n.inst.op.name for n in nodes)[:300]
        for which in (
            "slots",
            "fresh",
            "taken",
            "lives",
            "types",
            "pairs",
            "output_slots",
            "first_output",
            "first_temp",
        ):
            assert getattr(made.schedule, which) == getattr(want, which), (name, which)
        assert [self.fixed(s) for s in made.schedule.steps] == [self.fixed(s) for s in want.steps], name
        for numbers in [again[1], *([found[1]] if found else [])]:
            assert [n & 0xFFFFFFFF for n in numbers] == [n & 0xFFFFFFFF for n in want.at_hand()], name
        return made

    @staticmethod
    def fixed(step: Step) -> Step:
        """A step without what may hang on sizes."""
        if type(step) is Dispatch:
            return step._replace(words=[0] * len(step.words), grid=[0] * len(step.grid))
        return step._replace(nbytes=0) if type(step) is Copy else step


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Checks]:
    c = Checks()
    monkeypatch.setattr(schedules, "Trace", Exact)
    for module in (plan, planning, backward_plan):
        monkeypatch.setattr(module, "make_plan", c.make_plan)
    yield c
    graph.flush()


@pytest.fixture(params=["as it is", "as a GPU"])
def form(request: pytest.FixtureRequest, device: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Kernels in the forms of the device, and in those of a real GPU."""
    if request.param == "as a GPU":
        if device != "webgpu":
            pytest.skip("the cpu device has one form")
        monkeypatch.setattr(target(0), "software", False)
        monkeypatch.setattr(target(0), "barriers", True)
    return request.param


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__.strip("_"))
def test_a_bound_plan_is_the_one_made_directly(f: Program, device: str, form: str, checks: Checks) -> None:
    r = random.Random(f"{SEED} {f.__name__}")
    most = 260 if device == "cpu" else 40
    sizes = [n for n in SIZES if n <= most]
    for _ in range(12 if device == "cpu" else 6):
        run(f, *[r.choice(sizes) for _ in range(3)], device)
    for n in (21, 22, 23, 25, 29):  # the last is as the one before: which of the numbers of elements are multiples of 4
        run(f, n, n + 9, n + 30, device)
    assert checks.bound, "nothing was bound"


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__.strip("_"))
def test_results_whatever_the_sizes(f: Program, device: str) -> None:
    """The same with what is equal by chance: one dimension grows through the others."""
    for n in range(2, 22, 1 if device == "cpu" else 4):
        run(f, n, 12, 6, device)
        run(f, 6, n, 12, device)


# ---- counts


class Counted:
    """Schedules and plans made while it was open."""

    def __enter__(self) -> Counted:
        graph.flush()
        self.before = dict(graph.counts)
        return self

    def __exit__(self, *exc: Any) -> None:
        graph.flush()
        self.schedules = graph.counts["schedules"] - self.before["schedules"]
        self.plans = graph.counts["plans"] - self.before["plans"]


def lengths(first: int, count: int) -> list[int]:
    found = list(range(first, first + count))
    random.Random(SEED).shuffle(found)
    return found


@pytest.fixture
def model(device: str) -> Any:
    tabtorch.manual_seed(0)
    return GPT().to(device)


@pytest.fixture
def ids(device: str) -> Any:
    tokens = tabtorch.arange(200, device=device) % 13
    graph.flush()
    return tokens


COUNT = {"cpu": 64, "webgpu": 24}


def test_a_models_forward_is_scheduled_for_all_lengths(model: Any, ids: Any, device: str) -> None:
    count = COUNT[device]
    with Counted() as c, tabtorch.no_grad():
        for n in lengths(5, count):
            model(ids[:n].reshape(1, n)).tolist()
    assert c.schedules <= 3 and c.plans == count, (c.schedules, c.plans)


def test_a_training_step_is_scheduled_for_all_lengths(model: Any, ids: Any, device: str) -> None:
    optimizer = tabtorch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(n: int) -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(ids[:n].reshape(1, n))[0], ids[1 : n + 1]).backward()
        optimizer.step()

    for n in lengths(5, COUNT[device]):
        step(n)
    graph.flush()
    made = [len(f.schedules) for f in schedules._families.values()]
    assert max(made) <= 3, made


def test_decoding_with_a_cache_is_scheduled_once(model: Any, ids: Any, device: str) -> None:
    caches: list[Any] = [[] for _ in range(2)]
    counts = []
    with tabtorch.no_grad():
        for at in range(COUNT[device]):
            with Counted() as c:
                model(ids[at : at + 1].reshape(1, 1), at, caches).tolist()
            counts.append(c.schedules)
    assert sum(counts) <= 5 and not any(counts[8:]), counts


def test_a_compiled_function_of_another_length_is_bound(device: str) -> None:
    """It is recorded anew, but not scheduled."""
    weight = tabtorch.rand(6, 6, device=device)

    @tabtorch.compile
    def f(x: Any) -> Any:
        return ((x @ weight).softmax(-1) + x).sum(0)

    def call(n: int) -> int:
        x = tabtorch.ones(n, 6, device=device)
        want = ((x @ weight).softmax(-1) + x).sum(0).tolist()
        with Counted() as c:
            for _ in range(3):
                np.testing.assert_allclose(f(x).tolist(), want, rtol=1e-5)
        return c.schedules

    counts = [call(n) for n in (20, 24, 28, 31, 37)]
    assert sum(counts[2:]) == 0, counts


def test_what_the_runtime_knew_goes_with_it(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedule's kernels are those of one runtime."""
    with tabtorch.device(device):
        assert (tabtorch.full((5,), 2.0) * 3).sum().item() == 30
    assert schedules._families
    other = SimpleNamespace(free=lambda ident: None)
    with monkeypatch.context() as m:
        m.setattr("tabtorch.bridge.get_bridge", lambda: other)
        assert schedules.find(schedules.Sized([], [], ())) is None
    assert not schedules._families


def test_a_size_that_was_seen_costs_nothing(model: Any, ids: Any, device: str) -> None:
    with tabtorch.no_grad():
        for n in (9, 12):
            model(ids[:n].reshape(1, n).clone()).tolist()
        with Counted() as c:
            for n in (12, 9):
                model(ids[:n].reshape(1, n).clone()).tolist()
    assert (c.schedules, c.plans) == (0, 0)


def test_a_kernel_that_symbols_do_not_fit_is_written_for_the_sizes_at_hand(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "strict", False)
    written = plan._scheduled

    def scheduled(t: Any, trace: Trace, nodes: list[Any], *rest: Any) -> Any:
        if any(type(n) is Symbol for x in nodes for n in x.inst.out.shape):
            raise KeyError("a number")
        return written(t, trace, nodes, *rest)

    monkeypatch.setattr(plan, "_scheduled", scheduled)
    with tabtorch.device(device), Counted() as c:
        for n in (5, 6, 5, 7, 6):
            assert (tabtorch.full((n,), 2.0) * 3).sum().item() == 6 * n
    assert (c.schedules, c.plans) == (3, 3)


# ---- what is kept


def test_few_schedules_are_kept_of_one_structure(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each size needs another, they do not pile up."""
    monkeypatch.setattr(schedules, "MOST_SCHEDULES", 2)
    with tabtorch.device(device):
        for n in (2, 3, 64, 200, 500, 2, 64):
            x = tabtorch.ones(n, n)
            assert (x @ x).sum().item() == n**3
    assert all(len(f.schedules) <= 2 for f in schedules._families.values())


def test_few_structures_are_kept(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "MOST_STRUCTURES", 8)
    x = tabtorch.arange(6.0, device=device)
    for _ in range(2):
        for n in range(1, 20):
            y = x
            for _ in range(n):
                y = y + 1
            assert y[1].item() == n + 1
    assert len(schedules._families) <= 8


def test_plans_outlive_the_first_of_their_schedule(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime makes plans from the first; which is forgotten with the last that needs it."""
    monkeypatch.setattr(graph, "MOST_PLANS", 2)
    with tabtorch.device(device), Counted() as c:
        for n in [10, 11, 12, 13, 10, 14, 15, 10]:
            assert (tabtorch.full((n,), 2.0) * 3).sum().item() == 6 * n
    assert c.schedules <= 3
    with tabtorch.device(device):  # with no schedule left
        for s in [s for f in schedules._families.values() for s in f.schedules]:
            schedules._dropped(s)
        schedules._families.clear()
        assert (tabtorch.full((15,), 2.0) * 3).sum().item() == 90


def test_a_symbol_is_in_no_table_of_views() -> None:
    from tabtorch.engine import view

    _, (a,) = traced(6)
    m = tabtorch.empty(3)._tab_meta
    before = len(view._interned)
    shown = m.view((a, 2), (2, 1), 0)
    assert type(shown.shape[0]) is Symbol and len(view._interned) == before
