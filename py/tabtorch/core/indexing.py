"""`x[index]` and `x[index] = value`: basic and advanced indexing as PyTorch.

Ints, slices, None and Ellipsis make a view, whose Meta is remembered by the index. Tensors, lists, arrays and bools make a
gather or a scatter of the view that the rest of the index gives.
See https://docs.pytorch.org/docs/stable/tensor_view.html and NumPy's rules for where the indexed dimensions go.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.grad_mode import STATE
from tabtorch.autograd.views import before_write, check_inplace
from tabtorch.autograd.views import view as track
from tabtorch.base import dtypes
from tabtorch.core.shapes import TYPE_NAMES, as_int, remembered, slice_bounds
from tabtorch.core.tensor import Tensor
from tabtorch.engine.symbols import Symbol
from tabtorch.engine.view import Meta
from tabtorch.ops.indexing.gather import index_prepared, prepared
from tabtorch.ops.indexing.masked import fill_at
from tabtorch.ops.indexing.slices import embed
from tabtorch.ops.machinery.batching import batches
from tabtorch.ops.machinery.inplace import check_overlap
from tabtorch.ops.shaping.convert import _fill

#: one part of a basic index: an int, None, Ellipsis, or (start, stop, step)
Part = Any


class Basic:
    """What a basic index makes of a Meta: the view, and how its gradient goes back."""

    __slots__ = ("kept", "meta", "name", "spec")

    def __init__(self, m: Meta, kept: tuple[int, ...], name: str, spec: tuple[Any, ...]) -> None:
        self.meta = m
        self.kept = kept  # the shape without the dimensions that None put in
        self.name = name  # of the grad_fn
        self.spec = spec  # per dimension of the source: (start, length or None, step)


@remembered
def _basic(m: Meta, parts: tuple[Part, ...]) -> Basic:
    """The view that `parts` make of `m`. IndexError as PyTorch's."""
    used = sum(p is not None and p is not Ellipsis for p in parts)
    if used > m.ndim:
        if m.ndim == 0 and len(parts) == 1 and type(parts[0]) is tuple:
            raise IndexError("slice() cannot be applied to a 0-dim tensor.")
        if m.ndim == 0 and len(parts) > 1:
            raise IndexError("too many indices for tensor of dimension 0")
        _too_many(m)
    shape: list[int] = []
    strides: list[int] = []
    kept: list[int] = []
    spec: list[Any] = []
    offset = m.offset
    name = "AliasBackward0"
    d = 0
    for at, p in enumerate(parts):
        if p is Ellipsis:
            for _ in range(m.ndim - used):
                shape.append(m.shape[d])
                strides.append(m.strides[d])
                kept.append(m.shape[d])
                spec.append((0, m.shape[d], 1))
                d += 1
            used = m.ndim  # a second Ellipsis stands for nothing
            continue
        if p is None:
            shape.append(1)
            strides.append(m.shape[d] * m.strides[d] if d < m.ndim else 1)
            name = "UnsqueezeBackward0"
            continue
        n, st = m.shape[d], m.strides[d]
        if type(p) is int or type(p) is Symbol:
            if not -n <= p < n:
                raise IndexError(f"index {p} is out of bounds for dimension {at} with size {n}")
            i = p + n if p < 0 else p
            offset += i * st
            spec.append((i, None, 1))
            name = "SelectBackward0"
        else:
            start, stop, step = p
            step = 1 if step is None else step
            a, length = slice_bounds(n, start, stop, step)
            offset += a * st
            shape.append(length)
            strides.append(st * step)
            kept.append(length)
            spec.append((a, length, step))
            if len(parts) == 1 or not _is_full(p, n):  # beside other parts, a full slice is no step of its own
                name = "SliceBackward0"
        d += 1
    for n, st in zip(m.shape[d:], m.strides[d:]):
        shape.append(n)
        strides.append(st)
        kept.append(n)
        spec.append((0, n, 1))
    return Basic(m.view(tuple(shape), tuple(strides), offset), tuple(kept), name, tuple(spec))


def _too_many(m: Meta) -> None:
    if m.ndim == 0:
        raise IndexError(
            "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to convert a 0-dim "
            "tensor to a number"
        )
    raise IndexError(f"too many indices for tensor of dimension {m.ndim}")


def _unused(g: Tensor) -> Tensor:
    """In place of the gradient of a view that needs none."""
    return g


def _view(x: Tensor, parts: tuple[Part, ...]) -> Tensor:
    m = x._tab_meta
    b = _basic(m, parts)
    if not x._tab_requires_grad:
        return track(x, b.meta, b.name, _unused)
    shape = m.shape

    def backward(g: Tensor) -> Tensor:
        return embed(g if g._tab_meta.shape == b.kept else g.reshape(b.kept), shape, b.spec)

    return track(x, b.meta, b.name, backward)


