"""Who holds a value: counted in one module, right under every interpreter there is, and never relied on where it is not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import liveness_cases
import tabtorch as torch
from tabtorch import nn
from tabtorch.engine import graph, liveness

HERE = Path(__file__).parent
PACKAGE = Path(torch.__file__).parent


@pytest.mark.parametrize("case", liveness_cases.CASES, ids=lambda f: f.__name__)
def test_here(case: Any) -> None:
    assert liveness.RELIABLE
    case(liveness)


@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14", "3.15"])
def test_in_another_python(version: str) -> None:
    """The module needs nothing but the interpreter."""
    python = shutil.which(f"python{version}")
    if python is None:
        pytest.skip(f"there is no python{version}")
    # those of this interpreter would lead another to the wrong library
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONHOME", "PYTHONPATH")}
    if shutil.which("pyenv"):  # it starts only what it is told
        found = subprocess.run(["pyenv", "whence", f"python{version}"], capture_output=True, text=True).stdout.split()
        env["PYENV_VERSION"] = ":".join(found)
    command = [python, str(HERE / "liveness_cases.py"), str(PACKAGE / "engine" / "liveness.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
    assert done.stdout == f"{len(liveness_cases.CASES)} cases of liveness hold in {version}\n", done.stderr


def test_in_pyodide() -> None:
    """The interpreter that ships."""
    command = [sys.executable, "-m", "tabtorch.cli", "run", str(HERE / "liveness_cases.py"), "--browser", "node"]
    done = subprocess.run([*command, "--device", "cpu"], capture_output=True, text=True, timeout=300)
    assert re.fullmatch(rf"{len(liveness_cases.CASES)} cases of liveness hold in 3\.1\d\n", done.stdout), done.stderr


def test_nobody_else_counts() -> None:
    users = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if "refcount" in path.read_text()}
    assert users == {"engine/liveness.py"}


def test_where_it_cannot_count_everything_is_held(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers, with every value stored and nothing replayed."""

    def trained() -> list[Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        x = torch.randn(8, 3)

        @torch.compile
        def step() -> Any:
            optimizer.zero_grad()
            loss = (model(x) - 1).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss

        return [step().item() for _ in range(6)] + [p.tolist() for p in model.state_dict().values()]

    want = trained()
    kernels = graph.counts["plans"]
    monkeypatch.setattr(liveness, "_OWN", -liveness.EVERYBODY)
    got = trained()
    assert graph.counts["plans"] > kernels  # other plans: nothing is left out
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(np.array(a), np.array(b), rtol=1e-5, atol=1e-6)
