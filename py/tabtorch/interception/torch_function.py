"""`__torch_function__`: how a call of a torch function goes to the classes and modes that override it.

Nothing asks for overrides until there are some: a subclass of Tensor is made (`TensorMeta`), a mode is entered, or an
operation meets an object that it cannot use and that overrides it (`overridden`). From then on the code of every function,
method and property of the public namespaces is exchanged (see `code_swapping.py`) for one that looks at its arguments. The
functions stay the same objects, so a table that was keyed on `torch.add` before still holds.
"""

from __future__ import annotations

import importlib
import sys
import threading
from functools import partial
from types import FunctionType
from typing import Any

from tabtorch import _lazy
from tabtorch.base.thread_state import kind
from tabtorch.core.tensor import Tensor, disabled_torch_function
from tabtorch.core.tensor_base import TensorBase
from tabtorch.interception.code_swapping import LOCK, Layer
from tabtorch.ops.machinery import registry

#: operators whose function, as the override gets it, is not the method of the operation; with the name PyTorch gives it
_OWN = {
    **{
        f"__{n}__": f"__{n}__"
        for n in "eq rsub floordiv rfloordiv rmod rpow rmatmul and or xor lshift rshift rlshift rrshift iand ior ixor ilshift "
        "irshift invert".split()
    },
    "__rtruediv__": "__rdiv__",
    "__rdiv__": "__rdiv__",
    "__pow__": "pow",
    "__ipow__": "pow_",
}
#: what PyTorch calls when one of these is used
_METHOD = {
    "__add__": "add", "__radd__": "add", "__sub__": "sub", "__mul__": "mul", "__rmul__": "mul", "__truediv__": "div",
    "__mod__": "remainder", "__ne__": "ne", "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge",
    "__rand__": "bitwise_and", "__ror__": "bitwise_or", "__rxor__": "bitwise_xor", "__matmul__": "matmul",
    "__iadd__": "add_", "__isub__": "sub_", "__imul__": "mul_", "__itruediv__": "div_", "__ifloordiv__": "floor_divide_",
    "__imod__": "remainder_", "__neg__": "neg", "__pos__": "positive", "__abs__": "abs",
}  # fmt: skip
#: what the class has itself and PyTorch does not give to overrides either
LEFT_OUT = (
    "__dict__ __init__ __new__ __getattr__ __iter__ __hash__ __dir__ __delitem__ __torch_function__ as_subclass read "
    "__dlpack_c__ from_dlpack"
).split()


class _State(threading.local):
    """What each thread has for itself; `classes` and `entered`, which say whether to look at all, are of all threads."""

    classes = False  # whether a class that overrides was ever seen
    entered: list[Any] = []  # modes that are entered, those included that are set aside while they handle a call

    def __init__(self) -> None:
        self.modes: list[Any] = []  # innermost last
        self.off = 0  # 1: classes are not asked, 2: modes neither
        self.skip = False  # the next call runs as it is


STATE = _State()


def _kept() -> Any:
    return STATE.modes[:], STATE.off, STATE.skip


def _restore(values: Any) -> None:
    STATE.modes[:], STATE.off, STATE.skip = values


kind(_kept, _restore)

#: types that override nothing, so that they are passed over quickly
_PLAIN: set[Any] = {Tensor, int, float, bool, complex, str, bytes, type(None), slice, type(...), dict, set, range}


def pytorch() -> Any:
    """PyTorch itself, if it is loaded beside this package."""
    real = sys.modules.get("torch")
    return real if real is not sys.modules["tabtorch"] and isinstance(getattr(real, "Tensor", None), type) else None


def overrides(t: type) -> bool:
    """Whether instances of a type take part: it has a `__torch_function__`, and not the one that does nothing."""
    real = pytorch()
    if real is not None and issubclass(t, real.Tensor):  # whose `__torch_function__` is not for our functions
        _PLAIN.add(t)
    return t not in _PLAIN and getattr(t, "__torch_function__", disabled_torch_function) is not disabled_torch_function


def overloaded(values: Any) -> list[Any]:
    """One object of each overriding type among `values`, in the order in which they are asked: subclasses first, then from the left."""
    found: list[Any] = []
    for a in values:
        t = type(a)
        if t in _PLAIN:
            continue
        if t is list or t is tuple:
            for b in a:
                if type(b) not in _PLAIN and overrides(type(b)):
                    _insert(found, b)
        elif overrides(t):
            _insert(found, a)
    return found


def _insert(found: list[Any], a: Any) -> None:
    t = type(a)
    if any(type(b) is t for b in found):
        return
    at = next((k for k, b in enumerate(found) if issubclass(t, type(b))), len(found))
    found.insert(at, a)


def dispatch(func: Any, found: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any], message: Any) -> Any:
    """What the innermost mode makes of a call, or the first of `found` that does not answer NotImplemented.

    While a mode handles a call it is set aside. TypeError with `message()` if nobody handles it.
    """
    types = tuple([type(a) for a in found])
    # PyTorch leaves the kwargs out where there are none, unless the function is written in Python
    written = getattr(func, "__module__", "torch")
    given = (args, kwargs) if kwargs or written.startswith("tabtorch.nn") or "torch" not in written[:8] else (args,)
    if STATE.modes:
        mode = STATE.modes.pop()
        try:
            r = mode.__torch_function__(func, types, *given)
        finally:
            STATE.modes.append(mode)
        if r is not NotImplemented:
            return r
    for a in found:
        r = a.__torch_function__(func, types, *given)
        if r is not NotImplemented:
            return r
    raise TypeError(message())


