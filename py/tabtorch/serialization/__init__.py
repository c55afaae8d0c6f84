"""`torch.save` and `torch.load`: PyTorch's own files, both ways.

What a script does not say is where PyTorch's files and this package differ: tensors saved here say "cpu" as their place, so
that every PyTorch can read them, and tensors whose place is "cpu" go to the default device when they are loaded, unless
`map_location` names another. Files are read in pieces that go straight into the device's memory.
"""

from __future__ import annotations

import io
import os
import pickle
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any
from zlib import crc32

from tabtorch import _lazy
from tabtorch import _weights_only_unpickler as _restricted
from tabtorch.base import dtypes
from tabtorch.base.device import cpu, implicit_cpu, meta
from tabtorch.base.device import device as Device
from tabtorch.core.creation import empty, placed
from tabtorch.core.storage import Storage
from tabtorch.serialization import zip_archive
from tabtorch.serialization.pickler import Storages, pickler
from tabtorch.serialization.transfer import Span, pour, read_back, reserve
from tabtorch.storage import StorageType, TypedStorage, UntypedStorage
from tabtorch.utils.fetch import PIECE, Reader, Work, drive, drive_async, open_reader

__all__ = [
    "add_safe_globals",
    "clear_safe_globals",
    "default_restore_location",
    "get_safe_globals",
    "get_unsafe_globals_in_checkpoint",
    "load",
    "location_tag",
    "safe_globals",
    "save",
]

DEFAULT_PROTOCOL = 2
#: of the format, that PyTorch reads
_LAST_VERSION = 10

#: what `map_location` may be
MAP_LOCATION = Callable[[Any, str], Any] | Device | str | dict[str, str] | None

UNSAFE_MESSAGE = (
    "In PyTorch 2.6, we changed the default value of the `weights_only` argument in `torch.load` "
    "from `False` to `True`. Re-running `torch.load` with `weights_only` set to `False` will likely succeed, "
    "but it can result in arbitrary code execution. Do it only if you got the file from a "
    "trusted source."
)

# ---- what is safe to load


def add_safe_globals(safe_globals: Iterable[Any]) -> None:
    """Classes and functions that `weights_only` may use too: themselves, or `(object, "its.name.in.the.file")`."""
    _restricted.add(safe_globals)


def get_safe_globals() -> list[Any]:
    """What `add_safe_globals` was given."""
    return _restricted.safe()


def clear_safe_globals() -> None:
    """Forgets what `add_safe_globals` was given."""
    _restricted.clear()


