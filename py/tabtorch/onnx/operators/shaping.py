"""Operators that move numbers, or make them of a shape."""

from __future__ import annotations

import math
from typing import Any

import tabtorch as torch
import tabtorch.nn.functional as F
from tabtorch.onnx.registry import Host, Int, Ints, Number, Tensor, operator
from tabtorch.onnx.shapes import slices, split_evenly
from tabtorch.onnx.values import FLOAT, INT64, STRING, Known, dtype_of


@operator("Shape")
def shape(x: Any, *, start: int = 0, end: int | None = None) -> Known:
    found = list(x.shape)[start:end]
    return Known(found, (len(found),), INT64)


@operator("Size")
def size(x: Any) -> Known:
    return Known([math.prod(x.shape)], (), INT64)


@operator("Reshape", since=5)
def reshape(x: Tensor, shape: Ints, *, allowzero: int = 0) -> Tensor:
    return x.reshape([x.shape[i] if n == 0 and not allowzero else n for i, n in enumerate(shape)])


@operator("Reshape")
def reshape_by_attribute(x: Tensor, *, shape: list[int], consumed_inputs: Any = None) -> Tensor:
    return reshape(x, shape)


@operator("Flatten")
def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    axis = axis + x.dim() if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@operator("Transpose")
def transpose(x: Tensor, *, perm: list[int] | None = None) -> Tensor:
    return x.permute(perm if perm is not None else list(range(x.dim()))[::-1])


@operator("Squeeze", since=13)
def squeeze(x: Tensor, axes: Ints | None = None) -> Tensor:
    if axes is None:
        return x.squeeze()
    for a in axes:
        if x.shape[a] != 1:
            raise ValueError(f"Squeeze: axis {a} has the size {x.shape[a]}, not 1")
    return x.squeeze(tuple(axes))


@operator("Squeeze")
def squeeze_by_attribute(x: Tensor, *, axes: list[int] | None = None) -> Tensor:
    return squeeze(x, axes)


@operator("Unsqueeze", since=13)
def unsqueeze(x: Tensor, axes: Ints) -> Tensor:
    rank = x.dim() + len(axes)
    for a in axes:
        if not -rank <= a < rank:
            raise IndexError(f"Unsqueeze: axis {a} is out of range for {rank} dimensions")
    for a in sorted(a % rank for a in axes):
        x = x.unsqueeze(a)
    return x


@operator("Unsqueeze")
def unsqueeze_by_attribute(x: Tensor, *, axes: list[int]) -> Tensor:
    return unsqueeze(x, axes)


@operator("Concat", since=4)
def concat(*inputs: Tensor, axis: int) -> Tensor:
    return torch.cat(list(inputs), axis)


@operator("Concat")
def concat_first(*inputs: Tensor, axis: int = 1) -> Tensor:
    return torch.cat(list(inputs), axis)


@operator("Split", since=13)
def split(
    x: Tensor, split: Ints | None = None, *, axis: int = 0, num_outputs: int | None = None, outputs: int = 1
) -> tuple[Tensor, ...]:
    sizes = split if split is not None else split_evenly(x.shape[axis], num_outputs or outputs)
    return tuple(torch.split(x, sizes, axis))


@operator("Split")
def split_by_attribute(
    x: Tensor, split: Ints | None = None, *, axis: int = 0, outputs: int = 1, **attributes: Any
) -> tuple[Tensor, ...]:
    sizes = split if split is not None else attributes.get("split")
    return tuple(torch.split(x, sizes if sizes is not None else split_evenly(x.shape[axis], outputs), axis))


def taken(x: Tensor, ranges: list[range]) -> Tensor:
    """Those whose index along each axis is in its range."""
    for a, r in enumerate(ranges):
        if r == range(x.shape[a]):
            continue
        if r.step < 0:
            n = len(r)
            x = x.narrow(a, r[-1] if n else 0, r[0] - r[-1] + 1 if n else 0).flip(a)
            r = range(0, x.shape[a], -r.step)
        x = x[(slice(None),) * a + (slice(r.start, max(r.start, r.stop), r.step),)]
    return x


@operator("Slice", since=10)
def slice_(x: Tensor, starts: Ints, ends: Ints, axes: Ints | None = None, steps: Ints | None = None) -> Tensor:
    return taken(x, slices(tuple(x.shape), starts, ends, axes, steps))


