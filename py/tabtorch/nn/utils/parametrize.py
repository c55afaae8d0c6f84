"""Parameters that are functions of others: https://pytorch.org/tutorials/intermediate/parametrizations.html

`register_parametrization` moves a parameter into ``module.parametrizations.<name>`` and gives the module a class of its own, in
which ``<name>`` is a property that computes it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tabtorch as torch
from tabtorch import Tensor
from tabtorch.nn.modules.container import ModuleDict, ModuleList
from tabtorch.nn.modules.module import Module
from tabtorch.nn.parameter import Parameter

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]

_cache_enabled = 0
_cache: dict[tuple[int, str], Tensor] = {}


@contextmanager
def cached() -> Iterator[None]:
    """Within it each parametrized tensor is computed once, however often it is read."""
    global _cache_enabled
    _cache_enabled += 1
    try:
        yield
    finally:
        _cache_enabled -= 1
        if not _cache_enabled:
            _cache.clear()


def _register(module: Module, name: str, value: Any) -> None:
    if isinstance(value, Parameter):
        module.register_parameter(name, value)
    else:
        module.register_buffer(name, value)


_CHANGES = "Registering a parametrization may not change the {{0}} of the tensor, unless {flag} is enabled.\n"


def _unchanged(before: Any, after: Any, message: str) -> None:
    """ValueError if the dtype or the shape differs; ``message`` takes which of them, the old one and the new one."""
    for what in ("dtype", "shape"):
        old, new = getattr(before, what), getattr(after, what)
        if old != new:
            raise ValueError(message.format(what, old, new))


class ParametrizationList(ModuleList):
    """What is applied, in order, to ``original`` (or to ``original0``, ``original1``, … if `right_inverse` gives several)."""

    original: Tensor

    def __init__(self, modules: Sequence[Module], original: Any, unsafe: bool = False) -> None:
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape_and_type = original.detach()  # `set_` below may change the original's
        new = original
        with torch.no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    try:
                        new = module.right_inverse(new)
                    except NotImplementedError:
                        pass  # then it is the identity
        if not isinstance(new, (Tensor, Sequence)):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(new).__name__}"
            )
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if isinstance(new, Tensor) else len(new)
        if isinstance(new, Tensor):
            for each in ("dtype", "device"):
                old, given = getattr(original, each), getattr(new, each)
                if old != given:
                    raise ValueError(
                        f"When `right_inverse` outputs one tensor, it may not change the {each}.\n"
                        f"original.{each}: {old}\nright_inverse(original).{each}: {given}"
                    )
            with torch.no_grad():
                original.set_(new)
            _register(self, "original", original)
        else:
            part: Any
            for i, part in enumerate(new):
                if not isinstance(part, Tensor):
                    raise ValueError(
                        "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                        f"Got element {i} of the sequence with type {type(part).__name__}."
                    )
                if isinstance(original, Parameter):
                    part = Parameter(part, original.requires_grad)
                part.requires_grad_(original.requires_grad)
                _register(self, f"original{i}", part)
        if not unsafe:
            found = self()
            if not isinstance(found, Tensor):
                raise ValueError(f"A parametrization must return a tensor. Got {type(found).__name__}.")
            told = _CHANGES.format(flag="`unsafe` flag") + "unparametrized {0}: {1}\nparametrized {0}: {2}"
            _unchanged(shape_and_type, found, told)

    def right_inverse(self, value: Any) -> None:
        """Sets the originals so that, as far as the parametrizations can be inverted, they give ``value``."""
        with torch.no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                value = module.right_inverse(value)
            if self.is_tensor:
                if not isinstance(value, Tensor):
                    raise ValueError(f"`right_inverse` should return a tensor. Got {type(value).__name__}")
                if value.dtype != self.original.dtype:
                    raise ValueError(
                        f"The tensor returned by `right_inverse` has dtype {value.dtype} "
                        f"while `original` has dtype {self.original.dtype}"
                    )
                self.original.set_(value)
                return
            if not isinstance(value, Sequence):
                raise ValueError(f"'right_inverse' must return a sequence of tensors. Got {type(value).__name__}.")
            if len(value) != self.ntensors:
                raise ValueError(
                    f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. "
                    f"Got a sequence of length {len(value)}."
                )
            for i, each in enumerate(value):
                own = getattr(self, f"original{i}")
                if not isinstance(each, Tensor):
                    raise ValueError(
                        "'right_inverse' must return a sequence of tensors or reference-type opaques. "
                        f"Got element {i} of type {type(each).__name__}."
                    )
                if own.dtype != each.dtype:
                    raise ValueError(
                        f"Tensor {i} returned by `right_inverse` has dtype {each.dtype} "
                        f"while `original{i}` has dtype {own.dtype}"
                    )
                own.set_(each)

    def forward(self) -> Any:
        first, *others = self
        x = (
            first(self.original)
            if self.is_tensor
            else first(*(getattr(self, f"original{i}") for i in range(self.ntensors)))
        )
        for each in others:
            x = each(x)
        return x


def _inject_new_class(module: Module) -> None:
    """Gives the module a class of its own, which a property can be added to."""
    cls = type(module)

    def default_deepcopy(self: Any, memo: dict[int, Any]) -> Any:
        """`__getstate__` below forbids pickling, which copying would use."""
        if id(self) not in memo:
            replica = memo[id(self)] = self.__new__(type(self))
            replica.__dict__ = copy.deepcopy(self.__dict__, memo)
        return memo[id(self)]

    def getstate(self: Any) -> None:
        raise RuntimeError(
            "Serialization of parametrized modules is only supported through state_dict(). See:\n"
            "https://pytorch.org/tutorials/beginner/saving_loading_models.html"
            "#saving-loading-a-general-checkpoint-for-inference-and-or-resuming-training"
        )

    members: dict[str, Any] = {"__getstate__": getstate}
    if not hasattr(cls, "__deepcopy__"):
        members["__deepcopy__"] = default_deepcopy
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), members)


def _inject_property(module: Module, tensor_name: str) -> None:
    def get(self: Any) -> Any:
        parametrization = self.parametrizations[tensor_name]
        if not _cache_enabled:
            return parametrization()
        key = (id(self), tensor_name)
        if key not in _cache:
            _cache[key] = parametrization()
        return _cache[key]

    def put(self: Any, value: Any) -> None:
        self.parametrizations[tensor_name].right_inverse(value)

    setattr(type(module), tensor_name, property(get, put))


def _check_another(module: Any, tensor_name: str, parametrization: Any) -> None:
    """ValueError if one more parametrization, or its inverse, would change the tensor's type or shape."""
    before = getattr(module, tensor_name)
    after = parametrization(before)
    if not isinstance(after, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(after).__name__}.")
    own = f"module.{tensor_name}"
    told = _CHANGES.format(flag="the `unsafe` flag") + own + ".{0}: {1}\nparametrization(" + own + ").{0}: {2}"
    _unchanged(before, after, told)
    if not hasattr(parametrization, "right_inverse"):
        return
    try:
        back = parametrization.right_inverse(after)
    except NotImplementedError:
        return
    if not isinstance(back, Tensor):
        raise ValueError(f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}")
    told = (
        "The tensor returned by parametrization.right_inverse must have the same {0} "
        f"as {own}, unless the `unsafe` flag is enabled.\n{own}" + ".{0}: {1}\nreturned {0}: {2}"
    )
    _unchanged(before, back, told)


