"""Elementwise ATen operators as ONNX's: arithmetic with PyTorch's types, comparisons, activations."""

from __future__ import annotations

import math
from typing import Any

from tabtorch.base import dtypes
from tabtorch.onnx.exporting.builder import Builder, Value
from tabtorch.onnx.exporting.table import Out, aten

#: ATen's name -> ONNX's, where they are the same; whole numbers become floats first where the result is one
for _kind, _names in {
    "Abs": "abs absolute", "Acos": "acos arccos", "Acosh": "acosh arccosh", "Asin": "asin arcsin", "Asinh": "asinh arcsinh",
    "Atan": "atan arctan", "Atanh": "atanh arctanh", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Erf": "erf special_erf",
    "Exp": "exp special_exp", "Floor": "floor", "Log": "log", "Neg": "neg negative", "Reciprocal": "reciprocal", "Relu": "relu",
    "Sigmoid": "sigmoid special_expit", "Sign": "sign sgn", "Sin": "sin", "Sinh": "sinh", "Sqrt": "sqrt", "Tan": "tan",
    "Tanh": "tanh", "HardSwish": "hardswish", "Mish": "mish", "Softsign": "softsign", "Identity":
    "alias clone contiguous detach lift_fresh lift_fresh_copy dropout_ _to_copy_same positive conj",
}.items():  # fmt: skip
    for _name in _names.split():

        @aten(_name)
        def _same(b: Builder, out: Out, x: Value, *args: Any, kind: str = _kind, **kw: Any) -> Value:
            if kind in ("Ceil", "Floor") and not x.dtype.is_floating_point:
                return x
            return b.op(kind, b.cast(x, out.dtype))


def _pair(b: Builder, x: Any, y: Any, dtype: Any) -> tuple[Value, Value]:
    return b.like(x, dtype), b.like(y, dtype)


def _common(x: Any, y: Any) -> Any:
    """The type that two operands are compared in: as PyTorch promotes them, where a number counts by its kind."""
    kinds = [v.dtype for v in (x, y) if isinstance(v, Value)]
    tensors = [v for v in (x, y) if isinstance(v, Value)]
    if len(tensors) == 1:
        (k,) = kinds
        other = y if isinstance(x, Value) else x
        if isinstance(other, float) and not k.is_floating_point:
            return dtypes.float32
        return dtypes.int64 if k == dtypes.bool_ and not isinstance(other, bool) else k
    dimensioned = {t.dtype for t in tensors if t.rank} or set(kinds)
    return (
        dtypes.promote_types(*kinds)
        if len(dimensioned) > 1 or len(set(kinds)) == 1
        else _mixed(kinds, dimensioned.pop())
    )


def _mixed(kinds: list[Any], dimensioned: Any) -> Any:
    """A tensor without dimensions counts only where it is of a higher kind."""
    rank = [0 if k == dtypes.bool_ else 2 if k.is_floating_point else 1 for k in (dimensioned, *kinds)]
    return dimensioned if rank[0] == max(rank) else dtypes.promote_types(*kinds)


def _binary(kind: str, b: Builder, dtype: Any, x: Any, y: Any) -> Value:
    left, right = _pair(b, x, y, dtype)
    return b.op(kind, left, right)


def _scaled(b: Builder, out: Out, x: Any, alpha: Any) -> Any:
    if not isinstance(alpha, Value) and alpha == 1:
        return x
    return b.op("Mul", *_pair(b, x, alpha, out.dtype))


@aten("add")
def add(b: Builder, out: Out, x: Any, other: Any, alpha: Any = 1) -> Value:
    if out.dtype == dtypes.bool_:
        return _binary("Or", b, out.dtype, x, other)
    return _binary("Add", b, out.dtype, x, _scaled(b, out, other, alpha))


@aten("sub", "subtract")
def sub(b: Builder, out: Out, x: Any, other: Any, alpha: Any = 1) -> Value:
    return _binary("Sub", b, out.dtype, x, _scaled(b, out, other, alpha))


@aten("rsub")
def rsub(b: Builder, out: Out, x: Any, other: Any, alpha: Any = 1) -> Value:
    return _binary("Sub", b, out.dtype, other, _scaled(b, out, x, alpha))


