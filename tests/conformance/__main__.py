"""The command: python -m conformance."""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import torch

from . import checks, left_out, modules, optimizers, report
from .workers import Question, ask


def main() -> int:
    p = argparse.ArgumentParser(prog="conformance", description=__doc__)
    p.add_argument("patterns", nargs="*", default=["*"], help="names of OpInfos, with * and ?")
    p.add_argument("--device", choices=("cpu", "webgpu"), action="append")
    p.add_argument("--check", default="", help=",".join([*checks.CHECKS, "dtypes"]) + " (default: all)")
    p.add_argument("--samples", type=int, default=0, help="at most so many a question (default: all)")
    p.add_argument("-j", type=int, default=2, help="processes")
    p.add_argument("-v", action="store_true", help="show the failures")
    p.add_argument("--page", type=Path, help="write COMPATIBILITY.md there (of a whole run)")
    p.add_argument("--json", type=Path, help="write the answers there, one a line, as they come")
    a = p.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    wanted = set(filter(None, a.check.split(",")))
    questions = []
    for name, op in checks.operators().items():
        if not any(fnmatch.fnmatchcase(name, x) or fnmatch.fnmatchcase(op.name, x) for x in a.patterns):
            continue
        for device in a.device or ("cpu", "webgpu"):
            for check, dtype in checks.asked(op, device):
                kind = "dtypes" if check == "forward" and dtype != "float32" else check
                if not wanted or kind in wanted:
                    questions.append(Question(name, device, check, dtype, a.samples))
    start = time.monotonic()
    answers = []
    shown = start
    record = a.json.open("w") if a.json else None
    for x in ask(questions, a.j):
        answers.append(x)
        if record:
            print(json.dumps(asdict(x)), file=record, flush=True)
        if time.monotonic() > shown + 30:
            shown = time.monotonic()
            print(f"... {len(answers)} of {len(questions)} questions in {shown - start:.0f} s", flush=True)
        if x.failed and (a.v or len(questions) < 200):
            print(f"{x.op} {x.device} {x.check} {x.dtype}: {x.failed} of {x.passed + x.failed} failed", flush=True)
            for sample, why in x.failures[: 5 if a.v else 1]:
                print(f"    {sample[:400]}\n      {why}" if a.v else f"    {why}", flush=True)
    print(*_totals(answers), sep="\n")
    samples = sum(x.passed + x.failed for x in answers)
    print(f"{len(answers)} questions, {samples} samples in {time.monotonic() - start:.0f} s")
    bad = [x for x in answers if x.failed and not left_out.reason(x)]
    for x in bad:
        print(f"FAILED {x.op} {x.device} {x.check} {x.dtype}: {x.failures[0][1]}")
    if a.page:
        idle = [x for x in left_out.LIST if not any(y.failed and x.covers(y) for y in answers)]
        for x in idle:
            print(f"left out, and nothing of it fails: {', '.join(x.operators)}")
        page = report.compatibility(answers, _adapter(), modules.rows(), optimizers.rows())
        a.page.write_text(page, encoding="utf-8")
    return int(bool(bad))


def _adapter() -> str:
    from tabtorch.bridge import get_bridge

    found = (get_bridge().info["webgpu"] or {}).get("adapter", {})
    return " ".join(filter(None, (found.get(k) for k in ("vendor", "device", "description"))))


def _totals(answers: list[checks.Answer]) -> Iterator[str]:
    good: Counter[tuple[str, str]] = Counter()
    of: Counter[tuple[str, str]] = Counter()
    for x in answers:
        kind = "dtypes" if x.check == "forward" and x.dtype != "float32" else x.check
        key = (kind if x.dtype == "float32" or kind == "dtypes" else f"{kind} {x.dtype}", x.device)
        of[key] += 1
        good[key] += x.ok
    return (f"{kind:20} {device:7} {good[kind, device]:4} of {n:4}" for (kind, device), n in sorted(of.items()))


if __name__ == "__main__":
    sys.exit(main())
