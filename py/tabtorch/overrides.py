"""`torch.overrides`: for classes and modes with a `__torch_function__`, which get the calls of torch functions.

See PyTorch's "Extending torch" (https://docs.pytorch.org/docs/stable/notes/extending.html); how a call comes to them is in
`interception/torch_function.py`.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tabtorch.core.tensor import Tensor
from tabtorch.interception import torch_function
from tabtorch.interception.torch_function import STATE, overloaded

_package: Any = importlib.import_module(__package__ or "tabtorch")


# ---- asking, and handing over


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether a mode is on, or an element overrides torch functions. Exact tensors and parameters do not."""
    if STATE.skip:
        STATE.skip = False
        return False
    return STATE.off < 2 and bool(STATE.modes or (not STATE.off and overloaded(relevant_args)))


def has_torch_function_unary(obj: Any) -> bool:
    """`has_torch_function((obj,))`."""
    return has_torch_function((obj,))


def has_torch_function_variadic(*args: Any) -> bool:
    """`has_torch_function(args)`."""
    return has_torch_function(args)


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Gives a call of `public_api` to the mode that is on, or the `__torch_function__` of `relevant_args`. TypeError if none takes it."""
    found = [] if STATE.off else overloaded(relevant_args)

    def message() -> str:
        return (
            f"no implementation found for '{public_api.__module__}.{public_api.__name__}' on types that implement "
            f"__torch_function__: {[type(a) for a in found]}"
            + (f" nor in mode {STATE.modes[-1]}" if STATE.modes else "")
        )

    return torch_function.dispatch(public_api, found, args, kwargs, message)


def wrap_torch_function(dispatcher: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a function that can be overridden. `dispatcher`: gives the arguments to ask, of those of a call."""

    def inner(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return func(*args, **kwargs)

        return wrapped

    return inner


def redispatch_function(
    func: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None
) -> Any:
    """Calls `func` without asking for overrides once more, whereas what it calls may be overridden."""
    STATE.skip = True
    try:
        return func(*args, **(kwargs or {}))
    finally:
        STATE.skip = False


def is_tensor_like(inp: Any) -> bool:
    """Whether it is a tensor, or has a `__torch_function__`."""
    return type(inp) is Tensor or hasattr(inp, "__torch_function__")


def keep_subclass(cls: Any, func: Any, classes: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """`Tensor.__torch_function__`: the operation, with tensors among the results as `cls`."""
    if not all(issubclass(cls, t) for t in classes):
        return NotImplemented
    if torch_function.pytorch() is not None and _of_pytorch(func):
        raise TypeError(
            f"{getattr(func, '__name__', func)}() of PyTorch was given a tensor of tabtorch. Two packages are loaded: call "
            "tabtorch's function, or tabtorch.install() before anything imports torch; torch.tensor(t.tolist()) is a copy for PyTorch"
        )
    with DisableTorchFunctionSubclass():
        r = func(*args, **kwargs)
        return r if cls is Tensor or func in get_default_nowrap_functions() else _as(r, cls)


def _of_pytorch(func: Any) -> bool:
    """Whether PyTorch itself calls: with a function of its own."""
    if isinstance(func, types.MethodWrapperType):  # of an attribute
        return not isinstance(func.__self__, property)
    if isinstance(func, types.FunctionType):
        return func.__module__.startswith("torch.")
    return isinstance(func, (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType))


def _as(r: Any, cls: Any) -> Any:
    if isinstance(r, Tensor):
        return r if isinstance(r, cls) else r.as_subclass(cls)
    if isinstance(r, (tuple, list)):
        made = [_as(x, cls) for x in r]
        return type(r)(*made) if hasattr(r, "_fields") else type(r)(made)
    return r


@functools.cache
def get_default_nowrap_functions() -> set[Any]:
    """What gives a tensor that is kept elsewhere, so that a subclass's default leaves its type as it is."""
    return {vars(Tensor)["grad"].__get__}


# ---- turning it off


class _Off:
    """A region without overrides."""

    level = 1

    def __enter__(self) -> None:
        self.before = STATE.off
        STATE.off = max(self.level, self.before)

    def __exit__(self, *exc: Any) -> None:
        STATE.off = self.before


class DisableTorchFunctionSubclass(_Off):
    """`torch._C.DisableTorchFunctionSubclass()`: within it classes are not asked, modes are."""


class DisableTorchFunction(_Off):
    """`torch._C.DisableTorchFunction()`: within it neither classes nor modes are asked."""

    level = 2


@contextlib.contextmanager
def enable_reentrant_dispatch() -> Iterator[None]:
    """Within it, calls made while an override runs are asked about again."""
    before, STATE.off = STATE.off, 0
    try:
        yield
    finally:
        STATE.off = before


# ---- modes


class TorchFunctionMode:
    """Within `with Mode():` every call of a torch function goes to the `__torch_function__` of the mode, creation functions too.

    Functions called in there go to the next mode out, or run.
    """

    inner: Any

    def __init__(self) -> None:
        pass

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Any:
        STATE.modes.append(self)
        STATE.entered.append(self)
        torch_function.switch()
        return self

    def __exit__(self, *exc: Any) -> None:
        STATE.modes.pop()
        STATE.entered.remove(self)
        torch_function.switch()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        import warnings

        warnings.warn("`Mode.push()` is no longer necessary and can be replaced with just `with Mode()`", stacklevel=2)
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """Calls the function."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _get_current_function_mode() -> Any:
    return STATE.modes[-1] if STATE.modes else None


def _get_current_function_mode_stack() -> list[Any]:
    return list(STATE.modes)


@contextlib.contextmanager
def _pop_mode_temporarily() -> Iterator[Any]:
    old = STATE.modes.pop()
    try:
        yield old
    finally:
        STATE.modes.append(old)


# ---- what there is

#: functions that are overridden by modes at most: no argument of theirs is a tensor, or they are about the library itself
_IGNORED = (
    "typename is_tensor is_storage set_default_tensor_type set_default_device get_default_device set_rng_state get_rng_state "
    "manual_seed initial_seed seed save load set_printoptions get_default_dtype get_num_threads is_grad_enabled set_num_threads "
    "as_tensor from_numpy tensor set_grad_enabled no_grad enable_grad inference_mode is_inference_mode_enabled finfo iinfo device "
    "dtype layout memory_format arange as_strided bartlett_window blackman_window broadcast_shapes can_cast compile empty "
    "empty_permuted empty_strided eye full fill hamming_window hann_window kaiser_window linspace logspace normal ones "
    "promote_types rand rand_like randn randn_like randint randint_like randperm range result_type scalar_tensor "
    "tril_indices triu_indices vander zeros vmap frombuffer from_file thread_safe_generator asarray get_float32_matmul_precision "
    "set_float32_matmul_precision is_autocast_enabled get_autocast_dtype set_autocast_enabled set_autocast_dtype clear_autocast_cache"
).split()
_IGNORED_METHODS = (
    "__delitem__ __dir__ __init__ __iter__ __torch_function__ __new__ __hash__ as_subclass new new_tensor new_empty "
    "new_empty_strided new_zeros new_ones new_full _make_subclass stride unflatten"
).split()


@functools.cache
def get_ignored_functions() -> set[Any]:
    """Public functions that a class cannot override."""
    found = [getattr(_package, n, None) for n in _IGNORED] + [getattr(Tensor, n, None) for n in _IGNORED_METHODS]
    return {f for f in found if f is not None} | {has_torch_function, handle_torch_function}


@functools.cache
def _functions() -> tuple[dict[Any, list[Any]], dict[Any, str]]:
    """By namespace, the functions that can be overridden; and the name of every function."""
    lists: dict[Any, list[Any]] = {}
    index: dict[Any, str] = {}
    ignored = get_ignored_functions()
    for prefix in ("", "nn.functional", "nn.init", "Tensor", "linalg", "fft", "special"):
        where = "torch." + prefix if prefix else "torch"
        space: Any = (
            _package if not prefix else Tensor if prefix == "Tensor" else importlib.import_module(f"tabtorch.{prefix}")
        )
        mine = lists.setdefault(space, [])
        for name in dir(Tensor(0)) if prefix == "Tensor" else dir(space):
            if name in torch_function.LEFT_OUT or (prefix != "Tensor" and name.startswith("_")):
                continue
            f = getattr(space, name, None)
            if isinstance(f, property):
                index[f.__get__] = f"{where}.{name}.__get__"
                index[f.__set__] = f"{where}.{name}.__set__"
                lists.setdefault(f, []).append(f.__get__)
                continue
            if isinstance(f, types.FunctionType) and f not in index:
                index[f] = f"{where}.{name}"
                if f not in ignored and (prefix == "Tensor" or name[0].islower() and not name.endswith("_")):
                    mine.append(f)
    return lists, index


def get_overridable_functions() -> dict[Any, list[Any]]:
    """The functions that can be overridden, by the namespace they are in; a property is its own, with its `__get__`."""
    return _functions()[0]


def get_testing_overrides() -> dict[Any, Any]:
    """For each function that can be overridden, one with the same parameters that gives -1."""
    return {f: _minus_one(f) for fs in get_overridable_functions().values() for f in fs}


def _minus_one(f: Any) -> Any:
    def dummy(*args: Any, **kwargs: Any) -> int:
        return -1

    with contextlib.suppress(ValueError, TypeError):
        dummy.__signature__ = _signature(f)  # type: ignore[attr-defined]
    return dummy


def _signature(f: Any) -> Any:
    """As PyTorch has it here: without types, and with everything by place that can be, `out` too."""
    import inspect

    found = inspect.signature(f)
    head = (f.__doc__ or "").partition("\n")[0]
    if "args" in found.parameters and head.startswith(f"{f.__name__}("):
        return _of_row(head)
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    every = list(found.parameters.values())
    if any(p.kind is p.VAR_POSITIONAL for p in every):
        kind = inspect.Parameter.KEYWORD_ONLY
    out = inspect.Parameter("out", kind, default=None)
    moved = [out if p.name == "out" else p.replace(kind=kind) if p.kind is p.KEYWORD_ONLY else p for p in every]
    return inspect.Signature([p.replace(annotation=p.empty) for p in moved])


def _of_row(head: str) -> Any:
    """Of a row's documentation, "add(input, other, *, alpha=1)": what comes by place, and `out`."""
    import inspect

    names = head[head.index("(") + 1 : head.rindex(")")].partition("*")[0]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    found = []
    for part in [p.strip() for p in names.split(",") if p.strip()]:
        name, _, default = part.partition("=")
        value = ast.literal_eval(default) if default else inspect.Parameter.empty
        found.append(inspect.Parameter(name, kind, default=value))
    return inspect.Signature([*found, inspect.Parameter("out", kind, default=None)])


def resolve_name(f: Any) -> str | None:
    """The name of a function that a `__torch_function__` got, as in "torch.Tensor.add"; None for others."""
    return _functions()[1].get(f)


def is_tensor_method_or_property(func: Any) -> bool:
    """Whether it is a method of Tensor, or the `__get__` of a property."""
    return func in get_overridable_functions()[Tensor] or func.__name__ == "__get__"


__all__ = [
    "enable_reentrant_dispatch",
    "get_ignored_functions",
    "get_overridable_functions",
    "get_testing_overrides",
    "handle_torch_function",
    "has_torch_function",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "redispatch_function",
    "resolve_name",
    "wrap_torch_function",
]
