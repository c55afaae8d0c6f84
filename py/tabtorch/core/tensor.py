"""`torch.Tensor`: a storage seen through a Meta, with its place on the autograd tape.

Only what every tensor has stands here, and in `tensor_base.py` what can be asked of it. Operations come from the registry
(`ops/machinery/registry.py`): a method is put into the class when it is first asked for. Python's operators are in `operators.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tabtorch import _lazy
from tabtorch.base import dtypes
from tabtorch.base.thread_state import STATE
from tabtorch.core.storage import UNRECORDED, Storage
from tabtorch.core.tensor_base import Attributes, TensorBase, inside
from tabtorch.engine.graph import Node
from tabtorch.engine.view import Meta
from tabtorch.ops.machinery import registry

if TYPE_CHECKING:
    from tabtorch.autograd.tape import GradFn

#: what `_tab_inference` is of the `.data` of an inference tensor, and of an inference tensor whose `.data` was set to another
DATA, UNVERSIONED = "data", "unversioned"
_new = object.__new__


class TensorMeta(type):
    """Finds registered methods on first use of `Tensor.name`; a subclass that overrides operations makes itself known."""

    def __new__(meta, name: str, bases: tuple[type, ...], space: dict[str, Any], **options: Any) -> TensorMeta:
        # a base beside Tensor may have a `__dict__` of its own, which would show what a tensor consists of
        if len(bases) > 1 and TensorBase not in bases and "__slots__" not in space:
            space.setdefault("__dict__", Tensor.__dict__["__dict__"])
        return super().__new__(meta, name, bases, space, **options)

    def __init__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> None:
        super().__init__(name, bases, space)
        if TensorBase not in bases and cls.__torch_function__ is not disabled_torch_function:
            _lazy.torch_function.class_made()

    def __getattr__(cls, name: str) -> Any:
        f = None if name.startswith("__") else registry.method(name)
        if f is None:
            raise registry.Missing(_no_attribute(name, f"type object '{cls.__name__}'"))
        setattr(Tensor, name, f)
        return f


def _no_attribute(name: str, who: str) -> str:
    hint = "" if name.startswith("_") else " (if PyTorch has it: tabtorch does not have it yet)"
    return f"{who} has no attribute '{name}'{hint}"


def disabled_torch_function(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """The `__torch_function__` of a class that overrides nothing, and whose operations give plain tensors."""
    with _lazy.overrides.DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


disabled_torch_function.__name__ = "_disabled_torch_function_impl"


class Tensor(TensorBase, metaclass=TensorMeta):
    """A multi-dimensional array of one dtype on one device. Made by functions such as `torch.tensor` and `torch.zeros`."""

    # What a new tensor is by default; creation sets only what differs. What PyTorch has no name for begins with `_tab_`, so that
    # the attributes of somebody's subclass (`self._meta = …`) are their own.
    _tab_requires_grad: bool = False  # requires_grad
    _tab_detached: bool = False  # whether `detach_` has cut it from a history
    _tab_grad_fn: Any = None  # GradFn, or Port of one with several outputs
    _grad: Tensor | None = None
    _tab_grad_dtype: Any = False  # or the dtype that its gradient is to have, or None: any
    _base: Tensor | None = None  # of a differentiable view: the tensor that is no view
    _tab_stale: Any = (
        False  # of a view whose base was written to: its grad_fn until then, or True; it is made anew when asked for
    )
    _tab_borrowed: bool = False  # of a view: it requires grad only because its base does
    _tab_retype: str = (
        ""  # of a view that shows another type than what it was made of: the name of that function's grad_fn
    )
    _tab_view_state: int = 0  # how the view was made: see autograd/views.py
    _tab_inference: Any = (
        False  # or True, or DATA (may be written to), or UNVERSIONED (may not, and is no inference tensor)
    )
    _tab_other_state: Any = None  # of a generator's state: the other generator's at that moment
    _backward_hooks: Any = None
    _post_accumulate_grad_hooks: Any = None
    _tab_after_hooks: Any = None  # of its AccumulateGrad
    _tab_retained: Any = None
    edge_kind = 2  # as an edge of the tape a tensor is a leaf: see autograd/tape.py

    __array_priority__ = 1000
    __hash__ = object.__hash__

    def __new__(cls, *args: Any, **kwargs: Any) -> Tensor:
        return _lazy.constructors.legacy_constructor(cls, *args, **kwargs)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """All is done in `__new__`."""

    if not TYPE_CHECKING:  # which has its own idea of `Tensor.__dict__`

        @property
        def __dict__(self) -> dict[str, Any]:
            """The attributes that a script has put on it; what it consists of is not among them, as in PyTorch."""
            return Attributes(inside(self), Tensor.__dict__)

        @__dict__.setter
        def __dict__(self, attributes: dict[str, Any]) -> None:
            mine = Attributes(inside(self), Tensor.__dict__)
            mine.clear()
            mine.update(attributes)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What operations on a subclass do, if it does not say otherwise: give tensors of that subclass."""
        return _lazy.overrides.keep_subclass(cls, func, types, args, kwargs or {})

    # ---- making tensors

    @staticmethod
    def _wrap(node: Node, meta: Meta) -> Tensor:
        """A tensor over a new storage that holds `node`."""
        t: Tensor = _new(Tensor)
        t._tab_storage = Storage(node)
        t._tab_meta = meta
        if STATE.inference:
            t._tab_inference = True
        return t

    @staticmethod
    def _view_of(base: Tensor, meta: Meta) -> Tensor:
        """A tensor over the storage of `base`, with no autograd record."""
        t: Tensor = _new(Tensor)
        t._tab_storage = base._tab_storage
        t._tab_meta = meta
        if base._tab_inference:
            t._tab_inference = True
        return t

    @staticmethod
    def _make_subclass(cls: type, data: Tensor, require_grad: bool = False, **_kw: Any) -> Any:
        """A leaf of class `cls` over the storage of `data`."""
        t: Any = _new(cls)
        t._tab_storage = data._tab_storage
        t._tab_meta = data._tab_meta
        if require_grad:
            if not (data._tab_meta.dtype.is_floating_point or data._tab_meta.dtype.is_complex):
                raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
            t._tab_requires_grad = True
        return t

    def as_subclass(self, cls: type) -> Any:
        """The same data and history as an instance of `cls`."""
        t: Any = self.view_as(self) if self._tab_requires_grad and self._tab_grad_fn is None else self._tab_shallow()
        t.__class__ = cls
        return t

    def _tab_shallow(self) -> Tensor:
        """Another tensor object with the same storage and the same place on the tape."""
        t = Tensor._view_of(self, self._tab_meta)
        if self._tab_requires_grad:
            t._tab_requires_grad = True
            t._tab_grad_fn = self._tab_grad_fn
        return t

    def __getattr__(self, name: str) -> Any:
        # only names that neither the object nor its class has come here
        f = None if name.startswith("__") else registry.method(name)
        if f is None:
            raise registry.Missing(_no_attribute(name, f"'{type(self).__name__}' object"))
        setattr(Tensor, name, f)
        return f.__get__(self)

    # ---- autograd

    @property
    def _version(self) -> int:
        if self._tab_inference and self._tab_inference is not DATA:
            raise RuntimeError("Inference tensors do not track version counter.")
        return self._tab_storage.version

    @property
    def requires_grad(self) -> bool:
        """Whether autograd records what is computed from it."""
        if self._tab_requires_grad and STATE.dualed:
            return _lazy.forward_ad.is_real(self)
        return self._tab_requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise RuntimeError("requires_grad must be a bool")
        if self._tab_computed and self._tab_requires_grad:
            more = (
                ""
                if value
                else (
                    " If you want to use a computed variable in a subgraph that doesn't require differentiation use "
                    "var_no_grad = var.detach()."
                )
            )
            raise RuntimeError(f"you can only change requires_grad flags of leaf variables.{more}")
        if value and not (self._tab_meta.dtype.is_floating_point or self._tab_meta.dtype.is_complex):
            raise RuntimeError("only Tensors of floating point and complex dtype can require gradients")
        self.requires_grad_(value)

    @property
    def _tab_computed(self) -> bool:
        """Whether it has a history, be it one that is to be found anew: not one that writes to its base would only begin."""
        return self._tab_grad_fn is not None or self._tab_stale not in (False, UNRECORDED)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Says whether autograd records what is computed from it. RuntimeError on what is no leaf, or no float."""
        if self._tab_computed:
            if not requires_grad:
                raise RuntimeError(
                    "you can only change requires_grad flags of leaf variables. If you want to use a computed variable "
                    "in a subgraph that doesn't require differentiation use var_no_grad = var.detach()."
                )
            if STATE.dualed:
                _lazy.forward_ad.make_real(self)
            return self
        if requires_grad:
            if STATE.nesting:
                raise RuntimeError(
                    "You are attempting to call Tensor.requires_grad_() (or perhaps using torch.autograd.functional.* APIs) "
                    "inside of a function being transformed by a functorch transform. This is unsupported, please attempt to "
                    "use the functorch transforms (e.g. grad, vjp, jacrev, jacfwd, hessian) or call requires_grad_() outside "
                    "of a function being transformed instead."
                )
            if not (self._tab_meta.dtype.is_floating_point or self._tab_meta.dtype.is_complex):
                raise RuntimeError("only Tensors of floating point dtype can require gradients")
            if self._tab_inference and not STATE.inference:
                raise RuntimeError(
                    "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed."
                )
        self._tab_requires_grad = bool(requires_grad) or self._tab_borrowed
        if requires_grad and self._tab_borrowed:
            self._tab_borrowed = False
        if self._tab_storage.views is not None and self._base is None:
            _lazy.autograd_views.lend(self)
        return self

    def is_inference(self) -> bool:
        """Whether it was made in inference mode: autograd will never record it."""
        return bool(self._tab_inference) and self._tab_inference is not UNVERSIONED

    @property
    def is_leaf(self) -> bool:
        """Whether its gradient goes to `.grad`: it was not computed, or autograd does not record it."""
        if self._tab_stale:
            _lazy.autograd_views.refresh(self)
        return self._tab_grad_fn is None or not self.requires_grad

    @property
    def grad_fn(self) -> GradFn | None:
        """The function that made it, on the tape; None for a leaf."""
        if not self.requires_grad:
            return None
        if self._tab_stale:
            _lazy.autograd_views.refresh(self)
        fn = self._tab_grad_fn
        if fn is None:
            return None
        return fn.fn if fn.is_port else fn

    @property
    def output_nr(self) -> int:
        """Which of the outputs of its `grad_fn` it is."""
        fn = self._tab_grad_fn or self._tab_stale
        return fn.nr if fn and fn is not True and fn is not UNRECORDED and fn.is_port else 0

    @property
    def grad(self) -> Tensor | None:
        """The gradients that `backward()` has added up; None before."""
        g = self._grad
        if g is None and self._tab_grad_fn is not None and self._tab_retained is None:
            import warnings

            warnings.warn(
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't "
                "be populated during autograd.backward(). If you indeed want the .grad field to be populated for a "
                "non-leaf Tensor, use .retain_grad() on the non-leaf Tensor. If you access the non-leaf Tensor by "
                "mistake, make sure you access the leaf Tensor instead. See github.com/pytorch/pytorch/pull/30531 for "
                "more information.",
                stacklevel=2,
            )
        return g

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            _check_grad(self, value)
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self._grad = None

    @property
    def grad_dtype(self) -> Any:
        """The dtype that gradients of this leaf are brought to, its own by default; None: any."""
        return _lazy.autograd_grad_dtype.of(self)

    @grad_dtype.setter
    def grad_dtype(self, value: Any) -> None:
        _lazy.autograd_grad_dtype.change(self, value)

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Adds the gradients of this tensor to `.grad` of the leaves it was computed from. See `torch.autograd.backward`."""
        _lazy.engine.backward(self, gradient, retain_graph, create_graph, inputs=inputs)

    def detach(self) -> Tensor:
        """The same storage, cut from the tape."""
        return Tensor._view_of(self, self._tab_meta)

    def detach_(self) -> Tensor:
        """Cuts this tensor from the tape and makes it a leaf. RuntimeError for a view."""
        if STATE.inference:
            return self
        if self._base is not None:
            raise RuntimeError(
                "Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel (DDP) for "
                "training, and gradient_as_bucket_view is set as True, gradients are views of DDP buckets, and hence "
                "detach_() cannot be called on these gradients. To fix this error, please refer to the "
                "Optimizer.zero_grad() function in torch/optim/optimizer.py as the solution."
            )
        if self._tab_grad_fn is not None:
            _lazy.tape.detached[0] = self._tab_detached = True
        self._tab_grad_fn = None
        self._tab_requires_grad = False
        if self._tab_storage.views is not None:
            _lazy.autograd_views.lend(self)
        return self

    @property
    def data(self) -> Tensor:
        """The same storage, cut from the tape; writes to it are not seen by the version check of autograd."""
        t: Tensor = _new(Tensor)
        t._tab_storage = self._tab_storage.untracked()
        t._tab_meta = self._tab_meta
        if self._tab_inference:
            t._tab_inference = STATE.inference or DATA
        return t

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
        storage = value._tab_storage.untracked()  # the versions of a tensor stay its own
        own = getattr(self, "_tab_storage", None)  # which what is still to be filled has not
        storage.version = 0 if own is None else own.version
        self._tab_storage = storage
        self._tab_meta = value._tab_meta
        if self._tab_inference or value._tab_inference:  # as PyTorch: the kind goes over too
            self._tab_inference = (self._tab_inference or DATA) if value._tab_inference else UNVERSIONED

    @property
    def retains_grad(self) -> bool:
        """Whether `retain_grad()` was called on what is no leaf."""
        return self._tab_retained is not None

    def _is_view(self) -> bool:
        return self._base is not None

    # ---- to Python

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        a = _lazy.to_host.to_numpy(self, False)
        return a if dtype is None else a.astype(dtype, copy=False)

    def __dlpack__(self, *, stream: Any = -1, max_version: Any = None, dl_device: Any = None, copy: Any = None) -> Any:
        """A DLPack capsule with a copy of the elements. BufferError for a tensor that requires grad, or for `copy=False`."""
        return _lazy.to_host.to_dlpack(self, max_version, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Where the capsule's copy lies: in the memory of the host."""
        return 1, 0

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """What a NumPy function gave for a tensor is a tensor again."""
        make: Any = registry.function("from_numpy")
        return make(array)

    def __len__(self) -> int:
        if not self._tab_meta.shape:
            raise TypeError("len() of a 0-d tensor")
        return self._tab_meta.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self._tab_meta.shape:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))

    def __reversed__(self) -> Tensor:
        return self.flip(0) if self._tab_meta.shape else self

    def __contains__(self, element: Any) -> bool:
        if isinstance(element, (Tensor, int, float, complex)):
            equal: Any = self == element
            return bool(equal.any().item())
        raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.")

    def __bool__(self) -> bool:
        n = self._tab_meta.numel
        if n != 1:
            if n == 0:
                raise RuntimeError("Boolean value of Tensor with no values is ambiguous")
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        return bool(self.item())

    def _tab_number(self, kind: str) -> Any:
        """The one element, for Python's conversions."""
        if kind != "int64_t" and self._tab_requires_grad and STATE.enabled():
            _lazy.settings.warn_once(
                "Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior.\n"
                "Consider using tensor.detach() first.",
                4,
            )
        if self._tab_meta.numel != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        x = self.item()
        if isinstance(x, complex) and kind != "complex":
            if x.imag:
                raise RuntimeError(f"value cannot be converted to type {kind} without overflow")
            x = x.real
        return x

    def __int__(self) -> int:
        return int(self._tab_number("int64_t"))

    def __float__(self) -> float:
        return float(self._tab_number("double"))

    def __complex__(self) -> complex:
        return complex(self._tab_number("complex"))

    def __index__(self) -> int:
        if self._tab_meta.dtype.category > 1 or self._tab_meta.numel != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        return _lazy.printing.tensor_repr(self, tensor_contents=tensor_contents)

    def __format__(self, format_spec: str) -> str:
        if self._tab_meta.ndim == 0 and type(self) is Tensor:
            return format(self.item(), format_spec)
        return object.__format__(self, format_spec)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *registry.all_methods()})

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _lazy.to_host.deepcopy(self, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _lazy.to_host.reduce(self)

    # ---- pieces of syntax

    @property
    def T(self) -> Tensor:
        """Its dimensions reversed."""
        if self._tab_meta.ndim != 2 and self._tab_meta.ndim != 0:
            _lazy.settings.warn_once(
                "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated and it will throw "
                "an error in a future release. Consider `x.mT` to transpose batches of matrices or "
                "`x.permute(*torch.arange(x.ndim - 1, -1, -1))` to reverse the dimensions of a tensor."
            )
        return self.permute(tuple(range(self._tab_meta.ndim - 1, -1, -1)))

    @property
    def mT(self) -> Tensor:
        """Its last two dimensions swapped."""
        if self._tab_meta.ndim == 0:
            return self
        if self._tab_meta.ndim < 2:
            raise RuntimeError(
                f"tensor.mT is only supported on matrices or batches of matrices. Got {self._tab_meta.ndim}-D tensor."
            )
        return self.transpose(-2, -1)

    @property
    def H(self) -> Tensor:
        """The conjugate transpose of a matrix."""
        if self._tab_meta.ndim not in (0, 2):
            raise RuntimeError(
                "tensor.H is only supported on matrices (2-D tensors). "
                f"Got {self._tab_meta.ndim}-D tensor."
                + (" For batches of matrices, consider using tensor.mH" if self._tab_meta.ndim > 2 else "")
            )
        if self._tab_meta.ndim == 0:
            return self.conj()
        t = self.transpose(0, 1)
        return t.conj() if self._tab_meta.dtype.is_complex else t

    @property
    def mH(self) -> Tensor:
        """The conjugate transpose of a batch of matrices."""
        if self._tab_meta.ndim == 0:
            return self.conj()
        if self._tab_meta.ndim < 2:
            raise RuntimeError(
                f"tensor.mH is only supported on matrices or batches of matrices. Got {self._tab_meta.ndim}-D tensor."
            )
        t = self.transpose(-2, -1)
        return t.conj() if self._tab_meta.dtype.is_complex else t

    @property
    def real(self) -> Tensor:
        """The real parts, as a view."""
        if not self._tab_meta.dtype.is_complex:
            return self
        return _lazy.core_views.pairs(self, 0).select(-1, 0)

    @real.setter
    def real(self, value: Any) -> None:
        self.real.copy_(value)

    @property
    def imag(self) -> Tensor:
        """The imaginary parts, as a view. RuntimeError for a tensor that is not complex."""
        if not self._tab_meta.dtype.is_complex:
            raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
        return _lazy.core_views.pairs(self, 1).select(-1, 1)

    @imag.setter
    def imag(self, value: Any) -> None:
        self.imag.copy_(value)

    def __getitem__(self, index: Any) -> Tensor:
        Tensor.__getitem__ = _lazy.indexing.getitem  # type: ignore[method-assign]
        return _lazy.indexing.getitem(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        Tensor.__setitem__ = _lazy.indexing.setitem  # type: ignore[method-assign]
        _lazy.indexing.setitem(self, index, value)

    def __delitem__(self, index: Any) -> None:
        raise TypeError("Tensor does not support deleting items")


Tensor.__module__ = "torch"  # what `type(x)` prints


def _check_grad(t: Tensor, g: Any) -> None:
    """What PyTorch asks of a value given to `.grad`."""
    if not isinstance(g, Tensor):
        raise TypeError(f"assigned grad expected to be a Tensor or None but got grad of type {type(g).__name__}")
    if g is t:
        raise RuntimeError("can't assign Variable as its own grad")
    wanted = t._tab_meta.dtype if t._tab_grad_dtype is False else t._tab_grad_dtype
    if wanted is not None and g._tab_meta.dtype is not wanted:
        raise RuntimeError(
            f"attempting to assign a gradient with dtype '{dtypes.CXX_NAMES[g._tab_meta.dtype.name]}' to a tensor with grad_dtype "
            f"'{dtypes.TYPE_NAMES[wanted.name]}'. The gradient must match the tensor's grad_dtype (defaults to the "
            "tensor's dtype). You can set the tensor's grad_dtype attribute with a specific dtype, or None to allow any dtype. "
            "Set grad_dtype with caution. Diverging the dtypes of a tensor and its gradient may break downstream systems that "
            "assume they match."
        )
    if g._tab_meta.device.number != t._tab_meta.device.number:
        raise RuntimeError(
            f"attempting to assign a gradient with device type '{g.device.type}' to a tensor with device type "
            f"'{t.device.type}'. Please ensure that the gradient and the tensor are on the same device"
        )
    if g._tab_meta.shape != t._tab_meta.shape:
        raise RuntimeError(
            f"attempting to assign a gradient of size '{list(g.shape)}' to a tensor of size '{list(t.shape)}'. "
            "Please ensure that the gradient and the tensor are the same size"
        )
