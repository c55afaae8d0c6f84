"""Elements put elsewhere: `roll`, `flip`, `rot90`, `repeat`, `repeat_interleave`, `tril`, `triu`.

Each is one indexed map: it says for every element of the result where it comes from.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.tape import record
from tabtorch.autograd.views import check_inplace
from tabtorch.base import dtypes
from tabtorch.core import shapes
from tabtorch.core.layout import contiguous_format, suggested_order
from tabtorch.core.shapes import integer, ints, one_or_more, permuted, remembered, wrap_dim, wrap_dims
from tabtorch.core.tensor import Tensor
from tabtorch.engine.expr import const, imod, where
from tabtorch.engine.graph import Map, emit, inst
from tabtorch.engine.view import Meta, contiguous_meta, contiguous_strides, meta, ordered_strides
from tabtorch.ops.indexing.index_maps import every_example
from tabtorch.ops.machinery.asserts import Complaint, assert_range
from tabtorch.ops.machinery.inplace import check_overlap
from tabtorch.ops.machinery.integer_bounds import Range
from tabtorch.ops.machinery.operation import into
from tabtorch.ops.machinery.out_types import EXACT
from tabtorch.ops.machinery.registry import function, missing, register

# ---- elements that come from another place, one for one


def _moved(op: Map, x: Tensor, shape: tuple[int, ...], static: Any) -> Tensor:
    m = x._tab_meta
    om = contiguous_meta(tuple(shape), m.dtype, m.device)
    return Tensor._wrap(emit(inst(op, (m,), om, (), static), (x._tab_storage.node,)), om)


def _roll_at(p: Any) -> Any:
    coords = list(p.coords)
    for d, shift in p.static:
        n = p.inst.out.shape[d]
        c = coords[d] + p.dim(n - shift, ("shift", d))
        size = p.dim(n, ("n", d))
        coords[d] = where(c < size, c, c - size)
    return p.at(0, coords)


_ROLL = Map("roll", _roll_at, indexed=True, cost=3, sized=True)


@register("roll", method=True)
def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """Elements shifted along `dims`; those that leave at the end come in at the start. With no dims, of the flattened tensor."""
    sh, ds = one_or_more(shifts, "roll", "shifts"), one_or_more(dims, "roll", "dims")
    m = input._tab_meta
    if not sh:
        raise RuntimeError("`shifts` required")
    if not m.numel and len(sh) == len(ds) == 1:  # PyTorch does not look at the dimension
        return _roll(input, ())
    if not ds:
        if len(sh) != 1:
            raise RuntimeError(f"shifts and dimensions must align. shifts: {len(sh)}, dims:{len(ds)}")
        if m.ndim != 1:
            return _roll_flat(input, sh[0])
        ds = (0,)
    if m.ndim == 0:
        raise IndexError(f"Dimension specified as {ds[0]} but tensor has no dimensions")
    if len(sh) != len(ds):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(sh)}, dims:{len(ds)}")
    return _roll(input, tuple((wrap_dim(d, m.ndim), s) for d, s in zip(ds, sh)))


def _roll_flat(x: Tensor, shift: int) -> Tensor:
    r = _roll(x.detach().reshape(-1), ((0, shift),)).reshape(x._tab_meta.shape)
    r = Tensor._wrap(r._tab_storage.node, r._tab_meta)
    if x._tab_requires_grad:
        record("RollBackward0", (x,), r, lambda g: _roll_flat(g, -shift))
    return r


@remembered
def _rolled_order(m: Meta, moves: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    """The order of dimensions in which PyTorch lays the result out; (): row-major. To it each shift joins two parts."""
    order: tuple[int, ...] = ()
    for d, s in moves:
        at = -s % m.shape[d]
        sizes = [(*m.shape[:d], n, *m.shape[d + 1 :]) for n in (m.shape[d] - at, at)]
        found = {suggested_order(m.view(sizes[0], m.strides, m.offset + at * m.strides[d]))}
        found.add(suggested_order(m.view(sizes[1], m.strides, m.offset)))
        order = found.pop() if len(found) == 1 else ()
        strides = ordered_strides(m.shape, order) if order else contiguous_strides(m.shape)
        m = meta(m.shape, strides, 0, m.dtype, m.device)
    return order


def _roll(x: Tensor, moves: tuple[tuple[int, int], ...]) -> Tensor:
    m = x._tab_meta
    total: dict[int, int] = {}
    for d, s in moves:
        if m.ndim and m.shape[d]:
            total[d] = (total.get(d, 0) + s) % m.shape[d]
    static = tuple((d, s) for d, s in sorted(total.items()) if s)
    if static and m.numel:
        order = _rolled_order(m, moves)
        if order:
            plain = Tensor._view_of(x, permuted(m, order))
            r = _moved(_ROLL, plain, plain._tab_meta.shape, tuple(sorted([(order.index(d), s) for d, s in static])))
            r._tab_meta = permuted(r._tab_meta, tuple([order.index(d) for d in range(m.ndim)]))
        else:
            r = _moved(_ROLL, x, m.shape, static)
    else:
        r = x.detach().clone(memory_format=contiguous_format if m.numel else None)
    if x._tab_requires_grad:
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
    elif not dims:
        raise missing("flip", ["dims"])
    m = input._tab_meta
    ds = wrap_dims(ints(dims, "flip", "dims"), m.ndim)
    static = tuple(d for d in ds if m.ndim and m.shape[d] > 1)
    if not (static and m.numel):
        r = input.detach().clone()
    elif m.strides == contiguous_strides(m.shape):
        r = _moved(_FLIP, input, m.shape, static)
    else:  # the result lies in memory as the input does
        strides = shapes.dense_strides(m)
        order = tuple(sorted(range(m.ndim), key=lambda d: (-strides[d], m.shape[d] == 1)))
        plain = Tensor._view_of(input, shapes.permuted(m, order))
        r = _moved(_FLIP, plain, plain._tab_meta.shape, tuple(sorted(order.index(d) for d in static)))
        r._tab_meta = meta(m.shape, strides, 0, m.dtype, m.device)
    if input._tab_requires_grad:
        record("FlipBackward0", (input,), r, lambda g: flip(g, ds))
    return r


@register("fliplr", method=True)
def fliplr(input: Tensor) -> Tensor:
    """`flip` along dimension 1."""
    if input._tab_meta.ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return flip(input, 1)


@register("flipud", method=True)
def flipud(input: Tensor) -> Tensor:
    """`flip` along dimension 0."""
    if input._tab_meta.ndim < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return flip(input, 0)


@register("rot90", method=True)
def rot90(input: Tensor, k: int = 1, dims: Any = (0, 1)) -> Tensor:
    """A copy turned by k times 90 degrees in the plane of two dimensions, from the first towards the second."""
    n = input._tab_meta.ndim
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if n < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {n}")
    a, b = (wrap_dim(d, n) for d in dims)
    if a == b:
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    x = input.detach()
    if k % 4 == 0:
        r = x.clone(memory_format=contiguous_format)
    elif k % 4 == 2:
        r = flip(x, (a, b))
    else:
        r = flip(x, b if k % 4 == 1 else a).transpose(a, b).detach()
    if input._tab_requires_grad:
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
    elif not repeats:
        raise missing("repeat", ["repeats"])
    reps = ints(repeats, "repeat", "repeats")
    m = self._tab_meta
    lead = len(reps) - m.ndim
    if lead < 0:
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor")
    inner = (*(1,) * lead, *m.shape)
    shape = tuple(a * b for a, b in zip(inner, reps))
    for n in shape:
        if n < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: {list(shape)}")
    r = _moved(_REPEAT, self, shape, None) if prod(shape) else self.new_empty(shape)
    if self._tab_requires_grad:
        split = tuple(x for pair in zip(reps, inner) for x in pair)
        axes = tuple(range(0, 2 * len(reps), 2))
        own = m.shape

        def backward(g: Tensor) -> Tensor:
            if g._tab_meta.numel == 0:
                return g.new_zeros(own)
            return g.reshape(split).sum(axes).reshape(own) if axes else g

        record("RepeatBackward0", (self,), r, backward)
    return r


@register("tile", method=True)
def tile(input: Tensor, *dims: Any, **kw: Any) -> Tensor:
    """`repeat`, with ones put in front of `dims` where the tensor has more dimensions."""
    if kw:
        dims = (kw.pop("dims"),)
    elif not dims:
        raise missing("tile", ["dims"])
    reps = ints(dims, "tile", "dims")
    return repeat(input, (*(1,) * max(input._tab_meta.ndim - len(reps), 0), *reps))


@register("repeat_interleave")
def repeat_interleave(
    input: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Every element along `dim` repeated, so many times each (an int, or a vector). With one vector only: 0, 0, 1, 2, 2, …"""
    if repeats is None:
        return _counts_to_indices(input, output_size)
    x = input
    if dim is None:
        x, dim = input.reshape(-1), 0
    d = wrap_dim(dim, x._tab_meta.ndim)
    if isinstance(repeats, (tuple, list)):
        repeats = _lazy.creation.tensor(list(repeats), device=x.device)
    if isinstance(repeats, Tensor):
        if repeats._tab_meta.ndim == 0:
            repeats = repeats.reshape(1)
        if repeats._tab_meta.ndim != 1:
            raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
        if repeats._tab_meta.shape[0] == 1:
            repeats = repeats.expand(x._tab_meta.shape[d])
        if repeats._tab_meta.shape[0] != x._tab_meta.shape[d]:
            raise RuntimeError(
                "repeats must have the same size as input along dim, but got repeats.size(0) = "
                f"{repeats._tab_meta.shape[0]} and input.size({d}) = {x._tab_meta.shape[d]}"
            )
        return x.index_select(d, _counts_to_indices(repeats, output_size))
    if repeats < 0:
        raise RuntimeError("Repeats must be non-negative")
    s = x._tab_meta.shape
    if output_size is not None and output_size != s[d] * repeats:
        raise RuntimeError(f"repeat_interleave: Invalid output_size, expected {s[d] * repeats} but got {output_size}")
    wide = x.unsqueeze(d + 1).expand(*s[: d + 1], repeats, *s[d + 1 :])
    return wide.clone(memory_format=contiguous_format).reshape(*s[:d], s[d] * repeats, *s[d + 1 :])


