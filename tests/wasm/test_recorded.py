"""Only in Pyodide: operators of PyTorch's table, with no NumPy there, against what PyTorch gave in CPython."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

import tabtorch
from wasm import recorded

FILE = os.environ["TABTORCH_RECORDED"]
SECONDS = float(os.environ["TABTORCH_RECORDED_SECONDS"])
#: of the samples of a file, how many must have been compared at least, on each device: a busy machine has time for so many
LEAST = {"cpu": 100, "webgpu": 10}


def test_recorded(device: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    found = recorded.check(FILE, tabtorch, device, SECONDS)
    with capsys.disabled():
        print(f"\n{found}")
    assert not found.wrong, "\n".join(found.wrong)
    assert found.passed >= LEAST[device]
    assert found.skipped["that need NumPy"] <= found.passed  # a slice of linear algebra
