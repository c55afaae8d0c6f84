"""Sorting along a dimension: always stable, NaN last (first where descending).

What is sorted is a permutation, of which the first places alone may be wanted. On GPUs workgroups sort and merge rows of more
than a few elements, see sort_kernel.py. Else blocks of 32 are ranked by counting; then runs are merged pairwise, where each
element finds its rank in the other run by binary search: log2(n / 32) launches, every element a thread, any dtype.
"""

from __future__ import annotations

import math
from typing import Any

from tabtorch.autograd.tape import own, record
from tabtorch.base import dtypes
from tabtorch.core.layout import contiguous_format
from tabtorch.core.shapes import dense_strides, integer, remembered, wrap_dim
from tabtorch.core.tensor import Tensor
from tabtorch.engine.expr import Expr, cast, const, idiv, minimum, where
from tabtorch.engine.graph import Custom, Inst, inst
from tabtorch.engine.lower import Kernel, Ref
from tabtorch.engine.plan import Lowering
from tabtorch.engine.view import Meta, contiguous_meta, contiguous_strides, meta
from tabtorch.ops.machinery.batching import Call, Examples
from tabtorch.ops.machinery.inplace import check_overlap
from tabtorch.ops.machinery.operation import into, into_two, named, operation, run
from tabtorch.ops.machinery.out_types import EXACT, same
from tabtorch.ops.machinery.promotion import REAL_NUMBERS, check_kernel
from tabtorch.ops.reductions.reduce import greater, less, quiet
from tabtorch.ops.reductions.sort_kernel import SortKernel

_BLOCK = 32


def _ascending(a: Expr, b: Expr) -> Expr:
    return greater(b, a)


def _descending(a: Expr, b: Expr) -> Expr:
    return greater(a, b)


class _Keys:
    """How a sort reads and compares. A key is one element, or (with `width`) a row of elements compared in order."""

    def __init__(self, i: Inst, low: Lowering) -> None:
        self.dim, self.descending, self.width, first = i.static
        self.m: Meta = i.ins[0]
        self.low = low
        self.compute = "i32" if i.compute == "bool" else i.compute
        shape = self.m.shape
        self.n = shape[self.dim]
        self.first = first or self.n  # how many places of the permutation are wanted
        self.inner = math.prod(shape[self.dim + 1 :]) if not self.width else 1
        self.rows = self.m.numel // max(self.n, 1) if not self.width else 1
        self.before = _descending if self.descending else _ascending

    def place(self, k: Kernel, t: Expr) -> tuple[Expr, Expr, Expr]:
        """(row, position in the row, flat index of the row's first element) of thread `t`."""
        n, inner = k.dim(self.n, "n"), k.dim(self.inner, "inner")
        r = k.let(idiv(t, n), "r")
        o = k.let(idiv(r, inner), "o")
        return r, k.let(t - r * n, "p"), k.let(o * (n * inner) + (r - o * inner), "base")

    def key(self, k: Kernel, base: Expr, j: Expr) -> Expr:
        if self.width:
            return j
        at = k.let(base + j * k.dim(self.inner, "inner"), "at")
        return k.let(cast(k.load(self.low.input(0), self.low.index(k, self.m, at, 0)), self.compute), "key")

    def compare(self, k: Kernel, a: Expr, b: Expr) -> tuple[Expr, Expr]:
        """(a comes before b, b comes before a)."""
        if not self.width:
            return self.before(a, b), self.before(b, a)
        width = k.dim(self.width, "width")
        order = k.var(const(0, "u32"), "order")
        with k.loop(width) as c:
            x, y = (
                k.let(
                    cast(
                        k.load(self.low.input(0), self.low.index(k, self.m, k.let(row * width + c, "at"), 0)),
                        self.compute,
                    ),
                    "x",
                )
                for row in (a, b)
            )
            k.r.line(f"if ({k.r.text(self.before(x, y))}) {{ {order.value} = {k.r.uint(1)}; break; }}")
            k.r.line(f"if ({k.r.text(self.before(y, x))}) {{ {order.value} = {k.r.uint(2)}; break; }}")
        return order == 1, order == 2


def _lower(i: Inst, low: Lowering) -> None:
    keys = _Keys(i, low)
    n = keys.n
    total = n * keys.rows
    if total == 0:
        return
    tuned = SortKernel(keys, low)
    if tuned.serves():
        tuned.lower()
        return
    widths = []
    w = _BLOCK
    while w < n:
        widths.append(w)
        w *= 2
    perms = [low.temp(total * 4, dtypes.int32) for _ in range(min(len(widths), 2))]

    def target(step: int) -> Ref | None:
        return perms[step % 2] if step < len(widths) else None

    low.launch("sort blocks", total, lambda k, t: _rank_in_block(k, t, keys, target(0)))
    for s, w in enumerate(widths):
        low.launch("merge", total, lambda k, t, s=s, w=w: _merge(k, t, keys, w, perms[s % 2], target(s + 1)))


