"""What marks Python code for TorchScript, which is not compiled here: the marks are set, and the code runs as Python."""

from __future__ import annotations

import collections.abc
import contextlib
import types
import typing
import warnings
from collections.abc import Callable
from typing import Any, Dict, Final, List, Optional, Tuple, TypeVar, Union, get_args, get_origin  # noqa: UP035

from tabtorch.futures import Future

__all__ = [
    "BroadcastingList1",
    "Final",
    "FunctionModifiers",
    "Future",
    "boolean_dispatch",
    "export",
    "ignore",
    "is_scripting",
    "unused",
]

F = TypeVar("F", bound=Callable[..., Any])


class BroadcastingListCls:
    """The type of `BroadcastingList2[int]` and its kin in annotations: a number, or a list of so many."""

    def __getitem__(self, types: Any) -> None:
        return None


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = BroadcastingListCls()
BroadcastingList4 = BroadcastingList5 = BroadcastingList6 = BroadcastingList1


def is_scripting() -> bool:
    """False: nothing is compiled by `torch.jit.script`."""
    return False


class FunctionModifiers:
    """What `_torchscript_modifier` of a marked function says."""

    UNUSED = "unused (ignored and replaced with raising of an exception)"
    IGNORE = "ignore (leave as a call to Python, cannot be torch.jit.save'd)"
    EXPORT = "export (compile this function even if nothing calls it)"
    DEFAULT = "default (compile if called from an exported function / forward)"
    COPY_TO_SCRIPT_WRAPPER = "if this method is not scripted, copy the python method onto the scripted model"
    _DROP = "_drop (function is fully ignored, declaration can be unscriptable)"


def _marked(fn: Any, modifier: str) -> Any:
    fn._torchscript_modifier = modifier
    return fn


def export(fn: F) -> F:
    """`fn`, marked as one to compile although nothing calls it."""
    return typing.cast(F, _marked(fn, FunctionModifiers.EXPORT))


def unused(fn: Any) -> Any:
    """`fn`, or a property, marked as one not to compile."""
    if isinstance(fn, property):
        for each in (fn.fget, fn.fset):
            if each is not None:
                _marked(each, FunctionModifiers.UNUSED)
        return fn
    return _marked(fn, FunctionModifiers.UNUSED)


def _drop(fn: F) -> F:
    return typing.cast(F, _marked(fn, FunctionModifiers._DROP))


