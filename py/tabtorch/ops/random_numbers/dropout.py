"""Dropout and its relatives, and the randomized leaky ReLU.

On cpu the bits are PyTorch's own stream. On webgpu they are Philox: a map with no input, which becomes part of the kernel
that multiplies by it and is never stored; the gradient makes the same bits again from the same seed and offset.
"""

from __future__ import annotations

import math
from typing import Any

from tabtorch import random
from tabtorch.autograd.tape import named, record
from tabtorch.base import dtypes
from tabtorch.base import random_streams as streams
from tabtorch.core.creation import empty_like, fill_node, zeros
from tabtorch.core.tensor import Tensor
from tabtorch.engine import philox
from tabtorch.engine.graph import Map, emit, inst
from tabtorch.engine.view import Meta, contiguous_meta
from tabtorch.ops.machinery.dispatch import expanded, laid_out, layout_of, table
from tabtorch.ops.machinery.promotion import FLOATING, check_kernel
from tabtorch.ops.machinery.registry import function, register
from tabtorch.ops.random_numbers.draws import (
    bernoulli_distribution,
    drawn,
    fill,
    generator_for,
    host_node,
    uniform_distribution,
)
from tabtorch.ops.shaping.convert import converted

_SCALED = Map("dropout", lambda x, keep, scale: x * keep * scale)
_insts = table()


def _entry(m: Meta, order: Any) -> Any:
    """Insts of the mask and of the product for an input `m`, computed over its shape in `order`; the result's Meta."""
    key = (m, order)
    entry = _insts.get(key)
    if entry is None:
        inner, shown = laid_out(m.shape, order, m.dtype, m.device)
        bits = contiguous_meta(inner.shape, dtypes.bool_, m.device)
        mask = inst(philox.CHANCE, (), bits, (*philox.SCALARS, "u32"))
        c = m.dtype.compute
        product = inst(_SCALED, (expanded(m, m.shape, order), bits), inner, (c,), None, c)
        entry = _insts[key] = (mask, product, shown)
    return entry


def _masked(x: Tensor, order: Any, numbers: tuple[int, ...], scale: float) -> Tensor:
    """`x` times the mask that the numbers make, times `scale`. Linear in `x`, so its gradient is the same function."""
    mask, product, shown = _entry(x._tab_meta, order)
    r = Tensor._wrap(emit(product, (x._tab_storage.node, emit(mask, (), numbers)), (scale,)), shown)
    if x._tab_requires_grad:
        record("NativeDropoutBackward0", (x,), r, lambda g: _masked(g, order, numbers, scale))
    return r


def dropout_numbers(p: float) -> tuple[Any, ...]:
    """What says which elements a dropout with bits of the device's generator keeps, 0 < p < 1: seed and offset, the threshold of
    a random word, and what is kept is multiplied by."""
    return *random.device_generator.next(), philox.threshold(1.0 - p), 1.0 / (1.0 - p)


def dropout_of(x: Tensor, numbers: tuple[Any, ...]) -> Tensor:
    """The dropout that the numbers make of `x`; element i, as `x` lies in memory, takes the random word of the counter i."""
    m = x._tab_meta
    return _masked(x, layout_of([m], m.shape), numbers[:-1], numbers[-1])


def _check(p: float) -> None:
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p:g}")


def _keep(like: Tensor, p: float) -> Tensor:
    """1 with probability 1 - p, else 0, in the shape, dtype and layout of `like`."""
    t = empty_like(like)
    return fill(
        t,
        random.default_generator if t._tab_meta.device.host else random.device_generator,
        bernoulli_distribution(1.0 - p),
    )


def _feature_shape(input: Tensor) -> Tensor:
    """A tensor with one element for each (sample, channel)."""
    if input.dim() < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    shape = (*input.shape[:2], *(1,) * (input.dim() - 2))
    m = contiguous_meta(shape, input.dtype, input.device)
    return Tensor._wrap(fill_node(shape, 0, input.dtype, input.device), m)


def _multiply(input: Tensor, noise: Any, in_place: bool) -> Tensor:
    return input.mul_(noise) if in_place else input * noise


_SELU_FLOOR = 1.7580993408473766  # how far below 0 SELU goes


