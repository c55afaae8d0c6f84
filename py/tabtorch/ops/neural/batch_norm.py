"""Batch normalization with the batch's own statistics: mean and variance in one walk over each channel, and backward another.

The gradient is the closed form (Ioffe and Szegedy, 2015, section 3). With xn the normalized input and n values in a channel,
gx = w / sqrt(var + eps) · (g - sum(g) / n - xn · sum(g · xn) / n), and the two sums are the gradients of bias and weight.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tabtorch.autograd.grad_mode import STATE, quiet
from tabtorch.autograd.tape import record
from tabtorch.core.tensor import Tensor
from tabtorch.engine.expr import const, maximum
from tabtorch.engine.graph import Reduce
from tabtorch.ops.reductions.reduce import mean, reduce, sum


def _join(a: tuple, b: tuple) -> tuple:
    """Count, mean and squared distances from it of two sets as one (Chan, Golub and LeVeque, 1979). No square of a difference
    stands alone: it could be infinite beside a count of zero."""
    count = a[0] + b[0]
    off = b[1] - a[1]
    part = off * (b[0] / maximum(count, const(1, count.type)))
    return count, a[1] + part, a[2] + b[2] + off * a[0] * part


#: the squared distances from the mean, summed, without a walk that finds the mean first
SQUARES_OFF = Reduce(
    "squares off",
    lambda t: (const(0, t), const(0, t), const(0, t)),
    lambda v, k: (const(1, v.type), v, const(0, v.type)),
    _join,
    lambda s: s[2],
)


def _statistics(x: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Any]:
    """Mean and biased variance over `dims`, which are kept. Recorded, and then in two walks, where gradients are."""
    middle = mean(x, dims, True)
    if STATE.grad and x._rg:
        off: Any = x - middle
        return middle, mean(off * off, dims, True)
    total: Any = reduce(SQUARES_OFF, x, dims, True)
    return middle, total * (1 / max(1, prod(x.shape[d] for d in dims)))


def batch_norm(x: Tensor, dims: tuple[int, ...], weight: Any, bias: Any, eps: float) -> tuple[Any, Tensor, Tensor]:
    """x normalized over `dims`, times `weight`, plus `bias` (None: without; else of a size that broadcasts); mean; biased variance.

    The statistics have size 1 over `dims`, and no history.
    """
    with quiet():
        middle, var = _statistics(x, dims)
        root: Any = (var + eps).rsqrt()
        y: Any = (x - middle) * root
        if weight is not None:
            y = y * weight
        if bias is not None:
            y = y + bias
    n = max(1, prod(x.shape[d] for d in dims))

    def back(g: Any, x: Any, middle: Any, root: Any, weight: Any) -> Any:
        if STATE.grad:  # to be differentiated again, by way of the statistics, too
            middle, var = _statistics(x, dims)
            root = (var + eps).rsqrt()
        off = (x - middle) * root
        gb = sum(g, dims, True)
        gw = sum(g * off, dims, True)
        scale = root if weight is None else root * weight
        return (g - (gb + off * gw) * (1 / n)) * scale, None if weight is None else gw, gb

    record("NativeBatchNormBackward0", (x, weight, bias), y, back, (x, middle, root, weight))
    return y, middle, var
