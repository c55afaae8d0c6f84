"""Files of weights in the safetensors format, both ways: the interface of `safetensors` and `safetensors.torch`.

The format: 8 bytes with the length of a header, the header (JSON: name -> dtype, shape, place), then the numbers.
See https://huggingface.co/docs/safetensors. Files, also those of a URL, go to the device in pieces of a few megabytes.
"""

from __future__ import annotations

import json
import os
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from math import prod
from operator import mul
from typing import Any

from tabtorch import _lazy
from tabtorch.base import dtypes
from tabtorch.core.storage import Storage
from tabtorch.core.tensor import Tensor
from tabtorch.engine.view import contiguous_meta, contiguous_strides
from tabtorch.serialization.transfer import Span, pour, read_back, reserve
from tabtorch.utils.fetch import (
    Reader,
    Work,
    drive,
    drive_async,
    is_url,
    join,
    open_reader,
    open_reader_async,
    read_bytes,
)

__all__ = [
    "SafetensorError",
    "load",
    "load_file",
    "load_model",
    "safe_open",
    "save",
    "save_file",
    "save_model",
    "storage_ptr",
    "storage_size",
]

LARGEST_HEADER = 100_000_000

#: the format's dtypes in its own order, which is that of the numbers in a file, backwards
_KINDS = (
    "BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ I16 U16 F16 BF16 I32 U32 F32 C64 F64 "
    "I64 U64"
).split()
_DTYPES = {
    "BOOL": dtypes.bool_,
    "U8": dtypes.uint8,
    "I8": dtypes.int8,
    "I16": dtypes.int16,
    "F16": dtypes.float16,
    "BF16": dtypes.bfloat16,
    "I32": dtypes.int32,
    "F32": dtypes.float32,
    "C64": dtypes.complex64,
    "F64": dtypes.float64,
    "I64": dtypes.int64,
}
_NAMES = {d: k for k, d in _DTYPES.items()}
_BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U16": 16, "U32": 32, "U64": 64}


class SafetensorError(Exception):
    """A file is not in the format, or has not what was asked for."""


def _bad(what: str) -> SafetensorError:
    return SafetensorError(f"Error while deserializing header: {what}")


class _Entry:
    """One tensor of a file: where its bytes lie, counted from the beginning of the file."""

    __slots__ = ("kind", "name", "nbytes", "offset", "shape")

    def __init__(self, name: str, kind: str, shape: list[int], offset: int, nbytes: int) -> None:
        self.name = name
        self.kind = kind
        self.shape = tuple(shape)
        self.offset = offset
        self.nbytes = nbytes

    @property
    def dtype(self) -> dtypes.dtype:
        """TypeError for a type that tabtorch does not have."""
        found = _DTYPES.get(self.kind)
        if found is None:
            raise TypeError(f"tensor {self.name!r} has the type {self.kind}, which is not supported by tabtorch")
        return found


# ---- reading


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(k for i, (k, _) in enumerate(pairs) if any(k == other for other, _ in pairs[:i]))
        raise _bad(f"duplicate key `{twice}`")
    return found


def _integer(text: str) -> int | float:
    return -0.0 if text == "-0" else int(text)


def _count(x: Any, what: str) -> int:
    if type(x) is not int or not 0 <= x < 2**64:
        raise _bad(f"invalid JSON in header: {what} must be a whole number, but is {x!r}")
    return x


