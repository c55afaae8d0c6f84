"""Batches, below operations: while `vmap` runs a function, a node of one example's shape stands for those of all examples.

Such a node has a `Batch` where others have a buffer: the level that it belongs to, and the node with the values of all, whose
first dimension is the batch. Whatever is emitted over one is emitted again over all of them, by a rule for each kind of node:
so every operation, its checks, its views, its gradient and its writes know nothing of batches. While
there are batched values, the lists of queues are `Watched`, and `append` sees what is emitted; nothing else pays for this.

Of several levels the innermost (highest) is always the outermost Batch: `wrap` and `unwrap` keep it so.
"""

from __future__ import annotations

import sys
from functools import cache, lru_cache
from math import prod
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd import engine as backward
from tabtorch.autograd.grad_mode import STATE
from tabtorch.autograd.tape import LEAF, next_seq, record
from tabtorch.core.tensor import Tensor
from tabtorch.engine import graph, philox, queues
from tabtorch.engine.graph import Contract, Custom, Inst, Map, Node, Nodes, Op, emit, inst
from tabtorch.engine.view import Meta, contiguous_meta, contiguous_strides, meta
from tabtorch.ops.machinery.batching import batches

_EXAMPLE = Op("example")
_COPY = Map("batch", lambda x: x)
_DRAWS = frozenset(v for v in vars(philox).values() if isinstance(v, Map))

#: a draw on the device that differs between examples -> its levels, innermost first: its gradient draws it again
_differs: dict[Any, list[Level]] = {}


class Level:
    """One call of `vmap`. `active` while its function runs; the tape can lead back into it later."""

    def __init__(self, size: int, randomness: str) -> None:
        self.size = size
        self.randomness = randomness
        self.start = next_seq()  # what was recorded before is outside
        self.active = False
        self.depth = 0  # among all transforms, as it is shown
        self.made: set[int] = set()  # ids of the nodes that were made inside

    def __enter__(self) -> Level:
        self.active = True
        STATE.levels = (*STATE.levels, self)
        STATE.nesting += 1
        self.depth = STATE.nesting
        return self

    def __exit__(self, *exc: Any) -> None:
        STATE.levels = tuple([x for x in STATE.levels if x is not self])
        STATE.nesting -= 1
        self.active = False
        self.made = set()


class Batch:
    """In place of a node's buffer: its values for all examples of a level."""

    __slots__ = ("level", "node")
    base = None
    offset = 0

    def __init__(self, level: Level, node: Node) -> None:
        self.level = level
        self.node = node
        batches[0] += 1
        if backward.leaving is None:
            _watch()

    def __del__(self) -> None:
        batches[0] -= 1
        if not batches[0]:
            _watch()

    @property
    def id(self) -> int:
        """RuntimeError: one example's value has no memory of its own."""
        raise unreadable()

    device = nbytes = id


def unreadable() -> RuntimeError:
    """The error for a read of a batched value, in PyTorch's words for what wants to read it."""
    frame: Any = sys._getframe(1)
    reader = "item"
    while frame is not None and str(frame.f_globals.get("__name__", "tabtorch.")).startswith("tabtorch."):
        name = frame.f_code.co_name
        reader = name if name in _READERS else reader
        frame = frame.f_back
    return RuntimeError(_READERS[reader])


_DYNAMIC = (
    "vmap: We do not support batching operators that can output dynamic shape. Attempted to vmap over aten::{}. Please file an "
    "issue at https://github.com/pytorch/pytorch/issues if you need this feature."
)
_NO_STORAGE = "Cannot access data pointer of Tensor that doesn't have storage"
_MASKED = (
    "vmap: We do not support batching operators that can support dynamic shape. Attempting to batch over indexing with a "
    "boolean mask."
)

