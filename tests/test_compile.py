"""`torch.compile`: replays give what eager gives, and what Python could have seen makes them run again."""

from __future__ import annotations

import argparse
import gc
import itertools
import warnings
from typing import Any

import numpy as np
import pytest
import torch as real

import tabtorch as torch
from tabtorch import nn
from tabtorch.base.thread_state import STATE
from tabtorch.bridge import get_bridge
from tabtorch.compiled import driver
from tabtorch.engine import graph
from tabtorch.nn import functional as F

pytestmark = pytest.mark.usefixtures("whole_windows")


def sent(call: Any) -> tuple[Any, dict[str, Any]]:
    """What a call gives, and the runtime's counters and plans of it."""
    bridge = get_bridge()
    graph.flush()
    bridge.reset_stats()
    plans = graph.counts["plans"]
    executes: list[int] = []
    execute = bridge._execute
    bridge._execute = lambda n: (executes.append(n), execute(n))[1]  # type: ignore[method-assign, func-returns-value]
    try:
        out = call()
    finally:
        bridge._execute = execute  # type: ignore[method-assign]
    return out, {**bridge.stats(), "calls": len(executes), "planned": graph.counts["plans"] - plans}


RUNS = [0]


def tick() -> None:
    RUNS[0] += 1


tick.__module__ = "tabtorch.testing"  # not looked into: counting is no effect of the function's


