"""The command block: what Python says to the runtime, packed into one run of bytes.

Little endian, 32-bit words. Word 0 of a command is its opcode, word 1 its length in bytes, header included. Every
command is padded to 8 bytes, so that the layout of a command, its 8-byte scalars included, never depends on where in
the block it starts, and `RUN`, the hot one, is a single precompiled `struct.pack_into`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

__all__ = ["CPU", "WEBGPU", "BlockWriter"]

WEBGPU, CPU = 0, 1

KERNEL, PLAN, RUN, FREE, UPLOAD, COPY, ALIAS, ALLOC, FORGET, WRITE, BIND = range(1, 12)

INITIAL = 1 << 18
SHRINK_ABOVE = 1 << 24
LARGEST = (1 << 32) - 64


@lru_cache(1024)
def _run_layout(nslots: int, scalar_types: tuple[str, ...]) -> struct.Struct:
    """How a `RUN` lies in memory. Plans that differ in sizes alone share it."""
    pad = "4x" if nslots % 2 else ""
    return struct.Struct(f"<4I{nslots}I{pad}" + "".join(["q" if kind == "i64" else "d" for kind in scalar_types]))


class BlockWriter:
    """Appends commands to `data[:pos]` and hands out the ids in them.

    `data` is replaced, never resized, because JavaScript may hold a view of it. A freed buffer id is handed out again
    only when its `FREE` is in the stream; frees collect in `freed` (`list.append` is safe from any finalizer) and go
    in before the next command that could use their memory; so do plans to forget.

    One thread at a time (`bridge.base.LOCK`). But a finalizer or a signal handler of that thread may run between any two
    calls, and append too. So a command is written first and counted in after: if `count` has changed meanwhile, somebody
    else's has come to its place, and it is written again behind it. Nothing can come between the last look and the count,
    where no function is called.
    """

    __slots__ = ("capacity", "count", "data", "forgotten", "freed", "kernels", "plans", "pos", "spare", "top", "view")

    view: memoryview

    def __init__(self) -> None:
        self.count = 0  # how often something was put in, or all of it taken out
        self.pos = 0
        self._replace(INITIAL)
        self.forgotten: list[int] = []  # plans, FORGET not yet written
        self.freed: list[int] = []  # to be freed, FREE not yet written
        self.spare: list[int] = []  # FREE written: may be used again
        self.top = 0  # the largest buffer id so far
        self.kernels = 0
        self.plans = 0

    # -- room

    def _replace(self, capacity: int) -> None:
        """Another block, of that size, with what is in this one."""
        while True:
            data, pos, count = bytearray(capacity), self.pos, self.count
            view = memoryview(data)
            if pos:
                view[:pos] = self.view[:pos]
            if self.count == count:
                self.data, self.view, self.capacity = data, view, capacity
                return

    def reserve(self, nbytes: int) -> int:
        """Make room for `nbytes` more; the position at which they go."""
        while (pos := self.pos) + nbytes > self.capacity:
            if pos + nbytes > LARGEST:
                raise RuntimeError(f"{nbytes} bytes are too many for one block of commands (4 GiB)")
            self._replace(min(LARGEST, max(2 * self.capacity, pos + nbytes)))
        return pos

    def clear(self) -> None:
        """Start again at the front."""
        self.count += 1
        self.pos = 0
        if self.capacity > SHRINK_ABOVE:
            self.shrink()

    def shrink(self) -> None:
        """Gives back a block that one large upload made huge, and that is empty."""
        self._replace(INITIAL)

    def _put(self, layout: str, size: int, *values: int) -> None:
        while True:
            count = self.count
            pos = self.reserve(size)
            struct.pack_into(layout, self.data, pos, *values)
            if self.count == count:
                self.count = count + 1
                self.pos = pos + size
                return

    # -- ids

    def new_buffer(self) -> int:
        """An id for a buffer; the command that makes the buffer is the caller's to write."""
        try:
            return self.spare.pop()
        except IndexError:
            self.top += 1
            return self.top

    def write_frees(self) -> None:
        """Put the `FREE` of everything in `freed` into the stream."""
        freed = self.freed
        ids = freed[:]
        del freed[: len(ids)]  # a finalizer may have appended meanwhile
        count = len(ids)
        size = (12 + 4 * count + 7) & ~7
        self._put(f"<3I{count}I", size, FREE, size, count, *ids)
        self.spare += ids

    # -- commands

    def run_packer(self, plan: int, nslots: int, scalar_types: Sequence[str]) -> Callable[..., None]:
        """A function `(*ids, *scalars)` that appends `RUN plan`: `nslots` buffer ids, then one number a scalar."""
        layout = _run_layout(nslots, tuple(scalar_types))
        size, pack_into, freed = layout.size, layout.pack_into, self.freed

        def run(*values: Any) -> None:
            if freed:
                self.write_frees()
            while True:  # as `_put`
                count, pos = self.count, self.pos
                if pos + size > self.capacity:
                    pos = self.reserve(size)
                pack_into(self.data, pos, RUN, size, plan, nslots, *values)
                if self.count == count:
                    self.count = count + 1
                    self.pos = pos + size
                    return

        return run

    def _bytes(self, opcode: int, words: Sequence[int], data: Any, nbytes: int) -> None:
        if self.freed:
            self.write_frees()
        head = 12 + 4 * len(words)
        size = (head + nbytes + 7) & ~7
        while True:  # as `_put`
            count = self.count
            pos = self.reserve(size)
            view = self.view
            struct.pack_into(f"<{3 + len(words)}I", view, pos, opcode, size, *words, nbytes)
            if nbytes:
                view[pos + head : pos + head + nbytes] = data
            if self.count == count:
                self.count = count + 1
                self.pos = pos + size
                return

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

    def bind(self, template: int, numbers: Sequence[int], work: int) -> int:
        """`BIND`: the new id of the plan `template` with other numbers."""
        values = (min(work, LARGEST), *numbers)
        layout = f"<{len(values)}I"
        try:
            data = struct.pack(layout, *values)
        except struct.error:  # words are taken modulo 2**32; more bytes than that no device has, and it says so
            data = struct.pack(layout, *[n & 0xFFFFFFFF for n in values])
        self.plans += 1
        self._bytes(BIND, (self.plans, template), data, len(data))
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
        self.reserve(24)  # before an id is taken
        ident = self.new_buffer()
        self._put("<6I", 24, COPY, 24, ident, dev, source, nbytes)
        return ident

    def alias(self, base: int, offset: int, nbytes: int) -> int:
        """`ALIAS`: the id of a window onto `base`; `offset` is a multiple of 256."""
        if self.freed:
            self.write_frees()
        self.reserve(24)
        ident = self.new_buffer()
        self._put("<6I", 24, ALIAS, 24, ident, base, offset, nbytes)
        return ident

    def alloc(self, dev: int, nbytes: int) -> int:
        """`ALLOC`: the id of a new buffer of zeros."""
        if self.freed:
            self.write_frees()
        self.reserve(24)
        ident = self.new_buffer()
        self._put("<5I", 24, ALLOC, 24, ident, dev, nbytes)
        return ident

    def forget(self, ids: Iterable[int]) -> None:
        """`FORGET` plans."""
        ids = list(ids)
        size = (12 + 4 * len(ids) + 7) & ~7
        self._put(f"<{3 + len(ids)}I", size, FORGET, size, len(ids), *ids)

    def write_forgotten(self) -> None:
        """The same of those in `forgotten`."""
        ids = self.forgotten[:]
        del self.forgotten[: len(ids)]
        self.forget(ids)
