"""Writing at places that depend on data: `index_put`, `scatter`, `scatter_add`, and what `index_writes` makes of them.

Each has an in-place form. Sums and comparisons of types that have no atomics (16- and 8-bit ones) are made in a 32-bit type
and converted back.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.grad_mode import STATE
from tabtorch.autograd.tape import record
from tabtorch.autograd.views import before_write, check_inplace, rebase
from tabtorch.base import dtypes
from tabtorch.core import shapes
from tabtorch.core.shapes import type_name
from tabtorch.core.tensor import Tensor
from tabtorch.engine.graph import emit, inst
from tabtorch.engine.view import Meta, contiguous_meta, started
from tabtorch.ops.compatibility.settings import deterministic
from tabtorch.ops.indexing.gather import check_index_shape, index_prepared, prepared, range_error
from tabtorch.ops.indexing.index_maps import check_range, expanded, layout, lines
from tabtorch.ops.indexing.scatter_kernels import INDEX_PUT, SCATTER
from tabtorch.ops.machinery.inplace import check_overlap, repeated, set_node
from tabtorch.ops.machinery.operand_devices import on_device_of
from tabtorch.ops.machinery.operation import with_out
from tabtorch.ops.machinery.registry import register
from tabtorch.ops.shaping.convert import as_cloned, converted

#: types without atomics -> the type sums are made in
_WIDER = {
    "float16": dtypes.float32,
    "bfloat16": dtypes.float32,
    "bool": dtypes.int32,
    "uint8": dtypes.int32,
    "int8": dtypes.int32,
    "int16": dtypes.int32,
}


# ---- one way for the new tensor and for the write in place


def base_node(x: Tensor) -> Any:
    """A node with the elements of `x` in row-major order, and no others."""
    return converted(x, x._tab_meta.shape, x._tab_meta.dtype)._tab_storage.node


def finish(
    x: Tensor,
    node: Callable[[Tensor], Any],
    in_place: bool,
    name: str,
    others: tuple[Tensor | None, ...],
    grads: tuple[Callable[..., Any] | None, ...],
    saved: tuple[Tensor | None, ...] = (),
    noticed: tuple[Tensor | None, ...] = (),
    cloned: bool = False,
) -> Tensor:
    """`x` changed by an operation: as a new tensor, or in place, with its gradient for `x` and `others` on the tape.

    cloned: to PyTorch the new tensor is a clone of `x`, changed in place, so that it is laid out as one.

    node: makes the new value, of shape and dtype of `x`. saved, noticed: as for `tape.record`.
    """
    recorded = STATE.grad and (x._tab_requires_grad or any(t is not None and t._tab_requires_grad for t in others))
    if not in_place:
        m = x._tab_meta
        r = Tensor._wrap(node(x), contiguous_meta(m.shape, m.dtype, m.device))
        if cloned and r._tab_meta is not m:
            r = as_cloned(r, m)
        if recorded:
            record(name, (x, *others), r, grads, saved, noticed)
        return r
    check_inplace(x, others)
    new = node(x)
    fn = None
    if recorded:
        fn = record(name, (before_write(x), *others), Tensor._view_of(x, x._tab_meta), grads, saved, noticed)
    set_node(x, new)
    if fn is not None:
        rebase(x, fn)
    return x


# ---- index_put


def index_put_node(x: Tensor, indices: tuple[Tensor | None, ...], values: Any, accumulate: bool) -> Any:
    """The value of `x` after `x[indices] = values`. `values`: a tensor that broadcasts, or a Python number."""
    m = x._tab_meta
    wide = _WIDER.get(m.dtype.name) if accumulate else None
    if wide is not None:
        v = values.to(wide) if isinstance(values, Tensor) else values
        node = index_put_node(x.detach().to(wide), indices, v, True)
        return base_node(Tensor._wrap(node, contiguous_meta(m.shape, wide, m.device)).to(m.dtype))
    given = [t for t in indices if t is not None]
    out = contiguous_meta(m.shape, m.dtype, m.device)
    base = base_node(x)
    metas = tuple(None if t is None else t._tab_meta for t in indices)
    lay = layout(out, metas)
    like = layout(out, tuple(m and started(m) for m in metas))  # the same wherever the views begin
    static = (like, "add" if accumulate else "set", deterministic())
    nodes = tuple(t._tab_storage.node for t in given)
    n = 1
    for s in lay.domain:
        n *= s
    if n == 0:
        return base_node(x.detach().clone())
    if not isinstance(values, Tensor):
        i = inst(INDEX_PUT, (out, *lay.ins), out, (m.dtype.compute,), static)
        return emit(i, (base, *nodes), (values,))
    vm, vnode = _values(values, lay.shape, lay.domain)
    return emit(inst(INDEX_PUT, (out, *lay.ins, vm), out, (), static), (base, *nodes, vnode))


def _values(values: Tensor, shape: tuple[int, ...], domain: tuple[int, ...]) -> tuple[Meta, Any]:
    """`values` broadcast to `shape` and seen as `domain`, copied only where its strides demand it."""
    m = expanded(values._tab_meta, shape)
    r = shapes.reshaped(m, tuple(domain))
    if r is not False:
        return r, values._tab_storage.node
    t = Tensor._view_of(values, m).contiguous()
    return shapes.viewed(t._tab_meta, tuple(domain)), t._tab_storage.node


def index_put_prepared(x: Tensor, indices: tuple[Tensor | None, ...], values: Tensor, accumulate: bool) -> Tensor:
    """`index_put` of what `prepared` gave."""
    return _index_put(x, indices, values, accumulate, False)


def _index_put(
    x: Tensor,
    indices: tuple[Tensor | None, ...],
    values: Any,
    accumulate: bool,
    in_place: bool,
    originals: tuple[Tensor | None, ...] = (),
) -> Tensor:
    given = tuple(t for t in indices if t is not None)
    holes = tuple(t is None for t in indices)

    first = tuple(t for t in originals if t is not None)

    def again(saved: tuple[Tensor, ...]) -> tuple[Tensor | None, ...]:
        rest = iter(saved[len(first) :])
        return tuple(None if h else next(rest) for h in holes)

    def self_grad(g: Tensor, *saved: Tensor) -> Tensor:
        return g if accumulate else _index_put(g, again(saved), g.new_zeros(()), False, False)

    def values_grad(g: Tensor, *saved: Tensor) -> Tensor:
        return index_prepared(g, again(saved))

    v = values if isinstance(values, Tensor) else None
    return finish(
        x,
        lambda t: index_put_node(t, indices, values, accumulate),
        in_place,
        "IndexPutBackward0",
        (v,),
        (self_grad, values_grad),
        (*first, *given),
        cloned=True,
    )


def put_at(x: Tensor, indices: Any, values: Any, accumulate: bool, in_place: bool) -> Tensor:
    """`index_put` with PyTorch's checks; `values` may be a Python number that fits the dtype."""
    if in_place:
        check_inplace(x, (values,))
    ready = prepared(x, indices, "index_put")
    if in_place:
        alike = not accumulate and (not isinstance(values, Tensor) or values._tab_meta.numel == 1)
        same = all(alike and (d >= len(ready) or ready[d] is None) for d in repeated(x._tab_meta))
        check_overlap(x, (values, *indices), True, same)
    if isinstance(values, Tensor):
        m, vm = x._tab_meta, values._tab_meta
        if vm.dtype is not m.dtype:
            raise RuntimeError(
                f"Index put requires the source and destination dtypes match, got {type_name(m.dtype)} for the destination "
                f"and {type_name(vm.dtype)} for the source."
            )
        values = on_device_of(x, values, scalars=True)
        out = contiguous_meta(m.shape, m.dtype, m.device)
        if any(t is not None for t in ready):
            shape = layout(out, tuple(None if t is None else t._tab_meta for t in ready)).shape
        else:
            shape = tuple(m.shape)
        values = _broadcast_values(values, shape)
    if not any(t is not None for t in ready):
        if accumulate:
            return x.add_(values) if in_place else x + values
        target = x if in_place else x.clone()
        return target.copy_(values) if isinstance(values, Tensor) else target.fill_(values)
    return _index_put(x, ready, values, accumulate, in_place, tuple(indices))


