"""torch.utils.checkpoint beside PyTorch's."""

from __future__ import annotations

import gc
import importlib
import warnings
from typing import Any

import pytest
import torch
import torch.utils.checkpoint

import tabtorch
from sidebyside import same
from tabtorch.bridge import get_bridge
from tabtorch.engine import graph


def of(t: Any) -> Any:
    return importlib.import_module(t.__name__ + ".utils.checkpoint")


def network(t: Any) -> Any:
    t.manual_seed(0)
    nn = t.nn
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))


def plain(t: Any, c: Any) -> Any:
    net, x = network(t), (t.arange(12.0).reshape(2, 6) / 7).requires_grad_()
    found = []
    for how in (False, True):
        y = c.checkpoint(net, x, use_reentrant=how)
        net.zero_grad()
        x.grad = None
        y.pow(2).sum().backward()
        found += [y, x.grad, *[p.grad for p in net.parameters()], type(y.grad_fn).__name__ if how else None]
    return found


def nested(t: Any, c: Any) -> Any:
    net, x = network(t), (t.arange(12.0).reshape(2, 6) / 7).requires_grad_()

    def inner(x: Any) -> Any:
        return c.checkpoint(net[2:5], net[:2](x), use_reentrant=False)

    y = c.checkpoint(lambda x, k: {"y": net[5](inner(x)) * k}, x, k=2.0, use_reentrant=False)["y"]
    first = t.autograd.grad(y.pow(3).sum(), x, create_graph=True)
    return [y, first, t.autograd.grad(first[0].pow(2).sum(), list(net.parameters())[0])]


def sequential(t: Any, c: Any) -> Any:
    net, x = network(t), (t.arange(12.0).reshape(2, 6) / 7).requires_grad_()
    found = []
    for how in (False, True):
        y = c.checkpoint_sequential(net, 3, x, use_reentrant=how)
        y.sum().backward()
        found += [y, x.grad]
    return found


def twice(t: Any, c: Any) -> Any:
    """Backward over the same graph again, and how often the function was called."""
    calls = []
    x = t.ones(3, requires_grad=True)

    def f(x: Any) -> Any:
        calls.append(t.is_grad_enabled())
        return x.sin().exp() * x + 1

    y = c.checkpoint(f, x, use_reentrant=False)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    with t.no_grad():
        c.checkpoint(f, x, use_reentrant=False)
    return [x.grad, calls]


def contexts(t: Any, c: Any) -> Any:
    said: list[str] = []

    class Says:
        def __init__(self, what: str) -> None:
            self.what = what

        def __enter__(self) -> None:
            said.append(self.what)

        def __exit__(self, *e: Any) -> None:
            said.append(self.what + " end " + str(e[0] is None))

    x = t.ones(3, requires_grad=True)

    def f(x: Any) -> Any:
        y = x.exp() * 2
        said.append("last")
        return y

    for early in (True, False):
        y = c.checkpoint(
            f, x, use_reentrant=False, context_fn=lambda: (Says("forward"), Says("again")), early_stop=early
        )
        y.sum().backward()
    with c.set_checkpoint_early_stop(False):
        y = c.checkpoint(f, x, use_reentrant=False)
    y.sum().backward()
    return [x.grad, said]


RUNS = {"plain": plain, "nested": nested, "sequential": sequential, "twice": twice, "contexts": contexts}


def compared(want: Any, got: Any) -> None:
    if isinstance(want, torch.Tensor):
        same(want.detach(), got.detach(), exact=False, strides=False)
    elif isinstance(want, (list, tuple)) and not isinstance(want, str):
        assert len(want) == len(got)
        for w, g in zip(want, got, strict=True):
            compared(w, g)
    else:
        assert want == got


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", RUNS)
def test_values_and_gradients(name: str, device: str) -> None:
    compared(RUNS[name](torch, of(torch)), RUNS[name](tabtorch, of(tabtorch)))


@pytest.mark.parametrize("reentrant", [False, True])
def test_random_numbers_are_the_same_again(reentrant: bool, device: str) -> None:
    """Dropout's mask is that of the forward pass, and the numbers after it are as if there had been no checkpoint."""
    t, c = tabtorch, of(tabtorch)
    x = t.ones(1000, requires_grad=True)

    def f(x: Any) -> Any:
        return t.nn.functional.dropout(x, 0.5) * t.rand(1000) * x

    ends = []
    for checkpointed in (False, True):
        t.manual_seed(3)
        x.grad = None
        y = c.checkpoint(f, x, use_reentrant=reentrant) if checkpointed else f(x)
        after = t.rand(3)
        y.sum().backward()
        ends.append([v.tolist() for v in (y, x.grad, after, t.rand(3))])
    assert ends[0] == ends[1]


