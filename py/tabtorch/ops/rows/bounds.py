"""Rows: rounding, bounds, the larger and the smaller of two, steps, replacement of NaN."""

from __future__ import annotations

from typing import Any

from tabtorch import ops
from tabtorch.base import dtypes
from tabtorch.engine import functions as fn
from tabtorch.engine.expr import Complex, absolute, ceil, const, floor, isnan, rint, trunc, where
from tabtorch.ops.machinery.arguments import as_operand, class_name
from tabtorch.ops.machinery.out_types import same
from tabtorch.ops.machinery.promotion import not_implemented
from tabtorch.ops.machinery.registry import Row, elementwise, register
from tabtorch.ops.rows.row_helpers import (
    as_number,
    floating,
    greatest,
    is_float,
    least,
    linear,
    nothing,
    refuse,
    rounded,
    rule,
    zero,
)

# ---- rounding


def _integral(f: Any) -> Any:
    return lambda x: f(x) if is_float(x) else x


def _refused(name: str) -> Any:
    return rule(
        f"{name}_vml_cpu", bools=False, complex_error=NotImplementedError(f"{name} is not supported for complex inputs")
    )


for _name, _f, _doc in (
    ("floor", floor, "The largest integer not above input."),
    ("ceil", ceil, "The smallest integer not below input."),
    ("trunc", trunc, "Rounded towards zero."),
):
    elementwise(
        Row(
            _name,
            _integral(_f),
            (lambda g, x, out: nothing(g),),
            _refused(_name),
            doc=_doc,
            aliases=("fix",) if _name == "trunc" else (),
        )
    )


def _round(x: Any, decimals: Any = None) -> Any:
    if not is_float(x):
        return x
    if decimals is None:
        return rint(x)
    p = rounded(fn.power(const(10, x.type), absolute(decimals)))
    return where(decimals < 0, rint(rounded(x / p)) * p, rint(rounded(x * p)) / p)


def _only_floats(d: Any, options: dict[str, Any]) -> None:
    if d.category != 2:
        raise not_implemented("round_cpu" if options["decimals"] else "round_vml_cpu", d)


elementwise(
    Row(
        "round",
        _round,
        (lambda g, x, out, decimals=None: nothing(g),),
        rule("round_vml_cpu", bools=False),
        "input, *, decimals=None",
        "Rounded to the nearest, halves to even; to that many decimals.",
        check_options=_only_floats,
    )
)
elementwise(
    Row("frac", lambda x: x - trunc(x), (lambda g, x, out: g,), floating("frac_cpu"), doc="input - trunc(input).")
)

# ---- bounds


def _clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    v = x if min is None else greatest(x, min)
    if max is not None:
        v = least(v, max)
    return where(isnan(x), x, v) if is_float(x) else v


def _inside(g: Any, x: Any, min: Any = None, max: Any = None) -> Any:
    ok = const(True, "bool") if min is None else x >= min
    return where(ok if max is None else ok & (x <= max), g, zero(g))


linear("_clamp_backward", _inside, "grad, input, min=None, max=None", "grad where input was inside its bounds.", 4)

_clamp_rule = rule(
    "clamp_cpu", bools=False, complex_error=NotImplementedError("clamp is not supported for complex types")
)
elementwise(
    Row(
        "_clamp",
        _clamp,
        (
            lambda g, x, min, max, out: ops._clamp_backward(g, x, min, max),
            lambda g, x, min, max, out: g * (x < min if max is None else (x < min) & (min < max)),
            lambda g, x, min, max, out: g * (x > max if min is None else (x > max) | (max < min)),
        ),
        _clamp_rule,
        "input, min=None, max=None",
        "input, brought into [min, max].",
        operands=3,
        method=False,
        backward_name=lambda operands: f"ClampBackward{int(not any(hasattr(x, '_tab_meta') for x in operands[1:]))}",
        apart="12",
    )
)


def _bounded(suffix: str) -> Any:
    def clamp(input: Any, min: Any = None, max: Any = None, **out: Any) -> Any:
        """input, brought into [min, max]; numbers or tensors, either may be left out. Where min > max, max."""
        if min is None and max is None:
            raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
        try:
            return (ops._clamp_ if suffix else ops._clamp)(input, min, max, **out)
        except TypeError:
            given = [x for x in (input, min, max) if x is not None]
            if all(as_operand(x) is not None for x in given):
                raise
            raise TypeError(
                f"clamp{suffix}() received an invalid combination of arguments - got ({', '.join(map(class_name, given))}), but "
                "expected one of:\n * (Tensor input, Tensor min = None, Tensor max = None, *, Tensor out = None)\n"
                " * (Tensor input, Number min = None, Number max = None, *, Tensor out = None)\n"
            ) from None

    clamp.__name__ += suffix
    return clamp


for _name in ("clamp", "clip"):
    register(_name, _bounded(""), method=True, inplace=_bounded("_"))