def _header(size: int | None) -> Work:
    """(entries in the order of the file, metadata, where the file ends). SafetensorError for a file that is none."""
    head = yield 0, 8
    if len(head) < 8:
        raise _bad("header too small")
    (n,) = struct.unpack("<Q", head)
    if n > LARGEST_HEADER:
        raise _bad("header too large")
    if size is not None and 8 + n > size:
        raise _bad("invalid header length")
    raw = bytes((yield 8, n))
    if len(raw) < n:
        raise _bad("invalid header length")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as e:
        raise _bad(f"invalid UTF-8 in header: {e}") from None
    try:
        table: Any = json.loads(text, object_pairs_hook=_unique, parse_int=_integer)
        if "\\u" in text:  # half a character, which Python takes and the format does not
            json.dumps(table, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as e:
        raise _bad(f"invalid JSON in header: {e}") from None
    if not isinstance(table, dict):
        raise _bad("invalid start character in header, must start with `{`")
    metadata = table.pop("__metadata__", None)
    if metadata is not None and not (isinstance(metadata, dict) and all(type(v) is str for v in metadata.values())):
        raise _bad("invalid JSON in header: the metadata must be texts by name")
    entries = sorted(
        (_entry(*item) for item in table.items()), key=lambda entry: (entry.offset, entry.nbytes, entry.name)
    )
    at = 0
    for entry in entries:
        if entry.offset != at:
            raise _bad(f"invalid offset for tensor `{entry.name}`")
        at += entry.nbytes
        entry.offset += 8 + n
    end = 8 + n + at
    if size is not None and end != size:
        raise _bad("incomplete metadata, file not fully covered")
    return entries, metadata, end


def _entry(name: str, e: Any) -> _Entry:
    if not isinstance(e, dict):
        raise _bad(f"invalid JSON in header: tensor `{name}` must be described by a struct TensorInfo")
    for field in ("dtype", "shape", "data_offsets"):
        if field not in e:
            raise _bad(f"invalid JSON in header: missing field `{field}`")
    kind, shape, place = e["dtype"], e["shape"], e["data_offsets"]
    if kind not in _KINDS:
        expected = ", ".join(f"`{k}`" for k in _KINDS)
        raise _bad(f"invalid JSON in header: unknown variant `{kind}`, expected one of {expected}")
    if not isinstance(shape, list) or not isinstance(place, list) or len(place) != 2:
        raise _bad(f"invalid JSON in header: the shape and the two offsets of tensor `{name}` must be lists")
    begin, end = (_count(x, "an offset") for x in place)
    for x in shape:
        _count(x, "a size")
    bits = _DTYPES[kind].itemsize * 8 if kind in _DTYPES else _BITS.get(kind, 8)
    total = prod(shape) * bits
    if max(accumulate((*shape, bits), mul)) >= 2**64:
        raise _bad("overflow computing buffer size from shape and/or element type")
    if end < begin:
        raise _bad(f"invalid offset for tensor `{name}`")
    if total != 8 * (end - begin):
        raise _bad("invalid shape, data type, or offset for tensor")
    return _Entry(name, kind, shape, begin, end - begin)


class _Making:
    """Tensors whose bytes are still to come."""

    def __init__(self, device: Any) -> None:
        self.places = _lazy.serialization.Places(f"cuda:{device}" if isinstance(device, int) else device)
        self.device = device
        self.spans: list[Span] = []

    def tensor(self, e: _Entry, rows: tuple[int, int] | None = None) -> Tensor:
        """The tensor of an entry, or of some of its rows."""
        shape, offset = e.shape, e.offset
        if rows is not None:
            shape = (rows[1] - rows[0], *shape[1:])
            offset += rows[0] * prod(shape[1:]) * e.dtype.itemsize
        try:
            where = self.places.device("cpu", e.dtype)
        except RuntimeError as error:
            if "don't know how" in str(error):
                raise SafetensorError(f"device {self.device} is invalid") from None
            raise
        if max(shape, default=0) >= 2**63:  # in the format, but of no tensor
            raise TypeError(f"tensor {e.name!r} has the shape {list(shape)}: Overflow when unpacking long long")
        if max(contiguous_strides(shape), default=0) >= 2**63:
            raise RuntimeError("Stride calculation overflowed")
        node = reserve(prod(shape), e.dtype, where)
        self.spans.append(Span(node, offset, e.name))
        t: Tensor = object.__new__(Tensor)
        t._tab_storage = Storage(node)
        t._tab_meta = contiguous_meta(shape, e.dtype, node.inst.out.device)
        return t


def _all(reader: Reader, device: Any, wanted: Iterable[str] | None = None) -> Work:
    """The tensors of a file by name; of those in `wanted`, if that is given."""
    entries, _, end = yield from _header(reader.size)
    chosen = None if wanted is None else set(wanted)
    missing = sorted((chosen or set()) - {e.name for e in entries})
    if missing:
        raise SafetensorError(f"File does not contain tensor {missing[0]}")
    making = _Making(device)
    found = {e.name: making.tensor(e) for e in entries if chosen is None or e.name in chosen}
    try:
        yield from pour(making.spans)
    except RuntimeError as e:
        if "file read failed" in str(e):
            raise _bad("incomplete metadata, file not fully covered") from None
        raise
    if reader.size is not None and reader.size != end:
        raise _bad("incomplete metadata, file not fully covered")
    return found


#: one thread reads at a time: transformers loads a file's tensors from several
_reading = threading.Lock()


class safe_open:
    """A file, opened to read some of its tensors: `with safe_open("model.safetensors", framework="pt") as f: f.get_tensor(…)`.

    filename: a path or a URL. framework: "pt", or "np" for NumPy arrays. device: where the tensors go; None is the default
    device. SafetensorError for a file that is not in the format.
    """

    def __init__(self, filename: Any, framework: str, device: Any = None, *, backend: str = "mmap") -> None:
        if framework not in ("pt", "torch", "pytorch", "np", "numpy"):
            raise SafetensorError(f"framework {framework} is invalid")
        self._numpy = framework.startswith("n")
        self._device = "cpu" if self._numpy else device
        self._reader = open_reader(_existing(filename), random=True)
        try:
            self._reader.whole()
            entries, self._metadata, _ = drive(_header(self._reader.size), self._reader)
        except BaseException:
            self._reader.close()
            raise
        self._entries = {e.name: e for e in entries}

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *exc: Any) -> None:
        self._reader.close()

    def __del__(self) -> None:
        if hasattr(self, "_reader"):  # it was opened
            self._reader.close()

    def keys(self) -> list[str]:
        """The names, sorted."""
        return sorted(self._entries)

    def offset_keys(self) -> list[str]:
        """The names in the order of the file."""
        return list(self._entries)

    def metadata(self) -> dict[str, str] | None:
        """The texts that were saved along."""
        found: dict[str, str] | None = self._metadata
        return found

    def _entry(self, name: str) -> _Entry:
        if name not in self._entries:
            raise SafetensorError(f"File does not contain tensor {name}")
        return self._entries[name]

    def _read(self, wanted: list[_Entry], rows: tuple[int, int] | None = None) -> list[Any]:
        with _reading:
            making = _Making(self._device)
            found: list[Any] = [making.tensor(e, rows) for e in wanted]
            drive(pour(making.spans), self._reader)
        return [t.numpy() for t in found] if self._numpy else found

    def get_tensor(self, name: str) -> Any:
        """One tensor. SafetensorError if there is none of that name."""
        return self._read([self._entry(name)])[0]

    def get_tensors(self) -> dict[str, Any]:
        """All tensors by name."""
        return dict(zip(self._entries, self._read(list(self._entries.values()))))

    def get_slice(self, name: str) -> Slice:
        """One tensor, to be indexed before it is read."""
        return Slice(self, self._entry(name))