def _copy_to_script_wrapper(fn: F) -> F:
    return typing.cast(F, _marked(fn, FunctionModifiers.COPY_TO_SCRIPT_WRAPPER))


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Marks a function as one that stays Python. `@ignore` or `@ignore()`; `drop=True` is `@unused`, and deprecated."""
    if callable(drop):
        return _marked(drop, FunctionModifiers.IGNORE)
    if not isinstance(drop, bool):
        raise RuntimeError(f"Argument to @torch.jit.ignore must be a bool or a function but got {drop}")
    on_export = kwargs.pop("drop_on_export", None)
    if on_export or drop:
        warnings.warn(
            f"ignore({'drop_on_export=' if on_export else ''}True) has been deprecated. TorchScript will now drop the "
            "function call on compilation. Use torch.jit.unused now. {}",
            FutureWarning,
            stacklevel=2,
        )
        return lambda fn: _marked(fn, FunctionModifiers.UNUSED)
    return lambda fn: _marked(fn, FunctionModifiers.IGNORE)


class _IgnoreContextManager(contextlib.AbstractContextManager[Any]):
    """Says to the compiler which names a block uses; runs the block."""

    def __init__(self, **kwargs: Any) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        pass


def get_torchscript_modifier(fn: Any) -> str | None:
    """The mark of a function or method; None for what cannot be called."""
    if not callable(fn):
        return None
    return getattr(getattr(fn, "__func__", fn), "_torchscript_modifier", FunctionModifiers.DEFAULT)


def copy_torchscript_modifier(orig: Any, new: Any) -> None:
    """Gives `new` the mark of `orig`."""
    modifier = get_torchscript_modifier(orig)
    if modifier is not None:
        _marked(new, modifier)


def is_ignored_fn(fn: Any) -> bool:
    """Whether a function is marked as one that is not compiled."""
    return get_torchscript_modifier(fn) in (FunctionModifiers.UNUSED, FunctionModifiers.IGNORE, FunctionModifiers._DROP)


def boolean_dispatch(
    arg_name: str,
    arg_index: int,
    default: bool,
    if_true: Callable[..., Any],
    if_false: Callable[..., Any],
    module_name: str | None,
    func_name: str | None,
) -> Callable[..., Any]:
    """A function that calls one of two by its argument `arg_name`. It has the docstring that one of them has."""

    def fn(*args: Any, **kwargs: Any) -> Any:
        flag = kwargs.get(arg_name, args[arg_index] if arg_index < len(args) else default)
        return (if_true if flag else if_false)(*args, **kwargs)

    if if_true.__doc__ is not None and if_false.__doc__ is not None:
        raise RuntimeError("only one function can have a docstring")
    fn.__doc__ = if_true.__doc__ = if_false.__doc__ = if_true.__doc__ or if_false.__doc__
    if module_name is not None:
        fn.__module__ = module_name
    if func_name is not None:
        fn.__name__ = func_name
    return fn


def _overload(func: F) -> F:
    """Marks a declaration with no body; the function of that name that comes after it is the one that runs."""
    return func


_overload_method = _overload

_BARE = {
    dict: "dict",
    list: "list",
    tuple: "tuple",
    Dict: "Dict",  # noqa: UP006
    List: "List",  # noqa: UP006
    Tuple: "Tuple",  # noqa: UP006
    Optional: "Optional",
}


def _has_arguments(target: Any) -> None:
    name = _BARE.get(target) if isinstance(target, collections.abc.Hashable) else None
    if name is not None:
        a, types, inside = (" a", "type", "int") if not name.endswith("ict") else ("", "types", "int, int")
        first = "a " if a else ""
        raise RuntimeError(
            f"Attempted to use {name} without{a} contained {types}. Please add {first}contained type, e.g. {name}[{inside}]"
        )


def _is(obj: Any, target: Any) -> bool:
    return _contains(obj, target) if get_origin(target) else isinstance(obj, target)


def _contains(obj: Any, target: Any) -> bool:
    _has_arguments(target)
    origin, args = get_origin(target), get_args(target)
    if origin in (Union, types.UnionType):
        # as PyTorch has it: the first inner container decides
        for each in () if obj is None else args:
            if get_origin(each):
                return _contains(obj, each)
            if isinstance(obj, each):
                return True
        return obj is None
    if origin not in (list, dict, tuple):
        return False
    if obj in ([], {}, ()) if isinstance(obj, (list, dict, tuple)) else False:
        warnings.warn(
            "The inner type of a container is lost when calling torch.jit.isinstance in eager mode. For example, List[int] "
            "would become list and therefore falsely return True for List[float] or List[str].",
            stacklevel=2,
        )
    if not isinstance(obj, origin):
        return False
    if origin is list:
        return all(_is(each, args[0]) for each in obj)
    if origin is dict:
        return all(isinstance(k, args[0]) and _is(v, args[1]) for k, v in obj.items())
    return len(obj) == len(args) and all(_is(each, kind) for each, kind in zip(obj, args, strict=True))


def _isinstance(obj: Any, target_type: Any) -> bool:
    if isinstance(target_type, collections.abc.Container) and not get_origin(target_type):
        if not isinstance(target_type, tuple):
            raise RuntimeError("The second argument to `torch.jit.isinstance` must be a type or a tuple of types")
        return any(_isinstance(obj, each) for each in target_type)
    if not get_origin(target_type):
        _has_arguments(target_type)
    return _is(obj, target_type)
