"""What holds for the thread that runs: whether autograd records, `vmap`'s levels, and the like. PyTorch's rules tell which.

`torch.no_grad` and its kin, which change the first, are in `autograd/grad_mode.py`.
"""

from __future__ import annotations

import _thread
import itertools
import os
import threading
from collections.abc import Callable
from operator import attrgetter
from typing import Any

#: numbers the nodes of the tape in the order in which they are made
next_seq = itertools.count().__next__

#: what each thread has for itself, and how it begins
OWN: dict[str, Any] = {
    "grad": True,  # whether operations record
    "inference": False,
    "hidden": False,  # see `State`
    "hooks": (),  # (pack, unpack) of each `saved_tensors_hooks` that is entered; only the last counts
    "levels": (),  # the calls of `vmap` that are under way, innermost last
    "nesting": 0,  # how many transforms of torch.func are under way, `vmap` included
    "held": None,  # a compiled function that is being run: see compiled/capture.py
    "hooks_disabled": None,  # the message of `disable_saved_tensors_hooks`
    "task": None,  # (number, roots, targets) of the backward pass that is running
    "lays_out": True,  # whether a gradient is laid out as its leaf
    "given": (),  # if not: the gradients that the backward pass began with, which are somebody's
    "zeros": None,  # edges that had a gradient of zeros in it: see zero_curvature.py
}


class State:
    """The present modes. Every operation asks, so they are plain attributes wherever they can be: see `several`."""

    __slots__ = ("dualed", "duals", "flips", *OWN)

    grad: bool
    inference: bool
    hidden: bool
    hooks: tuple[tuple[Any, Any], ...]
    hooks_disabled: str | None
    levels: tuple[Any, ...]
    nesting: int
    held: Any
    task: Any
    lays_out: bool
    given: Any
    zeros: list[Any] | None

    def __init__(self) -> None:
        for name, value in OWN.items():
            setattr(self, name, value)
        # Forward mode reads its tangents off the tape, so within a level everything is recorded. Where autograd is off
        # for the user, as in `no_grad`, nodes are `hidden`: backward does not see them. As in PyTorch, a level is there for all
        # threads.
        self.duals = 0  # how many levels there are
        self.dualed = False  # whether there ever was one
        self.flips: list[int] = []  # the numbers at which `hidden` began and ended, in turns

    def enabled(self) -> bool:
        """Whether autograd is on for the user."""
        return self.grad and not self.hidden

    def enable(self, on: bool) -> None:
        """Turns autograd on or off for the user."""
        if not self.duals:
            self.grad = on
            return
        self.grad = not self.inference
        if self.hidden is on:
            self.hidden = not on
            n, flips = next_seq(), self.flips
            if flips and flips[-1] == n - 1:  # nothing lies between
                flips.pop()
            else:
                flips.append(n)

    def snapshot(self) -> list[Any]:
        """What this thread has for itself."""
        return [getattr(self, name) for name in OWN]

    def restore(self, values: list[Any]) -> None:
        """Puts back what `snapshot` gave."""
        for name, value in zip(OWN, values, strict=True):
            setattr(self, name, value)


STATE = State()


# ---- tasks
#
# PyTorch never lets another task of asyncio run while one reads a value. Here, in a tab, it may: Python waits in JavaScript.
# So that this cannot be told, the modes are meanwhile what they were when the event loop gave this task its turn.

#: (what gives the modes of one kind, what sets them, those at the beginning)
KINDS: list[tuple[Callable[[], Any], Callable[[Any], None], Any]] = []
#: all of them at the beginning of the turn that is under way; None: nobody knows when it began
_turn: list[Any] | None = None


def kind(save: Callable[[], Any], restore: Callable[[Any], None]) -> None:
    """Modes that go with a task."""
    KINDS.append((save, restore, save()))


kind(STATE.snapshot, STATE.restore)


