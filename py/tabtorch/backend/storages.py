"""PyTorch's storages of the device: copies, files, and what would look at memory that is not there.

PyTorch asks a device's allocator for the memory of a storage that is made by itself, and no allocator can be written in Python.
The methods of `UntypedStorage` that would are replaced, for storages of this device; for others they are what they were.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.storage import UntypedStorage

from tabtorch import _lazy
from tabtorch.backend.tensors import DEVICE, NAME, check_index, place, storage_over, upload
from tabtorch.core.storage import Storage


def of_bytes(t: torch.Tensor) -> Any:
    """A storage of the device with the values of a CPU tensor of bytes. It has no type until a tensor is made of it."""
    made = storage_over(upload(t)._tab_storage)
    made._bytes = True
    return made


def _zeros(nbytes: int) -> Any:
    made = storage_over(_lazy.creation.zeros((nbytes,), dtype=_lazy.dtypes.uint8, device=place())._tab_storage)
    made._bytes = True
    return made


def _bytes_of(storage: Any) -> torch.Tensor:
    """The bytes of a CPU storage, as a tensor over it."""
    return torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage)


def _is_ours(device: Any) -> bool:
    if device is None or torch.device(device).type != NAME:
        return False
    check_index(torch.device(device).index)
    return True


def _clone(self: Any) -> Any:
    made = storage_over(Storage(self._tabtorch.node))
    made._bytes = getattr(self, "_bytes", False)
    return made


def _refused(why: str) -> Any:
    def refuse(self: Any, *args: Any, **kw: Any) -> Any:
        raise NotImplementedError(why)

    return refuse


def _for_ours(name: str, ours: Any) -> None:
    """`UntypedStorage.name` is `ours` for storages of the device."""
    theirs = getattr(UntypedStorage, name)

    @functools.wraps(theirs)
    def method(self: Any, *args: Any, **kw: Any) -> Any:
        return (ours if self.device.type == NAME else theirs)(self, *args, **kw)

    setattr(UntypedStorage, name, method)


def _new(cls: Any, *args: Any, device: Any = None, **kw: Any) -> Any:
    if not _is_ours(device):
        return _theirs(cls, *args, **kw) if device is None else _theirs(cls, *args, device=device, **kw)
    if len(args) == 1 and not isinstance(args[0], int):
        return of_bytes(torch.tensor(list(args[0]), dtype=torch.uint8, device="cpu"))
    return _zeros(args[0] if args else 0)


_theirs = UntypedStorage.__new__


def _restore(storage: Any, location: str) -> Any:
    """For `torch.load`: a storage that was saved on the device, or is to go there."""
    if not _is_ours(location if location.partition(":")[0] == NAME else None):
        return None
    return of_bytes(_bytes_of(storage))


def _getitem(self: Any, index: Any) -> Any:
    return self.cpu()[index]


def _set_from_file(self: Any, *args: Any) -> Any:
    host = UntypedStorage(self.nbytes())
    host._set_from_file(*args)
    self._tabtorch.node = upload(_bytes_of(host))._tab_storage.node
    self._bytes = True
    return self


def register() -> None:
    """Replaces those methods, and tells `torch.load` of the device."""
    assert DEVICE.type == NAME
    UntypedStorage.__new__ = staticmethod(_new)
    _for_ours("clone", _clone)
    _for_ours("__getitem__", _getitem)
    _for_ours("tolist", lambda self: self.cpu().tolist())
    _for_ours(
        "to", lambda self, *, device, non_blocking=False: self if _is_ours(device) else self.cpu().to(device=device)
    )
    _for_ours("_write_file", lambda self, *args: self.cpu()._write_file(*args))
    _for_ours("_set_from_file", _set_from_file)
    _for_ours("share_memory_", lambda self: self)  # as on CUDA
    for name in ("resize_", "fill_", "__setitem__", "byteswap"):
        _for_ours(name, _refused(f"UntypedStorage.{name} is not there for storages on {NAME}: use a tensor over it"))
    for name in ("_share_fd_cpu_", "_share_filename_cpu_"):  # Windows has one of them
        if hasattr(UntypedStorage, name):
            _for_ours(name, _refused(f"a tensor on {NAME} cannot be sent to another process: send x.cpu()"))
    torch.serialization.register_package(15, lambda storage: None, _restore)
