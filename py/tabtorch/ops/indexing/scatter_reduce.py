"""`scatter_reduce` and `index_reduce`: places that get the sum, product, mean, maximum or minimum of what is sent there.

Gradients follow https://github.com/pytorch/pytorch/blob/main/torch/csrc/autograd/FunctionsManual.cpp (scatter_reduce_backward).
"""

from __future__ import annotations

from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.views import check_inplace
from tabtorch.base import dtypes
from tabtorch.core.shapes import type_name
from tabtorch.core.tensor import Tensor
from tabtorch.ops.indexing.gather import OUT_OF_RANGE, check_index_dtype, check_index_shape, range_error
from tabtorch.ops.indexing.index_maps import check_range
from tabtorch.ops.indexing.index_writes import vector_dim
from tabtorch.ops.indexing.scatter import _check_src, _scatter_node, base_node, finish
from tabtorch.ops.machinery.inplace import check_overlap
from tabtorch.ops.machinery.operand_devices import on_device_of
from tabtorch.ops.machinery.operation import with_out
from tabtorch.ops.machinery.out_types import EXACT
from tabtorch.ops.machinery.promotion import NUMBERS, REAL_NUMBERS, check_kernel, not_implemented
from tabtorch.ops.machinery.registry import register

_MODES = {"sum": "add", "mean": "add", "prod": "prod", "amax": "amax", "amin": "amin"}


def _neutral(reduce: str, d: Any) -> Any:
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    if d.category == 0:
        return reduce == "amin"
    if d.category == 1:
        info = dtypes.iinfo(d)
        return info.min if reduce == "amax" else info.max
    return float("-inf") if reduce == "amax" else float("inf")


def _value(x: Tensor, d: int, index: Tensor, src: Tensor, reduce: str, include_self: bool) -> Tensor:
    """The result, with no record."""
    x, src = x.detach(), src.detach()
    m = x._tab_meta
    start = x if include_self else x.scatter(d, index, _neutral(reduce, m.dtype))
    r = Tensor._wrap(_scatter_node(start, d, index, src, _MODES[reduce]), base_meta(m))
    if reduce == "mean":
        n = _counts(x, d, index, include_self)
        return r / n.to(m.dtype) if m.dtype.category > 1 else r.div(n, rounding_mode="floor").to(m.dtype)
    return r


def base_meta(m: Any) -> Any:
    """`m` in row-major order."""
    return _lazy.view.contiguous_meta(m.shape, m.dtype, m.device)


def _counts(x: Tensor, d: int, index: Tensor, include_self: bool) -> Tensor:
    """How many values each place is the mean of; at least 1."""
    start = x.new_ones(x.shape, dtype=dtypes.int32) if include_self else x.new_zeros(x.shape, dtype=dtypes.int32)
    return start.scatter_add(d, index, start.new_ones(index.shape)).clamp(min=1)


def _reduced(
    x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool, in_place: bool, name: str
) -> Tensor:
    if reduce not in _MODES:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    if in_place:
        check_inplace(x, (src,))
    d = check_index_shape("scatter", x, dim, index, "self")
    index, src = on_device_of(x, index), on_device_of(x, src)
    _check_src(x, index, src, d)
    if index._tab_meta.numel and reduce in ("amax", "amin") and x._tab_meta.dtype.is_complex:
        raise not_implemented("scatter_gather_tensor_cpu_reduce_" + reduce, x._tab_meta.dtype)
    if in_place:
        check_overlap(x, (index, src), True)
    if reduce == "mean":
        check_kernel("scatter_gather_tensor_cpu_reduce_mean", x._tab_meta.dtype, NUMBERS)
    n = x._tab_meta.shape[d] if x._tab_meta.ndim else 1
    check_range(index, n, 0, range_error(d), "scatter_reduce")
    return _finish(x, d, index, src, reduce, include_self, in_place, name)


def _finish(
    x: Tensor, d: int, index: Tensor, src: Tensor, reduce: str, include_self: bool, in_place: bool, name: str
) -> Tensor:
    if index._tab_meta.numel == 0:
        if in_place:
            x._tab_storage.written()
            return x
        return x.clone()
    full = src
    for k, n in enumerate(index._tab_meta.shape):
        if src._tab_meta.shape[k] != n:
            src = src.narrow(k, 0, n)
    old = x
    if in_place and (x._tab_requires_grad or full._tab_requires_grad):
        old = x.clone()  # the gradients need the values from before

    def node(t: Tensor) -> Any:
        return base_node(_value(t, d, index, src, reduce, include_self))

    def grad_of(which: int) -> Any:
        def f(g: Tensor, own: Tensor, i: Tensor, s: Tensor) -> Tensor:
            return _gradients(g, own, d, i, s, reduce, include_self)[which]

        return f

    return finish(x, node, in_place, name, (src,), (grad_of(0), grad_of(1)), (old, index, src))