def _put(k: Kernel, keys: _Keys, to: Ref | None, r: Expr, base: Expr, rank: Expr, value: Expr) -> None:
    """Writes one place of the permutation: to the next step, or (None) as the result."""
    if to is None:
        inner, first = k.dim(keys.inner, "inner"), k.dim(keys.first, "first")
        if keys.first != keys.n:
            o = k.let(idiv(r, inner), "o")
            base = k.let(o * (first * inner) + (r - o * inner), "base")
        with k.when(rank < first):
            k.store(keys.low.output, k.let(base + rank * inner, "to"), cast(value, "i64"))
    else:
        k.store(to, k.let(r * k.dim(keys.n, "n") + rank, "to"), cast(value, "i32"))


def _rank_in_block(k: Kernel, t: Expr, keys: _Keys, to: Ref | None) -> None:
    r, p, base = keys.place(k, t)
    size = k.dim(_BLOCK, "block")
    start = k.let(idiv(p, size) * size, "start")
    end = k.let(minimum(start + size, k.dim(keys.n, "n")), "end")
    mine = keys.key(k, base, p)
    rank = k.var(start, "rank")
    with k.loop(end, start) as j:
        other = keys.key(k, base, j)
        first, second = keys.compare(k, other, mine)
        k.assign(rank, rank + where(first | (~second & (j < p)), const(1, "u32"), const(0, "u32")))
    _put(k, keys, to, r, base, rank, p)


def _merge(k: Kernel, t: Expr, keys: _Keys, width: int, perm: Ref, to: Ref | None) -> None:
    r, p, base = keys.place(k, t)
    n, w = k.dim(keys.n, "n"), k.dim(width, "run")
    row = k.let(r * n, "row")
    start = k.let(idiv(p, w + w) * (w + w), "start")
    mid = k.let(minimum(start + w, n), "mid")
    end = k.let(minimum(mid + w, n), "end")
    left = k.let(p < mid, "left")
    at = k.let(cast(k.load(perm, row + p), "u32"), "at")
    mine = keys.key(k, base, at)
    lo = k.var(where(left, mid, start), "lo")
    hi = k.var(where(left, end, mid), "hi")
    k.r.push(f"while ({lo.value} < {hi.value})")
    half = k.let((lo + hi) >> 1, "half")
    other = keys.key(k, base, k.let(cast(k.load(perm, row + half), "u32"), "at"))
    first, second = keys.compare(k, other, mine)
    # an equal element of the left run goes before, one of the right run does not
    goes = k.let(first | (~left & ~second), "goes")
    k.assign(lo, where(goes, half + 1, lo))
    k.assign(hi, where(goes, hi, half))
    k.r.pop()
    _put(k, keys, to, r, base, k.let(p + lo - mid, "rank"), at)


def _of_examples(e: Examples) -> Call | None:
    dim, descending, width, first = e.static
    return None if width else Call((dim + 1, descending, 0, first), e.ins)


_SORT = Custom("sort", _lower, batched=_of_examples)


@remembered
def _sort_inst(m: Meta, dim: int, descending: bool, width: int, first: int) -> Inst:
    if not m.ndim:
        m = m.view((1,), (1,), m.offset)
    shape = (m.shape[0],) if width else (*m.shape[:dim], first or m.shape[dim], *m.shape[dim + 1 :])
    return inst(
        _SORT,
        (m,),
        contiguous_meta(shape, dtypes.int64, m.device),
        static=(dim, descending, width, first),
        compute=m.dtype.compute,
    )


def order_of(x: Tensor, dim: int, descending: bool = False, first: int = 0) -> Tensor:
    """The permutation (int64) that sorts `x` along `dim`, stably, or so many of its first places; not recorded."""
    m = x._tab_meta
    if m.dtype.is_complex:
        raise RuntimeError(" Sort does not support complex dtypes on CPU")
    i = _sort_inst(m, wrap_dim(dim, m.ndim), descending, 0, first)
    return run(i, i.out if m.ndim else contiguous_meta((), dtypes.int64, m.device), x)


def order_of_rows(x: Tensor) -> Tensor:
    """The permutation that sorts the rows of a matrix, by their first element, then the second…"""
    i = _sort_inst(x._tab_meta, 0, False, x._tab_meta.shape[1], 0)
    return run(i, i.out, x)


def _memory_order(m: Meta) -> list[int] | None:
    """The dimensions in the order in which a copy of `m` has them in memory, slowest first; None: it is row-major."""
    strides = dense_strides(m)
    return None if strides == contiguous_strides(m.shape) else sorted(range(m.ndim), key=lambda d: -strides[d])


def _laid_as(m: Meta, t: Tensor) -> Tensor:
    """`t`, whose dimensions are in `_memory_order(m)`, as a tensor that is laid out as a copy of `m`."""
    d = t._tab_meta
    return Tensor._wrap(t._tab_storage.node, meta(m.shape, dense_strides(m), 0, d.dtype, d.device))


