"""Where a run is, for what is written about it."""

from __future__ import annotations

import platform
import sys

from tabtorch.bridge import get_bridge

IN_TAB = sys.platform == "emscripten"


def host() -> str:
    """The interpreter, and what the runtime is in."""
    where = "Pyodide in Node" if IN_TAB else get_bridge().info["platform"]
    return f"{platform.python_implementation()} {platform.python_version()}, {where}"
