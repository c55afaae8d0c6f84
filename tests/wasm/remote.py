"""Objects of another interpreter, used as if they were here: how tests in Pyodide reach PyTorch and NumPy.

Two peers talk in turns, one message at a time. What is plain (numbers, text, containers of such) travels by value; of
everything else a handle does, and the other side has a proxy, whose class has the name and the special methods of the real
one. Functions may travel both ways, so hooks work, and a class derived from a proxy is made over there too. Exceptions and
warnings arrive as what they were.
"""

from __future__ import annotations

import builtins
import collections
import copy
import importlib
import importlib.abc
import importlib.machinery
import io
import operator
import pathlib
import pickle
import sys
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any

_ATOMS = (bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, slice, range)
PLAIN = {type(None), type(...), type(NotImplemented), collections.OrderedDict, *_ATOMS}
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)
#: attributes with two underscores that a proxy asks for; the others are looked up on classes, by Python
_OPEN = {"__name__", "__qualname__", "__dict__", "__doc__", "__module__", "__version__", "__wrapped__", "__self__"}

_BINARY = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
_operators = {n: getattr(operator, n + "_" if n in ("and", "or") else n) for n in _BINARY}
SPECIAL: dict[str, Callable[..., Any]] = {
    **{f"__{n}__": f for n, f in _operators.items()},
    **{f"__r{n}__": (lambda x, y, f=f: f(y, x)) for n, f in _operators.items()},
    **{f"__i{n}__": getattr(operator, f"i{n}") for n in _BINARY},
    **{f"__{n}__": getattr(operator, n) for n in "eq ne lt le gt ge neg pos invert abs index".split()},
    **{f"__{f.__name__}__": f for f in (len, iter, next, bool, int, float, complex, repr, str, format, hash, reversed)},
    "__getitem__": operator.getitem,
    "__setitem__": operator.setitem,
    "__delitem__": operator.delitem,
    "__contains__": operator.contains,
    "__divmod__": divmod,
    "__call__": lambda x, *args, **kw: x(*args, **kw),
    "__enter__": lambda x: type(x).__enter__(x),
    "__exit__": lambda x, *error: type(x).__exit__(x, *error),
    "__array__": lambda x, *args, **kw: x.__array__(*args, **kw),
    "__fspath__": lambda x: x.__fspath__(),
    "__copy__": copy.copy,
    "__deepcopy__": lambda x, memo: copy.deepcopy(x),
}
SPECIAL["__invert__"] = operator.invert
#: a hook in a hook in a hook is the most that a test has
DEEPEST = 12
_ALWAYS = ("__repr__", "__copy__", "__deepcopy__")


class RemoteMeta(type):
    """The class of the proxies of classes. They answer for the class over there; deriving from one derives there too."""

    _peer: Peer
    _handle: int

    def __new__(meta, name: str, bases: tuple[type, ...], space: dict[str, Any], own: bool = False) -> Any:
        if own:
            return super().__new__(meta, name, bases, space)
        peer = next(b._peer for b in bases if isinstance(b, RemoteMeta))
        there = {k: v for k, v in space.items() if k not in ("__classcell__", "__qualname__", "__firstlineno__")}
        there = {k: v for k, v in there.items() if k not in ("__static_attributes__", "__annotate_func__")}
        handle = peer.request("subclass", name, bases, there)
        inner = {k: space[k] for k in ("__classcell__", "__module__", "__qualname__") if k in space}
        made = peer.make_class(handle, inner, bases)
        peer.hold(handle, made)
        return made

    def __init__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any], own: bool = False) -> None:
        super().__init__(name, bases, space)

    def __call__(cls, *args: Any, **kw: Any) -> Any:
        return cls._peer.request("call", cls, args, kw)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_peer") or name.startswith("__") and name not in _OPEN:
            raise AttributeError(name)
        return cls._peer.request("getattr", cls, name)

    def __setattr__(cls, name: str, value: Any) -> None:
        if name in ("_peer", "_handle", "__abstractmethods__"):
            super().__setattr__(name, value)
        else:
            cls._peer.request("setattr", cls, name, value)

    def __delattr__(cls, name: str) -> None:
        cls._peer.request("delattr", cls, name)

    def __instancecheck__(cls, x: Any) -> bool:
        if not isinstance(type(x), RemoteMeta):
            return False
        return issubclass(type(x), cls) or bool(cls._peer.request("isinstance", x, cls))

    def __subclasscheck__(cls, other: type) -> bool:
        return isinstance(other, RemoteMeta) and (other is cls or cls._peer.derives(other, cls))

    def __or__(cls, other: Any) -> Any:
        return (cls, other)

    def __dir__(cls) -> Any:
        return cls._peer.request("dir", cls)

    def __iter__(cls) -> Any:
        return iter(cls._peer.request("items", cls))


