"""New tensors from sizes and numbers: `zeros`, `full`, `eye`, … See https://docs.pytorch.org/docs/stable/torch.html#creation-ops

A constant is a map without inputs, so it becomes part of whatever reads it and takes no memory of its own. Its numbers are
parameters of the kernel. Tensors made from data are in from_host.py.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

from tabtorch import _lazy
from tabtorch.base import dtypes
from tabtorch.base.device import check_has, cpu, default_device, implicit_cpu, resolve
from tabtorch.base.dtypes import dtype as Dtype
from tabtorch.base.errors import Refused
from tabtorch.core.from_host import as_tensor, asarray, from_numpy, frombuffer, tensor
from tabtorch.core.layout import check_layout, format_strides, preserve_format, strided
from tabtorch.core.shapes import as_float, dense_strides, integer, ints, type_name
from tabtorch.core.tensor import Tensor
from tabtorch.engine.expr import Complex, const, where
from tabtorch.engine.graph import Inst, Map, emit, inst
from tabtorch.engine.symbols import Symbol
from tabtorch.engine.view import contiguous_meta, meta, ordered_strides
from tabtorch.ops.machinery.out_types import dtype_with_out, same
from tabtorch.ops.machinery.promotion import INDICES, SINGLE_DOUBLE, check_kernel
from tabtorch.ops.machinery.registry import register

__all__ = ["as_tensor", "asarray", "empty", "eye", "from_numpy", "frombuffer", "full", "tensor", "zeros"]


def placed(dtype: Dtype, device: Any, name: str = "") -> Any:
    """The device a new tensor of `dtype` goes to; `name` is whose argument is no device.

    64-bit floats that name no device live on cpu; TypeError where webgpu was named for them.
    """
    wide = dtype is dtypes.float64 or dtype is dtypes.complex128
    if device is None:
        d = default_device()
        return implicit_cpu if wide and d is not cpu else d
    if name and not isinstance(device, (str, int)) and not hasattr(device, "implicit"):
        raise TypeError(f"{name}(): argument 'device' must be torch.device, not {type(device).__name__}")
    d = resolve(device)
    if d.implicit:
        return implicit_cpu if wide else default_device() if d is implicit_cpu else d
    check_has(d, dtype)
    return d


def finished(t: Tensor, requires_grad: bool) -> Tensor:
    """A new tensor with its `requires_grad`. Raises RuntimeError for a type that cannot have gradients."""
    if requires_grad:
        if t._tab_meta.dtype.category < 2:
            raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
        t._tab_requires_grad = True
    return t


def _size(name: str, size: tuple[Any, ...], kw: dict[str, Any]) -> tuple[int, ...]:
    if "size" in kw:
        size = (kw.pop("size"),)
    elif not size:
        raise TypeError(f'{name}() missing 1 required positional arguments: "size"')
    shape = ints(size, name)
    for n in shape:
        if n < 0:
            if name == "zeros":
                raise RuntimeError(f"{name}: Dimension size must be non-negative.")
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: {list(shape)}")
    return shape


def unknown(name: str, kw: dict[str, Any], allowed: frozenset[str] | set[str] = frozenset()) -> None:
    for k in kw:
        if k not in allowed:
            raise TypeError(f"{name}() got an unexpected keyword argument '{k}'")


def check_strided(name: str, kw: dict[str, Any]) -> None:
    """The options that say nothing here: TypeError for others, PyTorch's NotImplementedError for another layout."""
    unknown(name, kw, {"layout", "pin_memory"})
    if kw.get("layout") not in (None, strided):
        check_layout(kw["layout"])
        raise NotImplementedError(f"Could not run 'aten::{name}' with arguments from the 'SparseCPU' backend.")


# ---- one value everywhere

_FILL = Map("full", lambda v: v)
_fills: dict[tuple, Inst] = {}


def fill_node(shape: tuple[int, ...], value: Any, dtype: Dtype, device: Any) -> Any:
    """A node all of whose elements are `value`, a Python number that fits the dtype."""
    key = (shape, dtype, device)
    i = _fills.get(key)
    if i is None:
        if len(_fills) > 20_000:
            _fills.clear()
        i = _fills[key] = inst(_FILL, (), contiguous_meta(shape, dtype, device), (dtype.compute,))
    return emit(i, (), (complex(value) if dtype.is_complex else value,))