class safe_globals:
    """`with safe_globals([…]):` what `add_safe_globals` does, for a while."""

    def __init__(self, safe_globals: Iterable[Any]) -> None:
        self.safe_globals = list(safe_globals)

    def __enter__(self) -> None:
        _restricted.add(self.safe_globals)

    def __exit__(self, *exc: Any) -> None:
        _restricted.remove(self.safe_globals)


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The names in a file that `weights_only` would refuse. Nothing of the file is run. ValueError for other files."""
    with open_reader(f, random=True) as reader:
        if not zip_archive.is_zip(reader.read(0, 4)):
            raise ValueError("Expected input to be a checkpoint returned by torch.save")
        reader.whole()
        records = drive(zip_archive.directory(known_size(reader)), reader)
        if "constants.pkl" in records.names:
            raise ValueError(
                "Expected input to be a checkpoint returned by torch.save but got a torchscript checkpoint"
            )
        data = drive(zip_archive.whole("data.pkl", _record(records, "data.pkl")), reader)
    return list(_restricted.names_in(data) - set(_restricted.allowed()) - set(_restricted.of_user()))


# ---- saving


def save(
    obj: object,
    f: Any,
    pickle_module: Any = pickle,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """Writes `obj` and the tensors in it to a file, as PyTorch does; tensors that share memory share it again when loaded.

    f: a path, or an object with `write`. Waits for the device, once for many tensors. What cannot be pickled is Python's
    error, and then nothing is written. RuntimeError for a folder that is not there, and for one storage saved as two types.
    """
    path = isinstance(f, (str, os.PathLike))
    if not path and not hasattr(f, "write"):
        raise AttributeError("expected 'f' to be string, path, or a file-like object with a 'write' attribute")
    parent = os.path.dirname(os.fspath(f)) if path else ""
    if parent and not os.path.isdir(parent):
        raise RuntimeError(f"Parent directory {parent} does not exist.")
    form = _zip_parts if _use_new_zipfile_serialization else _lazy.legacy_format.parts
    folder = os.path.splitext(os.path.basename(os.fspath(f)))[0] if path else "archive"
    write_to = form(obj, folder, pickle_module, pickle_protocol, not _disable_byteorder_record)
    if not path:
        write_to(f.write)
        if hasattr(f, "flush"):
            f.flush()
        return
    with open(f, "wb") as file:
        write_to(file.write)


Write = Callable[[Any], Any]


def _zip_parts(obj: object, folder: str, module: Any, protocol: int, byteorder: bool) -> Callable[[Write], None]:
    storages = Storages()
    data = io.BytesIO()
    pickler(module, data, protocol, storages).dump(obj)

    def write_to(write: Write) -> None:
        archive = zip_archive.Writer(write, folder or "archive")
        archive.record("data.pkl", data.getvalue())
        archive.record(".format_version", b"1")
        archive.record(".storage_alignment", b"%d" % zip_archive.ALIGNMENT)
        if byteorder:
            archive.record("byteorder", sys.byteorder.encode())
        for (key, *_), values in zip(storages, read_back((s.node, 0, s.nbytes) for _, s, _ in storages)):
            archive.record(f"data/{key}", values)
        archive.record("version", b"3\n")
        names = crc32("".join(key for key, *_ in storages).encode())
        archive.record(".data/serialization_id", b"%020d%020d" % (names, crc32(archive.table)))
        archive.close()

    return write_to


# ---- where a storage goes


def location_tag(storage: Any) -> str:
    """What a file says of where a storage was: always "cpu", which every PyTorch can read."""
    return "cpu"


def _target(location: str, named: bool, dtype: Any) -> Any:
    """The device that a location means. `named`: by the script, so that "cpu" is the cpu. RuntimeError for no such place."""
    if location == "cpu":
        return cpu if named else placed(dtype, None)
    if location == "meta":
        return meta
    found = re.fullmatch(r"(cuda|webgpu)(?::?(\d+))?", location)
    if found is None:
        raise RuntimeError(
            f"don't know how to restore data location of torch.storage.UntypedStorage (tagged with {location})"
        )
    kind, index = found[1], int(found[2] or 0)
    if kind == "cuda" and not _lazy.torch.cuda.is_available():
        raise RuntimeError(
            "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you are running "
            "on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your storages to the "
            "CPU."
        )
    if index:
        raise RuntimeError(
            f"Attempting to deserialize object on {kind.upper()} device {index} but torch.{kind}.device_count() is 1. Please "
            "use torch.load with map_location to map your storages to an existing device."
        )
    if dtype is dtypes.float64 or dtype is dtypes.complex128:
        return implicit_cpu  # the GPU has no such type: there until it is converted
    return _lazy.device.resolve(kind)


def default_restore_location(storage: Any, location: str) -> Any:
    """`storage` on the device that `location` means. RuntimeError for no such place."""
    return storage.to(device=_target(location, True, getattr(storage, "dtype", dtypes.uint8)))


class Places:
    """`map_location`, asked where each storage goes."""

    def __init__(self, map_location: Any) -> None:
        self.map = map_location
        plain = map_location is None or isinstance(map_location, (str, bytes, dict, Device))
        self.call = None if plain else map_location
        self.known: dict[tuple[str, Any], Any] = {}

    def device(self, location: Any, dtype: Any) -> Any:
        """Where to make a storage whose place was `location`."""
        where = self.known.get((location, dtype))
        if where is None:
            where = self.known[location, dtype] = self._device(_text(location), dtype)
        return where

    def _device(self, location: str, dtype: Any) -> Any:
        m = self.map
        if self.call is not None:
            return placed(dtype, None)
        if isinstance(m, dict):
            if location == "cpu" and location not in m:  # files of ours say that of all: see `location_tag`
                location = next((k for k in m if k in ("cuda", "cuda:0", "webgpu:0")), location)
            return _target(str(m.get(location, location)), location in m, dtype)
        return _target(location if m is None else _text(m) if isinstance(m, bytes) else str(m), m is not None, dtype)

    def moved(self, storage: TypedStorage, location: Any) -> TypedStorage:
        """A filled storage, where a function that was given as `map_location` puts it."""
        if self.call is None:
            return storage
        result = self.call(storage._untyped_storage, _text(location))
        if result is None:
            return storage.to(device=_target(_text(location), False, storage.dtype))
        if not isinstance(result, (UntypedStorage, TypedStorage)):
            raise TypeError(f"map_location gave {type(result).__name__}, but a storage or None was expected")
        return TypedStorage(wrap_storage=result.untyped(), dtype=storage.dtype)


def _text(x: Any) -> str:
    """What pickles of Python 2 have as bytes."""
    if isinstance(x, bytes):
        return x.decode("ascii")
    if not isinstance(x, str):
        raise pickle.UnpicklingError(f"a location must be a text, but is {x!r}")
    return x


# ---- loading


class Loading:
    """One file that is being loaded: its storages by key, and where their bytes lie.

    `now` fills a storage at once, for unpicklers that may look into tensors; without it all are filled at the end.
    `filled`: whether they are, so that they may be moved.
    """

    def __init__(self, map_location: Any, now: Callable[[Span], Any] | None) -> None:
        self.places = Places(map_location)
        self.now = now
        self.filled = now is not None
        self.known: dict[Any, tuple[TypedStorage, Any]] = {}
        self.moved: dict[Any, TypedStorage] = {}
        self.spans: list[Span] = []

    def storage(self, key: Any, kind: Any, location: Any, numel: Any, span: Callable[[Any, int], Span]) -> TypedStorage:
        if key in self.known:
            return self.again(key)
        dtype = dtypes.uint8 if kind is UntypedStorage else kind.dtype
        if type(numel) is not int or numel < 0:
            raise pickle.UnpicklingError(f"the size of storage {key!r} must be a number, but is {numel!r}")
        device = self.places.device(location, dtype)
        if device is meta:  # no values: the file's are not read
            made = empty(numel, dtype=dtype, device=device)._typed_storage()
            if self.places.map is None:  # the file says so, not the caller: then they have to be there
                span(lambda: made._tab_storage.node, numel * dtype.itemsize)
            return made
        where = span(lambda: reserve(numel, dtype, device), numel * dtype.itemsize)
        made = TypedStorage(wrap_storage=UntypedStorage.of(Storage(where.node)), dtype=dtype)
        if numel:
            self.known[key] = made, location
        if self.now is None:
            self.spans.append(where)
            return made
        self.now(where)
        return self.again(key) if numel else made

    def again(self, key: Any) -> TypedStorage:
        made, location = self.known[key]
        if self.places.call is None or not self.filled:
            return made
        if key not in self.moved:
            self.moved[key] = self.places.moved(made, location)
        return self.moved[key]


def _record(records: zip_archive.Directory, name: str) -> zip_archive.Record:
    found = records.get(name)
    if found is None:
        raise RuntimeError(f"PytorchStreamReader failed locating file {name}: file not found")
    return found


def _check_head(records: zip_archive.Directory) -> Work:
    """The records in which an archive says what it is. RuntimeError, ValueError, NotImplementedError for what is not read."""
    if "constants.pkl" in records.names:
        raise RuntimeError(
            "Cannot use ``weights_only=True`` with TorchScript archives passed to ``torch.load``: it is a module with its code, which "
            "torch.jit.load reads"
        )
    found: dict[str, bytes | None] = {}
    for name in (
        ".data/version",
        "version",
        ".data/serialization_id",
        ".format_version",
        "byteorder",
        ".storage_alignment",
    ):
        record = records.get(name)
        if name == "version" and found[".data/version"] is not None:
            continue
        found[name] = None if record is None else (yield from zip_archive.whole(name, record))
    (found[".data/serialization_id"] or b"").decode()
    version = found[".data/version"] if found[".data/version"] is not None else found["version"]
    if version is None:
        raise RuntimeError("PytorchStreamReader failed locating file version: file not found")
    number = re.match(rb"[ \t\n\v\f\r]*([+-]?[0-9]{1,40})", version)  # as C++ reads it: what follows is left alone
    if number is None or not 1 <= int(number[1]) % 2**64 <= _LAST_VERSION or abs(int(number[1])) >= 2**64:
        raise RuntimeError(f"Attempted to read a PyTorch file with version {version[:40]!r}, which is not supported")
    alignment = found[".storage_alignment"]
    if alignment is not None:
        int(alignment)
    order = found["byteorder"]
    if order not in (None, b"little", b"big"):
        raise ValueError("Unknown endianness type: " + str(order, "ascii", "replace"))
    if order == b"big":
        raise NotImplementedError("the file was written on a big-endian machine, which tabtorch does not read")


def known_size(reader: Reader) -> int:
    if reader.size is None:
        raise RuntimeError("the size of the file is not known")
    return reader.size


def _zip_work(size: int, map_location: Any, unpickler: Callable[..., Any], now: Callable[[Span], Any] | None) -> Work:
    """Reads a file of today's format, a zip archive: asks for spans of bytes, and returns the object."""
    records = yield from zip_archive.directory(size)
    yield from _check_head(records)
    data = yield from zip_archive.whole("data.pkl", _record(records, "data.pkl"))
    loading = Loading(map_location, now)

    def persistent_load(pid: Any) -> TypedStorage:
        check_pid(pid, 5)
        _, kind, key, location, numel = pid
        name = f"data/{key}"

        def span(make: Callable[[], Any], nbytes: int) -> Span:
            found = _record(records, name)
            found.check(name)
            if found.nbytes != nbytes:
                raise RuntimeError(f"record {name} has {found.nbytes} bytes, but the checkpoint says {nbytes}")
            return Span(make(), found.header, name, found)

        return loading.storage(key, kind, location, numel, span)

    def unpickle() -> Any:
        return unpickler(io.BytesIO(data), persistent_load)

    if now is not None:
        return _checked(unpickle())
    result = unpickle()
    yield from pour(loading.spans)
    loading.filled = True
    return _checked(result if loading.places.call is None else unpickle())


