"""Build the wheel: Python, WGSL and the bundled JavaScript, in one file that is the same every time.

`python build_wheel.py` writes `dist/tabtorch-VERSION-py3-none-any.whl`. It needs Node only where the JavaScript has changed
since it was bundled. It is also the PEP 517 backend of pyproject.toml, so `pip install .` and `pip install -e .` make the same
thing.
"""

from __future__ import annotations

import ast
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
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
PACKAGE = ROOT / "py" / "tabtorch"
BUNDLES = (PACKAGE / "bridge" / "runtime.js", PACKAGE / "bridge" / "host.mjs")
SHIPPED = {".py", ".pyi", ".js", ".mjs", ".json", ".typed"}
#: folders of the package whose docstrings are for those who work on it
INTERNAL = {"bridge", "cli", "compiled", "engine"}
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


class Slim(ast.NodeTransformer):
    """What a browser need not download: most annotations, imports for the type checker, docstrings of what is private.

    Annotated fields of dataclasses and named tuples stay: there they mean something when the program runs.
    """

    def __init__(self, internal: bool, registered: set[str]) -> None:
        self.internal = internal  # nothing in the module is for users
        self.registered = registered  # functions that users know by another name

    def undocumented(self, node: Any) -> None:
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]

    def visit_FunctionDef(self, node: Any) -> Any:
        self.generic_visit(node)
        node.returns = None
        a = node.args
        known = node.name in self.registered or any("register" in ast.unparse(x) for x in node.decorator_list)
        for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg):
            if arg is not None:
                # which arguments of an operation are tensors is asked when the program runs (`ops.core._tensors`)
                tensor = known and arg not in a.args[:1] and arg.annotation and "Tensor" in ast.unparse(arg.annotation)
                arg.annotation = ast.Constant("Tensor") if tensor else None
        private = node.name.startswith("_") and not node.name.endswith("__") and not node.decorator_list
        if self.internal or (private and node.name not in self.registered):
            self.undocumented(node)
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        bases = ast.unparse(ast.Tuple([*node.bases, *node.decorator_list], ast.Load()))
        fields = "dataclass" in bases or "NamedTuple" in bases
        body: list[Any] = []
        for x in node.body:
            if fields and isinstance(x, ast.AnnAssign) and "ClassVar" not in ast.unparse(x.annotation):
                x.annotation = ast.Constant(None)
            else:
                x = self.visit(x)
            body += x if isinstance(x, list) else [x] if x is not None else []
        node.body = body or [ast.Pass()]
        if self.internal or node.name.startswith("_"):
            self.undocumented(node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        self.generic_visit(node)
        if node.value is None:
            return None
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return node.orelse or None
        node.body = node.body or [ast.Pass()]
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        return None if node.module == "__future__" else node


def unhinted(tree: ast.AST) -> None:
    """Takes away the imports that only annotations have used."""
    used = {
        getattr(x, "id", getattr(x, "value", None)) for x in ast.walk(tree) if isinstance(x, (ast.Name, ast.Constant))
    }
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for x in list(body) if isinstance(body, list) else []:
            if isinstance(x, ast.ImportFrom) and not x.level and x.module in ("collections.abc", "typing"):
                x.names = [a for a in x.names if (a.asname or a.name) in used]
                if not x.names:
                    body.remove(x)


def lines(text: str) -> str:
    """A module's text with one blank an indentation, and no empty lines but those inside strings."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    empty = {x.start[0] for x in tokens if x.type == tokenize.NL and not x.line.strip()}
    text = "\n".join(line for n, line in enumerate(text.split("\n"), 1) if n not in empty)
    return re.sub("^(    )+", lambda indent: " " * (len(indent[0]) // 4), text, flags=re.MULTILINE)


def slim(source: str, internal: bool, package: bool) -> str:
    """A module as it is shipped. Comments, layout, and what a module that is no package says of itself, are the repository's."""
    tree = ast.parse(source)
    calls = [x for x in ast.walk(tree) if isinstance(x, ast.Call) and getattr(x.func, "id", "") == "register"]
    slimmer = Slim(internal, {x.id for call in calls for x in ast.walk(call) if isinstance(x, ast.Name)})
    tree = slimmer.visit(tree)
    if not package:
        slimmer.undocumented(tree)
    unhinted(tree)
    for node in ast.walk(tree):
        if getattr(node, "body", None) == [] and not isinstance(node, ast.Module):
            node.body = [ast.Pass()]  # type: ignore[attr-defined]
    return lines(ast.unparse(ast.fix_missing_locations(tree)) + "\n")


def shipped(path: Path) -> bytes:
    """The bytes of a file in the wheel."""
    if path.suffix == ".wgsl":
        return re.sub(r"^ *//.*\n", "", path.read_text(), flags=re.MULTILINE).encode()
    if path.parent.name == "kernels":
        return re.sub(r"^ *(//.*\n|/\*\*.*\*/\n)?", "", path.read_text(), flags=re.MULTILINE).encode()
    if path.suffix != ".py":
        return path.read_bytes()
    folders = set(path.relative_to(PACKAGE.parent).parts)
    internal = bool(INTERNAL & folders) or (path.parent == PACKAGE and re.match("_[a-z]", path.name) is not None)
    return slim(path.read_text(), internal, path.name == "__init__.py" and not internal).encode()


def operations() -> bytes:
    """The source of `tabtorch.ops.names`: where each operation is, so that the first use of one loads no other family."""
    code = "from tabtorch.ops import core; print('MODULES =', core.table())"
    run = [sys.executable, "-c", code]
    return subprocess.run(run, cwd=PACKAGE.parent, check=True, stdout=subprocess.PIPE).stdout


#: LZMA for text: eight bits of the byte before are context, and where a byte stands in a word is none
TEXT = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]


