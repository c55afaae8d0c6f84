"""Who still holds a value: the only place that counts references.

A value that nobody holds is never stored, or its memory is written over. CPython's reference count tells, but what
`sys.getrefcount` says of an object depends on how it is asked: 3.14 lends references to arguments that 3.11 counted. So
every question has one form, a list of objects handed to C by `map`, and at import that form is tried on objects whose
holders are known. Where the count does not rise by exactly one a holder, everything is said to be held: slower, never wrong.

Who asks names the references that it has itself. They are those of containers: items of lists and tuples, values of dicts,
attributes. A local variable or a parameter is none: whether it counts differs between interpreters, so an asker has none to
the objects it asks about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from sys import getrefcount
from types import SimpleNamespace
from typing import Any

#: stands for the number of references where nothing is known of the object: more than there can be
EVERYBODY = 1 << 30


class _Slot:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


#: ways to hold the first item of a list
_WAYS: tuple[Callable[[list[Any]], Any], ...] = (
    lambda x: [x[0]],
    lambda x: (x[0], None),
    lambda x: {None: x[0]},
    lambda x: _Slot(x[0]),
    lambda x: SimpleNamespace(value=x[0]),
)


def calibrated(counts: Callable[[list[Any]], list[int]]) -> int | None:
    """What `counts` says of an object that only the list holds in which it is asked about; None: that cannot be relied on."""
    base = counts([_Slot(None)])[0]
    for way in _WAYS:
        for extra in range(4):
            objects = [_Slot(None), _Slot(None)]
            kept = [way(objects) for _ in range(extra)]
            if counts(objects) != [base + extra, base]:
                return None
            del kept
            if counts(objects) != [base, base]:
                return None
    return base


def _counts(objects: list[Any]) -> list[int]:
    return list(map(getrefcount, objects))


_BASE = calibrated(_counts)
#: whether references can be counted here
RELIABLE = _BASE is not None
_OWN = -EVERYBODY if _BASE is None else _BASE


def references(objects: list[Any]) -> list[int]:
    """How many references there are to each object besides that of the list."""
    return [n - _OWN for n in map(getrefcount, objects)]


def held_beyond(objects: list[Any], own: Iterable[int]) -> list[bool]:
    """Whether anybody holds an object besides the list, and besides the `own` references to it that the asker knows of."""
    return [n > _OWN + known for n, known in zip(map(getrefcount, objects), own)]


def held(objects: list[Any]) -> list[bool]:
    """Whether anybody holds an object besides the list."""
    return held_beyond(objects, repeat(0))


def by(*holders: str) -> int:
    """The number of references that these holders are, one each: for `held_beyond`, in words."""
    return len(holders)


class Known:
    """The references to a list of objects that is asked about again and again: `own` of them to each, besides the list's."""

    __slots__ = ("_counts", "own")

    def __init__(self, own: Iterable[int]) -> None:
        self.own = list(own)
        self._counts = [_OWN + n for n in self.own]

    def all_there_is(self, objects: list[Any]) -> bool:
        """Whether nobody else holds any of them, seen at a glance; if False, `held_beyond` tells which, if any."""
        return list(map(getrefcount, objects)) == self._counts
