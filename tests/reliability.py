"""RELIABILITY.md: what the long runs did, rendered from lines of JSON that the commands themselves wrote.

A command calls `record(args.results, …)` when it ends. `python -m reliability results/*.jsonl --page ../RELIABILITY.md` makes the
page: the newest line of each `what` and `on`, in the order of `PARTS`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shlex
import sys
from pathlib import Path
from typing import Any

#: what a line may be about -> what its run does, for the page. A command of another part adds its own here.
PARTS = {
    "hostile files": "Mutated checkpoints (both formats) and safetensors, loaded by tabtorch and by real PyTorch: nothing runs, nothing "
    "hangs, nothing is accepted that PyTorch refuses, and what both load is the same. "
    "What is refused here and not there, and why, is listed in `tests/fuzz/files/judge.py`.",
    "out of memory": "One allocation, drawn at random, is refused: `torch.OutOfMemoryError`; what the failed work was to write "
    "says that it is gone, everything else is of before or after the step, parameters and their states of the same moment; what was "
    "saved can be loaded, and the next run has the right numbers and holds as many bytes.",
    "device lost": "The GPU device goes at a random command or read: `torch.AcceleratorError`; what was on the CPU is there, what was on "
    "the GPU says that it is not, and the next run has the right numbers.",
    "soak": "Training steps, with counts before and after: bytes and buffers of the device, Python objects and blocks, the heap and the "
    "tables of the JavaScript runtime, wasm memory.",
    "compiled programs": "Random training programs and functions, compiled against eager.",
    "alias programs": "Random programs of views, in-place writes and gradients, against real PyTorch.",
    "threads": "Threads that run mixed programs at once.",
    "mutations": "Operators whose results are disturbed, which the conformance run has to notice.",
}


def _asked(argv: list[str]) -> list[str]:
    """The arguments but for where the line goes."""
    at = argv.index("--results") if "--results" in argv else len(argv)
    return argv[:at] + argv[at + 2 :]


def record(
    file: Path | None, what: str, *, count: int, unit: str, found: int, seconds: float, on: str, **figures: Any
) -> None:
    """Appends a line about a run that has ended; nothing without a `file`.

    what: a key of `PARTS`; on: device and interpreter, as "cpu, CPython 3.11 + Node"; figures: more columns, in words.
    """
    if file is None:
        return
    if what not in PARTS:
        raise ValueError(f"{what!r} is none of {list(PARTS)}")
    module = getattr(sys.modules["__main__"].__spec__, "name", "") or ""
    line = {
        "what": what,
        "on": on,
        "count": count,
        "unit": unit,
        "found": found,
        "seconds": round(seconds, 1),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "command": f"python -m {module.removesuffix('.__main__')} {shlex.join(_asked(sys.argv[1:]))}",
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "figures": figures,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as out:
        out.write(json.dumps(line) + "\n")


HEAD = """# What the long runs found

Made by `python -m reliability` (in `tests/`) from what the commands wrote when they ended; short forms of all of them run in `make test`.
"""


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def page(lines: list[dict[str, Any]]) -> str:
    """The text of RELIABILITY.md."""
    newest = {
        (line["what"], line["on"], line["unit"]): line for line in lines
    }  # a later line takes the place of an earlier one
    parts = [HEAD]
    parts += ["| what | runs | on | how long | found | date |", "|---|---:|---|---:|---:|---|"]
    ordered = [line for what in PARTS for (name, *_), line in newest.items() if name == what]
    for line in ordered:
        cells = [line["what"], f"{line['count']:,} {line['unit']}", line["on"], _time(line["seconds"])]
        parts.append(f"| {' | '.join([*cells, str(line['found']), line['date']])} |")
    for what, text in PARTS.items():
        of = [line for line in ordered if line["what"] == what]
        if not of:
            continue
        parts += ["", f"## {what.capitalize()}", "", text, ""]
        for line in of:
            parts.append(f"- `{line['command'].strip()}` ({line['machine']}): found {line['found']}.")
            parts += [f"  - {name.replace('_', ' ')}: {value}" for name, value in line["figures"].items()]
    return "\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m reliability", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="lines of JSON, older files first")
    parser.add_argument("--page", type=Path, default=None, help="where to write; without it, standard output")
    args = parser.parse_args()
    lines = [json.loads(line) for file in args.files for line in file.read_text().splitlines() if line.strip()]
    text = page(lines)
    if args.page:
        args.page.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
