"""What must hold of `tabtorch.engine.liveness` under any interpreter. Plain Python: it runs in CPython of several versions, with
nothing installed (`python liveness_cases.py PATH/liveness.py`), and in Pyodide."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any


class Value:
    """Something to hold."""

    __slots__ = ("__weakref__", "other")


def _two() -> list[Any]:
    return [Value(), Value()]


def counts_containers(m: Any) -> None:
    """Each container that holds an object is one reference more, and one less when it goes."""
    for hold in (lambda x: [x], lambda x: (x, x)[:1] + (None,), lambda x: {0: x}, lambda x: {x}, lambda x: iter([x])):
        objects = _two()
        kept = []
        for n in range(1, 5):
            kept.append(hold(objects[0]))
            assert m.references(objects) == [n, 0]
            assert m.held(objects) == [True, False]
            assert m.held_beyond(objects, [n - 1, 0]) == [True, False]
            assert m.held_beyond(objects, [n, 0]) == [False, False]
            assert m.Known([n, 0]).all_there_is(objects)
            assert not m.Known([n - 1, 0]).all_there_is(objects)
        del kept
        assert m.references(objects) == [0, 0]


def counts_a_callers_names(m: Any) -> None:
    """A name in a frame that called is a holder, whatever it was called with and however deep; so is a cell, and a default."""

    def deep(objects: list[Any], n: int) -> list[bool]:
        return deep(objects, n - 1) if n else m.held(objects)

    def by_argument(mine: Any, objects: list[Any]) -> list[bool]:
        return deep(objects, 3)

    def by_star(objects: list[Any], *args: Any, **kwargs: Any) -> list[bool]:
        return deep(objects, 3)

    def generator(mine: Any, objects: list[Any]) -> Any:
        yield deep(objects, 3)
        yield mine

    objects = _two()
    mine = objects[0]
    assert deep(objects, 0) == deep(objects, 5) == [True, False]
    assert by_argument(mine, objects) == by_star(objects, mine) == by_star(objects, x=mine) == [True, False]
    assert next(generator(mine, objects)) == [True, False]
    del mine
    assert by_argument(None, objects) == [False, False]
    for other in objects[:1]:
        assert deep(objects, 2) == [True, other is None]
    del other
    assert [deep(objects, 1) for mine in objects[1:]] == [[False, True]]
    assert deep(objects, 1) == [False, False]

    def cell(x: Any) -> Callable[[], Any]:
        return lambda: x

    f = cell(objects[1])
    assert m.held(objects) == [False, True]
    assert f() is objects[1]
    g = lambda x=objects[0]: x  # noqa: E731
    assert m.held(objects) == [True, True]
    del f, g
    assert m.held(objects) == [False, False]


def counts_what_is_suspended_or_bound(m: Any) -> None:
    """A generator that waits, a bound method, a partial application, an exception's traceback, and an attribute."""
    import functools

    class Own:
        def method(self) -> None:
            pass

    objects: list[Any] = [Own(), Own()]
    method = objects[0].method
    assert m.references(objects) == [1, 0]
    del method

    def waits(x: Any) -> Any:
        yield
        yield x

    g = waits(objects[0])
    next(g)
    assert m.held(objects) == [True, False]
    del g
    p = functools.partial(print, objects[0])
    assert m.held(objects) == [True, False]
    del p
    objects[1].other = objects[0]
    assert m.references(objects) == [1, 0]
    objects[1].other = None

    def fails(x: Any) -> None:
        raise ValueError

    try:
        fails(objects[0])
    except ValueError as e:
        assert m.held(objects)[0] or e.__traceback__ is None  # its frame is kept with the traceback
    assert m.held(objects) == [False, False]
    ref = weakref.ref(objects[0])  # no holder
    assert m.held(objects) == [False, False]
    assert ref() is objects[0]
    assert m.held(objects) == [False, False]


def counts_many_at_once(m: Any) -> None:
    """A list with an object twice has it twice; long lists, and lists of lists."""
    objects = [Value() for _ in range(1000)]
    odd = objects[1::2]
    assert m.held(objects) == [False, True] * 500
    assert m.references(objects + odd) == [1, 3] * 500 + [3] * 500
    del odd
    assert not any(m.held(objects))
    assert m.by("one", "another") == 2


def knows_when_it_cannot_count(m: Any) -> None:
    """Counts that do not rise by one a holder are not relied on, and then everything is held."""
    from sys import getrefcount

    assert m.calibrated(lambda objects: [getrefcount(x) for x in objects]) is not None

    def constant(objects: list[Any]) -> list[int]:
        return [2 for _ in objects]

    def capped(objects: list[Any]) -> list[int]:
        return [min(4, getrefcount(x)) for x in objects]

    def coarse(objects: list[Any]) -> list[int]:
        return [getrefcount(x) // 2 for x in objects]

    def late(objects: list[Any]) -> list[int]:
        seen.append(max(getrefcount(x) for x in objects))
        return [max(seen)] * len(objects)

    seen: list[int] = []
    assert [m.calibrated(f) for f in (constant, capped, coarse, late)] == [None] * 4
    own = m._OWN
    m._OWN = -m.EVERYBODY
    try:
        objects = _two()
        assert m.held(objects) == m.held_beyond(objects, [7, 1000]) == [True, True]
        assert min(m.references(objects)) > 1 << 29
        assert not m.Known([3, 3]).all_there_is(objects)
    finally:
        m._OWN = own


CASES = [counts_containers, counts_a_callers_names, counts_what_is_suspended_or_bound, counts_many_at_once]
CASES.append(knows_when_it_cannot_count)


def check(m: Any) -> str:
    """Runs all of it on the module; what to print where all is well."""
    assert m.RELIABLE
    for case in CASES:
        case(m)
    return f"{len(CASES)} cases of liveness hold in {sys.version_info[0]}.{sys.version_info[1]}"


def from_file(path: str) -> Any:
    """The module, by itself."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("liveness", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    if len(sys.argv) > 1:
        found = from_file(sys.argv[1])
    else:
        from tabtorch.engine import liveness as found
    print(check(found))
