"""What the page's inspector asks of Python, here in CPython: a run is recorded, and the graph of a gradient told."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import tabtorch as tt

SOURCE = Path(__file__).parents[1] / "web" / "src" / "inspector" / "tabinspect.py"


@pytest.fixture
def inspector(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module, and in place of the page's a script's namespace."""
    page = SimpleNamespace(contextlib=contextlib, around=contextlib.nullcontext)
    monkeypatch.setitem(sys.modules, "tabpage", page)
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    spec = importlib.util.spec_from_file_location("tabinspect", SOURCE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.page = page
    yield module
    module._drop()


def profiled(inspector: ModuleType, work: Any) -> Any:
    inspector.arm()
    with inspector.page.around():
        work()
    return json.loads(asyncio.run(inspector.take()))


def test_what_a_kernel_is_made_of(device: str, inspector: ModuleType) -> None:
    x = tt.rand(64, 32)
    w = tt.rand(32, 16)

    def work() -> None:
        y = (x @ w).relu() * 2
        (y.softmax(1) + y[:, :1]).sum().item()

    found = profiled(inspector, work)
    kernels = found["kernels"]
    assert sum(k["calls"] for k in kernels) == len(found["dispatches"]) and found["dispatches_left_out"] == 0
    first = next(k for k in kernels if "matmul" in k["name"])
    assert [op[0] for op in first["operations"]][:3] == ["matmul", "relu", "mul"]
    assert first["operations"][0][1:] == [[64, 16], "float32", False]
    assert first["read"] == 4 * (64 * 32 + 32 * 16) and first["written"] >= 4 * 64 * 16
    assert first["device"] == device and first["workgroups"][0] >= 1
    assert ("@compute" in first["source"]) == (device == "webgpu") and first["source"]
    reasons = [words for k in kernels for words in k["apart"]]
    assert any("reads what matmul" in words for words in reasons), kernels
    assert {"aten::matmul", "aten::softmax"} <= set(found["names"])
    assert all(k["us"] is None for k in kernels) or found["timed"]


def test_windows_that_were_planned_before_are_told_as_well(device: str, inspector: ModuleType) -> None:
    x = tt.rand(10)

    def work() -> None:
        (x.exp() + 1).sum().item()

    work()
    before, again = profiled(inspector, work), profiled(inspector, work)
    assert [k["operations"] for k in before["kernels"]] == [k["operations"] for k in again["kernels"]]
    assert not any(k["fresh"] for k in before["kernels"])
    f = tt.compile(lambda x: x.sin() * 2)
    f(x), f(x), f(x)
    (kernel,) = profiled(inspector, lambda: f(x))["kernels"]
    assert kernel["calls"] == 1 and kernel["read"] is None, "nothing is known of a plan that was made before"
    assert kernel["source"]


def test_nothing_is_recorded_otherwise(device: str, inspector: ModuleType) -> None:
    from tabtorch.engine import plan
    from tabtorch.profiler import _record

    looked_at = (plan.Builder.schedule, plan.Builder.write, plan.Builder.launch, plan.Plan.send, tt.exp)
    before = [f.__code__ for f in looked_at]
    assert json.loads(asyncio.run(inspector.take())) is None
    inspector.arm()
    assert _record.active is None and [f.__code__ for f in looked_at] == before, "it begins with the user's code"
    with inspector.page.around():
        assert _record.active is not None and [f.__code__ for f in looked_at] != before
    asyncio.run(inspector.take())
    assert _record.active is None and [f.__code__ for f in looked_at] == before
    assert inspector.page.around is contextlib.nullcontext


def test_a_long_run_is_counted_and_not_listed(
    device: str, inspector: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspector, "MOST_CALLS", 5)
    monkeypatch.setattr(inspector, "MOST_DISPATCHES", 3)

    def work() -> None:
        for _ in range(10):
            tt.ones(3).exp().sum().item()

    found = profiled(inspector, work)
    assert len(found["calls"]) == 5 and found["calls_left_out"] >= 15
    assert len(found["dispatches"]) == 3
    assert sum(k["calls"] for k in found["kernels"]) == 3 + found["dispatches_left_out"]


def test_a_script_that_fails_is_recorded_up_to_there(device: str, inspector: ModuleType) -> None:
    inspector.arm()
    with pytest.raises(ZeroDivisionError), inspector.page.around():
        tt.ones(3).exp().sum().item()
        1 / 0
    assert json.loads(asyncio.run(inspector.take()))["kernels"]


def tape(inspector: ModuleType, expression: str, **names: Any) -> Any:
    vars(sys.modules["__main__"]).update(names)
    return json.loads(inspector.tape(expression))


def test_the_graph_of_a_tensor(device: str, inspector: ModuleType) -> None:
    model = tt.nn.Linear(3, 2)
    x = tt.rand(4, 3)
    y = model(x)
    found = tape(inspector, "(y * y).sum()", model=model, y=y)
    names = [node[1] for node in found["nodes"]]
    assert names[:2] == ["SumBackward0", "MulBackward0"] and set(names[3:]) >= {"model.weight", "model.bias"}
    assert ["operation", "AddmmBackward0", "y"] in found["nodes"]
    assert ["leaf", "model.bias", "2 float32"] in found["nodes"]
    assert found["edges"][0] == [0, 1] and found["edges"].count([1, 2]) == 2, "both factors are y"
    assert found["left_out"] == 0
    assert tape(inspector, "w", w=tt.ones((), requires_grad=True))["nodes"] == [["leaf", "w", "scalar float32"]]


def test_a_large_graph_says_how_much_is_left_out(
    device: str, inspector: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspector, "MOST_NODES", 10)
    x = w = tt.ones(2, requires_grad=True)
    for _ in range(30):
        x = x.sin()
    found = tape(inspector, "x", x=x, w=w)
    assert len(found["nodes"]) == 10 and found["left_out"] == 21 and len(found["edges"]) == 9


def test_what_has_no_graph_says_why(device: str, inspector: ModuleType) -> None:
    assert tape(inspector, "nothing")["problem"] == "NameError: name 'nothing' is not defined"
    assert tape(inspector, "1 +")["problem"].startswith("SyntaxError")
    assert tape(inspector, "3")["problem"] == "3 is of type int, and no tensor"
    assert "requires no gradient" in tape(inspector, "x", x=tt.ones(2))["problem"]
