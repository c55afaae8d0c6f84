"""The package's own files that are not Python: in the tab's wheel they are in an archive, with the modules."""

from __future__ import annotations

import sys
from pathlib import Path

from tabtorch._archive import text

#: the package's folder
PACKAGE = Path(str(sys.modules["tabtorch"].__file__)).resolve().parent


def kernel(name: str) -> str:
    """The text of an algorithm: `engine/kernels/NAME`, or `wgsl/NAME`, which in a checkout is at the top of the repository."""
    for place in (f"engine/kernels/{name}", f"wgsl/{name}"):
        found = text(str(PACKAGE), place)
        if found is not None:
            return found
    for folder in (PACKAGE / "engine" / "kernels", PACKAGE.parent.parent / "wgsl"):
        if (folder / name).exists():
            return (folder / name).read_text(encoding="utf-8")
    raise FileNotFoundError(name)


def javascript(name: str) -> str:
    """The text of `bridge/NAME`, which `make runtime` bundles."""
    found = text(str(PACKAGE), f"bridge/{name}")
    return (PACKAGE / "bridge" / name).read_text(encoding="utf-8") if found is None else found
