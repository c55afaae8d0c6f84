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
import torch as real_torch

import tabtorch as torch
from index_programs import DEVICES, Case, alike, differences, outcome, programs
from tabtorch import nn
from tabtorch.bridge import get_bridge
from tabtorch.engine import graph
from tabtorch.nn import functional as F

#: programs of the random test; they rotate with the commit
EACH = {"cpu": 120, "webgpu": 40}


def made(*values: int) -> Any:
    """An index of which the host knows nothing."""
    return (torch.tensor(values, dtype=torch.float32) * 1).long()


def without_wish(found: Any) -> Any:
    """A result, or a message of PyTorch's without the wish that it adds to some."""
    return found.split("  (Could this")[0] if isinstance(found, str) else found


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


def test_rows_inside_vmap(device: str) -> None:
    """What is looked at as a sum, or as a range, is that of each example."""
    masks = made(1, 0, 0, 1, 1, 1, 0, 1).reshape(2, 4) > 0
    fill = torch.vmap(lambda mask, source: torch.zeros(4).masked_scatter(mask, source))
    assert fill(masks, torch.ones(2, 3)).tolist() == [[1, 0, 0, 1], [1, 1, 0, 1]]
    with pytest.raises(RuntimeError, match="Number of elements of source < number of ones in mask"):
        fill(masks, torch.ones(2, 2)).tolist()
    parts = torch.vmap(lambda lengths: torch.segment_reduce(torch.arange(4.0), "sum", lengths=lengths))
    assert parts(made(1, 3, 2, 2).reshape(2, 2)).tolist() == [[0, 6], [1, 5]]
    with pytest.raises(RuntimeError, match="Expected all rows of lengths along axis to sum"):
        parts(made(1, 3, 2, 1).reshape(2, 2)).tolist()
    assert torch.vmap(lambda x: torch.histc(x, 2))(made(1, 3, 2, 2).reshape(2, 2) * 1.0).tolist() == [[1, 1], [0, 2]]


def test_an_ignored_class_is_none(device: str) -> None:
    x = torch.zeros(3, 4)
    assert F.cross_entropy(x, made(0, -100, 3)).item() == pytest.approx(1.3862944)
    assert F.cross_entropy(x, made(0, 9, 3), ignore_index=9).item() == pytest.approx(1.3862944)
    loss = F.cross_entropy(x, made(0, -1, 3))
    with pytest.raises(IndexError, match="Target -1 is out of bounds."):
        loss.item()


#: expression of `i` (and `j`), values of `i` that it does not take, and some that it does
REFUSED: list[tuple[str, list[float], list[float]]] = [
    ("F.embedding_bag(L.tensor([0, 1, 2, 3]), L.ones(4, 2), i)", [1, 2], [0, 2]),
    ("F.embedding_bag(L.tensor([0, 1, 2, 3]), L.ones(4, 2), i)", [0, 9], [0, 4]),
    ("F.embedding_bag(L.tensor([0, 1, 2, 3]), L.ones(4, 2), i, mode='max')", [0, -1], [0, 0]),
    ("F.embedding_bag(L.tensor([0, 1, 2, 3]), L.ones(4, 2), i, mode='sum', include_last_offset=True)", [0, 9], [0, 3]),
    ("F.embedding_bag(i, L.ones(4, 2), L.tensor([0, 2]), padding_idx=0)", [1, 4], [1, 3]),
    ("F.ctc_loss(L.zeros(5, 2, 4), L.tensor([1, 2, 2, 3]), L.tensor([5, 5]), i)", [2, 1], [3, 1]),
    ("F.ctc_loss(L.zeros(5, 2, 4), L.tensor([1, 2, 2, 3]), L.tensor([5, 5]), i)", [5, -1], [0, 4]),
    ("F.ctc_loss(L.zeros(5, 2, 4), L.tensor([[1, 2], [2, 3]]), i, L.tensor([2, 2]))", [5, -1], [5, 0]),
    ("L.zeros(4).masked_scatter(i > 0, L.ones(2))", [1, 1, 0, 1], [1, 0, 0, 1]),
    ("L.zeros(2, 3).masked_scatter_(i > 0, L.ones(3))", [1, 1, 0], [1, 0, 0]),
    ("L.segment_reduce(L.ones(4), 'sum', lengths=i)", [3, 2], [3, 1]),
    ("L.segment_reduce(L.ones(4), 'max', lengths=i)", [5, -1], [4, 0]),
    ("L.segment_reduce(L.ones(4), 'sum', lengths=i, unsafe=True)", [4, -1], [3, 1]),
    ("L.segment_reduce(L.arange(4.0), 'sum', offsets=i)", [0, 3, 2], [1, 3, 4]),
    ("L.searchsorted(L.tensor([3.0, 1.0, 2.0]), L.ones(2), sorter=i)", [1, 2, 3], [1, 2, 0]),
    ("L.searchsorted(L.tensor([3.0, 1.0, 2.0]), L.ones(2), sorter=i)", [1, 2, -1], [1, 2, 0]),
    ("L.lu_solve(L.ones(2, 1), L.eye(2), i.int())", [1, 3], [2, 2]),
    ("L.linalg.lu_solve(L.eye(2), i.int(), L.ones(2, 1))", [0, 2], [1, 2]),
    ("L.linalg.ldl_solve(L.eye(2), i.int(), L.ones(2, 1))", [1, 3], [1, 2]),
    ("L.linalg.ldl_solve(L.eye(2), i.int(), L.ones(2, 1))", [0, 2], [1, 2]),
    ("L.cov(L.arange(6.0).reshape(2, 3).sin(), fweights=i)", [1, 2, -1], [1, 0, 2]),
    ("L.cov(L.arange(6.0).reshape(2, 3).sin(), fweights=i)", [0, 0, 0], [1, 2, 2]),
    ("L.cov(L.arange(6.0).reshape(2, 3).sin(), aweights=i.float())", [1, 2, -1], [1, 2, 2]),
    ("L.normal(L.zeros(2), i.float()) * 0", [1, -1], [1, 0]),
    ("L.quantile(L.arange(3.0), i.float())", [0, 2], [0, 1]),
    ("L.nanquantile(L.arange(3.0), i.float())", [0, -1], [0, 1]),
    ("F.binary_cross_entropy(i.float().log(), L.ones(2))", [1, -1], [1, 2]),
    ("F.gaussian_nll_loss(L.ones(2), L.ones(2), i.float())", [1, -1], [1, 0]),
    ("F.gaussian_nll_loss(L.ones(2), L.ones(2), i.float().log())", [0, 1], [-1, 2]),
    ("L.linalg.pinv(i.float().log().diag())", [1, -1], [1, 2]),
]


