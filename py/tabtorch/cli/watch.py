"""`tabtorch run --watch`: again when the script, or a file beside it, has been written."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from tabtorch.cli.run import Once, Output, Script, run_once
from tabtorch.cli.status import Status

__all__ = ["watch"]

LOOK_S = 0.4
CHANGED = -1  # the status of a run that a change has ended


class _Looker:
    """Says whether files differ from what they were, and looks only now and then."""

    def __init__(self, load: Callable[[], Script], script: Script) -> None:
        self._load = load
        self._seen = script.stamps()
        self._next = 0.0

    def changed(self) -> bool:
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + LOOK_S
        try:
            return self._load().stamps() != self._seen
        except (OSError, UnicodeDecodeError):
            return False  # it is being written


def watch(
    load: Callable[[], Script],
    running: AbstractContextManager[Once],
    timeout: float | None,
    output: Output,
    status: Status,
) -> int:
    """Run what `load` reads, and again after each change, which also ends a run, until Ctrl+C."""
    with running as once:
        while True:
            script = load()
            looker = _Looker(load, script)
            run_once(once, script, timeout, output, lambda at=looker: CHANGED if at.changed() else None)  # type: ignore[misc]
            status.say("waiting for a change…")
            while not looker.changed():
                time.sleep(LOOK_S / 4)
            output("stderr", f"--- {script.filename.rpartition('/')[2]} again ---\n")
