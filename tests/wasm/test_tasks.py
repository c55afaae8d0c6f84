"""Only in Pyodide: tasks of asyncio that interleave while others wait for the device. In browsers: `tabtorch run tests/tab_tasks.py`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pyodide.code import eval_code_async
from pyodide.ffi import run_sync

import tabtorch

SCRIPT = Path(__file__).parents[1] / "tab_tasks.py"


def test_tasks(device: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setitem(sys.modules, "torch", tabtorch)
    tabtorch.set_default_device(device)
    try:
        run_sync(eval_code_async(SCRIPT.read_text(), {"__name__": "__main__"}, filename=str(SCRIPT)))
    finally:
        tabtorch.set_default_device(None)
    assert capsys.readouterr().out.startswith("as alone;")
