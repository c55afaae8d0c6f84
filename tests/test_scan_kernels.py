"""Scans by the kernels of GPUs with workgroup memory, beside PyTorch's. A software adapter has other forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tabtorch
from sidebyside import to_tab
from tabtorch.engine import graph
from tabtorch.engine.target import target
from tabtorch.ops.reductions import scan_kernel
from test_counts import counted

pytestmark = pytest.mark.usefixtures("made_up_gpu")


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def agree(f: Callable[[Any], Any], x: torch.Tensor, dispatches: int | None = None, **tolerance: float) -> None:
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
        b = b.float() if b.dtype is tabtorch.bfloat16 else b
        a = a.float() if a.dtype is torch.bfloat16 else a
        torch.testing.assert_close(torch.from_numpy(b.numpy()), a, equal_nan=True, **tolerance)


@pytest.mark.parametrize("shape", [(512,), (2049,), (3, 4100), (3, 5002), (2, 2, 700), (300, 600)])
def test_sums_of_rows(shape: tuple[int, ...]) -> None:
    one = len(shape) > 1 and shape[0] == 300 or shape[-1] <= 4096
    agree(lambda x: x.cumsum(-1), draw(*shape), 1 if one else 3, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("n", [(1 << 20) + 3000, (1 << 19) + 77])
def test_long_sums(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk has a block, or several."""
    agree(lambda x: x.cumsum(0), draw(n), 3, rtol=1e-6, atol=1e-5)
    monkeypatch.setattr(scan_kernel, "_CHUNKS", 40)
    agree(lambda x: x.cumsum(0).abs(), draw(n), rtol=1e-6, atol=1e-5)
    agree(lambda x: tuple((x * 2).cummax(0)), draw(n))


def test_more_chunks_than_a_small_block_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_kernel, "_MIDDLE", 100)
    agree(lambda x: -x.cumsum(0), draw(600_000), rtol=1e-6, atol=2e-5)


def test_little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of 8 bytes go out at once where workgroups have as little memory as WebGPU grants."""
    monkeypatch.setattr(target(0), "workgroup_bytes", 16384)
    agree(lambda x: (x * 3).long().cumsum(1), draw(2, 5000))


def test_numbers_that_cancel() -> None:
    x = torch.tensor([1e8, 1.0, -1e8, 1.0] * 2000)
    agree(lambda x: x.cumsum(0), x, rtol=0, atol=0)


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int32, torch.uint8, torch.bool, torch.float16, torch.bfloat16, torch.complex64]
)
def test_types(dtype: torch.dtype) -> None:
    x = draw(2, 2600) * 3
    x = x.abs().to(dtype) if dtype is torch.uint8 else x > 0 if dtype is torch.bool else x.to(dtype)
    wide = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}.get(dtype, 1e-5)
    agree(lambda x: x.cumsum(1), x, rtol=wide, atol=wide)


@pytest.mark.parametrize("n", [2600, 2603])
def test_from_the_end(n: int) -> None:
    def gradient(x: Any) -> Any:
        x = x.detach().requires_grad_()
        (x.cumsum(1) * x.detach().cos()).sum().backward()
        return x.grad

    agree(gradient, draw(2, n), rtol=1e-5, atol=1e-4)


def test_other_scans() -> None:
    x = draw(2, 2600)
    agree(lambda x: tuple(x.cummax(1)), x)
    agree(lambda x: tuple(x.cummin(1)), x)
    agree(lambda x: tuple(x.round().cummax(1)), x)  # of equal ones the last
    agree(lambda x: x.logcumsumexp(1), x, rtol=1e-5, atol=1e-5)
    agree(lambda x: (x * 0.01 + 1).cumprod(1), x, rtol=1e-5, atol=1e-6)
    agree(lambda x: (x * 4).long().cummin(1)[1], x)
    x[0, 100], x[1, 2100], x[0, 2300] = torch.nan, torch.inf, -torch.inf
    agree(lambda x: x.cumsum(1), x, rtol=1e-5, atol=1e-4)
    agree(lambda x: tuple(x.cummax(1)), x)
    agree(lambda x: x.logcumsumexp(1), x, rtol=1e-5, atol=1e-5)


def test_views() -> None:
    x = draw(3, 4, 700)
    agree(lambda x: x[1:, :, 5:].cumsum(-1), x, 1, rtol=1e-5, atol=1e-5)
    agree(lambda x: x.transpose(0, 1)[::2].cumsum(2), x, 1, rtol=1e-5, atol=1e-5)
    agree(lambda x: x.permute(2, 0, 1).contiguous().permute(1, 2, 0).cumsum(2), x, rtol=1e-5, atol=1e-5)


def test_a_schedule_serves_all_lengths_of_a_class() -> None:
    before = graph.counts["schedules"]
    for n in (600, 777, 2048, 1500):
        agree(lambda x: x.cumsum(-1), draw(3, n), 1, rtol=1e-6, atol=1e-5)
    assert graph.counts["schedules"] <= before + 1
