"""`tabtorch.plot`: a line chart that grows while a loop runs, at no cost to it.

What is plotted may still be on its way through the device: it is kept, and read with all that has come since, in one wait,
at most ten times a second and at the end.
"""

from __future__ import annotations

import json
import math
import time
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

from tabtorch import _lazy
from tabtorch.display import host, windows
from tabtorch.display.textual import said, text_chart

CHART = "application/vnd.tabtorch.chart+json"
POINTS = "application/vnd.tabtorch.points"

#: points of a line. Of more, every second goes, as often as it takes
MOST = 10_000
#: seconds from one drawing to the next: the page, a notebook or window, a terminal
_PAGE, _NOTEBOOK, _TERMINAL = 0.1, 0.5, 2.0


class Line:
    """One line: its points, and those that the device has not told yet."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.xs, self.ys = array("d"), array("d")
        self.waiting: list[tuple[Any, Any]] = []
        self.calls = 0
        self.stride = 1  # of the points that came, which are kept

    def add(self, x: Any, y: Any) -> None:
        """A point at its end."""
        at = self.calls
        self.calls += 1
        if at % self.stride:
            return
        self.waiting.append((at if x is None else x, y))
        if len(self.xs) + len(self.waiting) > MOST:
            first = len(self.xs) % 2
            self.xs, self.ys, self.waiting = self.xs[::2], self.ys[::2], self.waiting[first::2]
            self.stride *= 2

    def replace(self, xs: Sequence[float] | None, ys: Sequence[float]) -> None:
        """All of it."""
        if xs is not None and len(xs) != len(ys):
            raise ValueError(f"plot() takes as many x as y, not {len(xs)} and {len(ys)}")
        self.waiting.clear()
        self.calls = len(ys)
        self.stride = max(1, -(-len(ys) // MOST))
        every = slice(None, None, self.stride)
        self.xs = array("d", (range(len(ys)) if xs is None else xs)[every])
        self.ys = array("d", ys[every])

    def tell(self, numbers: dict[int, float]) -> None:
        """What the device has told: by the identity of the tensor."""
        for x, y in self.waiting:
            self.xs.append(numbers[id(x)] if host.is_tensor(x) else x)
            self.ys.append(numbers[id(y)] if host.is_tensor(y) else y)
        self.waiting.clear()


class Chart:
    """A chart and its lines."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: dict[str, Line] = {}
        self.log = False
        self.xlabel, self.ylabel = "", ""
        self.changed = False

    def line(self, name: str) -> Line:
        return self.lines.setdefault(name, Line(name))

    def bundle(self) -> dict[str, Any]:
        """For the page: what it is, and the points of each line, all x and then all y, 64 bits each."""
        lines = [{"name": n.name, "count": len(n.xs), "stride": n.stride} for n in self.lines.values()]
        about = {"name": self.name, "log": self.log, "xlabel": self.xlabel, "ylabel": self.ylabel, "lines": lines}
        points = b"".join(each.tobytes() for n in self.lines.values() for each in (n.xs, n.ys))
        return {CHART: json.dumps(about), POINTS: points, "text/plain": said(self, last=True)}


_charts: dict[str, Chart] = {}
_last = -math.inf  # when they were drawn
_generation = time.time_ns()  # a Python that is started again makes charts of its own


def plot(
    name: str, /, *xy: Any, log: bool | None = None, xlabel: str | None = None, ylabel: str | None = None, **lines: Any
) -> None:
    """Adds to a live line chart, which is made by its first point.

    - plot("loss", y): a point at the end of the line "loss" of the chart "loss", with 0, 1, 2, … for x
    - plot("loss", x, y): the same, at x
    - plot("loss", train=y1, test=y2): points of several lines of the chart "loss"
    - plot("loss", x, train=y1, test=y2): the same, at x

    name: of the chart. y: a number, or a tensor of one element: it may be on the GPU, and the loop does not wait for it.
    A 1-d tensor, or a sequence, is a whole line, and takes the place of the line that is there; so is then x.
    log: whether the y axis is logarithmic at first; the reader can switch. xlabel, ylabel: what the axes show. (A line
    cannot have one of these three names.)

    NaN and infinities leave gaps. Of a line with more than 10,000 points every second one is shown, then every fourth, and
    so on, and the legend says so. In the page, in notebooks, and in a window where the script uses matplotlib, the chart is
    drawn anew a few times a second; else a line of text tells the last values every two seconds, and the chart is drawn in
    characters at the end.

    Raises TypeError where the name is left out or no value is given, ValueError for tensors of other shapes.
    """
    if not isinstance(name, str):
        raise TypeError(f"plot() takes the chart's name first, as in plot('loss', y), not {type(name).__name__}")
    *x, y = (*xy, None) if lines else xy or (None,)
    if len(x) > 1 or (y is None and not lines):
        raise TypeError(f"plot({name!r}, y), plot({name!r}, x, y) or plot({name!r}, x, train=y) is what it takes")
    chart = _charts.setdefault(name, Chart(name))
    chart.log = chart.log if log is None else log
    chart.xlabel = chart.xlabel if xlabel is None else xlabel
    chart.ylabel = chart.ylabel if ylabel is None else ylabel
    add(name, x[0] if x else None, lines or {name: y})


