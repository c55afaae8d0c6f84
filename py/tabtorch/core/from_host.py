"""Tensors from data of the host: Python numbers, nested sequences, NumPy arrays, buffers, other tensors.

Small data stays with the node (`Node.host`), and of larger integers their bounds, so that what only needs to look at values,
such as the range check of an index, need not ask the device.
"""

from __future__ import annotations

import struct
import sys
import warnings
from array import array
from itertools import chain
from math import isfinite, prod
from typing import Any

from tabtorch import _lazy
from tabtorch.base import dtypes
from tabtorch.base.dtypes import dtype as Dtype
from tabtorch.core.tensor import Tensor
from tabtorch.engine.graph import from_host
from tabtorch.engine.view import contiguous_meta, meta
from tabtorch.ops.machinery.integer_bounds import bounds_of_data
from tabtorch.ops.machinery.registry import register

#: values kept on the host
KEPT = 1024

_NUMPY = {
    "bool": "bool",
    "uint8": "uint8",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "float16": "float16",
    "float32": "float32",
    "float64": "float64",
    "complex64": "complex64",
    "complex128": "complex128",
}


def numpy_dtype(a: Any) -> Dtype:
    """The dtype of a NumPy array or scalar. Raises TypeError for what has none."""
    name = a.dtype.name
    if name in _NUMPY:
        return dtypes.PUBLIC[_NUMPY[name]]
    if name in ("uint16", "uint32", "uint64"):
        raise TypeError(f"torch.{name} is not supported by tabtorch: convert the array to int64 or int32 first")
    raise TypeError(
        f"can't convert np.ndarray of type numpy.{a.dtype.type.__name__}. The only supported types are: float64, float32, "
        "float16, complex64, complex128, int64, int32, int16, int8, uint64, uint32, uint16, uint8, and bool."
    )


def _is_numpy(data: Any) -> bool:
    np = sys.modules.get("numpy")
    return np is not None and isinstance(data, (np.ndarray, np.generic))


# ---- nested sequences


def _is_sequence(x: Any) -> bool:
    return isinstance(x, (list, tuple, range)) or (
        hasattr(x, "__len__")
        and hasattr(x, "__getitem__")
        and not isinstance(x, (dict, str, bytes, set, Tensor))
        and not _is_numpy(x)
    )


def _lists(data: Any) -> Any:
    """`data` with the tensors and arrays inside it as lists, and the dtypes they bring."""
    found: list[Dtype] = []

    def convert(x: Any, top: bool) -> Any:
        if isinstance(x, Tensor):
            if x._tab_meta.numel != 1:
                raise ValueError("only one element tensors can be converted to Python scalars")
            found.append(x._tab_meta.dtype)
            return x.tolist()
        if _is_numpy(x):
            found.append(numpy_dtype(x))
            return x.tolist()
        if _is_sequence(x):
            return [convert(v, False) for v in x]
        return x

    return convert(data, True), found


def flatten(data: Any) -> tuple[list[int], list[Any]]:
    """(shape, elements) of a nested sequence. Raises ValueError or TypeError where it is ragged."""
    shape: list[int] = []
    level: list[Any] = [data]
    while True:
        first = level[0] if level else None
        if not isinstance(first, (list, tuple)):
            if first is None or not _is_sequence(first):
                break
        n = len(first)
        for x in level:
            if type(x) is not list and type(x) is not tuple and not _is_sequence(x):
                raise TypeError("not a sequence")
            if len(x) != n:
                raise ValueError(f"expected sequence of length {n} at dim {len(shape)} (got {len(x)})")
        shape.append(n)
        level = list(chain.from_iterable(level))
        if n == 0:
            break
    return shape, level


_PLAIN = {bool, int, float, complex}


