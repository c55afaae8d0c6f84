"""Ctrl+C while operations are sent to the device: they are sent, then it is raised, and no value is lost."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import tabtorch as tt
from tabtorch.compiled import replay
from tabtorch.engine import graph, plan, schedules, window


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Has Ctrl+C pressed in a call of a function of the engine, the first time."""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def press(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            monkeypatch.setattr(owner, name, function)
            signal.raise_signal(signal.SIGINT)
            return function(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    yield press
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("owner", "name"), [(window, "held_beyond"), (plan.Builder, "schedule"), (plan.Plan, "flat")])
def test_a_window_is_sent_whole(interrupted: Any, device: str, owner: Any, name: str) -> None:
    size = 30 + ord(name[0])
    graph.flush()
    graph._plans.clear()  # so that this window has none, and no schedule
    schedules.forget()
    x = tt.arange(float(size), device=device) * 7
    y = x + 1
    interrupted(owner, name)
    with pytest.raises(KeyboardInterrupt):
        y.tolist()
    assert y.tolist() == [7 * i + 1 for i in range(size)] and x.tolist() == [7 * i for i in range(size)]


@pytest.mark.parametrize("name", ["_send", "_alone"])
def test_a_compiled_call_is_carried_out(interrupted: Any, device: str, name: str) -> None:
    w, calls = tt.zeros(3, device=device), []

    @tt.compile
    def step() -> Any:
        return w.add_(1)

    for _ in range(4):
        calls.append(step().sum().item())
    interrupted(replay.Replay, name)
    with pytest.raises(KeyboardInterrupt):
        step()
    done = w.sum().item()
    assert done in ((12, 15) if name == "_alone" else (15,))
    assert step().sum().item() == done + 3


def test_at_any_moment(device: str) -> None:
    main, before = threading.main_thread().ident, signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    kept = []
    try:
        for i in range(30):
            x = tt.full((4,), float(i), device=device)
            timer = threading.Timer(0.002 * (i % 10), signal.pthread_kill, (main, signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                timer.start()
                y = x
                for n in range(10**6):
                    y = y * 1 + (n % 3 + i * 7 + n // 50) * 1e-3
            kept.append(x)
    finally:
        signal.signal(signal.SIGINT, before)
    assert [x.tolist() for x in kept] == [[float(i)] * 4 for i in range(30)]


def test_an_answer_is_read_whole(interrupted: Any, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime, read = graph.bridge(), os.read
    x = tt.arange(3000.0, device=device) * 3

    def pressed(*args: Any) -> bytes:
        found = read(*args)
        signal.raise_signal(signal.SIGINT)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(os, "read", pressed)
        with pytest.raises(KeyboardInterrupt):
            x.tolist()
    assert runtime._input or runtime._answered == runtime._asked  # else the next line would wait for ever
    assert (x + 1).tolist() == [3.0 * k + 1 for k in range(3000)] and x.sum().item() == 3 * 2999 * 1500


@pytest.mark.parametrize("name", ["write_frees", "_execute", "_execute_and_ask"])
def test_a_block_is_sent_whole(interrupted: Any, device: str, name: str) -> None:
    runtime = graph.bridge()
    x = tt.arange(5.0, device=device) * 3
    gone = (x + 2).sum()
    graph.flush()
    del gone
    y = x + 1
    interrupted(type(runtime.block) if name == "write_frees" else type(runtime), name)
    with pytest.raises(KeyboardInterrupt):
        y.tolist() if name == "_execute_and_ask" else graph.flush()
    assert y.tolist() == [1, 4, 7, 10, 13] and x.tolist() == [0, 3, 6, 9, 12]
