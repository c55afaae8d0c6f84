"""Build the wheels: Python as it is written, WGSL and the bundled JavaScript, in files that are the same every time.

`python build_wheel.py` writes three:

- `dist/tabtorch-VERSION-py3-none-any.whl`, which a tab loads: the package in one compressed archive (`tabtorch/library.xz`, read by
  `tabtorch._archive`), without what only a host outside the tab needs.
- `dist/tabtorch_extras-VERSION-py3-none-any.whl`, for beside it: what few programs use (`EXTRAS`), which a tab fetches when
  something of it is first imported.
- `dist/pip/tabtorch-VERSION-py3-none-any.whl`, for `pip install` and an index: plain files, all of them.

It is also the PEP 517 backend of pyproject.toml: `pip install .` installs the plain one, `pip install -e .` a pointer to `py/`.
It needs Node only where the JavaScript has changed since it was bundled.

Why no backend that others keep: the tab's wheel is a format of its own (an archive, files left out, a RECORD of that), so the
writer below is needed anyway, and the hooks that make it a backend are its last 20 lines. It was tried: hatchling with a build
hook gives the same files, in 30 lines of hook and configuration instead of those 20, and whoever installs from a checkout
fetches six packages first (hatchling 1.33 and what it needs; 13 s instead of 7).
"""

from __future__ import annotations

import base64
import hashlib
import io
import lzma
import re
import shutil
import subprocess
import sys
import tokenize
import tomllib
import zipfile
from collections import Counter
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
PACKAGE = ROOT / "py" / "tabtorch"
BUNDLES = (PACKAGE / "bridge" / "runtime.js", PACKAGE / "bridge" / "host.mjs")
SHIPPED = {".py", ".pyi", ".js", ".mjs", ".json", ".typed"}
#: what runs outside the tab, in CPython or in Node: commands, browsers that they start, the bridge to Node; and what type checkers
#: read. A tab has no use for it
HOST_ONLY = {
    "pytest_tabtorch.py",
    "tabtorch/_autoload.py",
    "tabtorch/_lazy_types.pyi",
    "tabtorch/autograd/__init__.pyi",
    "tabtorch/bridge/host.mjs",
    "tabtorch/bridge/node.py",
    "tabtorch/cli/__main__.py",
    "tabtorch/cli/bare.py",
    "tabtorch/cli/browsers.py",
    "tabtorch/cli/commands.py",
    "tabtorch/cli/completion.py",
    "tabtorch/cli/export.py",
    "tabtorch/cli/info.py",
    "tabtorch/cli/keep.py",
    "tabtorch/cli/node.py",
    "tabtorch/cli/packages.py",
    "tabtorch/cli/pytest_host.py",
    "tabtorch/cli/run-node.mjs",
    "tabtorch/cli/run.py",
    "tabtorch/cli/shown.py",
    "tabtorch/cli/site.py",
    "tabtorch/cli/status.py",
    "tabtorch/cli/watch.py",
    "tabtorch/nn/__init__.pyi",
    "tabtorch/nn/functional/__init__.pyi",
    "tabtorch/nn/modules/__init__.pyi",
}
#: the device of real PyTorch, which no tab has
HOST_ONLY |= {f"tabtorch/{path.relative_to(PACKAGE).as_posix()}" for path in PACKAGE.glob("backend/**/*.py")}
#: what of the package comes first in the archive, which is unpacked only as far as it is asked for, after what every program
#: loads (`first_used`). What is not named comes last
FIRST = (
    *("version.py", "_lazy.py", "storage.py", "base", "bridge", "core", "autograd", "engine", "random.py"),
    *("wgsl", "ops", "nn", "optim", "utils", "interception", "compiled", "func"),
)
#: what few programs use: other people's model files, graphs of programs, and what libraries ask for. A tab fetches them all when one
#: is first imported
EXTRAS = tuple(
    f"tabtorch/{name}"
    for name in "_library/ _ops.py audio.py cuda/tunable.py dispatching/ engine/measuring.py engine/tuning.py "
    "engine/tuning_store.py export/ fx/ gguf/ jit/archive.py jit/numbers.py jit/operators.py jit/texts.py "
    "jit/upgraders.py jit/values.py jit/walker.py library.py masked/maskedtensor/ onnx/ packed/ "
    "plan_files/ sparse/ utils/tensorboard/ vision/ webgpu/tunable.py".split()
)
#: what stays a file in the tab's wheel: it is there before the archive can be opened
OPENERS = {"tabtorch/__init__.py", "tabtorch/_archive.py"}
EPOCH = (1980, 1, 1, 0, 0, 0)  # the first moment that a zip file can hold