def _broadcast_values(values: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`values` without leading dimensions of size 1 that `shape` has not; RuntimeError if it does not broadcast."""
    have = tuple(values._tab_meta.shape)
    extra = len(have) - len(shape)
    small = have[extra:] if extra > 0 and all(n == 1 for n in have[:extra]) else have
    ok = len(small) <= len(shape) and all(a in (1, b) for a, b in zip(reversed(small), reversed(shape)))
    if not ok:
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(have)} cannot be broadcast to indexing result of shape {list(shape)}"
        )
    return values if small == have else values.reshape(small)


def index_put(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of `input` with `values` put (or added) at the indices, a tuple of tensors. Raises IndexError, RuntimeError."""
    _check_indices(indices)
    return put_at(input, indices, values, accumulate, False)


def _check_indices(indices: Any) -> None:
    for k, t in enumerate(indices):
        if not isinstance(t, Tensor):
            raise TypeError(f"expected Tensor as element {k} in argument 0, but got {type(t).__name__}")


def index_put_(self: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """`index_put` in place."""
    _check_indices(indices)
    return put_at(self, indices, values, accumulate, True)


register("index_put", index_put, method=True, inplace=index_put_)

# ---- scatter


def _scatter(
    name: str, x: Tensor, dim: int, index: Tensor, src: Any, mode: str, in_place: bool, grad_name: str
) -> Tensor:
    if in_place:
        check_inplace(x, (src,))
    d = check_index_shape("scatter", x, dim, index, "self")
    index, src = on_device_of(x, index), on_device_of(x, src)
    m, mi = x._tab_meta, index._tab_meta
    tensor_src = src if isinstance(src, Tensor) else None
    if tensor_src is not None:
        _check_src(x, index, tensor_src, d)
    if in_place:
        check_overlap(x, (index, src), True)
    if mi.numel == 0:
        if in_place:
            grads = (lambda g, i: g, lambda g, i: g.new_zeros(index.shape))
            saved = index if mode != "add" or (tensor_src is not None and tensor_src._tab_requires_grad) else None
            return finish(x, base_node, True, grad_name, (tensor_src,), grads, (saved,))
        r = x.detach().clone()
        record(grad_name, (x, tensor_src), r, (lambda g: g, lambda g: g.new_zeros(index.shape)))
        return r
    if mi.ndim:
        for k in range(m.ndim):
            if k != d and mi.shape[k] > m.shape[k]:
                tail = f" and to be no larger size than src {list(src.shape)}" if tensor_src is not None else ""
                raise RuntimeError(
                    f"Expected index {list(mi.shape)} to be no larger than self {list(m.shape)} apart from dimension {d}{tail}"
                )
    n = m.shape[d] if m.ndim else 1
    check_range(index, n, 0, range_error(d), name)

    def self_grad(g: Tensor, i: Tensor) -> Tensor:
        return g if mode == "add" else scatter(g, d, i, 0)

    def src_grad(g: Tensor, i: Tensor) -> Tensor:
        return g.gather(d, i)  # of another shape than `src`, as PyTorch's, where `src` is larger than the index

    return finish(
        x,
        lambda t: _scatter_node(t, d, index, src, mode),
        in_place,
        grad_name,
        (tensor_src,),
        (self_grad, src_grad),
        (index if mode != "add" or (tensor_src is not None and tensor_src._tab_requires_grad) else None,),
    )


def _check_src(x: Tensor, index: Tensor, src: Tensor, d: int) -> None:
    m, mi, ms = x._tab_meta, index._tab_meta, src._tab_meta
    if ms.dtype is not m.dtype:
        raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")
    if mi.numel == 0:
        return
    if max(ms.ndim, 1) != max(mi.ndim, 1):
        raise RuntimeError("Index tensor must have the same number of dimensions as src tensor")
    if mi.ndim and ms.ndim and any(a > b for a, b in zip(mi.shape, ms.shape)):
        raise RuntimeError(
            f"Expected index {list(mi.shape)} to be no larger than self {list(m.shape)} apart from dimension {d} and to be "
            f"no larger size than src {list(ms.shape)}"
        )


def _scatter_node(x: Tensor, d: int, index: Tensor, src: Any, mode: str) -> Any:
    m = x._tab_meta
    wide = _WIDER.get(m.dtype.name) if mode != "set" else None
    if wide is not None:
        v = src.detach().to(wide) if isinstance(src, Tensor) else src
        node = _scatter_node(x.detach().to(wide), d, index, v, mode)
        return base_node(Tensor._wrap(node, contiguous_meta(m.shape, wide, m.device)).to(m.dtype))
    if m.dtype.is_complex and mode not in ("set", "add"):
        raise NotImplementedError(f"scatter with reduce='{mode}' of complex numbers is not supported by tabtorch")
    base = base_node(x)
    out = contiguous_meta(m.shape, m.dtype, m.device)
    shown, mi = out, index._tab_meta
    ms = src._tab_meta if isinstance(src, Tensor) else None
    if m.ndim == 0:
        out = contiguous_meta((1,), m.dtype, m.device)
    if mi.ndim == 0:
        mi = shapes.viewed(mi, (1,))
    if ms is not None:
        if ms.ndim == 0:
            ms = shapes.viewed(ms, (1,))
        for k, n in enumerate(mi.shape):
            if ms.shape[k] != n:
                ms = shapes.narrowed(ms, k, 0, n)
    small = lines([out, mi] + ([ms] if ms is not None else []), d) if out.ndim > 1 else None
    if small is not None:
        out, mi = small[0], small[1]
        ms = small[2] if ms is not None else None
        d = 1
    static = (d, mode, out, deterministic())
    if ms is None:
        return emit(
            inst(SCATTER, (shown, mi), shown, (m.dtype.compute,), static), (base, index._tab_storage.node), (src,)
        )
    i = inst(SCATTER, (shown, mi, ms), shown, (), static)
    return emit(i, (base, index._tab_storage.node, src._tab_storage.node))


_REDUCE_NAMES = {"add": "add", "multiply": "prod"}


def _scatter_any(
    x: Tensor, dim: int, index: Tensor, src: Any, reduce: str | None, in_place: bool, value: Any
) -> Tensor:
    if src is None:
        src = value
    name = "ScatterBackward0" if isinstance(src, Tensor) else "ScatterBackward1"
    if isinstance(src, Tensor) and src._tab_meta.ndim == 0 and index._tab_meta.ndim > 0 and reduce is None:
        raise RuntimeError("Index tensor must have the same number of dimensions as src tensor")
    if not isinstance(src, Tensor):
        src = _lazy.creation.number(src, x._tab_meta.dtype)
    if reduce is None:
        return _scatter("scatter", x, dim, index, src, "set", in_place, name)
    if reduce not in _REDUCE_NAMES:
        raise RuntimeError("reduce argument must be either add or multiply.")
    if isinstance(src, Tensor):
        warnings.warn(
            "The reduce argument of torch.scatter with Tensor src is deprecated and will be removed in a future PyTorch "
            "release. Use torch.scatter_reduce instead for more reduction options.",
            UserWarning,
            stacklevel=3,
        )
    if reduce == "multiply" and (x._tab_requires_grad or (isinstance(src, Tensor) and src._tab_requires_grad)):
        raise NotImplementedError("the derivative of scatter with reduce='multiply' is not there, as in PyTorch")
    return _scatter("scatter", x, dim, index, src, _REDUCE_NAMES[reduce], in_place, name)


@with_out
def scatter(
    input: Tensor, dim: int, index: Tensor, src: Any = None, *, reduce: str | None = None, value: Any = None
) -> Tensor:
    """A copy of `input` with `out[i][index[i][j][k]][k] = src[i][j][k]` (dim=1); `src` may be a number.

    Raises RuntimeError where shapes or dtypes do not agree, or for an index known to be out of range.
    """
    return _scatter_any(input, dim, index, src, reduce, False, value)


def scatter_(
    self: Tensor, dim: int, index: Tensor, src: Any = None, *, reduce: str | None = None, value: Any = None
) -> Tensor:
    """`scatter` in place."""
    return _scatter_any(self, dim, index, src, reduce, True, value)


@with_out
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy of `input` with `src` added at the places that `index` gives along `dim`."""
    return _scatter("scatter_add", input, dim, index, src, "add", False, "ScatterAddBackward0")


def scatter_add_(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """`scatter_add` in place."""
    return _scatter("scatter_add", self, dim, index, src, "add", True, "ScatterAddBackward0")


register("scatter", scatter, method=True, inplace=scatter_)
register("scatter_add", scatter_add, method=True, inplace=scatter_add_)
