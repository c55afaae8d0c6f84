"""Work in threads that run at once, as tests of both libraries need it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import tabtorch as tt

BOTH = (torch, tt)


@pytest.fixture(autouse=True)
def eager_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(*work: Callable[[], Any]) -> list[Any]:
    """The results of functions that run at once, or their exceptions."""
    out: list[Any] = [None] * len(work)
    start = threading.Barrier(len(work))

    def run(k: int) -> None:
        start.wait()
        try:
            out[k] = work[k]()
        except Exception as e:
            out[k] = e

    threads = [threading.Thread(target=run, args=(k,)) for k in range(len(work))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out


def elsewhere(f: Callable[[], Any]) -> Any:
    """The result of `f` in a thread of its own."""
    return together(f)[0]
