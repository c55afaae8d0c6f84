"""The table of translations: a row is one function, under the names of the ATen operators that it translates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

#: ATen's name, without the overload -> (builder, type and sizes of the result, the operator's arguments) -> its value or values
TABLE: dict[str, Callable[..., Any]] = {}


class Out:
    """Of an operator's first result: its type, and its sizes, None where they vary."""

    __slots__ = ("dtype", "sizes")

    def __init__(self, dtype: Any, sizes: Sequence[int | None]) -> None:
        self.dtype = dtype
        self.sizes = tuple(sizes)

    @property
    def rank(self) -> int:
        return len(self.sizes)


def aten(*names: str) -> Callable[[Any], Any]:
    """Puts a function into the table."""

    def put(f: Any) -> Any:
        for name in names:
            TABLE[name] = f
        return f

    return put
