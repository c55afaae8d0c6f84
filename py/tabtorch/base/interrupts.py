"""Ctrl+C, and a page's Stop, while operations are on their way to the device. What is half sent would be lost, so it waits.

The functions are those of `signal` without its enums, which cost more than all the rest here.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import sys
import threading
from types import FrameType
from typing import Any

_MAIN = threading.main_thread().ident
_late = False


def _note(number: int, frame: FrameType | None) -> None:
    global _late
    _late = True


def hold() -> Any:
    """From now on an interrupt waits. For `release`: whoever else handles it; None in other threads, which meet none, and where it
    waits already."""
    if threading.get_ident() != _MAIN:
        return None
    handler = _signal.getsignal(_signal.SIGINT)
    if handler is _note or handler is None or type(handler) is int:  # an int: it ends the process, or does nothing
        return None
    _signal.signal(_signal.SIGINT, _note)
    return handler


def release(handler: Any) -> None:
    """One that has come meanwhile is handled now."""
    global _late
    if handler is None:
        return
    _signal.signal(_signal.SIGINT, handler)
    if _late:
        _late = False
        handler(_signal.SIGINT, sys._getframe())
