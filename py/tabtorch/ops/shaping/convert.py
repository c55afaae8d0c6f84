"""Conversions of dtype, device and layout: `to`, `clone`, `contiguous`, `copy_`, `fill_` and their kin."""

from __future__ import annotations

from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.grad_mode import STATE
from tabtorch.autograd.tape import named, record, unsupported
from tabtorch.autograd.views import before_write, check_inplace, rebase, refresh, view
from tabtorch.base import dtypes
from tabtorch.base.device import check_has, implicit_cpu, resolve
from tabtorch.base.device import device as Device
from tabtorch.core.layout import contiguous_format, is_contiguous, order_of, preserve_format, suggested_format
from tabtorch.core.shapes import remembered
from tabtorch.core.tensor import Tensor
from tabtorch.engine import graph
from tabtorch.engine.graph import Map, Node, emit, inst
from tabtorch.engine.view import (
    Meta,
    broadcast_shapes,
    broadcast_strides,
    contiguous_meta,
    contiguous_strides,
    meta,
    ordered_strides,
)
from tabtorch.ops.machinery.arguments import as_operand
from tabtorch.ops.machinery.batching import batches
from tabtorch.ops.machinery.dispatch import check_shape, laid_out, layout_of, scalar_value, table
from tabtorch.ops.machinery.inplace import check_overlap, covering_order, is_dense, set_node, set_tensor, whole_storage
from tabtorch.ops.machinery.integer_bounds import carry
from tabtorch.ops.machinery.operand_devices import WIDE
from tabtorch.ops.machinery.registry import register

_CAST = Map("to", lambda x: x)
_FILL = Map("fill", lambda v: v)
_casts = table()


def converted(t: Tensor, shape: tuple[int, ...], d: dtypes.dtype, order: Any = None) -> Tensor:
    """`t` broadcast to `shape` as `d`, laid out in `order` of dimensions (None: row-major). No record. Shares the value if it can."""
    m = t._tab_meta
    key = (m, shape, d, order)
    entry = _casts.get(key)
    if entry is None:
        check_has(m.device, d)
        try:
            st = broadcast_strides(m, shape)
            if any(n != want and n != 1 for n, want in zip(m.shape[::-1], shape[::-1])):
                raise ValueError
        except ValueError:
            raise RuntimeError(
                f"The size of tensor a ({shape[-1] if shape else 1}) must match the size of tensor b "
                f"({m.shape[-1] if m.shape else 1}) at non-singleton dimension {max(len(shape) - 1, 0)}"
            ) from None
        perm = order or range(len(shape))
        if 0 in shape:
            perm = range(len(shape))
        source = m.view(tuple([shape[k] for k in perm]), tuple([st[k] for k in perm]), m.offset)
        inner, out = laid_out(shape, order, d, m.device)
        entry = _casts[key] = (inst(_CAST, (source,), inner), out, source.whole and m.dtype is d)
    i, out, same = entry
    node = t._tab_storage.node
    if same and node.inst.out.numel == out.numel and node.inst.out.dtype is d and not STATE.levels:
        return Tensor._wrap(node, out)  # values never change: sharing one is copying it
    return Tensor._wrap(emit(i, (node,)), out)


def _preserved_order(m: Meta) -> Any:
    """The layout of a copy that preserves that of `m`: its own order where it is dense, else TensorIterator's."""
    return layout_of([m], m.shape)


def _order_for(m: Meta, memory_format: Any) -> Any:
    if memory_format is None or memory_format is preserve_format:
        return _preserved_order(m)
    if memory_format is contiguous_format:
        return None
    return order_of(memory_format, m.ndim)


def keep_strides(out: Tensor, m: Meta, memory_format: Any = None) -> None:
    """A copy that preserves the layout of a dense tensor has its strides, those of dimensions of size 1 too."""
    o = out._tab_meta
    if o.strides != m.strides and memory_format in (None, preserve_format) and is_dense(m):
        out._tab_meta = meta(o.shape, m.strides, 0, o.dtype, o.device)


