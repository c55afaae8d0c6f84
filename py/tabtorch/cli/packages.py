"""Packages that are installed here, packed for a Python in a tab, which has none and may have no network."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from tabtorch.cli.browsers import Missing

__all__ = ["pack"]

PROVIDED = ("tabtorch", "torch")
COMPILED = (".so", ".pyd", ".dylib")
THERE = {"sys_platform": "emscripten", "platform_system": "Emscripten", "platform_machine": "wasm32", "extra": ""}


def pack(names: Sequence[str], to: Path) -> None:
    """Write a zip file of the distributions `names`, and what they require. Raises Missing if one is not pure Python."""
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for found in _closure(names).values():
            for file in found.files or ():
                if file.parts[0] != ".." and file.suffix != ".pyc":
                    archive.write(file.locate(), file.as_posix())


def _closure(names: Sequence[str]) -> dict[str, Distribution]:
    """Those of `names`, and of all that they require what is here and pure Python."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found: dict[str, Distribution] = {}
    waiting = [(name, True) for name in names]
    while waiting:
        requirement, named = Requirement(waiting[-1][0]), waiting.pop()[1]
        name = canonicalize_name(requirement.name)
        marker = requirement.marker
        if name in found or name in PROVIDED or (marker and not marker.evaluate(THERE)):
            continue
        lack = _lack(name)
        if lack and named:
            raise Missing(f"{name} {lack}")
        if not lack:
            found[name] = distribution(name)
            waiting += [(text, False) for text in found[name].requires or ()]
    return found


def _lack(name: str) -> str | None:
    """Why the distribution `name` cannot be copied into a tab, or None."""
    try:
        files = distribution(name).files or []
    except PackageNotFoundError:
        return "is not installed"
    if any(file.suffix in COMPILED for file in files):
        return "is not pure Python: a tab cannot run it"
    if not any(file.suffix == ".py" for file in files):
        return "is installed from a folder: the tab has only what is in pytest's rootdir"
    return None