def infer(flat: list[Any], nested: bool) -> tuple[Dtype, list[Any]]:
    """The dtype PyTorch takes for these elements, and the elements as plain Python numbers."""
    kinds = set(map(type, flat))
    if not kinds <= _PLAIN:
        found: list[Dtype] = []
        out: list[Any] = []
        for x in flat:
            if type(x) in _PLAIN:
                out.append(x)
                continue
            if isinstance(x, str):
                if nested and x is flat[0]:
                    raise ValueError("too many dimensions 'str'")
                raise TypeError("new(): invalid data type 'str'")
            if isinstance(x, (bool, int, float, complex)) and not _is_numpy(x):  # subclasses, such as IntEnum
                base: Any = next(k for k in (bool, int, float, complex) if isinstance(x, k))
                out.append(base(x))
            elif isinstance(x, Tensor):
                if x._tab_meta.numel != 1:
                    raise ValueError("only one element tensors can be converted to Python scalars")
                found.append(x._tab_meta.dtype)
                out.append(x.item())
            elif _is_numpy(x) and x.ndim == 0:
                found.append(numpy_dtype(x))
                out.append(x.item())
            elif _is_sequence(x):
                what = "be interpreted as an integer" if int in kinds else "be converted to a number"
                raise TypeError(f"'{type(x).__name__}' object cannot {what}")
            elif hasattr(x, "__index__"):
                out.append(x.__index__())
            elif hasattr(x, "__float__"):
                out.append(float(x))
            else:
                raise RuntimeError(f"Could not infer dtype of {type(x).__name__}")
        if found:
            best = found[0]
            for d in found[1:]:
                best = dtypes.promote_types(best, d)
            plain = {type(x) for x, y in zip(flat, out) if type(x) in _PLAIN}
            for k in plain:
                best = dtypes.promote_types(best, dtypes.scalar_dtype(k))
            return best, out
        flat = out
        kinds = set(map(type, flat))
    if complex in kinds:
        return dtypes.scalar_dtype(complex), flat
    if float in kinds or not kinds:
        return dtypes.get_default_dtype(), flat
    return (dtypes.int64 if int in kinds else dtypes.bool_), flat


def pack(flat: list[Any], d: Dtype) -> Any:
    """Elements of `d` as an array or bytes. Raises as PyTorch for numbers that do not fit."""
    c = d.category
    if c == 0:
        return array("B", [1 if v else 0 for v in flat])
    if c == 3:
        out: array[Any] = array(d.format)
        for v in flat:
            z = complex(v)
            out.append(z.real)
            out.append(z.imag)
        return out
    try:
        if c == 1:
            return array(d.format, flat)
        if d.name == "bfloat16":
            return dtypes.round_bfloat16([_finite32(v) for v in flat])
        if d.name == "float16":
            return _half(flat)
        return array(d.format, flat)
    except (OverflowError, TypeError, struct.error):
        pass
    return _pack_checked(flat, d)


def _finite32(v: float) -> float:
    return v if not isfinite(v) or abs(v) < 3.4e38 else array("f", [v])[0]


def _half(flat: list[Any]) -> bytes:
    try:
        return struct.pack(f"<{len(flat)}e", *flat)
    except (OverflowError, struct.error):
        inf = float("inf")
        return struct.pack(
            f"<{len(flat)}e", *[float(v) if abs(v) < 65520 or v != v else inf if v > 0 else -inf for v in flat]
        )


def _pack_checked(flat: list[Any], d: Dtype) -> Any:
    out: list[Any] = []
    for v in flat:
        if isinstance(v, complex):
            raise TypeError("must be real number, not complex")
        if d.category == 1:
            if isinstance(v, float) and not isfinite(v):
                raise RuntimeError(f"value cannot be converted to type {d.name} without overflow")
            n = int(v)
            bits = d.itemsize * 8
            if bits == 64:
                if not -(1 << 63) <= n < 1 << 63:
                    raise ValueError("Overflow when unpacking long long")
            elif d.name == "uint8":
                if not -255 <= n <= 255:
                    raise RuntimeError("value cannot be converted to type uint8 without overflow")
                n &= 255
            elif not -(1 << (bits - 1)) <= n < 1 << (bits - 1):
                raise RuntimeError(f"value cannot be converted to type {d.name} without overflow")
            out.append(n)
        else:
            out.append(float(v))
    return _half(out) if d.name == "float16" else array(d.format, out)


