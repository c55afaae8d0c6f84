"""Random tensors: `rand`, `randn`, `randint`, `randperm`, their `_like` forms, and the in-place draws of Tensor.

See https://docs.pytorch.org/docs/stable/torch.html#random-sampling
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tabtorch.autograd.grad_mode import STATE
from tabtorch.autograd.tape import record
from tabtorch.autograd.views import before_write, check_inplace, rebase
from tabtorch.base import dtypes
from tabtorch.base import random_streams as streams
from tabtorch.core.creation import check_strided, empty_like, fill_node, finished, placed, zeros_like
from tabtorch.core.shapes import integer, ints, type_name
from tabtorch.core.tensor import Tensor
from tabtorch.engine import philox
from tabtorch.engine.view import contiguous_meta, contiguous_strides
from tabtorch.ops.machinery.inplace import set_tensor
from tabtorch.ops.machinery.integer_bounds import bounded
from tabtorch.ops.machinery.operation import no_grad_with_out
from tabtorch.ops.machinery.registry import missing, register
from tabtorch.ops.machinery.signatures import NEW, listed, wrong_arguments
from tabtorch.ops.random_numbers.draws import (
    Distribution,
    drawn,
    fill,
    generator_for,
    host_node,
    integers_distribution,
    normal_distribution_for,
    philox_node,
    reals,
    uniform_distribution,
)
from tabtorch.ops.random_numbers.dropout import dropout as dropout  # nn.functional finds it here
from tabtorch.random import PhiloxGenerator

# ---- arguments of functions that make tensors


def _fresh(
    name: str, shape: tuple[int, ...], distribution: Distribution, generator: Any, d: Any, device: Any
) -> Tensor:
    where = placed(d, device)
    m = contiguous_meta(shape, d, where)
    return Tensor._wrap(drawn(generator_for(generator, where, name), distribution, m), m)


_OPTIONS = frozenset(("dtype", "device", "requires_grad", "layout", "pin_memory", "out", "generator", "names"))


def _drawn(*heads: str) -> str:
    """Overloads of what draws a new tensor, with a generator of its own and without."""
    return listed(
        *[f"{head}, *, {generator}{NEW}" for head in heads for generator in ("torch.Generator generator, ", "")]
    )


_SIZE = _drawn("tuple of ints size")


def _shape(name: str, size: Any) -> tuple[int, ...]:
    shape = ints(size, name)
    for n in shape:
        if n < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: {list(shape)}")
    return shape


def make_sized(
    name: str, shape: tuple[int, ...], distribution: Distribution, default: Any, kw: dict[str, Any]
) -> Tensor:
    """A new tensor, or `out` resized and filled."""
    check_strided(name, {"layout": kw.get("layout")})
    d, out, requires_grad = kw.get("dtype"), kw.get("out"), kw.get("requires_grad", False)
    d = dtypes.given_dtype(name, d)
    if out is not None:
        return finished(_fill_out(name, out, shape, distribution, d, kw.get("generator")), requires_grad)
    return finished(
        _fresh(name, shape, distribution, kw.get("generator"), d or default, kw.get("device")), requires_grad
    )


def _fill_out(
    name: str, out: Any, shape: tuple[int, ...], distribution: Distribution, d: Any, generator: Any
) -> Tensor:
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if d is not None and d is not out.dtype:
        raise RuntimeError(f"dtype {type_name(d)} does not match dtype of out parameter ({type_name(out.dtype)})")
    gen = generator_for(generator, out.device, name)
    no_grad_with_out(f"aten::{name}", out)
    _resize(out, shape)
    return fill(out, gen, distribution)


def _resize(out: Tensor, shape: tuple[int, ...]) -> None:
    """`out.resize_(shape)` for a tensor whose elements do not matter."""
    m = out._tab_meta
    if m.shape == shape:
        return
    out._tab_meta = m.view(shape, contiguous_strides(shape), m.offset)
    need = m.offset + out._tab_meta.numel
    if out._tab_storage.nbytes < need * m.dtype.itemsize:
        out._tab_storage.node = fill_node((need,), 0, m.dtype, m.device)


def _sized(name: str, args: tuple[Any, ...], kw: dict[str, Any], distribution: Distribution) -> Tensor:
    given = dict(kw)
    if "size" in given and not args:
        args = (given.pop("size"),)
    if not args or not given.keys() <= _OPTIONS or ("names" in given and given["names"] is not None):
        raise wrong_arguments(name, args, kw, _SIZE)
    return make_sized(name, _shape(name, args), distribution, dtypes.get_default_dtype(), given)


@register("rand")
def rand(*size: Any, **kw: Any) -> Tensor:
    """Uniform in [0, 1). Keywords: generator, out, dtype, device, requires_grad, layout, pin_memory."""
    return _sized("rand", size, kw, uniform_distribution(0.0, 1.0))


@register("randn")
def randn(*size: Any, **kw: Any) -> Tensor:
    """Standard normal; for a complex type each part has variance 1/2."""
    d = kw.get("dtype") or (kw["out"].dtype if isinstance(kw.get("out"), Tensor) else None)
    return _sized("randn", size, kw, normal_distribution_for(d or dtypes.get_default_dtype(), 0.0, 1.0))


_RANDINT = _drawn("int high, tuple of ints size", "int low, int high, tuple of ints size")


@register("randint")
def randint(*args: Any, **kw: Any) -> Tensor:
    """`randint(high, size)`, `randint(low, high, size)`: integers in [low, high), int64 unless `dtype` says otherwise."""
    given = dict(kw)
    names = ("low", "high", "size")[3 - len(args) :] if len(args) <= 3 else None
    if names is not None and len(args) == 2 and "size" in given:
        names = ("low", "high")
    elif names is not None and len(args) == 1:
        names = ("low",) if "high" in given else ("high",)
    if names is None or set(names) & given.keys():
        raise wrong_arguments("randint", args, kw, _RANDINT)
    given.update(zip(names, args))
    if not {"high", "size"} <= given.keys() or not given.keys() <= _OPTIONS | {"low", "high", "size"}:
        raise wrong_arguments("randint", args, kw, _RANDINT)
    several = "low" in given  # of one number PyTorch says which argument is wrong
    low, high, size = given.pop("low", 0), given.pop("high"), given.pop("size")
    if not isinstance(size, (tuple, list)):
        if several:
            raise wrong_arguments("randint", args, kw, _RANDINT)
        raise TypeError(f"randint(): argument 'size' (position 2) must be tuple of ints, not {type(size).__name__}")
    try:
        distribution = integers_distribution(integer(low, "randint", "low", 1), integer(high, "randint", "high", 1))
    except TypeError:
        if several:
            raise wrong_arguments("randint", args, kw, _RANDINT) from None
        raise
    _check_real(given.get("dtype"))
    return bounded(make_sized("randint", _shape("randint", (size,)), distribution, dtypes.int64, given), low, high - 1)


def _check_real(d: Any) -> None:
    if d is not None and getattr(d, "is_complex", False):
        raise RuntimeError("check_random_bounds handles only integral, floating-point and boolean types")


@register("randperm")
def randperm(n: Any, **kw: Any) -> Tensor:
    """The numbers 0 … n - 1 in random order, int64 unless `dtype` says otherwise."""
    n = integer(n, "randperm", "n", 1)
    if not kw.keys() <= _OPTIONS:
        raise wrong_arguments(
            "randperm", (n,), kw, "(int n, *, torch.Generator generator = None, Tensor out = None, …)"
        )
    out = kw.get("out")
    d = dtypes.given_dtype("randperm", kw.get("dtype")) or (out.dtype if isinstance(out, Tensor) else dtypes.int64)
    draw = streams.randperm(d, n)
    where = out.device if isinstance(out, Tensor) else placed(d, kw.get("device"))
    gen = generator_for(kw.get("generator"), where, "randperm")
    m = contiguous_meta((n,), d, where)
    if n == 0:
        t = Tensor._wrap(fill_node((0,), 0, d, where), m)
    elif isinstance(gen, PhiloxGenerator):
        keys = contiguous_meta((n,), dtypes.int64, where)
        t = Tensor._wrap(philox_node(philox.BITS, gen, keys), keys).argsort(stable=True).to(d)
    else:
        t = bounded(Tensor._wrap(host_node(gen, draw, m), m), 0, n - 1)
    if out is not None:
        _resize(out, (n,))
        set_tensor(out, t)
        return finished(out, kw.get("requires_grad", False))
    return finished(t, kw.get("requires_grad", False))


# ---- like another tensor


def _like(name: str, input: Any, distribution: Callable[[Any], Distribution], kw: dict[str, Any]) -> Tensor:
    generator = kw.pop("generator", None)
    requires_grad = kw.pop("requires_grad", False)
    if not isinstance(input, Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    d = dtypes.given_dtype(name, kw.get("dtype")) or input.dtype
    t = empty_like(input, **kw)
    return finished(fill(t, generator_for(generator, t.device, name), distribution(d)), requires_grad)


@register("rand_like")
def rand_like(input: Tensor, **kw: Any) -> Tensor:
    """Uniform in [0, 1), in the shape, dtype, device and layout of `input`."""
    return _like("rand_like", input, lambda d: uniform_distribution(0.0, 1.0), kw)


@register("randn_like")
def randn_like(input: Tensor, **kw: Any) -> Tensor:
    """Standard normal, in the shape, dtype, device and layout of `input`."""
    return _like("randn_like", input, lambda d: normal_distribution_for(d, 0.0, 1.0), kw)


@register("randint_like")
def randint_like(input: Tensor, *args: Any, **kw: Any) -> Tensor:
    """`randint_like(input, high)`, `randint_like(input, low, high)`: integers in [low, high), like `input`."""
    names = ("high",) if len(args) == 1 and "high" not in kw else ("low", "high")
    given = dict(zip(names, args)) | {k: kw.pop(k) for k in ("low", "high") if k in kw}
    if len(args) > 2 or "high" not in given:
        raise wrong_arguments(
            "randint_like",
            (input, *args),
            kw,
            "one of:\n * (Tensor input, int high, …)\n * (Tensor input, int low, int high, …)",
        )
    low, high = (
        integer(given.get("low", 0), "randint_like", "low", 2),
        integer(given["high"], "randint_like", "high", 2),
    )
    _check_real(kw.get("dtype") or input.dtype)
    return _like("randint_like", input, lambda d: integers_distribution(low, high), kw)


# ---- in place


def fill_recorded(t: Tensor, gen: Any, distribution: Distribution, backward_name: str) -> Tensor:
    """An in-place draw: what was there does not matter, so its gradient is zero."""
    check_inplace(t)
    recording = STATE.grad and t._tab_requires_grad
    old = before_write(t) if recording else None
    fill(t, gen, distribution)
    if recording:
        fn = record(backward_name, (old,), Tensor._view_of(t, t._tab_meta), (zeros_like,))
        if fn is not None:
            rebase(t, fn)
    return t


def _bound(name: str, args: tuple[Any, ...], kw: dict[str, Any], **defaults: Any) -> list[Any]:
    """Numbers by position or name. TypeError as PyTorch's."""
    if len(args) > len(defaults):
        s = "s" if len(defaults) != 1 else ""
        raise TypeError(f"{name}() takes {len(defaults)} positional argument{s} but {len(args)} were given")
    given = {**defaults, **dict(zip(defaults, args))}
    for k, v in kw.items():
        if k not in defaults or k in list(defaults)[: len(args)]:
            raise TypeError(f"{name}() got an unexpected keyword argument '{k}'")
        given[k] = v
    out = []
    for position, (k, v) in enumerate(given.items(), 1):
        if v is _REQUIRED:
            raise missing(name, [k])
        if isinstance(v, Tensor) and v.numel() == 1:
            v = v.item()
        if not isinstance(v, (int, float)) and hasattr(v, "item"):
            v = v.item()
        if not isinstance(v, (int, float)):
            raise TypeError(f"{name}(): argument '{k}' (position {position}) must be float, not {type(v).__name__}")
        out.append(float(v))
    return out


