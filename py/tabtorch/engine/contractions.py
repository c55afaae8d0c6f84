"""What the writers of a contraction's kernels share: its sizes, how its operands lie, and where its results go."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

from tabtorch.base.dtypes import int64

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


def quads(view: Meta, start: int, end: int) -> bool:
    """Whether every four neighbours, from a multiple of four on, of the dimensions `start` to `end` lie together in memory, at a
    multiple of four."""
    if view.offset or view.mark:
        return False
    last = next((d for d in range(end - 1, start - 1, -1) if view.shape[d] != 1), None)
    if last is None or view.strides[last] != 1:
        return False
    first, run = last, view.shape[last]  # dimensions without a gap between them are as one
    while first > start and (view.shape[first - 1] == 1 or view.strides[first - 1] == run):
        first -= 1
        run = run * view.shape[first]
    if run % 4:
        return False
    return all(first <= d <= last or n == 1 or s % 4 == 0 for d, (n, s) in enumerate(zip(view.shape, view.strides)))


def shared(view: Meta, nb: int) -> bool:
    """Whether all of a batch, the first `nb` dimensions, read the same."""
    return all(s == 0 or n == 1 for n, s in zip(view.shape[:nb], view.strides[:nb]))


#: the dtypes of which `four_at` loads four
FOURS = ("float32", "float16", "bfloat16", "int8", "uint8")


def four_at(k: Kernel, ref: Ref, at: Expr) -> str | None:
    """Four neighbours of a buffer, from place `at`, a multiple of four; None for types that have no such load."""
    r = k.r
    if ref.dtype.name == "float32":
        return f"{k.bind_vector(ref)}[{r.text(at >> 2)}]"
    if ref.dtype.name in ("float16", "bfloat16"):  # two words, as those of int64 are read
        r.line(f"let words = {k.bind(Ref(ref.key, int64))}[{r.text(at >> 2)}];")
        halves = [f"(words.{c} {op})" for c in "xy" for op in ("& 0xffffu", ">> 16u")]
        if ref.dtype.name == "float16":
            return f"vec4<f32>({', '.join(f'tt_h2f({h})' for h in halves)})"
        return f"vec4<f32>({', '.join(f'bitcast<f32>({h} << 16u)' for h in halves)})"
    if ref.dtype.name in ("int8", "uint8"):
        r.line(f"let word = {k.bind(ref)}[{r.text(at >> 2)}];")
        if ref.dtype.name == "uint8":
            return "vec4<f32>((vec4(word) >> vec4(0u, 8u, 16u, 24u)) & vec4(255u))"
        return "vec4<f32>(bitcast<vec4<i32>>(vec4(word) << vec4(24u, 16u, 8u, 0u)) >> vec4(24u))"
    return None


def finish(b: Builder, g: Group, v: Values, acc: Expr, point: list[Factor], put: Callable[[Ref, Any], None]) -> None:
    """The statements from a contraction's result `acc` at a point to what its group stores there, by `put`."""
    k = v.k
    p0 = contraction(b, g)
    out = b.nodes[p0].inst.out.dtype
    v.point, v.inside = point, {}
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
