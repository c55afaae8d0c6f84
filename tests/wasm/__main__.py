"""The suite's own tests and commands in Pyodide in Node, on the wheel as built.

    python -m wasm                                  all tests that run there; `python -m wasm FILE …`: some of them
    python -m wasm -m fuzz.compiled --seconds 600   what `python -m fuzz.compiled --seconds 600` does, in Pyodide

PyTorch, NumPy and hypothesis, which cannot be there, are in this process, and are used from there (remote.py).
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

from slices import number
from wasm import channel, remote
from wasm.suite import GROUPS, LEFT_OUT

ROOT = Path(__file__).parents[2]
RECORDED = "tests/wasm/test_recorded.py"
TIMEOUT = 1500.0


def wheel() -> Path:
    """The newest wheel of those for a tab. Raises FileNotFoundError if none has been built."""
    found = sorted((ROOT / "dist").glob("tabtorch-*.whl"), key=lambda p: p.stat().st_mtime)
    if not found:
        raise FileNotFoundError("there is no wheel: `make wheel`")
    return found[-1]


def extras(wheel: Path) -> Path:
    """The wheel beside it, with what few programs use."""
    return wheel.with_name(wheel.name.replace("tabtorch-", "tabtorch_extras-"))


def inside(scratch: Path, spec: dict[str, Any], options: list[str], output: Any = None) -> int:
    """The status of inside.py in Pyodide, with this process beside it. output: a file for what it prints."""
    for path in (wheel(), extras(wheel())):
        with zipfile.ZipFile(path) as file:
            file.extractall(scratch / "package")
    (scratch / "main").mkdir()
    script = scratch / "main" / "main.py"
    script.write_bytes(Path(__file__).with_name("inside.py").read_bytes())
    channel.make(scratch)
    site = str(Path(sysconfig.get_paths()["purelib"]).resolve())
    spec = {"root": str(ROOT), "site": site, "scratch": str(scratch), "env": {}, **spec}
    package = {"TABTORCH_PACKAGE": str(scratch / "package" / "tabtorch"), "PYTHONPATH": str(ROOT / "py")}
    environ = {**os.environ, **package, "TABTORCH_WASM": json.dumps(spec)}
    command = [sys.executable, "-m", "tabtorch.cli", "run", str(script), "--browser", "node", *options]
    process = subprocess.Popen(command, env=environ, cwd=ROOT, stdout=output, stderr=output and subprocess.STDOUT)

    def serve() -> None:
        remote.Peer(*channel.from_cpython(scratch), real=True).serve()

    threading.Thread(target=serve, daemon=True).start()
    try:
        return process.wait()
    finally:
        process.kill()


def module(argv: list[str], timeout: float | None) -> int:
    """The status of `python -m ARGV` in Pyodide."""
    with tempfile.TemporaryDirectory(prefix="tabtorch-wasm-") as name:
        return inside(Path(name), {"module": argv}, ["--timeout", str(timeout)] if timeout else [])


def run(arguments: list[str], a: argparse.Namespace) -> tuple[int, dict[str, Any], str]:
    """pytest's status, the report and the output of one process; in `arguments` are pytest's own."""
    with tempfile.TemporaryDirectory(prefix="tabtorch-wasm-") as name:
        scratch = Path(name)
        usual = ["--rootdir", str(ROOT), "-c", "pyproject.toml", "--basetemp", f"{name}/tmp", "-q", "--color=no"]
        env = {"TABTORCH_TEST_DEVICES": a.device, "TABTORCH_RECORDED_SECONDS": str(a.seconds)}
        env["TABTORCH_SLICE"] = os.environ.get("TABTORCH_SLICE") or str(number())  # there is no git in there
        if a.recorded:
            env["TABTORCH_RECORDED"] = f"{name}/recorded.pt"  # where Pyodide sees it
            shutil.copyfile(a.recorded, scratch / "recorded.pt")
        options = ["--timeout", str(a.timeout or TIMEOUT)] + (["--device", "cpu"] if a.device == "cpu" else [])
        with (scratch / "output").open("w") as output:
            spec = {"arguments": [*usual, *arguments], "env": env, "left_out": LEFT_OUT}
            status = inside(scratch, spec, options, output)
        report = scratch / "report.json"
        said = (scratch / "output").read_text(errors="replace")
        return status, json.loads(report.read_text()) if report.exists() else {}, said


def _child(device: str, arguments: list[str], a: argparse.Namespace) -> tuple[int, dict[str, Any], str]:
    """`run` in a process of its own: PyTorch and its modes belong to one suite at a time."""
    command = [sys.executable, "-m", "wasm", "--json", "--device", device, "--seconds", str(a.seconds)]
    command += ["--timeout", str(a.timeout or TIMEOUT), *(["--recorded", str(a.recorded)] if a.recorded else [])]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, cwd=ROOT / "tests")
    try:
        status, report, said = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return 1, {}, done.stdout + done.stderr
    return status, report, said


def summary(reports: list[dict[str, Any]], least: dict[str, int]) -> list[str]:
    """Prints what ran and what did not, and why; the files of which too few passed."""
    passed = Counter[str]()
    reasons = Counter[str]()
    for r in reports:
        passed.update(r.get("passed", {}))
        for _, reason, n in r.get("skipped", []):
            reasons[reason] += n
    for file in sorted(passed):
        print(f"  {passed[file]:5} passed in Pyodide of {file}")
    for reason, n in reasons.most_common():
        print(f"  {n:5} left: {reason}")
    print(
        f"{passed.total()} passed, {sum(len(r.get('failed', [])) for r in reports)} failed, {reasons.total()} skipped"
    )
    return [f"{file}: {passed[file]} passed, at least {n} must" for file, n in least.items() if passed[file] < n]


def main() -> int:
    p = argparse.ArgumentParser(prog="wasm", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cpu", help='of FILE: "cpu" (default), "webgpu" or "cpu webgpu"')
    p.add_argument("--timeout", type=float, help=f"in seconds (default: {TIMEOUT:g}, and none with -m)")
    p.add_argument("--recorded", type=Path, help="a file of wasm.record")
    p.add_argument("--seconds", type=float, default=30, help="for its samples on each device (default: %(default)s)")
    p.add_argument("-j", type=int, default=2, help="processes (default: %(default)s)")
    p.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("-m", nargs=argparse.REMAINDER, metavar="MODULE", help="run this, with the arguments that follow")
    a, rest = p.parse_known_args()
    if a.m:
        return module(a.m, a.timeout)
    if a.json:
        print(json.dumps(run(rest, a)))
        return 0
    if rest:
        status, report, said = run(rest, a)
        print(said)
        summary([report], {})
        return status
    groups = [(device, {f: n for f, n in g.items() if a.recorded or f != RECORDED}) for device, g in GROUPS]
    with concurrent.futures.ThreadPoolExecutor(a.j) as pool:
        answers = list(pool.map(lambda g: _child(g[0], [*g[1]], a), groups))
    for status, _, said in answers:
        print(said if status else "\n".join(said.splitlines()[-12:]))
    few = summary([r for _, r, _ in answers], {f: n for _, g in groups for f, n in g.items()})
    print(*few, sep="\n")
    return int(bool(few) or any(status for status, _, _ in answers))


if __name__ == "__main__":
    sys.exit(main())