def packed(files: dict[str, bytes]) -> dict[str, bytes]:
    """The same files with most of the package in one archive, `tabtorch/library.xz`, which `tabtorch._archive` reads.

    LZMA over all of them as one text is a fifth smaller than deflate over the same, whose window is 32 kB. What other programs
    open (JavaScript) stays a file, and so do the modules beside it. Names and texts are divided by zeros.
    """
    apart = (
        "pytest_tabtorch.py",
        "tabtorch/__init__.py",
        "tabtorch/_archive.py",
        "tabtorch/bridge/",
        "tabtorch/cli/run-node.mjs",
    )
    inside = {name: data for name, data in files.items() if not name.startswith(apart)}
    parts = [
        part for name, data in sorted(inside.items(), key=lambda x: (x[0][-3:], x[0])) for part in (name.encode(), data)
    ]
    rest = {name: data for name, data in files.items() if name not in inside}
    return rest | {"tabtorch/library.xz": lzma.compress(b"\0".join(parts), filters=TEXT)}


def metadata(table: dict[str, Any]) -> str:
    """The METADATA file, core metadata 2.4."""
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
    if readme.exists():
        lines += ["Description-Content-Type: text/markdown", "", readme.read_text()]
    return "\n".join(lines) + "\n"


def dist_info(table: dict[str, Any]) -> dict[str, bytes]:
    """Name in the wheel -> bytes, of everything in `.dist-info` but RECORD."""
    base = f"{table['name']}-{table['version']}.dist-info"
    groups = {"console_scripts": table["scripts"], **table["entry-points"]}
    files = {
        "METADATA": metadata(table),
        "WHEEL": "Wheel-Version: 1.0\nGenerator: build_wheel.py\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": "".join(
            f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
            for group, entries in groups.items()
        ),
        **{f"licenses/{name}": (ROOT / name).read_text() for name in table["license-files"]},
    }
    return {f"{base}/{name}": text.encode() for name, text in files.items()}


def write(folder: str | Path, files: dict[str, bytes]) -> Path:
    """Write a wheel of `files` into `folder`."""
    table = project()
    base = f"{table['name']}-{table['version']}"
    files = dict(sorted(files.items())) | dist_info(table)
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


# The hooks of PEP 517 and PEP 660.


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    """Everything, packed: the file's name."""
    bundle()
    files = {name: shipped(path) for name, path in contents().items()}
    return write(wheel_directory, packed(files | {"tabtorch/ops/names.py": operations()})).name


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    """A wheel that only points at `py/`."""
    return write(wheel_directory, {"__editable__.tabtorch.pth": f"{ROOT / 'py'}\n".encode()}).name


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """Not offered: a checkout is the source."""
    raise NotImplementedError("tabtorch is built from a checkout of its repository")


def main() -> None:
    """Write the wheel to `dist/`, and say how large it is."""
    path = ROOT / "dist" / build_wheel(str(ROOT / "dist"))
    print(f"{path.relative_to(ROOT)}  {path.stat().st_size / 1000:.1f} kB")


if __name__ == "__main__":
    main()