def project() -> dict[str, Any]:
    """The `[project]` table."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        table: dict[str, Any] = tomllib.load(file)["project"]
    return table


def bundle() -> None:
    """Run esbuild if a source is newer than what it made."""
    sources = [path for path in (ROOT / "js").rglob("*") if path.is_file()]
    made = [path.stat().st_mtime for path in BUNDLES if path.exists()]
    if len(made) == len(BUNDLES) and max(path.stat().st_mtime for path in sources) <= min(made):
        return
    node = shutil.which("node")
    if node is None or not (ROOT / "node_modules").exists():
        raise SystemExit("the JavaScript must be bundled first: install Node 20.19 or later, then `make runtime`")
    subprocess.run([node, "js/build.mjs"], cwd=ROOT, check=True, stdout=sys.stderr)


def contents() -> dict[str, Path]:
    """Name in the wheel -> file."""
    found = {
        f"tabtorch/{path.relative_to(PACKAGE).as_posix()}": path
        for path in PACKAGE.rglob("*")
        if path.suffix in SHIPPED and "__pycache__" not in path.parts
    }
    found["pytest_tabtorch.py"] = PACKAGE.parent / "pytest_tabtorch.py"  # beside it: pytest loads no more than that
    found |= {f"tabtorch/wgsl/{path.name}": path for path in (ROOT / "wgsl").glob("*.wgsl")}
    return found


def operations() -> bytes:
    """The source of `tabtorch.ops.names`: where each operation is, so that the first use of one loads no other family.

    Where each layer and each function of `torch.nn` is, too.
    """
    code = """
from tabtorch.base.lazy_namespace import written
from tabtorch.ops.machinery import registry
print("HOMES =", {package: written(package) for package in ("tabtorch.ops.functional", "tabtorch.nn.modules")})
print("MODULES =", registry.table())
"""
    run = [sys.executable, "-c", code]
    return subprocess.run(run, cwd=PACKAGE.parent, check=True, stdout=subprocess.PIPE).stdout


def first_used(names: bytes) -> list[str]:
    """The files that a short program loads, in the order in which it does. Nothing is computed, so there need be no device.

    names: the source of `tabtorch.ops.names`.
    """
    code = """
