"""Arithmetic and products, where ATen takes by position what Python takes by name, or takes more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabtorch import ops
from tabtorch.base import dtypes
from tabtorch.ops.aten.table import ADAPTERS, Tensor, aten


def _scaled(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def function(self: Tensor, other: float, alpha: float = 1) -> Tensor:
        return getattr(ops, name)(self, other, alpha=alpha)

    def in_place(self: Tensor, other: float, alpha: float = 1) -> Tensor:
        return getattr(self, name + "_")(other, alpha=alpha)

    return function, in_place


for _name in ("add", "sub", "subtract"):
    ADAPTERS[f"{_name}.Scalar"], ADAPTERS[f"{_name}_.Scalar"] = _scaled(_name)
ADAPTERS["rsub.Scalar"], _ = _scaled("rsub")


# ---- products in another type than that of their operands


@aten("mm.dtype")
def _mm_dtype(self: Tensor, mat2: Tensor, out_dtype: Any) -> Tensor:
    return ops.mm(self.to(out_dtype), mat2.to(out_dtype))


@aten("bmm.dtype")
def _bmm_dtype(self: Tensor, mat2: Tensor, out_dtype: Any) -> Tensor:
    return ops.bmm(self.to(out_dtype), mat2.to(out_dtype))


@aten("addmm.dtype")
def _addmm_dtype(
    self: Tensor, mat1: Tensor, mat2: Tensor, out_dtype: Any, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    operands = (t.to(out_dtype) for t in (self, mat1, mat2))
    return ops.addmm(*operands, beta=beta, alpha=alpha)


@aten("baddbmm.dtype")
def _baddbmm_dtype(
    self: Tensor, batch1: Tensor, batch2: Tensor, out_dtype: Any, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    operands = (t.to(out_dtype) for t in (self, batch1, batch2))
    return ops.baddbmm(*operands, beta=beta, alpha=alpha)


@aten("_int_mm")
def _int_mm(self: Tensor, mat2: Tensor) -> Tensor:
    """Of int8 matrices, in int32."""
    return ops.mm(self.to(dtypes.int32), mat2.to(dtypes.int32))


@aten("einsum")
def _einsum(equation: str, tensors: Any, *, path: Any = None) -> Tensor:
    """path: the order in which PyTorch multiplies; ours is its own."""
    return ops.einsum(equation, *tensors)


@aten("tensordot")
def _tensordot(self: Tensor, other: Tensor, dims_self: Any, dims_other: Any) -> Tensor:
    return ops.tensordot(self, other, (list(dims_self), list(dims_other)))


@aten("cartesian_prod")
def _cartesian_prod(tensors: Any) -> Tensor:
    return ops.cartesian_prod(*tensors)


@aten("nuclear_norm.dim")
def _nuclear_norm_dim(self: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    return ops.nuclear_norm(self, dim, keepdim)


@aten("nuclear_norm")
def _nuclear_norm(self: Tensor, keepdim: bool = False) -> Tensor:
    return ops.nuclear_norm(self, keepdim=keepdim)
