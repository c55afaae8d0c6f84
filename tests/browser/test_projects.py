"""Some of the projects of tests/projects in a tab: the losses of real PyTorch there too."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from test_programs import assert_same
from test_projects import HERE, IN_A_TAB, on_pytorch

WANTED = os.environ.get("TABTORCH_BROWSERS", "chromium firefox").split()


@pytest.mark.skipif("chromium" not in WANTED, reason="Chromium was not asked for")
@pytest.mark.parametrize("name", IN_A_TAB)
def test_in_a_tab(name: str, tmp_path: Path) -> None:
    einops = importlib.util.find_spec("einops")
    assert einops is not None and einops.origin is not None
    shutil.copytree(Path(einops.origin).parent, tmp_path / "einops")  # a tab without a network cannot install it
    script = shutil.copy(HERE / "projects" / f"{name}.py", tmp_path)
    command = [sys.executable, "-m", "tabtorch.cli", "run", script, "--browser", "chromium", "--mount", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert_same(done.stdout, on_pytorch(name)["out"], 1e-2)
