"""Other libraries of the web, each a side of the comparison: what they are, and where they are installed."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PINS = HERE / "package.json"
WHERE = Path(os.environ.get("TABTORCH_RIVALS") or ROOT / ".rivals")
#: the package of each whose version is told; its steps are in a file of its name
PACKAGES = {
    "tfjs": "@tensorflow/tfjs-backend-webgpu",
    "jax-js": "@jax-js/jax",
    "onnxruntime-web": "onnxruntime-web",
    "torch-pyodide": "torch-pyodide",
}
NAMES = tuple(PACKAGES)

#: torch-pyodide's wheel is on PyPI; the JavaScript that it calls is in no registry: built of the sources that the wheel was made of
WHEEL = "0.0.84"
SOURCES = ("https://github.com/celsowm/torch-pyodide", "0b41cf4c81f9d8c1ab4dd99d45b08916078c66c3")
_PYODIDE = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")


def version(name: str) -> str:
    if name == "torch-pyodide":
        return WHEEL
    return str(json.loads(PINS.read_text(encoding="utf-8"))["dependencies"][PACKAGES[name]])


def install() -> None:
    """Install what package.json pins. Nothing is asked of the network if it is there."""
    done = WHERE / "installed.json"
    if done.exists() and done.read_bytes() == PINS.read_bytes():
        return
    shutil.rmtree(WHERE / "node_modules", ignore_errors=True)
    WHERE.mkdir(parents=True, exist_ok=True)
    shutil.copy(PINS, WHERE / "package.json")  # npm would go to the project's, in the folder above, if there were none
    npm = ["npm", "install", "--prefix", str(WHERE), "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run([*npm, "--loglevel", "error"], cwd=WHERE, check=True, stdout=sys.stderr)
    shutil.copy(PINS, done)  # the last: without it an installation did not come to its end


def _onnxruntime(folder: Path) -> list[str]:
    """Its WebAssembly, which the page fetches."""
    shutil.copy(WHERE / "node_modules/onnxruntime-web/dist/ort-wasm-simd-threaded.asyncify.wasm", folder)
    return []


def _torch_pyodide(folder: Path) -> list[str]:
    """Its wheel, and Pyodide, the one that tabtorch runs in; its sources are found as `torch-pyodide`."""
    sources = WHERE / "torch-pyodide"
    wheel = sources / f"torch_pyodide-{WHEEL}-py3-none-any.whl"
    if not wheel.exists():
        shutil.rmtree(sources, ignore_errors=True)
        git = ["git", "-C", str(sources)]
        subprocess.run(["git", "init", "-q", "--bare", str(sources)], check=True)
        subprocess.run([*git, "fetch", "-q", "--depth", "1", *SOURCES], check=True)
        archive = subprocess.run([*git, "archive", SOURCES[1], "runtime/src"], check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(sources, filter="data")
        pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, f"torch-pyodide=={WHEEL}", "--only-binary", ":all:", "-d", str(sources)], check=True)
    shutil.copy(wheel, folder / "torch.whl")
    for name in _PYODIDE:
        shutil.copy(ROOT / "node_modules" / "pyodide" / name, folder)
    return ["--loader:.wgsl=text"]


_BESIDE = {"onnxruntime-web": _onnxruntime, "torch-pyodide": _torch_pyodide}


def bundle(name: str) -> Path:
    """A folder with the library, its steps and the clock as one script, `bundle.js`, and what that asks for. It is kept, so that a
    machine without a network can be given it."""
    sources = [PINS, Path(__file__), HERE / "timing.js", HERE / "onnx.js", HERE / f"{name}.js"]
    digest = hashlib.sha256(b"".join(p.read_bytes() for p in sources)).hexdigest()[:12]
    kept = WHERE / f"{name}-{digest}"
    if not kept.exists():
        install()
        for old in WHERE.glob(f"{name}-*"):
            shutil.rmtree(old, ignore_errors=True)
        making = WHERE / f"making-{name}"
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir()
        flags = _BESIDE[name](making) if name in _BESIDE else []
        command = [str(ROOT / "node_modules" / ".bin" / "esbuild"), str(sources[-1]), "--bundle", "--format=iife"]
        env = {**os.environ, "NODE_PATH": os.pathsep.join([str(WHERE / "node_modules"), str(WHERE)])}
        command += [*flags, f"--outfile={making / 'bundle.js'}", "--log-level=error"]
        subprocess.run(command, env=env, check=True)
        making.rename(kept)
    return kept
