"""A chart as an SVG image, for notebooks. https://www.w3.org/TR/SVG2/"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING

from tabtorch.display.textual import bounds, said, scale_of

if TYPE_CHECKING:
    from tabtorch.display.charts import Chart

#: distinct to those who see colours otherwise as well: https://jfly.uni-koeln.de/color/
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 560, 300, 64, 44, 34


def ticks(low: float, high: float) -> Iterable[float]:
    """Some five round numbers between the two."""
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def svg_chart(chart: Chart) -> str:
    lines = list(chart.lines.values())
    scale = scale_of(chart)
    left, right = bounds([line.xs for line in lines], float)
    low, high = bounds([line.ys for line in lines], scale)

    def across(x: float) -> float:
        return LEFT + (x - left) / (right - left) * (WIDTH - LEFT - 12)

    def down(y: float) -> float:
        return TOP + (high - y) / (high - low) * (HEIGHT - TOP - BOTTOM)

    def text(x: float, y: float, words: str, anchor: str, fill: str = "#444") -> str:
        return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}">{html.escape(words)}</text>'

    parts = [text(LEFT, 16, chart.ylabel or chart.name, "start", "#000")]
    for v in ticks(low, high):
        parts.append(f'<path d="M{LEFT} {down(v):.1f}H{WIDTH - 12}" stroke="#ddd"/>')
        parts.append(text(LEFT - 6, down(v) + 4, f"{10**v if chart.log else v:.4g}", "end"))
    for v in ticks(left, right):
        parts.append(text(across(v), HEIGHT - BOTTOM + 18, f"{v:.6g}", "middle"))
    parts.append(text((LEFT + WIDTH) / 2, HEIGHT - 8, chart.xlabel, "middle"))
    for k, line in enumerate(lines):
        colour = COLOURS[k % len(COLOURS)]
        points = zip(line.xs, map(scale, line.ys))
        for finite, some in groupby(points, lambda point: math.isfinite(point[1])):
            if finite:
                path = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in some)
                parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        stride = f" (every {line.stride}th)" if line.stride > 1 else ""
        parts.append(text(WIDTH - 12, TOP + 14 + 16 * k, line.name + stride, "end", colour))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'role="img" aria-label="{html.escape(said(chart))}" font-family="sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>'
    )
