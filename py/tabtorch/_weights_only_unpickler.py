"""Reads pickles that can run nothing: an interpreter of the few opcodes that a file of weights needs.

Names in the file are looked up in a table, never imported. What the table has for a name is data, a class that is only
compared, or a function that makes nothing but values. The messages are those of PyTorch's own restricted unpickler.
"""

from __future__ import annotations

import struct
import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from functools import lru_cache
from pickle import UnpicklingError, decode_long
from typing import Any

from tabtorch import _lazy
from tabtorch._utils import REBUILD, NoDtype, UnsupportedDtype, _rebuild_from_type_v2
from tabtorch.base import dtypes
from tabtorch.base.device import device as Device
from tabtorch.core.tensor import Tensor
from tabtorch.engine.view import Size
from tabtorch.nn.parameter import Parameter
from tabtorch.storage import StorageType, TypedStorage, UntypedStorage

#: modules from which nothing is allowed, whoever says that it is safe
BLOCKED = ("sys", "os", "posix", "nt")

_safe: set[Any] = set()


def add(safe_globals: Iterable[Any]) -> None:
    _safe.update(safe_globals)


def remove(safe_globals: Iterable[Any]) -> None:
    _safe.difference_update(safe_globals)


def safe() -> list[Any]:
    return list(_safe)


def clear() -> None:
    _safe.clear()


def of_user() -> dict[str, Any]:
    """What the user has declared safe, by the name it has in a file."""
    found: dict[str, Any] = {}
    for f in _safe:
        if isinstance(f, tuple):
            if len(f) != 2:
                raise ValueError(
                    f"Expected tuple of length 2 (global, str of callable full path), but got tuple of length: {len(f)}"
                )
            if type(f[1]) is not str:
                raise TypeError(f"Expected second item in tuple to be str of callable full path, but got: {type(f[1])}")
            found[f[1]] = f[0]
        else:
            name = f"{f.__module__}.{f.__qualname__}"
            found[name] = f
            if name.startswith("tabtorch."):
                found[name[3:]] = f  # what files call it
    return found


def _encode(text: Any, encoding: Any = "utf-8") -> bytes:
    """`bytes`, as pickles of protocol 2 have them."""
    if type(text) is not str or encoding not in ("latin1", "latin-1", "utf-8", "ascii"):
        raise UnpicklingError(f"_codecs.encode is not called with a text and {encoding!r} by any file of weights")
    return text.encode(encoding)


def _bytearray(*args: Any) -> bytearray:
    if args and type(args[0]) is int:
        raise UnpicklingError("bytearray of a size is in no file of weights")
    return bytearray(*args)


def _packed(*args: Any) -> Any:
    """A weight that stays packed: it looks at its parts itself."""
    try:
        return _lazy.packed.rebuild(*args)
    except (ValueError, TypeError) as e:
        raise UnpicklingError(f"a packed weight cannot be made of this: {e}") from None


def _device(*args: Any) -> Device:
    """A device that a file names: CUDA's is the GPU that is here."""
    if args and type(args[0]) is str and args[0].partition(":")[0] in ("cuda", "webgpu"):
        return Device("webgpu", 0)
    return Device(*args)


def _size(shape: Any = ()) -> Size:
    if not all(type(n) is int for n in shape):
        raise UnpicklingError(f"torch.Size of {shape!r} is in no file of weights")
    return Size(shape)


def _layout(name: str) -> Any:
    value = getattr(_lazy.torch, str(name).removeprefix("torch."), None)
    if not isinstance(value, _lazy.torch.layout):
        raise UnpicklingError(f"{name!r} is no layout")
    return value


