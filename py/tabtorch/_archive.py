"""Modules, kernels and JavaScript from `library.xz`, in which the tab's wheel keeps the package as one text (see build_wheel.py)."""

from __future__ import annotations

import os
import sys
from importlib.abc import SourceLoader
from importlib.util import spec_from_file_location
from typing import Any

__all__ = ["extend", "text"]

#: name of a file in the archive -> its text
_files: dict[str, str] = {}


def _unpack(archive: str) -> None:
    import lzma

    with open(archive, "rb") as file:
        parts = lzma.decompress(file.read()).decode().split("\0")
    _files.update(zip(parts[::2], parts[1::2]))


def text(package: str, name: str) -> str | None:
    """A file of the archive in the folder `package`, of the package of that name; None: there is none."""
    return _files.get(f"{os.path.basename(package)}/{name}")


class Archive(SourceLoader):
    """Finds and loads what lies in one folder of the archive, which is unpacked when it is first asked."""

    def __init__(self, archive: str, folder: str) -> None:
        self.archive = archive
        self.folder = folder  # in the archive, with a slash at its end

    def _place(self, fullname: str) -> str:
        """The file of a module, or nothing."""
        if not _files:
            _unpack(self.archive)
        name = self.folder + fullname.rpartition(".")[2]
        return next((each for each in (f"{name}/__init__.py", f"{name}.py") if each in _files), "")

    def find_spec(self, fullname: str, target: Any = None) -> Any:
        """The module's spec, or None. A package's folder is searched in the same way."""
        place = self._place(fullname)
        if not place:
            return None
        folder, package, _ = place.partition("__init__.py")
        path = os.path.join(self.archive, place)
        inside = [os.path.dirname(path)] if package else None
        if inside:
            sys.path_importer_cache[inside[0]] = Archive(self.archive, folder)
        return spec_from_file_location(fullname, path, loader=self, submodule_search_locations=inside)

    def iter_modules(self, prefix: str = "") -> list[tuple[str, bool]]:
        """For `pkgutil`: the modules of this folder, and whether each is a package."""
        if not _files:
            _unpack(self.archive)
        here = (name[len(self.folder) :].split("/") for name in _files if name.startswith(self.folder))
        found = {parts[0].removesuffix(".py"): len(parts) > 1 for parts in here if parts[-1].endswith(".py")}
        return [(prefix + name, package) for name, package in sorted(found.items()) if name != "__init__"]

    def invalidate_caches(self) -> None:
        """Nothing here changes."""

    def get_filename(self, fullname: str) -> str:
        """Where the module says it lies."""
        return os.path.join(self.archive, self._place(fullname))

    def get_data(self, path: str) -> bytes:
        """A file of the archive. OSError if there is none: so Python looks for no compiled one."""
        name = os.path.relpath(path, self.archive).replace(os.sep, "/")
        if name not in _files:
            raise OSError(f"no file {path}")
        return _files[name].encode()


def extend(path: list[str], name: str) -> None:
    """Let the package `name`, whose `__path__` is `path`, continue in the archive beside it. A checkout has none."""
    archive = os.path.join(path[0], "library.xz")
    if os.path.exists(archive):
        inside = os.path.join(archive, name)
        sys.path_importer_cache[inside] = Archive(archive, name + "/")
        path.append(inside)
