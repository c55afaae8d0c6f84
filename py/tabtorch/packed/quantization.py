"""Weights packed here: matrices of numbers to the codes of torchao's int8 and int4 and of bitsandbytes' nf4 and fp4."""

from __future__ import annotations

from typing import Any

import tabtorch
from tabtorch.base import dtypes
from tabtorch.packed.schemes import FLOATS, require
from tabtorch.packed.weight import Packed


def _grouped(weight: Any, group_size: int | None) -> Any:
    """The weight as (rows, groups, columns of a group). ValueError where that cannot be."""
    require(isinstance(weight, tabtorch.Tensor) and weight.ndim == 2, "a weight that is quantized is a matrix")
    require(weight.dtype in FLOATS, f"a weight of {weight.dtype} cannot be quantized")
    rows, columns = weight.shape
    require(rows > 0 and columns > 0, f"a weight of {[rows, columns]} cannot be quantized")
    size = columns if group_size is None else group_size
    require(type(size) is int and size > 0 and columns % size == 0, f"{columns} columns are not of groups of {size!r}")
    return weight.detach().reshape(rows, columns // size, size)


def quantize_int8(weight: Any, group_size: int | None = None) -> Packed:
    """A matrix (rows, columns) as int8 codes with a scale for each row, or for each `group_size` columns of it.

    As torchao's `Int8WeightOnlyConfig`: scale = max |w| / 127.5, at least the epsilon of float32; code = round(w * (1 / scale)).
    """
    w = _grouped(weight, group_size)
    rows, groups, size = w.shape
    scale = (w.abs().amax(-1, keepdim=True) / 127.5).clamp(min=tabtorch.finfo(dtypes.float32).eps)
    codes = tabtorch.clamp(tabtorch.round(w * (1.0 / scale)), -128, 127).to(dtypes.int8)
    return Packed(
        [codes.reshape(rows, groups * size), scale.reshape(rows, groups)], "INT8", weight.shape, dtype=w.dtype
    )


def quantize_int4(weight: Any, group_size: int = 128) -> Packed:
    """A matrix (rows, columns) as codes of four bits, with a scale and a zero for each `group_size` columns of a row.

    As torchao's `Int4WeightOnlyConfig` (tinygemm): scale = (max - min) / 15, at least 1e-6; zero = min + 8 scale;
    code = round((w - min) / scale); the weight is (code - 8) * scale + zero.
    """
    w = _grouped(weight, group_size)
    rows, groups, size = w.shape
    require(groups * size % 2 == 0, f"{groups * size} codes of 4 bits do not fill bytes")
    least = w.amin(-1, keepdim=True)
    scale = ((w.amax(-1, keepdim=True) - least) / 15.0).clamp(min=1e-6)
    zero = least + scale * 8.0
    codes = tabtorch.clamp(tabtorch.round((w - (zero - scale * 8.0)) / scale), 0, 15).to(dtypes.uint8)
    codes = codes.reshape(rows, groups * size)
    packed = codes[:, ::2] | (codes[:, 1::2] << 4)
    parts = [packed, scale.reshape(rows, groups), zero.reshape(rows, groups)]
    return Packed(parts, "INT4", weight.shape, dtype=w.dtype)


#: what the codes of bitsandbytes stand for
CODES = {
    "nf4": (
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
        -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
        0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
    ),
    "fp4": tuple(x / 12 for x in (0, 0.0625, 8, 12, 4, 6, 2, 3, -0.0, -0.0625, -8, -12, -4, -6, -2, -3)),
}  # fmt: skip


def quantize_4bit(weight: Any, quant_type: str = "nf4", blocksize: int = 64) -> Packed:
    """A matrix as codes of four bits, with the largest magnitude of each `blocksize` weights, as bitsandbytes' function of that name.

    Each weight over the largest of its block becomes the code whose value (`CODES`) is nearest.
    """
    require(quant_type in CODES, f"quant_type must be nf4 or fp4, and not {quant_type!r}")
    require(type(blocksize) is int and blocksize > 0, f"blocksize must be a number of weights, and not {blocksize!r}")
    flat = _grouped(weight, None).reshape(-1).float()
    n = flat.shape[0]
    blocks = tabtorch.nn.functional.pad(flat, (0, -n % blocksize)).reshape(-1, blocksize)
    absmax = blocks.abs().amax(-1, keepdim=True)
    near = tabtorch.where(absmax == 0, 0.0, blocks / tabtorch.where(absmax == 0, 1.0, absmax)).reshape(-1)[:n]
    values = CODES[quant_type]
    order = sorted({x: i for i, x in reversed(list(enumerate(values)))}.items())  # 0 and -0 are one: the first
    between = [(a + b) / 2 for (a, _), (b, _) in zip(order, order[1:], strict=False)]
    at = tabtorch.bucketize(near, tabtorch.tensor(between, device=flat.device))
    codes: Any = tabtorch.tensor([i for _, i in order], dtype=dtypes.uint8, device=flat.device)[at]
    codes = tabtorch.nn.functional.pad(codes, (0, n % 2))
    table = tabtorch.tensor(values, device=flat.device)
    parts = [(codes[::2] << 4) | codes[1::2], tabtorch.cat([table, absmax.reshape(-1)])]
    return Packed(parts, "BNB4", weight.shape, dtype=weight.dtype, options=(blocksize,))
