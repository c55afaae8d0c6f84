"""onnxruntime's own operators, `com.microsoft`, of quantized numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tabtorch as torch
import tabtorch.nn.functional as F
from tabtorch.onnx.operators.contrib import MICROSOFT
from tabtorch.onnx.operators.convolution import average_pool, global_average_pool
from tabtorch.onnx.operators.quantization import (
    along,
    dequantize_linear,
    dynamic_quantize_linear,
    matmul_integer,
    quantize_linear,
    quantized,
)
from tabtorch.onnx.registry import Tensor, operator
from tabtorch.onnx.values import Unsupported
from tabtorch.packed import Packed

operator("QuantizeLinear", domain=MICROSOFT)(quantize_linear)
operator("DequantizeLinear", domain=MICROSOFT)(dequantize_linear)


# ---- weights of a few bits, in blocks along the last axis, each with its scale


def unpacked(x: Tensor, bits: int) -> Tensor:
    """Bytes as the numbers in them, the lowest bits first."""
    if bits == 8:
        return x
    if bits not in (2, 4):
        raise Unsupported(f"weights of {bits} bits are not supported")
    wide = x.to(torch.int32)
    return torch.stack([wide >> s & (1 << bits) - 1 for s in range(0, 8, bits)], -1).flatten(-2)


def middles(zeros: Tensor | None, scales: Tensor, bits: int) -> Tensor:
    """The zero point of each block, given packed, as a number, or not."""
    if zeros is None:
        return torch.full_like(scales, 1 << bits - 1)
    found = unpacked(zeros, bits)[..., : scales.shape[-1]] if zeros.dtype == torch.uint8 else zeros
    return found.to(scales.dtype)


def of_blocks(packed: Tensor, scales: Tensor, zeros: Tensor | None, bits: int, block_size: int, size: int) -> Tensor:
    """The weights of bytes (…, bytes), scales (…, blocks) and their zero points, in the type of the scales."""
    blocks = scales.shape[-1]
    numbers = unpacked(packed, bits).to(scales.dtype)
    numbers = F.pad(numbers, [0, blocks * block_size - numbers.shape[-1]]).unflatten(-1, (blocks, block_size))
    found = (numbers - middles(zeros, scales, bits).unsqueeze(-1)) * scales.unsqueeze(-1)
    return found.flatten(-2)[..., :size]


@operator("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(
    a: Tensor,
    b: Tensor,
    scales: Tensor,
    zero_points: Tensor | None = None,
    g_idx: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    K: int,
    N: int,
    accuracy_level: int = 0,
    bits: int = 4,
    block_size: int,
) -> Tensor:
    zeros = None if zero_points is None else zero_points.reshape(N, -1)
    per_block = scales.reshape(N, -1)
    packed = b.reshape(N, -1)
    of_bytes = zeros is None or zeros.dtype == torch.uint8
    if (
        g_idx is None and of_bytes and K % block_size == 0 and bits in (2, 4, 8)
    ):  # unpacked by the kernel that multiplies
        parts = [packed, per_block, *([] if zeros is None else [zeros])]
        name = f"NBITS{bits}" + "_ZEROS" * (zeros is not None)
        return F.linear(a, Packed(parts, name, (N, K), dtype=a.dtype), bias)
    if g_idx is not None:  # the block of each number of a row
        block = g_idx[:K].long()
        middle = middles(zeros, per_block, bits)
        w = (unpacked(packed, bits)[:, :K].to(per_block.dtype) - middle[:, block]) * per_block[:, block]
    else:
        w = of_blocks(packed, per_block, zeros, bits, block_size, K)
    return F.linear(a, w.to(a.dtype), bias)


@operator("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(
    data: Tensor,
    indices: Tensor,
    scales: Tensor,
    zero_points: Tensor | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Tensor:
    if data.dtype != torch.uint8 or gather_axis or quantize_axis % data.dim() != data.dim() - 1:
        raise Unsupported(
            "GatherBlockQuantized is supported for bytes whose rows are gathered, in blocks of the last axis"
        )
    i = indices.long()
    i = torch.where(i < 0, i + data.shape[0], i)
    zeros = None if zero_points is None else zero_points[i]
    return of_blocks(data[i], scales[i], zeros, bits, block_size, data.shape[-1] * 8 // bits)


# ---- functions of quantized numbers: of the numbers that they stand for, quantized again


def meant(x: Tensor, scale: Tensor, zero: Tensor | None, axis: int = -1) -> Tensor:
    wide = x.float()
    return (wide if zero is None else wide - along(zero, x, axis).float()) * along(scale, x, axis)


def again(y: Tensor, scale: Tensor, zero: Tensor | None, dtype: Any) -> Tensor:
    return quantized(y / scale, zero, dtype if zero is None else zero.dtype)


def _unary(f: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(
        x: Tensor,
        x_scale: Tensor,
        x_zero: Tensor | None,
        y_scale: Tensor,
        y_zero: Tensor | None = None,
        *,
        channels_last: int = 0,
        **given: Any,
    ) -> Tensor:
        wide = meant(x, x_scale, x_zero)
        y = f(wide.movedim(-1, 1), **given).movedim(1, -1) if channels_last else f(wide, **given)
        return again(y, y_scale, y_zero, x.dtype)

    return run


for _name, _f in {
    "QLinearAveragePool": average_pool,
    "QLinearGlobalAveragePool": global_average_pool,
    "QLinearLeakyRelu": lambda x, alpha=0.01: F.leaky_relu(x, alpha),
    "QLinearSigmoid": torch.sigmoid,
}.items():
    operator(_name, domain=MICROSOFT)(_unary(_f))


def _binary(f: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(
        a: Tensor,
        a_scale: Tensor,
        a_zero: Tensor | None,
        b: Tensor,
        b_scale: Tensor,
        b_zero: Tensor | None,
        c_scale: Tensor,
        c_zero: Tensor | None = None,
    ) -> Tensor:
        return again(f(meant(a, a_scale, a_zero), meant(b, b_scale, b_zero)), c_scale, c_zero, a.dtype)

    return run


operator("QLinearAdd", domain=MICROSOFT)(_binary(torch.add))
operator("QLinearMul", domain=MICROSOFT)(_binary(torch.mul))


@operator("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(y_scale: Tensor, y_zero: Tensor, *inputs: Tensor, axis: int) -> Tensor:
    parts = [meant(*inputs[i : i + 3]) for i in range(0, len(inputs), 3)]
    return again(torch.cat(parts, axis), y_scale, y_zero, None)


# ---- products


@operator("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(
    a: Tensor,
    b: Tensor,
    a_scale: Tensor,
    b_scale: Tensor,
    a_zero: Tensor | None = None,
    b_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    y = matmul_integer(a, b, a_zero, b_zero).to(a_scale.dtype) * (a_scale * b_scale)
    return y if bias is None else y + bias


@operator("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(
    a: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    q, scale, zero = dynamic_quantize_linear(a)
    return matmul_integer_to_float(q, b, scale, b_scale, zero, b_zero, bias)


@operator("QGemm", domain=MICROSOFT)
def qgemm(
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    c: Tensor | None = None,
    y_scale: Tensor | None = None,
    y_zero: Tensor | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    found = matmul_integer(a.t() if transA else a, b.t() if transB else b, a_zero, b_zero)
    y = (found if c is None else found + c).float() * (alpha * a_scale * b_scale)
    return y if y_scale is None else again(y, y_scale, y_zero, a.dtype)
