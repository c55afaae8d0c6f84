"""Draws whose parameters are tensors: `normal`, `bernoulli`, `poisson`, `multinomial`.

Those on the host read a byte of what they drew, so that a parameter they refuse raises PyTorch's error at once.
"""

from __future__ import annotations

import math
from typing import Any

from tabtorch.autograd.grad_mode import STATE
from tabtorch.autograd.tape import record
from tabtorch.autograd.views import before_write, check_inplace, rebase
from tabtorch.base import dtypes
from tabtorch.base import random_streams as streams
from tabtorch.base.device import cpu
from tabtorch.core.creation import empty_like, fill_node, zeros_like
from tabtorch.core.shapes import expanded, integer, ints, permuted, type_name
from tabtorch.core.tensor import Tensor
from tabtorch.engine import philox
from tabtorch.engine.graph import Node, read
from tabtorch.engine.view import Meta, broadcast_shapes, contiguous_meta
from tabtorch.ops.indexing.index_maps import check_reals
from tabtorch.ops.machinery.asserts import Complaint
from tabtorch.ops.machinery.inplace import check_out, set_tensor, write_out
from tabtorch.ops.machinery.integer_bounds import Range, bounded
from tabtorch.ops.machinery.operand_devices import together
from tabtorch.ops.machinery.out_types import ASK, same
from tabtorch.ops.machinery.promotion import not_implemented
from tabtorch.ops.machinery.registry import register
from tabtorch.ops.machinery.signatures import wrong_arguments
from tabtorch.ops.random_numbers.draws import (
    back,
    bernoulli_distribution,
    check_memory,
    fill,
    generator_for,
    normal_distribution_for,
    philox_node,
)
from tabtorch.ops.random_numbers.random_tensors import fill_recorded, make_sized
from tabtorch.ops.shaping.convert import converted, transfer
from tabtorch.random import PhiloxGenerator

#: what kernels say of an input that they refuse, in PyTorch's words
_REFUSALS = (
    "Expected p_in >= 0 && p_in <= 1 to be true, but got false.",
    "invalid Poisson rate, expected rate to be non-negative",
    "invalid multinomial distribution (encountering probability entry < 0)",
    "invalid multinomial distribution (encountering probability entry = infinity or NaN)",
    "invalid multinomial distribution (sum of probabilities <= 0)",
)


def _host(gen: Any, draw: streams.Draw, m: Meta, inputs: tuple[Node, ...]) -> Node:
    """A draw from inputs that the kernel may refuse, as `m`. RuntimeError if it does."""
    out = contiguous_meta(m.shape, m.dtype, cpu)
    node = gen.draw(draw, out, inputs)
    try:
        if (
            not STATE.levels and STATE.held is None
        ):  # vmap: examples cannot be read; a compiled function waits for nothing
            read(node, 0, 1)
    except RuntimeError as e:
        for message in _REFUSALS:
            if message in str(e):
                raise RuntimeError(message + ASK * message.startswith("Expected")) from None
        raise
    return node if m.device.host else transfer(node, m.device)


def _on_cpu(t: Tensor) -> Tensor:
    """Off the tape, and on cpu."""
    t = t.detach()
    return t if t._tab_meta.device.host else t.cpu()


def _tensor(name: str, what: str, position: int, v: Any) -> Tensor:
    if not isinstance(v, Tensor):
        raise TypeError(f"{name}(): argument '{what}' (position {position}) must be Tensor, not {type(v).__name__}")
    return v


# ---- normal

_BAD_STD = Complaint(RuntimeError, "normal expects all elements of std >= 0.0")
_NORMAL = (
    "one of:\n * (Tensor mean, Tensor std, *, torch.Generator generator = None, Tensor out = None)\n"
    " * (Tensor mean, float std = 1, *, torch.Generator generator = None, Tensor out = None)\n"
    " * (float mean, Tensor std, *, torch.Generator generator = None, Tensor out = None)\n"
    " * (float mean, float std, tuple of ints size, *, torch.Generator generator = None, Tensor out = None, torch.dtype "
    "dtype = None, torch.layout layout = None, torch.device device = None, bool pin_memory = False, bool requires_grad = "
    "False)\n"
)


