"""`nonzero` and what is made of it. The number of results depends on the data, so it is read from the device, once.

The elements are dealt to about sqrt(n) threads, a run of neighbours each: they count, then each adds up the counts of the
runs before its own, then they write. No barriers and no atomics, so the same kernels serve every device, and the order is
that of the elements.
"""

from __future__ import annotations

from math import isqrt
from typing import Any

from tabtorch import _lazy
from tabtorch.base import dtypes
from tabtorch.core.tensor import Tensor
from tabtorch.engine.expr import Complex, Expr, cast, const, minimum
from tabtorch.engine.graph import Custom, Inst, emit, inst, read
from tabtorch.engine.lower import Kernel, coordinates
from tabtorch.engine.view import Meta, contiguous_meta, meta
from tabtorch.ops.indexing.index_maps import host_values
from tabtorch.ops.machinery.batching import dynamic
from tabtorch.ops.machinery.out_types import Rule, same
from tabtorch.ops.machinery.registry import register


def runs(n: int) -> tuple[int, int]:
    """(threads, elements of each)."""
    size = max(16, isqrt(n))
    return -(-n // size), size


def _is_set(k: Kernel, low: Any, m: Meta, j: Expr) -> Expr:
    v = k.load(low.input(0), low.index(k, m, j, "x"))
    if isinstance(v, Complex):
        return (v.re != 0) | (v.im != 0)
    return v if v.type == "bool" else v != 0


def _count(i: Inst, low: Any) -> None:
    m = i.ins[0]
    threads, size = i.static
    counts = low.temp(4 * threads, dtypes.int32)

    def count(k: Kernel, t: Expr) -> None:
        n = k.dim(m.numel, "n")
        start = k.let(t * k.dim(size, "size"), "start")
        end = k.let(minimum(start + k.dim(size, "size"), n), "end")
        total = k.var(const(0, "i32"))
        with k.loop(end, start) as j:
            k.assign(total, total + cast(_is_set(k, low, m, j), "i32"))
        k.store(counts, t, total)

    def add_up(k: Kernel, t: Expr) -> None:
        total = k.var(const(0, "i32"))
        with k.loop(t) as j:
            k.assign(total, total + k.load(counts, j))
        k.store(low.output, t, total)

    low.launch("nonzero count", threads, count)
    low.launch("nonzero offsets", threads + 1, add_up)


def _write(i: Inst, low: Any) -> None:
    m = i.ins[0]
    threads, size = i.static
    total = i.out.shape[-1]
    offsets = low.input(1)

    def write(k: Kernel, t: Expr) -> None:
        n = k.dim(m.numel, "n")
        start = k.let(t * k.dim(size, "size"), "start")
        end = k.let(minimum(start + k.dim(size, "size"), n), "end")
        at = k.var(cast(k.load(offsets, t), "u32"))
        with k.loop(end, start) as j:
            with k.when(_is_set(k, low, m, j)):
                for d, c in enumerate(coordinates(k, m.shape, [(j, m.numel, "x")], "c")):
                    place = at if d == 0 else at + k.dim(d * total, ("row", d))
                    k.store(low.output, place, cast(c, "i64"))
                k.assign(at, at + 1)

    low.launch("nonzero", threads, write)


_COUNT = Custom("nonzero count", _count, sized=True, batched=dynamic)
_WRITE = Custom("nonzero", _write, sized=True, batched=dynamic)


def _rows(t: Tensor) -> Tensor:
    """(ndim, n): the coordinates of the elements that are not zero, one row for each dimension."""
    m = t._tab_meta
    device = m.device
    known = host_values(t)
    if known is not None or m.numel == 0:
        places = [i for i, v in enumerate(known or ()) if v]
        rows = []
        inner = m.numel
        for n in m.shape:
            outer, inner = inner, inner // n if n else 0
            rows.append([p % outer // inner if outer else 0 for p in places])
        return _lazy.creation.tensor(rows, dtype=dtypes.int64, device=device).view(m.ndim, len(places))
    static = runs(m.numel)
    node = t._tab_storage.node
    out = contiguous_meta((static[0] + 1,), dtypes.int32, device)
    offsets = emit(inst(_COUNT, (m,), out, (), static), (node,))
    total = int.from_bytes(read(offsets, 4 * static[0], 4), "little")
    result = contiguous_meta((m.ndim, total), dtypes.int64, device)
    if result.numel == 0:
        return _lazy.creation.zeros((m.ndim, total), dtype=dtypes.int64, device=device)
    return Tensor._wrap(emit(inst(_WRITE, (m, out), result, (), static), (node, offsets)), result)


def places_out(name: str) -> Rule:
    return same(name + ": Expected out tensor to have scalar type {Want} but got scalar type{Have}")


@register("nonzero", method=True)
def nonzero(input: Tensor, *, as_tuple: bool = False, out: Tensor | None = None) -> Any:
    """The coordinates of the elements that are not zero: (n, ndim), or with `as_tuple` one vector for each dimension.

    Waits for the device: it has to know n.
    """
    if as_tuple:
        return nonzero_tuple(input)
    if input._tab_meta.ndim == 0:
        n = _rows(input.reshape(1))._tab_meta.shape[1]
        r = _lazy.creation.zeros((n, 0), dtype=dtypes.int64, device=input.device)
    else:
        rows = _rows(input)
        m = rows._tab_meta
        r = Tensor._view_of(rows, meta((m.shape[1], m.shape[0]), (1, m.shape[1]), 0, m.dtype, m.device))
    if out is not None:
        return _lazy.operation.into(out, r, rule=places_out("nonzero"))
    return r


def nonzero_tuple(t: Tensor) -> tuple[Tensor, ...]:
    """`nonzero(as_tuple=True)`."""
    rows = _rows(t if t._tab_meta.ndim else t.reshape(1))
    n = rows._tab_meta.shape[1]
    m = rows._tab_meta
    return tuple(
        Tensor._view_of(rows, meta((n,), (1,), d * n, m.dtype, m.device)) for d in range(max(t._tab_meta.ndim, 1))
    )


@register("argwhere", method=True)
def argwhere(input: Tensor) -> Tensor:
    """The coordinates of the elements that are not zero, (n, ndim)."""
    return nonzero(input)
