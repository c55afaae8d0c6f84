"""`torch.PyTorchFileReader`: the records of an archive that `torch.save` wrote."""

from __future__ import annotations

import os
import zipfile
from typing import Any

__all__ = ["PyTorchFileReader"]


class PyTorchFileReader:
    """Reads records by name, e.g. "data.pkl" and "data/0". `file`: a path, or what can be read and sought.

    RuntimeError for what is no such archive, or a record that is not there.
    """

    def __init__(self, file: Any) -> None:
        try:
            self._zip = zipfile.ZipFile(os.fspath(file) if isinstance(file, os.PathLike) else file)
        except zipfile.BadZipFile as e:
            raise RuntimeError(
                "PytorchStreamReader failed reading zip archive: failed finding central directory"
            ) from e
        names = self._zip.namelist()
        self._folder = names[0].partition("/")[0] + "/" if names else ""

    def get_all_records(self) -> list[str]:
        """The names of the records, in the order in which they lie."""
        return [name.removeprefix(self._folder) for name in self._zip.namelist()]

    def has_record(self, name: str) -> bool:
        """Whether there is one of this name."""
        return self._folder + name in self._zip.namelist()

    def get_record(self, name: str) -> bytes:
        """The bytes of a record."""
        if not self.has_record(name):
            raise RuntimeError(f"PytorchStreamReader failed locating file {name}: file not found")
        return self._zip.read(self._folder + name)