#: name of a Python function -> what PyTorch says of it under vmap
_READERS = {
    "item": "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over calling .item() on a Tensor, "
    "please try to rewrite what you're doing with other operations. If error is occurring somewhere inside PyTorch internals, "
    "please file a bug report.",
    "__bool__": "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. We don't support "
    "that yet, please file an issue at https://github.com/pytorch/pytorch/issues .",
    "tolist": _NO_STORAGE,
    "numpy": _NO_STORAGE,
    "masked_select": "vmap: Attempted to vmap over `mask` in torch.masked_select(self, mask) We cannot support this because for "
    "each batch this would return a differently shaped Tensor. Please file an issue at "
    "https://github.com/pytorch/pytorch/issues if you need this feature.",
    "getitem": _MASKED,
    "prepared": _MASKED,
    "nonzero": _DYNAMIC.format("nonzero"),
    "equal": "Batching rule not implemented for aten::equal. We could not generate a fallback.",
    "allclose": "vmap over torch.allclose isn't supported yet. Please file an issue at "
    "https://github.com/pytorch/pytorch/issues if you need this feature.",
    "unique": _DYNAMIC.format("_unique2"),
    "unique_consecutive": _DYNAMIC.format("unique_consecutive"),
}


def append(nodes: Nodes, n: Node) -> None:
    """A node is emitted while there are batched values."""
    for level in STATE.levels:
        level.made.add(id(n))
    for s in n.srcs:
        if type(s.buf) is Batch:  # type: ignore[comparison-overlap]
            _for_all(n)  # type: ignore[unreachable]
            return
    if n.inst.op in _DRAWS:
        levels = _draw_levels(n.scalars)
        if levels:
            _differing(nodes, n, levels)
            return
    list.append(nodes, n)


def _watch() -> None:
    """The first batched value has come, or the last one has gone, which may be that of another thread: so it looks again.

    Who makes a batched value counts it, and then asks whether `leaving` is set: then all else is. Between the look at the count
    and `leaving = None` no function is called, so nobody counts.
    """
    with graph.LOCK:
        if batches[0]:
            queues.set_spread(append)
            backward.leaving = leaving
        else:
            backward.leaving = None
            queues.set_spread(None)


# ---- one node for all examples


def example_of(level: Level, values: Node, out: Meta) -> Node:
    """The node of one example, given the values of all."""
    n = Node(inst(_EXAMPLE, (), out), (), ())
    n.buf = Batch(level, values)  # type: ignore[assignment]
    return n


def level_of(n: Node) -> Level | None:
    b: Any = n.buf
    return b.level if type(b) is Batch else None


def is_batched(t: Tensor) -> bool:
    return level_of(t._tab_storage.node) is not None


def _above(a: Level, b: Level) -> bool:
    return a.start > b.start


def wrap(values: Node, level: Level, out: Meta) -> Node:
    """The example of `values`, whose first dimension is the batch of `level`. `out`: the contiguous Meta of one example."""
    outer = level_of(values)
    if outer is None or not _above(outer, level):
        return example_of(level, values, out)
    rest = _swapped(values.buf.node, outer.size, level.size, out)  # type: ignore[union-attr]
    return example_of(outer, wrap(rest, level, _flat(outer.size * out.numel, out)), out)


def unwrap(n: Node, level: Level) -> Node | None:
    """The values of all examples of `level`, or None where the node is the same for all of them."""
    b: Any = n.buf
    if type(b) is not Batch:
        return None
    if b.level is level:
        return b.node
    if not _above(b.level, level):
        return None
    inner = unwrap(b.node, level)
    if inner is None:
        return None
    out = n.inst.out
    return example_of(b.level, _swapped(inner, level.size, b.level.size, out), _flat(level.size * out.numel, out))


def _flat(n: int, like: Meta) -> Meta:
    return contiguous_meta((n,), like.dtype, like.device)


def _swapped(values: Node, a: int, b: int, out: Meta) -> Node:
    """(a, b, example) as (b, a, example)."""
    n = out.numel
    m = meta((b, a, n), (n, b * n, 1), 0, out.dtype, out.device)
    return emit(inst(_COPY, (m,), contiguous_meta(m.shape, m.dtype, m.device)), (values,))


def spread(n: Node, size: int) -> Node:
    """The same value for every example of a batch."""
    out = n.inst.out
    m = meta((size, out.numel), (0, 1), 0, out.dtype, out.device)
    return emit(inst(_COPY, (m,), contiguous_meta(m.shape, m.dtype, m.device)), (n,))


def shifted(m: Meta, size: int, source: Node | None) -> Meta:
    """The view `m` of an example as a view of all of them; `source`: the example's node, None: it is the same for all."""
    step = 0 if source is None else _step(source, m)
    return m.view((size, *m.shape), (step, *m.strides), m.offset)


