"""Functions that do something else for a while: what autocast and the profiler stand on.

The code of a function is exchanged, so that every name it goes by sees it. Off, it costs nothing: no function asks whether
somebody wants to look on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

from tabtorch.ops.machinery import registry

#: called in place of a function: `hook(the function, args, kwargs)`
Hook = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]

#: who exchanges code; what is exchanged is so for all threads, and hooks ask what holds for theirs
LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=LOCK._at_fork_reinit)  # type: ignore[attr-defined]

_records: dict[int, _Record] = {}
_layers: list[Layer] = []


class _Record:
    """One function, and who has something to do with it."""

    def __init__(self, f: Any) -> None:
        self.f = f
        self.own = f.__code__
        self.plain = FunctionType(self.own, f.__globals__, f.__name__, f.__defaults__, f.__closure__)
        self.plain.__kwdefaults__ = f.__kwdefaults__
        self.hooks: dict[Layer, Hook] = {}
        self.codes: dict[tuple[Layer, ...], Any] = {(): self.own}

    def make(self, on: tuple[Layer, ...]) -> Any:
        """The code for when these layers are on; the first of them is outermost."""
        mine = [x for x in on if x in self.hooks]
        code = self.own
        if mine:
            call: Any = self.plain
            for layer in reversed(mine[1:]):
                call = partial(_called, self.hooks[layer], call)
            code = _code(partial(self.hooks[mine[0]], call), len(self.own.co_freevars))
        self.codes[on] = code
        return code


def _called(hook: Hook, f: Any, *args: Any, **kwargs: Any) -> Any:
    return hook(f, args, kwargs)


def _code(hook: Any, cells: int) -> Any:
    """Code that calls `hook(args, kwargs)`, with as many free variables as the function has whose place it takes."""
    names = ", ".join(f"c{k}" for k in range(cells))
    space: dict[str, Any] = {}
    text = (  # the names after the return make them free variables, and are never reached
        f"def outer({names}):\n def exchanged(*args, **kwargs):\n  hook = 'hook'\n  return hook(args, kwargs)\n  ({names})\n"
        " return exchanged"
    )
    exec(compile(text, registry.GUARD, "exec"), space)
    code = space["outer"](*range(cells)).__code__
    return code.replace(co_consts=tuple([hook if c == "hook" else c for c in code.co_consts]))


def _on() -> tuple[Layer, ...]:
    return tuple([x for x in _layers if x.on])


class Layer:
    """What one party does with functions while it is on. Those of lower `rank` are outermost."""

    def __init__(self, rank: int, hook_for: Callable[[str], Hook | None]) -> None:
        """hook_for: the hook of an operation by its name, or None."""
        self.on = False
        self.rank = rank
        self.hook_for = hook_for
        self.met: list[_Record] = []
        self._seen = 0
        _layers.append(self)
        _layers.sort(key=lambda x: x.rank)
        for f in (registry.register, registry._from_row):
            self.meet(f, self._registering)

    def meet(self, f: Any, hook: Hook) -> None:
        """From now on, `hook` is called in place of `f` while this is on."""
        if not isinstance(f, FunctionType):
            return
        with LOCK:
            record = _records.get(id(f))
            if record is None:
                record = _records[id(f)] = _Record(f)
            if self in record.hooks:
                return
            record.hooks[self] = hook
            record.codes = {(): record.own}
            self.met.append(record)
            if self.on:
                f.__code__ = record.make(_on())

    def meet_name(self, name: str) -> None:
        """The same for an operation, if it is loaded."""
        hook = self.hook_for(name)
        if hook is not None:
            for table in (registry.FUNCTIONS, registry.METHODS):
                if name in table:
                    self.meet(table[name], hook)

    def _registering(self, f: Any, args: tuple[Any, ...], kw: dict[str, Any]) -> Any:
        """Operations load when first asked for: one that does so while this is on is met then."""
        r = f(*args, **kw)
        self.meet_name(args[0])
        return r

    def switch(self, on: bool) -> None:
        """On or off."""
        with LOCK:
            self._switch(on)

    def _switch(self, on: bool) -> None:
        if on == self.on:
            return
        here = len(registry.FUNCTIONS) + len(registry.METHODS)
        if on and here != self._seen:
            self._seen = here
            for name in {*registry.FUNCTIONS, *registry.METHODS}:
                self.meet_name(name)
        self.on = on
        now = _on()
        registry.exchanged[0] = bool(now)
        for record in self.met:
            record.f.__code__ = record.codes.get(now) or record.make(now)