class Remote(metaclass=RemoteMeta, own=True):
    """A proxy of an object."""

    _peer: Peer
    _handle: int

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__") and name not in _OPEN:
            raise AttributeError(name)
        return self._peer.request("getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._peer.request("setattr", self, name, value)

    def __delattr__(self, name: str) -> None:
        self._peer.request("delattr", self, name)

    def __dir__(self) -> Any:
        return self._peer.request("dir", self)


def _special(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kw: Any) -> Any:
        return self._peer.request("special", name, self, args, kw)

    method.__name__ = name
    return method


def _module(peer: Peer, name: str) -> types.ModuleType:
    """A module over there. Its type is that of every module: whoever walks over values stops at it."""
    module = types.ModuleType(name)

    def find(attribute: str) -> Any:
        if attribute.startswith("__") and attribute not in _OPEN:
            raise AttributeError(attribute)
        value = peer.request("module", name, attribute)
        if isinstance(value, type):
            setattr(module, attribute, value)
        return value

    setattr(module, "__getattr__", find)  # noqa: B010
    setattr(module, "__dir__", lambda: peer.request("dir", module))  # noqa: B010
    return module


class _Pickler(pickle.Pickler):
    def __init__(self, file: Any, peer: Peer) -> None:
        super().__init__(file, 4)
        self.peer = peer

    def persistent_id(self, x: Any) -> Any:
        return None if type(x) in PLAIN or x is collections.OrderedDict else self.peer.pack(x)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, peer: Peer) -> None:
        super().__init__(file)
        self.peer = peer

    def persistent_load(self, pid: Any) -> Any:
        return self.peer.unpack(*pid)


