"""Tensors put together, and elements put elsewhere: `cat`, `stack`, `pad`, `roll`, `flip`, `repeat`, `tril`, …

Each is one indexed map: it says for every element of the result where it comes from.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from .. import dtypes, shapes
from ..autograd.tape import record
from ..engine.expr import cast, const, imod, minimum, where
from ..engine.graph import Map, Write, emit, inst
from ..engine.view import Meta, contiguous_meta, contiguous_strides, meta
from ..shapes import ints, wrap_dim, wrap_dims
from ..tensor import Tensor
from .core import register
from .launch import into

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
            raise TypeError(f"expected Tensor as element {k} in argument 0, but got {type(t).__name__}")
    return list(tensors)


def _check_devices(ts: Sequence[Tensor], name: str) -> None:
    first = ts[0]._meta.device
    for t in ts:
        if t._meta.device.number != first.number:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, {first} and "
                f"{t._meta.device}! (when checking argument for argument tensors in method wrapper_{name})"
            )


def _common_dtype(ts: Sequence[Tensor]) -> Any:
    first = ts[0]._meta.dtype
    if all(t._meta.dtype is first for t in ts):
        return first
    dims = [t._meta.dtype for t in ts if t._meta.ndim]
    return dtypes.result_of(dims, [t._meta.dtype for t in ts if not t._meta.ndim], [])


#: (Metas, how many, dim) -> (Inst, Meta of the result, dimension from the front)
_known: dict[tuple, tuple[Any, Meta, int]] = {}


@register("cat")
def cat(tensors: Any, dim: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Tensors joined along `dim`. Other sizes must agree; 1-d tensors without elements are left out. Types are promoted."""
    entry = key = None
    if type(tensors) is list or type(tensors) is tuple:
        key = (*[t._meta for t in tensors if isinstance(t, Tensor)], len(tensors), dim)
        entry = _known.get(key)
    if entry is not None and out is None:
        i, om, d = entry
        r = Tensor._wrap(emit(i, tuple([t._storage.node for t in tensors])), om)
        if any(t._rg for t in tensors):
            record("CatBackward0", tensors, r, _cat_backward([t._meta for t in tensors], d))
        return r
    ts = _tensor_list("cat", tensors)
    if not ts:
        raise ValueError("torch.cat(): expected a non-empty list of Tensors")
    for k, t in enumerate(ts):
        if t._meta.ndim == 0:
            raise RuntimeError(f"zero-dimensional tensor (at position {k}) cannot be concatenated")
    used = [t for t in ts if t._meta.shape != (0,)]
    if not used:
        wrap_dim(dim, 1)
        r = ts[0].new_zeros((0,), dtype=_common_dtype(ts))
        record("CatBackward0", ts, r, _cat_backward([t._meta for t in ts], 0))
        return into(out, r)
    _check_devices(ts, "cat")
    first = used[0]._meta
    d = wrap_dim(dim, first.ndim)
    total = 0
    for k, t in enumerate(ts):
        m = t._meta
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
    om = contiguous_meta((*first.shape[:d], total, *first.shape[d + 1 :]), _common_dtype(ts), first.device)
    full = [t for t in used if t._meta.numel]
    if key is not None and len(full) == len(ts) <= GROUP:
        if len(_known) > 20_000:
            _known.clear()
        _known[key] = (inst(_CATS[len(ts)], tuple([t._meta for t in ts]), om, (), d), om, d)
    if full:
        r = Tensor._wrap(_cat_node([t._meta for t in full], [t._storage.node for t in full], d, om), om)
    else:
        r = ts[0].new_zeros(om.shape, dtype=om.dtype)
    if any(t._rg for t in ts):
        record("CatBackward0", ts, r, _cat_backward([t._meta for t in ts], d))
    return into(out, r)


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
    node, m = first._storage.node, first._meta
    if m.dtype is not node.inst.out.dtype or not m.ndim:
        return None
    for t in ts:
        n = t._meta
        if t._rg or t._storage.node is not node or n.strides != m.strides or n.dtype is not m.dtype:
            return None
    key = tuple([t._meta for t in ts])
    if key in _stacked:
        return None
    if len(_stacked) > 4096:
        _stacked.clear()
    _stacked.add(key)
    from ..hostdata import from_flat
    from .gather import index_prepared

    span = sum([(n - 1) * st for n, st in zip(m.shape, m.strides)])
    every = meta((node.inst.out.numel - span, *m.shape), (1, *m.strides), 0, m.dtype, m.device)
    places = from_flat([n.offset for n in key], (len(key),), dtypes.int64, m.device)
    return index_prepared(Tensor._view_of(first, every), (places, *(None,) * m.ndim))


