"""The archive of `torch.export.save`: a zip file with the program as JSON, and the bytes of its tensors, a record each.

Nothing in it is a pickle but the sample inputs, which are not read, and what PyTorch could not write otherwise, which is refused.
Bytes go to the device in pieces, as in `torch.load`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tabtorch import _lazy
from tabtorch.core.storage import Storage
from tabtorch.core.tensor import Tensor
from tabtorch.engine.view import contiguous_meta
from tabtorch.export.fields import SerializeError, bad, boolean, field, integer, parse_json, shown, table, text
from tabtorch.export.graphs import TensorMeta
from tabtorch.nn.parameter import Parameter
from tabtorch.serialization import zip_archive
from tabtorch.serialization.transfer import Span, pour, reserve
from tabtorch.utils.fetch import Work

#: the major version of the schema that is read
SCHEMA = 8
_OLD = b"serialized_exported_program.json"


class Contents(NamedTuple):
    """What an archive has: the program's JSON, its tensors by name, and the other files that were saved along."""

    program: dict[str, Any]
    state: dict[str, Tensor]
    constants: dict[str, Tensor]
    extra: dict[str, str]


def _no_program(names: list[str]) -> Exception:
    if any(n.startswith("data/aotinductor/") for n in names):
        return NotImplementedError(
            "the archive is a package of AOTInductor, machine code for the computer that compiled it; save the program itself: "
            "torch.export.save(exported_program, path)"
        )
    if "constants.pkl" in names:
        return SerializeError("the file is a TorchScript archive: torch.jit.load reads those")
    if "data.pkl" in names:
        return SerializeError("the file was written by torch.save, not torch.export.save: torch.load reads those")
    return bad("the archive has no models/*.json")


def _directory(size: int) -> Work:
    try:
        return (yield from zip_archive.directory(size))
    except RuntimeError as e:
        tail = bytes((yield max(0, size - 4096), min(size, 4096)))
        if _OLD in tail:
            raise SerializeError(
                "the file was written by torch.export.save of PyTorch 2.7 or older, whose format is another one: load it with that "
                "version and save it with PyTorch 2.8 or newer"
            ) from e
        raise


def read(size: int, map_location: Any, wanted: Callable[[str], bool]) -> Work:
    """The `Contents` of an archive of `size` bytes. wanted: which of the extra files. RuntimeError and its subclasses for damaged or
    foreign files, NotImplementedError and TypeError for what is not read here."""
    records = yield from _directory(size)

    def whole(name: str) -> Work:
        record = records.get(name)
        if record is None:
            raise bad(f"the archive has no {name}")
        return (yield from zip_archive.whole(name, record))

    models = sorted(n for n in records.names if n.startswith("models/") and n.endswith(".json"))
    if not models:
        raise _no_program(records.names)
    if "byteorder" in records and (yield from whole("byteorder")) == b"big":
        raise NotImplementedError("the file was written on a big-endian machine, which tabtorch does not read")
    path = "models/model.json" if "models/model.json" in models else models[0]
    if path != "models/model.json" and len(models) > 1:
        raise NotImplementedError(f"the archive has several programs: {', '.join(models)}")
    model = path[len("models/") : -len(".json")]
    program = table(parse_json((yield from whole(path)), path))
    version = field(program, "schema_version")
    major, minor = integer(field(version, "major")), integer(field(version, "minor"))
    if major != SCHEMA:
        raise SerializeError(
            f"Serialized schema version {major}.{minor} does not match our current schema version {SCHEMA} (PyTorch 2.13's is 8.20)."
        )
    making = _Making(records, map_location)
    found = []
    for kind in ("weights", "constants"):
        name = f"data/{kind}/{model}_{kind}_config.json"
        config = parse_json((yield from whole(name)), name) if name in records else {"config": {}}
        found.append({k: making.tensor(kind, k, v) for k, v in table(field(config, "config")).items()})
    yield from pour(making.spans)
    extra = {}
    for n in records.names:
        if n.startswith("extra/") and wanted(n[len("extra/") :]):
            extra[n[len("extra/") :]] = (yield from whole(n)).decode("utf-8", "replace")
    state, constants = found
    return Contents(program, state, constants, extra)


class _Making:
    """Tensors whose bytes are still to come. Those of one record share a storage; those that are also alike are one parameter."""

    def __init__(self, records: zip_archive.Directory, map_location: Any) -> None:
        self.records = records
        self.places = _lazy.serialization.Places(map_location)
        self.spans: list[Span] = []
        self.flat: dict[str, Tensor] = {}
        self.made: dict[Any, Tensor] = {}

    def tensor(self, kind: str, name: str, x: Any) -> Tensor:
        if boolean(field(x, "use_pickle")):
            raise NotImplementedError(
                f"{name!r} is an object of Python or a subclass of Tensor, and saved as a pickle, which is not read"
            )
        meta = TensorMeta(field(x, "tensor_meta"))
        path = f"data/{kind}/{text(field(x, 'path_name'))}"
        offset = field(field(x["tensor_meta"], "storage_offset"), "as_int")
        numbers = [integer(n, "a size") for n in (*meta.sizes, *meta.strides, offset)]
        if min(numbers) < 0:
            raise bad(f"the tensor {name!r} has negative sizes or strides")
        parameter = boolean(field(x, "is_param"))
        key = path, parameter, meta.dtype, tuple(numbers), meta.requires_grad
        if key not in self.made:
            flat = self._storage(path, meta.dtype)
            rank = len(meta.sizes)
            sizes, strides = numbers[:rank], numbers[rank:-1]
            end = numbers[-1] + 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
            if (end if all(sizes) else 0) > flat.numel():
                raise bad(f"the tensor {name!r} of {sizes} is longer than its record, of {flat.numel()} elements")
            t = flat.as_strided(sizes, strides, numbers[-1] if all(sizes) else 0)
            if parameter:
                t = Parameter(t, requires_grad=meta.requires_grad)
            elif meta.requires_grad:
                t.requires_grad_()
            self.made[key] = t
        return self.made[key]

    def _storage(self, path: str, dtype: Any) -> Tensor:
        if path in self.flat:
            if self.flat[path].dtype is not dtype:
                raise NotImplementedError(f"{path} is shared by tensors of {self.flat[path].dtype} and {dtype}")
            return self.flat[path]
        record = self.records.get(path)
        if record is None:
            raise bad(f"the archive has no {path}")
        record.check(path)
        if record.nbytes % dtype.itemsize:
            raise bad(f"{path} has {record.nbytes} bytes, which are no numbers of {dtype}")
        numel = record.nbytes // dtype.itemsize
        if not record.deflated and record.packed != record.nbytes:
            raise bad(f"{path} has {shown(record.packed)} bytes, but says {shown(record.nbytes)}")
        node = reserve(numel, dtype, self.places.device("cpu", dtype))
        self.spans.append(Span(node, record.header, path, record))
        t: Tensor = object.__new__(Tensor)
        t._tab_storage = Storage(node)
        t._tab_meta = contiguous_meta((numel,), dtype, node.inst.out.device)
        self.flat[path] = t
        return t
