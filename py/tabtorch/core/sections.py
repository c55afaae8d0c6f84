"""Several views of one tensor: `split`, `chunk`, `unbind`, … See views.py."""

from __future__ import annotations

import functools
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.views import views_of_several
from tabtorch.core import shapes
from tabtorch.core.shapes import as_int, ints, wrap_dim
from tabtorch.core.tensor import Tensor
from tabtorch.core.views import refreshed, slice_along
from tabtorch.ops.machinery.registry import register


def split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces along `dim`: of one size (the last may be shorter), or of the sizes in a list."""
    m = refreshed(tensor) if tensor._tab_stale else tensor._tab_meta
    if not isinstance(split_size_or_sections, (tuple, list)):
        if m.ndim == 0:
            raise RuntimeError("split expects at least a 1-dimensional tensor")
        d = wrap_dim(dim, m.ndim)
        size = as_int(split_size_or_sections)
        return _pieces(tensor, d, shapes.split_sizes(m.shape[d], size), "SplitBackward0")
    if m.ndim == 0:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    d = wrap_dim(dim, m.ndim)
    sizes = ints((split_size_or_sections,), "split", "split_size")
    if any(s < 0 for s in sizes):
        raise RuntimeError(
            f"split_with_sizes expects split_sizes have only non-negative entries, but got split_sizes={list(sizes)}"
        )
    if sum(sizes) != m.shape[d]:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {m.shape[d]} (input tensor's size at dimension {dim}), "
            f"but got split_sizes={list(sizes)}"
        )
    return _pieces(tensor, d, sizes, "SplitWithSizesBackward0")


def _pieces(x: Tensor, d: int, sizes: tuple[int, ...], name: str) -> tuple[Tensor, ...]:
    metas = shapes.pieces(x._tab_meta, d, sizes)

    def backward(gs: list[Tensor | None]) -> Tensor:
        given = next(g for g in gs if g is not None)
        return _lazy.joining.cat([given.new_zeros(m.shape) if g is None else g for g, m in zip(gs, metas)], d)

    return tuple(views_of_several(x, metas, name, backward))


def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` pieces of equal size along `dim` (the last may be shorter)."""
    m = input._tab_meta
    if m.ndim == 0:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    chunks = chunks.__index__()
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    d = wrap_dim(dim, m.ndim)
    n = m.shape[d]
    size = -(-n // chunks)
    if size == 0:
        return _pieces(input, d, (0,) * chunks, "SplitWithSizesBackward0")
    return _pieces(input, d, shapes.split_sizes(n, size), "SplitBackward0")


def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces along `dim`: so many of nearly equal size, or cut at the indices in a list or 1-d tensor."""
    m = input._tab_meta
    if m.ndim == 0:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    d = wrap_dim(dim, m.ndim)
    n = m.shape[d]
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections.tolist()
    if isinstance(indices_or_sections, (tuple, list)):
        cuts = [0, *ints((indices_or_sections,), "tensor_split", "indices"), None]
        return tuple(slice_along(input, d, a, b) for a, b in zip(cuts, cuts[1:]))
    k = indices_or_sections.__index__()
    if k <= 0:
        raise RuntimeError(f"number of sections must be larger than 0, got {k}")
    out = []
    at = 0
    for i in range(k):
        size = n // k + (i < n % k)
        out.append(slice_along(input, d, at, at + size))
        at += size
    return tuple(out)


def _split_evenly(name: str, input: Tensor, how: Any, dim: int) -> tuple[Tensor, ...]:
    if not isinstance(how, (int, tuple, list)):
        raise TypeError(
            f"{name}() received an invalid combination of arguments - got (Tensor, {type(how).__name__}), but expected one "
            "of:\n * (Tensor input, int sections)\n * (Tensor input, tuple of ints indices)"
        )
    if isinstance(how, int):
        n = input._tab_meta.shape[dim]
        if how == 0 or n % how:
            raise RuntimeError(
                f"torch.{name} attempted to split along dimension {dim}, but the size of the dimension {n} is not "
                f"divisible by the split_size {how}!"
            )
    return tensor_split(input, how, dim)


def _need(name: str, input: Tensor, ndim: int) -> None:
    n = input._tab_meta.ndim
    if n < ndim:
        raise RuntimeError(
            f"torch.{name} requires a tensor with at least {ndim} dimension, but got a tensor with {n} dimensions!"
        )


def hsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """`tensor_split` along the columns (dimension 1, or 0 of a vector)."""
    _need("hsplit", input, 1)
    return _split_evenly("hsplit", input, indices_or_sections, 1 if input._tab_meta.ndim > 1 else 0)


def vsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """`tensor_split` along the rows."""
    _need("vsplit", input, 2)
    return _split_evenly("vsplit", input, indices_or_sections, 0)


def dsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """`tensor_split` along dimension 2."""
    _need("dsplit", input, 3)
    return _split_evenly("dsplit", input, indices_or_sections, 2)


def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """All slices along `dim`, each without that dimension."""
    m = refreshed(input) if input._tab_stale else input._tab_meta
    d = wrap_dim(dim, m.ndim)
    if m.ndim == 0:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    metas = [shapes.selected(m, d, i) for i in range(m.shape[d])]
    if not metas:
        return ()

    def backward(gs: list[Tensor | None]) -> Tensor:
        given = next(g for g in gs if g is not None)
        none = given.new_zeros(metas[0].shape) if any(g is None for g in gs) else given
        return _lazy.joining.stack([none if g is None else g for g in gs], d)

    return tuple(views_of_several(input, metas, "UnbindBackward0", backward))


def _by_either_name(f: Any) -> Any:
    """PyTorch has two forms, by a number of `sections` and by `indices`, and no name for both."""

    @functools.wraps(f)
    def form(input: Tensor, *args: Any, **kw: Any) -> tuple[Tensor, ...]:
        for name in ("indices", "sections", "tensor_indices_or_sections"):
            if name in kw:
                args = (kw.pop(name), *args)
        r: tuple[Tensor, ...] = f(input, *args, **kw)
        return r

    return form


_f: Any
for _f in (chunk, unbind):
    register(_f.__name__, _f, method=True)
for _f in (tensor_split, hsplit, vsplit, dsplit):
    register(_f.__name__, _by_either_name(_f), method=True)
register("split", split, method=lambda self, split_size, dim=0: split(self, split_size, dim))
register(
    "split_with_sizes", lambda input, split_sizes, dim=0: split(input, split_sizes, dim), method=True, doc=split.__doc__
)