class Counted:
    """A compiled function, and how often the Python of it ran in the last call."""

    def __init__(self, function: Any, **options: Any) -> None:
        def counting(*args: Any, **kwargs: Any) -> Any:
            tick()
            return function(*args, **kwargs)

        self.runs = 0
        self.compiled = torch.compile(counting, **options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        before = RUNS[0]
        out = self.compiled(*args, **kwargs)
        self.runs = RUNS[0] - before
        return out


def warm(f: Any, *args: Any, times: int = 4) -> None:
    for _ in range(times):
        f(*args)


# ---- inference


def test_a_replay_is_one_call_and_runs_no_python(device: str) -> None:
    w = torch.linspace(-1, 1, 12).reshape(3, 4)
    f = Counted(lambda x, y: (torch.tanh(x @ w + y).softmax(-1), {"more": [x + 1, 7]}))
    warm(f, torch.ones(2, 3), torch.ones(4))
    results = []
    for i in range(3):
        x, y = torch.full((2, 3), float(i)), torch.ones(4)
        (a, more), count = sent(lambda: f(x, y))  # noqa: B023
        assert (f.runs, count["calls"], count["runs"], count["planned"]) == (0, 1, 1, 0)
        np.testing.assert_allclose(a.numpy(), torch.tanh(x @ w + y).softmax(-1).numpy(), rtol=1e-6)
        assert more["more"][1] == 7
        results.append(more["more"][0])
    assert [r[0, 0].item() for r in results] == [1.0, 2.0, 3.0]  # no call writes over the results of another


def test_shapes_types_modes_and_numbers_are_guarded(device: str) -> None:
    f = Counted(lambda x, k=2: x * k if x.dtype.is_floating_point else x + k)
    for _ in range(3):
        for x in (torch.ones(3), torch.ones(4), torch.ones(2, 2), torch.ones(3, dtype=torch.int32)):
            assert f(x).tolist() == (x * 2 if x.dtype.is_floating_point else x + 2).tolist()
        assert f(torch.ones(3), 5).tolist() == [5.0] * 3
        assert f(torch.ones(3), k=0.5).tolist() == [0.5] * 3
        with torch.no_grad():
            assert f(torch.ones(3)).tolist() == [2.0] * 3
    assert f.runs == 0
    assert f(torch.ones(6).reshape(2, 3).t()[1]).tolist() == [2.0, 2.0]


def test_tensors_that_share_memory(device: str) -> None:
    @torch.compile
    def f(x: Any, y: Any) -> Any:
        x.add_(1)
        return x + y

    for _ in range(4):
        x, y = torch.zeros(3), torch.zeros(3)
        assert f(x, y).tolist() == [1.0] * 3
    for _ in range(4):
        x = torch.zeros(3)
        assert f(x, x).tolist() == [2.0] * 3
        assert f(x, x[:]).tolist() == [4.0] * 3
    x = torch.zeros(3)
    y = x.clone()
    assert f(x, y).tolist() == [1.0] * 3 and y.tolist() == [0.0] * 3


def test_a_captured_value_that_changes(device: str) -> None:
    scale = 2.0
    table = {"bias": torch.ones(3)}
    f = Counted(lambda x: x * scale + table["bias"])
    warm(f, torch.ones(3))
    assert f(torch.ones(3)).tolist() == [3.0] * 3 and f.runs == 0
    scale = 3.0
    assert f(torch.ones(3)).tolist() == [4.0] * 3 and f.runs == 1
    warm(f, torch.ones(3))
    assert f.runs == 0
    table["bias"] = torch.full((3,), 10.0)  # another tensor of its kind: no reason to run
    assert f(torch.ones(3)).tolist() == [13.0] * 3 and f.runs == 0
    table["bias"] += 1
    assert f(torch.ones(3)).tolist() == [14.0] * 3 and f.runs == 0
    table["bias"] = torch.ones(1)
    assert f(torch.ones(3)).tolist() == [4.0] * 3


def test_a_cache_that_is_written_in_place(device: str) -> None:
    cache = torch.zeros(8, 2)

    @torch.compile
    def step(x: Any, at: Any) -> Any:
        cache[at] = x
        return cache.sum()

    want = 0.0
    for i in range(8):
        x = torch.full((1, 2), float(i))
        want += 2 * i
        assert step(x, torch.tensor([i])).item() == want
    assert cache[:, 0].tolist() == [float(i) for i in range(8)]
    before = cache.clone()
    old = cache.detach()
    step(torch.ones(1, 2), torch.tensor([0]))
    assert before[0].tolist() == [0.0, 0.0] and old[0].tolist() == [1.0, 1.0]


def test_values_that_others_hold_stay(device: str) -> None:
    state = torch.zeros(4)

    @torch.compile
    def step() -> None:
        state.add_(1)

    kept = []
    for _ in range(6):
        kept.append(torch.Tensor._wrap(state._tab_storage.node, state._tab_meta))  # the value, in a storage of its own
        step()
    assert [k[0].item() for k in kept] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert state._version == 6


# ---- what is not replayed


def test_side_effects_happen_on_every_call(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0
            self.seen: list[Any] = []

        def forward(self, x: Any) -> Any:
            self.calls += 1
            self.seen.append(x.shape[0])
            print("called")
            return x * self.calls

    net = Net()
    compiled = torch.compile(net)
    assert [compiled(torch.ones(2))[0].item() for _ in range(8)] == [float(i) for i in range(1, 9)]
    assert net.calls == 8 and net.seen == [2] * 8
    assert capsys.readouterr().out == "called\n" * 8


def _changing(kind: str) -> Any:
    """A function that changes something of Python's, and what is to be seen of that."""
    box: dict[str, Any] = {"n": 0}
    seen: list[Any] = []
    config = argparse.Namespace(scale=1.0)

    class Thing:
        pass

    thing = Thing()

    def f(x: Any, out: list[Any]) -> Any:
        global made_inside
        if kind == "dict":
            box["n"] += 1
            return x * box["n"]
        if kind == "list":
            seen.append(x)
        elif kind == "attribute":
            thing.cache = x + 1
        elif kind == "argument":
            out.append(x + 1)
        elif kind == "global":
            made_inside = x + 1
        elif kind == "namespace":
            config.scale += 1
            return x * config.scale
        elif kind == "counter":
            return x * next(counter)
        return x * 2

    counter = itertools.count()
    watch = {
        "dict": lambda: box["n"],
        "list": lambda: [t.tolist() for t in seen],
        "attribute": lambda: thing.cache.tolist(),
        "argument": lambda: 0,
        "global": lambda: made_inside.tolist(),
        "namespace": lambda: config.scale,
        "counter": lambda: repr(counter),
    }
    return f, watch[kind]


@pytest.mark.parametrize("kind", ["dict", "list", "attribute", "argument", "global", "namespace", "counter"])
def test_what_a_function_changes(kind: str) -> None:
    with torch.device("cpu"):
        plain, seen = _changing(kind)
        f, seen_of_f = _changing(kind)
        compiled = torch.compile(f)
        for i in range(7):
            x, outs, mine = torch.full((2,), float(i)), [], []
            want = plain(x, outs).tolist()
            expected = seen()
            assert compiled(x, mine).tolist() == want
            assert seen_of_f() == expected
            assert [t.tolist() for t in mine] == [t.tolist() for t in outs]


def test_settings_that_are_read(device: str) -> None:
    config = argparse.Namespace(scale=2.0, other=0)
    f = Counted(lambda x: x * config.scale)
    warm(f, torch.ones(2))
    assert f(torch.ones(2)).tolist() == [2.0, 2.0] and f.runs == 0
    config.scale = 3.0
    assert f(torch.ones(2)).tolist() == [3.0, 3.0]


def test_a_read_breaks_the_plan_with_one_warning(device: str) -> None:
    def f(x: Any) -> Any:
        if x.sum() > 0:  # here
            return x + 1
        return x - 1

    compiled = torch.compile(f)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(6):
            x = torch.full((3,), 1.0 if i % 2 else -1.0)
            assert compiled(x).tolist() == f(x).tolist()
    assert len(caught) == 1
    text = str(caught[0].message)
    assert "test_compile.py:" in text and "if x.sum() > 0" in text and caught[0].filename == __file__
    with pytest.raises(torch._dynamo.exc.Unsupported, match="if x.sum"):
        torch.compile(f, fullgraph=True)(torch.ones(3))
    assert (torch.ones(3) + 1).tolist() == [2.0] * 3


def test_chance_of_pythons_own(device: str) -> None:
    import random

    @torch.compile
    def f(x: Any) -> Any:
        return x * random.random()

    random.seed(0)
    want = [random.random() for _ in range(6)]
    random.seed(0)
    np.testing.assert_allclose([f(torch.ones(1)).item() for _ in range(6)], want, rtol=1e-6)


def test_an_error_leaves_nothing_behind(device: str) -> None:
    @torch.compile
    def f(x: Any, bad: bool) -> Any:
        y = x + 1
        if bad:
            raise ValueError("no")
        return y

    for _ in range(3):
        assert f(torch.ones(2), False).tolist() == [2.0, 2.0]
        with pytest.raises(ValueError, match="no"):
            f(torch.ones(2), True)
        with pytest.raises(RuntimeError, match="size of tensor"):
            torch.compile(lambda a, b: a + b)(torch.ones(2), torch.ones(3))
    assert STATE.held is None and not torch.compiler.is_compiling()


# ---- random numbers


def test_random_numbers_go_on_as_in_eager(device: str) -> None:
    def f(x: Any) -> Any:
        return F.dropout(x, 0.5) + torch.rand(16) * 0.01

    compiled = Counted(f)
    x = torch.ones(16)
    torch.manual_seed(3)
    want = [f(x).tolist() for _ in range(7)] + [torch.rand(1).item()]
    torch.manual_seed(3)
    got = [compiled(x).tolist() for _ in range(7)] + [torch.rand(1).item()]
    assert compiled.runs == 0
    np.testing.assert_allclose(np.array(got[:7]), np.array(want[:7]), rtol=1e-6)
    assert got[7] == want[7]
    torch.manual_seed(3)
    np.testing.assert_allclose(compiled(x).tolist(), want[0], rtol=1e-6)


def test_seeding_inside(device: str) -> None:
    @torch.compile
    def f() -> Any:
        torch.manual_seed(0)
        return torch.rand(2)

    torch.manual_seed(0)
    want = torch.rand(2).tolist()
    assert [f().tolist() for _ in range(6)] == [want] * 6


# ---- training


def build(lib: Any, seed: int = 0) -> tuple[Any, Any]:
    lib.manual_seed(seed)
    n = lib.nn
    model = n.Sequential(
        n.Linear(6, 8, bias=False), n.BatchNorm1d(8), n.ReLU(), n.Linear(8, 8), n.LayerNorm(8), n.GELU(), n.Linear(8, 3)
    )
    return model, n.functional.cross_entropy


def trained(lib: Any, make: Any, steps: int = 8, compiled: bool = False, schedule: bool = True) -> Any:
    """Losses, parameters and buffers after some steps, all in one function."""
    model, criterion = build(lib)
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() < 2]
    optimizer = make(lib, [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}])
    scheduler = lib.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5) if schedule else None

    def step(x: Any, y: Any) -> Any:
        loss = criterion(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        lib.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss

    run = Counted(step) if compiled else step
    losses = []
    rng = np.random.default_rng(0)
    for _ in range(steps):
        x = lib.tensor(rng.standard_normal((5, 6)).astype("f"))
        y = lib.tensor(rng.integers(0, 3, 5))
        losses.append(run(x, y).item())
        if scheduler is not None:
            scheduler.step()
    return losses, [p.detach().cpu().numpy() for p in (*model.parameters(), *model.buffers())], run, optimizer


OPTIMIZERS = {
    "AdamW": lambda lib, groups: lib.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95)),
    "SGD": lambda lib, groups: lib.optim.SGD(groups, lr=1e-2, momentum=0.9, nesterov=True),
    "RMSprop": lambda lib, groups: lib.optim.RMSprop(groups, lr=1e-3),
    "NAdam": lambda lib, groups: lib.optim.NAdam(groups, lr=1e-2),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_training_step(device: str, name: str) -> None:
    """Forward, backward, clipping and optimizer in one replay, with a schedule: as eager, and as PyTorch's eager."""
    eager = trained(torch, OPTIMIZERS[name])
    losses, values, run, optimizer = trained(torch, OPTIMIZERS[name], compiled=True)
    want, expected, _, their = trained(real, OPTIMIZERS[name])
    assert run.runs == 0, [entry.why for f in driver.every for entry in f.entries.values() if entry.why]
    np.testing.assert_allclose(losses, eager[0], rtol=1e-5)
    np.testing.assert_allclose(losses, want, rtol=1e-3)
    for a, b, c in zip(values, eager[1], expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(a, c, rtol=2e-2, atol=1e-3)
    state = optimizer.state_dict()
    for mine, yours in zip(state["state"].values(), their.state_dict()["state"].values(), strict=True):
        assert {k: float(v) for k, v in mine.items() if k == "step"} == {
            k: float(v) for k, v in yours.items() if k == "step"
        }
    assert state["param_groups"][0]["lr"] == their.state_dict()["param_groups"][0]["lr"]


def test_a_training_step_is_one_call_and_holds_no_more_memory(device: str) -> None:
    _, _, run, optimizer = trained(torch, OPTIMIZERS["AdamW"])
    model, criterion = build(torch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def step(x: Any, y: Any) -> Any:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    f = Counted(step)
    x, y = torch.ones(5, 6), torch.tensor([0, 1, 2, 0, 1])
    warm(f, x, y, times=5)
    weight = model[0].weight
    ids = [weight._tab_storage.node.buf.id, weight.grad._tab_storage.node.buf.id]
    loss, count = sent(lambda: f(x, y))
    assert (f.runs, count["calls"], count["runs"], count["planned"]) == (0, 1, 1, 0)
    gc.collect()
    graph.flush()
    before = get_bridge().stats()["buffers"]
    objects = len(gc.get_objects())
    for _ in range(20):
        loss = f(x, y)
    gc.collect()
    graph.flush()
    assert get_bridge().stats()["buffers"] == before
    assert len(gc.get_objects()) - objects < 20
    assert ids == [
        weight._tab_storage.node.buf.id,
        weight.grad._tab_storage.node.buf.id,
    ]  # all state stays in its place
    assert loss.item() < 2


def test_gradients_and_parameters_that_somebody_keeps(device: str) -> None:
    model = nn.Linear(2, 1, bias=False)
    nn.init.ones_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

    @torch.compile
    def step(x: Any) -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    grads, weights = [], []
    for i in range(7):
        step(torch.full((1, 2), float(i)))
        grads.append(model.weight.grad)
        weights.append(model.weight.detach().clone())
    assert [g[0, 0].item() for g in grads] == [float(i) for i in range(7)]
    assert [w[0, 0].item() for w in weights] == [1.0 - sum(range(i + 1)) for i in range(7)]


def test_gradients_accumulate(device: str) -> None:
    model = nn.Linear(2, 1)
    twin = nn.Linear(2, 1)
    twin.load_state_dict(model.state_dict())

    def work(m: Any, x: Any) -> Any:
        loss = (m(x) ** 2).sum() / 4
        loss.backward()
        return loss

    compiled = torch.compile(work)
    for i in range(9):
        x = torch.full((3, 2), i / 8)
        assert compiled(model, x).item() == pytest.approx(work(twin, x).item())
        if i % 4 == 3:
            np.testing.assert_allclose(model.weight.grad.numpy(), twin.weight.grad.numpy(), rtol=1e-5)
            model.zero_grad()
            twin.zero_grad()


def test_train_and_eval(device: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    twin = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    twin.load_state_dict(net.state_dict())
    compiled = torch.compile(net)
    rng = np.random.default_rng(0)
    for i in range(12):
        training = i % 6 < 4
        compiled.train(training)
        twin.train(training)
        x = torch.tensor(rng.standard_normal((6, 4)).astype("f"))
        torch.manual_seed(i)
        got = compiled(x)
        torch.manual_seed(i)
        np.testing.assert_allclose(got.detach().numpy(), twin(x).detach().numpy(), rtol=1e-4, atol=1e-5)
    for a, b in zip(net.buffers(), twin.buffers(), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5)


# ---- differentiated outside


def test_backward_outside(device: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.3), nn.Linear(8, 2))
    twin = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.3), nn.Linear(8, 2))
    twin.load_state_dict(net.state_dict())
    compiled = torch.compile(net)
    for i in range(6):
        x = torch.full((3, 4), i / 4.0)
        base = [torch.ones(3, 4, requires_grad=True) for _ in range(2)]
        out = []
        for m, b in zip((compiled, twin), base, strict=True):
            torch.manual_seed(i)
            y = m(x + b * 2)
            (y**2).sum().backward()
            out.append(y.detach().numpy())
        np.testing.assert_allclose(out[0], out[1], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(base[0].grad.numpy(), base[1].grad.numpy(), rtol=1e-5, atol=1e-6)
        for p, q in zip(net.parameters(), twin.parameters(), strict=True):
            np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-5, atol=1e-6)
            if i % 2:
                p.grad = q.grad = None


