"""Lists of tensors on real PyTorch's device="webgpu": the cases of backend_list_cases.py, in a process of their own for each device."""

from __future__ import annotations

import ast
import functools
import json
from pathlib import Path

import pytest

from sidebyside import DEVICES
from test_backend_eager import started

CASES = Path(__file__).resolve().parent / "backend_list_cases.py"
NAMES = [
    node.name
    for node in ast.parse(CASES.read_text()).body
    if isinstance(node, ast.FunctionDef) and any(ast.unparse(d) == "case" for d in node.decorator_list)
]
#: what is run on the GPU, too: a software adapter is slow
ON_WEBGPU = [
    "pieces_are_plain_tensors",
    "a_chain_is_one_kernel",
    "lists_larger_than_a_buffer",
    "pieces_of_a_runtime_that_ended",
]


@functools.cache
def answers(device: str) -> tuple[dict[str, str], str]:
    """What became of the cases, all of one process, and what it said."""
    done = started([str(CASES), *(NAMES if device == "cpu" else ON_WEBGPU)], device)
    found = dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    return found, f"the process ended with {done.returncode}\n{done.stderr[-2000:]}"


@pytest.mark.parametrize(
    ("device", "name"), [(d, name) for d in DEVICES for name in (NAMES if d == "cpu" else ON_WEBGPU)]
)
def test_case(device: str, name: str) -> None:
    found, said = answers(device)
    assert name in found, f"not reached: {said}"
    assert not found[name], found[name] if found[name] != "begun" else said
