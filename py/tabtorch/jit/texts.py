"""TorchScript's texts: how it prints values, and its functions of strings, which are of ASCII there.

Source: torch/csrc/jit/runtime/register_string_ops.cpp. tests/test_jit_operators.py compares each with PyTorch's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any


def text(x: Any) -> str:
    """A value as TorchScript prints it: 2.0 is `2.`."""
    if type(x) is float:
        return f"{int(x)}." if abs(x) < 2**63 and x == int(x) else format(x, ".17g")
    if isinstance(x, (list, tuple)):
        a, b = "[]" if isinstance(x, list) else "()"
        return a + ", ".join(map(text, x)) + b
    if isinstance(x, dict):
        return "{" + ", ".join(f"{text(k)}: {text(v)}" for k, v in x.items()) + "}"
    return str(x)


def _format(pattern: str, *values: Any) -> str:
    parts = pattern.split("{}")
    if len(parts) - 1 > len(values):
        raise RuntimeError("Too few arguments for format string: " + pattern)
    return "".join(p + (text(v) if i < len(parts) - 1 else "") for i, (p, v) in enumerate(zip(parts, [*values, ""])))


def _percent(pattern: str, *values: Any) -> str:
    left = list(values[0] if values and isinstance(values[0], tuple) else values)

    def one(m: re.Match[str]) -> str:
        kind = m[1]
        if kind == "%":
            return "%"
        if not left:
            raise RuntimeError("Too few arguments for format string")
        x = left.pop(0)
        number = type(x) in (int, float)
        if kind in "di" and number:
            return str(int(x) if -(2**31) <= x < 2**31 or type(x) is int else -(2**31))
        if kind in "eEfF" and number:
            return format(x, ".6" + kind)
        if kind == "c" and (type(x) is int or (isinstance(x, str) and len(x) == 1)):
            return x if isinstance(x, str) else chr(x & 255)
        if kind == "s":
            return text(x)
        if kind in "diceEfF":
            raise RuntimeError(f"%{kind} requires a number for formatting, but got {type(x).__name__}")
        raise RuntimeError(f"The specifier %{kind} is not supported in TorchScript format strings")

    made = re.sub(r"%(.)", one, pattern, flags=re.S)
    if left:
        raise RuntimeError("Too many arguments for format string")
    return made


def _bounds(s: str, start: int, end: int) -> tuple[int, int]:
    """Where a part of a text begins and ends; -1 is the text's end, and not one before."""
    size = len(s)
    return max(0, start + size) if start < 0 else start, max(0, end + size + 1) if end < 0 else end


def _part(s: str, start: int, end: int) -> str:
    first, last = _bounds(s, start, end)
    if first > len(s):
        raise IndexError("string index out of range")
    return s[first : max(first, last)]


def _found(name: str) -> Callable[..., int]:
    def call(s: str, part: str, start: int = 0, end: int = -1) -> int:
        first, last = _bounds(s, start, end)
        at = getattr(_part(s, start, end), name.replace("index", "find"))(part) if last > first else -1
        if at < 0 and name.endswith("index"):
            raise RuntimeError("ValueError: substring not found")
        return int(at + first) if at >= 0 else -1

    return call


def _ends(name: str) -> Callable[..., bool]:
    return lambda s, part, start=0, end=-1: getattr(_part(s, start, end), name)(part)


def _count(s: str, part: str, start: int = 0, end: int = -1) -> int:
    return _part(s, start, end).count(part) if start <= len(s) else 0


def _replace(s: str, old: str, new: str, most: int = -1) -> str:
    return s.replace(old, new, most)


def _split(s: str, separator: str | None = None, most: int = -1) -> list[str]:
    if separator == "":
        raise RuntimeError("ValueError: empty separator")
    return s.split(separator, most)


def _rsplit(s: str, separator: str = " ", most: int = -1) -> list[str]:
    if separator == "":
        raise RuntimeError("ValueError: empty separator")
    return s.rsplit(separator, most)


def _lines(s: str, keepends: bool = False) -> list[str]:
    """Every end is one of its own, "\\r\\n" two."""
    parts = re.split(r"([\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029])", s)
    kept = parts if keepends else parts[::2]
    return kept if kept[-1] else kept[:-1]


def _padded(name: str) -> Callable[..., str]:
    def call(s: str, width: int, fill: str = " ") -> str:
        if len(fill) != 1:
            raise RuntimeError("TypeError: The fill character must be exactly one character long")
        room = max(0, width - len(s))
        left = {"ljust": 0, "rjust": room, "center": room // 2 if name == "center" else 0}[name]
        if name == "center" and len(s) % 2 == 0 and room % 2:
            left += 1
        return fill * left + s + fill * (room - left)

    return call


def _zfill(s: str, width: int) -> str:
    return "0" * max(0, width - len(s)) + s


def _same(name: str) -> Callable[..., Any]:
    return lambda s, *args: getattr(s, name)(*args)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "str": text,
    "format": _format,
    "percentFormat": _percent,
    "count": _count,
    "replace": _replace,
    "split": _split,
    "rsplit": _rsplit,
    "splitlines": _lines,
    "zfill": _zfill,
    **{n: _found(n) for n in ("find", "rfind", "index", "rindex")},
    **{n: _ends(n) for n in ("startswith", "endswith")},
    **{n: _padded(n) for n in ("ljust", "rjust", "center")},
    **{
        n: _same(n)
        for n in (
            "lower upper strip lstrip rstrip join title capitalize swapcase partition rpartition expandtabs isdigit isalpha isupper "
            "islower isspace istitle isalnum isnumeric isdecimal isidentifier isprintable"
        ).split()
    },
    "ord": ord,
    "chr": chr,
}