def test_backward_outside_of_some_outputs_and_twice(device: str) -> None:
    w = torch.tensor([2.0, 3.0], requires_grad=True)
    f = Counted(lambda x: (x * w, (x + w).exp(), x + 1))
    x = torch.tensor([1.0, 2.0])
    warm(f, x)
    a, b, c = f(x)
    assert f.runs == 0 and a.requires_grad and b.requires_grad and not c.requires_grad
    assert type(a.grad_fn).__name__ == "CompiledFunctionBackward"
    (g,) = torch.autograd.grad(a.sum(), w, retain_graph=True)
    assert g.tolist() == [1.0, 2.0]
    (g,) = torch.autograd.grad(a.sum() + b.sum(), w)
    np.testing.assert_allclose(g.tolist(), [1 + np.exp(3), 2 + np.exp(5)], rtol=1e-5)
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        a.sum().backward()
    a, _, _ = f(x)
    with pytest.raises(
        RuntimeError, match="torch.compile with aot_autograd does not currently support double backward"
    ):
        torch.autograd.grad(a.sum(), w, create_graph=True)
    a, b, _ = f(x)
    with torch.no_grad():
        w += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        b.sum().backward()


@pytest.mark.parametrize("saves", [False, True])
def test_a_second_backward_goes_through_where_nothing_was_saved(device: str, saves: bool) -> None:
    w = torch.ones(3, requires_grad=True)
    f = torch.compile(lambda x: (x * 2.0 if saves else x + 2.0).sum())
    for n in range(5):
        loss = f(w)
        loss.backward()
        if saves:
            with pytest.raises(RuntimeError, match="second time"):
                loss.backward()
        else:
            loss.backward()
            assert w.grad is not None and w.grad.tolist() == [2.0 * (n + 1)] * 3


