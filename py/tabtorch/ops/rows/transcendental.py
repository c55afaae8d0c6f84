"""Rows: exponentials and logarithms, trigonometric and hyperbolic functions and their inverses."""

from __future__ import annotations

import math
from typing import Any

from tabtorch import _lazy, ops
from tabtorch.engine import expr as ex
from tabtorch.engine import functions as fn
from tabtorch.engine.expr import Complex, absolute, exp, isinf, isnan, log, sin, where
from tabtorch.ops.machinery.registry import Row, elementwise
from tabtorch.ops.rows.row_helpers import conj, floating, logaddexp, nothing, real_float, rounded, rule, zero


def _unary(name: str, expr: Any, grad: Any, doc: str, domain: tuple[float, float], **options: Any) -> None:
    """A function of one number; integers become floats."""
    options.setdefault("rule", "float")
    cost = options.pop("cost", 15)
    elementwise(Row(name, expr, (grad,), doc=doc, domain=domain, cost=cost, **options))


# ---- exponentials and logarithms

_unary("exp", lambda x: exp(x), lambda g, x, out: g * conj(out), "e to the power of input.", (-5, 5))
_unary("exp2", lambda x: ex.exp2(x), lambda g, x, out: g * conj(out * math.log(2)), "2 to the power of input.", (-8, 8))
_unary("expm1", lambda x: fn.expm1(x), lambda g, x, out: g * conj(out + 1), "exp(input) - 1, precise near 0.", (-5, 5))
_unary("log", lambda x: log(x), lambda g, x, out: g / conj(x), "The natural logarithm.", (0.01, 20))
_unary(
    "log2", lambda x: ex.log2(x), lambda g, x, out: g / conj(x * math.log(2)), "The logarithm to base 2.", (0.01, 20)
)
_unary(
    "log10",
    lambda x: fn.log10(x),
    lambda g, x, out: g / conj(x * math.log(10)),
    "The logarithm to base 10.",
    (0.01, 20),
)
_unary(
    "log1p",
    lambda x: fn.log1p(x),
    lambda g, x, out: g / conj(x + 1),
    "log(1 + input), precise near 0.",
    (-0.9, 20),
    backward_name="Log1PBackward0",
)


def _logaddexp2(x: Any, y: Any) -> Any:
    big = where(x > y, x, y)
    v = big + fn.log1p(ex.exp2(-absolute(x - y))) * (1 / math.log(2))
    return where(isnan(x) | isnan(y), x + y, where(isinf(x) & (x == y), x, v))


elementwise(
    Row(
        "logaddexp",
        logaddexp,
        (lambda g, x, y, out: g / conj(ops.exp(y - x) + 1), lambda g, x, y, out: g / conj(ops.exp(x - y) + 1)),
        rule("logaddexp_cpu", bools=False, ints=False, complexes=True),
        "input, other",
        "log(exp(input) + exp(other)).",
        cost=30,
        inplace=False,
        numbers="",
    )
)
elementwise(
    Row(
        "logaddexp2",
        _logaddexp2,
        (lambda g, x, y, out: g / (1 + ops.exp2(y - x)), lambda g, x, y, out: g / (1 + ops.exp2(x - y))),
        floating("logaddexp2_cpu"),
        "input, other",
        "log2(2**input + 2**other).",
        cost=30,
        inplace=False,
        numbers="",
    )
)

# ---- trigonometric functions

_unary("sin", lambda x: sin(x), lambda g, x, out: g * conj(ops.cos(x)), "The sine.", (-10, 10))
_unary("cos", lambda x: ex.cos(x), lambda g, x, out: -g * conj(ops.sin(x)), "The cosine.", (-10, 10))
_unary("tan", lambda x: ex.tan(x), lambda g, x, out: g * conj(out * out + 1), "The tangent.", (-1.4, 1.4))
_unary(
    "asin",
    lambda x: ex.asin(x),
    lambda g, x, out: g * conj(ops.rsqrt(1 - x * x)),
    "The angle with this sine.",
    (-0.95, 0.95),
    aliases=("arcsin",),
)
_unary(
    "acos",
    lambda x: ex.acos(x),
    lambda g, x, out: g * -conj(ops.rsqrt(1 - x * x)),
    "The angle with this cosine.",
    (-0.95, 0.95),
    aliases=("arccos",),
)
_unary(
    "atan",
    lambda x: ex.atan(x),
    lambda g, x, out: g / conj(x * x + 1),
    "The angle with this tangent.",
    (-10, 10),
    aliases=("arctan",),
)


def _inverse_square(y: Any, x: Any) -> Any:
    """1 / (x² + y²), and 0 at the origin."""
    square = y * y + x * x
    return square.reciprocal().masked_fill(square == 0, 0)