def plain(v: Any) -> Any:
    """A number, of a number or a 0-d tensor or NumPy scalar."""
    return v.item() if hasattr(v, "item") else v


def whole(v: Any) -> Any:
    """`int(v)`; a size that is not known yet (engine/symbols.py) stays what it is."""
    return v if type(v) is Symbol else int(v)


def number(value: Any, dtype: Dtype) -> Any:
    """A Python number as an element of `dtype`. Raises RuntimeError where it does not fit, as PyTorch."""
    c = dtype.category
    if c == 3:
        return complex(value)
    if isinstance(value, complex):
        if value.imag:
            raise RuntimeError(f"value cannot be converted to type {_c_name(dtype)} without overflow")
        value = value.real
    if c == 2:
        return as_float(value)
    if c == 0:
        return bool(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise RuntimeError(f"value cannot be converted to type {_c_name(dtype)} without overflow")
    n = whole(value)
    bits = dtype.itemsize * 8
    if not -(1 << (bits - 1)) <= n < (1 << (bits if dtype.name == "uint8" else bits - 1)):
        if not (dtype.name == "uint8" and -255 <= n < 0):
            raise RuntimeError(f"value cannot be converted to type {_c_name(dtype)} without overflow")
    return n


def _c_name(dtype: Dtype) -> str:
    return {"float32": "float", "float64": "double", "float16": "at::Half", "bfloat16": "at::BFloat16"}.get(
        dtype.name, dtype.name + ("" if dtype.name == "bool" else "_t")
    )


def _filled(
    name: str,
    shape: tuple[int, ...],
    value: Any,
    *,
    dtype: Dtype | None = None,
    device: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
    out: Tensor | None = None,
    **kw: Any,
) -> Tensor:
    if kw:
        unknown(name, kw)
    if layout is not None and layout is not strided:
        check_layout(layout)
        return _lazy.sparse_create.filled(name, shape, value, dtype, device, layout, requires_grad)
    if out is not None:
        r = _filled(name, shape, value, dtype=dtype_with_out(name, dtype, out), device=out.device)
        return finished(_lazy.inplace.write_out(out, r), requires_grad)
    d: Any = dtypes.get_default_dtype() if dtype is None else dtypes.given_dtype(name, dtype)
    where_ = placed(d, device, name)
    t = Tensor._wrap(fill_node(shape, number(value, d), d, where_), contiguous_meta(shape, d, where_))
    return finished(t, requires_grad) if requires_grad else t


@register("zeros")
def zeros(*size: Any, **kw: Any) -> Tensor:
    """Zeros. Keywords: dtype, device, requires_grad, out, layout, pin_memory."""
    return _filled("zeros", _size("zeros", size, kw), 0, **kw)


@register("ones")
def ones(*size: Any, **kw: Any) -> Tensor:
    """Ones."""
    return _filled("ones", _size("ones", size, kw), 1, **kw)


@register("empty")
def empty(*size: Any, memory_format: Any = None, **kw: Any) -> Tensor:
    """A tensor to be written to; here it holds zeros."""
    shape = _size("empty", size, kw)
    t = _filled("empty", shape, 0, **kw)
    return t if memory_format is None else restrided(t, format_strides(shape, memory_format))


def restrided(t: Tensor, strides: tuple[int, ...]) -> Tensor:
    """A new, whole tensor laid out in other (dense) strides."""
    m = t._tab_meta
    t._tab_meta = meta(m.shape, strides, 0, m.dtype, m.device)
    return t


@register("full")
def full(size: Any, fill_value: Any, **kw: Any) -> Tensor:
    """`fill_value` everywhere; its type says the dtype, if none is given."""
    if not isinstance(size, (tuple, list)):
        raise TypeError(f"full(): argument 'size' (position 1) must be tuple of ints, not {type(size).__name__}")
    shape = _size("full", (size,), {})
    if isinstance(fill_value, Tensor):
        if fill_value._tab_meta.ndim:
            raise TypeError("full(): argument 'fill_value' (position 2) must be Number, not Tensor")
        if kw.get("dtype") is None and kw.get("out") is None:
            kw["dtype"] = fill_value.dtype
        fill_value = fill_value.item()
    elif kw.get("dtype") is None and kw.get("out") is None:
        kw["dtype"] = dtypes.scalar_dtype(_kind(fill_value))
    return _filled("full", shape, fill_value, **kw)


def _kind(v: Any) -> type:
    for k in (bool, int, float, complex):
        if isinstance(v, k):
            return k
    if hasattr(v, "item"):  # a NumPy scalar
        return type(v.item())
    raise TypeError(f"full(): argument 'fill_value' (position 2) must be Number, not {type(v).__name__}")


@register("scalar_tensor")
def scalar_tensor(s: Any, **kw: Any) -> Tensor:
    """A 0-d tensor, of the default dtype unless one is given."""
    return _filled("scalar_tensor", (), s, **kw)


@register("empty_strided")
def empty_strided(size: Any, stride: Any, **kw: Any) -> Tensor:
    """A tensor to be written to, with these strides."""
    shape, strides = ints((size,), "empty_strided"), ints((stride,), "empty_strided", "stride")
    if len(shape) != len(strides):
        raise RuntimeError(
            f"dimensionality of sizes ({len(shape)}) must match dimensionality of strides ({len(strides)})"
        )
    n = 1 + sum((a - 1) * b for a, b in zip(shape, strides)) if math.prod(shape) else 0
    t = _filled("empty_strided", (n,), 0, **kw)
    m = t._tab_meta
    t._tab_meta = meta(shape, strides, 0, m.dtype, m.device)
    return t


@register("empty_permuted")
def empty_permuted(size: Any, physical_layout: Any, **kw: Any) -> Tensor:
    """A tensor to be written to, whose dimensions lie in memory in the order `physical_layout`."""
    shape = ints((size,), "empty_permuted")
    n = len(shape)
    if len(physical_layout) != n:
        raise RuntimeError(
            "Number of dimensions in size does not match the length of the physical_layout; i.e. "
            f"len(size) = {n} is not equal to len(physical_layout) = {len(physical_layout)}"
        )
    for k, d in enumerate(physical_layout):
        if not 0 <= d < n:
            raise RuntimeError(
                f"Dimension out of range (expected to be between 0 and {n - 1}, but got {d} at index {k}).  NB: negative "
                "dims not currently supported; file an issue if you want it."
            )
    if len(set(physical_layout)) != n:
        raise RuntimeError("Duplicate dim not allowed")
    return empty_strided(shape, ordered_strides(shape, physical_layout), **kw)


# ---- like another tensor


def _like(
    name: str,
    input: Tensor,
    value: Any,
    *,
    dtype: Dtype | None = None,
    device: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
    memory_format: Any = None,
    **kw: Any,
) -> Tensor:
    if not isinstance(input, Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    if kw:
        unknown(name, kw)
    m = input._tab_meta
    if layout is not None and layout is not strided:
        check_layout(layout)
        if input.layout is not strided:
            raise Refused
        return _lazy.sparse_create.filled(
            name, m.shape, value, dtype or m.dtype, device or input.device, layout, requires_grad
        )
    d: Any = m.dtype if dtype is None else dtypes.given_dtype(name, dtype)
    where_ = m.device if device is None and d is m.dtype else placed(d, m.device if device is None else device)
    shape = m.shape
    t = Tensor._wrap(fill_node(shape, number(value, d), d, where_), contiguous_meta(shape, d, where_))
    if memory_format is None or memory_format is preserve_format:
        strides = dense_strides(m)
        if strides != t._tab_meta.strides:
            restrided(t, strides)
    else:
        restrided(t, format_strides(shape, memory_format))
    return finished(t, requires_grad) if requires_grad else t


@register("zeros_like")
def zeros_like(input: Tensor, **kw: Any) -> Tensor:
    """Zeros in the shape, dtype and device of `input`."""
    return _like("zeros_like", input, 0, **kw)


@register("ones_like")
def ones_like(input: Tensor, **kw: Any) -> Tensor:
    """Ones in the shape, dtype and device of `input`."""
    return _like("ones_like", input, 1, **kw)


@register("empty_like")
def empty_like(input: Tensor, **kw: Any) -> Tensor:
    """A tensor to be written to, like `input`."""
    return _like("empty_like", input, 0, **kw)


@register("full_like")
def full_like(input: Tensor, fill_value: Any, **kw: Any) -> Tensor:
    """`fill_value` everywhere, like `input`."""
    if isinstance(fill_value, Tensor):
        fill_value = fill_value.item()
    return _like("full_like", input, fill_value, **kw)


def _new(name: str, like: Tensor, shape: tuple[int, ...], value: Any, kw: dict[str, Any]) -> Tensor:
    if kw.get("dtype") is None:
        kw["dtype"] = like._tab_meta.dtype
    if kw.get("device") is None:
        kw["device"] = like._tab_meta.device
    return _filled(name, shape, value, **kw)


def new_zeros(self: Tensor, *size: Any, **kw: Any) -> Tensor:
    """Zeros in the dtype and device of self."""
    return _new("new_zeros", self, _size("new_zeros", size, kw), 0, kw)


def new_ones(self: Tensor, *size: Any, **kw: Any) -> Tensor:
    """Ones in the dtype and device of self."""
    return _new("new_ones", self, _size("new_ones", size, kw), 1, kw)


def new_empty(self: Tensor, *size: Any, **kw: Any) -> Tensor:
    """A tensor to be written to, in the dtype and device of self."""
    return _new("new_empty", self, _size("new_empty", size, kw), 0, kw)


def new_full(self: Tensor, size: Any, fill_value: Any, **kw: Any) -> Tensor:
    """`fill_value` everywhere, in the dtype and device of self."""
    if isinstance(fill_value, Tensor):
        fill_value = fill_value.item()
    return _new("new_full", self, _size("new_full", (size,), {}), fill_value, kw)


def new_empty_strided(self: Tensor, size: Any, stride: Any, **kw: Any) -> Tensor:
    """A tensor to be written to, with these strides, in the dtype and device of self."""
    return empty_strided(size, stride, **{"dtype": self.dtype, "device": self.device, **kw})


def new_tensor(self: Tensor, data: Any, *, dtype: Dtype | None = None, device: Any = None, **kw: Any) -> Tensor:
    """`torch.tensor(data)` in the dtype and device of self."""
    if isinstance(data, Tensor):
        warnings.warn(
            "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
            "sourceTensor.detach().clone().requires_grad_(True), rather than tensor.new_tensor(sourceTensor).",
            UserWarning,
            stacklevel=2,
        )
        data = data.detach().clone().to(dtype=dtype or self.dtype, device=self.device if device is None else device)
        return finished(data, kw.get("requires_grad", False))
    return tensor(data, dtype=dtype or self.dtype, device=self.device if device is None else device, **kw)


for _f in (new_zeros, new_ones, new_empty, new_full, new_empty_strided, new_tensor):
    register(_f.__name__, _f, method=True, torch=False)

# ---- matrices


def _eye_at(p: Any) -> Any:
    t = p.inst.out.dtype.compute
    row, col = p.coords
    return where(row == col, const(1, t), const(0, t))


_EYE = Map("eye", _eye_at, indexed=True, cost=2)


@register("eye")
def eye(n: int, m: int | None = None, **kw: Any) -> Tensor:
    """Ones on the diagonal, zeros elsewhere: (n, m), or (n, n)."""
    n = integer(n, "eye", "n", 1)
    cols = n if m is None else integer(m, "eye", "m", 2)
    for name, v in (("n", n), ("m", cols)):
        if v < 0:
            raise RuntimeError(f"{name} must be greater or equal to 0, got {v}")
    out = kw.pop("out", None)
    d = dtype_with_out("eye", kw.pop("dtype", None), out) or dtypes.get_default_dtype()
    device = kw.pop("device", None)
    where_ = placed(d, device if out is None else out.device)
    requires_grad = kw.pop("requires_grad", False)
    check_strided("eye", kw)
    om = contiguous_meta((n, cols), d, where_)
    r = Tensor._wrap(emit(inst(_EYE, (), om), ()), om)
    return finished(r if out is None else _lazy.inplace.write_out(out, r), requires_grad)


def _triangle(name: str, row: int, col: int, offset: int, lower: bool, kw: dict[str, Any]) -> Tensor:
    for what, v in (("row", row), ("col", col)):
        if v < 0:
            raise RuntimeError(f"{what} must be non-negative, got{v}")
    dtype = dtypes.given_dtype(name, kw.pop("dtype", None)) or dtypes.int64
    check_kernel(name, dtype, INDICES)
    device = kw.pop("device", None)
    kw.pop("requires_grad", None)
    check_strided(name, kw)
    rows: list[int] = []
    cols: list[int] = []
    for i in range(row):
        a, b = (0, min(max(i + offset + 1, 0), col)) if lower else (min(max(i + offset, 0), col), col)
        cols.extend(range(a, b))
        rows.extend([i] * (b - a))
    return tensor([rows, cols], dtype=dtype, device=device)


@register("tril_indices")
def tril_indices(row: int, col: int, offset: int = 0, **kw: Any) -> Tensor:
    """Coordinates (2, n) of the elements on and below a diagonal."""
    return _triangle("tril_indices", row, col, offset, True, kw)


@register("triu_indices")
def triu_indices(row: int, col: int, offset: int = 0, **kw: Any) -> Tensor:
    """Coordinates (2, n) of the elements on and above a diagonal."""
    return _triangle("triu_indices", row, col, offset, False, kw)


# ---- complex


_COMPLEX = Map("complex", lambda re, im: Complex(re, im))


_COMPLEX_OUT = same("Expected object of scalar type {Want} but got scalar type {Have} for argument 'out'")


def _check_parts(a: Dtype, b: Dtype) -> None:
    """RuntimeError for the types of what complex numbers are made of."""
    if not {a, b} <= SINGLE_DOUBLE | {dtypes.float16}:
        raise RuntimeError(
            f"Expected both inputs to be Half, Float or Double tensors but got {type_name(a)} and {type_name(b)}"
        )
    if a is not b:
        raise RuntimeError(
            f"Expected object of scalar type {type_name(a)} but got scalar type {type_name(b)} for second argument"
        )


@register("complex")
def complex_(real: Tensor, imag: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Complex numbers of their real and imaginary parts (both float32, or both float64)."""
    _lazy.arguments.check_tensors("complex", real=real, imag=imag)
    real, imag = _lazy.operand_devices.together((real, imag))
    a, b = real._tab_meta, imag._tab_meta
    _check_parts(a.dtype, b.dtype)
    if a.dtype not in (dtypes.float32, dtypes.float64):
        raise NotImplementedError(f"torch.complex of {a.dtype!r} is not supported by tabtorch (there is no complex32)")
    shape = _lazy.view.broadcast_shapes(a.shape, b.shape)
    order = _lazy.dispatch.layout_of([a, b], shape)
    inner, m = _lazy.dispatch.laid_out(
        shape, order, a.dtype.to_complex(), a.device, _lazy.dispatch.dense_alike([a, b], shape)
    )
    source = None if 0 in shape else order
    i = inst(
        _COMPLEX,
        (_lazy.dispatch.expanded(a, shape, source), _lazy.dispatch.expanded(b, shape, source)),
        inner,
        (),
        None,
        a.dtype.compute,
    )
    r = Tensor._wrap(emit(i, (real._tab_storage.node, imag._tab_storage.node)), m)
    if real._tab_requires_grad or imag._tab_requires_grad:
        _lazy.tape.record("ComplexBackward0", (real, imag), r, (lambda g: g.real, lambda g: g.imag))
    return r if out is None else _lazy.inplace.write_out(out, r, _COMPLEX_OUT)


@register("polar")
def polar(abs: Any, angle: Any, *, out: Tensor | None = None) -> Tensor:
    """Complex numbers of their absolute values and angles."""
    _lazy.arguments.check_tensors("polar", abs=abs, angle=angle)
    abs, angle = _lazy.operand_devices.together((abs, angle))
    _check_parts(abs._tab_meta.dtype, angle._tab_meta.dtype)
    check_kernel("polar_cpu", abs._tab_meta.dtype, SINGLE_DOUBLE)
    r = complex_(abs.detach() * angle.detach().cos(), abs.detach() * angle.detach().sin())
    if abs._tab_requires_grad or angle._tab_requires_grad:
        grads = (lambda g, z: (g.conj() * z.sgn()).real, lambda g, z: (g.conj() * (z * 1j)).real)
        _lazy.tape.record("PolarBackward0", (abs, angle), r, grads, (r,))
    return r if out is None else _lazy.inplace.write_out(out, r, _COMPLEX_OUT)
