"""Reading at places that depend on data: advanced indexing, `gather`, `index_select`, `take`, embedding.

Each is one indexed map, so what computes the source, or uses the result, can be in the same kernel. Gradients scatter.
"""

from __future__ import annotations

from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.tape import own, record
from tabtorch.base import dtypes
from tabtorch.core.shapes import type_name, wrap_dim
from tabtorch.core.tensor import Tensor
from tabtorch.engine.graph import Map, emit, inst
from tabtorch.engine.view import (
    Meta,
    broadcast_shapes,
    contiguous_meta,
    contiguous_strides,
    meta,
    started,
    view_strides,
)
from tabtorch.ops.indexing.index_maps import (
    check_range,
    expanded,
    host_values,
    layout,
    lines,
    result_meta,
    source_coords,
    wrapped,
)
from tabtorch.ops.machinery.asserts import Complaint
from tabtorch.ops.machinery.operand_devices import on_device_of
from tabtorch.ops.machinery.out_types import EXACT, Rule, same
from tabtorch.ops.machinery.registry import register
from tabtorch.ops.shaping.convert import in_order

_SELECT = Complaint(RuntimeError, "INDICES element is out of DATA bounds, id={i} axis_dim={n}")
#: where PyTorch names neither the index nor the size
OUT_OF_RANGE = Complaint(IndexError, "index out of range in self")

# ---- advanced indexing


def _index_at(p: Any) -> Any:
    lay = p.static
    coords = source_coords(p.k, lay, p.coords, lambda j, c: p.at(1 + j, c), lambda v, role: p.dim(v, role))
    return p.at(0, coords)


_INDEX = Map("index", _index_at, indexed=True, cost=10)


#: (Meta of the source, Metas of the indices) -> (Inst, Meta of the result)
_ready: dict[tuple, tuple[Any, Meta, Any]] = {}


def prepared(x: Tensor, indices: Any, operation: str = "index") -> tuple[Tensor | None, ...]:
    """Index tensors as the kernels take them: masks as coordinates, all of one shape, on the device of `x`, in range.

    Raises PyTorch's IndexError; `operation` is what it names. The result has None for dimensions that are kept.
    """
    shape = x._tab_meta.shape
    out: list[Tensor | None] = []
    found: set[int] = set()  # dimensions whose coordinates come of a mask, and are good
    for t in indices:
        if t is None:
            out.append(None)
            continue
        d = t._tab_meta.dtype
        if d is dtypes.bool_ or d is dtypes.uint8:
            for k, n in enumerate(t._tab_meta.shape):
                at = len(out) + k
                if at >= len(shape) or n != shape[at]:
                    if at >= len(shape):
                        raise IndexError(f"too many indices for tensor of dimension {len(shape)}")
                    raise IndexError(
                        f"The shape of the mask {list(t._tab_meta.shape)} at index {k} does not match the shape of the indexed "
                        f"tensor {list(shape)} at index {at}"
                    )
            places = _lazy.nonzero.nonzero_tuple(t)
            found.update(range(len(out), len(out) + len(places)))
            out.extend(places)
        elif d is dtypes.int64 or d is dtypes.int32:
            out.append(t)
        else:
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    while out and out[-1] is None:
        out.pop()
    if len(out) > len(shape):
        raise IndexError(f"too many indices for tensor of dimension {len(shape)} (got {len(out)})")
    given = [t for t in out if t is not None]
    common: tuple[int, ...] = ()
    if len(given) > 1:
        try:
            common = broadcast_shapes(*(t._tab_meta.shape for t in given))
        except RuntimeError:
            raise IndexError(
                "shape mismatch: indexing tensors could not be broadcast together with shapes "
                + ", ".join(str(list(t._tab_meta.shape)) for t in given)
            ) from None
    elif given:
        common = given[0]._tab_meta.shape
    nth = -1
    for d, t in enumerate(out):
        if t is None:
            continue
        nth += 1
        if shape[d] == 0 and 0 not in common:
            raise IndexError("index is out of bounds for dimension with size 0")
        if x._tab_meta.numel and d not in found:
            check_range(t, shape[d], -shape[d], range_error(nth, IndexError), operation)  # PyTorch counts the indices
        here, there = x._tab_meta.device, t._tab_meta.device
        if there.number != here.number:
            if there.type != "cpu" and not (here.implicit or there.implicit):
                raise RuntimeError(
                    f"indices should be either on {here.public} or on the same device as the indexed tensor ({here.public})"
                )
            t = t.to(here)
        m = expanded(t._tab_meta, common)
        out[d] = t if m is t._tab_meta else Tensor._view_of(t, m)
    return tuple(out)


