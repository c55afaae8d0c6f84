"""Asks the cases of a library of PyTorch and of tabtorch, in processes that may be lost, and compares what they say."""

from __future__ import annotations

import ast
import json
import math
import os
import subprocess
from typing import Any, NamedTuple

from . import cuda_stand_ins
from .environment import HERE, PYTHON, ROOT, WHERE, pins, plain

CASES = HERE / "cases"
DEVICES = ("cpu", "webgpu")
#: of the largest number of a result: how far the others may be from PyTorch's, where the file says nothing
RTOL = 1e-4
#: seconds for one case, and for the import of a library
PATIENCE = 240


class Answer(NamedTuple):
    """What a case said, what went wrong ("" if nothing did), and how many seconds it took."""

    numbers: Any
    wrong: str
    seconds: float


class Library(NamedTuple):
    """A file of cases, as it is read without being run."""

    name: str
    cases: tuple[str, ...]
    needs: tuple[str, ...]  #: further distributions
    rtol: dict[str, float]  #: of cases
    known: dict[str, str]  #: `case` or `case webgpu`, and why it is not equal

    @property
    def version(self) -> str:
        return pins()[plain(self.name)]

    def why(self, case: str, device: str) -> str:
        """Why a case is known not to be equal, or ""."""
        return self.known.get(f"{case} {device}") or self.known.get(case, "")


def library(name: str) -> Library:
    """That of cases/name.py: its functions with no leading underscore are cases, NEEDS, RTOL and KNOWN are what else it says."""
    tree = ast.parse((CASES / f"{name}.py").read_text(encoding="utf-8"))
    said = {
        target.id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name)
        if target.id in ("NEEDS", "RTOL", "KNOWN")
    }
    cases = [n.name for n in tree.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")]
    return Library(name, tuple(cases), said.get("NEEDS", ()), said.get("RTOL", {}), said.get("KNOWN", {}))


def names() -> list[str]:
    """All libraries."""
    return sorted(p.stem for p in CASES.glob("*.py"))


def ask(lib: Library, torch: str, cases: tuple[str, ...] = (), patience: float = PATIENCE) -> dict[str, Answer]:
    """The answers on `torch` ("torch", "cpu", "webgpu"). After a case that ended the process another goes on with the next."""
    found: dict[str, Answer] = {}
    left = list(cases or lib.cases)
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT / "py")])),
        "PYTHONWARNINGS": "ignore",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "KERAS_BACKEND": "torch",
        "OMP_NUM_THREADS": "1",
        "MPLBACKEND": "agg",
    }
    if torch != "torch":
        env["TABTORCH_DEVICE"] = torch
    elif stand_ins := cuda_stand_ins.build(WHERE / "cuda"):
        env["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [str(stand_ins), os.environ.get("LD_LIBRARY_PATH")]))
    while left:
        command = [str(PYTHON), "-P", str(HERE / "child.py"), str(CASES / f"{lib.name}.py"), torch, *left]
        log = ""
        try:
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=patience * (len(left) + 1))
            said, log, ended = done.stdout, done.stderr, f"the process ended with {done.returncode}"
        except subprocess.TimeoutExpired as late:
            said, ended = (late.stdout or b"").decode(), f"no answer in {patience * (len(left) + 1):g} s"
        for line in said.splitlines():
            name, *answer = json.loads(line)
            found[name] = Answer(*answer)
            left.remove(name)
        if left:
            found[left.pop(0)] = Answer(None, "\n".join([*log.splitlines()[-8:], ended]), 0.0)
    return found


def differ(ours: Any, theirs: Any, rtol: float, where: str = "") -> str:
    """In what a result is not PyTorch's: "" if in nothing."""
    if isinstance(theirs, dict):
        if not isinstance(ours, dict) or set(ours) != set(theirs):
            return f"{where}: {ours if not isinstance(ours, dict) else list(ours)}, not {list(theirs)}"
        return next((d for k in theirs if (d := differ(ours[k], theirs[k], rtol, f"{where}.{k}" if where else k))), "")
    a, b = _flat(ours), _flat(theirs)
    if len(a) != len(b):
        return f"{where}: {len(a)} values, not {len(b)}"
    reals = [abs(v) for v in b if isinstance(v, float) and math.isfinite(v)]
    allowed = rtol * max(reals, default=0.0) + 1e-7
    for i, (x, y) in enumerate(zip(a, b)):
        if isinstance(x, float) and isinstance(y, float):
            same = x == y or (math.isnan(x) and math.isnan(y)) or abs(x - y) <= allowed
        else:
            same = type(x) is type(y) and x == y
        if not same:
            return f"{where}[{i}]: {x!r}, not {y!r}"
    return ""


def _flat(value: Any) -> list[Any]:
    return [x for v in value for x in _flat(v)] if isinstance(value, list) else [value]


def compare(lib: Library, ours: dict[str, Answer], theirs: dict[str, Answer]) -> dict[str, str]:
    """What is wrong with each case: "" where it is equal."""
    wrong = {}
    for case in lib.cases:
        if case not in ours:
            continue
        if theirs[case].wrong:
            wrong[case] = f"with real PyTorch: {theirs[case].wrong}"
        elif ours[case].wrong:
            wrong[case] = ours[case].wrong
        else:
            wrong[case] = differ(ours[case].numbers, theirs[case].numbers, lib.rtol.get(case, RTOL))
    return wrong


def last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")