def _number(x: Any) -> Any:
    """What PyTorch takes for a float argument: a tensor of no dimensions that needs no gradient is its number."""
    return x.item() if isinstance(x, Tensor) and x.ndim == 0 and not x.requires_grad else x


@register("normal")
def normal(*args: Any, **kw: Any) -> Tensor:
    """`normal(mean, std)` with a tensor or two; `normal(mean, std, size)` with numbers."""
    given = dict(zip(("mean", "std", "size"), args))
    if len(args) > 3 or given.keys() & kw.keys():
        raise wrong_arguments("normal", args, kw, _NORMAL)
    given |= kw
    mean, std = given.pop("mean", 0.0), given.pop("std", 1.0)
    if "size" in given:
        mean, std = _number(mean), _number(std)
    if not isinstance(mean, Tensor) and not isinstance(std, Tensor):
        size = given.pop("size", None)
        if (
            not isinstance(size, (tuple, list))
            or not isinstance(mean, (int, float))
            or not isinstance(std, (int, float))
        ):
            raise wrong_arguments("normal", args, kw, _NORMAL)
        out = given.get("out")
        d = given.get("dtype") or (out.dtype if isinstance(out, Tensor) else dtypes.get_default_dtype())
        distribution = normal_distribution_for(d, float(mean), float(std))
        return make_sized("normal", ints((size,), "normal"), distribution, dtypes.get_default_dtype(), given)
    generator, out = given.pop("generator", None), given.pop("out", None)
    if given:
        raise wrong_arguments("normal", args, kw, _NORMAL)
    if out is not None:
        if not isinstance(mean, Tensor):  # PyTorch adds the number to it in place
            broadcast_shapes(std.shape, out.shape)
        check_out("normal", out, [x for x in (mean, std) if isinstance(x, Tensor)])
        if out.dtype.category < 2:
            raise not_implemented("normal_kernel_cpu", out.dtype)
    r = _normal_of(mean, std, generator)
    return r if out is None else write_out(out, r)


def _normal_of(mean: Any, std: Any, generator: Any) -> Tensor:
    if isinstance(mean, Tensor) and isinstance(std, Tensor):
        mean, std = together((mean, std))
    like = mean if isinstance(mean, Tensor) else std
    if isinstance(std, Tensor):
        if std.dtype.is_complex:
            raise RuntimeError("normal expects standard deviation to be non-complex")
        check_reals(std, Range(0.0, math.inf), _BAD_STD, "normal")
        shape: tuple[int, ...] = std.shape
        if isinstance(mean, Tensor):
            shape = broadcast_shapes(mean.shape, std.shape)
        scale = 1.0
    else:
        scale = float(std)
        if not scale >= 0:
            raise RuntimeError(f"normal expects std >= 0.0, but found std {scale:g}")
        shape = mean.shape
    d = like.dtype
    r = _empty(shape, d, like.device)
    fill(r, generator_for(generator, like.device, "normal"), normal_distribution_for(d, 0.0, scale))
    plain_mean = mean.detach() if isinstance(mean, Tensor) else float(mean)
    if isinstance(std, Tensor):
        r = r.mul_(std.detach())
    if isinstance(mean, Tensor) or mean:
        r = r.add_(plain_mean)
    _record_normal(mean, std, r)
    return r


def _record_normal(mean: Any, std: Any, r: Tensor) -> None:
    """Gradients are zero: what was drawn is a constant."""
    inputs = [x for x in (mean, std) if isinstance(x, Tensor)]
    if any(x._tab_requires_grad for x in inputs):
        name = "NormalBackward" + ("3" if len(inputs) == 2 else "1" if inputs[0] is mean else "2")
        record(name, inputs, r, (zeros_like,) * len(inputs))


def _empty(shape: tuple[int, ...], d: Any, device: Any) -> Tensor:
    m = contiguous_meta(shape, d, device)
    return Tensor._wrap(fill_node(shape, 0, d, device), m)


# ---- bernoulli