@lru_cache(maxsize=1)
def allowed() -> dict[str, Any]:
    """The names that need nobody's word."""
    found: dict[str, Any] = {
        "collections.OrderedDict": OrderedDict,
        "collections.Counter": Counter,
        "torch.nn.parameter.Parameter": Parameter,
        "torch.serialization._get_layout": _layout,
        "torch.Size": _size,
        "torch.Tensor": Tensor,
        "torch.device": _device,
        "_codecs.encode": _encode,
        "builtins.bytearray": _bytearray,
        "builtins.set": set,
        "builtins.complex": complex,
        "torch.storage.UntypedStorage": UntypedStorage,
        "torch.storage.TypedStorage": TypedStorage,
        "torch._tensor._rebuild_from_type_v2": _rebuild_from_type_v2,
        "torch.packed.weight.rebuild": _packed,
    }
    found |= {f"torch.{name}": dtypes.PUBLIC.get(name) or NoDtype(name) for name in NAMES}
    found |= {f"torch.{name}Storage": StorageType(f"{name}Storage") for name in StorageType.NAMES}
    found |= {f"torch.cuda.{name}Storage": found[f"torch.{name}Storage"] for name in _OF_CUDA}
    found |= {f"torch._utils.{name}": f for name, f in REBUILD.items()}
    return found


#: PyTorch's dtypes, those included that are not here
NAMES = (
    "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64 complex128 complex32 uint16 uint32 uint64 "
    "float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz float8_e8m0fnu float4_e2m1fn_x2 bits8 bits16 bits1x8 bits2x4 "
    "bits4x2 qint8 quint8 qint32 quint4x2 quint2x4"
).split() + [f"{kind}{n}" for kind in ("int", "uint") for n in range(1, 8)]

#: types of storages that files from before PyTorch 1.6 name as they were on the GPU
_OF_CUDA = "BFloat16 Bool Byte Char ComplexDouble ComplexFloat Double Float Half Int Long Short".split()


#: what a file may name but has no reason to call
_NEVER_CALLED = (Tensor, UntypedStorage, TypedStorage)


#: types that a file may make and give no attributes
_PLAIN = (Counter, set, bytearray, complex, UntypedStorage, TypedStorage)


@lru_cache(maxsize=1)
def _callable() -> dict[int, Any]:
    """What a file may call, by identity: what is compared otherwise could say that it is equal."""
    return {id(v): v for v in allowed().values() if callable(v) and not any(v is each for each in _NEVER_CALLED)}


def old_name(module: str, name: str) -> tuple[str, str]:
    """A name of Python 2, which protocol 2 writes, as Python 3 has it."""
    from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING

    if (module, name) in NAME_MAPPING:
        return NAME_MAPPING[module, name]
    return IMPORT_MAPPING.get(module, module), name


