"""Rows that answer yes or no, and rows over bits and integers: comparison, tests, logic, shifts, gcd."""

from __future__ import annotations

from typing import Any

from tabtorch import _lazy, ops
from tabtorch.base import dtypes
from tabtorch.engine import functions as fn
from tabtorch.engine.expr import Complex, absolute, call, cast, const, idiv, isinf, isnan, where
from tabtorch.engine.view import contiguous_meta
from tabtorch.ops.machinery.arguments import check_tensors
from tabtorch.ops.machinery.out_types import castable, same
from tabtorch.ops.machinery.registry import Row, elementwise, register
from tabtorch.ops.rows.row_helpers import conj, is_float, isfinite, negative, real_test, rule, zero


def _ordered(f: Any) -> Any:
    """Bools are compared as numbers."""
    return lambda x, y: f(cast(x, "i32"), cast(y, "i32")) if x.type == "bool" else f(x, y)


for _name, _alias, _f, _doc in (
    ("eq", (), lambda x, y: x == y, "input == other, element by element."),
    ("ne", ("not_equal",), lambda x, y: x != y, "input != other."),
    ("lt", ("less",), lambda x, y: x < y, "input < other."),
    ("le", ("less_equal",), lambda x, y: x <= y, "input <= other."),
    ("gt", ("greater",), lambda x, y: x > y, "input > other."),
    ("ge", ("greater_equal",), lambda x, y: x >= y, "input >= other."),
):
    elementwise(
        Row(
            _name,
            _ordered(_f),
            None,
            "compare" if _name in ("eq", "ne") else real_test(f"{_name}_cpu"),
            "input, other",
            _doc,
            aliases=_alias,
            numbers="1",
        )
    )

# ---- tests of one number


def _signed_infinity(sign: int) -> Any:
    return lambda x: x == fn.infinity(x) * float(sign) if is_float(x) else const(False, "bool")


def _test(name: str, expr: Any, doc: str, types: Any = "bool", **options: Any) -> None:
    options.setdefault("out", False)
    elementwise(Row(name, expr, None, types, doc=doc, inplace=False, **options))


_test("isnan", lambda x: isnan(x), "Whether it is NaN.")
_test("isinf", lambda x: isinf(x), "Whether it is infinite.")
_test("isfinite", lambda x: isfinite(x), "Whether it is neither infinite nor NaN.")
_test(
    "isposinf",
    _signed_infinity(1),
    "Whether it is +infinity.",
    out=True,
    out_rule=same("isposinf does not support non-boolean outputs."),
    types=rule(result=dtypes.bool_, complex_error=RuntimeError("isposinf does not support complex inputs.")),
)
_test(
    "isneginf",
    _signed_infinity(-1),
    "Whether it is -infinity.",
    out=True,
    out_rule=same("isneginf does not support non-boolean outputs."),
    types=rule(result=dtypes.bool_, complex_error=RuntimeError("isneginf does not support complex inputs.")),
)
_test(
    "isreal",
    lambda x: x.im == 0.0 if isinstance(x, Complex) else const(True, "bool"),
    "Whether the imaginary part is 0.",
)
_test(
    "signbit",
    negative,
    "Whether the sign bit is set: of negative numbers and -0.0.",
    out=True,
    out_rule=same("signbit does not support non-boolean outputs."),
    types=rule(
        result=dtypes.bool_, complex_error=NotImplementedError("signbit is not implemented for complex tensors.")
    ),
)


def _isclose(x: Any, y: Any, rtol: Any, atol: Any, equal_nan: Any) -> Any:
    same = x == y
    if equal_nan:
        same = same | (isnan(x) & isnan(y))
    if isinstance(x, Complex) or is_float(x):
        gap, size = absolute(x - y), absolute(y)
    else:
        t = "f64" if rtol.type == "f64" else "f32"
        a, b = cast(x, t), cast(y, t)
        gap, size = absolute(a - b), absolute(b)
    return same | (isfinite(gap) & (gap <= atol + rtol * size))


_same_close = Row(
    "_isclose",
    lambda x, y, rtol, atol, equal_nan=False: _isclose(x, y, _part(rtol), _part(atol), equal_nan),
    None,
    "compare",
    "input, other, rtol, atol, *, equal_nan=False",
    "|input - other| <= atol + rtol * |other|.",
    method=False,
    inplace=False,
    out=False,
)


def _part(v: Any) -> Any:
    return v.re if isinstance(v, Complex) else v


elementwise(_same_close)


