"""GGUF files into tensors: bytes go to the device as they come, and what is quantized stays packed there."""

from __future__ import annotations

import gc
from math import prod
from typing import Any, NamedTuple

from tabtorch import _lazy
from tabtorch.base import dtypes
from tabtorch.core.storage import Storage
from tabtorch.core.tensor import Tensor
from tabtorch.engine.memory import largest
from tabtorch.engine.view import contiguous_meta
from tabtorch.gguf.header import Entry, GGUFError, Header, read_header
from tabtorch.packed import Packed
from tabtorch.serialization.transfer import Span, pour, reserve
from tabtorch.utils.fetch import Progress, Reader, Work, drive, drive_async, open_reader, open_reader_async


class GGUF(NamedTuple):
    """What is in a file. tensors: by name, `Packed` or plain, each of the shape that PyTorch would give it."""

    version: int
    metadata: dict[str, Any]
    tensors: dict[str, Tensor]


class _Making:
    """Tensors whose bytes are still to come."""

    def __init__(self, device: Any, dtype: Any) -> None:
        self.places = _lazy.serialization.Places(device)
        self.dtype = dtype
        self.spans: list[Span] = []

    def plain(self, e: Entry, shape: tuple[int, ...], offset: int) -> Tensor:
        """A tensor of the entry's dtype, whose bytes lie at `offset`."""
        node = reserve(prod(shape), e.dtype, self.places.device("cpu", e.dtype))
        self.spans.append(Span(node, offset, e.name))
        t: Tensor = object.__new__(Tensor)
        t._tab_storage = Storage(node)
        t._tab_meta = contiguous_meta(shape, e.dtype, node.inst.out.device)
        return t

    def tensor(self, e: Entry) -> Tensor:
        """The tensor of an entry. A packed one that is too large for a buffer lies in several, cut between rows."""
        if e.scheme is None:
            return self.plain(e, e.shape, e.offset)
        rows = prod(e.shape[:-1])
        step = e.nbytes // rows
        limit = largest(self.places.device("cpu", e.dtype).number)
        most = limit // step
        if not most:
            raise GGUFError(f"a row of the tensor {e.name!r} has {step} bytes, and a buffer {limit}")
        parts = [
            self.plain(e, (min(most, rows - first) * step,), e.offset + first * step) for first in range(0, rows, most)
        ]
        return Packed(parts, e.scheme, e.shape, dtype=self.dtype)


def _held(work: Work, header: Header) -> Work:
    """As `work`, which is given again what was read along with the header: a connection is read forwards only."""
    end = header.rest_at + len(header.rest)
    try:
        offset, nbytes = next(work)
        while True:
            if offset >= end:
                data = yield offset, nbytes
            else:
                data = header.rest[offset - header.rest_at :][:nbytes]
                if len(data) < nbytes:
                    data += bytes((yield end, nbytes - len(data)))
            offset, nbytes = work.send(data)
    except StopIteration:
        return


def _all(reader: Reader, device: Any, dtype: Any) -> Work:
    header = yield from read_header(reader.size)
    gc.collect()  # a model that wrote is in a cycle with its compiled step: its memory is to be free for this one
    making = _Making(device, dtype)
    tensors = {e.name: making.tensor(e) for e in header.entries}
    try:
        yield from _held(pour(making.spans), header)
    except RuntimeError as e:
        if "file read failed" in str(e):
            raise GGUFError("the file ends within its tensors") from None
        raise
    return GGUF(header.version, header.metadata, tensors)


def load(
    source: Any, device: Any = None, *, dtype: Any = dtypes.float32, progress: Progress = None, cache: bool = True
) -> GGUF:
    """Metadata and tensors of a GGUF file.

    source: a path, a URL, bytes, a file object, or a file that was chosen in the page. device: None is the default device.
    dtype: what packed weights show themselves as. progress, cache: see `tabtorch.utils.fetch.read_bytes`. GGUFError (a
    ValueError) for what is not in the format, or has weights of a kind that is not supported.
    """
    reader = open_reader(source, cache=cache)
    if reader.size is None:  # without it nothing bounds what a header says
        reader.close()
        reader = open_reader(source, cache=cache, random=True)
        reader.whole()
    with reader:
        found: GGUF = drive(_all(reader, device, dtype), reader, progress)
    return found


async def load_async(
    source: Any, device: Any = None, *, dtype: Any = dtypes.float32, progress: Progress = None, cache: bool = True
) -> GGUF:
    """As `load`, without blocking: for hosts that have no JSPI."""
    reader = await open_reader_async(source, cache=cache)
    if reader.size is None:
        reader.close()
        reader = await open_reader_async(source, cache=cache, random=True)
        await reader.whole_async()
    with reader:
        found: GGUF = await drive_async(_all(reader, device, dtype), reader, progress)
    return found
