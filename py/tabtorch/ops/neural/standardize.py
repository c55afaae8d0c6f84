"""Values brought to mean 0 and variance 1, with the gradients in closed form: batch and layer normalization.

With xn what is normalized over n values and gy = g · weight, gx = (gy - mean(gy) - xn · mean(gy · xn)) / sqrt(var + eps) (Ioffe and
Szegedy, 2015, section 3). It is made of the input, which is there anyway, so nothing else of that size is kept.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tabtorch.autograd.grad_mode import STATE
from tabtorch.autograd.match_input import sum_to
from tabtorch.autograd.tape import record
from tabtorch.core.tensor import Tensor
from tabtorch.engine.expr import call, const, maximum
from tabtorch.engine.graph import Reduce
from tabtorch.ops.machinery.recorded import Recorded
from tabtorch.ops.reductions.reduce import mean, reduce, sum

Ints = tuple[int, ...]


def _join(a: tuple, b: tuple) -> tuple:
    """Count, mean and squared distances from it of two sets as one (Chan, Golub and LeVeque, 1979). No square of a difference
    stands alone: it could be infinite beside a count of zero."""
    count = a[0] + b[0]
    off = b[1] - a[1]
    # a few ulp of it matter to nothing: an exact quotient for each value took longer than reading it
    part = off * call("ratio", count.type, b[0], maximum(count, const(1, count.type)))
    return count, a[1] + part, a[2] + b[2] + off * a[0] * part


#: the squared distances from the mean, summed, without a walk that finds the mean first
SQUARES_OFF = Reduce(
    "squares off",
    lambda t: (const(0, t), const(0, t), const(0, t)),
    lambda v, k: (const(1, v.type), v, const(0, v.type)),
    _join,
    lambda s: s[2],
)


def _wide(x: Any) -> Any:
    """Halves are computed with as float32."""
    return x.float() if x.dtype.itemsize == 2 else x


def _statistics(x: Any, dims: Ints) -> tuple[Tensor, Any]:
    """Mean and biased variance over `dims`, which are kept."""
    middle = mean(x, dims, True)
    off: Any = x - middle
    return middle, mean(off * off, dims, True)


def _in_one_walk(x: Any, dims: Ints) -> tuple[Tensor, Any]:
    """The same where rows are too long to be walked twice. Not recorded."""
    total: Any = reduce(SQUARES_OFF, x, dims, True)
    return mean(x, dims, True), total * (1 / _count(x, dims))


def _count(x: Any, dims: Ints) -> int:
    return max(1, prod(x.shape[d] for d in dims))


def _needs(x: Any, weight: Any, bias: Any) -> tuple[bool, bool, bool]:
    """Of which of these a gradient is wanted."""
    return (
        x._tab_requires_grad,
        weight is not None and weight._tab_requires_grad,
        bias is not None and bias._tab_requires_grad,
    )


def _batch_forward(x: Any, weight: Any, bias: Any, dims: Ints, eps: float) -> tuple[Any, ...]:
    wide = _wide(x)
    middle, var = _in_one_walk(wide, dims)
    root: Any = (var + eps).rsqrt()
    # so short that it is computed again by what follows it, and not stored
    y: Any = (wide - middle) * (root if weight is None else root * weight)
    if bias is not None:
        y = y + bias
    return y, middle, var, root


def _batch_back(
    g: Any, x: Any, middle: Any, root: Any, weight: Any, dims: Ints, needs: tuple[bool, bool, bool], scaled: bool
) -> tuple[Any, ...]:
    xn = (_wide(x) - middle) * root
    gb = sum(g, dims, True)
    gw = sum(g * xn, dims, True)
    gx = None
    if needs[0]:
        gx = (g - (gb + xn * gw) * (1 / _count(x, dims))) * (root * weight if scaled else root)
    return _wanted((gx, gw, gb), needs)


def _wanted(found: tuple[Any, ...], needs: tuple[bool, ...]) -> tuple[Any, ...]:
    return tuple([g for g, need in zip(found, needs) if need])


def _in_place_of(found: tuple[Any, ...], needs: tuple[bool, ...]) -> tuple[Any, ...]:
    """The gradients that are wanted each in its place."""
    each = iter(found)
    return tuple([next(each) if need else None for need in needs])


_batch_norm, _batch_gradients = Recorded(_batch_forward), Recorded(_batch_back)


def batch_norm(x: Tensor, dims: Ints, weight: Any, bias: Any, eps: float) -> tuple[Any, Tensor, Tensor]:
    """(x normalized over `dims`, times `weight`, plus `bias`, mean, biased variance).

    weight, bias: of size 1 over `dims`, as the statistics, or None. What is computed of halves is float32.
    """
    y, middle, var, root = _batch_norm((x, weight, bias), (dims, float(eps)))
    needs = _needs(x, weight, bias)

    def back(g: Any, x: Any, middle: Any, root: Any, weight: Any) -> Any:
        if not STATE.grad:
            return _in_place_of(
                _batch_gradients((g, x, middle, root, weight), (dims, needs, weight is not None)), needs
            )
        x = _wide(x)  # to be differentiated again, by way of the statistics, too
        middle, var = _statistics(x, dims)
        root = (var + eps).rsqrt()
        xn = (x - middle) * root
        gb = sum(g, dims, True)
        gw = sum(g * xn, dims, True)
        scale = root if weight is None else root * weight
        return (g - (gb + xn * gw) * (1 / _count(x, dims))) * scale, None if weight is None else gw, gb

    record("NativeBatchNormBackward0", (x, weight, bias), y, back, (x, middle, root, weight))
    return y, middle, var


def _layer_forward(x: Any, weight: Any, bias: Any, dims: Ints, eps: float) -> tuple[Any, ...]:
    wide = _wide(x)
    middle, var = _statistics(wide, dims)
    root: Any = (var + eps).rsqrt()
    y: Any = (wide - middle) * root
    if weight is not None:
        y = y * weight
    if bias is not None:
        y = y + bias
    return y, middle, root


def _layer_back(
    g: Any, x: Any, middle: Any, root: Any, weight: Any, dims: Ints, needs: tuple[bool, bool, bool]
) -> tuple[Any, ...]:
    shape = tuple(x.shape[d] for d in dims)
    xn = (_wide(x) - middle) * root
    gx = gw = gb = None
    if needs[0]:
        gy = g if weight is None else g * weight
        gx = (gy - mean(gy, dims, True) - xn * mean(gy * xn, dims, True)) * root
    if needs[1]:
        gw = sum_to(g * xn, shape)
    if needs[2]:
        gb = sum_to(g, shape)
    return _wanted((gx, gw, gb), needs)


_layer_norm, _layer_gradients = Recorded(_layer_forward), Recorded(_layer_back)


def layer_norm(x: Tensor, dims: Ints, weight: Any, bias: Any, eps: float) -> Any:
    """x normalized over `dims`, the last ones, times `weight`, plus `bias` (of their sizes, or None). Halves give float32."""
    y, middle, root = _layer_norm((x, weight, bias), (dims, float(eps)))
    if not STATE.grad:
        return y
    needs = _needs(x, weight, bias)

    def back(g: Any, x: Any, middle: Any, root: Any, weight: Any) -> Any:
        if not STATE.grad:
            return _in_place_of(_layer_gradients((g, x, middle, root, weight), (dims, needs)), needs)
        x = _wide(x)
        middle, var = _statistics(x, dims)
        root = (var + eps).rsqrt()
        xn = (x - middle) * root
        gy = g if weight is None else g * weight
        gx = (gy - mean(gy, dims, True) - xn * mean(gy * xn, dims, True)) * root
        return gx, None if weight is None else g * xn, g

    record("NativeLayerNormBackward0", (x, weight, bias), y, back, (x, middle, root, weight))
    return y