@register("isclose", method=True)
def isclose(input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
    """Whether |input - other| <= atol + rtol * |other|, element by element. Both of one dtype (RuntimeError)."""
    check_tensors("isclose", input=input, other=other)
    a, b = input._tab_meta.dtype, other._tab_meta.dtype
    if a is not b:
        raise RuntimeError(f"{dtypes.TYPE_NAMES[a.name]} did not match {dtypes.TYPE_NAMES[b.name]}")
    if rtol < 0:
        raise RuntimeError(f"rtol must be greater than or equal to zero, but got {rtol:g}")
    if atol < 0:
        raise RuntimeError(f"atol must be greater than or equal to zero, but got {atol:g}")
    if a.category < 2:
        d = dtypes.get_default_dtype()
        return ops.eq(input, other) | ops._isclose(input.to(d), other.to(d), float(rtol), float(atol))
    return ops._isclose(input, other, float(rtol), float(atol), equal_nan=bool(equal_nan))


# ---- logic and bits

for _name, _f, _doc in (
    ("logical_and", lambda x, y: x & y, "Both are not 0."),
    ("logical_or", lambda x, y: x | y, "One of the two is not 0."),
    ("logical_xor", lambda x, y: x ^ y, "Exactly one of the two is not 0."),
):
    elementwise(Row(_name, _f, None, "logic", "input, other", _doc, numbers=""))
elementwise(Row("logical_not", lambda x: ~x, None, "logic", doc="It is 0.", public_inplace=False))

elementwise(Row("bitwise_and", lambda x, y: x & y, None, "bitwise", "input, other", "Bits set in both."))
elementwise(Row("bitwise_or", lambda x, y: x | y, None, "bitwise", "input, other", "Bits set in one of the two."))
elementwise(
    Row("bitwise_xor", lambda x, y: x ^ y, None, "bitwise", "input, other", "Bits set in exactly one of the two.")
)
elementwise(
    Row(
        "bitwise_not", lambda x: ~x, None, "bitwise", doc="All bits turned; logical not of bools.", public_inplace=False
    )
)


def _places(x: Any, n: Any) -> Any:
    """A shift count; every count that is negative or too large becomes 64."""
    return where((n < 0) | (n > 63), const(64, n.type), n)


elementwise(
    Row(
        "bitwise_left_shift",
        lambda x, y: x << _places(x, y),
        None,
        "int",
        "input, other",
        "input * 2**other, bits pushed out being lost.",
        kernel="lshift_cpu",
    )
)
elementwise(
    Row(
        "bitwise_right_shift",
        lambda x, y: x >> _places(x, y),
        None,
        "int",
        "input, other",
        "input / 2**other, rounded down.",
        kernel="rshift_cpu",
    )
)


def _lcm(x: Any, y: Any) -> Any:
    g = call("gcd", x.type, x, y)
    v = idiv(x, where(g == 0, const(1, x.type), g)) * y
    return where(g == 0, zero(x), where(v < 0, -v, v))


elementwise(
    Row(
        "gcd",
        lambda x, y: call("gcd", x.type, x, y),
        None,
        "int",
        "input, other",
        "The greatest common divisor.",
        domain=(-60, 60),
        cost=40,
        public_inplace=True,
        numbers="",
    )
)
elementwise(
    Row(
        "lcm",
        _lcm,
        None,
        "int",
        "input, other",
        "The least common multiple.",
        domain=(-60, 60),
        cost=40,
        public_inplace=True,
        numbers="",
    )
)
elementwise(
    Row(
        "ldexp",
        lambda x, y: x * (_power_of_two(y)),
        (
            lambda g, x, y, out: g * conj(ops.exp2(y)),
            lambda g, x, y, out: g * conj(out * 0.6931471805599453),
        ),
        "float",
        "input, other",
        "input * 2**other.",
        backward_name="LdexpBackward0",
        out_rule=castable("ldexp can't be cast to the desired output type {Have}"),
        seen=lambda metas: [metas[0], *(contiguous_meta(m.shape, m.dtype, m.device) for m in metas[1:])],  # of 2**other
        public_inplace=True,
        numbers="",
    )
)


def _power_of_two(y: Any) -> Any:
    if isinstance(y, Complex):
        return _lazy.complex.power(Complex(const(2, y.re.type), const(0, y.re.type)), y)
    return fn.power(const(2, y.type), y)


# PyTorch's names for Python's operators on integers and bools
for _op, _name in (
    ("__and__", "bitwise_and"),
    ("__or__", "bitwise_or"),
    ("__xor__", "bitwise_xor"),
    ("__lshift__", "bitwise_left_shift"),
    ("__rshift__", "bitwise_right_shift"),
):
    register(_op, lambda input, other, _name=_name: getattr(ops, _name)(input, other), doc=f"`torch.{_name}`.")
