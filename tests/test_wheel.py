"""The wheels: what is in them, how large they are, and that they are the same every time and work where they are installed."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from tabtorch import _archive

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 800_000  # bytes of the tab's: some 2 % of what a first visit loads, compressed


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_wheel", ROOT / "build_wheel.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tab_wheel(builder: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    return folder / builder.build_tab_wheel(str(folder))


@pytest.fixture(scope="module")
def wheel(builder: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pip")
    return folder / builder.build_wheel(str(folder))


def extras(wheel: Path) -> Path:
    """The wheel beside it, with what few programs use."""
    return wheel.with_name(wheel.name.replace("tabtorch-", "tabtorch_extras-"))


def archived(wheel: Path) -> dict[str, str]:
    """Name -> text, of what is in the tab's archive."""
    for each, part in ((wheel, "library.xz"), (extras(wheel), "extras.xz")):
        with zipfile.ZipFile(each) as file:
            file.extract(f"tabtorch/{part}", wheel.parent / "archive")
    library = _archive.Library(str(wheel.parent / "archive" / "tabtorch" / "library.xz"))
    return {name: (library.read(name) or b"").decode() for name in library.places}


def metadata(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as file:
        return file.read(next(name for name in file.namelist() if name.endswith("METADATA"))).decode()


def test_size(tab_wheel: Path) -> None:
    assert tab_wheel.stat().st_size <= LIMIT


def test_contents(builder: ModuleType, wheel: Path, tab_wheel: Path) -> None:
    """The plain wheel has every file, as it is written; the tab's all but what only a host needs, and no comments."""
    with zipfile.ZipFile(wheel) as file:
        plain = {name: file.read(name) for name in file.namelist() if ".dist-info/" not in name}
    package = ROOT / "py" / "tabtorch"
    written = {f"tabtorch/{path.relative_to(package).as_posix()}": path for path in package.rglob("*.py")}
    written |= {f"tabtorch/wgsl/{path.name}": path for path in (ROOT / "wgsl").glob("*.wgsl")}
    written["pytest_tabtorch.py"] = ROOT / "py" / "pytest_tabtorch.py"
    assert all(plain[name] == path.read_bytes() for name, path in written.items())
    generated = {"tabtorch/ops/names.py", "tabtorch/bridge/runtime.js", "tabtorch/bridge/host.mjs"}
    assert generated | {"tabtorch/py.typed"} <= plain.keys()
    assert not [name for name in plain if "__pycache__" in name or name.endswith((".ts", ".map"))]

    inside = archived(tab_wheel)
    assert inside.keys() == plain.keys() - builder.HOST_ONLY - builder.OPENERS
    with zipfile.ZipFile(extras(tab_wheel)) as file:
        assert [n for n in file.namelist() if ".dist-info/" not in n] == ["tabtorch/extras.xz"]
    assert {n for n in inside if n.startswith(builder.EXTRAS)} > {"tabtorch/onnx/__init__.py", "tabtorch/fx/graph.py"}
    for name, text in inside.items():
        written_as = plain[name].decode()
        if name.endswith(".py"):
            assert text.count("\n") == written_as.count("\n"), name
            assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(written_as)), name
        elif name.startswith("tabtorch/engine/kernels/"):
            code = [line for line in written_as.split("\n") if not line.lstrip().startswith(("//", "/**"))]
            assert [line for line in text.split("\n") if line] == [line for line in code if line], name
        else:
            assert text == written_as, name
    assert builder.HOST_ONLY | builder.OPENERS <= plain.keys()
    for each in (wheel, tab_wheel):
        needs = [line for line in metadata(each).splitlines() if line.startswith("Requires-Dist")]
        assert not [line for line in needs if "extra ==" not in line]
    assert "# tabtorch" in metadata(wheel)


