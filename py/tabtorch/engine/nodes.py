"""Nodes: values to come, or in memory. Flat, contiguous, never changed once made; storages point at them."""

from __future__ import annotations

from typing import Any

from ..bridge.base import LOCK
from .instructions import Inst, inst
from .kinds import Op
from .memory import Buffer, bridge, check_size
from .view import Meta


class Node:
    """A value to come (`buf` is None) or in memory. `host` keeps small uploaded data, so that it can be checked without a read."""

    __slots__ = ("buf", "host", "inst", "pos", "scalars", "srcs", "uses")
    host: Any
    pos: int  # in its window; an input's place in the plan, counted from -1 down
    uses: int  # how often the window reads it

    def __init__(self, inst: Inst, srcs: tuple[Node, ...], scalars: tuple) -> None:
        self.inst = inst
        self.srcs = srcs
        self.scalars = scalars
        self.buf: Buffer | None = None
        self.pos = 0


#: stands in for the operation of values that came from the host
_upload = Op("upload")


def from_host(data: Any, m: Meta, host: Any = None) -> Node:
    """A node that holds `data` (bytes of a contiguous tensor)."""
    n = blank(m)
    if m.device.type == "meta":
        return n
    nbytes = m.numel * m.dtype.itemsize
    check_size(nbytes, m)
    with LOCK:  # an id means something only as long as the runtime lives, whose end is told to buffers
        n.buf = Buffer(bridge().upload(m.device.number, data), nbytes, m.device.number)
    n.host = host
    return n


def blank(m: Meta) -> Node:
    """A node with no memory yet. On the meta device it never has any."""
    return Node(inst(_upload, (), m), (), ())


def reserve(m: Meta) -> Node:
    """A node whose bytes come later, in pieces, with the bridge's `write`."""
    n = blank(m)
    nbytes = m.numel * m.dtype.itemsize
    check_size(nbytes, m)
    with LOCK:
        n.buf = Buffer(bridge().alloc(m.device.number, nbytes), nbytes, m.device.number)
    return n
