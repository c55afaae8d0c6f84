"""Scalars as live charts of the page: a chart for each group of tags, as `tabtorch.plot` makes them."""

from __future__ import annotations

import os
from typing import Any

from tabtorch.display import charts, host

_runs: dict[str, str] = {}  # folder -> what stands behind the names of its lines
_generation: Any = None  # of the charts that they are in


def show(logdir: str, group: str, lines: dict[str, Any], step: Any) -> None:
    """Points of a chart, where somebody looks at the page. The first run's lines have plain names, others' their folder's."""
    global _generation
    if host.page() is None:
        return
    if _generation != charts.generation():
        _runs.clear()
        _generation = charts.generation()
    run = _runs.setdefault(logdir, f" ({os.path.basename(os.path.normpath(logdir))})" if _runs else "")
    charts.add(group, step, {name + run: value for name, value in lines.items()})


def scalar(logdir: str, tag: str, value: Any, step: Any) -> None:
    """A point: the tag "loss/train" is the line "train" of the chart "loss"; "loss" is the line "loss" of it."""
    group, slash, name = tag.partition("/")
    show(logdir, group or tag, {name if slash and name else tag: value}, step)
