"""Questions asked in parallel, in processes that may hang or die without harm to the rest."""

from __future__ import annotations

import gc
import math
import multiprocessing as mp
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from . import checks
from .checks import Answer, Failure


class Question(NamedTuple):
    """The arguments of one call of `answer`."""

    op: str
    device: str
    check: str
    dtype: str
    limit: int = 0


def _serve(pipe: Connection, answer: Callable[..., Answer]) -> None:
    gc.freeze()  # what was imported stays: to look through it after each question would take longer than the question
    while (q := pipe.recv()) is not None:
        start = time.perf_counter()
        a = answer(*q)
        a.seconds = time.perf_counter() - start
        gc.collect()
        pipe.send(a)


class _Worker:
    def __init__(self, answer: Callable[..., Answer]) -> None:
        # forked: PyTorch and its tables are imported once; each child starts a runtime of its own at its first tensor
        context: Any = mp.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, answer), daemon=True)
        self.process.start()
        theirs.close()
        self.question: Question | None = None
        self.until = 0.0

    def ask(self, q: Question, seconds: float) -> None:
        self.question, self.until = q, time.monotonic() + seconds
        self.pipe.send(q)


def ask(
    questions: Iterable[Question],
    workers: int,
    seconds: float = 240.0,
    answer: Callable[..., Answer] = checks.answer,
    stop: float = math.inf,
) -> Iterator[Answer]:
    """The answers, as they come; nothing is asked after `stop`, on the monotonic clock.

    A question that takes longer than `seconds`, or kills its process twice, has failed. Twice: some of PyTorch's own out=
    forms write past their tensor, and the process dies of it at some later question.
    """
    deaths: set[Question] = set()
    waiting = list(questions)[::-1]
    idle = [_Worker(answer) for _ in range(min(workers, len(waiting)))]
    busy: list[_Worker] = []
    while waiting or busy:
        if time.monotonic() > stop:
            waiting.clear()
        while waiting and idle:
            w = idle.pop()
            w.ask(waiting.pop(), seconds)
            busy.append(w)
        ready = wait([w.pipe for w in busy], timeout=1.0)
        for w in list(busy):
            late = time.monotonic() > w.until
            if w.pipe not in ready and not late:
                continue
            busy.remove(w)
            assert w.question is not None
            try:
                yield (
                    w.pipe.recv() if not late or w.pipe in ready else _lost(w.question, f"took more than {seconds:g} s")
                )
                if late and w.pipe not in ready:
                    raise EOFError
                idle.append(w)
            except EOFError:
                if not late and w.question in deaths:
                    yield _lost(w.question, "the process died")
                elif not late:
                    deaths.add(w.question)
                    waiting.append(w.question)
                w.process.kill()
                idle.append(_Worker(answer))
    for w in idle:
        w.pipe.send(None)
    for w in idle:
        w.process.join(5)


def _lost(q: Question, why: str) -> Answer:
    return Answer(q.op, q.device, q.check, q.dtype, failed=1, failures=[Failure("", why, "lost")])
