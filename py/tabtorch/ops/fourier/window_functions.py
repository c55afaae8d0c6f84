"""Window functions of signal processing: `hann_window` and its kin. Nothing is computed on the host."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tabtorch import _lazy, ops
from tabtorch.base import dtypes
from tabtorch.core.creation import finished
from tabtorch.core.tensor import Tensor
from tabtorch.ops.machinery.registry import register
from tabtorch.ops.machinery.signatures import NEW, listed, wrong_arguments


def _options(d: Any, device: Any) -> str:
    """How PyTorch prints these options."""
    name = {"int64": "long int", "int32": "int", "int16": "short int", "int8": "signed char", "uint8": "unsigned char"}
    return (
        f"TensorOptions(dtype={name.get(d.name, d.name)}, device={_lazy.creation.placed(d, device).type}, layout=Strided (default), "
        "requires_grad=false (default), pinned_memory=false, memory_format=(nullopt))"
    )


def _window(
    name: str,
    length: Any,
    periodic: bool,
    formula: Callable[[Any, int], Any],
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    **unknown: Any,
) -> Tensor:
    """`formula(n, N)` of n = 0 … length - 1; a periodic window is the symmetric one of a length more without its last.

    TypeError for other keywords: PyTorch has no `out` here.
    """
    if unknown:
        heads = ("int window_length, *", "int window_length, bool periodic, *")
        raise wrong_arguments(name, (length,), unknown, listed(*(f"{h}, {NEW.partition(', ')[2]}" for h in heads)))
    if not hasattr(type(length), "__index__") or isinstance(length, bool):
        raise TypeError(f"{name}(): argument 'window_length' (position 1) must be int, not {type(length).__name__}")
    length = length.__index__()
    d = dtype or dtypes.get_default_dtype()
    _lazy.creation.check_strided("arange", {"layout": layout})
    if d.category < 2:
        raise RuntimeError(f"{name} expects floating point dtypes, got: {_options(d, device)}")
    if d.is_complex:
        raise NotImplementedError(
            '"arange_cpu" not implemented for \'Complex' + ("Float'" if d.itemsize == 8 else "Double'")
        )
    if length < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got window_length={length}")
    if length <= 1:
        w = ops.ones((length,), dtype=d, device=device)
    else:
        at = ops.arange(length, dtype=dtypes.float32 if d.itemsize == 2 else d, device=device)
        w = formula(at, length + bool(periodic)).to(d)
    return finished(w, requires_grad)


@register("hamming_window")
def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, **options: Any
) -> Tensor:
    """alpha - beta · cos(2π n / (N - 1)). Keywords: dtype, layout, device, pin_memory, requires_grad."""
    return _window(
        "hamming_window",
        window_length,
        periodic,
        lambda at, n: (at * (2 * math.pi / (n - 1))).cos() * -beta + alpha,
        **options,
    )


@register("hann_window")
def hann_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """(1 - cos(2π n / (N - 1))) / 2. Keywords: dtype, layout, device, pin_memory, requires_grad."""
    return _window(
        "hann_window",
        window_length,
        periodic,
        lambda at, n: (at * (2 * math.pi / (n - 1))).cos() * -0.5 + 0.5,
        **options,
    )


@register("blackman_window")
def blackman_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """0.42 - 0.5 cos(2π n / (N - 1)) + 0.08 cos(4π n / (N - 1)). Keywords: dtype, layout, device, requires_grad."""

    def formula(at: Any, n: int) -> Any:
        a = at * (math.pi / (n - 1))
        return (a * 4).cos() * 0.08 - (a * 2).cos() * 0.5 + 0.42

    return _window("blackman_window", window_length, periodic, formula, **options)


@register("bartlett_window")
def bartlett_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """1 - |2 n / (N - 1) - 1|. Keywords: dtype, layout, device, pin_memory, requires_grad."""

    def formula(at: Any, n: int) -> Any:
        w = at * (2 / (n - 1))
        return ops.where(at < ((n - 1) >> 1) + 1, w, 2 - w)

    return _window("bartlett_window", window_length, periodic, formula, **options)


@register("kaiser_window")
def kaiser_window(window_length: int, periodic: bool = True, beta: float = 12.0, **options: Any) -> Tensor:
    """i0(beta · sqrt(1 - (2 n / (N - 1) - 1)²)) / i0(beta). Keywords: dtype, layout, device, requires_grad."""

    def formula(at: Any, n: int) -> Any:
        x = at * (2 / (n - 1)) - 1
        top = ops.i0((1 - x * x).clamp(min=0).sqrt() * beta)
        return top / ops.i0(ops.full_like(at, beta))

    return _window("kaiser_window", window_length, periodic, formula, **options)
