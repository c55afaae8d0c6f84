"""What tensor programs cost here, beside native PyTorch: prints a table, and writes bench/results.json.

    python -m bench [--browser chromium|firefox|node|python] [--only PATTERN …] [--small] [--no-native] [--rivals] [--page FILE]

`python`: CPython, with the runtime in a child process. `--rivals`: the other libraries of the web that bench.rivals has are sides
too. Rows are sent to each side a few at a time, one side after the other, so that all meet the machine in the same state. On an
adapter that is software the sizes are small, and say nothing of a GPU.
"""

from __future__ import annotations

import argparse
import datetime
import fnmatch
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import page, rivals
from bench.rows import ROWS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "bench" / "results.json"
#: rows that go to one side before it is the other's turn
_TURN = 12


def _lines(command: list[str], **kw: Any) -> Iterator[dict[str, Any]]:
    """The JSON objects that a command prints, each as it comes; what else it prints goes to stderr."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **kw) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                yield json.loads(line)
            else:
                sys.stderr.write(line)
    if process.returncode:
        print(f"{' '.join(command[:6])} … ended with {process.returncode}", file=sys.stderr)


def own(browser: str, names: list[str], small: bool) -> Iterator[dict[str, Any]]:
    """What the rows take in a tab, in Node, or in CPython."""
    flags = ["--small"] * small
    if browser == "python":
        path = os.pathsep.join([str(ROOT / "py"), str(HERE.parent)])
        yield from _lines([sys.executable, "-m", "bench.side", *flags, *names], env={**os.environ, "PYTHONPATH": path})
        return
    with tempfile.TemporaryDirectory() as folder:  # alone there, so that no other file comes along
        shutil.copytree(HERE, Path(folder) / "bench", ignore=shutil.ignore_patterns("__pycache__"))
        script = Path(folder) / "run.py"
        script.write_text("from bench.side import main\n\nmain()\n", encoding="utf-8")
        command = [sys.executable, "-m", "tabtorch.cli", "run", str(script), "--browser", browser, "--timeout", "3000"]
        yield from _lines([*command, "--mount", folder, "--", *flags, *names])


def native(names: list[str], small: bool) -> Iterator[dict[str, Any]]:
    """What they take in real PyTorch."""
    env = {**os.environ, "PYTHONPATH": str(HERE.parent), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    command = [sys.executable, "-m", "bench.side", "--native", *["--small"] * small, *names]
    yield from _lines(command, env=env)


def rival(name: str, names: list[str], small: bool) -> Iterator[dict[str, Any]]:
    """What those of them that it has take in another library, in the same browser."""
    path = os.pathsep.join(filter(None, [str(ROOT / "py"), str(HERE.parent), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "PYTHONPATH": path, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    yield from _lines([sys.executable, "-m", "bench.rivals", name, *["--small"] * small, *names], env=env)


def commit() -> str:
    """The checkout's; nothing where there is none, as on a machine that was given the files alone."""
    try:
        done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--browser", choices=["chromium", "firefox", "node", "python"], default="chromium")
    parser.add_argument("--only", nargs="*", default=["*"], metavar="PATTERN", help="rows or groups")
    parser.add_argument("--small", action="store_true", help="sizes for an adapter that is software")
    parser.add_argument("--no-native", action="store_true")
    parser.add_argument("--rivals", action="store_true", help=f"{', '.join(rivals.NAMES)} too; in Chromium")
    parser.add_argument("--page", type=Path, help="write a page of the figures there")
    options = parser.parse_args()
    if options.rivals and options.browser != "chromium":
        parser.error("--rivals: they are timed in Chromium alone")
    wanted = [
        n for n, r in ROWS.items() if any(fnmatch.fnmatch(n, p) or fnmatch.fnmatch(r.group, p) for p in options.only)
    ]
    found: dict[str, Any] = {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        "host": options.browser,
        "small": options.small,
        "sides": {},
        "rows": {name: {} for name in wanted},
    }
    sides = {"tabtorch": lambda names: own(options.browser, names, options.small)}
    if not options.no_native:
        sides["native"] = lambda names: native(names, options.small)
    if options.rivals:
        for name in rivals.NAMES:
            sides[name] = lambda names, name=name: rival(name, names, options.small)  # type: ignore[misc]
    RESULTS.parent.mkdir(exist_ok=True)
    for at in range(0, len(wanted), _TURN):
        for side, run in sides.items():
            for line in run(wanted[at : at + _TURN]):
                if "about" in line:
                    found["sides"][side] = line["about"]
                else:
                    found["rows"][line["name"]][side] = line
                    print(page.line(side, line), file=sys.stderr, flush=True)
            RESULTS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(page.table(found))
    print(f"\n{RESULTS.relative_to(ROOT)}")
    if options.page:
        options.page.write_text(page.document(found), encoding="utf-8")
    return int(page.wrong(found))


if __name__ == "__main__":
    sys.exit(main())