class Slice:
    """A tensor of an open file; `s[i:j]` reads only the rows that are asked for."""

    def __init__(self, file: safe_open, entry: _Entry) -> None:
        self._file = file
        self._entry = entry

    def get_shape(self) -> list[int]:
        return list(self._entry.shape)

    def get_dtype(self) -> str:
        return self._entry.kind

    def __getitem__(self, index: Any) -> Any:
        first, *rest = index if isinstance(index, tuple) and index else (index,)
        shape = self._entry.shape
        if not shape or not isinstance(first, (int, slice)) or isinstance(first, bool):
            return self._file._read([self._entry])[0][index]
        n = shape[0]
        if isinstance(first, slice):
            low, high, step = first.indices(n)
            if step < 1:
                raise ValueError("step must be greater than zero")
            part = self._file._read([self._entry], (low, max(low, high)))[0]
            return part[(slice(None, None, step), *rest)]
        if not -n <= first < n:
            raise IndexError(f"index {first} is out of bounds for dimension 0 with size {n}")
        first %= n
        return self._file._read([self._entry], (first, first + 1))[0][(0, *rest)]


def _existing(filename: Any) -> Any:
    if isinstance(filename, (str, os.PathLike)) and not is_url(filename) and not os.path.exists(filename):
        raise FileNotFoundError(f"No such file or directory: {os.fspath(filename)}")
    return filename


def _shards(filename: Any, index: bytes) -> Iterator[tuple[Any, list[str]]]:
    """The files of a `…safetensors.index.json`, each with the names of its tensors."""
    try:
        names: dict[str, str] = json.loads(index)["weight_map"]
        files: dict[str, list[str]] = {}
        for name, file in names.items():
            files.setdefault(file, []).append(name)
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise SafetensorError(f"Error while deserializing index: {type(e).__name__}: {e}") from None
    for file in files:
        if not isinstance(file, str) or os.path.isabs(file) or ".." in file.split("/") or "\\" in file or is_url(file):
            raise SafetensorError(f"Error while deserializing index: {file!r} does not lie beside the index")
    text = os.fspath(filename)
    folder, sep, _ = text.partition("?")[0].rpartition("/") if is_url(text) else (os.path.dirname(text), "", "")
    for file, held in files.items():
        yield join(folder, file), held


