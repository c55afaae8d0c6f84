"""How numbers come about, as data: operations over numbers that are given, and what has to hold of them.

A schedule keeps such a `Recipe` for the numbers that hang on a window's sizes (see symbols.py), a recorded function one for
those that may differ from replay to replay (compiled/symbolic_numbers.py). It is made of tuples of strings and numbers. The
function that computes it is written when it is first needed, and no part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf, nan
from typing import Any, NamedTuple

from .symbols import Symbol, concrete
from .trace import Trace

#: operator -> how it is written; operands are names, numbers, or in parentheses
_OPERATORS = {
    **{op: f"{{}} {op} {{}}" for op in ("+", "-", "*", "/", "//", "%", "**", "&", "==", "!=", "<", "<=", ">", ">=")},
    "ceil": "-(-{} // {})",
    "neg": "-{}",
    "abs": "abs({})",
}
_COMPARED = frozenset({"==", "!=", "<", "<=", ">", ">="})
#: operations of which one is written into the other, at most: parsers have a limit
_DEEP = 30


class Step(NamedTuple):
    """One operation on two steps before it, which `a` and `b` number; b is -1 where there is one only. Of "number", `a` is it.
    Where the operation is the name of something given, both are indices in that."""

    op: str
    a: Any
    b: int = -1


class Check(NamedTuple):
    """A comparison of two steps, and how it has to come out."""

    op: str
    a: int
    b: int
    answer: bool


class Recipe:
    """Numbers (`results`, as steps) and what has to hold (`tests`). given: the names of the sequences of numbers they are made of."""

    __slots__ = ("_holds", "_values", "given", "results", "steps", "tests")

    def __init__(
        self, given: tuple[str, ...], steps: tuple[Step, ...], tests: tuple[Check, ...], results: tuple[int, ...]
    ) -> None:
        self.given = given
        self.steps = steps
        self.tests = tests
        self.results = results
        self._holds: Callable[..., bool] | None = None
        self._values: Callable[..., list[Any]] | None = None

    def __reduce__(self) -> Any:
        steps, tests = (tuple(map(tuple, x)) for x in (self.steps, self.tests))
        return _recipe, (self.given, steps, tests, self.results)

    def holds(self, *given: Sequence[Any]) -> bool:
        """Whether every test comes out as it has to."""
        if self._holds is None:
            self._holds = _written(self, True)
        try:
            return self._holds(*given)
        except ZeroDivisionError:  # of what comes after a test that does not hold
            return False

    def values(self, *given: Sequence[Any]) -> list[Any]:
        """The numbers."""
        if self._values is None:
            self._values = _written(self, False)
        return self._values(*given)


def _recipe(given: tuple[str, ...], steps: Iterable[tuple], tests: Iterable[tuple], results: tuple[int, ...]) -> Recipe:
    return Recipe(given, tuple([Step(*x) for x in steps]), tuple([Check(*x) for x in tests]), results)


def _written(recipe: Recipe, tests: bool) -> Callable[..., Any]:
    """The function that computes a recipe's tests, or its results."""
    steps = recipe.steps
    wanted = [x for t in recipe.tests for x in (t.a, t.b)] if tests else list(recipe.results)
    uses = [0] * len(steps)
    for k in wanted:
        uses[k] += 1
    for k in range(len(steps) - 1, -1, -1):
        if uses[k] and steps[k].op in _OPERATORS:
            uses[steps[k].a] += 1
            if steps[k].b >= 0:
                uses[steps[k].b] += 1
    lines: list[str] = []
    texts: list[str] = []
    depth: list[int] = []
    for k, (op, a, b) in enumerate(steps):
        text, deep = "", 0
        if uses[k]:
            if op == "number":
                if type(a) not in (int, float, bool):
                    raise TypeError(f"{a!r} is no number")
                text = repr(a)
                text = f"({text})" if text[0] == "-" else text
            elif op in recipe.given:
                text = f"{op}[{a:d}]" + (f"[{b:d}]" if b >= 0 else "")
            else:
                text = _OPERATORS[op].format(texts[a], texts[b])
                deep = 1 + max(depth[a], depth[b] if b >= 0 else 0)
                text = f"({text})"
            if op != "number" and (uses[k] > 1 or deep > _DEEP):
                lines.append(f" x{k} = {text}")
                text, deep = f"x{k}", 0
        texts.append(text)
        depth.append(deep)
    if tests:
        if not _COMPARED.issuperset(t.op for t in recipe.tests):
            raise ValueError("a recipe's tests are comparisons")
        found = [f"{'' if t.answer else 'not '}{texts[t.a]} {t.op} {texts[t.b]}" for t in recipe.tests]
        result = " and ".join(found) or "True"
    else:
        result = "[" + ", ".join([texts[k] for k in recipe.results]) + "]"
    if not all(name in ("s", "v", "r") for name in recipe.given):
        raise ValueError(f"a recipe is given what the names s, v and r stand for, not {recipe.given}")
    space: dict[str, Any] = {"inf": inf, "nan": nan, "__builtins__": {"abs": abs}}
    text = "\n".join([f"def f({', '.join(recipe.given)}):", *lines, f" return {result}"])
    exec(text, space)  # of the operators above, names made here, and numbers
    function: Callable[..., Any] = space["f"]
    return function