def _checked(result: Any) -> Any:
    """What was loaded. The indices of sparse tensors in it are looked at: only now are their numbers there."""
    create: Any = sys.modules.get("tabtorch.sparse.create")
    if create is not None:
        create.validate_loaded()
    return result


def check_pid(pid: Any, n: int) -> None:
    if not isinstance(pid, tuple) or len(pid) != n or _text(pid[0]) != "storage":
        raise pickle.UnpicklingError(f"Unknown saved id: {pid!r}")
    if pid[1] is not UntypedStorage and not isinstance(pid[1], StorageType):
        raise pickle.UnpicklingError(f"{pid[1]!r} is no type of storage")


def _refusal(message: str) -> pickle.UnpicklingError:
    """PyTorch's words about what `weights_only` refused."""
    if re.search(r"GLOBAL (\S+) was not an allowed global by default.", message):
        text = (
            "Weights only load failed. This file can still be loaded, to do so you have two options, "
            "\033[1mdo those steps only if you trust the source of the checkpoint\033[0m. "
            f"\n\t(1) {UNSAFE_MESSAGE}\n\t(2) Alternatively, to load with `weights_only=True` please check "
            "the recommended steps in the following error message.\n\tWeightsUnpickler error: " + message
        )
    else:
        text = f"Weights only load failed. {UNSAFE_MESSAGE}\n"
        if not re.search(r"whose module (\S+) is blocked", message):
            text += (
                "Please file an issue with the following so that we can make "
                "`weights_only=True` compatible with your use case: WeightsUnpickler error: "
            )
        text += "\n\n" + message
    return pickle.UnpicklingError(
        text + "\n\nCheck the documentation of torch.load to learn more about types accepted by default with "
        "weights_only https://pytorch.org/docs/stable/generated/torch.load.html."
    )