def _is_index(filename: Any) -> bool:
    return isinstance(filename, (str, os.PathLike)) and os.fspath(filename).partition("?")[0].endswith(".index.json")


def load_file(
    filename: Any, device: Any = None, *, backend: str = "mmap", progress: Any = None, cache: bool = True
) -> dict[str, Tensor]:
    """The tensors of a file by name.

    filename: a path, a URL, or a file that was chosen in the page; `…safetensors.index.json` loads all its shards.
    device: None is the default device. progress, cache: see `tabtorch.utils.fetch.read_bytes`. backend: accepted; a file is
    always read in pieces. SafetensorError for what is not in the format.
    """
    found: dict[str, Tensor] = {}
    if _is_index(filename):
        for file, names in _shards(filename, read_bytes(_existing(filename), cache=cache)):
            with open_reader(_existing(file), cache=cache) as reader:
                found |= drive(_all(reader, device, names), reader, progress)
        return found
    with open_reader(_existing(filename), cache=cache) as reader:
        found = drive(_all(reader, device), reader, progress)
    return found


async def load_file_async(
    filename: Any, device: Any = None, *, progress: Any = None, cache: bool = True
) -> dict[str, Tensor]:
    """As `load_file`, without blocking: for hosts that have no JSPI."""
    found: dict[str, Tensor] = {}
    files: Iterable[tuple[Any, list[str] | None]] = [(filename, None)]
    if _is_index(filename):
        files = _shards(filename, await _lazy.fetch.read_bytes_async(_existing(filename), cache=cache))
    for file, names in files:
        with await open_reader_async(_existing(file), cache=cache) as reader:
            found |= await drive_async(_all(reader, device, names), reader, progress)
    return found


def load(data: bytes, device: Any = None) -> dict[str, Tensor]:
    """The tensors of a file whose bytes are at hand. SafetensorError for what is not in the format."""
    reader = open_reader(data)
    try:
        found: dict[str, Tensor] = drive(_all(reader, device), reader)
    except SafetensorError as e:
        raise SafetensorError(str(e).replace("deserializing header:", "deserializing:")) from None
    return found


# ---- writing