@remembered
def _lies_in(m: Meta, order: tuple[int, ...]) -> bool:
    """Whether `m` has the strides of a new tensor in `order` of dimensions, those of dimensions of size 1 too."""
    return m.strides == (ordered_strides(m.shape, order) if order else contiguous_strides(m.shape))


def in_order(t: Tensor, order: tuple[int, ...] = ()) -> Tensor:
    """`t`, just computed and not on the tape yet, laid out as a new tensor in `order` of dimensions (none: row-major)."""
    m = t._tab_meta
    return t if _lies_in(m, order) else converted(t, m.shape, m.dtype, order or None)


def recorded_in_order(t: Tensor, order: tuple[int, ...] = ()) -> Tensor:
    """The same for a result that is on the tape already."""
    if _lies_in(t._tab_meta, order):
        return t
    r = in_order(t.detach(), order)
    record("CloneBackward0", (t,), r, lambda g: g)
    return r


def as_cloned(t: Tensor, m: Meta) -> Tensor:
    """The same, laid out as a clone of what `m` views."""
    out = in_order(t, _preserved_order(m) or ())
    keep_strides(out, m)
    return out


def transfer(node: Node, device: Any, non_blocking: bool = False) -> Node:
    """A value on another device, as it is. non_blocking: to the cpu it may be on its way, and who needs it waits."""
    out = node.inst.out
    m = contiguous_meta(out.shape, out.dtype, device)
    check_has(device, m.dtype)
    if batches[0]:
        b: Any = node.buf
        if type(b) is _lazy.batch.Batch:
            return _lazy.batch.example_of(b.level, transfer(b.node, device, non_blocking), m)
    if device.type == "meta":
        return graph.blank(m)
    nbytes = m.numel * m.dtype.itemsize
    graph.check_size(nbytes, m)
    if device.host and not (non_blocking and STATE.held is None and graph.bridge().can_wait):
        n = graph.from_host(graph.read(node, 0, nbytes), m)
    else:
        n = graph.blank(m)
        n.buf = graph.copied(graph.buffer_of(node), device.number, nbytes)
        if device.host:
            graph.bridge().flush()  # so that it is on its way while Python goes on
            if graph.read_checked is not None:
                _lazy.asserts.carried.add(out.device.number)
    if STATE.held is None:  # else another call has other values
        carry(node, n)
    return n


def _moved(t: Tensor, device: Any, non_blocking: bool = False) -> Tensor:
    """`t` on another device, with no record."""
    m = t._tab_meta
    if not whole_storage(t):
        t = converted(t, m.shape, m.dtype, _preserved_order(m))
        m = t._tab_meta
    node = transfer(t._tab_storage.node, device, non_blocking)
    return Tensor._wrap(node, meta(m.shape, m.strides, 0, m.dtype, device))


def _marked(t: Tensor, device: Any) -> Tensor:
    """The same memory, said to be on another device of that number. As in PyTorch, the cpu's is the tensor itself."""
    m = t._tab_meta
    return view(t, meta(m.shape, m.strides, m.offset, m.dtype, device, m.mark), "ToCopyBackward0", lambda g: g)


def convert(
    t: Tensor, d: dtypes.dtype, device: Any, memory_format: Any = None, copy: bool = False, non_blocking: bool = False
) -> Tensor:
    """`t` as a dtype on a device: itself if it is that already, unless `copy`."""
    m = t._tab_meta
    if not copy and d is m.dtype and device.number == m.device.number:
        if memory_format in (None, preserve_format) or memory_format is suggested_format(m):
            if device is m.device:
                return t
            if device.host:
                return _marked(t, device)
    check_has(device, d)
    if m.dtype.is_complex and not d.is_complex and d is not dtypes.bool_:
        import warnings

        warnings.warn("Casting complex values to real discards the imaginary part", UserWarning, stacklevel=4)
    order = _order_for(m, memory_format)
    if device.number == m.device.number:
        out = converted(t, m.shape, d, order)
        if device is not m.device:
            o = out._tab_meta
            out._tab_meta = meta(o.shape, o.strides, o.offset, o.dtype, device)
    elif device.lacks(m.dtype):
        out = _moved(converted(t, m.shape, d, order), device, non_blocking)
    else:  # fewer bytes cross where the type gets smaller; converting on the far side is as right
        small = d.itemsize <= m.dtype.itemsize and d not in WIDE
        out = _moved(converted(t, m.shape, d if small else m.dtype, order), device, non_blocking)
        if not small:
            out = converted(out, m.shape, d, order)
    keep_strides(out, m, memory_format)
    if STATE.inference:
        out._tab_inference = True
    elif t._tab_requires_grad and STATE.grad and d.category > 1:
        before = m.device
        record("ToCopyBackward0", (t,), out, (lambda g: g) if before is device else lambda g: g.to(before))
    return out


