"""Rows: error functions, gamma and its family, Bessel functions, entropies. The names of torch.special are aliases."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from tabtorch import _lazy, ops
from tabtorch.autograd.grad_mode import STATE
from tabtorch.engine import functions as fn
from tabtorch.engine import special_functions as sf
from tabtorch.engine.expr import absolute, exp, fit, isnan, log, rint, sin, where
from tabtorch.ops.machinery.registry import Row, elementwise, register
from tabtorch.ops.rows.row_helpers import conj, linear, real_float, rule, zero

_TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)
_ROOT_TWO_PI = math.sqrt(2 * math.pi)


def _unary(name: str, expr: Any, grad: Any, doc: str, domain: tuple[float, float], **options: Any) -> None:
    """A function of one real number; integers become floats."""
    options.setdefault("rule", real_float(f"{name}_vml_cpu"))
    cost = options.pop("cost", 40)
    elementwise(Row(name, expr, (grad,), doc=doc, domain=domain, cost=cost, **options))


def _only_special(name: str, expr: Any, grad: Any, doc: str, domain: tuple[float, float], **options: Any) -> None:
    """A function that is in torch.special alone: torch.special.NAME is `special_NAME` here."""
    options.setdefault("rule", rule(f"{name}_cpu", to_float=True, half=options.pop("half", True)))
    _unary("special_" + name, expr, grad, doc, domain, method=False, inplace=False, **options)


# ---- error functions

_unary(
    "erf",
    lambda x: sf.erf(x),
    lambda g, x, out: g * (ops.exp(-x * x) * _TWO_OVER_ROOT_PI),
    "The error function.",
    (-3, 3),
    aliases=("special_erf",),
)
_unary(
    "erfc",
    lambda x: sf.erfc(x),
    lambda g, x, out: g * (ops.exp(-x * x) * -_TWO_OVER_ROOT_PI),
    "1 - erf(input), precise.",
    (-3, 5),
    aliases=("special_erfc",),
)
_unary(
    "erfinv",
    lambda x: sf.erfinv(x),
    lambda g, x, out: g * (ops.exp(ops.erfinv(x) ** 2) * (1 / _TWO_OVER_ROOT_PI)),
    "The inverse of erf.",
    (-0.99, 0.99),
    aliases=("special_erfinv",),
    public_inplace=False,
)
_only_special(
    "erfcx",
    lambda x: sf.erfcx(x),
    lambda g, x, out: g * (2 * x * out - _TWO_OVER_ROOT_PI),
    "exp(input**2) * erfc(input).",
    (-2, 10),
    half=False,
)
_only_special(
    "ndtr",
    lambda x: sf.erfc(x * -math.sqrt(0.5)) * 0.5,
    lambda g, x, out: g * (ops.exp(x * x * -0.5) * (1 / _ROOT_TWO_PI)),
    "The distribution function of the standard normal distribution.",
    (-4, 4),
    rule=real_float("erf_vml_cpu"),
)
_only_special(
    "ndtri",
    lambda x: sf.ndtri(x),
    lambda g, x, out: g * (ops.exp(out * out * 0.5) * _ROOT_TWO_PI),
    "The inverse of ndtr.",
    (0.01, 0.99),
    cost=60,
    half=False,
)
_only_special(
    "log_ndtr",
    lambda x: sf.log_ndtr(x),
    lambda g, x, out: g / (ops.special_erfcx(x * -math.sqrt(0.5)) * math.sqrt(math.pi / 2)),
    "log(ndtr(input)).",
    (-10, 4),
    cost=60,
    half=False,
)

# ---- gamma


def _trigamma(x: Any) -> Any:
    """At the poles below 0 PyTorch divides by the sine of a rounded multiple of pi."""
    single = x.type == "f32"
    turned = fit(x * (3.1415927410125732 if single else math.pi), "float32" if single else "float64")
    s = sin(turned)
    return where((x < 0.0) & (x == rint(x)), math.pi**2 / (s * s), sf.trigamma(x))


_unary(
    "_trigamma",
    _trigamma,
    lambda g, x, out: g * polygamma(2, x),
    "The derivative of digamma.",
    (0.2, 6),
    method=False,
    cost=60,
    backward_name="PolygammaBackward0",
    rule=real_float("trigamma"),
)
_unary(
    "_polygamma",
    lambda x, order=1.0, scale=1.0: sf.zeta(order, x) * scale,
    lambda g, x, out, order, **_: g * polygamma(int(order), x),
    "scale * zeta(order, input): derivative order - 1 of digamma.",
    (0.2, 6),
    args="input, *, order=0.5, scale=0.5",
    method=False,
    cost=400,
    backward_name="PolygammaBackward0",
    rule=real_float("polygamma"),
)


def _derivative(n: int, form: str = "") -> Any:
    """The function of a tensor that is derivative n of digamma; `form` "_" the one in place."""
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    if n < 2:
        return getattr(ops, ("digamma", "_trigamma")[n] + form)
    scale = (-1.0) ** (n + 1) * (float(math.factorial(n)) if n < 171 else math.inf)
    return partial(getattr(ops, "_polygamma" + form), order=float(n + 1), scale=scale)


def polygamma(n: int, input: Any, **out: Any) -> Any:
    """Derivative n of digamma. RuntimeError for negative n."""
    return _derivative(n)(input, **out)


register("polygamma", polygamma, method=lambda self, n: polygamma(n, self))
register("polygamma_", lambda self, n: _derivative(n, "_")(self), method=True, torch=False, doc="`polygamma` in place.")
register("special_polygamma", polygamma)

_unary(
    "lgamma",
    lambda x: sf.lgamma(x),
    lambda g, x, out: g * ops.digamma(x),
    "log |gamma(input)|.",
    (0.1, 10),
    aliases=("special_gammaln",),
    cost=60,
    public_inplace=False,
)
_unary(
    "digamma",
    lambda x: sf.digamma(x),
    lambda g, x, out: g * polygamma(1, x),
    "The derivative of lgamma.",
    (0.2, 10),
    aliases=("special_digamma", "special_psi"),
    cost=60,
    rule=real_float("digamma"),
    public_inplace=False,
)


def _no_zeta_gradient(g: Any, x: Any, y: Any, out: Any) -> Any:
    raise NotImplementedError("the derivative for 'zeta' is not implemented.")


_no_zeta_gradient.refuses = True  # type: ignore[attr-defined]
elementwise(
    Row(
        "special_zeta",
        lambda x, y: sf.zeta(x, y),
        (_no_zeta_gradient, lambda g, x, y, out: g * -x * ops.special_zeta(x + 1, y)),
        rule("zeta_cpu", to_float=True, half=False),
        "input, other",
        "Hurwitz's zeta function: the sum of (k + other)**-input over k >= 0.",
        (1.2, 6.0),
        cost=400,
        method=False,
        inplace=False,
    )
)

# ---- Bessel functions

_EXP_LIMIT = 88.72283935546875  # beyond which exp overflows single precision


def _growing(f: Any) -> Any:
    """A function that PyTorch computes as a multiple of exp(|x|): in single precision it is infinite where that is."""

    def expr(x: Any) -> Any:
        y = f(x)
        return where(absolute(x) > _EXP_LIMIT, y * math.inf, y) if x.type == "f32" else y

    return expr


_unary(
    "i0",
    _growing(sf.i0),
    lambda g, x, out: g * ops.special_i1(x),
    "Modified Bessel function of order 0.",
    (-12, 12),
    aliases=("special_i0",),
)
_only_special(
    "i0e",
    lambda x: sf.i0e(x),
    lambda g, x, out: g * (ops.special_i1e(x) - ops.sgn(x) * out),
    "exp(-|input|) * i0(input).",
    (-20, 20),
    backward_name="SpecialI0EBackward0",
)


def _i1_grad(x: Any, out: Any, first: Any) -> Any:
    """i0 - i1/x, which is 1/2 at 0; the scaled form has another term."""
    near = ops.abs(x) < 1e-6
    safe = ops.where(near, 1.0, x)
    return ops.where(near, 0.5, first(safe) - out / safe)


def _i1e_grad(x: Any, out: Any) -> Any:
    near = ops.abs(x) < 1e-6
    safe = ops.where(near, 1.0, x)
    return ops.where(near, 0.5, ops.special_i0e(safe) - out * (ops.sgn(safe) + 1 / safe))


_only_special(
    "i1",
    _growing(sf.i1),
    lambda g, x, out: g * _i1_grad(x, out, ops.i0),
    "Modified Bessel function of order 1.",
    (-12, 12),
)
_only_special(
    "i1e",
    lambda x: sf.i1e(x),
    lambda g, x, out: g * _i1e_grad(x, out),
    "exp(-|input|) * i1(input).",
    (-20, 20),
    backward_name="SpecialI1EBackward0",
)

# ---- sigmoid and logit


def _sigmoid(x: Any) -> Any:
    return 1.0 / (exp(-x) + 1.0)


def _sigmoid_backward(g: Any, y: Any) -> Any:
    y = _lazy.row_helpers.conjugate(y)
    return g * ((1.0 - y) * y)


elementwise(
    Row(
        "_sigmoid_backward",
        _sigmoid_backward,
        (
            lambda gg, g, y, out: ops._sigmoid_backward(gg, conj(y)),
            lambda gg, g, y, out: conj(gg) * g * (1 - 2 * conj(y)),
        ),
        "arith",
        "grad, output",
        "grad * output * (1 - output).",
        method=False,
        inplace=False,
        out=False,
        cost=3,
    )
)
_unary(
    "sigmoid",
    _sigmoid,
    lambda g, x, out: ops._sigmoid_backward(g, out),
    "1 / (1 + exp(-input)).",
    (-8, 8),
    rule="float",
    aliases=("special_expit",),
    cost=15,
)


def _logit(x: Any, eps: Any = None) -> Any:
    if eps is not None:
        hi = 1.0 - eps
        x = where(x < eps, eps, where(x > hi, hi, x))
    return log(x / (1.0 - x))


def _logit_backward(g: Any, x: Any, eps: Any = None) -> Any:
    v = g / (x * (1.0 - x))
    if eps is None:
        return where((x < 0.0) | (x > 1.0), fn.not_a_number(x), v)
    return where((x < eps) | (x > 1.0 - eps), zero(x), v)


linear(
    "_logit_backward", _logit_backward, "grad, input, *, eps=None", "grad / (input * (1 - input)) inside the bounds.", 2
)
elementwise(
    Row(
        "logit",
        _logit,
        (lambda g, x, out, eps=None: _logit_grad(g, x, eps),),
        real_float("logit_cpu"),
        "input, eps=None",
        "log(input / (1 - input)), input brought into [eps, 1 - eps].",
        (0.05, 0.95),
        operands=1,
        cost=15,
        aliases=("special_logit",),
    )
)


def _logit_grad(g: Any, x: Any, eps: Any) -> Any:
    """One node; where it is to be differentiated again, the same as a formula."""
    if x._tab_requires_grad and STATE.grad:
        v = g / (x * (1 - x))
        return v if eps is None else ops.where((x < eps) | (x > 1 - eps), 0, v)
    return ops._logit_backward(g, x) if eps is None else ops._logit_backward(g, x, eps=eps)


# ---- x log y


def _xlog(f: Any) -> Any:
    return lambda x, y: where(isnan(y), y, where(x == 0.0, zero(x), x * f(y)))


elementwise(
    Row(
        "xlogy",
        _xlog(log),
        (
            lambda g, x, y, out: g * ops.xlogy(((x != 0) | (y > 0)).to(x.dtype), y),  # y may be a number
            lambda g, x, y, out: g * (x / y),
        ),
        real_float("xlogy_cpu"),
        "input, other",
        "input * log(other), 0 where input is 0.",
        (0.1, 4.0),
        cost=15,
        aliases=("special_xlogy",),
        public_inplace=True,
    )
)
elementwise(
    Row(
        "special_xlog1py",
        _xlog(fn.log1p),
        (
            lambda g, x, y, out: g * ops.special_xlog1py(((x != 0) | (y > -1)).to(x.dtype), y),
            lambda g, x, y, out: g * (x / (y + 1)),
        ),
        real_float("xlog1py_cpu"),
        "input, other",
        "input * log1p(other), 0 where input is 0.",
        (0.1, 4.0),
        cost=15,
        backward_name="SpecialXlog1PyBackward0",
        method=False,
        inplace=False,
    )
)


def _entr(x: Any) -> Any:
    low = where(x == 0.0, zero(x), -fn.infinity(x))
    return where(isnan(x), x, where(x > 0.0, -x * log(x), low))


_only_special("entr", _entr, lambda g, x, out: g * (-1 - ops.log(x)), "-input * log(input).", (0.05, 3), cost=15)

# what torch.special calls by other names
for _special, _plain in (
    ("special_exp2", "exp2"),
    ("special_expm1", "expm1"),
    ("special_log1p", "log1p"),
    ("special_sinc", "sinc"),
    ("special_round", "round"),
):
    register(
        _special,
        lambda *args, _plain=_plain, **options: getattr(ops, _plain)(*args, **options),
        doc=f"`torch.{_plain}`.",
    )
