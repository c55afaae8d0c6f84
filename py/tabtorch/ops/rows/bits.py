"""Operations on the bits of floats: `frexp`, `nextafter`."""

from __future__ import annotations

from typing import Any

from tabtorch import ops
from tabtorch.autograd.tape import record
from tabtorch.base import dtypes
from tabtorch.core.tensor import Tensor
from tabtorch.engine.expr import absolute, bitcast, cast, const, exp2, floor, isinf, isnan, log2, signbit, where
from tabtorch.ops.machinery.arguments import check_tensors
from tabtorch.ops.machinery.operation import into_two, named, operation
from tabtorch.ops.machinery.out_types import same
from tabtorch.ops.machinery.promotion import common_dtype
from tabtorch.ops.machinery.registry import Row, elementwise, register
from tabtorch.ops.rows.row_helpers import floating, nothing, rule

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


_FREXP_OUT = (
    same("torch.frexp() expects mantissa to have dtype {want} but got {have}"),
    same("torch.frexp() expects exponent to have {want} dtype but got {have}"),
)


def _frexp_back(g: Any, e: Tensor) -> Tensor:
    return g[0] * ops.exp2(-e.to(g[0].dtype))


@operation("frexp")
def frexp(input: Tensor, *, out: Any = None) -> Any:
    """(mantissa, exponent) with input = mantissa · 2^exponent, |mantissa| in [0.5, 1)."""
    if input.dtype.category != 2:
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")
    m, e = ops._frexp_mantissa(input.detach()), ops._frexp_exponent(input.detach())
    record("FrexpBackward0", (input,), (m, e), lambda gs, e: _frexp_back(gs, e), (e,))
    return into_two(out, FrexpResult(m, e), _FREXP_OUT)


# ---- the neighbour


def _next_bits(unit: int) -> Any:
    """Of float32, whose last bit is `unit`: 0x10000 for bfloat16, its upper half."""

    def f(x: Any, y: Any) -> Any:
        b = bitcast(x, "i32")
        away = (y > x) == (x > 0.0)
        smallest = bitcast(const(unit, "i32"), "f32")
        step = bitcast(where(away, b + unit, b - unit), "f32")
        return where(x == 0.0, where(y > 0.0, smallest, -smallest), step)

    return f


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


def _next16(x: Any, y: Any) -> Any:
    """Of halves, which float32 holds exactly: a unit is 2^-10 of the leading bit, and below 2^-14 all are 2^-24."""
    a = absolute(x)
    b = bitcast(a, "i32")
    tiny = a < 2.0**-14
    unit = where(tiny, const(2.0**-24, x.type), cast(bitcast(b & 0x7F800000, "f32"), x.type) * 2.0**-10)
    away = (y > x) == (x > 0.0)
    gap = where(((b & 0x7FFFFF) == 0) & (a > 2.0**-14) & ~away, unit * 0.5, unit)
    step = where(isinf(a), const(65504.0, x.type), where(away, a + gap, a - gap))
    return where(x == 0.0, where(y > 0.0, const(2.0**-24, x.type), -(2.0**-24)), where(signbit(x), -step, step))


def _nextafter(next32: Any) -> Any:
    def expr(x: Any, y: Any) -> Any:
        moved = next32(x, y) if x.type == "f32" else _next64(x, y)
        return where(isnan(x) | isnan(y), x + y, where(x == y, y, moved))

    return expr


for _suffix, _f in (("", _next_bits(1)), ("_float16", _next16), ("_bfloat16", _next_bits(0x10000))):
    elementwise(
        Row(
            "_nextafter" + _suffix,
            _nextafter(_f),
            (lambda g, x, y, out: ops.where(x == y, 0, g), lambda g, x, y, out: nothing(g)),
            floating("nextafter_cpu"),
            "input, other",
            "The next number after input, towards other.",
            cost=8,
            method=False,
            backward_name="NextafterBackward0",
        )
    )


def _by_width(form: str) -> Any:
    def nextafter(input: Tensor, other: Tensor, **out: Any) -> Any:
        """The next number after input, towards other."""
        check_tensors("nextafter" + form, input=input, other=other)
        d = common_dtype([input, other])
        suffix = "_" + d.name if d.itemsize == 2 and d.category == 2 else ""
        return getattr(ops, "_nextafter" + suffix + form)(input, other, **out)

    return nextafter


register("nextafter", _by_width(""), method=True)
register("nextafter_", _by_width("_"), method=True, torch=False)
