"""Images: resampling, and moving elements between channels and space."""

import math
import warnings

import tabtorch as torch

from ...ops.pool import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from ._common import named, size_list

_NAMES = {
    "nearest": "Nearest",
    "nearest-exact": "NearestExact",
    "linear": "Linear",
    "bilinear": "Bilinear",
    "trilinear": "Trilinear",
    "bicubic": "Bicubic",
}
_LINEAR_NDIM = {"linear": 3, "bilinear": 4, "trilinear": 5, "bicubic": 4}


def interpolate(
    input,
    size=None,
    scale_factor=None,
    mode="nearest",
    align_corners=None,
    recompute_scale_factor=None,
    antialias=False,
):
    """Resamples the spatial dimensions of (N, C, …) to ``size``, or by ``scale_factor``.

    ``mode``: nearest, nearest-exact, linear, bilinear, trilinear, bicubic, area.
    """
    if mode in ("nearest", "area", "nearest-exact"):
        if align_corners is not None:
            raise ValueError(
                "align_corners option can only be set with the "
                "interpolating modes: linear | bilinear | bicubic | trilinear"
            )
    elif align_corners is None:
        align_corners = False
    n = input.dim() - 2
    spatial = list(input.shape[2:])
    sizes, factors = _output_size(spatial, n, size, scale_factor, mode, recompute_scale_factor)
    if antialias:
        if not (mode in ("bilinear", "bicubic", "lanczos") and input.dim() == 4):
            raise ValueError(
                "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a 4-D tensor "
                "as input"
            )
        raise NotImplementedError("interpolate: antialias=True is not in tabtorch yet")
    if input.dim() not in (3, 4, 5) or mode not in ("nearest", "nearest-exact", "area", *_LINEAR_NDIM):
        raise NotImplementedError(
            "Input Error: Only 3D, 4D and 5D input Tensors supported"
            f" (got {input.dim()}D) for the modes: nearest | linear | bilinear | bicubic | trilinear | lanczos | "
            f"area | nearest-exact (got {mode})"
        )
    if mode in _LINEAR_NDIM and _LINEAR_NDIM[mode] != input.dim():
        raise NotImplementedError(f"Got {input.dim()}D input, but {mode} mode needs {_LINEAR_NDIM[mode]}D input")
    if min(sizes) <= 0:
        raise RuntimeError(
            f"Input and output sizes should be greater than 0, but got input (H: {spatial[0]}, W: {spatial[-1]}) "
            f"output (H: {sizes[0]}, W: {sizes[-1]})"
        )
    if mode == "area":
        return (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[n - 1](input, tuple(sizes))
    given = input
    for i in range(n):
        out, factor = sizes[i], None if factors is None else factors[i]
        if mode in ("nearest", "nearest-exact"):
            input = _nearest(input, 2 + i, out, factor, 0.5 if mode == "nearest-exact" else 0.0)
        elif mode == "bicubic":
            input = _cubic(input, 2 + i, out, factor, align_corners)
        else:
            input = _linear(input, 2 + i, out, factor, align_corners)
    if input is given:
        input = input.clone()  # nothing to resample, but what is returned is a tensor of its own
    return named(input, f"Upsample{_NAMES[mode]}{n}DBackward0")


def _output_size(spatial, n, size, scale_factor, mode, recompute):
    """(sizes, scale factors that the user gave and that count, or None)."""
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is None and scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    if size is not None:
        if recompute:
            raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
        if not isinstance(size, (list, tuple)):
            return [size] * n, None
        if len(size) != n:
            raise ValueError(
                "Input and output must have the same number of spatial dimensions, but got "
                f"input with spatial dimensions of {spatial} and output size of {size}. "
                "Please provide input tensor in (N, C, d1, d2, ...,dK) format and "
                "output size in (o1, o2, ...,oK) format."
            )
        if not all(isinstance(s, int) for s in size):
            raise TypeError(
                "expected size to be one of int or Tuple[int] or Tuple[int, int] or "
                f"Tuple[int, int, int], but got size with types {[type(s) for s in size]}"
            )
        return list(size), None
    if isinstance(scale_factor, (list, tuple)):
        if len(scale_factor) != n:
            raise ValueError(
                "Input and scale_factor must have the same number of spatial dimensions, but "
                f"got input with spatial dimensions of {spatial} and "
                f"scale_factor of shape {scale_factor}. "
                "Please provide input tensor in (N, C, d1, d2, ...,dK) format and "
                "scale_factor in (s1, s2, ...,sK) format."
            )
        factors = [float(f) for f in scale_factor]
    else:
        factors = [float(scale_factor)] * n
    sizes = [math.floor(s * f) for s, f in zip(spatial, factors, strict=True)]
    return sizes, None if recompute or mode == "area" else factors


def _nearest(x, dim, out, factor, shift):
    n = x.size(dim)
    if out == n and factor in (None, 1.0):
        return x
    if out % n == 0 and factor in (None, float(out // n)):
        # A whole factor: a view that repeats, and no gather.
        times = out // n
        return x.unsqueeze(dim + 1).expand(*x.shape[: dim + 1], times, *x.shape[dim + 1 :]).flatten(dim, dim + 1)
    scale = n / out if factor is None else 1.0 / factor
    at = torch.arange(out, device=x.device, dtype=torch.float32)
    return x.index_select(dim, ((at + shift) * scale).floor().clamp(max=n - 1).long())


def _source(x, dim, out, factor, align_corners, clamped):
    """Positions in the input, float32, for each of ``out`` outputs."""
    n = x.size(dim)
    at = torch.arange(out, device=x.device, dtype=torch.float32)
    if align_corners:
        return at * ((n - 1) / (out - 1) if out > 1 else 0.0)
    scale = n / out if factor is None else 1.0 / factor
    source = (at + 0.5) * scale - 0.5
    return source.clamp(min=0) if clamped else source


def _weight(t, x, dim):
    """A weight for each output position, to broadcast along ``dim``."""
    return t.to(x.dtype).reshape((-1,) + (1,) * (x.dim() - 1 - dim))


def _linear(x, dim, out, factor, align_corners):
    n = x.size(dim)
    if out == n and factor in (None, 1.0):
        return x
    source = _source(x, dim, out, factor, align_corners, True)
    low = source.floor().clamp(max=n - 1)
    part = _weight((source - low).clamp(0, 1), x, dim)
    low = low.long()
    high = (low + 1).clamp(max=n - 1)
    return x.index_select(dim, low) * (1 - part) + x.index_select(dim, high) * part


def _cubic(x, dim, out, factor, align_corners):
    n = x.size(dim)
    if out == n and factor in (None, 1.0):
        return x
    source = _source(x, dim, out, factor, align_corners, False)
    low = source.floor()
    t = source - low
    low = low.long()
    a = -0.75  # Keys' parameter, as in PyTorch

    def near(s):
        return ((a + 2) * s - (a + 3)) * s * s + 1

    def far(s):
        return ((a * s - 5 * a) * s + 8 * a) * s - 4 * a

    taps = ((-1, far(t + 1)), (0, near(t)), (1, near(1 - t)), (2, far(2 - t)))
    parts = [x.index_select(dim, (low + o).clamp(0, n - 1)) * _weight(w, x, dim) for o, w in taps]
    return parts[0] + parts[1] + parts[2] + parts[3]


def upsample(input, size=None, scale_factor=None, mode="nearest", align_corners=None):
    """Deprecated name of ``interpolate``."""
    warnings.warn("`nn.functional.upsample` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2)
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input, size=None, scale_factor=None):
    """Deprecated form of ``interpolate``."""
    warnings.warn(
        "`nn.functional.upsample_nearest` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2
    )
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input, size=None, scale_factor=None):
    """Deprecated form of ``interpolate``, with aligned corners."""
    warnings.warn(
        "`nn.functional.upsample_bilinear` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2
    )
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


def _check_ndim(name, input):
    if input.dim() < 3:
        raise RuntimeError(
            f"{name} expects input to have at least 3 dimensions, but got input with {input.dim()} dimension(s)"
        )


def pixel_shuffle(input, upscale_factor):
    """(*, C · r², H, W) to (*, C, H · r, W · r) (Shi et al., 2016)."""
    _check_ndim("pixel_shuffle", input)
    r = upscale_factor
    if r <= 0:
        raise RuntimeError(f"pixel_shuffle expects a positive upscale_factor, but got {r}")
    *batch, channels, h, w = input.shape
    if channels % (r * r):
        raise RuntimeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, "
            f"but input.size(-3)={channels} is not divisible by {r * r}"
        )
    n = len(batch)
    split = input.reshape(*batch, channels // (r * r), r, r, h, w)
    order = (*range(n + 1), n + 3, n + 1, n + 4, n + 2)
    out = split.permute(order).reshape(*batch, channels // (r * r), h * r, w * r)
    return named(out, "PixelShuffleBackward0")


def pixel_unshuffle(input, downscale_factor):
    """(*, C, H · r, W · r) to (*, C · r², H, W)."""
    _check_ndim("pixel_unshuffle", input)
    r = downscale_factor
    if r <= 0:
        raise RuntimeError(f"pixel_unshuffle expects a positive downscale_factor, but got {r}")
    *batch, channels, h, w = input.shape
    for name, s, d in (("height", h, -2), ("width", w, -1)):
        if s % r:
            raise RuntimeError(
                f"pixel_unshuffle expects {name} to be divisible by downscale_factor, "
                f"but input.size({d})={s} is not divisible by {r}"
            )
    n = len(batch)
    split = input.reshape(*batch, channels, h // r, r, w // r, r)
    order = (*range(n + 1), n + 2, n + 4, n + 1, n + 3)
    return named(split.permute(order).reshape(*batch, channels * r * r, h // r, w // r), "PixelUnshuffleBackward0")


def channel_shuffle(input, groups):
    """(N, C, *) with the channels of ``groups`` groups interleaved (Zhang et al., 2018)."""
    if input.dim() < 3:
        raise RuntimeError(
            f"channel_shuffle expects input with > 2 dims, but got input with sizes {size_list(input.shape)}"
        )
    n, channels, *rest = input.shape
    if groups <= 0:
        raise RuntimeError(f"Number of groups to divide channels in must be positive. Value of groups:{groups}")
    if channels % groups:
        raise RuntimeError(
            f"Number of channels must be divisible by groups. Got {channels} channels and {groups} groups."
        )
    out = input.reshape(n, groups, channels // groups, *rest).transpose(1, 2).reshape(input.shape)
    return named(out, "ChannelShuffleBackward0")