_REQUIRED: Any = object()


def _real_draw(
    name: str, distribution: Callable[..., Distribution], backward_name: str, doc: str, **defaults: Any
) -> Callable[..., Tensor]:
    """Registers `Tensor.NAME`, whose parameters are numbers."""

    def draw(self: Tensor, *args: Any, generator: Any = None, **kw: Any) -> Tensor:
        made = distribution(*_bound(name, args, kw, **defaults))
        gen = generator_for(generator, self.device, name)
        return fill_recorded(self, gen, made, backward_name)

    draw.__name__ = draw.__qualname__ = name
    draw.__doc__ = doc
    register(name, draw, method=True, torch=False)
    return draw


def _host_distribution(host: Callable[..., Any], device: Callable[..., Any]) -> Callable[..., Distribution]:
    return lambda *a: Distribution(lambda d, n, c: host(d, n, *a), device(*a))


uniform_ = _real_draw(
    "uniform_", uniform_distribution, "UniformBackward0", "Uniform in [from, to).", **{"from": 0.0, "to": 1.0}
)
exponential_ = _real_draw(
    "exponential_",
    _host_distribution(streams.exponential, lambda rate: reals(philox.EXPONENTIAL, rate)),
    "ExponentialBackward0",
    "Exponential, of rate lambd.",
    lambd=1.0,
)
geometric_ = _real_draw(
    "geometric_",
    _host_distribution(streams.geometric, lambda p: reals(philox.GEOMETRIC, 1 / math.log1p(-p) if 0 < p < 1 else 0.0)),
    "GeometricBackward0",
    "The number of trials to the first success, of probability p.",
    p=_REQUIRED,
)
cauchy_ = _real_draw(
    "cauchy_",
    _host_distribution(streams.cauchy, lambda median, sigma: reals(philox.CAUCHY, median, sigma)),
    "CauchyBackward0",
    "Cauchy, of the given median and half width.",
    median=0.0,
    sigma=1.0,
)
log_normal_ = _real_draw(
    "log_normal_",
    _host_distribution(streams.log_normal, lambda mean, std: reals(philox.LOG_NORMAL, mean, std)),
    "LogNormalBackward0",
    "exp of a normal with this mean and standard deviation.",
    mean=1.0,
    std=2.0,
)


