"""Formulas whose instructions are kept: called again with the same kinds of arguments, one is a lookup and a list of nodes.

What a formula emits depends on nothing but the Metas of its tensors and its other arguments. So the first call works shapes,
types and views out, and what it has emitted is kept: instructions, which of the inputs and earlier nodes each reads, and scalars.
Chains of maps of which nobody reads the middle are one map there, whose values are the same to the last bit.

Whoever wants to see or to change what a formula calls (autocast, modes, `vmap`, forward mode, Symbols) gets the formula itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from tabtorch.autograd.grad_mode import STATE
from tabtorch.core.tensor import Tensor
from tabtorch.engine import queues
from tabtorch.engine.expr import fit
from tabtorch.engine.graph import WATERMARK, WINDOW, Inst, Map, Node, Script, counts, inst, run_script
from tabtorch.engine.symbols import given
from tabtorch.engine.view import contiguous_strides
from tabtorch.ops.machinery.batching import batches
from tabtorch.ops.machinery.dispatch import table
from tabtorch.ops.machinery.registry import exchanged

#: a formula that has been called with so many kinds of arguments forgets them: a program may meet each size once, and each takes
#: some kilobytes
_LIMIT = 512
#: what is no longer than this fits into a window that has room for it, so that it can be kept
_LONGEST = 64


class Recorded:
    """`formula(*tensors, *others)` as a function `(tensors, others)`; it gives a tensor or a tuple of tensors, each of a storage of
    its own, and is not recorded by autograd.

    tensors: Tensor or None, each. others: all else that the formula depends on: hashable, equal only where it does the same.
    """

    __slots__ = ("formula", "kept")

    def __init__(self, formula: Callable[..., Any]) -> None:
        self.formula = formula
        self.kept = table()

    def __call__(self, tensors: tuple[Any, ...], others: tuple[Any, ...] = ()) -> Any:
        if batches[0] or given[0] or exchanged[0] or STATE.duals:
            return self._plain(tensors, others)
        key = (others, *[None if t is None else t._tab_meta for t in tensors])
        kept = self.kept.get(key)
        if kept is None:
            return self._learn(key, tensors, others)
        script, metas = kept
        if script is None:
            return self._plain(tensors, others)
        nodes = run_script(script, [t._tab_storage.node for t in tensors if t is not None])
        wrap = Tensor._wrap
        if type(metas) is not tuple:
            return wrap(nodes[0], metas)
        return tuple(map(wrap, nodes, metas))

    def _plain(self, tensors: tuple[Any, ...], others: tuple[Any, ...]) -> Any:
        before, STATE.grad = STATE.grad, False
        try:
            return self.formula(*tensors, *others)
        finally:
            STATE.grad = before

    def _learn(self, key: Any, tensors: tuple[Any, ...], others: tuple[Any, ...]) -> Any:
        inputs = [t._tab_storage.node for t in tensors if t is not None]
        q = inputs[0].inst.queue
        if (
            type(q.nodes) is not queues.Nodes  # somebody looks on, or nothing waits there
            or len(q.nodes) + _LONGEST >= WINDOW
            or len({id(n) for n in inputs}) < len(inputs)
        ):
            return self._plain(tensors, others)
        begin, sent = len(q.nodes), counts["flushes"]
        result = self._plain(tensors, others)
        if counts["flushes"] != sent or len(q.nodes) < begin:  # a part of it is not there any more
            return result
        if len(self.kept) > _LIMIT:
            self.kept.clear()
        found = result if type(result) is tuple else (result,)
        script = _script(inputs, q.nodes[begin:], found)
        metas = tuple([t._tab_meta for t in found])
        self.kept[key] = script, metas if type(result) is tuple else metas[0]
        return result


#: one node of a formula: instruction, places of what it reads among the inputs and the nodes before it, scalars
Step = tuple[Inst, tuple[int, ...], tuple[Any, ...]]


def _script(inputs: list[Node], emitted: Sequence[Node], results: Sequence[Tensor]) -> Script | None:
    """What has been emitted from `inputs` to `results`; None where that is not all, or cannot be done again."""
    ends = [t._tab_storage.node for t in results]
    if len({id(n) for n in ends}) < len(ends) or len({id(t._tab_storage) for t in results}) < len(ends):
        return None
    wanted = {id(n) for n in ends}
    own = {id(n) for n in emitted}
    if not wanted <= own or any(n.buf is not None or n.inst.queue is not inputs[0].inst.queue for n in emitted):
        return None
    for n in reversed(emitted):  # those of other threads, and what nobody uses, are left out
        if id(n) in wanted:
            wanted.update(map(id, n.srcs))
    place = {id(n): k for k, n in enumerate(inputs)}
    steps: list[Step] = []
    for n in emitted:
        if id(n) not in wanted:
            continue
        if any(id(s) not in place for s in n.srcs):
            return None  # it reads what is neither given nor made here
        if n.inst.out.numel * n.inst.out.dtype.itemsize > WATERMARK:
            return None  # whose size is looked at each time
        place[id(n)] = len(inputs) + len(steps)
        steps.append((n.inst, tuple([place[id(s)] for s in n.srcs]), n.scalars))
    if len(steps) > _LONGEST:
        return None
    return _packed(len(inputs), *joined(len(inputs), steps, [place[id(n)] for n in ends]))


def _packed(inputs: int, steps: list[Step], ends: list[int]) -> Script:
    return Script(
        inputs,
        [(i, _getter(srcs), scalars) for i, srcs, scalars in steps],
        ends,
        [(i, srcs) for i, srcs, _ in steps],
    )


def _getter(srcs: tuple[int, ...]) -> Any:
    """What takes these of a list, as a tuple."""
    if len(srcs) > 1:
        return itemgetter(*srcs)
    return srcs[0] if srcs else None


# ---- maps of maps


def joined(inputs: int, steps: list[Step], ends: list[int]) -> tuple[list[Step], list[int]]:
    """The same with each map that only another map reads, element by element, in that one."""
    readers: dict[int, list[int]] = {}
    for k, (_, srcs, _) in enumerate(steps):
        for s in set(srcs):
            readers.setdefault(s, []).append(k)
    gone: set[int] = set()
    found = list(steps)
    for k, (i, _, _) in enumerate(steps):
        reading = readers.get(inputs + k, [])
        if inputs + k in ends or len(reading) != 1 or not _pointwise(i):
            continue
        into = reading[0]
        one = _one(found[k], found[into], inputs + k)
        if one is not None:
            found[into] = one
            gone.add(k)
    place = {s: s for s in range(inputs)}
    kept: list[Step] = []
    for k, (i, srcs, scalars) in enumerate(found):
        if k not in gone:
            place[inputs + k] = inputs + len(kept)
            kept.append((i, tuple([place[s] for s in srcs]), scalars))
    return kept, [place[e] for e in ends]


def _pointwise(i: Inst) -> bool:
    """Whether it is a map that sees values only, all of the type that it computes in and gives."""
    op = i.op
    return (
        type(op) is Map
        and not op.indexed
        and not op.sized
        and i.static is None
        and i.compute == i.out.dtype.compute
        and all(m.dtype.compute == i.compute for m in i.ins)
    )


def _one(first: Step, then: Step, place: int) -> Step | None:
    """`first` within `then`, which reads it as `place`; None where that is not element by element."""
    i, srcs, scalars = first
    j, others, more = then
    out = i.out
    if not _pointwise(j) or j.compute != i.compute or j.out.numel != out.numel:
        return None
    at = tuple([k for k, s in enumerate(others) if s == place])
    if any(j.ins[k].numel != out.numel or not j.ins[k].whole or j.ins[k].dtype is not out.dtype for k in at):
        return None
    read = i.ins
    if j.out.shape != out.shape:  # the same elements in the same order, in another shape
        if not all(m.whole for m in read):
            return None
        read = tuple([m.view(j.out.shape, contiguous_strides(j.out.shape), 0) for m in read])
    ins, sources = list(j.ins), list(others)
    for k in reversed(at):
        ins[k : k + 1] = read if k == at[0] else ()
        sources[k : k + 1] = srcs if k == at[0] else ()
    op = _map_of(i.op, len(srcs), j.op, len(others), len(more), at, out.dtype.name)
    return (
        inst(op, tuple(ins), j.out, (*j.scalars, *i.scalars), None, j.compute),
        tuple(sources),
        (*more, *scalars),
    )


_maps: dict[tuple[Any, ...], Map] = {}


def _map_of(first: Any, own: int, then: Any, operands: int, numbers: int, at: tuple[int, ...], dtype: str) -> Map:
    """The map `then` of so many operands and numbers, the values of `first` at its operands `at`. One for all that are alike."""
    key = (first, own, then, operands, numbers, at, dtype)
    op = _maps.get(key)
    if op is None:
        begin = at[0]
        tensors = operands - len(at) + own

        def expr(*values: Any) -> Any:
            scalars = values[tensors:]
            inner = fit(first.expr(*values[begin : begin + own], *scalars[numbers:]), dtype)
            rest = iter((*values[:begin], *values[begin + own : tensors]))
            return then.expr(*[inner if k in at else next(rest) for k in range(operands)], *scalars[:numbers])

        joined = first.joined + then.joined
        op = _maps[key] = Map(f"{first.name}+{then.name}", expr, cost=first.cost + then.cost, joined=joined)
    return op
