"""Images read at places that a grid gives, and grids of affine maps.

A place needs 1, 2 or 4 neighbours along each axis. Their positions and weights are made an axis at a time; one gather then
reads all of them, and a sum over the neighbours is the result. All of it is a formula, so it can be differentiated twice.
"""

from __future__ import annotations

import math
from typing import Any

from tabtorch import ops
from tabtorch.base import dtypes
from tabtorch.base.dtypes import cxx_name
from tabtorch.core.tensor import Tensor
from tabtorch.ops.machinery.operand_devices import together
from tabtorch.ops.machinery.promotion import FLOATING, check_kernel
from tabtorch.ops.machinery.registry import register

BILINEAR, NEAREST, BICUBIC = 0, 1, 2
ZEROS, BORDER, REFLECTION = 0, 1, 2


def cubic_weights(t: Any, k: Any, a: float = -0.75) -> Any:
    """Keys' weights of the four neighbours k = 0..3 of a place that is the part t past neighbour 1."""
    d = ops.where(k < 2, t + 1 - k, k - 1 - t)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return ops.where((k == 1) | (k == 2), near, far)


def _clipped(x: Any, n: int) -> Any:
    """Inside the image; what was outside has no gradient, nor what is on the edge, as in PyTorch."""
    return ops.where((x > 0) & (x < n - 1), x, x.detach().clamp(0, n - 1))


def _reflected(x: Any, n: int, align: bool) -> Any:
    low, span = (0.0, n - 1.0) if align else (-0.5, float(n))
    if span <= 0:
        return x * 0
    x = (x - low).abs()
    turns = (x.detach() / span).floor()
    rest = x - turns * span
    return ops.where(turns.remainder(2) == 0, rest + low, span - rest + low)


def _padded(x: Any, n: int, padding: int, align: bool) -> Any:
    if padding == BORDER:
        return _clipped(x, n)
    return _clipped(_reflected(x, n, align), n) if padding == REFLECTION else x


def _axis(g: Any, n: int, mode: int, padding: int, align: bool) -> tuple[Any, Any, Any]:
    """(positions, weights, whether inside), each (N, neighbours, places), of coordinates (N, places) from -1 to 1."""
    x = (g + 1) / 2 * (n - 1) if align else ((g + 1) * n - 1) / 2
    if mode != BICUBIC:
        x = _padded(x, n, padding, align)
    x = x.unsqueeze(1)
    if mode == NEAREST:
        at = x.detach().round()
        weight = ops.ones_like(at)
        if x._tab_requires_grad:
            weight = weight + x * 0  # the gradient is 0 everywhere, and not missing
    else:
        k = ops.arange(4 if mode == BICUBIC else 2, dtype=x.dtype, device=x.device).reshape(1, -1, 1)
        low = x.detach().floor()
        t = x - low
        if mode == BICUBIC:
            at = _padded(low - 1 + k, n, padding, align)
            weight = cubic_weights(t, k)
        else:
            at = low + k
            weight = ops.where(k == 0, 1 - t, t)
    inside = (at >= 0) & (at <= n - 1)
    return ops.where(inside, at, 0.0).to(dtypes.int64), weight, inside


