"""Other people's libraries on tabtorch as `torch`, compared with real PyTorch: `python -m libraries` (in tests).

    python -m libraries [NAME[:CASE] ...] [--device cpu|webgpu] [--page ../COMPATIBILITY.md] [-j 2] [-v]

makes their environment (the first time takes minutes), runs the cases of each library with real PyTorch, on cpu and on webgpu, each
in a process of its own, and prints what is not equal. `--page` writes the section of that page; it wants all of them.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import environment, page
from .running import DEVICES, Answer, Library, ask, compare, last_line, library, names


def measured(lib: Library, cases: tuple[str, ...], devices: list[str]) -> dict[str, dict[str, str]]:
    """What is wrong with each case on each device."""
    theirs: dict[str, Answer] = ask(lib, "torch", cases)
    return {d: compare(lib, ask(lib, d, cases), theirs) for d in devices}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--device", action="append", choices=DEVICES)
    parser.add_argument("--page", type=Path)
    parser.add_argument("-j", type=int, default=2)
    parser.add_argument("-v", action="store_true", help="print whole tracebacks")
    args = parser.parse_args()
    wanted: dict[str, list[str]] = {}
    for name in args.names or names():
        name, _, case = name.partition(":")
        wanted.setdefault(name, []).extend([case] if case else [])
    libs = [library(name) for name in wanted]
    environment.install(None if args.page else [n for lib in libs for n in (lib.name, *lib.needs)])
    devices = args.device or list(DEVICES)
    results: dict[str, dict[str, dict[str, str]]] = {}
    unexpected = 0
    with ThreadPoolExecutor(args.j) as pool:
        for lib, found in zip(libs, pool.map(lambda lib: measured(lib, tuple(wanted[lib.name]), devices), libs)):
            results[lib.name] = found
            for device, wrong in found.items():
                equal = [c for c, w in wrong.items() if not w]
                print(f"{lib.name} {lib.version} on {device}: {len(equal)} of {len(wrong)} equal", flush=True)
                for case, w in wrong.items():
                    known = lib.why(case, device)
                    if w:
                        print(f"  {case}: {w if args.v else last_line(w)}" + f" (known: {known})" * bool(known))
                    elif known:
                        print(f"  {case}: equal, though it is said not to be: {known}")
                    unexpected += bool(w) != bool(known)
    if args.page:
        page.write(args.page, libs, results)
    return int(unexpected > 0)


if __name__ == "__main__":
    sys.exit(main())