def _gradients(g: Any, x: Any, d: int, index: Tensor, src: Any, reduce: str, include_self: bool) -> tuple[Any, Any]:
    if reduce == "sum":
        own, other = g, g.gather(d, index)
    elif reduce == "mean":
        own = g / _counts(x, d, index, include_self)
        other = own.gather(d, index)
    elif reduce == "prod":
        own, other = _product_gradients(g, x, d, index, src, include_self)
    else:
        result = _value(x, d, index, src, reduce, include_self)
        here = (x == result).to(g.dtype)
        there = (src == result.gather(d, index)).to(g.dtype)
        share = g / here.scatter_add(
            d, index, there
        )  # where the result is NaN, which equals nothing, 0 / 0: as PyTorch's
        own, other = here * share, there * share.gather(d, index)
    return (own if include_self else own.scatter(d, index, 0)), other


def _product_gradients(g: Any, x: Any, d: int, index: Tensor, src: Any, include_self: bool) -> tuple[Any, Any]:
    """Products without the factor itself; where a place has one factor of 0, the product of the others."""
    filled = x.masked_fill(x == 0, 1)
    own = g * filled.scatter_reduce(d, index, src, "prod", include_self=include_self) / filled
    zero = src == 0
    zeros = g.new_zeros(x.shape).scatter_add(d, index, zero.to(g.dtype)).gather(d, index)
    single = zero & (zeros == 1)
    without = x.scatter_reduce(d, index, src.masked_fill(single, 1), "prod", include_self=include_self)
    result = x.scatter_reduce(d, index, src, "prod", include_self=include_self)
    other = (g * without).gather(d, index).where(single, (g * result).gather(d, index) / src.masked_fill(zero, 1))
    return own, other


def scatter_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
    out: Tensor | None = None,
) -> Tensor:
    """A copy of `input` with `src` reduced into the places that `index` gives along `dim`.

    reduce: "sum", "prod", "mean", "amax" or "amin". Without `include_self`, what was there before does not count.
    """
    r = _reduced(input, dim, index, src, reduce, include_self, False, "ScatterReduceBackward0")
    if out is None:
        return r
    return _lazy.operation.into(out, r, rule=EXACT)


def scatter_reduce_(
    self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """`scatter_reduce` in place."""
    return _reduced(self, dim, index, src, reduce, include_self, True, "ScatterReduceBackward0")


register("scatter_reduce", scatter_reduce, method=True, inplace=scatter_reduce_)


def _index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool, in_place: bool
) -> Tensor:
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}.")
    if in_place:
        check_inplace(x, (source,))
    d = vector_dim("index_reduce_", x, dim, index)
    index, source = on_device_of(x, index), on_device_of(x, source)
    check_index_dtype(index, "index_reduce(): Expected dtype int32/int64 for index")
    m, ms = x._tab_meta, source._tab_meta
    if ms.dtype is not m.dtype:
        raise RuntimeError(
            f"index_reduce_(): self ({type_name(m.dtype)}) and source ({type_name(ms.dtype)}) must have the same scalar type"
        )
    if ms.ndim and index._tab_meta.numel != ms.shape[d]:
        raise RuntimeError(
            f"index_reduce(): Number of indices ({index._tab_meta.numel}) should be equal to source.size(dim): ({ms.shape[d]}), "
            f"for dim: {d}"
        )
    if in_place:
        check_overlap(x, (index, source), True)
    check_kernel("index_func_" if include_self else "index_reduce_func_exclude_input_init", m.dtype, REAL_NUMBERS)
    size = m.shape[d] if m.ndim else 1
    if not include_self:  # PyTorch fills those places first, which takes negative indices
        check_range(index, size, -size, range_error(d, IndexError), "index_reduce")
    check_range(index, size, 0, OUT_OF_RANGE, "index_reduce")
    if m.dtype.category in (0, 3):
        raise not_implemented("index_func_" if include_self else "index_reduce_func_exclude_input_init", m.dtype)
    shape = [1] * ms.ndim
    if ms.ndim:
        shape[d] = ms.shape[d]
    wide = index.reshape(shape).expand(ms.shape)
    return _finish(x, d, wide, source, reduce, include_self, in_place, "IndexReduceBackward0")


@with_out
def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """A copy of `input` with the slices of `source` reduced into the slices along `dim` that `index` names."""
    return _index_reduce(input, dim, index, source, reduce, include_self, False)


def index_reduce_(
    self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """`index_reduce` in place."""
    return _index_reduce(self, dim, index, source, reduce, include_self, True)


register("index_reduce", index_reduce, method=True, inplace=index_reduce_)
