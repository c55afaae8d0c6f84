"""What the engine makes of a program: `tabtorch.explain(f, *args)`, and `TABTORCH_DEBUG=schedule`.

A window (the operations that are sent together) is dealt to groups, and each group becomes a kernel, or a few. Shown are the
groups with their operations, the bytes that each reads and writes, and, where one reads what another writes, what kept the two
from being one kernel (`engine.fuse.Graph.apart`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any, NamedTuple

from tabtorch import _lazy
from tabtorch.base.device import BACKENDS
from tabtorch.engine import graph, plan
from tabtorch.engine.steps import Launch

__all__ = ["Explanation", "Group", "Window", "explain"]

#: operations of a group that are listed by name, and reasons of a group that are shown
_MOST_NAMES, _MOST_REASONS = 8, 4


class Group(NamedTuple):
    """Operations that are computed together. `kind`: "map" (a thread an element), "row" (reductions), "contract" (products of
    matrices), "write" (a part of a tensor) or "custom" (an algorithm of its own). `rows`, `length`: a row kernel has `rows`
    rows of `length` elements. `read`, `written`: bytes. `apart`: (number of a group that it reads, why they are two)."""

    kind: str
    operations: tuple[str, ...]
    rows: int
    length: int
    read: int
    written: int
    apart: tuple[tuple[int, str], ...]


class Window:
    """Operations that were sent together, on one device."""

    def __init__(self, device: str, groups: list[Group], steps: list[Any]) -> None:
        self.device = device
        self.groups = groups
        self._steps = steps  # of the plan, which is not finished yet when its groups are known

    @property
    def dispatches(self) -> int:
        """Kernels that run: a group may need several, and small groups may share one."""
        return sum(type(step) is Launch for step in self._steps)

    @property
    def operations(self) -> int:
        """Operations that are computed. What nobody wants is not."""
        return sum(len(group.operations) for group in self.groups)

    def __str__(self) -> str:
        head = ("#", "kind", "points", "read", "written", "operations")
        rows = [head, *(_cells(n, group) for n, group in enumerate(self.groups, 1))]
        width = [max(len(row[k]) for row in rows) for k in range(len(head) - 1)]
        left = {1, 5}  # columns of words; the others are numbers
        lines = []
        for n, row in enumerate(rows):
            cells = [c if k == 5 else c.ljust(width[k]) if k in left else c.rjust(width[k]) for k, c in enumerate(row)]
            lines.append("  ".join(cells).rstrip())
            if n:
                reasons = self.groups[n - 1].apart
                lines += [f"{'':{width[0]}}  apart from {m}: {words}" for m, words in reasons[:_MOST_REASONS]]
        counts = (
            (self.operations, "operation", "s"),
            (len(self.groups), "group", "s"),
            (self.dispatches, "dispatch", "es"),
        )
        title = ", ".join(f"{n} {word}{'' if n == 1 else more}" for n, word, more in counts)
        return "\n".join([f"{title} on {self.device}", *lines])


class Explanation:
    """What a call came to: its windows, in the order in which they were sent. `print` it."""

    def __init__(self, windows: list[Window]) -> None:
        self.windows = windows

    @property
    def dispatches(self) -> int:
        """Kernels that run in all."""
        return sum(window.dispatches for window in self.windows)

    @property
    def bytes_moved(self) -> int:
        """Bytes that all kernels read and write."""
        return sum(group.read + group.written for window in self.windows for group in window.groups)

    def __str__(self) -> str:
        if not self.windows:
            return "nothing was sent to a device"
        return "\n\n".join([*map(str, self.windows), f"{_bytes(self.bytes_moved)} moved in all"])

    __repr__ = __str__


def explain(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Calls `function` once, and says what kernels that came to, why these are not fewer, and what they move.

    A compiled function is taken as `torch.compile` records it: as one window, unless something in it wants a value. What the
    function returns is computed, and dropped. Its errors are raised.
    """
    graph.flush()
    with graph.LOCK, _watching() as windows:  # other threads wait: what they send is none of the function's
        if hasattr(function, "_torchdynamo_orig_callable"):
            _lazy.explain.explain(function, args, kwargs)
        else:
            result = function(*args, **kwargs)
            graph.flush()  # while the result is held: what nobody holds is never computed
            del result
    return Explanation(windows)


def print_all() -> None:
    """From now on each new window is printed to standard error when it is scheduled: `TABTORCH_DEBUG=schedule`."""
    _watch(lambda window: print(f"[schedule] {window}", file=sys.stderr))