import sys, types
names = types.ModuleType("tabtorch.ops.names")
exec(sys.stdin.read(), vars(names))
sys.modules[names.__name__] = names
import tabtorch as torch
from tabtorch import nn
x = torch.ones(2, 2, device="meta") + 1
layer = nn.Linear(2, 2, device="meta")
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
nn.functional.mse_loss(layer(x), x).backward()
from tabtorch.core import printing
from tabtorch.engine import plan, rows, tiles
del sys.modules[names.__name__]
print(*(module.__file__ for name, module in sys.modules.items() if name.startswith("tabtorch")), sep="\\n")
"""
    run = [sys.executable, "-c", code]
    printed = subprocess.run(run, cwd=PACKAGE.parent, check=True, input=names, stdout=subprocess.PIPE).stdout.decode()
    loaded = [Path(path).relative_to(PACKAGE.parent).as_posix() for path in printed.splitlines()]
    return [
        "tabtorch/bridge/runtime.js",
        "tabtorch/bridge/pyodide.py",
        "tabtorch/ops/names.py",
        *loaded,
        "tabtorch/wgsl/matmul.wgsl",
    ]


#: LZMA for text: eight bits of the byte before are context, and where a byte stands in a word is none
TEXT = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]


def archive_codes() -> bytes:
    """`CODES` of the module that reads the archive, which is not imported: that would import the package."""
    spec = spec_from_file_location("archive", PACKAGE / "_archive.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return bytes(module.CODES)


def uncommented(source: bytes) -> bytes:
    """Python without its comments, each line where it was: what a traceback shows is the code."""
    lines = source.decode().split("\n")
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
    return "\n".join(lines).encode()


def uncommented_kernel(source: bytes) -> bytes:
    """JavaScript of engine/kernels without the comments that have lines of their own."""
    return re.sub(rb"(?m)^ *(//.*|/\*\*.*\*/)$", b"", source)


def packed(files: dict[str, bytes]) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """What a tab loads of `files`: all but HOST_ONLY, in an archive, `tabtorch/library.xz`, which `tabtorch._archive` reads; and
    what it loads later, EXTRAS, in another.

    LZMA over all of them as one text is a fifth smaller than deflate over the same, whose window is 32 kB. First come the names,
    a line each, then the words that stand as one byte, then the texts in the same order of names, divided by zeros. Four spaces are
    a tab there, which saves 1 %, comments are
    left out, and the words that fill most are one of `_archive.CODES` each, which saves 2 %. No file has those.
    """

    used = {name: k for k, name in enumerate(first_used(files["tabtorch/ops/names.py"]))}
    files = {
        name: uncommented(data)
        if name.endswith(".py") and name not in OPENERS
        else uncommented_kernel(data)
        if name.startswith("tabtorch/engine/kernels/")
        else data
        for name, data in files.items()
    }

    def place(name: str) -> tuple[int, int, str]:
        part = name.split("/")[1]
        if name in used:
            return 0, used[name], name
        return 1, FIRST.index(part) if part in FIRST else len(FIRST), name

    every = sorted(files.keys() - HOST_ONLY - OPENERS, key=place)
    extras = [name for name in every if name.startswith(EXTRAS) and name not in used]
    inside = [name for name in every if name not in extras]
    return {name: files[name] for name in OPENERS} | {"tabtorch/library.xz": archive(files, inside, extras)}, {
        "tabtorch/extras.xz": archive(files, extras)
    }


def archive(files: dict[str, bytes], inside: list[str], extras: list[str] | None = None) -> bytes:
    """The files named in `inside`, in that order, as one compressed text. extras: names of those that are in another archive."""
    codes = archive_codes()
    if taken := [name for name in inside if set(files[name]) & {*codes, 0, *b"\t"}]:
        raise SystemExit(
            f"write \\t and \\x1b, for such a byte stands for others in the tab's wheel: {', '.join(taken)}"
        )
    counts = Counter(re.findall(rb"\w{2,}", b"\0".join(files[name] for name in inside)))
    words = sorted(counts, key=lambda word: (-counts[word] * (len(word) - 1), word))[: len(codes)]
    code = {word: codes[i : i + 1] for i, word in enumerate(words)}
    texts = [re.sub(rb"\w{2,}", lambda m: code.get(m[0], m[0]), files[name].replace(b"    ", b"\t")) for name in inside]
    names = "\n".join(inside) + ("\n\n" + "\n".join(extras) if extras else "")
    return lzma.compress(b"\0".join([names.encode(), b"\n".join(words), *texts]), filters=TEXT)


def metadata(table: dict[str, Any], in_tab: bool) -> str:
    """The METADATA file, core metadata 2.4. A tab shows nobody the long description."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {table['name']}",
        f"Version: {table['version']}",
        f"Summary: {table['description']}",
        f"Author: {', '.join(author['name'] for author in table['authors'])}",
        f"License-Expression: {table['license']}",
        *(f"License-File: {name}" for name in table["license-files"]),
        f"Keywords: {','.join(table['keywords'])}",
        *(f"Classifier: {text}" for text in table["classifiers"]),
        f"Requires-Python: {table['requires-python']}",
        *(f"Requires-Dist: {need}" for need in table["dependencies"]),
    ]
    for extra, needs in table["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {need}; extra == "{extra}"' for need in needs]
    readme = ROOT / table["readme"]
    if readme.exists() and not in_tab:
        lines += ["Description-Content-Type: text/markdown", "", readme.read_text()]
    return "\n".join(lines) + "\n"


def dist_info(table: dict[str, Any], in_tab: bool) -> dict[str, bytes]:
    """Name in the wheel -> bytes, of everything in `.dist-info` but RECORD. Entry points lead to what a tab has not (HOST_ONLY)."""
    base = f"{table['name']}-{table['version']}.dist-info"
    groups = {} if in_tab else {"console_scripts": table["scripts"], **table["entry-points"]}
    files = {
        "METADATA": metadata(table, in_tab),
        "WHEEL": "Wheel-Version: 1.0\nGenerator: build_wheel.py\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": "".join(
            f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
            for group, entries in groups.items()
        ),
        **{f"licenses/{name}": (ROOT / name).read_text() for name in table["license-files"]},
    }
    return {f"{base}/{name}": text.encode() for name, text in files.items()}


def write(
    folder: str | Path, files: dict[str, bytes], in_tab: bool = False, table: dict[str, Any] | None = None
) -> Path:
    """Write a wheel of `files` into `folder`. table: of another project than this."""
    table = table or project()
    base = f"{table['name']}-{table['version']}"
    files = dict(sorted(files.items())) | dist_info(table, in_tab)
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{base}.dist-info/RECORD"] = f"{record}{base}.dist-info/RECORD,,\n".encode()

    path = Path(folder) / f"{base}-py3-none-any.whl"
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")  # a reader never sees half a wheel
    with zipfile.ZipFile(part, "w") as wheel:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, EPOCH)
            info.external_attr = 0o644 << 16
            info.create_system = 3
            wheel.writestr(info, data, zipfile.ZIP_STORED if name.endswith(".xz") else zipfile.ZIP_DEFLATED, 9)
    part.replace(path)
    return path


