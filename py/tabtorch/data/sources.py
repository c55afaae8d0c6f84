"""Where files come from: a folder, a URL, an archive, files that were chosen in the page, or bytes."""

from __future__ import annotations

import io
import os
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from tabtorch.data.formats import MOST
from tabtorch.utils.fetch import is_url, join, read_bytes


class Files:
    """Files by name, of a folder (path or URL), a tar archive, or a mapping or list of sources that `read_bytes` takes."""

    def __init__(self, source: Any, progress: Any = None) -> None:
        self.progress = progress
        self.known: Mapping[str, Any] | None = None
        self.place: Any = None
        self.title = _name(source) or "the data"
        if isinstance(source, Mapping):
            self.known = {str(k).rpartition("/")[2]: v for k, v in source.items()}
        elif isinstance(source, (list, tuple)):
            self.known = {_name(s).rpartition("/")[2]: s for s in source}
        elif (isinstance(source, (str, os.PathLike)) and os.path.isdir(source)) or (
            is_url(source) and not _is_archive(source)
        ):
            self.place = source
        else:
            self.known = _members(read_bytes(source, progress), self.title)

    def find(self, names: Iterable[str]) -> tuple[str, bytes] | None:
        """The first that is there, with its name."""
        for name in names:
            if self.known is not None:
                if name in self.known:
                    found = self.known[name]
                    return name, found if isinstance(found, bytes) else read_bytes(found, self.progress)
                continue
            place = join(self.place, name)
            if not is_url(place) and not os.path.isfile(place):
                continue
            try:
                return name, read_bytes(place, self.progress)
            except OSError:
                if not is_url(place):
                    raise
        return None

    def need(self, *names: str) -> tuple[str, bytes]:
        """The same; FileNotFoundError if there is none."""
        found = self.find(names)
        if found is None:
            raise FileNotFoundError(f"{self.title} has no file {' or '.join(names)}")
        return found


def _name(source: Any) -> str:
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    return str(getattr(source, "name", ""))


def _is_archive(url: str) -> bool:
    return url.partition("?")[0].endswith((".tar.gz", ".tgz", ".tar")) or url.startswith(("blob:", "data:"))


def _members(data: bytes, name: str) -> dict[str, bytes]:
    """The files of a tar archive, by the last part of their names. ValueError for what is none, or too large."""
    found: dict[str, bytes] = {}
    total = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:*") as archive:
            for member in archive:
                if not member.isfile():
                    continue
                total += member.size
                if total > MOST:
                    raise ValueError(f"{name} unpacks to more than {MOST >> 20} MiB")
                file = archive.extractfile(member)
                content = file.read() if file is not None else b""
                if len(content) != member.size:
                    raise ValueError(f"{name} is truncated within {member.name}")
                found[member.name.rpartition("/")[2]] = content
    except (tarfile.TarError, EOFError, OSError, zlib.error) as e:
        raise ValueError(f"{name} is damaged, or neither a folder nor a tar archive: {e}") from None
    return found
