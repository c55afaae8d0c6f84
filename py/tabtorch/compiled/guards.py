"""What a function's Python can see besides its arguments: a walk over it, and a check that it is as it was.

A replay runs no Python of the function, so everything that its code might have looked at is watched: cells and globals that
its code (and that of functions and classes of the user's that it reaches) loads, the attributes of modules and objects,
the contents of containers. Objects count as the same by identity, numbers and strings by value. One pass over all of it
tells that nothing has changed, at some 20 ns an item.

What the walk cannot look into (files, iterators, sources of chance such as `random` and `time`) makes a scope `opaque`.
"""

from __future__ import annotations

import builtins
import dis
import functools
import sys
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from operator import attrgetter, is_
from typing import Any

from tabtorch.autograd import hooks
from tabtorch.base.dtypes import dtype
from tabtorch.core.tensor import Tensor
from tabtorch.core.tensor_base import inside
from tabtorch.nn.modules import _global_hooks
from tabtorch.nn.modules.module import _STATE as _MODULE_STATE
from tabtorch.nn.modules.module import Module
from tabtorch.optim._state import NumberStorage
from tabtorch.optim.optimizer import Optimizer
from tabtorch.random import Generator

#: compared by value
PLAIN = (int, float, complex, str, bytes, bool, type(None))
_LEAVES: tuple[Any, ...] = (
    *PLAIN,
    dtype,
    range,
    slice,
    type(Ellipsis),
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    Generator,
    BaseException,
)
_LEAVES += (types.WrapperDescriptorType, types.MethodWrapperType, types.GetSetDescriptorType, functools.cached_property)
#: what they return differs from call to call
_CHANCE = frozenset("random time datetime secrets uuid socket queue threading multiprocessing asyncio io os".split())
_DOING = frozenset("open input exec eval globals locals breakpoint".split())
#: where classes are from whose instances never change
_PLAIN_MODULES = frozenset("re enum typing functools types abc contextlib operator pathlib decimal fractions".split())
#: of a tensor, what is watched. Compared with ==: none of it has an __eq__ that is anything else than identity
PARTS = ("_tab_meta", "_tab_requires_grad", "_tab_storage")
_parts_of = attrgetter(*PARTS)
#: whose truth is that they are not empty
_CONTAINERS: tuple[Any, ...] = (dict, OrderedDict, list, set, type({}.values()))
#: objects that a walk looks at, at most
MOST = 100_000
_ALWAYS = frozenset(name for name, _ in _MODULE_STATE) | {"training"}


def _root(module: Any) -> str:
    return str(module or "").partition(".")[0]


def ours(module: Any) -> bool:
    """Whether a module of that name is part of the package, which changes nothing behind a function's back."""
    return _root(module) in ("tabtorch", "torch")


def _foreign(module: Any) -> bool:
    r = _root(module)
    return r in sys.stdlib_module_names or r in ("numpy", "builtins")


def same(a: Any, b: Any) -> bool:
    """Whether two plain values are indistinguishable (nan is nan, -0.0 is not 0.0)."""
    return type(a) is type(b) and (isinstance(a, PLAIN) or _is_number(a)) and repr(a) == repr(b)


def _is_number(x: Any) -> bool:
    """Whether it is a NumPy scalar."""
    return type(x).__module__ == "numpy" and getattr(x, "shape", None) == () and not hasattr(x, "__array_finalize__")


def about(t: Tensor) -> tuple[Any, ...]:
    """What a function can tell of a tensor without looking at its elements."""
    return (
        type(t),
        t._tab_meta,
        t._tab_requires_grad,
        t._tab_grad_fn is None,
        t._tab_inference,
        type(t._tab_storage),
        t._tab_storage.out,
    )


def hooks_of(t: Tensor) -> tuple[int, ...]:
    """How many hooks of each kind a leaf has."""
    kinds = (t._backward_hooks, t._post_accumulate_grad_hooks, t._tab_after_hooks)
    return tuple([len(h) if h else 0 for h in kinds])


def marked(t: Tensor) -> bool:
    """Whether there is more to a tensor than `about` tells: hooks, or attributes that a script has put on it."""
    return not inside(t).keys() <= _ORDINARY


def marks(t: Tensor) -> dict[str, Any]:
    """Those hooks and attributes, and the gradient of what is no leaf."""
    found = {k: v for k, v in inside(t).items() if k not in _ORDINARY}
    if t._tab_grad_fn is not None and t._grad is not None:
        found["_grad"] = t._grad
    return found


