"""The functions that checkpoints name to make tensors again: `torch._utils._rebuild_*`."""

from __future__ import annotations

from itertools import accumulate
from operator import mul
from typing import Any

from tabtorch import _lazy
from tabtorch.base.dtypes import dtype as Dtype
from tabtorch.core.storage import Storage
from tabtorch.core.tensor import Tensor
from tabtorch.core.tensor_base import INSIDE, TensorBase
from tabtorch.engine.view import CONJ, NEG, contiguous_strides, meta
from tabtorch.nn.parameter import Parameter
from tabtorch.storage import TypedStorage


class UnsupportedDtype(TypeError):
    """A checkpoint holds numbers of a type that tabtorch does not have."""


def missing_dtype(name: str) -> UnsupportedDtype:
    """The error for a type that PyTorch has and tabtorch has not."""
    return UnsupportedDtype(f"torch.{name} is not supported by tabtorch")


def _get_available_device_type() -> str | None:
    """The accelerator's type, "cuda" where there is one, as libraries ask for it."""
    return "cuda" if _lazy.cuda.is_available() else None


def _ints(what: str, values: Any) -> tuple[int, ...]:
    if not isinstance(values, (tuple, list)) or not all(type(v) in (int, bool) for v in values):
        raise TypeError(f"{what} must be a tuple of ints, but got {values!r}")
    return tuple(map(int, values))


def over(storage: Storage, dtype: Dtype, offset: int, size: Any, stride: Any) -> Tensor:
    """A tensor over a storage. RuntimeError for a view that leaves it."""
    shape = _ints("size", size)
    strides = _ints("stride", () if stride is None else stride) or contiguous_strides(shape)
    if type(offset) is int and max(map(abs, (offset, *shape, *strides))) >= 2**63:
        raise ValueError("Overflow when unpacking long long")
    if len(shape) != len(strides):
        raise RuntimeError(f"mismatch in length of strides and shape. shape: {list(shape)}, stride: {list(strides)}")
    if type(offset) is not int or offset < 0 or min(shape, default=0) < 0 or min(strides, default=0) < 0:
        raise RuntimeError(
            f"Tensor: invalid storage offset {offset}, sizes {list(shape)} or strides {list(strides)}: they may not be negative"
        )
    if max(accumulate(shape, mul), default=0) >= 2**63:
        raise RuntimeError("numel: integer multiplication overflow")
    have = storage.nbytes
    if 0 not in shape and storage.node.inst.out.device.type != "meta":
        last = offset + sum((n - 1) * s for n, s in zip(shape, strides))
        if (last + 1) * dtype.itemsize > have:
            raise RuntimeError(
                f"setStorage: sizes {list(shape)}, strides {list(strides)}, storage offset {offset}, and itemsize "
                f"{dtype.itemsize} requiring a storage size of {(last + 1) * dtype.itemsize} are out of bounds for storage "
                f"of size {have}"
            )
    t: Tensor = object.__new__(Tensor)
    t._tab_storage = storage
    t._tab_meta = meta(shape, strides, offset, dtype, storage.node.inst.out.device)
    return t


def _rebuild_tensor(storage: Any, storage_offset: int, size: Any, stride: Any) -> Tensor:
    if not isinstance(storage, TypedStorage):
        raise TypeError(f"expected a storage, but got {type(storage).__name__}")
    return over(storage._tab_storage, storage.dtype, storage_offset, size, stride)


def _rebuild_tensor_v2(
    storage: Any,
    storage_offset: int,
    size: Any,
    stride: Any,
    requires_grad: bool,
    backward_hooks: Any,
    metadata: Any = None,
) -> Tensor:
    t = _rebuild_tensor(storage, storage_offset, size, stride)
    t._tab_requires_grad = _grad(t, requires_grad)
    return _marked(t, metadata)


def _rebuild_tensor_v3(
    storage: Any,
    storage_offset: int,
    size: Any,
    stride: Any,
    requires_grad: bool,
    backward_hooks: Any,
    dtype: Any,
    metadata: Any = None,
) -> Tensor:
    if not isinstance(dtype, Dtype):
        raise dtype.error() if isinstance(dtype, NoDtype) else TypeError(f"expected a dtype, but got {dtype!r}")
    if not isinstance(storage, TypedStorage):
        raise TypeError(f"expected a storage, but got {type(storage).__name__}")
    if storage._tab_storage.node.inst.out.dtype is not dtype:
        raise TypeError(
            f"a tensor of {dtype!r} over a storage of {storage._tab_storage.node.inst.out.dtype!r} cannot be made"
        )
    t = over(storage._tab_storage, dtype, storage_offset, size, stride)
    t._tab_requires_grad = requires_grad is not None and _grad(t, requires_grad)
    return _marked(t, metadata)


def _grad(t: Tensor, requires_grad: Any) -> bool:
    if type(requires_grad) is not bool:
        raise RuntimeError("requires_grad must be a bool")
    if requires_grad and t._tab_meta.dtype.category < 2:
        raise RuntimeError("only Tensors of floating point dtype can require gradients")
    return requires_grad


