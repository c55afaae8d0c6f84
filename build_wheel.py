"""Build the wheel: Python, WGSL and the bundled JavaScript, in one file that is the same every time.

`python build_wheel.py` writes `dist/tabtorch-VERSION-py3-none-any.whl`. It needs no package, and Node only where the
JavaScript has changed since it was bundled. It is also the PEP 517 backend of pyproject.toml, so `pip install .` and
`pip install -e .` make the same thing.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
PACKAGE = ROOT / "py" / "tabtorch"
BUNDLES = (PACKAGE / "bridge" / "runtime.js", PACKAGE / "bridge" / "host.mjs")
SHIPPED = {".py", ".pyi", ".js", ".mjs", ".json", ".typed"}
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
        raise SystemExit("the JavaScript must be bundled first: install Node 20 or later, then `make runtime`")
    subprocess.run([node, "js/build.mjs"], cwd=ROOT, check=True, stdout=sys.stderr)


def contents() -> dict[str, Path]:
    """Name in the wheel -> file."""
    found = {
        f"tabtorch/{path.relative_to(PACKAGE).as_posix()}": path
        for path in PACKAGE.rglob("*")
        if path.suffix in SHIPPED and "__pycache__" not in path.parts
    }
    found |= {f"tabtorch/wgsl/{path.name}": path for path in (ROOT / "wgsl").glob("*.wgsl")}
    return found


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
    scripts = "".join(f"{name} = {target}\n" for name, target in table["scripts"].items())
    files = {
        "METADATA": metadata(table),
        "WHEEL": "Wheel-Version: 1.0\nGenerator: build_wheel.py\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": f"[console_scripts]\n{scripts}",
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
            wheel.writestr(info, data, zipfile.ZIP_DEFLATED, 9)
    part.replace(path)
    return path


# The hooks of PEP 517 and PEP 660.


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    """Everything, packed: the file's name."""
    bundle()
    return write(wheel_directory, {name: path.read_bytes() for name, path in contents().items()}).name


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
