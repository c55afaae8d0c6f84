"""Sorts by the kernels of GPUs with workgroup memory, beside PyTorch's. A software adapter has other forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tabtorch
from sidebyside import to_tab
from tabtorch.engine import graph
from tabtorch.engine.target import target
from tabtorch.ops.reductions import sort_kernel
from test_counts import counted

pytestmark = pytest.mark.usefixtures("made_up_gpu")


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def agree(f: Callable[[Any], Any], x: torch.Tensor, dispatches: int | None = None) -> None:
    """`f` gives PyTorch's results to the bit, in so many dispatches."""
    want = f(x)
    y = to_tab(x, "webgpu")
    graph.flush()
    with counted() as count:
        got = f(y)
        graph.flush()
    assert dispatches is None or count.dispatches == dispatches
    parts = zip(want, got, strict=True) if isinstance(want, tuple) else [(want, got)]
    for a, b in parts:
        assert str(a.dtype) == str(b.dtype)
        if b.dtype is tabtorch.bfloat16:
            a, b = a.float(), b.float()
        torch.testing.assert_close(torch.from_numpy(b.numpy()), a, rtol=0, atol=0, equal_nan=True)


def stable(dim: int = -1, descending: bool = False) -> Callable[[Any], Any]:
    return lambda x: tuple(x.sort(dim=dim, descending=descending, stable=True))


#: the sort, the merges, and the gathering of values
@pytest.mark.parametrize(
    ("shape", "dispatches"),
    [((65,), 2), ((3, 512), 2), ((2, 513), 2), ((2, 1025), 2), ((2049,), 3), ((2, 4096), 3), ((3, 5000), 4)],
)
def test_rows(shape: tuple[int, ...], dispatches: int) -> None:
    agree(stable(), draw(*shape), dispatches)


def test_equal_elements_keep_their_order() -> None:
    for descending in (False, True):
        agree(stable(-1, descending), (draw(2, 700) * 2).round())
        agree(stable(-1, descending), (draw(6000) * 3).round())
        agree(stable(-1, descending), torch.zeros(2500))


def test_what_floats_have() -> None:
    x = draw(2, 3000)
    x[:, 5::100] = torch.nan
    x[:, 6::100], x[:, 7::100] = torch.inf, -torch.inf
    x[:, 8::50], x[:, 9::50] = 0.0, -0.0  # which are equal
    x[:, 2990:] = -torch.nan
    x[0, 10::300] = 1e-40
    agree(stable(), x)
    agree(stable(-1, True), x)


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.float16, torch.bfloat16]
)
def test_types(dtype: torch.dtype) -> None:
    x = draw(2, 2300) * 40
    x = x.abs().to(dtype) if dtype is torch.uint8 else x > 0 if dtype is torch.bool else x.to(dtype)
    if dtype in (torch.int64, torch.int32):
        ends = torch.iinfo(dtype)
        x[0, 7], x[0, 8], x[1, 2200] = ends.max, ends.min, ends.max
    if dtype is torch.int64:
        x[1, ::3] *= 1 << 40  # the high words differ
        x[1, 1::3] += 1 << 31
    agree(stable(), x)
    agree(stable(-1, True), x)


def test_dimensions_and_views() -> None:
    x = draw(3, 130, 4)
    agree(stable(1), x, 2)
    agree(stable(1), draw(2, 2100, 3), 3)
    agree(stable(0, True), draw(200, 6)[:, ::2])
    agree(stable(1), x.permute(2, 1, 0)[1:])
    agree(stable(2), draw(2, 300, 70).transpose(1, 2))


def test_what_is_made_of_sorts() -> None:
    x = (draw(3, 700) * 20).round()
    agree(lambda x: tuple(x.topk(9)), draw(3, 700))
    agree(lambda x: x.argsort(dim=1, stable=True), x)
    agree(lambda x: x.msort(), draw(100, 5))
    agree(lambda x: tuple(x.kthvalue(70)), draw(3, 700))
    agree(lambda x: tuple(x.median(1)), draw(3, 701))
    agree(lambda x: tuple(x.unique(return_inverse=True, return_counts=True)), x)


@pytest.mark.parametrize("k", [1, 100, 257])
@pytest.mark.parametrize("shape", [(2, 2050, 2), (4097,), (1, 2, 9001)])
def test_the_first_of_long_rows(shape: tuple[int, ...], k: int) -> None:
    dim = 1 if len(shape) == 3 and shape[2] == 2 else -1
    for x, largest in ((draw(*shape), True), ((draw(*shape) * 3).round().long(), False)):
        # of equal ones PyTorch may choose any; here it is the first
        def first(x: Any, largest: bool = largest) -> Any:
            if isinstance(x, torch.Tensor):
                return tuple(t.narrow(dim, 0, k) for t in x.sort(dim=dim, descending=largest, stable=True))
            return tuple(x.topk(k, dim, largest))

        agree(first, x)


def test_a_schedule_serves_rows_of_other_lengths() -> None:
    """Where as many blocks are there and the last is longer than what is wanted; else there is another one."""
    planned = []
    for n in (5000, 5999, 6100, 4096 + 20):
        x = draw(2, n)
        y = to_tab(x, "webgpu")
        graph.flush()
        before = graph.counts["schedules"]
        values, places = y.topk(50)
        graph.flush()
        planned.append(graph.counts["schedules"] - before)
        want = x.sort(dim=1, descending=True, stable=True)
        assert torch.equal(torch.from_numpy(values.numpy()), want[0][:, :50])
        assert torch.equal(torch.from_numpy(places.numpy()), want[1][:, :50])
    assert planned[1:3] == [0, 0], planned


def test_gradient() -> None:
    def gradient(x: Any) -> Any:
        x = x.detach().requires_grad_()
        (x.sort(1)[0] * x.detach()).sum().backward()
        return x.grad

    agree(gradient, draw(2, 800))


def test_little_workgroup_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target(0), "workgroup_bytes", 16384)
    agree(stable(), draw(2, 2100), 4)  # blocks of 1,024, and two merges
    agree(stable(), (draw(2, 1500) * 1000).long(), 3)


@pytest.mark.parametrize("lengths", [(70, 101, 333, 512), (2100, 4096, 3001)])
def test_a_schedule_serves_all_lengths_of_a_class(lengths: tuple[int, ...]) -> None:
    before = graph.counts["schedules"]
    for n in lengths:
        agree(lambda x: x.argsort(dim=1, stable=True), (draw(3, n) * 9).round(), 1 if n <= 512 else 2)
    assert graph.counts["schedules"] <= before + 1


def test_grids_that_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are more workgroups than a grid has along one dimension, the last ones have nothing to do."""
    monkeypatch.setattr(sort_kernel, "grid_for", lambda n, _: [2, 3, -(-n // 6)])
    agree(stable(), draw(11, 70))
    agree(stable(), draw(2, 2600))