def index(x: Tensor, indices: Any) -> Tensor:
    """`x[indices]` for a tuple of index tensors, None where a dimension is kept."""
    return index_prepared(x, prepared(x, indices), originals=indices)


def index_prepared(
    x: Tensor, indices: tuple[Tensor | None, ...], name: str = "IndexBackward0", originals: Any = None
) -> Tensor:
    """The same, of what `prepared` gave; row by row, unless it is that index itself.

    originals: the index, as `prepared` was given it: it must not change before backward, and says how the result is laid out.
    """
    given = [t for t in indices if t is not None]
    m = x._tab_meta
    if not given:
        return x.clone()
    key = (m, *[None if t is None else t._tab_meta for t in indices])
    entry = _ready.get(key)
    if entry is None:
        lay = layout(m, key[1:])
        flat, shown = result_meta(lay, m.dtype, m.device)
        if len(_ready) > 20_000:
            _ready.clear()
        like = layout(started(m), tuple(t and started(t) for t in key[1:]))  # the same wherever the views begin
        i = inst(_INDEX, (lay.source, *lay.ins), flat, (), like)
        entry = _ready[key] = (i, shown, _order(m, key[1:], shown.shape))
    i, shown, order = entry
    if shown.numel == 0 or m.numel == 0:
        r = x.new_empty(shown.shape)
    else:
        r = Tensor._wrap(emit(i, (x._tab_storage.node, *(t._tab_storage.node for t in given))), shown)
    if order is not None and originals is not None:
        r = _lazy.convert.converted(r, shown.shape, m.dtype, order)
    if x._tab_requires_grad:
        shape = m.shape
        holes = tuple(t is None for t in indices)

        first = tuple(t for t in originals or () if t is not None)

        def backward(g: Tensor, *saved: Tensor) -> Tensor:
            rest = iter(saved[len(first) :])
            return _spread(g, shape, tuple(None if h else next(rest) for h in holes))

        record(name, (x,), r, backward, (*first, *given))
    return r


def _order(m: Meta, given: tuple[Meta | None, ...], shape: tuple[int, ...]) -> Any:
    """The order of dimensions in which PyTorch lays out `x[given]`: that of what is read, then that of the indices."""
    at = [d for d, i in enumerate(given) if i is not None]
    lead = at[0] if at[-1] - at[0] + 1 == len(at) else 0
    ins = [i for i in given if i is not None]
    n = ins[0].ndim
    kept = [st for d, st in enumerate(m.strides) if d >= len(given) or given[d] is None]
    zeros = (0,) * n
    read = meta(shape, (*kept[:lead], *zeros, *kept[lead:]), 0, m.dtype, m.device)
    places = []
    for i in ins:  # as PyTorch reshapes it: a dimension of size 1 has a stride
        wide = (*(1,) * lead, *i.shape, *(1,) * (len(shape) - lead - n))
        strides = view_strides(i, wide) or contiguous_strides(wide)
        places.append(
            meta(shape, tuple([st if a == b else 0 for st, a, b in zip(strides, wide, shape)]), 0, i.dtype, i.device)
        )
    return _lazy.dispatch.layout_of([read, *places], shape, True)


def _spread(g: Tensor, shape: tuple[int, ...], indices: tuple[Tensor | None, ...]) -> Tensor:
    """The gradient of `index`: zeros with `g` added at the indices."""
    return _lazy.scatter.index_put_prepared(g.new_zeros(shape), indices, g, True)


# ---- along one dimension


def check_index_dtype(index: Tensor, message: str, error: type[Exception] = RuntimeError, long: bool = False) -> None:
    """Raises `message` unless the index is int64 or (not where it has to be `long`) int32."""
    if index._tab_meta.dtype is not dtypes.int64 and (long or index._tab_meta.dtype is not dtypes.int32):
        raise error(message)


def check_index_shape(name: str, x: Tensor, dim: int, index: Tensor, what: str = "input") -> int:
    """Checks of `gather` and `scatter`; returns the dimension counted from the front."""
    m, mi = x._tab_meta, index._tab_meta
    d = wrap_dim(dim, m.ndim)
    if mi.numel == 0:  # of any dtype
        return d
    check_index_dtype(index, f"{name}(): Expected dtype int32/int64 for index")
    if max(m.ndim, 1) != max(mi.ndim, 1):
        raise RuntimeError(f"Index tensor must have the same number of dimensions as {what} tensor")
    return d


