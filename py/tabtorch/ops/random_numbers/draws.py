"""Drawing: from a generator and a distribution to the value of a tensor. The functions themselves are in random.py and sampling.py.

A draw from an MT19937 generator is made in JavaScript on the cpu device, in the order in which PyTorch visits the elements,
and copied to where it is wanted; one from a Philox generator is a map on the GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from tabtorch import _lazy
from tabtorch.base import dtypes
from tabtorch.base import random_streams as streams
from tabtorch.base.device import cpu
from tabtorch.base.thread_state import STATE
from tabtorch.core.creation import fill_node
from tabtorch.core.tensor import Tensor
from tabtorch.engine import draws, philox
from tabtorch.engine.graph import Map, Node, blank, emit, inst
from tabtorch.engine.view import Meta, contiguous_meta, meta
from tabtorch.ops.machinery.inplace import covering_order, set_tensor
from tabtorch.ops.shaping.convert import transfer
from tabtorch.random import Generator, HostGenerator, PhiloxGenerator, default_generator

# ---- distributions: what a draw is, for both kinds of generator


class Distribution(NamedTuple):
    """A distribution of independent elements.

    host: (dtype, n, whether the tensor is contiguous) -> Draw; raises PyTorch's errors about the parameters.
    device: Draw -> the map of engine/philox.py, and the types and values of its further scalars.
    pairs: whether a complex element is two real ones.
    """

    host: Callable[[Any, int, bool], streams.Draw]
    device: Callable[[streams.Draw], tuple[Map, tuple[str, ...], tuple[Any, ...]]]
    pairs: bool = False


def reals(op: Map, *values: float) -> Callable[[streams.Draw], Any]:
    return lambda draw: (op, ("f32",) * len(values), tuple([float(v) for v in values]))


def uniform_distribution(low: float, high: float) -> Distribution:
    return Distribution(lambda d, n, c: streams.uniform(d, n, low, high), reals(philox.UNIFORM, low, high), True)


def normal_distribution(mean: float, std: float) -> Distribution:
    return Distribution(lambda d, n, c: streams.normal(d, n, mean, std, c), reals(philox.NORMAL, mean, std), True)


def normal_distribution_for(d: Any, mean: float, std: float) -> Distribution:
    """`normal_distribution` for a dtype: each part of a complex number has half of the variance."""
    if getattr(d, "is_complex", False):
        if not std >= 0:
            streams.normal("float32", 0, mean, std)  # raises, and says std as it was given
        return normal_distribution(mean, std / math.sqrt(2.0))
    return normal_distribution(mean, std)


def bernoulli_distribution(p: float) -> Distribution:
    def device(draw: streams.Draw) -> Any:
        if p >= 1:  # 2**32 is one more than a threshold can be
            return philox.CERTAIN, (), ()
        return philox.CHANCE, ("u32",), (philox.threshold(p),)

    return Distribution(lambda d, n, c: streams.bernoulli(d, n, p), device)


def _integers_of(draw: streams.Draw) -> Any:
    """The range of a host draw of integers, for Philox."""
    n, base = 2**64, 0  # random_64 names no bounds
    if len(draw.scalars) == 3:  # random_range
        n, base = int(draw.scalars[1]) % 2**64 or 2**64, int(draw.scalars[2])
    elif len(draw.scalars) == 2:  # random_full
        n = int(draw.scalars[1])
    if n <= 2**32:
        return philox.INTEGER, ("u32", "i64"), (n % 2**32, base)
    return philox.WIDE_INTEGER, ("i64", "i64"), (_signed(n), base)


def _signed(n: int) -> int:
    n %= 2**64
    return n - 2**64 if n >> 63 else n


def integers_distribution(low: int | None, high: int | None) -> Distribution:
    """[low, high); with both None, all that `random_()` gives."""
    if low is None:
        return Distribution(lambda d, n, c: streams.random_full(d, n), _integers_of)
    return Distribution(lambda d, n, c: streams.random_range(d, n, low, high), _integers_of)


# ---- drawing


def generator_for(generator: Any, device: Any, name: str) -> Any:
    """The generator of a draw for `device`. A Philox one draws for the GPU only."""
    if generator is None:
        return default_generator
    if not isinstance(generator, Generator):
        raise TypeError(f"{name}(): argument 'generator' must be torch.Generator, not {type(generator).__name__}")
    if isinstance(generator, PhiloxGenerator) and device.number != generator.device.number:
        raise RuntimeError(f"Expected a '{device.type}' device type for generator but found '{generator.device.type}'")
    return generator


def drawn(gen: Any, distribution: Distribution, m: Meta, contiguous: bool = True) -> Node:
    """A value of the contiguous Meta `m`, drawn element by element in its order."""
    if m.device.type == "meta":
        return blank(m)
    if STATE.levels and not isinstance(gen, PhiloxGenerator):
        return _lazy.batch.drawn(m, lambda m: drawn(gen, distribution, m, contiguous))
    d, n = (m.dtype.to_real(), 2 * m.numel) if distribution.pairs and m.dtype.is_complex else (m.dtype, m.numel)
    draw = distribution.host(d, n, contiguous)
    if n == 0:
        return fill_node(m.shape, 0, m.dtype, m.device)
    if isinstance(gen, PhiloxGenerator):
        op, types, numbers = distribution.device(draw)
        return philox_node(op, gen, m, types, numbers)
    return host_node(gen, draw, m)


def host_node(gen: HostGenerator, draw: streams.Draw, m: Meta, inputs: tuple[Node, ...] = ()) -> Node:
    """The value of a draw as `m`, on its device."""
    d = dtypes.PUBLIC[draw.dtype]
    node = gen.draw(draw, contiguous_meta((draw.elements,), d, cpu), inputs)
    node = draws.seen_as(node, contiguous_meta(m.shape, m.dtype, cpu))
    return node if m.device.host else transfer(node, m.device)


def philox_node(
    op: Map, gen: PhiloxGenerator, m: Meta, types: tuple[str, ...] = (), numbers: tuple[Any, ...] = (), *inputs: Any
) -> Node:
    """The next draw of a Philox generator, as `m`. `inputs`: (node, its view in the shape of `m`)."""
    if m.dtype.is_complex:
        raise NotImplementedError(
            f"random numbers of type {m.dtype!r} from a generator on {gen.device} are not there yet in tabtorch: "
            "use one on cpu"
        )
    i = inst(op, tuple([v for _, v in inputs]), m, philox.SCALARS + types)
    return emit(i, tuple([s for s, _ in inputs]), gen.next() + numbers)


def _strides_in_reals(m: Meta) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of what is drawn."""
    if not m.dtype.is_complex:
        return m.shape, m.strides
    return (*m.shape, 2), (*[2 * s for s in m.strides], 1)


