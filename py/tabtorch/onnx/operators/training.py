"""Steps of optimizers, `ai.onnx.preview.training`: of several tensors at once, first all of them, then all their gradients, …"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabtorch.onnx.registry import Int, Tensor, operator

DOMAIN = "ai.onnx.preview.training"


def _each(kinds: int, tensors: tuple[Any, ...], step: Callable[..., tuple[Tensor, ...]]) -> tuple[Any, ...]:
    """What `step` makes of each tensor, its gradient and its states, in the order of ONNX's outputs."""
    n = len(tensors) // kinds
    found = [step(*(tensors[k * n + i] for k in range(kinds))) for i in range(n)]
    return tuple(column for row in zip(*found) for column in row)


@operator("Adagrad", domain=DOMAIN)
def adagrad(
    rate: Tensor,
    count: Int,
    *tensors: Tensor,
    decay_factor: float = 0.0,
    epsilon: float = 0.0,
    norm_coefficient: float = 0.0,
) -> Any:
    r = rate / (1 + count * decay_factor)

    def step(x: Tensor, grad: Tensor, squares: Tensor) -> tuple[Tensor, ...]:
        g = norm_coefficient * x + grad
        h = squares + g * g
        return x - r * g / (h.sqrt() + epsilon), h

    return _each(3, tensors, step)


@operator("Adam", domain=DOMAIN)
def adam(
    rate: Tensor,
    count: Int,
    *tensors: Tensor,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 0.0,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> Any:
    r = rate * ((1 - beta**count) ** 0.5 / (1 - alpha**count)) if count > 0 else rate

    def step(x: Tensor, grad: Tensor, mean: Tensor, squares: Tensor) -> tuple[Tensor, ...]:
        g = norm_coefficient * x + grad
        v, h = alpha * mean + (1 - alpha) * g, beta * squares + (1 - beta) * g * g
        return (1 - norm_coefficient_post) * (x - r * v / (h.sqrt() + epsilon)), v, h

    return _each(4, tensors, step)


@operator("Momentum", domain=DOMAIN)
def momentum(
    rate: Tensor,
    count: Int,
    *tensors: Tensor,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> Any:
    def step(x: Tensor, grad: Tensor, velocity: Tensor) -> tuple[Tensor, ...]:
        g = norm_coefficient * x + grad
        v = alpha * velocity + (beta if count > 0 else 1.0) * g
        return x - rate * (g + alpha * v if mode == "nesterov" else v), v

    return _each(3, tensors, step)
