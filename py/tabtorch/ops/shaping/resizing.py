"""What changes a tensor itself: its size and storage (`resize_`, `set_`), or its elements by a Python function (`apply_`)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import prod
from typing import Any, cast

from tabtorch import _lazy, ops
from tabtorch.autograd.grad_mode import STATE
from tabtorch.autograd.views import check_inplace
from tabtorch.base.dtypes import CXX_NAMES
from tabtorch.core.creation import fill_node
from tabtorch.core.layout import format_strides, preserve_format, strided
from tabtorch.core.layout import memory_format as memory_format_type
from tabtorch.core.shapes import ints, type_name
from tabtorch.core.storage import Storage
from tabtorch.core.tensor import Tensor
from tabtorch.engine.view import Meta, contiguous_meta, contiguous_strides, meta
from tabtorch.ops.machinery.registry import missing, register
from tabtorch.storage import TypedStorage, UntypedStorage

# ---- size and storage


def reserve(storage: Storage, m: Meta) -> None:
    """Makes the storage as long as `m` needs; what it holds stays, what is new is 0."""
    if not m.numel:
        return
    last = m.offset + sum((n - 1) * s for n, s in zip(m.shape, m.strides))
    have = storage.node.inst.out
    old = Tensor._wrap(storage.node, contiguous_meta((have.numel,), have.dtype, have.device))
    need = -(-(last + 1) * m.dtype.itemsize // have.dtype.itemsize)
    if need <= have.numel:
        return
    if have.numel == 0:
        storage.node = fill_node((need,), 0, have.dtype, have.device)
    else:
        storage.node = ops.cat([old, old.new_zeros((need - have.numel,))])._tab_storage.node


def resize(t: Tensor, shape: tuple[int, ...], memory_format: Any = None) -> Tensor:
    """`resize_` without its checks."""
    m = t._tab_meta
    if m.shape == shape and memory_format is None:
        return t
    strides = contiguous_strides(shape) if memory_format is None else format_strides(shape, memory_format)
    new = m.view(shape, strides, m.offset)
    reserve(t._tab_storage, new)
    t._tab_meta = new
    return t


@register("resize_", method=True)
def resize_(self: Tensor, *sizes: Any, memory_format: Any = None, **kw: Any) -> Tensor:
    """Another size, over the same storage, which grows if it has to (new elements are 0). RuntimeError if it requires grad."""
    if kw:
        sizes = (kw.pop("size"),)
    elif not sizes:
        raise missing("resize_", ["size"])
    shape = ints(sizes, "resize_")
    if self._tab_requires_grad and not STATE.inference:
        raise RuntimeError("cannot resize variables that require grad")
    if any(n < 0 for n in shape):
        raise RuntimeError("numel: integer multiplication overflow")
    if memory_format is preserve_format:
        raise RuntimeError("Unsupported memory formatPreserve")
    if shape != self._tab_meta.shape or memory_format is not None:
        check_inplace(self)
        resize(self, shape, memory_format)
        self._tab_storage.written()
    return self


@register("resize_as_", method=True)
def resize_as_(self: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
    """`resize_` to the size of another tensor."""
    if self._tab_requires_grad:
        raise RuntimeError("cannot resize variables that require grad")
    if memory_format is preserve_format:
        memory_format = None
        if self.shape != the_template.shape:
            m = self._tab_meta
            new = m.view(the_template.shape, the_template.stride(), m.offset)
            reserve(self._tab_storage, new)
            self._tab_meta = new
        return self
    return resize_(self, tuple(the_template.shape), memory_format=memory_format)


@register("set_", method=True, torch=False)
def set_(self: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None) -> Tensor:
    """Makes it a view of the storage of `source` (a tensor or a storage), of that size and those strides; no source: empty."""
    check_inplace(self)
    m = self._tab_meta
    if source is None:
        _lie_in(self, Storage(fill_node((0,), 0, m.dtype, m.device)), contiguous_meta((0,), m.dtype, m.device))
        return self
    if isinstance(source, Tensor):
        if source.dtype is not m.dtype:
            raise RuntimeError(
                f"Could not set tensor of type {CXX_NAMES[source.dtype.name]} to a tensor of type {CXX_NAMES[m.dtype.name]}"
            )
        storage, there = source._tab_storage, source.device
        if size is None:
            new = meta(source.shape, source.stride(), source._tab_meta.offset, m.dtype, there, m.mark)
        else:
            new = _geometry(m, storage_offset, size, stride, there)
    elif isinstance(source, (UntypedStorage, TypedStorage)):
        storage, there = source._tab_storage, source.device
        if size is None:
            size = (storage.nbytes // m.dtype.itemsize,)
        new = _geometry(m, storage_offset, size, stride, there)
    else:
        raise TypeError(
            f"set_(): argument 'source' (position 1) must be Tensor or Storage, not {type(source).__name__}"
        )
    if there != m.device:
        raise RuntimeError(
            f'Attempted to set the storage of a tensor on device "{m.device}" to a storage on different device "{there}".  '
            "This is no longer allowed; the devices must match."
        )
    reserve(storage, new)
    _lie_in(self, storage.untracked(), new)
    return self


def _lie_in(t: Tensor, storage: Storage, m: Meta) -> None:
    """Moves a tensor to other memory, which counts as a write to it; the versions there are not its own."""
    storage.version = t._tab_storage.version + 1
    t._tab_storage = storage
    t._tab_meta = m


def _geometry(m: Meta, offset: int, size: Any, stride: Any, device: Any) -> Meta:
    shape = ints((size,), "set_")
    strides = contiguous_strides(shape) if stride is None else ints((stride,), "set_", "stride")
    if len(strides) != len(shape):
        raise RuntimeError(f"unequal size length ({len(shape)}) and stride length ({len(strides)})")
    return meta(shape, strides, offset, m.dtype, device, m.mark)


@register("new", method=True, torch=False)
def new(self: Tensor, *args: Any, **kw: Any) -> Tensor:
    """The old constructor: a tensor of its type and device, of sizes or of values."""
    if self.layout is not strided:
        return cast(Tensor, _lazy.sparse_tensor.dispatch("new", (self, *args), kw))
    if len(args) == 1 and isinstance(args[0], Tensor) and args[0].dtype is not self.dtype:
        raise TypeError(f"expected {type_name(self.dtype)} (got {type_name(args[0].dtype)})")
    r: Tensor = _lazy.constructors.legacy_constructor(
        Tensor, *args, dtype=self.dtype, device=kw.get("device", self.device)
    )
    return r


@register("dim_order", method=True, torch=False)
def dim_order(self: Tensor, *, ambiguity_check: Any = False) -> tuple[int, ...]:
    """The dimensions from the outermost in memory to the innermost.

    ambiguity_check: True, or memory formats of which exactly one must fit: RuntimeError where there is more than one order.
    """
    m = self._tab_meta
    formats = ambiguity_check if isinstance(ambiguity_check, list) else []
    if not isinstance(ambiguity_check, (bool, list)) or not all(isinstance(f, memory_format_type) for f in formats):
        raise TypeError("The ambiguity_check argument must be a bool or a list of memory formats.")
    many = 1 in m.shape or any(a == b for a, b in pairwise(m.strides))
    if ambiguity_check is not False and many and sum(self.is_contiguous(f) for f in formats) != 1:
        raise RuntimeError(
            "The tensor does not have unique dim order, or cannot map to exact one of the given memory formats."
        )
    return tuple(sorted(range(m.ndim), key=lambda d: -m.strides[d]))


# ---- elements by a Python function


def _mapped(name: str, self: Tensor, others: tuple[Any, ...], function: Callable[..., Any]) -> Tensor:
    if self._tab_requires_grad or any(isinstance(o, Tensor) and o._tab_requires_grad for o in others):
        raise RuntimeError(f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() instead.")
    if self.device.type != "cpu":
        raise TypeError(f"{name} is only implemented on CPU tensors")
    columns = [self.reshape(-1).tolist()]
    for k, o in enumerate(others):
        if not isinstance(o, Tensor):
            raise TypeError(f"{name}(): argument 'other' (position {k + 1}) must be Tensor, not {type(o).__name__}")
        if o.dtype is not self.dtype or o.device != self.device:
            raise TypeError(f"{name}: expected {self.type()} for 'other' (got {o.type()})")
        columns.append(o.expand(self.shape).reshape(-1).tolist())
    values = [function(*v) for v in zip(*columns)]
    if not self.dtype.is_floating_point and not self.dtype.is_complex:
        values = [int(v) for v in values]
    if prod(self.shape):
        self.copy_(ops.tensor(values, dtype=self.dtype, device=self.device).reshape(self.shape))
    return self


@register("apply_", method=True, torch=False)
def apply_(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Each element replaced by `callable(element)`; only on the cpu device."""
    return _mapped("apply_", self, (), callable)


@register("map_", method=True, torch=False)
def map_(self: Tensor, tensor: Any, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Each element replaced by `callable(element, element of tensor)`; only on the cpu device."""
    return _mapped("map_", self, (tensor,), callable)


@register("map2_", method=True, torch=False)
def map2_(self: Tensor, x: Any, y: Any, callable: Callable[[Any, Any, Any], Any]) -> Tensor:
    """The same with two other tensors."""
    return _mapped("map2_", self, (x, y), callable)
