"""Files from before PyTorch 1.6, which are no archives: pickles, then the storages one after another."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

from tabtorch.serialization import Loading, Places, Write, check_pid, known_size
from tabtorch.serialization.pickler import Storages, pickler
from tabtorch.serialization.transfer import Span, pour, read_back, reserve
from tabtorch.storage import UntypedStorage
from tabtorch.utils.fetch import Reader, drive

MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
PROTOCOL_VERSION = 1001


def parts(obj: object, folder: str, module: Any, protocol: int, byteorder: bool) -> Callable[[Write], None]:
    """What `save` writes, in this format."""
    storages = Storages(lambda storage, n: str(storage.address))
    head = io.BytesIO()
    sizes = {"short": 2, "int": 4, "long": 4}
    info = {"protocol_version": PROTOCOL_VERSION, "little_endian": True, "type_sizes": sizes}
    for part in (MAGIC_NUMBER, PROTOCOL_VERSION, info):
        module.dump(part, head, protocol=protocol)
    pickler(module, head, protocol, storages, (None,)).dump(obj)
    ordered = sorted(storages, key=lambda found: found[0])
    module.dump([key for key, *_ in ordered], head, protocol=protocol)

    def write_to(write: Write) -> None:
        write(head.getvalue())
        for (_, storage, dtype), values in zip(ordered, read_back((s.node, 0, s.nbytes) for _, s, _ in ordered)):
            write((storage.nbytes // dtype.itemsize).to_bytes(8, "little"))
            write(values)

    return write_to


class _Feed:
    """A reader as a file that can only be read on."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.at = 0
        self.held = b""

    def _more(self) -> bool:
        found = bytes(self.reader.read(self.at + len(self.held), 1 << 16))
        self.held += found
        return bool(found)

    def read(self, n: int) -> bytes:
        while len(self.held) < n and self._more():
            pass
        data, self.held = self.held[:n], self.held[n:]
        self.at += len(data)
        return data

    def readline(self, limit: int = -1) -> bytes:
        while (end := self.held.find(b"\n")) < 0 and (limit < 0 or len(self.held) < limit) and self._more():
            pass
        return self.read(end + 1 if end >= 0 else len(self.held))


def old_load(reader: Reader, map_location: Any, unpickler: Callable[..., Any]) -> Any:
    """A file from before PyTorch 1.6. RuntimeError for what is none."""
    feed = _Feed(reader)
    size = known_size(reader)
    if bytes(reader.read(257, 5)) == b"ustar":
        raise RuntimeError("files in PyTorch's .tar format from before version 0.1.10 are not read by tabtorch")
    if unpickler(feed, None) != MAGIC_NUMBER:
        raise RuntimeError("Invalid magic number; corrupt file?")
    version = unpickler(feed, None)
    if version != PROTOCOL_VERSION:
        raise RuntimeError(f"Invalid protocol version: {version}")
    info = unpickler(feed, None)
    if isinstance(info, dict) and not info.get("little_endian", True):
        raise NotImplementedError("the file was written on a big-endian machine, which tabtorch does not read")
    loading = Loading(None if callable(map_location) else map_location, None)
    places = Places(map_location)
    claimed = [0]

    def persistent_load(pid: Any) -> Any:
        if isinstance(pid, tuple) and pid and pid[0] in ("module", b"module"):
            return pid[1]  # a class, with the text of its source
        check_pid(pid, 6)
        _, kind, key, location, numel, view = pid
        if kind is UntypedStorage:
            raise pickle.UnpicklingError("type object 'torch.storage.UntypedStorage' has no attribute 'dtype'")

        def span(make: Callable[[], Any], nbytes: int) -> Span:
            claimed[0] += nbytes
            if claimed[0] > size:
                raise RuntimeError(f"unexpected EOF: storages of {claimed[0]} bytes in a file of {size}")
            return Span(make(), 0, str(key))

        if view is not None and (not isinstance(view, tuple) or len(view) != 3 or view[1:] != (0, numel)):
            raise NotImplementedError(
                "views of storages, which PyTorch wrote before version 0.4, are not read by tabtorch"
            )
        found = loading.storage(key, kind, location, numel, span)
        if places.call is None or not numel:
            return found
        if key not in loading.moved:
            moved = loading.moved[key] = places.moved(found, location)
            node = reserve(numel, found.dtype, moved._tab_storage.node.inst.out.device)
            moved._tab_storage.node = loading.spans[-1].node = node
        return loading.moved[key]

    result = unpickler(feed, persistent_load)
    keys = unpickler(feed, None)
    spans = {s.name: s for s in loading.spans}
    if not isinstance(keys, list) or not {str(k) for k in keys} <= set(spans):
        raise RuntimeError("the file's list of storages does not fit its tensors; corrupt file?")
    at, filled = feed.at, []
    for key in keys:
        s = spans.pop(str(key), None)
        if s is None:
            raise RuntimeError("the file's list of storages does not fit its tensors; corrupt file?")
        numel = int.from_bytes(reader.read(at, 8), "little")
        if (numel - s.node.inst.out.numel) * s.node.inst.out.dtype.itemsize % 2**64:
            raise RuntimeError(f"storage has wrong byte size: expected {s.node.inst.out.numel} got {numel}")
        s.offset = at + 8
        at = s.offset + s.nbytes
        filled.append(s)
    if any(s.nbytes for s in spans.values()):
        raise RuntimeError("there are storages that are not in the file's list of them; corrupt file?")
    if at > size:
        raise RuntimeError("unexpected EOF. The file might be corrupted.")
    drive(pour(filled), reader)
    reader.ended = at
    return result
