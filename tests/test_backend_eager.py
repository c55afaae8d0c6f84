"""Real PyTorch with device="webgpu": tabtorch.backend. In processes of their own: a process has one such device, and may be lost."""

from __future__ import annotations

import ast
import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sidebyside import DEVICES
from tabtorch import _autoload

ROOT = Path(__file__).resolve().parents[1]
CASES = ROOT / "tests" / "backend_cases.py"
NAMES = [
    node.name
    for node in ast.parse(CASES.read_text()).body
    if isinstance(node, ast.FunctionDef) and any(ast.unparse(d) == "case" for d in node.decorator_list)
]


def started(args: list[str], device: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A Python process in which "webgpu" is this device of ours."""
    alone = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}  # whether or not this package is installed where the tests run
    env = {**os.environ, **alone, "PYTHONPATH": str(ROOT / "py"), "TABTORCH_DEVICE": device, **more}
    return subprocess.run([sys.executable, *args], env=env, capture_output=True, text=True, timeout=600)


def run(code: str, device: str = "cpu", **more: str) -> str:
    """What a program prints. AssertionError with what it said if it fails."""
    done = started(["-W", "error", "-c", code], device, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@functools.cache
def answers(device: str) -> tuple[dict[str, str], str]:
    """What became of the cases, all of one process, and what it said."""
    done = started([str(CASES)], device)
    found = dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    return found, f"the process ended with {done.returncode}\n{done.stderr[-2000:]}"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("device", DEVICES)
def test_case(device: str, name: str) -> None:
    found, said = answers(device)
    assert name in found, f"not reached: {said}"
    assert not found[name], found[name] if found[name] != "begun" else said


@pytest.mark.parametrize("device", DEVICES)
def test_the_example(device: str) -> None:
    run(
        """
import tabtorch.backend, torch
x = torch.ones(3, device="webgpu") + 1
assert torch.allclose(x.cpu(), torch.full((3,), 2.0))
torch.webgpu.synchronize()
assert torch.webgpu.memory_allocated() >= 12
assert torch.ones(2).webgpu().is_webgpu
""",
        device,
    )


def test_nothing_is_started_by_the_import() -> None:
    run(
        """
import sys, tabtorch.backend, torch
from tabtorch import bridge
assert bridge._bridge is None
assert torch.ones(2).sum() == 2 and bridge._bridge is None
tabtorch.backend.install()  # once more is nothing
assert "torch._dynamo" not in sys.modules
"""
    )


def test_without_node() -> None:
    """`import torch` is unharmed; the first use says what to install."""
    run(
        """
import tabtorch.backend, torch
assert torch.ones(2).sum() == 2
try:
    torch.ones(2, device="webgpu")
except RuntimeError as e:
    assert "needs Node" in str(e) and "PATH" in str(e), e
else:
    raise AssertionError
assert not torch.webgpu.is_available()
""",
        PATH="/nowhere",
        TABTORCH_NODE="",
    )


def _distribution(folder: Path) -> str:
    """A folder in which the package is installed as far as entry points go."""
    info = folder / "tabtorch-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tabtorch\nVersion: 0\n")
    (info / "entry_points.txt").write_text(
        "[torch.backends]\ntabtorch = tabtorch._autoload:autoload\n"
        "[torch_dynamo_backends]\nwebgpu = tabtorch.backend.dynamo:webgpu\n"
    )
    return f"{folder}:{ROOT / 'py'}"


@pytest.mark.parametrize("autoload", ["1", "0"])
def test_torch_alone(tmp_path: Path, autoload: str) -> None:
    """`import torch` is enough, unless it was turned off."""
    code = "import torch; print(torch.ones(2, device='webgpu').cpu().tolist())"
    env = {"PYTHONPATH": _distribution(tmp_path), "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload}
    done = started(["-W", "error", "-c", code], "cpu", **env)
    if autoload == "1":
        assert done.stdout == "[1.0, 1.0]\n", done.stderr
    else:
        assert done.returncode and "webgpu" in done.stderr and "tabtorch" not in done.stderr


def test_torch_alone_compiles(tmp_path: Path) -> None:
    """Dynamo finds the backend by its entry point."""
    code = "import torch; print(torch.compile(torch.add, backend='webgpu')(torch.ones(2), 1).tolist())"
    done = started(["-c", code], "cpu", PYTHONPATH=_distribution(tmp_path), TORCH_DEVICE_BACKEND_AUTOLOAD="1")
    assert done.stdout == "[2.0, 2.0]\n", done.stderr


def test_the_entry_point_is_declared() -> None:
    import tomllib

    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert table["entry-points"]["torch.backends"] == {"tabtorch": "tabtorch._autoload:autoload"}
    assert table["entry-points"]["torch_dynamo_backends"] == {"webgpu": "tabtorch.backend.dynamo:webgpu"}
    assert table["optional-dependencies"]["torch"] == ["torch>=2.10"]


@pytest.mark.parametrize("imported", ["torch", "tabtorch.backend"])
def test_a_torch_that_lacks_something(tmp_path: Path, imported: str) -> None:
    """One sentence: a warning while `import torch` runs, which is unharmed; an error where the backend is asked for."""
    site = tmp_path / "sitecustomize.py"
    site.write_text(
        """
import importlib.abc, sys
class Finder(importlib.abc.MetaPathFinder):  # takes a name away before PyTorch looks for backends
    def find_spec(self, name, path, target=None):
        if name == "tabtorch":
            import torch._C
            if hasattr(torch._C, "_construct_storage_from_data_pointer"):
                del torch._C._construct_storage_from_data_pointer
sys.meta_path.insert(0, Finder())
"""
    )
    path = _distribution(tmp_path)
    if imported == "torch":
        code = """
import warnings
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    import torch
assert "has no torch._C._construct_storage_from_data_pointer" in str(seen[-1].message), seen
assert torch.ones(2).sum() == 2
"""
        done = started(["-c", code], "cpu", PYTHONPATH=path, TORCH_DEVICE_BACKEND_AUTOLOAD="1")
    else:
        code = """
import torch
try:
    import tabtorch.backend
except ImportError as e:
    assert "has no torch._C._construct_storage_from_data_pointer" in str(e), e
else:
    raise AssertionError
"""
        done = started(["-c", code], "cpu", PYTHONPATH=path, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.returncode == 0, done.stderr


def test_another_accelerator_stays_what_it_is() -> None:
    """Beside CUDA the device is for those who ask: autograd of PyTorch serves one accelerator a process."""
    run(
        """
import sys, warnings, torch
from tabtorch import _autoload
_autoload.other_accelerator = lambda torch: "cuda"
_autoload.autoload()
assert "tabtorch.backend" not in sys.modules and torch._C._get_privateuse1_backend_name() == "privateuseone"
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    import tabtorch.backend
(said,) = [str(w.message) for w in seen]
assert 'backward() on "cuda" fails' in said, said
assert (torch.ones(2, device="webgpu") + 1).tolist() == [2, 2]
"""
    )


@pytest.mark.parametrize(
    ("built_for", "gpus", "hip", "found"),
    [
        (None, 0, None, ""),
        ("cuda", 0, None, ""),  # PyPI's wheel, on a machine without one
        ("cuda", 2, None, "cuda"),
        ("cuda", -1, None, "cuda"),  # a driver whose library for management is not there
        ("cuda", 2, "7.0", "cuda"),
        ("mps", 1, None, "mps"),
        ("mps", 0, None, ""),
        ("privateuseone", 1, None, ""),
    ],
)
def test_which_accelerator_there_is(
    monkeypatch: pytest.MonkeyPatch, built_for: str | None, gpus: int, hip: str | None, found: str
) -> None:
    kind = None if built_for is None else SimpleNamespace(type=built_for)
    torch = SimpleNamespace(
        version=SimpleNamespace(hip=hip),
        accelerator=SimpleNamespace(current_accelerator=lambda: kind),
        cuda=SimpleNamespace(_device_count_nvml=lambda: gpus),
        get_device_module=lambda kind: SimpleNamespace(is_available=lambda: gpus > 0),
    )
    monkeypatch.setattr(_autoload.ctypes, "CDLL", lambda name: None)
    monkeypatch.setattr(_autoload.os.path, "exists", lambda path: True)
    assert _autoload.other_accelerator(torch) == found

    def nowhere(name: str) -> None:
        raise OSError

    monkeypatch.setattr(_autoload.ctypes, "CDLL", nowhere)
    if built_for == "cuda" and hip is None:
        assert _autoload.other_accelerator(torch) == ""


def test_what_an_import_leaves_for_the_first_tensor() -> None:
    """Kernels and casts are registered with it, in a region of autocast as well, and by several threads once."""
    run(
        """
import threading, torch, tabtorch.backend
has = torch._C._dispatch_has_kernel_for_dispatch_key
assert not has("aten::mm", "PrivateUse1") and not has("aten::mm", "AutocastPrivateUse1")
made = []
def work():
    with torch.autocast("webgpu", dtype=torch.bfloat16):
        x = torch.ones(2, 2, device="webgpu")
        made.append((x @ x).dtype)
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
assert made == [torch.bfloat16] * 4, made
assert has("aten::mm", "PrivateUse1") and has("aten::mm", "AutocastPrivateUse1")
"""
    )


def test_where_torch_is_tabtorch() -> None:
    done = started(["-c", "import tabtorch; tabtorch.install(); import tabtorch.backend"], "cpu")
    assert "tabtorch.backend is for real PyTorch" in done.stderr


def test_another_device_in_the_place() -> None:
    code = "import torch; torch.utils.rename_privateuse1_backend('other'); import tabtorch.backend"
    assert 'is taken by "other"' in started(["-c", code], "cpu").stderr


def test_addresses_are_mapped_nowhere() -> None:
    """Whoever reads memory of the device ends, and never reads another's."""
    code = """
import ctypes, tabtorch.backend, torch
x = torch.ones(3, device="webgpu")
assert x.data_ptr() >= 1 << 54
ctypes.string_at(x.data_ptr(), 4)
"""
    assert started(["-c", code], "cpu").returncode in (-signal.SIGSEGV, -signal.SIGBUS)


def test_files_for_a_torch_without_it(tmp_path: Path) -> None:
    run(f"import tabtorch.backend, torch; torch.save(torch.arange(3, device='webgpu'), {str(tmp_path / 'x.pt')!r})")
    code = f"import torch; print(torch.load({str(tmp_path / 'x.pt')!r}, map_location='cpu').tolist())"
    assert started(["-c", code], "cpu", TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout == "[0, 1, 2]\n"