@contextmanager
def _watching() -> Iterator[list[Window]]:
    """The windows that are scheduled meanwhile. What was scheduled before is so again: a kept plan says nothing of itself."""
    forget()
    windows: list[Window] = []
    restore = _watch(windows.append)
    try:
        yield windows
    finally:
        restore()
        forget()  # what looked on asked more of the sizes than a schedule does by itself


def forget() -> None:
    """No plan is kept, and no schedule. Kernels stay."""
    for each in graph._plans.values():
        each.forget()
    graph._plans.clear()
    schedules: Any = sys.modules.get("tabtorch.engine.schedules")
    if schedules is not None:
        schedules.forget()


def _watch(tell: Callable[[Window], None]) -> Callable[[], None]:
    """Has `tell` told of each window that is scheduled, until what this returns is called."""
    engine: Any = plan  # its schedules are made by whatever class bears this name
    builder: Any = engine.Builder

    class Watched(builder):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.seen = _window(self)

        def _finish(self) -> Any:
            made = super()._finish()
            tell(self.seen)
            return made

    engine.Builder = Watched

    def restore() -> None:
        engine.Builder = builder

    return restore


def _window(builder: Any) -> Window:
    dealer = builder.graph
    order = [group for group in builder.order if group.nodes]
    place = {group.index: n for n, group in enumerate(order, 1)}
    groups = []
    for group in order:
        reasons = [(place[source.index], words) for source, words in apart(builder, group)]
        again = dealer.deep(group.nodes)  # with the cheap operations that other groups compute for themselves as well
        groups.append(
            Group(
                group.kind,
                tuple(builder.nodes[p].inst.op.name for p in sorted(again)),
                number(group.O),
                number(group.K),
                _read(builder, group),
                sum(nbytes(builder.nodes[p].inst.out) for p in group.nodes if p in builder.stored),
                tuple(sorted(reasons)),
            )
        )
    return Window(BACKENDS[builder.target.number].name, groups, builder.steps)


def apart(builder: Any, group: Any) -> list[tuple[Any, str]]:
    """The groups whose values this one reads, each with what keeps the two from being one, where that is known."""
    dealer = builder.graph
    sources = {id(dealer.of[q]): dealer.of[q] for p in group.nodes for q in dealer.deps[p] if dealer.of[q] is not group}
    reasons = [(source, dealer.apart(source, group)) for source in sources.values()]
    return [(source, words) for source, words in reasons if words]


def reads(builder: Any, group: Any) -> Iterator[tuple[Any, int]]:
    """The views through which a group reads memory: the node that lies there, and the bytes that a view covers."""
    dealer = builder.graph
    for p in dealer.deep(group.nodes):
        node = builder.nodes[p]
        for source, view in zip(node.srcs, node.inst.ins, strict=True):
            inside = source.buf is None and (source.pos in dealer.virtual or dealer.of.get(source.pos) is group)
            if not inside:
                covered = prod(number(n) for n, s in zip(view.shape, view.strides, strict=True) if number(s))
                yield source, covered * view.dtype.itemsize


def _read(builder: Any, group: Any) -> int:
    """Bytes that a group reads; no more of a buffer than there is."""
    seen: dict[Any, list[int]] = {}
    for source, covered in reads(builder, group):
        whole = source.inst.out  # of an input a schedule may know the type alone
        there = nbytes(whole) if hasattr(whole, "shape") else sys.maxsize
        seen.setdefault(builder.key_of(source), [0, there])[0] += covered
    return sum(min(covered, there) for covered, there in seen.values())


def number(size: Any) -> int:
    """A size as a number; while a schedule is made for all sizes, it is a symbol that has one as its value."""
    return int(getattr(size, "value", size))


def nbytes(meta: Any) -> int:
    return prod(number(n) for n in meta.shape) * int(meta.dtype.itemsize)


def _cells(n: int, group: Group) -> tuple[str, ...]:
    points = f"{group.rows:,}" if group.kind not in ("row", "contract") else f"{group.rows:,} × {group.length:,}"
    names = list(group.operations)
    if len(names) > _MOST_NAMES:
        names = [*names[: _MOST_NAMES - 1], f"{len(names) - _MOST_NAMES + 1} more"]
    return str(n), group.kind, points, _bytes(group.read), _bytes(group.written), " + ".join(names)


def _bytes(n: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return f"{n} B"


if "schedule" in os.environ.get("TABTORCH_DEBUG", "").split(","):
    print_all()