@register("stack")
def stack(tensors: Any, dim: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Tensors of one shape as slices along a new dimension `dim`."""
    ts = _tensor_list("stack", tensors)
    if not ts:
        raise RuntimeError("stack expects a non-empty TensorList")
    first = ts[0]._meta
    for k, t in enumerate(ts):
        if t._meta.shape != first.shape:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(first.shape)} at entry 0 and "
                f"{list(t._meta.shape)} at entry {k}"
            )
    d = wrap_dim(dim, first.ndim + 1)
    _check_devices(ts, "stack")
    om = contiguous_meta((*first.shape[:d], len(ts), *first.shape[d:]), _common_dtype(ts), first.device)
    r = _windows(ts) if d == 0 and len(ts) > 1 and om.numel else None
    if r is not None:
        return into(out, r)
    if om.numel:
        metas = [shapes.unsqueezed(t._meta, d) for t in ts]
        r = Tensor._wrap(_cat_node(metas, [t._storage.node for t in ts], d, om), om)
    else:
        r = ts[0].new_zeros(om.shape, dtype=om.dtype)
    if any(t._rg for t in ts):
        record("StackBackward0", ts, r, tuple([lambda g, k=k: g.select(d, k) for k in range(len(ts))]))
    return into(out, r)


@register("hstack")
def hstack(tensors: Any, *, out: Tensor | None = None) -> Tensor:
    """Tensors joined along columns (dimension 1, or 0 of vectors)."""
    ts = [t if t._meta.ndim else t.reshape(1) for t in _tensor_list("hstack", tensors)]
    return cat(ts, 0 if ts and ts[0]._meta.ndim == 1 else 1, out=out)


@register("vstack")
def vstack(tensors: Any, *, out: Tensor | None = None) -> Tensor:
    """Tensors joined along rows; a vector counts as a row."""
    from ..views import atleast_2d

    return cat([atleast_2d(t) for t in _tensor_list("vstack", tensors)], 0, out=out)


register("row_stack", vstack)


@register("dstack")
def dstack(tensors: Any, *, out: Tensor | None = None) -> Tensor:
    """Tensors joined along dimension 2."""
    from ..views import atleast_3d

    return cat([atleast_3d(t) for t in _tensor_list("dstack", tensors)], 2, out=out)


@register("column_stack")
def column_stack(tensors: Any, *, out: Tensor | None = None) -> Tensor:
    """Vectors as the columns of a matrix; matrices joined along columns."""
    return cat(
        [t.reshape(t.numel(), 1) if t._meta.ndim <= 1 else t for t in _tensor_list("column_stack", tensors)], 1, out=out
    )


# ---- elements that come from another place, one for one


def _moved(op: Map, x: Tensor, shape: tuple[int, ...], static: Any) -> Tensor:
    m = x._meta
    om = contiguous_meta(tuple(shape), m.dtype, m.device)
    return Tensor._wrap(emit(inst(op, (m,), om, (), static), (x._storage.node,)), om)


def _roll_at(p: Any) -> Any:
    coords = list(p.coords)
    for d, shift in p.static:
        n = p.inst.out.shape[d]
        c = coords[d] + p.dim(n - shift, ("shift", d))
        size = p.dim(n, ("n", d))
        coords[d] = where(c < size, c, c - size)
    return p.at(0, coords)


_ROLL = Map("roll", _roll_at, indexed=True, cost=3)


@register("roll", method=True)
def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """Elements shifted along `dims`; those that leave at the end come in at the start. With no dims, of the flattened tensor."""
    sh = (shifts,) if isinstance(shifts, int) else ints((shifts,), "roll", "shifts")
    ds = () if dims is None else (dims,) if isinstance(dims, int) else tuple(dims)
    m = input._meta
    if not ds:
        if len(sh) != 1:
            raise RuntimeError(f"shifts and dimensions must align. shifts: {len(sh)}, dims:{len(ds)}")
        if m.ndim != 1:
            return _roll_flat(input, sh[0])
        ds = (0,)
    if not sh:
        raise RuntimeError("`shifts` required")
    if m.ndim == 0:
        raise IndexError(f"Dimension specified as {ds[0]} but tensor has no dimensions")
    if len(sh) != len(ds):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(sh)}, dims:{len(ds)}")
    return _roll(input, tuple((wrap_dim(d, m.ndim), s) for d, s in zip(ds, sh)))


def _roll_flat(x: Tensor, shift: int) -> Tensor:
    r = _roll(x.detach().reshape(-1), ((0, shift),)).reshape(x._meta.shape)
    if x._rg:
        record("RollBackward0", (x,), r, lambda g: _roll_flat(g, -shift))
    return r


def _roll(x: Tensor, moves: tuple[tuple[int, int], ...]) -> Tensor:
    m = x._meta
    total: dict[int, int] = {}
    for d, s in moves:
        if m.ndim and m.shape[d]:
            total[d] = (total.get(d, 0) + s) % m.shape[d]
    static = tuple((d, s) for d, s in sorted(total.items()) if s)
    r = _moved(_ROLL, x, m.shape, static) if static and m.numel else x.detach().clone()
    if x._rg:
        record("RollBackward0", (x,), r, lambda g: _roll(g, tuple((d, -s) for d, s in moves)))
    return r


def _flip_at(p: Any) -> Any:
    coords = list(p.coords)
    for d in p.static:
        coords[d] = p.dim(p.inst.out.shape[d] - 1, ("last", d)) - coords[d]
    return p.at(0, coords)


_FLIP = Map("flip", _flip_at, indexed=True, cost=2)


@register("flip", method=True)
def flip(input: Tensor, *dims: Any, **kw: Any) -> Tensor:
    """A copy with the order of elements reversed along `dims`."""
    if kw:
        dims = (kw.pop("dims"),)
    m = input._meta
    ds = wrap_dims(ints(dims, "flip", "dims"), m.ndim)
    static = tuple(d for d in ds if m.ndim and m.shape[d] > 1)
    if not (static and m.numel):
        r = input.detach().clone()
    elif m.contiguous or shapes.dense_strides(m) != m.strides:
        r = _moved(_FLIP, input, m.shape, static)
    else:  # the result lies in memory as the input does
        order = tuple(sorted(range(m.ndim), key=lambda d: -m.strides[d]))
        plain = Tensor._view_of(input, shapes.permuted(m, order))
        r = _moved(_FLIP, plain, plain._meta.shape, tuple(sorted(order.index(d) for d in static)))
        r._meta = meta(m.shape, m.strides, 0, m.dtype, m.device)
    if input._rg:
        record("FlipBackward0", (input,), r, lambda g: flip(g, ds))
    return r


@register("fliplr", method=True)
def fliplr(input: Tensor) -> Tensor:
    """`flip` along dimension 1."""
    if input._meta.ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return flip(input, 1)


@register("flipud", method=True)
def flipud(input: Tensor) -> Tensor:
    """`flip` along dimension 0."""
    if input._meta.ndim < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return flip(input, 0)


@register("rot90", method=True)
def rot90(input: Tensor, k: int = 1, dims: Any = (0, 1)) -> Tensor:
    """A copy turned by k times 90 degrees in the plane of two dimensions, from the first towards the second."""
    n = input._meta.ndim
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if n < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {n}")
    a, b = (wrap_dim(d, n) for d in dims)
    if a == b:
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    x = input.detach()
    if k % 4 == 0:
        r = x.clone()
    elif k % 4 == 2:
        r = flip(x, (a, b))
    else:
        r = flip(x, b if k % 4 == 1 else a).transpose(a, b).detach()
    if input._rg:
        record("Rot90Backward0", (input,), r, lambda g: rot90(g, -k, (a, b)))
    return r


# ---- repetition


def _repeat_at(p: Any) -> Any:
    m = p.inst.ins[0]
    lead = len(p.coords) - m.ndim
    coords = []
    for d, c in enumerate(p.coords[lead:]):
        n = m.shape[d]
        coords.append(c if p.inst.out.shape[lead + d] == n else imod(c, p.dim(n, ("n", d))))
    return p.at(0, coords)


_REPEAT = Map("repeat", _repeat_at, indexed=True, cost=4)


@register("repeat", method=True, torch=False)
def repeat(self: Tensor, *repeats: Any, **kw: Any) -> Tensor:
    """A copy repeated so many times along each dimension; more numbers than dimensions add dimensions in front."""
    if kw:
        repeats = (kw.pop("repeats"),)
    reps = ints(repeats, "repeat", "repeats")
    m = self._meta
    lead = len(reps) - m.ndim
    if lead < 0:
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor")
    inner = (*(1,) * lead, *m.shape)
    shape = tuple(a * b for a, b in zip(inner, reps))
    for n in shape:
        if n < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: {list(shape)}")
    r = _moved(_REPEAT, self, shape, None) if prod(shape) else self.new_empty(shape)
    if self._rg:
        split = tuple(x for pair in zip(reps, inner) for x in pair)
        axes = tuple(range(0, 2 * len(reps), 2))
        own = m.shape

        def backward(g: Tensor) -> Tensor:
            if g._meta.numel == 0:
                return g.new_zeros(own)
            return g.reshape(split).sum(axes).reshape(own) if axes else g

        record("RepeatBackward0", (self,), r, backward)
    return r


@register("tile", method=True)
def tile(input: Tensor, *dims: Any, **kw: Any) -> Tensor:
    """`repeat`, with ones put in front of `dims` where the tensor has more dimensions."""
    if kw:
        dims = (kw.pop("dims"),)
    reps = ints(dims, "tile", "dims")
    return repeat(input, (*(1,) * max(input._meta.ndim - len(reps), 0), *reps))


@register("repeat_interleave")
def repeat_interleave(
    input: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Every element along `dim` repeated, so many times each (an int, or a vector). With one vector only: 0, 0, 1, 2, 2, …"""
    if repeats is None:
        return _counts_to_indices(input)
    x = input
    if dim is None:
        x, dim = input.reshape(-1), 0
    d = wrap_dim(dim, x._meta.ndim)
    if isinstance(repeats, (tuple, list)):
        from ..creation import tensor

        repeats = tensor(list(repeats), device=x.device)
    if isinstance(repeats, Tensor):
        if repeats._meta.ndim == 0:
            repeats = repeats.reshape(1)
        if repeats._meta.ndim != 1:
            raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
        if repeats._meta.shape[0] == 1:
            repeats = repeats.expand(x._meta.shape[d])
        if repeats._meta.shape[0] != x._meta.shape[d]:
            raise RuntimeError(
                "repeats must have the same size as input along dim, but got repeats.size(0) = "
                f"{repeats._meta.shape[0]} and input.size({d}) = {x._meta.shape[d]}"
            )
        return x.index_select(d, _counts_to_indices(repeats))
    if repeats < 0:
        raise RuntimeError("Repeats must be non-negative")
    s = x._meta.shape
    wide = x.unsqueeze(d + 1).expand(*s[: d + 1], repeats, *s[d + 1 :])
    return wide.clone().reshape(*s[:d], s[d] * repeats, *s[d + 1 :])


def _counts_to_indices(counts: Tensor) -> Tensor:
    from ..creation import tensor

    if counts._meta.ndim != 1:
        raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
    if counts._meta.dtype not in (dtypes.int64, dtypes.int32):
        raise RuntimeError("repeats has to be Long or Int tensor")
    values = counts.tolist()
    if any(n < 0 for n in values):
        raise RuntimeError("repeats can not be negative")
    return tensor([i for i, n in enumerate(values) for _ in range(n)], dtype=counts.dtype, device=counts.device)


def _method_repeat_interleave(
    self: Tensor, repeats: Any, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    return repeat_interleave(self, repeats, dim, output_size=output_size)


register("repeat_interleave", repeat_interleave, method=_method_repeat_interleave)

# ---- triangles


def _triangle_at(p: Any) -> Any:
    diagonal, lower = p.static
    row, col = p.coords[-2], p.coords[-1]
    v = p.value(0)
    row = row + p.dim(max(diagonal, 0), "down")
    col = col + p.dim(max(-diagonal, 0), "right")
    keep = col <= row if lower else col >= row
    return where(keep, v, const(0, v.type))


_TRIANGLE = Map("tril", _triangle_at, indexed=True, cost=3)


def _triangle(name: str, x: Tensor, diagonal: int, lower: bool) -> Tensor:
    m = x._meta
    if m.ndim < 2:
        raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
    r = _moved(_TRIANGLE, x, m.shape, (diagonal, lower)) if m.numel else x.new_empty(m.shape)
    if x._rg:
        record(name.capitalize() + "Backward0", (x,), r, lambda g: _triangle(name, g, diagonal, lower))
    return r


@register("tril", method=True)
def tril(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """The matrices with zeros above a diagonal."""
    return into(out, _triangle("tril", input, diagonal, True))


@register("triu", method=True)
def triu(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """The matrices with zeros below a diagonal."""
    return into(out, _triangle("triu", input, diagonal, False))


def _triangle_(name: str, lower: bool) -> Any:
    def f(self: Tensor, diagonal: int = 0) -> Tensor:
        from .scatter import base_node, finish

        back = lambda g: _triangle(name, g, diagonal, lower)  # noqa: E731
        return finish(
            self,
            lambda t: base_node(_triangle(name, t.detach(), diagonal, lower)),
            True,
            name.capitalize() + "Backward0",
            (),
            (back,),
        )

    f.__name__ = name + "_"
    f.__doc__ = f"`{name}` in place."
    return f


register("tril", tril, method=True, inplace=_triangle_("tril", True))
register("triu", triu, method=True, inplace=_triangle_("triu", False))

# ---- products of sets


@register("meshgrid")
def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Coordinate grids of vectors, as views: "ij" is matrix order; "xy" exchanges the first two dimensions."""
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tuple(tensors[0])
    if indexing not in (None, "ij", "xy"):
        raise RuntimeError(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    for t in tensors:
        if t._meta.ndim > 1:
            raise RuntimeError(f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got:  {t._meta.ndim}")
    ts = list(tensors)
    swap = indexing == "xy" and len(ts) >= 2
    if swap:
        ts[0], ts[1] = ts[1], ts[0]
    shape = [t._meta.numel for t in ts]
    out = [t.reshape([-1 if k == j else 1 for j in range(len(ts))]).expand(shape) for k, t in enumerate(ts)]
    if swap:
        out[0], out[1] = out[1], out[0]
    return tuple(out)


@register("cartesian_prod")
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All combinations of elements of vectors, one a row."""
    for t in tensors:
        if t._meta.ndim != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(t._meta.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    return stack([g.reshape(-1) for g in meshgrid(*tensors, indexing="ij")], 1)


@register("combinations")
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All combinations of r elements of a vector, one a row."""
    import itertools

    from ..creation import tensor

    if input._meta.ndim != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(input._meta.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return input.new_empty((0,))
    make = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(make(range(input._meta.shape[0]), r))
    if not rows:
        return input.new_empty((0, r))
    cols = [tensor(list(c), device=input.device) for c in zip(*rows)]
    return stack([input.index_select(0, c) for c in cols], 1)


@register("kron")
def kron(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The Kronecker product."""
    a, b = list(input._meta.shape), list(other._meta.shape)
    n = max(len(a), len(b))
    a, b = [1] * (n - len(a)) + a, [1] * (n - len(b)) + b
    x = input.reshape([v for s in a for v in (s, 1)])
    y = other.reshape([v for s in b for v in (1, s)])
    return into(out, (x * y).reshape([p * q for p, q in zip(a, b)]))


@register("block_diag")
def block_diag(*tensors: Any) -> Tensor:
    """Matrices along the diagonal of one matrix; a vector counts as a row."""
    from ..views import atleast_2d
    from .slices import embed

    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tuple(tensors[0])
    ts = [atleast_2d(t) for t in tensors]
    for k, t in enumerate(ts):
        if t._meta.ndim > 2:
            raise RuntimeError(
                "torch.block_diag: Input tensors must have 2 or fewer dimensions. "
                f"Input {k} has {t._meta.ndim} dimensions"
            )
    d = _common_dtype(ts)
    cols = sum(t._meta.shape[1] for t in ts)
    rows = []
    at = 0
    for t in ts:
        n, m = t._meta.shape
        rows.append(embed(t.to(d), (n, cols), ((0, n, 1), (at, m, 1))))
        at += m
    return cat(rows, 0)
