"""Rows: activation functions, and the gradients of the common ones as one node each."""

from __future__ import annotations

import math
from typing import Any

from tabtorch import ops
from tabtorch.engine import functions as fn
from tabtorch.engine import special_functions as sf
from tabtorch.engine.expr import Complex, absolute, as_single, const, exp, isnan, tanh, where
from tabtorch.ops.machinery.out_types import DATA_TYPE
from tabtorch.ops.machinery.promotion import not_implemented
from tabtorch.ops.machinery.registry import Row, elementwise
from tabtorch.ops.rows.row_helpers import conjugate, floating, linear, rule, zero


def _hidden(name: str, expr: Any, grads: Any, args: str, doc: str, operands: int = 2, cost: int = 20) -> None:
    elementwise(
        Row(name, expr, grads, "arith", args, doc, operands=operands, cost=cost, method=False, inplace=False, out=False)
    )


def _activation(name: str, expr: Any, grad: Any, doc: str, grad_inplace: Any = None, **options: Any) -> None:
    options.setdefault("rule", floating(options.pop("kernel", f"{name}_cpu")))
    options.setdefault("method", False)
    if grad_inplace is not None:
        options["grads_inplace"] = (grad_inplace,)
    cost = options.pop("cost", 15)
    elementwise(
        Row(name, expr, (grad,), doc=doc, domain=options.pop("domain", (-6, 6)), cost=cost, operands=1, **options)
    )


# ---- piecewise linear ones

_hardtanh_rule = rule(
    bools=False,
    complex_error=NotImplementedError("clamp is not supported for complex types"),
    bool_error=RuntimeError("Bool inputs not supported for hardtanh"),
)
_relu_rule = rule(
    bools=False,
    complex_error=NotImplementedError("clamp is not supported for complex types"),
    bool_error=RuntimeError("Boolean inputs not supported for relu"),
)
linear(
    "_relu_backward", lambda g, y: where(y <= 0.0, zero(g), g), "grad, output", "grad where output is positive.", cost=1
)
_activation(
    "relu",
    lambda x: where(x < 0, zero(x), x),
    lambda g, x, out: ops._relu_backward(g, out),
    "input where positive, else 0.",
    rule=_relu_rule,
    method=True,
    cost=1,
)

linear(
    "_between_backward",
    lambda g, x, low, high: where((x <= low) | (x >= high), zero(g), g),
    "grad, input, low, high",
    "grad where low < input < high, or input is NaN.",
    4,
    cost=2,
)


def _hardtanh(x: Any, min_val: Any = None, max_val: Any = None) -> Any:
    low = const(-1, x.type) if min_val is None else min_val
    high = const(1, x.type) if max_val is None else max_val
    return where(x < low, low, where(x > high, high, x))


_activation(
    "relu6",
    lambda x: where(x < 0, zero(x), where(x > 6, const(6, x.type), x)),
    lambda g, x, out: ops._between_backward(g, x, 0.0, 6.0),
    "input, brought into [0, 6].",
    rule=_hardtanh_rule,
    cost=2,
    backward_name="HardtanhBackward0",
    domain=(-3, 9),
    public=False,
    empty_like="always",
)
_activation(
    "hardtanh",
    _hardtanh,
    lambda g, x, out, min_val=-1.0, max_val=1.0: ops._between_backward(g, x, min_val, max_val),
    "input, brought into [min_val, max_val].",
    args="input, min_val=-1.0, max_val=1.0",
    rule=_hardtanh_rule,
    cost=2,
    public=False,
    empty_like="always",
)

linear(
    "_leaky_relu_backward",
    lambda g, x, slope: where(x > 0.0, g, g * slope),
    "grad, input, slope",
    "grad, times slope where input is not positive.",
    3,
    cost=2,
)


def _check_slope(name: str, slope: float, more: str = "") -> None:
    """RuntimeError for a slope with which the result of an in-place form does not tell what it was of."""
    if slope < 0.0:
        raise RuntimeError(
            f"In-place {name} backward calculation is triggered with a negative slope which is not supported. This is caused "
            f"by calling in-place forward function with a negative slope, please call out-of-place version instead.{more}"
        )


def _leaky_relu_written(g: Any, x: Any, out: Any, negative_slope: float = 0.01) -> Any:
    _check_slope(
        "leakyReLu",
        negative_slope,
        " File an issue at https://github.com/pytorch/pytorch if you do require supporting in-place leakRelu backward "
        "calculation with negative slope",
    )
    return ops._leaky_relu_backward(g, out, negative_slope)


