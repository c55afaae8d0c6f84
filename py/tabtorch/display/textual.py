"""Charts in words and in characters, for terminals and for those who cannot see them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tabtorch.display.charts import Chart

_MARKS = "•×+o#*"
WIDTH, HEIGHT = 64, 14


def said(chart: Chart, last: bool = False) -> str:
    """What the chart shows; `last`: only where its lines have come to."""
    parts = []
    for line in chart.lines.values():
        if not line.xs:
            continue
        finite = [y for y in line.ys if math.isfinite(y)]
        words = f"{line.ys[-1]:.4g} at {line.xs[-1]:g}"
        words = words if line.name == chart.name else f"{line.name} {words}"
        if not last:
            span = f", from {min(finite):.4g} to {max(finite):.4g}" if finite else ""
            words += f", {len(line.xs)} points{span}"
            words += f", {len(line.ys) - len(finite)} not finite" if len(finite) < len(line.ys) else ""
        parts.append(words)
    joined = (", " if last else "; ").join(parts)
    return f"{chart.name}: {joined}"


def bounds(values: list[array[float]], scale: Callable[[float], float]) -> tuple[float, float]:
    """The least and the greatest finite value of all, after `scale`; not the same."""
    finite = [each for some in values for each in map(scale, some) if math.isfinite(each)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def scale_of(chart: Chart) -> Callable[[float], float]:
    """Of the y axis: as it is, or the logarithm, which only what is above 0 has."""
    return (lambda y: math.log10(y) if y > 0 else math.nan) if chart.log else (lambda y: y)


def text_chart(chart: Chart) -> str:
    """The chart in characters, with a legend below."""
    lines = list(chart.lines.values())
    scale = scale_of(chart)
    left, right = bounds([line.xs for line in lines], float)
    low, high = bounds([line.ys for line in lines], scale)
    cells = [[" "] * WIDTH for _ in range(HEIGHT)]
    for k, line in enumerate(lines):
        for x, y in zip(line.xs, map(scale, line.ys)):
            if math.isfinite(x) and math.isfinite(y):
                row = round((high - y) / (high - low) * (HEIGHT - 1))
                cells[row][round((x - left) / (right - left) * (WIDTH - 1))] = _MARKS[k % len(_MARKS)]
    back = (lambda v: 10**v) if chart.log else (lambda v: v)
    labels = {0: f"{back(high):.4g}", HEIGHT - 1: f"{back(low):.4g}"}
    rows = [f"{labels.get(k, ''):>10} │{''.join(row)}" for k, row in enumerate(cells)]
    foot = f"{'':10} └{'─' * WIDTH}\n{'':12}{left:<{WIDTH // 2}g}{right:>{WIDTH - WIDTH // 2}g}"
    legend = "  ".join(
        f"{_MARKS[k % len(_MARKS)]} {line.name}" + (f" (every {line.stride}th point)" if line.stride > 1 else "")
        for k, line in enumerate(lines)
    )
    return "\n".join([chart.name, *rows, foot, f"{'':12}{legend}"])
