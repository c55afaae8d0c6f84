"""`tabtorch export`: from a script, and what it says of files that it cannot take."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tabtorch as torch
from tabtorch import plan_files

SCRIPT = """
import torch
from torch import nn
model = nn.Linear(4, 2)
nn.init.ones_(model.weight), nn.init.zeros_(model.bias)
def predict(x):
    return model(x)
exports = {"methods": {"predict": (predict, (torch.zeros(3, 4),))}, "model": model}
"""


def tabtorch(*args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tabtorch.cli", "export", *map(str, args)], capture_output=True, text=True, timeout=120
    )


def test_a_script(tmp_path: Path) -> None:
    script, out = tmp_path / "model.py", tmp_path / "m.safetensors"
    script.write_text(SCRIPT)
    ran = tabtorch(script, "-o", out, "--dynamic", "x:0=batch", "--device", "cpu")
    assert ran.returncode == 0, ran.stderr
    assert str(out) in ran.stdout
    with torch.device("cpu"):
        m = plan_files.load(out, "cpu")
        assert m.predict(torch.ones(7, 4)).tolist() == [[4, 4]] * 7


PROGRAM = """
import sys, torch
from torch import nn
torch.manual_seed(0)
m = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2), nn.Softmax(-1)).eval()
sizes = ({0: torch.export.Dim("batch", min=2, max=50)},)
torch.export.save(torch.export.export(m, (torch.randn(3, 4),), dynamic_shapes={"input": sizes[0]}), sys.argv[1])
print(m(torch.ones(2, 4)).tolist())
"""


def test_a_program_of_pytorch(tmp_path: Path) -> None:
    """An archive of `torch.export.save`, with its own names and bounds."""
    archive, out = tmp_path / "m.pt2", tmp_path / "m.safetensors"
    made = subprocess.run(
        [sys.executable, "-c", PROGRAM, archive], capture_output=True, text=True, timeout=200, check=True
    )
    ran = tabtorch(archive, "-o", out, "--device", "cpu", "--method", "classify")
    assert ran.returncode == 0, ran.stderr
    with torch.device("cpu"):
        m = plan_files.load(out, "cpu")
        torch.testing.assert_close(m.classify(torch.ones(2, 4)), torch.tensor(json.loads(made.stdout)))
        assert [(d["min"], d["max"]) for d in m.dims.values()] == [(2, 50)]
        assert set(m.state_dict()) == {"0.weight", "0.bias", "2.weight", "2.bias"}


@pytest.mark.parametrize(
    ("name", "text", "more", "said"),
    [
        ("a.py", "x = 1\n", [], "does not say what to export"),
        ("a.py", SCRIPT, ["--dynamic", "x=batch"], "say INPUT:DIMENSION=NAME"),
        ("a.py", SCRIPT, ["--dynamic", "y:0=batch"], "no method has an input 'y'"),
        ("a.txt", "hello", [], "is no script, .pt2, TorchScript or ONNX file"),
        ("a.pt", "PK hello", [], "is damaged"),
        (
            "a.py",
            SCRIPT.replace("return model(x)", "return x.sum().item()"),
            [],
            "reads a value at .*model|reads a value",
        ),
    ],
)
def test_errors_are_for_people(tmp_path: Path, name: str, text: str, more: list[str], said: str) -> None:
    (tmp_path / name).write_text(text)
    ran = tabtorch(tmp_path / name, "-o", tmp_path / "m.safetensors", *more)
    assert ran.returncode == 2
    assert "Traceback" not in ran.stderr
    assert re.search(said, ran.stderr), ran.stderr
