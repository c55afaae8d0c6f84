"""Philox 4x32-10 in the expression form: four random words of a counter and a key, the same on every device.

Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Element i of a draw needs nothing from
element i - 1, so a draw is a map, fuses with its neighbours, and can be made again rather than kept.

The maps here are indexed, and their first four scalars are those of `SCALARS`; a generator gives each draw an offset of
its own, and element i takes the words of the counter (i, 0, offset) under the key (seed).
"""

from __future__ import annotations

import math
from typing import Any

from .expr import Expr, cast, ceil, const, cos, define, exp, fit, imod, log, maximum, sqrt, tan, where
from .kinds import Map

#: compute types of a draw's first scalars: seed low, seed high, offset low, offset high
SCALARS = ("u32", "u32", "u32", "u32")
#: rough count of operations of one call, for the engine
COST = 300

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85


@define("mulhi")
def multiply_high(a: Any, b: Any) -> Any:
    """The upper word of the product of two u32, by halves: neither language has a wide multiplication."""
    al, ah = a & 0xFFFF, a >> 16
    bl, bh = b & 0xFFFF, b >> 16
    cross = ah * bl + ((al * bl) >> 16)
    middle = al * bh + (cross & 0xFFFF)
    return ah * bh + (cross >> 16) + (middle >> 16)


def philox(c0: Expr, c1: Expr, c2: Expr, c3: Expr, k0: Expr, k1: Expr) -> tuple[Expr, Expr, Expr, Expr]:
    """Four words (u32) of the counter c under the key k."""
    m0, m1 = const(_M0, "u32"), const(_M1, "u32")
    for _ in range(10):
        first, second = multiply_high(c0, m0), multiply_high(c2, m1)
        c0, c1, c2, c3 = second ^ c1 ^ k0, c2 * m1, first ^ c3 ^ k1, c0 * m0
        k0, k1 = k0 + _W0, k1 + _W1
    return c0, c1, c2, c3


@define("philox")
def first_word(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> Any:
    """The first of these words."""
    return philox(c0, c1, c2, c3, k0, k1)[0]


def _arguments(p: Any) -> tuple[Expr, ...]:
    return (p.index, const(0, "u32"), p.scalar(2), p.scalar(3), p.scalar(0), p.scalar(1))


def word(p: Any) -> Expr:
    """One random word at a point of a map."""
    return first_word(*_arguments(p))


def words(p: Any) -> tuple[Expr, Expr, Expr, Expr]:
    """Four random words at a point of a map."""
    a = _arguments(p)
    return philox(*[p.k.let(x) for x in a])


def _unit(w: Expr) -> Expr:
    """[0, 1) of the upper 24 bits: exact in f32."""
    return cast(w >> 8, "f32") * 2.0**-24


def _open_unit(a: Expr, b: Expr) -> Expr:
    """(0, 1] of two words, down to 2**-49, so that logarithms have their tail. Every step is exact but one sum."""
    return (cast(a >> 8, "f32") + (cast(b >> 8, "f32") + 0.5) * 2.0**-24) * 2.0**-24


def _normal(w: tuple[Expr, ...]) -> Expr:
    """Box and Muller's normal."""
    return sqrt(log(_open_unit(w[0], w[1])) * -2.0) * cos(_unit(w[2]) * (2 * math.pi))


def _uniform_at(p: Any) -> Any:
    low, high = p.scalar(4), p.scalar(5)
    v = fit(_unit(word(p)) * (high - low) + low, p.inst.out.dtype.name)
    return where(v >= high, low, v)  # rounding may have reached the end that is left out


def _normal_at(p: Any) -> Any:
    return _normal(words(p)) * p.scalar(5) + p.scalar(4)


def _integer_at(p: Any) -> Any:
    """base + [0, range) for a range of up to 32 bits; scalars: range as u32 (0: 2**32), base."""
    w, n = word(p), p.scalar(4)
    return cast(where(n == 0, w, imod(w, n)), "i64") + p.scalar(5)


def _wide_integer_at(p: Any) -> Any:
    """The same for a range of up to 64 bits, unsigned in an i64 (0: 2**64); sums wrap as PyTorch's do."""
    high, low, _, _ = words(p)
    n = p.scalar(4)
    v = (cast(high, "i64") << const(32, "i64")) | cast(low, "i64")
    least = const(-(2**63), "i64")
    big = where((v ^ least) >= (n ^ least), v - n, v)  # a range past 2**63 is taken off at most once
    return where(n == 0, v, where(n < 0, big, imod(v & const(2**63 - 1, "i64"), n))) + p.scalar(5)


def _chance_at(p: Any) -> Any:
    """True with the probability scalar 4 / 2**32."""
    return word(p) < p.scalar(4)


def _certain_at(p: Any) -> Any:
    """True; it takes the generator's numbers all the same."""
    return const(True, "bool")


def _chance_of_at(p: Any) -> Any:
    return _unit(word(p)) < cast(p.value(0), "f32")


def _exponential_at(p: Any) -> Any:
    w = words(p)
    return -log(_open_unit(w[0], w[1])) / p.scalar(4)


def _geometric_at(p: Any) -> Any:
    """Scalar 4: 1 / log(1 - p)."""
    w = words(p)
    return maximum(ceil(log(_open_unit(w[0], w[1])) * p.scalar(4)), 1.0)


def _cauchy_at(p: Any) -> Any:
    w = words(p)
    return tan((_open_unit(w[0], w[1]) - 0.5) * math.pi) * p.scalar(5) + p.scalar(4)


def _log_normal_at(p: Any) -> Any:
    return exp(_normal_at(p))


def _bits_at(p: Any) -> Any:
    """62 random bits as an i64."""
    high, low, _, _ = words(p)
    return (cast(high >> 2, "i64") << const(32, "i64")) | cast(low, "i64")


def _map(name: str, at: Any) -> Map:
    return Map(name, at, indexed=True, cost=COST)


UNIFORM = _map("uniform", _uniform_at)
NORMAL = _map("normal", _normal_at)
INTEGER = _map("random", _integer_at)
WIDE_INTEGER = _map("random", _wide_integer_at)
CHANCE = _map("bernoulli", _chance_at)
CERTAIN = _map("bernoulli", _certain_at)
CHANCE_OF = _map("bernoulli", _chance_of_at)
EXPONENTIAL = _map("exponential", _exponential_at)
GEOMETRIC = _map("geometric", _geometric_at)
CAUCHY = _map("cauchy", _cauchy_at)
LOG_NORMAL = _map("log_normal", _log_normal_at)
BITS = _map("random_bits", _bits_at)


def threshold(p: float) -> int:
    """The scalar of `CHANCE` for a probability below 1."""
    return min(max(round(p * 2.0**32), 0), 2**32 - 1)
