"""What the writers of a contraction's kernels share: its sizes, how its operands lie, and where its results go."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

from .expr import Expr, cast, const, fit
from .kernel import Kernel, Ref
from .view import Meta

if TYPE_CHECKING:
    from .fuse import Group
    from .lower import Factor, Values
    from .plan import Builder


def sizes(inst: Any) -> tuple[int, int, int, int]:
    """(batch, M, N, K) of a contraction."""
    shape = inst.ins[0].shape
    nb, nm, nn, _ = inst.static
    a, b, c = nb, nb + nm, nb + nm + nn
    return prod(shape[:a]), prod(shape[a:b]), prod(shape[b:c]), prod(shape[c:])


def contraction(b: Builder, g: Group) -> int:
    """Position of the contraction in its group."""
    return next(p for p in g.nodes if b.nodes[p].inst.op.rereads)


def rows_first(view: Meta, start: int, end: int) -> int:
    """Whether what lies together in memory is what differs in the dimensions from `start` to `end`, rather than along k."""
    step = [abs(s) for s, n in zip(view.strides, view.shape) if s and n > 1]
    own = [abs(s) for s, n in zip(view.strides[start:end], view.shape[start:end]) if s and n > 1]
    return int(bool(own) and min(own) == min(step))


def finish(b: Builder, g: Group, v: Values, acc: Expr, point: list[Factor], put: Callable[[Ref, Any], None]) -> None:
    """The statements from a contraction's result `acc` at a point to what its group stores there, by `put`."""
    k = v.k
    p0 = contraction(b, g)
    out = b.nodes[p0].inst.out.dtype
    v.point = point
    v.inside[p0] = k.let(fit(cast(acc, out.compute), out.name), "x")
    for p in sorted(g.nodes):
        if p != p0:
            v.inside[p] = k.let(v.compute(p, point), "x")
        if p in b.stored:
            put(b.ref_of(b.nodes[p]), v.inside[p])


def joined(k: Kernel, partial: Ref, cut: int, total: int, i: Expr) -> Expr:
    """Result `i` of a contraction that was cut into parts."""
    acc = k.var(const(0, "f32"))
    with k.loop(k.dim(cut, "parts")) as part:
        k.assign(acc, acc + k.load(partial, part * k.dim(total, "total") + i))
    return acc
