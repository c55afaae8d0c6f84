"""A slice of PyTorch's own tables on real PyTorch's device="webgpu"; the whole is `python -m backend_db`."""

from __future__ import annotations

import pytest

from backend_db import left_out, page, workers
from backend_db.workers import Answer
from conformance import sections
from sidebyside import DEVICES
from slices import slice_of

#: of a device, (table, type) -> one of so many parts is asked; of those after the first, one with each commit
PARTS = {
    "cpu": {
        ("operators", "float32"): 90,
        ("modules", "float32"): 20,
        ("optimizers", "float32"): 15,
        ("operators", "float16"): 90,
        ("operators", "int64"): 90,
        ("operators", "complex64"): 90,
    },
    "webgpu": {("operators", "float32"): 220, ("modules", "float32"): 60, ("optimizers", "float32"): 15},
}


def due(device: str) -> list[tuple[str, str]]:
    """The tables and types whose turn it is."""
    first, *others = PARTS[device]
    return [first, others[slice_of(len(others), "backend_db " + device)]]


@pytest.mark.parametrize("turn", (0, 1))
@pytest.mark.parametrize("device", DEVICES)
def test_part(device: str, turn: int) -> None:
    """A part of a table, another with each commit."""
    table, dtype = due(device)[turn]
    parts = PARTS[device][table, dtype]
    part = (slice_of(parts, f"backend_db {table} {dtype} {device}"), parts)
    found = workers.ask_all(table, device, 1, part=part, dtype=dtype)
    assert found and any(x.checks for x in found)
    assert not [(x.name, x.wrong) for x in found if x.wrong and not left_out.reason(x)]
    assert not any(x.crashed for x in found)


def test_it_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator that is wrong by a little, one that ends the process, and those after it."""
    code = """
import os, torch
from backend_db import operators, workers
plain = operators.entries
def entries(dtype):
    every = plain(dtype)
    every["exp"].op = lambda x, **kw: torch.exp(x, **kw) * (1.01 if x.device.type == "webgpu" else 1)
    every["sin"].op = lambda x, **kw: os.kill(os.getpid(), 11) if x.device.type == "webgpu" else torch.sin(x)
    return every
operators.entries = entries
workers.work()
"""
    monkeypatch.setattr(workers, "PROGRAM", code)
    found = {x.name: x for x in workers.ask_all("operators", "cpu", 1, ["exp", "sin", "tan"])}
    assert "not close" in found["exp"].checks["forward"]
    assert found["sin"].crashed and not found["exp"].crashed
    assert not found["tan"].wrong and {"forward", "gradient", "in-place", "out=", "layouts"} <= set(found["tan"].checks)


def test_the_page() -> None:
    answers = [
        Answer("operators", "abs", "cpu", "float32", {"forward": "", "gradient": ""}),
        Answer("operators", "chalf", "cpu", "float32", {"forward": "TypeError: no"}),
        Answer("modules", "nn.ReLU", "webgpu", "float32", {"forward": ""}),
        Answer("optimizers", "SGD", "cpu", "float32", {"steps": "AssertionError: off"}),
    ]
    text = page.section(answers)
    assert "| float32 | cpu | 1/2 | ✓ (1) |" in text and "there is no complex32" in text
    assert "SGD" in text and "off" in text
    whole = "# Top\n\n## Modules\n\nold\n"
    once = sections.put(whole, sections.PYTORCH, text)
    assert once.startswith("# Top\n") and once.endswith("## Modules\n\nold\n")
    assert sections.put(once, sections.PYTORCH, text) == once and sections.kept(once, sections.PYTORCH) == text
    other = f"{sections.ONNX}\n\nmany\n\n"
    assert sections.put(once, sections.ONNX, other) == once.replace("## Modules", other + "## Modules")
    assert sections.put_all(whole, sections.put(sections.put(whole, sections.ONNX, other), sections.PYTORCH, text)) == (
        sections.put(once, sections.ONNX, other)
    )