@register("normal_", torch=False, method=True)
def normal_(self: Tensor, *args: Any, generator: Any = None, **kw: Any) -> Tensor:
    """Normal, of the given mean and standard deviation."""
    mean, std = _bound("normal_", args, kw, mean=0.0, std=1.0)
    gen = generator_for(generator, self.device, "normal_")
    return fill_recorded(self, gen, normal_distribution_for(self.dtype, mean, std), "NormalBackward0")


@register("random_", torch=False, method=True)
def random_(self: Tensor, *args: Any, generator: Any = None, **kw: Any) -> Tensor:
    """`random_()`, `random_(to)`, `random_(from, to)`: integers; `random_(from, None)` goes up to the dtype's largest."""
    if len(args) > 2:
        raise TypeError(f"random_() takes 2 positional arguments but {len(args)} were given")
    names = ("from", "to") if len(args) == 2 or (args and "to" in kw) else ("to",)
    given = dict(zip(names, args)) | kw
    if not given.keys() <= {"from", "to"}:
        unknown = next(k for k in given if k not in ("from", "to"))
        raise TypeError(f"random_() got an unexpected keyword argument '{unknown}'")
    low = integer(given["from"], "random_", "from", 1) if "from" in given else None
    high = given.get("to")
    high = None if high is None else integer(high, "random_", "to", len(names))
    if low is None and high is not None:
        low = 0
    name = "RandomBackward" + ("0" if "from" in given else "1" if "to" in given else "2")
    if given:
        _check_real(self.dtype)
    gen = generator_for(generator, self.device, "random_")
    return fill_recorded(self, gen, integers_distribution(low, high), name)
