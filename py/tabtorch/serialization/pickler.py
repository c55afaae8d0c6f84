"""Pickles that real PyTorch can read: what is tabtorch's is written under the name that PyTorch has for it."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from types import MethodType
from typing import Any

from tabtorch import _utils
from tabtorch.base import dtypes
from tabtorch.base.device import device as Device
from tabtorch.core.layout import layout as Layout
from tabtorch.core.layout import strided
from tabtorch.core.storage import Storage
from tabtorch.core.tensor import Tensor
from tabtorch.engine.view import CONJ, NEG
from tabtorch.nn.parameter import Parameter, is_lazy
from tabtorch.storage import TypedStorage, UntypedStorage

#: modules whose files PyTorch has cut otherwise -> where PyTorch has their classes
MOVED = {
    "tabtorch.engine.view": "torch",
    "tabtorch.core.tensor": "torch",
    "tabtorch.base.dtypes": "torch",
    "tabtorch.base.device": "torch",
    "tabtorch.nn.modules.attention": "torch.nn",
    "tabtorch.nn.modules.parameters": "torch.nn",
    "tabtorch.nn.modules.reshape": "torch.nn",
}
#: the same for single names, by how they begin
_ALSO = {
    "InstanceNorm": "torch.nn",
    "LazyInstanceNorm": "torch.nn",
    "LinearCrossEntropy": "torch.nn",
    "_rebuild_from_type_v2": "torch._tensor",
}

#: types that are pickled as they are
_PLAIN = {str, int, float, bool, bytes, tuple, list, dict, type(None), complex, OrderedDict}


class Name:
    """A global of PyTorch's that there is no object for here."""

    def __init__(self, module: str, name: str) -> None:
        self.pair = module, name


def public(obj: Any, name: str | None) -> tuple[str, str] | None:
    """(module, name) under which PyTorch has an object of tabtorch; None for what is not tabtorch's."""
    if isinstance(obj, Name):
        return obj.pair
    if isinstance(obj, dtypes.dtype):
        return "torch", obj.name
    if isinstance(obj, MethodType) and not isinstance(obj.__self__, type):
        return None  # a method of an object, as hooks often are: it goes with its object
    module = getattr(obj, "__module__", None)
    name = name or getattr(obj, "__qualname__", None)
    if not isinstance(module, str) or name is None:
        return None
    if module == "torch" or module.startswith("torch."):
        # a class that says it is PyTorch's, so that messages show it so
        top = sys.modules["tabtorch"]
        return (module, name) if getattr(top, name, obj) is obj else None
    if module != "tabtorch" and not module.startswith("tabtorch."):
        return None
    for beginning, place in _ALSO.items():
        if name.startswith(beginning):
            return place, name
    return MOVED.get(module, module.removeprefix("tab")), name


def _attributes(t: Tensor) -> dict[str, Any]:
    """What a script, or a buffer, has put on a tensor."""
    return dict(t.__dict__)


def reduced(t: Tensor) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """How a tensor is made again."""
    if is_lazy(t):
        return type(t), (t.requires_grad,)
    if t.layout is not strided and not isinstance(t, Parameter):
        return _utils._rebuild_sparse_tensor, t.__reduce_ex__(2)[1]
    if hasattr(t, "packed_nbytes"):  # not of a type that a program without such weights has loaded
        rebuilt: Any = t.__reduce_ex__(2)
        return rebuilt
    state = _attributes(t)
    if isinstance(t, Parameter) and type(t) is Parameter:
        parts: tuple[Any, ...] = (t.data, t._tab_requires_grad, OrderedDict())
        if state:
            return _utils._rebuild_parameter_with_state, (*parts, state)
        return _utils._rebuild_parameter, parts
    if t._backward_hooks:
        import warnings

        for hook in t._backward_hooks.values():
            warnings.warn(
                f"backward hook {hook!r} on tensor will not be serialized.  If this is expected, you can decorate the "
                "function with @torch.utils.hooks.unserializable_hook to suppress this warning",
                stacklevel=2,
            )
    m = t._tab_meta
    if m.device.type == "meta":
        return _utils._rebuild_meta_tensor_no_storage, (m.dtype, tuple(m.shape), tuple(m.strides), t.requires_grad)
    args: tuple[Any, ...] = (
        t._typed_storage(),
        m.offset,
        tuple(m.shape),
        tuple(m.strides),
        t.requires_grad,
        OrderedDict(),
    )
    if m.mark:
        args = (*args, {name: True for name, mark in (("conj", CONJ), ("neg", NEG)) if m.mark & mark})
    if type(t) is Tensor and not state:
        return _utils._rebuild_tensor_v2, args
    return _utils._rebuild_from_type_v2, (_utils._rebuild_tensor_v2, type(t), args, state)


