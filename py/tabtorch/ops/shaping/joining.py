"""Tensors put together: `cat`, `stack` and their kin, products of sets, `kron`, `block_diag`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.tape import named, record
from tabtorch.base import dtypes
from tabtorch.base.errors import Refused
from tabtorch.core import shapes
from tabtorch.core.layout import contiguous_format, format_strides, memory_format, order_of, suggested_format
from tabtorch.core.shapes import permuted, wrap_dim
from tabtorch.core.tensor import Tensor
from tabtorch.engine.expr import cast, const, minimum, where
from tabtorch.engine.graph import Map, Write, emit, inst
from tabtorch.engine.view import Meta, contiguous_meta, contiguous_strides, meta
from tabtorch.ops.machinery.arguments import class_name
from tabtorch.ops.machinery.operand_devices import device_of, together
from tabtorch.ops.machinery.operation import into, no_grad_with_out
from tabtorch.ops.machinery.out_types import castable
from tabtorch.ops.machinery.registry import NOTHING, overridden, register

#: inputs of one map; more are written one group after another, so that no kernel binds too many buffers
GROUP = 6
_WRITE = Write("write")


# ---- cat and stack


def _cat_at(p: Any) -> Any:
    """Along dimension `static`: a chain of conditions, each input read at a place that is clamped into it."""
    d = p.static
    t = p.inst.out.dtype.compute
    c = p.coords[d]
    out: Any = None
    end = sum(m.shape[d] for m in p.inst.ins)
    for i in range(len(p.inst.ins) - 1, -1, -1):
        n = p.inst.ins[i].shape[d]
        start = end - n
        first = p.dim(start, ("start", i)) if i else const(0, "u32")
        local = c - first if i else c
        coords = [*p.coords[:d], minimum(local, p.dim(n - 1, ("last", i))), *p.coords[d + 1 :]]
        v = cast(p.at(i, coords), t)
        out = v if out is None else where(c < p.dim(end, ("end", i)), v, out)
        end = start
    return out


_CATS = [Map("cat", _cat_at, indexed=True, cost=3 + 3 * n) for n in range(GROUP + 1)]


def _cat_node(metas: Sequence[Meta], nodes: Sequence[Any], d: int, out: Meta) -> Any:
    """Inputs (none empty) joined along `d`, as a node of `out`."""
    if len(metas) <= GROUP:
        return emit(inst(_CATS[len(metas)], tuple(metas), out, (), d), tuple(nodes))
    node: Any = None
    at = 0
    for k in range(0, len(metas), GROUP):
        part, src = metas[k : k + GROUP], nodes[k : k + GROUP]
        n = sum(m.shape[d] for m in part)
        if node is None:  # past its own length the last input is read again; what comes there is overwritten
            node = emit(inst(_CATS[len(part)], tuple(part), out, (), d), tuple(src))
        else:
            small = contiguous_meta((*out.shape[:d], n, *out.shape[d + 1 :]), out.dtype, out.device)
            value = emit(inst(_CATS[len(part)], tuple(part), small, (), d), tuple(src))
            strides = contiguous_strides(out.shape)
            region = meta(small.shape, strides, at * strides[d], out.dtype, out.device)
            node = emit(inst(_WRITE, (out, small), out, (), region), (node, value))
        at += n
    return node


def _tensor_list(name: str, tensors: Any) -> list[Tensor]:
    if isinstance(tensors, Tensor) or not isinstance(tensors, (tuple, list)):
        raise TypeError(
            f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not {type(tensors).__name__}"
        )
    for k, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            raise TypeError(f"expected Tensor as element {k} in argument 0, but got {class_name(t)}")
    return list(tensors)


def _some(name: str, tensors: Any) -> list[Tensor]:
    """The same; RuntimeError where there are none."""
    ts = _tensor_list(name, tensors)
    if not ts:
        raise RuntimeError(f"{name} expects a non-empty TensorList")
    return ts


def _common_dtype(ts: Sequence[Tensor]) -> Any:
    first = ts[0]._tab_meta.dtype
    if all(t._tab_meta.dtype is first for t in ts):
        return first
    dims = [t._tab_meta.dtype for t in ts if t._tab_meta.ndim]
    return dtypes.result_of(dims, [t._tab_meta.dtype for t in ts if not t._tab_meta.ndim], [])


def _common_format(ts: Sequence[Tensor]) -> memory_format:
    """The memory format that all of them suggest; contiguous where they differ."""
    found = {suggested_format(t._tab_meta) for t in ts}
    return found.pop() if len(found) == 1 else contiguous_format


def _as_it_lies(metas: list[Meta], out: Meta, d: int) -> tuple[Sequence[Meta], Meta, int]:
    """Inputs, result and dimension, permuted to the order in which the result lies in memory: kernels write row-major."""
    if out.contiguous:
        return metas, out, d
    order = order_of(suggested_format(out), out.ndim)
    return [permuted(m, order) for m in metas], permuted(out, order), order.index(d)


#: (Metas, how many, dim) -> (Inst, Meta of the result, dimension from the front)
_known: dict[tuple, tuple[Any, Meta, int]] = {}


CAT_OUT = castable("torch.cat(): input types can't be cast to the desired output type {Have}", TypeError)


@register("cat")
def cat(tensors: Any, dim: int = 0, *, out: Tensor | None = None, axis: int | None = None) -> Tensor:
    """Tensors joined along `dim` (or `axis`). Other sizes must agree; 1-d tensors without elements are left out. Types are promoted."""
    if axis is not None:
        dim = axis
    if isinstance(tensors, Tensor):
        raise TypeError("cat(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor")
    if type(dim) is not int and hasattr(dim, "__index__"):  # a 0-d tensor
        dim = dim.__index__()
    entry = key = None
    if type(tensors) is list or type(tensors) is tuple:
        key = (*[t._tab_meta for t in tensors if isinstance(t, Tensor)], len(tensors), dim)
        try:
            entry = _known.get(key)
        except Refused as e:  # one of them has no dense state
            return e.dispatch("cat", (tensors, dim), {} if out is None else {"out": out})
    if entry is not None and out is None:
        i, om, d = entry
        r = Tensor._wrap(emit(i, tuple([t._tab_storage.node for t in tensors])), om)
        if any(t._tab_requires_grad for t in tensors):
            record("CatBackward0", tensors, r, _cat_backward([t._tab_meta for t in tensors], d))
        return r
    try:
        ts = _tensor_list("cat", tensors)
    except (TypeError, AttributeError):
        given: dict[str, Any] = {"dim": dim} if dim else {}
        r = overridden(cat, (tensors,), given if out is None else {**given, "out": out})
        if r is NOTHING:
            raise
        return r
    if out is not None:
        no_grad_with_out("cat", *ts, out)
    if not ts:
        raise ValueError("torch.cat(): expected a non-empty list of Tensors")
    for k, t in enumerate(ts):
        if t._tab_meta.ndim == 0:
            raise RuntimeError(f"zero-dimensional tensor (at position {k}) cannot be concatenated")
    used = [t for t in ts if t._tab_meta.shape != (0,)]
    if not used:
        r = ts[0].new_zeros((0,), dtype=_common_dtype(ts))
        record("CatBackward0", ts, r, _cat_backward([t._tab_meta for t in ts], 0))
        return into(out, r, *ts, rule=CAT_OUT)
    here = together(ts, ("tensors", "cat"))
    if any(t is not u for t, u in zip(here, ts)):
        ts, key = here, None
    used = [t for t in ts if t._tab_meta.shape != (0,)]
    first = used[0]._tab_meta
    d = wrap_dim(dim, first.ndim)
    total = 0
    for k, t in enumerate(ts):
        m = t._tab_meta
        if m.shape == (0,):
            continue
        if m.ndim != first.ndim:
            raise RuntimeError(f"Tensors must have same number of dimensions: got {first.ndim} and {m.ndim}")
        if m.shape[:d] != first.shape[:d] or m.shape[d + 1 :] != first.shape[d + 1 :]:
            j = next(j for j in range(m.ndim) if j != d and m.shape[j] != first.shape[j])
            raise RuntimeError(
                f"Sizes of tensors must match except in dimension {d}. Expected size {first.shape[j]} but got size "
                f"{m.shape[j]} for tensor number {k} in the list."
            )
        total += m.shape[d]
    shape = (*first.shape[:d], total, *first.shape[d + 1 :])
    strides = format_strides(shape, _common_format(ts))
    om = meta(shape, strides, 0, _common_dtype(ts), device_of([t._tab_meta for t in ts]))
    full = [t for t in used if t._tab_meta.numel]
    metas, inner, at = _as_it_lies([t._tab_meta for t in full], om, d)
    if key is not None and len(full) == len(ts) <= GROUP:
        if len(_known) > 20_000:
            _known.clear()
        _known[key] = (inst(_CATS[len(ts)], tuple(metas), inner, (), at), om, d)
    if full:
        r = Tensor._wrap(_cat_node(metas, [t._tab_storage.node for t in full], at, inner), om)
    else:
        r = ts[0].new_zeros(om.shape, dtype=om.dtype)
    if any(t._tab_requires_grad for t in ts):
        record("CatBackward0", ts, r, _cat_backward([t._tab_meta for t in ts], d))
    return into(out, r, *ts, rule=CAT_OUT)


def _cat_backward(metas: list[Meta], d: int) -> tuple[Any, ...]:
    grads: list[Any] = []
    at = 0
    for m in metas:
        if m.shape == (0,):
            grads.append(lambda g: g.new_zeros((0,)))
            continue
        n = m.shape[d]
        grads.append(lambda g, at=at, n=n: g.narrow(d, at, n))
        at += n
    return tuple(grads)


for _name in ("concat", "concatenate"):
    register(_name, cat)


_stacked: set[tuple[Meta, ...]] = set()


def _windows(ts: list[Tensor]) -> Tensor | None:
    """Windows of one storage stacked by a gather: a batch of `data[i : i + size]` at random places.

    Where each lies is then data, so a training loop that draws other places at each step has the same plan in all of them.
    None where it is something else, or the places are those of an earlier call, whose plan is there already.
    """
    first = ts[0]
    node, m = first._tab_storage.node, first._tab_meta
    if m.dtype is not node.inst.out.dtype or not m.ndim:
        return None
    for t in ts:
        n = t._tab_meta
        if (
            t._tab_requires_grad
            or t._tab_storage.node is not node
            or n.strides != m.strides
            or n.dtype is not m.dtype
            or n.mark != m.mark
        ):
            return None
    key = tuple([t._tab_meta for t in ts])
    if key in _stacked:
        return None
    if len(_stacked) > 4096:
        _stacked.clear()
    _stacked.add(key)
    span = sum([(n - 1) * st for n, st in zip(m.shape, m.strides)])
    every = m.view((node.inst.out.numel - span, *m.shape), (1, *m.strides), 0)
    places = _lazy.from_host.from_flat([n.offset for n in key], (len(key),), dtypes.int64, m.device)
    return _lazy.gather.index_prepared(Tensor._view_of(first, every), (places, *(None,) * m.ndim))


def _joined_in_format(ts: list[Tensor], d: int, shape: tuple[int, ...]) -> Tensor | None:
    """A stack as PyTorch makes it, of `cat`, where that gives another layout than row-major; else None."""
    parts = [t.detach() for t in ts] if d < ts[0].ndim else [t.detach().unsqueeze(d) for t in ts]
    if _common_format(parts) is contiguous_format:
        return None
    joined = cat(parts, d)
    return Tensor._wrap(joined._tab_storage.node, shapes.viewed(joined._tab_meta, shape))


cat.guarded = True


@register("stack")
def stack(tensors: Any, dim: int = 0, *, out: Tensor | None = None, axis: int | None = None) -> Tensor:
    """Tensors of one shape as slices along a new dimension `dim` (or `axis`)."""
    if axis is not None:
        dim = axis
    ts = _some("stack", tensors)
    if out is not None:
        no_grad_with_out("stack", *ts, out)
    first = ts[0]._tab_meta
    for k, t in enumerate(ts):
        if t._tab_meta.shape != first.shape:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(first.shape)} at entry 0 and "
                f"{list(t._tab_meta.shape)} at entry {k}"
            )
    d = wrap_dim(dim, first.ndim + 1)
    try:
        return _stack_of(ts, d, out)
    except Refused as e:  # one of them has no dense state
        return e.dispatch("stack", (ts, d), {} if out is None else {"out": out})


def _stack_of(ts: list[Tensor], d: int, out: Tensor | None) -> Tensor:
    ts = together(ts, ("tensors", "cat"))
    first = ts[0]._tab_meta
    om = contiguous_meta(
        (*first.shape[:d], len(ts), *first.shape[d:]), _common_dtype(ts), device_of([t._tab_meta for t in ts])
    )
    r = _windows(ts) if d == 0 and len(ts) > 1 and om.numel else None
    if r is not None:
        return into(out, r, *ts, rule=CAT_OUT)
    if om.numel and not all(t._tab_meta.contiguous for t in ts):
        r = _joined_in_format(ts, d, om.shape)
    if r is None and om.numel:
        metas = [shapes.unsqueezed(t._tab_meta, d) for t in ts]
        r = Tensor._wrap(_cat_node(metas, [t._tab_storage.node for t in ts], d, om), om)
    elif r is None:
        r = ts[0].new_zeros(om.shape, dtype=om.dtype)
    if any(t._tab_requires_grad for t in ts):
        record("StackBackward0", ts, r, tuple([lambda g, k=k: g.select(d, k) for k in range(len(ts))]))
    return into(out, r, *ts, rule=CAT_OUT)


@register("hstack")
def hstack(tensors: Any, *, out: Tensor | None = None) -> Tensor:
    """Tensors joined along columns (dimension 1, or 0 of vectors)."""
    ts = [t if t._tab_meta.ndim else t.reshape(1) for t in _some("hstack", tensors)]
    return cat(ts, 0 if ts[0]._tab_meta.ndim == 1 else 1, out=out)


@register("vstack")
def vstack(tensors: Any, *, out: Tensor | None = None) -> Tensor:
    """Tensors joined along rows; a vector counts as a row."""
    return cat([_lazy.core_views.atleast_2d(t) for t in _some("vstack", tensors)], 0, out=out)


register("row_stack", vstack)


@register("dstack")
def dstack(tensors: Any, *, out: Tensor | None = None) -> Tensor:
    """Tensors joined along dimension 2."""
    return cat([_lazy.core_views.atleast_3d(t) for t in _some("dstack", tensors)], 2, out=out)


@register("column_stack")
def column_stack(tensors: Any, *, out: Tensor | None = None) -> Tensor:
    """Vectors as the columns of a matrix; matrices joined along columns."""
    return cat(
        [t.reshape(t.numel(), 1) if t._tab_meta.ndim <= 1 else t for t in _some("column_stack", tensors)], 1, out=out
    )


# ---- products of sets


@register("meshgrid")
def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Coordinate grids of vectors, as views: "ij" is matrix order; "xy" exchanges the first two dimensions."""
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tuple(tensors[0])
    if not tensors:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    if indexing not in (None, "ij", "xy"):
        raise RuntimeError(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    for t in tensors:
        if t._tab_meta.ndim > 1:
            raise RuntimeError(
                f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got:  {t._tab_meta.ndim}"
            )
        for what in ("dtype", "device"):
            if getattr(t, what) != getattr(tensors[0], what):
                raise RuntimeError(f"meshgrid expects all tensors to have the same {what}")
    ts = list(tensors)
    swap = indexing == "xy" and len(ts) >= 2
    if swap:
        ts[0], ts[1] = ts[1], ts[0]
    shape = [t._tab_meta.numel for t in ts]
    out = [t.reshape([-1 if k == j else 1 for j in range(len(ts))]).expand(shape) for k, t in enumerate(ts)]
    if swap:
        out[0], out[1] = out[1], out[0]
    return tuple(out)


@register("cartesian_prod")
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All combinations of elements of vectors, one a row."""
    for t in tensors:
        if t._tab_meta.ndim != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(t._tab_meta.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    return stack([g.reshape(-1) for g in meshgrid(*tensors, indexing="ij")], 1)


@register("combinations")
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All combinations of r elements of a vector, one a row."""
    import itertools

    if input._tab_meta.ndim != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(input._tab_meta.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return input.new_empty((0,))
    make = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(make(range(input._tab_meta.shape[0]), r))
    if not rows:
        return input.narrow(0, 0, 0).unsqueeze(1).expand(0, r).clone()
    cols = [_lazy.creation.tensor(list(c), device=input.device) for c in zip(*rows)]
    return stack([input.index_select(0, c) for c in cols], 1)


@register("kron")
def kron(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The Kronecker product."""
    a, b = list(input._tab_meta.shape), list(other._tab_meta.shape)
    n = max(len(a), len(b))
    a, b = [1] * (n - len(a)) + a, [1] * (n - len(b)) + b
    x = input.reshape([v for s in a for v in (s, 1)])
    y = other.reshape([v for s in b for v in (1, s)])
    return into(out, named((x * y).reshape([p * q for p, q in zip(a, b)]), "UnsafeViewBackward0"))


@register("block_diag")
def block_diag(*tensors: Any) -> Tensor:
    """Matrices along the diagonal of one matrix; a vector counts as a row."""
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tuple(tensors[0])
    ts = [_lazy.core_views.atleast_2d(t) for t in tensors]
    for k, t in enumerate(ts):
        if t._tab_meta.ndim > 2:
            raise RuntimeError(
                "torch.block_diag: Input tensors must have 2 or fewer dimensions. "
                f"Input {k} has {t._tab_meta.ndim} dimensions"
            )
    d = _common_dtype(ts)
    cols = sum(t._tab_meta.shape[1] for t in ts)
    rows = []
    at = 0
    for t in ts:
        n, m = t._tab_meta.shape
        rows.append(_lazy.slices.embed(t.to(d), (n, cols), ((0, n, 1), (at, m, 1))))
        at += m
    return cat(rows, 0)
