"""Modules from `library.zip`, the archive in which a wheel keeps most of the package (see build_wheel.py)."""

from __future__ import annotations

import os
import sys
import zipimport
from typing import Any

__all__ = ["Archive", "extend"]


class Archive(zipimport.zipimporter):
    """Python's own importer, which compiles each module twice: once to run it, and once only to say where it lies."""

    def get_filename(self, fullname: str) -> str:
        """Where the module lies. ZipImportError if it is not there."""
        package = self.is_package(fullname)
        path = os.path.join(self.archive, self.prefix, fullname.rpartition(".")[2])
        return os.path.join(path, "__init__.py") if package else f"{path}.py"

    def find_spec(self, fullname: str, target: Any = None) -> Any:
        """As Python's; the packages in the archive are imported from in the same way."""
        spec = super().find_spec(fullname, target)
        for path in (spec and spec.submodule_search_locations) or ():
            sys.path_importer_cache.setdefault(path, Archive(path))
        return spec


def extend(path: list[str], name: str) -> None:
    """Let the package `name`, whose `__path__` is `path`, continue in the archive beside it. A checkout has none."""
    archive = os.path.join(path[0], "library.zip")
    if os.path.exists(archive):
        inside = os.path.join(archive, name)
        sys.path_importer_cache[inside] = Archive(inside)
        path.append(inside)
