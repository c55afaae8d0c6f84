"""Indices and classes out of range that only the device knows: found when something is next read, and paid for sparingly."""

from __future__ import annotations

import asyncio
import gc
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

import tabtorch as torch
from index_programs import DEVICES, Case, differences, programs
from tabtorch import nn
from tabtorch.bridge import get_bridge
from tabtorch.engine import graph
from tabtorch.nn import functional as F

#: programs of the random test; they rotate with the commit
EACH = {"cpu": 120, "webgpu": 40}


def made(*values: int) -> Any:
    """An index of which the host knows nothing."""
    return (torch.tensor(values, dtype=torch.float32) * 1).long()


@contextmanager
def counted() -> Iterator[SimpleNamespace]:
    bridge = get_bridge()
    graph.flush()
    bridge.reset_stats()
    found = SimpleNamespace()
    yield found
    graph.flush()
    found.__dict__.update(bridge.stats())


def seed_of_the_commit() -> int:
    shown = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    return int(shown[:7] or "0", 16)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_random_programs(device: str, compiled: bool) -> None:
    """As PyTorch's CPU: the same exception and message, exactly where it raises one. For more: tests/index_programs.py."""
    first = seed_of_the_commit()
    found = [d for seed in range(first, first + EACH[device]) for d in differences(seed, device, compiled)]
    assert not found, "\n".join(found)


def test_the_random_programs_have_every_operation() -> None:
    assert {Case(seed).text.split("(")[0] for seed in range(600)} >= {p[0].split("(")[0] for p in programs(2, 1, 1)}


def test_the_error_names_the_operation_and_the_line(device: str) -> None:
    table = torch.ones(3, 2)
    rows = F.embedding(made(0, 7), table)  # the line
    rows = rows + 1
    with pytest.raises(IndexError) as caught:
        rows.tolist()
    first, second = str(caught.value).split("\n")
    assert first == "index out of range in self"
    here = test_the_error_names_the_operation_and_the_line.__code__.co_firstlineno + 2
    assert "embedding" in second and f"test_index_checks.py:{here}" in second and "# the line" in second
    assert torch.get_default_device().type in second


def test_it_is_said_once_and_all_is_well(device: str) -> None:
    x = torch.arange(4.0)
    i = made(1, 9)
    y = x[i]
    with pytest.raises(IndexError, match="index 9 is out of bounds for dimension 0 with size 4"):
        y.tolist()
    assert x.tolist() == [0, 1, 2, 3]
    assert len(y.tolist()) == 2
    with pytest.raises(IndexError, match="index 9"):  # what was found once is found again where it is used again
        x[i].sum().item()
    assert x[made(1, 2)].tolist() == [1, 2]


def test_who_hears_of_it(device: str) -> None:
    """Everything that waits for the device: not only the value that is wrong."""
    x = torch.arange(4.0)
    (x + 1).tolist()
    hearing: list[Any] = [
        lambda: x.sum().item(),
        lambda: str(x * 2),
        lambda: bool((x > 0).all()),
        lambda: (x * 2).numpy(),
        lambda: torch.accelerator.synchronize() if device == "webgpu" else torch.cpu.synchronize(),
        lambda: torch.stack([x, x]).nonzero(),
        lambda: asyncio.run((x * 2).read()),
    ]
    if "webgpu" in DEVICES:
        hearing.append(lambda: (x * 2).to("cpu" if device == "webgpu" else "webgpu").tolist())
    for hear in hearing:
        kept = x[made(4)]
        with pytest.raises(IndexError, match="index 4 is out of bounds"):
            hear()
        del kept
        hear()


@pytest.mark.usefixtures("webgpu")
def test_what_comes_from_the_cpu_is_heard_of_on_the_gpu() -> None:
    with torch.device("cpu"):
        bad = torch.arange(4.0)[made(4)]
    with pytest.raises(IndexError, match="index 4"):
        (bad.to("webgpu") + 1).tolist()


def test_nothing_that_is_not_the_tensors_is_touched(device: str) -> None:
    around = torch.zeros(12)
    around[4:8][made(9000, -9000, 1)] = 1.0
    with pytest.raises(IndexError):
        around.tolist()
    left = around.tolist()
    assert sum(left[4:8]) > 0 and not any(left[:4] + left[8:])


def test_inside_vmap(device: str) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    good = torch.vmap(lambda row, i: row.gather(0, i))(x, made(0, 2, 1, 1).reshape(2, 2))
    assert good.tolist() == [[0, 2], [4, 4]]
    bad = torch.vmap(lambda row, i: row.gather(0, i))(x, made(0, 2, 1, 3).reshape(2, 2))
    with pytest.raises(RuntimeError, match="index 3 is out of bounds for dimension 0 with size 3"):
        bad.tolist()


def test_an_ignored_class_is_none(device: str) -> None:
    x = torch.zeros(3, 4)
    assert F.cross_entropy(x, made(0, -100, 3)).item() == pytest.approx(1.3862944)
    assert F.cross_entropy(x, made(0, 9, 3), ignore_index=9).item() == pytest.approx(1.3862944)
    loss = F.cross_entropy(x, made(0, -1, 3))
    with pytest.raises(IndexError, match="Target -1 is out of bounds."):
        loss.item()


