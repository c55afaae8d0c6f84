"""Images: resampling, and moving elements between channels and space."""

import math
import warnings

import tabtorch as torch
from tabtorch.base.dtypes import uint8
from tabtorch.core.layout import suggested_format, suggested_order
from tabtorch.engine.symbols import is_number
from tabtorch.ops.functional._common import named, size_list, widened
from tabtorch.ops.machinery.promotion import FLOATING, check_kernel
from tabtorch.ops.shaping.convert import recorded_in_order
from tabtorch.ops.sliding.pool import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d

#: what `torch.nn.functional` shows
__all__ = [
    "channel_shuffle",
    "conv_tbc",
    "interpolate",
    "pixel_shuffle",
    "pixel_unshuffle",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]

_NAMES = {
    "nearest": "Nearest",
    "nearest-exact": "NearestExact",
    "linear": "Linear",
    "bilinear": "Bilinear",
    "trilinear": "Trilinear",
    "bicubic": "Bicubic",
}
#: mode, or mode and dimensions -> PyTorch's kernel
_KERNELS = {
    "nearest": "compute_indices_weights_nearest",
    ("nearest", 2): "upsample_nearest2d_channels_last",
    "nearest-exact": "compute_indices_weights_nearest",
    ("nearest-exact", 2): "upsample_nearest2d_channels_last",
    "linear": "compute_indices_weights_linear",
    "bilinear": "upsample_bilinear2d_channels_last",
    "trilinear": "compute_indices_weights_linear",
    "bicubic": "compute_indices_weights_cubic",
}
_PIXELS = FLOATING | {uint8}
_FLOATING = ("linear", "trilinear")
_LINEAR_NDIM = {"linear": 3, "bilinear": 4, "trilinear": 5, "bicubic": 4, "lanczos": 4}


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

    ``mode``: nearest, nearest-exact, linear, bilinear, trilinear, bicubic, area. ``antialias`` (bilinear, bicubic and lanczos
    of 4-d inputs): where the result is smaller, each element is of all that it covers.
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
    if input.dim() not in (3, 4, 5) or mode not in ("nearest", "nearest-exact", "area", *_LINEAR_NDIM):
        raise NotImplementedError(
            "Input Error: Only 3D, 4D and 5D input Tensors supported"
            f" (got {input.dim()}D) for the modes: nearest | linear | bilinear | bicubic | trilinear | lanczos | "
            f"area | nearest-exact (got {mode})"
        )
    if mode == "lanczos":
        if align_corners:
            raise ValueError("Lanczos mode does not support align_corners=True")
        if not antialias:
            raise ValueError("Lanczos mode requires antialias=True")
    if mode in _LINEAR_NDIM and _LINEAR_NDIM[mode] != input.dim():
        raise NotImplementedError(f"Got {input.dim()}D input, but {mode} mode needs {_LINEAR_NDIM[mode]}D input")
    if min(sizes) <= 0:
        raise RuntimeError(
            f"Input and output sizes should be greater than 0, but got input (H: {spatial[0]}, W: {spatial[-1]}) "
            f"output (H: {sizes[0]}, W: {sizes[-1]})"
        )
    if antialias:
        return resize_smoothly(input, sizes, factors or (None, None), mode, align_corners)
    if mode == "area":
        return (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[n - 1](input, tuple(sizes))
    return resampled(input, sizes, factors, mode, align_corners)


def resampled(input, sizes, factors, mode, align_corners):
    """``interpolate`` by one of the modes with kernels. ``factors``: None where a size says the factor."""
    n = input.dim() - 2
    check_kernel(_KERNELS.get((mode, n)) or _KERNELS[mode], input.dtype, FLOATING if mode in _FLOATING else _PIXELS)
    given = input
    if mode not in ("nearest", "nearest-exact"):
        input = widened(input)  # halves are rounded once, at the end
    for i in reversed(range(n)):
        out, factor = sizes[i], None if factors is None else factors[i]
        if mode in ("nearest", "nearest-exact"):
            input = _nearest(input, 2 + i, out, factor, 0.5 if mode == "nearest-exact" else 0.0)
        elif mode == "bicubic":
            input = _cubic(input, 2 + i, out, factor, align_corners)
        else:
            input = _linear(input, 2 + i, out, factor, align_corners)
    input = input.to(given.dtype)
    form = suggested_format(given._tab_meta)
    if form is not torch.contiguous_format:
        input = input.contiguous(memory_format=form)
    if input is given:
        input = input.clone()  # nothing to resample, but what is returned is a tensor of its own
    return named(input, f"Upsample{_NAMES[mode]}{n}DBackward0")


def _is_integer(x):
    """Whether it is an int: Python's, NumPy's, a size that is not known yet, or a tensor of one integer."""
    return hasattr(x, "__index__") and not (isinstance(x, torch.Tensor) and x.is_floating_point())


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
        if not all(_is_integer(s) for s in size):
            raise TypeError(
                "expected size to be one of int or Tuple[int] or Tuple[int, int] or "
                f"Tuple[int, int, int], but got size with types {[type(s) for s in size]}"
            )
        return [s if isinstance(s, int) or is_number(s) else int(s) for s in size], None
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


def _precise(x):
    """The type and the device to compute positions and weights in: for uint8, whose weights are rounded, as exact as PyTorch."""
    if x.dtype == torch.uint8:
        return {"dtype": torch.float64, "device": "cpu"}
    return {"dtype": torch.float64 if x.dtype == torch.float64 else torch.float32, "device": x.device}


def _rounded(x):
    """Values as uint8, the nearest."""
    return (x + 0.5).floor().clamp(0, 255).to(torch.uint8)


def _fixed(weights, largest):
    """Weights as PyTorch has them for uint8: 16-bit numbers, with as many binary places as the largest weight leaves."""
    unit = 2 ** (32767.5 / largest).log2().floor()
    return (weights * unit + torch.where(weights < 0, -0.5, 0.5)).trunc() / unit


def _together(taps):
    """The weights of ``taps``, where those of one place after the other add up in the last of them; and the largest sum."""
    weights, largest = [w for _, w in taps], taps[0][1].max()
    for k in range(1, len(taps)):
        same = taps[k][0] == taps[k - 1][0]
        weights[k] = weights[k] + torch.where(same, weights[k - 1], 0.0)
        weights[k - 1] = torch.where(same, 0.0, weights[k - 1])
        largest = torch.maximum(largest, weights[k].max())
    return torch.stack(weights), largest


def _blend(x, dim, taps):
    """The sum of elements along ``dim``, at places and with weights: ``taps`` of both."""
    if x.dtype == torch.uint8:  # rounded after each axis, as PyTorch does
        weights = _fixed(*_together(taps)).to(x.device, torch.float32)
        wide = x.float()
        return _rounded(
            sum(wide.index_select(dim, at.to(x.device)) * _weight(w, wide, dim) for (at, _), w in zip(taps, weights))
        )
    parts = [x.index_select(dim, at) * _weight(w, x, dim) for at, w in taps]
    return sum(parts[1:], parts[0])


def _source(x, dim, out, factor, align_corners, clamped):
    """Positions in the input for each of ``out`` outputs."""
    n = x.size(dim)
    at = torch.arange(out, **_precise(x))
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
    part = (source - low).clamp(0, 1)
    low = low.long()
    return _blend(x, dim, [(low, 1 - part), ((low + 1).clamp(max=n - 1), part)])


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
    return _blend(x, dim, [((low + o).clamp(0, n - 1), w) for o, w in taps])


def _keys(d, a):
    """Keys' cubic of a distance d >= 0."""
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return torch.where(d < 1, near, torch.where(d < 2, far, 0.0))


#: mode -> (width of the filter, its value at a distance)
_FILTERS = {
    "bilinear": (2, lambda d: (1 - d).clamp(min=0)),
    "bicubic": (4, lambda d: _keys(d, -0.5)),
    "lanczos": (6, lambda d: (d.sinc() * (d / 3).sinc()).where(d < 3, 0.0)),
}


def _filter_matrix(x, n, out, factor, mode, align_corners):
    """What each of ``out`` outputs takes of ``n`` inputs: (out, n). Rows add up to 1."""
    width, value = _FILTERS[mode]
    if align_corners:
        scale = (n - 1) / (out - 1) if out > 1 else 0.0
    else:
        scale = n / out if factor is None else 1.0 / factor
    support = width / 2 * max(scale, 1.0)
    centre = (torch.arange(out, **_precise(x)).unsqueeze(1) + 0.5) * scale
    place = torch.arange(n, **_precise(x))
    first = (centre - support + 0.5).trunc().clamp(min=0)
    last = (centre + support + 0.5).trunc().clamp(max=n)
    w = value(((place - centre + 0.5) / max(scale, 1.0)).abs())
    w = torch.where((place >= first) & (place < last), w, 0.0)
    total = w.sum(1, keepdim=True)
    w = w / torch.where(total == 0, 1.0, total)
    return _fixed(w, w.max()).to(x.device, torch.float32) if x.dtype == torch.uint8 else w


def resize_smoothly(input, size, factors, mode, align_corners):
    """``interpolate`` with antialias: a product with a matrix of weights along each axis."""
    if input.dim() != 4:
        raise RuntimeError(f"Non-empty 4D data tensor expected but got a tensor with sizes {size_list(input.shape)}")
    x = input
    for d in (3, 2):
        out, factor = size[d - 2], factors[d - 2]
        if out != x.size(d) or factor not in (None, 1.0):
            check_kernel("compute_index_ranges_weights", x.dtype, _PIXELS)  # halves: what PyTorch's GPUs alone have
            matrix = _filter_matrix(x, x.size(d), out, factor, mode, align_corners)
            wide = x.to(matrix.dtype)
            wide = wide @ matrix.t() if d == 3 else matrix @ wide
            x = _rounded(wide) if x.dtype == torch.uint8 else wide.to(x.dtype)
    if x is input:
        x = input.clone()
    form = suggested_format(input._tab_meta)
    if form is not torch.contiguous_format:
        x = x.contiguous(memory_format=form)
    return named(x, f"Upsample{mode.capitalize()}2DAaBackward0")


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


def _as_suggested(out, input):
    """``out``, laid out in the format that PyTorch takes ``input`` to have."""
    return recorded_in_order(out, suggested_order(input._tab_meta))


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
    return named(_as_suggested(out.clone() if r == 1 else out, input), "PixelShuffleBackward0")


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
    out = split.permute(order).reshape(*batch, channels * r * r, h // r, w // r)
    return named(_as_suggested(out.clone() if r == 1 else out, input), "PixelUnshuffleBackward0")


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
    return named(_as_suggested(out, input), "ChannelShuffleBackward0")


def conv_tbc(input, weight, bias, pad=0):
    """1-d convolution of (time, batch, channels): ``weight`` (width, in, out)."""
    return torch.conv_tbc(input, weight, bias, pad)
