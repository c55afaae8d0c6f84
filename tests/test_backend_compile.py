"""`torch.compile(model, backend="webgpu")` of real PyTorch: the cases of dynamo_cases.py and of what that imports.

They run in a process of their own for each device.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sidebyside import DEVICES

HERE = Path(__file__).resolve().parent
CASES = [
    node.name.removeprefix("case_")
    for file in ("dynamo_cases.py", "dynamo_sizes.py", "dynamo_control.py")
    for node in ast.parse((HERE / file).read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("case_")
]
#: what is run on the GPU, too: a software adapter is slow, and what Dynamo does is the same for both
ON_WEBGPU = [
    "train_mlp",
    "train_cnn",
    "training_counts",
    "written_parameters",
    "mutation",
    "dropout",
    "types",
    "lost_device",
    "cond",
    "views_of_one",
    "sizes_decoding",
]


class Worker:
    """The process of one device. One that has ended is followed by another."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.process: Any = None

    def run(self, case: str) -> str:
        """What went wrong in a case; "" for nothing."""
        if self.process is None or self.process.poll() is not None:
            env = {**os.environ, "PYTHONPATH": str(HERE.parent / "py"), "TABTORCH_DEVICE": self.device}
            command = [sys.executable, str(HERE / "dynamo_cases.py")]
            self.process = subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        print(case, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        wrong: str = json.loads(answer) if answer else f"the process ended with {self.process.wait()}"
        return wrong

    def end(self) -> None:
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait(60)
            self.process.stdout.close()


@pytest.fixture(scope="module")
def workers() -> Iterator[dict[str, Worker]]:
    found = {device: Worker(device) for device in DEVICES}
    yield found
    for worker in found.values():
        worker.end()


@pytest.mark.parametrize(
    ("device", "case"),
    [(device, case) for device in DEVICES for case in (CASES if device == "cpu" else ON_WEBGPU)],
)
def test_compile(workers: dict[str, Worker], device: str, case: str) -> None:
    wrong = workers[device].run(case)
    assert not wrong, wrong
