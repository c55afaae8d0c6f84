"""What distributions share: broadcasting of parameters, probabilities and logits, lazy attributes."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.nn import functional as F

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]

euler_constant = 0.57721566490153286060
#: what counts as a number among parameters
_Number = (int, float, bool)


def broadcast_all(*values: Any) -> tuple[Any, ...]:
    """Numbers and tensors as tensors of one shape; a number takes the dtype and device of the first tensor.

    ValueError for anything else.
    """
    first = None
    plain = True
    for v in values:
        if isinstance(v, Tensor):
            first = v if first is None else first
        elif isinstance(v, _Number):
            plain = False
        else:
            raise ValueError(
                "Input arguments must all be instances of Number, "
                "torch.Tensor or objects implementing __torch_function__."
            )
    if not plain:
        options: Any = {"dtype": torch.get_default_dtype()}
        if first is not None:
            options = {"dtype": first.dtype, "device": first.device}
        values = tuple([v if isinstance(v, Tensor) else torch.full((), v, **options) for v in values])
    return tuple(torch.broadcast_tensors(*values))


def _standard_normal(shape: Any, dtype: Any, device: Any) -> Any:
    return torch.empty(shape, dtype=dtype, device=device).normal_()


def _sum_rightmost(value: Any, dim: int) -> Any:
    """The sum over the last `dim` dimensions."""
    return value.reshape((*value.shape[:-dim], -1)).sum(-1) if dim else value


def logits_to_probs(logits: Any, is_binary: bool = False) -> Any:
    """Probabilities of log odds (`is_binary`), or of unnormalized log probabilities along the last dimension."""
    return torch.sigmoid(logits) if is_binary else F.softmax(logits, dim=-1)


def clamp_probs(probs: Any) -> Any:
    """Probabilities moved into [eps, 1 - eps]."""
    eps = torch.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Any, is_binary: bool = False) -> Any:
    """Log odds (`is_binary`), or log probabilities."""
    clamped = clamp_probs(probs)
    return torch.log(clamped) - torch.log1p(-clamped) if is_binary else torch.log(clamped)


class lazy_property:
    """A method whose result becomes an attribute of the same name when it is first asked for."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        update_wrapper(self, wrapped)  # type: ignore[arg-type]

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        with torch.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


def tril_matrix_to_vec(mat: Any, diag: int = 0) -> Any:
    """The lower triangle (D, D) -> a vector, row by row. ValueError for a diagonal outside of the matrix."""
    n = mat.shape[-1]
    if diag < -n or diag >= n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    i, j = torch.tril_indices(n, n, diag, device=mat.device)
    return mat[..., i, j]


def vec_to_tril_matrix(vec: Any, diag: int = 0) -> Any:
    """A vector -> the lower triangle of a matrix, row by row. ValueError for a length that is that of no triangle."""
    length = vec.shape[-1]
    n = (-(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * length + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2
    if round(n) - n > torch.finfo(vec.dtype).eps:
        raise ValueError(
            f"The size of last dimension is {length} which cannot be expressed as "
            "the lower triangular part of a square D x D matrix."
        )
    size = round(n)
    i, j = torch.tril_indices(size, size, diag, device=vec.device)
    mat = vec.new_zeros((*vec.shape[:-1], size, size))
    mat[..., i, j] = vec
    return mat
