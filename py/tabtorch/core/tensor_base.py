"""What a tensor is before anything is computed of it: a storage seen through a Meta, and what a script has put on it.

Whatever is asked here is answered at once: no node is made, and autograd sees none of it. `Tensor` adds the rest.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Self

from tabtorch import _lazy
from tabtorch.base import dtypes
from tabtorch.base.thread_state import STATE
from tabtorch.core.shapes import wrap_dim
from tabtorch.core.storage import Storage
from tabtorch.engine.graph import share_queue
from tabtorch.engine.view import CONJ, NEG, Meta, Size

_devices: Any = importlib.import_module("tabtorch.base.device")  # by its name: the package's `device` is the class
share_queue(_devices.implicit_cpu, _devices.cpu)
share_queue(_devices.implicit_webgpu, _devices.webgpu)
share_queue(_devices.cuda, _devices.webgpu)


class TensorBase:
    """The properties of a tensor: size and strides, type, device, memory. What it consists of is in the instance's own dict."""

    _tab_storage: Storage
    _tab_meta: Meta

    @property
    def shape(self) -> Size:
        """Its size along each dimension."""
        return self._tab_meta.shape

    @shape.setter
    def shape(self, value: Any) -> None:
        raise AttributeError("attribute 'shape' of 'torch._C.TensorBase' objects is not writable")

    @property
    def dtype(self) -> dtypes.dtype:
        """The type of its elements."""
        return self._tab_meta.dtype

    @property
    def device(self) -> Any:
        """Where it lies."""
        return self._tab_meta.device.public

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return self._tab_meta.ndim

    @property
    def layout(self) -> Any:
        """`torch.strided`, always."""
        return _lazy.layout.strided

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size along one dimension. IndexError for a dimension out of range."""
        if dim is None:
            return self._tab_meta.shape
        return self._tab_meta.shape[wrap_dim(dim, self._tab_meta.ndim)]

    def stride(self, dim: int | None = None) -> Any:
        """The strides in elements, or that of one dimension."""
        if dim is None:
            return self._tab_meta.strides
        return self._tab_meta.strides[wrap_dim(dim, self._tab_meta.ndim)]

    def dim(self) -> int:
        """How many dimensions it has."""
        return self._tab_meta.ndim

    ndimension = dim

    def numel(self) -> int:
        """How many elements it has."""
        return self._tab_meta.numel

    nelement = numel

    def storage_offset(self) -> int:
        """Where in its storage it begins, in elements."""
        if STATE.held is not None:
            STATE.held.asked = True
        return self._tab_meta.offset

    def element_size(self) -> int:
        """Bytes of an element."""
        return self._tab_meta.dtype.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self._tab_meta.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all its elements."""
        return self._tab_meta.numel * self._tab_meta.dtype.itemsize

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether the strides are those of a new tensor of this shape in `memory_format` (default: row-major)."""
        return (
            self._tab_meta.contiguous
            if memory_format is None
            else _lazy.layout.is_contiguous(self._tab_meta, memory_format)
        )

    def is_floating_point(self) -> bool:
        return self._tab_meta.dtype.is_floating_point

    def is_complex(self) -> bool:
        return self._tab_meta.dtype.is_complex

    def is_signed(self) -> bool:
        return self._tab_meta.dtype.is_signed

    def is_conj(self) -> bool:
        """Whether it shows the conjugates of what its storage holds."""
        return bool(self._tab_meta.mark & CONJ)

    def is_neg(self) -> bool:
        """Whether it shows the negatives of what its storage holds."""
        return bool(self._tab_meta.mark & NEG)

    def is_same_size(self, other: TensorBase) -> bool:
        return self._tab_meta.shape == other._tab_meta.shape

    def is_set_to(self, tensor: TensorBase) -> bool:
        """Whether both are the same view of the same storage."""
        return self._tab_storage.root is tensor._tab_storage.root and self._tab_meta is tensor._tab_meta

    def is_pinned(self, device: Any = None) -> bool:
        return getattr(self, "_tab_pinned", False)

    def is_shared(self) -> bool:
        return False

    def pin_memory(self, device: Any = None) -> Self:
        """Itself: uploads need no pinned memory here."""
        self._tab_pinned = True
        return self

    def record_stream(self, stream: Any) -> None:
        """Nothing to do: there is one stream, in whose order memory is freed."""

    def share_memory_(self) -> Self:
        """Itself: there is one process."""
        return self

    @property
    def is_cpu(self) -> bool:
        return self._tab_meta.device.type == "cpu"

    @property
    def is_meta(self) -> bool:
        """Whether it has no values."""
        return self._tab_meta.device.type == "meta"

    @property
    def is_cuda(self) -> bool:
        """Whether scripts that ask for CUDA should take it for a CUDA tensor: after `install()`, on webgpu."""
        return self._tab_meta.device.type == "webgpu" and _devices._cuda_alias

    is_sparse = is_sparse_csr = is_quantized = is_mkldnn = is_nested = is_mps = is_xpu = is_xla = False

    def get_device(self) -> int:
        """0 on webgpu, -1 on cpu."""
        return -1 if self._tab_meta.device.type == "cpu" else 0

    def data_ptr(self) -> int:
        """A number that says where the first element lies: equal for equal places, apart for different storages."""
        if STATE.held is not None:
            STATE.held.asked = True
        return self._tab_storage.root.address + self._tab_meta.offset * self._tab_meta.dtype.itemsize

    @property
    def _cdata(self) -> int:
        """A number that tells tensors apart: no two have the same at one time."""
        return id(self)

    def untyped_storage(self) -> _lazy.storage.UntypedStorage:
        """The memory that the tensor and its views share."""
        return _lazy.storage.UntypedStorage.of(self._tab_storage)

    def storage(self) -> _lazy.storage.TypedStorage:
        """The memory as numbers of this type. Deprecated: use `untyped_storage`."""
        _lazy.storage.first_warning()
        return self._typed_storage()

    def _typed_storage(self) -> _lazy.storage.TypedStorage:
        return _lazy.storage.TypedStorage(wrap_storage=self.untyped_storage(), dtype=self._tab_meta.dtype)


#: (tensor) -> its own dict, of which `Tensor.__dict__` shows a part
inside: Callable[[Any], dict[str, Any]] = TensorBase.__dict__["__dict__"].__get__
#: the names in it that have no default in the class
INSIDE = ("_tab_storage", "_tab_meta", "_tab_accumulator")


class Attributes(dict[str, Any]):
    """`tensor.__dict__`: what a script has put on a tensor. Writes go to the tensor.

    own: the dict of the instance. tensor: that of the class, whose names in it are the tensor's state.
    """

    __slots__ = ("_own",)

    def __init__(self, own: dict[str, Any], tensor: Mapping[str, Any]) -> None:
        super().__init__((k, v) for k, v in own.items() if k not in INSIDE and k not in tensor)
        self._own = own

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        self._own[name] = value

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        del self._own[name]

    def update(self, *args: Any, **kwargs: Any) -> None:
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def pop(self, name: str, *default: Any) -> Any:
        if name in self:
            del self._own[name]
        return super().pop(name, *default)

    def clear(self) -> None:
        for name in list(self):
            del self[name]

    def __reduce__(self) -> Any:
        return dict, (dict(self),)