def apart(wait: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`wait`, during which other tasks run."""

    def waiting(what: Any) -> Any:
        global _turn
        turn, _turn = _turn, None
        own = [save() for save, _, _ in KINDS]
        outside = [initial for _, _, initial in KINDS] if turn is None else turn
        for (_, restore, _), mine, other in zip(KINDS, own, outside):
            if mine != other:
                restore(other)
        try:
            return wait(what)
        finally:
            for (_, restore, _), mine, other in zip(KINDS, own, outside):
                if mine != other:
                    restore(mine)
            _turn = turn

    return waiting


def in_turns(run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`asyncio.Handle._run`, which gives a task its turn."""

    def turn(handle: Any) -> Any:
        global _turn
        before, _turn = _turn, [save() for save, _, _ in KINDS]
        try:
            return run(handle)
        finally:
            _turn = before

    return turn


# ---- several threads
#
# Once there may be a second one, a change makes the modes of the thread that changes them its own. While any thread's are not
# those with which every thread begins, all look theirs up, which takes some 0.1 us; at other times they are plain
# attributes again. So a program that records, and has a progress bar with a thread of its own, pays nothing.


class _Alike(State):
    """For now all threads have the modes with which they began."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in OWN:
            _change(name, value)
        else:
            object.__setattr__(self, name, value)


class _Different(State):
    """Some thread has others."""

    __slots__ = ()
    own: Any


class _Own(threading.local):
    """The modes of a thread, and the names of those that are not as at its beginning."""

    def __init__(self, first: dict[str, Any]) -> None:
        self.__dict__.update(first if _thread.get_ident() == FIRST else OWN)
        self.changed = {name for name, value in OWN.items() if getattr(self, name) is not value}
        self.end = _End(self.changed)


class _End:
    """Goes with its thread."""

    __slots__ = ("changed",)

    def __init__(self, changed: set[str]) -> None:
        self.changed = changed

    def __del__(self) -> None:
        if self.changed and _lock is not None:  # it is None where Python is ending
            with _lock:
                _count(-1)


def _property(name: str) -> property:
    return property(attrgetter("own." + name), lambda state, value: _change(name, value))


for _name in OWN:
    setattr(_Different, _name, _property(_name))

#: the thread to which the plain attributes belong before there is a second one
FIRST = _thread.get_ident()
_alone = True
_lock = threading.RLock()
if hasattr(os, "register_at_fork"):  # a thread that has it is not there any more
    os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]
#: how many threads have changed something
_differing = 0


def _change(name: str, value: Any) -> None:
    with _lock:
        own = _Different.own
        changed = own.changed
        before = bool(changed)
        setattr(own, name, value)
        if value is OWN[name]:
            changed.discard(name)
        else:
            changed.add(name)
        if before is not bool(changed):
            _count(1 - 2 * before)


def _count(more: int) -> None:
    global _differing
    _differing += more
    STATE.__class__ = _Different if _differing else _Alike


def several() -> None:
    """There is a second thread, or there will be: from now on each has its own modes."""
    global _alone
    with _lock:
        if not _alone:
            return
        _alone = False
        first = {name: getattr(STATE, name) for name in OWN}
        for name, value in OWN.items():
            setattr(STATE, name, value)
        _Different.own = _Own(first)
        _count(any(value is not OWN[name] for name, value in first.items()))
    for module, name, start in _starters:
        setattr(module, name, start)


def met() -> None:
    """To be called now and then: a thread may have been started by other means than Python's (a GUI, an embedding program)."""
    if _alone and _thread.get_ident() != FIRST:
        several()


def _starting(start: Any) -> Any:
    def starting(*args: Any, **kwargs: Any) -> Any:
        several()
        return start(*args, **kwargs)

    return starting


#: (module, name, function) of what starts threads: until the first time, they tell
_starters = [
    (module, name, getattr(module, name))
    for module in (_thread, threading)
    for name in ("start_new_thread", "start_joinable_thread", "_start_new_thread", "_start_joinable_thread")
    if hasattr(module, name)
]
if _thread._count():  # threads of before
    several()
else:
    for _module, _name, _start in _starters:
        setattr(_module, _name, _starting(_start))