class Unpickler:
    """Reads one pickle off `file`, which has `read` and `readline`. `persistent_load` gives the storages.

    UnpicklingError for what is not allowed, or damaged; EOFError where it ends too soon.
    """

    persistent_load: Callable[[Any], Any]

    def __init__(self, file: Any, *, encoding: str = "utf-8") -> None:
        self.file = file
        self.encoding = encoding
        self.memo: dict[int, Any] = {}
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.depths: dict[int, int] = {}

    def load(self) -> Any:
        self.user = of_user()
        self.callables = _callable() | {id(f): f for f in self.user.values()}
        read = self._read
        try:
            while True:
                op = read(1)[0]
                if op == 46:  # STOP
                    return self.stack.pop()
                act = _ACTS.get(op)
                if act is None:
                    raise UnpicklingError(f"Unsupported operand {op}")
                act(self)
        except UnsupportedDtype as error:
            raise UnsupportedDtype(f"{error}{self._where()}") from None
        except (IndexError, KeyError, AttributeError, TypeError, ValueError, struct.error, AssertionError) as error:
            raise UnpicklingError(
                f"the pickle is damaged, or not one of weights: {type(error).__name__}: {error}"
            ) from None

    def _where(self) -> str:
        """Which entry is being made: the last text on the stack."""
        for level in (self.stack, *reversed(self.marks)):
            for x in reversed(level):
                if type(x) is str:
                    return f": the checkpoint's tensor {x!r} has this type"
        return ""

    def _read(self, n: int) -> bytes:
        data: bytes = self.file.read(n)
        if len(data) < n:
            raise EOFError("the pickle ends too soon")
        return data

    def _line(self) -> str:
        line: bytes = self.file.readline(4096)
        if not line.endswith(b"\n"):
            raise EOFError("the pickle ends too soon")
        return line[:-1].decode("utf-8")

    def _number(self, layout: str) -> Any:
        return struct.unpack(layout, self._read(struct.calcsize(layout)))[0]

    # -- what could be abused

    def _global(self) -> None:
        module, name = old_name(self._line(), self._line())
        path = f"{module}.{name}"
        if module in BLOCKED:
            raise UnpicklingError(f"Trying to load unsupported GLOBAL {path} whose module {module} is blocked.")
        for table in (allowed(), self.user):
            if path in table:
                self.stack.append(table[path])
                return
        shown = path.removeprefix("builtins.")
        raise UnpicklingError(
            f"Unsupported global: GLOBAL {shown} was not an allowed global by default. Please use "
            f"`torch.serialization.add_safe_globals([{shown}])` or the `torch.serialization.safe_globals([{shown}])` context "
            "manager to allowlist this global if you trust this class/function."
        )

    def _reduce(self) -> None:
        args = self.stack.pop()
        f = self.stack[-1]
        if id(f) not in self.callables:
            message = f"Trying to call reduce for unrecognized function {f}"
            raise UnpicklingError(message + (f" which belongs to {f.__self__}" if hasattr(f, "__self__") else ""))
        if type(args) is not tuple:
            raise UnpicklingError(f"the arguments of {f} are no tuple")
        self.stack[-1] = f(*args)

    def _newobj(self) -> None:
        args = self.stack.pop()
        cls = self.stack.pop()
        if type(args) is not tuple:
            raise UnpicklingError(f"the arguments of {cls} are no tuple")
        if cls is Parameter:
            self.stack.append(Parameter(*args))
        elif isinstance(cls, type) and id(cls) in self.callables:
            self.stack.append(cls.__new__(cls, *args))
        else:
            raise UnpicklingError(
                "Can only create new object for nn.Parameter or classes allowlisted "
                f"via `add_safe_globals` but got {cls}"
            )

    def _build(self) -> None:
        state = self.stack.pop()
        x = self.stack[-1]
        if type(x) is OrderedDict:
            if type(state) is not dict:
                raise UnpicklingError(f"the attributes of an OrderedDict are no dict, but {type(state)}")
            x.__dict__.update(state)
        elif type(x) in _PLAIN and not state:
            pass
        elif any(type(x) is each for each in self.user.values()):
            if hasattr(x, "__setstate__"):
                x.__setstate__(state)
                return
            slots = None
            if isinstance(state, tuple) and len(state) == 2:
                state, slots = state
            if state:
                x.__dict__.update(state)
            for name, value in (slots or {}).items():
                setattr(x, name, value)
        else:
            raise UnpicklingError(
                "Can only build Tensor, Parameter, OrderedDict or types allowlisted "
                f"via `add_safe_globals`, but got {type(x)}"
            )

    def _persistent(self) -> None:
        pid = self.stack.pop()
        if type(pid) is not tuple and type(pid) is not int:
            raise UnpicklingError(f"persistent_load id must be tuple or int, but got {type(pid)}")
        if type(pid) is tuple and pid and pid[0] not in ("storage", b"storage"):
            raise UnpicklingError(f"Only persistent_load of storage is allowed, but got {type(pid[0])}")
        self.stack.append(self.persistent_load(pid))

    # -- containers

    def _mark(self) -> None:
        self.marks.append(self.stack)
        self.stack = []

    def _since_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.marks.pop()
        return items

    def _append(self) -> None:
        item = self.stack.pop()
        if type(self.stack[-1]) is not list:
            raise UnpicklingError(f"Can only append to lists, but got {type(self.stack[-1])}")
        self.stack[-1].append(item)

    def _appends(self) -> None:
        items = self._since_mark()
        if type(self.stack[-1]) is not list:
            raise UnpicklingError(f"Can only extend lists, but got {type(self.stack[-1])}")
        self.stack[-1].extend(items)

    def _set(self, items: list[Any], op: str) -> None:
        target = self.stack[-1]
        if type(target) not in (dict, OrderedDict, Counter):
            raise UnpicklingError(
                f"Can only {op} for dict, collections.OrderedDict, collections.Counter, but got {type(target)}"
            )
        for i in range(0, len(items), 2):
            target[items[i]] = items[i + 1]

    def _setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._set([key, value], "SETITEM")

    def _setitems(self) -> None:
        self._set(self._since_mark(), "SETITEMS")

    def _tuple(self) -> None:
        items = self._since_mark()
        self.stack.append(self._tuple_with(items))

    def _tuple_with(self, items: list[Any]) -> tuple[Any, ...]:
        """A tuple that is not so deep that Python could not take its hash, which would end the process."""
        made = tuple(items)
        depth = 1 + max((self.depths.get(id(x), 0) for x in items if type(x) is tuple), default=0)
        if depth > 200:
            raise UnpicklingError("tuples are nested too deeply for a file of weights")
        self.depths[id(made)] = depth
        return made

    def _tuple_of(self, n: int) -> None:
        if len(self.stack) < n:
            raise UnpicklingError("the pickle is damaged: a tuple of more than there is")
        self.stack[-n:] = [self._tuple_with(self.stack[-n:])]

    # -- values

    def _text(self) -> None:
        self.stack.append(str(self._read(self._number("<I")), "utf-8", "surrogatepass"))

    def _old_text(self) -> None:
        data = self._read(self._number("B"))
        self.stack.append(data if self.encoding == "bytes" else data.decode(self.encoding))

    def _get(self, layout: str) -> None:
        self.stack.append(self.memo[self._number(layout)])

    def _put(self, layout: str) -> None:
        self.memo[self._number(layout)] = self.stack[-1]

    def _long(self) -> None:
        self.stack.append(decode_long(self._read(self._number("B"))))

    def _proto(self) -> None:
        version = self._number("B")
        if version != 2:
            warnings.warn(
                f"Detected pickle protocol {version} in the checkpoint, which was "
                "not the default pickle protocol used by `torch.load` (2). The weights_only "
                "Unpickler might not support all instructions implemented by this protocol, "
                "please file an issue for adding support if you encounter this.",
                stacklevel=2,
            )


