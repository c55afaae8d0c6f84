"""Random draws: of the device's own generator, or of one that begins at `seed` each time."""

from __future__ import annotations

import struct
from typing import Any

import tabtorch as torch
from tabtorch.onnx.registry import Bool, Float, Tensor, operator
from tabtorch.onnx.values import dtype_of


def generator(seed: float | None, device: Any) -> Any:
    """None without a seed. A seed that is a float counts by its bits, so that 0.1 and 0.2 differ."""
    if seed is None:
        return None
    number = seed if isinstance(seed, int) else int.from_bytes(struct.pack("<f", seed), "little")
    return torch.Generator(torch.empty(0, device=device).device).manual_seed(number)


@operator("RandomUniform")
def random_uniform(
    *, shape: list[int], dtype: int = 1, high: float = 1.0, low: float = 0.0, seed: float | None = None, run: Any
) -> Tensor:
    found = torch.rand(shape, device=run.device, generator=generator(seed, run.device))
    return (found * (high - low) + low).to(dtype_of(dtype))


@operator("RandomNormal")
def random_normal(
    *, shape: list[int], dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float | None = None, run: Any
) -> Tensor:
    found = torch.randn(shape, device=run.device, generator=generator(seed, run.device))
    return (found * scale + mean).to(dtype_of(dtype))


def _like(f: Any) -> Any:
    def run(x: Tensor, *, dtype: int | None = None, run: Any, **given: Any) -> Tensor:
        found = f(shape=list(x.shape), run=run, **given)
        return found.to(x.dtype if dtype is None else dtype_of(dtype))

    return run


operator("RandomUniformLike")(_like(random_uniform))
operator("RandomNormalLike")(_like(random_normal))


@operator("Bernoulli")
def bernoulli(x: Tensor, *, dtype: int | None = None, seed: float | None = None) -> Tensor:
    return torch.bernoulli(x, generator=generator(seed, x.device)).to(x.dtype if dtype is None else dtype_of(dtype))


@operator("Multinomial")
def multinomial(x: Tensor, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None) -> Tensor:
    """`x`: logarithms of (batch, classes), of any sum."""
    weights = torch.softmax(x, -1)
    found = torch.multinomial(weights, sample_size, replacement=True, generator=generator(seed, x.device))
    return found.to(dtype_of(dtype))


@operator("Dropout", since=12)
def dropout(
    x: Tensor,
    ratio: Float | None = None,
    training_mode: Bool | None = None,
    *,
    seed: int | None = None,
    outputs: int = 1,
) -> Any:
    p = 0.5 if ratio is None else ratio
    if not training_mode or p == 0:
        return (x, torch.ones_like(x, dtype=torch.bool))[:outputs]
    kept = torch.rand(x.shape, device=x.device, generator=generator(seed, x.device)) >= p
    return (torch.where(kept, x / (1 - p) if p < 1 else x, torch.zeros_like(x)), kept)[:outputs]


@operator("Dropout")
def dropout_by_attribute(
    x: Tensor, *, ratio: float = 0.5, is_test: int = 1, consumed_inputs: Any = None, outputs: int = 1
) -> Any:
    return (x, torch.ones_like(x, dtype=torch.bool))[:outputs]
