"""Quantized numbers: what they stand for, and products of them."""

from __future__ import annotations

from typing import Any

import tabtorch as torch
from tabtorch.onnx.operators.convolution import conv
from tabtorch.onnx.registry import Tensor, operator
from tabtorch.onnx.values import NUMBERS, Known, Unsupported, dtype_of, type_name


def along(t: Tensor, x: Tensor, axis: int, block_size: int = 0) -> Tensor:
    """A scale or zero point, of all of `x`, of each of its slices along `axis`, or of each block, spread over `x`."""
    if t.dim() == 0 or t.numel() == 1 and t.dim() <= 1:
        return t.reshape(())
    if t.dim() == 1:
        shape = [1] * x.dim()
        shape[axis] = -1
        return t.reshape(shape)
    if not block_size:
        raise ValueError(f"a scale of {t.dim()} dimensions needs a block_size")
    return t.repeat_interleave(block_size, axis).narrow(axis, 0, x.shape[axis])


def quantized(y: Tensor, zero: Tensor | None, dtype: Any) -> Tensor:
    """`y` rounded to even, shifted by `zero`, cut to the range of `dtype`."""
    limits = torch.iinfo(dtype)
    y = torch.round(y)
    return torch.clamp(y if zero is None else y + zero.to(y.dtype), limits.min, limits.max).to(dtype)


@operator("QuantizeLinear")
def quantize_linear(
    x: Tensor,
    scale: Tensor,
    zero_point: Any = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    saturate: int = 1,
    precision: int = 0,
    run: Any,
) -> Tensor:
    of = NUMBERS[torch.uint8] if not output_dtype else output_dtype
    if isinstance(zero_point, Known):
        of = zero_point.type
    elif zero_point is not None:
        of = NUMBERS[zero_point.dtype]
    dtype = dtype_of(of)
    if dtype.is_floating_point:
        raise Unsupported(f"QuantizeLinear to {type_name(of)} is not supported")
    zero = zero_point.tensor(run.device) if isinstance(zero_point, Known) else zero_point
    wide = x.float() if not x.dtype.is_floating_point else x
    y = wide / along(scale, x, axis, block_size).to(wide.dtype)
    return quantized(y.float(), None if zero is None else along(zero, x, axis, block_size), dtype)


def _numbers(x: Any, run: Any) -> Tensor:
    """A quantized tensor's numbers, also where its type has fewer bits than any here."""
    if isinstance(x, Known):
        values = x.values
        return torch.tensor(values, dtype=torch.float32, device=run.device).reshape(x.shape)
    return x


@operator("DequantizeLinear")
def dequantize_linear(
    x: Any,
    scale: Tensor,
    zero_point: Any = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    run: Any,
) -> Tensor:
    q = _numbers(x, run)
    wide = q.double() if q.dtype == torch.int32 and q.device.type == "cpu" else q.float()
    if zero_point is not None:
        wide = wide - along(_numbers(zero_point, run), q, axis, block_size).to(wide.dtype)
    s = along(scale, q, axis, block_size)
    return (wide * s.to(wide.dtype)).to(dtype_of(output_dtype) if output_dtype else scale.dtype)


@operator("DynamicQuantizeLinear")
def dynamic_quantize_linear(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    low, high = x.amin().clamp(max=0), x.amax().clamp(min=0)
    scale = (high - low) / 255
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    zero = torch.clamp(torch.round(-low / scale), 0, 255).to(torch.uint8)
    return quantized(x / scale, zero, torch.uint8), scale, zero


def _exact(x: Tensor, zero: Tensor | None) -> Tensor:
    wide = x.to(torch.int32)
    return wide if zero is None else wide - zero.to(torch.int32)


def _rows(t: Tensor | None) -> Tensor | None:
    """A zero point or scale of each row of a matrix."""
    return t.unsqueeze(-1) if t is not None and t.dim() == 1 and t.numel() > 1 else t


@operator("MatMulInteger")
def matmul_integer(a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None) -> Tensor:
    return torch.matmul(_exact(a, _rows(a_zero)), _exact(b, b_zero))


@operator("QLinearMatMul")
def qlinear_matmul(
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
) -> Tensor:
    found = torch.matmul(_exact(a, _rows(a_zero)), _exact(b, b_zero)).float()
    row_scale = _rows(a_scale)
    assert row_scale is not None
    return quantized(found * (row_scale.float() * b_scale.float() / y_scale.float()), y_zero, y_zero.dtype)


def _channels(t: Tensor, rank: int) -> Tensor:
    return t.reshape([-1] + [1] * (rank - 1)) if t.numel() > 1 else t.reshape(())


@operator("ConvInteger")
def conv_integer(
    x: Tensor, w: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None, **window: Any
) -> Tensor:
    if w_zero is not None:
        w_zero = _channels(w_zero, w.dim())
    # sums of products of bytes are exact in float32 up to 2**24
    wide = torch.float32 if w[0].numel() <= 256 else torch.float64
    return conv(_exact(x, x_zero).to(wide), _exact(w, w_zero).to(wide), None, **window).to(torch.int32)


@operator("QLinearConv")
def qlinear_conv(
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    b: Tensor | None = None,
    **window: Any,
) -> Tensor:
    wide = _exact(w, _channels(w_zero, w.dim())).float()
    y = conv(_exact(x, x_zero).float(), wide, None, **window)
    if b is not None:
        y = y + b.float().reshape([1, -1] + [1] * (y.dim() - 2))
    scale = w_scale.reshape([1, -1] + [1] * (y.dim() - 2)) if w_scale.numel() > 1 else w_scale.reshape(())
    return quantized(y * (x_scale * scale / y_scale), y_zero, y_zero.dtype)
