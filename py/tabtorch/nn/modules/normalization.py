"""Layer, group and related normalizations."""

import numbers

import tabtorch as torch
from tabtorch.autograd.function import Function
from tabtorch.nn import functional as F
from tabtorch.nn import init
from tabtorch.nn.modules.module import Module
from tabtorch.nn.parameter import empty_parameter

__all__ = ["CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


class LayerNorm(Module):
    """(x - mean) / sqrt(var + eps) · weight + bias over the last dimensions (Ba et al., 2016)."""

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]

    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True, device=None, dtype=None):
        super().__init__()
        if isinstance(normalized_shape, numbers.Integral):
            normalized_shape = (normalized_shape,)
        self.normalized_shape = tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.register_parameter("weight", empty_parameter(self.normalized_shape, elementwise_affine, device, dtype))
        self.register_parameter(
            "bias", empty_parameter(self.normalized_shape, elementwise_affine and bias, device, dtype)
        )
        self.reset_parameters()

    def reset_parameters(self):
        """Scale 1, shift 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input):
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
            f", bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """x / sqrt(mean(x²) + eps) · weight over the last dimensions (Zhang and Sennrich, 2019)."""

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]

    def __init__(self, normalized_shape, eps=None, elementwise_affine=True, device=None, dtype=None):
        super().__init__()
        if isinstance(normalized_shape, numbers.Integral):
            normalized_shape = (normalized_shape,)
        self.normalized_shape = tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.register_parameter("weight", empty_parameter(self.normalized_shape, elementwise_affine, device, dtype))
        self.reset_parameters()

    def reset_parameters(self):
        """Scale 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x):
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self):
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """Normalizes ``num_groups`` groups of channels of each sample (Wu and He, 2018). (N, C, *)."""

    __constants__ = ["num_groups", "num_channels", "eps", "affine"]

    def __init__(self, num_groups, num_channels, eps=1e-5, affine=True, device=None, dtype=None, *, bias=True):
        super().__init__()
        if num_groups <= 0 or num_channels % num_groups != 0:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self.register_parameter("weight", empty_parameter(num_channels, affine, device, dtype))
        self.register_parameter("bias", empty_parameter(num_channels, affine and bias, device, dtype))
        self.reset_parameters()

    def reset_parameters(self):
        """Scale 1, shift 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input):
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class LocalResponseNorm(Module):
    """x / (k + alpha · mean of x² over ``size`` neighbouring channels)^beta (Krizhevsky et al., 2012)."""

    __constants__ = ["size", "alpha", "beta", "k"]

    def __init__(self, size, alpha=1e-4, beta=0.75, k=1.0):
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input):
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self):
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


def _neighbours(n, below, above, x):
    """(n, n), row i: 1 for the channels from i - below to i + above, else 0; with the differences, for other rules."""
    i = torch.arange(n, device=x.device)
    apart = i - i.unsqueeze(1)
    return (apart >= -below) & (apart <= above), i, apart


class _CrossMapLRN2d(Function):
    """As PyTorch's, which never lets go of channel 0 in the sum, and whose backward sums another window."""

    @staticmethod
    def forward(ctx, input, size, alpha, beta, k):
        if input.dim() != 4:
            raise ValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.dim()}D instead.")
        reach = int((size - 1) / 2)
        near, channel, apart = _neighbours(input.size(1), reach, reach, input)
        held = (channel == 0) & (apart < 0)
        # channel 0 is subtracted where c > reach + 1, one step after it has left the window
        sums = (near | held).to(input.dtype) @ input.square().flatten(2)
        scale = sums.view_as(input) * (alpha / size) + k
        output = input * scale**-beta
        ctx.save_for_backward(input, output, scale)
        ctx.size, ctx.alpha, ctx.beta = size, alpha, beta
        return output

    @staticmethod
    def backward(ctx, grad):
        input, output, scale = ctx.saved_tensors
        below = int(ctx.size - (ctx.size - 1) / 2)
        near, _, _ = _neighbours(input.size(1), below, ctx.size - 1 - below, input)
        sums = near.to(input.dtype) @ (grad * output / scale).flatten(2)
        factor = 2 * ctx.alpha * ctx.beta / ctx.size
        return scale**-ctx.beta * grad - factor * input * sums.view_as(input), None, None, None, None


class CrossMapLRN2d(Module):
    """``LocalResponseNorm`` of (N, C, H, W) as Torch7 had it: x / (k + alpha / size · sum of x²)^beta."""

    def __init__(self, size, alpha=1e-4, beta=0.75, k=1):
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input):
        return _CrossMapLRN2d.apply(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self):
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
