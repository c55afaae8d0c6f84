"""Pooling made of other pooling. The rest is in ``ops.pool``."""

from tabtorch.ops.sliding.pool import (
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    lp_pool,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)

#: what `torch.nn.functional` shows
__all__ = [
    "adaptive_max_pool1d_with_indices",
    "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d_with_indices",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "max_pool1d_with_indices",
    "max_pool2d_with_indices",
    "max_pool3d_with_indices",
]


def max_pool1d_with_indices(
    input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False
):
    """``max_pool1d`` and the index of each maximum."""
    return max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode, True)


def max_pool2d_with_indices(
    input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False
):
    """``max_pool2d`` and the index of each maximum within its plane."""
    return max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode, True)


def max_pool3d_with_indices(
    input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False
):
    """``max_pool3d`` and the index of each maximum within its volume."""
    return max_pool3d(input, kernel_size, stride, padding, dilation, ceil_mode, True)


def lp_pool1d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """(sum of x^p)^(1/p) of each window. ``input`` (N, C, L) or (C, L)."""
    return lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """(sum of x^p)^(1/p) of each window. ``input`` (N, C, H, W) or (C, H, W)."""
    return lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """(sum of x^p)^(1/p) of each window. ``input`` (N, C, D, H, W) or (C, D, H, W)."""
    return lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)


def adaptive_max_pool1d_with_indices(input, output_size, return_indices=False):
    """``adaptive_max_pool1d`` and the index of each maximum."""
    return adaptive_max_pool1d(input, output_size, True)


def adaptive_max_pool2d_with_indices(input, output_size, return_indices=False):
    """``adaptive_max_pool2d`` and the index of each maximum within its plane."""
    return adaptive_max_pool2d(input, output_size, True)


def adaptive_max_pool3d_with_indices(input, output_size, return_indices=False):
    """``adaptive_max_pool3d`` and the index of each maximum within its volume."""
    return adaptive_max_pool3d(input, output_size, True)
