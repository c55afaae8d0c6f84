"""`torch.utils.benchmark`: statements timed until the device has done their work. See PyTorch's recipe of that name."""

from __future__ import annotations

import dataclasses
import math
import statistics
import textwrap
import timeit
from collections.abc import Callable, Iterable
from typing import Any

import tabtorch as torch
from tabtorch import _lazy

__all__ = [
    "Colorize",
    "Compare",
    "Measurement",
    "TaskSpec",
    "Timer",
    "ordered_unique",
    "select_unit",
    "timer",
    "trim_sigfig",
    "unit_to_english",
]

_UNITS = (("ns", 1e-9, 1e-6), ("us", 1e-6, 1e-3), ("ms", 1e-3, 1.0), ("s", 1.0, 1e99))


def timer() -> float:
    """Seconds, once everything that was sent is done."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    else:
        torch.cpu.synchronize()
    return timeit.default_timer()


def select_unit(t: float) -> tuple[str, float]:
    """The unit in which `t` seconds are best read, and how long it is."""
    return next((name, size) for name, size, below in _UNITS if t < below)


def unit_to_english(u: str) -> str:
    """The unit's name."""
    return {"ns": "nanosecond", "us": "microsecond", "ms": "millisecond", "s": "second"}[u]


def trim_sigfig(x: float, n: int) -> float:
    """`x` to `n` significant figures."""
    scale = 10.0 ** (math.ceil(math.log10(abs(x))) - n)
    return round(x / scale) * scale


def ordered_unique(elements: Iterable[Any]) -> list[Any]:
    """Each once, in the order of their first occurrence."""
    return list(dict.fromkeys(elements))


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """What was timed."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The labels; without any, the statement."""
        if self.label is not None:
            return self.label + (f": {self.sub_label}" if self.sub_label else "")
        return (
            self.stmt + (f"\n{self.sub_label}" if self.sub_label else "")
            if "\n" not in self.stmt
            else (f"stmt:{f' ({self.sub_label})' if self.sub_label else ''}\n{textwrap.indent(self.stmt, '  ')}")
        )

    def setup_str(self) -> str:
        """The setup, as the summary has it."""
        if self.setup in ("", "pass"):
            return ""
        return f"setup:\n{textwrap.indent(self.setup, '  ')}" if "\n" in self.setup else f"setup: {self.setup}"

    def summarize(self) -> str:
        """Title, description and setup."""
        parts = [self.title, self.description or "", self.setup_str()]
        return "\n".join(f"{p}\n" if "\n" in p else p for p in parts if p)


