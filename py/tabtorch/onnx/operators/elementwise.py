"""Operators of one number at a time: arithmetic, comparisons, activations, conversions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import tabtorch as torch
import tabtorch.nn.functional as F
from tabtorch.onnx.registry import Tensor, operator
from tabtorch.onnx.shapes import FOLDS
from tabtorch.onnx.values import DTYPES, NUMBERS, STRING, Known, Unsupported, dtype_of, to_known, type_name

UNARY: dict[str, Callable[..., Any]] = {
    "Abs": torch.abs,
    "Acos": torch.acos,
    "Acosh": torch.acosh,
    "Asin": torch.asin,
    "Asinh": torch.asinh,
    "Atan": torch.atan,
    "Atanh": torch.atanh,
    "BitwiseNot": torch.bitwise_not,
    "Ceil": torch.ceil,
    "Cos": torch.cos,
    "Cosh": torch.cosh,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Floor": torch.floor,
    "IsNaN": torch.isnan,
    "Log": torch.log,
    "Mish": F.mish,
    "Neg": torch.neg,
    "Not": torch.logical_not,
    "Reciprocal": torch.reciprocal,
    "Relu": torch.relu,
    "Round": torch.round,
    "Sigmoid": torch.sigmoid,
    "Sign": torch.sign,
    "Sin": torch.sin,
    "Sinh": torch.sinh,
    "Softplus": F.softplus,
    "Softsign": F.softsign,
    "Sqrt": torch.sqrt,
    "Tan": torch.tan,
    "Tanh": torch.tanh,
}


def _unary(f: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Tensor, *, consumed_inputs: Any = None) -> Tensor:
        return f(x)

    return run


for _name, _f in UNARY.items():
    operator(_name)(_unary(_f))


def _divide(a: Tensor, b: Tensor) -> Tensor:
    return a / b if a.dtype.is_floating_point else torch.div(a, b, rounding_mode="trunc")


def _power(a: Tensor, b: Tensor) -> Tensor:
    if not a.dtype.is_floating_point and b.dtype.is_floating_point:
        return torch.pow(a.to(b.dtype), b).to(a.dtype)
    return torch.pow(a, b.to(a.dtype))


#: those that the first versions had too, whose second operand was placed by `axis` and spread only if `broadcast` said so
BINARY: dict[str, Callable[..., Any]] = {
    "Add": torch.add,
    "And": torch.logical_and,
    "Div": _divide,
    "Equal": torch.eq,
    "Greater": torch.gt,
    "Less": torch.lt,
    "Mul": torch.mul,
    "Or": torch.logical_or,
    "Pow": _power,
    "Sub": torch.sub,
    "Xor": torch.logical_xor,
}


def _binary(f: Callable[..., Any]) -> Callable[..., Any]:
    def run(a: Tensor, b: Tensor) -> Tensor:
        return f(a, b)

    return run


def _placed(f: Callable[..., Any]) -> Callable[..., Any]:
    def run(
        a: Tensor, b: Tensor, *, axis: int | None = None, broadcast: int = 0, consumed_inputs: Any = None
    ) -> Tensor:
        if broadcast and axis is not None and b.dim():
            b = b.reshape(tuple(b.shape) + (1,) * (a.dim() - axis % a.dim() - b.dim()))
        return f(a, b)

    return run


for _name, _f in BINARY.items():
    operator(_name)(_placed(_f))
    operator(_name, since=7)(_binary(_f))
for _name, _f in {
    "BitwiseAnd": torch.bitwise_and,
    "BitwiseOr": torch.bitwise_or,
    "BitwiseXor": torch.bitwise_xor,
    "GreaterOrEqual": torch.ge,
    "LessOrEqual": torch.le,
}.items():
    operator(_name)(_binary(_f))


@operator("Mod")
def mod(a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    return torch.fmod(a, b) if fmod else torch.remainder(a, b)


@operator("Min")
def minimum(*inputs: Tensor, consumed_inputs: Any = None) -> Tensor:
    return functools.reduce(torch.minimum, inputs)


@operator("Max")
def maximum(*inputs: Tensor, consumed_inputs: Any = None) -> Tensor:
    return functools.reduce(torch.maximum, inputs)


@operator("Sum")
def total(*inputs: Tensor, consumed_inputs: Any = None) -> Tensor:
    return functools.reduce(torch.add, inputs)


@operator("Mean")
def mean(*inputs: Tensor, consumed_inputs: Any = None) -> Tensor:
    return functools.reduce(torch.add, inputs) / len(inputs)


@operator("Where")
def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return torch.where(condition, x, y)


@operator("Identity")
def identity(x: Any) -> Any:
    return x


@operator("Clip", since=11)
def clip(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    if low is not None:
        x = torch.maximum(x, low)
    return x if high is None else torch.minimum(x, high)


@operator("Clip")
def clip_by_attributes(
    x: Tensor, *, min: float = -math.inf, max: float = math.inf, consumed_inputs: Any = None
) -> Tensor:
    return torch.clamp(x, min, max)


@operator("LeakyRelu")
def leaky_relu(x: Tensor, *, alpha: float = 0.01, consumed_inputs: Any = None) -> Tensor:
    return F.leaky_relu(x, alpha)


@operator("Elu")
def elu(x: Tensor, *, alpha: float = 1.0, consumed_inputs: Any = None) -> Tensor:
    return F.elu(x, alpha)


@operator("Celu")
def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.celu(x, alpha)


@operator("Selu")
def selu(
    x: Tensor,
    *,
    alpha: float = 1.67326319217681884765625,
    gamma: float = 1.05070102214813232421875,
    consumed_inputs: Any = None,
) -> Tensor:
    return gamma * F.elu(x, alpha)


@operator("PRelu", since=7)
def prelu(x: Tensor, slope: Tensor) -> Tensor:
    return torch.where(x < 0, x * slope, x)


@operator("PRelu")
def prelu_by_channel(x: Tensor, slope: Tensor, *, consumed_inputs: Any = None) -> Tensor:
    if slope.numel() > 1 and slope.dim() == 1:
        slope = slope.reshape([-1] + [1] * (x.dim() - 2))
    return torch.where(x < 0, x * slope, x)


@operator("ThresholdedRelu")
def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.threshold(x, alpha, 0.0)


@operator("HardSigmoid")
def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5, consumed_inputs: Any = None) -> Tensor:
    return torch.clamp(alpha * x + beta, 0, 1)


@operator("HardSwish")
def hard_swish(x: Tensor) -> Tensor:
    return x * torch.clamp(x / 6 + 0.5, 0, 1)


@operator("Gelu")
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return F.gelu(x, approximate=approximate)


@operator("Swish")
def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return x * torch.sigmoid(alpha * x)


@operator("SwiGLU")
def swiglu(a: Tensor, b: Tensor, *, alpha: float = 1.0) -> Tensor:
    return a * torch.sigmoid(alpha * a) * b


@operator("Shrink")
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    found = torch.where(x < -lambd, x + bias, torch.where(x > lambd, x - bias, torch.zeros_like(x)))
    return found.to(x.dtype)


@operator("IsInf")
def isinf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    found = torch.isinf(x)
    if not detect_negative:
        found = found & (x > 0)
    return found if detect_positive else found & (x < 0)


@operator("BitShift")
def bit_shift(a: Tensor, b: Tensor, *, direction: str) -> Tensor:
    return a << b if direction == "LEFT" else a >> b


def _spread_axis(x: Tensor, axis: int) -> tuple[Tensor, tuple[int, ...]]:
    """`x` as a matrix whose columns are all axes from `axis` on: what the first versions of softmax were along."""
    axis %= max(x.dim(), 1)
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:])), tuple(x.shape)


@operator("Softmax", since=13)
def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return F.softmax(x, axis)


@operator("LogSoftmax", since=13)
def log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return F.log_softmax(x, axis)


@operator("Hardmax", since=13)
def hardmax(x: Tensor, *, axis: int = -1) -> Tensor:
    best = x.argmax(axis, keepdim=True)
    shape = [1] * x.dim()
    shape[axis] = -1
    return (torch.arange(x.shape[axis], device=x.device).reshape(shape) == best).to(x.dtype)


@operator("Softmax")
def softmax_of_matrix(x: Tensor, *, axis: int = 1) -> Tensor:
    flat, shape = _spread_axis(x, axis)
    return F.softmax(flat, 1).reshape(shape)


@operator("LogSoftmax")
def log_softmax_of_matrix(x: Tensor, *, axis: int = 1) -> Tensor:
    flat, shape = _spread_axis(x, axis)
    return F.log_softmax(flat, 1).reshape(shape)


@operator("Hardmax")
def hardmax_of_matrix(x: Tensor, *, axis: int = 1) -> Tensor:
    flat, shape = _spread_axis(x, axis)
    return hardmax(flat, axis=1).reshape(shape)


def converted(x: Any, to: int, saturate: int = 1) -> Any:
    """`x` as another type of ONNX's."""
    if to == STRING:
        k = to_known(x)
        return Known([_text(v) for v in k.values], k.shape, STRING)
    if isinstance(x, Known):
        found = FOLDS["Cast"](x, to)
        if found is not NotImplemented:
            return found
        if x.type not in DTYPES:
            raise Unsupported(f"conversion from {type_name(x.type)} to {type_name(to)} is not supported")
        x = x.tensor(None)
    dtype = dtype_of(to)
    return x.to(dtype)


def _text(v: Any) -> str:
    """A number as ONNX's tests write it: the shortest digits that say it."""
    return format(v, ".8g") if isinstance(v, float) and not math.isnan(v) else str(v)


@operator("Cast", since=6)
def cast(x: Any, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    return converted(x, to)


@operator("Cast")
def cast_by_name(x: Any, *, to: str) -> Any:
    from_name = {type_name(n): n for n in DTYPES}
    if to not in from_name:
        raise Unsupported(f"conversion to {to} is not supported")
    return converted(x, from_name[to])


@operator("CastLike")
def cast_like(x: Any, like: Any, *, saturate: int = 1, round_mode: str = "up") -> Any:
    return converted(x, like.type if isinstance(like, Known) else NUMBERS[like.dtype])


@operator("BitCast")
def bit_cast(x: Tensor, *, to: int) -> Tensor:
    return x.view(dtype_of(to))