def _step(source: Node, m: Meta) -> int:
    """From an example to the next, in elements of a view, which may show another dtype than the value has."""
    have = source.inst.out
    return have.numel * have.dtype.itemsize // m.dtype.itemsize


def in_front(m: Meta, size: int) -> Meta:
    """A contiguous Meta with the batch before its dimensions."""
    return contiguous_meta((size, *m.shape), m.dtype, m.device)


def _for_all(n: Node) -> None:
    """Emits the node's operation over all examples, and makes `n` an example of the result."""
    level: Any = None
    for s in n.srcs:
        own = level_of(s)
        if own is not None and (level is None or _above(own, level)):
            level = own
    i = n.inst
    srcs = [s.buf.node if level_of(s) is level else s for s in n.srcs]  # type: ignore[union-attr]
    views = tuple([_step(s, m) if level_of(s) is level else None for s, m in zip(n.srcs, i.ins)])
    if isinstance(i.op, Custom):
        values = _lazy.batch_kernels.custom(n, level, srcs)
    else:
        if i.op.in_place and views[0] is None:  # there is a base for each example, to be written to
            srcs[0] = spread(srcs[0], level.size)
            views = (i.ins[0].numel, *views[1:])
        as_drawn = i.op in _DRAWS and level in _draw_levels(n.scalars)
        rule, turned = _rule(i, level.size, views, as_drawn)
        values = emit(rule, tuple(srcs[::-1] if turned else srcs), n.scalars)
    n.srcs = ()
    n.buf = Batch(level, values)  # type: ignore[assignment]


@lru_cache(20_000)
def _rule(i: Inst, size: int, views: tuple[int | None, ...], whole: bool) -> tuple[Inst, bool]:
    """The instruction over all examples, and whether its operands are in the other order. `views`: elements of each input's
    example, None where it is the same for all."""
    ins = tuple([
        m.view((size, *m.shape), (0 if n is None else n, *m.strides), m.offset)
        for m, n in zip(i.ins, views)
    ])  # fmt: skip
    over = i.op.over_examples(i, size, ins, views)
    op = over.op
    if op.indexed and not whole:
        op = _indexed(op)
    out = in_front(i.out, size) if over.out is None else over.out
    return inst(op, over.ins, out, i.scalars, over.static, i.compute), over.turned


@cache
def _indexed(op: Map) -> Map:
    """The map of `op` over all examples: its expression sees one of them."""
    return Map(op.name, lambda p: op.expr(_Example(p)), indexed=True, cost=op.cost + 1, sized=op.sized)


class _ExampleInst:
    """An instruction over all examples as one over one of them."""

    def __init__(self, i: Any) -> None:
        self.static, self.scalars, self.compute = i.static, i.scalars, i.compute
        self.ins = tuple([m.view(m.shape[1:], m.strides[1:], m.offset) for m in i.ins])
        self.out = i.out.view(i.out.shape[1:], i.out.strides[1:], i.out.offset)


class _Example:
    """What an indexed map's expression sees of one example: `engine.lower.Point` without its first coordinate."""

    def __init__(self, p: Any) -> None:
        self.p = p
        self.k = p.k
        self.inst = _ExampleInst(p.inst)
        self.static = p.inst.static
        self.value, self.dim, self.scalar = p.value, p.dim, p.scalar

    @property
    def coords(self) -> list[Any]:
        return self.p.coords[1:]

    @property
    def index(self) -> Any:
        p = self.p
        return p.index - p.coords[0] * p.dim(self.inst.out.numel, "example")

    def at(self, i: int, coords: list[Any]) -> Any:
        return self.p.at(i, [self.p.coords[0], *coords])


# ---- random numbers


def _draw_levels(numbers: Any) -> list[Level]:
    """The levels for whose examples a draw differs, innermost first. RuntimeError where it may not be made."""
    known = _differs.get(numbers)
    if known is not None or not STATE.levels:
        return known or []
    levels = differing_levels()
    if levels:
        if len(_differs) > 10_000:
            _differs.clear()
        _differs[numbers] = levels
    return levels


def differing_levels() -> list[Level]:
    for level in reversed(STATE.levels):
        if level.randomness == "error":
            raise RuntimeError(
                "vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' "
                "randomness flags on vmap or perform the randomness operation out of vmap"
            )
    return [level for level in reversed(STATE.levels) if level.randomness == "different"]


