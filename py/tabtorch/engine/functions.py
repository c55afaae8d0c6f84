"""Functions of the expression form that WGSL has not, or has only loosely, written out with `define`.

Each body makes expressions for the type of its argument. `f32` bodies run on webgpu and stay within about 4 ulp on any
implementation that keeps to WGSL's accuracy table. `f64` bodies run on the cpu device, where `f32` values are doubles too,
so there they serve both; what JavaScript's Math has is taken from there.

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
    sin,
    sqrt,
    tan,
    trunc,
    where,
)

_SQRT_PI = math.sqrt(math.pi)


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


def _head(x: Any) -> Any:
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
    return where(x > over, infinity(x), where(x < under, 0.0, value))


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
    n = rint(x * (1 / _LN2))
    p = _expm1_reduced((x - n * _LN2_HI) - n * _LN2_LO)
    s = _power_of_two(cast(n, "i32"))
    small = where(x == 0.0, x, s * p + (s - 1.0))
    return where(x > 40.0, exp(x), where(x < -18.0, -1.0, small))


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
    dh = _head(d)
    dl = m - (dh - 1.0)
    s = f / d
    sh = _head(s)
    sl = ((f - sh * dh) - sh * dl) / d
    z = s * s
    ch = 2.884765625  # head of 2 / ln 2
    c = 2 / _LN2
    hi = sh * ch
    lo = sh * (c - ch) + (sl * c + s * z * poly(z, _LOG) * c)
    t = (k + hi) + lo
    th = _head(t)
    tl = ((k - th) + hi) + lo
    yh = _head(y)
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
    t = expm1(a * 2.0)
    return copysign(where(a > 10.0, 1.0, t / (t + 2.0)), x)


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


# ---- error functions

_ERF32 = (
    7.875875063e-5, -0.0008016864287, 0.005189087423, -0.02685421201, 0.1128359472, -0.3761262667, 1.128379166,
)  # fmt: skip
_ERF64 = (
    -4.2309458242953378e-12, 8.7090451290531067e-11, -1.216456005728345e-9, 1.4792401209404813e-8, -1.6364642158167615e-7,
    1.6462045441468419e-6, -1.4925647567519332e-5, 0.00012055332902888735, -0.00085483270219348296, 0.0052239776254232983,
    -0.026866170645129841, 0.1128379167095512, -0.37612638903183752, 1.1283791670955126,
)  # fmt: skip
_ERFCX32 = (
    3.891751557e-6, 7.720413938e-5, -0.0001042211771, -0.0007261608012, 0.001888215701, 0.002498822611, -0.02377038871,
    0.06831669729, -0.1192736784, 0.129644091, -0.04756229383, -0.1356210682, 1.253008058,
)  # fmt: skip
_ERFCX64 = (
    9.9488813873453752e-10, -3.1695861117061015e-9, -1.3361983754343432e-8, 2.777903173485627e-8, 1.0195723965959923e-7,
    -1.2038707460075747e-7, -6.1677102950618424e-7, 3.3649026104197535e-7, 3.4725203402294706e-6, -7.1861488062244381e-7,
    -2.0100627693225359e-5, 4.9440311866174294e-6, 0.00012509937436795942, -0.00010515828084604045, -0.00077983227727591687,
    0.0018886900908316604, 0.0025293918167998445, -0.023770514890662093, 0.068308027343921431, -0.11927366341681596,
    0.12964515870276262, -0.047562294353418972, -0.13562110612458119, 1.2530080582697295,
)  # fmt: skip


def _by_type(x: Any, single: Any, double: Any) -> Any:
    return single if x.type == "f32" else double


def _scaled_erfc(a: Any) -> Any:
    """exp(a^2) erfc(a) for a >= 0: a polynomial in (a - 3) / (a + 3), over 1 + 2a (Shepherd & Laframboise 1981)."""
    t = 1.0 - 6.0 / (a + 3.0)
    return poly(t, _by_type(a, _ERFCX32, _ERFCX64)) / (a * 2.0 + 1.0)


def _exp_square(a: Any, sign: float) -> Any:
    """exp(sign * a^2); in f32 the rounding of the square is made good."""
    if a.type == "f64":
        return exp(a * a * sign)
    h = _head(a)
    return exp(h * h * sign) * exp((a - h) * (a + h) * sign)


@define("erfc")
def erfc(x: Any) -> Any:
    a = absolute(x)
    a = where(a > 30.0, 30.0, a)
    v = _exp_square(a, -1.0) * _scaled_erfc(a)
    return where(x < 0.0, 2.0 - v, v)


@define("erf")
def erf(x: Any) -> Any:
    z = x * x
    return where(z < 0.81, x * poly(z, _by_type(x, _ERF32, _ERF64)), copysign(1.0 - erfc(absolute(x)), x))


@define("erfcx")
def erfcx(x: Any) -> Any:
    """exp(x^2) erfc(x)."""
    v = _scaled_erfc(absolute(x))
    over = where(x < -30.0, infinity(x), _exp_square(x, 1.0) * 2.0 - v)
    return where(x < 0.0, over, v)


_ERFINV_NEAR = (
    -3.407259358e-5, 3.56078601e-5, 0.0002857246997, -0.0008456995282, -0.0004855878603, 0.0085292729, -0.01957384987,
    -0.02610870547, 0.6166006976, 1.50140936,
)  # fmt: skip
_ERFINV_TAIL = (
    -0.0001044558691, -0.0001467318813, 0.001138507874, -0.002143198283, 0.002935700307, -0.004254858544, 0.005974221341,
    1.004689667, 3.033636574,
)  # fmt: skip
_ERFINV_FAR = (
    -602.482354, 863.222819, -544.1020734, 199.9667523, -48.91980612, 9.420103881, -1.588772028, -0.01115350903,
)  # fmt: skip
_ERFINV_FARTHER = (
    14551.37656, -7369.227186, 1626.756749, -211.0758211, 20.07747531, -1.975581344, -0.005066380899,
)  # fmt: skip


def _erfinv_ratio(w: Any, far: bool) -> Any:
    """erfinv(x) / x as a function of w = -log(1 - x^2); w < 17 unless `far`."""
    s = sqrt(w)
    tail = poly(s - 3.2, _ERFINV_TAIL)
    if far:
        u = 1.0 / s
        tail = where(s < 4.15, tail, s + poly(u, _ERFINV_FAR))
        if w.type == "f64":
            tail = where(s < 10.2, tail, s + poly(u, _ERFINV_FARTHER))
    return where(w < 5.0, poly((w - 2.5) * 0.4, _ERFINV_NEAR), tail)


def _halley(y: Any, newton: Any) -> Any:
    """One step to the zero of erf(y) - c, given the Newton step; its second derivative is -2y times the first."""
    return y - newton / (y * newton + 1.0)


@define("erfinv")
def erfinv(x: Any) -> Any:
    a = absolute(x)
    y = a * _erfinv_ratio(-log((1.0 - a) * (a + 1.0)), x.type == "f64")
    if x.type == "f64":
        for _ in range(2):
            rest = where(a < 0.5, erf(y) - a, (1.0 - a) - erfc(y))
            y = _halley(y, rest * (_SQRT_PI / 2) * exp(y * y))
    y = where(a < 1.0, y, where(a == 1.0, infinity(x), not_a_number(x)))
    return copysign(y, x)


@define("ndtri")
def ndtri(p: Any) -> Any:
    """The inverse of the normal distribution function."""
    upper = p > 0.5
    q = where(upper, 1.0 - p, p) * 2.0
    y = (1.0 - q) * _erfinv_ratio(-log(q * (2.0 - q)), True)
    if p.type == "f64":
        for _ in range(2):
            y = _halley(y, (q * exp(y * y) - _scaled_erfc(y)) * (_SQRT_PI / 2))
    y = where(q > 0.0, y, where(q == 0.0, infinity(p), not_a_number(p))) * math.sqrt(2)
    return where(upper, y, -y)


@define("log_ndtr")
def log_ndtr(x: Any) -> Any:
    """log of the normal distribution function, far into the lower tail."""
    t = x * math.sqrt(0.5)
    low = x < -1.0
    tail = log(_scaled_erfc(where(low, -t, 0.0)) * 0.5) - t * t
    return where(low, tail, log1p(erfc(t) * -0.5))


# ---- gamma and its family

_LGAMMA32 = (
    -0.0002505620215, 0.0005702512503, -0.001187484814, 0.002878868684, -0.007385920885, 0.02058162544, -0.06735229409,
    0.322467018, 0.4227843351,
)  # fmt: skip
_LGAMMA64 = (
    -5.7286531085080095e-7, 1.2159620602745015e-6, -1.9825656207391961e-6, 4.2553703842115488e-6, -9.4529384737145762e-6,
    2.0535581020500523e-5, -4.4924435358987873e-5, 9.9453713688416325e-5, -0.00022315489463809117, 0.00050966981194321159,
    -0.0011927539062598581, 0.0028905103192621994, -0.0073855510287714682, 0.020580808427990122, -0.067352301053197587,
    0.32246703342411215, 0.42278433509846714,
)  # fmt: skip
#: Stirling's series: B(2k) / (2k (2k - 1)), and that of digamma, B(2k) / 2k, and of trigamma, B(2k)
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
_STIRLING = tuple(b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, 1))[::-1]
_DIGAMMA = tuple(b / (2 * k) for k, b in enumerate(_BERNOULLI, 1))[::-1]
_TRIGAMMA = _BERNOULLI[::-1]


def _series(x: Any, coefficients: tuple[float, ...]) -> Any:
    """As many terms as the type can tell."""
    return poly(x, coefficients[3:] if x.type == "f32" else coefficients)


def _turn(x: Any) -> Any:
    """x less the nearest integer: sine and tangent of pi x depend on no more, up to sign."""
    return x - rint(x)


@define("lgamma")
def lgamma(x: Any) -> Any:
    """log |gamma(x)|."""
    negative = x < 0.0
    v = where(negative, 1.0 - x, x)
    # below 8: to [1.5, 2.5] by the recurrence, whose factors are gathered in f
    y, f = v, const(1, x.type)
    for _ in range(6):
        down = y >= 2.5
        y = where(down, y - 1.0, y)
        f = where(down, f * y, f)
    low, lowest = v < 1.5, v < 0.5
    u = where(lowest, v, where(low, v - 1.0, y - 2.0))
    f = where(lowest, v * (v + 1.0), where(low, v, f))
    big = v >= 8.0
    lg = log(where(big, v, f))
    near = u * poly(u, _by_type(x, _LGAMMA32, _LGAMMA64)) + where(low, -lg, lg)
    i = 1.0 / v
    stirling = (v - 0.5) * (lg - 1.0) + (0.5 * math.log(2 * math.pi) - 0.5 + i * _series(i * i, _STIRLING))
    above = where(isinf(x), infinity(x), where(big, stirling, near))
    s = absolute(sin(_turn(x) * math.pi))
    below = where(s == 0.0, infinity(x), log(math.pi / s) - above)
    return where(isinf(x), infinity(x), where(negative, below, above))


@define("digamma")
def digamma(x: Any) -> Any:
    """The derivative of log gamma."""
    negative = x < 0.0
    v = where(negative, 1.0 - x, x)
    limit = 6.0 if x.type == "f32" else 10.0
    shifted = const(0, x.type)
    for _ in range(int(limit)):
        low = v < limit
        shifted = where(low, shifted - 1.0 / v, shifted)
        v = where(low, v + 1.0, v)
    i = 1.0 / v
    r = shifted + (log(v) - i * 0.5 - i * i * _series(i * i, _DIGAMMA))
    t = _turn(x)
    r = where(negative, where(t == 0.0, not_a_number(x), r - math.pi / tan(t * math.pi)), r)
    return where(x == 0.0, copysign(infinity(x), where(signbit(x), const(1, x.type), -1.0)), r)


@define("trigamma")
def trigamma(x: Any) -> Any:
    """The second derivative of log gamma."""
    mirrored = x < 0.5
    v = where(mirrored, 1.0 - x, x)
    limit = 6.0 if x.type == "f32" else 10.0
    shifted = const(0, x.type)
    for _ in range(int(limit)):
        low = v < limit
        shifted = where(low, shifted + 1.0 / (v * v), shifted)
        v = where(low, v + 1.0, v)
    i = 1.0 / v
    r = shifted + i * (1.0 + i * (0.5 + i * _series(i * i, _TRIGAMMA)))
    s = sin(_turn(x) * math.pi)
    return where(mirrored, where(s == 0.0, infinity(x), math.pi**2 / (s * s) - r), r)


@define("zeta")
def zeta(s: Any, q: Any) -> Any:
    """Hurwitz's zeta function for s > 1, q > 0: nine terms, and Euler and Maclaurin for the rest. NaN elsewhere."""
    total = power(q, -s)
    for k in range(1, 9):
        total = total + power(q + float(k), -s)
    w = q + 9.0
    b = power(w, -s)
    total = total + b * 0.5
    t, rest = b, b * w / (s - 1.0)
    n = 0
    # t = w^-s s (s+1) ... (s+2k) / w^(2k+1); its factor is B(2k) / (2k)!
    for k, bernoulli in enumerate(_BERNOULLI, 1):
        for _ in range(1 if k == 1 else 2):
            t = t * (s + float(n)) / w
            n += 1
        rest = rest + t * (bernoulli / math.factorial(2 * k))
    total = where(b == 0.0, total, total + rest)
    other = where(q <= 0.0, where(q == rint(q), infinity(s), not_a_number(s)), q + s)
    value = where(q > 0.0, total, other)
    return where(s == 1.0, infinity(s), where(s < 1.0, not_a_number(s), value))