def _check(input: Tensor, grid: Tensor, name: str) -> None:
    if input.device != grid.device:
        raise RuntimeError(
            "grid_sampler(): expected input and grid to be on same device, but input is on "
            f"{input.device} and grid is on {grid.device}"
        )
    if input.ndim < 1 or grid.ndim < 1 or input.shape[0] != grid.shape[0]:
        raise RuntimeError(
            "grid_sampler(): expected grid and input to have same batch size, but got input with sizes "
            f"{list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if grid.shape[-1] != input.ndim - 2:
        raise RuntimeError(
            f"grid_sampler(): expected grid to have size {input.ndim - 2} in last dimension, but got grid with sizes "
            f"{list(grid.shape)}"
        )
    for d in range(2, input.ndim):
        if input.shape[d] <= 0:
            raise RuntimeError(
                "grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes "
                f"{list(input.shape)} with dimension {d} being empty"
            )
    if (
        input.ndim not in (4, 5)
        or input.ndim != grid.ndim
        or (name[-2:] in ("2d", "3d") and input.ndim != int(name[-2]) + 2)
    ):
        raise RuntimeError(
            "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but got input with sizes "
            f"{list(input.shape)} and grid with sizes {list(grid.shape)}"
        )


def _sampler(name: str) -> None:
    @register(name)
    def grid_sampler(
        input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
    ) -> Tensor:
        """`input` (N, C, H, W) or (N, C, D, H, W) read at `grid` (N, …, 2 or 3), whose last dimension is x, y(, z) from -1 to 1.

        interpolation: 0 linear, 1 nearest, 2 cubic (4-d only). padding: 0 zeros, 1 the border's values, 2 reflection.
        RuntimeError for sizes that do not fit.
        """
        if input._tab_meta.device.implicit or grid._tab_meta.device.implicit:
            input, grid = together((input, grid))
        _check(input, grid, name)
        if input.dtype is not grid.dtype:
            raise RuntimeError(
                f"grid_sampler(): expected input and grid to have same dtype, but input has {cxx_name(input.dtype)} and grid has "
                f"{cxx_name(grid.dtype)}"
            )
        check_kernel(f"grid_sampler_{input.ndim - 2}d_cpu", input.dtype, FLOATING)
        if interpolation_mode == BICUBIC and input.ndim == 5:
            raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
        n, channels, *size = input.shape
        shape = tuple(grid.shape[1:-1])
        places = math.prod(shape)
        wide = dtypes.float64 if grid.dtype is dtypes.float64 else dtypes.float32
        flat = grid.reshape(n, places, len(size)).to(wide)
        index: Any = None
        weight: Any = None
        seen: Any = None
        for d, length in enumerate(size):
            at, w, inside = _axis(
                flat.select(2, len(size) - 1 - d), length, interpolation_mode, padding_mode, align_corners
            )
            w = ops.where(inside, w, 0.0)
            if index is None:
                index, weight, seen = at, w, inside
            else:  # every neighbour along the axes so far with every one along this
                index = (index.unsqueeze(2) * length + at.unsqueeze(1)).flatten(1, 2)
                weight = (weight.unsqueeze(2) * w.unsqueeze(1)).flatten(1, 2)
                seen = (seen.unsqueeze(2) & inside.unsqueeze(1)).flatten(1, 2)
        taps = index.shape[1]
        index = index.reshape(n, 1, taps * places).expand(n, channels, taps * places)
        values = input.flatten(2).gather(2, index).reshape(n, channels, taps, places)
        # a neighbour of weight 0 still has a say in the gradient of its weight: at the centres of pixels the slope is one-sided
        r = ops.where(seen.unsqueeze(1), values.to(wide) * weight.unsqueeze(1), 0.0)
        return r.sum(2).to(input.dtype).reshape(n, channels, *shape)

    grid_sampler.__name__ = grid_sampler.__qualname__ = name


for _name in ("grid_sampler", "grid_sampler_2d", "grid_sampler_3d"):
    _sampler(_name)


@register("affine_grid_generator")
def affine_grid_generator(theta: Tensor, size: Any, align_corners: bool) -> Tensor:
    """The grid of `grid_sample` of affine maps: theta (N, 2, 3) and size (N, C, H, W) to (N, H, W, 2), or one dimension more."""
    spatial = list(size)[2:]
    dims = len(spatial)
    if dims not in (2, 3):
        raise RuntimeError("affine_grid_generator needs 4d (spatial) or 5d (volumetric) inputs.")
    rows = []
    for d in reversed(range(dims)):
        n = spatial[d]
        line = ops.linspace(-1, 1, n, dtype=theta.dtype, device=theta.device) if n > 1 else theta.new_zeros((n,))
        if not align_corners and n > 1:
            line = line * (n - 1) / n  # rounded as PyTorch does: an identity's points lie where the gradient jumps
        rows.append(line.reshape([-1 if k == d else 1 for k in range(dims)]).expand(spatial))
    rows.append(theta.new_ones(()).expand(spatial))
    base = ops.stack(rows, -1).reshape(1, -1, dims + 1)
    return (base @ theta.transpose(1, 2)).reshape(size[0], *spatial, dims)