_activation(
    "leaky_relu",
    lambda x, negative_slope=None: where(x > 0.0, x, x * (0.01 if negative_slope is None else negative_slope)),
    lambda g, x, out, negative_slope=0.01: ops._leaky_relu_backward(g, x, negative_slope),
    "input where positive, else negative_slope * input.",
    args="input, negative_slope=0.01",
    grad_inplace=_leaky_relu_written,
    cost=2,
    public=False,
)

linear(
    "_over_backward",
    lambda g, x, limit: where(x <= limit, zero(g), g),
    "grad, input, limit",
    "grad where input > limit.",
    3,
    cost=1,
)


def _threshold_grad(g: Any, x: Any, out: Any, threshold: float, value: float) -> Any:
    return ops._over_backward(g, x, threshold)


elementwise(
    Row(
        "threshold",
        lambda x, threshold, value: where(x <= threshold, value, x),
        (_threshold_grad,),
        rule("threshold_cpu", bools=False),
        "input, threshold, value",
        "input where above threshold, else value.",
        operands=1,
        method=False,
        grads_inplace=(_threshold_grad,),  # of what it was; only the name is another
    )
)

linear(
    "_hardshrink_backward",
    lambda g, x, lambd: where((x >= -lambd) & (x <= lambd), zero(g), g),
    "grad, input, lambd",
    "grad where |input| > lambd.",
    3,
    cost=2,
)


def _half(x: Any, lambd: Any) -> Any:
    return const(0.5, x.type) if lambd is None else lambd


def _hardshrink(x: Any, lambd: Any = None) -> Any:
    b = _half(x, lambd)
    return where((x >= -b) & (x <= b), zero(x), x)


def _softshrink(x: Any, lambd: Any = None) -> Any:
    b = _half(x, lambd)
    return where(x > b, x - b, where(x < -b, x + b, where(isnan(x), x, zero(x))))


_activation(
    "hardshrink",
    _hardshrink,
    lambda g, x, out, lambd=0.5: ops._hardshrink_backward(g, x, lambd),
    "input where |input| > lambd, else 0.",
    args="input, lambd=0.5",
    method=True,
    inplace=False,
    cost=2,
)
_activation(
    "softshrink",
    _softshrink,
    lambda g, x, out, lambd=0.5: ops._hardshrink_backward(g, x, lambd),
    "input, brought lambd nearer to 0.",
    kernel="softshrink_check",
    args="input, lambd=0.5",
    inplace=False,
    cost=3,
    public=False,
)

linear(
    "_hardsigmoid_backward",
    lambda g, x: where((x > -3.0) & (x < 3.0), g * (1 / 6), zero(g)),
    "grad, input",
    "grad / 6 where |input| < 3.",
    cost=2,
)


def _relu6(x: Any) -> Any:
    return where(x < 0.0, zero(x), where(x > 6.0, const(6, x.type), x))


_activation(
    "hardsigmoid",
    lambda x: _relu6(x + 3.0) * (1 / 6),
    lambda g, x, out: ops._hardsigmoid_backward(g, x),
    "relu6(input + 3) / 6.",
    cost=3,
    public=False,
)
_hidden(
    "_hardswish_backward",
    lambda g, x: where(x <= -3.0, zero(g), where(x < 3.0, g * (x * (1 / 3) + 0.5), g)),
    (
        lambda gg, g, x, out: ops._hardswish_backward(gg, x),
        lambda gg, g, x, out: ops._between_backward(gg * g, x, -3.0, 3.0) * (1 / 3),
    ),
    "grad, input",
    "grad * hardswish'(input).",
    cost=4,
)
_activation(
    "hardswish",
    lambda x: x * _relu6(x + 3.0) * (1 / 6),
    lambda g, x, out: ops._hardswish_backward(g, x),
    "input * hardsigmoid(input).",
    cost=4,
    public=False,
)

# ---- exponential ones

_SELU_SCALE = 1.0507009873554804934193349852946
_SELU_ALPHA = 1.6732632423543772848170429916717

#: every elu: scale * x above 0, and below scale * alpha * (exp(beta x) - 1)
_hidden(
    "_elu_backward",
    lambda g, x, alpha, scale, beta: where(x <= 0.0, g * scale * alpha * beta * exp(x * beta), g * scale),
    (
        lambda gg, g, x, alpha, scale, beta, out: ops._elu_backward(gg, x, alpha, scale, beta),
        lambda gg, g, x, alpha, scale, beta, out: ops._over_backward(
            gg * g * (scale * alpha * beta * beta) * ops.exp(x * beta), -x, 0.0
        ),
        None,
        None,
        None,
    ),
    "grad, input, alpha, scale, beta",
    "grad * elu'(input).",
    5,
)


