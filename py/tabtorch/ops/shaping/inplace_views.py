"""In-place forms of views: the tensor itself gets another geometry over its storage (`t_`, `squeeze_`, `as_strided_`, …)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabtorch.autograd.grad_mode import STATE
from tabtorch.autograd.tape import GradFn, grad_class
from tabtorch.autograd.views import _move_retain, check_inplace, refresh
from tabtorch.core import views
from tabtorch.core.tensor import Tensor
from tabtorch.ops.machinery.registry import register


def _become(self: Tensor, view: Callable[[Tensor], Tensor]) -> Tensor:
    """`self` with the geometry, and the history, of that view of it."""
    check_inplace(self)
    if self._tab_stale and STATE.grad:
        refresh(self)
    v = view(self._tab_shallow())
    fn = v._tab_grad_fn
    self._tab_meta = v._tab_meta
    self._tab_storage.written()  # what saved it has the old geometry in mind
    if fn is not None:
        fn.__class__ = grad_class(_named(fn, fn.name()), type(fn))
        _move_retain(self, fn)
        self._tab_requires_grad = True
        self._tab_grad_fn = fn
        self._tab_stale = False
    return self


def _named(fn: GradFn, name: str) -> str:
    """PyTorch numbers the forms of a function, those in place after the others."""
    head, _, number = name.partition("Backward")
    return f"{head}Backward{int(number) + (3 if head == 'Squeeze' else 1)}"


@register("squeeze_", method=True, torch=False)
def squeeze_(self: Tensor, dim: Any = None) -> Tensor:
    """In-place `squeeze`."""
    return _become(self, lambda x: views.squeeze(x, dim))


@register("unsqueeze_", method=True, torch=False)
def unsqueeze_(self: Tensor, dim: int) -> Tensor:
    """In-place `unsqueeze`."""
    return _become(self, lambda x: views.unsqueeze(x, dim))


@register("transpose_", method=True, torch=False)
def transpose_(self: Tensor, dim0: int, dim1: int) -> Tensor:
    """In-place `transpose`."""
    return _become(self, lambda x: views.transpose(x, dim0, dim1))


@register("swapaxes_", method=True, torch=False)
def swapaxes_(self: Tensor, axis0: int, axis1: int) -> Tensor:
    """In-place `swapaxes`."""
    return transpose_(self, axis0, axis1)


@register("swapdims_", method=True, torch=False)
def swapdims_(self: Tensor, dim0: int, dim1: int) -> Tensor:
    """In-place `swapdims`."""
    return transpose_(self, dim0, dim1)


@register("t_", method=True, torch=False)
def t_(self: Tensor) -> Tensor:
    """In-place `t`. RuntimeError for more than 2 dimensions."""
    check_inplace(self)
    if self.ndim > 2:
        raise RuntimeError(f"t_() expects a tensor with <= 2 dimensions, but self is {self.ndim}D")
    return _become(self, views.t)


@register("as_strided_", method=True)
def as_strided_(self: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """In-place `as_strided`."""
    return _become(self, lambda x: views.as_strided(x, size, stride, storage_offset))