# ---- from what the user wrote to parts


def _slice_end(v: Any) -> int | None:
    if v is None or type(v) is int:
        return v
    try:
        return as_int(v)
    except (AttributeError, TypeError):
        raise TypeError("slice indices must be integers or None or have an __index__ method") from None


def _slice(s: slice) -> Part:
    start, stop, step = _slice_end(s.start), _slice_end(s.stop), _slice_end(s.step)
    if step is not None:
        if step == 0:
            raise ValueError("slice step cannot be zero")
        if step < 0:
            raise ValueError("step must be greater than zero")
    return (start, stop, step)


def _simple(p: Any) -> Part:
    """A part of a basic index, or NotImplemented for what is none."""
    t = type(p)
    if t is int or p is None or p is Ellipsis or t is Symbol:
        return p
    if t is slice:
        return _slice(p)
    return NotImplemented


def _basic_parts(index: Any) -> tuple[Part, ...] | None:
    """The parts of a basic index; None if it is not one."""
    if type(index) is tuple:
        out = []
        for p in index:
            if type(p) is not int:
                p = _simple(p)
                if p is NotImplemented:
                    return None
            out.append(p)
        if len(out) == 1 and out[0] is not Ellipsis:
            out.append(Ellipsis)  # which tells it from an index that is no tuple
        return tuple(out)
    q = _simple(index)
    return None if q is NotImplemented else (q,)


def _treat_as_tuple(index: Any) -> bool:
    """Whether a list counts as a tuple: PyTorch's rule for short lists that hold slices, sequences, tensors or None."""
    if len(index) >= 32:
        return False
    return any(
        isinstance(p, (Tensor, slice, list, tuple, range)) or p is None or p is Ellipsis or _is_array(p) for p in index
    )


def _is_array(p: Any) -> bool:
    np = sys.modules.get("numpy")
    return np is not None and isinstance(p, np.ndarray)


def _index_tensor(p: Any, x: Tensor) -> Tensor:
    """A list or array inside an index, as a tensor of int64, bool or uint8."""
    t = _lazy.from_host.tensor(list(p) if isinstance(p, range) else p, device=x.device)
    if t._tab_meta.numel == 0 and t._tab_meta.dtype.category != 0:
        t = t.to(dtypes.int64)
    elif t._tab_meta.dtype.category == 2:
        t = t.to(dtypes.int64)  # PyTorch makes an int64 tensor of a list
    return t


_SEQUENCE = (
    "Using a non-tuple sequence for multidimensional indexing is deprecated and will be changed in pytorch 2.9; use "
    "x[tuple(seq)] instead of x[seq]. In pytorch 2.9 this will be interpreted as tensor index, x[torch.tensor(seq)], which "
    "will result either in an error or a different result"
)
_BYTE = "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead."


