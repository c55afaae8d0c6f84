"""What comes before the numbers in a GGUF file: metadata by key, and where each tensor lies. Nothing in it is trusted."""

from __future__ import annotations

import struct
from collections.abc import Generator
from math import prod
from typing import Any, NamedTuple

from tabtorch.base import dtypes
from tabtorch.packed import FORMATS
from tabtorch.utils.fetch import Work

#: bytes that metadata and the list of tensors may take
LARGEST_HEADER = 1 << 28
#: bytes that are read at once of it
STEP = 1 << 20
#: lists in lists of metadata
DEEPEST = 4
#: dimensions of a tensor of ggml
MOST_DIMS = 4

#: the numbers of types of values -> how `struct` reads them
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}
_BOOL, _STRING, _ARRAY = 7, 8, 9

#: the numbers of types of tensors that are not packed
PLAIN = {
    0: dtypes.float32,
    1: dtypes.float16,
    24: dtypes.int8,
    25: dtypes.int16,
    26: dtypes.int32,
    27: dtypes.int64,
    28: dtypes.float64,
    30: dtypes.bfloat16,
}
_PACKED = {f.number: f for f in FORMATS.values()}


class GGUFError(ValueError):
    """A file is not in the format, or holds what is not supported."""


class Entry(NamedTuple):
    """A tensor of a file: its bytes begin at `offset` of the file; `scheme` is the name of its packing, or None."""

    name: str
    shape: tuple[int, ...]
    dtype: Any
    scheme: str | None
    offset: int
    nbytes: int


class Header(NamedTuple):
    """`rest`: bytes that were read beyond the header, which begin at `rest_at` of the file."""

    version: int
    metadata: dict[str, Any]
    entries: list[Entry]
    rest: bytes
    rest_at: int


class _Cursor:
    """Reads one thing behind the other; more of the file is asked for when it is needed."""

    def __init__(self, size: int | None) -> None:
        self.size = size
        self.data = bytearray()
        self.begin = 0  # where in the file `data` begins
        self.at = 0  # in `data`

    @property
    def place(self) -> int:
        """Where in the file the next byte lies."""
        return self.begin + self.at

    def check(self, nbytes: int) -> None:
        """GGUFError where the file, or a header, cannot have so many bytes more."""
        limit = LARGEST_HEADER if self.size is None else min(LARGEST_HEADER, self.size)
        if nbytes > limit - self.place:
            raise GGUFError(
                f"{nbytes} bytes at {self.place} reach beyond the end of the file or of what a header may take"
            )

    def take(self, nbytes: int) -> Generator[tuple[int, int], Any, memoryview]:
        """That many bytes, which hold until more is taken."""
        self.check(nbytes)
        if len(self.data) - self.at < nbytes:
            self.begin += self.at
            self.data = self.data[self.at :]
            self.at = 0
            while len(self.data) < nbytes:
                # once a read gave something, it may be less than was asked for only where the file ends
                more = bytes((yield self.begin + len(self.data), max(STEP, nbytes - len(self.data))))
                if not more:
                    raise GGUFError(f"the file ends after {self.begin + len(self.data)} bytes, within its header")
                self.data += more
        self.at += nbytes
        return memoryview(bytes(self.data[self.at - nbytes : self.at]))

    def number(self, code: str) -> Generator[tuple[int, int], Any, Any]:
        data = yield from self.take(struct.calcsize("<" + code))
        return struct.unpack("<" + code, data)[0]

    def text(self) -> Generator[tuple[int, int], Any, str]:
        n = yield from self.number("Q")
        raw = bytes((yield from self.take(n)))
        # tokens of some vocabularies are cut within a character
        return raw.decode("utf-8", "surrogateescape")

    def value(self, kind: int, depth: int = 0) -> Generator[tuple[int, int], Any, Any]:
        if kind in _NUMBERS:
            return (yield from self.number(_NUMBERS[kind]))
        if kind == _BOOL:
            return (yield from self.number("B")) != 0
        if kind == _STRING:
            return (yield from self.text())
        if kind != _ARRAY:
            raise GGUFError(f"there is no type {kind} of metadata")
        if depth == DEEPEST:
            raise GGUFError(f"lists of metadata lie deeper than {DEEPEST}")
        inner = yield from self.number("I")
        n = yield from self.number("Q")
        if inner in _NUMBERS or inner == _BOOL:
            code = _NUMBERS.get(inner, "B")
            nbytes = n * struct.calcsize("<" + code)
            data = yield from self.take(nbytes)
            found = list(struct.unpack(f"<{n}{code}", data))
            return [x != 0 for x in found] if inner == _BOOL else found
        if inner not in (_STRING, _ARRAY):
            raise GGUFError(f"there is no type {inner} of metadata")
        self.check(n * (8 if inner == _STRING else 12))  # the least that each takes
        items = []
        for _ in range(n):
            items.append((yield from self.value(inner, depth + 1)))
        return items


