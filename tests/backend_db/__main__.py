"""The command: python -m backend_db."""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from conformance import sections

from . import __doc__ as about
from . import left_out, page, workers
from .workers import Answer


def main() -> int:
    """The command."""
    p = argparse.ArgumentParser(prog="backend_db", description=about, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("patterns", nargs="*", help="names of entries, with * and ?")
    p.add_argument("--table", choices=tuple(workers.CHECKS), default="operators")
    p.add_argument("--device", default="cpu", choices=("cpu", "webgpu"))
    p.add_argument("--samples", type=int, help="at most so many of each entry (default: 3; of optimizers all)")
    p.add_argument("--dtype", default="float32")
    p.add_argument("-j", type=int, default=1, help="processes")
    p.add_argument("--part", default="0/1", help="K/N: every N-th entry from the K-th on")
    p.add_argument("--json", type=Path, help="write the answers there, one a line, after those that are there")
    p.add_argument(
        "--page",
        type=Path,
        help="instead of asking, write the section of COMPATIBILITY.md there, of the --json answers",
    )
    p.add_argument("-v", action="store_true", help="show every failure whole")
    a = p.parse_args()
    if a.page:
        if not a.json:
            p.error("--page is of --json")
        latest = {(x.table, x.name, x.device, x.dtype): x for x in map(_read, a.json.read_text().splitlines())}
        text = sections.put(a.page.read_text(encoding="utf-8"), sections.PYTORCH, page.section(latest.values()))
        a.page.write_text(text, encoding="utf-8")
        return 0
    k, _, n = a.part.partition("/")
    record = a.json.open("a") if a.json else None

    def keep(x: Answer) -> None:
        if record:
            print(json.dumps(x), file=record, flush=True)

    samples = (0 if a.table == "optimizers" else 3) if a.samples is None else a.samples
    answers = workers.ask_all(a.table, a.device, samples, a.patterns, (int(k), int(n)), a.j, a.dtype, keep)
    causes: dict[str, list[str]] = defaultdict(list)
    for x in sorted(answers, key=lambda x: x.name):
        for check, why in x.wrong.items():
            causes[f"{check}: {why if a.v else why.splitlines()[0][:150]}"].append(x.name)
    for why, names in sorted(causes.items(), key=lambda kv: -len(kv[1])):
        print(f"{len(names):4} {why}\n       {' '.join(names)}")
    print(*(f"{check:16} {right:4} of {asked:4}" for check, (right, asked) in counted(answers).items()), sep="\n")
    print(f"{len(answers)} entries, {sum(x.crashed for x in answers)} crashes")
    return int(any(x.wrong and not left_out.reason(x) for x in answers))


def _read(line: str) -> Answer:
    return Answer(*json.loads(line))


def counted(answers: list[Answer]) -> dict[str, tuple[int, int]]:
    """Check -> (how many entries are right, how many were asked)."""
    found: dict[str, Any] = {}
    for x in answers:
        for check, why in x.checks.items():
            right, asked = found.get(check, (0, 0))
            found[check] = (right + (not why), asked + 1)
    return found


if __name__ == "__main__":
    sys.exit(main())
