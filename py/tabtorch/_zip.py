"""Zip archives as PyTorch writes them: records that are stored, not compressed, each at a multiple of 64 bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple
from zlib import crc32

from .utils.fetch import Work

_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END = struct.Struct("<4sHHHHIIH")
_END64 = struct.Struct("<4sQHHIIQQQQ")
_WHERE64 = struct.Struct("<4sIQI")
_FULL = 0xFFFFFFFF
_MOST = 1 << 20  # records, and bytes of a record that is read whole for what it says
ALIGNMENT = 64


def _bad(what: str) -> RuntimeError:
    return RuntimeError(f"PytorchStreamReader failed reading zip archive: {what}")


class Record(NamedTuple):
    """Where a record lies: first its own header, `name` bytes of name in it, then the data."""

    header: int
    name: int
    nbytes: int
    crc: int

    def data_at(self, head: Any) -> int:
        """Bytes from the header to the data, told by the header's first 30 bytes. RuntimeError."""
        magic, *_, name, extra = _LOCAL.unpack_from(head)
        if magic != b"PK\3\4" or name != self.name:
            raise _bad("invalid header or archive is corrupted")
        return int(_LOCAL.size + name + extra)


def is_zip(head: Any) -> bool:
    """Whether a file that begins so is an archive."""
    return bytes(head[:4]) == b"PK\3\4"


def directory(size: int) -> Work:
    """The records of an archive of `size` bytes by name, without the folder they all lie in. RuntimeError."""
    start = max(0, size - 65536 - 2 * _END64.size)
    tail = bytes((yield start, size - start))
    at = tail.rfind(b"PK\5\6")
    if at < 0 or at + _END.size > len(tail):
        raise _bad("failed finding central directory")
    _, _, _, _, count, length, offset, _ = _END.unpack_from(tail, at)
    end = start + at
    if count == 0xFFFF or _FULL in (length, offset):
        if at < _WHERE64.size or tail[at - _WHERE64.size :][:4] != b"PK\6\7":
            raise _bad("failed finding central directory")
        where = _WHERE64.unpack_from(tail, at - _WHERE64.size)[2]
        if where + _END64.size > end:
            raise _bad("failed finding central directory")
        head = yield where, _END64.size
        magic, *_, count, length, offset = _END64.unpack_from(head)
        if magic != b"PK\6\6":
            raise _bad("failed finding central directory")
    if offset + length > end or count > min(_MOST, length // _CENTRAL.size):
        raise _bad("not a ZIP archive")
    return _records(bytes((yield offset, length)), count, offset)


def _records(table: bytes, count: int, limit: int) -> dict[str, Record]:
    found: dict[str, Record] = {}
    at = 0
    for _ in range(count):
        if at + _CENTRAL.size > len(table):
            raise _bad("invalid header or archive is corrupted")
        magic, _, _, flags, method, _, _, crc, packed, size, nname, nextra, ncomment, _, _, _, header = (
            _CENTRAL.unpack_from(table, at)
        )
        at += _CENTRAL.size
        extra = table[at + nname : at + nname + nextra]
        if magic != b"PK\1\2" or len(extra) < nextra:
            raise _bad("invalid header or archive is corrupted")
        name = table[at : at + nname].decode("utf-8", "replace")
        at += nname + nextra + ncomment
        wide = _wide(extra)
        try:
            size, packed, header = (next(wide) if v == _FULL else v for v in (size, packed, header))
        except (StopIteration, RuntimeError):
            raise _bad("invalid header or archive is corrupted") from None
        if flags & 1 or method or packed != size:
            raise _bad(f"record {name!r} is compressed or encrypted, which no file of PyTorch is")
        if name in found:
            raise _bad(f"it has two records {name!r}")
        found[name] = Record(header, nname, size, crc)
    end = 0
    for name, r in sorted(found.items(), key=lambda item: item[1].header):
        if r.header < end or (end := r.header + _LOCAL.size + r.name + r.nbytes) > limit:
            raise _bad(f"record {name!r} lies over another one, or outside the file")
    if not found:
        raise _bad("not a ZIP archive")
    folder = next(iter(found)).partition("/")[0] + "/"
    return {name.removeprefix(folder): r for name, r in found.items() if name.startswith(folder)}


def _wide(extra: bytes) -> Any:
    """The 64-bit numbers of an extra field."""
    at = 0
    while at + 4 <= len(extra):
        kind, n = struct.unpack_from("<HH", extra, at)
        if kind == 1:
            yield from (v for (v,) in struct.iter_unpack("<Q", extra[at + 4 : at + 4 + (n & ~7)]))
        at += 4 + n


def whole(name: str, r: Record) -> Work:
    """The bytes of a record. RuntimeError for damaged ones."""
    head = yield r.header, _LOCAL.size
    if len(head) < _LOCAL.size:
        raise damaged(name)
    data = bytes((yield r.header + r.data_at(head), r.nbytes))
    if len(data) != r.nbytes or crc32(data) != r.crc:
        raise damaged(name)
    return data


def damaged(name: str) -> RuntimeError:
    """The error for a record whose bytes are not those that were written."""
    return RuntimeError(f"PytorchStreamReader failed reading file {name}: file read failed")


class Writer:
    """Writes an archive, from front to back. `folder`: where all records lie."""

    def __init__(self, write: Callable[[Any], Any], folder: str) -> None:
        self.write = write
        self.folder = folder
        self.at = 0
        self.table = bytearray()
        self.count = 0

    def _put(self, data: Any) -> None:
        self.write(data)
        self.at += len(data)

    def record(self, name: str, data: Any) -> None:
        """One record, all of it."""
        path = f"{self.folder}/{name}".encode()
        n, header, crc = len(data), self.at, crc32(data)
        big = n >= _FULL
        wide = struct.pack("<HHQQ", 1, 16, n, n) if big else b""
        short = _FULL if big else n
        room = -(header + _LOCAL.size + len(path) + len(wide) + 4) % ALIGNMENT
        extra = wide + struct.pack("<2sH", b"FB", room) + b"Z" * room
        # UTF-8 names, nothing compressed, no date
        self._put(
            _LOCAL.pack(b"PK\3\4", 45 if big else 0, 0x800, 0, 0, 0, crc, short, short, len(path), len(extra)) + path
        )
        self._put(extra)
        if n:
            self._put(data)
        if big or header >= _FULL:
            sizes = struct.pack("<QQ", n, n) if big else b""
            place = struct.pack("<Q", header) if header >= _FULL else b""
            wide = struct.pack("<HH", 1, len(sizes) + len(place)) + sizes + place
        self.table += _CENTRAL.pack(
            *(b"PK\1\2", 45, 45 if wide else 0, 0x800, 0, 0, 0, crc, short, short, len(path), len(wide)),
            *(0, 0, 0, 0, min(header, _FULL)),
        )
        self.table += path + wide
        self.count += 1

    def close(self) -> None:
        """The directory at the end."""
        start, n, count = self.at, len(self.table), self.count
        self._put(self.table)
        if start >= _FULL or count >= 0xFFFF:
            end = self.at
            self._put(_END64.pack(b"PK\6\6", 44, 45, 45, 0, 0, count, count, n, start))
            self._put(_WHERE64.pack(b"PK\6\7", 0, end, 1))
        short = min(count, 0xFFFF)
        self._put(_END.pack(b"PK\5\6", 0, 0, short, short, n, min(start, _FULL), 0))
