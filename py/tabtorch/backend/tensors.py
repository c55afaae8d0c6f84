"""Tensors of real PyTorch on "webgpu", and tensors of ours: one storage, seen from both sides.

A tensor of real PyTorch on this device is a plain `torch.Tensor`. Its storage has a size and an address, and no memory: the
one Python object that PyTorch keeps for a storage carries ours (`_tabtorch`), which has the value. PyTorch's C++ makes views of
it, counts versions, and records autograd, none of which looks at memory. Writes make a new value in our storage, so all that
PyTorch holds to be aliases see them.

What does look at memory ends the process, as the address is one at which no system maps any. So whatever would is refused
before, in kernels.py.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch

from tabtorch import _lazy
from tabtorch.base import dtypes
from tabtorch.base.device import device as Device
from tabtorch.base.device import resolve
from tabtorch.bridge import get_bridge
from tabtorch.bridge.base import LOCK, requested_device
from tabtorch.core.storage import Storage
from tabtorch.core.tensor import Tensor
from tabtorch.engine import graph
from tabtorch.engine.view import CONJ, NEG, Meta, contiguous_meta, contiguous_strides, meta

NAME = "webgpu"
#: real PyTorch's device
DEVICE = torch.device("privateuseone", 0)  # `install` has given it its name by the time it is shown

#: PyTorch's type -> ours, of those that both have
OURS: dict[torch.dtype, dtypes.dtype] = {
    getattr(torch, name): d for name, d in dtypes.PUBLIC.items() if isinstance(getattr(torch, name, None), torch.dtype)
}
THEIRS = {d: t for t, d in OURS.items()}

_new = object.__new__


# ---- the device underneath


class _Place:
    """Where the values are: our device, found when the first tensor is made."""

    device: Device | None = None


#: what is left to do until then: `import torch` pays for none of it
before_the_first: list[Callable[[], None]] = []


def place() -> Device:
    """Our device under "webgpu": the GPU. `TABTORCH_DEVICE=cpu` names the kernels in JavaScript. RuntimeError if neither is there."""
    found = _Place.device
    if found is None:
        wanted = requested_device()
        info = get_bridge().info
        if wanted == "auto":
            if not info.get("webgpu"):
                raise RuntimeError(
                    f"device='webgpu': there is no WebGPU here ({info.get('reason') or 'no adapter was found'}). Node needs "
                    "Dawn (`npm install webgpu`) and a graphics driver. TABTORCH_DEVICE=cpu runs the same kernels as JavaScript"
                )
            wanted = "webgpu"
        found = resolve(wanted)
        with LOCK:
            while before_the_first:
                before_the_first[0]()
                del before_the_first[0]
            _Place.device = found
    return found


def check_index(index: int | None) -> None:
    """RuntimeError for another device than the one there is."""
    if index:
        raise RuntimeError(f"invalid device ordinal: there is one {NAME} device, index {index} was asked for")


# ---- addresses

#: Addresses of storages begin here. No system maps memory there unless a program asks for that very place: a pointer of x86-64 has
#: 47 bits (57 on request), one of ARM64 48 (52 on request; the upper 8 are ignored)
FIRST_ADDRESS = 1 << 54
_LINE = 512  # addresses are multiples of it, as those of allocators are
_next_address = FIRST_ADDRESS


def _take_address(nbytes: int) -> int:
    """An address for so many bytes, which no other storage has or had. In the LOCK."""
    global _next_address
    address = _next_address
    _next_address += -(-nbytes // _LINE) * _LINE or _LINE
    return address


# ---- ours -> PyTorch's

#: DLPack's codes of types: signed, unsigned, float, bfloat, complex, bool
_CODES = {
    d: (
        6
        if t is torch.bool
        else 4
        if t is torch.bfloat16
        else 2
        if t.is_floating_point
        else 5
        if t.is_complex
        else 0
        if t.is_signed
        else 1,
        t.itemsize * 8,
    )
    for t, d in OURS.items()
}
_EXTENSION = 12  # DLPack's kDLExtDev, which PyTorch reads as PrivateUse1
_MOST_DIMS = 1024

# A DLManagedTensor, then its shape and strides. PyTorch copies all of it, but for `deleter`, at which it looks when the tensor
# dies: so there is one for all tensors, and it is never freed, not even when Python ends.
_allocate = ctypes.pythonapi.PyMem_RawCalloc
_allocate.restype, _allocate.argtypes = ctypes.c_void_p, (ctypes.c_size_t, ctypes.c_size_t)
_HEADER = 64
_at = _allocate(1, _HEADER + 16 * _MOST_DIMS)
_block = (ctypes.c_char * (_HEADER + 16 * _MOST_DIMS)).from_address(_at)
_fields = memoryview(_block).cast("B")
_pointer = struct.Struct("<Q")
_put_address = _pointer.pack_into
_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype, _capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_from_dlpack = torch._C._from_dlpack
#: view -> the fields after the address
_layouts: dict[Meta, bytes] = {}


def _layout(m: Meta) -> bytes:
    if len(_layouts) > 100_000:
        _layouts.clear()
    code, bits = _CODES[m.dtype]
    n = m.ndim
    found = _layouts[m] = struct.pack(
        f"<iiiBBHQQQQQ{2 * n}q",
        *(_EXTENSION, 0, n, code, bits, 1),
        *(_at + _HEADER, _at + _HEADER + 8 * n, 0, 0, 0),
        *m.shape,
        *m.strides,
    )
    return found


def over_whole(storage: Storage, m: Meta) -> torch.Tensor:
    """A PyTorch tensor that shows all of a storage that none shows yet."""
    fields = _layouts.get(m) or _layout(m)
    with LOCK:
        storage._address = address = _take_address(m.numel * m.dtype.itemsize)
        _put_address(_fields, 0, address)
        _fields[8 : 8 + len(fields)] = fields
        t: torch.Tensor = _from_dlpack(_capsule(_at, b"dltensor", None))
    t.untyped_storage()._tabtorch = storage
    return t


def storage_over(storage: Storage) -> Any:
    """PyTorch's `UntypedStorage` of ours, which none shows yet."""
    nbytes = storage.nbytes
    with LOCK:
        storage._address = _take_address(nbytes)
    made = torch._C._construct_storage_from_data_pointer(storage._address, DEVICE, nbytes)
    made._tabtorch = storage
    return made


