"""`torch.utils.benchmark.Compare`: measurements side by side in a table."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence
from typing import Any

from tabtorch.utils.benchmark import Measurement, select_unit, trim_sigfig, unit_to_english

__all__ = ["Colorize", "Compare"]

_BOLD, _END = "\033[1m", "\033[0m"


class Colorize(enum.Enum):
    """Among which times the best is sought, whose colour then is green."""

    NONE = "none"
    COLUMNWISE = "columnwise"
    ROWWISE = "rowwise"


def _coloured(text: str, value: float, best: float) -> str:
    if value <= best * 1.01 or value <= best + 100e-9:
        return "\033[92m" + _BOLD + text + _END * 2
    if value <= best * 1.1:
        return "\033[34m" + _BOLD + text + _END * 2
    if value >= best * 5:
        return "\033[31m" + _BOLD + text + _END * 2
    return "\033[2m\033[91m" + text + _END * 2 if value >= best * 2 else text


Cell = Measurement | None


class _Table:
    """Those of one label: a row for each statement, environment and number of threads, a column for each description."""

    def __init__(self, results: list[Measurement], colorize: Colorize, trim: bool, warn: bool) -> None:
        self.results, self.colorize, self.trim, self.warn = results, colorize, trim, warn
        self.unit, self.scale = select_unit(min(r.median for r in results))
        self.keys = sorted(
            dict.fromkeys(map(self._row, results)), key=lambda k: k[:2]
        )  # statements stay in their order
        self.names = list(dict.fromkeys(r.description for r in results))
        cells = {(self._row(r), r.description): r for r in results}
        self.rows: list[list[Cell]] = [[cells.get((k, n)) for n in self.names] for k in self.keys]

    @staticmethod
    def _row(m: Measurement) -> tuple[int, str, str]:
        return m.num_threads, m.env or "Unspecified env", m.as_row_name

    def _written(self, column: Sequence[Cell]) -> list[str]:
        there = [m for m in column if m is not None]
        digits = [math.ceil(math.log10(m.median / self.scale)) for m in there]
        places = 1
        if self.trim:
            places = min(max(m.significant_figures - d, 0) for m, d in zip(there, digits, strict=True))
        width = max(digits) + places + bool(places)
        warn = self.warn and any(m.has_warnings for m in there)

        def text(value: float, note: str = "") -> str:
            return f"{value:>{width}.{places}f}{note:>{7 if warn else 0}}"

        found = []
        for m in column:
            if m is None:
                found.append(" " * len(text(1)))
                continue
            value = m.median / self.scale
            note = f" (! {m.iqr / m.median * 100:.0f}%)" if warn and m.has_warnings else ""
            found.append(text(trim_sigfig(value, m.significant_figures) if self.trim else value, note))
        return found

    def _best(self, i: int, j: int) -> float:
        """The shortest time beside cell (i, j): in its row, or in its column among those of as many threads."""
        rows = [i] if self.colorize is Colorize.ROWWISE else range(len(self.rows))
        columns = [j] if self.colorize is Colorize.COLUMNWISE else range(len(self.names))
        there = [self.rows[r][c] for r in rows if self.keys[r][0] == self.keys[i][0] for c in columns]
        return min(m.median for m in there if m is not None)

    def render(self) -> str:
        environments = {k[1] for k in self.keys}
        room = max(map(len, environments)) if len(environments) > 1 else 0
        left, before = [], (-1, "")
        for threads, env, name in self.keys:
            shown = f"({env})" if room and (threads, env) != before else ""
            left.append("  " + shown.ljust(room + 4) + name)
            before = threads, env
        columns = [self._written([row[j] for row in self.rows]) for j in range(len(self.names))]
        table = [["", *(n or "" for n in self.names)], *([a, *b] for a, b in zip(left, zip(*columns), strict=True))]
        widths = [max(map(len, c)) for c in zip(*table, strict=True)]
        lines = ["  |  ".join(t.center(w) for t, w in zip(table[0], widths, strict=True))]
        width, threads = len(lines[0]), -1
        for i, (first, *cells) in enumerate(table[1:]):
            if self.keys[i][0] != threads:
                threads = self.keys[i][0]
                lines.append(f"{threads} threads: ".ljust(width, "-"))
            parts = [first.ljust(widths[0])]
            for j, (cell, w) in enumerate(zip(cells, widths[1:], strict=True)):
                text, m = cell.center(w), self.rows[i][j]
                if m is not None and self.colorize is not Colorize.NONE:
                    text = _coloured(text, m.median, self._best(i, j))
                parts.append(text)
            lines.append("  |  ".join(parts))
        title = f" {self.results[0].label or ''} ".center(width - 2, "-")
        note = ""
        if self.warn and any(r.has_warnings for r in self.results):
            note = "(! XX%) Measurement has high variance, where XX is the IQR / median * 100.\n"
        body = "\n".join(lines)
        return f"[{title}]\n{body}\n\nTimes are in {unit_to_english(self.unit)}s ({self.unit}).\n{note}"


class Compare:
    """A table of measurements; `label` names a table, `sub_label` a row, `description` a column. ValueError for others."""

    def __init__(self, results: Iterable[Measurement]) -> None:
        self._results: list[Measurement] = []
        self.extend_results(results)
        self._trim = self._warn = False
        self._colorize = Colorize.NONE

    def extend_results(self, results: Iterable[Any]) -> None:
        """Adds measurements."""
        for r in results:
            if not isinstance(r, Measurement):
                raise ValueError(f"Expected an instance of `Measurement`, got {type(r)} instead.")
            self._results.append(r)

    def trim_significant_figures(self) -> None:
        """Shows no more digits than the spread of the times leaves meaning."""
        self._trim = True

    def colorize(self, rowwise: bool = False) -> None:
        """Colours times by how far they are from the best of their column, or row."""
        self._colorize = Colorize.ROWWISE if rowwise else Colorize.COLUMNWISE

    def highlight_warnings(self) -> None:
        """Marks times that vary much."""
        self._warn = True

    def __str__(self) -> str:
        labels: dict[str | None, list[Measurement]] = {}
        for r in Measurement.merge(self._results):
            labels.setdefault(r.label, []).append(r)
        return "\n".join(_Table(g, self._colorize, self._trim, self._warn).render() for g in labels.values())

    def print(self) -> None:
        """Prints the table."""
        print(str(self))
