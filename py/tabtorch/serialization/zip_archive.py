"""Zip archives of records: written as PyTorch writes them (stored, each at a multiple of 64 bytes), and read as it reads them.

What is taken and what is refused follows PyTorch's reader (caffe2/serialize, over miniz), field by field. Two things it takes
are refused here: records that lie over one another, and two of the same name, of which nobody can say which is meant.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple
from zlib import crc32, decompressobj
from zlib import error as zlib_error

from tabtorch.utils.fetch import PIECE, Work

_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END = struct.Struct("<4sHHHHIIH")
_END64 = struct.Struct("<4sQHHIIQQQQ")
_WHERE64 = struct.Struct("<4sIQI")
_FULL = 0xFFFFFFFF
_MOST = 1 << 20  # records
#: bytes that a packed record may have when PyTorch reads it as a whole: names and a pickle, never numbers
_LARGEST_PACKED = 1 << 28
#: flags of a record: encrypted in one way or another, or a patch
_LOCKED = 0x61
_MASKED = 0x2000
_DEFLATED = 8
#: bytes of a name that PyTorch looks at when it lists them
_LONGEST = 511
ALIGNMENT = 64

_CORRUPTED = "invalid header or archive is corrupted"
_NO_DIRECTORY = "failed finding central directory"
_MANY_DISKS = "unsupported multidisk archive"


def _bad(what: str) -> RuntimeError:
    return RuntimeError(f"PytorchStreamReader failed reading zip archive: {what}")


class Record(NamedTuple):
    """Where a record lies: first a header, `header` bytes into the file, then the data; `packed` bytes of it if `deflated`."""

    header: int
    packed: int
    nbytes: int
    crc: int
    flags: int
    method: int
    folder: bool
    end: int  # of the file

    @property
    def deflated(self) -> bool:
        return self.method == _DEFLATED and self.packed > 0

    def data_at(self, head: Any) -> int:
        """Bytes from the header to the data, told by the header's first 30 bytes. RuntimeError."""
        magic, *_, name, extra = _LOCAL.unpack_from(head)
        start = int(_LOCAL.size + name + extra)
        if magic != b"PK\3\4" or self.header + start + self.packed > self.end:
            raise _bad(_CORRUPTED)
        return start

    def check(self, name: str) -> None:
        """RuntimeError for a record that cannot be read."""
        if self.folder:
            raise _bad(f"record {name!r} says that it is a folder")
        if self.flags & _LOCKED or self.method not in (0, _DEFLATED):
            raise RuntimeError(f"PytorchStreamReader failed reading file {name}: unsupported encryption or compression")


class Directory:
    """The records of an archive by name, without the folder they all lie in. As in PyTorch, "A" finds "a"."""

    def __init__(self, folder: bytes, records: dict[bytes, Record], names: list[str]) -> None:
        self._folder = folder
        self._records = records
        #: of all records, as they are written
        self.names = names

    def get(self, name: str) -> Record | None:
        """The record of that name; what follows a NUL is no part of it."""
        path = self._folder + name.encode("utf-8", "surrogatepass")
        return self._records.get(path.partition(b"\0")[0].lower())

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None


def is_zip(head: Any) -> bool:
    """Whether a file that begins so is an archive."""
    return bytes(head[:4]) == b"PK\3\4"


def directory(size: int) -> Work:
    """The `Directory` of an archive of `size` bytes. RuntimeError for one that PyTorch's reader does not take."""
    start = max(0, size - 4096)
    while start >= 4093 and size - start < 0xFFFF + _END.size:  # as far as PyTorch's reader looks, in its steps
        start -= 4093
    tail = bytes((yield start, size - start))
    at = tail.rfind(b"PK\5\6", 0, len(tail) - _END.size + 4)
    if at < 0:
        raise _bad(_NO_DIRECTORY)
    _, disk, first, here, count, length, offset, _ = _END.unpack_from(tail, at)
    end = start + at
    if end >= _WHERE64.size + _END64.size:
        found = yield end - _WHERE64.size, _WHERE64.size
        magic, _, where, disks = _WHERE64.unpack_from(found)
        if magic == b"PK\6\7":
            if where + _END64.size > size:
                raise _bad("not a ZIP archive")
            found = yield where, _END64.size
            if bytes(found[:4]) == b"PK\6\6":
                _, record, _, _, disk, first, here, count, length, offset = _END64.unpack_from(found)
                if record < _END64.size - 12:
                    raise _bad(_CORRUPTED)
                if disks != 1:
                    raise _bad(_MANY_DISKS)
    if count != here or ((disk or first) and (disk, first) != (1, 1)):
        raise _bad(_MANY_DISKS)
    if count > _MOST or length < count * _CENTRAL.size or offset + length > size or length > _FULL:
        raise _bad(_CORRUPTED)
    return _records(bytes((yield offset, length)), count, size, disk)