@register("bernoulli", method=True)
def bernoulli(input: Tensor, *args: Any, generator: Any = None, out: Any = None, **kw: Any) -> Tensor:
    """`bernoulli(input)`: 1 with probability input[i], else 0. `bernoulli(input, p)`: 1 with probability p, in its shape."""
    _tensor("bernoulli", "input", 1, input)
    p = kw.pop("p", args[0] if args else None)
    if kw or len(args) > 1:
        raise wrong_arguments(
            "bernoulli",
            (input, *args),
            kw,
            "one of:\n * (Tensor input, *, torch.Generator generator = None, Tensor out = None)\n"
            " * (Tensor input, float p, *, torch.Generator generator = None)\n",
        )
    if out is not None:
        check_out("bernoulli", out, [input])
    r = _empty(input.shape, input.dtype if out is None else out.dtype, input.device)
    gen = generator_for(generator, input.device, "bernoulli")
    if p is None:
        _fill_chances(r, input, gen)
    else:
        fill(r, gen, bernoulli_distribution(float(p)))
    if input._tab_requires_grad:
        record("BernoulliBackward0", (input,), r, (zeros_like,))
    return r if out is None else write_out(out, r)


@register("bernoulli_", torch=False, method=True)
def bernoulli_(self: Tensor, p: Any = 0.5, *args: Any, generator: Any = None, **kw: Any) -> Tensor:
    """1 with probability p (a number, or a tensor that broadcasts), else 0."""
    if args or kw:
        raise wrong_arguments(
            "bernoulli_",
            (p, *args),
            kw,
            "one of:\n * (Tensor p, *, torch.Generator generator = None)\n"
            " * (float p = 0.5, *, torch.Generator generator = None)\n",
        )
    gen = generator_for(generator, self.device, "bernoulli_")
    if not isinstance(p, Tensor):
        return fill_recorded(self, gen, bernoulli_distribution(float(p)), "BernoulliBackward2")
    check_inplace(self)
    recording = STATE.grad and (self._tab_requires_grad or p._tab_requires_grad)
    old = before_write(self) if recording else None
    _fill_chances(self, p, gen)
    if recording:
        fn = record(
            "BernoulliBackward1", (old, p), Tensor._view_of(self, self._tab_meta), (zeros_like, lambda g: zeros_like(p))
        )
        if fn is not None:
            rebase(self, fn)
    return self


def _fill_chances(t: Tensor, p: Tensor, gen: Any) -> None:
    """`t` becomes 1 with the probabilities `p`. No check of autograd."""
    m = t._tab_meta
    check_memory(m)
    pm = expanded(p._tab_meta, tuple(m.shape))
    draw = streams.bernoulli_tensor(m.dtype, m.numel, p.dtype)
    if m.numel == 0:
        return
    if isinstance(gen, PhiloxGenerator):
        out = contiguous_meta(m.shape, m.dtype, m.device)
        node = philox_node(philox.CHANCE_OF, gen, out, (), (), (p._tab_storage.node, pm))
        set_tensor(t, Tensor._wrap(node, out))
        return
    order = streams.fill_order(m.shape, m.strides, pm.strides)
    chances = _on_cpu(p)
    view = Tensor._view_of(chances, expanded(chances._tab_meta, tuple(m.shape)))
    if order is not None:
        view = Tensor._view_of(view, permuted(view._tab_meta, order))
    flat = converted(view, view._tab_meta.shape, p.dtype)
    inner = contiguous_meta(view._tab_meta.shape, m.dtype, m.device)
    node = _host(gen, draw, inner, (flat._tab_storage.node,))
    set_tensor(t, Tensor._wrap(node, inner if order is None else back(inner, order)))


# ---- poisson