def check_memory(m: Meta) -> None:
    if any(s == 0 and n > 1 for s, n in zip(m.strides, m.shape)):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
            "Please clone() the tensor before performing the operation."
        )


def fill(t: Tensor, gen: Any, distribution: Distribution) -> Tensor:
    """Gives `t` random elements, in the order in which PyTorch visits them. No check of autograd, no record."""
    m = t._tab_meta
    check_memory(m)
    s = t._tab_storage
    have = s.node.inst.out
    if have.dtype is m.dtype and covering_order(m, have.numel) != ():
        # in the order of the memory, which is what a node holds
        s.node = drawn(gen, distribution, have, m.contiguous)
        s.written()
        return t
    shape, strides = _strides_in_reals(m)
    order = streams.fill_order(shape, strides)
    if order is not None and m.dtype.is_complex:
        order = tuple([d for d in order if d < m.ndim])
    if m.numel:
        set_tensor(t, _permuted(gen, distribution, m, order))
    return t


def _permuted(gen: Any, distribution: Distribution, m: Meta, order: tuple[int, ...] | None) -> Tensor:
    """Elements for a tensor like `m`, drawn in another order of its dimensions."""
    if order is None:
        inner = shown = contiguous_meta(m.shape, m.dtype, m.device)
    else:
        inner = contiguous_meta(tuple([m.shape[d] for d in order]), m.dtype, m.device)
        shown = back(inner, order)
    return Tensor._wrap(drawn(gen, distribution, inner, m.contiguous), shown)


def back(inner: Meta, order: tuple[int, ...]) -> Meta:
    """`inner`, whose dimensions stand in `order`, with its dimensions in their own places."""
    at = [order.index(d) for d in range(len(order))]
    return meta(
        tuple([inner.shape[k] for k in at]), tuple([inner.strides[k] for k in at]), 0, inner.dtype, inner.device
    )


__all__ = ["Distribution", "back", "check_memory", "drawn", "fill", "generator_for", "host_node", "philox_node"]
