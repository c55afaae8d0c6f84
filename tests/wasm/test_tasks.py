"""Only in Pyodide: tasks of asyncio that interleave while others wait for the device. In browsers: `tabtorch run tests/tab_tasks.py`."""

from __future__ import annotations

import asyncio
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


def test_a_read_takes_no_turn_of_pythons_event_loop(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would cost more than the read: see `_awaited` of bridge/pyodide.py."""
    x = tabtorch.ones(8, device=device)
    assert x.sum().item() == 8
    loop = asyncio.get_event_loop()
    turns: list[Any] = []
    call_later = loop.call_later
    monkeypatch.setattr(loop, "call_later", lambda *a, **k: (turns.append(a), call_later(*a, **k))[1])
    ensure_future = asyncio.ensure_future
    for n in range(3):
        assert (x + n).sum().item() == 8 * (n + 1)
    assert turns == []
    assert asyncio.ensure_future is ensure_future