elementwise(
    Row(
        "atan2",
        lambda y, x: fn.atan2(y, x),
        (
            lambda g, y, x, out: g * (x * _inverse_square(y, x)),
            lambda g, y, x, out: g * (-y * _inverse_square(y, x)),
        ),
        real_float("atan2_cpu"),
        "input, other",
        "The angle of the point (other, input), in (-pi, pi].",
        cost=20,
        aliases=("arctan2",),
        numbers="",
    )
)


def _sinc(x: Any) -> Any:
    if isinstance(x, Complex):
        p = x * math.pi
        return where((x.re == 0.0) & (x.im == 0.0), 1.0, sin(p) / p)
    p = rounded(x * math.pi)
    return where(x == 0.0, 1.0, sin(p) / where(x == 0.0, 1.0, p))


def _sinc_grad(g: Any, x: Any) -> Any:
    p = x * math.pi
    safe = ops.where(x == 0, 1, x)
    return g * conj(ops.where(x == 0, 0, (ops.cos(p) - ops.sinc(x)) / safe))


_unary("sinc", _sinc, lambda g, x, out: _sinc_grad(g, x), "sin(pi input) / (pi input), 1 at 0.", (-4, 4), cost=20)

# ---- hyperbolic functions

_unary("sinh", lambda x: ex.sinh(x), lambda g, x, out: g * conj(ops.cosh(x)), "The hyperbolic sine.", (-5, 5))
_unary("cosh", lambda x: ex.cosh(x), lambda g, x, out: g * conj(ops.sinh(x)), "The hyperbolic cosine.", (-5, 5))


def _one_minus_square(g: Any, y: Any) -> Any:
    y = _lazy.row_helpers.conjugate(y)
    return g * (1.0 - y * y)


def _tanh_double(gg: Any, g: Any, y: Any) -> Any:
    return conj(gg) * g * (-2 * conj(y))


elementwise(
    Row(
        "_tanh_backward",
        _one_minus_square,
        (
            lambda gg, g, y, out: ops._tanh_backward(gg, conj(y)),
            lambda gg, g, y, out: _tanh_double(gg, g, y),
        ),
        "arith",
        "grad, output",
        "grad * (1 - output**2).",
        method=False,
        inplace=False,
        out=False,
        cost=3,
    )
)
_unary("tanh", lambda x: ex.tanh(x), lambda g, x, out: ops._tanh_backward(g, out), "The hyperbolic tangent.", (-4, 4))
_unary(
    "asinh",
    lambda x: ex.asinh(x),
    lambda g, x, out: g * conj(ops.rsqrt(x * x + 1)),
    "The inverse of sinh.",
    (-10, 10),
    aliases=("arcsinh",),
)
_unary(
    "acosh",
    lambda x: ex.acosh(x),
    lambda g, x, out: g * (conj(ops.rsqrt(x - 1) * ops.rsqrt(x + 1)) if x.is_complex() else ops.rsqrt(x * x - 1)),
    "The inverse of cosh.",
    (1.05, 10),
    aliases=("arccosh",),
)
_unary(
    "atanh",
    lambda x: ex.atanh(x),
    lambda g, x, out: g / conj(1 - x * x),
    "The inverse of tanh.",
    (-0.95, 0.95),
    aliases=("arctanh",),
)

# ---- angles

_degrees = rule(to_float=True, complex_error=RuntimeError("deg2rad is not supported for complex tensors."))
_radians = rule(to_float=True, complex_error=RuntimeError("rad2deg is not supported for complex tensors."))
_unary(
    "deg2rad",
    lambda x: x * (math.pi / 180),
    lambda g, x, out: g * (math.pi / 180),
    "Degrees as radians.",
    (-360, 360),
    rule=_degrees,
    cost=1,
    backward_name="Deg2RadBackward0",
)
_unary(
    "rad2deg",
    lambda x: x * (180 / math.pi),
    lambda g, x, out: g * (180 / math.pi),
    "Radians as degrees.",
    (-10, 10),
    rule=_radians,
    cost=1,
    backward_name="Rad2DegBackward0",
)


def _angle(x: Any) -> Any:
    if isinstance(x, Complex):
        return fn.atan2(x.im, x.re)
    return where(isnan(x), x, where(x < 0.0, math.pi, zero(x)))


def _angle_rule(row: Row, d: Any) -> Any:
    if d.category < 2:
        d = _lazy.dtypes.get_default_dtype()
    return d, d.to_real()


def _angle_grad(g: Any, x: Any) -> Any:
    if not x._tab_meta.dtype.is_complex:
        return nothing(g)
    r = ops.abs(x)
    z = x / ops.where(r == 0, 1, r)
    return ops.where(r == 0, 0, g / ops.where(r == 0, 1, r)) * z * 1j


elementwise(
    Row(
        "angle",
        _angle,
        (lambda g, x, out: _angle_grad(g, x),),
        _angle_rule,
        doc="The angle of a complex number.",
        inplace=False,
        cost=15,
    )
)
