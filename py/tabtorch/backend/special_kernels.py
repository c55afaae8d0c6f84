"""Kernels that are no function of values: views, storages, copies between devices, sizes, indices of the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tabtorch.backend.kernels import special
from tabtorch.backend.tensors import (
    NAME,
    OURS,
    check_index,
    download,
    empty,
    place,
    set_storage,
    storage_over,
    unwrap,
    unwrap_marked,
    upload,
    wrap,
)
from tabtorch.core.storage import Storage
from tabtorch.core.tensor import Tensor
from tabtorch.engine.view import contiguous_meta, contiguous_strides
from tabtorch.nn.utils import rnn as packing
from tabtorch.ops.indexing.scatter import put_at

aten = torch.ops.aten
_CPU = torch._C.DispatchKey.CPU


# ---- views: PyTorch's kernels for the CPU make them of sizes, strides and the storage alone

for _name in ("as_strided", "view", "unfold", "_reshape_alias", "view_as_real", "view_as_complex"):
    _op = getattr(aten, _name).default
    special(_name)(lambda *args, _op=_op, **kw: _op._op_dk(_CPU, *args, **kw))


def _typed(storage: Any, dtype: torch.dtype) -> None:
    """A storage that came as bytes has the type of the first tensor that is made of it: it is computed with as it lies."""
    if getattr(storage, "_bytes", False) and dtype is not torch.uint8:
        storage._bytes = False
        ours, d = storage._tabtorch, OURS[dtype]
        if ours.node.inst.out.dtype is not d and ours.nbytes % d.itemsize == 0 and ours.nbytes:
            ours.node = whole(ours).view(d).clone()._tab_storage.node


def whole(storage: Storage) -> Tensor:
    """All of a storage as a tensor of one dimension, of the type in which it is kept."""
    t: Tensor = object.__new__(Tensor)
    out = storage.node.inst.out
    t._tab_storage, t._tab_meta = storage, contiguous_meta((out.numel,), out.dtype, out.device)
    return t


@special("set_.source_Storage_storage_offset")
def _set_storage(t: torch.Tensor, source: Any, offset: int, size: Sequence[int], stride: Sequence[int] = ()) -> Any:
    stride = list(stride) or list(contiguous_strides(tuple(size)))
    _typed(source, t.dtype)
    return set_storage(t, source, offset, list(size), stride)


@special("set_.source_Storage")
def _set_whole_storage(t: torch.Tensor, source: Any) -> Any:
    return _set_storage(t, source, 0, [source.nbytes() // t.element_size()], [1])


@special("set_.source_Tensor")
def _set_tensor(t: torch.Tensor, source: torch.Tensor) -> Any:
    return set_storage(t, source.untyped_storage(), source.storage_offset(), source.shape, source.stride())


@special("set_")
def _set_nothing(t: torch.Tensor) -> Any:
    return _set_tensor(t, empty([0], None, t.dtype))


# ---- making and copying


def _format_strides(size: Sequence[int], memory_format: Any) -> tuple[int, ...] | None:
    if memory_format in (torch.channels_last, torch.channels_last_3d):
        order = (0, *range(2, len(size)), 1)
        strides, n = [0] * len(size), 1
        for d in reversed(order):
            strides[d] = n
            n *= max(size[d], 1)
        return tuple(strides)
    return None


@special("empty.memory_format")
def _empty(
    size: Sequence[int],
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    memory_format: Any = None,
) -> torch.Tensor:
    if pin_memory:
        raise RuntimeError("Only dense CPU tensors can be pinned")
    if device is not None:
        check_index(device.index)
    return empty(size, _format_strides(size, memory_format), dtype or torch.get_default_dtype())


@special("empty_strided")
def _empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
) -> torch.Tensor:
    if device is not None:
        check_index(device.index)
    return empty(size, stride, dtype or torch.get_default_dtype())


@special("_efficientzerotensor")
def _zero_tensor(size: Sequence[int], *, dtype: Any = None, **kw: Any) -> torch.Tensor:
    return empty(size, None, dtype or torch.get_default_dtype())


@special("clone")
def _clone(x: torch.Tensor, *, memory_format: Any = None) -> torch.Tensor:
    ours = unwrap_marked(x)
    m = ours._tab_meta
    kept = memory_format is None or memory_format is torch.preserve_format
    if m.whole and (kept or memory_format is torch.contiguous_format and m.strides == contiguous_strides(m.shape)):
        node = ours._tab_storage.node
        if node.inst.out.numel == m.numel and node.inst.out.dtype is m.dtype:
            return wrap(Tensor._wrap(node, m))  # values never change: sharing one is copying it
    made = torch.empty_like(x, memory_format=memory_format or torch.preserve_format)
    unwrap(made).copy_(ours)
    return made


@special("_copy_from")
def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    if target.device.type == NAME:
        ours = unwrap_marked(source) if source.device.type == NAME else _from_elsewhere(source)
        unwrap_marked(target).copy_(ours)
        return target
    if target.device.type != "cpu":
        raise NotImplementedError(
            f"copies from {NAME} to {target.device.type} go by the CPU: x.cpu().to({str(target.device)!r})"
        )
    found = download(unwrap_marked(source), target)
    if found is not target:
        target.copy_(found)
    return target


def _from_elsewhere(t: torch.Tensor) -> Tensor:
    if t.device.type != "cpu":
        raise NotImplementedError(f"copies from {t.device.type} to {NAME} go by the CPU: x.cpu().to({NAME!r})")
    d = OURS.get(t.dtype)
    if d is not None and place().lacks(d):
        # the target has another type, or making it would have been refused
        t = t.to(torch.float32 if t.dtype is torch.float64 else torch.complex64)
    return upload(t)


@special("_to_copy")
def _to_copy(x: torch.Tensor, *, non_blocking: bool = False, **kw: Any) -> torch.Tensor:
    dtype = kw.get("dtype")
    d = OURS.get(dtype)
    if d is not None and len(kw) == 1 and x.device.type == NAME and x.is_contiguous() and not place().lacks(d):
        ours = unwrap_marked(x)
        return wrap(ours.clone() if ours._tab_meta.dtype is d else ours.to(d))  # in one step
    # to the CPU and not waiting for it, PyTorch asks for pinned memory, of which there is none: the copy waits
    key = torch._C.DispatchKey.CompositeExplicitAutograd
    result: torch.Tensor = aten._to_copy.default._op_dk(key, x, **kw)
    return result


@special("_copy_from_and_resize")
def _copy_from_and_resize(source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    target.resize_(source.shape)
    return _copy_from(source, target)


@special("_local_scalar_dense")
def _number(t: torch.Tensor) -> Any:
    return unwrap_marked(t).item()


@special("resize_")
def _resize(t: torch.Tensor, size: Sequence[int], *, memory_format: Any = None) -> torch.Tensor:
    """What lies in the storage stays; a storage that is too small is another, larger one."""
    size = list(size)
    if size == list(t.shape) and memory_format is None:
        return t  # with the strides that it has
    strides = list(_format_strides(size, memory_format) or contiguous_strides(tuple(size)))
    need = 0 if 0 in size else 1 + t.storage_offset() + sum((n - 1) * st for n, st in zip(size, strides))
    storage = t.untyped_storage()
    if storage.nbytes() < need * t.element_size():
        larger = unwrap(empty([need], None, t.dtype))._tab_storage
        old = storage._tabtorch
        if old.nbytes:
            before = whole(old).view(OURS[t.dtype])
            whole(larger)[: before.numel()].copy_(before)
        storage = storage_over(Storage(larger.node))
    return set_storage(t, storage, t.storage_offset(), size, strides)


@special("record_stream")
def _record_stream(t: torch.Tensor, stream: Any) -> None:
    """All runs in one stream: no memory is used again before."""


@special("is_set_to")
def _is_set_to(x: torch.Tensor, y: torch.Tensor) -> bool:
    return (
        x.untyped_storage()._cdata == y.untyped_storage()._cdata
        and x.storage_offset() == y.storage_offset()
        and x.shape == y.shape
        and x.stride() == y.stride()
    )


@special("_nested_tensor_from_mask_left_aligned")
def _left_aligned(x: torch.Tensor, mask: torch.Tensor) -> bool:
    """Whether `nn.TransformerEncoder` may pack a padded batch into a nested tensor: there are none here, so it keeps the padding,
    as on every device without them."""
    return False


# ---- indices: those on the CPU serve, too


def _ours_or_uploaded(t: torch.Tensor | None) -> Tensor | None:
    if t is None:
        return None
    return upload(t) if t.device.type == "cpu" else unwrap(t)


@special("_pack_padded_sequence")
def _pack(x: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Lengths are on the CPU, and so are the sizes of the batches."""
    if lengths.dim() != 1 or lengths.device.type != "cpu" or lengths.dtype != torch.int64:
        kind = {torch.int64: "Long", torch.int32: "Int"}.get(lengths.dtype, str(lengths.dtype))
        raise RuntimeError(
            f"'lengths' argument should be a 1D CPU int64 tensor, but got {lengths.dim()}D {lengths.device} {kind} tensor"
        )
    packed = packing.pack_padded_sequence(unwrap(x), lengths.tolist(), batch_first)
    return wrap(packed.data), torch.tensor(packed.batch_sizes.tolist(), dtype=torch.int64)


