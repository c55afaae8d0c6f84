"""Numbers that may differ from replay to replay: settings and step counts of optimizers, and what generators give.

While a function is recorded they are `SymbolicNumber`: floats that note what is computed from them, and which comparisons came
out how. `Numbers` makes a recipe of that (engine/recipes.py): of the numbers of the day it makes the parameters of a
replay and the counts that are left behind, or tells that a comparison would come out otherwise. What escapes the notes (C
code that has looked into a number) is found by running the plain function, with which the prediction must agree before a
number that has changed is relied on.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from tabtorch.engine.recipes import Check, Recipe, Writer
from tabtorch.engine.symbols import fixed

#: how a number comes about: ("v", k, -1) or ("r", k, j) of what is given, or (operator, two recipes or plain numbers)
Origin = tuple[str, Any, Any]


class Notes:
    """What is noted while live numbers are about."""

    def __init__(self) -> None:
        #: comparisons that must come out so: (operator, two numbers as `origin` has them, answer)
        self.tests: dict[tuple[str, Any, Any, bool], None] = {}
        #: id -> a plain number made of a live one, and its recipe
        self.plain: dict[int, tuple[Any, Origin]] = {}

    def recipe(self, x: Any) -> Origin | None:
        """How a number comes about; None for a constant."""
        found: Origin | None = getattr(x, "recipe", None)
        if found is None and id(x) in self.plain:
            kept, found = self.plain[id(x)]
            return found if kept is x else None
        return found

    def origin(self, x: Any) -> Any:
        """The recipe of a number; itself, where it is a constant."""
        found = self.recipe(x)
        return x if found is None else found


notes = Notes()


class SymbolicNumber(float):
    """A number, and how it comes about (`recipe`)."""

    __slots__ = ("recipe",)
    recipe: Origin

    def __float__(self) -> float:
        plain = float.__float__(self)
        notes.plain[id(plain)] = (plain, self.recipe)
        return plain

    def __index__(self) -> int:
        return int(float.__float__(self))

    def __bool__(self) -> bool:
        return _tested("!=", self.recipe, 0, float.__bool__(self))

    def __neg__(self) -> SymbolicNumber:
        return symbolic(-float.__float__(self), ("neg", self.recipe, None))

    def __pos__(self) -> SymbolicNumber:
        return self

    def __abs__(self) -> SymbolicNumber:
        return symbolic(abs(float.__float__(self)), ("abs", self.recipe, None))

    def __reduce__(self) -> Any:
        return float, (float.__float__(self),)

    __hash__ = float.__hash__


class SymbolicInt(int):
    """A word that a generator gave: it is not computed with."""

    recipe: Origin


def symbolic(value: float, recipe: Origin) -> SymbolicNumber:
    x = SymbolicNumber(value)
    x.recipe = recipe
    return x


def symbolic_int(value: int, recipe: Origin) -> SymbolicInt:
    x = SymbolicInt(value)
    x.recipe = recipe
    return x


def _tested(op: str, a: Any, b: Any, outcome: bool) -> bool:
    notes.tests[op, a, b, outcome] = None
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
        return symbolic(value, (sign, notes.origin(x), notes.origin(y))) if type(value) in (int, float) else value

    return operate


def _comparison(sign: str, f: Callable[[Any, Any], Any]) -> Callable[[SymbolicNumber, Any], Any]:
    def compare(a: SymbolicNumber, b: Any) -> Any:
        outcome = f(a, b)
        return outcome if outcome is NotImplemented else _tested(sign, a.recipe, notes.origin(b), outcome)

    return compare


for _name, _sign in zip("add sub mul truediv floordiv mod pow".split(), "+ - * / // % **".split(), strict=True):
    setattr(SymbolicNumber, f"__{_name}__", _binary(_sign, getattr(operator, _name), False))
    setattr(SymbolicNumber, f"__r{_name}__", _binary(_sign, getattr(operator, _name), True))
for _name, _sign in zip("lt le eq ne gt ge".split(), "< <= == != > >=".split(), strict=True):
    setattr(SymbolicNumber, f"__{_name}__", _comparison(_sign, getattr(float, f"__{_name}__")))


class _Steps(Writer):
    """The steps of recipes that are trees."""

    def of(self, x: Any) -> int:
        stack = [x]  # trees may be deep: a number counted up, call after call
        while stack:
            x = stack[-1]
            if type(x) is not tuple:
                found = self.number(x)
            elif x[0] in ("v", "r"):
                found = self.step(*x)
            else:
                parts = [y for y in x[1:] if y is not None]
                missing = [y for y in parts if type(y) is tuple and id(y) not in self._trees]
                if missing:
                    stack += missing
                    continue
                found = self.step(x[0], *[self._trees[id(y)][0] if type(y) is tuple else self.number(y) for y in parts])
            stack.pop()
            if type(x) is tuple:
                self._trees[id(x)] = found, x
        return found

    def __init__(self) -> None:
        super().__init__()
        self._trees: dict[int, tuple[int, Any]] = {}  # id of a tree -> its step, and what keeps it alive


class Numbers:
    """The numbers of a recording as a function of the numbers of the day, `v`, and of what the generators give, `r`."""

    def __init__(self, scalars: Sequence[Any], after: Sequence[Any], noted: Notes) -> None:
        self._made_of = after, noted
        recipes = [noted.recipe(x) for x in scalars]
        self.constants = [x if found is None else None for x, found in zip(scalars, recipes, strict=True)]
        self.moving = [i for i, found in enumerate(recipes) if found is not None]
        w = _Steps()
        results = [w.of(recipes[i]) for i in self.moving] + [w.of(noted.origin(x)) for x in after]
        tests = [Check(op, w.of(a), w.of(b), answer) for op, a, b, answer in noted.tests]
        self.recipe = Recipe(("v", "r"), tuple(w.steps), tuple(tests), tuple(results))

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
        if not self.recipe.holds(v, r):
            return None
        made = self.recipe.values(v, r)
        scalars = self.constants.copy()
        for i, x in zip(self.moving, made):  # what is left over are the numbers left behind
            scalars[i] = x
        return scalars, tuple(made[len(self.moving) :])