def _records(table: bytes, count: int, limit: int, disk: int) -> Directory:
    found: dict[bytes, Record] = {}
    names: list[bytes] = []
    at = 0
    for _ in range(count):
        if at + _CENTRAL.size > len(table):
            raise _bad(_CORRUPTED)
        magic, _, _, flags, method, time, _, crc, packed, size, nname, nextra, ncomment, on, _, attributes, header = (
            _CENTRAL.unpack_from(table, at)
        )
        at += _CENTRAL.size
        name = table[at : at + nname]
        extra = table[at + nname : at + nname + nextra]
        at += nname + nextra + ncomment
        if magic != b"PK\1\2" or at > len(table):
            raise _bad(_CORRUPTED)
        if nextra and _FULL in (size, packed, header):
            wide = _wide(extra)
            try:
                size, packed, header = (next(wide) if v == _FULL else v for v in (size, packed, header))
            except (StopIteration, RuntimeError):
                raise _bad(_CORRUPTED) from None
        known = packed != _FULL  # of one whose size is not, PyTorch finds out when it is read
        if known and size != _FULL and ((not (method or time) and packed != size) or (size and not packed)):
            raise _bad(_CORRUPTED)
        if on == 0xFFFF or on not in (disk, 1):
            raise _bad(_MANY_DISKS)
        if flags & _MASKED:
            raise _bad("unsupported encryption")
        if known and header + _LOCAL.size + packed > limit:
            raise _bad(_CORRUPTED)
        folder = name.endswith(b"/") or bool(attributes & 0x10)
        if name.lower() in found:
            raise _bad(f"it has two records {name.decode('utf-8', 'replace')!r}")
        names.append(name)
        found[name.lower()] = Record(header, packed, size, crc, flags, method, folder, limit)
    end = 0
    for name, r in sorted(found.items(), key=lambda item: item[1].header):
        if r.header < end:
            raise _bad(f"record {name.decode('utf-8', 'replace')!r} lies over another one")
        end = r.header + _LOCAL.size + len(name) + (r.packed if r.packed != _FULL else 0)
    if not names:
        raise RuntimeError("archive does not contain any files")
    top, slash, _ = names[0].partition(b"/")
    for name in names:
        if not slash or not name[:_LONGEST].startswith(top + slash):
            raise RuntimeError(f"file in archive is not in a subdirectory {_shown(top)}/: {_shown(name)}")
    # PyTorch lists names as C does, up to a NUL
    texts = [_utf8(name[:_LONGEST].partition(b"\0")[0][len(top) + 1 :]) for name in names]
    return Directory(top.lower() + slash, found, texts)


def _shown(name: bytes) -> str:
    return name.decode("utf-8", "replace")


def _utf8(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise _bad(f"a record's name is no UTF-8: {error}") from None


def _wide(extra: bytes) -> Any:
    """The 64-bit numbers of the first extra field that has such."""
    at = 0
    while at + 4 <= len(extra):
        kind, n = struct.unpack_from("<HH", extra, at)
        if at + 4 + n > len(extra):
            return
        if kind == 1:
            yield from (v for (v,) in struct.iter_unpack("<Q", extra[at + 4 : at + 4 + (n & ~7)]))
            return
        at += 4 + n


def whole(name: str, r: Record) -> Work:
    """The bytes of a record. RuntimeError for damaged ones."""
    r.check(name)
    if not r.packed:  # PyTorch does not look at what is before nothing
        return b""
    if r.deflated:
        if r.nbytes > _LARGEST_PACKED:
            raise _bad(f"record {name!r} of {r.packed} bytes would be {r.nbytes} when unpacked")
        unpacked = bytearray()
        yield from inflate(name, r, unpacked.extend)
        return bytes(unpacked)
    head = yield r.header, _LOCAL.size
    if len(head) < _LOCAL.size:
        raise damaged(name)
    data = bytes((yield r.header + r.data_at(head), r.nbytes))
    if len(data) != r.nbytes:
        raise damaged(name)
    check_sum(name, r, crc32(data))
    return data


def inflate(name: str, r: Record, take: Callable[[bytes], Any]) -> Work:
    """Unpacks a record and gives `take` the bytes, a bounded piece at a time. RuntimeError for damaged ones."""
    head = yield r.header, _LOCAL.size
    if len(head) < _LOCAL.size:
        raise damaged(name)
    at, left = r.header + r.data_at(head), r.packed
    stream, piece = decompressobj(-15), b""
    crc = done = 0
    while not stream.eof:
        if not piece and left:
            piece = bytes((yield at, min(PIECE, left)))
            if not piece:
                raise damaged(name)
            at += len(piece)
            left -= len(piece)
        try:
            out = stream.decompress(piece, PIECE)
        except zlib_error:
            raise _unpackable(name) from None
        piece = stream.unconsumed_tail
        done += len(out)
        if done > r.nbytes or not (out or piece or left or stream.eof):
            raise _unpackable(name)
        crc = crc32(out, crc)
        take(out)
    if done != r.nbytes:
        raise _unpackable(name)
    check_sum(name, r, crc)


def _unpackable(name: str) -> RuntimeError:
    return RuntimeError(f"PytorchStreamReader failed reading file {name}: it cannot be unpacked")


def damaged(name: str) -> RuntimeError:
    """The error for a record that is not all there."""
    return RuntimeError(f"PytorchStreamReader failed reading file {name}: file read failed")


def check_sum(name: str, r: Record, crc: int) -> None:
    """RuntimeError where the bytes that were read are not those that were written. (PyTorch loads what came.)"""
    if crc != r.crc:
        raise RuntimeError(f"PytorchStreamReader failed reading file {name}: CRC-32 check failed")


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