#: the same of the result
_hidden(
    "_elu_written_backward",
    lambda g, y, alpha, scale, beta: where(y <= 0.0, g * beta * (y + scale * alpha), g * scale),
    (
        lambda gg, g, y, alpha, scale, beta, out: ops._elu_written_backward(gg, y, alpha, scale, beta),
        lambda gg, g, y, alpha, scale, beta, out: ops._over_backward(gg * g * beta, -y, 0.0),
        None,
        None,
        None,
    ),
    "grad, output, alpha, scale, beta",
    "grad * elu'(input), of the output.",
    5,
)


def _elu_written(g: Any, out: Any, alpha: float, scale: float = 1.0, beta: float = 1.0) -> Any:
    _check_slope("elu", alpha)
    return ops._elu_written_backward(g, out, alpha, scale, beta)


def _elu(x: Any, alpha: Any = None) -> Any:
    e = fn.expm1(x)
    return where(x > 0.0, x, e if alpha is None else e * alpha)


def _celu(x: Any, alpha: Any = None) -> Any:
    return where(x > 0.0, x, fn.expm1(x) if alpha is None else fn.expm1(x / alpha) * alpha)


_activation(
    "elu",
    _elu,
    lambda g, x, out, alpha=1.0: ops._elu_backward(g, x, alpha, 1.0, 1.0),
    "input where positive, else alpha * (exp(input) - 1).",
    lambda g, x, out, alpha=1.0: _elu_written(g, out, alpha),
    args="input, alpha=1.0",
    public=False,
)
_activation(
    "selu",
    lambda x: where(x > 0.0, x * _SELU_SCALE, fn.expm1(x) * (_SELU_SCALE * _SELU_ALPHA)),
    lambda g, x, out: ops._elu_backward(g, x, _SELU_ALPHA, _SELU_SCALE, 1.0),
    "elu with the alpha and scale that keep mean and variance.",
    lambda g, x, out: _elu_written(g, out, _SELU_ALPHA, _SELU_SCALE),
    kernel="elu_cpu",
    backward_name="EluBackward0",
)
_activation(
    "celu",
    _celu,
    lambda g, x, out, alpha=1.0: ops._elu_backward(g, x, alpha, 1.0, 1.0 / alpha),
    "elu, continuously differentiable for every alpha.",
    lambda g, x, out, alpha=1.0: _elu_written(g, out, alpha, 1.0, 1.0 / alpha),
    kernel="elu_cpu",
    args="input, alpha=1.0",
    backward_name="CeluBackward0",
)


def _sigmoid(x: Any) -> Any:
    return 1.0 / (exp(-x) + 1.0)


def _silu(x: Any) -> Any:
    e = exp(-x)
    if isinstance(x, Complex):  # an infinite e has no angle: nan, as PyTorch's quotient
        return x / (Complex(as_single(e.re), as_single(e.im)) + 1.0)
    return x / (e + 1.0)


def _silu_slope(x: Any) -> Any:
    s = _sigmoid(x)
    return s * (1.0 + x * (1.0 - s))


def _silu_curve(gg: Any, g: Any, x: Any) -> Any:
    s = ops.sigmoid(x)
    d = s * (1 - s)
    return gg * g * (d * (2 + x * (1 - 2 * s)))


def _silu_rule(row: Row, d: Any) -> Any:
    if d.category < 2:
        raise not_implemented("silu_cpu", d)
    return d, d


_hidden(
    "_silu_backward",
    lambda g, x: g * _silu_slope(conjugate(x)),
    (lambda gg, g, x, out: ops._silu_backward(gg, x), lambda gg, g, x, out: _silu_curve(gg, g, x)),
    "grad, input",
    "grad * silu'(input).",
)
_activation(
    "silu",
    _silu,
    lambda g, x, out: ops._silu_backward(g, x),
    "input * sigmoid(input).",
    rule=_silu_rule,
    public=False,
)


def _log1p_exp(x: Any) -> Any:
    return where(x > 0.0, x, zero(x)) + fn.log1p(exp(-absolute(x)))


def _mish_slope(x: Any) -> Any:
    t = tanh(_log1p_exp(x))
    return t + x * _sigmoid(x) * (1.0 - t * t)


def _mish_curve(gg: Any, g: Any, x: Any) -> Any:
    s = ops.sigmoid(x)
    t = ops.tanh(ops.softplus(x))
    u = (1 - t * t) * s
    return gg * g * (u * (2 + x * ((1 - s) - 2 * t * s)))


_hidden(
    "_mish_backward",
    lambda g, x: g * _mish_slope(x),
    (lambda gg, g, x, out: ops._mish_backward(gg, x), lambda gg, g, x, out: _mish_curve(gg, g, x)),
    "grad, input",
    "grad * mish'(input).",
    cost=50,
)
_activation(
    "mish",
    lambda x: x * tanh(where(isnan(x), x, _log1p_exp(x))),
    lambda g, x, out: ops._mish_backward(g, x),
    "input * tanh(softplus(input)).",
    cost=50,
    public=False,
)