def _call(func: Any, plain: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of `func`, whose own code is in `plain`."""
    if STATE.skip:
        STATE.skip = False
    elif STATE.off < 2:
        found = [] if STATE.off else overloaded((*args, *kwargs.values()) if kwargs else args)
        if found or STATE.modes:
            return dispatch(func, found, args, kwargs, lambda: _unhandled(func, found))
    return plain(*args, **kwargs)


def _einsum(func: Any, plain: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The same for einsum, where classes get each operand as an argument: PyTorch's calls itself again for those of a list."""
    if len(args) == 2 and type(args[1]) in (list, tuple) and not STATE.modes and not STATE.off and overloaded(args):
        args = (args[0], *args[1])
    return _call(func, plain, args, kwargs)


def _operator(func: Any, plain: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The same for an operator of Python: one that fails with a TypeError leaves the operation to the other operand, if any.

    Not so where it is called by name, with something that is no tensor in the tensor's place: that is the caller's mistake.
    """
    try:
        return _call(func, plain, args, kwargs)
    except TypeError:
        if len(args) == 1 or not isinstance(args[0], Tensor):
            raise
        return NotImplemented


def _unhandled(func: Any, found: list[Any]) -> str:
    who = "\n".join(f"  - tensor subclass {type(a)!r}" for a in found)
    return (
        f"Multiple dispatch failed for '{_lazy.overrides.resolve_name(func)}'; all __torch_function__ handlers returned NotImplemented:\n\n"
        f"{who}\n\nFor more information, try re-running with TORCH_LOGS=not_implemented"
    )


def _quiet(plain: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The backward pass is below what can be overridden."""
    before, STATE.off = STATE.off, 2
    try:
        return plain(*args, **kwargs)
    finally:
        STATE.off = before


class _Overrides(Layer):
    """The functions that can be overridden."""

    def __init__(self) -> None:
        super().__init__(-1, lambda name: None)
        _PLAIN.update(
            (_lazy.nn.Parameter, _lazy.parameter.Buffer, _lazy.dtypes.dtype, _lazy.device.device, _lazy.view.Size)
        )
        self._names: set[str] = set()
        self.meet(registry.shown, self._shown)
        self.meet(registry.overridable, self._shown)
        self.meet(_lazy.engine.run, _quiet)
        Tensor.__getitem__, Tensor.__setitem__ = _lazy.indexing.getitem, _lazy.indexing.setitem  # type: ignore[method-assign]
        _lazy.indexing.getitem.__name__, _lazy.indexing.setitem.__name__ = "__getitem__", "__setitem__"
        self._operators()
        for name, f in [*vars(TensorBase).items(), *vars(Tensor).items()]:
            if (
                name not in LEFT_OUT
                and (name[0] != "_" or name[:2] == "__")
                and name not in _OWN
                and name not in _METHOD
            ):
                if isinstance(f, property):
                    self.meet(f.fget, partial(_call, f.__get__))
                    self.meet(f.fset, partial(_call, f.__set__))
                else:
                    self._meet(f)
        self._meet(_lazy.engine.grad)

    def _meet(self, f: Any) -> None:
        self.meet(f, partial(_einsum if getattr(f, "__name__", "") == "einsum" else _call, f))

    def _operators(self) -> None:
        for name in (*_OWN, *_METHOD):
            f: Any = vars(Tensor)[name]
            if "make" in f.__code__.co_freevars:  # not made yet: it would replace itself when called
                f = f.__closure__[f.__code__.co_freevars.index("make")].cell_contents()
                setattr(Tensor, name, f)
            if name in _OWN:
                f.__name__ = _OWN[name]
                f.__qualname__ = "Tensor." + name
                func = f
            else:
                func = getattr(Tensor, _METHOD[name])
            self.meet(f, partial(_operator, func))

    def meet_name(self, name: str) -> None:
        for n in (name, name + "_"):
            if n in self._names or n in LEFT_OUT:
                continue
            method, function = registry.guarded_method(n), registry.FUNCTIONS.get(n)
            if method is None and function is None:
                continue
            self._names.add(n)
            if method is not None:
                self._meet(method)
            if function is not None and function is not method and not registry.has_guard(n):
                self._meet(function)

    def _shown(self, plain: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        f = plain(*args, **kwargs)
        if f not in registry.FUNCTIONS.values():
            self._meet(f)
        return f

    def switch(self, on: bool) -> None:
        if on and not self.on:
            for f in registry.SHOWN.values():
                self._meet(f)
            package = vars(sys.modules["tabtorch"])
            for name in "is_floating_point is_complex numel is_same_size result_type".split():
                self._meet(package[name])
            for module in ("nn.functional", "nn.init", "fft"):
                for name, f in vars(importlib.import_module("tabtorch." + module)).items():
                    if isinstance(f, FunctionType) and name[0] != "_" and f.__module__.startswith("tabtorch."):
                        self._meet(f)
            for name in ("tensor", "as_tensor", "from_numpy"):
                self._meet(getattr(sys.modules["tabtorch"], name))
        super().switch(on)


_layer: _Overrides | None = None


def switch() -> None:
    """To be called when a class was seen for the first time, or a mode was entered or left."""
    global _layer
    with LOCK:
        if _layer is None:
            _layer = _Overrides()
        _layer.switch(STATE.classes or bool(STATE.entered))


def class_made() -> None:
    """There is a class that overrides."""
    if not _State.classes:
        _State.classes = True
        switch()


_NOTHING = registry.NOTHING


def overridden(func: Any, args: Any, kwargs: Any) -> Any:
    """For a call of `func` that failed: what an argument that is no tensor and overrides it makes of it, else NOTHING."""
    if STATE.classes or not any(not isinstance(a, Tensor) for a in overloaded((*args, *kwargs.values()))):
        return _NOTHING
    class_made()
    return func(*args, **kwargs)