def device_of_result(t: Tensor, d: dtypes.dtype) -> Any:
    """Where a conversion to `d` goes if no device is named.

    A 64-bit float for which no device was named is on cpu only because the GPU has no such type: converted to one that the
    GPU has, it goes to the default device.
    """
    here = t._tab_meta.device
    if here.implicit and (d in WIDE or t._tab_meta.dtype in WIDE):
        return implicit_cpu if d in WIDE else resolve(None)
    return here


@register("to", torch=False, method=True)
def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """`to(dtype)`, `to(device, dtype=None)`, `to(other)`, each with `non_blocking`, `copy`, `memory_format`: itself if nothing changes.

    non_blocking: a copy from the GPU to cpu is taken here and now, and Python goes on; who needs the values waits for them, or hears
    why there are none. It is waited for all the same where there is nothing to wait with later (a browser without JSPI).
    """
    d: Any = kwargs.pop("dtype", None)
    device: Any = kwargs.pop("device", None)
    other = kwargs.pop("other", None)
    rest = []
    for a in args:
        if isinstance(a, (dtypes.dtype, type)):
            d = a
        elif isinstance(a, Tensor):
            other = a
        elif isinstance(a, (str, Device)) or (isinstance(a, int) and not isinstance(a, bool)):
            device = a
        elif a is not None:
            rest.append(a)
    if other is not None:
        d, device = other._tab_meta.dtype, other._tab_meta.device
    if rest and not all(isinstance(a, bool) for a in rest):
        names = ", ".join(type(a).__name__ for a in args)
        raise TypeError(
            f"to() received an invalid combination of arguments - got ({names}), but expected one of:\n"
            " * (torch.device device = None, torch.dtype dtype = None, bool non_blocking = False, bool copy = False, *, "
            "torch.memory_format memory_format = None)\n"
            " * (torch.dtype dtype, bool non_blocking = False, bool copy = False, *, torch.memory_format memory_format = None)\n"
            " * (Tensor tensor, bool non_blocking = False, bool copy = False, *, torch.memory_format memory_format = None)"
        )
    copy = kwargs.pop("copy", rest[1] if len(rest) > 1 else False)
    memory_format = kwargs.pop("memory_format", None)
    non_blocking = kwargs.pop("non_blocking", rest[0] if rest else False)
    if kwargs:
        raise TypeError(f"to() got an unexpected keyword argument '{next(iter(kwargs))}'")
    if d is None:
        d = self._tab_meta.dtype
    elif not isinstance(d, dtypes.dtype):
        given, d = d, dtypes.as_dtype(d)
        if d is None:
            raise TypeError(f"to(): argument 'dtype' must be torch.dtype, not {type(given).__name__}")
    where = device_of_result(self, d) if device is None else resolve(device)
    return convert(self, d, implicit_cpu if where.implicit and d in WIDE else where, memory_format, copy, non_blocking)


def _cast_method(name: str, d: dtypes.dtype) -> None:
    def cast(self: Tensor, memory_format: Any = None) -> Tensor:
        return convert(self, d, device_of_result(self, d), memory_format)

    cast.__name__ = cast.__qualname__ = name
    cast.__doc__ = f"`to({d!r})`."
    register(name, cast, torch=False, method=True)


for _name, _d in dtypes.PUBLIC.items():
    if _name in ("float", "double", "half", "bfloat16", "short", "int", "long", "bool", "cfloat", "cdouble"):
        _cast_method(_name, _d)
_cast_method("byte", dtypes.uint8)
_cast_method("char", dtypes.int8)


