"""Groups that are alike are written once, and each has its own buffers, scalars and beginnings of views: engine/repeats.py."""

from __future__ import annotations

import random
from typing import Any

import pytest

import tabtorch as torch
from tabtorch.engine import graph, schedules
from tabtorch.engine.builder import Builder
from tabtorch.engine.repeats import Repeats


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The groups that are written, not taken over."""
    found: list[str] = []
    write = Builder.write

    def noted(b: Builder, g: Any) -> None:
        found.append(b.label(g))
        write(b, g)

    monkeypatch.setattr(Builder, "write", noted)
    monkeypatch.setattr(graph, "_plans", {})
    return found


def layers(count: int, device: str, sent: bool = False) -> list[Any]:
    """Layers that differ in their scalars and in where their weights begin, with sums that share launches; sent: one by one."""
    torch.manual_seed(0)
    weights = torch.randn(count, 24, 24, device=device)
    x = torch.randn(16, 24, device=device)
    found = []
    for n in range(count):
        x = torch.softmax(x @ weights[n] * (0.5 + n) + (0.25 - n), -1)
        found += [x.sum(0), (x * (n + 2)).amax(1), x.cumsum(1)]
        if sent:
            graph.flush()
    return [*found, x]


def test_each_has_its_own(device: str) -> None:
    together, apart = layers(5, device), layers(5, device, sent=True)
    for a, b in zip(together, apart, strict=True):
        torch.testing.assert_close(a, b)


def test_written_once(device: str, written: list[str]) -> None:
    """The first layer reads an input, and the last has its result kept: what is between is written once."""
    counts = []
    for n in (4, 8):
        written.clear()
        kept = layers(n, device)
        graph.flush()
        counts.append(len(written))
        del kept
    assert counts[0] == counts[1] > 0


def test_launches_of_several(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Biases' gradients of layers share launches, whose text is written once as well."""
    if device == "cpu":
        pytest.skip("nothing shares a launch there")
    monkeypatch.setattr(graph, "_plans", {})
    asked = []
    together = Repeats.together

    def noted(r: Repeats, batch: list[Any]) -> Any:
        before = len(r.shared)
        found = together(r, batch)
        asked.append(len(r.shared) > before)
        return found

    monkeypatch.setattr(Repeats, "together", noted)
    torch.manual_seed(0)
    x = torch.randn(6, 37, device=device)
    sums = []
    for n in range(40):  # more than one launch takes
        sums.append((x * (n + 2)).sum(1))
    graph.flush()
    for n, s in enumerate(sums):
        torch.testing.assert_close(s, x.sum(1) * (n + 2), rtol=1e-5, atol=1e-4)  # the order of a sum is another
    assert asked
    assert not all(asked)


# ---- programs at random, once with groups taken over, and once with each group written

#: what a layer may do with (x, a weight, a number of its own): a tensor of the shape of x, and what else is kept
STEPS: list[Any] = [
    lambda x, w, n: (x @ w, None),
    lambda x, w, n: ((x * n + 0.5).tanh(), None),
    lambda x, w, n: (x - x.mean(-1, keepdim=True), x.amax(0)),
    lambda x, w, n: (torch.softmax(x * n, -1), x.sum(0)),
    lambda x, w, n: (x + w[0] * n, (x + n).sum(1)),
    lambda x, w, n: (x.cumsum(0), x.argmax(1)),
    lambda x, w, n: (x.sort(1)[0], None),
    lambda x, w, n: (x.flip(0) * w[1], x.half().sum(1)),
    lambda x, w, n: (written_into(x, w, n), None),
    lambda x, w, n: (x.bfloat16().float() * n, (x > n).float().mean()),
    lambda x, w, n: (x[torch.arange(len(x) - 1, -1, -1)] / (1 + n), x.bfloat16() * n),
]


def written_into(x: Any, w: Any, n: float) -> Any:
    y = x.clone()
    y[1:4] = w[1:4] * n
    return y


def program(seed: int, device: str) -> list[Any]:
    chosen = random.Random(seed)
    rows, width, count = chosen.choice([5, 16]), chosen.choice([8, 24, 130]), chosen.randint(3, 5)
    steps = chosen.choices(STEPS, k=chosen.randint(2, 5))
    torch.manual_seed(seed)
    weights, x = torch.randn(count, width, width, device=device) * 0.1, torch.randn(rows, width, device=device)
    found = []
    for layer in range(count):
        for step in steps:
            x, more = step(x, weights[layer], 0.25 + chosen.random())
            found += [] if more is None else [more]
        if chosen.random() < 0.3:
            found.append(x)
    return [*found, x]


@pytest.mark.parametrize("seed", range(12))
def test_as_if_each_were_written(device: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit: the kernels are the same, and so is the order in which they add."""
    monkeypatch.setattr(graph, "_plans", {})
    monkeypatch.setattr(schedules, "_families", {})
    taken = [str(t.tolist()) for t in program(seed, device)]  # as text: one NaN is like another
    with monkeypatch.context() as patch:
        patch.setattr(graph, "_plans", {})
        patch.setattr(schedules, "_families", {})
        patch.setattr(Repeats, "emit", lambda r, g: r.b.write(g))
        written = [str(t.tolist()) for t in program(seed, device)]
    assert taken == written