# ---- functions


def from_flat(flat: list[Any], shape: tuple[int, ...], d: Dtype, device: Any) -> Tensor:
    """A tensor of plain Python numbers. `device` is one that `placed` gave."""
    m = contiguous_meta(shape, d, device)
    data = pack(flat, d)
    kept: Any = None
    if len(flat) <= KEPT and isinstance(data, array) and d.category < 2:
        kept = data
    if kept is None:
        kept = bounds_of_data(data, d)
    return Tensor._wrap(from_host(data if isinstance(data, bytes) else memoryview(data).cast("B"), m, kept), m)


@register("tensor")
def tensor(
    data: Any, *, dtype: Dtype | None = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
) -> Tensor:
    """A new tensor with a copy of `data`: a number, nested sequences, a NumPy array or scalar, a tensor.

    Raises ValueError for ragged sequences, RuntimeError or TypeError for what is no number.
    """
    dtype = dtypes.given_dtype("tensor", dtype)
    if isinstance(data, Tensor):
        warnings.warn(
            "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
            "sourceTensor.detach().clone().requires_grad_(True), rather than torch.tensor(sourceTensor).",
            UserWarning,
            stacklevel=2,
        )
        r = data.detach().to(device=device, dtype=dtype, copy=True) if device is not None else data.detach().clone()
        if dtype is not None and r.dtype is not dtype:
            r = r.to(dtype)
        return _lazy.creation.finished(r, requires_grad)
    if _is_numpy(data):
        return _lazy.creation.finished(_from_array(data, dtype, device, True), requires_grad)
    if hasattr(data, "untyped_storage"):  # a tensor of PyTorch, which is loaded too
        dtype = dtype or dtypes.PUBLIC[str(data.dtype).removeprefix("torch.")]
        data = data.detach().tolist()
    if isinstance(data, str):
        raise TypeError("new(): invalid data type 'str'")
    if isinstance(data, (list, tuple)) and data and _has_arrays(data):
        data, found = _lists(data)
        shape, flat = flatten(data)
        d, flat = infer(flat, True)
        if dtype is None:
            d = found[0]
            for f in found[1:]:
                d = dtypes.promote_types(d, f)
            dtype = d
    else:
        shape, flat = flatten(data)
        d, flat = infer(flat, bool(shape)) if prod(shape) else (dtypes.get_default_dtype(), [])
    d = dtype or d
    return _lazy.creation.finished(
        from_flat(flat, tuple(shape), d, _lazy.creation.placed(d, device, "tensor")), requires_grad
    )


def _has_arrays(data: Any) -> bool:
    """Whether arrays or tensors with dimensions stand where rows are expected."""
    x = data
    while isinstance(x, (list, tuple)) and len(x):
        x = x[0]
    return (isinstance(x, Tensor) and x._tab_meta.ndim > 0) or (_is_numpy(x) and x.ndim > 0)


def _from_array(a: Any, dtype: Dtype | None, device: Any, strided: bool = False) -> Tensor:
    """A copy of a NumPy array; `strided` keeps the order in which it lies in memory."""
    import numpy as np

    d = numpy_dtype(a)
    where = _lazy.creation.placed(dtype or d, device)
    # types the GPU has not are converted on the host
    if dtype is not None and dtype is not d and dtype.name in _NUMPY:
        a = a.astype(dtype.name)
        d = dtype
    if strided and a.ndim > 1 and not a.flags.c_contiguous and a.flags.f_contiguous:
        t = _from_array(a.T, None, device)
        m = t._tab_meta
        t._tab_meta = meta(tuple(a.shape), tuple(reversed(m.strides)), 0, m.dtype, m.device)
        return t
    flat = np.ascontiguousarray(a)
    m = contiguous_meta(tuple(a.shape), d, where)
    kept = flat.reshape(-1).tolist() if flat.size <= KEPT and d.category < 2 else None
    data = flat.reshape(-1).view(np.uint8).data
    t = Tensor._wrap(from_host(data, m, kept if kept is not None else bounds_of_data(data, d)), m)
    return t if dtype is None or dtype is d else t.to(dtype)


