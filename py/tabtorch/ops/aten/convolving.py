"""Convolutions of any number of dimensions, transposed or not, as one operator, and their gradients."""

from __future__ import annotations

from typing import Any

from tabtorch import ops
from tabtorch.nn import functional as F
from tabtorch.ops.aten.table import Tensor, aten, grads_of


@aten("convolution", "convolution_overrideable")
def _convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Tensor:
    """`input` (N, C, …). A size of one number is for all dimensions."""
    n = input.ndim - 2
    stride, padding, dilation, output_padding = (
        list(v) * (n if len(v) == 1 else 1) for v in (stride, padding, dilation, output_padding)
    )
    if transposed:
        f = getattr(F, f"conv_transpose{n}d")
        return f(input, weight, bias, stride, padding, output_padding, groups, dilation)
    return getattr(F, f"conv{n}d")(input, weight, bias, stride, padding, dilation, groups)


@aten("_convolution")
def _convolution_with_settings(input: Tensor, weight: Tensor, bias: Tensor | None, *args: Any, **kw: Any) -> Tensor:
    """`convolution`, with settings of libraries after it, which change no value."""
    for name in ("benchmark", "deterministic", "cudnn_enabled", "allow_tf32"):
        kw.pop(name, None)
    return _convolution(input, weight, bias, *args[:6], **kw)


@aten("_convolution_mode")
def _convolution_mode(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: str, dilation: Any, groups: int
) -> Tensor:
    """`padding` is "same" or "valid"."""
    f = getattr(F, f"conv{weight.ndim - 2}d")
    return f(input, weight, bias, list(stride), padding, list(dilation), groups)


@aten("convolution_backward_overrideable")
def _convolution_backward_overrideable(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    output_mask: Any,
) -> tuple[Tensor | None, ...]:
    """The gradients of the input, the weight and the bias, those that `output_mask` wants."""
    rest = (None, stride, padding, dilation, transposed, output_padding, groups)
    found = grads_of(lambda x, w: _convolution(x, w, *rest), (input, weight), grad_output, output_mask[:2])
    return (*found, grad_output.sum([0, *range(2, grad_output.ndim)]) if output_mask[2] else None)


@aten("convolution_backward")
def _convolution_backward(
    grad_output: Tensor, input: Tensor, weight: Tensor, bias_sizes: Any, *args: Any, **kw: Any
) -> tuple[Tensor | None, ...]:
    return _convolution_backward_overrideable(grad_output, input, weight, *args, **kw)


# ---- one operator for a kind of convolution


def _plain(name: str, n: int) -> None:
    """(x, weight, kernel size, bias, stride, padding, and dilation where there is one)."""

    @aten(name)
    def forward(
        self: Tensor,
        weight: Tensor,
        kernel_size: Any,
        bias: Tensor | None = None,
        stride: Any = (1,),
        padding: Any = (0,),
        dilation: Any = (1,),
    ) -> Tensor:
        groups = self.shape[-n - 1] // weight.shape[1] if "depthwise" in name else 1
        f = getattr(F, f"conv{n}d")
        return f(
            self, weight, bias, *(list(v) * (n if len(v) == 1 else 1) for v in (stride, padding, dilation)), groups
        )


for _name in ("_slow_conv2d_forward", "thnn_conv2d", "slow_conv_dilated2d", "_conv_depthwise2d"):
    _plain(_name, 2)
for _name in ("slow_conv3d_forward", "slow_conv3d", "slow_conv_dilated3d", "conv_depthwise3d"):
    _plain(_name, 3)


@aten("_slow_conv2d_backward.output_mask")
def _slow_conv2d_backward(
    grad_output: Tensor, self: Tensor, weight: Tensor, kernel_size: Any, stride: Any, padding: Any, output_mask: Any
) -> tuple[Tensor | None, ...]:
    rest = (stride, padding, [1, 1], False, [0, 0], 1, output_mask)
    return _convolution_backward_overrideable(grad_output, self, weight, *rest)


def _transposed(n: int) -> None:
    @aten(f"slow_conv_transpose{n}d")
    def forward(
        self: Tensor,
        weight: Tensor,
        kernel_size: Any,
        bias: Tensor | None = None,
        stride: Any = (1,),
        padding: Any = (0,),
        output_padding: Any = (0,),
        dilation: Any = (1,),
    ) -> Tensor:
        sizes = (list(v) * (n if len(v) == 1 else 1) for v in (stride, padding, output_padding, dilation))
        stride, padding, output_padding, dilation = sizes
        f = getattr(F, f"conv_transpose{n}d")
        return f(self, weight, bias, stride, padding, output_padding, 1, dilation)


_transposed(2)
_transposed(3)


# ---- products


@aten("linear_backward")
def _linear_backward(self: Tensor, grad_output: Tensor, weight: Tensor, output_mask: Any) -> tuple[Tensor | None, ...]:
    f = F.linear
    found = grads_of(f, (self, weight), grad_output, output_mask[:2])
    return (*found, grad_output.sum(list(range(grad_output.ndim - 1))) if output_mask[2] else None)


@aten("matmul_backward")
def _matmul_backward(grad: Tensor, self: Tensor, other: Tensor, mask: Any) -> tuple[Tensor | None, ...]:
    return grads_of(ops.matmul, (self, other), grad, mask)


@aten("_trilinear")
def _trilinear(
    i1: Tensor, i2: Tensor, i3: Tensor, expand1: Any, expand2: Any, expand3: Any, sumdim: Any, unroll_dim: int = 1
) -> Tensor:
    """The product of three tensors, each with dimensions of size 1 put in, summed over `sumdim`."""
    for d in sorted(expand1):
        i1 = i1.unsqueeze(d)
    for d in sorted(expand2):
        i2 = i2.unsqueeze(d)
    for d in sorted(expand3):
        i3 = i3.unsqueeze(d)
    product = i1 * i2 * i3
    return product.sum(list(sumdim), dtype=product.dtype) if sumdim else product
