"""Random programs on real PyTorch's device="webgpu", eager and compiled: a few of a fixed sequence, and those that once differed.

Fresh ones: `python -m fuzz.backend`, or `make fuzz`. In processes of their own, as a process has one such device.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
#: kind, device, first seed, how many programs
RUNS = [
    ("views", "cpu", 0, 192),
    ("views", "webgpu", 320, 32),
    ("traced", "cpu", 0, 6),
    ("programs", "cpu", 0, 12),
    ("compiled", "cpu", 0, 1),
]
#: programs that differed once, and what did
FOUND = [
    ("views", 2079, "resize_ of what shares its storage"),
    ("views", 770, "the strides of select_scatter"),
    ("views", 551, "index_put_ of a tensor into itself"),
    ("views", 101, "out= that is read, too"),
    ("views", 2483, "a clone of no elements, row by row"),
    ("views", 110286000252, "an out= that is resized lies as the result"),
    ("views", 110286002561, "a sum in the type of out="),
    ("views", 110286010800, "leaky_relu_ of a negative slope"),
    ("views", 110286010839, "elu_ of a negative slope"),
    ("traced", 4, "the memory of a result was given back before it was returned"),
    ("traced", 10, "the imaginary part of a result"),
    ("traced", 19, "a view of another type of what is differentiated"),
    ("traced", 28, "parts of an argument"),
    ("compiled", 2, "inference mode inside of it"),
]


def run(code: list[str], device: str) -> tuple[int, str]:
    alone = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONPATH": str(TESTS.parent / "py"), "TABTORCH_DEVICE": device}
    command = [sys.executable, *code]
    done = subprocess.run(command, env={**os.environ, **alone}, cwd=TESTS, capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout + done.stderr[-2000:]


@pytest.mark.parametrize(("kind", "device", "first", "count"), RUNS)
def test_programs(kind: str, device: str, first: int, count: int) -> None:
    code, said = run(
        ["-m", "fuzz.backend", "--kind", kind, "--seed", str(first), "--programs", str(count), "--shrink"], device
    )
    assert code == 0, said


@pytest.mark.parametrize("kind", ["views", "traced", "compiled"])
def test_found(kind: str) -> None:
    seeds = [str(seed) for k, seed, _ in FOUND if k == kind]
    program = (
        "import sys; from fuzz.backend import KINDS; run = KINDS[sys.argv[1]][0]\n"
        "wrong = [found for s in map(int, sys.argv[2:]) for found in run(range(s, s + 1))]; sys.exit(str(wrong) if wrong else 0)"
    )
    code, said = run(["-c", program, kind, *seeds], "cpu")
    assert code == 0, said


def test_a_difference_is_seen() -> None:
    """A function whose compiled results are a little wrong; programs that were recorded as they are, and run a little wrong."""
    program = """
import torch, fuzz.backend as b, fuzz.oracle as oracle
recorded = oracle.record(range(100))
oracle.record = lambda seeds, wide: [r for r in recorded if r["seed"] in seeds]
function = b.Traced(recorded[20], False)
function.lines.append("t0 = t0 * 1.0")
assert not b.traced_differences(function)
from tabtorch.backend.dynamo import compiler
wrap = compiler.to_webgpu
compiler.to_webgpu = lambda x, order: wrap(x + 1 if x.is_floating_point() else x, order)
assert b.traced_differences(function)
torch.Tensor.mul_ = torch.Tensor.add_ = torch.Tensor.copy_ = torch.Tensor.fill_ = lambda self, other: self
assert len(b.views(range(100))) > 3
"""
    code, said = run(["-c", program], "cpu")
    assert code == 0, said