def _softplus(x: Any, beta: Any = None, threshold: Any = None) -> Any:
    limit = const(20, x.type) if threshold is None else threshold
    v = x if beta is None else x * beta
    soft = _log1p_exp(v)
    return where(v > limit, x, where(isnan(x), x, soft if beta is None else soft / beta))


def _softplus_backward(g: Any, x: Any, beta: Any, threshold: Any) -> Any:
    v = x * beta
    return where(v > threshold, g, g * _sigmoid(v))


_hidden(
    "_softplus_backward",
    _softplus_backward,
    (
        lambda gg, g, x, beta, threshold, out: ops._softplus_backward(gg, x, beta, threshold),
        lambda gg, g, x, beta, threshold, out: ops.where(
            x * beta > threshold, 0, gg * ops._sigmoid_backward(g * beta, ops.sigmoid(x * beta))
        ),
        None,
        None,
    ),
    "grad, input, beta, threshold",
    "grad * softplus'(input).",
    4,
)
_activation(
    "softplus",
    _softplus,
    lambda g, x, out, beta=1.0, threshold=20.0: ops._softplus_backward(g, x, beta, threshold),
    "log(1 + exp(beta * input)) / beta; input itself where beta * input > threshold.",
    args="input, beta=1.0, threshold=20.0",
    inplace=False,
    cost=30,
    public=False,
)
_activation(
    "logsigmoid",
    lambda x: where(isnan(x), x, where(x < 0.0, x, zero(x)) - fn.log1p(exp(-absolute(x)))),
    lambda g, x, out: g * ops.sigmoid(-x),
    "log(sigmoid(input)).",
    kernel="log_sigmoid_cpu",
    inplace=False,
    cost=30,
    backward_name="LogSigmoidBackward0",
    out_rule=DATA_TYPE,
    public=False,
    row_major=True,
)
# ---- gelu

_SQRT_HALF = math.sqrt(0.5)
_NORMAL = 1 / math.sqrt(2 * math.pi)
_GELU_C = math.sqrt(2 / math.pi)
_GELU_K = 0.044715


def _gelu_mode(approximate: str) -> bool:
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    return approximate == "tanh"


def _gelu(x: Any, approximate: str = "none") -> Any:
    if _gelu_mode(approximate):
        return x * 0.5 * (tanh((x + x * x * x * _GELU_K) * _GELU_C) + 1.0)
    return x * 0.5 * (sf.erf(x * _SQRT_HALF) + 1.0)


def _gelu_slope(x: Any, approximate: str) -> Any:
    if approximate == "tanh":
        t = tanh((x + x * x * x * _GELU_K) * _GELU_C)
        inner = (x * x * (3 * _GELU_K) + 1.0) * _GELU_C
        return (t + 1.0) * 0.5 + x * 0.5 * (1.0 - t * t) * inner
    return (sf.erf(x * _SQRT_HALF) + 1.0) * 0.5 + x * exp(x * x * -0.5) * _NORMAL


def _gelu_curve(gg: Any, g: Any, x: Any, approximate: str) -> Any:
    if approximate == "tanh":
        t = ops.tanh((x + x * x * x * _GELU_K) * _GELU_C)
        du = (x * x * (3 * _GELU_K) + 1) * _GELU_C
        sech = 1 - t * t
        return gg * g * (sech * (du - x * t * du * du + x * x * (3 * _GELU_K * _GELU_C)))
    return gg * g * (ops.exp(x * x * -0.5) * (2 - x * x) * _NORMAL)


def _gelu_again(approximate: str) -> str:
    return "_gelu_backward" if approximate == "none" else "_gelu_tanh_backward"


for _mode in ("none", "tanh"):
    _hidden(
        _gelu_again(_mode),
        lambda g, x, _mode=_mode: g * _gelu_slope(x, _mode),
        (
            lambda gg, g, x, out, _mode=_mode: getattr(ops, _gelu_again(_mode))(gg, x),
            lambda gg, g, x, out, _mode=_mode: _gelu_curve(gg, g, x, _mode),
        ),
        "grad, input",
        "grad * gelu'(input).",
        cost=50,
    )
_activation(
    "gelu",
    _gelu,
    lambda g, x, out, approximate="none": getattr(ops, _gelu_again(approximate))(g, x),
    "input * ndtr(input), or its approximation by tanh.",
    args="input, *, approximate='none'",
    rule=floating("GeluKernelImpl"),
    cost=40,
    public=False,
)