#: names in the dict of a tensor without either
_ORDINARY = frozenset(
    "_tab_storage _tab_meta _tab_requires_grad _tab_grad_fn _grad _base _tab_stale _tab_view_state _tab_inference _tab_accumulator".split()
)
#: what `mark_dynamic` and `mark_static` leave: see symbolic_sizes.py
_ORDINARY |= {f"_dynamo_{kind}_indices" for kind in ("dynamic", "weak_dynamic", "static")} | {"_dynamo_dynamic_range"}


class Guards:
    """Everything reachable from `roots` (a function, arguments that are objects)."""

    def __init__(self, roots: Iterable[Any]) -> None:
        self.roots = list(roots)
        self.names: set[str] = set()
        while True:  # which attributes count depends on the code that is met
            known = len(self.names)
            self._clear()
            for r in self.roots:
                self._put(r)
            while self._waiting and not self.opaque:
                self._walk(self._waiting.pop())
            if len(self.names) == known or self.opaque:
                break
        self.sizes = list(map(len, self._sized))
        # most are dicts of hooks: whether one of them is something now is soon told
        self._empty = [x for x in self._sized if type(x) in _CONTAINERS and not x]
        self._filled = [x for x in self._sized if type(x) not in _CONTAINERS or x]
        self._counts = list(map(len, self._filled))
        self._shown = [x for x in self._seqs if len(x)]
        self._note(list(self._now()))
        self.hooks_added = hooks.added[0]
        self.hooks = list(map(hooks_of, self.tensors))

    def _clear(self) -> None:
        self.opaque = ""
        self.asks_types = False  # whether it may look at the very type of a number
        self.tensors: list[Tensor] = []
        self.optimizers: list[Optimizer] = []
        #: (dict, key) of the numbers of optimizers, which may change: see symbolic_numbers.py
        self.numbers: list[tuple[dict, Any]] = []
        self.counters: list[Any] = []  # storages of tensors that are such numbers
        self._seqs: list[Any] = []
        self._sized: list[Any] = []
        self._watched: list[Tensor] = []
        self._owners: list[Any] = []
        self._attributes: list[str] = []
        self._dicts: list[dict] = []
        self._keys: list[Any] = []
        self._seen: dict[int, Any] = {}
        self._waiting: list[Any] = []
        for name, own in vars(_global_hooks).items():
            if isinstance(own, dict) and not name.startswith("__"):
                self._values(own)

    # ---- what is watched

    def _now(self) -> Iterator[Any]:
        return chain(chain.from_iterable(map(_parts_of, self._watched)), self._others())

    def _others(self) -> Iterator[Any]:
        """All but what tensors are."""
        return chain(
            chain.from_iterable(self._shown),
            map(getattr, self._owners, self._attributes),
            map(dict.get, self._dicts, self._keys),
        )

    def _note(self, now: list[Any]) -> None:
        self.snap = now
        self._parts = list(map(_parts_of, self._watched))
        self._rest = now[len(PARTS) * len(self._watched) :]

    def unchanged(self) -> bool:
        """Whether all is as it was. A tensor may have become another like it: then `tensors` has that one."""
        try:
            if any(self._empty) or list(map(len, self._filled)) != self._counts:
                return False
            if self.hooks_added != hooks.added[0]:
                if list(map(hooks_of, self.tensors)) != self.hooks:
                    return False
                self.hooks_added = hooks.added[0]
            if list(map(_parts_of, self._watched)) == self._parts and all(map(is_, self._others(), self._rest)):
                return True
            return self._agrees(list(self._now()))
        except (ValueError, AttributeError, RuntimeError):  # a cell was emptied, an attribute deleted
            return False

    def _agrees(self, now: list[Any]) -> bool:
        if len(now) != len(self.snap):
            return False
        moved: dict[int, Any] = {}
        for a, b in zip(self.snap, now):
            if a is b:
                continue
            if isinstance(a, Tensor) and isinstance(b, Tensor) and about(a) == about(b):
                if moved.setdefault(id(a), b) is not b:
                    return False
            elif not same(a, b):
                return False
        if moved:
            if any(a is b and id(a) in moved for a, b in zip(self.snap, now)):
                return False  # it is still what it was elsewhere
            self.tensors = [moved.get(id(t), t) for t in self.tensors]
            self._watched = [moved.get(id(t), t) for t in self._watched]
            self._owners = [moved.get(id(t), t) for t in self._owners]
            now = list(self._now())
        self._note(now)
        return True

    # ---- the walk

    def _put(self, x: Any) -> None:
        if id(x) in self._seen or (isinstance(x, _LEAVES) and not isinstance(x, types.BuiltinFunctionType)):
            return
        if len(self._seen) > MOST:
            self.opaque = "it can reach too many objects"
            return
        self._seen[id(x)] = x
        self._waiting.append(x)

    def _values(self, d: Any) -> None:
        """All of a dict's values."""
        self._sequence(dict.values(d))

    def _sequence(self, values: Any) -> None:
        self._seqs.append(values)
        self._sized.append(values)
        for v in values:
            self._put(v)

    def _item(self, d: dict, key: Any) -> None:
        self._dicts.append(d)
        self._keys.append(key)
        self._put(dict.get(d, key))

    def _attribute(self, owner: Any, name: str) -> None:
        try:
            v = getattr(owner, name)
        except (AttributeError, ValueError):
            return
        self._owners.append(owner)
        self._attributes.append(name)
        self._put(v)

    def _walk(self, x: Any) -> None:
        """Watches what can be seen of one object, and puts what it leads to in the queue; or says that it cannot look inside."""
        cls = type(x)
        if isinstance(x, Tensor):
            if type(x._tab_storage) is NumberStorage:
                self._number(x)
            else:
                self.tensors.append(x)
            self._watched.append(x)
            for own in (x._backward_hooks, x._post_accumulate_grad_hooks, x._tab_after_hooks):
                if own:
                    self._values(own)
            if marked(x):
                for name in inside(x).keys() - vars(Tensor).keys() - _ORDINARY:
                    self._item(inside(x), name)
        elif cls is types.FunctionType:
            self._function(x)
        elif cls is types.MethodType:
            self._put(x.__self__)
            self._put(x.__func__)
        elif isinstance(x, (list, tuple, set, frozenset, deque)):
            self._sequence(x)
            if not ours(cls.__module__) and hasattr(x, "__dict__"):
                self._object(x)
        elif isinstance(x, dict):
            self._values(x)
            for k in dict.keys(x):
                self._put(k)
            if hasattr(x, "__dict__") and not _foreign(cls.__module__):
                self._object(x)
        elif isinstance(x, (staticmethod, classmethod)):
            self._put(x.__func__)
        elif isinstance(x, property):
            for f in (x.fget, x.fset):
                self._put(f)
        elif isinstance(x, functools.partial):
            self._put(x.func)
            self._put(x.args)
            self._put(x.keywords)
        elif isinstance(x, types.BuiltinFunctionType):
            if _root(type(getattr(x, "__self__", None)).__module__) in _CHANCE | {"_random", "_io"} or (
                x.__name__ in _DOING or _root(x.__module__) in _CHANCE
            ):
                self.opaque = f"it calls {x.__name__}()"
            elif not isinstance(x.__self__, (types.ModuleType, type, type(None))):
                self._put(x.__self__)
        elif isinstance(x, types.ModuleType):
            if _root(x.__name__) in _CHANCE:
                self.opaque = f"it uses the module {x.__name__}"
            elif _root(x.__name__) == "numpy" and "random" in self.names:
                self.opaque = "it uses numpy.random"
            elif not ours(x.__name__) and not _foreign(x.__name__):
                for name in sorted(self.names & vars(x).keys()):
                    self._item(vars(x), name)
        elif isinstance(x, type):
            self._class(x)
        elif isinstance(x, Optimizer):
            self._optimizer(x)
        elif isinstance(x, weakref.ref):
            self._put(x())
        elif getattr(cls, "_is_compiled", False):  # a `Compiled`: what it keeps of calls does not matter
            self._put(x.function)
        elif cls is types.CellType:
            self._attribute(x, "cell_contents")
        elif ours(cls.__module__) or not _foreign(cls.__module__):
            self._object(x)
        elif _root(cls.__module__) in _PLAIN_MODULES or cls is object or _is_number(x):
            if hasattr(x, "__wrapped__"):
                self._put(x.__wrapped__)
        elif hasattr(x, "__dict__") and _root(cls.__module__) not in {"numpy", "builtins", *_CHANCE}:
            self._object(x)  # as argparse.Namespace
        else:
            self.opaque = f"it uses an object of type {cls.__module__}.{cls.__qualname__}"

    def _function(self, f: types.FunctionType) -> None:
        if f.__dict__ and (not ours(f.__module__) or "_torchdynamo_orig_callable" in f.__dict__):
            self._sized.append(f.__dict__)
            for name in sorted(self.names & f.__dict__.keys()):
                self._item(f.__dict__, name)
        wrapped = f.__dict__.get("_torchdynamo_orig_callable")
        if wrapped is not None:
            self._put(wrapped)
            return
        if ours(f.__module__) and (not f.__closure__ or _is_operation(f)):
            return
        for cell in f.__closure__ or ():
            self._put(cell)
        if ours(f.__module__):
            return
        if f.__defaults__:
            self._put(f.__defaults__)
        if f.__kwdefaults__:
            self._put(f.__kwdefaults__)
        if _root(f.__module__) in _CHANCE:
            self.opaque = f"it calls {f.__qualname__}()"
        if _foreign(f.__module__):
            return
        space = f.__globals__
        for name in sorted(self._code(f.__code__)):
            if name in space or not hasattr(builtins, name):
                self._item(space, name)
            elif name == "type":
                self.asks_types = True
            elif name in _DOING:
                self.opaque = f"it calls {name}()"

    def _code(self, code: types.CodeType) -> frozenset[str]:
        """The globals that code loads; every other name in it is noted as that of an attribute."""
        names, loads = _loads(code)
        self.names |= names
        return loads

    def _class(self, c: type) -> None:
        for k in c.__mro__:
            if ours(k.__module__) or _foreign(k.__module__):
                continue
            for name, v in list(vars(k).items()):
                if isinstance(v, (types.FunctionType, staticmethod, classmethod, property)):
                    self._put(v)
                    if name in self.names:
                        self._attribute(k, name)
                elif name in self.names and not name.startswith("__"):
                    self._attribute(k, name)

    def _object(self, x: Any) -> None:
        cls = type(x)
        self._put(cls)
        own = getattr(x, "__dict__", None)
        if own is not None:
            self._sized.append(own)
            if ours(cls.__module__) and isinstance(x, Module):
                self._values(own)
            else:
                every = (
                    ours(cls.__module__)
                    or _foreign(cls.__module__)
                    or not self.names.isdisjoint(("__dict__", "getattr", "vars", "asdict"))
                )
                for name in [k for k in own if every or k in self.names or k in _ALWAYS]:
                    self._item(own, name)
        for k in cls.__mro__:
            for name in getattr(k, "__slots__", ()) if not _foreign(k.__module__) else ():
                if name not in ("__weakref__", "__dict__"):
                    self._attribute(x, name)

    def _number(self, t: Any) -> None:
        """A tensor whose value Python knows: the number is live, as those of an optimizer."""
        box = t._tab_storage.box
        if id(box) not in self._seen:
            self._seen[id(box)] = box
            self.counters.append(t._tab_storage)
            self.numbers.append((box, "value"))

    def _optimizer(self, opt: Optimizer) -> None:
        """Its numbers are live: see symbolic_numbers.py. All else of it is watched."""
        self.optimizers.append(opt)
        self._put(type(opt))
        own = vars(opt)
        for name in own:
            if name not in ("param_groups", "state", "defaults"):
                self._item(own, name)
        for d in [*opt.param_groups, *opt.state.values(), opt.state]:
            if not isinstance(d, dict):
                continue
            for key in d:
                v = dict.__getitem__(d, key)
                if type(v) in (int, float):
                    self.numbers.append((d, key))
                elif d is not opt.state:
                    self._item(d, key)
        self._sequence(dict.keys(opt.state))
        self._seqs += [opt.param_groups, dict.values(opt.state)]  # which dicts they are, not what is in them
        self._sized += [opt.param_groups, *[d for d in [*opt.param_groups, *opt.state.values()] if isinstance(d, dict)]]
        self._dicts += [vars(opt)] * 2
        self._keys += ["param_groups", "state"]


def _is_operation(f: types.FunctionType) -> bool:
    """Whether it is made of a row of the tables: what it encloses are tables of the engine, which grow."""
    return str(f.__globals__.get("__name__")).startswith("tabtorch.ops.machinery.")


@functools.lru_cache(4096)
def _loads(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    names = set(code.co_names)
    loads = {i.argval for i in dis.get_instructions(code) if i.opname.endswith(("_GLOBAL", "_NAME"))}
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            more, inside = _loads(c)
            names |= more
            loads |= inside
        elif isinstance(c, str) and c.isidentifier():  # getattr(x, "name")
            names.add(c)
    return frozenset(names), frozenset(loads)


__all__ = ["PLAIN", "Callable", "Guards", "about", "ours", "same"]
