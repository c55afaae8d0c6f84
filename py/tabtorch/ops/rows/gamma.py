"""Rows: the incomplete gamma functions.

Where a is large and x near it: the uniform expansion of Temme (1979), DLMF 8.12; else the power series of DLMF 8.7.1 and
8.7.3 or the continued fraction of 8.9.2, chosen as in Cephes.
"""

from __future__ import annotations

import math
from typing import Any

from tabtorch import ops
from tabtorch.engine import functions as fn
from tabtorch.engine import special_functions as sf
from tabtorch.engine.expr import absolute, const, define, exp, isinf, isnan, log, repeat, sqrt, where
from tabtorch.ops.machinery.registry import Row, elementwise
from tabtorch.ops.rows.row_helpers import rule

#: log gamma(a) = Stirling's formula + a poly in 1/a²; and the numbers of Temme's series
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)[::-1]


def _temme(orders: int, degree: int) -> list[list[float]]:
    """c_k(eta) as polynomials, highest power first: DLMF 8.12.12."""
    n = degree + 2 * orders + 2
    alpha = [0.0, 1.0, 1 / 3]
    for k in range(3, n + 2):
        alpha.append((alpha[-1] - sum(j * alpha[j] * alpha[k - j + 1] for j in range(2, k))) / (k + 1))
    first = [-1 / 3] + [(j + 2) * alpha[j + 2] for j in range(1, n)]
    rows, d = [first], first
    for k in range(1, orders):
        d = [(-1) ** k * _SCALED[k] * first[j] + (j + 2) * d[j + 2] for j in range(len(d) - 2)]
        rows.append(d)
    return [row[degree - 1 :: -1] for row in rows]


#: gamma(a) over its leading term, in powers of 1/a
_SCALED = (
    1.0, 1 / 12, 1 / 288, -139 / 51840, -571 / 2488320, 163879 / 209018880, 5246819 / 75246796800,
    -534703531 / 902961561600,
)  # fmt: skip


def _excess(m: Any) -> Any:
    """m - log(1 + m), without cancellation."""
    near = absolute(m) < 0.5
    s = where(near, m, 0.0) / (where(near, m, 0.0) + 2.0)
    terms = tuple(2 / (2 * k + 3) for k in range(5 if m.type == "f32" else 16))[::-1]
    return where(near, s * m - s * s * s * fn.poly(s * s, terms), m - fn.log1p(m))


@define("gammainc")
def _incomplete(a: Any, x: Any, upper: Any) -> Any:
    """P(a, x), or Q(a, x) where `upper` is 1."""
    single = a.type == "f32"
    eps = 6e-8 if single else 1.2e-16
    wanted = upper > 0.5
    usual = (a > 0.0) & (x > 0.0) & ~isinf(a) & ~isinf(x)
    a0, x0 = a, x
    a, x = where(usual, a, 1.0), where(usual, x, 1.0)

    # x^a e^-x / gamma(a + 1)
    m = (x - a) / a
    excess = _excess(m)
    large = a >= 8.0
    b = where(large, a, 8.0)
    i = 1.0 / b
    stirling = exp(-b * excess - i * fn.poly(i * i, _STIRLING)) / sqrt(b * (2 * math.pi))
    lx = log(x)
    lg = sf.lgamma(a + 1.0)
    factor = where(large, stirling, exp(a * lx - x - lg))

    # for large a
    uniform = (a >= (20.0 if single else 200.0)) & (absolute(m) < 0.3)
    eta = sqrt(excess * 2.0)
    eta = where(m < 0.0, -eta, eta)
    total, power = const(0, a.type), const(1, a.type)
    for c in _temme(4, 9) if single else _temme(8, 17):
        total = total + fn.poly(eta, tuple(c)) * power
        power = power / a
    rest = total * exp(-a * excess) / sqrt(a * (2 * math.pi))
    sign = where(wanted, const(1, a.type), -1.0)
    near = sf.erfc(sign * eta * sqrt(a * 0.5)) * 0.5 + sign * rest

    # which of the two sums: that of the smaller of P and Q
    small = x <= 1.1
    by_q = where(small, where(x <= 0.5, -0.4 / lx >= a, x * 1.1 >= a), x > a) & ~uniform
    by_p = ~by_q & ~uniform

    limit = 400 if single else 1000
    _, p = repeat(
        "p",
        limit,
        lambda k, t, s: (t * x / (a + k + 1.0) > s * eps, t * x / (a + k + 1.0), s + t * x / (a + k + 1.0)),
        where(by_p, const(1, a.type), 0.0),
        where(by_p, const(1, a.type), 0.0),
    )
    p = p * factor

    few = by_q & small
    _, s = repeat(
        "q",
        40,
        lambda k, t, s: (
            absolute(t * -x / ((k + 1.0) * (a + k + 1.0))) > absolute(s) * eps,
            t * -x / (k + 1.0),
            s + t * -x / ((k + 1.0) * (a + k + 1.0)),
        ),
        where(few, const(1, a.type), 0.0),
        const(0, a.type),
    )
    q = -fn.expm1(a * lx - lg) - exp(a * lx - lg) * a * s

    def lentz(k: Any, c: Any, d: Any, h: Any) -> Any:
        n = (k + 1.0) * (a - (k + 1.0))
        b = x - a + 1.0 + (k + 1.0) * 2.0
        c = b + n / c
        d = 1.0 / (b + n * d)
        return absolute(c * d - 1.0) > eps, c, d, h * (c * d)

    far = by_q & ~small
    begin = where(far, x - a + 1.0, 1.0)
    *_, h = repeat("f", limit, lentz, where(far, const(1e30, a.type), 1.0), 1.0 / begin, 1.0 / begin)
    q = where(small, q, factor * a * h)

    value = where(uniform, near, where(by_q, where(wanted, q, 1.0 - q), where(wanted, 1.0 - p, p)))
    one, zero = where(wanted, const(0, a.type), 1.0), where(wanted, const(1, a.type), 0.0)
    edge = where((x0 == 0.0) & (a0 != 0.0) | isinf(a0), zero, one)
    bad = (a0 == 0.0) & ~(x0 > 0.0) | isinf(a0) & isinf(x0) | (a0 < 0.0) | (x0 < 0.0)
    bad = bad | isnan(a0) & ~isinf(x0) & (x0 != 0.0) | isnan(x0) & ~isinf(a0)
    return where(usual, value, where(bad, fn.not_a_number(a), edge))


def _refuse(name: str) -> Any:
    def gradient(g: Any, a: Any, x: Any, out: Any) -> Any:
        raise NotImplementedError(f"the derivative for '{name}: input' is not implemented.")

    gradient.refuses = True  # type: ignore[attr-defined]
    return gradient


for _name, _alias, _upper in (("igamma", "gammainc", 0.0), ("igammac", "gammaincc", 1.0)):
    elementwise(
        Row(
            _name,
            lambda a, x, upper=_upper: _incomplete(a, x, const(upper, a.type)),
            (
                _refuse(_name),
                lambda g, a, x, out, sign=1 - 2 * _upper: g * ops.exp((a - 1) * ops.log(x) - x - ops.lgamma(a)) * sign,
            ),
            rule(bools=False, ints=False),
            "input, other",
            f"The regularized {'upper' if _upper else 'lower'} incomplete gamma function of order `input` at `other`.",
            (0.1, 8.0),
            cost=800,
            aliases=("special_" + _alias,),
            numbers="",
        )
    )
