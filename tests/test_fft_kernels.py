"""Fourier transforms of rows in the memory of a workgroup, beside PyTorch's. A software adapter takes a dispatch a pass; here it
is told that it is a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tabtorch
from sidebyside import to_tab
from tabtorch.engine import graph
from tabtorch.engine.target import target
from test_counts import counted

pytestmark = pytest.mark.usefixtures("made_up_gpu")


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def agree(f: Callable[[Any, Any], Any], x: torch.Tensor, dispatches: int | None = 1) -> None:
    """`f(library, x)` is PyTorch's result, precise to 3e-6 of the root mean square, in so many dispatches."""
    want = f(torch, x.to(torch.complex128 if x.is_complex() else torch.float64))
    y = to_tab(x, "webgpu")
    graph.flush()
    with counted() as count:
        got = f(tabtorch, y)
        graph.flush()
    assert dispatches is None or count.dispatches == dispatches
    found = torch.from_numpy(got.detach().numpy())
    assert found.shape == want.shape
    error = float((found - want).abs().max() / want.abs().pow(2).mean().sqrt())
    assert error < 3e-6


#: two passes, three, four; several rows a workgroup, and more than fit evenly
@pytest.mark.parametrize("shape", [(70, 32), (5, 210), (3, 1715), (2, 2048)])
def test_lengths(shape: tuple[int, int]) -> None:
    x = torch.complex(draw(*shape), draw(shape[1], shape[0]).T.contiguous())
    agree(lambda lib, x: lib.fft.fft(x), x)


def test_kinds() -> None:
    x = torch.complex(draw(3, 18), draw(18, 3).T.contiguous())
    agree(lambda lib, x: lib.fft.ifft(x, norm="ortho"), x)
    agree(lambda lib, x: lib.fft.rfft(x), x.real.contiguous())
    agree(lambda lib, x: lib.fft.irfft(x, n=18), x[:, :10].contiguous())


def test_views() -> None:
    x = draw(3, 40, 6)
    agree(lambda lib, x: lib.fft.fft(x[1:, ::2], dim=1), x)
    agree(lambda lib, x: lib.fft.fft(x, n=64, dim=1), x)  # more points than the input has
    agree(lambda lib, x: lib.fft.fft(x, n=30, dim=1), x)
    agree(lambda lib, x: lib.fft.fft2(x, dim=(1, 0)), draw(20, 40, 6), 2)


def test_gradients() -> None:
    def gradient(lib: Any, x: Any) -> Any:
        x = x.detach().requires_grad_()
        (lib.fft.rfft(x, n=96).abs() ** 2).sum().backward()
        return x.grad

    agree(gradient, draw(3, 80), None)


def test_lengths_that_do_not_fit() -> None:
    """Longer rows, and those with a prime factor that is no radix, take a dispatch a pass."""
    agree(lambda lib, x: lib.fft.fft(x), draw(2, 4096), 3)
    agree(lambda lib, x: lib.fft.fft(x), draw(2, 13 * 16), 3)  # two passes, and the roots


def test_little_workgroup_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target(0), "workgroup_bytes", 16384)
    agree(lambda lib, x: lib.fft.fft(x), draw(2, 768))
    agree(lambda lib, x: lib.fft.fft(x), draw(2, 2048), 3)
