"""The digits demo in CPython, on both devices, beside the same file on real PyTorch: the losses are the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sidebyside import DEVICES

DEMO = Path(__file__).parents[1] / "web" / "demos" / "01-digits.py"

# argv: the demo, where to run it ("pytorch", or a device of tabtorch), how many epochs
SCRIPT = """
import json, runpy, sys
if sys.argv[2] != "pytorch":
    import tabtorch
    tabtorch.install()
    tabtorch.set_default_device(sys.argv[2])
import torch
demo = runpy.run_path(sys.argv[1])
device = sys.argv[2]
if device != "pytorch":
    demo["setup"].__globals__["device"] = device
model, optimizer, train_loader, test_loader = demo["setup"]()
assert all(p.device.type == ("cpu" if device == "pytorch" else device) for p in model.parameters())
epochs, accuracy, steps = [], [], []
for epoch in range(1, int(sys.argv[3]) + 1):
    for group in optimizer.param_groups:
        group["lr"] = demo["RATE"] * (1 - (epoch - 1) / demo["EPOCHS"])
    losses = []
    for loss in demo["train"](model, optimizer, train_loader):
        losses.append(loss)
        if epoch == 1 and len(losses) == 10:
            steps = [each.item() for each in losses]
            if sys.argv[3] == "1":
                break
    else:
        epochs.append(torch.stack(losses).mean().item())
        accuracy.append(demo["accuracy"](model, test_loader))
print(json.dumps({"steps": steps, "epochs": epochs, "accuracy": accuracy}))
"""


@cache
def trained(where: str, epochs: int) -> dict[str, Any]:
    """The losses of the first ten steps, of each epoch, and the accuracies. One epoch: only the ten steps."""
    command = [sys.executable, "-c", SCRIPT, str(DEMO), where, str(epochs)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("device", DEVICES)
def test_the_first_ten_steps(device: str) -> None:
    assert trained(device, 1)["steps"] == pytest.approx(trained("pytorch", 1)["steps"], rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_every_epoch(device: str) -> None:
    here, there = trained(device, 8), trained("pytorch", 8)
    assert here["epochs"] == pytest.approx(there["epochs"], rel=0.01)
    assert here["accuracy"][-1] >= 0.97
