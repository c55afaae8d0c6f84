"""`torch.futures`: values that are there later. See https://docs.pytorch.org/docs/stable/futures.html"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")
S = TypeVar("S")


class Future(Generic[T]):
    """A value, or an exception, that somebody sets once. `devices` is accepted: tensors need no synchronising here."""

    def __init__(self, *, devices: list[Any] | None = None) -> None:
        self._set = threading.Event()
        self._callbacks: list[Callable[[Future[T]], Any]] = []
        self._value: Any = None
        self._error: Exception | None = None

    def done(self) -> bool:
        """Whether there is a value or an exception."""
        return self._set.is_set()

    def wait(self) -> T:
        """The value, when it is there; raises the exception. RuntimeError in a tab, where nobody could set it meanwhile."""
        if not self.done() and sys.platform == "emscripten":
            raise RuntimeError("Future.wait() would never return: a tab has one thread, and nothing has set the result")
        self._set.wait()
        return self.value()

    def value(self) -> T:
        """The value; raises the exception. RuntimeError if it is not done."""
        if not self.done():
            raise RuntimeError("Future.value() of a Future that is not completed")
        if self._error is not None:
            raise self._error
        result: T = self._value
        return result

    def _complete(self, value: Any, error: Exception | None) -> None:
        if self.done():
            raise RuntimeError(
                "Attempting to mark a completed Future as complete again. "
                "Note that a Future can only be marked completed once."
            )
        self._value, self._error = value, error
        self._set.set()
        callbacks, self._callbacks = self._callbacks, []
        for each in callbacks:
            each(self)

    def set_result(self, result: T) -> None:
        """Completes it, and calls what waits for that. RuntimeError the second time."""
        self._complete(result, None)

    def set_exception(self, result: Exception) -> None:
        """Completes it with an exception, which `wait()` and `value()` raise."""
        if not isinstance(result, Exception):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._complete(None, result)

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Calls `callback(self)` when it is done, or at once if it is."""
        if self.done():
            callback(self)
        else:
            self._callbacks.append(callback)

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """A future of what `callback(self)` gives when this one is done. What it raises becomes a RuntimeError there."""
        result: Future[S] = Future()

        def run(done: Future[T]) -> None:
            try:
                value = callback(done)
            except Exception as e:
                told = f"Got the following error when running the callback: {type(e).__name__}: {e}"
                result.set_exception(RuntimeError(told))
            else:
                result.set_result(value)

        self.add_done_callback(run)
        return result


def collect_all(futures: list[Future[Any]]) -> Future[list[Future[Any]]]:
    """A future of the list itself, done when all of them are, or as soon as one has an exception, which is then its own."""
    result: Future[list[Future[Any]]] = Future()
    left = len(futures)

    def one(done: Future[Any]) -> None:
        nonlocal left
        left -= 1
        if result.done():
            return
        if done._error is not None:
            result.set_exception(done._error)
        elif left == 0:
            result.set_result(futures)

    for each in futures:
        each.add_done_callback(one)
    if not futures:
        result.set_result(futures)
    return result


def wait_all(futures: list[Future[Any]]) -> list[Any]:
    """Their values, in order; raises the first exception."""
    return [each.wait() for each in collect_all(futures).wait()]
