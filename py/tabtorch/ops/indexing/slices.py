"""Zeros with a part put in: what the gradient of a slice, a selection or a diagonal is. One map each, so gradients of
several parts of one tensor, and their sum, fuse into one kernel.
"""

from __future__ import annotations

from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.tape import record
from tabtorch.autograd.views import view as track
from tabtorch.core import shapes
from tabtorch.core.tensor import Tensor
from tabtorch.engine.expr import Expr, const, idiv, minimum, where
from tabtorch.engine.graph import Map, emit, inst
from tabtorch.engine.view import Meta, contiguous_meta
from tabtorch.ops.machinery.operation import into, with_out
from tabtorch.ops.machinery.out_types import EXACT, castable
from tabtorch.ops.machinery.registry import camel, register

#: per dimension of the whole: (first index, length, step); length None for a dimension that was selected away
Spec = tuple[tuple[int, int | None, int], ...]


@shapes.remembered
def cut_meta(m: Meta, spec: Spec) -> Meta:
    """The view of `m` that `spec` describes."""
    shape: list[int] = []
    strides: list[int] = []
    at = m.offset
    for (start, length, step), st in zip(spec, m.strides):
        at += start * st
        if length is not None:
            shape.append(length)
            strides.append(st * step)
    return m.view(tuple(shape), tuple(strides), at)


def _embed_at(p: Any) -> Any:
    at: list[Expr] = []
    inside: Expr | None = None

    def require(c: Expr) -> None:
        nonlocal inside
        inside = c if inside is None else inside & c

    for d, (start, length, step) in enumerate(p.static):
        c = p.coords[d]
        if length is None:
            require(c == p.dim(start, ("start", d)))
            continue
        if start == 0 and step == 1 and length == p.inst.out.shape[d]:
            at.append(c)
            continue
        c = c - p.dim(start, ("start", d))  # wraps to a large number before the start
        if step != 1:
            q = p.k.let(idiv(c, p.dim(step, ("step", d))), "q")
            require(q * p.dim(step, ("step", d)) == c)
            c = q
        require(c < p.dim(length, ("length", d)))
        at.append(minimum(c, p.dim(length - 1, ("last", d))))
    v = p.at(0, at)
    return v if inside is None else where(inside, v, const(0, v.type))


_EMBED = Map("embed", _embed_at, indexed=True, cost=4, sized=True)


def embed(g: Tensor, shape: tuple[int, ...], spec: Spec) -> Tensor:
    """Zeros of `shape` in which the part `spec` is `g`."""
    m = g._tab_meta
    out = contiguous_meta(tuple(shape), m.dtype, m.device)
    if m.numel:
        r = Tensor._wrap(emit(inst(_EMBED, (m,), out, (), spec), (g._tab_storage.node,)), out)
    else:
        r = g.new_zeros(tuple(shape))
    if g._tab_requires_grad:
        record("SliceBackwardBackward0", (g,), r, lambda gg: cut(gg, spec))
    return r


def cut(t: Tensor, spec: Spec) -> Tensor:
    """The part of `t` that `spec` describes, as a view."""
    shape = t._tab_meta.shape
    return track(t, cut_meta(t._tab_meta, spec), "SliceBackward0", lambda g: embed(g, shape, spec))


def _diagonal_at(p: Any) -> Any:
    offset, d1, d2 = p.static
    c = p.coords
    row, col = c[d1], c[d2]
    if offset >= 0:
        on, along = (row + p.dim(offset, "offset") == col) if offset else (row == col), row
    else:
        on, along = col + p.dim(-offset, "offset") == row, col
    others = [x for d, x in enumerate(c) if d not in (d1, d2)]
    v = p.at(0, [*others, minimum(along, p.dim(p.inst.ins[0].shape[-1] - 1, "last"))])
    return where(on, v, const(0, v.type))


_DIAGONAL = Map("diag_embed", _diagonal_at, indexed=True, cost=4)


def diagonal_embed(
    g: Tensor, shape: tuple[int, ...], offset: int, dim1: int, dim2: int, name: str = "DiagonalBackwardBackward0"
) -> Tensor:
    """Zeros of `shape` whose diagonal (as `diagonal(offset, dim1, dim2)` takes it) is `g`."""
    m = g._tab_meta
    out = contiguous_meta(tuple(shape), m.dtype, m.device)
    if m.numel:
        d1, d2 = shapes.wrap_dim(dim1, len(shape)), shapes.wrap_dim(dim2, len(shape))
        r = Tensor._wrap(emit(inst(_DIAGONAL, (m,), out, (), (offset, d1, d2)), (g._tab_storage.node,)), out)
    else:
        r = g.new_zeros(tuple(shape))
    if g._tab_requires_grad:
        record(name, (g,), r, lambda gg: gg.diagonal(offset, dim1, dim2))
    return r


