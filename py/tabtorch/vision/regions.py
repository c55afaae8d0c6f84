"""Regions of interest: a box of a feature map as a small map of fixed size (torchvision's `roi_align`, `roi_pool`, and
their position-sensitive forms).

Maps are (N, C, H, W). `rois` is (K, 5): the example, then x1, y1, x2, y2, which `spatial_scale` brings to the map. A result is
(K, C, pooled_height, pooled_width); the position-sensitive forms (R-FCN, Dai et al., 2016) read another channel at each place,
and have C / (height · width) channels.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import tabtorch as torch
from tabtorch.base import dtypes
from tabtorch.core.tensor import Tensor
from tabtorch.engine.expr import Expr, cast, ceil, const, floor, maximum, where
from tabtorch.engine.graph import Custom, Inst, inst
from tabtorch.engine.kernel import Kernel
from tabtorch.engine.lowering import Lowering
from tabtorch.engine.view import contiguous_meta
from tabtorch.ops.machinery.operation import run
from tabtorch.vision.sampling import Bilinear, coords, whole


class _Regions(NamedTuple):
    """What of a call is structure; `spatial_scale` is a scalar."""

    shape: tuple[int, ...]  # of the feature map
    pooled: tuple[int, int]
    sensitive: bool  # a channel of its own for each place
    back: bool  # gradient of the map
    ratio: int = 0  # samples along each axis; 0: as many as pixels
    aligned: bool = False  # the corner of a pixel, not its middle, is a whole number


class _Box:
    """One place of a region, in the kernel: thread `t` of the small maps."""

    def __init__(self, i: Inst, low: Lowering, k: Kernel, t: Expr) -> None:
        s: _Regions = i.static
        self.i, self.low, self.k, self.s = i, low, k, s
        _, c, h, w = s.shape
        ph, pw = s.pooled
        small = (i.ins[1].shape[0], c // (ph * pw) if s.sensitive else c, ph, pw)
        roi, channel, self.py, self.px = coords(k, small, t, prod(small))
        self.ph, self.pw = k.dim(ph, "ph"), k.dim(pw, "pw")
        self.h, self.w = k.dim(h, "h"), k.dim(w, "w")
        if s.sensitive:
            channel = k.let((channel * self.ph + self.py) * self.pw + self.px, "channel")
        self.channel = channel
        box = [
            k.let(cast(k.load(low.input(1), low.index(k, i.ins[1], roi * 5 + j, 1)), i.compute), "box")
            for j in range(5)
        ]
        zero = const(0, i.compute)
        example = whole(k, box[0], zero, k.let(cast(k.dim(s.shape[0] - 1, "last"), i.compute)))
        self.plane = k.let((example * k.dim(c, "C") + channel) * self.h * self.w, "plane")
        scale = low.scalar(k, 0)
        self.x1, self.y1, self.x2, self.y2 = [k.let(x * scale, "edge") for x in box[1:]]

    def real(self, x: Expr) -> Expr:
        return cast(x, self.i.compute)

    def load(self, at: Expr) -> Expr:
        """A pixel of this plane."""
        v: Expr = cast(
            self.k.load(self.low.input(0), self.low.index(self.k, self.i.ins[0], self.plane + at, 0)), self.i.compute
        )
        return v

    def gradient(self, t: Expr) -> Expr:
        """That of this place."""
        v = self.k.load(self.low.input(0), self.low.index(self.k, self.i.ins[0], t, 0))
        return self.k.let(cast(v, self.i.compute), "grad")


def _align(i: Inst, low: Lowering) -> None:
    """A mean of samples between pixels. Back: each adds its part of the gradient to the pixels that it was read from."""
    s: _Regions = i.static
    rois = i.ins[1].shape[0]

    def body(k: Kernel, t: Expr) -> None:
        b = _Box(i, low, k, t)
        half = const(0.5, i.compute)
        if s.aligned:
            b.x1, b.y1, b.x2, b.y2 = [k.let(x - half) for x in (b.x1, b.y1, b.x2, b.y2)]
        width, height = k.let(b.x2 - b.x1, "width"), k.let(b.y2 - b.y1, "height")
        if not (s.aligned or s.sensitive):
            one = const(1, i.compute)
            width, height = k.let(maximum(width, one)), k.let(maximum(height, one))
        steps, bins, counts = [], [], []
        for size, parts in ((height, b.ph), (width, b.pw)):
            part = k.let(size / b.real(parts), "bin")
            if s.ratio > 0:
                count = k.dim(s.ratio, "ratio")
            else:  # never so many that the loop seems endless: a box is as large as its author says
                count = whole(k, ceil(part), const(0, i.compute), const(65536, i.compute))
            bins.append(part)
            counts.append(count)
            steps.append(k.let(part / b.real(count), "step"))
        number = k.let(b.real(counts[0] * counts[1]), "number")
        if not s.sensitive:
            number = k.let(maximum(number, const(1, i.compute)), "number")
        top, left = k.let(b.y1 + b.real(b.py) * bins[0], "top"), k.let(b.x1 + b.real(b.px) * bins[1], "left")
        total = k.var(const(0, i.compute))
        share = k.let(b.gradient(t) / number, "share") if s.back else None
        with k.loop(counts[0], hint="iy") as iy:
            y = k.let(top + (b.real(iy) + half) * steps[0], "y")
            with k.loop(counts[1], hint="ix") as ix:
                x = k.let(left + (b.real(ix) + half) * steps[1], "x")
                place = Bilinear(k, y, x, b.h, b.w, clamped=True)
                with k.when(place.inside):
                    if share is None:
                        k.assign(total, total + place.read(b.load))
                    else:
                        for at, weight, _ in place.neighbours():
                            k.atomic_add(low.output, k.let(b.plane + at), share * weight)
        if share is None:
            k.store_bits(low.output, t, total / number)

    if s.back:
        low.clear(low.output)
    low.launch(i.op.name + (" back" if s.back else ""), rois * prod(s.pooled) * _channels(s), body)


def _channels(s: _Regions) -> int:
    return s.shape[1] // prod(s.pooled) if s.sensitive else s.shape[1]


def _rounded(x: Expr) -> Expr:
    """To the next integer, halves away from zero, as C does."""
    half, zero = const(0.5, x.type), const(0, x.type)
    return where(x < zero, ceil(x - half), floor(x + half))


def _pool(i: Inst, low: Lowering) -> None:
    """The place of the largest of a part of the box (-1: there is none), or the mean of the part. Back: the mean's gradient."""
    s: _Regions = i.static
    rois = i.ins[1].shape[0]

    def body(k: Kernel, t: Expr) -> None:
        b = _Box(i, low, k, t)
        zero, one = const(0, i.compute), const(1, i.compute)
        x1, y1, x2, y2 = [k.let(_rounded(x), "edge") for x in (b.x1, b.y1, b.x2, b.y2)]
        ends = []
        for first, last, parts, p, size in ((y1, y2, b.ph, b.py, b.h), (x1, x2, b.pw, b.px, b.w)):
            length = last - first if s.sensitive else last - first + one
            part = k.let(maximum(length, one) / b.real(parts), "bin")
            # torchvision leaves the last row and column out, but for the gradient
            most = b.real(size - 1 if s.sensitive and not s.back else size)
            for edge in (floor(b.real(p) * part), ceil((b.real(p) + one) * part)):
                ends.append(whole(k, edge + first, zero, most))
        y0, yn, x0, xn = ends
        if not s.sensitive:
            best = k.var(const(-1, "i32"), "best")
            most = k.var(
                const(-3.4028234663852886e38, i.compute), "most"
            )  # C's -FLT_MAX: smaller ones are not looked at
            with k.loop(yn, y0, hint="y") as y, k.loop(xn, x0, hint="x") as x:
                at = k.let(y * b.w + x, "at")
                v = k.let(b.load(at), "v")
                with k.when(v > most):
                    k.assign(most, v)
                    k.assign(best, cast(at, "i32"))
            k.store(low.output, t, best)
            return
        some = k.let((yn > y0) & (xn > x0), "some")
        area = k.let(b.real(where(some, (yn - y0) * (xn - x0), const(1, "u32"))), "area")
        total = k.var(zero)
        share = k.let(b.gradient(t) / area, "share") if s.back else None
        with k.loop(yn, y0, hint="y") as y, k.loop(xn, x0, hint="x") as x:
            at = k.let(y * b.w + x, "at")
            if share is None:
                k.assign(total, total + b.load(at))
            else:
                k.atomic_add(low.output, k.let(b.plane + at), share)
        if share is None:
            k.store_bits(low.output, t, total / area)

    if s.back:
        low.clear(low.output)
    low.launch(i.op.name + (" back" if s.back else ""), rois * prod(s.pooled) * _channels(s), body)


