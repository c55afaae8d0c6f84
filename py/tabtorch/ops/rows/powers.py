"""Rows: powers and roots."""

from __future__ import annotations

import cmath
import math
from typing import Any

from tabtorch import _lazy, ops
from tabtorch.base import dtypes
from tabtorch.core.shapes import type_name
from tabtorch.engine import functions as fn
from tabtorch.engine.expr import Complex, call, const, rsqrt, sqrt
from tabtorch.ops.machinery.out_types import CASTABLE, same
from tabtorch.ops.machinery.registry import Row, elementwise, register
from tabtorch.ops.rows.row_helpers import conj, floating

# ---- powers


def _integer_only(d: dtypes.dtype, operands: list[Any]) -> None:
    if d is dtypes.bool_:
        raise NotImplementedError("\"pow\" not implemented for 'Bool'")


def _pow(x: Any, y: Any) -> Any:
    if isinstance(x, Complex):
        return _lazy.complex.power(x, y)
    return call("pow", x.type, x, y)


def _pow_grad_base(g: Any, x: Any, y: Any) -> Any:
    if not hasattr(y, "_tab_meta"):
        return g * 0 if y == 0 else g * conj(ops.pow(x, y - 1) * y)
    return ops.where(y == 0, 0, g * conj(y * ops.pow(x, y - 1)))


def _pow_grad_exponent(g: Any, x: Any, y: Any, out: Any) -> Any:
    """out * log(x), which is 0 and not NaN where x is 0 and the power exists."""
    if not hasattr(x, "_tab_meta"):
        if isinstance(x, complex):
            return g * conj(out * cmath.log(x)) if x else ops.where(y == 0, 0, g * out * -math.inf)
        if x == 0:
            return ops.where(y >= 0, 0, g * out * -math.inf)
        return g * conj(out * (math.log(x) if x > 0 else math.nan))
    zero_base = x == 0
    if not y._tab_meta.dtype.is_complex:
        zero_base = zero_base & (y >= 0)
    return ops.where(zero_base, 0, g * conj(out * ops.log(x)))


def _power_name(operands: Any) -> str:
    tensors = [hasattr(x, "_tab_meta") for x in operands]
    return "PowBackward1" if all(tensors) else "PowBackward0" if tensors[0] else "PowBackward2"


elementwise(
    Row(
        "_pow",
        _pow,
        (
            lambda g, x, y, out: _pow_grad_base(g, x, y),
            lambda g, x, y, out: _pow_grad_exponent(g, x, y, out),
        ),
        args="input, exponent",
        doc="input to the power of exponent.",
        domain=(0.1, 4.0),
        cost=40,
        method=False,
        check=_integer_only,
        kernel="pow",
        backward_name=_power_name,
        apart="01",
        out_rule=CASTABLE,
    )
)


def _fixed_power(suffix: str, expr: Any, grad: Any, exponent: float) -> str:
    row = Row(
        "_pow" + suffix,
        expr,
        (grad,),
        args="input",
        doc=f"input to the power of {exponent}.",
        method=False,
        domain=(0.1, 4.0),
        backward_name="PowBackward0",
        out_rule=CASTABLE,
    )
    return elementwise(row).name


# The gradient of a square is `_twice`, whose own is a constant that still hangs on input, as pow(input, 0) does in PyTorch:
# so the third derivative of a square is zeros, and not an error.
_fixed_power("0", lambda x: const(1, x.type), lambda g, x, out: g * 0, 0)
elementwise(
    Row(
        "_twice",
        lambda x: x * 2,
        (lambda g, x, out: g * (ops._pow0(x) * 2),),
        doc="input * 2.",
        method=False,
        inplace=False,
        out=False,
    )
)

