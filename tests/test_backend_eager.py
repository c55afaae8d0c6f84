"""Real PyTorch with device="webgpu": tabtorch.backend. In processes of their own, as a process has one such device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sidebyside import DEVICES

ROOT = Path(__file__).resolve().parents[1]


def run(code: str, device: str = "cpu", **more: str) -> str:
    """What a program prints that runs real PyTorch over the device. AssertionError with what it said if it fails."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "py"), "TABTORCH_DEVICE": device, **more}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("device", DEVICES)
def test_the_example(device: str) -> None:
    run(
        """
import tabtorch.backend, torch
x = torch.ones(3, device="webgpu") + 1
assert torch.allclose(x.cpu(), torch.full((3,), 2.0))
torch.webgpu.synchronize()
assert torch.webgpu.memory_allocated() >= 12
assert torch.ones(2).webgpu().is_webgpu and type(x) is torch.Tensor
""",
        device,
    )
