"""Activations as ATen has them, and their gradients: of the input, or of the result where that says as much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabtorch import ops
from tabtorch.nn import functional as F
from tabtorch.ops.aten.table import ADAPTERS, Tensor, aten, grad_of


def _conj(x: Tensor) -> Tensor:
    return x.conj() if x.is_complex() else x


# ---- the gradient is that of our function of the name


def _by_tape(name: str) -> Callable[..., Tensor]:
    def backward(grad_output: Tensor, self: Tensor, *args: Any, **kw: Any) -> Tensor:
        return grad_of(lambda x: getattr(F, name)(x, *args, **kw), self, grad_output)

    return backward


for _name in "gelu glu hardshrink hardsigmoid hardswish hardtanh mish silu softplus softshrink".split():
    ADAPTERS[_name + "_backward"] = _by_tape(_name)

ADAPTERS["softshrink"] = F.softshrink  # which looks at lambd


@aten("logit_backward")
def _logit_backward(grad_output: Tensor, self: Tensor, eps: float | None = None) -> Tensor:
    return grad_of(lambda x: ops.logit(x, eps), self, grad_output)


# ---- the gradient is a formula of the result


@aten("tanh_backward")
def _tanh_backward(grad_output: Tensor, output: Tensor) -> Tensor:
    return grad_output * _conj(1 - output * output)


@aten("sigmoid_backward")
def _sigmoid_backward(grad_output: Tensor, output: Tensor) -> Tensor:
    return grad_output * _conj((1 - output) * output)


@aten("threshold_backward")
def _threshold_backward(grad_output: Tensor, self: Tensor, threshold: float) -> Tensor:
    return ops.where(self <= threshold, 0, grad_output)


def _check_slope(name: str, slope: float, is_result: bool, more: str = "") -> None:
    """RuntimeError where a gradient is asked for of results whose sign does not say which argument they had."""
    if is_result and slope < 0:
        raise RuntimeError(
            f"In-place {name} backward calculation is triggered with a negative slope which is not supported. This is caused by "
            f"calling in-place forward function with a negative slope, please call out-of-place version instead.{more}"
        )


@aten("leaky_relu_backward")
def _leaky_relu_backward(grad_output: Tensor, self: Tensor, negative_slope: float, self_is_result: bool) -> Tensor:
    more = (
        " File an issue at https://github.com/pytorch/pytorch if you do require supporting in-place leakRelu backward "
        "calculation with negative slope"
    )
    _check_slope("leakyReLu", negative_slope, self_is_result, more)
    return ops.where(self > 0, grad_output, grad_output * negative_slope)


@aten("elu")
def _elu(self: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    """scale · x for x > 0, else scale · alpha · (exp(input_scale · x) - 1)."""
    if scale == 1 and input_scale == 1:
        return F.elu(self, alpha)
    return ops.where(self > 0, self * scale, ops.expm1(self * input_scale) * (alpha * scale))


@aten("elu_")
def _elu_(self: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    return self.copy_(_elu(self, alpha, scale, input_scale))


@aten("elu_backward")
def _elu_backward(
    grad_output: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, self_or_result: Tensor
) -> Tensor:
    _check_slope("elu", alpha, is_result)
    x = self_or_result
    low = x + alpha * scale if is_result else ops.exp(x * input_scale) * (alpha * scale)
    return ops.where(x <= 0, grad_output * input_scale * low, grad_output * scale)


@aten("log_sigmoid")
def _log_sigmoid(self: Tensor) -> Tensor:
    return F.logsigmoid(self)


@aten("log_sigmoid_forward")
def _log_sigmoid_forward(self: Tensor) -> tuple[Tensor, Tensor]:
    """(log(sigmoid(x)), exp(-|x|), which its gradient may use)."""
    return F.logsigmoid(self), ops.exp(-ops.abs(self))


@aten("log_sigmoid_backward")
def _log_sigmoid_backward(grad_output: Tensor, self: Tensor, buffer: Tensor) -> Tensor:
    return grad_of(F.logsigmoid, self, grad_output)


# ---- slopes that are tensors


@aten("_prelu_kernel")
def _prelu_kernel(self: Tensor, weight: Tensor) -> Tensor:
    """`weight` broadcasts to x."""
    return ops.where(self > 0, self, self * weight)


@aten("_prelu_kernel_backward")
def _prelu_kernel_backward(grad_output: Tensor, self: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of x and of the weight, both of the shape of x."""
    up = self > 0
    return ops.where(up, grad_output, grad_output * weight), ops.where(up, 0, grad_output * self)


@aten("rrelu_with_noise_functional")
def _rrelu(
    self: Tensor,
    noise: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> tuple[Tensor, Tensor]:
    """(x times the noise, the noise): in training U(lower, upper) where x <= 0, and 1 elsewhere."""
    if not training:
        return F.leaky_relu(self, (lower + upper) / 2), noise.clone()
    drawn = ops.where(self <= 0, ops.empty_like(self).uniform_(lower, upper, generator=generator), 1)
    return self * drawn, drawn


@aten("rrelu_with_noise")
def _rrelu_with_noise(self: Tensor, noise: Tensor, *args: Any, **kw: Any) -> Tensor:
    """`noise` is written."""
    out, drawn = _rrelu(self, noise, *args, **kw)
    noise.copy_(drawn)
    return out


@aten("rrelu_with_noise_")
def _rrelu_with_noise_(self: Tensor, noise: Tensor, *args: Any, **kw: Any) -> Tensor:
    return self.copy_(_rrelu_with_noise(self, noise, *args, **kw))


@aten("rrelu_with_noise_backward")
def _rrelu_with_noise_backward(
    grad_output: Tensor,
    self: Tensor,
    noise: Tensor,
    lower: float,
    upper: float,
    training: bool,
    self_is_result: bool,
) -> Tensor:
    if training and upper - lower > 1e-6:
        return grad_output * noise
    return _leaky_relu_backward(grad_output, self, (lower + upper) / 2, self_is_result)


@aten("_add_relu")
def _add_relu(self: Tensor, other: Any, *, alpha: float = 1) -> Tensor:
    return ops.relu(ops.add(self, other, alpha=alpha))


@aten("_add_relu_")
def _add_relu_(self: Tensor, other: Any, *, alpha: float = 1) -> Tensor:
    return self.add_(other, alpha=alpha).relu_()


@aten("_add_relu.Scalar")
def _add_relu_scalar(self: Tensor, other: float, alpha: float = 1) -> Tensor:
    return _add_relu(self, other, alpha=alpha)


@aten("_add_relu_.Scalar")
def _add_relu_scalar_(self: Tensor, other: float, alpha: float = 1) -> Tensor:
    return _add_relu_(self, other, alpha=alpha)


@aten("_addmm_activation")
def _addmm_activation(
    self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1, use_gelu: bool = False
) -> Tensor:
    product = ops.addmm(self, mat1, mat2, beta=beta, alpha=alpha)
    return F.gelu(product) if use_gelu else ops.relu(product)


# ---- directional derivatives


@aten("glu_jvp")
def _glu_jvp(glu: Tensor, x: Tensor, dx: Tensor, dim: int) -> Tensor:
    """The derivative of glu(x) = a · sigmoid(b) along dx."""
    (_, b), (da, db) = x.chunk(2, dim), dx.chunk(2, dim)
    s = b.sigmoid()
    return da * s + glu * (db * (1 - s))
