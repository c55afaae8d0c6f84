"""What `tabtorch run` is doing, while the script prints nothing: one line of a terminal, replaced in place."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TextIO

__all__ = ["Status"]


class Status:
    """Says things on standard error where that is a terminal; elsewhere only if `verbose`, a line each."""

    def __init__(self, verbose: bool = False, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self.in_place = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self.lines = verbose and not self.in_place
        self._said = ""
        self._within = False  # a line of the script's, which is not to be overwritten

    def say(self, text: str) -> None:
        if text == self._said or (self.in_place and self._within):
            return
        if self.in_place:
            self._stream.write(f"\r\x1b[2K{text}")
        elif self.lines:
            self._stream.write(f"tabtorch: {text}\n")
        self._stream.flush()
        self._said = text

    def clear(self) -> None:
        """Leave the terminal as if nothing had been said."""
        if self._said and self.in_place:
            self._stream.write("\r\x1b[2K")
            self._stream.flush()
        self._said = ""

    def before(self, output: Callable[[str, str], None]) -> Callable[[str, str], None]:
        """`output`, on a line that this has left."""

        def write(stream: str, text: str) -> None:
            self.clear()
            output(stream, text)
            self._within = not text.endswith("\n")

        return write