def _dropout(input: Tensor, p: float, train: bool, *, feature: bool, alpha: bool, in_place: bool) -> Tensor:
    if not isinstance(input, Tensor):
        raise TypeError(f"dropout(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    p = float(p)
    _check(p)
    if p == 0 or not train or input.numel() == 0:
        return input
    if p == 1:
        return _multiply(input, zeros((), dtype=input.dtype, device=input.device), in_place)
    if not (feature or alpha or in_place) and not input._tab_meta.device.host and input.dtype.category == 2:
        return dropout_of(input, dropout_numbers(p))
    noise = _keep(_feature_shape(input) if feature else input.detach(), p)
    if not alpha:
        return _multiply(input, noise.div_(1 - p), in_place)
    a = 1.0 / math.sqrt((_SELU_FLOOR * _SELU_FLOOR * p + 1) * (1 - p))
    b = noise.add(-1).mul_(_SELU_FLOOR * a).add_(_SELU_FLOOR * a * p)
    r = _multiply(input, noise.mul_(a), in_place)
    return r.add_(b)


def _register(name: str, feature: bool, alpha: bool, doc: str) -> Any:
    def out_of_place(input: Tensor, p: float, train: bool) -> Tensor:
        return _dropout(input, p, train, feature=feature, alpha=alpha, in_place=False)

    def in_place(input: Tensor, p: float, train: bool) -> Tensor:
        return _dropout(input, p, train, feature=feature, alpha=alpha, in_place=True)

    for f, n in ((out_of_place, name), (in_place, name + "_")):
        f.__name__ = f.__qualname__ = n
        f.__doc__ = doc
        register(n, f)
    return out_of_place


dropout = _register(
    "dropout", False, False, "Zeroes each element with probability p, and scales the rest by 1 / (1 - p)."
)
feature_dropout = _register(
    "feature_dropout", True, False, "Dropout of whole channels: one bit for each (sample, channel)."
)
alpha_dropout = _register("alpha_dropout", False, True, "Dropout that keeps mean and variance after SELU.")
feature_alpha_dropout = _register("feature_alpha_dropout", True, True, "Alpha dropout of whole channels.")


@register("native_dropout")
def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """(dropout of `input`, the mask of what was kept)."""
    bernoulli_distribution(1.0 - p).host(dtypes.bool_, 0, True)  # p as PyTorch checks it
    mask = empty_like(input.detach(), dtype=dtypes.bool_)
    if input.numel() == 0:
        return input, mask
    if train is not None and not train:
        return input.clone(), mask.fill_(True)
    generator = random.default_generator if input._tab_meta.device.host else random.device_generator
    fill(mask, generator, bernoulli_distribution(1.0 - p))
    return input * mask * (0.0 if p == 1 else 1.0 / (1.0 - p)), mask


# ---- randomized leaky ReLU


def _slope_kernel(d: str) -> streams.HostKernel:
    """One uniform for each element that is not positive, as PyTorch draws them."""
    plain = streams.host_kernel("poisson", d, d)  # for its text and its bindings
    text = plain.source[: plain.source.rindex("poisson(")]
    scalars = (streams.Scalar("n", "u32", 0), streams.Scalar("lower", "f64", 2), streams.Scalar("upper", "f64", 4))
    body = (
        f"for (let i = 0; i < P[0]; i++) DTYPE.{d}.put(b2, i, DTYPE.{d}.get(b1, i) <= 0 "
        "? fma64(uniform53(b0), D[2] - D[1], D[1]) : 1);\n"
    )
    return streams.HostKernel(f"mt19937_rrelu_{d}", text + body, plain.bindings, scalars, "Slopes of rrelu.")


def _slopes(x: Tensor, lower: float, upper: float, generator: Any) -> Tensor:
    m = x._tab_meta
    gen = generator_for(generator, m.device, "rrelu")
    out = contiguous_meta(m.shape, m.dtype, m.device)
    if not m.device.host:
        if generator is None:
            gen = random.device_generator
        drawn_slopes = Tensor._wrap(drawn(gen, uniform_distribution(lower, upper), out), out)
        where: Any = function("where")
        flat: Any = x.detach()
        return where(flat <= 0, drawn_slopes, 1.0)
    draw = streams.Draw(_slope_kernel(m.dtype.name), (m.numel, lower, upper), m.dtype.name, m.numel)
    node = converted(x.detach(), m.shape, m.dtype)._tab_storage.node
    return Tensor._wrap(host_node(gen, draw, out, (node,)), out)


def _rrelu(input: Tensor, lower: float, upper: float, training: bool, generator: Any, in_place: bool) -> Tensor:
    if not lower <= upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound")
    check_kernel("rrelu_with_noise_out_cpu" if training else "leaky_relu_cpu", input.dtype, FLOATING)
    name = f"RreluWithNoiseBackward{int(in_place)}"
    if not in_place:
        input = input.contiguous()  # as PyTorch's result is
    if not training:
        leaky: Any = function("leaky_relu_" if in_place else "leaky_relu")
        return named(leaky(input, (lower + upper) / 2), name)
    if input.numel() == 0:
        return input
    return named(_multiply(input, _slopes(input, float(lower), float(upper), generator), in_place), name)


@register("rrelu")
def rrelu(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, generator: Any = None
) -> Tensor:
    """Leaky ReLU, each slope drawn from [lower, upper) in training, else their mean."""
    return _rrelu(input, lower, upper, training, generator, False)


@register("rrelu_")
def rrelu_(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, generator: Any = None
) -> Tensor:
    """In-place `rrelu`."""
    return _rrelu(input, lower, upper, training, generator, True)
