"""Sliding windows as columns, and back."""

from tabtorch.base.dtypes import bool_
from tabtorch.ops.functional._common import named, ntuple
from tabtorch.ops.machinery.promotion import FLOATING_COMPLEX, check_kernel
from tabtorch.ops.sliding.pool_views import columns, from_columns

#: what `torch.nn.functional` shows
__all__ = [
    "fold",
    "unfold",
]

_TYPES = FLOATING_COMPLEX | {bool_}


def _windows(size, kernel, dilation, padding, stride):
    return [
        (s + 2 * p - d * (k - 1) - 1) // t + 1
        for s, k, d, p, t in zip(size, kernel, dilation, padding, stride, strict=True)
    ]


def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    """Sliding windows as columns. ``input`` (N, C, H, W) or (C, H, W). Returns (N, C · Kh · Kw, L)."""
    kernel, dilation, padding, stride = (ntuple(v, 2) for v in (kernel_size, dilation, padding, stride))
    if input.dim() not in (3, 4):
        raise RuntimeError(
            "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, "
            f"but got: [{', '.join(str(s) for s in input.shape)}]"
        )
    if input.dim() == 3:
        return named(unfold(input.unsqueeze(0), kernel, dilation, padding, stride).squeeze(0), "Im2ColBackward0")
    check_kernel("im2col_out_cpu", input.dtype, _TYPES)
    n, channels, *size = input.shape
    counts = _windows(size, kernel, dilation, padding, stride)
    if min(counts) < 1:
        raise RuntimeError(
            f"Given input with spatial size {tuple(size)}, kernel_size={kernel}, dilation={dilation}, "
            f"padding={padding}, calculated shape of the array of sliding blocks as {tuple(counts)}, "
            "but its components must be at least one."
        )
    windows = columns(input, (kernel, stride, padding, dilation, tuple(size), tuple(counts)))
    return named(windows.reshape(n, channels * kernel[0] * kernel[1], counts[0] * counts[1]), "Im2ColBackward0")


def fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1):
    """Sums columns back into an image: the adjoint of ``unfold``. ``input`` (N, C · Kh · Kw, L). Returns (N, C, H, W)."""
    size, kernel, dilation, padding, stride = (
        ntuple(v, 2) for v in (output_size, kernel_size, dilation, padding, stride)
    )
    if input.dim() not in (2, 3):
        raise RuntimeError(
            "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero dimensions for "
            f"input, but got: [{', '.join(str(s) for s in input.shape)}]"
        )
    if input.dim() == 2:
        return named(fold(input.unsqueeze(0), size, kernel, dilation, padding, stride).squeeze(0), "Col2ImBackward0")
    check_kernel("col2im_out_cpu", input.dtype, _TYPES)
    n, rows_of_input, length = input.shape
    if rows_of_input % (kernel[0] * kernel[1]):
        raise RuntimeError(
            "Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got "
            f"input.size(1)={rows_of_input} and kernel_size={kernel}."
        )
    counts = _windows(size, kernel, dilation, padding, stride)
    given = f"Given output_size={size}, kernel_size={kernel}, dilation={dilation}, padding={padding}, stride={stride}, "
    if min(counts) < 1:
        raise RuntimeError(
            given + "calculated shape of the array of sliding blocks as "
            f"({counts[0]}, {counts[1]}), but its components must be at least one."
        )
    if counts[0] * counts[1] != length:
        raise RuntimeError(
            given + "expected size of input's dimension 2 to match the calculated number of sliding blocks "
            f"{counts[0]} * {counts[1]} = {counts[0] * counts[1]}, but got input.size(2)={length}."
        )
    taps = input.reshape(n, rows_of_input // (kernel[0] * kernel[1]), *kernel, *counts)
    return from_columns(taps, (kernel, stride, padding, dilation, size, tuple(counts)))
