"""Memory that a plan writes over holds one value, and nobody else has that value.

Values share memory without being equal to each other: several are windows onto one flat buffer, and the flat value itself may
be somebody's. So both are counted, who holds a value (its node) and what lies in its memory (its buffer).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tabtorch.engine import graph
from tabtorch.engine.graph import Buffer, Node
from tabtorch.engine.liveness import held_beyond

#: how often a node was given other memory: who remembers where nodes lie looks again
moves = [0]


def copied(node: Node) -> Buffer:
    """A copy of a value."""
    b = node.buf
    assert b is not None
    nbytes = node.inst.out.numel * node.inst.out.dtype.itemsize
    return graph.copied(b, b.device, nbytes)


def unshared(node: Node) -> None:
    """Gives a value a copy of its own; the buffer that it had is then free to be written to."""
    node.buf = copied(node)
    moves[0] += 1


def twin_of(node: Node, buf: Buffer | None = None) -> Node:
    """The same value as another node, in the same memory, or in `buf`."""
    twin = Node(node.inst, (), ())
    twin.buf = node.buf if buf is None else buf
    return twin


def _whole(b: Buffer) -> Buffer:
    return graph.copied(b, b.device, b.nbytes)


def separated(nodes: Sequence[Node], written: Iterable[int], inputs: Sequence[Node]) -> list[tuple[Node, Node]]:
    """(node, twin) for the values of `nodes` at the places `written` that lie in memory together with others: the twins have
    memory that nothing else lies in. Windows onto one buffer stay together, if all of them are written. `inputs`: nodes that are
    only read; those that are the whole of what moves get twins too."""
    over = set(written)
    everyone = list({id(n): n for n in (*nodes, *inputs)}.values())
    at = {id(n): i for i, n in enumerate(nodes)}
    parts: dict[int, tuple[Buffer, list[Node], list[Node]]] = {}
    for n in everyone:
        b = n.buf
        assert b is not None
        root = b.base or b
        _, whole, windows = parts.setdefault(id(root), (root, [], []))
        (whole if b is root else windows).append(n)
    _ = None
    b = root = None  # type: ignore[assignment]
    twins: list[tuple[Node, Node]] = []
    for key in list(parts):
        root, whole, windows = parts.pop(key)
        direct = [n for n in whole if id(n) in at]
        mine = [n for n in windows if at.get(id(n), -1) in over]
        if not mine and not any(at[id(n)] in over for n in direct):
            continue
        memory = [root]
        root = None  # type: ignore[assignment]  # else the name would count as a holder
        stranger = held_beyond(memory, [len(whole) + len({id(n.buf) for n in windows})])[0]
        if not stranger and (not direct if windows else len(direct) == 1) and len(mine) == len(windows):
            continue
        # whoever else lies there stays, with the old nodes
        twins += [(n, twin_of(n, _whole(memory[0]))) for n in direct if at[id(n)] in over]
        if mine:
            base = _whole(memory[0])
            for n in mine:
                assert n.buf is not None
                size = n.inst.out.numel * n.inst.out.dtype.itemsize
                ident = graph.bridge().alias(base.id, n.buf.offset, size)
                twins.append((n, twin_of(n, Buffer(ident, 0, base.device, base, n.buf.offset))))
            twins += [(n, twin_of(n, base)) for n in whole if id(n) not in at]
    return twins