def _nested(n: Node, values: Node, levels: list[Level]) -> None:
    """Makes `n` an example of values whose first dimensions are those of `levels`, the outermost first."""
    out = n.inst.out
    for k in range(len(levels) - 1, 0, -1):
        size = prod(level.size for level in levels[:k])
        values = example_of(levels[k], values, _flat(size * out.numel, out))
    n.buf = Batch(levels[0], values)  # type: ignore[assignment]


def _differing(nodes: Nodes, n: Node, levels: list[Level]) -> None:
    i = n.inst
    sizes = [level.size for level in reversed(levels)]
    out = contiguous_meta((*sizes, *i.out.shape), i.out.dtype, i.out.device)
    whole = Node(inst(i.op, (), out, i.scalars, i.static, i.compute), (), n.scalars)
    list.append(nodes, whole)
    _nested(n, whole, levels)


def drawn(m: Meta, draw: Any) -> Node:
    """A draw from a generator of the host: `draw(m)`, for all examples at once where they differ."""
    levels = differing_levels()
    before, STATE.levels = STATE.levels, ()
    try:
        values = draw(contiguous_meta((*[level.size for level in reversed(levels)], *m.shape), m.dtype, m.device))
    finally:
        STATE.levels = before
    if not levels:
        return values
    n = Node(inst(_EXAMPLE, (), m), (), ())
    _nested(n, values, levels)
    return n


def drawn_one_by_one(draw: Any, out: Meta, inputs: tuple[Node, ...]) -> Node:
    """A draw that depends on values, or has no form for many: example by example, in their order."""
    levels = differing_levels()
    own = [level_of(s) for s in inputs if level_of(s) is not None]
    if own and not levels:
        raise RuntimeError(
            "Vmap does not currently support same randomness with a batched tensor input. "
            "Please file an issue with functorch"
        )
    if not levels:
        return draw(inputs)
    level = levels[0]
    at = STATE.levels.index(level)
    before, STATE.levels = STATE.levels, STATE.levels[:at]
    try:
        parts = []
        for b in range(level.size):
            parts.append(
                drawn_one_by_one(draw, out, tuple([slice_of(s, level, b) for s in inputs]))
                if STATE.levels
                else draw(tuple([slice_of(s, level, b) for s in inputs]))
            )
    finally:
        STATE.levels = before
    return example_of(level, stacked(parts, out), out)


# ---- example by example


def slice_of(n: Node, level: Level, b: int) -> Node:
    """The value of one example, as a node of its own."""
    values = unwrap(n, level)
    if values is None:
        return n
    out = n.inst.out
    m = meta(out.shape, contiguous_strides(out.shape), b * out.numel, out.dtype, out.device)
    return emit(inst(_COPY, (m,), contiguous_meta(out.shape, out.dtype, out.device)), (values,))


_JOIN = graph.Write("write")


def stacked(parts: list[Node], out: Meta) -> Node:
    """The values of the examples, one after the other."""
    n = out.numel
    flat = _flat(n * len(parts), out)
    values = spread(parts[0], len(parts))
    piece = _flat(n, out)
    for b, p in enumerate(parts[1:], 1):
        region = meta((n,), (1,), b * n, out.dtype, out.device)
        values = emit(inst(_JOIN, (flat, piece), flat, (), region), (values, p))
    return values


def check_write(storage: Any, node: Node, arithmetic: bool) -> None:
    """RuntimeError for a write of batched values to a tensor from outside, which has room for one example."""
    level = level_of(node)
    if level is None or not level.active or unwrap_level(storage.node, level) or id(storage.node) in level.made:
        return
    if arithmetic:
        shape = list(node.inst.out.shape)
        raise RuntimeError(f"output with shape {shape} doesn't match the broadcast shape {[level.size, *shape]}")
    raise RuntimeError(
        "vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a Tensor `other` in extra_args that "
        "has more elements than `self`. This happened due to `other` being vmapped over but `self` not being vmapped over in "
        "a vmap. Please try to use out-of-place operators instead of inplace arithmetic. If said operator is being called "
        "inside the PyTorch framework, please file a bug report instead."
    )


def unwrap_level(n: Node, level: Level) -> bool:
    """Whether the node's examples of `level` differ."""
    b: Any = n.buf
    while type(b) is Batch:
        if b.level is level:
            return True
        b = b.node.buf
    return False