def add(name: str, x: Any, lines: dict[str, Any]) -> None:
    """`plot` for lines of any name."""
    chart = _charts.setdefault(name, Chart(name))
    for line, value in lines.items():
        _add(chart.line(line), x, value)
    chart.changed = True
    host.at_end(finish)
    if time.monotonic() - _last >= _interval():
        draw()


def _add(line: Line, x: Any, y: Any) -> None:
    if _is_one(y):
        line.add(None if x is None else _kept(x), _kept(y))
    else:
        line.replace(None if x is None else _numbers(x), _numbers(y))


def _is_one(value: Any) -> bool:
    if host.is_tensor(value):
        if value.is_complex():
            raise ValueError("plot() has no place for complex values: plot their abs() or angle()")
        return bool(value.numel() == 1)
    return not isinstance(value, Iterable) or getattr(value, "ndim", 1) == 0


def _kept(value: Any) -> Any:
    """A number, or a tensor as it is now: it may be written to before it is read."""
    return value.detach().clone() if host.is_tensor(value) else float(value)


def _numbers(values: Any) -> list[float]:
    if host.is_tensor(values):
        if values.dim() != 1:
            raise ValueError(f"plot() takes one value or a 1-d line of them, not shape {tuple(values.shape)}")
        found: list[float] = values.detach().tolist()
        return found
    return [float(each) for each in values]


def _interval() -> float:
    if host.page() is not None:
        return _PAGE
    return _NOTEBOOK if host.notebook() is not None or windows.pyplot() is not None else _TERMINAL


def collect() -> None:
    """Ask the device for what it has not told, all at once."""
    waiting = [line for chart in _charts.values() for line in chart.lines.values() if line.waiting]
    tensors = [each for line in waiting for point in line.waiting for each in point if host.is_tensor(each)]
    try:
        numbers = dict(zip(map(id, tensors), _read(tensors)))
    except Exception:
        for line in waiting:
            line.waiting.clear()  # said once
        raise
    for line in waiting:
        line.tell(numbers)


def _read(tensors: list[Any]) -> list[float]:
    if not all(isinstance(each, _lazy.torch.Tensor) for each in tensors):
        return [float(each) for each in tensors]
    return [float(numbers[0]) for numbers in _lazy.to_host.tolists(tensors)] if tensors else []


def draw() -> None:
    """Bring every chart up to date."""
    global _last
    collect()
    for chart in _charts.values():
        if chart.changed:
            chart.changed = False
            _draw(chart)
    _last = time.monotonic()


def _draw(chart: Chart) -> None:
    if host.page() is not None:
        bundle = chart.bundle()
    elif host.notebook() is not None:
        bundle = {"image/svg+xml": _lazy.svg.svg_chart(chart), "text/plain": said(chart)}
    elif (plt := windows.pyplot()) is not None:
        windows.show_chart(plt, chart)
        return
    else:
        print(said(chart, last=True))
        return
    host.put(bundle, {}, f"tabtorch.plot:{_generation}:{chart.name}")


def finish() -> None:
    """The end of a script or a cell: all that came is drawn."""
    if any(chart.changed for chart in _charts.values()):
        draw()
    if host.page() is None and host.notebook() is None:
        if windows.pyplot() is None:
            print(*map(text_chart, _charts.values()), sep="\n", end="\n" if _charts else "")
        forget()


def generation() -> int:
    """Another number after each `forget`."""
    return _generation


def forget() -> None:
    """What is plotted from here on is another chart, whatever its name."""
    global _generation, _last
    _charts.clear()
    _generation += 1
    _last = -math.inf