def test_nothing_in_a_tab_imports_what_only_a_host_has(builder: ModuleType, tab_wheel: Path) -> None:
    """Imports at load time, and late ones in modules that a tab runs; the command line itself is the host's."""
    host = {name.removesuffix(".py").replace("/", ".") for name in builder.HOST_ONLY if name.endswith(".py")}
    ours = {name: text for name, text in archived(tab_wheel).items() if name.endswith(".py")}
    found = set()
    for name, text in ours.items():
        for node in ast.walk(ast.parse(text)):
            modules = [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
            modules += [a.name for a in node.names] if isinstance(node, ast.Import) else []
            found |= {(name, module) for module in modules if module in host}
    assert {name for name, _ in found} == {"tabtorch/bridge/__init__.py"}


def test_tracebacks_show_true_lines(tab_wheel: Path, tmp_path: Path) -> None:
    """Line numbers, code, docstrings and annotations are the repository's, out of the archive too; comments are left out."""
    with zipfile.ZipFile(tab_wheel) as file:
        file.extractall(tmp_path)
    script = """
import ast, inspect, sys, traceback
import tabtorch
from tabtorch.ops.machinery import promotion
from tabtorch.engine import fuse
assert "library.xz" in promotion.__file__
shown, text = inspect.getsource(fuse), open("{ROOT}/py/tabtorch/engine/fuse.py").read()
assert fuse.__doc__ and ast.dump(ast.parse(shown)) == ast.dump(ast.parse(text))
try:
    tabtorch.serialization._target("nowhere", False, None)
except RuntimeError as error:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    name = frame.filename.partition("library.xz/")[2]
    lines = open("{ROOT}/py/" + name).read().split("\\n")
    assert frame.line and lines[frame.lineno - 1].strip().startswith(frame.line), frame
else:
    raise AssertionError("no error")
assert "Tensor" in str(inspect.signature(tabtorch.conv2d)), inspect.signature(tabtorch.conv2d)
""".replace("{ROOT}", str(ROOT))
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", script], check=True, env=env, cwd=tmp_path, timeout=60)


def test_the_archive_is_unpacked_as_far_as_it_is_used(tab_wheel: Path, tmp_path: Path) -> None:
    """`import tabtorch` unpacks less than half of it; what stands last is there all the same, and an archive cut short is an error."""
    with zipfile.ZipFile(tab_wheel) as file:
        file.extractall(tmp_path)
    script = """
import pkgutil, sys
import tabtorch
from tabtorch import _archive
(library,) = _archive._libraries.values()
assert len(library._parts) < len(library.places) / 2, len(library._parts)
assert {m.name for m in pkgutil.iter_modules(tabtorch.__path__)} >= {"nn", "safetensors"}
assert len(library._parts) < len(library.places) / 2, "looking at names unpacks nothing"
own = [name for name, place in library.places.items() if place]
last = own[-1]
text = library.read(last)
assert text and len(library._parts) == len(own) + 2 and library.read("tabtorch/nothing.py") is None
try:
    import tabtorch.onnx
except ModuleNotFoundError as error:
    assert "tabtorch.onnx is in tabtorch_extras" in str(error) and "install it, too" in str(error), error
else:
    raise AssertionError("not in this wheel")
path = tabtorch.__path__[0] + "/library.xz"
data = open(path, "rb").read()
open(path, "wb").write(data[: len(data) // 2])
try:
    _archive.Library(path).read(last)
except OSError as error:
    assert "not complete" in str(error)
else:
    raise AssertionError("no error")
"""
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", script], check=True, env=env, cwd=tmp_path, timeout=60)


def test_what_was_compiled_is_taken_from_the_visit_before(tab_wheel: Path, tmp_path: Path) -> None:
    """Then no module is compiled, nor unpacked; what does not hold is compiled anew."""
    with zipfile.ZipFile(tab_wheel) as file:
        file.extractall(tmp_path)
    script = """
import importlib.abc, sys, traceback
made = []
compile = importlib.abc.SourceLoader.source_to_code
def seen(self, data, path, *args, **kw):
    made.append(path)
    return compile(self, data, path, *args, **kw)
importlib.abc.SourceLoader.source_to_code = seen
import tabtorch
from tabtorch import _archive
assert tabtorch.nn.Linear and tabtorch.optim.AdamW and tabtorch.add
made = [path for path in made if "library.xz" in path]
kept = tabtorch.__path__[0] + "/compiled"
if sys.argv[1] == "first":
    assert len(made) > 50, len(made)
    open(kept, "wb").write(_archive.compiled())
    assert _archive.compiled() == b""
elif sys.argv[1] == "again":
    (library,) = _archive._libraries.values()
    assert made == [] and len(library._parts) < 40 and _archive.compiled() == b"", (made, len(library._parts))
    try:
        tabtorch.device("nothing")
    except RuntimeError as error:
        assert "library.xz/tabtorch/" in "".join(traceback.format_exception(error))
    import tabtorch.amp
    open(kept, "wb").write(_archive.compiled()[:-9])
else:
    assert len(made) > 50, len(made)
"""
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for visit in ("first", "again", "cut off"):
        subprocess.run([sys.executable, "-c", script, visit], check=True, env=env, cwd=tmp_path, timeout=60)


def test_what_people_write_needs_no_second_wheel(builder: ModuleType) -> None:
    """No program of tests/programs, nor anything below, loads a file of EXTRAS: a tab would wait for it."""
    script = """
import contextlib, io, os, runpy, sys
import tabtorch; tabtorch.install()
import torch
for program in sys.argv[2:]:
    with contextlib.redirect_stdout(io.StringIO()):
        runpy.run_path(program, run_name="__main__")
torch.jit.script(torch.nn.Linear(1, 1))(torch.ones(1, 1))
torch.ops.aten.add.Tensor(torch.ones(1), torch.ones(1))
torch.compile(lambda x: x * 2)(torch.ones(2)).tolist()
torch.set_default_dtype(torch.float32)
torch.distributions.Normal(0.0, 1.0).sample()
next(iter(torch.utils.data.DataLoader(torch.arange(4), num_workers=2)))
extras = tuple(sys.argv[1].split())
files = {name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items() if name.startswith("tabtorch")}
print(*sorted(n for n, file in files.items() if file.rpartition("/py/")[2].startswith(extras)))
"""
    programs = sorted(str(path) for path in (ROOT / "tests" / "programs").glob("*.py"))
    run = [sys.executable, "-c", script, " ".join(builder.EXTRAS), *programs]
    env = {**os.environ, "TABTORCH_DEVICE": "cpu"}
    done = subprocess.run(
        run, check=True, capture_output=True, text=True, env=env, cwd=ROOT / "tests" / "programs", timeout=300
    )
    assert done.stdout.split() == []


def test_the_same_every_time(builder: ModuleType, wheel: Path, tab_wheel: Path, tmp_path: Path) -> None:
    for build, made in ((builder.build_wheel, wheel), (builder.build_tab_wheel, tab_wheel)):
        assert (tmp_path / build(str(tmp_path))).read_bytes() == made.read_bytes()


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
import os.path
from tabtorch.ops.machinery import registry
assert os.path.exists(registry.__file__) and "site-packages" in registry.__file__  # plain files
x = torch.arange(6.0, device="cpu").reshape(2, 3)
assert (x @ x.T + 1).tolist() == [[6.0, 15.0], [15.0, 51.0]]
from tabtorch.ops.machinery import registry
public = {name: registry.function(name) for name in registry.all_functions()}
public |= {f"Tensor.{name}": registry.method(name) for name in registry.all_methods()}
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


def test_installs_in_pyodide(tab_wheel: Path, tmp_path: Path) -> None:
    """As any Pyodide host would: `loadPackage` of the file, then `import torch`; what few programs use is taken from beside it."""
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
from torch import fx
class Net(torch.nn.Module):
    def forward(self, x):
        return x.relu() * 2
fx.symbolic_trace(Net())(torch.arange(4.0)).sum().item()
`);
if (sum !== 12) throw new Error(`got ${sum}`);
process.exit(0);
"""
    )
    pyodide = ROOT / "node_modules" / "pyodide" / "pyodide.mjs"
    subprocess.run(["node", script, pyodide.as_uri(), tab_wheel.as_uri()], check=True, timeout=120, cwd=tmp_path)


def test_what_a_script_changed_is_put_back_in_what_was_loaded_for_it(tab_wheel: Path, tmp_path: Path) -> None:
    """`tabfresh`, before the first script and after one: it loads none of torch's layers, and puts those back that came later."""
    with zipfile.ZipFile(tab_wheel) as file:
        file.extractall(tmp_path)
    script = """
import asyncio, site, sys
import tabtorch
site.getsitepackages = lambda: tabtorch.__path__[:1]  # where the wheel is
tabtorch.install()
import tabfresh
tabfresh.remember()
families = [m for m in sys.modules if m.startswith(("tabtorch.ops.functional.", "tabtorch.optim."))]
assert not families and "tabtorch.nn.modules.linear" not in sys.modules, families
import torch
from torch import nn
F = nn.functional
functions, layers = [F.linear, F.relu, nn.init.ones_], [nn.Linear, nn.Conv2d, torch.optim.SGD]
F.linear = F.relu = F.gelu = F.mine = nn.init.ones_ = nn.Linear = nn.modules.linear.Linear = nn.Conv2d = torch.optim.SGD = 1
asyncio.run(tabfresh.restore())
assert [F.linear, F.relu, nn.init.ones_] == functions and callable(F.gelu) and not hasattr(F, "mine")
assert [nn.Linear, nn.Conv2d, torch.optim.SGD] == layers and nn.modules.linear.Linear is layers[0]
"""
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT / 'web' / 'src' / 'python'}"}
    subprocess.run([sys.executable, "-c", script], check=True, env=env, cwd=tmp_path, timeout=60)