class _Advanced:
    """The two steps of an advanced index: a view by the basic parts, then tensors for some of its dimensions."""

    def __init__(self, x: Tensor, index: Any) -> None:
        if isinstance(index, (list, range)) or (type(index) is not tuple and isinstance(index, tuple)):
            several = isinstance(index, tuple) or _treat_as_tuple(index)
            if several and not isinstance(index, tuple):
                warnings.warn(_SEQUENCE, UserWarning, stacklevel=3)
            parts = tuple(index) if several else (index,)
        else:
            parts = index if isinstance(index, tuple) else (index,)
        m = x._tab_meta
        used = sum(self._width(p) for p in parts)
        if used > m.ndim:
            if any(type(p) in (int, Symbol) for p in parts):
                _too_many(m)
            raise IndexError(f"too many indices for tensor of dimension {m.ndim}")
        basic: list[Part] = []
        self.tensors: list[Tensor | None] = []
        d = 0  # dimension of x that comes next
        for at, p in enumerate(parts):
            q = _simple(p)
            if q is not NotImplemented:
                d = self._basic_part(q, basic, m, used, d, at)
                continue
            t = self._tensor(p, x)
            if isinstance(t, int):
                if not -m.shape[d] <= t < m.shape[d]:
                    raise IndexError(f"index {t} is out of bounds for dimension {at} with size {m.shape[d]}")
                basic.append(t)
                d += 1
                continue
            dt = t._tab_meta.dtype
            if dt is dtypes.bool_ or dt is dtypes.uint8:
                if dt is dtypes.uint8:
                    warnings.warn(_BYTE, UserWarning, stacklevel=3)
                if t._tab_meta.ndim == 0:  # a new dimension of size 1 or 0, by the value that it has now
                    basic.append(None)
                    self.tensors.append(before_write(t.detach().reshape(1)))
                    continue
                width = t._tab_meta.ndim
                self._check_mask(t, m, d)
            else:
                width = 1
            basic.extend([(None, None, None)] * width)
            self.tensors.append(t)
            d += width
        self.parts = tuple(basic)
        while self.tensors and self.tensors[-1] is None:
            self.tensors.pop()

    @staticmethod
    def _width(p: Any) -> int:
        """Dimensions that a part takes."""
        if p is None or p is Ellipsis or isinstance(p, bool):
            return 0
        if isinstance(p, Tensor):
            return p._tab_meta.ndim if p._tab_meta.dtype in (dtypes.bool_, dtypes.uint8) else 1
        if _is_array(p) and p.dtype.name in ("bool", "uint8"):
            return int(p.ndim)
        if isinstance(p, (list, tuple)):
            depth = 0
            q: Any = p
            while isinstance(q, (list, tuple)) and q:
                depth, q = depth + 1, q[0]
            return depth if isinstance(q, bool) else 1
        return 1

    def _basic_part(self, q: Part, basic: list[Part], m: Meta, used: int, d: int, at: int) -> int:
        basic.append(q)
        if q is Ellipsis:
            n = m.ndim - used
            if any(p is Ellipsis for p in basic[:-1]):
                n = 0
            self.tensors.extend([None] * n)
            return d + n
        if q is None:
            self.tensors.append(None)
            return d
        if type(q) is int or type(q) is Symbol:
            if not -m.shape[d] <= q < m.shape[d]:
                raise IndexError(f"index {q} is out of bounds for dimension {at} with size {m.shape[d]}")
            return d + 1
        self.tensors.append(None)
        return d + 1

    @staticmethod
    def _tensor(p: Any, x: Tensor) -> Any:
        """A tensor for one part; an int where the part only says one index."""
        if isinstance(p, Tensor):
            dt = p._tab_meta.dtype
            if dt.category > 1 or dt in (dtypes.int8, dtypes.int16):
                raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
            if p._tab_meta.ndim == 0 and dt in (dtypes.int64, dtypes.int32):
                return p if batches[0] and _differs(p) else _known_index(p)
            return p
        if isinstance(p, bool):
            return _lazy.from_host.tensor(p, device=x.device)
        if isinstance(p, (list, tuple, range)) or _is_array(p):
            if _is_array(p) and p.ndim == 0 and p.dtype.kind in "iu":
                return int(p)
            return _index_tensor(p, x)
        if isinstance(p, str):
            raise TypeError("new(): invalid data type 'str'")
        if hasattr(p, "__index__") and not isinstance(p, float):
            if hasattr(p, "untyped_storage"):
                raise TypeError("an index is a tensor of PyTorch, and not of tabtorch: two packages are loaded")
            if type(p).__name__ in ("bool_", "bool"):  # NumPy's
                return _lazy.from_host.tensor(bool(p), device=x.device)
            return p.__index__()
        raise IndexError(
            "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices "
            f"(got {type(p).__name__})"
        )

    @staticmethod
    def _check_mask(t: Tensor, m: Meta, d: int) -> None:
        for k, n in enumerate(t._tab_meta.shape):
            if d + k >= m.ndim or n != m.shape[d + k]:
                raise IndexError(
                    f"The shape of the mask {list(t._tab_meta.shape)} at index {k} does not match the shape of the indexed tensor "
                    f"{list(m.shape)} at index {d + k}"
                )


def _differs(i: Tensor) -> bool:
    """Whether inside `vmap` each example has an index of its own."""
    return _lazy.batch.is_batched(i)


def _known_index(i: Tensor) -> int:
    """The value of a 0-d index: it makes a view, which has to know its place. Waits for the device if need be."""
    known = _lazy.index_maps.host_values(i)
    return int(i.item() if known is None else known[0])


# ---- reading and writing


def getitem(self: Tensor, index: Any) -> Tensor:
    """`self[index]`."""
    t = type(index)
    if t is int:
        return _view(self, (index,))
    if t is slice or t is tuple:
        parts = _basic_parts(index)
        if parts is not None:
            return _view(self, parts)
    elif index is None or index is Ellipsis:
        return _view(self, (index,))
    elif t is Tensor and index._tab_meta.ndim and index._tab_meta.dtype is dtypes.int64 and self._tab_meta.ndim:
        return index_prepared(self, prepared(self, (index,)), originals=(index,))
    a = _Advanced(self, index)
    x = _view(self, a.parts) if any(p != (None, None, None) for p in a.parts) else self
    if not any(t is not None for t in a.tensors):
        return x
    return index_prepared(x, prepared(x, a.tensors), originals=a.tensors)


def _is_full(p: Part, n: int) -> bool:
    """Whether a slice is one that PyTorch takes for no step at all."""
    start, stop, step = p
    return start in (None, 0) and (stop is None or stop >= n) and step in (None, 1)