class Writer:
    """Collects the steps of a recipe; equal ones are one."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._at: dict[Any, int] = {}

    def step(self, op: str, a: Any, b: int = -1) -> int:
        """The number of this operation's step."""
        key = (op, type(a), repr(a), b) if op == "number" else (op, a, b)  # 1, 1.0, 0.0 and -0.0 are different numbers
        at = self._at.get(key)
        if at is None:
            at = self._at[key] = len(self.steps)
            self.steps.append(Step(op, a, b))
        return at

    def number(self, x: Any) -> int:
        """The step of a plain number."""
        if type(x) not in (int, float, bool):  # numpy's, an enumeration's
            x = float.__float__(x) if isinstance(x, float) else int.__int__(x)
        return self.step("number", x)


class SizeWriter(Writer):
    """Steps of what is computed of a trace's sizes."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace
        self._symbols: dict[int, tuple[int, Any]] = {}  # id -> step, and what keeps it alive

    def _atom(self, at: int) -> int:
        what = self.trace.atoms[at]
        if isinstance(what, int):
            return self.step("s", what)
        op, a, b = what
        return self.step(op, self.of(a), self.of(b))

    def of(self, x: Any) -> int:
        """The step of a number: a Symbol, or what is made of some (`parts`: operator and operands), or a plain one."""
        if getattr(x, "trace", None) is not self.trace:
            return self.number(concrete(x))
        known = self._symbols.get(id(x))
        if known is not None:
            return known[0]
        if type(x) is not Symbol:
            op, a, b = x.parts
            at = self.step(op, self.of(a), self.of(b))
        else:
            terms = [self._term(mono, factor) for mono, factor in x.terms.items()]
            at = terms[0]
            for term in terms[1:]:
                at = self.step("+", at, term)
        self._symbols[id(x)] = at, x
        return at

    def _term(self, mono: tuple[int, ...], factor: int) -> int:
        factors = [self._atom(a) for a in mono]
        if factor != 1 or not factors:
            factors.insert(0, self.number(factor))
        at = factors[0]
        for other in factors[1:]:
            at = self.step("*", at, other)
        return at

    def word(self, x: Any) -> int:
        """The same as an unsigned number of 32 bits, if it may be negative."""
        if type(x) is Symbol and (x.least is None or x.least < 0):
            return self.step("&", self.of(x), self.number(0xFFFFFFFF))
        return self.of(x)


def recipe_of(trace: Trace, numbers: Iterable[Any], words: bool = True) -> Recipe:
    """The guards of a trace and these numbers of its sizes; `words`: those that may be negative as parameter words."""
    w = SizeWriter(trace)
    tests = tuple([Check(op, w.of(a), w.of(b), answer) for op, a, b, answer in trace.guards.values()])
    results = tuple([w.word(x) if words else w.of(x) for x in numbers])
    return Recipe(("s",), tuple(w.steps), tests, results)


def compiled(
    trace: Trace, numbers: Iterable[Any], words: bool = True
) -> tuple[Callable[[Sequence[int]], bool], Callable[[Sequence[int]], list[Any]]]:
    """`holds` and `values` of that recipe."""
    r = recipe_of(trace, numbers, words)
    return r.holds, r.values
