"""Hooks on tensors and on the functions of the tape, and `retain_grad`."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.tape import GradFn
from tabtorch.core.storage import UNRECORDED
from tabtorch.core.tensor import Tensor
from tabtorch.ops.machinery.registry import register

#: how often a hook was added to anything: who remembers that there is none looks again
added = [0]


def add_hook(owner: Any, where: str, hook: Callable[..., Any]) -> Any:
    """Appends to the ordered dict `owner.where`. The handle returned takes the hook out again."""
    hooks = getattr(owner, where)
    if hooks is None:
        hooks = OrderedDict()
        setattr(owner, where, hooks)
    handle = _lazy.utils_hooks.RemovableHandle(hooks)
    hooks[handle.id] = hook
    added[0] += 1
    return handle


@register("register_hook", method=True, torch=False)
def register_hook(self: Tensor, hook: Callable[[Tensor], Tensor | None]) -> Any:
    """Calls `hook(grad)` whenever the gradient of this tensor is known; what it returns replaces the gradient."""
    if not self._tab_requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    fn = self.grad_fn
    if fn is None:
        return add_hook(self, "_backward_hooks", hook)
    if fn.tensor_hooks is None:
        fn.tensor_hooks = {}
    hooks = fn.tensor_hooks.setdefault(self.output_nr, OrderedDict())
    handle = _lazy.utils_hooks.RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


@register("register_post_accumulate_grad_hook", method=True, torch=False)
def register_post_accumulate_grad_hook(self: Tensor, hook: Callable[[Tensor], None]) -> Any:
    """Calls `hook(tensor)` after a gradient was added to the `.grad` of this leaf."""
    if not self._tab_requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if self.grad_fn is not None:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    return add_hook(self, "_post_accumulate_grad_hooks", hook)


@register("retain_grad", method=True, torch=False)
def retain_grad(self: Tensor) -> None:
    """Keeps the gradient of a tensor that is no leaf in its `.grad`."""
    if not self._tab_requires_grad:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    # with no history until its base was written to: as PyTorch, a leaf
    fn = None if self._tab_stale is UNRECORDED else self.grad_fn
    if fn is None or self._tab_retained is not None:
        return
    self._tab_retained = True
    if fn.retains is None:
        fn.retains = {}
    fn.retains[self.output_nr] = weakref.ref(self)


def move_retain(t: Tensor, fn: GradFn) -> None:
    """A tensor that keeps its gradient was written to: the gradient is now that of `fn`'s output."""
    old = t.grad_fn
    if old is not None and old.retains is not None:
        old.retains.pop(t.output_nr, None)
    if fn.retains is None:
        fn.retains = {}
    fn.retains[0] = weakref.ref(t)