elementwise(
    Row(
        "clamp_min",
        lambda x, y: greatest(x, y),
        (lambda g, x, y, out: ops._clamp_backward(g, x, y, None), lambda g, x, y, out: g * (x < y)),
        rule("maximum_cpu"),
        "input, min",
        "The larger of input and min.",
        public_inplace=True,
        numbers="1",
        apart="1",
    )
)
elementwise(
    Row(
        "clamp_max",
        lambda x, y: least(x, y),
        (lambda g, x, y, out: ops._clamp_backward(g, x, None, y), lambda g, x, y, out: g * (x > y)),
        rule("minimum_cpu"),
        "input, max",
        "The smaller of input and max.",
        public_inplace=True,
        numbers="1",
        apart="1",
    )
)

linear(
    "_extreme_backward",
    lambda g, x, y, sign: where(x == y, g * 0.5, where((x - y) * sign < 0, zero(g), g)),
    "grad, input, other, sign",
    "grad where input is the chosen one (sign 1 larger, -1 smaller), half of it where both are.",
    4,
)


def _extreme_grads(sign: float) -> Any:
    return (
        lambda g, x, y, out: ops._extreme_backward(g, x, y, sign),
        lambda g, x, y, out: ops._extreme_backward(g, y, x, sign),
    )


def _fextreme_grads(chosen: Any) -> Any:
    return (
        lambda g, x, y, out: ops.where(chosen(x, y) | ops.isnan(y), g, 0),
        lambda g, x, y, out: ops.where(chosen(x, y) | ops.isnan(y), 0, g),
    )


for _name, _choice, _sign, _doc in (
    ("maximum", greatest, 1.0, "The larger of two; NaN if either is."),
    ("minimum", least, -1.0, "The smaller of two; NaN if either is."),
):
    elementwise(
        Row(
            _name,
            _choice,
            _extreme_grads(_sign),
            rule(complex_error=RuntimeError(f"{_name} not implemented for complex tensors.")),
            "input, other",
            _doc,
            inplace=False,
            numbers="",
        )
    )
elementwise(
    Row(
        "fmax",
        lambda x, y: where(isnan(x), y, where(isnan(y), x, greatest(x, y))),
        _fextreme_grads(lambda x, y: x >= y),
        rule(complex_error=RuntimeError("fmax not implemented for complex tensors.")),
        "input, other",
        "The larger of two; the other one where one is NaN.",
        inplace=False,
        numbers="",
    )
)
elementwise(
    Row(
        "fmin",
        lambda x, y: where(isnan(x), y, where(isnan(y), x, least(x, y))),
        _fextreme_grads(lambda x, y: x <= y),
        rule(complex_error=RuntimeError("fmin not implemented for complex tensors.")),
        "input, other",
        "The smaller of two; the other one where one is NaN.",
        inplace=False,
        numbers="",
    )
)

# ---- steps and holes


def _heaviside(x: Any, y: Any) -> Any:
    if x.type == "bool":
        return x | y
    return where(x == 0, y, as_number(x > 0, x))


_NO_COMPLEX = RuntimeError("heaviside is not yet implemented for complex tensors.")
_SAME = same("heaviside is not yet implemented for tensors with different dtypes.")


def _heaviside_out(want: Any, have: Any, field: str = "") -> None:
    if have.is_complex:
        raise _NO_COMPLEX
    _SAME(want, have)


elementwise(
    Row(
        "heaviside",
        _heaviside,
        refuse("heaviside", 2),
        rule(complex_error=_NO_COMPLEX),
        "input, values",
        "0 below 0, values at 0, 1 above.",
        out_rule=_heaviside_out,
        numbers="",
    )
)


def _replace(x: Any, nan: Any, posinf: Any, neginf: Any) -> Any:
    if isinstance(x, Complex):
        return Complex(_replace(x.re, nan.re, posinf.re, neginf.re), _replace(x.im, nan.re, posinf.re, neginf.re))
    if not is_float(x):
        return x
    inf = fn.infinity(x)
    return where(isnan(x), nan, where(x == inf, posinf, where(x == -inf, neginf, x)))


elementwise(
    Row(
        "_nan_to_num",
        _replace,
        (lambda g, x, nan, posinf, neginf, out: g * ops.isfinite(x), None, None, None),
        args="input, nan, posinf, neginf",
        doc="input with NaN and infinities replaced.",
        method=False,
        backward_name="NanToNumBackward0",
        out_rule=same("nan_to_num: dtype of out: {Have} should be same as input: {Want}"),
    )
)


def _nan_to_num(suffix: str) -> Any:
    def nan_to_num(input: Any, nan: Any = None, posinf: Any = None, neginf: Any = None, **out: Any) -> Any:
        """NaN becomes nan (0), infinities posinf and neginf (the largest and smallest number of the type)."""
        d = input._tab_meta.dtype
        if d.category < 2 and suffix:  # PyTorch copies it to itself
            return input.copy_(input)
        if d.category < 2:
            nan = posinf = neginf = False if d is dtypes.bool_ else 0
        else:
            info = dtypes.finfo(d)
            nan = 0.0 if nan is None else float(nan)
            posinf = info.max if posinf is None else float(posinf)
            neginf = info.min if neginf is None else float(neginf)
        return (ops._nan_to_num_ if suffix else ops._nan_to_num)(input, nan, posinf, neginf, **out)

    return nan_to_num


register("nan_to_num", _nan_to_num(""), method=True, inplace=_nan_to_num("_"))
