"""The modes of a thread that see operators."""

from __future__ import annotations

import threading
from typing import Any

from tabtorch.interception.torch_function import STATE


class _Stack(threading.local):
    def __init__(self) -> None:
        self.modes: list[Any] = []  # innermost last
        self.inside = 0  # how many modes handle an operator


STACK = _Stack()


class Quiet:
    """Nothing is met within it."""

    def __enter__(self) -> None:
        self.before, STATE.off = STATE.off, 2
        self.modes, STACK.modes = STACK.modes, []

    def __exit__(self, *exc: Any) -> None:
        STATE.off = self.before
        STACK.modes = self.modes
