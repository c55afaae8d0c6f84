"""`torch.storage`: the memory behind a tensor as scripts see it, in bytes or as numbers of one type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tabtorch import _lazy
from tabtorch.base.dtypes import PUBLIC, TYPE_NAMES, uint8
from tabtorch.core.storage import Storage
from tabtorch.engine.view import contiguous_meta


class _Memory:
    """What both kinds of storage are to scripts: the memory behind a tensor."""

    __module__ = "torch.storage"
    is_sparse = False
    _tab_storage: Any

    def _with(self, storage: Storage) -> Any:
        """The same view of another memory."""
        raise NotImplementedError

    @property
    def device(self) -> Any:
        return self._tab_storage.node.inst.out.device.public

    @property
    def is_cuda(self) -> bool:
        return self.whole().is_cuda

    def whole(self) -> _lazy.tensor.Tensor:
        """All of it as a tensor of one dimension, of the type in which it is kept."""
        m = self._tab_storage.node.inst.out
        t: _lazy.tensor.Tensor = object.__new__(_lazy.tensor.Tensor)
        t._tab_storage = self._tab_storage
        t._tab_meta = contiguous_meta((m.numel,), m.dtype, m.device)
        return t

    def _numbers(self) -> _lazy.tensor.Tensor:
        """Its elements, for writing: autograd, as in PyTorch, is not told."""
        whole = self.whole()
        whole._tab_storage = whole._tab_storage.untracked()
        dtype = getattr(self, "dtype", uint8)
        return whole if whole.dtype is dtype else whole.view(dtype)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._numbers()[index] = value

    def fill_(self, value: Any) -> Any:
        """Sets every element."""
        self._numbers().fill_(value)
        return self

    def _bytes(self) -> bytes:
        return _lazy.engine_graph.read(self._tab_storage.node, 0, self._tab_storage.nbytes)

    def nbytes(self) -> int:
        n: int = self._tab_storage.nbytes
        return n

    def data_ptr(self) -> int:
        """A number that says which memory it is; 0 for none."""
        return self._cdata if self._tab_storage.nbytes else 0

    @property
    def _cdata(self) -> int:
        address: int = self._tab_storage.address
        return address

    def to(self, *, device: Any, non_blocking: bool = False) -> Any:
        """A copy on another device; itself if it is there."""
        moved = self.whole().to(device)
        return self if moved._tab_storage is self._tab_storage else self._with(moved._tab_storage)

    def cpu(self) -> Any:
        return self.to(device="cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> Any:
        return self.to(device="cuda" if device is None else device)

    def clone(self) -> Any:
        """A copy. Values never change, so it costs nothing until one of them is written to."""
        return self._with(Storage(self._tab_storage.node))

    __copy__ = clone

    def is_shared(self) -> bool:
        return False

    is_pinned = is_shared

    def share_memory_(self) -> Any:
        """Itself: there is one process."""
        return self

    pin_memory = share_memory_

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._tab_storage is other._tab_storage

    def __hash__(self) -> int:
        return hash(self._cdata)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        key = id(self._tab_storage)  # as tensors have it, which share it
        if key not in memo:
            memo[key] = Storage(self._tab_storage.node)
        return self._with(memo[key])

    def tolist(self) -> list[Any]:
        """The numbers. Waits for the device."""
        return list(self._bytes())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __len__(self) -> int:
        return self.nbytes()

    def size(self) -> int:
        return len(self)

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes()

    def _shown(self, kind: str) -> str:
        values = "".join(f" {v}\n" for v in self.tolist()[:1000])
        return f"{values}[torch.storage.{kind}device={self.device}) of size {len(self)}]"


class UntypedStorage(_Memory):
    """The memory behind a tensor, in bytes: `tensor.untyped_storage()`. `UntypedStorage(n)`: n bytes of zeros.

    Two of them are equal if they are the same memory, as their `data_ptr()` are.
    """

    def __new__(cls, size: Any = 0, *, device: Any = None) -> UntypedStorage:
        made = (
            _lazy.creation.zeros(size, dtype=uint8, device=device)
            if isinstance(size, int)
            else _lazy.from_host.tensor(list(size), dtype=uint8, device=device)
        )
        return made.untyped_storage()

    @classmethod
    def of(cls, storage: Storage) -> UntypedStorage:
        """The view that scripts have of a `Storage`."""
        found = object.__new__(cls)
        found._tab_storage = storage.root
        return found

    def _with(self, storage: Storage) -> UntypedStorage:
        return UntypedStorage.of(storage)

    def element_size(self) -> int:
        return 1

    def untyped(self) -> UntypedStorage:
        return self

    def __getitem__(self, index: Any) -> Any:
        part = self._bytes()[index]
        return UntypedStorage(part, device=self.device) if isinstance(index, slice) else part

    def __reduce__(self) -> Any:
        return _filled, (self._bytes(), uint8, str(self.device), True)

    def __repr__(self) -> str:
        return self._shown("UntypedStorage(")


class TypedStorage(_Memory):
    """A storage seen as numbers of one type: what `tensor.storage()` gives, and old checkpoints hold."""

    def __init__(
        self, *args: Any, device: Any = None, dtype: Any = None, wrap_storage: Any = None, _internal: bool = False
    ) -> None:
        if wrap_storage is None:
            dtype = _lazy.dtypes.get_default_dtype() if dtype is None else dtype
            wrap_storage = _new_memory(args, dtype, device)
        elif args or device is not None or not isinstance(wrap_storage, UntypedStorage):
            raise _wrong_storage(RuntimeError if args or device is not None else TypeError)
        elif not isinstance(dtype, _lazy.dtypes.dtype):
            raise _wrong_storage(RuntimeError if dtype is None else TypeError)
        self._untyped_storage = wrap_storage
        self._tab_storage = wrap_storage._tab_storage
        self.dtype = dtype

    def _with(self, storage: Storage) -> TypedStorage:
        return TypedStorage(wrap_storage=UntypedStorage.of(storage), dtype=self.dtype)

    def untyped(self) -> UntypedStorage:
        return self._untyped_storage

    def element_size(self) -> int:
        size: int = self.dtype.itemsize
        return size

    def __len__(self) -> int:
        return self.nbytes() // self.element_size()

    def tolist(self) -> list[Any]:
        """The numbers. Waits for the device."""
        whole = self.whole()
        values: list[Any] = (whole if whole.dtype is self.dtype else whole.view(self.dtype)).tolist()
        return values

    def __getitem__(self, index: Any) -> Any:
        return self.tolist()[index]

    def __reduce__(self) -> Any:
        return _filled, (self._bytes(), self.dtype, str(self.device))

    def __repr__(self) -> str:
        return self._shown(f"TypedStorage(dtype={self.dtype}, ")


def _new_memory(args: tuple[Any, ...], dtype: Any, device: Any) -> UntypedStorage:
    """For `TypedStorage()`, `TypedStorage(size)` and `TypedStorage(numbers)`."""
    first_warning()
    if len(args) > 1:
        raise _wrong_storage(RuntimeError)
    first = args[0] if args else 0
    if isinstance(first, int):
        return _lazy.creation.zeros(first, dtype=dtype, device=device).untyped_storage()
    if not isinstance(first, (list, tuple)):
        raise _wrong_storage(TypeError)
    return _lazy.from_host.tensor(first, dtype=dtype, device=device).untyped_storage()


def _wrong_storage(kind: Any) -> Exception:
    error: Exception = kind(
        "TypedStorage.__init__ received an invalid combination of arguments. Expected one of:\n"
        " * (*, torch.device device, torch.dtype dtype)\n * (int size, *, torch.device device, torch.dtype dtype)\n"
        " * (Sequence data, *, torch.device device, torch.dtype dtype)\n * (*, UntypedStorage wrap_storage, torch.dtype dtype)"
    )
    return error


def _filled(data: bytes, dtype: Any, device: str, untyped: bool = False) -> Any:
    """Unpickles a storage. One from a device that is not there goes to the default one."""
    try:
        where = _lazy.device.resolve(device)
    except RuntimeError:
        where = _lazy.device.resolve(None)
    m = contiguous_meta((len(data) // dtype.itemsize,), dtype, where)
    made = UntypedStorage.of(Storage(_lazy.engine_graph.from_host(data, m)))
    return made if untyped else TypedStorage(wrap_storage=made, dtype=dtype)


def _load_from_bytes(b: bytes) -> Any:
    """What the pickle of a single storage calls."""
    import io

    return _lazy.serialization.load(io.BytesIO(b), weights_only=False)


class StorageType:
    """The type of a storage as a checkpoint names it, `torch.FloatStorage`."""

    #: name without "Storage" -> dtype
    NAMES = {v: k for k, v in TYPE_NAMES.items()} | dict.fromkeys(
        "QInt8 QUInt8 QInt32 QUInt4x2 QUInt2x4 ComplexHalf".split()
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self._dtype = StorageType.NAMES[name.removesuffix("Storage")]

    @property
    def dtype(self) -> Any:
        """TypeError for a type that tabtorch does not have."""
        if self._dtype is None:
            kind = self.name.removesuffix("Storage").lower()
            raise _lazy._utils.missing_dtype({"complexhalf": "complex32"}.get(kind, kind))
        return PUBLIC[self._dtype]

    def __str__(self) -> str:
        return f"StorageType(dtype={self.dtype})"


def first_warning() -> None:
    """PyTorch's word about `tensor.storage()`, once."""
    import warnings

    if not _warned:
        _warned.append(True)
        warnings.warn(
            "TypedStorage is deprecated. It will be removed in the future and UntypedStorage will be the only storage "
            "class. This should only matter to you if you are using storages directly.  To access UntypedStorage "
            "directly, use tensor.untyped_storage() instead of tensor.storage()",
            UserWarning,
            stacklevel=3,
        )


_warned: list[bool] = []
