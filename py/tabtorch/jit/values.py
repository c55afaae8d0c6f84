"""What a TorchScript archive's values are here: modules, objects of its classes, named tuples, enums, and types."""

from __future__ import annotations

import ast
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from tabtorch.base.device import device as Device
from tabtorch.core.tensor import Tensor
from tabtorch.jit import RecursiveScriptClass, RecursiveScriptModule

#: attributes of every `nn.Module` that an archive may not set
RESERVED = {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_script"}


class ScriptType:
    """A class of an archive. `kind`: "Module", "NamedTuple", "Enum", "Interface", or "" for a plain class."""

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.kind = kind
        self.fields: dict[str, ast.expr] = {}
        self.parameters: set[str] = set()
        self.buffers: set[str] = set()
        self.constants: dict[str, Any] = {}
        self.methods: dict[str, Callable[..., Any]] = {}
        self.members: dict[str, Any] = {}
        self.source: dict[str, str] = {}

    def __deepcopy__(self, memo: Any) -> ScriptType:
        return self


class ScriptObject(RecursiveScriptClass):
    """An object of a class that is no module."""

    def __init__(self, script: ScriptType) -> None:
        self._script = script

    def __getattr__(self, name: str) -> Any:
        method = None if name.startswith("_script") else self._script.methods.get(name)
        if method is None:
            raise AttributeError(f"{name!r} is no attribute of this TorchScript object")
        return lambda *args, **kw: method(self, *args, **kw)


class EnumMember:
    """A member of an enum: equal to itself only."""

    def __init__(self, script: ScriptType, name: str, value: Any) -> None:
        self._script = script
        self.name = name
        self.value = value

    def __deepcopy__(self, memo: Any) -> EnumMember:
        return self

    def __repr__(self) -> str:
        return f"<{self._script.name.rpartition('.')[2]}.{self.name}: {self.value!r}>"


class NamedTuple(tuple[Any, ...]):
    """A tuple whose elements have names too."""

    _script: ScriptType

    @property
    def _fields(self) -> tuple[str, ...]:
        return tuple(self._script.fields)

    def __getattr__(self, name: str) -> Any:
        if name in RESERVED or name not in self._script.fields:
            raise AttributeError(name)
        return self[list(self._script.fields).index(name)]


def named_tuple(script: ScriptType, values: Any) -> NamedTuple:
    """RuntimeError where there are too many or too few values."""
    made = NamedTuple(values)
    if len(made) != len(script.fields):
        raise RuntimeError(f"{script.name} has {len(script.fields)} elements, but {len(made)} were given")
    made._script = script
    return made


class LoadedModule(RecursiveScriptModule):
    """A module of an archive: an `nn.Module` whose methods are those of the archive."""

    def __init__(self, script: ScriptType) -> None:
        super().__init__()
        self.__dict__["_script"] = script

    @property
    def original_name(self) -> str:
        return self._script.name.rpartition(".")[2]

    @property
    def code(self) -> str:
        """The text of `forward`."""
        return self._script.source.get("forward", "")

    @property
    def graph(self) -> Any:
        """RuntimeError: there is no graph of TorchScript here."""
        raise RuntimeError("tabtorch walks a TorchScript archive's code and has no graph of it: see `code`")

    def forward(self, *args: Any, **kw: Any) -> Any:
        method = self._script.methods.get("forward")
        if method is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute 'forward'")
        return method(self, *args, **kw)

    def __getattr__(self, name: str) -> Any:
        script = self.__dict__.get("_script")
        method = script.methods.get(name) if script is not None else None
        if method is not None:
            return lambda *args, **kw: method(self, *args, **kw)
        if script is not None and name in script.constants:
            return script.constants[name]
        return super().__getattr__(name)

    def extra_repr(self) -> str:
        return f"original_name={self.original_name}"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError("ScriptModules cannot be pickled: save their state_dict()")

    def __deepcopy__(self, memo: dict[int, Any]) -> LoadedModule:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        made.__dict__.update({k: deepcopy(v, memo) for k, v in self.__dict__.items()})
        return made


def attribute(x: Any, name: str) -> Any:
    """`x.name` of a value of the archive, never of anything else. RuntimeError."""
    if isinstance(x, (LoadedModule, ScriptObject)):
        script = x._script
        if name in script.constants and name not in x.__dict__:
            return script.constants[name]
        if name in script.fields and name not in RESERVED:
            if isinstance(x, LoadedModule):
                for table in (x._parameters, x._buffers, x._modules):
                    if name in table:
                        return table[name]
            if name in x.__dict__:
                return x.__dict__[name]
    elif (isinstance(x, NamedTuple) and name in x._script.fields) or (
        isinstance(x, EnumMember) and name in ("name", "value")
    ):
        return getattr(x, name)
    raise RuntimeError(f"a TorchScript value of type {type(x).__name__} has no attribute {name!r}")


def set_attribute(x: Any, name: str, value: Any) -> None:
    if not isinstance(x, (LoadedModule, ScriptObject)) or name not in x._script.fields or name in RESERVED:
        raise RuntimeError(f"a TorchScript value of type {type(x).__name__} has no attribute {name!r} to set")
    if isinstance(x, LoadedModule):
        for table in (x._parameters, x._buffers, x._modules):
            if name in table:
                table[name] = value
                return
    x.__dict__[name] = value


#: types that are told by Python's class
_PLAIN = {"int": int, "float": float, "bool": bool, "str": str, "complex": complex, "Device": Device}


def is_a(x: Any, kind: ast.expr, find: Callable[[str], Any]) -> bool:
    """Whether a value is of a type, as TorchScript writes it. RuntimeError where an empty container does not tell."""
    if isinstance(kind, ast.Tuple):
        return any(is_a(x, each, find) for each in kind.elts)
    if isinstance(kind, ast.Constant) and kind.value is None:
        return x is None
    if isinstance(kind, ast.Name):
        name = kind.id
        if name in _PLAIN:
            return type(x) is _PLAIN[name] if name != "Device" else isinstance(x, Device)
        if name in ("number", "Scalar"):
            return type(x) in (int, float, bool, complex)
        if name == "NoneType":
            return x is None
        return isinstance(x, Tensor) if name == "Tensor" else name == "Any"
    if isinstance(kind, ast.Attribute):
        script = getattr(x, "_script", None)
        return isinstance(script, ScriptType) and script.name == ast.unparse(kind)
    if isinstance(kind, ast.Subscript) and isinstance(kind.value, ast.Name):
        inner = kind.slice.elts if isinstance(kind.slice, ast.Tuple) else [kind.slice]
        head = kind.value.id
        if head == "Optional":
            return x is None or is_a(x, inner[0], find)
        if head == "Union":
            return any(is_a(x, each, find) for each in inner)
        if head == "Tuple":
            return isinstance(x, tuple) and len(x) == len(inner) and all(map(lambda v, k: is_a(v, k, find), x, inner))
        if head in ("List", "Dict"):
            if not isinstance(x, (list, dict)) or isinstance(x, list) is not (head == "List"):
                return False
            if not x:
                raise RuntimeError("tabtorch cannot tell the type of what an empty TorchScript container would have")
            if isinstance(x, list):
                return all(is_a(v, inner[0], find) for v in x)
            return all(is_a(k, inner[0], find) and is_a(v, inner[1], find) for k, v in x.items())
    raise RuntimeError(f"tabtorch does not know the TorchScript type {ast.unparse(kind)}")