@dataclasses.dataclass(repr=False)
class Measurement:
    """Times of a statement: `raw_times` in seconds, each of `number_per_run` runs."""

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        if name in TaskSpec.__dataclass_fields__:
            return getattr(self.task_spec, name)
        raise AttributeError(name)

    @property
    def times(self) -> list[float]:
        """Seconds of one run, for each time."""
        return [t / self.number_per_run for t in self.raw_times]

    def _quantile(self, q: float) -> float:
        t = sorted(self.times)
        at = q * (len(t) - 1)
        low = int(at)
        return t[low] + (t[min(low + 1, len(t) - 1)] - t[low]) * (at - low)

    @property
    def median(self) -> float:
        """Seconds."""
        return self._quantile(0.5)

    @property
    def mean(self) -> float:
        """Seconds."""
        return statistics.fmean(self.times)

    @property
    def iqr(self) -> float:
        """Seconds between the quartiles."""
        return self._quantile(0.75) - self._quantile(0.25)

    @property
    def title(self) -> str:
        """Labels, or the statement."""
        return self.task_spec.title

    @property
    def as_row_name(self) -> str:
        """What names it in a table."""
        return self.task_spec.sub_label or self.task_spec.stmt or "[Unknown]"

    @property
    def significant_figures(self) -> int:
        """Roughly how many digits of the median have a meaning: from 1 to 4."""
        n = len(self.raw_times)
        middle = sorted(self.times)[n // 4 : math.ceil(3 * n / 4)]
        error = max(1.645 * statistics.pstdev(middle) / math.sqrt(len(middle)), 25e-9)
        return min(max(math.floor(math.log10(self.median / error)), 1), 4)

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """Those of the same task as one, whose times are each of one run."""
        groups: dict[TaskSpec, list[float]] = {}
        for m in measurements:
            groups.setdefault(m.task_spec, []).extend(m.times)
        return [Measurement(1, times, task) for task, times in groups.items()]

    def meets_confidence(self, threshold: float = 0.1) -> bool:
        """Whether the quartiles lie close together, measured by the median."""
        return self.iqr / self.median < threshold

    @property
    def has_warnings(self) -> bool:
        """Whether they do not."""
        return not self.meets_confidence()

    def __repr__(self) -> str:
        n = len(self.raw_times)
        unit, size = select_unit(self.median)
        lines = [
            f"<torch.utils.benchmark.utils.common.Measurement object at {id(self):#x}>",
            self.task_spec.summarize(),
            f"  {'Median: ' if n > 1 else ''}{self.median / size:.2f} {unit}",
        ]
        if n >= 4:
            quarters = f"{self._quantile(0.25) / size:.2f} to {self._quantile(0.75) / size:.2f}"
            lines.append(f"  IQR:    {self.iqr / size:.2f} {unit} ({quarters})")
        lines.append(
            f"  {n} measurement{'s' if n > 1 else ''}, {self.number_per_run} runs {'per measurement,' if n > 1 else ','} "
            f"{self.task_spec.num_threads} thread{'s' if self.task_spec.num_threads > 1 else ''}"
        )
        if self.has_warnings:
            what = "This could indicate system fluctuation."
            if not self.meets_confidence(0.25):
                what = "This suggests significant environmental influence."
            share = self.iqr / self.median * 100
            lines.append(
                f"  WARNING: Interquartile range is {share:.1f}% of the median measurement.\n           {what}"
            )
        return "\n".join(lines)


def _plain(code: str) -> str:
    return textwrap.dedent(code).removeprefix("\n").rstrip()


class Timer:
    """Times `stmt` after `setup`, with the names of `globals`. Like `timeit.Timer`, but the device's work counts."""

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: Any = "python",
    ) -> None:
        if not isinstance(stmt, str):
            raise ValueError("Currently only a `str` stmt is supported.")
        if str(language).lower() not in ("python", "py", "language.python"):
            raise ValueError(f"Invalid language `{language}`.")
        if global_setup:
            raise ValueError(
                f"global_setup is C++ only, got `{global_setup}`. Most likely this code can simply be moved to `setup`."
            )
        stmt, setup = _plain(stmt), _plain(setup)
        names = {"torch": torch, **(globals or {})}
        self._timer = timeit.Timer(stmt, setup, timer, names)
        self._task_spec = TaskSpec(stmt, setup, global_setup, label, sub_label, description, env, num_threads)

    def _timeit(self, number: int) -> float:
        return max(self._timer.timeit(number), 1e-9)

    def timeit(self, number: int = 1000000) -> Measurement:
        """One measurement of `number` runs."""
        self._timeit(max(number // 100, 2))  # warms up
        return Measurement(number, [self._timeit(number)], self._task_spec)

    def _block(self, min_run_time: float) -> int:
        """As many runs as make the timer's own time negligible."""
        overhead = statistics.median(self._timeit(0) for _ in range(5))
        number = 1
        while number < 1 << 28:
            taken = self._timeit(number)
            if taken > min_run_time or (overhead / taken <= 1e-4 and taken >= min_run_time / 1000):
                break
            number *= 10
        return number

    def blocked_autorange(
        self, callback: Callable[[int, float], Any] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Measurements for `min_run_time` seconds, each of so many runs that the timer's own time is negligible."""
        return self._measured(min_run_time, callback, lambda times: True)

    def adaptive_autorange(
        self,
        threshold: float = 0.1,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        callback: Callable[[int, float], Any] | None = None,
    ) -> Measurement:
        """Measurements until their quartiles lie closer together than `threshold` of the median, or for `max_run_time`."""

        def enough(times: list[float]) -> bool:
            close = len(times) > 3 and Measurement(1, times, self._task_spec).meets_confidence(threshold)
            return close or sum(times) > max_run_time

        return self._measured(min_run_time, callback, enough)

    def _measured(
        self, least: float, callback: Callable[[int, float], Any] | None, enough: Callable[[list[float]], bool]
    ) -> Measurement:
        number = self._block(least)
        times: list[float] = []
        while not times or sum(times) < least or not enough(times):
            times.append(self._timeit(number))
            if callback is not None:
                callback(number, times[-1])
        return Measurement(number, times, self._task_spec)

    def repeat(self, repeat: int = -1, number: int = -1) -> None:
        """NotImplementedError, as in PyTorch."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    autorange = repeat


def __getattr__(name: str) -> Any:
    if name in ("Colorize", "Compare"):
        return getattr(_lazy.compare, name)
    raise AttributeError(f"module 'torch.utils.benchmark' has no attribute '{name}'")