def _gather_at(p: Any) -> Any:
    d, n = p.static
    i = wrapped(p.value(1), p.dim(n, "n"), p.dim(n - 1, "last"), False)
    c = list(p.coords)
    c[d] = p.k.let(i, "at")
    return p.at(0, c)


_GATHER = Map("gather", _gather_at, indexed=True, cost=8, sized=True)


def range_error(d: int, error: type[Exception] = RuntimeError, who: str = "") -> Complaint:
    """The exception for an index out of range along dimension `d`."""
    return Complaint(error, f"{who}index {{i}} is out of bounds for dimension {d} with size {{n}}")


@register("gather", method=True)
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False, out: Tensor | None = None) -> Tensor:
    """`out[i][j][k] = input[i][index[i][j][k]][k]` for dim=1; the result has the shape of `index`.

    sparse_grad: whether the gradient of `input` is a sparse COO tensor.

    Raises RuntimeError where shapes do not agree, or for an index known to be out of range.
    """
    _no_grad("gather", out, input, index)
    d = check_index_shape("gather", input, dim, index)
    m, mi = input._tab_meta, index._tab_meta
    if mi.numel:
        for k in range(m.ndim):
            if k != d and mi.shape[k] > m.shape[k]:
                raise RuntimeError(
                    f"Size does not match at dimension {k} expected index {list(mi.shape)} to be no larger than self "
                    f"{list(m.shape)} apart from dimension {d}"
                )
        check_range(index, m.shape[d] if m.ndim else 1, 0, range_error(d), "gather")
    index = on_device_of(input, index, ("index", "gather"))
    mi = index._tab_meta
    shown = contiguous_meta(mi.shape, m.dtype, m.device)
    if mi.numel == 0:
        r = input.new_empty(mi.shape)
    else:
        if m.ndim == 0:
            m = Tensor._view_of(input, m).reshape(1)._tab_meta
        if mi.ndim == 0:
            mi = index.detach().reshape(1)._tab_meta
        small = lines([m, mi], d) if m.ndim > 1 else None
        if small is not None:
            m, mi, axis = small[0], small[1], 1
        else:
            axis = d
        flat = contiguous_meta(mi.shape, m.dtype, m.device)
        i = inst(_GATHER, (m, mi), flat, (), (axis, m.shape[axis]))
        r = Tensor._wrap(emit(i, (input._tab_storage.node, index._tab_storage.node)), shown)
    if input._tab_requires_grad:
        shape = input._tab_meta.shape

        def backward(g: Any, i: Any) -> Any:
            if sparse_grad:
                return _lazy.sparse_embeddings.gathered_gradient(g, d, i, shape)
            return g.new_zeros(shape).scatter_add(d, i, g)

        record("GatherBackward0", (input,), r, backward, (index,), (input,))
    return _out(r, out, input, index, rule=EXACT)


_SELECT_OUT = same("index_select(): self and result must have the same scalar type")


def _out(r: Tensor, out: Tensor | None, *inputs: Tensor, rule: Rule) -> Tensor:
    if out is None:
        return r
    return _lazy.operation.into(out, r, *inputs, rule=rule)


def _no_grad(name: str, out: Tensor | None, *inputs: Tensor) -> None:
    """What PyTorch says of `out=` before it looks at anything else."""
    if out is not None:
        _lazy.operation.no_grad_with_out(name, *inputs, out)


@register("take_along_dim", method=True)
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None, *, out: Tensor | None = None) -> Tensor:
    """`gather` with both broadcast and indices modulo the size, as PyTorch takes them; with no `dim`, of the flattened input,
    where they have to be in range."""
    _no_grad("take_along_dim", out)
    check_index_dtype(
        indices, "torch.take_along_dim(): dtype of indices should be Long but got " + type_name(indices.dtype)
    )
    if dim is None:
        return _out(gather(input.reshape(-1), 0, indices.reshape(-1)), out, rule=EXACT)
    a, b = input._tab_meta.ndim, indices._tab_meta.ndim
    if a != b:
        raise RuntimeError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, "
            f"but got {a} dimensions for input, and {b} dimensions for indices"
        )
    d = wrap_dim(dim, a)
    sa, sb = list(input._tab_meta.shape), list(indices._tab_meta.shape)
    n = sa[d]
    sb_d, sb[d] = sb[d], n
    common = list(broadcast_shapes(tuple(sa), tuple(sb)))
    wide = input.expand(common)
    common[d] = sb_d
    return _out(gather(wide, d, _positive(indices.expand(common), n)), out, rule=EXACT)


