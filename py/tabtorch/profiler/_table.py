"""Events added up by name, and the table of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tabtorch.profiler._record import FunctionEvent


class FunctionEventAvg:
    """All events of one name: calls, dispatches, times in µs, memory in bytes."""

    def __init__(self, e: FunctionEvent) -> None:
        self.key = e.key
        self.is_kernel = e.is_kernel
        self.input_shapes: Any = ""
        self.stack: list[str] = []
        self.is_user_annotation = e.is_user_annotation
        self.count = self.dispatches = 0
        self.cpu_time_total = self.self_cpu_time_total = 0.0
        self.device_time_total = self.self_device_time_total = 0.0
        self.cpu_memory_usage = self.self_cpu_memory_usage = 0

    def add(self, e: FunctionEvent) -> None:
        """Counts one more."""
        self.count += 1
        self.dispatches += e.dispatches
        self.self_cpu_time_total += e.self_cpu_time_total
        self.self_device_time_total += e.self_device_time_total
        self.self_cpu_memory_usage += e.self_memory
        parent = e.cpu_parent
        while parent is not None and parent.key != self.key:
            parent = parent.cpu_parent
        if parent is None:  # else what it took is in there already
            self.cpu_time_total += e.cpu_time_total
            self.device_time_total += e.device_time_total
            self.cpu_memory_usage += e.memory

    @property
    def cpu_time(self) -> float:
        """µs of one call."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def device_time(self) -> float:
        """µs of one dispatch on the device."""
        return self.device_time_total / self.count if self.count else 0.0

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={_time(self.self_cpu_time_total)} cpu_time={_time(self.cpu_time)} "
            f"count={self.count} dispatches={self.dispatches} input_shapes={self.input_shapes}>"
        )


def _time(us: float) -> str:
    if us >= 1e6:
        return f"{us / 1e6:.3f}s"
    return f"{us / 1e3:.3f}ms" if us >= 1e3 else f"{us:.3f}us"


def _memory(n: int) -> str:
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(n) >= size:
            return f"{n / size:.2f} {unit}"
    return f"{n} B"


class EventList(list[Any]):
    """Events in order, or their averages."""

    def __init__(self, items: Iterable[Any] = (), memory: bool = False) -> None:
        super().__init__(items)
        self.has_memory = memory

    @property
    def self_cpu_time_total(self) -> float:
        """µs of all, none counted twice."""
        return float(sum(e.self_cpu_time_total for e in self))

    def key_averages(
        self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """One line for each name; for each name and shapes of the inputs, or the innermost frames, if so asked."""
        found: dict[Any, FunctionEventAvg] = {}
        for e in self:
            shapes = str(e.input_shapes) if group_by_input_shapes else ""
            stack = tuple(e.stack[:group_by_stack_n])
            key = (e.key, e.is_kernel, shapes, stack)
            if key not in found:
                a = found[key] = FunctionEventAvg(e)
                a.input_shapes, a.stack = shapes, list(stack)
            found[key].add(e)
        names = [(a, a.key.removeprefix("aten::")) for a in found.values() if not a.is_kernel]
        for k in [
            a for a in found.values() if a.is_kernel
        ]:  # an operation took part in the kernels that are named after it
            parts = set(k.key.split("+"))
            for a, name in names:
                if name in parts:
                    a.dispatches += k.dispatches
        return EventList(found.values(), self.has_memory)

    def total_average(self) -> FunctionEventAvg:
        """All in one line."""
        total = FunctionEventAvg(FunctionEvent(0, "Total", 0.0))
        for e in self:
            total.add(e)
        return total

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """The lines as text, the largest `sort_by` first: "cpu_time_total", "self_cpu_time_total", "count", "dispatches", ….

        AttributeError for a `sort_by` that is no figure.
        """
        rows: list[Any] = list(self)
        if not rows:
            return ""
        if sort_by is not None:
            figure = sort_by.replace("cuda", "device").replace("xpu", "device")
            rows.sort(key=lambda e: getattr(e, figure), reverse=True)
        if top_level_events_only:
            rows = [e for e in rows if getattr(e, "cpu_parent", None) is None]
        total = self.self_cpu_time_total or 1.0
        gpu = sum(e.self_device_time_total for e in self)
        columns: list[tuple[str, Any]] = [
            (
                "Name",
                lambda e: e.key if len(e.key) <= max_name_column_width else e.key[: max_name_column_width - 3] + "...",
            ),
            ("Self CPU %", lambda e: f"{100 * e.self_cpu_time_total / total:.2f}%"),
            ("Self CPU", lambda e: _time(e.self_cpu_time_total)),
            ("CPU total %", lambda e: f"{100 * e.cpu_time_total / total:.2f}%"),
            ("CPU total", lambda e: _time(e.cpu_time_total)),
            ("CPU time avg", lambda e: _time(e.cpu_time)),
        ]
        if gpu:
            columns += [
                ("GPU total", lambda e: _time(e.device_time_total)),
                ("GPU time avg", lambda e: _time(e.device_time)),
            ]
        if self.has_memory and isinstance(rows[0], FunctionEventAvg):
            columns += [
                ("Mem", lambda e: _memory(e.cpu_memory_usage)),
                ("Self Mem", lambda e: _memory(e.self_cpu_memory_usage)),
            ]
        columns += [("# of Calls", lambda e: str(e.count)), ("# of Dispatches", lambda e: str(e.dispatches))]
        if any(e.input_shapes for e in rows):
            columns.append(("Input Shapes", lambda e: str(e.input_shapes)[:max_shapes_column_width]))
        if any(e.stack for e in rows):
            columns.append(("Source Location", lambda e: (e.stack[0] if e.stack else "")[-max_src_column_width:]))
        cells = [[f(e) for _, f in columns] for e in rows[: row_limit if row_limit >= 0 else None]]
        widths = [max(12, len(title), *(len(c[k]) for c in cells)) for k, (title, _) in enumerate(columns)]
        rule = "  ".join("-" * w for w in widths) + "  "
        lines = [rule, "  ".join(f"{t:>{w}}" for (t, _), w in zip(columns, widths)) + "  ", rule]
        if header is not None:
            lines.insert(0, header)
        lines += ["  ".join(f"{c:>{w}}" for c, w in zip(line, widths)) + "  " for line in cells]
        lines += [rule, f"Self CPU time total: {_time(total)}"]
        if gpu:
            lines.append(f"Self GPU time total: {_time(gpu)}")
        return "\n".join(lines) + "\n"

    def export_chrome_trace(self, path: Any) -> None:
        """A JSON file for chrome://tracing and Perfetto."""
        trace = [
            {
                "ph": "X",
                "cat": "kernel" if e.is_kernel else "user_annotation" if e.is_user_annotation else "cpu_op",
                "name": e.name,
                "pid": 0,
                "tid": e.scope if e.is_kernel else "python",
                "ts": e.start,
                "dur": e.device_time_total if e.is_kernel else e.cpu_time_total,
                "args": {"External id": e.id, "Input Dims": e.input_shapes},
            }
            for e in self
        ]
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"schemaVersion": 1, "traceEvents": trace, "displayTimeUnit": "ms"}, f)