def _constant(make: Callable[[], Any]) -> Callable[[Unpickler], None]:
    return lambda u: u.stack.append(make())


def _numeric(layout: str) -> Callable[[Unpickler], None]:
    return lambda u: u.stack.append(u._number(layout))


#: opcode -> what it does; every other one is refused
_ACTS: dict[int, Callable[[Unpickler], None]] = {
    ord(op): act
    for op, act in {
        "\x80": Unpickler._proto,
        "c": lambda u: u._global(),  # TorchScript's archives have their own
        "R": lambda u: u._reduce(),
        "\x81": lambda u: u._newobj(),
        "b": lambda u: u._build(),
        "Q": Unpickler._persistent,
        "(": Unpickler._mark,
        "a": Unpickler._append,
        "e": Unpickler._appends,
        "s": Unpickler._setitem,
        "u": Unpickler._setitems,
        "t": Unpickler._tuple,
        "\x85": lambda u: u._tuple_of(1),
        "\x86": lambda u: u._tuple_of(2),
        "\x87": lambda u: u._tuple_of(3),
        "N": _constant(lambda: None),
        "\x88": _constant(lambda: True),
        "\x89": _constant(lambda: False),
        ")": _constant(tuple),
        "]": _constant(list),
        "}": _constant(dict),
        "\x8f": _constant(set),
        "J": _numeric("<i"),
        "K": _numeric("B"),
        "M": _numeric("<H"),
        "G": _numeric(">d"),
        "X": Unpickler._text,
        "U": Unpickler._old_text,
        "h": lambda u: u._get("B"),
        "j": lambda u: u._get("<I"),
        "q": lambda u: u._put("B"),
        "r": lambda u: u._put("<I"),
        "\x8a": Unpickler._long,
    }.items()
}


def names_in(file: Any) -> set[str]:
    """The names that the pickle in `file` asks for, found without running it."""
    from pickletools import genops

    found: set[str] = set()
    texts: list[str] = []
    for op, arg, _ in genops(file):
        if op.name in ("GLOBAL", "INST"):
            module, _, name = str(arg).partition(" ")
            found.add(".".join(old_name(module, name)))
        elif op.name == "STACK_GLOBAL":
            found.add(".".join(texts[-2:]))
        elif isinstance(arg, str):
            texts.append(arg)
    return found