ALIGN, POOL = Custom("roi_align", _align), Custom("roi_pool", _pool)


def _run(op: Custom, s: _Regions, x: Tensor, rois: Tensor, scale: float, dtype: Any = None) -> Tensor:
    _check(op.name, x, rois, "grad" if s.back else "input")
    m = x._tab_meta
    compute = "f64" if m.dtype is dtypes.float64 else "f32"
    small = (rois.size(0), _channels(s), *s.pooled)
    torch._check(not s.back or x.shape == small, lambda: f"expected grad of shape {small}, got {tuple(x.shape)}")
    torch._check(s.shape[0] > 0 or rois.size(0) == 0, lambda: "rois of a batch of no examples")
    shape = s.shape if s.back else small
    if s.back and dtype is None and compute == "f32":
        dtype = dtypes.float32  # sums of half precision are made in single
    out = contiguous_meta(shape, dtype or m.dtype, m.device)
    i = inst(op, (m, rois._tab_meta), out, (compute,), s, compute)
    return run(i, out, x, rois, scalars=(float(scale),)).to(m.dtype if dtype is dtypes.float32 else out.dtype)


def _check(name: str, x: Tensor, rois: Tensor, what: str = "input") -> None:
    torch._check(rois.dim() == 2 and rois.size(1) == 5, lambda: "rois must have shape as Tensor[K, 5]")
    torch._check(
        x.dtype == rois.dtype,
        lambda: (
            f"Expected tensor for {what} to have the same type as tensor for rois; but type {x.dtype} does not equal {rois.dtype}"
        ),
    )
    torch._check(x.dtype.is_floating_point, lambda: f'"{name}" not implemented for {x.dtype}')
    torch._check(x.dim() == 4, lambda: f"{what} must have 4 dimensions, got {x.dim()}")


