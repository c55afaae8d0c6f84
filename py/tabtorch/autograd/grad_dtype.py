"""`Tensor.grad_dtype`: in which dtype the gradients of a leaf arrive."""

from __future__ import annotations

import sys
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.grad_mode import STATE
from tabtorch.base import dtypes
from tabtorch.core.tensor import Tensor


def of(t: Tensor) -> Any:
    """The dtype; None: any. RuntimeError for what is no leaf."""
    if t.grad_fn is not None:
        raise RuntimeError("grad_dtype can only be accessed on leaf tensors.")
    return t.dtype if t._tab_grad_dtype is False else t._tab_grad_dtype


def change(t: Tensor, to: Any) -> None:
    """Sets it. RuntimeError for what is no leaf, or has a gradient of another dtype."""
    if to is not None and not isinstance(to, dtypes.dtype):
        raise RuntimeError(f"grad_dtype must be a torch.dtype or None, but got {type(to).__name__}")
    if t.grad_fn is not None:
        raise RuntimeError("grad_dtype can only be set on leaf tensors.")
    g = t._grad
    if g is not None and to is not None and g.dtype is not to:
        raise RuntimeError(
            f"Cannot set grad_dtype to '{dtypes.TYPE_NAMES[to.name]}' because there is already a gradient with dtype "
            f"'{dtypes.CXX_NAMES[g.dtype.name]}'. Please clear the gradient (.grad = None) before changing grad_dtype, or "
            "ensure the new grad_dtype matches the existing gradient's dtype."
        )
    if STATE.held is not None:
        STATE.held.breaks("sets the grad_dtype of a tensor")
    elif (
        "tabtorch.compiled.driver" in sys.modules
    ):  # what was compiled does not ask each time what is hardly ever changed
        _lazy.compiler.reset()
    t._tab_grad_dtype = to