@aten("mul", "multiply")
def mul(b: Builder, out: Out, x: Any, other: Any) -> Value:
    return _binary("And" if out.dtype == dtypes.bool_ else "Mul", b, out.dtype, x, other)


@aten("div", "divide", "true_divide")
def div(b: Builder, out: Out, x: Any, other: Any, rounding_mode: str | None = None) -> Value:
    if rounding_mode is None:
        return _binary("Div", b, out.dtype, x, other)
    if rounding_mode == "floor":
        return floor_divide(b, out, x, other)
    made = _binary("Div", b, out.dtype, x, other)
    if not out.dtype.is_floating_point:
        return made
    return b.op("Mul", b.op("Sign", made), b.op("Floor", b.op("Abs", made)))


@aten("floor_divide")
def floor_divide(b: Builder, out: Out, x: Any, other: Any) -> Value:
    left, right = _pair(b, x, other, out.dtype)
    if out.dtype.is_floating_point:
        return b.op("Floor", b.op("Div", left, right))
    rest = b.op("Mod", left, right, sizes=out.sizes)  # has the divisor's sign
    return b.op("Div", b.op("Sub", left, rest, sizes=out.sizes), right)


@aten("remainder")
def remainder(b: Builder, out: Out, x: Any, other: Any) -> Value:
    left, right = _pair(b, x, other, out.dtype)
    if not out.dtype.is_floating_point:
        return b.op("Mod", left, right)
    rest = b.op("Mod", left, right, fmod=1)
    nought = b.constant(0, out.dtype)
    other_side = b.op("Less", b.op("Mul", rest, right), nought, type=dtypes.bool_)
    return b.op("Where", other_side, b.op("Add", rest, right), rest, type=out.dtype)


@aten("fmod")
def fmod(b: Builder, out: Out, x: Any, other: Any) -> Value:
    return b.op("Mod", *_pair(b, x, other, out.dtype), fmod=1)


@aten("pow")
def power(b: Builder, out: Out, x: Any, exponent: Any) -> Value:
    return _binary("Pow", b, out.dtype, x, exponent)


for _kind, _names in {"Max": "maximum fmax", "Min": "minimum fmin"}.items():
    for _name in _names.split():

        @aten(_name)
        def _extreme(b: Builder, out: Out, x: Value, other: Value, kind: str = _kind) -> Value:
            return _binary(kind, b, out.dtype, x, other)


@aten("atan2", "arctan2")
def atan2(b: Builder, out: Out, y: Value, x: Value) -> Value:
    up, right = _pair(b, y, x, out.dtype)
    nought, pi = b.constant(0.0, out.dtype), b.constant(math.pi, out.dtype)
    half = b.constant(math.pi / 2, out.dtype)
    plain = b.op("Atan", b.op("Div", up, right))
    below = b.op("Less", up, nought, type=dtypes.bool_)
    turned = b.op("Where", below, b.op("Sub", plain, pi), b.op("Add", plain, pi), type=out.dtype)
    made = b.op("Where", b.op("Less", right, nought, type=dtypes.bool_), turned, plain, type=out.dtype)
    steep = b.op("Mul", b.op("Sign", up), half)
    return b.op("Where", b.op("Equal", right, nought, type=dtypes.bool_), steep, made, type=out.dtype)


for _kind, _names in {
    "Equal": "eq", "Less": "lt less", "LessOrEqual": "le less_equal", "Greater": "gt greater", "GreaterOrEqual": "ge greater_equal",
}.items():  # fmt: skip
    for _name in _names.split():

        @aten(_name)
        def _compare(b: Builder, out: Out, x: Any, other: Any, kind: str = _kind) -> Value:
            dtype = _common(x, other)
            if dtype == dtypes.bool_ and kind != "Equal":
                dtype = dtypes.int64
            return b.op(kind, *_pair(b, x, other, dtype), type=dtypes.bool_)


@aten("ne", "not_equal")
def ne(b: Builder, out: Out, x: Any, other: Any) -> Value:
    return b.op("Not", b.op("Equal", *_pair(b, x, other, _common(x, other)), type=dtypes.bool_))


