"""A few moments of what `python -m faults` tries a hundred of: memory that runs out, a device that is lost."""

from __future__ import annotations

import secrets

import pytest

import tabtorch
from faults import Checks
from tabtorch.bridge import get_bridge


def test_memory_that_runs_out(device: str) -> None:
    checks = Checks(device, secrets.token_hex(4))
    checks.memory(10)
    assert checks.found == [], checks.seed
    assert checks.tried == 10


def test_a_device_that_is_lost(webgpu: None) -> None:
    checks = Checks("webgpu", secrets.token_hex(4))
    checks.loss(10)
    assert checks.found == [], checks.seed
    assert checks.tried == 10


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