def _split(x: Tensor, h: int, w: int) -> None:
    torch._check(
        x.size(1) % (h * w) == 0, lambda: "input channels must be a multiple of pooling height * pooling width"
    )


def _mapping(x: Tensor, k: int, h: int, w: int) -> Tensor:
    """The channel that each place is read from: (K, C / (h · w), h, w), int32."""
    channels = torch.arange(x.size(1), dtype=torch.int32, device=x.device)
    return channels.reshape(1, -1, h, w).expand(k, -1, -1, -1).contiguous()


def roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """(K, C, pooled_height, pooled_width): means of bilinear samples (He et al., 2017). sampling_ratio: so many along each axis
    of a place, or, if it is not positive, about one a pixel. aligned: the box is moved by half a pixel."""
    s = _Regions(tuple(input.shape), (pooled_height, pooled_width), False, False, max(sampling_ratio, 0), aligned)
    return _run(ALIGN, s, input, rois, spatial_scale)


def roi_align_backward(
    grad: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int,
    batch_size: int, channels: int, height: int, width: int, sampling_ratio: int, aligned: bool,
) -> Tensor:  # fmt: skip
    """The gradient of the map."""
    shape = (batch_size, channels, height, width)
    s = _Regions(shape, (pooled_height, pooled_width), False, True, max(sampling_ratio, 0), aligned)
    return _run(ALIGN, s, grad, rois, spatial_scale)


def ps_roi_align(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int
) -> tuple[Tensor, Tensor]:
    """`roi_align` where each place has channels of its own; and which they are (int32)."""
    _split(input, pooled_height, pooled_width)
    s = _Regions(tuple(input.shape), (pooled_height, pooled_width), True, False, max(sampling_ratio, 0), True)
    return _run(ALIGN, s, input, rois, spatial_scale), _mapping(input, rois.size(0), pooled_height, pooled_width)


def ps_roi_align_backward(
    grad: Tensor, rois: Tensor, channel_mapping: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int,
    sampling_ratio: int, batch_size: int, channels: int, height: int, width: int,
) -> Tensor:  # fmt: skip
    """The gradient of the map."""
    shape = (batch_size, channels, height, width)
    s = _Regions(shape, (pooled_height, pooled_width), True, True, max(sampling_ratio, 0), True)
    return _run(ALIGN, s, grad, rois, spatial_scale)


def roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """The largest of each part of the box (Girshick, 2015), 0 where it is empty; and its place in the plane (int32, or -1)."""
    s = _Regions(tuple(input.shape), (pooled_height, pooled_width), False, False)
    place = _run(POOL, s, input, rois, spatial_scale, dtypes.int32)
    if input.numel() == 0 or place.numel() == 0:
        return input.new_zeros(place.shape), place
    planes = input.flatten(2)[rois[:, 0].long()]
    index = place.flatten(2).long()
    value = planes.gather(2, index.clamp(min=0)).reshape(place.shape)
    return torch.where(place.ge(0), value, 0), place