for _kind, _names in {"And": "logical_and", "Or": "logical_or", "Xor": "logical_xor"}.items():
    for _name in _names.split():

        @aten(_name)
        def _logical(b: Builder, out: Out, x: Any, other: Any, kind: str = _kind) -> Value:
            return b.op(kind, *_pair(b, x, other, dtypes.bool_))


@aten("logical_not")
def logical_not(b: Builder, out: Out, x: Value) -> Value:
    return b.op("Not", b.cast(x, dtypes.bool_))


for _kind, _name in {"And": "bitwise_and", "Or": "bitwise_or", "Xor": "bitwise_xor"}.items():

    @aten(_name, _name.replace("bitwise_", "__") + "__")
    def _bitwise(b: Builder, out: Out, x: Any, other: Any, kind: str = _kind) -> Value:
        return _binary(kind if out.dtype == dtypes.bool_ else f"Bitwise{kind}", b, out.dtype, x, other)


@aten("bitwise_not")
def bitwise_not(b: Builder, out: Out, x: Value) -> Value:
    return b.op("Not" if x.dtype == dtypes.bool_ else "BitwiseNot", x)


@aten("where")
def where(b: Builder, out: Out, condition: Value, x: Any = 0, other: Any = 0) -> Value:
    return b.op("Where", b.cast(condition, dtypes.bool_), *_pair(b, x, other, out.dtype), type=out.dtype)


@aten("masked_fill")
def masked_fill(b: Builder, out: Out, x: Value, mask: Value, value: Any) -> Value:
    return b.op("Where", mask, b.like(value, out.dtype), x, type=out.dtype)


@aten("clamp", "clip")
def clamp(b: Builder, out: Out, x: Value, min: Any = None, max: Any = None) -> Value:
    made = b.cast(x, out.dtype)
    if min is not None:
        made = b.op("Max", made, b.like(min, out.dtype))
    return made if max is None else b.op("Min", made, b.like(max, out.dtype))


@aten("clamp_min")
def clamp_min(b: Builder, out: Out, x: Value, min: Any) -> Value:
    return clamp(b, out, x, min)


@aten("clamp_max")
def clamp_max(b: Builder, out: Out, x: Value, max: Any) -> Value:
    return clamp(b, out, x, None, max)


@aten("isnan")
def isnan(b: Builder, out: Out, x: Value) -> Value:
    return b.op("IsNaN", b.cast(x, dtypes.float32) if not x.dtype.is_floating_point else x, type=dtypes.bool_)


@aten("isinf")
def isinf(b: Builder, out: Out, x: Value) -> Value:
    return b.op("IsInf", b.cast(x, dtypes.float32) if not x.dtype.is_floating_point else x, type=dtypes.bool_)


@aten("isfinite")
def isfinite(b: Builder, out: Out, x: Value) -> Value:
    return b.op("Not", b.op("Or", isnan(b, out, x), isinf(b, out, x)))


@aten("round")
def rounded(b: Builder, out: Out, x: Value, decimals: int = 0) -> Value:
    if not x.dtype.is_floating_point:
        return x
    if not decimals:
        return b.op("Round", x)
    by = b.constant(10.0 ** abs(decimals), x.dtype)
    there, back = ("Mul", "Div") if decimals > 0 else ("Div", "Mul")
    return b.op(back, b.op("Round", b.op(there, x, by)), by)


@aten("trunc", "fix")
def trunc(b: Builder, out: Out, x: Value) -> Value:
    return b.op("Mul", b.op("Sign", x), b.op("Floor", b.op("Abs", x))) if x.dtype.is_floating_point else x


@aten("frac")
def frac(b: Builder, out: Out, x: Value) -> Value:
    return b.op("Sub", x, trunc(b, out, x))


@aten("square")
def square(b: Builder, out: Out, x: Value) -> Value:
    return b.op("Mul", x, x)


@aten("rsqrt")
def rsqrt(b: Builder, out: Out, x: Value) -> Value:
    return b.op("Reciprocal", b.op("Sqrt", b.cast(x, out.dtype)))


