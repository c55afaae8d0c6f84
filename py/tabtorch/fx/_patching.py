"""Functions and methods that are others while a trace is made: what `torch.fx.wrap` names, and what a tracer wraps itself."""

from __future__ import annotations

import builtins
import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from tabtorch.fx.node import map_aggregate
from tabtorch.fx.proxy import Proxy

#: (id of the globals, name) -> the globals, of functions that `wrap` names
_wrapped_fns_to_patch: dict[tuple[int, str], dict[str, Any]] = {}
_wrapped_methods_to_patch: list[tuple[type, str]] = []


def _find_proxy(*objects: Any) -> Any:
    found = []
    map_aggregate(objects, lambda x: found.append(x) if isinstance(x, Proxy) else None)
    return found[-1] if found else None


def _create_wrapped_func(orig_fn: Callable[..., Any]) -> Any:
    @functools.wraps(orig_fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        proxy = _find_proxy(args, kwargs)
        if proxy is None:
            return orig_fn(*args, **kwargs)
        made = proxy.tracer.create_proxy("call_function", orig_fn, args, kwargs)
        made.node.meta["is_wrapped"] = True
        return made

    return wrapped


def _create_wrapped_method(cls: type, name: str) -> Any:
    orig_fn = getattr(cls, name)

    @functools.wraps(orig_fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        proxy = _find_proxy(args, kwargs)
        if proxy is None:
            return orig_fn(*args, **kwargs)
        return proxy.tracer.create_proxy("call_method", name, args, kwargs)

    return wrapped


class _Patcher:
    """Functions and methods that are others while a trace is made."""

    def __init__(self) -> None:
        self.undo: list[Callable[[], None]] = []
        self.visited: set[int] = set()

    def patch(self, frame_dict: dict[str, Any], name: str, new_fn: Any, deduplicate: bool = True) -> None:
        """In a module's names."""
        new_fn.__fx_already_patched = deduplicate
        if name not in frame_dict and hasattr(builtins, name):
            self.undo.append(lambda: frame_dict.__delitem__(name))
        elif getattr(frame_dict[name], "__fx_already_patched", False):
            return
        else:
            old = frame_dict[name]
            self.undo.append(lambda: frame_dict.__setitem__(name, old))
        frame_dict[name] = new_fn

    def patch_method(self, cls: type, name: str, new_fn: Any, deduplicate: bool = True) -> None:
        """Of a class."""
        new_fn.__fx_already_patched = deduplicate
        old = getattr(cls, name)
        if not getattr(old, "__fx_already_patched", False):
            self.undo.append(lambda: setattr(cls, name, old))
            setattr(cls, name, new_fn)

    def visit_once(self, thing: Any) -> bool:
        """Whether it is the first time that it is asked about."""
        new = id(thing) not in self.visited
        self.visited.add(id(thing))
        return new

    def __enter__(self) -> _Patcher:
        return self

    def __exit__(self, *exc: Any) -> None:
        while self.undo:
            self.undo.pop()()
        self.visited.clear()


@contextlib.contextmanager
def _new_patcher() -> Iterator[_Patcher]:
    with _Patcher() as patcher:
        yield patcher


def _patch_wrapped_functions(patcher: _Patcher) -> None:
    for (_, name), space in _wrapped_fns_to_patch.copy().items():
        fn = space[name] if name in space or not hasattr(builtins, name) else getattr(builtins, name)
        patcher.patch(space, name, _create_wrapped_func(fn))
    for cls, name in _wrapped_methods_to_patch:
        patcher.patch_method(cls, name, _create_wrapped_method(cls, name))


def _autowrap_check(patcher: _Patcher, frame_dict: dict[str, Any], function_ids: set[int]) -> None:
    if patcher.visit_once(frame_dict):
        for name, value in list(frame_dict.items()):
            if not name.startswith("_") and callable(value) and id(value) in function_ids:
                patcher.patch(frame_dict, name, _create_wrapped_func(value))


def wrap(fn_or_name: Any) -> Any:
    """Says that a function of the module it is called in, given itself or by name, is not to be entered by traces.

    RuntimeError for anything else, NotImplementedError elsewhere than at the top of a module.
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame = sys._getframe(1)
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped_fns_to_patch[id(frame.f_globals), name] = frame.f_globals
    return fn_or_name


wrap.__module__ = "tabtorch.fx._symbolic_trace"  # where the code of graphs finds it
