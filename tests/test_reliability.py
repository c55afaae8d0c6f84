"""The table of the long runs: what a command writes is what the page shows, the newest of each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import reliability


def test_a_line_and_its_page(tmp_path: Path) -> None:
    file = tmp_path / "new" / "lines.jsonl"
    for found in (3, 0):
        reliability.record(file, "soak", count=12345, unit="steps", found=found, seconds=301, on="cpu", buffers="1 → 1")
    reliability.record(file, "threads", count=16, unit="threads", found=0, seconds=2, on="cpu")
    reliability.record(None, "soak", count=1, unit="steps", found=0, seconds=1, on="cpu")
    with pytest.raises(ValueError, match="'other' is none of"):
        reliability.record(file, "other", count=1, unit="steps", found=0, seconds=1, on="cpu")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    text = reliability.page(lines)
    assert len(lines) == 3 and text.count("12,345 steps") == 1
    assert f"| soak | 12,345 steps | cpu | 5 min | 0 | {lines[0]['date']} |" in text
    assert "  - buffers: 1 → 1\n" in text and "## Threads" in text and "## Hostile" not in text
