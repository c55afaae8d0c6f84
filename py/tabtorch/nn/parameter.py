"""Parameters and buffers: tensors that a ``Module`` registers when they are assigned to it."""

from collections import OrderedDict
from functools import partial

import tabtorch as torch
from tabtorch.core.tensor import Tensor, disabled_torch_function
from tabtorch.core.tensor_base import inside

__all__ = [
    "Parameter",
    "UninitializedParameter",
    "is_lazy",
    "Buffer",
    "UninitializedBuffer",
    "UninitializedTensorMixin",
]


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

    __torch_function__ = staticmethod(disabled_torch_function)

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

    __torch_function__ = staticmethod(disabled_torch_function)

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


def is_lazy(param):
    """Whether ``param`` is an ``UninitializedParameter`` or ``UninitializedBuffer``."""
    return isinstance(param, UninitializedTensorMixin)


def empty_parameter(shape, wanted=True, device=None, dtype=None):
    """A parameter whose values are yet to be drawn, or None where it is not wanted, for ``register_parameter``."""
    return Parameter(torch.empty(shape, device=device, dtype=dtype)) if wanted else None


class UninitializedTensorMixin:
    """A tensor whose shape is not known yet: it has a device and a dtype, no values, and no place in any operation."""

    cls_to_become: type
    _tab_requires_grad: bool
    _blank: Tensor
    __torch_function__ = staticmethod(disabled_torch_function)

    def __init__(self, *args, **kwargs):
        """All is done in ``__new__``."""

    @classmethod
    def _make(cls, requires_grad, device, dtype):
        self = object.__new__(cls)
        inside(self).update(_tab_requires_grad=requires_grad, _blank=torch.empty(0, device=device, dtype=dtype))
        return self

    def materialize(self, shape, device=None, dtype=None):
        """Becomes an ordinary parameter or tensor of this shape, its values not set."""
        blank = inside(self).pop("_blank")
        device, dtype = device or blank.device, dtype or blank.dtype
        self.__class__ = self.cls_to_become
        self.data = torch.empty(shape, device=device, dtype=dtype)

    def _refuse(self):
        raise ValueError(
            f"Attempted to use an uninitialized parameter in {type(self).__name__}. "
            "This error happens when you are using a `LazyModule` or "
            f"explicitly manipulating `torch.nn.parameter.{type(self).__name__}` "
            "objects. When using LazyModules Call `forward` with a dummy batch "
            "to initialize the parameters before calling torch functions"
        )

    # what every operation asks for
    _tab_meta = property(_refuse)
    _tab_storage = property(_refuse)

    @property
    def shape(self):
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. "
            "This error usually happens in `load_state_dict` when trying to load "
            "an uninitialized parameter into an initialized one. "
            "Call `forward` to initialize the parameters before accessing their attributes."
        )

    def share_memory_(self):
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. "
            "Call `forward` to initialize the parameters before calling `module.share_memory()`."
        )

    @property
    def data(self):
        return self._blank

    @data.setter
    def data(self, value):
        self._blank = value

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = type(self)(self._tab_requires_grad, self._blank.device, self._blank.dtype)
        return memo[id(self)]

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, proto):
        return type(self), (self._tab_requires_grad,)


def _of_blank(name):
    def ask(self, *args, **kwargs):
        r = getattr(self._blank, name)(*args, **kwargs)
        if isinstance(r, Tensor) and isinstance(self, UninitializedBuffer):
            r = type(self)(
                self._tab_requires_grad, r.device, r.dtype, self.persistent
            )  # a module puts it in the buffer's place
        return r

    return ask


# what may be asked of a tensor that has no values
for (
    _name
) in "size to half float double bfloat16 char short int long cuda cpu get_device is_complex is_floating_point".split():
    setattr(UninitializedTensorMixin, _name, _of_blank(_name))
for _name in ("dtype", "device", "is_meta", "is_cpu", "is_cuda"):
    setattr(UninitializedTensorMixin, _name, property(partial(lambda name, self: getattr(self._blank, name), _name)))


class UninitializedParameter(UninitializedTensorMixin, Parameter):  # type: ignore[metaclass, misc, override]
    """A parameter whose shape is not known yet. ``materialize(shape)`` makes it one."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad=True, device=None, dtype=None):
        return cls._make(requires_grad, device, dtype)


class UninitializedBuffer(UninitializedTensorMixin, Tensor):  # type: ignore[misc, override]
    """A buffer whose shape is not known yet. ``materialize(shape)`` makes it one."""

    cls_to_become = Tensor

    def __new__(cls, requires_grad=False, device=None, dtype=None, persistent=True):
        self = cls._make(requires_grad, device, dtype)
        self.persistent = persistent
        self._is_buffer = True
        return self