_cpu = torch._C.DispatchKey.CPU
_set = torch.ops.aten.set_.source_Storage_storage_offset


def set_storage(t: torch.Tensor, source: Any, offset: int, size: Sequence[int], stride: Sequence[int]) -> torch.Tensor:
    """`t.set_`, by PyTorch's kernel for the CPU, which looks at no memory."""
    result: torch.Tensor = _set._op_dk(_cpu, t, source, offset, size, stride)
    return result


def over_part(source: Any, m: Meta) -> torch.Tensor:
    """A PyTorch tensor that shows a view of an `UntypedStorage`."""
    t = torch._C._acc.create_empty_tensor([0], THEIRS[m.dtype])
    return set_storage(t, source, m.offset, list(m.shape), list(m.strides))


def _dense(m: Meta) -> bool:
    """Whether elements that lie one after another are shown once each, in some order of the dimensions."""
    expected = 1
    for stride, size in sorted((st, n) for st, n in zip(m.strides, m.shape) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def wrap(x: Tensor) -> torch.Tensor:
    """The PyTorch tensor of a result: a storage of its own, whatever ours shares."""
    m = x._tab_meta
    storage = x._tab_storage
    out = storage.node.inst.out
    if m.whole and out.numel == m.numel and out.dtype is m.dtype and type(storage) is Storage:
        if m.device is not place():
            return wrap(x.to(place()))
        if hasattr(storage, "_address"):  # another tensor shows it; a value never changes, so this copies nothing
            storage = Storage(storage.node)
        return over_whole(storage, m)
    x = x.detach()
    if m.device is not place():
        x = x.to(place())
    if (
        not m.mark
        and out.dtype is m.dtype
        and type(storage) is Storage
        and out.numel == m.numel
        and m.offset == 0
        and _dense(m)
        and m.device is place()
    ):
        return over_part(storage_over(Storage(storage.node)), m)
    return wrap(_lazy.convert.converted(x, m.shape, m.dtype))


def wrap_parts(values: Sequence[Tensor], dense: bool = False) -> list[torch.Tensor]:
    """The same for results that may be parts of one value, as queries, keys and values are of one product. Where most of it is
    wanted they remain so, and nothing is copied. dense: only those that lie in one piece.

    Each has a storage of its own, all of the same value: so what is written to one is not seen in another.
    """
    wanted: dict[int, int] = {}
    for x in values:
        node = x._tab_storage.node
        wanted[id(node)] = wanted.get(id(node), 0) + x._tab_meta.numel
    found = []
    for x in values:
        m, storage = x._tab_meta, x._tab_storage
        node = storage.node
        out = node.inst.out
        if (
            (m.whole and out.numel == m.numel)
            or m.mark
            or m.device is not place()
            or out.dtype is not m.dtype
            or type(storage) is not Storage
            or 2 * wanted[id(node)] < out.numel
            or (dense and not _dense(m))
        ):
            found.append(wrap(x))
        else:
            found.append(over_part(storage_over(Storage(node)), m))
    return found


# ---- PyTorch's -> ours

#: (shape, strides, offset, type) -> our view
_views: dict[tuple[Any, ...], Meta] = {}


def _view(key: tuple[Any, ...]) -> Meta:
    shape, strides, offset, dtype = key
    d = OURS.get(dtype)
    if d is None:
        raise TypeError(f"{dtype} is not supported on device '{NAME}'")
    if len(_views) > 100_000:
        _views.clear()
    found = _views[key] = meta(tuple(shape), tuple(strides), offset, d, place())
    return found


def unwrap(t: torch.Tensor) -> Tensor:
    """Our tensor over the same storage. RuntimeError for a tensor of another device."""
    try:
        storage = t.untyped_storage()._tabtorch
    except (AttributeError, NotImplementedError):
        if isinstance(t, (bool, int, float, complex)):
            return cast(Tensor, t)  # what stood for a number, PyTorch hands on as one
        raise _elsewhere(t) from None
    key = (t.shape, t.stride(), t.storage_offset(), t.dtype)
    r: Tensor = _new(Tensor)
    r._tab_storage = storage
    r._tab_meta = _views.get(key) or _view(key)
    return r


def unwrap_marked(t: torch.Tensor) -> Tensor:
    """The same for operations that take conjugates and negatives as the views they are."""
    r = unwrap(t)
    mark = (t.is_conj() and CONJ) | (t.is_neg() and NEG)
    if mark:
        r._tab_meta = r._tab_meta.marked(mark)
    return r


def unwrap_operand(t: Any) -> Any:
    """The same for operations that let a number stand beside tensors of a device: a Python number, or a tensor on the CPU."""
    kind = type(t)
    if kind is float or kind is int or kind is bool or kind is complex:
        return t
    try:
        return unwrap(t)
    except RuntimeError:
        if t.device.type != "cpu" or t.dim():
            raise
    if t.dtype in (torch.float64, torch.complex128) and place().lacks(OURS[t.dtype]):
        t = t.to(torch.float32 if t.dtype is torch.float64 else torch.complex64)
    return upload(t)


def _elsewhere(t: torch.Tensor) -> Exception:
    """What is wrong with a tensor that has no storage of ours."""
    if t.layout is not torch.strided:
        return NotImplementedError(f"device '{NAME}' has no {t.layout} tensors")
    if t.device.type == NAME:
        return RuntimeError(f"the memory of this tensor on '{NAME}' was not made by tabtorch")
    return RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {NAME}:0 and {t.device}!"
    )


