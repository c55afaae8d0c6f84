"""Operators of images: other sizes, and samples at places."""

from __future__ import annotations

import functools
import math
from typing import Any

import tabtorch as torch
import tabtorch.nn.functional as F
from tabtorch.onnx.registry import Floats, Host, Ints, Tensor, operator


def _source(i: int, mode: str, scale: float, size: int, out: int, start: float, end: float) -> float:
    """Where in the input the number `i` of the output lies."""
    if mode == "align_corners":
        last = scale * size - 1  # of a length that need not be whole
        return 0.0 if out == 1 or last == 0 else i * (size - 1) / last
    if mode == "asymmetric":
        return i / scale
    if mode == "tf_crop_and_resize":
        if out == 1:
            return 0.5 * (start + end) * (size - 1)
        return start * (size - 1) + i * (end - start) * (size - 1) / (out - 1)
    if mode == "pytorch_half_pixel":
        return -0.5 if out == 1 else (i + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        adjusted = out / (scale * size)
        return size / 2 * (1 - adjusted) + (i + 0.5) / scale - 0.5
    if mode == "tf_half_pixel_for_nn":
        return (i + 0.5) / scale
    if mode == "half_pixel":
        return (i + 0.5) / scale - 0.5
    raise ValueError(f"Resize: there is no coordinate_transformation_mode {mode!r}")


def _weight(mode: str, at: float, a: float) -> float:
    """Of a number that lies `at` away, for "linear" or "cubic"."""
    d = abs(at)
    if mode == "linear":
        return max(0.0, 1 - d)
    if d <= 1:
        return ((a + 2) * d - (a + 3)) * d * d + 1
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a if d < 2 else 0.0


def _nearest(at: float, mode: str) -> int:
    if mode == "floor":
        return math.floor(at)
    if mode == "ceil":
        return math.ceil(at)
    return math.floor(at + 0.5) if mode == "round_prefer_ceil" else math.ceil(at - 0.5)


@functools.lru_cache(64)
def taps(
    size: int,
    out: int,
    scale: float,
    mode: str,
    where: str,
    nearest: str,
    cubic: float,
    antialias: bool,
    exclude: bool,
    start: float,
    end: float,
) -> tuple[list[list[int]], list[list[float]], list[bool]]:
    """Of each number of the output: which of the input it is made of, with which weights, and whether it lies outside."""
    places, weights, outside = [], [], []
    shrink = min(scale, 1.0) if antialias else 1.0
    reach = 1 if mode == "linear" else 2
    for i in range(out):
        at = _source(i, where, scale, size, out, start, end)
        outside.append(where == "tf_crop_and_resize" and not 0 <= at <= size - 1)
        if mode == "nearest":
            places.append([min(max(_nearest(at, nearest), 0), size - 1)])
            weights.append([1.0])
            continue
        base = math.floor(at)
        span = range(base + math.floor(-reach / shrink) + 1, base + 1 - math.floor(-reach / shrink))
        row = [_weight(mode, (k - at) * shrink, cubic) for k in span]
        if exclude:
            row = [w if 0 <= k < size else 0.0 for k, w in zip(span, row)]
        total = sum(row) if exclude or antialias else 1.0
        places.append([min(max(k, 0), size - 1) for k in span])
        weights.append([w / (total or 1.0) for w in row])
    return places, weights, outside


def _along(x: Tensor, axis: int, found: tuple[Any, Any, Any], extrapolation: float) -> Tensor:
    places, weights, outside = found
    shape = [1] * x.dim()
    shape[axis] = len(places)
    y: Any = None
    for k in range(len(places[0]) if places else 0):
        part = x.index_select(axis, torch.tensor([p[k] for p in places], device=x.device))
        w = [row[k] for row in weights]
        if any(v != 1.0 for v in w):
            part = part * torch.tensor(w, dtype=x.dtype, device=x.device).reshape(shape)
        y = part if y is None else y + part
    if y is None:
        return x.narrow(axis, 0, 0)
    if any(outside):
        mask = torch.tensor(outside, device=x.device).reshape(shape)
        y = torch.where(mask, torch.full((), extrapolation, dtype=y.dtype, device=y.device), y)
    return y


def resized(
    x: Tensor,
    scales: list[float] | None,
    sizes: list[int] | None,
    axes: list[int],
    roi: list[float] | None,
    mode: str = "nearest",
    where: str = "half_pixel",
    nearest: str = "round_prefer_floor",
    cubic: float = -0.75,
    antialias: bool = False,
    exclude: bool = False,
    extrapolation: float = 0.0,
    policy: str = "stretch",
) -> Tensor:
    """`x` with other sizes along `axes`. ValueError where neither scales nor sizes say which."""
    n = len(axes)
    if sizes:
        factors = [sizes[i] / x.shape[a] for i, a in enumerate(axes)]
        out = list(sizes)
        if policy != "stretch":
            one = min(factors) if policy == "not_larger" else max(factors)
            factors, out = [one] * n, [math.floor(one * x.shape[a] + 0.5) for a in axes]
    elif scales:
        factors, out = list(scales), [math.floor(s * x.shape[a]) for s, a in zip(scales, axes)]
    else:
        raise ValueError("Resize: neither scales nor sizes are given")
    if len(factors) != n:
        raise ValueError(f"Resize: {len(factors)} scales or sizes for {n} axes")
    of = x.dtype
    y = x if of.is_floating_point else x.float()
    for i, a in enumerate(axes):
        start, end = (roi[i], roi[n + i]) if roi and where == "tf_crop_and_resize" else (0.0, 1.0)
        if factors[i] == 1 and out[i] == x.shape[a] and (start, end) == (0.0, 1.0):
            continue
        args = x.shape[a], out[i], factors[i], mode, where, nearest, cubic, antialias, exclude, start, end
        y = _along(y, a, taps(*args), extrapolation)
    if of.is_floating_point:
        return y
    limits = torch.iinfo(of)
    return torch.round(y).clamp(limits.min, limits.max).to(of) if mode != "nearest" else y.to(of)


@operator("Resize", since=11)
def resize(
    x: Tensor,
    roi: Floats | None = None,
    scales: Floats | None = None,
    sizes: Ints | None = None,
    *,
    antialias: int = 0,
    axes: list[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:
    chosen = [a % x.dim() for a in axes] if axes is not None else list(range(x.dim()))
    return resized(
        x,
        scales,
        sizes,
        chosen,
        roi,
        mode,
        coordinate_transformation_mode,
        nearest_mode,
        cubic_coeff_a,
        bool(antialias),
        bool(exclude_outside),
        extrapolation_value,
        keep_aspect_ratio_policy,
    )


@operator("Resize", since=10)
@operator("Upsample", since=9)
def upsample(x: Tensor, scales: Floats, *, mode: str = "nearest") -> Tensor:
    return resized(x, scales, None, list(range(x.dim())), None, mode, "asymmetric", "floor")


@operator("Upsample", since=7)
def upsample_by_attribute(x: Tensor, *, scales: list[float], mode: str = "nearest") -> Tensor:
    return upsample(x, scales, mode=mode)


@operator("Upsample")
def upsample_by_two_attributes(x: Tensor, *, height_scale: float, width_scale: float, mode: str = "nearest") -> Tensor:
    return upsample(x, [1.0, 1.0, height_scale, width_scale], mode=mode)


@operator("AffineGrid")
def affine_grid(theta: Tensor, size: Ints, *, align_corners: int = 0) -> Tensor:
    return F.affine_grid(theta, list(size), align_corners=bool(align_corners))


def _reflected(x: Tensor, low: float, high: float) -> Tensor:
    span = high - low
    if span <= 0:
        return torch.zeros_like(x) + low
    d = torch.remainder(x - low, 2 * span)
    return torch.where(d > span, 2 * span - d, d) + low


def sampled(x: Tensor, grid: Tensor, mode: str, padding: str, align: bool) -> Tensor:
    """`x` (batch, channels, …) at the places of `grid` (batch, …, axes), each from -1 to 1, the last axis first."""
    n = x.dim() - 2
    batch, channels = x.shape[:2]
    at = []
    for i in range(n):
        size, g = x.shape[2 + i], grid[..., n - 1 - i]
        p = (g + 1) / 2 * (size - 1) if align else ((g + 1) * size - 1) / 2
        if padding == "border" and mode != "cubic":
            p = p.clamp(0, size - 1)
        elif padding == "reflection" and mode != "cubic":
            p = _reflected(p, 0, size - 1) if align else _reflected(p, -0.5, size - 0.5).clamp(0, size - 1)
        at.append(p)
    if mode == "nearest":
        choices = [[(torch.round(p), None)] for p in at]
    else:
        span = range(2) if mode == "linear" else range(-1, 3)
        choices = []
        for p in at:
            base = torch.floor(p)
            t = p - base
            choices.append([(base + k, _tap(mode, t - k)) for k in span])
    flat, shape = x.reshape(batch, channels, -1), tuple(at[0].shape[1:])
    y: Any = None
    for picks in _product(choices):
        index: Any = 0
        weight: Any = None
        inside: Any = None
        for i, (p, w) in enumerate(picks):
            size = x.shape[2 + i]
            if padding == "reflection":
                p = (
                    _reflected(p, 0, size - 1)
                    if align
                    else torch.round(_reflected(p, -0.5, size - 0.5)).clamp(0, size - 1)
                )
            elif padding == "zeros":
                ok = (p >= 0) & (p <= size - 1)
                inside = ok if inside is None else inside & ok
            index = index * size + p.clamp(0, size - 1).long()
            if w is not None:
                weight = w if weight is None else weight * w
        part = torch.gather(flat, 2, index.reshape(batch, 1, -1).expand(batch, channels, -1)).reshape(
            batch, channels, *shape
        )
        if weight is not None:
            part = part * weight.unsqueeze(1)
        if inside is not None:
            part = torch.where(inside.unsqueeze(1), part, torch.zeros_like(part))
        y = part if y is None else y + part
    return y.to(x.dtype)


def _tap(mode: str, d: Tensor) -> Tensor:
    d = d.abs()
    if mode == "linear":
        return 1 - d
    a = -0.75
    return torch.where(d <= 1, ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a)


def _product(choices: list[list[Any]]) -> list[list[Any]]:
    found: list[list[Any]] = [[]]
    for each in choices:
        found = [[*row, one] for row in found for one in each]
    return found


@operator("GridSample")
def grid_sample(
    x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Tensor:
    kind = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    return sampled(x, grid, kind, padding_mode, bool(align_corners))


@operator("DeformConv")
def deform_conv(
    x: Tensor,
    w: Tensor,
    offset: Tensor,
    b: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    offset_group: int = 1,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    kh, kw = w.shape[2:]
    (dh, dw), (sh, sw), pad = dilations or [1, 1], strides or [1, 1], pads or [0] * 4
    batch, channels, height, width = x.shape
    oh, ow = offset.shape[2:]
    moved = offset.reshape(batch * offset_group, kh, kw, 2, oh, ow)

    def base(count: int, step: int, taps: int, apart: int, before: int) -> tuple[Tensor, Tensor]:
        return torch.arange(count, device=x.device) * step - before, torch.arange(taps, device=x.device) * apart

    rows, row_taps = base(oh, sh, kh, dh, pad[0])
    columns, column_taps = base(ow, sw, kw, dw, pad[1])
    y = moved[:, :, :, 0] + (row_taps.reshape(-1, 1, 1, 1) + rows.reshape(-1, 1))
    z = moved[:, :, :, 1] + (column_taps.reshape(-1, 1, 1) + columns)
    grid = torch.stack([z / max(width - 1, 1) * 2 - 1, y / max(height - 1, 1) * 2 - 1], -1)
    grid = grid.reshape(batch * offset_group, kh * kw * oh, ow, 2)
    each = channels // offset_group
    found = sampled(x.reshape(batch * offset_group, each, height, width), grid, "linear", "zeros", True)
    found = found.reshape(batch, offset_group, each, kh, kw, oh, ow)
    if mask is not None:
        found = found * mask.reshape(batch, offset_group, 1, kh, kw, oh, ow)
    patches = found.reshape(batch, group, channels // group, kh, kw, oh, ow)
    weights = w.reshape(group, w.shape[0] // group, w.shape[1], kh, kw)
    out = torch.einsum("bgcijhw,gocij->bgohw", patches, weights).reshape(batch, w.shape[0], oh, ow)
    return out if b is None else out + b.reshape(1, -1, 1, 1)


@operator("RoiAlign")
def roi_align(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Tensor:
    half = 0.5 if coordinate_transformation_mode == "half_pixel" else 0.0
    height, width = x.shape[2:]
    found = []
    for box, i in zip(rois.tolist(), batch_indices.tolist()):
        x1, y1, x2, y2 = (v * spatial_scale - half for v in box)
        w, h = x2 - x1, y2 - y1
        if not half:
            w, h = max(w, 1.0), max(h, 1.0)
        per_h = sampling_ratio or max(1, math.ceil(h / output_height))
        per_w = sampling_ratio or max(1, math.ceil(w / output_width))
        ys = [y1 + (k + 0.5) * h / (output_height * per_h) for k in range(output_height * per_h)]
        xs = [x1 + (k + 0.5) * w / (output_width * per_w) for k in range(output_width * per_w)]
        if mode == "max":
            found.append(_roi_max(x[i], ys, xs, per_h, per_w, output_height, output_width))
            continue
        part = x[i]
        for coordinates, size, axis in ((ys, height, 1), (xs, width, 2)):
            at = [min(max(v, 0.0), size - 1.0) for v in coordinates]
            low = [int(v) for v in at]
            high = [min(v + 1, size - 1) for v in low]
            before = part.index_select(axis, torch.tensor(low, device=x.device))
            after = part.index_select(axis, torch.tensor(high, device=x.device))
            shape = [1, 1, 1]
            shape[axis] = -1
            f = torch.tensor([v - k for v, k in zip(at, low)], dtype=x.dtype, device=x.device).reshape(shape)
            inside = [float(-1.0 <= v <= size) for v in coordinates]
            part = (before * (1 - f) + after * f) * torch.tensor(inside, dtype=x.dtype, device=x.device).reshape(shape)
        blocks = part.reshape(x.shape[1], output_height, per_h, output_width, per_w)
        found.append(blocks.mean((2, 4)))
    return torch.stack(found) if found else x.new_zeros(0, x.shape[1], output_height, output_width)


def _roi_max(x: Tensor, ys: list[float], xs: list[float], per_h: int, per_w: int, oh: int, ow: int) -> Tensor:
    """The largest of the four weighted neighbours of all samples of each cell, as ONNX's `max` mode has it."""
    sides = []
    for coordinates, size in ((ys, x.shape[1]), (xs, x.shape[2])):
        at = [min(max(v, 0.0), size - 1.0) for v in coordinates]
        ok = [float(-1.0 <= v <= size) for v in coordinates]
        low = [int(v) for v in at]
        sides.append(
            [
                (low, [(1 - v + k) * g for v, k, g in zip(at, low, ok)]),
                ([min(k + 1, size - 1) for k in low], [(v - k) * g for v, k, g in zip(at, low, ok)]),
            ]
        )
    best: Any = None
    for rows, fy in sides[0]:
        for columns, fx in sides[1]:
            part = x.index_select(1, torch.tensor(rows, device=x.device)).index_select(
                2, torch.tensor(columns, device=x.device)
            )
            part = part * torch.tensor(fy, dtype=x.dtype, device=x.device).reshape(1, -1, 1)
            part = part * torch.tensor(fx, dtype=x.dtype, device=x.device)
            best = part if best is None else torch.maximum(best, part)
    return best.reshape(x.shape[0], oh, per_h, ow, per_w).amax((2, 4))


@operator("MaxRoiPool")
def max_roi_pool(x: Tensor, rois: Host, *, pooled_shape: list[int], spatial_scale: float = 1.0) -> Tensor:
    """Boxes are whole pixels, both ends among them; a part that has no pixel is zero."""
    found = []
    for i in range(0, len(rois.values), 5):
        plane = x[int(rois.values[i])]
        left, top, right, bottom = (math.floor(v * spatial_scale + 0.5) for v in rois.values[i + 1 : i + 5])
        for axis, first, last in ((1, top, bottom), (2, left, right)):
            step = max(last - first + 1, 1) / pooled_shape[axis - 1]
            parts = []
            for j in range(pooled_shape[axis - 1]):
                a, b = (
                    min(max(n + first, 0), x.shape[axis + 1]) for n in (math.floor(j * step), math.ceil((j + 1) * step))
                )
                part = plane.narrow(axis, a, b - a) if b > a else torch.zeros_like(plane.narrow(axis, 0, 1))
                parts.append(part.amax(axis))
            plane = torch.stack(parts, axis)
        found.append(plane)
    return torch.stack(found) if found else x.new_zeros(0, x.shape[1], *pooled_shape)
