"""Convolution layers."""

import math
from typing import Any

from tabtorch.nn import functional as F
from tabtorch.nn import init
from tabtorch.nn.modules.module import Module
from tabtorch.nn.modules.utils import _ntuple, _reverse_repeat_tuple
from tabtorch.nn.parameter import Parameter, empty_parameter

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """Weights, checks and ``repr`` of all convolutions. Initial values: U(-1/√fan_in, 1/√fan_in)."""

    bias: Parameter | None

    __constants__ = [
        "stride",
        "padding",
        "dilation",
        "groups",
        "padding_mode",
        "output_padding",
        "in_channels",
        "out_channels",
        "kernel_size",
    ]

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        groups,
        bias,
        padding_mode,
        device=None,
        dtype=None,
    ):
        super().__init__()
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups != 0:
            raise ValueError("out_channels must be divisible by groups")
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(f"Invalid padding string {padding!r}, should be one of { {'same', 'valid'} }")
            if padding == "same" and any(s != 1 for s in stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
        if padding_mode not in _PADDING_MODES:
            raise ValueError(
                f"padding_mode must be one of {set(_PADDING_MODES)}, but got padding_mode='{padding_mode}'"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding: Any = padding
        self.dilation: Any = dilation
        self.transposed = transposed
        self.output_padding: Any = output_padding
        self.groups = groups
        self.padding_mode = padding_mode
        # What F.pad gets where the padding is not zeros.
        if isinstance(padding, str):
            self._reversed_padding_repeated_twice: Any = [0, 0] * len(kernel_size)
            if padding == "same":
                totals = [d * (k - 1) for d, k in zip(dilation, kernel_size, strict=True)]
                self._reversed_padding_repeated_twice = [p for t in reversed(totals) for p in (t // 2, t - t // 2)]
        else:
            self._reversed_padding_repeated_twice = _reverse_repeat_tuple(padding, 2)
        first, second = (in_channels, out_channels) if transposed else (out_channels, in_channels)
        shape = (first, second // groups, *kernel_size)
        self.weight = empty_parameter(shape, True, device, dtype)
        self.register_parameter("bias", empty_parameter(out_channels, bias, device, dtype))
        self.reset_parameters()

    def reset_parameters(self):
        """Draws the initial values again."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self):
        s = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if any(p != 0 for p in self.padding):
            s += f", padding={self.padding}"
        if self.dilation != (1,) * len(self.dilation):
            s += f", dilation={self.dilation}"
        if self.output_padding != (0,) * len(self.output_padding):
            s += f", output_padding={self.output_padding}"
        if self.groups != 1:
            s += f", groups={self.groups}"
        if self.bias is None:
            s += ", bias=False"
        if self.padding_mode != "zeros":
            s += f", padding_mode={self.padding_mode}"
        return s

    def forward(self, input):
        return self._conv_forward(input, self.weight, self.bias)


class _Conv(_ConvNd):
    _n = 0

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        bias=True,
        padding_mode="zeros",
        device=None,
        dtype=None,
    ):
        sizes = _ntuple(self._n)
        super().__init__(
            in_channels,
            out_channels,
            sizes(kernel_size),
            sizes(stride),
            padding if isinstance(padding, str) else sizes(padding),
            sizes(dilation),
            False,
            sizes(0),
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def _conv_forward(self, input, weight, bias):
        padding = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = (0,) * self._n
        return self._function(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv1d(_Conv):
    """Cross-correlation of (N, C, L) or (C, L) with ``out_channels`` kernels of ``kernel_size``."""

    _n = 1
    _function = staticmethod(F.conv1d)


class Conv2d(_Conv):
    """Cross-correlation of (N, C, H, W) or (C, H, W) with ``out_channels`` kernels of ``kernel_size``."""

    _n = 2
    _function = staticmethod(F.conv2d)


class Conv3d(_Conv):
    """Cross-correlation of (N, C, D, H, W) or (C, D, H, W) with ``out_channels`` kernels of ``kernel_size``."""

    _n = 3
    _function = staticmethod(F.conv3d)


class _ConvTransposeNd(_ConvNd):
    _n = 0

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        output_padding=0,
        groups=1,
        bias=True,
        dilation=1,
        padding_mode="zeros",
        device=None,
        dtype=None,
    ):
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        sizes = _ntuple(self._n)
        super().__init__(
            in_channels,
            out_channels,
            sizes(kernel_size),
            sizes(stride),
            sizes(padding),
            sizes(dilation),
            True,
            sizes(output_padding),
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def forward(self, input, output_size=None):
        extra = self._output_padding(input, output_size)
        return self._function(
            input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation
        )

    def _output_padding(self, input, output_size):
        """The output padding that gives ``output_size``; ValueError where none does."""
        if output_size is None:
            return self.output_padding
        n = len(self.kernel_size)
        n_other = 2 if input.dim() == n + 2 else 1
        if len(output_size) == n_other + n:
            output_size = output_size[n_other:]
        if len(output_size) != n:
            raise ValueError(
                f"ConvTranspose{n}D: for {input.dim()}D input, output_size must have {n} "
                f"or {n_other + n} elements (got {len(output_size)})"
            )
        low = [
            (input.size(d + n_other) - 1) * self.stride[d]
            - 2 * self.padding[d]
            + self.dilation[d] * (self.kernel_size[d] - 1)
            + 1
            for d in range(n)
        ]
        high = [s + self.stride[d] - 1 for d, s in enumerate(low)]
        if any(not a <= s <= b for a, s, b in zip(low, output_size, high, strict=True)):
            raise ValueError(
                f"requested an output size of {output_size}, but valid sizes range "
                f"from {low} to {high} (for an input of {input.size()[2:]})"
            )
        return tuple(s - a for a, s in zip(low, output_size, strict=True))


class ConvTranspose1d(_ConvTransposeNd):
    """The gradient of ``Conv1d`` as a layer: (N, C, L) to a longer (N, out_channels, L')."""

    _n = 1
    _function = staticmethod(F.conv_transpose1d)


class ConvTranspose2d(_ConvTransposeNd):
    """The gradient of ``Conv2d`` as a layer: (N, C, H, W) to a larger (N, out_channels, H', W')."""

    _n = 2
    _function = staticmethod(F.conv_transpose2d)


class ConvTranspose3d(_ConvTransposeNd):
    """The gradient of ``Conv3d`` as a layer: (N, C, D, H, W) to a larger (N, out_channels, D', H', W')."""

    _n = 3
    _function = staticmethod(F.conv_transpose3d)
