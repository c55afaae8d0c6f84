"""The programs of tests/projects on real PyTorch's device="webgpu", eager and compiled: the losses of its CPU, each to 1e-4."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sidebyside import DEVICES
from test_programs import assert_same

ROOT = Path(__file__).resolve().parents[1]
NAMES = sorted(path.stem for path in (ROOT / "tests" / "projects").glob("*.py"))
HOWS = ("eager", "compiled", "beside")
#: how many losses; those on a software adapter take long
STEPS = {"cpu": 0, "webgpu": 4}


@functools.cache
def losses(name: str, how: str, device: str, steps: int) -> dict[str, Any]:
    """What a program came to, in a process of its own. device: what lies under "webgpu"."""
    alone = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONPATH": str(ROOT / "py"), "TABTORCH_DEVICE": device}
    command = [sys.executable, str(ROOT / "tests" / "backend_projects.py"), name, how, "--steps", str(steps)]
    done = subprocess.run(command, env={**os.environ, **alone}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    assert not found["error"], found["error"]
    return found


@pytest.mark.parametrize(("device", "name", "how"), [(d, n, h) for d in DEVICES for n in NAMES for h in HOWS])
def test_losses(device: str, name: str, how: str) -> None:
    want, got = (losses(name, h, device, STEPS[device]) for h in ("plain", how))
    assert len(got["losses"]) == len(want["losses"]) >= 4
    assert got["losses"] == pytest.approx(want["losses"], rel=1e-4)
    assert_same(got["out"], want["out"], 2e-3)  # which are printed with two or three decimals
    assert bool(got["graphs"]) is (how != "eager"), got["graphs"]