# ---- tensors in and out


def shown(t: Tensor) -> str:
    """A batched tensor as PyTorch prints it."""
    level: Any = level_of(t._tab_storage.node)
    inside = repr(leave(t.detach(), level)).replace("\n", "\n    ")
    return f"BatchedTensor(lvl={level.depth}, bdim=0, value=\n    {inside}\n)"


def enter(x: Tensor, level: Level, dim: int = 0) -> Tensor:
    """One example of `x` along `dim`. Its gradient is `leave`."""
    moved = x.detach() if dim == 0 else x.detach().movedim(dim, 0)
    if not _lazy.inplace.whole_storage(moved):
        moved = _lazy.convert.converted(moved, moved._tab_meta.shape, moved._tab_meta.dtype)
    m = moved._tab_meta
    one = contiguous_meta(m.shape[1:], m.dtype, m.device)
    t = Tensor._wrap(wrap(moved._tab_storage.node, level, one), one)
    if x._tab_requires_grad:
        record("BatchBackward0", (x,), t, lambda g: leave(g, level, dim))
    return t


def leave(t: Tensor, level: Level, dim: int = 0) -> Tensor:
    """All examples of `t`, along a new dimension `dim`. Its gradient is `enter`."""
    node = t._tab_storage.node
    values = unwrap(node, level)
    if values is None:
        values = spread(node, level.size)
        if t._tab_requires_grad:  # gradients that come back are those of examples, until they leave the level
            t = record_same(t, example_of(level, values, node.inst.out))
    all_ = Tensor._wrap(values, shifted(t._tab_meta, level.size, node))
    r = all_
    if t._tab_requires_grad:
        record("UnbatchBackward0", (t,), r, lambda g: enter(g, level))
    return r.movedim(0, dim) if dim else r


def record_same(t: Tensor, node: Node) -> Tensor:
    r = Tensor._wrap(node, t._tab_meta)
    record("ExpandBackward0", (t,), r, lambda g: g)
    return r


def leaving(fn: Any, results: Any) -> Any:
    """Gradients of a step of backward: where one goes from a level that has ended to what was made outside of it, its examples
    are summed."""
    out = None
    for k, (e, g) in enumerate(zip(fn.edges, results)):
        if e is None or not isinstance(g, Tensor):
            continue
        b: Any = g._tab_storage.node.buf
        if type(b) is not Batch:
            continue
        seq = -1 if e.edge_kind == LEAF else e.fn.seq
        for level in _levels_in(b):
            if not level.active and seq < level.start:
                whole = _summed_product(g, level)
                g = leave(g, level).sum(0) if whole is None else whole
                out = list(results) if out is None else out
                out[k] = g
    return results if out is None else out


def _summed_product(g: Tensor, level: Level) -> Tensor | None:
    """The sum over the examples of a product that has not run yet: the batch becomes one of the dimensions that it sums over."""
    b: Any = g._tab_storage.node.buf
    n = b.node
    if (
        b.level is not level
        or n.buf is not None
        or not isinstance(n.inst.op, Contract)
        or (STATE.grad and g._tab_requires_grad)
    ):
        return None
    return Tensor._wrap(emit(_summed(n.inst), (*n.srcs,)), g._tab_meta)


@lru_cache(5_000)
def _summed(i: Inst) -> Inst:
    batch, left, right, summed = i.static
    at = batch + left + right - 1  # where the batch goes: before what is summed

    def moved(m: Meta) -> Meta:
        order = (*range(1, at + 1), 0, *range(at + 1, m.ndim))
        return m.view(tuple([m.shape[d] for d in order]), tuple([m.strides[d] for d in order]), m.offset)

    out = contiguous_meta(i.out.shape[1:], i.out.dtype, i.out.device)
    static = (batch - 1, left, right, summed + 1) if batch else (0, left - 1, right, summed + 1)
    return inst(i.op, tuple([moved(m) for m in i.ins]), out, (), static, i.compute)


def _levels_in(b: Any) -> list[Level]:
    out = []
    while type(b) is Batch:
        out.append(b.level)
        b = b.node.buf
    return out


__all__ = ["Batch", "Level", "enter", "is_batched", "leave", "wrap"]
