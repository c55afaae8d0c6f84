"""Rows: orthogonal polynomials, which only torch.special has. The degree is data: one kernel loops as often as it says.

Which formula serves for which degree, and what becomes of overflow, is as in PyTorch's Math.h.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabtorch.engine.expr import absolute, acos, cos, define, isnan, repeat, sin, trunc, where
from tabtorch.engine.functions import fused, infinity, kept, not_a_number, quotient
from tabtorch.ops.machinery.registry import Row, elementwise
from tabtorch.ops.rows.row_helpers import one, rounded, rule, zero

_LARGEST = {"f32": 3.4028234663852886e38, "f64": 1.7976931348623157e308}


def _degree(n: Any) -> Any:
    """The degree as C converts it: towards zero; negative where it is no 64-bit integer."""
    return where(absolute(n) < 2.0**63, trunc(n), -1.0)


def _recurrence(n: Any, first: Any, most: Any, step: Callable[[Any, Any], Any]) -> Any:
    """Member n of p(0) = 1, p(1) = first, p(k + 1) = (a p(k) - b) / c where (a, b, c) = step(k, p(k - 1)).

    `most` is the largest number of the dtype: the cpu device has doubles for float32 too, and overflow is to be seen.
    """

    def bounded(v: Any) -> Any:
        return where(v > most, infinity(v), where(v < -most, -infinity(v), v))

    def body(k: Any, p: Any, q: Any) -> tuple[Any, Any, Any]:
        a, b, c = step(k + 1.0, p)
        b = bounded(kept(b))
        # where the terms cancel another rounding would show: PyTorch's compilers fuse the product and the difference
        difference = where(absolute(a * q) > most, bounded(a * q) - b, fused(a, q, b))
        r = quotient(bounded(difference), c)
        return (k + 3.0 <= n) & ~isnan(r), q, r

    many = n > 1.0
    q = repeat("p", 2**31 - 1, body, where(many, one(n), zero(n)), where(many, first, zero(n)))[1]
    return where(many, q, where(n == 1.0, first, where(n == 0.0, one(n), 0.0)))


def _chebyshev(name: str, first: float | None, end: Callable[..., Any], start: Callable[..., Any], wave: Any) -> Any:
    """A kind of Chebyshev polynomial: p(1) = 2 x + first (None: x), values at 1 and -1, and at the cosine of an angle."""

    @define("chebyshev_" + name)
    def f(x: Any, n: Any, cut: Any, most: Any) -> Any:
        n = _degree(n)
        a = absolute(x)
        half = n * 0.5
        edge = where(x > 0.0, end(n), where(half == trunc(half), start(n), -start(n)))
        edges, inside = (a == 1.0) & (n >= 0.0), (a < 1.0) & (n > cut)
        p1 = x if first is None else x + x + first
        looped = _recurrence(where(edges | inside, 0.0, n), p1, most, lambda k, p: (x + x, p, 1.0))
        return where(edges, edge, where(inside, wave(n, acos(x)), looped))

    return f


_KINDS = {
    "t": (_chebyshev("t", None, one, one, lambda n, a: cos(n * a)), 6.0, 6.0),
    "u": (
        _chebyshev("u", 0.0, lambda n: n + 1.0, lambda n: n + 1.0, lambda n, a: sin((n + 1.0) * a) / sin(a)),
        8.0,
        6.0,
    ),
    "v": (_chebyshev("v", -1.0, one, lambda n: n + n + 1.0, lambda n, a: cos((n + 0.5) * a) / cos(a * 0.5)), 8.0, 6.0),
    "w": (_chebyshev("w", 1.0, lambda n: n + n + 1.0, one, lambda n, a: sin((n + 0.5) * a) / sin(a * 0.5)), 8.0, 4.0),
}


def _hermite(n: Any, first: Any, most: Any, step: Callable[[Any, Any], Any]) -> Any:
    n = _degree(n)
    beyond = n > where(most < 1e300, one(n) * 128.0, 512.0)
    return where(beyond, not_a_number(n), _recurrence(where(beyond, 0.0, n), first, most, step))


@define("hermite_h")
def _hermite_h(x: Any, n: Any, most: Any) -> Any:
    return _hermite(n, x + x, most, lambda k, p: (x + x, (k + k) * p, 1.0))


@define("hermite_he")
def _hermite_he(x: Any, n: Any, most: Any) -> Any:
    return _hermite(n, x, most, lambda k, p: (x, k * p, 1.0))


@define("laguerre")
def _laguerre(x: Any, n: Any, most: Any) -> Any:
    n = _degree(n)
    n = where((x == 0.0) & (n > 0.0), 0.0, n)
    return _recurrence(n, 1.0 - x, most, lambda k, p: (k + k + (1.0 - x), k * p, k + 1.0))


@define("legendre")
def _legendre(x: Any, n: Any, most: Any) -> Any:
    n = _degree(n)
    half = n * 0.5
    n = where((absolute(x) == 1.0) & (n > 1.0), n - trunc(half) * 2.0, n)
    return _recurrence(n, x, most, lambda k, p: ((k + k + 1.0) * x, k * p, k + 1.0))


def _row(name: str, expr: Any, doc: str) -> None:
    kernel = rule(name + "_cpu", to_float=True, half=False)
    elementwise(Row("special_" + name, expr, None, kernel, "input, n", doc, cost=200, method=False, inplace=False))


for _kind, (_function, _cut, _shifted_cut) in _KINDS.items():
    _doc = f"Chebyshev polynomial of kind {'tuvw'.index(_kind) + 1} and degree n at "
    _row(
        f"chebyshev_polynomial_{_kind}", lambda x, n, f=_function, c=_cut: f(x, n, c, _LARGEST[x.type]), _doc + "input."
    )
    _row(
        f"shifted_chebyshev_polynomial_{_kind}",
        lambda x, n, f=_function, c=_shifted_cut: f(rounded(x + x - 1.0), n, c, _LARGEST[x.type]),
        _doc + "2 * input - 1.",
    )
for _name, _function, _whose in (
    ("hermite_polynomial_h", _hermite_h, "Physicists' Hermite"),
    ("hermite_polynomial_he", _hermite_he, "Probabilists' Hermite"),
    ("laguerre_polynomial_l", _laguerre, "Laguerre"),
    ("legendre_polynomial_p", _legendre, "Legendre"),
):
    _row(_name, lambda x, n, f=_function: f(x, n, _LARGEST[x.type]), f"{_whose} polynomial of degree n at input.")
