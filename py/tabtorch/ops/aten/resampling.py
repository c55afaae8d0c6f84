"""Images as ATen resamples and pads them: an operator for each mode and number of dimensions, and its gradient."""

from __future__ import annotations

from typing import Any

from tabtorch import ops
from tabtorch.core.layout import suggested_format
from tabtorch.nn import functional as F
from tabtorch.ops.aten.table import ADAPTERS, Tensor, aten, grad_of, grads_of
from tabtorch.ops.functional import vision

#: ATen's name without the number of dimensions -> (mode of `interpolate`, dimensions, whether it has `align_corners`)
_MODES = {
    "upsample_nearest": ("nearest", (1, 2, 3), False),
    "_upsample_nearest_exact": ("nearest-exact", (1, 2, 3), False),
    "upsample_linear": ("linear", (1,), True),
    "upsample_bilinear": ("bilinear", (2,), True),
    "upsample_trilinear": ("trilinear", (3,), True),
    "upsample_bicubic": ("bicubic", (2,), True),
}


def _resampler(name: str, mode: str, n: int, aligned: bool) -> None:
    def forward(self: Tensor, output_size: Any, *rest: Any, **kw: Any) -> Tensor:
        align, factors = _split(rest, kw, n, aligned)
        return vision.resampled(self, output_size, factors, mode, align)

    def backward(grad_output: Tensor, output_size: Any, input_size: Any, *rest: Any, **kw: Any) -> Tensor:
        align, factors = _split(rest, kw, n, aligned)
        x = grad_output.new_zeros(tuple(input_size))  # it is linear: the gradient reads no input
        x = x.contiguous(memory_format=suggested_format(grad_output._tab_meta))
        return grad_of(lambda x: vision.resampled(x, output_size, factors, mode, align), x, grad_output)

    def of_factors(input: Tensor, output_size: Any, *rest: Any, **kw: Any) -> Tensor:
        align = (rest[0] if rest else kw["align_corners"]) if aligned else None
        scales = kw.get("scale_factors", rest[-1] if len(rest) > aligned else None)
        return F.interpolate(
            input, None if output_size is None else list(output_size), scales, mode, align_corners=align
        )

    ADAPTERS[name] = forward
    ADAPTERS[name + "_backward"] = backward
    ADAPTERS[name + ".vec"] = of_factors


def _split(rest: tuple[Any, ...], kw: dict[str, Any], n: int, aligned: bool) -> tuple[bool | None, tuple[Any, ...]]:
    """(`align_corners`, the factor of each dimension, None where the sizes say it), of what follows the sizes."""
    names = {1: ("scales",), 2: ("scales_h", "scales_w"), 3: ("scales_d", "scales_h", "scales_w")}[n]
    given = dict(zip((("align_corners",) if aligned else ()) + names, rest, strict=False)) | kw
    return given.get("align_corners"), tuple(given.get(name) for name in names)


for _name, (_mode, _dims, _aligned) in _MODES.items():
    for _n in _dims:
        _resampler(f"{_name}{_n}d", _mode, _n, _aligned)


def _smooth(mode: str) -> None:
    name = f"_upsample_{mode}2d_aa"

    @aten(name + "_backward")
    def backward(
        grad_output: Tensor,
        output_size: Any,
        input_size: Any,
        align_corners: bool,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Tensor:
        x = grad_output.new_zeros(tuple(input_size))
        rest = (list(output_size), (scales_h, scales_w), mode, align_corners)
        return grad_of(lambda x: vision.resize_smoothly(x, *rest), x, grad_output)

    @aten(name + ".vec")
    def of_factors(input: Tensor, output_size: Any, align_corners: bool, scale_factors: Any) -> Tensor:
        size = None if output_size is None else list(output_size)
        return F.interpolate(input, size, scale_factors, mode, align_corners=align_corners, antialias=True)


for _mode in ("bilinear", "bicubic", "lanczos"):
    _smooth(_mode)


# ---- padding


def _padder(kind: str, mode: str, n: int) -> None:
    name = f"{kind}_pad{n}d"

    @aten(name)
    def forward(self: Tensor, padding: Any) -> Tensor:
        return F.pad(self, list(padding), mode=mode)

    @aten(name + "_backward")
    def backward(grad_output: Tensor, self: Tensor, padding: Any) -> Tensor:
        return grad_of(lambda x: forward(x, padding), self, grad_output)


for _n in (1, 2, 3):
    _padder("reflection", "reflect", _n)
    _padder("replication", "replicate", _n)


@aten("_pad_circular")
def _pad_circular(self: Tensor, pad: Any) -> Tensor:
    return F.pad(self, list(pad), mode="circular")


@aten("_pad_enum")
def _pad_enum(self: Tensor, pad: Any, mode: int, value: float | None = None) -> Tensor:
    return F.pad(self, list(pad), mode=("constant", "reflect", "replicate", "circular")[mode], value=value)


# ---- samples at places


def _sampler(n: int) -> None:
    name = f"grid_sampler_{n}d"

    @aten(name + "_backward")
    def backward(
        grad_output: Tensor,
        input: Tensor,
        grid: Tensor,
        interpolation_mode: int,
        padding_mode: int,
        align_corners: bool,
        output_mask: Any = (True, True),
    ) -> Any:
        rest = (interpolation_mode, padding_mode, align_corners)
        return grads_of(lambda x, at: getattr(ops, name)(x, at, *rest), (input, grid), grad_output, output_mask)

    if n == 2:
        ADAPTERS["_grid_sampler_2d_cpu_fallback"] = getattr(ops, name)
        ADAPTERS["_grid_sampler_2d_cpu_fallback_backward"] = backward


_sampler(2)
_sampler(3)
