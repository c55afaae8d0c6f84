"""Hooks that every module runs, and registration hooks. For debugging and profiling, as in PyTorch."""

import functools
import weakref
from collections import OrderedDict

from tabtorch.utils.hooks import RemovableHandle

_buffer_registration: dict = OrderedDict()
_module_registration: dict = OrderedDict()
_parameter_registration: dict = OrderedDict()
_backward_pre: dict = OrderedDict()
_backward: dict = OrderedDict()
_forward_pre: dict = OrderedDict()
_forward: dict = OrderedDict()
_forward_always_called: dict = OrderedDict()
_forward_with_kwargs: dict = OrderedDict()

# None until a backward hook is there; then whether they are the full kind.
_is_full_backward = None


class _WrappedHook:
    """A hook that also gets its module, held weakly."""

    def __init__(self, hook, module=None):
        self.hook = hook
        functools.update_wrapper(self, hook)
        self.with_module = module is not None
        if module is not None:
            self.module = weakref.ref(module)

    def __call__(self, *args, **kwargs):
        if self.with_module:
            module = self.module()
            if module is None:
                raise RuntimeError("You are trying to call the hook of a dead Module!")
            return self.hook(module, *args, **kwargs)
        return self.hook(*args, **kwargs)

    def __getstate__(self):
        state = {"hook": self.hook, "with_module": self.with_module}
        if self.with_module:
            state["module"] = self.module()
        return state

    def __setstate__(self, state):
        self.hook = state["hook"]
        self.with_module = state["with_module"]
        if self.with_module:
            if state["module"] is None:
                raise RuntimeError("You are trying to revive the hook of a dead Module!")
            self.module = weakref.ref(state["module"])


def _register(hooks, hook, extra=None):
    handle = RemovableHandle(hooks, extra_dict=extra)
    hooks[handle.id] = hook
    return handle


def register_module_buffer_registration_hook(hook):
    """``hook(module, name, buffer) -> None or a new buffer``, whenever a buffer is registered."""
    return _register(_buffer_registration, hook)


def register_module_module_registration_hook(hook):
    """``hook(module, name, submodule) -> None or a new submodule``, whenever a submodule is registered."""
    return _register(_module_registration, hook)


def register_module_parameter_registration_hook(hook):
    """``hook(module, name, param) -> None or a new parameter``, whenever a parameter is registered."""
    return _register(_parameter_registration, hook)


def register_module_forward_pre_hook(hook):
    """``hook(module, args) -> None or new args``, before every module's ``forward``."""
    return _register(_forward_pre, hook)


def register_module_forward_hook(hook, *, with_kwargs=False, always_call=False):
    """``hook(module, args, output) -> None or a new output``, after every module's ``forward``."""
    handle = _register(_forward, hook, [_forward_with_kwargs, _forward_always_called])
    if with_kwargs:
        _forward_with_kwargs[handle.id] = True
    if always_call:
        _forward_always_called[handle.id] = True
    return handle


def register_module_full_backward_pre_hook(hook):
    """``hook(module, grad_output) -> None or a new grad_output``, before every module's backward."""
    return _register(_backward_pre, hook)


def _one_kind(full):
    global _is_full_backward
    if _is_full_backward is (not full):
        raise RuntimeError(
            "Cannot use both regular backward hooks and full backward hooks as a "
            "global Module hook. Please use only one of them."
        )
    _is_full_backward = full


def register_module_full_backward_hook(hook):
    """``hook(module, grad_input, grad_output) -> None or a new grad_input``, after every module's backward."""
    _one_kind(True)
    return _register(_backward, hook)


def register_module_backward_hook(hook):
    """The older, non-full form. Prefer ``register_module_full_backward_hook``."""
    _one_kind(False)
    return _register(_backward, hook)
