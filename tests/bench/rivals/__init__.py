"""Other libraries of the web, each a side of the comparison: what they are, and where they are installed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
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
}
NAMES = tuple(PACKAGES)


def version(name: str) -> str:
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


_BESIDE = {"onnxruntime-web": _onnxruntime}


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
        env = {**os.environ, "NODE_PATH": str(WHERE / "node_modules")}
        command += [*flags, f"--outfile={making / 'bundle.js'}", "--log-level=error"]
        subprocess.run(command, env=env, check=True)
        making.rename(kept)
    return kept
