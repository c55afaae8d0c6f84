"""Special functions in the expression form: the error function and its kin, gamma and its family, Bessel functions.

Bodies and types are as in `functions`. The polynomials are Chebyshev fits made with mpmath, highest power first.
"""

from __future__ import annotations

import math
from typing import Any

from .expr import absolute, const, define, exp, floor, isinf, isnan, log, rint, signbit, sin, sqrt, tan, where
from .functions import copysign, expm1_to_40, head, infinity, log1p, not_a_number, poly, power

_SQRT_PI = math.sqrt(math.pi)


def _by_type(x: Any, single: Any, double: Any) -> Any:
    return single if x.type == "f32" else double


# ---- error functions

_ERF32 = (
    7.875875063e-5, -0.0008016864287, 0.005189087423, -0.02685421201, 0.1128359472, -0.3761262667, 1.128379166,
)  # fmt: skip
_ERF64 = (
    -4.2309458242953378e-12, 8.7090451290531067e-11, -1.216456005728345e-9, 1.4792401209404813e-8, -1.6364642158167615e-7,
    1.6462045441468419e-6, -1.4925647567519332e-5, 0.00012055332902888735, -0.00085483270219348296, 0.0052239776254232983,
    -0.026866170645129841, 0.1128379167095512, -0.37612638903183752, 1.1283791670955126,
)  # fmt: skip
#: of -log(erfc(x)) for 0.89 < x < 4: weighted by erfc(x), 1.7e-9 off at most
_MINUS_LOG_ERFC = (
    -0.00019828, 0.0030663009, -0.0223193653, 0.1041242853, 0.6369616985, 1.12780714, 0.0001637129,
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


def _scaled_erfc(a: Any) -> Any:
    """exp(a^2) erfc(a) for a >= 0: a polynomial in (a - 3) / (a + 3), over 1 + 2a (Shepherd & Laframboise 1981)."""
    t = 1.0 - 6.0 / (a + 3.0)
    return poly(t, _by_type(a, _ERFCX32, _ERFCX64)) / (a * 2.0 + 1.0)


def _exp_square(a: Any, sign: float) -> Any:
    """exp(sign * a^2); in f32 the rounding of the square is made good."""
    if a.type == "f64":
        return exp(a * a * sign)
    h = head(a)
    return exp(h * h * sign) * exp((a - h) * (a + h) * sign)


@define("erfc")
def erfc(x: Any) -> Any:
    a = absolute(x)
    a = where(a > 30.0, 30.0, a)
    v = _exp_square(a, -1.0) * _scaled_erfc(a)
    return where(x < 0.0, 2.0 - v, v)


@define("erf")
def erf(x: Any) -> Any:
    z, a = x * x, absolute(x)
    if x.type == "f64":
        far = 1.0 - erfc(a)
    else:  # within 1.4 of the last place, for half of what erfc takes
        far = where(a > 4.0, 1.0, -expm1_to_40(-poly(a, _MINUS_LOG_ERFC)))
    near = x * poly(z, _by_type(x, _ERF32, _ERF64))
    return where(isnan(x), x, where(z < 0.81, near, copysign(far, x)))


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
    upper = p >= 0.5  # at which it is +0
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


def _raised(v: Any, term: Any) -> tuple[Any, Any]:
    """v > 0 brought by steps of 1 to where Stirling's series serves, and the sum of `term` over the steps."""
    limit = 6 if v.type == "f32" else 10
    total = const(0, v.type)
    for _ in range(limit):
        low = v < float(limit)
        total = where(low, total + term(v), total)
        v = where(low, v + 1.0, v)
    return v, total


@define("digamma")
def digamma(x: Any) -> Any:
    """The derivative of log gamma."""
    negative = x < 0.0
    v, steps = _raised(where(negative, 1.0 - x, x), lambda v: -1.0 / v)
    i = 1.0 / v
    r = steps + (log(v) - i * 0.5 - i * i * _series(i * i, _DIGAMMA))
    t = _turn(x)
    r = where(negative, where(t == 0.0, not_a_number(x), r - math.pi / tan(t * math.pi)), r)
    return where(x == 0.0, copysign(infinity(x), where(signbit(x), const(1, x.type), -1.0)), r)


@define("trigamma")
def trigamma(x: Any) -> Any:
    """The second derivative of log gamma."""
    mirrored = x < 0.5
    v, steps = _raised(where(mirrored, 1.0 - x, x), lambda v: 1.0 / (v * v))
    i = 1.0 / v
    r = steps + i * (1.0 + i * (0.5 + i * _series(i * i, _TRIGAMMA)))
    s = sin(_turn(x) * math.pi)
    return where(mirrored, where(s == 0.0, infinity(x), math.pi**2 / (s * s) - r), r)


@define("zeta_above")
def _zeta_above(s: Any, q: Any) -> Any:
    """Hurwitz's zeta function for s > 1, q > 0: nine terms, and Euler and Maclaurin for the rest."""
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
    return where(b == 0.0, total, total + rest)


@define("zeta")
def zeta(s: Any, q: Any) -> Any:
    """Hurwitz's zeta function for s > 1; for q < 0 where s is integral, and infinite at its poles. NaN elsewhere."""
    # below 0 the terms before the sign changes are those of two sums from the other side: no loop as long as q is.
    # The largest two, which may cancel, are added on their own.
    below = q < 0.0
    f = where(below, q - floor(q), q)
    half = s * 0.5
    even = half == rint(half)
    passed = _zeta_above(s, 2.0 - f) - _zeta_above(s, 1.0 - q)
    a, b = power(f, -s), power(1.0 - f, -s)
    lost = log(where(f < 0.5, 1.0 - f, f)) * s < -709.78  # even in double precision, in which PyTorch computes
    over = where(lost, not_a_number(s), where(f == 0.5, 0.0, (0.5 - f) * infinity(s)))
    apart = where(isinf(a) & isinf(b), over, a - b)
    largest = where(even, a + b, apart)
    value = _zeta_above(s, where(below, f + 1.0, f))
    value = where(below, (value + where(even, passed, -passed)) + largest, value)
    # PyTorch's formula has 0 times infinity in the limits that are 0
    known = (q < infinity(q)) & ~((value == 0.0) & (s > 2.4e13)) & ((q > 0.0) | (s == floor(s)))
    value = where(known | ((q <= 1.0) & (q > 0.0)), value, not_a_number(s))
    value = where((q <= 0.0) & (q == floor(q)), infinity(s), value)
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