@pytest.mark.parametrize("reentrant", [False, True])
def test_activations_are_not_kept(reentrant: bool, device: str) -> None:
    """16 activations of 256 kB: kept without a checkpoint; with checkpoints one for each of the 4 parts."""
    t, c = tabtorch, of(tabtorch)

    def block(x: Any) -> Any:
        for _ in range(4):
            x = (x + 1).cumsum(0).sin()
        return x

    held = []
    for checkpointed in (False, True):
        x = t.ones(1 << 16, requires_grad=True)
        x.tolist()[0]
        gc.collect()
        graph.flush()
        before = get_bridge().stats()["bytes"]
        y = x
        for _ in range(4):
            y = c.checkpoint(block, y, use_reentrant=reentrant) if checkpointed else block(y)
        y[0].item()
        gc.collect()
        graph.flush()
        held.append((get_bridge().stats()["bytes"] - before) / (1 << 18))
        y.sum().backward()
    assert held[0] >= 15 and held[1] <= 5, held


ERRORS = {
    "more": lambda t, c: (lambda x, k: x.exp() if k == 1 else x.exp() * x.sin(), {}),
    "fewer": lambda t, c: (lambda x, k: x.exp() * x.sin() if k == 1 else x.exp(), {}),
    "shape": lambda t, c: (lambda x, k: (x[: 4 - k].exp() * 2).sum(), {}),
    "unchecked": lambda t, c: (lambda x, k: x.exp() * x.sin() if k == 1 else x.exp(), {"determinism_check": "never"}),
    "inputs": lambda t, c: (lambda x, k: x.add_(1) if k == 1 else x, {"in_place": True}),
}


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("name", ERRORS)
def test_a_recomputation_that_differs(name: str, early: bool) -> None:
    said = []
    for t in (torch, tabtorch):
        with tabtorch.device("cpu"):
            f, how = ERRORS[name](t, of(t))
            calls = [0]

            def g(x: Any, f: Any = f, calls: Any = calls) -> Any:
                calls[0] += 1
                return f(x, calls[0]) if not how.get("in_place") else x.exp() * x.sin()  # noqa: B023

            x = t.ones(3, requires_grad=True)
            try:
                z = x * 1
                options = {k: v for k, v in how.items() if k != "in_place"}
                y = of(t).checkpoint(g, z, use_reentrant=False, early_stop=early, **options)
                if how.get("in_place"):
                    z.add_(1)
                y.sum().backward()
                said.append(x.grad.tolist())
            except Exception as e:
                text = (
                    str(e).split("\nTip:")[0].split(" at 0x")[0].replace("output 0 of MulBackward0", "output 0 of Mul")
                )
                said.append(f"{type(e).__name__} {text}".strip())
    assert said[0] == pytest.approx(said[1]) if isinstance(said[0], list) else said[0] == said[1]


def test_arguments(recwarn: pytest.WarningsRecorder) -> None:
    calls: list[Any] = [
        lambda t, c: c.checkpoint(t.sin, t.ones(2)),
        lambda t, c: c.checkpoint_sequential([t.sin, t.cos], 2, t.ones(2)),
        lambda t, c: c.checkpoint(t.sin, t.ones(2), use_reentrant=True, k=1),
        lambda t, c: c.checkpoint(t.sin, t.ones(2), use_reentrant=True, debug=True),
        lambda t, c: c.checkpoint(t.sin, t.ones(2), use_reentrant=False, debug=True, context_fn=lambda: 0),
        lambda t, c: c.checkpoint_sequential([t.sin], 1, t.ones(2), use_reentrant=True, k=1),
        lambda t, c: c.detach_variable([1]),
        lambda t, c: t.autograd.grad(
            c.checkpoint(t.sin, x := t.ones(2, requires_grad=True), use_reentrant=True).sum(), x
        ),
        lambda t, c: c.checkpoint(t.ones_like, t.ones(2, requires_grad=True), use_reentrant=True).sum().backward(),
    ]
    for call in calls:
        said = []
        for t in (torch, tabtorch):
            with warnings.catch_warnings(record=True) as w, tabtorch.device("cpu"):
                warnings.simplefilter("always")
                try:
                    said.append(call(t, of(t)).tolist())
                except Exception as e:
                    said.append(f"{type(e).__name__} {e}")
            said[-1] = (said[-1], [str(x.message) for x in w if x.category is UserWarning])
        assert said[0] == said[1]