def _safe_unpickler(encoding: str) -> Callable[..., Any]:
    def unpickle(file: Any, persistent_load: Any) -> Any:
        unpickler = _restricted.Unpickler(file, encoding=encoding)
        if persistent_load is not None:
            unpickler.persistent_load = persistent_load
        try:
            return unpickler.load()
        except pickle.UnpicklingError as error:
            raise _refusal(str(error)) from None

    return unpickle


def _full_unpickler(module: Any, options: dict[str, Any]) -> Callable[..., Any]:
    class TabtorchUnpickler(module.Unpickler):
        def find_class(self, module_name: str, name: str) -> Any:
            if module_name == "torch" or module_name.startswith("torch."):
                return _ours(module_name, name)
            return super().find_class(module_name, name)

        def persistent_load(self, pid: Any) -> Any:
            if self.loader is None:
                raise pickle.UnpicklingError("unsupported persistent id encountered")
            return self.loader(pid)

    def unpickle(file: Any, persistent_load: Any) -> Any:
        unpickler = TabtorchUnpickler(file, **options)
        unpickler.loader = persistent_load
        return unpickler.load()

    return unpickle


def _ours(module: str, name: str) -> Any:
    """What a file calls `torch.….name`. AttributeError where tabtorch has it not."""
    import importlib

    path = f"{module}.{name}"
    known = _restricted.allowed()
    if path in known:
        return known[path]
    places = [_lazy.install._RENAMED.get(module, "tab" + module)]
    if ".nn." in module:
        places.append("tabtorch.nn")
    for place in places:
        try:
            found: Any = importlib.import_module(place)
            for part in name.split("."):
                found = getattr(found, part)
            return found
        except (ImportError, AttributeError):
            continue
    raise AttributeError(
        f"Can't get attribute {name!r} on module {module!r}: _lazy.torch ({_lazy.torch.__version__}) has it not"
    )


