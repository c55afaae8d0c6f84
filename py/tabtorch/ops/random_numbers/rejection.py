"""Draws by rejection: `_standard_gamma`, `_sample_dirichlet`, `binomial`, and how the first two depend on their parameters.

They are drawn where the streams are made, on the host, with PyTorch's algorithms, so seeded numbers are PyTorch's. The
derivatives are those of implicit reparameterization: Figurnov, Mohamed & Mnih (2018), with the approximations that
PyTorch has in ATen/native/Distributions.h.
"""

from __future__ import annotations

from typing import Any

from tabtorch import ops
from tabtorch.autograd.tape import record
from tabtorch.base import random_streams as streams
from tabtorch.core.creation import fill_node
from tabtorch.core.shapes import type_name
from tabtorch.core.tensor import Tensor
from tabtorch.engine import functions as fn
from tabtorch.engine import special_functions as sf
from tabtorch.engine.expr import const, exp, isnan, log, sqrt, where
from tabtorch.engine.view import broadcast_shapes, contiguous_meta
from tabtorch.ops.machinery.registry import Row, elementwise, register
from tabtorch.ops.machinery.signatures import wrong_arguments
from tabtorch.ops.random_numbers.draws import generator_for, host_node
from tabtorch.ops.rows.gamma import _excess
from tabtorch.ops.rows.row_helpers import rule
from tabtorch.ops.shaping.convert import converted
from tabtorch.random import PhiloxGenerator


def _drawn(name: str, shown: str, generator: Any, *inputs: Tensor, columns: tuple[int, ...] = ()) -> Tensor:
    """A draw by a row of random_streams.py from inputs of one shape and dtype."""
    for x in inputs:
        if not isinstance(x, Tensor):
            raise TypeError(f"{shown}(): argument 'input' (position 1) must be Tensor, not {type(x).__name__}")
    m = inputs[0]._tab_meta
    streams._need(name, m.dtype.name, {"standard_gamma": "gamma_cpu", "binomial": "binomial_cpu"}.get(name, name))
    gen = generator_for(generator, m.device, shown)
    out = contiguous_meta(m.shape, m.dtype, m.device)
    if m.numel == 0:
        return Tensor._wrap(fill_node(m.shape, 0, m.dtype, m.device), out)
    if isinstance(gen, PhiloxGenerator):
        raise NotImplementedError(
            f"torch.{shown} with a generator on {gen.device} is not there yet in tabtorch: use one on cpu"
        )
    d = m.dtype.name
    draw = streams.Draw(streams.host_kernel(name, d, d), (m.numel, *columns), d, m.numel)
    on_cpu = [converted(x.detach().cpu(), m.shape, m.dtype)._tab_storage.node for x in inputs]
    return Tensor._wrap(host_node(gen, draw, out, tuple(on_cpu)), out)


def _constant(name: str, inputs: list[Tensor], r: Tensor) -> Tensor:
    """A result that refuses to be differentiated."""
    if any(x._tab_requires_grad for x in inputs):

        def refuse(g: Any) -> Any:
            raise RuntimeError(f"derivative for aten::{name} is not implemented")

        record("NotImplemented", inputs, r, (refuse,) * len(inputs))
    return r


@register("_standard_gamma")
def _standard_gamma(input: Tensor, generator: Any = None) -> Tensor:
    """Gamma numbers of rate 1 with the concentrations of `input`."""
    r = _drawn("standard_gamma", "_standard_gamma", generator, input)
    if input._tab_requires_grad:
        drawn = r.detach()
        record("StandardGammaBackward0", (input,), r, (lambda g: g * ops._standard_gamma_grad(input, drawn),))
    return r


@register("_sample_dirichlet")
def _sample_dirichlet(input: Tensor, generator: Any = None) -> Tensor:
    """Points of the simplex with the concentrations of `input`, along its last dimension."""
    columns = (input.shape[-1] if input.dim() else 1,) if isinstance(input, Tensor) else ()
    return _constant(
        "_sample_dirichlet", [input], _drawn("dirichlet", "_sample_dirichlet", generator, input, columns=columns)
    )


@register("binomial")
def binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Tensor:
    """Successes in `count` trials of probability `prob`; both of one floating dtype."""
    if not isinstance(count, Tensor) or not isinstance(prob, Tensor):
        raise wrong_arguments(
            "binomial", (count, prob), {}, "(Tensor count, Tensor prob, *, torch.Generator generator)"
        )
    if not count.dtype.is_floating_point:
        raise ValueError(f"binomial only supports floating-point dtypes for count, got: {type_name(count.dtype)}")
    if not prob.dtype.is_floating_point:
        raise ValueError(f"binomial only supports floating-point dtypes for prob, got: {type_name(prob.dtype)}")
    if count.dtype is not prob.dtype:
        raise RuntimeError(f"Found dtype {type_name(prob.dtype)} but expected {type_name(count.dtype)}")
    shape = broadcast_shapes(count.shape, prob.shape)
    return _constant(
        "binomial", [count, prob], _drawn("binomial", "binomial", generator, count.expand(shape), prob.expand(shape))
    )


