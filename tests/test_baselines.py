"""Tiered compilation: a kernel that has a baseline text runs that at first, and its full text once it runs again. Both give the same
bits; nobody waits for the second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("torch")

import tabtorch
from tabtorch.engine import builder, graph, tiles
from tabtorch.engine.target import target
from tabtorch.engine.template import template

pytestmark = pytest.mark.usefixtures("made_up_gpu")


@pytest.fixture(autouse=True)
def baselines(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An adapter on which they pay, and products that are large enough for tiles."""
    monkeypatch.setattr(target(0), "baselines", True)
    monkeypatch.setattr(tiles, "_LARGE", 1)
    yield
    graph.flush()


@pytest.fixture
def specs(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The kernels that are defined from now on, those that are known too."""
    found: list[dict[str, Any]] = []
    bridge = builder.bridge()
    define = bridge.define_kernel
    monkeypatch.setattr(bridge, "define_kernel", lambda spec: (found.append(spec), define(spec))[1], raising=False)
    monkeypatch.setattr(builder, "_kernels", {})
    graph.forget_plans()
    return found


def _optimizing() -> int:
    return int(builder.bridge().stats()["optimizing"])


def _product() -> Callable[[], list[Any]]:
    a, b, c = (tabtorch.randn(n, m, device="webgpu") for n, m in ((70, 133), (133, 90), (70, 90)))
    return lambda: [tabtorch.nn.functional.gelu(a @ b + 1, approximate="tanh") * c, a @ b]


def _attention() -> Callable[[], list[Any]]:
    q, k, v = (tabtorch.randn(1, 2, 70, 40, device="webgpu", requires_grad=True) for _ in range(3))

    def run() -> list[Any]:
        out = tabtorch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return [out, *tabtorch.autograd.grad(out.square().sum(), (q, k, v))]

    return run


@pytest.mark.parametrize("make", [_product, _attention])
def test_both_texts_give_the_same_bits(make: Callable[[], Any], specs: list[dict[str, Any]]) -> None:
    run = make()
    first = [x.tolist() for x in run()]
    with_both = [s for s in specs if "baseline" in s]
    assert len(with_both) == (2 if make is _product else 3)
    assert all(len(s["baseline"]) < len(s["source"]) for s in with_both)
    seen = 0
    for _ in range(1000):  # a second kernel may take long to compile, and nobody waits for it
        assert [x.tolist() for x in run()] == first
        seen = max(seen, now := _optimizing())
        if seen and not now:
            break
    assert seen and not now  # asked for, and there
    assert [x.tolist() for x in run()] == first


def test_what_runs_once_is_not_compiled_twice(specs: list[dict[str, Any]]) -> None:
    _product()()[0].tolist()
    assert any("baseline" in s for s in specs) and not _optimizing()


def test_software_has_none(monkeypatch: pytest.MonkeyPatch, specs: list[dict[str, Any]]) -> None:
    monkeypatch.setattr(target(0), "baselines", False)
    _product()()[0].tolist()
    assert specs and not any("baseline" in s for s in specs)


@pytest.mark.parametrize("stem", ["matmul", "attention", "attention_query", "attention_key"])
def test_a_baseline_is_much_shorter(stem: str) -> None:
    t = template(stem)
    assert len(t.text({"BASELINE": 1})) < 0.7 * len(t.text())
