"""Modules, kernels and JavaScript from `library.xz`, in which the tab's wheel keeps the package as one text (see build_wheel.py).

What few programs use is in `extras.xz`, in a wheel of its own, which is fetched from beside the tab's when something of it is first
asked for, unless it was installed too.

Compiling the modules is two thirds of the time that a first program takes to begin. So a page may keep what they were compiled to
(`compiled`), and give it back on its next visit: in the file COMPILED beside the archives.
"""

from __future__ import annotations

import _thread
import contextlib
import marshal
import os
import sys
from importlib.abc import SourceLoader
from importlib.util import spec_from_file_location
from typing import Any

__all__ = ["compiled", "extend", "text"]

LIBRARY, EXTRAS, COMPILED = "library.xz", "extras.xz", "compiled"

#: bytes that are unpacked at a time
STEP = 1 << 17
#: bytes that no text has (nor UTF-8 of any, the last of them): each stands for a word of the archive's own list
CODES = bytes([*range(1, 9), *range(11, 32), 127, 192, 193, *range(245, 256)])


class Library:
    """The files of an archive, which is unpacked as far as the last one that was asked for: what is first used stands first."""

    def __init__(self, path: str) -> None:
        import lzma

        with open(path, "rb") as file:
            self._packed = file.read()
        self._lzma = lzma.LZMADecompressor()
        self._lock = _thread.RLock()
        self._begun = b""  # the beginning of a text whose end is not unpacked yet
        #: the names of the files, a line each, and after an empty line those of what is in EXTRAS; words; then the files' texts, in
        #: the order of names, with a tab for four spaces and one of CODES for a word
        self._parts: list[bytes] = []
        names, _, more = self._part(0).decode().partition("\n\n")
        self.places = {name: k for k, name in enumerate(names.split("\n"), 2)}
        self.places |= dict.fromkeys(more.split(), 0)
        self._more = os.path.join(os.path.dirname(path), EXTRAS)
        words = self._part(1).split(b"\n")
        self._words = [(CODES[k : k + 1], word) for k, word in enumerate(words)]

    def _part(self, k: int) -> bytes:
        with self._lock:
            parts = self._parts
            while len(parts) <= k:
                done = self._lzma.eof
                data = b"" if done else self._lzma.decompress(self._packed, STEP)
                self._packed = b""  # the decompressor has it now
                if done or not (data or self._lzma.eof):
                    raise OSError("tabtorch: the package's archive is not complete")
                *whole, self._begun = (self._begun + data).split(b"\0")
                parts += whole
                if self._lzma.eof:
                    parts.append(self._begun)
            return parts[k]

    def read(self, name: str) -> bytes | None:
        """A file; None: there is none."""
        k = self.places.get(name)
        if k is None:
            return None
        if k == 0:
            if not os.path.exists(self._more):
                from tabtorch import _extras

                _extras.fetch(self._more, name)
            return _library(self._more).read(name)
        text = self._part(k)
        for code, word in self._words:
            text = text.replace(code, word)
        return text.replace(b"\t", b"    ")


#: where an archive lies -> what is in it
_libraries: dict[str, Library] = {}
#: a module's file -> its code: what was compiled now; or the bytes of that, which were kept
_codes: dict[str, Any] = {}


def _library(archive: str) -> Library:
    found = _libraries.get(archive)
    if found is None:
        first = not _libraries  # the other archive's modules are in the same file
        found = _libraries[archive] = Library(archive)
        if not first:
            return found
        with contextlib.suppress(OSError, EOFError, ValueError, TypeError):  # none, or cut off
            with open(os.path.join(os.path.dirname(archive), COMPILED), "rb") as file:
                _codes.update(marshal.load(file))
    return found


def compiled() -> bytes:
    """What a page should keep, for the same archives and the same Python; nothing, where that is what it gave."""
    if all(type(code) is bytes for code in _codes.values()):
        return b""
    for place, code in _codes.items():
        if type(code) is not bytes:
            _codes[place] = marshal.dumps(code)
    return marshal.dumps(_codes)


def text(package: str, name: str) -> str | None:
    """A file of the archive in the folder `package`, of the package of that name; None: there is none."""
    for library in list(_libraries.values()):
        found = library.read(f"{os.path.basename(package)}/{name}")
        if found is not None:
            return found.decode()
    return None


class Archive(SourceLoader):
    """Finds and loads what lies in one folder of the archive, which is opened when it is first asked."""

    def __init__(self, archive: str, folder: str) -> None:
        self.archive = archive
        self.folder = folder  # in the archive, with a slash at its end

    def _place(self, fullname: str) -> str:
        """The file of a module, or nothing."""
        places = _library(self.archive).places
        name = self.folder + fullname.rpartition(".")[2]
        return next((each for each in (f"{name}/__init__.py", f"{name}.py") if each in places), "")

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
        names = _library(self.archive).places
        here = (name[len(self.folder) :].split("/") for name in names if name.startswith(self.folder))
        found = {parts[0].removesuffix(".py"): len(parts) > 1 for parts in here if parts[-1].endswith(".py")}
        return [(prefix + name, package) for name, package in sorted(found.items()) if name != "__init__"]

    def invalidate_caches(self) -> None:
        """Nothing here changes."""

    def get_filename(self, fullname: str) -> str:
        """Where the module says it lies."""
        return os.path.join(self.archive, self._place(fullname))

    def get_code(self, fullname: str) -> Any:
        """A module's code."""
        place = self._place(fullname)
        code = _codes.get(place)
        if type(code) is bytes:
            with contextlib.suppress(EOFError, ValueError, TypeError):
                return marshal.loads(code)
            code = None
        if code is None:
            code = _codes[place] = super().get_code(fullname)
        return code

    def get_data(self, path: str) -> bytes:
        """A file of the archive. OSError if there is none: so Python looks for no compiled one."""
        found = _library(self.archive).read(os.path.relpath(path, self.archive).replace(os.sep, "/"))
        if found is None:
            raise OSError(f"no file {path}")
        return found


def extend(path: list[str], name: str) -> None:
    """Let the package `name`, whose `__path__` is `path`, continue in the archive beside it. A checkout has none."""
    archive = os.path.join(path[0], LIBRARY)
    if os.path.exists(archive):
        inside = os.path.join(archive, name)
        sys.path_importer_cache[inside] = Archive(archive, name + "/")
        path.append(inside)
