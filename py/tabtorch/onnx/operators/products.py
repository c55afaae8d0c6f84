"""Products of matrices."""

from __future__ import annotations

from typing import Any

import tabtorch as torch
from tabtorch.onnx.registry import Tensor, operator


@operator("MatMul")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    return torch.matmul(a, b)


@operator("Gemm")
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    broadcast: Any = None,
) -> Tensor:
    y = (a.t() if transA else a) @ (b.t() if transB else b)
    y = y if alpha == 1 else (y * alpha).to(y.dtype)
    return y if c is None else y + (c if beta == 1 else (c * beta).to(c.dtype))


@operator("Einsum")
def einsum(*inputs: Tensor, equation: str) -> Tensor:
    return torch.einsum(equation, *inputs)


@operator("Det")
def det(x: Tensor) -> Tensor:
    return torch.det(x)
