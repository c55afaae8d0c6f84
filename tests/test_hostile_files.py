"""A slice of the fuzzer of files (see fuzz/files), and that it can find something."""

from __future__ import annotations

from zlib import crc32

import pytest

import tabtorch
from fuzz.files import judge, seeds
from fuzz.files.__main__ import Run, Worker
from fuzz.files.mutate import Program


def test_a_slice() -> None:
    seed = "827f3e05"  # `make fuzz` takes fresh ones
    worker, run = Worker(), Run(seed, 100_000, 5.0, None)
    for number in range(20):  # a file is the same in every process
        assert worker.ask("fixed", number)["sum"] == crc32(Program("fixed", number).data)
    run.work(worker)
    assert run.found == [], f"python -m fuzz.files --seed {seed} --only {[f['number'] for f in run.found]}"
    assert run.done > 50 and run.both_load and run.both_refuse


def test_what_differs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With sizes and strides that are not looked at, files are found at once."""

    def look(programs: range) -> set[str]:
        found: set[str] = set()
        for number in programs:
            p = Program("seen", number)
            if p.kind == seeds.ZIP:
                got, did = judge.ours(p.kind, p.data)
                found.add(judge.finding(p.kind, judge.theirs(p.kind, p.data), got, did) or "alike")
        return found

    assert look(range(60)) == {"alike"}
    monkeypatch.setattr(tabtorch._utils, "_ints", lambda what, values: tuple(abs(int(v)) for v in values or (1,)))
    assert look(range(200)) > {"alike"}