def _parts(tensors: Any, metadata: Any) -> tuple[bytes, list[Tensor]]:
    """The head of a file, and the tensors in the order in which their numbers follow."""
    if not isinstance(tensors, dict):
        raise ValueError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors)}")
    for name, t in tensors.items():
        if not isinstance(t, Tensor):
            raise ValueError(f"Key `{name}` is invalid, expected torch.Tensor but received {type(t)}")
    failing = [names for names in _find_shared_tensors(tensors) if len(names) > 1]
    if failing:
        raise RuntimeError(
            "\n            Some tensors share memory, this will lead to duplicate memory on disk and potential differences "
            f"when loading them again: {failing}.\n            A potential way to correctly save your model is to use "
            "`save_model`.\n            More information at "
            "https://huggingface.co/docs/safetensors/torch_shared_tensors\n            "
        )
    for name, t in tensors.items():
        if not t.is_contiguous():
            raise ValueError(
                f"You are trying to save a non contiguous tensor: `{name}` which is not allowed. It either means you are "
                "trying to save tensors which are reference of each other in which case it's recommended to save only the "
                "full tensors, and reslice at load time, or simply call `.contiguous()` on your tensor to pack it before "
                "saving."
            )
        if t.dtype not in _NAMES:
            raise KeyError(t.dtype)
        if not isinstance(name, str):
            raise TypeError(f"argument 'tensor_dict': {type(name).__name__!r} object is not an instance of 'str'")
    table: dict[str, Any] = {}
    if metadata is not None:
        for x in (*metadata, *metadata.values()):
            if not isinstance(x, str):
                raise TypeError(f"argument 'metadata': {type(x).__name__!r} object is not an instance of 'str'")
        table["__metadata__"] = dict(sorted(metadata.items()))
    order = {d: -i for i, d in enumerate(_DTYPES.values())}
    ordered = sorted(tensors.items(), key=lambda item: (order[item[1].dtype], item[0]))
    at = 0
    for name, t in ordered:
        end = at + t.nbytes
        table[name] = {"dtype": _NAMES[t.dtype], "shape": list(t.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text, [t for _, t in ordered]


def _numbers(tensors: Iterable[Tensor]) -> Iterator[Any]:
    return read_back(_lazy.to_host._source(t.detach()) for t in tensors)


def save(tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """The bytes of a file with these tensors. ValueError for one that is not contiguous, RuntimeError for shared memory."""
    head, ordered = _parts(tensors, metadata)
    return b"".join([head, *_numbers(ordered)])


def save_file(tensors: dict[str, Tensor], filename: Any, metadata: dict[str, str] | None = None) -> None:
    """Writes a file with these tensors. ValueError for one that is not contiguous, RuntimeError for shared memory."""
    head, ordered = _parts(tensors, metadata)
    with open(filename, "wb") as file:
        file.write(head)
        for values in _numbers(ordered):
            file.write(values)


# ---- models, whose tensors may share memory


def storage_ptr(tensor: Tensor) -> int:
    """A number that tensors with one storage share."""
    found: int = tensor.untyped_storage().data_ptr()
    return found


def storage_size(tensor: Tensor) -> int:
    """The bytes of its storage."""
    found: int = tensor.untyped_storage().nbytes()
    return found


def _reach(t: Tensor) -> tuple[int, int]:
    """The first address of a tensor's elements, and the one behind the last."""
    start = t.data_ptr()
    m = t._tab_meta
    return start, start + (1 + sum((n - 1) * s for n, s in zip(m.shape, m.strides))) * m.dtype.itemsize


def _find_shared_tensors(state_dict: Mapping[str, Tensor]) -> list[set[str]]:
    """The names whose elements lie over one another, each with itself at least."""
    groups: dict[int, list[tuple[int, int, str]]] = {}
    for name, t in state_dict.items():
        if t.numel():
            groups.setdefault(t._tab_storage.root.address, []).append((*_reach(t), name))
    found: list[set[str]] = []
    for areas in groups.values():
        last = -1
        for start, stop, name in sorted(areas):
            if start >= last:
                found.append(set())
            found[-1].add(name)
            last = max(last, stop)
    return found


def _remove_duplicate_names(
    state_dict: Mapping[str, Tensor], *, preferred_names: Iterable[str] = (), discard_names: Iterable[str] = ()
) -> dict[str, list[str]]:
    """The name to keep of each group that shares memory -> the others. RuntimeError where none has all of the memory."""
    found: dict[str, list[str]] = {}
    for shared in _find_shared_tensors(state_dict):
        whole = {n for n in shared if state_dict[n].nbytes == state_dict[n].untyped_storage().nbytes()}
        if not whole:
            raise RuntimeError(
                "Error while trying to find names to remove to save state dict, but found no suitable name to keep"
                f" for saving amongst: {shared}. None is covering the entire storage.Refusing to save/load the model"
                " since you could be storing much more memory than needed. Please refer to"
                " https://huggingface.co/docs/safetensors/torch_shared_tensors for more information. Or open an"
                " issue."
            )
        keep = min(whole.intersection(preferred_names) or whole.difference(discard_names) or whole)
        if len(shared) > 1:
            found[keep] = sorted(shared - {keep})
    return found


def save_model(
    model: Any, filename: Any, metadata: dict[str, str] | None = None, force_contiguous: bool = True
) -> None:
    """Writes the parameters and buffers of a module; what shares memory is written once, and the metadata says so."""
    state = model.state_dict()
    for kept, others in _remove_duplicate_names(state).items():
        for name in others:
            metadata = metadata if metadata is not None else {}
            metadata.setdefault(name, kept)
            del state[name]
    if force_contiguous:
        state = {k: v.contiguous() for k, v in state.items()}
    try:
        save_file(dict(state), filename, metadata)
    except ValueError as e:
        raise ValueError(
            f"{e} Or use save_model(..., force_contiguous=True), read the docs for potential caveats."
        ) from None


def load_model(
    model: Any, filename: Any, strict: bool = True, device: Any = None, *, backend: str = "mmap"
) -> tuple[set[str], list[str]]:
    """Reads a file that `save_model` wrote into a module. RuntimeError for names that do not fit, if `strict`."""
    state = load_file(filename, device)
    others = _remove_duplicate_names(model.state_dict(), preferred_names=state)
    missed, unexpected = model.load_state_dict(state, strict=False)
    missing = set(missed)
    for name in (n for group in others.values() for n in group):
        if name in missing:
            missing.remove(name)
        else:
            unexpected.append(name)
    if strict and (missing or unexpected):
        error = f"Error(s) in loading state_dict for {type(model).__name__}:"
        for kind, names in (("Missing", missing), ("Unexpected", unexpected)):
            if names:
                quoted = ", ".join(f'"{n}"' for n in sorted(names))
                error += f"\n    {kind} key(s) in state_dict: {quoted}"
        raise RuntimeError(error)
    return missing, unexpected
