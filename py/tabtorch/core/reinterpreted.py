"""The `Meta` of a view of another dtype over the same bytes."""

from __future__ import annotations

from typing import Any

from tabtorch.core.shapes import remembered, type_name
from tabtorch.engine.view import CONJ, Meta, meta


@remembered
def retyped(m: Meta, dtype: Any) -> Meta:
    """`view(dtype)`: the same bytes as another type. TypeError for one that has only a name."""
    _ = dtype.store
    if m.mark:
        what = "conjugate view tensors" if m.mark & CONJ else "tensors with negative bit set"
        raise RuntimeError(f"torch.Tensor.view is not supported for {what} when converting to a different dtype.")
    a, b = m.dtype.itemsize, dtype.itemsize
    if a == b:
        return meta(m.shape, m.strides, m.offset, dtype, m.device)
    what = f"to view {type_name(m.dtype)} as {type_name(dtype)} (different element sizes)"
    if m.ndim == 0:
        raise RuntimeError(f"self.dim() cannot be 0 {what}")
    last = f"self.stride(-1) must be 1 {what}, but got {m.strides[-1]}"
    if a > b and m.strides[-1] != 1:
        raise RuntimeError(last)
    if a > b:
        k = a // b
        return meta(
            (*m.shape[:-1], m.shape[-1] * k), (*(s * k for s in m.strides[:-1]), 1), m.offset * k, dtype, m.device
        )
    k = b // a
    if m.shape[-1] % k:
        raise RuntimeError(f"self.size(-1) must be divisible by {k} {what}, but got {m.shape[-1]}")
    if m.offset % k:
        raise RuntimeError(f"self.storage_offset() must be divisible by {k} {what}, but got {m.offset}")
    if m.strides[-1] != 1:
        raise RuntimeError(last)
    for d, s in enumerate(m.strides[:-1]):
        if s % k:
            raise RuntimeError(f"self.stride({d}) must be divisible by {k} {what}, but got {s}")
    return meta(
        (*m.shape[:-1], m.shape[-1] // k), (*(s // k for s in m.strides[:-1]), 1), m.offset // k, dtype, m.device
    )


@remembered
def complex_as_real(m: Meta) -> Meta:
    if not m.dtype.is_complex:
        raise RuntimeError("view_as_real is only supported for complex tensors")
    if m.mark & CONJ:
        raise RuntimeError(
            "view_as_real doesn't work on unresolved conjugated tensors.  To resolve the conjugate tensor so you can view it "
            "as real, use self.resolve_conj(); however, be warned that the resulting tensor will NOT alias the original."
        )
    strides = (*(s * 2 for s in m.strides), 1)
    return meta((*m.shape, 2), strides, m.offset * 2, m.dtype.to_real(), m.device, m.mark)


@remembered
def real_as_complex(m: Meta) -> Meta:
    if m.dtype.name not in ("float16", "float32", "float64"):
        raise RuntimeError(
            "view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: "
            + type_name(m.dtype)
        )
    if m.ndim == 0:
        raise RuntimeError("Input tensor must have one or more dimensions")
    if m.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    if m.strides[-1] != 1:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    for s in m.strides[:-1]:
        if s % 2:
            raise RuntimeError("Tensor must have a stride divisible by 2 for all but last dimension")
    if m.offset % 2:
        raise RuntimeError("Tensor must have a storage_offset divisible by 2")
    if m.dtype.name == "float16":
        raise NotImplementedError("complex32 is not supported by tabtorch: view_as_complex of a float16 tensor")
    strides = tuple(s // 2 for s in m.strides[:-1])
    return meta(m.shape[:-1], strides, m.offset // 2, m.dtype.to_complex(), m.device, m.mark)


@remembered
def part_of_complex(m: Meta, part: int) -> Meta:
    """`real` (0) or `imag` (1) of a complex tensor."""
    r = complex_as_real(m)
    return r.view(r.shape[:-1], r.strides[:-1], r.offset + part)
