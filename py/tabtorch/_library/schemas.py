"""Schemas of operators, read from their text: "ns::name.overload(Tensor x, *, int n=2) -> Tensor", and arguments bound by them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from tabtorch.base import dtypes
from tabtorch.base.device import device
from tabtorch.core.tensor import Tensor
from tabtorch.engine.symbols import Real, Symbol
from tabtorch.utils._pytree import tree_leaves

#: PyTorch's numbers of dtypes, which its schemas show as defaults
_CODES = "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool qint8 quint8 qint32 bfloat16"
_CODE = {name: i for i, name in enumerate(_CODES.split())}
_ALIAS = re.compile(r"\(([\w|* ]*?)(!?)( *-> *[\w|* ]+)?\)")
_ARGUMENT = re.compile(r"^(?P<type>.+?)\s+(?P<name>\w+)\s*(?:=\s*(?P<default>.*))?$")
_SIZED = re.compile(r"\[(\d+)\]")
_NAMES = {"SymInt": "int", "Scalar": "number", "ScalarType": "int", "SymBool": "bool"}


class AliasInfo(NamedTuple):
    """`(a!)`: the names of the memory, and whether it is written."""

    before_set: frozenset[str]
    is_write: bool


class Argument:
    """One argument, or one result, of a schema."""

    def __init__(self, type_text: str, name: str, default: str | None, kwarg_only: bool) -> None:
        self.text, self.name, self.kwarg_only = type_text, name, kwarg_only
        found = _ALIAS.search(type_text)
        self.alias_info = None if found is None else AliasInfo(frozenset(found[1].split("|")), bool(found[2]))
        self.plain = _ALIAS.sub("", type_text)
        sized = _SIZED.search(self.plain)
        self.N = None if sized is None else int(sized[1])
        self.type = _named(_SIZED.sub("[]", self.plain))
        self._default = default
        self.default_value = None if default is None else _value(self.plain, default)

    @property
    def is_out(self) -> bool:
        """Whether it is given by keyword only, and written."""
        return self.kwarg_only and self.is_write

    @property
    def is_write(self) -> bool:
        """Whether the operator writes to it."""
        return self.alias_info is not None and self.alias_info.is_write

    def has_default_value(self) -> bool:
        """Whether it may be left out."""
        return self._default is not None

    def __str__(self) -> str:
        shown = "" if self._default is None else f"={_shown(self.plain, self._default)}"
        return f"{self.text} {self.name}{shown}" if self.name else self.text


def _named(plain: str) -> str:
    """The name of a type in messages."""
    if plain.endswith("?"):
        return f"Optional[{_named(plain[:-1])}]"
    if plain.endswith("[]"):
        return f"List[{_named(plain[:-2])}]"
    return _NAMES.get(plain, plain)


def _value(plain: str, default: str) -> Any:
    if default in _CODE and plain.startswith("ScalarType"):
        return getattr(dtypes, default, None) or _CODE[default]
    try:
        value = ast.literal_eval(default)
    except (ValueError, SyntaxError):
        return default
    if value is not None and plain.startswith("float") and not isinstance(value, list):
        return float(value)
    return value


def _shown(plain: str, default: str) -> str:
    value = _value(plain, default)
    if isinstance(value, float):
        return f"{value:g}" if value % 1 or abs(value) > 1e5 else f"{int(value)}."
    return str(_CODE[default]) if default in _CODE and plain.startswith("ScalarType") else default


def _split(text: str) -> list[str]:
    """At the commas that are in no brackets."""
    parts, depth, begin, quoted = [], 0, 0, False
    for i, c in enumerate(text):
        if c == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif c in "([":
            depth += 1
        elif c in ")]":
            depth -= 1
        elif c == "," and not depth:
            parts.append(text[begin:i].strip())
            begin = i + 1
    last = text[begin:].strip()
    return [*parts, last] if last else parts


class FunctionSchema:
    """What an operator takes and gives. `str` of it is the schema as PyTorch shows it."""

    def __init__(self, text: str) -> None:
        head, bracket, rest = text.partition("(")
        end = _closing(rest)
        arrow, _, returns = rest[end + 1 :].partition("->")
        if not bracket or end < 0 or arrow.strip() or not returns.strip():
            raise RuntimeError(f"expected a schema like 'name(Tensor x) -> Tensor', but found:\n{text}")
        self.name, _, self.overload_name = head.strip().partition(".")
        self.arguments: list[Argument] = []
        keyword = False
        for part in _split(rest[:end]):
            if part == "*":
                keyword = True
                continue
            found = _ARGUMENT.match(part)
            if found is None:
                raise RuntimeError(f"expected a type and a name, but found {part!r} here:\n{text}")
            self.arguments.append(Argument(found["type"], found["name"], found["default"], keyword))
        returns = returns.strip()
        inner = returns[1:-1] if returns.startswith("(") and _closing(returns[1:]) == len(returns) - 2 else returns
        self.returns: list[Argument] = []
        for part in _split(inner):
            found = _ARGUMENT.match(part)
            kind, name = (found["type"], found["name"]) if found else (part, "")
            self.returns.append(Argument(kind, name, None, False))
        self.positional = [a for a in self.arguments if not a.kwarg_only]
        self.keywords = [a for a in self.arguments if a.kwarg_only]

    @property
    def is_mutable(self) -> bool:
        """Whether it writes to an argument."""
        return any(a.is_write for a in self.arguments)

    def _is_view_op(self) -> bool:
        """Whether a result is a view of an argument."""
        return not self.is_mutable and any(a.alias_info is not None for a in self.returns)

    def __str__(self) -> str:
        parts = [str(a) for a in self.positional]
        parts += ["*", *(str(a) for a in self.keywords)] if self.keywords else []
        returns = ", ".join(str(r) for r in self.returns)
        if len(self.returns) != 1:
            returns = f"({returns})"
        name = f"{self.name}.{self.overload_name}" if self.overload_name else self.name
        return f"{name}({', '.join(parts)}) -> {returns}"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionSchema) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments as kernels get them: those by keyword only in a dict, the others in order. RuntimeError for wrong ones."""
        if len(args) > len(self.positional):
            raise RuntimeError(
                f"{self.name}() expected at most {len(self.arguments)} argument(s) but received "
                f"{len(args) + len(kwargs)} argument(s). Declaration: {self}"
            )
        left = dict(kwargs)
        given: list[Any] = []
        for i, a in enumerate(self.arguments):
            if i < len(args):
                if a.name in left:
                    raise RuntimeError(
                        f"Argument '{a.name}' specified both as positional and keyword argument. Schema: {self}"
                    )
                given.append(self._cast(i, a, args[i]))
            elif a.name in left:
                given.append(self._cast(i, a, left.pop(a.name)))
            elif a.has_default_value():
                given.append(a.default_value)
            else:
                raise RuntimeError(f"{self.name}() is missing value for argument '{a.name}'. Declaration: {self}")
        for name in left:
            raise RuntimeError(f"Unknown keyword argument '{name}' for operator '{self.name}'. Schema: {self}")
        n = len(self.positional)
        return given[:n], {a.name: v for a, v in zip(self.keywords, given[n:])}

    def without_defaults(self, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The same without what only repeats defaults: kernels need not take it."""
        n = len(args)
        while (
            n
            and self.positional[n - 1].has_default_value()
            and _same(args[n - 1], self.positional[n - 1].default_value)
        ):
            n -= 1
        keywords = {a.name: a for a in self.keywords}
        kept = {
            k: v
            for k, v in kwargs.items()
            if not (keywords[k].has_default_value() and _same(v, keywords[k].default_value))
        }
        return args[:n], kept

    def _cast(self, i: int, a: Argument, value: Any) -> Any:
        try:
            return _cast(a.plain, value)
        except (TypeError, ValueError) as e:
            raise RuntimeError(
                f"{self.name}() Expected a value of type '{a.type}' for argument '{a.name}' but instead found type "
                f"'{type(value).__name__}'.\nPosition: {i}\nValue: {value!r}\nDeclaration: {self}\nCast error details: {e}"
            ) from None


def _closing(text: str) -> int:
    """Where the bracket closes that was opened before the text, or -1."""
    depth = 1
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if not depth:
            return i
    return -1


def _same(value: Any, default: Any) -> bool:
    return value is default or (
        type(value) is type(default) and not isinstance(value, Tensor) and bool(value == default)
    )


def _integer(value: Any) -> Any:
    if isinstance(value, Tensor):
        return int(value)
    return value if isinstance(value, int | Symbol | Real) else value.__index__()


def _number(value: Any) -> Any:
    return value if isinstance(value, int | float | complex | Symbol | Real) else value.item()


def _real(value: Any) -> Any:
    return value if isinstance(value, Symbol | Real) else float(value)


def _text(value: Any) -> Any:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


_CASTS: dict[str, Callable[[Any], Any]] = {
    "int": _integer,
    "SymInt": _integer,
    "float": _real,
    "bool": lambda value: value if isinstance(value, Symbol) else bool(value),
    "Scalar": _number,
    "str": _text,
    "Device": lambda value: value if isinstance(value, device) else device(value),
}


def _cast(plain: str, value: Any) -> Any:
    """A value as a kernel gets it. TypeError for one of another type; types that are not known take everything."""
    if plain.endswith("?"):
        return None if value is None else _cast(plain[:-1], value)
    if plain.endswith("]"):
        inner, _, count = plain[:-1].rpartition("[")
        if count and inner in ("int", "SymInt", "float", "bool") and isinstance(value, int | float):
            return [value] * int(count)
        if isinstance(value, Tensor | str):
            raise TypeError(f"Unable to cast {value!r} to a list")
        return [_cast(inner, v) for v in value]
    if plain == "Tensor":
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(f"Unable to cast {value!r} to Tensor")
        return value
    try:
        cast = _CASTS.get(plain)
        return value if cast is None else cast(value)
    except (AttributeError, TypeError, ValueError, RuntimeError):
        raise TypeError(f"Unable to cast Python instance of type {type(value)} to {_named(plain)}") from None


def tensors(values: Any) -> list[Tensor]:
    """The tensors of arguments or results."""
    return [x for x in tree_leaves(values) if isinstance(x, Tensor)]
