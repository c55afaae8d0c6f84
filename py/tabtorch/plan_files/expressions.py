"""The numbers of a recorded method as recipes for a file: of its dims (`s`), its numbers (`v`) and its generators' words (`r`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from typing import Any

from tabtorch.compiled.storage_offsets import Begin
from tabtorch.compiled.symbolic_numbers import Notes
from tabtorch.engine.instructions import Inst
from tabtorch.engine.recipes import Check, Recipe, SizeWriter
from tabtorch.engine.schedules import Schedule
from tabtorch.engine.symbols import Symbol, concrete, is_number
from tabtorch.engine.trace import Trace
from tabtorch.engine.view import Meta


class Expressions(SizeWriter):
    """Steps over the dims of a file, and over numbers and words.

    dims: of each Symbol of the trace, the dim of the file that it is. number: (index of a live number of the recording) -> the file's
    number, or None for one that is 0 there (where an argument begins).
    """

    def __init__(self, trace: Trace | None, dims: Sequence[int], number: Callable[[int], int | None]) -> None:
        super().__init__(trace or Trace([]))
        self._dims = dims
        self._number = number
        self._trees: dict[int, tuple[int, Any]] = {}
        self.tests: dict[tuple[str, int, int, bool], None] = {}

    def _atom(self, at: int) -> int:
        what = self.trace.atoms[at]
        return self.step("s", self._dims[what]) if isinstance(what, int) else super()._atom(at)

    def size(self, x: Any) -> int:
        """The step of a number that may hang on sizes."""
        return self.of(x) if is_number(x) else self.number(x)

    def scalar(self, x: Any, notes: Notes) -> int:
        """The step of a scalar of a plan: a size, where a view begins (arguments begin at 0), or a live number."""
        if type(x) is Begin:
            return self.size(x.more)
        if is_number(x):
            return self.of(x)
        origin = notes.recipe(x)
        return self.number(x) if origin is None else self.tree(origin)

    def tree(self, x: Any) -> int:
        """The step of what `Notes.origin` gives."""
        stack = [x]  # trees may be deep: a number counted up, call after call
        while stack:
            x = stack[-1]
            if type(x) is not tuple:
                found = self.size(x)
            elif x[0] == "r":
                found = self.step(*x)
            elif x[0] == "v":
                at = self._number(x[1])
                found = self.number(0) if at is None else self.step("v", at)
            else:
                parts = [y for y in x[1:] if y is not None]
                missing = [y for y in parts if type(y) is tuple and id(y) not in self._trees]
                if missing:
                    stack += missing
                    continue
                found = self.step(x[0], *[self._trees[id(y)][0] if type(y) is tuple else self.size(y) for y in parts])
            stack.pop()
            if type(x) is tuple:
                self._trees[id(x)] = found, x
        return found

    def test(self, op: str, a: int, b: int, answer: bool = True) -> None:
        """Something that has to hold; what holds of constants is none."""
        x, y = self.steps[a], self.steps[b]
        if x.op == y.op == "number" or (a == b and op in ("==", "<=", ">=") and answer):
            return
        self.tests[op, a, b, answer] = None

    def recipe(self, given: tuple[str, ...], results: Sequence[int]) -> Recipe:
        return Recipe(given, tuple(self.steps), tuple([Check(*t) for t in self.tests]), tuple(results))


def json_of(recipe: Recipe) -> dict[str, Any]:
    """A recipe as JSON has it; numbers that are not finite are text."""
    steps = []
    for op, a, b in recipe.steps:
        if op == "number":
            x = int(a) if type(a) is bool else a
            steps.append([op, x if isfinite(x) else str(float(x))])
        else:
            steps.append([op, a] if b == -1 else [op, a, b])
    return {"steps": steps, "tests": [list(t) for t in recipe.tests], "results": list(recipe.results)}


def values_of(shown: Inst) -> Iterator[tuple[Any, Any]]:
    """The numbers of an instruction by which its schedule is bound (`schedules.of_inst`), each as it is at hand and as an
    expression of the recording's sizes. Those that are no part of that, as they are 0 or 1 at hand, come too."""
    i = shown.concrete or shown
    base = i.base
    for at_hand, m in zip((*base.ins, base.out), (*shown.ins, shown.out), strict=True):
        yield from _of_view(at_hand, m)
    yield from _of_static(base.static, shown.static, i.op.sized)


def _of_view(m: Meta, shown: Meta) -> Iterator[tuple[Any, Any]]:
    numbers = (*m.shape, *m.strides, m.offset)
    own = (*shown.shape, *shown.strides, shown.offset)
    for n, x in zip(numbers, own, strict=True):
        if n == 1 and concrete(x) != 1:  # where it begins is a scalar
            x = 1
        yield n, x


def _of_static(x: Any, shown: Any, sized: bool) -> Iterator[tuple[Any, Any]]:
    if type(x) is Meta:
        yield from _of_view(x, shown)
    elif type(x) is tuple:
        for y, own in zip(x, shown, strict=True):
            yield from _of_static(y, own, sized)
    elif hasattr(x, "of_parts"):
        yield from _of_static(x.sizes(), shown.sizes(), True)
    elif sized and type(x) is int:
        yield x, shown


def bindings(w: Expressions, schedule: Schedule, shown: Sequence[Inst]) -> list[int]:
    """The steps of the numbers that a schedule's recipe is given, for a window of these instructions. That it is a window for which the
    schedule was made becomes a test."""
    values = []
    for i in shown:
        for n, x in values_of(i):
            at = w.size(x)
            if n > 1:
                values.append(at)
                if type(x) is Symbol:
                    w.test(">", at, w.number(1))
            else:
                w.test("==", at, w.number(n))
    firsts = [values[at] for at in schedule._firsts]
    for at, k in zip(values, schedule._pattern, strict=True):
        w.test("==", at, firsts[k])
    return firsts
