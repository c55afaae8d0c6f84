"""`torch.cuda.nvtx`: ranges of NVIDIA's tools, kept here as ranges of `torch.profiler`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tabtorch import _lazy

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]

_stack: list[Any] = []
_open: dict[int, Any] = {}
_count = 0


def range_push(msg: str) -> int:
    """Opens a range; gives its depth."""
    _stack.append(_lazy.profiler.record_function(str(msg)))
    _stack[-1].__enter__()
    return len(_stack) - 1


def range_pop() -> int:
    """Closes the last range that was pushed; gives its depth, -1 if there is none."""
    if not _stack:
        return -1
    _stack.pop().__exit__(None, None, None)
    return len(_stack)


def range_start(msg: str) -> int:
    """Opens a range that may end anywhere; gives its number."""
    global _count
    _count += 1
    _open[_count] = _lazy.profiler.record_function(str(msg))
    _open[_count].__enter__()
    return _count


def range_end(range_id: int) -> None:
    """Closes the range of that number."""
    _open.pop(range_id).__exit__(None, None, None)


def mark(msg: str) -> None:
    """A range without length."""
    range_push(msg)
    range_pop()


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A range as a with block or decorator; `msg` is formatted with the arguments."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
