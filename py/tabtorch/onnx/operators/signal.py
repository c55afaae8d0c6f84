"""Fourier transforms, windows, and mel filters. A complex number is an axis of two at the end, as ONNX has it."""

from __future__ import annotations

import math
from typing import Any

import tabtorch as torch
from tabtorch.onnx.registry import Float, Int, Tensor, operator
from tabtorch.onnx.values import dtype_of


def _pairs(x: Tensor) -> Tensor:
    """Complex numbers of a last axis of one or two; real ones stay real."""
    return torch.view_as_complex(x.contiguous()) if x.shape[-1] == 2 else x.squeeze(-1)


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


@operator("DFT", since=20)
def dft(
    x: Tensor, length: Int | None = None, axis: Int | None = None, *, inverse: int = 0, onesided: int = 0
) -> Tensor:
    a = (-2 if axis is None else axis) % x.dim()
    z = _pairs(_wide(x))
    if inverse and onesided:  # the half of a spectrum gives real numbers
        return torch.fft.irfft(z, length, a).unsqueeze(-1).to(x.dtype)
    f = torch.fft.ifft if inverse else torch.fft.rfft if onesided else torch.fft.fft
    return torch.view_as_real(f(z, length, a)).to(x.dtype)


@operator("DFT")
def dft_by_attribute(
    x: Tensor, length: Int | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> Tensor:
    return dft(x, length, axis, inverse=inverse, onesided=onesided)


@operator("STFT")
def stft(
    signal: Tensor, step: Int, window: Tensor | None = None, length: Int | None = None, *, onesided: int = 1
) -> Tensor:
    x = _wide(signal)
    z = _pairs(x) if x.dim() == 3 else x
    n = length if length is not None else z.shape[1] if window is None else window.shape[0]
    frames = z.unfold(1, n, step)
    if window is not None:
        frames = frames * window.to(x.dtype)
    f = torch.fft.rfft if onesided and not z.is_complex() else torch.fft.fft
    return torch.view_as_real(f(frames)).to(signal.dtype)


def _window(a: float, b: float, c: float) -> Any:
    """The window a - b cos + c cos 2: one period of it, or from end to end."""

    def run(size: Int, *, output_datatype: int = 1, periodic: int = 1, run: Any) -> Tensor:
        turn = 2 * math.pi / max(1, size if periodic else size - 1)
        values = [a - b * math.cos(turn * i) + c * math.cos(2 * turn * i) for i in range(size)]
        return torch.tensor(values, dtype=dtype_of(output_datatype), device=run.device)

    return run


operator("HannWindow")(_window(0.5, 0.5, 0.0))
operator("HammingWindow")(_window(25 / 46, 21 / 46, 0.0))
operator("BlackmanWindow")(_window(0.42, 0.5, 0.08))


@operator("MelWeightMatrix")
def mel_weight_matrix(
    bins: Int, length: Int, rate: Int, lower: Float, upper: Float, *, output_datatype: int = 1, run: Any
) -> Tensor:
    low, high = (2595 * math.log10(1 + f / 700) for f in (lower, upper))
    step = (high - low) / (bins + 2)
    edges = [int((length + 1) * 700 * (10 ** ((low + i * step) / 2595) - 1) // rate) for i in range(bins + 2)]
    rows = [[0.0] * bins for _ in range(length // 2 + 1)]
    for i, (a, center, b) in enumerate(zip(edges, edges[1:], edges[2:])):
        rows[center][i] = 1.0
        for j in range(a, center):
            rows[j][i] = (j - a) / (center - a)
        for j in range(center, b):
            rows[j][i] = (b - j) / (b - center)
    return torch.tensor(rows, dtype=dtype_of(output_datatype), device=run.device)