def chosen(name: str, x: Tensor, indices: Tensor, dim: int, values: Tensor | None = None) -> Tensor:
    """The elements of `x` at `indices` along `dim`, with values and indices recorded together as `name`."""
    if values is None:
        with quiet():
            values = x.gather(dim, indices) if x.ndim else x.clone()
    shape = x._tab_meta.shape

    def back(g: list[Any], indices: Tensor) -> Tensor:
        if not shape:
            return g[0]
        return g[0].new_zeros(shape).scatter(dim, indices, g[0])

    record(name, (x,), (values, indices), back, (indices,))
    return values


SortResult = named("sort", "values", "indices")
TopkResult = named("topk", "values", "indices")
KthvalueResult = named("kthvalue", "values", "indices")


@operation("sort")
def sort(input: Tensor, dim: Any = -1, descending: bool = False, *, stable: Any = None, out: Any = None) -> Any:
    """(values, indices) sorted along `dim`. The order of equal elements is kept, whether asked for or not."""
    m, d, values = input._tab_meta, wrap_dim(dim, input.ndim), None
    order = _memory_order(m)
    if order is None:
        indices = order_of(input, d, descending)
    else:
        with quiet():
            seen, at = input.permute(order), order.index(d)
            indices = order_of(seen, at, descending)
            values, indices = _laid_as(m, seen.gather(at, indices)), _laid_as(m, indices)
    values = chosen("SortBackward0" if stable is None else "SortBackward1", input, indices, d, values)
    return into_two(out, SortResult(values, indices))


@operation("argsort")
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The indices that sort `input` along `dim`."""
    order = _memory_order(input._tab_meta)
    if order is None:
        return order_of(input, dim, descending)
    at = order.index(wrap_dim(dim, input.ndim))
    return _laid_as(input._tab_meta, order_of(input.detach().permute(order), at, descending))


@operation("msort")
def msort(input: Tensor, *, out: Any = None) -> Tensor:
    """Sorted values along the first dimension."""
    return into(out, sort(input, 0)[0], rule=EXACT)


@operation("topk")
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True, *, out: Any = None) -> Any:
    """(values, indices) of the k largest (or smallest) elements along `dim`, in order."""
    d, k = wrap_dim(dim, input.ndim), integer(k, "topk", "k", 2)
    n = input.shape[d] if input.ndim else 1
    if not 0 <= k <= n:
        raise RuntimeError("selected index k out of range")
    if input.dtype is dtypes.bool_ or input.dtype.is_complex:
        raise RuntimeError(f"topk does not support {'complex' if input.dtype.is_complex else 'bool'} dtypes on CPU")
    if k == 0 and input.ndim:
        indices = input.new_empty((*input.shape[:d], 0, *input.shape[d + 1 :]), dtype=dtypes.int64)
    else:
        indices = order_of(input, d, largest, k if input.ndim else 0)
    values = chosen("TopkBackward0", input, indices, d)
    return into_two(out, TopkResult(values, indices))


def picked(name: str, kind: Any, x: Tensor, indices: Tensor, d: int, keepdim: bool) -> Any:
    """One element a row, at `indices` (with `d` of size 1), as (values, indices)."""
    shape, flat = x._tab_meta.shape, not keepdim and x.ndim > 0
    with quiet():
        values = x.gather(d, indices) if shape else x.clone()
        if flat:
            values, indices = own(values.squeeze(d)), own(indices.squeeze(d))

    def back(g: list[Any], indices: Tensor) -> Tensor:
        if not shape:
            return g[0]
        v = g[0].unsqueeze(d) if flat else g[0]
        return v.new_zeros(shape).scatter(d, indices.unsqueeze(d) if flat else indices, v)

    record(name, (x,), (values, indices), back, (indices,))
    return kind(values, indices)


_KTHVALUE_OUT = (
    same("output values must be of same type as input"),
    same("output indices must be of scalar type {Want}"),
)


@operation("kthvalue")
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False, *, out: Any = None) -> Any:
    """(value, index) of the k-th smallest element along `dim` (k counts from 1)."""
    d, k = wrap_dim(dim, input.ndim), integer(k, "kthvalue", "k", 2)
    n = input.shape[d] if input.ndim else 1
    if n == 0:
        raise IndexError(f"kthvalue(): Expected reduction dim {d} to have non-zero size.")
    if out is not None:
        check_overlap(out[0], (input,), True)
    if not 1 <= k <= n:
        raise RuntimeError("kthvalue(): selected number k out of range for dimension " + str(d))
    if input.ndim:
        check_kernel("kthvalue_cpu", input._tab_meta.dtype, REAL_NUMBERS)
    indices = order_of(input, d, first=k if input.ndim else 0)
    if input.ndim:
        indices = own(indices.narrow(d, k - 1, 1).clone(memory_format=contiguous_format))
    return into_two(out, picked("KthvalueBackward0", KthvalueResult, input, indices, d, keepdim), rule=_KTHVALUE_OUT)


__all__ = ["less", "order_of", "order_of_rows", "picked"]