# ---- to and from the host


def upload(t: torch.Tensor) -> Tensor:
    """Our copy of a CPU tensor's values. TypeError for a type that the device lacks."""
    d = OURS.get(t.dtype)
    if d is None:
        raise TypeError(f"{t.dtype} is not supported on device '{NAME}'")
    where = place()
    if where.lacks(d):
        _lazy.device.check_has(where, d)
    if (
        type(t) is not torch.Tensor
    ):  # a class may refuse what is asked of it here: an uninitialized parameter's, its shape
        with torch._C.DisableTorchFunctionSubclass():
            t = t.as_subclass(torch.Tensor)
    if t.requires_grad:
        t = t.detach()
    t = t.resolve_conj().resolve_neg().contiguous()
    m = contiguous_meta(tuple(t.shape), d, where)
    data = ctypes.string_at(t.data_ptr(), t.nbytes) if t.numel() else b""
    host = [t.item()] if t.numel() == 1 else None
    return Tensor._wrap(graph.from_host(data, m, host), m)


def download(x: Tensor, into: torch.Tensor | None = None) -> torch.Tensor:
    """A CPU tensor with the values of ours. Waits for the device. into: written to, if it has the same layout."""
    dtype = THEIRS[x._tab_meta.dtype]
    shape = tuple(x._tab_meta.shape)
    if into is None or into.dtype is not dtype or into.shape != shape or not into.is_contiguous() or into.is_neg():
        into = torch.empty(shape, dtype=dtype, device="cpu")
    data = _lazy.to_host.to_bytes(x)
    if data:
        ctypes.memmove(into.data_ptr(), bytes(data), len(data))
    return into


def empty(size: Sequence[int], stride: Sequence[int] | None, dtype: torch.dtype) -> torch.Tensor:
    """A PyTorch tensor of these sizes and strides (None: row by row), of zeros."""
    d = OURS.get(dtype)
    if d is None:
        raise TypeError(f"{dtype} is not supported on device '{NAME}'")
    where = place()
    shape = tuple(size)
    if min(shape, default=0) < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(shape)}: {list(shape)}")
    rows = contiguous_strides(shape)
    if stride is None or tuple(stride) == rows:
        return over_whole(
            _lazy.creation.zeros(shape, dtype=d, device=where)._tab_storage, contiguous_meta(shape, d, where)
        )
    need = 0 if 0 in shape else 1 + sum((n - 1) * st for n, st in zip(shape, stride))
    storage = _lazy.creation.zeros((need,), dtype=d, device=where)._tab_storage
    return over_part(storage_over(storage), meta(shape, tuple(stride), 0, d, where))
