"""Many tensors as one: packing values into a flat buffer, and windows onto it.

A step over all parameters of an optimizer is then one kernel over the flat buffer, however many there are. Pieces start at
multiples of 64 elements, where WebGPU allows a binding to start.
"""

from __future__ import annotations

from typing import Any

from .expr import cast, const, variable
from .graph import Buffer, Custom, Inst, Node, bridge, buffer_of, emit, inst, lost
from .lower import Kernel, Ref
from .view import Meta, contiguous_meta

ALIGN = 64


def padded(n: int) -> int:
    """Elements a piece of n takes in the flat buffer."""
    return -(-n // ALIGN) * ALIGN


def _lower_pack(i: Inst, low: Any) -> None:
    """Copies each input to its place, as many inputs a launch as the device can bind."""
    most = max(1, low.target.buffers - 1)
    start = 0
    out = low.output
    for first in range(0, len(i.ins), most):
        part = list(range(first, min(first + most, len(i.ins))))
        ends = []
        total = 0
        for j in part:
            total += padded(i.ins[j].numel)
            ends.append(total)

        def body(
            k: Kernel, t: Any, part: list[int] = part, ends: list[int] = ends, start: int = start, total: int = total
        ) -> None:
            v = k.var(const(0, "f32"), "value")
            begin: Any = const(0, "u32")
            for which, j in enumerate(part):
                m: Meta = i.ins[j]
                end = k.dim(ends[which], ("end", which))
                local = k.let(t - begin, "at")
                with k.when((t >= begin) & (t < end) & (local < k.dim(m.numel, ("n", which)))):
                    ref: Ref = low.input(j)
                    got = k.load(ref, low.index(k, m, local, ("in", which)))
                    k.assign(v, cast(got, "f32"))
                begin = end
            k.store(out, t + k.dim(start, "start"), variable(v.value, "f32"))

        low.launch("pack", total, body)
        start += total


PACK = Custom("pack", _lower_pack)


def pack(nodes: list[Node], metas: list[Meta]) -> Node:
    """One flat float32 value with these tensors one after another, each padded to a multiple of 64 elements with zeros."""
    d = metas[0].device
    out = contiguous_meta((sum(padded(m.numel) for m in metas),), metas[0].dtype, d)
    return emit(inst(PACK, tuple(metas), out), tuple(nodes))


def flat_of(nodes: list[Node], metas: list[Meta]) -> Node | None:
    """The flat value these nodes are all the windows of, in this order, if they are: then nothing has to be packed."""
    first = nodes[0].buf
    if first is None or first.base is None:
        return None
    size = metas[0].dtype.itemsize
    at = 0
    for n, m in zip(nodes, metas, strict=True):
        b = n.buf
        if b is None or b.base is not first.base or b.offset != at * size:
            return None
        at += padded(m.numel)
    if first.base.nbytes != at * size:
        return None
    flat = Node(inst(_WINDOW, (), contiguous_meta((at,), metas[0].dtype, metas[0].device)), (), ())
    flat.buf = first.base
    return flat


def windows(flat: Node, metas: list[Meta]) -> list[Node]:
    """Nodes that are windows onto a flat value, where `pack` would have put them. The flat buffer lives as long as any of them."""
    base = buffer_of(flat)
    if not base.id:
        raise lost("window")
    size = flat.inst.out.dtype.itemsize
    out = []
    at = 0
    for m in metas:
        n = Node(inst(_WINDOW, (), contiguous_meta(m.shape, m.dtype, m.device)), (), ())
        nbytes = m.numel * size
        n.buf = Buffer(bridge().alias(base.id, at * size, nbytes), 0, base.device, base, at * size)
        out.append(n)
        at += padded(m.numel)
    return out


_WINDOW = Custom("window", lambda i, low: None)