def test_the_loss_of_a_compiled_step_has_no_history_left(device: str) -> None:
    with torch.autograd.forward_ad.dual_level():
        pass  # from now on the tape is asked what requires grad
    w = torch.ones(3, requires_grad=True)

    @torch.compile
    def step(x: Any) -> Any:
        loss = (w * x).exp().sum()
        loss.backward()
        return loss

    for _ in range(5):
        loss = step(torch.ones(3))
        assert loss.requires_grad and type(loss.grad_fn).__name__ == "SumBackward0"
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


# ---- the interface


def test_arguments_are_checked_as_pytorch_does() -> None:
    for options in ({"mode": "foo"}, {"mode": "default", "options": {}}):
        with pytest.raises(RuntimeError) as theirs:
            real.compile(lambda x: x, **options)
        with pytest.raises(RuntimeError) as mine:
            torch.compile(lambda x: x, **options)
        assert str(mine.value) == str(theirs.value)
    with pytest.raises(RuntimeError, match="Invalid backend: 'nope'"):
        torch.compile(lambda x: x, backend="nope")

    @torch.compile(mode="reduce-overhead", dynamic=True, backend="inductor")
    def f(x: Any) -> Any:
        """Doc."""
        return x + 1

    assert (f.__name__, f.__doc__) == ("f", "Doc.")
    assert f(torch.ones(1)).item() == 2
    assert torch.compile(f, disable=True) is f


@pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning")
def test_a_compiled_module() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    compiled = torch.compile(net)
    theirs = real.compile(real.nn.Sequential(real.nn.Linear(2, 2), real.nn.ReLU()))
    assert list(compiled.state_dict()) == list(theirs.state_dict())
    assert repr(compiled) == repr(theirs)
    assert type(compiled).__name__ == "OptimizedModule" and isinstance(compiled, nn.Module)
    assert compiled._orig_mod is net and len(compiled) == 2
    compiled.extra = 3
    assert net.extra == 3 and compiled.extra == 3
    compiled.eval()
    assert not net.training and not compiled.training and not net[0].training
    assert [n for n, _ in compiled.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    x = torch.ones(1, 2)
    for _ in range(4):
        assert compiled(x).tolist() == net(x).tolist()
    net.compile()
    for _ in range(4):
        assert net(x).tolist() == compiled(x).tolist()


def test_the_names_that_scripts_use() -> None:
    seen = []

    @torch.compile
    def f(x: Any) -> Any:
        seen.append(torch.compiler.is_compiling())
        return x

    f(torch.ones(1))
    assert seen == [True] and not torch.compiler.is_compiling()
    slow = torch.compiler.disable(lambda x: x + 1)
    with pytest.warns(UserWarning, match="is disabled"):
        assert torch.compile(lambda x: slow(x) * 2)(torch.ones(1)).item() == 4
    with torch.compiler.set_stance("force_eager"):
        f(torch.ones(1))
    assert seen == [True, False]
    torch._dynamo.mark_dynamic(torch.ones(2), 0)
    torch.compiler.cudagraph_mark_step_begin()
    torch._dynamo.reset()
    assert torch._dynamo.config.recompile_limit == 8
    assert "inductor" in torch._dynamo.list_backends()


def test_too_many_kinds_of_arguments(device: str) -> None:
    f = Counted(lambda x, k: x * k)
    with pytest.warns(UserWarning, match="recompile_limit"):
        for k in range(12):
            for _ in range(3):
                assert f(torch.ones(2), k).tolist() == [float(k)] * 2
    assert f.runs == 1
    f(torch.ones(2), 0)
    assert f.runs == 0


def test_a_dead_function_frees_what_it_held(device: str) -> None:
    graph.flush()
    gc.collect()
    before = get_bridge().stats()["buffers"]

    def make() -> None:
        big = torch.ones(1000)
        f = torch.compile(lambda x: x + big + torch.tensor([1.0]))
        warm(f, torch.ones(1000))

    make()
    gc.collect()
    assert get_bridge().stats()["buffers"] == before


def test_explain_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Any] = []
    cases: list[tuple[Any, list[str]]] = [
        (lambda x: x * 2 + 1, []),
        (lambda x: x + 1 if x.sum() > 0 else x, ["it reads a value at "]),
        (lambda x: seen.append(x.shape), ["it changes what its Python sees"]),
        (lambda x: print("…") or x, ["it writes to a stream"]),
        (lambda x: (x, object()), ["it returns an object of type object"]),
        (lambda x: np.random.rand() * x, ["it uses numpy.random"]),
    ]
    with torch.device("cpu"):
        for f, why in cases:
            told = torch._dynamo.explain(f)(torch.ones(3))
            assert len(told.break_reasons) == len(why), told
            assert all(a.startswith(b) for a, b in zip(told.break_reasons, why, strict=True)), told
        assert torch._dynamo.explain(cases[0][0])(torch.ones(3)).op_count == 2
    assert "Break Reasons:" in str(told)


def test_a_result_that_is_not_differentiated(device: str) -> None:
    """What only the other results depend on gets no gradient, rather than one of zeros."""
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    f = torch.compile(lambda x: (first(x), second(x)))
    for i in range(5):
        first.zero_grad()
        second.zero_grad()
        f(torch.ones(2, 3))[i % 2].sum().backward()
        assert [p.grad is None for p in (first.weight, second.weight)] == [i % 2 == 1, i % 2 == 0]


def test_reads_of_open_sizes(device: str) -> None:
    """Where in memory something is read may depend on a size that the second call leaves open: a number to JavaScript all the same."""
    functions = [
        lambda x: x[x > 0],
        lambda x: (x * 2, x[1:, 2:].tolist()),
        lambda x: x.flatten()[x.numel() // 2 :][0].item() + x,
    ]
    for f in functions:
        compiled = torch.compile(f)
        for n in (2, 3, 5, 3):
            x = torch.randn(n, 6)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that it reads
                want, got = f(x), compiled(x)
            for a, b in zip(*[v if isinstance(v, tuple) else (v,) for v in (want, got)], strict=True):
                assert a == b if isinstance(a, list) else torch.equal(a, b)
