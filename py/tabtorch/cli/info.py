"""`tabtorch info`: what there is to compute on, and the versions of everything."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tabtorch.cli import browsers

__all__ = ["info"]

ASK = """
import json
from tabtorch.bridge import get_bridge
print(json.dumps(get_bridge().info))
"""


def _command_version(*command: str) -> str:
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return "none"
    found = re.search(r"\d+(\.\d+)+\w*", done.stdout)
    return found[0] if found else "none"


def _npm_version(name: str) -> str:
    for folder in Path(__file__).resolve().parents:
        path = folder / "node_modules" / name / "package.json"
        if path.exists():
            return str(json.loads(path.read_text())["version"])
    return "none"


def _versions() -> Iterator[tuple[str, str]]:
    from importlib import metadata

    import tabtorch

    yield "tabtorch", metadata.version("tabtorch")
    yield "torch", str(getattr(tabtorch, "__version__", "none"))
    yield "python", platform.python_version()
    yield "node", _command_version("node")
    yield "npm webgpu", _npm_version("webgpu")
    yield "npm pyodide", _npm_version("pyodide")
    for name in browsers.NAMES:
        path = browsers.find(name)
        yield name, f"{_command_version(path)}  {path}" if path else "none"


def _runtime(browser: str) -> dict[str, Any]:
    """The runtime's own report, in Node here or in a tab."""
    if browser == "node":
        from tabtorch.bridge import get_bridge

        return get_bridge().info
    from tabtorch.cli.run import Script, run

    said: dict[str, str] = {"stdout": "", "stderr": ""}

    def keep(stream: str, text: str) -> None:
        said[stream] += text

    if run(Script(ASK, "info.py", [], None), browser, 120, keep):
        raise RuntimeError(f"{browser} could not say:\n{said['stderr']}")
    report: dict[str, Any] = json.loads(said["stdout"].strip().splitlines()[-1])
    return report


def _number(value: int) -> str:
    return f"{value:,}".replace(",", " ")


def info(browser: str, as_json: bool) -> int:
    """Print the report; 0 if there is a WebGPU adapter, else 1."""
    report = _runtime(browser)
    versions = dict(_versions())
    gpu = report.get("webgpu")
    if as_json:
        json.dump({"where": browser, "versions": versions, **report}, sys.stdout, indent=2)
        print()
        return 0 if gpu else 1
    print(f"where      {browser}, {report.get('platform', '')}")
    if gpu:
        adapter = gpu["adapter"]
        words = [adapter[key] for key in ("vendor", "architecture", "device", "description") if adapter.get(key)]
        print(f"adapter    {' '.join(words) or 'unnamed'}{' (software)' * bool(adapter.get('isFallback'))}")
        features = ", ".join(sorted(gpu["features"]))
        print(textwrap.fill(features, 110, initial_indent="features   ", subsequent_indent=" " * 11))
        print("limits")
        for name, value in sorted(gpu["limits"].items()):
            print(f"  {name:<44} {_number(value):>15}")
    else:
        print(f"adapter    none: {report.get('reason', 'no WebGPU')}")
    print("versions")
    for name, text in versions.items():
        print(f"  {name:<12} {text}")
    return 0 if gpu else 1