for _name, _base in {"exp2": 2.0}.items():

    @aten(_name, "special_" + _name)
    def _exp2(b: Builder, out: Out, x: Value) -> Value:
        return b.op("Pow", b.constant(2.0, out.dtype), b.cast(x, out.dtype), sizes=out.sizes)


@aten("expm1", "special_expm1")
def expm1(b: Builder, out: Out, x: Value) -> Value:
    """By sinh, which is exact near nought: expm1(x) = 2 sinh(x/2) exp(x/2)."""
    half = b.op("Mul", b.cast(x, out.dtype), b.constant(0.5, out.dtype))
    return b.op("Mul", b.op("Mul", b.op("Sinh", half), b.op("Exp", half)), b.constant(2.0, out.dtype))


for _name, _base in {"log2": 2.0, "log10": 10.0}.items():

    @aten(_name)
    def _log(b: Builder, out: Out, x: Value, base: float = _base) -> Value:
        return b.op("Mul", b.op("Log", b.cast(x, out.dtype)), b.constant(1 / math.log(base), out.dtype))


@aten("log1p", "special_log1p")
def log1p(b: Builder, out: Out, x: Value) -> Value:
    """By atanh, which is exact near nought: log1p(x) = 2 atanh(x / (x + 2))."""
    x = b.cast(x, out.dtype)
    ratio = b.op("Div", x, b.op("Add", x, b.constant(2.0, out.dtype)))
    return b.op("Mul", b.op("Atanh", ratio), b.constant(2.0, out.dtype))


@aten("erfc", "special_erfc")
def erfc(b: Builder, out: Out, x: Value) -> Value:
    return b.op("Sub", b.constant(1.0, out.dtype), b.op("Erf", b.cast(x, out.dtype)), sizes=out.sizes)


for _name, _by in {"deg2rad": math.pi / 180, "rad2deg": 180 / math.pi}.items():

    @aten(_name)
    def _angle(b: Builder, out: Out, x: Value, by: float = _by) -> Value:
        return b.op("Mul", b.cast(x, out.dtype), b.constant(by, out.dtype))


@aten("lerp")
def lerp(b: Builder, out: Out, x: Value, end: Value, weight: Any) -> Value:
    return b.op("Add", x, b.op("Mul", b.op("Sub", end, x, sizes=out.sizes), b.like(weight, out.dtype)), sizes=out.sizes)


@aten("addcmul")
def addcmul(b: Builder, out: Out, x: Value, tensor1: Value, tensor2: Value, value: Any = 1) -> Value:
    made = _binary("Mul", b, out.dtype, tensor1, tensor2)
    return b.op("Add", b.cast(x, out.dtype), _scaled(b, out, made, value))


@aten("addcdiv")
def addcdiv(b: Builder, out: Out, x: Value, tensor1: Value, tensor2: Value, value: Any = 1) -> Value:
    made = _binary("Div", b, out.dtype, tensor1, tensor2)
    return b.op("Add", b.cast(x, out.dtype), _scaled(b, out, made, value))


@aten("xlogy", "special_xlogy")
def xlogy(b: Builder, out: Out, x: Any, other: Any) -> Value:
    left, right = _pair(b, x, other, out.dtype)
    nought = b.constant(0.0, out.dtype)
    made = b.op("Mul", left, b.op("Log", right))
    made = b.op("Where", b.op("Equal", left, nought, type=dtypes.bool_), nought, made, type=out.dtype)
    return b.op("Where", b.op("IsNaN", right, type=dtypes.bool_), right, made, type=out.dtype)


# ---- activations


@aten("relu6")
def relu6(b: Builder, out: Out, x: Value) -> Value:
    return clamp(b, out, x, 0, 6)


@aten("hardtanh")
def hardtanh(b: Builder, out: Out, x: Value, min_val: Any = -1, max_val: Any = 1) -> Value:
    return clamp(b, out, x, min_val, max_val)


@aten("hardsigmoid")
def hardsigmoid(b: Builder, out: Out, x: Value) -> Value:
    return b.op("HardSigmoid", x, alpha=1 / 6, beta=0.5)


@aten("leaky_relu")
def leaky_relu(b: Builder, out: Out, x: Value, negative_slope: float = 0.01) -> Value:
    return b.op("LeakyRelu", x, alpha=float(negative_slope))


