"""Functions of complex expressions, in terms of real ones. Branch cuts and values at infinity are those of C99's Annex G,
as far as the formulas below reach: no overflow where the result is representable, except in `asin` and its family beyond 1e18.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from . import functions as fn
from .expr import (
    Complex,
    Expr,
    absolute,
    asinh,
    const,
    cos,
    cosh,
    exp,
    isinf,
    isnan,
    log,
    signbit,
    sin,
    sinh,
    sqrt,
    tanh,
    where,
)


def modulus(z: Complex) -> Expr:
    r: Expr = fn.hypot(z.re, z.im)
    return r


def angle(z: Complex) -> Expr:
    a: Expr = fn.atan2(z.im, z.re)
    return a


def _times_i(z: Complex) -> Complex:
    return Complex(-z.im, z.re)


def _over_i(z: Complex) -> Complex:
    return Complex(z.im, -z.re)


def _nil(*values: Expr) -> Expr:
    """0 with the sign of the product of these."""
    sign = signbit(values[0])
    for v in values[1:]:
        sign = sign ^ signbit(v)
    return where(sign, const(-0.0, values[0].type), const(0, values[0].type))


def _exp(z: Complex) -> Complex:
    r = exp(z.re)
    # an infinite modulus, or none, asks no angle
    vanishes, grows = z.re == -math.inf, (z.re == math.inf) & ~(absolute(z.im) < math.inf)
    im = where(vanishes & ~(absolute(z.im) < math.inf), 0.0, where(z.im == 0.0, z.im, r * sin(z.im)))
    return Complex(where((z.im == 0.0) | vanishes | grows, r, r * cos(z.im)), im)


def _expm1(z: Complex) -> Complex:
    """exp(z) - 1 = expm1(x) cos(y) - 2 sin(y/2)^2 + i exp(x) sin(y)."""
    h = sin(z.im * 0.5)
    return Complex(fn.expm1(z.re) * cos(z.im) - h * h * 2.0, exp(z.re) * sin(z.im))


def _log_modulus(z: Complex) -> Any:
    """log |z|, precise where |z| is near 1."""
    a, b = absolute(z.re), absolute(z.im)
    swap = a < b
    big, small = where(swap, b, a), where(swap, a, b)
    near = (big > 0.5) & (big < 2.0)
    d = where(near, big - 1.0, 0.0)
    exact = fn.log1p(d * (d + 2.0) + where(near, small * small, 0.0)) * 0.5
    return where(near, exact, log(modulus(z)))


def _log(z: Complex) -> Complex:
    return Complex(_log_modulus(z), angle(z))


def _log1p(z: Complex) -> Complex:
    x, y = z.re, z.im
    near = (absolute(x) < 0.5) & (absolute(y) < 0.5)
    u, v = where(near, x, 0.0), where(near, y, 0.0)
    m = fn.log1p(u * (u + 2.0) + v * v) * 0.5
    w = Complex(x + 1.0, y)
    return Complex(where(near, m, _log_modulus(w)), angle(w))


def _scaled(f: Callable[[Any], Complex], factor: float) -> Callable[[Any], Complex]:
    def g(z: Any) -> Complex:
        w = f(z)
        return Complex(w.re * factor, w.im * factor)

    return g


def _exp2(z: Complex) -> Complex:
    return _exp(Complex(z.re * math.log(2), z.im * math.log(2)))


def _sqrt(z: Complex) -> Complex:
    """The root with a real part that is not negative."""
    x, y = z.re, z.im
    r = modulus(z)
    t = sqrt((r + absolute(x)) * 0.5)
    s = absolute(y) * 0.5 / where(t == 0.0, 1.0, t)
    right = ~(x < 0.0)
    re, im = where(right, t, s), where(right, s, t)
    re = where(isinf(y), absolute(y), where(isinf(x) & (x < 0.0), 0.0, re))
    im = where(isinf(y), absolute(y), where(isinf(x), where(x > 0.0, 0.0, absolute(x)), im))
    return Complex(re, fn.copysign(im, y))


def _reciprocal(z: Complex) -> Complex:
    at_zero = Complex(const(math.inf, z.re.type), const(math.nan, z.re.type))
    return where((z.re == 0.0) & (z.im == 0.0), at_zero, const(1, z.type) / z)


def _rsqrt(z: Complex) -> Complex:
    return _reciprocal(_sqrt(z))


def _grown(z: Complex, v: Expr) -> Expr:
    """Infinite where the modulus is and there is no angle."""
    return where(isinf(z.re) & ~(absolute(z.im) < math.inf), math.inf, v)


def _sinh(z: Complex) -> Complex:
    x, y = z.re, z.im
    return Complex(where(x == 0.0, x, _grown(z, sinh(x) * cos(y))), where(y == 0.0, y, cosh(x) * sin(y)))


def _cosh(z: Complex) -> Complex:
    x, y = z.re, z.im
    im = where((x == 0.0) | (y == 0.0), _nil(x, y), sinh(x) * sin(y))
    return Complex(_grown(z, cosh(x) * cos(y)), im)


def _tanh(z: Complex) -> Complex:
    """(sinh 2x + i sin 2y) / (cosh 2x + cos 2y), arranged so that it overflows nowhere."""
    t = tanh(z.re)
    c, s = cos(z.im), sin(z.im)
    sech2 = 1.0 - t * t
    # |cosh z|^2 / cosh(x)^2 = cos(y)^2 + tanh(x)^2 sin(y)^2
    d = c * c + t * t * s * s
    far = absolute(z.re) > 20.0
    e = exp(absolute(z.re) * -2.0) * 4.0
    re = where(far, t, t / where(far, 1.0, d))
    im = where(far, e * s * c, sech2 * s * c / where(far, 1.0, d))
    im = where(isinf(z.re), _nil(z.im), im)
    return Complex(where(z.re == 0.0, z.re, re), where(z.im == 0.0, z.im, im))


def _sin(z: Complex) -> Complex:
    return _over_i(_sinh(_times_i(z)))


def _cos(z: Complex) -> Complex:
    return _cosh(_times_i(z))


def _tan(z: Complex) -> Complex:
    return _over_i(_tanh(_times_i(z)))


def _asinh(z: Complex) -> Complex:
    """Kahan's: x = asinh(Re(sqrt(1 - iz)* ... )), by the two roots sqrt(1 + iz) and sqrt(1 - iz)."""
    return _over_i(_asin(_times_i(z)))