def _places(indices: Any) -> tuple[Any, ...]:
    return tuple(map(_ours_or_uploaded, indices))


@special("index.Tensor", "_unsafe_index.Tensor")
def _index(x: torch.Tensor, indices: Any) -> torch.Tensor:
    return wrap(unwrap(x)[tuple(slice(None) if i is None else i for i in _places(indices))])


@special("index_put_", "_index_put_impl_")
def _index_put(
    x: torch.Tensor, indices: Any, values: torch.Tensor, accumulate: bool = False, unsafe: bool = False
) -> Any:
    ours = unwrap(x)
    given = ours if values is x else unwrap(values) if values.device.type == NAME else _zero_dim(values)
    put_at(ours, _places(indices), given, accumulate, True)
    return x


@special("index_put", "_unsafe_index_put")
def _index_put_copy(x: torch.Tensor, indices: Any, values: torch.Tensor, accumulate: bool = False) -> Any:
    return _index_put(x.clone(), indices, values, accumulate)


def _zero_dim(t: torch.Tensor) -> Tensor:
    if t.dim():
        return unwrap(t)  # which refuses it
    return upload(t)


def _pin_memory(x: torch.Tensor, device: Any = None) -> torch.Tensor:
    """A copy of a CPU tensor: WebGPU has no pinned memory. Where there is CUDA, too, it is pinned for that."""
    if torch.cuda.is_available():
        key = torch._C.DispatchKey.CompositeExplicitAutograd
        pinned: torch.Tensor = aten._pin_memory.default._op_dk(key, x, device=device or torch.device("cuda"))
        return pinned
    return x.clone()


def register() -> list[Any]:
    """Registers what is not a kernel of the device, but has to know of it. Returns what has to be kept."""
    kept = []
    for key in (
        "Conjugate",
        "Negative",
    ):  # `copy_` goes by it, which writes through such views, and does not look at them
        library = torch._C._dispatch_library("IMPL", "aten", key, "", 0)
        library.impl("_copy_from", key, torch.library.fallthrough_kernel)
        kept.append(library)
    host = torch._C._dispatch_library("IMPL", "aten", "CPU", "", 0)
    host.impl("_pin_memory", "CPU", _pin_memory)
    return [*kept, host]
