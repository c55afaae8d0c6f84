"""Tensors on different devices in one operation.

Tensors whose devices the script named must agree, but for a 0-dimensional one on the cpu: PyTorch's rule. A implicit tensor
(device.py), for which none was named, goes where the others are. Among implicit ones 64-bit floats keep an operation on the
cpu, since the GPU has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tabtorch.base import dtypes
from tabtorch.base.device import implicit_cpu, implicit_webgpu
from tabtorch.core.tensor import Tensor
from tabtorch.engine.view import Meta

WIDE = (dtypes.float64, dtypes.complex128)


#: names of the arguments that are tensors (one for all of them, or one each), and the kernel that PyTorch names
Detail = tuple[Any, str]


def mismatch(a: Any, b: Any, metas: Sequence[Meta] = (), detail: Detail | None = None) -> RuntimeError:
    """PyTorch's error for two devices: that of its iterators, or with `detail` that of a kernel's own check."""
    text = "Expected all tensors to be on the same device, but "
    if detail is None:
        return RuntimeError(f"{text}found at least two devices, {a.public} and {b.public}!")
    first = metas[0].device
    k, other = next((k, m.device) for k, m in enumerate(metas) if m.device.number != first.number)
    names, kernel = detail
    backend = "CUDA" if "cuda" in (first.public.type, other.public.type) else "WEBGPU"
    return RuntimeError(
        f"{text}got {names if isinstance(names, str) else names[k]} is on {other.public}, different from other tensors on "
        f"{first.public} (when checking argument in method wrapper_{backend}_{kernel})"
    )


def meeting_place(metas: Sequence[Meta], detail: Detail | None = None) -> Any:
    """The device on which an operation over tensors of several devices happens. RuntimeError where there is none."""
    lead = [m for m in metas if m.ndim] or [m for m in metas if not m.device.host] or list(metas)
    named = [m.device for m in lead if not m.device.implicit]
    for m in metas:  # 0-dimensional ones travel only from the cpu
        if m not in lead and not m.device.host and not m.device.implicit:
            named.append(m.device)
    for d in named:
        if d.number != named[0].number:
            raise mismatch(named[0], d, metas, detail)
    wide = [m for m in lead if m.dtype in WIDE]
    if named:
        here = named[0]
        away = [m for m in lead if m.device.number != here.number]
        if away and (here.type == "meta" or any(m in wide and here.lacks(m.dtype) for m in away)):
            first, other = (here, away[0].device) if metas[0] is not away[0] else (away[0].device, here)
            raise mismatch(first, other, metas, detail)
        return here
    top = max(m.dtype.category for m in lead)
    return implicit_cpu if wide or any(m.dtype in WIDE and m.dtype.category > top for m in metas) else implicit_webgpu


def moved(t: Tensor, device: Any) -> Tensor:
    """`t` on a device. Of a 64-bit float that goes to the GPU only its category counts beside the others: it is rounded."""
    d = t._tab_meta.dtype
    if device.lacks(d) and d in WIDE:
        t = t.to(dtypes.float32 if d is dtypes.float64 else dtypes.complex64)
    return t.to(device)


def together(tensors: Sequence[Any], detail: Detail | None = None) -> Any:
    """`tensors` on one device: themselves, or a list; what is no tensor stays. RuntimeError, PyTorch's with `detail`, if they cannot be."""
    number = -1
    for t in tensors:
        if isinstance(t, Tensor):
            n = t._tab_meta.device.number
            if n != number:
                if number >= 0:
                    break
                number = n
    else:
        return tensors
    device = meeting_place([t._tab_meta for t in tensors if isinstance(t, Tensor)], detail)
    number = device.number
    return [moved(t, device) if isinstance(t, Tensor) and t._tab_meta.device.number != number else t for t in tensors]


def on_device_of(x: Tensor, t: Any, detail: Detail | None = None, scalars: bool = False) -> Any:
    """`t` on the device of `x`, which is written to or indexed and stays. RuntimeError if both devices were named.

    scalars: a 0-dimensional tensor on the cpu comes from there in any case.
    """
    if not isinstance(t, Tensor):
        return t
    m, here = t._tab_meta, x._tab_meta.device
    if m.device.number == here.number:
        return t
    travels = scalars and m.ndim == 0 and m.device.host
    if not travels and (here.type == "meta" or not (here.implicit or m.device.implicit)):
        raise mismatch(here, m.device, (x._tab_meta, m), detail and (("", detail[0]), detail[1]))
    return moved(t, here)


def device_of(metas: Sequence[Meta]) -> Any:
    """The device of a result, of operands that are on devices of one number."""
    first = metas[0].device
    for m in metas:
        if m.device is not first:  # an implicit device stays implicit, and a named GPU named
            return implicit_cpu if first.host else m.device if first.implicit else first
    return first
