"""Functions of the expression form that WGSL has not, or has only loosely, written out with `define`.

Each body makes expressions for the type of its argument. `f32` bodies run on webgpu and stay within about 4 ulp on any
implementation that keeps to WGSL's accuracy table. `f64` bodies run on the cpu device, where `f32` values are doubles too,
so there they serve both; what JavaScript's Math has is taken from there. `special_functions` has the families that a program
seldom uses.

The polynomials are Chebyshev fits made with mpmath, highest power first.
"""

from __future__ import annotations

import math
from typing import Any

from .expr import (
    absolute,
    bitcast,
    call,
    cast,
    const,
    define,
    exp,
    isinf,
    isnan,
    log,
    rint,
    signbit,
    sqrt,
    trunc,
    where,
)


def poly(x: Any, coefficients: tuple[float, ...]) -> Any:
    """Horner's rule, highest power first."""
    r = const(coefficients[0], x.type)
    for c in coefficients[1:]:
        r = r * x + c
    return r


def infinity(like: Any) -> Any:
    return const(math.inf, like.type)


def not_a_number(like: Any) -> Any:
    return const(math.nan, like.type)


def copysign(a: Any, b: Any) -> Any:
    """|a| with the sign of b, that of -0.0 and of NaN too."""
    if a.type in ("f32", "f64"):
        return where(signbit(a) ^ signbit(b), -a, a)
    return where((a < 0) ^ (b < 0), -a, a)


def fmod(a: Any, b: Any) -> Any:
    """The exact remainder of real division towards zero, as C's fmod."""
    return call("fmod", a.type, a, b)


@define("kept")
def kept(x: Any) -> Any:
    """x as it was rounded: a compiler of shaders would contract a product with the sum it meets."""
    return x


@define("fused")
def fused(x: Any, y: Any, z: Any) -> Any:
    """x * y - z, with the product as it is before it is rounded."""
    return x * y - z


@define("quotient")
def quotient(x: Any, y: Any) -> Any:
    """x / y, correctly rounded inside a function too."""
    return x / y


@define("ratio")
def ratio(x: Any, y: Any) -> Any:
    """x / y as near as WGSL's division, in its whole range."""
    return x / y


def head(x: Any) -> Any:
    """The leading 12 bits of a f32, so that a product of two such is exact."""
    return bitcast(bitcast(x, "u32") & 0xFFFFF000, "f32")


# ---- exponential and logarithm (f32)

_LN2 = math.log(2)
_LN2_HI = 0.693359375  # 9 bits: k * _LN2_HI is exact
_LN2_LO = _LN2 - _LN2_HI
_EXPM1 = (0.001392691806, 0.008363767023, 0.04166655016, 0.1666657342, 0.5)
_LOG = (0.09681593466, 0.1109568669, 0.1428587748, 0.199999994, 0.3333333333)


def _expm1_reduced(r: Any) -> Any:
    """e^r - 1 for |r| <= ln(2)/2."""
    return r + r * r * poly(r, _EXPM1)


def _power_of_two(n: Any) -> Any:
    return bitcast((n + 127) << 23, "f32")


def _scale(v: Any, n: Any) -> Any:
    """v * 2^n (n integral, as f32), in two steps so that neither factor leaves the range."""
    k = cast(n, "i32")
    half = k >> const(1, "i32")
    return v * _power_of_two(half) * _power_of_two(k - half)


def _bounded(x: Any, over: float, under: float, value: Any) -> Any:
    # compilers of shaders may take x < y for not (x >= y), so NaN is asked for by its bits
    return where(isnan(x), x, where(x > over, infinity(x), where(x < under, 0.0, value)))


@define("exp")
def _exp(x: Any) -> Any:
    n = rint(x * (1 / _LN2))
    r = (x - n * _LN2_HI) - n * _LN2_LO
    return _bounded(x, 88.72283935546875, -103.97208, _scale(_expm1_reduced(r) + 1.0, n))


@define("exp2")
def _exp2(x: Any) -> Any:
    n = rint(x)
    return _bounded(x, 127.99999237060547, -150.0, _scale(_expm1_reduced((x - n) * _LN2) + 1.0, n))


@define("expm1")
def expm1(x: Any) -> Any:
    """e^x - 1 without cancellation."""
    small = where(x == 0.0, x, expm1_to_40(x))
    return where(isnan(x), x, where(x > 40.0, exp(x), where(x < -18.0, -1.0, small)))


