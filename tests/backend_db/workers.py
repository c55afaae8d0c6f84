"""Entries of a table asked in processes that may be lost."""

from __future__ import annotations

import contextlib
import fnmatch
import importlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).resolve().parents[1]
#: an entry that takes longer is given up, in seconds
PATIENCE = 180
#: table -> what is asked of its entries
CHECKS = {
    "operators": ("forward", "gradient", "in-place", "out=", "out= otherwise", "layouts", "errors", "messages"),
    "modules": ("forward", "gradient", "layouts", "state_dict", "made there", "errors"),
    "optimizers": ("steps", "foreach", "fused", "capturable", "differentiable", "state_dict", "errors"),
}
#: what a process runs
PROGRAM = "from backend_db import workers; workers.work()"


class Answer(NamedTuple):
    """What became of an entry. checks: check -> "" if right, else why not; a check that had nothing to compare is not there."""

    table: str
    name: str
    device: str
    dtype: str
    checks: dict[str, str]

    @property
    def crashed(self) -> bool:
        """Whether it ended the process."""
        return any(why.startswith("crash") for why in self.checks.values())

    @property
    def wrong(self) -> dict[str, str]:
        """The checks that failed."""
        return {check: why for check, why in self.checks.items() if why}


def work() -> None:
    """Answers the numbers of entries that come on the standard input, one a line."""
    import warnings

    import torch

    import tabtorch.backend  # noqa: F401

    from . import comparing

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    comparing.count_draws()
    table, samples, dtype = sys.argv[1], int(sys.argv[2]), getattr(torch, sys.argv[3])
    asked = importlib.import_module("backend_db." + table)
    every = asked.entries(dtype)
    print(json.dumps(list(every)), flush=True)
    names = list(every)
    for line in sys.stdin:
        torch.manual_seed(0)
        found: dict[str, str] = {}
        try:
            asked.answer(every[names[int(line)]], samples, dtype, found)
        except Exception as e:  # samples that cannot be made
            found["samples"] = comparing.said(e)
        print(json.dumps(found), flush=True)


class Worker:
    """A process that answers, and is started again when it is lost."""

    def __init__(self, table: str, device: str, samples: int, dtype: str) -> None:
        self.table, self.device, self.samples, self.dtype = table, device, samples, dtype
        self.start()

    def start(self) -> None:
        """Starts it, and waits for the names of the entries."""
        env = {**os.environ, "PYTHONPATH": f"{TESTS.parent / 'py'}:{TESTS}", "TABTORCH_DEVICE": self.device}
        self.child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, self.table, str(self.samples), self.dtype],
            env={**env, "PYTORCH_JIT": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("BACKEND_DB_STDERR") else subprocess.DEVNULL,
            text=True,
        )
        assert self.child.stdout
        self.names: list[str] = json.loads(self.child.stdout.readline())

    def ask(self, number: int) -> Answer:
        """What becomes of an entry."""
        assert self.child.stdin and self.child.stdout
        late = threading.Timer(PATIENCE, self.child.kill)
        late.start()
        try:
            self.child.stdin.write(f"{number}\n")
            self.child.stdin.flush()
            line = self.child.stdout.readline()
        except OSError:
            line = ""
        finally:
            late.cancel()
        name = self.names[number]
        if line:
            return Answer(self.table, name, self.device, self.dtype, json.loads(line))
        status = self._ended()
        why = f"took more than {PATIENCE} s" if status == -9 else f"crash: the process ended with {status}"
        self.start()
        return Answer(self.table, name, self.device, self.dtype, {"forward": why})

    def _ended(self) -> int:
        assert self.child.stdin and self.child.stdout
        with contextlib.suppress(OSError):
            self.child.stdin.close()
        status = self.child.wait()
        self.child.stdout.close()
        return status

    def close(self) -> None:
        """Ends it."""
        self._ended()


def ask_all(
    table: str,
    device: str,
    samples: int,
    patterns: Sequence[str] = (),
    part: tuple[int, int] = (0, 1),
    processes: int = 1,
    dtype: str = "float32",
    keep: Any = lambda answer: None,
) -> list[Answer]:
    """The answers of the entries that fit, of every N-th one from the K-th on (part: (K, N)). keep: called with each as it comes."""
    first = Worker(table, device, samples, dtype)
    numbers = [
        i for i, name in enumerate(first.names) if not patterns or any(fnmatch.fnmatchcase(name, p) for p in patterns)
    ][part[0] :: part[1]]
    found: list[Answer] = []
    waiting = iter(numbers)
    lock = threading.Lock()

    def run(worker: Worker) -> None:
        while True:
            with lock:
                number = next(waiting, None)
            if number is None:
                break
            answer = worker.ask(number)
            with lock:
                found.append(answer)
                keep(answer)
        worker.close()

    others = (Worker(table, device, samples, dtype) for _ in range(processes - 1))
    threads = [threading.Thread(target=run, args=(w,)) for w in (first, *others)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return found