def _roots(z: Complex) -> tuple[Complex, Complex]:
    """sqrt(1 - z), sqrt(1 + z)."""
    return _sqrt(Complex(1.0 - z.re, -z.im)), _sqrt(Complex(z.re + 1.0, z.im))


def _asin(z: Complex) -> Complex:
    """Kahan, Branch cuts for complex elementary functions (1987)."""
    a, b = _roots(z)
    re = fn.atan2(z.re, a.re * b.re - a.im * b.im)
    v = Complex(re, asinh(a.re * b.im - a.im * b.re))
    infinite = const(math.inf, z.im.type)
    v = where(isinf(z), Complex(fn.atan2(z.re, absolute(z.im)), fn.copysign(infinite, z.im)), v)
    return Complex(where(z.re == 0.0, z.re, v.re), v.im)


def _acos(z: Complex) -> Complex:
    a, b = _roots(z)
    re = fn.atan2(a.re, b.re) * 2.0
    v = Complex(re, asinh(b.re * a.im - b.im * a.re))
    infinite = const(math.inf, z.im.type)
    v = where(isinf(z), Complex(fn.atan2(absolute(z.im), z.re), fn.copysign(infinite, -z.im)), v)
    return Complex(where((z.re == 0.0) & isnan(z.im), math.pi / 2, v.re), v.im)


def _acosh(z: Complex) -> Complex:
    a = _sqrt(Complex(z.re - 1.0, z.im))
    b = _sqrt(Complex(z.re + 1.0, z.im))
    v = Complex(asinh(a.re * b.re + a.im * b.im), fn.atan2(a.im, b.re) * 2.0)
    v = where(isinf(z), Complex(const(math.inf, z.re.type), angle(z)), v)
    return Complex(v.re, where((z.re == 0.0) & isnan(z.im), math.pi / 2, v.im))


def _atanh(z: Complex) -> Complex:
    """Re = log1p(4x / ((1 - x)^2 + y^2)) / 4, Im = atan2(2y, (1 - x)(1 + x) - y^2) / 2."""
    x, y = z.re, z.im
    a = absolute(x)
    near = (a < 1e9) & (absolute(y) < 1e9)
    u, v = where(near, a, 0.0), where(near, y, 1.0)
    re = fn.log1p(u * 4.0 / ((1.0 - u) * (1.0 - u) + v * v)) * 0.25
    im = fn.atan2(v * 2.0, (1.0 - u) * (u + 1.0) - v * v) * 0.5
    re = where(near, fn.copysign(re, x), _nil(x))
    im = where(near, im, fn.copysign(const(math.pi / 2, y.type), y))
    none = const(math.nan, x.type)
    re = where(isnan(z) & ~isinf(z) & (x != 0.0), none, re)
    return Complex(re, where(isnan(y) | (isnan(x) & ~isinf(y)), none, im))


def _atan(z: Complex) -> Complex:
    return _over_i(_atanh(_times_i(z)))


def power(z: Complex, w: Complex) -> Complex:
    """exp(w log z); 0 to a power with a positive real part is 0, and anything to the power 0 is 1."""
    m, a = _log_modulus(z), angle(z)
    v = _exp(Complex(w.re * m - w.im * a, w.im * m + w.re * a))
    none = (z.re == 0.0) & (z.im == 0.0)
    zero = const(0, z.re.type)
    v = Complex(where(none & (w.re > 0.0), zero, v.re), where(none & (w.re > 0.0), zero, v.im))
    nothing = (w.re == 0.0) & (w.im == 0.0)
    return Complex(where(nothing, 1.0, v.re), where(nothing, zero, v.im))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": modulus,
    "exp": _exp,
    "exp2": _exp2,
    "expm1": _expm1,
    "log": _log,
    "log2": _scaled(_log, 1 / math.log(2)),
    "log10": _scaled(_log, 1 / math.log(10)),
    "log1p": _log1p,
    "sqrt": _sqrt,
    "rsqrt": _rsqrt,
    "sin": _sin,
    "cos": _cos,
    "tan": _tan,
    "asin": _asin,
    "acos": _acos,
    "atan": _atan,
    "sinh": _sinh,
    "cosh": _cosh,
    "tanh": _tanh,
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
    "pow": power,
}