@pytest.mark.filterwarnings("ignore")  # graph breaks
@pytest.mark.parametrize(("text", "bad", "good"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_not_taken(text: str, bad: list[int], good: list[int], device: str) -> None:
    """PyTorch's exception and message, whether the host knows the values or not; nothing of those that are taken."""
    for values in (bad, good):
        theirs = eval(f"lambda i, L=L, F=L.nn.functional: {text}", {"L": real_torch})
        want = outcome(lambda theirs=theirs, values=values: theirs(real_torch.tensor(values)))
        assert (want[0] == "value") == (values is good)
        for compiled, known in ((False, False), (False, True), (True, False)):
            mine = eval(f"lambda i, L=L, F=L.nn.functional: {text}", {"L": torch})
            mine = torch.compile(mine) if compiled else mine
            got = outcome(
                lambda mine=mine, values=values, known=known: mine(torch.tensor(values) if known else made(*values))
            )
            assert got[0] == want[0] and alike(got[1], without_wish(want[1])), (got, want)


#: what PyTorch reads other memory for, or has numbers for that only the device knows
REFUSED_HERE = [
    ("F.embedding_bag(L.tensor([0, 1, 2, 3]), L.ones(4, 2), i)", [0, 3, 1], IndexError, "index out of range in self"),
    (
        "F.ctc_loss(L.zeros(5, 2, 4), i.reshape(2, 2), (5, 5), (2, 2))",
        [1, 4, 2, 3],
        RuntimeError,
        "from 0 to 3, but got value 4",
    ),
    ("F.ctc_loss(L.zeros(5, 2, 4), i, (5, 5), (2, 2))", [1, -1, 2, 3], RuntimeError, "from 0 to 3, but got value -1"),
    ("L.histc(i / 0, 2)", [1, 2], RuntimeError, "histc: range of .* is not finite"),
    ("L.histogram(i / 0, 2).hist", [1, 2], RuntimeError, "dimension 0's range .*is not finite"),
]


@pytest.mark.parametrize(("text", "bad", "kind", "message"), REFUSED_HERE, ids=range(len(REFUSED_HERE)))
def test_what_is_not_taken_here(text: str, bad: list[int], kind: type[Exception], message: str, device: str) -> None:
    for known in (False, True):
        with pytest.raises(kind, match=message):
            eval(text, {"L": torch, "F": F, "i": torch.tensor(bad) if known else made(*bad)}).tolist()


def test_labels_past_the_end_of_a_target_are_not_looked_at(device: str) -> None:
    targets = made(1, -1, 2, 9).reshape(2, 2)
    loss = F.ctc_loss(torch.zeros(5, 2, 4), targets, (5, 5), (1, 1))
    assert loss.item() == pytest.approx(F.ctc_loss(torch.zeros(5, 2, 4), targets.clamp(1, 2), (5, 5), (1, 1)).item())


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
    assert replayed.dispatches <= asserting.dispatches <= replayed.dispatches + (0 if device == "webgpu" else 2)
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
        assert (none.dispatches, asserted.dispatches, again.dispatches) == (
            1,
            1,
            1,
        )  # beside what is indexed, in one launch
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
