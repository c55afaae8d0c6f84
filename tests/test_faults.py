"""A few moments of what `python -m faults` tries a hundred of: memory that runs out, a device that is lost."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import pytest

import tabtorch
from faults import Checks
from tabtorch import nn
from tabtorch.bridge import get_bridge
from tabtorch.nn import functional as F


def test_memory_that_runs_out(device: str) -> None:
    checks = Checks(device, secrets.token_hex(4))
    checks.memory(10)
    assert checks.found == [], checks.seed
    assert checks.tried == 10


def test_a_device_that_is_lost(webgpu: None) -> None:
    checks = Checks("webgpu", secrets.token_hex(4))
    checks.loss(4)
    assert checks.found == [], checks.seed
    assert checks.tried == 4


def test_what_was_to_be_written_keeps_saying_why(device: str) -> None:
    """The kind of error, too: not only with the first use."""
    x = tabtorch.ones(3)
    x.numpy()
    get_bridge().fault(allocations=0)
    y = x + 1
    for _ in range(3):
        with pytest.raises(tabtorch.OutOfMemoryError, match="add.*out of memory"):
            y.numpy()
    with pytest.raises(tabtorch.OutOfMemoryError, match="out of memory"):
        (y * 2).sum().item()
    get_bridge().fault()
    assert x.tolist() == [1, 1, 1] and (x + 1).tolist() == [2, 2, 2]


def test_what_nobody_needs_any_more_fails_nothing(device: str) -> None:
    """Work on a value that is not there, which waits when the error comes and is dropped then, is not in the way."""
    x = tabtorch.ones(3)
    x.numpy()
    get_bridge().fault(allocations=0)
    y = x + 1
    with pytest.raises(tabtorch.OutOfMemoryError):
        y.numpy()
    get_bridge().fault()
    y * 2  # waits, and nobody has it
    assert (x * 3).tolist() == [3, 3, 3]


def test_counting_failures_that_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks themselves: with no failure, and with numbers that are not the same again, they say so."""
    monkeypatch.setattr(
        type(get_bridge()), "fault", lambda self, **after: {"allocations": 20, "commands": 20, "reads": 4}
    )
    checks = Checks("cpu", "0")
    with tabtorch.device("cpu"):
        checks.memory(1)
    assert checks.found and "no exception" in checks.found[0]


@pytest.mark.parametrize("compiled", [False, True])
def test_indices_are_looked_at_on_the_next_device_too(compiled: bool, webgpu: None) -> None:
    """Where a device notes bad indices goes with it; eager work and plans made before find another place."""

    def picked(a: tabtorch.Tensor, i: tabtorch.Tensor) -> tabtorch.Tensor:
        return a.gather(1, (i + a[:, :1] * 0).long())

    def work(more: int = 0) -> list[float]:
        a = tabtorch.arange(6.0, device="webgpu").reshape(2, 3)
        return function(a, tabtorch.tensor([[2.0], [0.0]], device="webgpu") + more).flatten().tolist()

    function = tabtorch.compile(picked) if compiled else picked
    for _ in range(2):
        assert work() == [2, 3]
    get_bridge().lose_device()
    with pytest.raises(tabtorch.AcceleratorError, match="lost"):
        work()
    for _ in range(2):
        assert work() == [2, 3]
        with pytest.raises(RuntimeError, match="out of bounds"):
            work(1)
    assert work() == [2, 3]


def constants(c: Any) -> Any:
    """Of data of its own: in what it computes, in what it gives back, and in its gradient."""
    x = tabtorch.ones(3, requires_grad=True)
    y = x * tabtorch.tensor([1.0, 2.0, 3.0]) + c
    return y, tabtorch.tensor([4.0, 5.0]), tabtorch.autograd.grad(y.sum(), x)[0]


def trained(kind: str) -> list[float]:
    tabtorch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
    optimizer = getattr(tabtorch.optim, kind)(model.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        losses.append(F.cross_entropy(model(tabtorch.randn(6, 4)), tabtorch.tensor([0, 1, 2, 0, 1, 2])))
        losses[-1].backward()
        optimizer.step()
    return [loss.item() for loss in losses]


def drawn(generator: Any) -> list[Any]:
    tabtorch.manual_seed(1)
    generator.manual_seed(2)
    draws = [tabtorch.rand(3), F.dropout(tabtorch.ones(9)), tabtorch.rand(3, generator=generator)]
    return [t.tolist() for t in (*draws, tabtorch.randperm(5), tabtorch.multinomial(tabtorch.rand(4), 2))]


def test_all_that_is_kept_is_made_anew(webgpu: None) -> None:
    """What was there before the loss, other than values: functions and their plans, generators, modes, streams."""
    known, twice = (
        tabtorch.compile(constants),
        tabtorch.compile(lambda x: F.dropout(x * tabtorch.eye(3)) + tabtorch.rand(3)),
    )
    generator, stream, event = tabtorch.Generator("webgpu"), tabtorch.cuda.Stream(), tabtorch.cuda.Event()

    def seeded() -> Any:
        tabtorch.manual_seed(3)
        return [twice(tabtorch.ones(3)).tolist() for _ in range(3)]

    def streamed() -> Any:
        with tabtorch.cuda.stream(stream):
            x = tabtorch.ones(3) + 1
        event.record(stream)
        event.synchronize()
        return x.tolist()

    work: list[Callable[[], Any]] = [
        *[lambda c=c: [t.tolist() for t in known(c)] for c in (1.0, 1.0, 1.0)],
        seeded,
        streamed,
        lambda: drawn(generator),
        lambda: trained("SGD"),
        lambda: trained("Adam"),
        lambda: tabtorch.vmap(tabtorch.func.grad(lambda x: x.sin().sum()))(tabtorch.ones(2, 3)).tolist(),
    ]
    with tabtorch.device("webgpu"):
        for _ in range(2):
            before = [run() for run in work]
        for _ in range(2):
            get_bridge().lose_device()
            with pytest.raises(tabtorch.AcceleratorError, match="was lost"):
                tabtorch.ones(2).tolist()
            for _ in range(3):
                assert [run() for run in work] == before
