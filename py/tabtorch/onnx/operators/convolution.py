"""Convolutions and pooling: windows that slide over the axes after the first two."""

from __future__ import annotations

import math
from typing import Any

import tabtorch as torch
import tabtorch.nn.functional as F
from tabtorch.onnx.operators.shaping import spread
from tabtorch.onnx.registry import Ints, Tensor, operator
from tabtorch.onnx.values import Unsupported

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
MAX_POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


def of_rank(table: dict[int, Any], n: int) -> Any:
    if n not in table:
        raise Unsupported(f"windows over {n} axes are not supported")
    return table[n]


class Windows:
    """Where windows of `kernel` lie along each axis of `sizes`; `low`, `high`: what is put before and after."""

    def __init__(
        self,
        sizes: tuple[int, ...],
        kernel: list[int],
        strides: list[int] | None,
        dilations: list[int] | None,
        pads: list[int] | None,
        auto_pad: str,
        ceil_mode: int = 0,
    ) -> None:
        n = len(kernel)
        self.kernel, self.strides, self.dilations = list(kernel), strides or [1] * n, dilations or [1] * n
        given = pads or [0] * (2 * n)
        if not len(sizes) == n == len(self.strides) == len(self.dilations) or len(given) != 2 * n:
            raise ValueError(f"a kernel of {n} sizes does not fit {len(sizes)} axes, or its strides, dilations or pads")
        self.low, self.high = list(given[:n]), list(given[n:])
        #: what is after them, so that the last window is whole
        self.extra = [0] * n
        for i, size in enumerate(sizes):
            reach, s = (self.kernel[i] - 1) * self.dilations[i] + 1, self.strides[i]
            if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
                need = max(0, (-(-size // s) - 1) * s + reach - size)
                small, large = need // 2, need - need // 2
                self.low[i], self.high[i] = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
            elif auto_pad == "VALID":
                self.low[i] = self.high[i] = 0
            padded = size + self.low[i] + self.high[i]
            if ceil_mode:
                count = -(-(padded - reach) // s) + 1
                if (count - 1) * s >= size + self.low[i]:  # a window that begins after the end is none
                    count -= 1
                self.extra[i] = max(0, (count - 1) * s + reach - padded)

    @property
    def after(self) -> list[int]:
        return [a + b for a, b in zip(self.high, self.extra)]


@operator("Conv")
def conv(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    at = Windows(tuple(x.shape[2:]), list(w.shape[2:]), strides, dilations, pads, auto_pad)
    f = of_rank(CONV, x.dim() - 2)
    if at.low == at.high:
        return f(x, w, b, at.strides, at.low, at.dilations, group)
    return f(spread(x, at.low, at.high), w, b, at.strides, 0, at.dilations, group)


@operator("ConvTranspose")
def conv_transpose(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    output_padding: list[int] | None = None,
    output_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    n, kernel = x.dim() - 2, list(w.shape[2:])
    s, d, more = strides or [1] * n, dilations or [1] * n, output_padding or [0] * n
    full = [(x.shape[2 + i] - 1) * s[i] + (kernel[i] - 1) * d[i] + 1 + more[i] for i in range(n)]
    if output_shape or auto_pad.startswith("SAME"):
        wanted = output_shape[-n:] if output_shape else [x.shape[2 + i] * s[i] for i in range(n)]
        whole = [full[i] - wanted[i] for i in range(n)]
        low = [max(0, t // 2 if auto_pad == "SAME_UPPER" else t - t // 2) for t in whole]
        high = [t - a for t, a in zip(whole, low)]
    else:
        p = pads or [0] * (2 * n)
        low, high = p[:n], p[n:]
    y = of_rank(TRANSPOSED, n)(x, w, None, s, 0, 0, group, d)
    y = spread(y, [-a for a in low], [m - a for m, a in zip(more, high)])
    return y if b is None else y + b.reshape([1, -1] + [1] * n)


@operator("MaxPool")
def max_pool(
    x: Tensor,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    storage_order: int = 0,
    strides: list[int] | None = None,
    outputs: int = 1,
) -> Any:
    n = x.dim() - 2
    at = Windows(tuple(x.shape[2:]), kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    wide = x if x.dtype.is_floating_point else x.float()
    filled = spread(wide, at.low, at.after, -math.inf)
    f = of_rank(MAX_POOL, n)
    if outputs == 1:
        return f(filled, at.kernel, at.strides, 0, at.dilations).to(x.dtype)
    y, i = f(filled, at.kernel, at.strides, 0, at.dilations, return_indices=True)
    # PyTorch's indices are into a plane with its padding, ONNX's into the whole tensor
    axes: list[Any] = []
    for a in reversed(range(n)):
        axes.insert(0, i % filled.shape[2 + a] - at.low[a])
        i = i // filled.shape[2 + a]
    flat = torch.arange(x.shape[0] * x.shape[1], device=x.device).reshape(x.shape[0], x.shape[1], *[1] * n)
    flat = flat * math.prod(x.shape[2:])
    step = 1
    for a in range(n) if storage_order else reversed(range(n)):
        flat = flat + axes[a] * step
        step *= x.shape[2 + a]
    return y.to(x.dtype), flat


@operator("MaxUnpool")
def max_unpool(
    x: Tensor,
    indices: Tensor,
    output_shape: Ints | None = None,
    *,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    n = len(kernel_shape)
    s, p = strides or [1] * n, pads or [0] * (2 * n)
    sizes = [(x.shape[2 + i] - 1) * s[i] + kernel_shape[i] - p[i] - p[n + i] for i in range(n)]
    shape = [*x.shape[:2], *sizes]
    flat = torch.zeros(math.prod(shape), dtype=x.dtype, device=x.device)
    y = flat.scatter(0, indices.reshape(-1).long(), x.reshape(-1)).reshape(shape)
    # the indices are those of the size that follows from the windows, also where a larger one is asked for
    return y if output_shape is None else spread(y, [0] * n, [a - b for a, b in zip(output_shape[2:], sizes)])


def _sums(x: Tensor, at: Windows) -> Tensor:
    """The sum of each window of each channel."""
    ones = torch.ones(x.shape[1], 1, *at.kernel, dtype=x.dtype, device=x.device)
    return of_rank(CONV, x.dim() - 2)(x, ones, None, at.strides, 0, at.dilations, x.shape[1])


@operator("AveragePool")
def average_pool(
    x: Tensor,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    at = Windows(tuple(x.shape[2:]), kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    sums = _sums(spread(x, at.low, at.after), at)
    counted = torch.ones(1, 1, *x.shape[2:], dtype=x.dtype, device=x.device)
    counted = spread(spread(counted, at.low, at.high, 1.0 if count_include_pad else 0.0), [0] * len(at.low), at.extra)
    return sums / _sums(counted, at)


@operator("LpPool")
def lp_pool(
    x: Tensor,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    p: float = 2,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    at = Windows(tuple(x.shape[2:]), kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    return _sums(spread(x.abs() ** p, at.low, at.after), at) ** (1 / p)


@operator("GlobalAveragePool")
def global_average_pool(x: Tensor) -> Tensor:
    return x.mean(list(range(2, x.dim())), keepdim=True)


@operator("GlobalMaxPool")
def global_max_pool(x: Tensor) -> Tensor:
    return x.amax(list(range(2, x.dim())), keepdim=True)


@operator("GlobalLpPool")
def global_lp_pool(x: Tensor, *, p: float = 2) -> Tensor:
    return (x.abs() ** p).sum(list(range(2, x.dim())), keepdim=True) ** (1 / p)
