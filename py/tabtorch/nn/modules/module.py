"""``Module``: the base class of all layers and models."""

import inspect
import warnings
from collections import OrderedDict
from types import FunctionType
from typing import Any

import tabtorch as torch
from tabtorch import _lazy
from tabtorch.core.tensor import Tensor
from tabtorch.nn.modules import _global_hooks as _g
from tabtorch.nn.modules._global_hooks import (
    _WrappedHook,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from tabtorch.nn.modules._state import _EXTRA_STATE_KEY_SUFFIX, _IncompatibleKeys, _StateDict
from tabtorch.nn.modules._traverse import _Traverse
from tabtorch.nn.parameter import Buffer, Parameter
from tabtorch.utils.hooks import RemovableHandle

__all__ = [
    "Module",
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
    "_EXTRA_STATE_KEY_SUFFIX",
    "_IncompatibleKeys",
]


def _addindent(text, n):
    first, *rest = text.split("\n")
    return "\n".join([first, *(" " * n + line if line.strip() else "" for line in rest)])


def _forward_unimplemented(self, *input):
    """Computes the outputs. Every subclass overrides it."""
    raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')


def _check_name(module, kind, name, known):
    """The rules for a registered name. Raises TypeError or KeyError, as PyTorch."""
    if not isinstance(name, str):
        raise TypeError(f"{kind} name should be a string. Got {torch.typename(name)}")
    if kind == "module" and hasattr(module, name) and name not in known:
        raise KeyError(f"attribute '{name}' already exists")
    if "." in name:
        raise KeyError(f'{kind} name can\'t contain "."' + (f", got: {name}" if kind == "module" else ""))
    if name == "":
        raise KeyError(f'{kind} name can\'t be empty string ""')
    if hasattr(module, name) and name not in known:
        raise KeyError(f"attribute '{name}' already exists")


# (attribute, factory) of everything a module keeps, in PyTorch's order.
_STATE: tuple[tuple[str, Any], ...] = (
    ("_parameters", dict),
    ("_buffers", dict),
    ("_non_persistent_buffers_set", set),
    ("_backward_pre_hooks", OrderedDict),
    ("_backward_hooks", OrderedDict),
    ("_is_full_backward_hook", type(None)),
    ("_forward_hooks", OrderedDict),
    ("_forward_hooks_with_kwargs", OrderedDict),
    ("_forward_hooks_always_called", OrderedDict),
    ("_forward_pre_hooks", OrderedDict),
    ("_forward_pre_hooks_with_kwargs", OrderedDict),
    ("_state_dict_hooks", OrderedDict),
    ("_state_dict_pre_hooks", OrderedDict),
    ("_load_state_dict_pre_hooks", OrderedDict),
    ("_load_state_dict_post_hooks", OrderedDict),
    ("_modules", dict),
)


#: private classes that PyTorch has too
_BASES = frozenset(
    "_BatchNorm _LazyNormBase _InstanceNorm _ConvNd _DropoutNd _Loss _WeightedLoss _MaxPoolNd _LPPoolNd _AvgPoolNd _AdaptiveAvgPoolNd "
    "_AdaptiveMaxPoolNd".split()
)


class Module(_Traverse, _StateDict):
    """Base class of layers and models: registers parameters, buffers and submodules as they are assigned.

    Subclasses call ``super().__init__()`` first, and define ``forward``.
    """

    _is_full_backward_hook: bool | None
    dump_patches: bool = False
    training: bool
    call_super_init: bool = False
    _compiled_call_impl = None

    def __init__(self, *args, **kwargs):
        name = type(self).__name__
        if self.call_super_init is False and kwargs:
            raise TypeError(f"{name}.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'")
        if self.call_super_init is False and args:
            raise TypeError(f"{name}.__init__() takes 1 positional argument but {len(args) + 1} were given")
        # Straight into the instance: __setattr__ is slow, and there is nothing to check yet.
        own = self.__dict__
        own["training"] = True
        for attribute, factory in _STATE:
            own[attribute] = factory()
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        init = cls.__init__
        owner = init.__qualname__.partition(".")[0]
        if owner.startswith("_") and owner not in _BASES and cls.__module__.startswith("tabtorch."):
            # a constructor that several classes share is each one's own to who calls it with a wrong argument
            own = FunctionType(init.__code__, init.__globals__, init.__name__, init.__defaults__, init.__closure__)
            own.__kwdefaults__ = init.__kwdefaults__
            own.__qualname__ = f"{cls.__qualname__}.__init__"
            cls.__init__ = own  # type: ignore[method-assign]

    forward = _forward_unimplemented

    # -- registration

    def register_buffer(self, name, tensor, persistent=True):
        """Adds a buffer. ``tensor``: a Tensor or None. ``persistent``: whether ``state_dict`` holds it."""
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        _check_name(self, "buffer", name, self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{torch.typename(tensor)}' object to buffer '{name}' (torch Tensor or None required)"
            )
        for hook in _g._buffer_registration.values():
            output = hook(self, name, tensor)
            tensor = tensor if output is None else output
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_parameter(self, name, param):
        """Adds a parameter: a ``Parameter``, or None for one that this module lacks."""
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        _check_name(self, "parameter", name, self._parameters)
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(
                    f"cannot assign '{torch.typename(param)}' object to parameter '{name}' "
                    "(torch.nn.Parameter or None required)"
                )
            if param.grad_fn:
                raise ValueError(
                    f"Cannot assign non-leaf Tensor to parameter '{name}'. Model "
                    f"parameters must be created explicitly. To express '{name}' "
                    "as a function of another Tensor, compute the value in "
                    "the forward() method."
                )
            for hook in _g._parameter_registration.values():
                output = hook(self, name, param)
                param = param if output is None else output
        self._parameters[name] = param

    def add_module(self, name, module):
        """Adds a child module, or None."""
        if not isinstance(module, Module) and module is not None:
            raise TypeError(f"{torch.typename(module)} is not a Module subclass")
        _check_name(self, "module", name, self._modules)
        self._modules[name] = self._module_hooked(name, module)

    def register_module(self, name, module):
        """Alias of ``add_module``."""
        self.add_module(name, module)

    def _module_hooked(self, name, module):
        for hook in _g._module_registration.values():
            output = hook(self, name, module)
            module = module if output is None else output
        return module

    # -- attributes

    def __getattr__(self, name):
        own = self.__dict__
        # written out: every layer asks for its parameters here in each call
        members = own.get("_parameters")
        if members is not None and name in members:
            return members[name]
        members = own.get("_modules")
        if members is not None and name in members:
            return members[name]
        members = own.get("_buffers")
        if members is not None and name in members:
            return members[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def _forget(self, name, *members):
        self.__dict__.pop(name, None)
        for member in members:
            getattr(self, member).pop(name, None)
        self._non_persistent_buffers_set.discard(name)

    def __setattr__(self, name, value):
        own = self.__dict__
        params = own.get("_parameters")
        if isinstance(value, Parameter):
            if params is None:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._forget(name, "_buffers", "_modules")
            self.register_parameter(name, value)
            return
        if params is not None and name in params:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{torch.typename(value)}' as parameter '{name}' "
                    "(torch.nn.Parameter or None expected)"
                )
            self.register_parameter(name, value)
            return
        modules = own.get("_modules")
        if isinstance(value, Module):
            if modules is None:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._forget(name, "_parameters", "_buffers")
            modules[name] = self._module_hooked(name, value)
            return
        if modules is not None and name in modules:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{torch.typename(value)}' as child module '{name}' "
                    "(torch.nn.Module or None expected)"
                )
            modules[name] = self._module_hooked(name, value)
            return
        buffers = own.get("_buffers")
        is_buffer = isinstance(value, Buffer)
        if is_buffer or (buffers is not None and name in buffers):
            self._set_buffer(name, value, is_buffer)
        else:
            super().__setattr__(name, value)

    def _set_buffer(self, name, value, is_buffer):
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(
                f"cannot assign '{torch.typename(value)}' as buffer '{name}' "
                "(torch.nn.Buffer, torch.Tensor or None expected)"
            )
        if "_buffers" in self.__dict__ and is_buffer:
            self.__dict__.pop(name, None)
            self._parameters.pop(name, None)
            self._modules.pop(name, None)
        persistent = getattr(value, "persistent", True) if is_buffer else name not in self._non_persistent_buffers_set
        # A subclass may have overridden register_buffer with fewer arguments.
        overridden = type(self).register_buffer is not Module.register_buffer
        if overridden and "persistent" not in inspect.signature(self.register_buffer).parameters:
            if not persistent:
                raise RuntimeError(
                    "Registering a non-persistent buffer on a Module subclass that implements "
                    "register_buffer() without the persistent arg is not allowed."
                )
            self.register_buffer(name, value)
        else:
            self.register_buffer(name, value, persistent)

    def __delattr__(self, name):
        if name in self._parameters:
            del self._parameters[name]
        elif name in self._buffers:
            del self._buffers[name]
            self._non_persistent_buffers_set.discard(name)
        elif name in self._modules:
            del self._modules[name]
        else:
            super().__delattr__(name)

    def __dir__(self):
        names = [*dir(type(self)), *self.__dict__, *self._parameters, *self._modules, *self._buffers]
        return sorted(name for name in names if not name[0].isdigit())

    def __getstate__(self):
        state = self.__dict__.copy()
        state.pop("_compiled_call_impl", None)
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
        for attribute, factory in _STATE:  # what an older pickle lacks
            if attribute not in self.__dict__:
                self.__dict__[attribute] = factory()

    # -- hooks

    def _add_hook(self, hooks, hook, prepend, extra=None):
        handle = RemovableHandle(hooks, extra_dict=extra)
        hooks[handle.id] = hook
        if prepend:
            hooks.move_to_end(handle.id, last=False)
        return handle

    def register_forward_pre_hook(self, hook, *, prepend=False, with_kwargs=False):
        """``hook(module, args) -> None or new args`` before ``forward``.

        ``with_kwargs``: ``hook(module, args, kwargs) -> None or (new args, new kwargs)``.
        """
        handle = self._add_hook(self._forward_pre_hooks, hook, False, self._forward_pre_hooks_with_kwargs)
        if with_kwargs:
            self._forward_pre_hooks_with_kwargs[handle.id] = True
        if prepend:
            self._forward_pre_hooks.move_to_end(handle.id, last=False)
        return handle

    def register_forward_hook(self, hook, *, prepend=False, with_kwargs=False, always_call=False):
        """``hook(module, args, output) -> None or a new output`` after ``forward``.

        ``with_kwargs``: ``hook(module, args, kwargs, output)``. ``always_call``: also when ``forward`` raises.
        """
        extra = [self._forward_hooks_with_kwargs, self._forward_hooks_always_called]
        handle = self._add_hook(self._forward_hooks, hook, prepend, extra)
        if with_kwargs:
            self._forward_hooks_with_kwargs[handle.id] = True
        if always_call:
            self._forward_hooks_always_called[handle.id] = True
        return handle

    def register_full_backward_pre_hook(self, hook, prepend=False):
        """``hook(module, grad_output) -> None or a new grad_output`` before this module's backward."""
        return self._add_hook(self._backward_pre_hooks, hook, prepend)

    def register_full_backward_hook(self, hook, prepend=False):
        """``hook(module, grad_input, grad_output) -> None or a new grad_input`` after this module's backward."""
        self._one_kind(True)
        return self._add_hook(self._backward_hooks, hook, prepend)

    def register_backward_hook(self, hook):
        """The older, non-full form. Prefer ``register_full_backward_hook``."""
        self._one_kind(False)
        return self._add_hook(self._backward_hooks, hook, False)

    def _one_kind(self, full):
        if self._is_full_backward_hook is (not full):
            raise RuntimeError(
                "Cannot use both regular backward hooks and full backward hooks on a "
                "single Module. Please use only one of them."
            )
        self._is_full_backward_hook = full

    # -- calling

    def __call__(self, *args, **kwargs):
        if self._compiled_call_impl is not None:
            return self._compiled_call_impl(*args, **kwargs)
        return self._call_impl(*args, **kwargs)

    def _call_impl(self, *args, **kwargs):
        own = self.__dict__
        if "_backward_hooks" not in own:  # Module.__init__ was not called
            return self._backward_hooks
        if not (
            own["_backward_hooks"]
            or own["_backward_pre_hooks"]
            or own["_forward_hooks"]
            or own["_forward_pre_hooks"]
            or _g._backward_pre
            or _g._backward
            or _g._forward
            or _g._forward_pre
        ):
            return self.forward(*args, **kwargs)
        return self._call_with_hooks(args, kwargs)

    def _backward_hooks_of_kind(self, full):
        hooks: list = []
        if _g._is_full_backward is full:
            hooks += _g._backward.values()
        if self._is_full_backward_hook is full:
            hooks += self._backward_hooks.values()
        return hooks

    def _run_forward_hook(self, key, hook, args, kwargs, result):
        if key in self._forward_hooks_with_kwargs or key in _g._forward_with_kwargs:
            return hook(self, args, kwargs, result)
        return hook(self, args, result)

    def _call_with_hooks(self, args, kwargs):
        called = set()
        result = None
        try:
            for key, hook in (*_g._forward_pre.items(), *self._forward_pre_hooks.items()):
                if key in self._forward_pre_hooks_with_kwargs:
                    new = hook(self, args, kwargs)
                    if new is not None:
                        if not (isinstance(new, tuple) and len(new) == 2):
                            raise RuntimeError(
                                "forward pre-hook must return None or a tuple "
                                f"of (new_args, new_kwargs), but got {new}."
                            )
                        args, kwargs = new
                else:
                    new = hook(self, args)
                    if new is not None:
                        args = new if isinstance(new, tuple) else (new,)

            full = self._backward_hooks_of_kind(True)
            pre = [*_g._backward_pre.values(), *self._backward_pre_hooks.values()]
            gates = _lazy.backward_hooks.BackwardHook(self, full, pre) if full or pre else None
            if gates:
                args = gates.setup_input_hook(args)

            result = self.forward(*args, **kwargs)
            for key, hook in (*_g._forward.items(), *self._forward_hooks.items()):
                if key in self._forward_hooks_always_called or key in _g._forward_always_called:
                    called.add(key)
                new = self._run_forward_hook(key, hook, args, kwargs, result)
                result = result if new is None else new

            if gates:
                if not isinstance(result, (Tensor, tuple)):
                    warnings.warn(
                        "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors"
                        f" but received {type(result)}",
                        stacklevel=3,
                    )
                result = gates.setup_output_hook(result)

            for hook in self._backward_hooks_of_kind(False):
                grad_fn = _first_tensor(result).grad_fn
                if grad_fn is not None:
                    grad_fn.register_hook(_WrappedHook(hook, self))
            return result
        except Exception:
            self._run_always_called(called, args, kwargs, result)
            raise

    def _run_always_called(self, called, args, kwargs, result):
        """After an error: the hooks with ``always_call`` that have not run; their own errors become warnings."""
        for where, hooks, always in (
            ("global module", _g._forward, _g._forward_always_called),
            ("module", self._forward_hooks, self._forward_hooks_always_called),
        ):
            for key, hook in hooks.items():
                if key not in always or key in called:
                    continue
                try:
                    new = self._run_forward_hook(key, hook, args, kwargs, result)
                    result = result if new is None else new
                except Exception as error:
                    warnings.warn(
                        f"{where} forward hook with ``always_call=True`` raised an exception "
                        f"that was silenced as another error was raised in forward: {error}",
                        stacklevel=4,
                    )

    def compile(self, *args, **kwargs):
        """Compiles this module's call with ``torch.compile``, in place."""
        self._compiled_call_impl = torch.compile(self._call_impl, *args, **kwargs)

    # -- printing

    def extra_repr(self):
        """What ``repr`` shows between the parentheses. For subclasses to override."""
        return ""

    def __repr__(self):
        extra = self.extra_repr()
        extra_lines = extra.split("\n") if extra else []
        children = [f"({key}): " + _addindent(repr(module), 2) for key, module in self._modules.items()]
        head = self._get_name() + "("
        if len(extra_lines) == 1 and not children:
            return head + extra_lines[0] + ")"
        lines = extra_lines + children
        return head + ("\n  " + "\n  ".join(lines) + "\n" if lines else "") + ")"


def _first_tensor(value):
    while not isinstance(value, Tensor):
        value = next(v for v in value.values() if isinstance(v, Tensor)) if isinstance(value, dict) else value[0]
    return value
