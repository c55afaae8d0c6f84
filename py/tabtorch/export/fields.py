"""What a JSON object of an archive has to have: each field is asked for with its type, and nothing else is taken."""

from __future__ import annotations

import json
from typing import Any

#: bytes of one JSON text
LARGEST_JSON = 1 << 28


class SerializeError(RuntimeError):
    """An archive is not what `torch.export.save` writes, or has something in it that is not read here."""


def bad(what: str) -> SerializeError:
    return SerializeError(f"not a program of torch.export: {what}")


def parse_json(data: bytes | str, name: str) -> Any:
    """The value of a JSON text. SerializeError for what is none."""
    if len(data) > LARGEST_JSON:
        raise bad(f"{name} has {len(data)} bytes")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as e:
        raise bad(f"{name} is no JSON: {e}") from None


def shown(x: Any) -> str:
    """A value in a message."""
    text = repr(x) if isinstance(x, (str, int, float, type(None))) else type(x).__name__
    return text if len(text) < 80 else text[:76] + " ..."


def text(x: Any, what: str = "a name") -> str:
    if type(x) is not str:
        raise bad(f"{what} must be a text, but is {shown(x)}")
    return x


def integer(x: Any, what: str = "a number") -> int:
    if type(x) is not int or not -(2**63) <= x < 2**64:
        raise bad(f"{what} must be a whole number, but is {shown(x)}")
    return x


def boolean(x: Any, what: str = "a truth") -> bool:
    if type(x) is not bool:
        raise bad(f"{what} must be true or false, but is {shown(x)}")
    return x


#: JSON has no words for these
_FLOATS = {"Infinity": float("inf"), "-Infinity": float("-inf"), "NaN": float("nan")}


def number(x: Any, what: str = "a number") -> float:
    if type(x) is str and x in _FLOATS:
        return _FLOATS[x]
    if type(x) is int and -(2**63) <= x < 2**64:
        return float(x)
    if type(x) is not float:
        raise bad(f"{what} must be a number, but is {shown(x)}")
    return x


def items(x: Any, what: str = "a list") -> list[Any]:
    if type(x) is not list:
        raise bad(f"{what} must be a list, but is {shown(x)}")
    return x


def table(x: Any, what: str = "a table") -> dict[str, Any]:
    if type(x) is not dict:
        raise bad(f"{what} must be an object, but is {shown(x)}")
    return x


def field(x: Any, name: str) -> Any:
    """A field that has to be there."""
    found = table(x, f"what has the field {name!r}")
    if name not in found:
        raise bad(f"the field {name!r} is missing")
    return found[name]


def union(x: Any, what: str) -> tuple[str, Any]:
    """(kind, value) of an object that has one field, which tells what it is."""
    found = table(x, what)
    if len(found) != 1:
        raise bad(f"{what} must have one field, but has {len(found)}")
    ((kind, value),) = found.items()
    return kind, value
