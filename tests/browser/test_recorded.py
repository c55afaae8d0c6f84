"""In Chromium, on WebGPU: operators against what PyTorch gave in CPython, and random programs, compiled and eager."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from browser.pages import run_script

HERE = Path(__file__).parents[1]
MAIN = "/work/main.py"  # what it imports lies beside it
SECONDS = {"recorded": 15, "compiled": 15}
PROGRAMS = 20  # of the seeds that pass; fresh ones are for `make fuzz`

RECORDED = """import json, sys, torch, recorded
found = recorded.check("recorded.pt", torch, "webgpu", float(sys.argv[1]))
print(found)
print(json.dumps([found.passed, found.wrong]))
"""
COMPILED = """import json, sys
from fuzz import compiled
found = compiled.run_many(int(sys.argv[1]), int(sys.argv[2]), "webgpu", seconds=float(sys.argv[3]))
print(json.dumps([found["programs"], list(found["differing"].items())]))
"""


@pytest.fixture
def chromium(name: str, runner: Any) -> Any:
    if name != "chromium":
        pytest.skip("it is the same Python in every browser; Firefox's own part is in the other files")
    return runner


def said(done: Any) -> Any:
    assert done.status == 0, done.stderr
    print(done.stdout)
    return json.loads(done.stdout.splitlines()[-1])


def test_recorded(chromium: Any) -> None:
    file = os.environ.get("TABTORCH_RECORDED")
    if not file:
        pytest.skip("no samples were recorded: python -m wasm.record")
    files = {"recorded.pt": Path(file).read_bytes(), "recorded.py": (HERE / "wasm" / "recorded.py").read_bytes()}
    passed, wrong = said(run_script(chromium, RECORDED, files=files, argv=[str(SECONDS["recorded"])], filename=MAIN))
    assert not wrong, "\n".join(wrong)
    assert passed >= 20


def test_compiled_programs(chromium: Any) -> None:
    files = {f"fuzz/{path.name}": path.read_bytes() for path in (HERE / "fuzz").glob("*.py")}
    seed = 2_000_000
    argv = [str(seed), str(PROGRAMS), str(SECONDS["compiled"])]
    programs, differing = said(run_script(chromium, COMPILED, files=files, argv=argv, filename=MAIN))
    assert not differing, f"python -m fuzz.compiled --device webgpu --show SEED: {differing}"
    assert programs >= 1, f"from seed {seed}"
