"""`python -m fuzz.files --programs 10000 [--seed S] [--seconds S] [-j N] [--results FILE]`: exits 1 if anything is found."""

from __future__ import annotations

import argparse
import collections
import json
import os
import platform
import secrets
import select
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from reliability import record

from . import mutate

#: seconds that one file may take, both libraries together
LIMIT = 20.0


class Worker:
    """A process that judges; started anew when it dies or hangs."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        env = {**os.environ, "TABTORCH_DEVICE": os.environ.get("TABTORCH_DEVICE", "cpu")}
        env["PYTHONPATH"] = os.pathsep.join(sys.path)  # the package that this process would import
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fuzz.files.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=Path(__file__).parents[2],
            env=env,
        )
        self.rest = b""
        if self._line(120) != "ready":
            raise RuntimeError("the worker does not start")
        return self.process

    def _line(self, seconds: float) -> str | None:
        """The next line; None where there is none in time, or the process has ended."""
        assert self.process and self.process.stdout
        until = time.monotonic() + seconds
        while b"\n" not in self.rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                return None
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                return None
            self.rest += more
        line, _, self.rest = self.rest.partition(b"\n")
        return line.decode()

    def ask(self, seed: str, number: int, keep: list[int] | None = None) -> dict[str, Any]:
        process = self.process if self.process and self.process.poll() is None else self.start()
        assert process.stdin
        process.stdin.write(json.dumps([seed, number, keep]).encode() + b"\n")
        process.stdin.flush()
        stage = "made"
        while True:
            line = self._line(LIMIT)
            if line is None:
                hung = process.poll() is None
                self.close()
                return {
                    "stage": stage,
                    "died": "takes too long" if hung else f"ends the process ({process.returncode})",
                }
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
            stage = line

    def close(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe:
                    pipe.close()
            self.process = None


def wrong(answer: dict[str, Any]) -> str | None:
    """What was found; None where the two agree, or real PyTorch itself ended or hung."""
    if "died" in answer:
        return f"{answer['died']}" if answer["stage"] == "ours" else None
    found: str | None = answer["wrong"]
    return found


def shrunk(worker: Worker, seed: str, number: int, answer: dict[str, Any]) -> tuple[list[int] | None, dict[str, Any]]:
    """The fewest of the file's changes that show the same."""
    count = answer.get("count", 0)
    keep = list(range(count))
    for i in range(count):
        fewer = [k for k in keep if k != i]
        tried = worker.ask(seed, number, fewer)
        if wrong(tried) == wrong(answer):
            keep, answer = fewer, tried
    return keep, answer


class Run:
    """All files of a run, by several workers at once."""

    def __init__(self, seed: str, programs: int, seconds: float | None, keep_in: Path | None) -> None:
        self.seed = seed
        self.next = iter(range(programs))
        self.seconds = seconds
        self.until: float | None = None
        self.keep_in = keep_in
        self.lock = threading.Lock()
        self.done = self.both_load = self.both_refuse = self.oracle_died = 0
        self.kinds: collections.Counter[str] = collections.Counter()
        self.classes: collections.Counter[str] = collections.Counter()
        self.found: list[dict[str, Any]] = []

    def work(self, worker: Worker | None = None) -> None:
        worker = worker or Worker()
        try:
            if not worker.process:
                worker.start()
            with self.lock:  # the clock runs from when the first is ready
                self.until = self.until or (time.monotonic() + self.seconds if self.seconds else None)
            while True:
                with self.lock:
                    number = next(self.next, None)
                if number is None or (self.until and time.monotonic() > self.until):
                    return
                self.note(worker, number, worker.ask(self.seed, number))
        finally:
            worker.close()

    def note(self, worker: Worker, number: int, answer: dict[str, Any]) -> None:
        what = wrong(answer)
        keep: list[int] | None = None
        if what:
            keep, answer = shrunk(worker, self.seed, number, answer)
        with self.lock:
            self.done += 1
            self.oracle_died += "died" in answer and answer["stage"] == "theirs"
            if "kind" in answer:
                self.kinds[answer["kind"]] += 1
                theirs, ours = answer["classes"]
                self.both_load += theirs is None and ours is None
                self.both_refuse += theirs is not None and ours is not None
                if theirs and ours:
                    self.classes[f"{theirs} -> {ours}"] += 1
            if not what:
                return
            program = mutate.Program(self.seed, number, None if keep is None else frozenset(keep))
            self.found.append({"number": number, "what": what, "changes": program.changes, **answer})
            print(f"\n--seed {self.seed} --only {number}  ({program.kind}: {', '.join(program.changes)}): {what}")
            print(
                f"  PyTorch   {answer.get('want', answer.get('stage'))}\n  tabtorch  {answer.get('got', '')}",
                flush=True,
            )
            if self.keep_in:
                self.keep_in.mkdir(parents=True, exist_ok=True)
                (self.keep_in / f"{self.seed}-{number}.{program.kind}").write_bytes(program.data)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.files", description=__doc__)
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--seed", default=None, help="a fresh one is drawn and printed")
    parser.add_argument("--seconds", type=float, default=None, help="end after that long")
    parser.add_argument("--only", type=int, default=None, help="one number, to see it again")
    parser.add_argument("--keep-in", type=Path, default=None, help="a folder for the files that were found")
    parser.add_argument("-j", type=int, default=2)
    parser.add_argument("--results", type=Path, default=None, help="append a line of JSON (see reliability.py)")
    parser.add_argument("-v", action="store_true", help="print which exceptions stood for which")
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else secrets.token_hex(4)
    print(f"seed {seed}", flush=True)
    begun = time.monotonic()
    run = Run(seed, args.programs, args.seconds, args.keep_in)
    if args.only is not None:
        run.next = iter([args.only])
    threads = [threading.Thread(target=run.work) for _ in range(args.j)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    took = time.monotonic() - begun
    print(
        f"{run.done} files in {took:.0f} s ({dict(run.kinds)}): both load {run.both_load}, both refuse {run.both_refuse}, "
        f"real PyTorch ended or hung {run.oracle_died}; found {len(run.found)}"
    )
    for what, n in collections.Counter(f["what"] for f in run.found).most_common():
        print(f"  {n:5d}  {what}")
    if args.v:
        for what, n in run.classes.most_common():
            print(f"  {n:5d}  {what}")
    record(
        args.results,
        "hostile files",
        count=run.done,
        unit="files",
        found=len(run.found),
        seconds=took,
        on=f"{os.environ.get('TABTORCH_DEVICE', 'cpu')}, CPython {platform.python_version()}",
        seed=seed,
        kinds=", ".join(f"{n:,} {kind}" for kind, n in sorted(run.kinds.items())),
        both_load=run.both_load,
        both_refuse=run.both_refuse,
        real_PyTorch_ended_or_hung=run.oracle_died,
    )
    return 1 if run.found else 0


if __name__ == "__main__":
    sys.exit(main())