def test_probabilities(device: str) -> None:
    x = torch.rand(3)
    F.binary_cross_entropy(x.sigmoid(), x).item()
    loss = F.binary_cross_entropy(x + 1, x)
    with pytest.raises(RuntimeError, match="all elements of input should be between 0 and 1"):
        loss.item()


# ---- compiled


def step_of(size: int) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(size, 4), nn.Linear(4, size))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(tokens: Any, classes: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens), classes)
        loss.backward()
        optimizer.step()
        return loss

    return step, model


def test_a_compiled_step(device: str) -> None:
    step, _ = step_of(5)
    fast = torch.compile(step_of(5)[0])
    good = [(made(0, 1, 2), made(2, 3, 4)) for _ in range(6)]
    assert [fast(*g).item() for g in good] == pytest.approx([step(*g).item() for g in good])
    fast(made(0, 1, 2), made(2, 5, 4))
    later = fast(*good[0])  # the log goes from replay to replay
    with pytest.raises(IndexError, match="Target 5 is out of bounds"):
        later.item()
    fast(made(0, 5, 2), made(2, 3, 4))
    with pytest.raises(IndexError, match="index out of range in self"):
        fast(*good[0]).item()
    fast(*good[0]).item()


def test_a_compiled_step_with_what_the_host_knows(device: str) -> None:
    """Its plan has no asserts then; it is not replayed for what nobody has looked at, but recorded again, with asserts."""
    fast = torch.compile(step_of(5)[0])
    known = torch.tensor([0, 1, 2]), torch.tensor([2, 3, 4])
    for _ in range(4):
        fast(*known)
    with counted() as replayed:
        loss = fast(*known)
    for _ in range(8):
        loss = fast(made(0, 1, 2), made(2, 3, 4))
    unknown = made(0, 1, 2), made(2, 3, 4)
    with counted() as asserting:
        loss = fast(*unknown)
    assert loss.item() > 0
    assert replayed.dispatches < asserting.dispatches <= replayed.dispatches + (1 if device == "webgpu" else 2)
    with pytest.raises(IndexError, match="Target 5 is out of bounds"):
        fast(torch.tensor([0, 1, 2]), torch.tensor([2, 5, 4])).item()
    fast(torch.tensor([0, 1, 2]), made(2, 5, 4))
    with pytest.raises(IndexError, match="Target 5 is out of bounds"):
        fast(*known).item()


# ---- what it costs


def use(i: Any, t: Any) -> Any:
    """A step with an embedding, a lookup, a gather and classes; its backward uses them again."""
    table = torch.ones(50, 8, requires_grad=True)
    x = F.embedding(i, table) * 2
    x = x + x[i % 4]
    loss = F.cross_entropy(x.gather(1, (i % 8)[:, None]) + x, t % 8)
    loss.backward()
    return table.grad


@pytest.mark.usefixtures("webgpu")
class TestCosts:
    def dispatches(self, i: Any, t: Any) -> int:
        use(i, t)
        with counted() as count:
            kept = use(i, t)
        del kept
        return int(count.dispatches)

    def test_one_dispatch_for_all_of_a_window(self) -> None:
        """Of what the host knows, none; of what can be proven, none; of what was looked at already, none."""
        plain = self.dispatches(torch.tensor([1, 2, 3, 4]), torch.tensor([1, 2, 3, 4]))
        a, b, c = made(1, 2, 3, 4), made(1, 2, 3, 4), made(4, 3, 2, 1)
        x = torch.ones(50, 2)
        with counted() as none:
            kept = [x[torch.tensor([1, 2, 3, 4])], x[torch.tensor([4, 2, 3, 4])]]
        with counted() as asserted:
            kept = [x[a], x[b], F.embedding(c, x)]
        with counted() as again:
            kept = [x[b], x[c], F.embedding(a, x)]  # of `a` negative indices were allowed
        del kept
        assert (none.dispatches, asserted.dispatches, again.dispatches) == (1, 2, 2)
        with counted() as again:
            kept = [x[b], x[c]]
        del kept
        assert again.dispatches == 1
        for i in (
            torch.randint(0, 50, (4,)),
            torch.randperm(50)[:4],
            torch.arange(50).repeat(99)[3:7],
            x[:4].argmax(1),
        ):
            assert self.dispatches(i, i % 8) <= plain

    def test_bytes_and_reads(self) -> None:
        """The log comes with the read that waits anyway, and nothing grows while nobody reads."""
        x, indices = torch.ones(50, 2), [made(1, 2, 3) for _ in range(40)]
        x[indices[0]].sum().item()
        gc.collect()
        graph.flush()
        with counted() as count:
            for i in indices[1:]:
                y = x[i].sum()
                graph.flush()
        live = get_bridge().stats()
        with counted() as read:
            y.item()
        assert read.reads <= 2 and read.readBytes <= 4 + 32
        assert live["kernels"] == count.kernels
        with counted() as plain:
            (x.sum() + 1).item()
        assert plain.reads == 1

    def test_a_place_that_moves_plans_nothing(self) -> None:
        x, data = torch.ones(50, 2), made(*range(40))

        def look(k: int) -> Any:
            return x[data[k : k + 4]].sum()

        kept = [look(0)]
        graph.flush()
        kept.append(look(1))
        graph.flush()
        before = graph.counts["plans"]
        for k in range(2, 20):
            kept.append(look(k))
            graph.flush()
        assert graph.counts["plans"] == before
