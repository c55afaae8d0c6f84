"""The command block: what Python says to the runtime, packed into one run of bytes.

Little endian, 32-bit words. Word 0 of a command is its opcode, word 1 its length in bytes, header included. Every
command is padded to 8 bytes, so that the layout of a command, its 8-byte scalars included, never depends on where in
the block it starts, and `RUN`, the hot one, is a single precompiled `struct.pack_into`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

__all__ = ["CPU", "WEBGPU", "BlockWriter"]

WEBGPU, CPU = 0, 1

KERNEL, PLAN, RUN, FREE, UPLOAD, COPY, ALIAS, ALLOC, FORGET, WRITE = range(1, 11)

INITIAL = 1 << 18
SHRINK_ABOVE = 1 << 24
LARGEST = (1 << 32) - 64

_pack5 = struct.Struct("<5I").pack_into
_pack6 = struct.Struct("<6I").pack_into


class BlockWriter:
    """Appends commands to `data[:pos]` and hands out the ids in them.

    `data` is replaced, never resized, because JavaScript may hold a view of it. A freed buffer id is handed out again
    only when its `FREE` is in the stream; frees collect in `freed` (`list.append` is safe from any finalizer) and go
    in before the next command that could use their memory.
    """

    __slots__ = ("capacity", "data", "freed", "kernels", "plans", "pos", "spare", "top", "view")

    def __init__(self) -> None:
        self._replace(INITIAL)
        self.pos = 0
        self.freed: list[int] = []  # to be freed, FREE not yet written
        self.spare: list[int] = []  # FREE written: may be used again
        self.top = 0  # the largest buffer id so far
        self.kernels = 0
        self.plans = 0

    # -- room

    def _replace(self, capacity: int) -> None:
        self.data = bytearray(capacity)
        self.view = memoryview(self.data)
        self.capacity = capacity

    def reserve(self, nbytes: int) -> int:
        """Make room for `nbytes` more; the position at which they go."""
        pos = self.pos
        if pos + nbytes > self.capacity:
            if pos + nbytes > LARGEST:
                raise RuntimeError(f"{nbytes} bytes are too many for one block of commands (4 GiB)")
            old = self.view
            self._replace(min(LARGEST, max(2 * self.capacity, pos + nbytes)))
            self.view[:pos] = old[:pos]
        return pos

    def clear(self) -> None:
        """Start again at the front; a block that one large upload made huge is given back."""
        self.pos = 0
        if self.capacity > SHRINK_ABOVE:
            self._replace(INITIAL)

    # -- ids

    def new_buffer(self) -> int:
        """An id for a buffer; the command that makes the buffer is the caller's to write."""
        if self.spare:
            return self.spare.pop()
        self.top += 1
        return self.top

    def write_frees(self) -> None:
        """Put the `FREE` of everything in `freed` into the stream."""
        freed = self.freed
        ids = freed[:]
        del freed[: len(ids)]  # a finalizer may have appended meanwhile
        count = len(ids)
        size = (12 + 4 * count + 7) & ~7
        pos = self.reserve(size)
        struct.pack_into(f"<3I{count}I", self.data, pos, FREE, size, count, *ids)
        self.pos = pos + size
        self.spare += ids

    # -- commands

    def run_packer(self, plan: int, nslots: int, scalar_types: Sequence[str]) -> Callable[..., None]:
        """A function `(*ids, *scalars)` that appends `RUN plan`: `nslots` buffer ids, then one number a scalar."""
        pad = "4x" if nslots % 2 else ""
        scalars = "".join("q" if kind == "i64" else "d" for kind in scalar_types)
        layout = struct.Struct(f"<4I{nslots}I{pad}{scalars}")
        size, pack_into, freed = layout.size, layout.pack_into, self.freed

        def run(*values: Any) -> None:
            if freed:
                self.write_frees()
            pos = self.pos
            if pos + size > self.capacity:
                self.reserve(size)
            pack_into(self.data, pos, RUN, size, plan, nslots, *values)
            self.pos = pos + size

        return run

    def _bytes(self, opcode: int, words: Sequence[int], data: Any, nbytes: int) -> None:
        if self.freed:
            self.write_frees()
        head = 12 + 4 * len(words)
        size = (head + nbytes + 7) & ~7
        pos = self.reserve(size)
        struct.pack_into(f"<{3 + len(words)}I", self.data, pos, opcode, size, *words, nbytes)
        if nbytes:
            self.view[pos + head : pos + head + nbytes] = data
        self.pos = pos + size

    def kernel(self, spec: dict[str, Any]) -> int:
        """`KERNEL`: its new id."""
        text = json.dumps(spec, separators=(",", ":")).encode()
        self.kernels += 1
        self._bytes(KERNEL, (self.kernels,), text, len(text))
        return self.kernels

    def plan(self, spec: dict[str, Any]) -> int:
        """`PLAN`: its new id."""
        text = json.dumps(spec, separators=(",", ":")).encode()
        self.plans += 1
        self._bytes(PLAN, (self.plans,), text, len(text))
        return self.plans

    def upload(self, dev: int, data: Any) -> int:
        """`UPLOAD` of a bytes-like object: the id of the new buffer."""
        view = memoryview(data)
        nbytes = view.nbytes
        if nbytes and (view.ndim != 1 or view.format != "B"):
            view = view.cast("B")
        self.reserve(nbytes + 32)  # before an id is taken
        if self.freed:
            self.write_frees()
        ident = self.new_buffer()
        self._bytes(UPLOAD, (ident, dev), view, nbytes)
        return ident

    def write(self, ident: int, offset: int, data: Any) -> None:
        """`WRITE` of a bytes-like object into a buffer from byte `offset` on, a multiple of 4, as its length is but at the end."""
        self._bytes(WRITE, (ident, offset), data, len(data))

    def copy(self, dev: int, source: int, nbytes: int) -> int:
        """`COPY`: the id of the new buffer on `dev`, with the first `nbytes` of `source`."""
        if self.freed:
            self.write_frees()
        pos = self.reserve(24)
        ident = self.new_buffer()
        _pack6(self.data, pos, COPY, 24, ident, dev, source, nbytes)
        self.pos = pos + 24
        return ident

    def alias(self, base: int, offset: int, nbytes: int) -> int:
        """`ALIAS`: the id of a window onto `base`; `offset` is a multiple of 256."""
        if self.freed:
            self.write_frees()
        pos = self.reserve(24)
        ident = self.new_buffer()
        _pack6(self.data, pos, ALIAS, 24, ident, base, offset, nbytes)
        self.pos = pos + 24
        return ident

    def alloc(self, dev: int, nbytes: int) -> int:
        """`ALLOC`: the id of a new buffer of zeros."""
        if self.freed:
            self.write_frees()
        pos = self.reserve(24)
        ident = self.new_buffer()
        _pack5(self.data, pos, ALLOC, 24, ident, dev, nbytes)
        self.pos = pos + 24
        return ident

    def forget(self, ids: Iterable[int]) -> None:
        """`FORGET` plans."""
        ids = list(ids)
        size = (12 + 4 * len(ids) + 7) & ~7
        pos = self.reserve(size)
        struct.pack_into(f"<{3 + len(ids)}I", self.data, pos, FORGET, size, len(ids), *ids)
        self.pos = pos + size
