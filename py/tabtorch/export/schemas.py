"""ATen's schemas: which overload a call by public name is, and its arguments by the names that the schema has for them."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tabtorch.base import device as devices
from tabtorch.base import dtypes
from tabtorch.core import layout
from tabtorch.core.tensor import Tensor
from tabtorch.engine.symbols import Real, Symbol
from tabtorch.export.graphs import DEVICE
from tabtorch.export.schemas_table import TABLE

_OPTIONS = "*,d? dtype=None,l? layout=None,D? device=None,b? pin_memory=None"
#: how the public functions call arguments that the schemas call otherwise
_ALIASES = {"axis": "dim", "keepdims": "keepdim", "dims": "dim", "size": "shape", "shape": "size", "x": "self"}
REQUIRED: Any = object()


class Parameter(NamedTuple):
    """kind: a letter of the table (T tensor, S scalar, i f b s numbers and text, d dtype, m memory format, l layout, D device, G
    generator). many: a list of those; length: of so many, where one number stands for all. optional: may be None."""

    name: str
    kind: str
    many: bool
    length: int
    optional: bool
    elements_optional: bool
    default: Any
    keyword: bool


class Schema(NamedTuple):
    name: str
    overload: str
    parameters: tuple[Parameter, ...]
    #: how many tensors it gives; 0: a list of them
    results: int

    @property
    def target(self) -> str:
        return f"torch.ops.aten.{self.name}.{self.overload or 'default'}"

    def named(self, bound: dict[str, Any]) -> Any:
        return [bound.get(p.name) for p in self.parameters]


def _parameter(text: str, keyword: bool) -> Parameter:
    kind, _, rest = text.partition(" ")
    name, _, default = rest.partition("=")
    optional = kind.endswith("?")
    kind = kind.removesuffix("?")
    inner, _, count = kind.partition("[")
    value: Any = REQUIRED
    if default:
        value = (
            {"Mean": 1, "contiguous_format": 0, "inf": float("inf")}[default]
            if default in ("Mean", "contiguous_format", "inf")
            else ast.literal_eval(default)
        )
    size = count.rstrip("]")
    return Parameter(
        name, inner[0], bool(count), int(size) if size else 0, optional, inner.endswith("?"), value, keyword
    )


def _split(text: str) -> Iterator[str]:
    """At commas that are not in brackets."""
    depth, start = 0, 0
    for i, c in enumerate(text):
        depth += (c == "[") - (c == "]")
        if c == "," and not depth:
            yield text[start:i]
            start = i + 1
    if text[start:]:
        yield text[start:]


def _schema(name: str, text: str) -> Schema:
    overload, _, rest = text.partition("(")
    inside, _, results = rest.rpartition(")")
    found, keyword = [], False
    for part in _split(inside.replace("%", _OPTIONS)):
        if part == "*":
            keyword = True
        else:
            found.append(_parameter(part, keyword))
    results = results.removeprefix(">")
    return Schema(name, overload, tuple(found), 0 if results == "T[]" else int(results or 1))


@functools.cache
def _lines() -> dict[str, str]:
    found = {}
    for line in TABLE.split(";"):
        name, _, rest = line.strip("\n").partition(" ")
        found[name] = rest
    return found


@functools.cache
def schemas(name: str) -> tuple[Schema, ...]:
    """The overloads of an operator, those of tensors first; none where the table has none."""
    text = _lines().get(name) or (_lines().get(name[:-1]) if name.endswith("_") else None)
    return tuple(_schema(name, part) for part in text.split("|")) if text else ()


@functools.cache
def schema(target: str) -> Schema | None:
    """That of "torch.ops.aten.add.Tensor"."""
    *_, name, overload = target.split(".")
    overload = "" if overload == "default" else overload
    return next((s for s in schemas(name) if s.overload == overload), None)


class _No(Exception):
    """The arguments are not those of this overload."""


def bind(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Schema, dict[str, Any]] | None:
    """The overload that takes these arguments, and the arguments by name, without those that are the defaults. None: none does."""
    for numbers in (False, True):  # a number in the place of a tensor, as Python has it, where nothing else takes it
        for s in schemas(name):
            try:
                return s, _bound(s, args, kwargs, numbers)
            except _No:
                continue
    return None


def _bound(s: Schema, args: Sequence[Any], kwargs: dict[str, Any], numbers: bool) -> dict[str, Any]:
    positional = [p for p in s.parameters if not p.keyword]
    args = list(args)
    first = 1 if positional and positional[0].kind == "T" and not positional[0].many else 0
    rest = positional[first:]
    if len(rest) == 1 and rest[0].many and rest[0].kind == "i" and len(args) > first + 1:
        args[first:] = [args[first:]]  # view(2, 3)
    elif (
        len(rest) == 1
        and rest[0].many
        and rest[0].kind == "i"
        and len(args) > first
        and type(args[first]) in (int, Symbol)
    ):
        args[first] = [args[first]]  # flip(1)
    if len(args) > len(positional):
        raise _No
    given = {p.name: x for p, x in zip(positional, args)}
    names = {p.name for p in s.parameters}
    for key, x in kwargs.items():
        name = key
        if name not in names:
            name = "self" if key in ("input", "tensor") and "self" in names else _ALIASES.get(key, key)
        if name not in names:
            if x is None or (key in ("requires_grad", "pin_memory") and x is False):
                continue
            raise _No
        if name in given:
            raise _No
        given[name] = x
    out = {}
    for p in s.parameters:
        if p.name not in given:
            if p.default is REQUIRED:
                raise _No
            continue
        x = _value(p, given[p.name], numbers)
        if p.kind not in "lG" and not (p.default is not REQUIRED and _same(x, p.default)):
            out[p.name] = x
    return out


def _same(x: Any, default: Any) -> bool:
    return type(x) is type(default) and not isinstance(x, list) and x == default


def _value(p: Parameter, x: Any, numbers: bool) -> Any:
    if x is None:
        if p.optional or p.default is None:
            return None
        if p.many and p.default == []:
            return []
        raise _No
    if not p.many:
        return _one(p.kind, x, numbers)
    if isinstance(x, (list, tuple)):
        if p.elements_optional:
            return [None if y is None else _one(p.kind, y, False) for y in x]
        return [_one(p.kind, y, False) for y in x]
    if p.length and type(x) in (int, Symbol):
        return [x] * p.length
    raise _No


def _one(kind: str, x: Any, numbers: bool) -> Any:
    t = type(x)
    if kind == "T":
        good = isinstance(x, Tensor) or (numbers and t in (int, float, bool, Symbol, Real))
    elif kind == "S":
        good = t in (int, float, bool, complex, Symbol, Real)
    elif kind == "i":
        good = t in (int, Symbol)
    elif kind == "f":
        good = t in (int, float, Symbol, Real)
        x = float(x) if t is int else x
    elif kind == "b":
        good = t is bool
    elif kind == "s":
        good = t is str
    elif kind == "d":
        x = {float: dtypes.get_default_dtype(), int: dtypes.int64, bool: dtypes.bool_}.get(x, x)
        good = isinstance(x, dtypes.dtype)
    elif kind == "m":
        good = isinstance(x, layout.memory_format)
    elif kind == "D":
        good = isinstance(x, (str, devices.device, int))
        x = DEVICE
    else:
        good = True
    if not good:
        raise _No
    return x
