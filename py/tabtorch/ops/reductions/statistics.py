"""Covariance and correlation, histograms, numerical gradients."""

from __future__ import annotations

import math
import warnings
from typing import Any

from tabtorch import ops
from tabtorch.base import dtypes
from tabtorch.base.dtypes import CXX_NAMES
from tabtorch.core.shapes import one_or_more, type_name, wrap_dims
from tabtorch.core.tensor import Tensor
from tabtorch.ops.indexing.index_maps import check_reals, every_example
from tabtorch.ops.machinery.asserts import Complaint, assert_range
from tabtorch.ops.machinery.integer_bounds import Range
from tabtorch.ops.machinery.operation import into_two, named, operation
from tabtorch.ops.machinery.out_types import same
from tabtorch.ops.machinery.promotion import SINGLE_DOUBLE, check_kernel
from tabtorch.ops.machinery.registry import register
from tabtorch.ops.reductions.unique import HIST_OUT

# ---- covariance


def _weights(name: str, w: Any, n: int, category: int, kind: str) -> None:
    if w.ndim > 1:
        raise RuntimeError(
            f"cov(): expected {name} to have one or fewer dimensions but got {name} with {w.ndim} dimensions"
        )
    if w.dtype.category != category:
        raise RuntimeError(
            f"cov(): expected {name} to have {kind} dtype but got {name} with {type_name(w.dtype)} dtype"
        )
    if w.numel() != n:
        raise RuntimeError(
            f"cov(): expected {name} to have the same numel as there are observations in the input but got {w.numel()} != {n}"
        )
    most = math.inf if category == 2 else 2**63 - 1
    complaint = Complaint(RuntimeError, f"cov(): {name} cannot be negative")
    check_reals(w, Range(0, most), complaint, "cov")


_NO_WEIGHT = Complaint(RuntimeError, "cov(): weights sum to zero, can't be normalized")


