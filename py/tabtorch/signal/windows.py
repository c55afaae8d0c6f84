"""`torch.signal.windows`: windows of M points, symmetric or (`sym=False`) periodic, computed on the device they are for.

Keywords of all: dtype (float32 or float64), layout, device, requires_grad. ValueError for other types and layouts, for
negative M, and for parameters out of their range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from tabtorch import ops
from tabtorch.base import dtypes
from tabtorch.core.layout import strided
from tabtorch.core.tensor import Tensor

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann",
    "kaiser", "nuttall",
]  # fmt: skip


class _Window:
    """The checks and the points that all windows share."""

    def __init__(
        self, name: str, M: int, sym: bool, *, dtype: Any = None, layout: Any = strided, device: Any = None, requires_grad: bool = False
    ) -> None:  # fmt: skip
        dtype = dtype or dtypes.get_default_dtype()
        if M < 0:
            raise ValueError(f"{name} requires non-negative window length, got M={M}")
        if layout is not strided:
            raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
        if dtype not in (dtypes.float32, dtypes.float64):
            raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype}")
        self.M = M
        self.options = {"dtype": dtype, "device": device, "requires_grad": requires_grad}
        #: the number of steps of a period, where one point is none
        self.period = M if not sym and M > 1 else max(M - 1, 0)

    def __call__(self, formula: Callable[[Any], Any], start: float, step: float, ones: bool = False) -> Tensor:
        """`formula` of M points from `start`, `step` apart; a single one is 1 where `ones`."""
        if self.M == 0:
            return ops.empty((0,), **self.options)
        if self.M == 1 and ones:
            return ops.ones((1,), **self.options)
        return formula(ops.linspace(start, start + (self.M - 1) * step, self.M, **self.options))


def exponential(M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, **options: Any) -> Tensor:
    """exp(-|n - center| / tau). `center`, of periodic windows only: the middle."""
    w = _Window("exponential", M, sym, **options)
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    at = w.period / 2.0 if center is None else center
    return w(lambda k: (-k.abs()).exp(), -at / tau, 1 / tau)


def cosine(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """sin(pi (n + 0.5) / M)."""
    w = _Window("cosine", M, sym, **options)
    step = math.pi / (w.period + 1)
    return w(lambda k: k.sin(), 0.5 * step, step)


def gaussian(M: int, *, std: float = 1.0, sym: bool = True, **options: Any) -> Tensor:
    """exp(-(n - middle)² / (2 std²))."""
    w = _Window("gaussian", M, sym, **options)
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    step = 1 / (std * math.sqrt(2))
    return w(lambda k: (-(k**2)).exp(), -w.period / 2.0 * step, step)


def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, **options: Any) -> Tensor:
    """i0(beta sqrt(1 - (2 n / N - 1)²)) / i0(beta)."""
    w = _Window("kaiser", M, sym, **options)
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")

    def formula(k: Any) -> Any:
        b = ops.full_like(k, beta)
        return (b * b - k * k).clamp(min=0).sqrt().i0() / b.i0()

    return w(formula, -beta, 2.0 * beta / max(w.period, 1), ones=True)


def hamming(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """0.54 - 0.46 cos(2 pi n / N)."""
    return general_hamming(M, sym=sym, **options)


def hann(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """(1 - cos(2 pi n / N)) / 2."""
    return general_hamming(M, alpha=0.5, sym=sym, **options)


def blackman(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N)."""
    _Window("blackman", M, sym, **options)
    return general_cosine(M, a=[0.42, 0.5, 0.08], sym=sym, **options)


def bartlett(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """1 - |2 n / N - 1|."""
    w = _Window("bartlett", M, sym, **options)
    return w(lambda k: 1 - k.abs(), -1, 2 / max(w.period, 1), ones=True)


def general_cosine(M: int, *, a: Iterable[float], sym: bool = True, **options: Any) -> Tensor:
    """Sum of (-1)^i a[i] cos(2 pi i n / N). TypeError, ValueError: `a` is no list, is empty."""
    w = _Window("general_cosine", M, sym, **options)
    if M > 1:
        if not isinstance(a, Iterable):
            raise TypeError("Coefficients must be a list/tuple")
        if not a:
            raise ValueError("Coefficients cannot be empty")

    def formula(k: Any) -> Any:
        c = ops.tensor([(-1) ** i * x for i, x in enumerate(a)], **(w.options | {"device": k.device}))
        i = ops.arange(len(c), dtype=k.dtype, device=k.device)
        return (c.unsqueeze(-1) * (i.unsqueeze(-1) * k).cos()).sum(0)

    return w(formula, 0, 2 * math.pi / max(w.period, 1), ones=True)


def general_hamming(M: int, *, alpha: float = 0.54, sym: bool = True, **options: Any) -> Tensor:
    """alpha - (1 - alpha) cos(2 pi n / N)."""
    return general_cosine(M, a=[alpha, 1.0 - alpha], sym=sym, **options)


def nuttall(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """0.3635819 - 0.4891775 cos(z) + 0.1365995 cos(2 z) - 0.0106411 cos(3 z), z = 2 pi n / N."""
    return general_cosine(M, a=[0.3635819, 0.4891775, 0.1365995, 0.0106411], sym=sym, **options)