@operator("Slice")
def slice_by_attributes(x: Tensor, *, starts: list[int], ends: list[int], axes: list[int] | None = None) -> Tensor:
    return taken(x, slices(tuple(x.shape), starts, ends, axes))


@operator("Expand")
def expand(x: Tensor, shape: Ints) -> Tensor:
    return x.expand(torch.broadcast_shapes(tuple(x.shape), tuple(shape)))


@operator("Tile", since=6)
def tile(x: Tensor, repeats: Ints) -> Tensor:
    return x.repeat(repeats)


@operator("Tile")
def tile_axis(x: Tensor, tiles: int, axis: int) -> Tensor:
    return x.repeat([int(tiles) if i == int(axis) else 1 for i in range(x.dim())])


def spread(x: Tensor, low: list[int], high: list[int], value: float = 0.0) -> Tensor:
    """`x` with so many more of `value` before and after, along each of the last axes; fewer where negative."""
    if not any(low) and not any(high):
        return x
    return F.pad(x, [v for a, b in zip(reversed(low), reversed(high)) for v in (a, b)], value=value)


def padded(x: Tensor, pads: list[int], value: Any, axes: list[int] | None, mode: str) -> Tensor:
    """`Pad` of all modes. ValueError for one that there is not."""
    rank = x.dim()
    chosen = [a % rank for a in axes] if axes is not None else list(range(rank))
    if len(pads) != 2 * len(chosen):
        raise ValueError(f"Pad: {len(pads)} pads for {len(chosen)} axes")
    low, high = [0] * rank, [0] * rank
    for i, a in enumerate(chosen):
        low[a], high[a] = pads[i], pads[len(chosen) + i]
    if mode == "constant":
        if x.dtype == torch.bool:
            return spread(x.to(torch.uint8), low, high, int(value)).to(torch.bool)
        return spread(x, low, high, value)
    for a in range(rank):
        before, after, n = low[a], high[a], x.shape[a]
        if not before and not after:
            continue
        r = torch.arange(-before, n + after, device=x.device)
        if mode == "edge":
            r = r.clamp(0, n - 1)
        elif mode == "wrap":
            r = r % n
        elif mode == "reflect":
            period = max(2 * (n - 1), 1)
            r = r % period
            r = torch.where(r >= n, period - r, r)
        else:
            raise ValueError(f"Pad: there is no mode {mode!r}")
        x = x.index_select(a, r)
    return x


@operator("Pad", since=11)
def pad(
    x: Tensor, pads: Ints, value: Number | None = None, axes: Ints | None = None, *, mode: str = "constant"
) -> Tensor:
    return padded(x, pads, 0 if value is None else value, axes, mode)


@operator("Pad", since=2)
def pad_by_attributes(x: Tensor, *, pads: list[int], value: float = 0.0, mode: str = "constant") -> Tensor:
    return padded(x, pads, value, None, mode)


@operator("Pad")
def pad_first(x: Tensor, *, paddings: list[int], value: float = 0.0, mode: str = "constant") -> Tensor:
    return padded(x, paddings, value, None, mode)


