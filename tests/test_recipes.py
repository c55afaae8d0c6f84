"""Recipes of numbers are data: they can be written down and read again, and only what they list is ever computed."""

from __future__ import annotations

import json
import math
import pickle
from typing import Any

import pytest

import tabtorch as tt
from tabtorch.compiled import replay, symbolic_numbers
from tabtorch.engine import schedules
from tabtorch.engine.recipes import Check, Recipe, Step, Writer, recipe_of
from tabtorch.engine.trace import Trace


def again(r: Recipe) -> Recipe:
    """The same, written down as JSON and read."""
    make, (given, steps, tests, results) = r.__reduce__()
    plain = json.loads(json.dumps([given, steps, tests, results]))
    made: Recipe = make(tuple(plain[0]), plain[1], plain[2], tuple(plain[3]))
    return made


def test_a_recipe_survives_being_written_down() -> None:
    trace = Trace((6, 4))
    a, b = trace.symbols
    numbers = [a * b + 3, a // b, -(-a // b), a % b, 7, b - a * 2, a * a * b // 5]
    assert a > b and a * 2 != b
    r = recipe_of(trace, numbers)
    for copy in (r, again(r), pickle.loads(pickle.dumps(r))):
        assert copy.holds([6, 4]) and copy.holds([9, 2]) and not copy.holds([4, 6])
        assert copy.values([9, 2]) == [21, 4, 5, 1, 7, 2 - 18 & 0xFFFFFFFF, 162 // 5]


def test_equal_steps_are_one() -> None:
    w = Writer()
    assert w.step("v", 0) == w.step("v", 0) and w.number(1.0) == w.number(1.0)
    assert len({w.number(x) for x in (1, 1.0, True, 0.0, -0.0, math.nan, math.inf)}) == 7
    r = Recipe(("v",), tuple(w.steps), (), tuple(range(len(w.steps))))
    assert repr(r.values([5])) == "[5, 1.0, 1, True, 0.0, -0.0, nan, inf]"


def test_long_chains() -> None:
    """Longer than a parser takes in one expression."""
    w = Writer()
    at = w.step("v", 0)
    for k in range(2000):
        at = w.step("+" if k % 2 else "*", at, w.number(k % 3))
    r = Recipe(("v",), tuple(w.steps), (), (at,))
    x = 3
    for k in range(2000):
        x = x + k % 3 if k % 2 else x * (k % 3)
    assert r.values([3]) == [x]


def test_what_is_no_operation_is_refused() -> None:
    for step in (Step("__import__('os')", 0, 0), Step("number", "1 + 1"), Step("s", "0"), Step("s[0]", 0)):
        with pytest.raises((KeyError, TypeError, ValueError)):
            Recipe(("s",), (Step("number", 1), step), (), (1,)).values([5])
    with pytest.raises(ValueError, match="comparisons"):
        Recipe(("s",), (Step("number", 1),), (Check("or print() or", 0, 0, True),), ()).holds([5])
    with pytest.raises(ValueError, match="names"):
        Recipe(("s, x=print()",), (Step("number", 1),), (), (0,)).values([5])


def test_divisions_that_a_guard_forbids() -> None:
    r = Recipe(("s",), (Step("s", 0), Step("number", 6), Step("//", 1, 0)), (Check("<", 2, 1, True),), (2,))
    assert r.holds([2]) and not r.holds([0])


def test_schedules_keep_data(device: str) -> None:
    with tt.device(device):
        for n in (5, 6, 7):
            (tt.ones(n, 3) @ tt.ones(3, n) + 1).sum(0).tolist()
    found = [s for f in schedules._families.values() for s in f.schedules if s.recipe is not None]
    assert found
    for s in found:
        assert s.recipe is not None and pickle.loads(pickle.dumps(s.recipe)).steps == s.recipe.steps


def test_recorded_numbers_are_data(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Numbers(symbolic_numbers.Numbers):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.recipe = again(self.recipe)
            made.append(self)

    monkeypatch.setattr(replay, "Numbers", Numbers)
    w = tt.ones(3, device=device, requires_grad=True)
    optimizer = tt.optim.Adam([w], lr=0.1)
    v = [1.0, 1.0, 1.0]
    other = tt.tensor(v, device=device, requires_grad=True)
    plain = tt.optim.Adam([other], lr=0.1)

    def step(w: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()

    compiled = tt.compile(step)
    for k in range(8):
        for o in (optimizer, plain):
            o.param_groups[0]["lr"] = 0.1 / (k + 1)
        compiled(w, optimizer)
        step(other, plain)
    assert made and any(m.recipe.results for m in made)
    assert w.tolist() == other.tolist()
