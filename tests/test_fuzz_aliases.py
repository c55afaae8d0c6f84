"""Random programs of views, writes and gradients against PyTorch: as many of a fixed sequence as fit into some seconds.

Fresh ones each time: `python -m fuzz.aliases`, or `make fuzz`.
"""

from __future__ import annotations

import json
import time

import pytest
import torch

import tabtorch
from fuzz.aliases import check, describe
from fuzz.oracle import record
from sidebyside import DEVICES

#: seconds, and the number of programs at most
BOX = {"cpu": (20, 1600), "webgpu": (12, 128)}


@pytest.mark.parametrize("device", DEVICES)
def test_programs(device: str) -> None:
    seconds, most = BOX[device]
    end = time.monotonic() + seconds
    ran = 0
    with tabtorch.device(device):
        while ran < most and time.monotonic() < end:
            wrong = check(record(range(ran, ran + 32), device == "cpu"), tabtorch, device)
            ran += 32
            if wrong:
                first, why = wrong[0]
                again = f"python -m fuzz.aliases --device {device} --seed {first} --shrink"
                raise AssertionError(f"{again}\n{describe(record([first], device == 'cpu')[0], why)}")


def test_programs_are_data() -> None:
    """What is recorded can be kept as JSON, and PyTorch agrees with itself."""
    recorded = json.loads(json.dumps(record(range(60))))
    assert check(recorded, torch, "cpu") == []


@pytest.mark.parametrize("what", ["write", "version", "view"])
def test_a_difference_is_seen(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that is a little wrong does not pass."""
    recorded = record(range(200))
    if what == "write":
        monkeypatch.setattr(tabtorch.Tensor, "mul_", lambda self, other: self)
    elif what == "version":
        monkeypatch.setattr(tabtorch.core.storage.Storage, "written", lambda self: None)
    else:
        monkeypatch.setattr(tabtorch.Tensor, "transpose", lambda self, a, b: self.clone())
    with tabtorch.device("cpu"):
        assert len(check(recorded, tabtorch, "cpu")) > 5