def register_parametrization(module: Any, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> Any:
    """Makes ``module.<tensor_name>`` the value of ``parametrization`` of the tensor that was there; returns the module.

    A parametrization with a ``right_inverse(value)`` can be assigned to. ``unsafe``: type and shape may change.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            _check_another(module, tensor_name, parametrization)
        module.parametrizations[tensor_name].append(parametrization)
        module.parametrizations[tensor_name].unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        made = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _inject_new_class(module)
            module.parametrizations = ModuleDict()
        _inject_property(module, tensor_name)
        module.parametrizations[tensor_name] = made
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name '{tensor_name}'"
        )
    return module


def is_parametrized(module: Any, tensor_name: str | None = None) -> bool:
    """Whether the tensor of that name (default: any) is parametrized."""
    found = getattr(module, "parametrizations", None)
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def remove_parametrizations(module: Any, tensor_name: str, leave_parametrized: bool = True) -> Any:
    """Makes the tensor an ordinary one again: with its present value, or (``leave_parametrized=False``) the original."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    parametrizations = module.parametrizations[tensor_name]
    if parametrizations.is_tensor:
        original = parametrizations.original
        if leave_parametrized:
            with torch.no_grad():
                original.set_(getattr(module, tensor_name))
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value) if value.requires_grad else value
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor "
            "that is parametrized in terms of a sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        del module.parametrizations
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Any) -> type:
    """The module's class without the one that parametrizing gave it."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(from_module: Any, to_module: Any, tensor_name: str | None = None) -> Any:
    """Gives ``to_module`` the parametrizations and originals of ``from_module`` (of one tensor, or all); returns it."""
    if not is_parametrized(from_module):
        return to_module
    for name in from_module.parametrizations if tensor_name is None else [tensor_name]:
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name)))
        theirs = from_module.parametrizations[name]
        for each in theirs:
            register_parametrization(to_module, name, each)
        for key in ["original"] if theirs.is_tensor else [f"original{i}" for i in range(theirs.ntensors)]:
            setattr(to_module.parametrizations[name], key, getattr(theirs, key))
    return to_module
