"""TorchScript archives (`torch.jit.save`): a zip of code, a pickle of the module, and its tensors' bytes."""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from tabtorch import _weights_only_unpickler as restricted
from tabtorch._utils import REBUILD
from tabtorch.base import dtypes
from tabtorch.core.creation import placed
from tabtorch.core.tensor import Tensor
from tabtorch.jit.values import RESERVED, LoadedModule, ScriptObject, ScriptType, named_tuple
from tabtorch.jit.walker import Program, path
from tabtorch.nn.parameter import Parameter
from tabtorch.serialization import Loading, check_pid, known_size, zip_archive
from tabtorch.serialization.transfer import Span, pour
from tabtorch.storage import StorageType
from tabtorch.utils.fetch import Work, drive, open_reader

#: bytes of code that are read
_MOST_CODE = 1 << 25
_VERSIONS = range(1, 11)


def load(f: Any, map_location: Any = None, extra: dict[str, Any] | None = None) -> LoadedModule:
    """The module in an archive. RuntimeError or pickle.UnpicklingError for what is none, damaged, or not allowed."""
    with open_reader(f, random=True) as reader:
        reader.whole()
        made: LoadedModule = drive(_work(known_size(reader), map_location, extra), reader)
        return made


def _read(records: Any, name: str) -> Work:
    record = records.get(name)
    if record is None:
        raise RuntimeError(f"PytorchStreamReader failed locating file {name}: file not found")
    return (yield from zip_archive.whole(name, record))


def _work(size: int, map_location: Any, extra: dict[str, Any] | None) -> Work:
    records = yield from zip_archive.directory(size)
    if "model.json" in records:
        raise RuntimeError(
            "the archive is of PyTorch before 1.4, which tabtorch does not read: save it again in PyTorch"
        )
    version = yield from _read(records, ".data/version" if ".data/version" in records else "version")
    number = int(version) if version.strip().isdigit() and len(version) < 9 else 0
    if number not in _VERSIONS:
        raise RuntimeError(f"Attempted to read a PyTorch file with version {version[:40]!r}, which is not supported")
    loading = Loading(map_location, None)
    place = loading.places.device("cpu", dtypes.float32)
    program = Program(place if place is not None else placed(dtypes.float32, None), number)
    total = 0
    for name in records.names:
        if name.startswith("code/") and name.endswith(".py"):
            total += records.get(name).nbytes
            if total > _MOST_CODE:
                raise RuntimeError(f"the archive has more than {_MOST_CODE} bytes of code")
            source = yield from _read(records, name)
            try:
                text = source.decode()
            except UnicodeDecodeError:
                raise RuntimeError(f"{name} is no text") from None
            program.add(name[5:-3].replace("/", "."), text, name)
    program.compile()
    constants, data = (yield from _read(records, "constants.pkl")), (yield from _read(records, "data.pkl"))

    def unpickle() -> tuple[Any, Any, list[Any]]:
        objects: list[Any] = []
        found = []
        for folder, raw in (("constants", constants), ("data", data)):
            unpickler = _Unpickler(io.BytesIO(raw), program, objects)
            unpickler.persistent_load = _storages(records, loading, folder)
            found.append(unpickler.load())
        return found[0], found[1], objects

    program.tensors, root, objects = unpickle()
    yield from pour(loading.spans)
    loading.filled = True
    if loading.places.call is not None:
        program.tensors, root, objects = unpickle()
    if not isinstance(root, LoadedModule) or not isinstance(program.tensors, tuple):
        raise RuntimeError("the archive holds no TorchScript module")
    _finish(objects, program)
    for name in extra or {}:
        if extra is not None and f"extra/{name}" in records:
            extra[name] = yield from _read(records, f"extra/{name}")
    return root


def _storages(records: Any, loading: Loading, folder: str) -> Callable[[Any], Any]:
    def persistent_load(pid: Any) -> Any:
        check_pid(pid, 5)
        _, kind, key, location, numel = pid
        name = f"{folder}/{key}"

        def span(make: Callable[[], Any], nbytes: int) -> Span:
            record = records.get(name)
            if record is None:
                raise RuntimeError(f"PytorchStreamReader failed locating file {name}: file not found")
            record.check(name)
            if record.nbytes != nbytes:
                raise RuntimeError(f"record {name} has {record.nbytes} bytes, but the archive says {nbytes}")
            return Span(make(), record.header, name, record)

        return loading.storage((folder, key), kind, location, numel, span)

    return persistent_load


