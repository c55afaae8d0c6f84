"""Operations that fail when they are sent, and values that were lost: who reads something else does not hear of it."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest

import tabtorch
from tabtorch import _lazy
from tabtorch.bridge import get_bridge
from tabtorch.engine import graph
from tabtorch.engine.graph import Map, emit, inst


def broken(*args: Any) -> Any:
    raise ValueError("no such kernel")


BROKEN = Map("broken", broken)


def failing(x: Any) -> Any:
    """A tensor whose kernel cannot be written."""
    m = x._tab_meta
    return tabtorch.Tensor._wrap(emit(inst(BROKEN, (m,), m), (x._tab_storage.node,)), m)


@pytest.fixture
def x() -> Any:
    x = tabtorch.arange(4.0, device="cpu")
    graph.flush()
    return x


def end_runtime() -> None:
    child = get_bridge()._child  # type: ignore[attr-defined]
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    with pytest.raises(RuntimeError):
        (tabtorch.ones(2, device="cpu") + 1).tolist()


def test_a_lost_value_spoils_nothing_else(x: Any) -> None:
    y = x + 1
    y.tolist()
    end_runtime()
    late = x * 2  # waits, though it can have no value
    later = late + y
    fine = tabtorch.ones(2, device="cpu") + 1
    assert fine.tolist() == [2.0, 2.0]
    for t in (late, later, x):
        with pytest.raises(tabtorch.AcceleratorError, match="has no value any more"):
            t.tolist()


def test_what_a_thread_has_left_behind(x: Any) -> None:
    kept: list[Any] = []
    end_runtime()
    thread = threading.Thread(target=lambda: kept.append(x.exp().sum()))
    thread.start()
    thread.join()
    assert (tabtorch.ones(3, device="cpu") * 2).sum().item() == 6.0
    with pytest.raises(tabtorch.AcceleratorError):
        kept[0].item()


def test_places_in_a_window_of_which_nodes_are_left_out(x: Any) -> None:
    """Those that share memory are told by their positions."""
    end_runtime()
    lost = [x + k for k in range(3)]
    values = [tabtorch.full((k,), float(k), device="cpu") for k in (2, 3)]
    more = [v * 2 for v in values]
    assert [v.tolist() for v in more] == [[4.0, 4.0], [6.0, 6.0, 6.0]]
    assert [v.tolist() for v in values] == [[2.0, 2.0], [3.0, 3.0, 3.0]]
    with pytest.raises(tabtorch.AcceleratorError):
        lost[1].tolist()


def test_a_kernel_that_cannot_be_written(x: Any) -> None:
    before = x + 1
    bad = failing(x)
    worse = bad + before
    after = x * 3
    both = before + after
    assert both.tolist() == [1.0, 5.0, 9.0, 13.0]
    assert [before.tolist(), after.tolist()] == [[1.0, 2.0, 3.0, 4.0], [0.0, 3.0, 6.0, 9.0]]
    for t in (bad, worse, bad):
        with pytest.raises(ValueError, match="no such kernel"):
            t.tolist()
    with pytest.raises(ValueError, match="no such kernel"):
        (worse * 2).tolist()


def test_its_sources_are_not_lost(x: Any) -> None:
    source = x + 1
    bad = failing(source.exp())
    with pytest.raises(ValueError, match="no such kernel"):
        bad.tolist()
    assert source.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_a_flush_says_what_failed(x: Any) -> None:
    fine, bad = x + 1, failing(x)
    with pytest.raises(ValueError, match="no such kernel"):
        graph.flush()
    graph.flush()
    assert fine.tolist() == [1.0, 2.0, 3.0, 4.0]
    with pytest.raises(ValueError, match="no such kernel"):
        bad.tolist()


def test_a_full_window(x: Any) -> None:
    """Who fills it up hears nothing of what others left in it."""
    bad = failing(x)
    kept = [x + k for k in range(graph.WINDOW + 3)]
    assert kept[-1].tolist() == [k + graph.WINDOW + 2.0 for k in range(4)]
    assert kept[0].tolist() == [0.0, 1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match="no such kernel"):
        bad.tolist()


def test_writes_beside_it_are_done_once(x: Any) -> None:
    total = tabtorch.zeros(4, device="cpu")
    graph.flush()
    bad = failing(total)
    for _ in range(3):
        total += x
    view = total[1:3]
    view *= 2
    del bad
    assert total.tolist() == [0.0, 6.0, 12.0, 9.0]


def test_what_is_fused_beside_it_stays_so(x: Any) -> None:
    """No memory for values between, which nobody holds: they may be larger than any."""
    row, column = tabtorch.ones(512, device="cpu"), tabtorch.ones(512, 1, device="cpu")
    graph.flush()
    bad = failing(x)
    wide = ((row + column) * 2).exp().log().sum(1)
    memory = graph.memory
    memory.peak[1] = before = memory.live[1]
    assert wide.tolist() == pytest.approx([2048.0] * 512, rel=1e-5)
    assert memory.peak[1] < before + (512 * 512 * 4)
    with pytest.raises(ValueError, match="no such kernel"):
        bad.tolist()


def test_one_that_is_interrupted_before_anything_is_sent(x: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    y = x.clone()
    graph.flush()
    y += 1
    z = y * 2

    def interrupted(*args: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as m:
        m.setattr(_lazy.plan, "make_plan", interrupted)
        m.setattr(graph, "_plans", {})
        with pytest.raises(KeyboardInterrupt):
            z.tolist()
    w = z + y
    assert [z.tolist(), y.tolist(), w.tolist()] == [[2.0, 4.0, 6.0, 8.0], [1.0, 2.0, 3.0, 4.0], [3.0, 6.0, 9.0, 12.0]]


def test_an_interrupted_window_of_packed_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that share memory do so still when they are sent at last."""
    parameters = [tabtorch.nn.Parameter(tabtorch.ones(k, device="cpu")) for k in (2, 3)]
    optimizer = tabtorch.optim.SGD(parameters, lr=0.5, foreach=True)
    sum(p.sum() for p in parameters).backward()
    optimizer.step()
    kept = [p * 2 for p in parameters]

    def interrupted(*args: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as m:
        m.setattr(_lazy.plan, "make_plan", interrupted)
        m.setattr(graph, "_plans", {})
        with pytest.raises(KeyboardInterrupt):
            kept[0].tolist()
    assert [k.tolist() for k in kept] == [[1.0] * 2, [1.0] * 3]