def read_header(size: int | None) -> Work:
    """The `Header` of a file of `size` bytes (None: not known). GGUFError for what is none."""
    c = _Cursor(size)
    magic = bytes((yield from c.take(4)))
    if magic != b"GGUF":
        raise GGUFError(f"a GGUF file begins with b'GGUF', and not with {magic!r}")
    version = yield from c.number("I")
    if version not in (2, 3):
        why = " (its numbers have the other byte order)" if version & 0xFFFF == 0 else ""
        raise GGUFError(f"version {version} of GGUF is not supported{why}; versions 2 and 3 are")
    n_tensors = yield from c.number("Q")
    n_values = yield from c.number("Q")
    c.check(n_tensors * 24 + n_values * 13)
    metadata: dict[str, Any] = {}
    for _ in range(n_values):
        key = yield from c.text()
        if key in metadata:
            raise GGUFError(f"the key {key!r} is there twice")
        kind = yield from c.number("I")
        metadata[key] = yield from c.value(kind)
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= 1 << 20 or alignment & (alignment - 1):
        raise GGUFError(f"general.alignment must be a power of two, and not {alignment!r}")
    found: list[Entry] = []
    names: set[str] = set()
    for _ in range(n_tensors):
        entry = yield from _entry(c)
        if entry.name in names:
            raise GGUFError(f"the tensor {entry.name!r} is there twice")
        names.add(entry.name)
        found.append(entry)
    start = -(-c.place // alignment) * alignment
    # one behind the other, as llama.cpp wants it: no byte belongs to two tensors
    at = 0
    for k, e in enumerate(found):
        if e.offset != at:
            raise GGUFError(f"the tensor {e.name!r} lies at {e.offset}, and not at {at}")
        found[k] = e._replace(offset=start + at)
        if size is not None and start + at + e.nbytes > size:
            raise GGUFError(f"the tensor {e.name!r} reaches beyond the end of the file")
        at += -(-e.nbytes // alignment) * alignment
    return Header(version, metadata, found, bytes(c.data[c.at :]), c.place)


def _entry(c: _Cursor) -> Generator[tuple[int, int], Any, Entry]:
    """The next tensor; its offset counts from where the numbers begin."""
    name = yield from c.text()
    ndim = yield from c.number("I")
    if ndim > MOST_DIMS:
        raise GGUFError(f"the tensor {name!r} has {ndim} dimensions; {MOST_DIMS} are the most")
    sizes = []
    for _ in range(ndim):
        sizes.append((yield from c.number("Q")))
    shape = tuple(reversed(sizes))  # ggml's first is the one whose elements are neighbours
    kind = yield from c.number("I")
    offset = yield from c.number("Q")
    total = prod(shape)
    if min(shape, default=1) < 1 or total >= 2**56:
        raise GGUFError(f"the tensor {name!r} cannot have the shape {list(shape)}")
    if kind in PLAIN:
        return Entry(name, shape, PLAIN[kind], None, offset, total * PLAIN[kind].itemsize)
    f = _PACKED.get(kind)
    if f is None:
        raise GGUFError(f"the tensor {name!r} has the type {kind}, which is not supported; {', '.join(FORMATS)} are")
    if not shape or shape[-1] % f.weights:
        raise GGUFError(
            f"the tensor {name!r} of {list(shape)} has rows that are not of {f.name}'s blocks of {f.weights}"
        )
    return Entry(name, shape, dtypes.uint8, f.name, offset, total // f.weights * f.nbytes)