def roi_pool_backward(
    grad: Tensor, rois: Tensor, argmax: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int,
    batch_size: int, channels: int, height: int, width: int,
) -> Tensor:  # fmt: skip
    """The gradient of the map: each goes to the pixel that it was read from."""
    _check("roi_pool", grad, rois, "grad")
    torch._check(
        grad.shape == argmax.shape, lambda: f"expected grad of shape {tuple(argmax.shape)}, got {tuple(grad.shape)}"
    )
    planes = grad.new_zeros(rois.size(0), channels, height * width)
    index = argmax.flatten(2).long()
    given = torch.where(argmax.ge(0), grad, 0).reshape(index.shape)
    planes = planes.scatter_add(2, index.clamp(min=0), given)
    total = grad.new_zeros(batch_size, channels, height * width).index_add(0, rois[:, 0].long(), planes)
    return total.reshape(batch_size, channels, height, width)


def ps_roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """Means of parts of the box, where each place has channels of its own; and which they are (int32)."""
    _split(input, pooled_height, pooled_width)
    s = _Regions(tuple(input.shape), (pooled_height, pooled_width), True, False)
    return _run(POOL, s, input, rois, spatial_scale), _mapping(input, rois.size(0), pooled_height, pooled_width)


def ps_roi_pool_backward(
    grad: Tensor, rois: Tensor, channel_mapping: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int,
    batch_size: int, channels: int, height: int, width: int,
) -> Tensor:  # fmt: skip
    """The gradient of the map."""
    s = _Regions((batch_size, channels, height, width), (pooled_height, pooled_width), True, True)
    return _run(POOL, s, grad, rois, spatial_scale)


def _formula(backward: Callable[..., Tensor], pair: bool, ratio: int = 0) -> Any:
    """`setup_context` and `backward` of an operator. pair: it gives two results. ratio: 1 where `sampling_ratio` comes before
    the sizes (ps_roi_align), 2 where `sampling_ratio` and `aligned` come last (roi_align)."""

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[1], *([output[1]] if pair else []))
        ctx.shape, ctx.given = inputs[0].shape, inputs[2:]

    def gradient(ctx: Any, grad: Tensor, *_: Any) -> Any:
        first, last = (ctx.given[:3], ctx.given[3:]) if ratio == 2 else (ctx.given, ())
        return backward(grad, *ctx.saved_tensors, *first, *ctx.shape, *last), *[None] * (1 + len(ctx.given))

    return setup, gradient


_BOX = "Tensor rois, float spatial_scale, int pooled_height, int pooled_width"
_FROM = "Tensor rois, Tensor {}, float spatial_scale, int pooled_height, int pooled_width"
_SIZES = "int batch_size, int channels, int height, int width"
OPERATORS = {
    f"roi_align(Tensor input, {_BOX}, int sampling_ratio, bool aligned) -> Tensor": (
        roi_align,
        _formula(roi_align_backward, False, 2),
    ),
    f"_roi_align_backward(Tensor grad, {_BOX}, {_SIZES}, int sampling_ratio, bool aligned) -> Tensor": (
        roi_align_backward,
        None,
    ),
    f"ps_roi_align(Tensor input, {_BOX}, int sampling_ratio) -> (Tensor, Tensor)": (
        ps_roi_align,
        _formula(ps_roi_align_backward, True, 1),
    ),
    f"_ps_roi_align_backward(Tensor grad, {_FROM.format('channel_mapping')}, int sampling_ratio, {_SIZES}) -> Tensor": (
        ps_roi_align_backward,
        None,
    ),
    f"roi_pool(Tensor input, {_BOX}) -> (Tensor, Tensor)": (roi_pool, _formula(roi_pool_backward, True)),
    f"_roi_pool_backward(Tensor grad, {_FROM.format('argmax')}, {_SIZES}) -> Tensor": (roi_pool_backward, None),
    f"ps_roi_pool(Tensor input, {_BOX}) -> (Tensor, Tensor)": (ps_roi_pool, _formula(ps_roi_pool_backward, True)),
    f"_ps_roi_pool_backward(Tensor grad, {_FROM.format('channel_mapping')}, {_SIZES}) -> Tensor": (
        ps_roi_pool_backward,
        None,
    ),
}
