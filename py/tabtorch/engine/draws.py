"""Runs the host kernels of random_streams.py: on the cpu device, at once, so that the order of the calls is that of the stream.

A generator's state is a node whose buffer the kernels change: the one value that is not functional. So a draw must not
wait in a window, from which it would vanish if nobody read it. It is sent alone; what else waits stays where it is.
"""

from __future__ import annotations

from typing import Any

from tabtorch.base.random_streams import Draw, HostKernel

from .graph import Custom, Inst, Node, Op, Queue, buffer_of, flush_queue, inst, lost
from .lower import Ref
from .steps import Patch
from .view import Meta

_ops: dict[str, Custom] = {}


def _op(kernel: HostKernel) -> Custom:
    """The operation of a kernel. The u32 numbers, which are sizes, are its `static`; the others are scalars of the node."""
    op = _ops.get(kernel.name)
    if op is not None:
        return op

    def lower(i: Inst, low: Any) -> None:
        words = [0] * kernel.words
        patches: list[Patch] = []
        sizes = iter(i.static)
        for s in kernel.scalars:
            if s.type == "u32":
                words[s.word] = next(sizes)
            else:
                patches.append(Patch(s.word, len(patches), s.type))
        refs = [low.input(j) for j in range(len(i.ins))] + [low.output]
        bound = [(Ref(r.key, t), access) for r, (t, access) in zip(refs, kernel.bindings, strict=True)]
        low.host(kernel.name, kernel.source, bound, words, patches)

    op = _ops[kernel.name] = Custom(kernel.name, lower, sized=True)
    return op


def run(draw: Draw, sources: tuple[Node, ...], out: Meta) -> Node:
    """Makes a draw. `sources`: the state (none for a seeding, whose output is the state), then the inputs, whole and contiguous."""
    kernel = draw.kernel
    sizes = tuple([int(v) for s, v in zip(kernel.scalars, draw.scalars, strict=True) if s.type == "u32"])
    types = tuple([s.type for s in kernel.scalars if s.type != "u32"])
    numbers = tuple([v for s, v in zip(kernel.scalars, draw.scalars, strict=True) if s.type != "u32"])
    for s in sources:
        buffer_of(s)
    i = inst(_op(kernel), tuple([s.inst.out for s in sources]), out, types, sizes)
    node = Node(i, sources, numbers)
    alone = Queue(out.device)
    alone.nodes.append(node)
    flush_queue(alone)
    if not buffer_of(node).id:
        raise lost(kernel.name)
    return node


def seen_as(node: Node, m: Meta) -> Node:
    """The same memory as another whole, contiguous Meta of as many bytes."""
    if node.inst.out is m:
        return node
    n = Node(inst(_SEEN, (), m), (), ())
    n.buf = node.buf
    return n


#: stands in for the operation of values whose memory is another node's
_SEEN = Op("view")
