"""The code that computes a schedule's numbers from a window's sizes, and says whether its guards hold. See symbols.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf, nan
from typing import Any

from .symbols import Real, Symbol, Trace, concrete


def compiled(
    trace: Trace, numbers: Iterable[Any], words: bool = True
) -> tuple[Callable[[Sequence[int]], bool], Callable[[Sequence[int]], list[int]]]:
    """Two functions of the sizes: whether all guards hold, and these numbers; those that may be negative as parameter words."""
    holds = _Code(trace)
    tests = [
        f"{holds.name(a)} {op} {holds.name(b)}" if answer else f"not {holds.name(a)} {op} {holds.name(b)}"
        for op, a, b, answer in trace.guards.values()
    ]
    values = _Code(trace)
    listed = ", ".join([values.word(x) if words else values.name(x) for x in numbers])
    ask, give = holds.function(" and ".join(tests) or "True"), values.function(f"[{listed}]")

    def all_hold(sizes: Sequence[int]) -> bool:
        try:
            return ask(sizes)
        except ZeroDivisionError:  # of what comes after a guard that does not hold
            return False

    return all_hold, give


class _Code:
    """The text of a function of a window's sizes: a name for each expression, computed once."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.lines: list[str] = []
        self._names: dict[Any, str] = {}

    def _let(self, key: Any, text: str) -> str:
        name = self._names[key] = f"x{len(self._names)}"
        self.lines.append(f" {name} = {text}")
        return name

    def _atom(self, at: int) -> str:
        what = self.trace.atoms[at]
        if isinstance(what, int):
            return f"s{what}"
        name = self._names.get(at)
        if name is None:
            op, a, b = what
            x, y = self.name(a), self.name(b)
            name = self._let(at, f"-(-{x} // {y})" if op == "ceil" else f"{x} {op} {y}")
        return name

    def name(self, x: Any) -> str:
        """What stands for a number in the text."""
        if type(x) is Real and x.trace is self.trace:
            op, a, b = x.parts
            return f"({self.name(a)} {op} {self.name(b)})"
        if type(x) is not Symbol or x.trace is not self.trace:
            n = concrete(x)
            return f"({n!r})" if n < 0 else repr(n)
        key = ("sum", id(x))
        name = self._names.get(key)
        if name is not None:
            return name
        parts = []
        for mono, factor in x.terms.items():
            atoms = [self._atom(a) for a in mono]
            parts.append("*".join([str(factor), *atoms] if factor != 1 or not atoms else atoms))
        if len(parts) == 1 and "*" not in parts[0]:
            return parts[0]
        return self._let(key, " + ".join(parts))

    def word(self, x: Any) -> str:
        """The same as an unsigned number of 32 bits, if it may be negative."""
        if type(x) is Symbol and (x.least is None or x.least < 0):
            return f"{self.name(x)} & 4294967295"
        return self.name(x)

    def function(self, result: str) -> Callable[[Sequence[int]], Any]:
        sizes = "".join(f"s{i}, " for i in range(len(self.trace.symbols)))
        head = f" ({sizes}) = sizes\n" if sizes else ""
        text = "def f(sizes):\n" + head + "\n".join([*self.lines, f" return {result}"])
        found: dict[str, Any] = {"inf": inf, "nan": nan}
        exec(text, found)  # text of numbers and names made here
        return found["f"]