def expm1_to_40(x: Any) -> Any:
    """The same for -18 < x < 40, with 0 for -0."""
    n = rint(x * (1 / _LN2))
    p = _expm1_reduced((x - n * _LN2_HI) - n * _LN2_LO)
    s = _power_of_two(cast(n, "i32"))
    return s * p + (s - 1.0)


def _split(x: Any) -> tuple[Any, Any]:
    """x > 0 as (k, m) with x = 2^k m, m in [sqrt(1/2), sqrt(2))."""
    tiny = x < 1.1754943508222875e-38
    b = bitcast(where(tiny, x * 33554432.0, x), "i32") + (0x3F800000 - 0x3F3504F3)
    k = (b >> const(23, "i32")) - where(tiny, const(152, "i32"), const(127, "i32"))
    return cast(k, "f32"), bitcast((b & 0x7FFFFF) + 0x3F3504F3, "f32")


def _log_near_one(f: Any, low: Any = 0.0) -> Any:
    """log(1 + f) + low for sqrt(1/2) <= 1 + f <= sqrt(2); the leading term is f itself."""
    s = f / (f + 2.0)
    z = s * s
    h = f * f * 0.5
    return f - (h - (s * (h + z * 2.0 * poly(z, _LOG)) + low))


def _log_domain(x: Any, value: Any) -> Any:
    """`value` for 0 < x < inf, and what every logarithm gives elsewhere."""
    edge = where(x == 0.0, -infinity(x), where(x < 0.0, not_a_number(x), x))
    return where((x > 0.0) & (x < infinity(x)), value, edge)


@define("log")
def _log(x: Any) -> Any:
    k, m = _split(x)
    return _log_domain(x, k * _LN2_HI + _log_near_one(m - 1.0, k * _LN2_LO))


@define("log2")
def _log2(x: Any) -> Any:
    k, m = _split(x)
    return _log_domain(x, k + _log_near_one(m - 1.0) * (1 / _LN2))


@define("log10")
def log10(x: Any) -> Any:
    k, m = _split(x)
    hi = 0.301025390625  # 11 bits of log10(2)
    return _log_domain(x, k * hi + (_log_near_one(m - 1.0) * (1 / math.log(10)) + k * (math.log10(2) - hi)))


@define("log1p")
def log1p(x: Any) -> Any:
    near = (x > -0.29) & (x < 0.41)
    return where(x == 0.0, x, where(near, _log_near_one(where(near, x, 0.0)), log(x + 1.0)))


@define("pow")
def power(x: Any, y: Any) -> Any:
    """C's pow: log2(x) in two floats, times y, then 2^that; heads of 12 bits keep the products exact."""
    a = absolute(x)
    k, m = _split(a)
    f = m - 1.0
    d = m + 1.0
    dh = head(d)
    dl = m - (dh - 1.0)
    s = f / d
    sh = head(s)
    sl = ((f - sh * dh) - sh * dl) / d
    z = s * s
    ch = 2.884765625  # head of 2 / ln 2
    c = 2 / _LN2
    hi = sh * ch
    lo = sh * (c - ch) + (sl * c + s * z * poly(z, _LOG) * c)
    t = (k + hi) + lo
    th = head(t)
    tl = ((k - th) + hi) + lo
    yh = head(y)
    p = th * yh
    r = (y - yh) * th + y * tl
    n = rint(p + r)
    v = _scale(_expm1_reduced(((p - n) + r) * _LN2) + 1.0, n)
    inf = infinity(x)
    v = _bounded(t * y, 128.5, -150.5, v)
    up = where(a == 0.0, y < 0.0, where(isinf(a), y > 0.0, (a > 1.0) ^ (y < 0.0)))
    v = where((a == 0.0) | isinf(a) | isinf(y), where(up, inf, 0.0), v)
    v = where((a == 1.0) & isinf(y), 1.0, v)
    whole = trunc(y) == y
    half = y * 0.5
    odd = whole & (trunc(half) != half)
    v = where(signbit(x) & odd, -v, v)
    bad = (x < 0.0) & (a < inf) & ~(whole | isinf(y)) | isnan(x) | isnan(y)
    return where((y == 0.0) | (x == 1.0), 1.0, where(bad, not_a_number(x), v))


# ---- hyperbolic functions and their inverses (f32)


@define("sinh")
def _sinh(x: Any) -> Any:
    a = absolute(x)
    t = expm1(a)
    h = exp(a * 0.5)
    return copysign(where(a > 80.0, h * 0.5 * h, (t + t / (t + 1.0)) * 0.5), x)


@define("cosh")
def _cosh(x: Any) -> Any:
    a = absolute(x)
    e, h = exp(a), exp(a * 0.5)
    return where(a > 80.0, h * 0.5 * h, e * 0.5 + 0.5 / e)


