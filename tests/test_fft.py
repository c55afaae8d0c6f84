"""Fourier transforms beside PyTorch: lengths of every kind, accuracy, layouts, gradients, errors, what they cost."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import tabtorch
from tabtorch.engine import graph

#: registers only, passes of several radices, prime factors by a loop, primes that need a chirp
LENGTHS = (1, 7, 16, 30, 121, 127, 480, 1009, 70001)


def ours(x: torch.Tensor, device: str) -> Any:
    return tabtorch.from_numpy(x.detach().resolve_conj().numpy().copy()).to(device).requires_grad_(x.requires_grad)


def theirs(x: Any) -> torch.Tensor:
    return torch.from_numpy(x.detach().cpu().numpy())


def error(x: Any, want: torch.Tensor) -> float:
    """The largest error, in units of the root mean square of the values."""
    return float((theirs(x) - want).abs().max() / want.abs().pow(2).mean().sqrt())


@pytest.mark.parametrize("n", LENGTHS)
def test_lengths(device: str, n: int) -> None:
    torch.manual_seed(n)
    z = torch.randn(2, n, dtype=torch.complex64)
    wide = z.to(torch.complex128)
    for name, x, at in (("fft", z, {}), ("ifft", z, {}), ("rfft", z.real, {}), ("hfft", z[:, : n // 2 + 1], {"n": n})):
        if n > 50000 and name != "fft":
            return
        double = wide.real if name == "rfft" else wide[:, : x.shape[1]]
        got = getattr(tabtorch.fft, name)(ours(x.contiguous(), device), **at)
        assert error(got, getattr(torch.fft, name)(double, **at)) < 3e-6, name
    back = tabtorch.fft.irfft(tabtorch.fft.rfft(ours(z.real.contiguous(), device)), n)
    assert error(back, z.real.contiguous()) < 3e-6


def test_precision(device: str) -> None:
    """A pure tone stays in its own place: what leaks is what angles and roundings lost."""
    n = 1 << 14
    tone = torch.exp(2j * torch.pi * 1237 * torch.arange(n, dtype=torch.float64) / n).to(torch.complex64)
    spectrum = theirs(tabtorch.fft.fft(ours(tone, device))) / n
    assert abs(spectrum[1237] - 1) < 1e-6
    spectrum[1237] = 0
    assert spectrum.abs().max() < 1e-7
    if device == "cpu":
        x = torch.randn(3, 2003, dtype=torch.complex128)
        assert error(tabtorch.fft.fft(ours(x, device)), torch.fft.fft(x)) < 1e-14


@pytest.mark.parametrize(
    ("name", "shape", "options"),
    [
        ("fft", (3, 4, 5), {"dim": 0}),
        ("fft", (3, 4, 5), {"dim": 1, "n": 9, "norm": "ortho"}),
        ("fftn", (3, 4, 5), {}),
        ("fftn", (3, 4, 5), {"dim": (2, 0), "norm": "forward"}),
        ("fftn", (3, 4, 5), {"dim": ()}),
        ("ifft2", (3, 4, 5), {"s": (2, 7)}),
        ("rfft2", (3, 4, 5), {}),
        ("rfftn", (3, 4, 5), {"dim": (1, 0), "norm": "ortho"}),
        ("irfft2", (3, 4, 5), {"s": (-1, 9)}),
        ("irfftn", (3, 4, 5), {"dim": (2, 0)}),
        ("hfftn", (3, 4, 5), {"dim": (1, 0), "norm": "forward"}),
        ("ihfft2", (3, 4, 5), {"norm": "ortho"}),
        ("ihfftn", (3, 4, 5), {"dim": (0, 1)}),
    ],
)
def test_layouts(device: str, name: str, shape: tuple[int, ...], options: dict[str, Any]) -> None:
    """Values of contiguous, transposed, sliced and expanded input, and of integers; strides of the contiguous."""
    torch.manual_seed(0)
    x = torch.randn(shape)
    views = (
        lambda t: t,
        lambda t: t.transpose(0, 2).contiguous().transpose(0, 2),
        lambda t: t[1:, :, ::2],
        lambda t: t[:1].expand(3, 4, 5),
        lambda t: (t * 5).int(),
    )
    for look in views:
        want = getattr(torch.fft, name)(look(x), **options)
        got = getattr(tabtorch.fft, name)(look(ours(x, device)), **options)
        torch.testing.assert_close(theirs(got), want.resolve_conj())
        if look(x).is_contiguous():
            assert got.stride() == want.stride()


def test_gradients(device: str) -> None:
    """First and second ones, of every kind, with more and fewer points than the input has, by a long prime too."""
    torch.manual_seed(0)
    for name, n in (
        ("fft", 6),
        ("fft", 3),
        ("rfft", 5),
        ("rfft", 8),
        ("irfft", 8),
        ("irfft", 5),
        ("hfft", 4),
        ("ihfft", 7),
        ("fft", 131),
    ):
        x = torch.randn(2, 5, requires_grad=True)
        found = []
        for m, leaf in ((torch, x), (tabtorch, ours(x, device))):
            y = getattr(m.fft, name)(leaf * leaf, n=n)
            y = y.abs() if y.is_complex() else y
            (g,) = m.autograd.grad((y * y * y).sum(), leaf, create_graph=True)
            (h,) = m.autograd.grad((g * g).sum(), leaf)
            found.append((g.detach(), h))
        for want, got in zip(*found, strict=True):
            torch.testing.assert_close(theirs(got), want, rtol=1e-4, atol=1e-2 * float(want.abs().max()) * 1e-2)


def test_frames(device: str) -> None:
    torch.manual_seed(0)
    x, w = torch.randn(2, 300), torch.hann_window(40)
    mine, window = ours(x, device), ours(w, device)
    for options in (
        {"n_fft": 40, "hop_length": 10},
        {"n_fft": 48, "hop_length": 7, "win_length": 40, "normalized": True},
        {"n_fft": 40, "onesided": False},
    ):
        want = torch.stft(x, window=w, return_complex=True, **options)
        got = tabtorch.stft(mine, window=window, return_complex=True, **options)
        assert got.stride() == want.stride()
        torch.testing.assert_close(theirs(got), want, rtol=1e-5, atol=1e-5)
        back = tabtorch.istft(got, window=window, length=300, **options)
        torch.testing.assert_close(
            theirs(back), torch.istft(want, window=w, length=300, **options), rtol=1e-5, atol=1e-5
        )
    gap = tabtorch.stft(mine, 40, window=window, return_complex=True), 40
    if device == "cpu":
        with pytest.raises(RuntimeError, match="window overlap add min: 1"):
            tabtorch.istft(*gap, window=window, center=False)
    else:  # to know it would wait for the GPU
        assert tabtorch.istft(*gap, window=window, center=False)[0, 0].isnan()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(RuntimeError, match="requires the return_complex parameter be given"):
            mine.stft(40)


@pytest.mark.parametrize(
    "line",
    [
        "m.fft.fft(x.half())",
        "m.fft.fft(x, n=0)",
        "m.fft.irfft(m.zeros(2, 1))",
        "m.fft.rfft(z)",
        "m.fft.ihfft2(z)",
        "m.fft.fft(x, norm='bad')",
        "m.fft.fftn(x, dim=(0, -2))",
        "m.fft.fftn(x, s=(1, 2, 3))",
        "m.fft.fftn(x, s=(1, 2), dim=0)",
        "m.fft.rfftn(x, dim=())",
        "m.fft.fft(m.ones(()))",
        "m.fft.fft2(x[0])",
        "m.fft.fft(x, out=m.empty(0))",
        "m.fft.irfft(x, out=m.empty(0, dtype=m.complex64))",
        "m.fft.fft(x, n=2.5)",
        "m.fft.fftfreq(4, dtype=m.int64)",
        "m.fft.fftfreq(-1)",
    ],
)
def test_errors(device: str, line: str) -> None:
    raised = []
    for m in (torch, tabtorch):
        place = {"device": device} if m is tabtorch else {}
        x, z = m.ones(4, 5, **place), m.ones(4, 5, dtype=m.complex64, **place)
        with pytest.raises(Exception) as e:
            eval(line, {"m": m, "x": x, "z": z})
        raised.append((e.type.__name__, str(e.value)))
    assert raised[0] == raised[1]


def test_cost(device: str) -> None:
    """A pass a radix whatever the batch; no reading; a new length with known radices compiles nothing."""
    stats = []
    for n in (1000, 100, 1600):
        x = tabtorch.ones(5, n, dtype=tabtorch.complex64, device=device)
        graph.flush()
        graph.bridge().reset_stats()
        y = tabtorch.fft.ifft(x)
        graph.flush()
        stats.append(graph.bridge().stats())
        assert y.shape == (5, n)
    assert [s["dispatches"] for s in stats] == [3, 2, 3]
    assert stats[1]["kernels"] == 0
    assert all(s["reads"] == 0 for s in stats)
