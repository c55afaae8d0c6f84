"""Numbers that may differ from replay to replay: settings and step counts of optimizers, and what generators give.

While a function is recorded they are `SymbolicNumber`: floats that note, as Python text, what is computed from them, and which
comparisons came out how. `Numbers` compiles that into one function: of the numbers of the day it makes the parameters of a
replay and the counts that are left behind, or tells that a comparison would come out otherwise. What escapes the notes (C
code that has looked into a number) is found by running the plain function, with which the prediction must agree before a
number that has changed is relied on.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from tabtorch.engine.symbols import fixed


class Notes:
    """What is noted while live numbers are about."""

    def __init__(self) -> None:
        #: comparisons, as text that must be true
        self.tests: dict[str, None] = {}
        #: id -> a plain number made of a live one, and its text
        self.plain: dict[int, tuple[Any, str]] = {}

    def recipe(self, x: Any) -> str:
        """How a number comes about; "" for a constant."""
        text: str = getattr(x, "recipe", "")
        if not text and id(x) in self.plain:
            kept, text = self.plain[id(x)]
            return text if kept is x else ""
        return text

    def spell(self, x: Any) -> str:
        """A number as Python text that gives the very same."""
        text = self.recipe(x) or repr(x)
        return f"({text})" if text[0] == "-" else text


notes = Notes()


class SymbolicNumber(float):
    """A number, and how it comes about (`recipe`)."""

    __slots__ = ("recipe",)
    recipe: str

    def __float__(self) -> float:
        plain = float.__float__(self)
        notes.plain[id(plain)] = (plain, self.recipe)
        return plain

    def __index__(self) -> int:
        return int(float.__float__(self))

    def __bool__(self) -> bool:
        return _tested(self.recipe, float.__bool__(self))

    def __neg__(self) -> SymbolicNumber:
        return symbolic(-float.__float__(self), f"(-{self.recipe})")

    def __pos__(self) -> SymbolicNumber:
        return self

    def __abs__(self) -> SymbolicNumber:
        return symbolic(abs(float.__float__(self)), f"abs({self.recipe})")

    def __reduce__(self) -> Any:
        return float, (float.__float__(self),)

    __hash__ = float.__hash__


class SymbolicInt(int):
    """A word that a generator gave: it is not computed with."""

    recipe: str


def symbolic(value: float, recipe: str) -> SymbolicNumber:
    x = SymbolicNumber(value)
    x.recipe = recipe
    return x


def symbolic_int(value: int, recipe: str) -> SymbolicInt:
    x = SymbolicInt(value)
    x.recipe = recipe
    return x


def _tested(text: str, outcome: bool) -> bool:
    notes.tests[text if outcome else f"not ({text})"] = None
    return outcome


def _plain(x: Any) -> Any:
    return float.__float__(x) if type(x) is SymbolicNumber else x


def _binary(sign: str, f: Callable[[Any, Any], Any], swapped: bool) -> Callable[[SymbolicNumber, Any], Any]:
    def operate(a: SymbolicNumber, b: Any) -> Any:
        if not isinstance(b, (int, float)):
            return NotImplemented
        b = fixed(b)
        x, y = (b, a) if swapped else (a, b)
        value = f(_plain(x), _plain(y))
        return symbolic(value, f"({notes.spell(x)} {sign} {notes.spell(y)})") if type(value) in (int, float) else value

    return operate


def _comparison(sign: str, f: Callable[[Any, Any], Any]) -> Callable[[SymbolicNumber, Any], Any]:
    def compare(a: SymbolicNumber, b: Any) -> Any:
        outcome = f(a, b)
        return outcome if outcome is NotImplemented else _tested(f"{a.recipe} {sign} {notes.spell(b)}", outcome)

    return compare


for _name, _sign in zip("add sub mul truediv floordiv mod pow".split(), "+ - * / // % **".split(), strict=True):
    setattr(SymbolicNumber, f"__{_name}__", _binary(_sign, getattr(operator, _name), False))
    setattr(SymbolicNumber, f"__r{_name}__", _binary(_sign, getattr(operator, _name), True))
for _name, _sign in zip("lt le eq ne gt ge".split(), "< <= == != > >=".split(), strict=True):
    setattr(SymbolicNumber, f"__{_name}__", _comparison(_sign, getattr(float, f"__{_name}__")))


class Numbers:
    """The numbers of a recording as a function of the numbers of the day, `v`, and of what the generators give, `r`."""

    def __init__(self, scalars: Sequence[Any], after: Sequence[Any], noted: Notes) -> None:
        self._made_of = after, noted
        recipes = [noted.recipe(x) for x in scalars]
        self.constants = [None if text else x for x, text in zip(scalars, recipes, strict=True)]
        self.moving = [i for i, text in enumerate(recipes) if text]
        parts = "".join(recipes[i] + "," for i in self.moving), "".join(noted.spell(x) + "," for x in after)
        tests = " and ".join(f"({t})" for t in noted.tests) or "True"
        space = {"inf": math.inf, "nan": math.nan, "__builtins__": {"abs": abs}}
        self._make = eval(f"lambda v, r: (({parts[0]}), ({parts[1]})) if {tests} else None", space)

    def with_scalars(self, scalars: Sequence[Any]) -> Numbers:
        """The same function for other sizes. scalars: as those of the recording, with other constants, and other beginnings."""
        if any(type(x) is SymbolicInt and x.recipe[0] != "r" for x in scalars):
            return Numbers(scalars, *self._made_of)
        new = copy(self)
        new.constants = list(scalars)
        for i in self.moving:
            new.constants[i] = None
        return new

    def __call__(self, v: Sequence[Any], r: Sequence[Any]) -> tuple[list[Any], tuple[Any, ...]] | None:
        """The scalars of the plan and the numbers left behind; None where the function would go another way."""
        made = self._make(v, r)
        if made is None:
            return None
        scalars = self.constants.copy()
        for i, x in zip(self.moving, made[0], strict=True):
            scalars[i] = x
        return scalars, made[1]