def _positive(i: Any, n: int) -> Any:
    """Indices modulo `n`; the values stay known where they were."""
    values = host_values(i)
    if values is None:
        return i.remainder(n) if n else i
    if not len(values) or (min(values) >= 0 and max(values) < n):
        return i
    return _lazy.creation.tensor([v % n for v in values], dtype=i.dtype, device=i.device).reshape(i.shape)


@register("index_select", method=True)
def index_select(input: Tensor, dim: int, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The slices of `input` along `dim` that a vector of indices names. Raises IndexError for one known to be out of range."""
    _no_grad("index_select", out, input, index)
    m = input._tab_meta
    d = wrap_dim(dim, m.ndim)
    if index._tab_meta.ndim > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    check_index_dtype(index, "index_select(): Expected dtype int32 or int64 for index")
    index = on_device_of(input, index, ("index", "_index_select"))
    if m.ndim == 0:
        if index._tab_meta.numel != 1:
            raise RuntimeError(
                f"index_select(): Index to scalar can have only 1 value, got {index._tab_meta.numel} value(s)"
            )
        check_range(index, 1, 0, OUT_OF_RANGE, "index_select")
        r = input.detach().clone()
        record("IndexSelectBackward0", (input,), r, lambda g, i: g, (index,))
        return _out(r, out, input, index, rule=_SELECT_OUT)
    check_range(index, m.shape[d], 0, _SELECT if d == 1 else OUT_OF_RANGE, "index_select")
    i = index if index._tab_meta.ndim else index.reshape(1)
    r = index_prepared(input.detach(), (*(None,) * d, i))
    if input._tab_requires_grad:
        shape = m.shape
        record("IndexSelectBackward0", (input,), r, lambda g, i: g.new_zeros(shape).index_add(d, i, g), (index,))
    return _out(r, out, input, index, rule=_SELECT_OUT)


_TAKE_OUT = same(
    "take(): self and out expected to have the same dtype, but got self.dtype = {Want} and out.dtype = {Have}"
)


@register("take", method=True)
def take(input: Tensor, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The elements at flat indices; the result has the shape of `index`. Negative indices count from the end."""
    _no_grad("take", out, input, index)
    if index._tab_meta.dtype is not dtypes.int64:
        raise RuntimeError(f"take(): Expected a long tensor for index, but got {type_name(index.dtype)}")
    index = on_device_of(input, index)
    n = input._tab_meta.numel
    check_range(index, n, -n, TAKE_ERROR, "take")
    flat = input.detach().reshape(-1)
    r = own(index_prepared(flat, (index if index._tab_meta.ndim else index.reshape(1),)).reshape(index._tab_meta.shape))
    if input._tab_requires_grad:
        shape = input._tab_meta.shape
        record("TakeBackward0", (input,), r, lambda g, i: g.new_zeros(shape).put(i, g, True), (index,), (input,))
    return _out(r, out, input, index, rule=_TAKE_OUT)


#: for a flat index out of range
TAKE_ERROR = Complaint(IndexError, "out of range: tried to access index {i} on a tensor of {n} elements.")


def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    """Rows of `weight` (V, D) at `indices` (any shape): (*indices, D). Rows at `padding_idx` get no gradient.

    Raises IndexError for an index known to be out of range. `sparse`: the gradient is a sparse tensor.
    """
    m = weight._tab_meta
    if m.ndim != 2:
        raise RuntimeError("'weight' must be 2-D")
    check_index_dtype(
        indices,
        "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got "
        f"torch.{type_name(indices.dtype)}Tensor instead (while checking arguments for embedding)",
    )
    indices = on_device_of(weight, indices, ("index", "_index_select"))
    check_range(indices, m.shape[0], 0, OUT_OF_RANGE, "embedding")
    i = indices if indices._tab_meta.ndim else indices.reshape(1)
    r = index_prepared(weight.detach(), (i,))
    if indices._tab_meta.ndim == 0:
        r = r.reshape(m.shape[1])
    r = in_order(r)
    if weight._tab_requires_grad:
        rows, wide = m.shape

        def backward(g: Any, at: Any) -> Any:
            if sparse:
                return _lazy.sparse_embeddings.gradient(g, at, rows, padding_idx, scale_grad_by_freq)
            g = g.reshape(-1, wide)
            at = at.reshape(-1)
            if scale_grad_by_freq:
                count = g.new_zeros(rows).index_add(0, at, g.new_ones(at.shape))
                g = g / count.index_select(0, at).unsqueeze(1)
            if padding_idx >= 0:
                g = g.masked_fill((at == padding_idx).unsqueeze(1), 0)
            return g.new_zeros((rows, wide)).index_add(0, at, g)

        record("EmbeddingBackward0", (weight,), r, backward, (indices,))
    return r


register("embedding", embedding)