@register("from_numpy")
def from_numpy(ndarray: Any) -> Tensor:
    """A tensor with a copy of a NumPy array: the GPU's memory cannot be shared with the host's.

    Raises TypeError for a dtype that tensors do not have.
    """
    np = sys.modules.get("numpy")
    if np is None or not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    if any(s < 0 for s in ndarray.strides):
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative strides are not "
            "currently supported. (You can probably work around this by making a copy of your array  with array.copy().) "
        )
    return _from_array(ndarray, None, None, True)


@register("as_tensor")
def as_tensor(data: Any, dtype: Dtype | None = None, device: Any = None) -> Tensor:
    """`data` as a tensor: itself if it is one already of that dtype and device."""
    dtype = dtypes.given_dtype("as_tensor", dtype)
    if isinstance(data, Tensor):
        return data.to(dtype or data.dtype) if device is None else data.to(device, dtype or data.dtype)
    if _is_numpy(data) and data.ndim:
        return _from_array(data, dtype, device, True)
    return tensor(data, dtype=dtype, device=device)


@register("asarray")
def asarray(
    obj: Any,
    *,
    dtype: Dtype | None = None,
    device: Any = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """`obj` as a tensor. `copy=False` raises ValueError where a copy is needed.

    requires_grad: None means that of `obj`; a tensor keeps its history unless it is False.
    """
    if isinstance(obj, Tensor):
        r = as_tensor(obj, dtype, device)
        if copy is True and r is obj:
            r = obj.clone()
        if copy is False and r is not obj:
            raise ValueError("can't alias tensor with the given dtype or device")
        if requires_grad is None:
            return r
        if not requires_grad:
            return r.detach() if r._tab_requires_grad else r
        return r if r._tab_requires_grad else _lazy.creation.finished(r.detach(), True)
    if copy is False:
        raise ValueError("can't alias arbitrary sequence into a tensor.")
    if isinstance(obj, (bytes, bytearray, memoryview)) or isinstance(obj, array):
        return frombuffer(obj, dtype=dtype or dtypes.get_default_dtype(), requires_grad=bool(requires_grad))
    return _lazy.creation.finished(as_tensor(obj, dtype, device), bool(requires_grad))


@register("frombuffer")
def frombuffer(
    buffer: Any, *, dtype: Dtype, count: int = -1, offset: int = 0, requires_grad: bool = False, device: Any = None
) -> Tensor:
    """A 1-d tensor with a copy of the bytes of `buffer`, from `offset` on. Raises ValueError where they do not suffice."""
    view = memoryview(buffer).cast("B")
    size, n = dtype.itemsize, len(view)
    if n == 0 or count == 0:
        raise ValueError(f"both buffer length ({n}) and count ({count}) must not be 0")
    if not 0 <= offset < n:
        raise ValueError(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({n} bytes) minus 1"
        )
    if count < 0:
        if (n - offset) % size:
            raise ValueError(
                f"buffer length ({n - offset} bytes) after offset ({offset} bytes) must be a multiple of element size ({size})"
            )
        count = (n - offset) // size
    elif offset + count * size > n:
        raise ValueError(
            f"requested buffer length ({count} * {size} bytes) after offset ({offset} bytes) must not be greater than "
            f"actual buffer length ({n} bytes)"
        )
    part = view[offset : offset + count * size]
    m = contiguous_meta((count,), dtype, _lazy.creation.placed(dtype, device))
    kept: Any
    if count <= KEPT and dtype.category < 2:
        kept = array("B" if dtype.category == 0 else dtype.format, bytes(part))
    else:
        kept = bounds_of_data(part, dtype)
    return _lazy.creation.finished(Tensor._wrap(from_host(part, m, kept), m), requires_grad)
