"""Pictures and charts in matplotlib's windows, for scripts in CPython that use matplotlib themselves."""

from __future__ import annotations

import atexit
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tabtorch.display.charts import Chart
    from tabtorch.display.images import Picture

#: backends that only write files; those named module://… belong to notebooks
_FILES = ("agg", "cairo", "module", "pdf", "pgf", "ps", "svg", "template")
_stays = False


def pyplot() -> Any:
    """matplotlib.pyplot, where the script has imported it and its figures have windows."""
    found = sys.modules.get("matplotlib.pyplot")
    return None if found is None or found.get_backend().lower().partition(":")[0] in _FILES else found


def _show(plt: Any) -> None:
    """Draw now; the windows stay when the script has come to its end."""
    global _stays
    if not _stays:
        atexit.register(plt.show)
        _stays = True
    plt.pause(0.001)


def show_picture(plt: Any, picture: Picture, title: str | None, name: str | None) -> None:
    import numpy

    axes = plt.figure(num=name, clear=True).add_subplot()
    axes.set_axis_off()
    axes.set_title(title or "")
    shape = (picture.height, picture.width, 4)
    axes.imshow(numpy.frombuffer(picture.rgba, numpy.uint8).reshape(shape), interpolation="nearest")
    _show(plt)


def show_chart(plt: Any, chart: Chart) -> None:
    axes = plt.figure(num=chart.name, clear=True).add_subplot()
    for line in chart.lines.values():
        axes.plot(line.xs, line.ys, label=line.name)
    axes.set(title=chart.name, xlabel=chart.xlabel, ylabel=chart.ylabel, yscale="log" if chart.log else "linear")
    axes.legend()
    _show(plt)