def _is_whole(m: Meta, parts: tuple[Part, ...]) -> bool:
    """Whether the parts of an index leave out nothing, and add no dimension."""
    at = m.ndim - sum(p is not Ellipsis for p in parts)
    if at < 0 or parts.count(Ellipsis) > 1:
        return False
    d = 0
    for p in parts:
        if p is Ellipsis:
            d += at
            continue
        if type(p) is not tuple or not _is_full(p, m.shape[d]):
            return False
        d += 1
    return True


def setitem(self: Tensor, index: Any, value: Any) -> None:
    """`self[index] = value`: a number, or a tensor that broadcasts to the part."""
    if not isinstance(value, (Tensor, bool, int, float, complex)):
        value = _value(self, value)
    parts = None
    if type(index) in (int, slice, tuple, Symbol) or index is None or index is Ellipsis:
        parts = _basic_parts(index)
    if parts is not None:
        _assign(self if _is_whole(self._tab_meta, parts) else _view(self, parts), value)
        return
    if index is False:
        return
    a = _Advanced(self, index)
    x = self if _is_whole(self._tab_meta, a.parts) else _view(self, a.parts)
    given = [t for t in a.tensors if t is not None]
    if not given:
        _assign(x, value)
        return
    if all(t._tab_meta.dtype is dtypes.bool_ and t._tab_meta.ndim == 0 for t in given):
        _assign(x, value)
        return
    scalar = not isinstance(value, Tensor) or (value._tab_meta.numel == 1 and value._tab_meta.ndim <= 1)
    if (
        scalar
        and len(given) == 1
        and given[0]._tab_meta.dtype is dtypes.bool_
        and given[0]._tab_meta.device.number == x._tab_meta.device.number
    ):
        _fill_mask(x, a.tensors, given[0], value)
        return
    if not isinstance(value, Tensor):
        value = _lazy.creation.number(value, x._tab_meta.dtype)
    elif (
        value._tab_meta.numel == 1
        and value._tab_meta.ndim == 0
        and value._tab_meta.device.number != x._tab_meta.device.number
    ):
        value = value.to(x._tab_meta.device)
    _lazy.scatter.put_at(x, a.tensors, value, False, True)


def _fill_mask(x: Tensor, tensors: list[Tensor | None], mask: Tensor, value: Any) -> None:
    """`x[mask] = one value` needs no coordinates: nothing is read from the device."""
    at = next(d for d, t in enumerate(tensors) if t is not None)
    tail = x._tab_meta.ndim - at - mask._tab_meta.ndim
    if tail < 0:
        _too_many(x._tab_meta)
    if isinstance(value, Tensor):
        if value._tab_meta.dtype is not x._tab_meta.dtype:
            raise RuntimeError(
                "Index put requires the source and destination dtypes match, got "
                f"{TYPE_NAMES[x._tab_meta.dtype.name]} for the destination and {TYPE_NAMES[value._tab_meta.dtype.name]} for the source."
            )
        value = value.reshape(()) if value._tab_meta.ndim else value
    else:
        value = _lazy.creation.number(value, x._tab_meta.dtype)
    fill_at(x, mask.reshape(*mask._tab_meta.shape, *(1,) * tail) if tail else mask, value, mask)


def _value(x: Tensor, value: Any) -> Any:
    np = sys.modules.get("numpy")
    array = np is not None and isinstance(value, (np.ndarray, np.generic))
    if np is not None and isinstance(value, np.integer):
        return value.item()
    if not array and not isinstance(value, (list, tuple, str)) and hasattr(value, "__index__"):
        return value.__index__()
    name = "numpy." + type(value).__name__ if array else type(value).__name__
    raise TypeError(f"can't assign a {name} to a torch.{_lazy.shapes.type_name(x._tab_meta.dtype)}Tensor")


def _assign(part: Tensor, value: Any) -> None:
    if not isinstance(value, Tensor):
        check_inplace(part)
        check_overlap(part, ())
        _fill(
            part, value, "FillBackward3" if part._tab_meta.ndim else "CopyBackwards"
        )  # of which PyTorch makes a tensor first
        return
    m = value._tab_meta
    if (
        m is part._tab_meta
        and value._tab_storage is part._tab_storage
        and not (STATE.grad and (part._tab_requires_grad or value._tab_requires_grad))
    ):
        check_inplace(part, (value,))
        part._tab_storage.written()  # `x[i] += y` comes here with the part itself: it has been written already
        return
    if m.shape == part._tab_meta.shape:
        part.copy_(value)
        return
    if m.ndim == 0:
        part.fill_(value)
        return
    lead = 0
    while lead < m.ndim and m.shape[lead] == 1:
        lead += 1
    if lead:
        value = value.view(m.shape[lead:])
    part.copy_(value.expand(part._tab_meta.shape))