# ---- modified Bessel functions

_I0_32 = (
    0.02131467664, 0.05373484037, 0.5689436427, 2.59560395, 10.59744837, 32.35074814, 72.82133346, 113.7771488, 113.7778433,
    63.99999648, 16.00000007, 0.9999999997,
)  # fmt: skip
_I0_64 = (
    1.7512269600337166e-10, 2.0530887302026463e-9, 4.2910710362170762e-8, 6.7278309413615751e-7, 9.483110450704865e-6,
    0.00011614272875895546, 0.0012267791086491617, 0.011040998236981382, 0.083497555805719921, 0.52185972135809821,
    2.6419148400424527, 10.567659360034074, 32.363456790124332, 72.817777777777692, 113.77777777777778, 113.77777777777778,
    64.0, 16.0, 1.0,
)  # fmt: skip
_I0_HIGH32 = (
    1.082989826e-7, 3.631710305e-7, 1.47679211e-6, 1.111152546e-5, 0.0001362168431, 0.003360555852, 0.4021765094,
)  # fmt: skip
_I0_HIGH64 = (
    2.6939523477274315e-10, 2.4753395735269881e-10, -1.5268350679498614e-9, -1.7319694576109251e-9, 3.6574714564315249e-9,
    5.9689407902823321e-9, -3.3141892881950764e-9, -1.2500294861135952e-8, -7.4861046780132902e-9, 7.2253662903529855e-9,
    2.1706997046749564e-8, 3.9397915864132462e-8, 8.8703286537670127e-8, 2.9735115257032251e-7, 1.4838486096329384e-6,
    1.1143034275890434e-5, 0.00013621607437481704, 0.003360551983659838, 0.40217650944500808,
)  # fmt: skip
_I1_32 = (
    0.0008456601724, 0.002685378728, 0.02784352661, 0.1450543544, 0.6615829438, 2.311204775, 6.06827977, 11.3777545,
    14.22222465, 10.66666654, 4.000000003, 0.5,
)  # fmt: skip
_I1_64 = (
    4.5143422431132019e-12, 5.789958771234212e-11, 1.2583922525768951e-9, 2.1033994782580745e-8, 3.1608694947015801e-7,
    4.1479757680686135e-6, 4.7183791960751363e-5, 0.00046004160737636761, 0.0037953434380225971, 0.026092986071093208,
    0.1467730466680219, 0.66047871000236628, 2.3116754850088398, 6.068148148148146, 11.377777777777778, 14.222222222222222,
    10.666666666666667, 4.0, 0.5,
)  # fmt: skip
_I1_HIGH32 = (
    -1.221249847e-7, -4.215554373e-7, -1.826714505e-6, -1.500332307e-5, -0.0002192366694, -0.009749581527, 0.389398459,
)  # fmt: skip
_I1_HIGH64 = (
    -2.8529363193366498e-10, -2.4787732484701877e-10, 1.6267967919805687e-9, 1.7534028782550157e-9, -3.9512867020079354e-9,
    -6.140922252272361e-9, 3.791760464564428e-9, 1.3169470889820884e-8, 7.5057535421206442e-9, -8.1134978614477982e-9,
    -2.3539650421906564e-8, -4.3198081852561567e-8, -9.9993121236942969e-8, -3.4837724221650649e-7, -1.8349112236076095e-6,
    -1.5038547665126192e-5, -0.00021923576381600227, -0.0097495771932280478, 0.38939845902587233,
)  # fmt: skip


def _bessel(x: Any, order: int, scaled: bool) -> Any:
    """Polynomials in (x/8)^2 up to 8, in 16/x - 1 above; times exp(-|x|) if `scaled`."""
    if order == 0:
        low, high = _by_type(x, (_I0_32, _I0_HIGH32), (_I0_64, _I0_HIGH64))
    else:
        low, high = _by_type(x, (_I1_32, _I1_HIGH32), (_I1_64, _I1_HIGH64))
    a = absolute(x)
    near = poly(a * a * (1 / 64), low)
    far = poly(16.0 / a - 1.0, high) / sqrt(a)
    near, far = (near * exp(-a), far) if scaled else (near, exp(a) * far)
    return where(a <= 8.0, near, far) if order == 0 else where(a <= 8.0, near * x, copysign(far, x))


@define("i0")
def i0(x: Any) -> Any:
    return _bessel(x, 0, False)


@define("i0e")
def i0e(x: Any) -> Any:
    return _bessel(x, 0, True)


@define("i1")
def i1(x: Any) -> Any:
    return _bessel(x, 1, False)


@define("i1e")
def i1e(x: Any) -> Any:
    return _bessel(x, 1, True)
