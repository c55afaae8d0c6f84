"""NumPy's histograms, of lists."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from tabtorch.utils.tensorboard._wire import Message

#: bins that are found by a rule: with values far from the others there may be more than memory holds
_MOST = 1 << 22


def default_bins() -> list[float]:
    """TensorFlow's limits: 1e-12 times powers of 1.1 up to 1e20, their negatives, and 0."""
    found = []
    value = 1e-12
    while value < 1e20:
        found.append(value)
        value *= 1.1
    return [-each for each in reversed(found)] + [0.0] + found


def _percentile(ordered: list[float], part: float) -> float:
    """Linear between neighbours, as np.percentile."""
    at = part * (len(ordered) - 1)
    low = math.floor(at)
    high, weight = min(low + 1, len(ordered) - 1), at - low
    difference = ordered[high] - ordered[low]
    if weight >= 0.5:
        return ordered[high] - difference * (1 - weight)
    return ordered[low] + difference * weight


def _width(rule: str, ordered: list[float]) -> float:
    """Of a bin, by NumPy's rule of that name. ValueError for names that are none."""
    n, span = len(ordered), ordered[-1] - ordered[0]
    sturges, root = span / (math.log2(n) + 1), span / math.sqrt(n)
    if rule in ("sturges", "sqrt", "rice"):
        return {"sturges": sturges, "sqrt": root, "rice": span / (2 * n ** (1 / 3))}[rule]
    if rule == "stone":
        raise NotImplementedError(
            "add_histogram has NumPy's rules but 'stone': choose another, or give the limits of the bins"
        )
    if rule in ("fd", "auto"):
        fd = 2 * (_percentile(ordered, 0.75) - _percentile(ordered, 0.25)) * n ** (-1 / 3)
        return fd if rule == "fd" else min(max(fd, root / 2), sturges)
    mean = math.fsum(ordered) / n
    deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in ordered) / n)
    if rule == "scott":
        return (24 * math.pi**0.5 / n) ** (1 / 3) * deviation
    if rule == "doane":
        if n <= 2 or not deviation:
            return 0.0
        skew = math.fsum(((x - mean) / deviation) ** 3 for x in ordered) / n
        return span / (1 + math.log2(n) + math.log2(1 + abs(skew) / math.sqrt(6 * (n - 2) / ((n + 1) * (n + 3)))))
    raise ValueError(f"{rule!r} is not a valid estimator for `bins`")


def _edges(ordered: list[float], bins: int | str) -> list[float]:
    low, high = ordered[0], ordered[-1]
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"autodetected range of [{low}, {high}] is not finite")
    if isinstance(bins, str):
        width = _width(bins, ordered)
        bins = math.ceil((high - low) / width) if width else 1
    if bins < 1:
        raise ValueError("`bins` must be positive, when an integer")
    if bins > _MOST:
        raise ValueError(f"Maximum allowed size exceeded: {bins} bins")
    if low == high:
        low, high = low - 0.5, high + 0.5
    step = (high - low) / bins
    return [at * step + low for at in range(bins)] + [high]


def histogram(
    values: list[float], bins: int | str | Sequence[float], max_bins: int | None = None
) -> tuple[list[int], list[float]]:
    """(counts, limits), as np.histogram has them; of more than `max_bins` several become one.

    bins: how many, one of NumPy's rules but 'stone', or all limits, ascending. ValueError for other bins, and where bins are to be
    found for values that are not finite.
    """
    ordered = sorted(x for x in values if x == x)  # NaN is in no bin
    if isinstance(bins, (int, str)):
        if len(ordered) < len(values):
            raise ValueError("autodetected range of [nan, nan] is not finite")
        limits = _edges(ordered, bins)
    else:
        limits = [float(each) for each in bins]
        if any(a > b for a, b in zip(limits, limits[1:])):
            raise ValueError("`bins` must increase monotonically, when an array")
    places = [bisect_left(ordered, each) for each in limits[:-1]] + [bisect_right(ordered, limits[-1])]
    counts = [b - a for a, b in zip(places, places[1:])]
    if max_bins is not None and len(counts) > max_bins:
        every = len(counts) // max_bins
        limits = [*limits[:-1:every], limits[-1]]
        counts = [sum(counts[at : at + every]) for at in range(0, len(counts), every)]
    return counts, limits


def make_histogram(values: list[float], bins: Any, max_bins: int | None = None) -> Message:
    """The message, of the bins from the first to the last that has a value, and an empty one before. ValueError for no values."""
    if not values:
        raise ValueError("The input has no element.")
    counts, limits = histogram(values, bins, max_bins)
    filled = [at for at, count in enumerate(counts) if count]
    # where no value is in a bin, PyTorch writes the first
    start, end = (filled[0], filled[-1] + 1) if filled else (len(counts), 1)
    counts = counts[start - 1 : end] if start else [0, *counts[:end]]
    limits = limits[start : end + 1]
    if not counts or not limits:
        raise ValueError("The histogram is empty, please file a bug report.")
    odd = any(x != x for x in values)
    return Message(
        "HistogramProto",
        min=math.nan if odd else min(values),
        max=math.nan if odd else max(values),
        num=len(values),
        sum=_sum(values),
        sum_squares=_sum([x * x for x in values]),
        bucket_limit=limits,
        bucket=counts,
    )


def _sum(values: list[float]) -> float:
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # infinities of both signs
        return sum(values)
