"""Maxima of windows whose places are drawn at random (Graham, 2014)."""

import tabtorch as torch
from tabtorch.ops.functional._common import named, ntuple
from tabtorch.ops.reductions.reduce import WINDOW_ARGMAX, reduce

#: what `torch.nn.functional` shows
__all__ = [
    "fractional_max_pool2d",
    "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices",
]


def _starts(u, size, kernel, out):
    """The first place of each of ``out`` windows, for random numbers ``u`` (N, C): (N, C, out)."""
    at = torch.arange(out, dtype=u.dtype, device=u.device)
    if out == 1:
        return (at + (size - kernel)).long().expand(*u.shape, 1)
    # a tensor: PyTorch rounds it, and each step, to the dtype of the numbers
    alpha = torch.full((), (size - kernel) / (out - 1), dtype=u.dtype, device=u.device)
    u = u.unsqueeze(-1)
    start = ((at + u) * alpha).long() - (u * alpha).long()
    return torch.where(at == out - 1, size - kernel, start)


def _pool(n, input, kernel_size, output_size, output_ratio, samples):
    name = f"fractional_max_pool{n}d"
    if output_size is None:
        if output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
        if n == 2 and isinstance(output_ratio, (tuple, list)) and len(output_ratio) > 2:
            raise ValueError(f"{name} requires output_ratio to either be a single Int or tuple of Ints.")
        output_size = [int(input.size(d - n) * r) for d, r in enumerate(ntuple(output_ratio, n))]
    kernel, out = ntuple(kernel_size, n), ntuple(output_size, n)
    for what, v in (("kernel_size", kernel), ("output_size", out)):
        if len(v) != n:
            raise RuntimeError(f"{name}: {what} must either be a single Int or tuple of Ints")
    if input.dim() not in (n + 1, n + 2) or 0 in input.shape[1:]:
        raise RuntimeError(
            f"{name}(): Expected {n + 1}D or {n + 2}D tensor, but got: [{', '.join(str(s) for s in input.shape)}]"
        )
    batched = input.dim() == n + 2
    x = input if batched else input.unsqueeze(0)
    size = x.shape[2:]
    if samples is None:
        samples = torch.rand(x.size(0), x.size(1), n, dtype=x.dtype, device=x.device)
    for d, axis in enumerate(("time", "height", "width")[3 - n :]):
        if out[d] + kernel[d] - 1 > size[d]:
            raise RuntimeError(f"{name}(): pool {axis} {kernel[d]} too large relative to input {axis} {size[d]}")
    u = samples[: x.size(0)].detach()
    parts = []
    for d in range(n):
        # of two numbers the first is for the width; of three it is for the time
        start = _starts(u[..., n - 1 - d if n == 2 else d], size[d], kernel[d], out[d])
        parts.append(start.unsqueeze(-1) + torch.arange(kernel[d], device=x.device))  # (N, C, windows, places in one)
    index = parts[0]
    for d in range(1, n):
        index = index[:, :, :, None, :, None] * size[d] + parts[d][:, :, None, :, None, :]
        index = index.flatten(4, 5).flatten(2, 3)
    lead = x.shape[:2]
    values = x.flatten(2).gather(2, index.flatten(2)).reshape(index.shape)
    where = reduce(WINDOW_ARGMAX, values.detach(), -1, True, torch.int64, values.dtype.compute)
    best, index = values.gather(-1, where).squeeze(-1), index.gather(-1, where).squeeze(-1)
    best, index = best.reshape(*lead, *out), index.reshape(*lead, *out)
    if not batched:
        best, index = best.squeeze(0), index.squeeze(0)
    return named(best, f"FractionalMaxPool{n}DBackward0"), index


def fractional_max_pool2d_with_indices(
    input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    """``fractional_max_pool2d`` and the index of each maximum within its plane."""
    return _pool(2, input, kernel_size, output_size, output_ratio, _random_samples)


def fractional_max_pool3d_with_indices(
    input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    """``fractional_max_pool3d`` and the index of each maximum within its volume."""
    return _pool(3, input, kernel_size, output_size, output_ratio, _random_samples)


def fractional_max_pool2d(
    input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    """Maxima of windows at random places. ``input`` (N, C, H, W) or (C, H, W).

    ``output_size``, or ``output_ratio`` of the input's. ``return_indices``: also the place of each maximum in its plane.
    """
    r = _pool(2, input, kernel_size, output_size, output_ratio, _random_samples)
    return r if return_indices else r[0]


def fractional_max_pool3d(
    input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    """Maxima of windows at random places. ``input`` (N, C, T, H, W) or (C, T, H, W)."""
    r = _pool(3, input, kernel_size, output_size, output_ratio, _random_samples)
    return r if return_indices else r[0]