@aten("elu")
def elu(b: Builder, out: Out, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    if input_scale != 1:
        raise NotImplementedError("elu of an input_scale other than 1")
    made = b.op("Elu", x, alpha=float(alpha))
    return made if scale == 1 else b.op("Mul", made, b.constant(scale, out.dtype))


@aten("celu")
def celu(b: Builder, out: Out, x: Value, alpha: float = 1.0) -> Value:
    return b.op("Celu", x, alpha=float(alpha))


@aten("selu")
def selu(b: Builder, out: Out, x: Value) -> Value:
    return b.op("Selu", x)


@aten("prelu")
def prelu(b: Builder, out: Out, x: Value, weight: Value) -> Value:
    if weight.rank and weight.sizes != (1,) and x.rank > 2:
        weight = b.reshape(weight, [b.size(weight, 0), *[1] * (x.rank - 2)])
    return b.op("PRelu", x, weight)


@aten("gelu")
def gelu(b: Builder, out: Out, x: Value, approximate: str = "none") -> Value:
    half, one = b.constant(0.5, out.dtype), b.constant(1.0, out.dtype)
    if approximate == "tanh":
        cubed = b.op("Mul", b.op("Mul", b.op("Mul", x, x), x), b.constant(0.044715, out.dtype))
        inner = b.op("Mul", b.op("Add", x, cubed), b.constant(math.sqrt(2 / math.pi), out.dtype))
        curve = b.op("Tanh", inner)
    else:
        curve = b.op("Erf", b.op("Mul", x, b.constant(math.sqrt(0.5), out.dtype)))
    return b.op("Mul", b.op("Mul", x, b.op("Add", curve, one)), half)


@aten("silu")
def silu(b: Builder, out: Out, x: Value) -> Value:
    return b.op("Mul", x, b.op("Sigmoid", x))


@aten("softplus")
def softplus(b: Builder, out: Out, x: Value, beta: float = 1, threshold: float = 20) -> Value:
    by = b.constant(beta, out.dtype)
    scaled = b.op("Mul", x, by)
    made = b.op("Div", b.op("Softplus", scaled), by)
    return b.op(
        "Where", b.op("Greater", scaled, b.constant(threshold, out.dtype), type=dtypes.bool_), x, made, type=out.dtype
    )


@aten("log_sigmoid", "logsigmoid")
def log_sigmoid(b: Builder, out: Out, x: Value) -> Value:
    return b.op("Neg", b.op("Softplus", b.op("Neg", x)))


@aten("hardshrink")
def hardshrink(b: Builder, out: Out, x: Value, lambd: float = 0.5) -> Value:
    near = b.op("LessOrEqual", b.op("Abs", x), b.constant(lambd, out.dtype), type=dtypes.bool_)
    return b.op("Where", near, b.constant(0.0, out.dtype), x, type=out.dtype)


@aten("softshrink")
def softshrink(b: Builder, out: Out, x: Value, lambd: float = 0.5) -> Value:
    return b.op("Shrink", x, lambd=float(lambd), bias=float(lambd))


@aten("threshold")
def threshold(b: Builder, out: Out, x: Value, threshold: float, value: float) -> Value:
    low = b.op("LessOrEqual", x, b.constant(threshold, out.dtype), type=dtypes.bool_)
    return b.op("Where", low, b.constant(value, out.dtype), x, type=out.dtype)


@aten("glu")
def glu(b: Builder, out: Out, x: Value, dim: int = -1) -> Value:
    first, second = b.node("Split", [x], 2, axis=dim, num_outputs=2)
    return b.op("Mul", Value(first, x.dtype, out.sizes), b.op("Sigmoid", Value(second, x.dtype, out.sizes)))


@aten("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
def dropout(b: Builder, out: Out, x: Value, p: float, train: bool) -> Value:
    if train and p:
        raise NotImplementedError("dropout of a model in training: call eval() first")
    return x


@aten("to", "_to_copy", "type_as", "float", "double", "long", "int", "half", "bool", "bfloat16")
def to(b: Builder, out: Out, x: Value, *args: Any, **kwargs: Any) -> Value:
    return b.cast(x, out.dtype)