class Peer:
    """One of the two sides. send, receive: of a whole message, as bytes; `receive` gives b"" when the other has gone.

    real: whether this is the side where the packages are.
    """

    def __init__(self, send: Callable[[bytes], None], receive: Callable[[], bytes], real: bool) -> None:
        self._send, self._receive = send, receive
        self._objects: dict[int, list[Any]] = {}  # handle -> object, how often it was sent
        self._handles: dict[int, int] = {}  # id -> handle
        self._last = 0
        self._proxies: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._received: collections.Counter[int] = collections.Counter()
        self.real = real
        self._files: weakref.WeakValueDictionary[int, io.BytesIO] = weakref.WeakValueDictionary()
        self._opened: dict[int, io.BytesIO] = {}
        self._dead: list[tuple[int, int]] = []
        self._classes: dict[int, Any] = {}
        self._derived: dict[tuple[int, int], bool] = {}
        self._errors: dict[Any, type] = {}
        self._depth = 0  # of answers that wait for each other
        self.count = 0  # requests made

    # -- values

    def pack(self, x: Any) -> Any:
        """What goes in place of `x`, which is not plain."""
        t = type(x)
        if isinstance(t, RemoteMeta):
            return "yours", x._handle
        if t is RemoteMeta:
            return "yours", x._handle
        if t is types.FunctionType and hasattr(x, "_remote_handle"):
            return "yours", x._remote_handle
        if isinstance(x, types.ModuleType):
            return "import", x.__name__
        if t in (type, types.BuiltinFunctionType) and getattr(builtins, x.__name__, None) is x:
            return "builtin", x.__name__
        if t.__module__ == "numpy" and t.__name__.startswith("bool"):
            return "value", bool(x)
        if isinstance(x, tuple):
            names = getattr(t, "_fields", None) or getattr(t, "__match_args__", ())
            return "tuple", (t.__module__, t.__name__), tuple(names), tuple(x)
        if t in (staticmethod, classmethod, property):
            return "descriptor", t, (x.fget, x.fset) if t is property else (x.__func__,)
        if t is memoryview:
            return "value", bytes(x)
        if t is io.BytesIO:
            self._files[id(x)] = x
            return "file", id(x), x.getvalue(), x.tell()
        if isinstance(x, pathlib.PurePath):
            return "path", str(x)
        kind = "class" if isinstance(x, type) else "function" if isinstance(x, _FUNCTIONS) else "object"
        handle = self._handles.get(id(x))
        if handle is None or t is types.MethodType:
            handle = self._last = self._last + 1
            self._handles[id(x)] = handle
            self._objects[handle] = [x, 0]
        self._objects[handle][1] += 1
        if kind == "function":
            return "mine", kind, handle, getattr(x, "__name__", "function")
        return "mine", kind, handle, None if kind == "class" else t

    def unpack(self, kind: str, *rest: Any) -> Any:
        """The other end of `pack`."""
        if kind == "yours":
            return self._objects[rest[0]][0]
        if kind == "import":
            return importlib.import_module(rest[0])
        if kind == "builtin":
            return getattr(builtins, rest[0])
        if kind == "value":
            return rest[0]
        if kind == "path":
            return pathlib.Path(rest[0])
        if kind == "descriptor":
            return rest[0](*rest[1])
        if kind == "tuple":
            return self._tuple(*rest[:2])(rest[2])
        if kind == "file":
            return self._file(*rest)
        what, handle, more = rest
        self._received[handle] += 1
        found = self._proxies.get(handle)
        if found is not None:
            return found
        if what == "class":
            return self.class_of(handle)
        if what == "function":
            found = self._function(handle, more)
        else:
            found = object.__new__(more)
            object.__setattr__(found, "_handle", handle)
        self.hold(handle, found)
        return found

    def hold(self, handle: int, proxy: Any) -> None:
        """Note a new proxy; when it dies, the object is let go over there."""
        self._proxies[handle] = proxy
        weakref.finalize(proxy, self._died, handle).atexit = False

    def _died(self, handle: int) -> None:
        self._dead.append((handle, self._received.pop(handle, 0)))

    def _function(self, handle: int, name: str) -> Any:
        def function(*args: Any, **kw: Any) -> Any:
            return self.request("call", function, args, kw)

        function.__name__ = function.__qualname__ = name
        function._remote_handle = handle  # type: ignore[attr-defined]
        return function

    def _file(self, key: int, data: bytes, at: int) -> io.BytesIO:
        """A file in memory is copied, and copied back with the answer."""
        file = io.BytesIO(data)
        file.seek(at)
        self._opened[key] = file
        return file

    def _tuple(self, where: tuple[str, str], fields: tuple[str, ...]) -> Any:
        module, name = where
        key = ("tuple", name, fields)
        if self.real:
            return getattr(sys.modules.get(module), name, tuple)
        if key not in self._errors:
            space = {f: property(operator.itemgetter(i)) for i, f in enumerate(fields)}
            extra = {"numel": lambda self: __import__("math").prod(self)} if name == "Size" else {}
            self._errors[key] = type(name, (tuple,), {"__module__": module, **space, **extra, "_fields": fields})
        return self._errors[key]

    def class_of(self, handle: int) -> Any:
        """The class that stands for one over there."""
        found = self._classes.get(handle)
        if found is None:
            found = self._classes[handle] = self.make_class(handle, {}, ())
            if isinstance(found, RemoteMeta):
                self._proxies[handle] = found  # for ever
        return found

    def make_class(self, handle: int, space: dict[str, Any], bases: tuple[type, ...]) -> Any:
        name, module, special, error = self.request("describe", handle)
        if error:
            return self._exception(error)
        space = {"__module__": module, **space, "_peer": self, "_handle": handle}
        special = [n for n in special if n != "__init__"]
        space |= {n: _special(n) for n in special}
        if "__eq__" in special and "__hash__" not in special:
            space["__hash__"] = None

        def init(self: Any, *args: Any, **kw: Any) -> None:  # reached by `super().__init__()` of a derived class
            made._peer.request("getattr", made, "__init__")(self, *args, **kw)

        if not bases:
            space["__init__"] = init
        made: Any = RemoteMeta(name, bases or (Remote,), space, own=True)
        return made

    def derives(self, a: Any, b: Any) -> bool:
        """Whether class `a` over there is derived from `b`."""
        key = (a._handle, b._handle)
        if key not in self._derived:
            self._derived[key] = self.request("issubclass", a, b)
        return self._derived[key]

    # -- messages

    def request(self, *what: Any) -> Any:
        """Have the other side do something, and do what it asks for meanwhile."""
        self.count += 1
        if self._depth > DEEPEST:
            raise RecursionError(f"the two interpreters ask each other without end, at last for {what[:2]}")
        dead, self._dead = self._dead, []
        self._write(("request", dead, what))
        while True:
            message = self._read()
            if message is None:
                raise EOFError("the other interpreter has gone")
            kind, *rest = message
            if kind == "reply":
                return self._take(*rest)
            self._answer(*rest)

    def serve(self) -> None:
        """Answer until the other side goes."""
        while (message := self._read()) is not None:
            self._answer(*message[1:])

    def _take(self, ok: bool, value: Any, warned: list[Any], files: list[Any]) -> Any:
        for key, data, at in files:
            file = self._files.get(key)
            if file is None or file.closed:
                continue
            if file.getbuffer() != data:
                file.seek(0)
                file.truncate()
                file.write(data)
            file.seek(at)
        for category, text in warned:
            warnings.warn(text, self._exception(category), stacklevel=4)
        if ok:
            return value
        raise self._exception(value[0])(*value[1])

    def _answer(self, dead: list[tuple[int, int]], what: tuple[Any, ...]) -> None:
        for handle, times in dead:
            entry = self._objects[handle]
            entry[1] -= times
            if entry[1] <= 0:
                del self._objects[handle]
                if self._handles.get(id(entry[0])) == handle:
                    del self._handles[id(entry[0])]
        entry = None
        ok, value, warned = True, None, []
        self._depth += 1
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                value = getattr(self, f"_do_{what[0]}")(*what[1:])
        except Exception as error:
            plain = all(type(x) in PLAIN for x in error.args)
            ok, value = False, (_described(type(error)), list(error.args) if plain else [str(error)])
        self._depth -= 1
        warned = [(_described(w.category), str(w.message)) for w in caught if w.category is not DeprecationWarning]
        del what
        files = [(key, f.getvalue(), f.tell()) for key, f in self._opened.items() if not f.closed]
        self._opened = {}
        self._write(("reply", ok, value, warned, files))

    def _write(self, message: Any) -> None:
        file = io.BytesIO()
        _Pickler(file, self).dump(message)
        self._send(file.getvalue())

    def _read(self) -> Any:
        data = self._receive()
        return _Unpickler(io.BytesIO(data), self).load() if data else None

    def _exception(self, mro: list[tuple[str, str]]) -> type:
        """The exception with this ancestry: Python's own, else one of the same name derived from it."""
        (module, name), *rest = mro
        if module in sys.stdlib_module_names:
            return getattr(importlib.import_module(module), name)
        key = (module, name)
        if key not in self._errors:
            self._errors[key] = type(name, (self._exception(rest),), {"__module__": module})
        return self._errors[key]

    # -- what can be asked for

    def _do_getattr(self, x: Any, name: str) -> Any:
        return getattr(x, name)

    def _do_setattr(self, x: Any, name: str, value: Any) -> None:
        setattr(x, name, value)

    def _do_delattr(self, x: Any, name: str) -> None:
        delattr(x, name)

    def _do_call(self, f: Any, args: Any, kw: Any) -> Any:
        return f(*args, **kw)

    def _do_special(self, name: str, x: Any, args: Any, kw: Any) -> Any:
        return SPECIAL[name](x, *args, **kw)

    def _do_dir(self, x: Any) -> Any:
        return list(dir(x))

    def _do_items(self, x: Any) -> Any:
        return list(x)

    def _do_module(self, name: str, attribute: str) -> Any:
        return getattr(importlib.import_module(name), attribute)

    def _do_find(self, name: str) -> Any:
        try:
            return bool(importlib.import_module(name))
        except ImportError:
            return False

    def _do_isinstance(self, x: Any, cls: Any) -> bool:
        return isinstance(x, cls)

    def _do_issubclass(self, a: Any, b: Any) -> bool:
        return issubclass(a, b)

    def _do_subclass(self, name: str, bases: Any, space: Any) -> int:
        made = types.new_class(name, bases, {}, lambda ns: ns.update(space))
        return int(self.pack(made)[2])

    def _do_describe(self, handle: int) -> Any:
        cls = self._objects[handle][0]
        special = [
            n for n in SPECIAL if getattr(cls, n, None) is not None and getattr(object, n, None) is not getattr(cls, n)
        ]
        error = _described(cls) if issubclass(cls, BaseException) else None
        return cls.__name__, cls.__module__, [*dict.fromkeys([*special, *_ALWAYS])], error


def _described(cls: type) -> list[tuple[str, str]]:
    chain = [c for c in cls.__mro__ if issubclass(c, BaseException)]
    end = next(i for i, c in enumerate(chain) if c.__module__ == "builtins")
    return [(c.__module__, c.__name__) for c in chain[: end + 1]]


def _within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == p or name.startswith(p + ".") for p in packages)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the named packages, and what is in them, from over there."""

    def __init__(self, peer: Peer, packages: tuple[str, ...]) -> None:
        self.peer, self.packages = peer, packages

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if not _within(name, self.packages) or not self.peer.request("find", name):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> Any:
        return _module(self.peer, spec.name)

    def exec_module(self, module: Any) -> None:
        pass


def use(peer: Peer, *packages: str) -> None:
    """Makes `import PACKAGE` give the one over there; a module inside a package of this side may be one of them."""
    for name in [n for n in sys.modules if _within(n, packages)]:
        del sys.modules[name]
    sys.meta_path.insert(0, Finder(peer, packages))