# ---- derivatives of samples


def _table(rows: Any, u: Any, v: Any) -> Any:
    """The sum of c[i][j] u^i v^j."""
    total = None
    for row in reversed(rows):
        inner = fn.poly(v, tuple(reversed(row)))
        total = inner if total is None else total * u + inner
    return total


#: numerator and denominator in u = log(x / alpha) and v = log(alpha)
_GAMMA = (
    (
        (0.16009398, -0.094634809, 0.025146376, -0.0030648343),
        (0.53487893, 0.1298071, 0.065735949, -0.0015649758),
        (0.040121004, -0.0065914022, -0.0026286047, -0.0013441777),
    ),
    (
        (1.0, 0.32668115, 0.10406089, 0.0014179084),
        (0.16639465, 0.020070113, -0.0035938915, -0.00058392623),
        (0.017050642, -0.0021309326, 0.00085092367, -1.5247877e-07),
    ),
)


def _gamma_grad(alpha: Any, x: Any) -> Any:
    """dx / dalpha of x, a standard gamma number."""
    # a Taylor series for small x
    term, below = const(1, x.type), alpha
    first, second = 1.0 / alpha, 1.0 / (alpha * alpha)
    for i in range(1, 6):
        term = term * (-x / float(i))
        below = below + 1.0
        first = first + term / below
        second = second + term / (below * below)
    # over the density x^(alpha - 1) e^-x, so that no power is left
    small = -((log(x) - sf.digamma(alpha)) * first - second) * x * exp(x)
    small = where(isnan(small), 0.0, small)
    # a saddle point expansion for large alpha
    square = alpha * alpha
    one = 24.0 * alpha * (1.0 + 12.0 * alpha) + 1.0
    two = 1440.0 * square + 6.0 * x * (53.0 - 120.0 * x) - 65.0 * x * x / alpha + alpha * (107.0 + 3600.0 * x)
    middle = one / square * (two / square) / 1244160.0
    centre = (x >= alpha * 0.9) & (x <= alpha * 1.1)
    apart = where(centre, alpha * 0.5, x)
    ratio = log(apart / alpha)
    width = sqrt(8.0 * alpha)
    base = apart - alpha - alpha * ratio
    power = 1.0 / (base * sqrt(base))
    both = width / (alpha - apart) + where(apart < alpha, -power, power)
    away = ratio * both - sqrt(2.0 / alpha) * (alpha + apart) / ((alpha - apart) * (alpha - apart))
    stirling = 1.0 / (12.0 * alpha) * (1.0 + 1.0 / (24.0 * alpha)) + 1.0
    large = where(centre, middle, -stirling * apart * away / width)
    # a rational function between
    u, v = log(x / alpha), log(alpha)
    rational = exp(_table(_GAMMA[0], u, v) / _table(_GAMMA[1], u, v))
    return where(x < 0.8, small, where(alpha > 8.0, large, rational))


#: numerator and denominator: powers of u = log(x), of a = log(alpha) - u, of b = log(total) - a
_DIRICHLET = (
    (
        (
            (1.003668233, -0.01061107488, -0.0657888334, 0.01201642863),
            (0.6336835991, -0.3557432599, 0.05486251648, -0.001465281033),
            (-0.03276231906, 0.004474107445, 0.002429354597, -0.0001557569013),
        ),
        (
            (0.221950385, -0.3187676331, 0.01799915743, 0.01074823814),
            (-0.2951249643, 0.06219954479, 0.01535556598, 0.001550077057),
            (0.02155310298, 0.004170831599, 0.001292462449, 6.976601077e-05),
        ),
        (
            (-0.05980841433, 0.008441916499, 0.01085618172, 0.002319392565),
            (0.02911413504, 0.01400243777, -0.002721828457, 0.000751041181),
            (0.005900514878, -0.001936558688, -9.495446725e-06, 5.385558597e-05),
        ),
    ),
    (
        (
            (1.0, -0.02924021934, -0.04438342661, 0.007285809825),
            (0.6357567472, -0.3473456711, 0.05454656494, -0.002407477521),
            (-0.03301322327, 0.004845219414, 0.00231480583, -0.0002307248149),
        ),
        (
            (0.5925320577, -0.1757678135, 0.01505928619, 0.000564515273),
            (0.1014815858, -0.06589186703, 0.01272886114, -0.0007316646956),
            (-0.007258481865, 0.001096195486, 0.0003934994223, -4.12701925e-05),
        ),
        (
            (0.06469649321, -0.0236701437, 0.002902096474, -5.896963079e-05),
            (0.001925008108, -0.002869809258, 0.0008000589141, -6.063713228e-05),
            (-0.0003477407336, 6.959756487e-05, 1.097287507e-05, -1.650964693e-06),
        ),
    ),
)


