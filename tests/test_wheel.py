"""The wheel: what is in it, how large it is, and that it is the same every time and works where it is installed."""

from __future__ import annotations

import importlib.util
import lzma
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 750_000  # bytes: some 2 % of what a first visit loads anyway


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_wheel", ROOT / "build_wheel.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def wheel(builder: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    return folder / builder.build_wheel(str(folder))


def test_size(wheel: Path) -> None:
    assert wheel.stat().st_size <= LIMIT


def test_contents(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
        inside = set(lzma.decompress(archive.read("tabtorch/library.xz")).decode().split("\0")[::2])
    assert {
        "tabtorch/__init__.py",
        "tabtorch/bridge/runtime.js",
        "tabtorch/bridge/host.mjs",
        "pytest_tabtorch.py",
    } <= names
    assert {f"tabtorch/wgsl/{path.name}" for path in (ROOT / "wgsl").glob("*.wgsl")} | {"tabtorch/tensor.py"} <= inside
    assert not [name for name in names if "__pycache__" in name or name.endswith((".ts", ".map"))]
    needs = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert not needs


def test_the_same_every_time(builder: ModuleType, wheel: Path, tmp_path: Path) -> None:
    again = tmp_path / builder.build_wheel(str(tmp_path))
    assert again.read_bytes() == wheel.read_bytes()


def test_installs_with_pip_and_runs(wheel: Path, tmp_path: Path) -> None:
    """In a bare environment: no NumPy, nothing of the checkout but npm's webgpu."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    python = venv / "bin" / "python"
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    pip = [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel]
    subprocess.run(pip, check=True, env=env, cwd=tmp_path)
    script = """
import tabtorch; tabtorch.install()
import torch
assert torch.__file__.startswith(PREFIX), torch.__file__
x = torch.arange(6.0, device="cpu").reshape(2, 3)
assert (x @ x.T + 1).tolist() == [[6.0, 15.0], [15.0, 51.0]]
from tabtorch.ops import core
public = {name: core.function(name) for name in core.all_functions()}
public |= {f"Tensor.{name}": core.method(name) for name in core.all_methods()}
undocumented = [name for name, f in public.items() if callable(f) and not f.__doc__ and not isinstance(f, type)]
assert not undocumented, undocumented
assert {"conv2d", "svd_lowrank", "Tensor.logdet"} <= public.keys(), len(public)  # of every module, loaded or not
""".replace("PREFIX", repr(str(venv)))
    subprocess.run([python, "-c", script], check=True, env=env, cwd=tmp_path, timeout=60)
    listed = subprocess.run([venv / "bin" / "tabtorch", "--help"], check=True, capture_output=True, text=True, env=env)
    assert "run" in listed.stdout
    (tmp_path / "a.py").write_text("import torch\nprint(torch.ones(2).sum().item())\n")
    run = [venv / "bin" / "tabtorch", "run", tmp_path / "a.py", "--browser", "node", "--device", "cpu"]
    done = subprocess.run(run, check=True, capture_output=True, text=True, env=env, cwd=ROOT, timeout=120)
    assert done.stdout == "2.0\n"  # npm's pyodide is the checkout's, found where the user stands


def test_installs_in_pyodide(wheel: Path, tmp_path: Path) -> None:
    """As any Pyodide host would: `loadPackage` of the file, then `import torch`."""
    script = tmp_path / "host.mjs"
    script.write_text(
        """
const { loadPyodide } = await import(process.argv[2]);
const pyodide = await loadPyodide({ env: { HOME: "/home/pyodide", TABTORCH_DEVICE: "cpu" } });
const quiet = { messageCallback() {}, checkIntegrity: false };
await pyodide.loadPackage(process.argv[3], quiet);
const sum = await pyodide.runPythonAsync(`
import tabtorch
tabtorch.install()
await tabtorch.init()
import torch
import sys
assert "numpy" not in sys.modules
(torch.arange(4.0) * 2).sum().item()
`);
if (sum !== 12) throw new Error(`got ${sum}`);
process.exit(0);
"""
    )
    pyodide = ROOT / "node_modules" / "pyodide" / "pyodide.mjs"
    subprocess.run(["node", script, pyodide.as_uri(), wheel.as_uri()], check=True, timeout=120, cwd=tmp_path)