def everything() -> dict[str, bytes]:
    """Name in the wheel -> bytes, of the whole package, with the JavaScript bundled and the operations listed."""
    bundle()
    return {name: path.read_bytes() for name, path in contents().items()} | {"tabtorch/ops/names.py": operations()}


def write_tab_wheels(folder: str | Path, files: dict[str, bytes]) -> tuple[Path, Path]:
    """Write the tab's wheel, and the one with EXTRAS."""
    table = project()
    library, extras = packed(files)
    extra = {**table, "name": "tabtorch_extras", "description": f"{table['name']} in a tab: what few programs use"}
    return write(folder, library, in_tab=True), write(folder, extras, in_tab=True, table=extra)


def build_tab_wheel(folder: str) -> str:
    """Write the tab's wheel, and beside it the one with EXTRAS: the name of the first."""
    return write_tab_wheels(folder, everything())[0].name


# The hooks of PEP 517 and PEP 660.


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    """Write the plain wheel: its name."""
    return write(wheel_directory, everything()).name


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    """A wheel that only points at `py/`."""
    return write(wheel_directory, {"__editable__.tabtorch.pth": f"{ROOT / 'py'}\n".encode()}).name


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """Not offered: a checkout is the source."""
    raise NotImplementedError("tabtorch is built from a checkout of its repository")


def main() -> None:
    """Write the wheels, and say how large they are."""
    files = everything()
    for path in (*write_tab_wheels(ROOT / "dist", files), write(ROOT / "dist" / "pip", files)):
        print(f"{path.relative_to(ROOT)}  {path.stat().st_size / 1000:.1f} kB")


if __name__ == "__main__":
    main()