@register("diag_embed", method=True)
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices, in dimensions `dim1` and `dim2` of the result, whose diagonals are the last dimension of `input`."""
    n = input._tab_meta.ndim + 1
    a, b = shapes.wrap_dim(dim1, n), shapes.wrap_dim(dim2, n)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    offset = shapes.integer(offset, "diag_embed", "offset", 2)
    size = input._tab_meta.shape[-1] + abs(offset)
    shape = list(input._tab_meta.shape[:-1])
    for d in sorted((a, b)):
        shape.insert(d, size)
    return diagonal_embed(input, tuple(shape), offset, a, b, "DiagEmbedBackward0")


_DIAG_OUT = castable("diag: result type {Want} can't be cast to the desired out= type {Have}")


def _diag_out(want: Any, have: Any, field: str = "") -> None:
    _DIAG_OUT(want, have)
    EXACT(want, have)


@register("diag", method=True)
def diag(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """A vector as the diagonal of a square matrix; of a matrix, a copy of its diagonal."""
    n = input._tab_meta.ndim
    if n == 1:
        return into(out, diag_embed(input, diagonal), rule=_diag_out)
    if n == 2:
        shape = input._tab_meta.shape
        r = input.detach().diagonal(diagonal).clone()
        if input._tab_requires_grad:
            record("DiagonalBackward0_copy", (input,), r, lambda g: diagonal_embed(g, shape, diagonal, 0, 1))
        return into(out, r, rule=_diag_out)
    raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {n}D")


@register("diagflat", method=True)
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """The elements of `input` as the diagonal of a square matrix."""
    return diag_embed(input.reshape(-1), offset)


@register("fill_diagonal_", torch=False, method=True)
def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Sets the main diagonal in place; `wrap` begins it again below a tall matrix's square part."""
    m = self._tab_meta
    if m.ndim < 2:
        raise RuntimeError("dimensions must larger than 1")
    if m.ndim > 2 and any(n != m.shape[0] for n in m.shape):
        raise RuntimeError("all dimensions of input must be of equal length")
    rows, cols = m.shape[0], m.shape[-1]
    step = sum(m.strides)
    self.as_strided((min(rows, cols),), (step,), m.offset).fill_(fill_value)
    if wrap and m.ndim == 2 and rows > cols + 1:
        again = _lazy.ranges.arange(rows * cols, device=self.device).view(rows, cols) % (cols + 1) == 0
        self.masked_fill_(again, fill_value)
    return self


# ---- a copy with a part replaced


@register("slice_scatter", method=True)
@with_out
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """A copy of `input` in which `input[start:end:step]` along `dim` is `src`."""
    return _scatter_part(input, src, lambda x: _slice(x, dim, start, end, step), "slice_scatter")


def _slice(x: Tensor, dim: int, start: int | None, end: int | None, step: int) -> Tensor:
    return _lazy.core_views.slice_along(x, dim, start, end, step)


@register("select_scatter", method=True)
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy of `input` in which `input.select(dim, index)` is `src`."""
    dim, index = dim.__index__(), index.__index__()
    return _scatter_part(input, src, lambda x: x.select(dim, index), "select_scatter")


@register("diagonal_scatter", method=True)
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy of `input` whose diagonal is `src`."""
    return _scatter_part(input, src, lambda x: x.diagonal(offset, dim1, dim2), "diagonal_scatter")


@register("as_strided_scatter", method=True)
def as_strided_scatter(input: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A copy of `input` in which `input.as_strided(size, stride, storage_offset)` is `src`."""
    return _scatter_part(input, src, lambda x: x.as_strided(size, stride, storage_offset), "as_strided_scatter")


def _copied(x: Tensor) -> Tensor:
    """A copy of all memory of `x`, seen as `x` is, as PyTorch makes it; dense where elements share memory."""
    m = x._tab_meta
    if any(s == 0 and n > 1 for n, s in zip(m.shape, m.strides)):
        return x.clone()
    size = x._tab_storage.nbytes // m.dtype.itemsize
    return x.as_strided((size,), (1,), 0).clone().as_strided(m.shape, m.strides, m.offset)


def _scatter_part(x: Tensor, src: Tensor, part: Any, name: str) -> Tensor:
    out = _copied(x.detach())
    p = part(out)
    if p._tab_meta.shape != src._tab_meta.shape:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, "
            f"slice size = {list(p.shape)}"
        )
    p.copy_(src.detach())
    r = Tensor._wrap(out._tab_storage.node, out._tab_meta)

    def self_grad(g: Tensor) -> Tensor:
        g = g.clone()
        part(g).zero_()
        return g

    if x._tab_requires_grad or src._tab_requires_grad:
        record(camel(name) + "Backward0", (x, src), r, (self_grad, part))
    return r
