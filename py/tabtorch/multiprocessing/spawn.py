"""`torch.multiprocessing.spawn`: a program over several processes, which a tab does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

__all__ = [
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "spawn",
    "start_processes",
]


class ProcessException(Exception):
    """One of the processes that `spawn` started failed."""

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid


class ProcessRaisedException(ProcessException):
    """It raised."""


class ProcessExitedException(ProcessException):
    """It ended with a signal or a status."""

    def __init__(
        self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name


class ProcessContext:
    """In PyTorch, the processes that `start_processes` started."""


class SpawnContext(ProcessContext):
    """In PyTorch, the processes that `spawn` started."""


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> NoReturn:
    """RuntimeError: there is one process."""
    raise RuntimeError(
        "torch.multiprocessing.spawn is not available in tabtorch: a browser tab is one process. "
        f"Call the function itself, {getattr(fn, '__name__', fn)}(0, *args), or take the script to PyTorch."
    )


spawn = start_processes
