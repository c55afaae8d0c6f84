"""TorchScript's functions of numbers: whole numbers of 64 bits that go round, and floats as C has them, which never raise.

Source: torch/csrc/jit/runtime/register_prim_ops.cpp. tests/test_jit_operators.py compares each with PyTorch's.
"""

from __future__ import annotations

import cmath
import math
import operator
import struct
from collections.abc import Callable
from typing import Any

_LOW, _SPAN = -(2**63), 2**64


def wrapped(n: int) -> int:
    """A whole number as 64 bits hold it."""
    return (n - _LOW) % _SPAN + _LOW


def _wrap(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function of whole numbers of 64 bits; of others, as it is."""

    def call(*args: Any) -> Any:
        made = f(*args)
        return wrapped(made) if type(made) is int else made

    return call


def _ieee(f: Any, poles: dict[float, float] | None = None, odd: bool = False) -> Callable[..., float]:
    """A function of floats that gives what C does where Python's raises. poles: what it gives there; odd: it overflows to the side that its
    argument is on."""

    def call(*args: Any) -> float:
        try:
            return float(f(*args))
        except OverflowError:
            return -math.inf if odd and args[0] < 0 else math.inf
        except ValueError:
            return (poles or {}).get(args[0], math.nan)

    return call


def _single(x: float) -> float:
    """As 32 bits hold it."""
    try:
        return float(struct.unpack("f", struct.pack("f", x))[0])
    except OverflowError:
        return math.copysign(math.inf, x)


def _whole(*args: Any) -> bool:
    return all(type(a) is int or type(a) is bool for a in args)


def quotient(a: Any, b: Any) -> Any:
    """`/`. RuntimeError is never raised: by nought it is infinite."""
    if b == 0:
        return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b if isinstance(a, complex) or isinstance(b, complex) else float(a / b)


def _floor(x: float) -> float:
    return math.copysign(float(math.floor(x)), x) if math.isfinite(x) else x


def _floordiv(a: Any, b: Any) -> Any:
    if _whole(a, b):
        if b == 0:
            raise RuntimeError("division by 0")
        return wrapped(a // b)
    return _floor(quotient(a, b))


_fmod = _ieee(math.fmod)


def _remainder(a: Any, b: Any) -> Any:
    if _whole(a, b):
        if b == 0:  # PyTorch ends the process here
            raise RuntimeError("integer modulo by zero")
        return _cut(wrapped(b + _cut(a, b)), b)
    return _fmod(b + _fmod(a, b), b)


def _cut(a: int, b: int) -> int:
    """What remains where the quotient is cut towards nought."""
    return (abs(a) % abs(b)) * (-1 if a < 0 else 1)


def _divmod(a: Any, b: Any) -> tuple[Any, Any]:
    if b == 0:
        raise RuntimeError(
            f"ZeroDivisionError: {'integer division or modulo by zero' if _whole(a, b) else 'float divmod()'}"
        )
    if _whole(a, b):
        return wrapped(a // b), a % b
    if type(a) is not type(b):  # by another formula, with floats of 32 bits
        a, b = (x if type(x) is int else _single(x) for x in (a, b))
        n = _single(_integer(math.floor)(quotient(a, b)))
        return n, a - n * b
    rest = _fmod(a, b)
    if rest and (rest < 0) != (b < 0):
        rest += b
    return _floor(quotient(a - rest, b)), rest


def _power(a: Any, b: Any) -> Any:
    if a == 0 and b < 0:
        raise RuntimeError("0.0 cannot be raised to a negative power")
    made = _ieee(math.pow)(a, b)
    return -made if made == math.inf and a < 0 and float(b) % 2 == 1 and math.isfinite(a) else made


def _log(x: Any, base: Any = None) -> float:
    log = _ieee(math.log, {0: -math.inf})
    return log(x) if base is None else quotient(log(x), log(base))


def _round(x: Any) -> float:
    return math.copysign(float(round(x)), x) if math.isfinite(x) else x


def _integer(f: Callable[[float], int]) -> Callable[[Any], int]:
    def call(x: Any) -> int:
        if not math.isfinite(x) or not -(2.0**63) <= x <= 2.0**63:
            raise RuntimeError(f"Cannot convert float {x:f} to integer")
        return wrapped(f(float(x)))

    return call


def _lgamma(x: Any) -> float:
    if not math.isfinite(x):
        return math.nan if x != x else math.inf
    return math.inf if x <= 0 and x == math.floor(x) else _ieee(math.lgamma)(x)


def whole(x: Any) -> int:
    """As C converts: what no whole number of 64 bits is near becomes the least."""
    if isinstance(x, float) and not -(2.0**63) <= x < 2.0**63:
        return _LOW
    return wrapped(int(x))


def floating(x: Any) -> float:
    """A number, text or tensor as a float. Of a whole number it is the nearest of 32 bits, as in PyTorch."""
    return _single(x) if type(x) is int else float(x)


def _gamma(x: Any) -> float:
    if x == 0:
        return math.copysign(math.inf, x)
    return _ieee(math.gamma, {math.inf: math.inf})(x)


def _factorial(n: int) -> int:
    if n < 0:
        raise RuntimeError("factorial() not defined for negative values")
    made = 1
    for k in range(2, min(n, 66) + 1):  # from 66 on it is a multiple of 2**64
        made = wrapped(made * k)
    return made


def _polar(r: Any, angle: Any) -> complex:
    return complex(r * _ieee(math.cos)(angle), r * _ieee(math.sin)(angle))


def _complex(x: Any, y: Any = 0) -> complex:
    return complex(x, y) if not isinstance(x, complex) else x


_ODD = ("asin", "sinh", "asinh", "tan", "sin", "tanh", "atan", "erf", "expm1")
_ONE = "sqrt exp expm1 sin cos tan asin acos atan sinh cosh tanh erf erfc asinh acosh degrees radians".split()

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": _wrap(operator.add),
    "sub": _wrap(operator.sub),
    "mul": _wrap(operator.mul),
    "neg": _wrap(operator.neg),
    "abs": abs,
    "div": quotient,
    "floordiv": _floordiv,
    "remainder": _remainder,
    "divmod": _divmod,
    "mathremainder": _ieee(math.remainder),
    "pow": _power,
    "round": _round,
    "floor": _integer(math.floor),
    "ceil": _integer(math.ceil),
    "gcd": math.gcd,
    "isnan": math.isnan,
    "isinf": math.isinf,
    "isfinite": math.isfinite,
    "fabs": lambda x: float(abs(x)),
    "fmod": _fmod,
    "copysign": lambda x, y: math.copysign(x, y),
    "atan2": _ieee(math.atan2),
    "atanh": _ieee(math.atanh, {1: math.inf, -1: -math.inf}),
    "log": _log,
    "log2": _ieee(math.log2, {0: -math.inf}),
    "log10": _ieee(math.log10, {0: -math.inf}),
    "log1p": _ieee(math.log1p, {-1: -math.inf}),
    "gamma": _gamma,
    "lgamma": _lgamma,
    "factorial": _factorial,
    "frexp": math.frexp,
    "ldexp": _ieee(math.ldexp, odd=True),
    "modf": math.modf,
    "polar": _polar,
    "angle": lambda x: cmath.phase(x) if isinstance(x, complex) else math.nan if x != x else math.atan2(0.0, x),
    **{n: _ieee(getattr(math, n), odd=n in _ODD) for n in _ONE},
    **{n: getattr(operator, n) for n in ("eq", "ne", "lt", "le", "gt", "ge")},
    "__and__": operator.and_,
    "__or__": operator.or_,
    "__xor__": operator.xor,
    "__lshift__": _wrap(operator.lshift),
    "__rshift__": operator.rshift,
    "Int": whole,
    "Float": floating,
    "Bool": bool,
    "Complex": _complex,
    "bin": bin,
    "oct": oct,
    "hex": hex,
}
