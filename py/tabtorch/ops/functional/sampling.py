"""Images read at places that a grid gives."""

import warnings

import tabtorch as torch
from tabtorch.ops.functional._common import named

#: what `torch.nn.functional` shows
__all__ = [
    "affine_grid",
    "grid_sample",
]

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def _aligned(align_corners):
    if align_corners is None:
        warnings.warn(
            "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please specify "
            "align_corners=True if the old behavior is desired. See the documentation of grid_sample for details.",
            stacklevel=3,
        )
    return bool(align_corners)


def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    """``input`` (N, C, H, W) or (N, C, D, H, W) read at ``grid`` (N, …, 2 or 3): x, y(, z), each from -1 to 1 over the image.

    ``mode``: bilinear, nearest, bicubic (4-d only). ``padding_mode`` of what lies outside: zeros, border, reflection.
    """
    if mode not in _MODES:
        raise ValueError(
            f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'"
        )
    if padding_mode not in _PADDINGS:
        raise ValueError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', "
            f"but got: '{padding_mode}'"
        )
    align = _aligned(align_corners)
    out = torch.grid_sampler(input, grid, _MODES.index(mode), _PADDINGS.index(padding_mode), align)
    return named(out, f"GridSampler{input.dim() - 2}DBackward0")


def affine_grid(theta, size, align_corners=None):
    """The grid of affine maps ``theta``: (N, 2, 3) for ``size`` (N, C, H, W), (N, 3, 4) for (N, C, D, H, W)."""
    align = _aligned(align_corners)
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    n = len(size) - 2
    if n not in (2, 3):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. "
            f"Got size {size}."
        )
    if theta.dim() != 3 or tuple(theta.shape[1:]) != (n, n + 1):
        raise ValueError(
            f"Expected a batch of {n}D affine matrices of shape Nx{n}x{n + 1} for size {size}. Got {theta.shape}."
        )
    if align and min(size[2:]) == 1:
        warnings.warn(
            "Since version 1.3.0, affine_grid behavior has changed for unit-size grids when align_corners=True. "
            "This is not an intended use case of affine_grid. See the documentation of affine_grid for details.",
            stacklevel=2,
        )
    elif min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {size}")
    return named(torch.affine_grid_generator(theta, size, align), "AffineGridGeneratorBackward0")