def _beta_low(x: Any, alpha: Any, beta: Any, total: Any) -> Any:
    """By alpha, for x near 0: a Taylor series."""
    factor = sf.digamma(alpha) - sf.digamma(total) - log(x)
    term = const(1, x.type)
    series = (factor + 1.0 / alpha) / alpha
    for i in range(1, 11):
        term = term * ((float(i) - beta) * x / float(i))
        below = alpha + float(i)
        series = series + term / below * (factor + 1.0 / below)
    r = x * exp(-beta * fn.log1p(-x)) * series
    return where(isnan(r), 0.0, r)


def _beta_high(x: Any, alpha: Any, beta: Any, total: Any) -> Any:
    """By beta, for x near 0: a Taylor series."""
    factor = sf.digamma(total) - sf.digamma(beta)
    one = const(1, x.type)
    term, betas, slopes, series = one, one, const(0, x.type), factor / alpha
    for i in range(1, 9):
        term = term * (-x / float(i))
        slopes = slopes * (beta - float(i)) + betas
        betas = betas * (beta - float(i))
        series = series + term / (alpha + float(i)) * (slopes + factor * betas)
    r = -exp((1.0 - beta) * fn.log1p(-x)) * series
    return where(isnan(r), 0.0, r)


def _stirling(z: Any) -> Any:
    return 1.0 / (12.0 * z) + 1.0 / (288.0 * z * z) + 1.0


def _beta_wide(x: Any, a: Any, b: Any, total: Any) -> Any:
    """By alpha, where both are large: a saddle point expansion."""
    mean = a / total
    deviation = sqrt(a * b / (total + 1.0)) / total
    centre = (x >= mean - 0.1 * deviation) & (x <= mean + 0.1 * deviation)
    b2 = b * b
    poly = 8.0 * (1.0 - x) * (135.0 * b - 11.0) * a
    poly = ((453.0 + 1620.0 * b * (1.0 - x) - 455.0 * x) * b + poly) * a
    poly = (3.0 * (59.0 + 180.0 * b - 90.0 * x) * b2 + poly) * a
    poly = ((43.0 + 20.0 * (16.0 + 27.0 * b) * x) * b2 * b + poly) * a + 47.0 * x * b2 * b2
    scale = (1.0 + 12.0 * a) * (1.0 + 12.0 * b) / (total * total) / (1.0 - x)
    middle = scale * (poly / (a * a * a * b2)) / (12960.0 * (1.0 + 12.0 * total))

    # large terms cancel: with all of them made of one distance, in float32 too
    y = where(centre, mean * 0.5, x)
    distance = y - mean
    share = distance / mean
    slope = total * distance
    one = (2.0 * a * a * (y - 1.0) + a * b * (y - 1.0) - y * b2) / (
        sqrt(2.0 * a / b) * total * sqrt(total) * slope * slope
    )
    base = a * _excess(share) + b * _excess(-distance / (b / total))
    power = 1.0 / (base * sqrt(base))
    both = sqrt(8.0 * a * b / total) / slope + where(distance < 0.0, power, -power)
    scale = -y / sqrt(2.0 * a * b / total)
    away = _stirling(a) * _stirling(b) / _stirling(total) * scale * (one - 0.5 * fn.log1p(share) * both)
    return where(centre, middle, away)


def _dirichlet_grad(x: Any, alpha: Any, total: Any) -> Any:
    """dx / dalpha of x, a beta number of alpha and total - alpha, over 1 - x."""
    beta = total - alpha
    edge = total * x * (1.0 - x)
    u = log(x)
    a = log(alpha) - u
    b = log(total) - a

    def sums(table: Any) -> Any:
        rows = [_table(row, a, b) for row in table]
        return rows[0] + u * (rows[1] + u * rows[2])

    usual = sums(_DIRICHLET[0]) / sums(_DIRICHLET[1]) * x * (sf.digamma(total) - sf.digamma(alpha)) / beta
    r = where((alpha > 6.0) & (beta > 6.0), _beta_wide(x, alpha, beta, total), usual)
    r = where((x >= 0.5) & (edge < 0.75), -_beta_high(1.0 - x, beta, alpha, total), r)
    return where((x <= 0.5) & (edge < 2.5), _beta_low(x, alpha, beta, total), r)


def _refuse(message: str) -> Any:
    def gradient(g: Any) -> Any:
        raise RuntimeError(message)

    gradient.refuses = True  # type: ignore[attr-defined]
    return gradient


_FLOATS = rule(bools=False, ints=False, half=False)
elementwise(
    Row(
        "_standard_gamma_grad",
        _gamma_grad,
        (_refuse("the derivative for '_standard_gamma_grad' is not implemented."),) * 2,
        _FLOATS,
        "input, output",
        "d output / d input of output = _standard_gamma(input).",
        (0.1, 8.0),
        cost=300,
        numbers="",
        method=False,
        inplace=False,
        out=False,
    )
)
elementwise(
    Row(
        "_dirichlet_grad",
        _dirichlet_grad,
        (_refuse("derivative for aten::_dirichlet_grad is not implemented"),) * 3,
        _FLOATS,
        "x, alpha, total",
        "d x / d alpha over 1 - x, of a beta number x of alpha and total - alpha.",
        (0.1, 0.9),
        cost=500,
        numbers="",
        method=False,
        inplace=False,
        out=False,
    )
)
