"""Only in Pyodide: the random programs of `fuzz`. More of them: `python -m wasm -m fuzz.compiled`, `python -m wasm -m fuzz.aliases`."""

from __future__ import annotations

import os
from typing import Any

import tabtorch
from fuzz import aliases, compiled
from fuzz.oracle import record

#: the same in every run, for what must pass has passed before; `make fuzz` takes fresh ones
FIRST = int(os.environ.get("TABTORCH_FUZZ_SEED") or 0)
SECONDS = float(os.environ.get("TABTORCH_FUZZ_SECONDS", "20"))
#: programs that there must have been time for at least, on each device, be the machine busy
LEAST = {"cpu": 3, "webgpu": 1}


def test_compiled_programs(device: str, capsys: Any) -> None:
    """Compiled is eager, in the interpreter that ships."""
    found = compiled.run_many(FIRST, 1 << 30, device, seconds=SECONDS)
    with capsys.disabled():
        print(f"\n{found['programs']} compiled programs from seed {FIRST} on {device}")
    assert not found["differing"], f"python -m fuzz.compiled --show SEED: {found['differing']}"
    assert found["programs"] >= LEAST[device]


def test_alias_programs(device: str, capsys: Any) -> None:
    """Views, in-place writes and gradients as PyTorch has them: it runs the programs first, and sends what it found."""
    count = 200 if device == "cpu" else 20
    recorded = record(range(FIRST, FIRST + count), device == "cpu")
    with capsys.disabled():
        print(f"\n{len(recorded)} alias programs from seed {FIRST} on {device}")
    wrong = aliases.check(recorded, tabtorch, device)
    assert not wrong, f"python -m fuzz.aliases --seed SEED: {wrong[:3]}"
