"""Many tensors as one: packing values into a flat buffer, and windows onto it.

A step over all parameters of an optimizer is then one kernel over the flat buffer, however many there are. Pieces start at
multiples of 64 elements, where WebGPU allows a binding to start.
"""

from __future__ import annotations

from typing import Any

from tabtorch.base.thread_state import STATE

from .expr import cast, const, minimum, where
from .graph import LOCK, Buffer, Custom, Inst, Lost, Map, Node, bridge, buffer_of, emit, inst, lost
from .lower import Kernel, Ref
from .target import Target
from .view import Meta, contiguous_meta, contiguous_strides, meta

ALIGN = 64
#: pieces that one launch packs
MOST = 64


def padded(n: int) -> int:
    """Elements a piece of n takes in the flat buffer."""
    return -(-n // ALIGN) * ALIGN


def _threads(t: Target, elements: int) -> int:
    """Threads of a launch that packs: so many keep the device busy (a large GPU has 270,000 at a time)."""
    if t.serial or t.software:
        return 1 if t.serial else 1 << 10
    return 1 << 19 if elements >= 1 << 22 else 1 << 16


def _lower_pack(i: Inst, low: Any) -> None:
    """Copies each input to its place, as many inputs a launch as the device can bind. All threads walk along each input: to ask of
    each element which input it is of took a fifth of an MLP's step on SwiftShader."""
    threads = _threads(low.target, i.out.numel)
    most = max(1, low.target.buffers - 1)
    start = 0
    out = low.output
    parts: list[list[int]] = []
    bound: set[Any] = set()
    for j in range(len(i.ins)):
        key = low.input(j).key
        if not parts or len(bound | {key}) > most or len(parts[-1]) == MOST:
            parts.append([])
            bound = set()
        bound.add(key)
        parts[-1].append(j)
    for part in parts:
        begins = []
        for j in part:
            begins.append(start)
            start += padded(i.ins[j].numel)

        def body(k: Kernel, t: Any, part: list[int] = part, begins: list[int] = begins) -> None:
            for which, j in enumerate(part):
                m: Meta = i.ins[j]
                ref: Ref = low.input(j)
                n = k.dim(m.numel, ("n", which))
                with k.loop(k.dim(padded(m.numel), ("padded", which)), t, "at", k.dim(threads, "threads")) as at:
                    place = low.index(k, m, k.let(minimum(at, n - 1), "from"), ("in", which))
                    value = where(at < n, cast(k.load(ref, place), "f32"), const(0, "f32"))
                    k.store(out, at + k.dim(begins[which], ("begin", which)), value)

        low.launch("pack", threads, body, apart=True)


PACK = Custom("pack", _lower_pack)


def pack(nodes: list[Node], metas: list[Meta]) -> Node:
    """One flat float32 value with these tensors one after another, each padded to a multiple of 64 elements with zeros."""
    nodes, metas = _sources(nodes, metas)
    d = metas[0].device
    out = contiguous_meta((sum(padded(m.numel) for m in metas),), metas[0].dtype, d)
    return emit(inst(PACK, tuple(metas), out), tuple(nodes))


def _sources(nodes: list[Node], metas: list[Meta]) -> tuple[list[Node], list[Meta]]:
    """The same values, windows as views of what they are windows of: so that a launch can take more of them."""
    flats: dict[int, Node] = {}
    sources, views = list(nodes), list(metas)
    for k, (n, m) in enumerate(zip(nodes, metas, strict=True)):
        b = n.buf
        size = m.dtype.itemsize
        if b is None and n.inst.op is PLACE and (srcs := n.srcs):
            flat, at = srcs[0], n.inst.ins[0].offset
        elif b is not None and b.base is not None:
            at = b.offset // size
            if id(b.base) in flats:
                flat = flats[id(b.base)]
            else:
                flat = Node(inst(_WINDOW, (), contiguous_meta((b.base.nbytes // size,), m.dtype, m.device)), (), ())
                flat.buf = b.base
                flats[id(b.base)] = flat
        else:
            continue
        sources[k] = flat
        views[k] = m.view(m.shape, m.strides, m.offset + at)
    return sources, views


def flat_of(nodes: list[Node], metas: list[Meta]) -> Node | None:
    """The flat value these nodes are all the windows of, in this order, if they are: then nothing has to be packed."""
    first = nodes[0].buf
    size = metas[0].dtype.itemsize
    if first is None and nodes[0].inst.op is PLACE:  # windows that wait
        at = 0
        for n, m in zip(nodes, metas, strict=True):
            if n.inst.op is not PLACE or not n.srcs or n.srcs[0] is not nodes[0].srcs[0] or n.inst.ins[0].offset != at:
                return None
            at += padded(m.numel)
        return nodes[0].srcs[0] if nodes[0].srcs[0].inst.out.numel == at else None
    if first is None or first.base is None:
        return None
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
    if flat.buf is None and STATE.held is not None:
        return _waiting(flat, metas)
    base = buffer_of(flat)
    if not base.id:
        raise lost("window")
    key = tuple(metas)
    places = _places.get(key)
    if places is None:
        if len(_places) > 1000:
            _places.clear()
        places = _places[key] = []
        at = 0
        for m in metas:
            size = m.dtype.itemsize
            i = inst(_WINDOW, (), contiguous_meta(m.shape, m.dtype, m.device))
            places.append((i, at * size, m.numel * size))
            at += padded(m.numel)
    out = []
    with LOCK:
        alias = bridge().alias
        for i, offset, nbytes in places:
            n = Node(i, (), ())
            n.buf = Buffer(alias(base.id, offset, nbytes), 0, base.device, base, offset)
            out.append(n)
    return out


def windows_or_lost(flat: Node, metas: list[Meta]) -> list[Node]:
    """The same; where there is no flat value any more, nodes that say why when they are used."""
    try:
        return windows(flat, metas)
    except Exception as error:
        out = [Node(inst(_WINDOW, (), contiguous_meta(m.shape, m.dtype, m.device)), (), ()) for m in metas]
        for n in out:
            n.buf = flat.buf if type(flat.buf) is Lost else Lost(error)
        return out


def _waiting(flat: Node, metas: list[Meta]) -> list[Node]:
    """The same of a value that waits: nodes that get their memory with it, and can be read before."""
    q = flat.inst.queue
    out = []
    at = 0
    for m in metas:
        seen = meta(m.shape, contiguous_strides(m.shape), at, m.dtype, m.device)
        q.windows.append(len(q.nodes))
        out.append(emit(inst(PLACE, (seen,), contiguous_meta(m.shape, m.dtype, m.device)), (flat,)))
        at += padded(m.numel)
    return out


PLACE = Map("window", lambda x: x)
#: for the tensors of a flat buffer, their windows: the Inst, where it begins, and its size, in bytes
_places: dict[tuple[Meta, ...], list[tuple[Inst, int, int]]] = {}
_WINDOW = Custom("window", lambda i, low: None)