@define("tanh")
def _tanh(x: Any) -> Any:
    a = absolute(x)
    t = expm1_to_40(a * 2.0)
    r = t / (t + 2.0)
    value = copysign(where((a > 10.0) | (r > 1.0), 1.0, r), x)  # WGSL's division may round to more than 1
    return where(isnan(x), x, value)


@define("asinh")
def _asinh(x: Any) -> Any:
    a = absolute(x)
    q = a * a
    near = log1p(a + q / (sqrt(q + 1.0) + 1.0))
    return copysign(where(a > 1e9, log(a) + _LN2, near), x)


@define("acosh")
def _acosh(x: Any) -> Any:
    t = x - 1.0
    near = log1p(t + sqrt(t * 2.0 + t * t))
    return where(x < 1.0, not_a_number(x), where(x > 1e9, log(x) + _LN2, near))


@define("atanh")
def _atanh(x: Any) -> Any:
    a = absolute(x)
    inside = log1p(a * 2.0 / (1.0 - a)) * 0.5
    return copysign(where(a < 1.0, inside, where(a == 1.0, infinity(x), not_a_number(x))), x)


# ---- inverse trigonometric functions (f32)

_ATAN = (-0.06451597259, 0.1074363163, -0.1426394636, 0.1999954022, -0.3333333176)
_ASIN = (0.0336908472, 0.01714923836, 0.03110066274, 0.04459940153, 0.07500094543, 0.1666666634)


def _atan_ratio(p: Any, q: Any) -> Any:
    """atan(p / q) for 0 <= p <= q."""
    far = p > q * 0.4142135623730950488
    t = where(far, p - q, p) / where(far, p + q, q)
    z = t * t
    return (t + t * z * poly(z, _ATAN)) + where(far, const(math.pi / 4, p.type), 0.0)


@define("atan")
def _atan(x: Any) -> Any:
    a = absolute(x)
    over = a > 1.0
    r = _atan_ratio(where(over, 1.0, a), where(over, a, 1.0))
    r = where(over, math.pi / 2 - r, r)
    return copysign(where(isinf(a), math.pi / 2, r), x)


@define("atan2")
def atan2(y: Any, x: Any) -> Any:
    """The angle of (x, y), in all quadrants, for signed zeros and infinities too."""
    a, b = absolute(y), absolute(x)
    steep = a > b
    small, big = where(steep, b, a), where(steep, a, b)
    down = where(big > 1e37, const(0.0625, y.type), 1.0)  # sums of the two must not overflow
    up = where(big < 1e-30, const(1e8, y.type), down)
    both = isinf(small)
    r = _atan_ratio(where(both, 1.0, small * up), where(both | isinf(big), 1.0, big * up))
    r = where(isinf(big) & ~both, 0.0, r)
    r = where(big == 0.0, 0.0, r)
    r = where(steep, math.pi / 2 - r, r)
    r = where(signbit(x), math.pi - r, r)
    return where(isnan(x) | isnan(y), not_a_number(x), copysign(r, y))


def _asin_series(x: Any, z: Any) -> Any:
    return x + x * z * poly(z, _ASIN)


@define("asin")
def _asin(x: Any) -> Any:
    a = absolute(x)
    far = a > 0.5
    z = where(far, (1.0 - a) * 0.5, a * a)
    r = _asin_series(where(far, sqrt(z), a), z)
    r = where(far, math.pi / 2 - (r + r), r)
    return where(a > 1.0, not_a_number(x), copysign(r, x))


@define("acos")
def _acos(x: Any) -> Any:
    a = absolute(x)
    far = a > 0.5
    z = where(far, (1.0 - a) * 0.5, a * a)
    r = _asin_series(where(far, sqrt(z), x), z)
    outer = where(x < 0.0, math.pi - (r + r), r + r)
    return where(a > 1.0, not_a_number(x), where(far, outer, math.pi / 2 - r))


@define("hypot")
def hypot(x: Any, y: Any) -> Any:
    """sqrt(x^2 + y^2) without overflow; infinite if either is, even beside NaN."""
    a, b = absolute(x), absolute(y)
    swap = a > b
    big, small = where(swap, a, b), where(swap, b, a)
    r = small / where(big == 0.0, 1.0, big)
    v = where(small == big, big * math.sqrt(2), big * sqrt(r * r + 1.0))
    return where(isinf(a) | isinf(b), infinity(x), where(isnan(x) | isnan(y), not_a_number(x), v))
