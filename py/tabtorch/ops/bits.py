"""Operations on the bits of floats: `frexp`, `nextafter`."""

from __future__ import annotations

from typing import Any

from .. import dtypes, ops
from ..autograd.tape import record
from ..engine.expr import absolute, bitcast, cast, const, exp2, floor, isinf, isnan, log2, signbit, where
from ..tensor import Tensor
from .core import Row, elementwise
from .formulas import floating, rule
from .launch import into_two, named, operation

# ---- mantissa and exponent


def _bits(x: Any) -> tuple[Any, Any]:
    """(mantissa in [0.5, 1), exponent) of a positive finite f32."""
    tiny = x < 1.1754943508222875e-38
    b = bitcast(where(tiny, x * 16777216.0, x), "i32")
    e = ((b >> const(23, "i32")) & 0xFF) - where(tiny, const(150, "i32"), const(126, "i32"))
    return bitcast((b & 0x7FFFFF) | 0x3F000000, "f32"), e


def _parts64(x: Any) -> tuple[Any, Any]:
    """The same for a f64, which only the cpu device has: its logarithm may be one off, its powers of two are exact."""
    tiny = x < 2.2250738585072014e-308
    y = where(tiny, x * 18014398509481984.0, x)
    e = floor(log2(y)) + 1.0
    half = floor(e * 0.5)
    m = y * exp2(-half) * exp2(half - e)
    over, under = m >= 1.0, m < 0.5
    m = where(over, m * 0.5, where(under, m * 2.0, m))
    e = where(over, e + 1.0, where(under, e - 1.0, e))
    return m, cast(where(tiny, e - 54.0, e), "i32")


def _split(x: Any) -> tuple[Any, Any, Any]:
    """(mantissa of |x|, exponent, whether x has none: 0, infinite, NaN)."""
    plain = (x == 0.0) | isinf(x) | isnan(x)
    a = where(plain, 1.0, absolute(x))
    m, e = _bits(a) if x.type == "f32" else _parts64(a)
    return m, e, plain


def _mantissa(x: Any) -> Any:
    m, _, plain = _split(x)
    return where(plain, x, where(signbit(x), -m, m))


def _exponent(x: Any) -> Any:
    _, e, plain = _split(x)
    return where(plain, const(0, "i32"), e)


elementwise(
    Row(
        "_frexp_mantissa",
        _mantissa,
        None,
        "floating",
        "input",
        "The mantissa, in [0.5, 1).",
        method=False,
        inplace=False,
        out=False,
        cost=8,
    )
)
elementwise(
    Row(
        "_frexp_exponent",
        _exponent,
        None,
        rule("frexp", bools=False, ints=False, result=dtypes.int32),
        "input",
        "The exponent that belongs to `_frexp_mantissa`.",
        method=False,
        inplace=False,
        out=False,
        cost=8,
    )
)

FrexpResult = named("frexp", "mantissa", "exponent")


def _frexp_back(g: Any, e: Tensor) -> Tensor:
    return g[0] * ops.exp2(-e.to(g[0].dtype))


@operation("frexp")
def frexp(input: Tensor, *, out: Any = None) -> Any:
    """(mantissa, exponent) with input = mantissa · 2^exponent, |mantissa| in [0.5, 1)."""
    if input.dtype.category != 2:
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")
    m, e = ops._frexp_mantissa(input.detach()), ops._frexp_exponent(input.detach())
    record("FrexpBackward0", (input,), (m, e), lambda gs, e: _frexp_back(gs, e), (e,))
    return into_two(out, FrexpResult(m, e))


# ---- the neighbour


def _next32(x: Any, y: Any) -> Any:
    b = bitcast(x, "i32")
    away = (y > x) == (x > 0.0)
    smallest = bitcast(const(1, "i32"), "f32")
    step = bitcast(where(away, b + 1, b - 1), "f32")
    return where(x == 0.0, where(y > 0.0, smallest, -smallest), step)


def _next64(x: Any, y: Any) -> Any:
    """In doubles, with no access to their bits: half a unit of the last place below a power of two."""
    a = where(x == 0.0, 1.0, absolute(x))
    finite = where(isinf(a), 1.7976931348623157e308, a)
    m, e = _parts64(finite)
    low = e > const(-1021, "i32")
    k = cast(where(low, e, const(-1021, "i32")), "f64") - 53.0
    half = floor(k * 0.5)
    unit = exp2(half) * exp2(k - half)
    away = (y > x) == (x > 0.0)
    gap = where((m == 0.5) & low & ~away, unit * 0.5, unit)
    step = where(isinf(a), finite, where(away, a + gap, a - gap))
    moved = where(signbit(x), -step, step)
    return where(x == 0.0, where(y > 0.0, const(5e-324, "f64"), const(-5e-324, "f64")), moved)


def _nextafter(x: Any, y: Any) -> Any:
    moved = _next32(x, y) if x.type == "f32" else _next64(x, y)
    return where(isnan(x) | isnan(y), x + y, where(x == y, y, moved))


def _full_width(kernel: str) -> Any:
    types = floating(kernel)

    def check(row: Row, d: Any) -> Any:
        if d.itemsize == 2:
            raise NotImplementedError(f"nextafter of {d!r} is not there yet in tabtorch")
        return types(row, d)

    return check


def _no_gradient(g: Any, x: Any, y: Any, out: Any) -> Any:
    raise NotImplementedError("the derivative for 'nextafter' is not implemented.")


def _both_tensors(d: Any, operands: list[Any]) -> None:
    for k, name in enumerate(("input", "other")):
        if not isinstance(operands[k], Tensor):
            kind = type(operands[k]).__name__
            raise TypeError(f"nextafter(): argument '{name}' (position {k + 1}) must be Tensor, not {kind}")


_no_gradient.refuses = True  # type: ignore[attr-defined]
elementwise(
    Row(
        "nextafter",
        _nextafter,
        (_no_gradient, _no_gradient),
        _full_width("nextafter_cpu"),
        "input, other",
        "The next number after input, towards other.",
        cost=8,
        check=_both_tensors,
    )
)