class Storages:
    """The storages that a pickle refers to, by key, each with the type of its first use."""

    def __init__(self, key: Callable[[Storage, int], str] = lambda storage, n: str(n)) -> None:
        self.key = key
        self.found: dict[int, tuple[str, Storage, Any]] = {}
        self.types: dict[str, Name] = {}

    def identify(self, obj: TypedStorage | UntypedStorage) -> tuple[Any, ...]:
        """The persistent id. RuntimeError where the same memory was saved as another type."""
        storage, typed = obj._tab_storage, isinstance(obj, TypedStorage)
        dtype = obj.dtype if isinstance(obj, TypedStorage) else dtypes.uint8
        known = self.found.get(id(storage))
        if known is None:
            known = self.found[id(storage)] = (self.key(storage, len(self.found)), storage, dtype)
        elif known[2] is not dtype and storage.nbytes:
            raise RuntimeError("Cannot save multiple tensors or storages that view the same data as different types")
        kind = dtypes.TYPE_NAMES[dtype.name] + "Storage" if typed else "UntypedStorage"
        name = self.types.get(kind)
        if name is None:
            name = self.types[kind] = Name("torch" if typed else "torch.storage", kind)
        # "cpu": every PyTorch can read it, and here it means the default device
        return "storage", name, known[0], "cpu", storage.nbytes // dtype.itemsize

    def __iter__(self) -> Any:
        return iter(self.found.values())


def pickler(module: Any, file: Any, protocol: int, storages: Storages, more: tuple[Any, ...] = ()) -> Any:
    """A pickler of `module` (that has to be one in Python, as `pickle` has) which writes storages as persistent ids."""
    base: Any = getattr(module, "_Pickler", None) or module.Pickler

    class TabtorchPickler(base):
        def persistent_id(self, obj: Any) -> Any:
            if isinstance(obj, (TypedStorage, UntypedStorage)):
                return storages.identify(obj) + more
            return None

        def reducer_override(self, obj: Any) -> Any:
            if type(obj) in _PLAIN:
                return NotImplemented
            if isinstance(obj, Tensor):
                return reduced(obj)
            if isinstance(obj, Device):
                # PyTorch knows no webgpu; where it has a GPU, that is CUDA's
                return Device, (str(obj).replace("webgpu", "cuda"),)
            if isinstance(obj, Layout):
                return Name("torch.serialization", "_get_layout"), (repr(obj),)
            if isinstance(obj, (type, Name)) or hasattr(obj, "__qualname__"):
                pair = public(obj, None)
                return NotImplemented if pair is None else pair[1]
            return NotImplemented

        def save_reduce(self, func: Any, args: Any, *rest: Any, **kw: Any) -> None:
            if isinstance(func, Name):  # `pickle` wants something that can be called
                self.save(func)
                self.save(args)
                self.write(b"R")
                if kw.get("obj") is not None:
                    self.memoize(kw["obj"])
                return
            super().save_reduce(func, args, *rest, **kw)

        def save_global(self, obj: Any, name: str | None = None) -> None:
            pair = public(obj, name)
            if pair is None:
                super().save_global(obj, name)
                return
            if self.proto >= 4:
                for part in pair:
                    self.save(part)
                self.write(b"\x93")
            else:
                self.write(f"c{pair[0]}\n{pair[1]}\n".encode())
            self.memoize(obj)

    return TabtorchPickler(file, protocol=protocol)