_SUM = Complaint(
    RuntimeError,
    "Invalid input! In `repeat_interleave`, the `output_size` argument must be the same as the sum of the elements in the "
    "`repeats` tensor ({i})",
)
_NEGATIVE = Complaint(RuntimeError, "repeats can not be negative")


def _counts_to_indices(counts: Tensor, total: int | None) -> Tensor:
    """0 as often as the first count says, then 1, … `total`: their sum; where it is not given, or on cpu, one read."""
    if counts._tab_meta.ndim != 1:
        raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
    if counts._tab_meta.dtype not in (dtypes.int64, dtypes.int32):
        raise RuntimeError("repeats has to be Long or Int tensor")
    if not counts.numel():
        return counts.new_empty((0,))
    ends = counts.detach().cumsum(0)
    if total is None or (counts.device.type == "cpu" and every_example(counts) is counts):
        read: Any = function("stack")([ends[-1], counts.detach().min()])  # type: ignore[misc]
        size, least = read.tolist()
        if least < 0:
            raise RuntimeError("repeats can not be negative")
        if total is not None and total != size:
            raise RuntimeError("allocated size does not match required size")
        total = size
    else:
        last, least = every_example(ends)[..., -1:], every_example(counts)
        assert_range(last, Range(total, total), _SUM, "repeat_interleave")
        assert_range(least, Range(0, 2**63 - 1), _NEGATIVE, "repeat_interleave")
    places = _lazy.ranges.arange(total, dtype=ends.dtype, device=ends.device)
    r: Tensor = function("searchsorted")(ends, places, right=True)  # type: ignore[misc]
    # where the sum is another than `total`, which was complained of, they stay places of the tensor
    return r.clamp(max=counts.numel() - 1).to(counts.dtype)


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
    m = x._tab_meta
    if m.ndim < 2:
        raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
    diagonal = integer(diagonal, name, "diagonal", 2)
    r = _moved(_TRIANGLE, x, m.shape, (diagonal, lower)) if m.numel else x.new_empty(m.shape)
    if x._tab_requires_grad:
        record(name.capitalize() + "Backward0", (x,), r, lambda g: _triangle(name, g, diagonal, lower))
    return r


@register("tril", method=True)
def tril(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """The matrices with zeros above a diagonal."""
    return into(out, _triangle("tril", input, diagonal, True), rule=EXACT)


@register("triu", method=True)
def triu(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """The matrices with zeros below a diagonal."""
    return into(out, _triangle("triu", input, diagonal, False), rule=EXACT)


def _one_after_another(m: Meta) -> bool:
    """Whether the matrices of a batch follow each other in memory: PyTorch writes to these as they are, to others through a copy."""
    expected = prod(m.shape[-2:])
    for d in range(m.ndim - 3, -1, -1):
        if d == 0 and (m.strides[0] == 0 or m.shape[0] == 1):
            continue
        if m.strides[d] != expected:
            return False
        expected *= m.shape[d]
    return True


def _triangle_(name: str, lower: bool) -> Any:
    def f(self: Tensor, diagonal: int = 0) -> Tensor:
        check_inplace(self)
        if self._tab_meta.numel and not _one_after_another(self._tab_meta):
            check_overlap(self, ())
        back = lambda g: _triangle(name, g, diagonal, lower)  # noqa: E731
        return _lazy.scatter.finish(
            self,
            lambda t: _lazy.scatter.base_node(_triangle(name, t.detach(), diagonal, lower)),
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