def _marked(t: Tensor, metadata: Any) -> Tensor:
    """As a view that shows conjugates, or negatives, of what its storage holds, if it was one."""
    if not metadata:
        return t
    if type(metadata) is not dict:
        raise TypeError(f"expected dict, got {type(metadata).__name__}")
    conj, neg = "conj" in metadata, "neg" in metadata  # that they are there is what says so
    if not (conj or neg):
        return t
    if conj and not t._tab_meta.dtype.is_complex:
        raise RuntimeError("only tensors of complex numbers have a conjugate mark")
    t._tab_meta = t._tab_meta.marked(CONJ * conj | NEG * neg)
    return t


class NoDtype:
    """A name of a dtype that tabtorch does not have: an error only where a tensor is made of it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def error(self) -> UnsupportedDtype:
        return missing_dtype(self.name)


def _rebuild_parameter(data: Any, requires_grad: bool, backward_hooks: Any) -> Parameter:
    if not isinstance(data, Tensor):
        raise TypeError(f"expected a tensor, but got {type(data).__name__}")
    if type(requires_grad) is not bool:
        raise TypeError(f"requires_grad must be bool, not {type(requires_grad).__name__}")
    return Parameter(data, requires_grad)


def _rebuild_parameter_with_state(data: Any, requires_grad: bool, backward_hooks: Any, state: Any) -> Parameter:
    param = _rebuild_parameter(data, requires_grad, backward_hooks)
    set_state(param, state)
    return param


def _rebuild_from_type_v2(func: Any, new_type: Any, args: Any, state: Any) -> Tensor:
    if not any(func is f for f in REBUILD.values()) or not (
        isinstance(new_type, type) and issubclass(new_type, Tensor)
    ):
        raise TypeError(
            f"expected a function that makes tensors, and a class of them, but got {func!r} and {new_type!r}"
        )
    t: Tensor = func(*args)
    if type(t) is not new_type:
        t = t.as_subclass(new_type)
    setstate = getattr(new_type, "__setstate__", None)
    if setstate is not None:
        setstate(t, state)
    else:
        set_state(t, state)
    return t


def set_state(t: Tensor, state: Any) -> None:
    """Gives a tensor the attributes that it was saved with. Nothing of a tensor itself can be set so."""
    slots = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    for part in (state, slots):
        if part is not None and type(part) is not dict:
            raise RuntimeError(f"Invalid serialized state: {state}")
        for name, value in (part or {}).items():
            if type(name) is not str or name in {*dir(object), *vars(Tensor), *vars(TensorBase), *INSIDE}:
                raise RuntimeError(f"Invalid serialized state: it would set the attribute {name!r} of a tensor")
            t.__dict__[name] = value


def _rebuild_device_tensor_from_numpy(data: Any, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    return _rebuild_device_tensor_from_cpu_tensor(_lazy.from_host.from_numpy(data), dtype, device, requires_grad)


def _rebuild_device_tensor_from_cpu_tensor(data: Any, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    t: Tensor = data.to(dtype=dtype)
    return t.requires_grad_(requires_grad)


def _rebuild_meta_tensor_no_storage(dtype: Any, size: Any, stride: Any, requires_grad: bool) -> Tensor:
    return _lazy.creation.empty_strided(size, stride, dtype=dtype, device="meta", requires_grad=requires_grad)


def _no(kind: str) -> Any:
    def rebuild(*args: Any) -> Any:
        raise NotImplementedError(f"the checkpoint holds a {kind} tensor, which tabtorch does not have")

    return rebuild


def _rebuild_sparse_tensor(layout: Any, data: Any) -> Tensor:
    """A tensor of a sparse layout, of its indices, values and size."""
    made: Tensor = _lazy.sparse_create.rebuilt(layout, data)
    return made


#: the names in a checkpoint, behind `torch._utils.`
REBUILD = {
    f.__name__: f
    for f in (
        _rebuild_tensor,
        _rebuild_tensor_v2,
        _rebuild_tensor_v3,
        _rebuild_parameter,
        _rebuild_parameter_with_state,
        _rebuild_device_tensor_from_numpy,
        _rebuild_device_tensor_from_cpu_tensor,
        _rebuild_meta_tensor_no_storage,
        _rebuild_sparse_tensor,
    )
} | {
    "_rebuild_qtensor": _no("quantized"),
    "_rebuild_nested_tensor": _no("nested"),
    "_rebuild_wrapper_subclass": _no("wrapper subclass"),
}


def _flatten_dense_tensors(tensors: Any) -> Tensor:
    """The elements of all of them, one after the other, as one dimension."""
    tensors = list(tensors)
    return _lazy.torch.cat([t.reshape(-1) for t in tensors]) if tensors else _lazy.torch.empty(0)


def _unflatten_dense_tensors(flat: Tensor, tensors: Any) -> tuple[Tensor, ...]:
    """The pieces of one dimension as views, each of the shape of one of `tensors`."""
    start, pieces = 0, []
    for t in tensors:
        pieces.append(flat.narrow(0, start, t.numel()).view(t.shape))
        start += t.numel()
    return tuple(pieces)