@operator("CenterCropPad")
def center_crop_pad(x: Tensor, shape: Ints, *, axes: list[int] | None = None) -> Tensor:
    for a, n in zip(axes if axes is not None else range(x.dim()), shape):
        a, have = a % x.dim(), x.shape[a]
        if n < have:
            x = x.narrow(a, (have - n) // 2, n)
        elif n > have:
            before = (n - have) // 2
            low, high = [0] * x.dim(), [0] * x.dim()
            low[a], high[a] = before, n - have - before
            x = spread(x, low, high)
    return x


@operator("DepthToSpace")
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    b, c, h, w = x.shape
    k = blocksize
    if mode == "DCR":
        return x.reshape(b, k, k, c // k**2, h, w).permute(0, 3, 4, 1, 5, 2).reshape(b, c // k**2, h * k, w * k)
    return x.reshape(b, c // k**2, k, k, h, w).permute(0, 1, 4, 2, 5, 3).reshape(b, c // k**2, h * k, w * k)


@operator("SpaceToDepth")
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    b, c, h, w = x.shape
    k = blocksize
    split = x.reshape(b, c, h // k, k, w // k, k)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return split.permute(*order).reshape(b, c * k * k, h // k, w // k)


@operator("Constant")
def constant(
    *,
    value: Any = None,
    sparse_value: Any = None,
    value_float: float | None = None,
    value_floats: Any = None,
    value_int: int | None = None,
    value_ints: Any = None,
    value_string: str | None = None,
    value_strings: Any = None,
) -> Any:
    for one, several, of in (
        (value_float, value_floats, FLOAT),
        (value_int, value_ints, INT64),
        (value_string, value_strings, STRING),
    ):
        if one is not None:
            return Known([one], (), of)
        if several is not None:
            return Known(list(several), (len(several),), of)
    return value if value is not None else sparse_value


@operator("ConstantOfShape")
def constant_of_shape(shape: Ints, *, value: Known | None = None, run: Any) -> Tensor:
    number, of = (value.values[0], value.type) if value is not None else (0.0, FLOAT)
    return torch.full(shape, number, dtype=dtype_of(of), device=run.device)


@operator("EyeLike")
def eye_like(x: Tensor, *, dtype: int | None = None, k: int = 0) -> Tensor:
    rows, columns = (torch.arange(n, device=x.device) for n in x.shape)
    return (rows.unsqueeze(1) + k == columns).to(dtype_of(dtype) if dtype else x.dtype)


@operator("Range")
def range_(start: Host, limit: Host, delta: Host, *, stash_type: int = 1, run: Any) -> Tensor:
    (a,), (b,), (d,) = start.values, limit.values, delta.values
    of = dtype_of(start.type)
    n = max(0, math.ceil((b - a) / d))
    return (torch.arange(n, device=run.device) * d + a).to(of)


@operator("OneHot")
def one_hot(indices: Tensor, depth: Int, values: Tensor, *, axis: int = -1) -> Tensor:
    i = indices.long()
    i = torch.where(i < 0, i + depth, i).unsqueeze(axis)
    shape = [1] * i.dim()
    shape[axis] = depth
    return torch.where(i == torch.arange(depth, device=i.device).reshape(shape), values[1], values[0])


@operator("Trilu")
def trilu(x: Tensor, k: Int | None = None, *, upper: int = 1) -> Tensor:
    return torch.triu(x, k or 0) if upper else torch.tril(x, k or 0)


@operator("ReverseSequence")
def reverse_sequence(x: Tensor, sequence_lens: Tensor, *, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    shape = [1] * x.dim()
    shape[time_axis] = x.shape[time_axis]
    t = torch.arange(x.shape[time_axis], device=x.device).reshape(shape)
    shape = [1] * x.dim()
    shape[batch_axis] = x.shape[batch_axis]
    n = sequence_lens.long().reshape(shape)
    return torch.gather(x, time_axis, torch.where(t < n, n - 1 - t, t).expand(x.shape))


@operator("Col2Im")
def col2im(
    x: Tensor,
    image_shape: Ints,
    block_shape: Ints,
    *,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    n = len(image_shape)
    d, s, p = dilations or [1] * n, strides or [1] * n, pads or [0] * (2 * n)
    whole = [image_shape[i] + p[i] + p[n + i] for i in range(n)]
    counts = [(whole[i] - d[i] * (block_shape[i] - 1) - 1) // s[i] + 1 for i in range(n)]
    batch, channels = x.shape[0], x.shape[1] // math.prod(block_shape)
    # the place in the padded image of each number of each block
    at = torch.zeros([1] * (2 * n), dtype=torch.int64, device=x.device)
    for i in range(n):
        inside = torch.arange(block_shape[i], device=x.device) * d[i]
        start = torch.arange(counts[i], device=x.device) * s[i]
        shape = [1] * (2 * n)
        shape[i], shape[n + i] = block_shape[i], counts[i]
        at = at * whole[i] + (inside.unsqueeze(1) + start).reshape(shape)
    flat = x.reshape(batch, channels, -1)
    image = torch.zeros(batch, channels, math.prod(whole), dtype=x.dtype, device=x.device)
    image = image.scatter_add(2, at.reshape(-1).expand(batch, channels, -1), flat).reshape(batch, channels, *whole)
    for i in range(n):
        image = image.narrow(2 + i, p[i], image_shape[i])
    return image