@register("poisson")
def poisson(input: Tensor, generator: Any = None) -> Tensor:
    """Poisson counts with the rates of `input`, in its dtype."""
    _tensor("poisson", "input", 1, input)
    m = input._tab_meta
    draw = streams.poisson(m.dtype, m.numel)
    gen = generator_for(generator, m.device, "poisson")
    out = contiguous_meta(m.shape, m.dtype, m.device)
    if m.numel == 0:
        node: Any = fill_node(m.shape, 0, m.dtype, m.device)
    elif isinstance(gen, PhiloxGenerator):
        raise NotImplementedError(
            f"torch.poisson with a generator on {gen.device} is not there yet in tabtorch: use one on cpu"
        )
    else:
        rates = converted(_on_cpu(input), m.shape, m.dtype)
        node = _host(gen, draw, out, (rates._tab_storage.node,))
    r = Tensor._wrap(node, out)
    if input._tab_requires_grad:
        record("PoissonBackward0", (input,), r, (zeros_like,))
    return r


# ---- multinomial


@register("multinomial", method=True)
def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None, out: Any = None
) -> Tensor:
    """Column numbers drawn by the weights `input`, shape (columns,) or (rows, columns) -> int64 (samples,) or (rows, samples)."""
    m = _tensor("multinomial", "input", 1, input)._tab_meta
    if out is not None and out.device.number != m.device.number:
        raise RuntimeError("multinomial arguments must have the same device")
    if m.ndim in (1, 2) and m.dtype.is_floating_point and out is not None and out.dtype is not dtypes.int64:
        raise RuntimeError(f"multinomial expects Long tensor out, got: {type_name(out.dtype)}")
    num_samples = integer(num_samples, "multinomial", "num_samples", 2)
    draw = streams.multinomial(m.dtype, m.shape, num_samples, replacement)
    gen = generator_for(generator, m.device, "multinomial")
    shape = (*m.shape[:-1], num_samples)
    if math.prod(shape) == 0:
        r = _empty(shape, dtypes.int64, m.device)
    elif isinstance(gen, PhiloxGenerator):
        weights = input.detach()
        _check_weights(weights)
        r = _by_sums(weights, num_samples, gen) if replacement and num_samples > 1 else _race(weights, num_samples, gen)
    else:
        r = _multinomial_host(
            input, draw, num_samples, replacement, gen, contiguous_meta(shape, dtypes.int64, m.device)
        )
    return r if out is None else write_out(out, r, same("multinomial expects Long tensor out, got: {Have}"))


def _check_weights(p: Tensor) -> None:
    """RuntimeError for weights that are negative, not finite, or zero all over a row."""
    if STATE.levels or STATE.held is not None:
        return
    valid = (p.max() < math.inf) & (p.min() >= 0)
    empty = (p.sum(-1) == 0).any()
    code = (valid.to(dtypes.int32) + empty.to(dtypes.int32) * 2).item()  # one read
    if not code & 1:
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if code & 2:
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")


def _multinomial_host(input: Tensor, draw: streams.Draw, samples: int, replacement: bool, gen: Any, m: Meta) -> Tensor:
    weights = _on_cpu(input)
    if samples == 1 or not replacement:
        _check_weights(weights)
        if streams.fill_order(weights.shape, weights.stride()) is not None:
            r = _race(weights, samples, gen)  # the exponentials are drawn in the order of the memory
            return r if m.device.host else r.to(m.device)
    flat = converted(weights, weights.shape, weights.dtype)
    return bounded(Tensor._wrap(_host(gen, draw, m, (flat._tab_storage.node,)), m), 0, weights._tab_meta.shape[-1] - 1)


def _race(p: Tensor, samples: int, gen: Any) -> Tensor:
    """The columns with the largest p / q, where q is exponential: samples without replacement."""
    score = p / empty_like(p).exponential_(generator=gen)
    if samples == 1:
        return score.argmax(-1, keepdim=True)
    return score.topk(samples).indices


def _by_sums(p: Tensor, samples: int, gen: PhiloxGenerator) -> Tensor:
    """Columns where the cumulated weights pass a uniform number: samples with replacement."""
    sums = p.cumsum(-1)
    m = contiguous_meta((*p.shape[:-1], samples, 1), dtypes.float32, p.device)
    u = Tensor._wrap(philox_node(philox.UNIFORM, gen, m, ("f32", "f32"), (0.0, 1.0)), m)
    at = (sums.unsqueeze(-2) <= u * sums[..., -1:].unsqueeze(-1)).sum(-1)
    return at.clamp(max=p.shape[-1] - 1)
