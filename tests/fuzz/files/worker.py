"""A process that judges files: it may be killed, or die of one, and its parent goes on with the next.

Reads `seed number keep` off standard input; says "theirs", "ours", then a line of JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
from zlib import crc32


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    from tabtorch.ops.machinery import registry

    from . import judge
    from .mutate import Program

    registry.load_all()  # what is imported late is there before anything is watched
    for name in ("core.to_host", "cuda", "core.printing"):
        importlib.import_module(f"tabtorch.{name}")
    for number in range(40):
        program = Program("warm", number)
        judge.ours(program.kind, program.data)
    judge.watch()
    # The runtime is a child by now, and keeps its own limits.
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    print("ready", file=answers)
    for line in sys.stdin:
        seed, number, keep = json.loads(line)
        program = Program(seed, number, None if keep is None else frozenset(keep))
        print("theirs", file=answers)
        want = judge.theirs(program.kind, program.data)
        print("ours", file=answers)
        got, did = judge.ours(program.kind, program.data)
        wrong = judge.finding(program.kind, want, got, did)
        answer = {
            "kind": program.kind,
            "changes": program.changes,
            "count": program.count,
            "sum": crc32(program.data),
            "wrong": wrong,
            "want": str(want),
            "got": str(got),
            "classes": [want.error, got.error],
        }
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
