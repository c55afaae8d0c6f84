"""Kernels of maps: independent elements, one or four of them for each thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

from .expr import Expr, const, idiv, imod, variable
from .lower import Kernel, Ref, grid_for, threads_head
from .target import target
from .view import Meta
from .wgsl import PACKED, Wgsl

#: a map of so many elements has several for each thread; on a software adapter, which goes to each thread in turn, it pays sooner
MANY, MANY_IN_SOFTWARE = 1 << 22, 1 << 15


#: rows and columns from which on a large map goes in squares
LEAST_SIDE = 16


class Transposed(NamedTuple):
    """A contiguous shape (…, rows, inner, columns) in which something is read whose rows are contiguous, not its columns."""

    rows: int
    inner: int
    columns: int


def _transposed(views: Sequence[Meta], total: int) -> Transposed | None:
    """How the first of these views that has the shape of the result, and other contiguous dimensions, divides it."""
    for view in views:
        if view.ndim < 2 or view.numel != total or view.shape[-1] < LEAST_SIDE or view.shape[-1] % 4:
            continue
        if view.strides[-1] < LEAST_SIDE:
            continue
        d = next((d for d in range(view.ndim - 1) if view.strides[d] == 1 and view.shape[d] >= LEAST_SIDE), None)
        if d is not None:
            return Transposed(view.shape[d], prod(view.shape[d + 1 : -1]), view.shape[-1])
    return None


def map_kernel(
    k: Kernel,
    total: int,
    body: Callable[[Expr], list[tuple[Ref, Any]]],
    views: Sequence[Meta] = (),
) -> tuple[str, list[int]]:
    """A kernel of `total` independent elements. `body(i)` computes at flat index i and says what to store there. `views`: of what
    it reads. If one is transposed, threads of a large map on a GPU go in squares of rows and columns, not along rows.

    Where an output is packed on webgpu, a thread owns whole words: it computes 4 neighbouring elements. Where there are many
    elements, a thread computes 4, for threads cost more than the work then: neighbours, which are loaded and stored together where
    they lie in vectors, else such that lie a workgroup apart (on a software adapter, one: it gains nothing by that).
    """
    n = k.dim(total, "total")
    r = k.r
    i = variable("i", "u32")
    if r.serial:
        r.loop("i", "0", r.text(n))
        for ref, v in body(i):
            k.store(ref, i, v)
        r.pop()
        return k.source([]), [1, 1, 1]
    mark = len(r.lines)
    software = target(k.device).software
    many = total >= (MANY_IN_SOFTWARE if software else MANY)
    if many:
        k.watched = {}
    stores = body(i)
    packed = [(ref, v) for ref, v in stores if ref.dtype.name in PACKED]
    transposed = _transposed(views, total) if many and target(k.device).barriers else None
    vectors = _vectors(k, stores, len(r.lines) - mark, transposed is not None) if many else None
    if not packed and (not many or (software and vectors is None)):
        for ref, v in stores:
            k.store(ref, i, v)
        return k.source(threads_head(k, n)), grid_for(total, k.workgroup[0])
    # written again, for the 4 elements of a thread
    del r.lines[mark:]
    r.scopes[-1].clear()
    if vectors is not None:
        return _map_vectors(k, total, body, vectors, transposed)
    total_text = r.text(n)
    if not packed:
        wide = k.workgroup[0]
        head = threads_head(k, None, name="t")
        head.append(f"  let base = t / {wide}u * {4 * wide}u + t % {wide}u;")
        r.push(f"for (var i = base; i < min({total_text}, base + {4 * wide}u); i += {wide}u)")
        for ref, v in body(i):
            k.store(ref, i, v)
        r.pop()
        return k.source(head), grid_for(-(-total // 4), wide)
    head = threads_head(k, None, name="t")
    head.append(f"  let base = t * 4u; if (base >= {total_text}) {{ return; }}")
    head += [f"  var word{j} = 0u;" for j in range(len(packed))]
    r.push("for (var lane = 0u; lane < 4u; lane++)")
    r.line(f"let i = min(base + lane, {total_text} - 1u);")
    j = 0
    for ref, v in body(i):
        d = ref.dtype.name
        if d not in PACKED:
            r.push(f"if (base + lane < {total_text})")
            k.store(ref, i, v)
            r.pop()
            continue
        p = PACKED[d]
        buf = k.bind(ref, "rw")
        r.line(f"word{j} |= {Wgsl.bits(d, r.text(v))} << ((lane & {p - 1}u) * {32 // p}u);")
        r.line(
            f"if ((lane & {p - 1}u) == {p - 1}u && base + lane < {total_text} + {p - 1}u) "
            f"{{ {buf}[(base + lane) / {p}u] = word{j}; word{j} = 0u; }}"
        )
        j += 1
    r.pop()
    return k.source(head), grid_for(-(-total // 4), k.workgroup[0])


#: a body of more lines is not written four times
_LONG = 60


def _vectors(k: Kernel, stores: list[tuple[Ref, Any]], lines: int, transposed: bool) -> set[Any] | None:
    """The buffers that a map reads element by element, each as one dtype, and in no other way, in elements of which four are a
    vector or in whole words. None where vectors do not pay, or where it reads what it stores in another way."""
    watched, k.watched = k.watched or {}, None
    wide = ("i64", "c64")
    if any(watched.get(ref.key, ref.dtype) is not ref.dtype for ref, _ in stores) or lines > _LONG:
        return None
    read = {key for key, d in watched.items() if d is not None and d.compute not in wide}
    return read if read or not watched or transposed else None


def _map_vectors(
    k: Kernel, total: int, body: Callable[[Expr], list[tuple[Ref, Any]]], read: set[Any], transposed: Transposed | None
) -> tuple[str, list[int]]:
    """A thread computes 4 neighbours. The last may lie past the end: no buffer that is as long ends within a vector."""
    r = k.r
    k.bindings, k.names, k.vectors = [], {}, read
    if transposed is None:
        first = r.let(variable("t", "u32") * 4, "i")
        r.line(f"if ({r.text(first)} >= {r.text(k.dim(total, 'total'))}) {{ return; }}")
        threads = -(-total // 4)
    else:
        first, threads = _squares(k, total, transposed)
    found = []
    for j in range(4):
        lane = r.let(first + j, "i") if j else first
        k.lane = lane.value, first, j
        found.append(body(lane))
    for j, (ref, _) in enumerate(found[0]):
        k.store_lanes(ref, first, [stores[j][1] for stores in found])
    return k.source(threads_head(k, None, name="t")), grid_for(threads, k.workgroup[0])


#: rows, and columns, of the square that a workgroup makes
_SIDE = 32


def _squares(k: Kernel, total: int, shape: Transposed) -> tuple[Expr, int]:
    """Where the 4 neighbours of a thread begin, and how many threads there are. Each 32 threads in a row have 8 rows by 16 columns:
    so a subgroup reads, and writes, whole pieces of 32 bytes (a transpose of 8192 x 8192 floats, on an H200: 0.14 ms, and 0.71
    with threads along rows)."""
    r = k.r
    rows, inner, columns = (k.dim(n, ("squares", role)) for role, n in zip(Transposed._fields, shape, strict=True))
    high, wide = -(-shape.rows // _SIDE), -(-shape.columns // _SIDE)
    squares = high * wide * (total // (shape.rows * shape.columns))
    t = variable("t", "u32")
    r.line(f"if (t >= {r.text(k.dim(squares, ('squares', 'all')) * (_SIDE * _SIDE // 4))}) {{ return; }}")
    square = r.let(idiv(t, const(_SIDE * _SIDE // 4, "u32")), "square")
    beside, over = k.dim(wide, ("squares", "wide")), k.dim(high, ("squares", "high"))
    column = r.let(imod(square, beside) * _SIDE + (imod(idiv(t, 32), 2) * 16 + imod(idiv(t, 8), 4) * 4), "column")
    above = r.let(idiv(square, beside), "above")
    row = r.let(imod(above, over) * _SIDE + (imod(idiv(t, 64), 4) * 8 + imod(t, 8)), "row")
    apart = r.let(idiv(above, over), "apart")
    r.line(f"if ({r.text(row)} >= {r.text(rows)} || {r.text(column)} >= {r.text(columns)}) {{ return; }}")
    at = (idiv(apart, inner) * rows + row) * inner + imod(apart, inner)
    return r.let(at * columns + column, "i"), squares * (_SIDE * _SIDE // 4)
