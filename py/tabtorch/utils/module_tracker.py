"""`torch.utils.module_tracker`: in which modules a line runs, forward and backward."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from tabtorch import _C, _lazy
from tabtorch.core.tensor import Tensor
from tabtorch.nn.modules._global_hooks import register_module_forward_hook, register_module_forward_pre_hook
from tabtorch.utils._pytree import tree_leaves

__all__ = ["ModuleTracker"]


class ModuleTracker:
    """While it is entered, `parents` is the set of the dotted names of the modules that run, "Global" among them.

    The outermost modules go by the names of their classes. `is_bw`: whether backward runs.
    """

    parents: set[str]

    def __init__(self) -> None:
        self.parents = {"Global"}
        self._known: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()
        self._handles: list[Any] = []
        self._resets = False  # at the end of the backward pass that runs

    @property
    def is_bw(self) -> bool:
        """Whether backward runs."""
        return _C._current_graph_task_id() != -1

    def _name(self, mod: Any) -> str:
        if mod not in self._known:
            self._known[mod] = type(mod).__name__
        name = self._known[mod]
        if mod not in self._seen:
            for child_name, child in mod.named_children():
                self._known[child] = f"{name}.{child_name}"
                self._name(child)
            self._seen.add(mod)
        return name

    def _entered(self, name: str) -> None:
        if self.is_bw and not self._resets:  # a module whose inputs need no gradient is left by nothing else
            self._resets = True
            _lazy.engine.queue_callback(self._reset)
        self.parents.add(name)

    def _reset(self) -> None:
        self.parents = {"Global"}
        self._resets = False

    def _in_backward(self, tree: Any, f: Callable[[str], None], name: str) -> None:
        """Calls `f(name)` when the gradients of these tensors are there."""
        tensors = [t for t in tree_leaves(tree) if isinstance(t, Tensor) and t.requires_grad]
        if tensors:
            self._handles.append(_lazy.autograd_graph.register_multi_grad_hook(tensors, lambda grads: f(name)))

    def _before(self, mod: Any, args: Any) -> None:
        name = self._name(mod)
        self._entered(name)
        self._in_backward(args, self._left, name)

    def _after(self, mod: Any, args: Any, output: Any) -> None:
        name = self._name(mod)
        self.parents.discard(name)
        self._in_backward(output, self._entered, name)

    def _left(self, name: str) -> None:
        """The module of that name is left."""
        self.parents.discard(name)

    def __enter__(self) -> ModuleTracker:
        self._handles += [register_module_forward_pre_hook(self._before), register_module_forward_hook(self._after)]
        return self

    def __exit__(self, *exc: Any) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
