"""Parameters and buffers: tensors that a ``Module`` registers when they are assigned to it."""

from collections import OrderedDict

import tabtorch as torch

from ..tensor import Tensor

__all__ = ["Parameter", "Buffer"]


class _MarkedMeta(type(Tensor)):  # type: ignore[misc]
    """``isinstance`` also holds for tensors of another subclass that carry the mark of this one."""

    _mark = "_is_param"

    def __instancecheck__(cls, instance):
        if super().__instancecheck__(instance):
            return True
        return isinstance(instance, Tensor) and getattr(instance, cls._mark, False)


class _BufferMeta(_MarkedMeta):
    _mark = "_is_buffer"


class Parameter(Tensor, metaclass=_MarkedMeta):
    """A tensor that is a module's parameter: a leaf, which requires a gradient unless told otherwise.

    ``data``: the values; the parameter shares their storage. ``requires_grad``: kept under ``no_grad`` too.
    """

    def __new__(cls, data=None, requires_grad=True):
        if data is None:
            data = torch.empty(0)
        if type(data) is Tensor or type(data) is Parameter:
            return Tensor._make_subclass(cls, data, requires_grad)
        # A tensor of another subclass keeps its type, and is marked.
        t = data.detach().requires_grad_(requires_grad)
        if type(t) is not type(data):
            raise RuntimeError(
                f"Creating a Parameter from an instance of type {type(data).__name__} "
                "requires that detach() returns an instance of the same type, but return "
                f"type {type(t).__name__} was found instead. To use the type as a "
                "Parameter, please correct the detach() semantics defined by "
                "its __torch_dispatch__() implementation."
            )
        t._is_param = True
        return t

    def __init__(self, data=None, requires_grad=True):
        """All is done in ``__new__``."""

    def __deepcopy__(self, memo):
        if id(self) in memo:
            return memo[id(self)]
        result = type(self)(self.data.clone(memory_format=torch.preserve_format), self.requires_grad)
        memo[id(self)] = result
        return result

    def __repr__(self, *, tensor_contents: str | None = None) -> str:  # type: ignore[override]
        return "Parameter containing:\n" + super().__repr__()

    def __reduce_ex__(self, proto):
        return _rebuild_parameter, (self.data, self.requires_grad, OrderedDict())


class Buffer(Tensor, metaclass=_BufferMeta):
    """A tensor that is a module's buffer: state that is not trained.

    ``persistent``: whether it is part of the module's ``state_dict``.
    """

    def __new__(cls, data=None, *, persistent=True):
        if data is None:
            data = torch.empty(0)
        t = data.detach().requires_grad_(data.requires_grad)
        t.persistent = persistent
        t._is_buffer = True
        return t


def _rebuild_parameter(data, requires_grad, backward_hooks):
    """Unpickles a parameter."""
    param = Parameter(data, requires_grad)
    param._backward_hooks = backward_hooks
    return param
