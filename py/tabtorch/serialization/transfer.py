"""Bytes of files into buffers of the device, and back, in bounded pieces: no file is held as a whole on its way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from zlib import crc32

from tabtorch.engine import graph
from tabtorch.engine.view import contiguous_meta
from tabtorch.serialization.zip_archive import Record, check_sum, damaged, inflate
from tabtorch.utils.fetch import PIECE, Work

#: bytes between two values that are read along rather than skipped
GAP = 1 << 12
#: room that is taken to suffice for the header of a record
HEAD = 256


class Span:
    """Where in a file the bytes of `node` lie, from `offset` on; `record`: a header comes first, and the sum is checked."""

    __slots__ = ("name", "nbytes", "node", "offset", "record")

    def __init__(self, node: graph.Node, offset: int, name: str, record: Record | None = None) -> None:
        self.node = node
        self.offset = offset
        self.nbytes = node.inst.out.numel * node.inst.out.dtype.itemsize
        self.name = name
        self.record = record

    @property
    def end(self) -> int:
        return self.offset + self.nbytes + (HEAD if self.record else 0)


def reserve(numel: int, dtype: Any, device: Any) -> graph.Node:
    """A value whose bytes are still to come."""
    return graph.reserve(contiguous_meta((numel,), dtype, device))


def pour(spans: Iterable[Span]) -> Work:
    """Reads the spans' bytes into their buffers, in the order of the file. RuntimeError where they are not there."""
    todo = sorted((s for s in spans if s.nbytes or (s.record and s.record.packed)), key=lambda s: s.offset)
    bridge = graph.bridge()
    start = end = -1
    data: Any = b""
    for i, s in enumerate(todo):
        if s.record and s.record.deflated:
            yield from _unpack(s)
            start = end = -1  # `data` was not that of the last read any more
            continue
        at, done, crc = s.offset, 0, 0
        head = s.record
        while head or done < s.nbytes:
            left = min(4, s.nbytes - done)
            if end - at < (HEAD if head else left) and at != start:
                bridge.flush()
                data = memoryview((yield at, _upto(todo, i, at, s.nbytes - done)))
                start, end = at, at + len(data)
            if end - at < (30 if head else left):
                raise damaged(s.name)
            if head:
                at += head.data_at(data[at - start :][:30])
                head = None
                continue
            part = data[at - start :][: s.nbytes - done]
            if len(part) < s.nbytes - done:
                part = part[: len(part) & ~3]  # buffers are written word by word
            assert s.node.buf is not None
            bridge.write(s.node.buf.id, done, part)
            if s.record:
                crc = crc32(part, crc)
            done += len(part)
            at += len(part)
        if s.record:
            check_sum(s.name, s.record, crc)
    bridge.flush()


def _unpack(s: Span) -> Work:
    """As `pour`, for one record that is packed."""
    assert s.node.buf is not None and s.record is not None
    bridge, ident = graph.bridge(), s.node.buf.id
    held = bytearray()
    at = 0

    def take(part: bytes) -> None:
        nonlocal at, held
        held += part
        words = len(held) & ~3  # buffers are written word by word
        if words:
            bridge.write(ident, at, bytes(held[:words]))
            bridge.flush()
            del held[:words]
            at += words

    yield from inflate(s.name, s.record, take)
    if held:
        bridge.write(ident, at, bytes(held))


def _upto(todo: list[Span], i: int, at: int, left: int) -> int:
    """How many bytes from `at` on, in span `i`, one piece takes; `left` of its bytes are still to come."""
    end = min(max(todo[i].end, at + left), at + PIECE)
    while end - at < PIECE and (i := i + 1) < len(todo) and todo[i].offset - end <= GAP:
        end = max(end, min(todo[i].end, at + PIECE))
    return end - at


def read_back(wanted: Iterable[tuple[graph.Node, int, int]], most: int = 16 * PIECE) -> Iterator[Any]:
    """The bytes of each `(node, offset, nbytes)`; those of small values come together, with one wait."""
    batch: list[tuple[graph.Node, int, int]] = []
    size = 0
    for each in wanted:
        if batch and size + each[2] > most:
            yield from graph.read_many(batch)
            batch, size = [], 0
        batch.append(each)
        size += each[2]
    if batch:
        yield from graph.read_many(batch)