#: exponents that have a formula of their own, exact where the general one is not, and cheap
_FIXED = {
    1: _fixed_power("1", lambda x: x, lambda g, x, out: g * ops._pow0(x), 1),
    2: _fixed_power("2", lambda x: x * x, lambda g, x, out: g * conj(ops._twice(x)), 2),
    3: _fixed_power("3", lambda x: x * x * x, lambda g, x, out: g * conj(ops._pow2(x) * 3), 3),
    0.5: _fixed_power("_half", lambda x: sqrt(x), lambda g, x, out: g * conj(ops._pow_minus_half(x) * 0.5), 0.5),
    -0.5: _fixed_power("_minus_half", lambda x: rsqrt(x), lambda g, x, out: g * conj(ops._pow(x, -1.5) * -0.5), -0.5),
    -1: _fixed_power("_minus1", lambda x: 1.0 / x, lambda g, x, out: g * conj(-ops._pow2(out)), -1),
    -2: _fixed_power(
        "_minus2", lambda x: 1.0 / (x * x), lambda g, x, out: g * conj(ops._pow3(ops._pow_minus1(x)) * -2), -2
    ),
}


def _choose_power(suffix: str) -> Any:
    def pow(input: Any, exponent: Any, **out: Any) -> Any:
        """input to the power of exponent; either may be a number. Integers wrap as products do."""
        base = getattr(input, "_tab_meta", None)
        if base is not None and exponent.__class__ in (int, float):
            d = base.dtype
            if d.category >= 2:
                name = _FIXED.get(exponent)
                if name is not None:
                    return getattr(ops, name + suffix)(input, **out)
            elif exponent.__class__ is int and exponent < 0 and d.category == 1:
                raise RuntimeError("Integers to negative integer powers are not allowed.")
        return (ops._pow_ if suffix else ops._pow)(input, exponent, **out)

    return pow


register("pow", _choose_power(""), method=True)
register("pow_", _choose_power("_"), method=True, torch=False)


_FLOAT_POWER = same("the output given to float_power has dtype {Have} but the operation's result requires dtype {Want}")


def _float_power(suffix: str) -> Any:
    def float_power(input: Any, exponent: Any, **out: Any) -> Any:
        """The power computed, and given, in double precision (cpu only)."""
        parts = [
            x._tab_meta.dtype.is_complex if hasattr(x, "_tab_meta") else isinstance(x, complex)
            for x in (input, exponent)
        ]
        d = dtypes.complex128 if any(parts) else dtypes.float64
        if suffix:
            if input._tab_meta.dtype is not d:
                raise RuntimeError(
                    f"the base given to float_power_ has dtype {type_name(input._tab_meta.dtype)} but the operation's result requires "
                    f"dtype {type_name(d)}"
                )
            return ops.pow_(input, exponent)
        if out.get("out") is not None:
            _FLOAT_POWER(d, out["out"].dtype)
        x, y = (v.to(d) if hasattr(v, "_tab_meta") else v for v in (input, exponent))
        return ops.pow(x, y, **out)

    return float_power


register("float_power", _float_power(""), method=True)
register("float_power_", _float_power("_"), method=True, torch=False)


def _square(x: Any) -> Any:
    return x * x


def _bool_to_long(row: Row, d: dtypes.dtype) -> tuple[dtypes.dtype, dtypes.dtype]:
    d = dtypes.int64 if d is dtypes.bool_ else d
    return d, d


elementwise(
    Row(
        "square",
        _square,
        (lambda g, x, out: g * conj(ops._twice(x)),),
        _bool_to_long,
        doc="input * input.",
        out_rule=CASTABLE,
        backward_name="PowBackward0",
    )
)
elementwise(
    Row(
        "sqrt",
        lambda x: sqrt(x),
        (lambda g, x, out: g / conj(out * 2),),
        "float",
        doc="The square root.",
        domain=(0.0, 9.0),
        kernel="sqrt_vml_cpu",
    )
)
elementwise(
    Row(
        "rsqrt",
        lambda x: rsqrt(x),
        (lambda g, x, out: g * conj(ops._pow3(out) * -0.5),),
        "float",
        doc="1 / sqrt(input).",
        domain=(0.05, 9.0),
    )
)
elementwise(
    Row(
        "hypot",
        lambda x, y: fn.hypot(x, y),
        (lambda g, x, y, out: g * (x / out), lambda g, x, y, out: g * (y / out)),
        floating("hypot_cpu"),
        "input, other",
        "sqrt(input**2 + other**2), without overflow.",
        cost=10,
        numbers="",
    )
)