@register("cov", method=True)
def cov(
    input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """The covariance matrix of variables (rows) over observations (columns).

    `fweights`: how often each observation counts; `aweights`: how much. The sum is divided by the total weight less
    `correction`. Returns 0-d for a single variable.
    """
    if input.ndim > 2:
        raise RuntimeError(
            f"cov(): expected input to have two or fewer dimensions but got an input with {input.ndim} dimensions"
        )
    if input.dtype is dtypes.bool_:
        raise RuntimeError("cov(): bool dtype is not supported for input")
    x = input.reshape(1, -1) if input.ndim < 2 else input
    n = x.shape[1]
    w: Any = None
    if fweights is not None:
        _weights("fweights", fweights, n, 1, "integral")
        w = fweights
    if aweights is not None:
        _weights("aweights", aweights, n, 2, "floating point")
        w = aweights if w is None else w * aweights
    if w is None:
        total: Any = n
        centre = x.sum(1) / n
        norm: Any = n - correction
        if norm <= 0:
            norm = 0
            warnings.warn(
                "cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of observations.",
                stacklevel=2,
            )
    else:
        total = w.sum()
        check_reals(total != 0, Range(1, 1), _NO_WEIGHT, "cov")
        centre = (x * w).sum(1) / total
        if aweights is not None and correction:
            norm = total - correction * (w * aweights).sum() / total
        else:
            norm = total - correction
        norm = norm.clamp(min=0)
    d = x - centre.unsqueeze(1)
    other = d if w is None else d * w
    c = ops.mm(d, other.t().conj() if other.dtype.is_complex else other.t())
    return ops.true_divide(c, norm).squeeze()


@register("corrcoef", method=True)
def corrcoef(input: Tensor) -> Tensor:
    """The correlation coefficients of variables (rows) over observations (columns)."""
    if input.ndim > 2:
        raise RuntimeError(
            f"corrcoef(): expected input to have two or fewer dimensions but got an input with {input.ndim} dimensions"
        )
    c = cov(input)
    if c.ndim == 0:
        return c / c
    d = c.diagonal()
    s = (d.real if d.dtype.is_complex else d).sqrt()
    c = c / s.unsqueeze(1) / s.unsqueeze(0)
    if c.dtype.is_complex:
        return ops.complex(c.real.clip(-1, 1), c.imag.clip(-1, 1))
    return c.clip(-1, 1)


# ---- histograms

HistogramResult = named("histogram", "hist", "bin_edges")
HistogramddResult = named("histogramdd", "hist", "bin_edges")


_EDGES_OUT = same(
    "torch.histogram: input tensor and bin_edges tensor should have the same dtype, but got input {want} and bin_edges {have} "
    "for dimension 0"
)


def _edges(x: Tensor, bins: int, bounds: Any, k: int, who: str) -> Tensor:
    """bins + 1 edges from the smallest to the largest of `x`, or between `bounds`."""
    if bins <= 0:
        raise RuntimeError(f"{who}(): bins must be > 0, but got {bins} for dimension {k}")
    if bounds is not None:
        lo, hi = (float(b) for b in bounds)
        _finite(lo, hi, k)
        if lo > hi:
            raise RuntimeError(
                f"torch.histogramdd: min should not exceed max, but got min {lo:g} max {hi:g} for dimension {k}"
            )
        if lo == hi:
            lo, hi = lo - 0.5, hi + 0.5
        return ops.linspace(lo, hi, bins + 1, dtype=x.dtype, device=x.device)
    if x.numel() == 0:
        return ops.linspace(0, 1, bins + 1, dtype=x.dtype, device=x.device)
    low, high = x.aminmax()
    if x.device.type == "cpu":
        _finite(every_example(low).min().item(), every_example(high).max().item(), k)
    else:  # looking at them would wait for the GPU
        text = f"torch.histogramdd: dimension {k}'s range is not finite"
        assert_range(every_example((high - low).isfinite()), Range(1, 1), Complaint(RuntimeError, text), who)
    half = ops.where(low == high, 0.5, 0.0)
    low, high = low - half, high + half
    at = ops.arange(bins + 1, dtype=x.dtype, device=x.device)
    step = (high - low) / bins
    return ops.where(at < (bins + 1) // 2, low + step * at, high - step * (bins - at)).to(x.dtype)


def _finite(lo: float, hi: float, k: int) -> None:
    if not (math.isfinite(lo) and math.isfinite(hi)):
        raise RuntimeError(f"torch.histogramdd: dimension {k}'s range [{lo:g}, {hi:g}] is not finite")


def _histogram(
    x: Tensor, bins: list[Any], bounds: Any, weight: Any, density: bool, who: str
) -> tuple[Tensor, list[Tensor]]:
    """Counts of the rows of `x` (N, D) in a grid of cells, and the edges of its D dimensions."""
    n, dims = x.shape
    check_kernel("histogramdd", x.dtype, SINGLE_DOUBLE)
    if bounds is not None and len(bounds) != 2 * dims:
        raise RuntimeError(
            f"torch.histogramdd: for a {dims}-dimensional histogram range should have {2 * dims} elements, but got {len(bounds)}"
        )
    edges = []
    for k, b in enumerate(bins):
        if not isinstance(b, Tensor):
            edges.append(_edges(x.select(1, k), b, None if bounds is None else bounds[2 * k : 2 * k + 2], k, who))
            continue
        if b.ndim != 1:
            raise RuntimeError(
                "torch.histogramdd: bins tensor should have one dimension, but got "
                f"{b.ndim} dimensions in the bins tensor for dimension {k}"
            )
        if b.dtype is not x.dtype:
            raise RuntimeError(
                "torch.histogramdd: input tensor and bins tensors should have the same dtype, but got input with dtype "
                f"{CXX_NAMES[x.dtype.name]} and bins for dimension {k} with dtype {CXX_NAMES[b.dtype.name]}"
            )
        if b.numel() == 0:
            raise RuntimeError(
                "torch.histogramdd: bins tensor should have at least 1 element, but got 0 elements in the bins tensor for "
                f"dimension {k}"
            )
        if b.numel() == 1:
            raise RuntimeError(f"{who}(): bins must be > 0, but got 0 for dimension {k}")
        edges.append(b)
    sizes = [e.numel() - 1 for e in edges]
    cells = math.prod(sizes)
    place: Any = 0
    inside: Any = None
    for k, (e, m) in enumerate(zip(edges, sizes)):
        v = x.select(1, k)
        last = e.narrow(0, m, 1)
        ok = (v >= e.narrow(0, 0, 1)) & (v <= last)
        at = ops.searchsorted(e, v.contiguous(), right=True) - 1
        place = place * m + at.clamp(0, m - 1)  # what equals the last edge belongs to the last part
        inside = ok if inside is None else inside & ok
    place = ops.where(inside, place, cells)
    amount = ops.ones_like(x.select(1, 0)) if weight is None else weight.reshape(-1)
    hist = x.new_zeros((cells + 1,)).scatter_add(0, place, amount).narrow(0, 0, cells).reshape(sizes)
    if density:
        hist = hist / hist.sum()
        for k, e in enumerate(edges):
            hist = hist / e.diff().reshape([-1 if d == k else 1 for d in range(dims)])
    return hist.clone() if hist._tab_meta.numel != hist._tab_storage.node.inst.out.numel else hist, edges


def _check_weight(x: Tensor, shape: tuple[int, ...], weight: Any) -> None:
    if weight is None:
        return
    if weight.dtype is not x.dtype:
        raise RuntimeError(
            "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor should have the same dtype, but "
            f"got input({CXX_NAMES[x.dtype.name]}), and weight({CXX_NAMES[weight.dtype.name]})"
        )
    if tuple(weight.shape) != shape[:-1]:
        raise RuntimeError(
            "torch.histogramdd: if weight tensor is provided it should have the same shape as the input tensor excluding its "
            f"innermost dimension, but got input with shape {list(shape)} and weight with shape {list(weight.shape)}"
        )


@operation("histogram")
def histogram(
    input: Tensor,
    bins: Any = 100,
    *,
    range: Any = None,
    weight: Tensor | None = None,
    density: bool = False,
    out: Any = None,
) -> Any:
    """(how many elements lie in each part, edges of the parts).

    `bins`: the edges, rising, or so many equal parts of `range` (default: from the smallest element to the largest).
    `weight`: what each element counts. `density`: divided so that the integral is 1.
    """
    x = input.detach().reshape(-1, 1)
    w = None if weight is None else weight.detach()
    _check_weight(x, (x.shape[0], 1), w if w is None or w.shape != input.shape else w.reshape(-1))
    hist, edges = _histogram(x, [bins], range, w, density, "torch.histogram")
    at = edges[0].clone() if isinstance(bins, Tensor) else edges[0]
    return into_two(out, HistogramResult(hist, at), (HIST_OUT, _EDGES_OUT))


@register("histogramdd")
def histogramdd(
    input: Tensor, bins: Any, range: Any = None, weight: Tensor | None = None, density: bool = False
) -> Any:
    """The histogram of points (the last dimension of `input`) in a grid: (counts, edges of each dimension)."""
    if input.ndim < 2:
        raise RuntimeError(f"torch.histogramdd: input tensor should have at least 2 dimensions, but got {input.ndim}")
    dims = input.shape[-1]
    each = [bins] * dims if isinstance(bins, int) else list(bins)
    if len(each) != dims:
        if not isinstance(each[0] if each else 0, Tensor):
            raise RuntimeError("histogramdd: The size of bins must be equal to the innermost dimension of the input.")
        raise RuntimeError(
            f"torch.histogramdd: expected {dims} sequences of bin edges for a {dims}-dimensional histogram but got {len(each)}"
        )
    x = input.detach().reshape(-1, dims)
    w = None if weight is None else weight.detach()
    _check_weight(x, tuple(input.shape), w)
    hist, edges = _histogram(x, each, range, w, density, "torch.histogramdd")
    return HistogramddResult(hist, tuple(edges))


# ---- numerical gradients


def _spaced_evenly(x: Any, d: int, h: Any, edge_order: int) -> Tensor:
    n = x.shape[d]

    def at(k: int) -> Any:
        return x.narrow(d, k % n, 1)

    middle = (x.narrow(d, 2, n - 2) - x.narrow(d, 0, n - 2)) / h / 2
    if edge_order == 1:
        first, last = (at(1) - at(0)) / h, (at(-1) - at(-2)) / h
    else:
        first = (at(1) * 4 - at(0) * 3 - at(2)) / (h * 2)
        last = (at(-1) * 3 - at(-2) * 4 + at(-3)) / (h * 2)
    return ops.cat([first, middle, last], d)


def _at_places(x: Any, d: int, places: Any, edge_order: int) -> Tensor:
    n = x.shape[d]
    if places.shape[0] != n:
        raise RuntimeError(
            "torch.gradient expected the sizes of coordinates to match the sizes of the input, but got "
            f"{places.shape[0]} coordinates for dimension {d} of size {n}"
        )
    gaps = places.diff()
    shape = [1] * x.ndim
    shape[d] = -1

    def at(k: int) -> Any:
        return x.narrow(d, k % n, 1)

    def gap(k: int) -> Any:
        return gaps.select(0, k % (n - 1))

    a, b = gaps.narrow(0, 0, n - 2).reshape(shape), gaps.narrow(0, 1, n - 2).reshape(shape)
    middle = (
        x.narrow(d, 0, n - 2) * (-b / (a * (a + b)))
        + x.narrow(d, 1, n - 2) * ((b - a) / (a * b))
        + x.narrow(d, 2, n - 2) * (a / (b * (a + b)))
    )
    if edge_order == 1:
        first, last = (at(1) - at(0)) / gap(0), (at(-1) - at(-2)) / gap(-1)
    else:
        a, b = gap(0), gap(1)
        first = at(0) * (-(2 * a + b) / (a * (a + b))) + at(1) * ((a + b) / (a * b)) + at(2) * (-a / (b * (a + b)))
        a, b = gap(-2), gap(-1)
        last = at(-3) * (b / (a * (a + b))) + at(-2) * (-(a + b) / (a * b)) + at(-1) * ((a + 2 * b) / (b * (a + b)))
    return ops.cat([first, middle, last], d)


@register("gradient")
def gradient(input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """Estimates of the derivative along each of `dim` (default: all), by central differences.

    `spacing`: the distance of samples, a number or one for each dimension; or tensors of their coordinates.
    `edge_order`: 1 or 2, of the one-sided differences at the ends.
    """
    if dim is None:
        dims = tuple(range(input.ndim))
    else:
        dims = wrap_dims(one_or_more(dim, "gradient"), input.ndim)
    several = isinstance(spacing, (tuple, list))
    if several and len(spacing) != len(dims):
        if dim is None:
            raise RuntimeError(
                "torch.gradient expected spacing to be unspecified, a scalar, or a list of length equal to 'self.dim() = "
                f"{input.ndim}', since dim argument was not given, but got a list of length {len(spacing)}"
            )
        raise RuntimeError(
            "torch.gradient expected spacing to be unspecified, a scalar or it's spacing and dim arguments to have the same "
            f"length, but got a spacing argument of length {len(spacing)} and a dim argument of length {len(dims)}."
        )
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    if input.dtype is dtypes.uint8:
        raise RuntimeError("torch.gradient does not support uint8 input.")
    if spacing is None:
        spacing = 1
    for d in dims:
        if input.shape[d] < edge_order + 1:
            raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
    out = []
    for k, d in enumerate(dims):
        h = spacing[k] if several else spacing
        if several and isinstance(h, Tensor):
            if h.ndim != 1:
                raise RuntimeError(
                    "torch.gradient expected each element of spacing to have one dimension, but got an element with "
                    f"{h.ndim} dimensions!"
                )
            out.append(_at_places(input, d, h, edge_order))
        else:
            out.append(_spaced_evenly(input, d, h, edge_order))
    return tuple(out)