def _options(
    map_location: Any, pickle_module: Any, weights_only: bool | None, options: dict[str, Any]
) -> tuple[bool, Callable[..., Any]]:
    """Whether the restricted unpickler is used, and the unpickler."""
    said = weights_only is not None
    if weights_only is None:
        weights_only = pickle_module is None
    yes = ("1", "y", "yes", "true")
    force = os.environ.get("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "0").lower() in yes
    relax = os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "0").lower() in yes
    if force and relax:
        raise RuntimeError(
            "Only one of `TORCH_FORCE_WEIGHTS_ONLY_LOAD` or `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` "
            "should be set, but both were set."
        )
    if force:
        weights_only = True
    elif relax and not said:
        warnings.warn(
            "Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD detected, since the"
            "`weights_only` argument was not explicitly passed to `torch.load`, forcing weights_only=False.",
            UserWarning,
            stacklevel=3,
        )
        weights_only = False
    if weights_only and pickle_module is not None:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    if options and weights_only:
        warnings.warn("pickle_load_args only works if `weights_only=False`.", stacklevel=3)
    options.setdefault("encoding", "utf-8")
    if weights_only:
        return True, _safe_unpickler(options["encoding"])
    return False, _full_unpickler(pickle_module or pickle, options)


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Reads what `torch.save` wrote, here or in PyTorch.

    f: a path, a file object that can seek, or (in a tab) a JavaScript `File`. map_location: where storages go, a device, its
    name, a dict of names, or a function `(storage, name)`; with None those that were on the cpu go to the default device,
    those of CUDA to the GPU.
    weights_only (default): the file can run nothing, and pickle.UnpicklingError says what of it was refused. mmap: accepted
    for a path; files are always read in pieces that go straight to the device. RuntimeError for a damaged file.
    """
    only, unpickler = _options(map_location, pickle_module, weights_only, pickle_load_args)
    path = isinstance(f, (str, os.PathLike))
    if path and os.fspath(f).endswith(".safetensors"):
        if map_location is not None and not isinstance(map_location, (str, bytes, Device)):
            kind = "dict" if isinstance(map_location, dict) else "callable"
            raise RuntimeError(
                f"Loading safetensors file with {kind} map_location is not supported. "
                "Use a device string or torch.device instead."
            )
        return _lazy.safetensors.load_file(f, device=map_location)
    if mmap and not path:
        raise ValueError("f must be a file path in order to use the mmap argument")
    if not path and not hasattr(f, "seek") and not hasattr(f, "arrayBuffer"):
        raise AttributeError(
            f"{type(f).__name__!r} object has no attribute 'seek'. You can only torch.load from a file that is seekable. "
            "Please pre-load the data into a buffer like io.BytesIO and try to load from it instead."
        )
    reader = open_reader(f)
    with reader:
        return load_from(reader, map_location, only, unpickler, bool(mmap))


def load_from(
    reader: Reader,
    map_location: Any,
    only: bool,
    unpickler: Callable[..., Any],
    mmap: bool = False,
    progress: Any = None,
) -> Any:
    """Loads from an open reader, which can go back and forth."""
    head = reader.read(0, 4)
    if not len(head):
        raise EOFError("Ran out of input")
    if not zip_archive.is_zip(head):
        if mmap:
            raise RuntimeError(
                "mmap can only be used with files saved with `torch.save(_use_new_zipfile_serialization=True), "
                "please torch.save your checkpoint with this option in order to use mmap."
            )
        return _checked(_lazy.legacy_format.old_load(reader, map_location, unpickler))
    now = None if only else lambda span: drive(pour([span]), reader)
    return drive(_zip_work(known_size(reader), map_location, unpickler, now), reader, progress)


async def load_from_async(reader: Reader, map_location: Any, progress: Any = None) -> Any:
    """Loads weights from an open reader without blocking."""
    unpickler = _safe_unpickler("utf-8")
    if not zip_archive.is_zip(await reader.read_async(0, 4)):
        held = bytearray()
        while len(held) < known_size(reader):
            held += await reader.read_async(len(held), PIECE)
        return _checked(_lazy.legacy_format.old_load(open_reader(held), map_location, unpickler))
    return await drive_async(_zip_work(known_size(reader), map_location, unpickler, None), reader, progress)
