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

from . import checks, left_out, modules, mutate, optimizers, report, sections, slices
from .workers import Question, ask

DEVICES = ("cpu", "webgpu")


def main() -> int:
    p = argparse.ArgumentParser(prog="conformance", description=__doc__)
    p.add_argument("patterns", nargs="*", default=["*"], help="names of OpInfos, with * and ?")
    p.add_argument("--device", choices=DEVICES, action="append")
    p.add_argument("--check", default="", help=",".join([*checks.CHECKS, "dtypes"]) + " (default: all)")
    p.add_argument("--samples", type=int, default=0, help="at most so many a question (default: all)")
    p.add_argument("--seed", type=int, default=0, help="what the samples are drawn from")
    p.add_argument("--mutate", action="store_true", help="disturb each operator, and see whether the questions notice")
    p.add_argument("--slice", help="begin at this part of the whole, or 'auto': one that rotates with the commit")
    p.add_argument("--seconds", type=float, default=0, help="stop asking after so long (default: never)")
    p.add_argument("-j", type=int, default=2, help="processes")
    p.add_argument("-v", action="store_true", help="show the failures")
    p.add_argument("--page", type=Path, help="write COMPATIBILITY.md there (of a whole run)")
    p.add_argument("--json", type=Path, help="write the answers there, one a line, as they come")
    a = p.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    checks.SEED = a.seed
    devices = tuple(a.device or DEVICES)
    questions = list(mutate.questions(devices) if a.mutate else _questions(devices, a.check, a.samples))
    every = len(questions)
    questions = [q for q in questions if any(fnmatch.fnmatchcase(n, x) for x in a.patterns for n in _names(q.op))]
    if a.slice is not None:
        n = slices.number(a.slice)
        questions = slices.rotated(questions, n, lambda q: q.op)
        print(f"slice {n % slices.PARTS} of {slices.PARTS}: from {questions[0].op} on", flush=True)
    whole = len(questions) == every and not a.samples and not a.seed
    start = time.monotonic()
    answers = []
    shown = start
    record = a.json.open("w") if a.json else None
    answer = mutate.answer if a.mutate else checks.answer
    for x in ask(questions, a.j, answer=answer, stop=start + a.seconds if a.seconds else float("inf")):
        answers.append(x)
        if record:
            print(json.dumps(asdict(x)), file=record, flush=True)
        if time.monotonic() > shown + 30:
            shown = time.monotonic()
            print(f"... {len(answers)} of {len(questions)} questions in {shown - start:.0f} s", flush=True)
        if x.failed and a.v:
            print(f"{x.op} {x.device} {x.check} {x.dtype}: {x.failed} of {x.passed + x.failed} failed", flush=True)
            for f in x.failures[:5]:
                print(f"    {f.sample[:400]}\n      {f.cause}: {f.why}", flush=True)
    print(*_totals(answers), *(mutate.undisturbed(answers) if a.mutate else ()), sep="\n")
    lost = len(answers) < len(questions)
    bad = [x for x in answers if x.failed and not left_out.excuses(x)]
    for x in bad:
        rest = f" and {x.failed - 1} more" if x.failed > 1 else ""
        print(f"FAILED {x.op} {x.device} {x.check} {x.dtype}: {x.failures[0].cause}: {x.failures[0].why}{rest}")
    idle = left_out.idle(answers, devices) if whole and not lost and not a.check and not a.mutate else []
    for entry in idle:
        print(f"FAILED left_out.py: nothing of this fails any more: {', '.join(entry.operators)}: {entry.reason}")
    print(_covered(answers, len(questions), every, time.monotonic() - start))
    if a.page:
        if not whole or lost or a.check or a.mutate or set(devices) != set(DEVICES):
            p.error("--page is of a whole run")
        page = report.compatibility(answers, _adapter(), modules.rows(), optimizers.rows(), a.samples)
        if a.page.exists():  # what another command wrote stays
            page = sections.put_all(page, a.page.read_text(encoding="utf-8"))
        a.page.write_text(page, encoding="utf-8")
    return int(bool(bad or idle))


def _names(title: str) -> set[str]:
    return {title, checks.operators()[title].name}


def _questions(devices: tuple[str, ...], wanted: str, samples: int) -> Iterator[Question]:
    kinds = set(filter(None, wanted.split(",")))
    for name, op in checks.operators().items():
        for device in devices:
            for check, dtype in checks.asked(op, device):
                kind = "dtypes" if check == "forward" and dtype != "float32" else check
                if not kinds or kind in kinds:
                    yield Question(name, device, check, dtype, samples)


def _covered(answers: list[checks.Answer], asked: int, every: int, seconds: float) -> str:
    """What a run covered, in a line."""
    passed, failed, skipped = (sum(getattr(x, k) for x in answers) for k in ("passed", "failed", "skipped"))
    excused = sum(x.failed for x in answers if left_out.excuses(x))
    part = "" if len(answers) == asked else f" of {asked} ({100 * len(answers) / max(asked, 1):.0f} %: time was up)"
    part += "" if asked == every else f"; {every} are a whole run"
    return (
        f"covered: {len({x.op for x in answers})} operators, {len(answers)} questions{part}; {passed} samples passed, "
        f"{failed - excused} failed, {excused} excused in left_out.py, {skipped} could not be asked; {seconds:.0f} s"
    )


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