@register("cpu", torch=False, method=True)
def cpu(self: Tensor, memory_format: Any = None) -> Tensor:
    """On the cpu device."""
    return convert(self, self._tab_meta.dtype, resolve("cpu"), memory_format)


@register("cuda", torch=False, method=True)
def cuda(self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Tensor:
    """On webgpu, where `install()` lets "cuda" mean that."""
    return convert(self, self._tab_meta.dtype, resolve("cuda" if device is None else device), memory_format)


@register("type", torch=False, method=True)
def type_(self: Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    """The type's name, e.g. 'torch.FloatTensor', or the tensor converted to a dtype, given as such, by that name or that class."""
    if dtype is None:
        return _lazy.tape.type_string(self)
    where = None
    if isinstance(dtype, str):
        where = "cuda" if dtype.startswith("torch.cuda.") else None
        short = dtype.rpartition(".")[2].removesuffix("Tensor")
        known = {v: k for k, v in dtypes.TYPE_NAMES.items()}
        if short not in known:
            raise ValueError(f"invalid type: '{dtype}'")
        dtype = dtypes.PUBLIC[known[short]]
    elif isinstance(dtype, type):
        # torch.LongTensor has one; torch.Tensor stands for the default
        found = dtypes.get_default_dtype() if dtype is Tensor else getattr(dtype, "dtype", None)
        if not isinstance(found, dtypes.dtype):
            raise ValueError(f"invalid type: '{dtype.__name__}'")
        where = None if dtype is Tensor else getattr(dtype, "device", None)
        dtype = found
    return convert(self, dtype, device_of_result(self, dtype) if where is None else resolve(where))


@register("type_as", torch=False, method=True)
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """`to(other.dtype, device=other.device)`."""
    return convert(self, other._tab_meta.dtype, other._tab_meta.device)


@register("clone", method=True)
def clone(input: Tensor, *, memory_format: Any = None) -> Tensor:
    """A copy of its own, on the tape."""
    m = input._tab_meta
    out = converted(input, m.shape, m.dtype, _order_for(m, memory_format))
    keep_strides(out, m, memory_format)
    if STATE.grad:
        if input._tab_requires_grad:
            if m.dtype.category < 2:
                raise unsupported(input)
            record("CloneBackward0", (input,), out, lambda g: g)
    elif STATE.inference:
        out._tab_inference = True
    return out


@register("contiguous", torch=False, method=True)
def contiguous(self: Tensor, memory_format: Any = None) -> Tensor:
    """Itself if it lies row by row already, else a copy that does."""
    f = memory_format or contiguous_format
    if f is preserve_format:
        raise RuntimeError("preserve memory format is unsupported by the contiguous operator")
    if self._tab_meta.contiguous if f is contiguous_format else is_contiguous(self._tab_meta, f):
        return self
    return clone(self, memory_format=f)


register("detach", lambda input: input.detach(), doc="A view of the same elements that no gradient flows through.")


# ---- writes


@register("copy_", torch=False, method=True)
def copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Takes over the elements of `src`, broadcast and converted, from any device. non_blocking: see `to`."""
    if not isinstance(src, Tensor):
        x = as_operand(src)
        if x is None:
            raise TypeError(f"copy_(): argument 'other' (position 1) must be Tensor, not {type(src).__name__}")
        return fill_(self, x)
    m, v = self._tab_meta, src._tab_meta
    check_inplace(self, (src,) if m.dtype.category > 1 else ())
    if src._tab_stale and STATE.grad and m.dtype.category > 1:
        refresh(src)  # which may be refused, before anything else is said
    if m is v and src._tab_storage.root is self._tab_storage.root:
        if not (STATE.grad and (self._tab_requires_grad or src._tab_requires_grad)):
            self._tab_storage.written()  # as PyTorch: there is nothing to copy, and a version all the same
            return self
    else:
        check_overlap(self, (src,), marked=True)
    if v.shape != m.shape:
        check_shape(m, broadcast_shapes(m.shape, v.shape))
    recording = STATE.grad and (self._tab_requires_grad or src._tab_requires_grad) and m.dtype.category > 1
    fn = None
    if recording:
        fn = record("CopyBackwards", (before_write(self), src), Tensor._view_of(self, m), (_zeros_like, lambda g: g))
    value = src
    if v.device.number != m.device.number:
        if m.device.lacks(v.dtype):
            value = converted(src, v.shape, m.dtype)
        value = _moved(value, m.device, non_blocking)
    set_tensor(self, value)
    if fn is not None:
        rebase(self, fn)
    return self


@register("fill_", method=True)
def fill_(self: Tensor, value: Any) -> Tensor:
    """Every element becomes `value`: a number, or a 0-dimensional tensor."""
    return _fill(self, value, "FillBackward2")


def _fill(self: Tensor, value: Any, name: str) -> Tensor:
    x = as_operand(value)
    if x is None:
        raise TypeError(f"fill_(): argument 'value' (position 1) must be Number, not {type(value).__name__}")
    check_inplace(self, (x,))
    if isinstance(x, Tensor):
        if x._tab_meta.ndim:
            raise RuntimeError(
                f"fill_ only supports 0-dimension value tensor but got tensor with {x._tab_meta.ndim} dimensions."
            )
        if x._tab_requires_grad or x._tab_meta.device.number == self._tab_meta.device.number:
            return _fill_with(self, x)
        x = x.item()
    m = self._tab_meta
    if isinstance(x, complex) and not m.dtype.is_complex:
        raise RuntimeError("value cannot be converted to type float without overflow")
    check_inplace(self)
    check_overlap(self, (), repeats=True)
    recording = STATE.grad and self._tab_requires_grad
    fn = None
    if recording:
        fn = record(name, (before_write(self),), Tensor._view_of(self, m), (_zeros_like,))
    out = self._tab_storage.node.inst.out
    covers = out.dtype is m.dtype and covering_order(m, out.numel) != ()
    node = filled(out if covers else contiguous_meta(m.shape, m.dtype, m.device), x)
    if covers:
        self._tab_storage.node = node
        self._tab_storage.written()
    else:
        set_node(self, node)
    if fn is not None:
        rebase(self, fn)
    return self


def _fill_with(self: Tensor, x: Tensor) -> Tensor:
    """Fills with the one element of `x`."""
    m = self._tab_meta
    check_overlap(self, ())
    fn = None
    if STATE.grad and (self._tab_requires_grad or x._tab_requires_grad):
        fn = record("FillBackward3", (before_write(self), x), Tensor._view_of(self, m), (_zeros_like, lambda g: g))
    set_tensor(self, x.detach())
    if fn is not None:
        rebase(self, fn)
    return self


def _zeros_like(g: Tensor) -> Tensor:
    m = contiguous_meta(g._tab_meta.shape, g._tab_meta.dtype, g._tab_meta.device)
    return Tensor._wrap(filled(m, 0), m)


_fills = table()


def filled(m: Meta, value: Any) -> Node:
    """A node of that contiguous Meta with every element `value`, a Python number."""
    c = m.dtype.compute
    if c == "bool":
        key: Any = (m, bool(value))
        i = _fills.get(key)
        if i is None:
            op = _TRUE if value else _FALSE
            i = _fills[key] = inst(op, (), m)
        return emit(i, ())
    i = _fills.get(m)
    if i is None:
        i = _fills[m] = inst(_FILL, (), m, (c,))
    if c not in ("f32", "f64", "c64", "c128") and not isinstance(value, int):
        value = int(value)
    return emit(i, (), (scalar_value(value, c, m.dtype),))


def _constant(value: bool) -> Map:
    return Map("fill", lambda: _lazy.expr.const(value, "bool"))


_TRUE, _FALSE = _constant(True), _constant(False)


@register("zero_", method=True)
def zero_(self: Tensor) -> Tensor:
    """Every element becomes 0."""
    return _fill(self, 0, "ZeroBackward0")


@register("fill")
def fill(input: Tensor, value: Any) -> Tensor:
    """A copy in which every element is `value`."""
    return named(fill_(input.clone(), value), f"FillBackward{int(isinstance(value, Tensor))}")