class _Unpickler(restricted.Unpickler):
    """As that of weights, with the archive's own classes, and no others."""

    def __init__(self, file: Any, program: Program, objects: list[Any]) -> None:
        super().__init__(file)
        self.program = program
        self.objects = objects

    def _global(self) -> None:
        name = f"{self._line()}.{self._line()}"
        if name.startswith("__torch__."):
            found: Any = self.program.classes.get(name)
            if found is None:
                raise pickle.UnpicklingError(
                    f"the archive has no class {name}"
                    + (": custom and quantised classes are not here" if "torch.classes" in name else "")
                )
        else:
            found = _GLOBALS.get(name)
            if found is None:
                raise pickle.UnpicklingError(f"a TorchScript archive may not name {name}")
        self.stack.append(found)

    def _reduce(self) -> None:
        args, f = self.stack.pop(), self.stack[-1]
        if isinstance(f, ScriptType):  # a member of an enum: by its value, in a tuple or not
            args = args if type(args) is tuple else (args,)
            member = [m for m in f.members.values() if len(args) == 1 and type(m.value) is type(args[0])]
            self.stack[-1] = next(m for m in member if m.value == args[0]) if member else None
            if self.stack[-1] is None:
                raise pickle.UnpicklingError(f"{args!r} is no member of {f.name}")
            return
        if type(args) is not tuple or not any(f is each for each in _CALLABLE):
            raise pickle.UnpicklingError(f"a TorchScript archive may not call {f!r}")
        self.stack[-1] = f(*args)

    def _newobj(self) -> None:
        args, cls = self.stack.pop(), self.stack.pop()
        if args != () or not isinstance(cls, ScriptType) or cls.kind not in ("", "Module"):
            raise pickle.UnpicklingError("a TorchScript archive makes objects of its classes only")
        made = LoadedModule(cls) if cls.kind == "Module" else ScriptObject(cls)
        self.stack.append(made)

    def _build(self) -> None:
        state, x = self.stack.pop(), self.stack[-1]
        if not isinstance(x, (LoadedModule, ScriptObject)):
            raise pickle.UnpicklingError("a TorchScript archive gives attributes to objects of its classes only")
        self.objects.append((x, state))


def _typed(x: Any, tag: Any = None) -> Any:
    return x


_TAGS = {f"torch.jit._pickle.{n}" for n in ("build_intlist", "build_tensorlist", "build_doublelist", "build_boollist")}
_GLOBALS: dict[str, Any] = {
    **dict.fromkeys([*_TAGS, "torch.jit._pickle.restore_type_tag"], _typed),
    **{f"torch.{n}Storage": StorageType(f"{n}Storage") for n in StorageType.NAMES},
    "torch._utils._rebuild_tensor_v2": REBUILD["_rebuild_tensor_v2"],
    "collections.OrderedDict": OrderedDict,
    "torch.device": restricted._device,
    "builtins.complex": complex,
}
_CALLABLE = (_typed, _GLOBALS["torch._utils._rebuild_tensor_v2"], OrderedDict, restricted._device, complex)


def _finish(objects: list[Any], program: Program) -> None:
    """Gives objects their attributes, now that all tensors have their values."""
    parameters: dict[int, Parameter] = {}
    for x, state in objects:
        if isinstance(x, LoadedModule) and type(state) is dict:
            for name in x._script.parameters:
                t = state.get(name)
                if isinstance(t, Tensor) and id(t) not in parameters:
                    parameters[id(t)] = Parameter(t.detach(), t.requires_grad)
    for x, state in objects:
        script = x._script
        if "__setstate__" in script.methods:
            script.methods["__setstate__"](x, state)
            continue
        if type(state) is not dict or any(type(k) is not str for k in state):
            raise pickle.UnpicklingError(f"the attributes of a {script.name} are no dict")
        for name, value in state.items():
            if name in RESERVED or "." in name or name not in script.fields:
                raise pickle.UnpicklingError(f"{script.name} has no attribute {name!r}")
            kept = _restored(value, script.fields[name], program, parameters, 0)
            if isinstance(x, LoadedModule) and (isinstance(kept, LoadedModule)):
                x._modules[name] = kept
            elif isinstance(x, LoadedModule) and name in script.parameters:
                x._parameters[name] = kept
            elif isinstance(x, LoadedModule) and name in script.buffers:
                x._buffers[name] = kept
            else:
                x.__dict__[name] = kept
    _check_tree(objects)


def _check_tree(objects: list[Any]) -> None:
    """RuntimeError for a module that is inside of itself."""
    state: dict[int, bool] = {}
    for root, _ in objects:
        todo = [(root, False)]
        while todo:
            x, done = todo.pop()
            if done:
                state[id(x)] = True
            elif id(x) not in state:
                state[id(x)] = False
                todo.append((x, True))
                todo.extend((m, False) for m in getattr(x, "_modules", {}).values())
            elif not state[id(x)]:
                raise RuntimeError("a module of the TorchScript archive is inside of itself")


def _restored(x: Any, kind: Any, program: Program, parameters: dict[int, Parameter], depth: int) -> Any:
    """A value of the pickle as its declared type has it: a named tuple, and the parameters that lists share."""
    if depth > 50:
        raise pickle.UnpicklingError("values are nested too deeply")
    if isinstance(x, Tensor):
        return parameters.get(id(x), x)
    again = [None] if kind is None else _inside(kind, x)
    if isinstance(x, list):
        x[:] = [_restored(v, again[0], program, parameters, depth + 1) for v in x]
    elif isinstance(x, dict):
        for k, v in list(x.items()):
            x[k] = _restored(v, again[-1], program, parameters, depth + 1)
    elif type(x) is tuple:
        kinds = again if len(again) == len(x) else [None] * len(x)
        made = tuple(_restored(v, k, program, parameters, depth + 1) for v, k in zip(x, kinds, strict=True))
        script = program.classes.get(path(kind) or "") if kind is not None else None
        return named_tuple(script, made) if script is not None and script.kind == "NamedTuple" else made
    return x


def _inside(kind: Any, x: Any) -> list[Any]:
    """The types inside of one: of `Optional[List[T]]`, T."""
    while hasattr(kind, "slice"):
        inner = list(kind.slice.elts) if hasattr(kind.slice, "elts") else [kind.slice]
        if path(kind.value) != "Optional":
            return inner
        kind = inner[0]
    return [None]
