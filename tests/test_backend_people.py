"""Programs in the style of other people's libraries on real PyTorch's device="webgpu": backend_people_cases.py, in processes of their own.

The libraries themselves are asked by `python tests/backend_people.py`, in an environment that it makes.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import backend_people
from slices import slice_of

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "tests" / "backend_people_cases.py"
NAMES = [
    node.name
    for node in ast.parse(FILE.read_text()).body
    if isinstance(node, ast.FunctionDef) and any(ast.unparse(d) in ("case", "compiled") for d in node.decorator_list)
]
#: so many of them are run on the GPU with each commit, which are software here
ON_WEBGPU = 10


def _some() -> list[str]:
    return NAMES[slice_of(ON_WEBGPU, "backend people") :: ON_WEBGPU]


@functools.cache
def _answers(device: str) -> tuple[dict[str, str], str]:
    """What became of the cases, all of one process, and how it ended."""
    env = {
        **os.environ,
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "PYTHONPATH": str(ROOT / "py"),
        "TABTORCH_DEVICE": device,
    }
    names = NAMES if device == "cpu" else _some()
    done = subprocess.run([sys.executable, str(FILE), *names], env=env, capture_output=True, text=True, timeout=600)
    found = dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    return found, f"the process ended with {done.returncode}\n{done.stderr[-2000:]}"


@pytest.mark.parametrize(
    ("device", "name"), [("cpu", name) for name in NAMES] + [("webgpu", f"part {i}") for i in range(len(_some()))]
)
def test_case(device: str, name: str) -> None:
    if device == "webgpu":
        name = _some()[int(name.removeprefix("part "))]
    found, ended = _answers(device)
    assert name in found, f"not reached: {ended}"
    assert not found[name], f"{name}: {found[name]}"


def test_the_command_says_what_failed() -> None:
    """A case that fails is told by its error, and one that ends the process by how it ended; the others go on."""
    script = "import os, sys; print('[\"a\", \"\", 0.1]', flush=True); os._exit(0) if 'b' in sys.argv else None"
    found = backend_people.ask([sys.executable, "-c", script], ["a", "b"], {}, 60)
    assert [(x.name, x.wrong) for x in found] == [("a", ""), ("b", "the process ended with 0")]
