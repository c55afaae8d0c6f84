"""`tabtorch.explain` and `TABTORCH_DEBUG=schedule`: what the engine makes of a program, told of real windows."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

import tabtorch
from tabtorch.engine import graph


def test_one_group_is_one_dispatch(device: str) -> None:
    x: Any = tabtorch.ones(32, 48, device=device)
    told = tabtorch.explain(lambda: (x * 2 + 1).relu())
    (window,) = told.windows
    assert window.device == device and window.dispatches == told.dispatches == 1
    (group,) = window.groups
    assert group.operations == ("mul", "add", "relu") or len(group.operations) == 3
    assert (group.kind, group.rows, group.read, group.written) == ("map", 32 * 48, 32 * 48 * 4, 32 * 48 * 4)
    assert told.bytes_moved == 2 * 32 * 48 * 4
    text = str(told)
    assert text.startswith(f"3 operations, 1 group, 1 dispatch on {device}\n") and "6.1 kB" in text


def test_a_view_reads_what_it_covers(device: str) -> None:
    x: Any = tabtorch.ones(64, 64, device=device)
    (window,) = tabtorch.explain(lambda: x[:8] + 1).windows
    assert [(g.read, g.written) for g in window.groups] == [(8 * 64 * 4, 8 * 64 * 4)]


def test_why_two_are_not_one(device: str) -> None:
    x: Any = tabtorch.ones(16, 16, device=device)
    told = tabtorch.explain(lambda: (x @ x) @ x)
    (window,) = told.windows
    first, second = window.groups
    assert first.kind == second.kind == "contract" and not first.apart
    ((source, words),) = second.apart
    assert source == 1 and "contraction" in words
    assert f"apart from 1: {words}" in str(told)


def test_backward_and_errors(device: str) -> None:
    x: Any = tabtorch.ones(16, device=device, requires_grad=True)
    told = tabtorch.explain(lambda: (x * x).sum().backward())
    assert told.dispatches >= 1 and x.grad.tolist() == [2.0] * 16
    with pytest.raises(RuntimeError, match="must match"):
        tabtorch.explain(lambda: x + tabtorch.ones(3, device=device))
    assert str(tabtorch.explain(lambda: None)) == "nothing was sent to a device"


def test_nothing_is_kept(device: str) -> None:
    """Afterwards the engine plans as before: a window costs a plan once, and what looked on is gone."""
    from tabtorch.engine import plan

    builder = plan.Builder
    x: Any = tabtorch.ones(8, device=device)

    def f() -> Any:
        return (x + 1).tolist()

    f()
    assert tabtorch.explain(f).dispatches == 1
    assert plan.Builder is builder
    f()
    before = graph.counts["plans"]
    f()
    assert graph.counts["plans"] == before


def test_compiled_functions(device: str) -> None:
    x: Any = tabtorch.ones(8, device=device)
    compiled = tabtorch.compile(lambda a: (a * 2).cumsum(0).tanh())
    told = tabtorch.explain(compiled, x)
    assert len(told.windows) == 1 and "cumsum" in str(told)
    assert compiled(x).shape == (8,)


def test_debug_prints_each_window() -> None:
    code = "import tabtorch as t; x = t.ones(4, device='cpu'); print((x * 2).tolist(), (x * 2).tolist())"
    env = {**os.environ, "TABTORCH_DEBUG": "schedule", "TABTORCH_DEVICE": "cpu"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60, check=True)
    assert done.stdout == "[2.0, 2.0, 2.0, 2.0] [2.0, 2.0, 2.0, 2.0]\n"
    assert done.stderr.count("[schedule] ") >= 1 and "mul" in done.stderr
