"""`torch.jit` as PyTorch has it with PYTORCH_JIT=0: `script` and `trace` give back what they get, which runs as Python.

There is no TorchScript here, and no archive of it is written. `load` reads those of PyTorch (archive.py). What makes one plan
of a whole function is `torch.compile`. See https://docs.pytorch.org/docs/stable/jit.html#disable-jit-for-debugging
"""

import contextlib
import functools
import inspect
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from tabtorch import _jit_internal, _lazy
from tabtorch._jit_internal import Final, Future, export, ignore, is_scripting, unused
from tabtorch.jit import annotations as annotations
from tabtorch.nn.modules.module import Module

__all__ = [
    "Attribute",
    "CompilationUnit",
    "Error",
    "Final",
    "Future",
    "ScriptFunction",
    "ScriptModule",
    "annotate",
    "enable_onednn_fusion",
    "export",
    "export_opnames",
    "fork",
    "freeze",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "isinstance",
    "load",
    "onednn_fusion_enabled",
    "optimize_for_inference",
    "save",
    "script",
    "script_if_tracing",
    "script_method",
    "set_fusion_strategy",
    "strict_fusion",
    "trace",
    "trace_module",
    "unused",
    "wait",
]

T = TypeVar("T")


class Error(Exception):
    """What TorchScript raises in PyTorch when it runs. Nothing raises it here."""


class ScriptWarning(Warning):
    """A warning of TorchScript's compiler."""


class TracerWarning(Warning):
    """A warning of `torch.jit.trace`: here it is never given, for nothing is traced."""

    @staticmethod
    def ignore_lib_warnings() -> None:
        """Silences it where the standard library and PyTorch give it."""
        warnings.filterwarnings("ignore", category=TracerWarning, module="torch.(?!jit)")


class TracingCheckError(Exception):
    """Raised by PyTorch where two traces differ."""


class ScriptModule(Module):
    """A module whose methods are marked with `script_method`, and run as Python."""

    def __init__(self, arg: Any = None) -> None:
        super().__init__()


class RecursiveScriptModule(ScriptModule):
    """What `load` makes of an archive. (Here `script` gives the module itself.)"""


class TracedModule(ScriptModule):
    """In PyTorch, what `trace` makes of a module. Nothing makes one here."""


class TopLevelTracedModule(TracedModule):
    """In PyTorch, what `trace` makes of a module. Nothing makes one here."""


class RecursiveScriptClass:
    """An object of a class of an archive, no module."""


class ScriptFunction:
    """In PyTorch, what `script` and `trace` make of a function. Nothing makes one here."""


def _without(what: str, instead: str) -> RuntimeError:
    return RuntimeError(f"{what}: there is no TorchScript in tabtorch; {instead}")


class CompilationUnit:
    """RuntimeError: it compiles the text of a TorchScript program."""

    def __init__(self, lang: str | None = None, _frames_up: int = 0) -> None:
        raise _without("torch.jit.CompilationUnit", "write the functions as Python")


def _deprecated(name: str, instead: str = "torch.compile") -> None:
    warnings.warn(
        f"`torch.jit.{name}` is deprecated. Please use `{instead}` instead.", DeprecationWarning, stacklevel=2
    )


def script(obj: T, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None) -> T:
    """`obj`: a function, module or class, which runs as Python."""
    _deprecated("script")
    return obj


def trace(func: T, example_inputs: Any = None, *args: Any, **kwargs: Any) -> T:
    """`func`, a function or module. It is not called, so what depends on the values of its inputs keeps depending on them."""
    _deprecated("trace")
    return func


def trace_module(mod: T, inputs: Any, *args: Any, **kwargs: Any) -> T:
    """`mod`."""
    _deprecated("trace_module")
    return mod


def script_method(fn: T) -> T:
    """`fn`, a method of a ScriptModule."""
    _deprecated("script_method")
    return fn


def is_tracing() -> bool:
    """False: nothing is traced by `torch.jit.trace`."""
    return False


def script_if_tracing(fn: Callable[..., T]) -> Callable[..., T]:
    """A function that calls `fn`."""

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> T:
        return fn(*args, **kwargs)

    return call


def freeze(mod: T, preserved_attrs: list[str] | None = None, optimize_numerics: bool = True) -> T:
    """`mod`, which has to be in eval mode (else RuntimeError). Its parameters stay what they are: nothing is inlined."""
    _deprecated("freeze")
    if getattr(mod, "training", False):
        raise RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. "
            "Please call .eval() on your module before freezing."
        )
    return mod


def optimize_for_inference(mod: T, other_methods: list[str] | None = None) -> T:
    """`mod` in eval mode."""
    _deprecated("optimize_for_inference")
    return mod.eval() if _is(mod, Module) else mod  # type: ignore[attr-defined]


def save(m: Any, f: Any, _extra_files: Any = None) -> None:
    """RuntimeError: a module runs as Python, and has no archive. `torch.save(m.state_dict(), f)` keeps its weights."""
    _deprecated("save", "torch.export")
    raise _without("torch.jit.save", "save the weights with torch.save(module.state_dict(), f)")


def load(f: Any, map_location: Any = None, _extra_files: Any = None, _restore_shapes: bool = False) -> Any:
    """The module in a TorchScript archive that PyTorch's `torch.jit.save` wrote. Its code is walked, never executed as Python.

    f: a path, a URL, a file object, or bytes. map_location: as of `torch.load`; what the code creates goes there too.
    _extra_files: a dict whose values become the bytes of the extra files of those names. ValueError if `f` is no file;
    RuntimeError or pickle.UnpicklingError for what is no archive, or has what is not allowed.
    """
    _deprecated("load", "torch.export")
    if _is(f, (str, os.PathLike)) and not _lazy.fetch.is_url(f):
        if not os.path.exists(f):
            raise ValueError(f"The provided filename {f} does not exist")
        if os.path.isdir(f):
            raise ValueError(f"The provided filename {f} is a directory")
    return _lazy.jit_archive.load(f, map_location, _extra_files)


jit_module_from_flatbuffer, save_jit_module_to_flatbuffer = load, save


def export_opnames(m: Any) -> list[str]:
    """RuntimeError: a module that runs as Python has no list of operators."""
    raise _without("torch.jit.export_opnames", "no operators are listed")


def Attribute(value: T, type: Any) -> T:
    """`value`."""
    return value


def annotate(the_type: Any, the_value: T) -> T:
    """`the_value`."""
    return the_value


_is = isinstance


def isinstance(obj: Any, target_type: Any) -> bool:
    """Whether `obj` is of a type, as `List[int]` or `Optional[Tuple[int, str]]`, elements and all.

    target_type: a type, or a tuple of them. RuntimeError for a container type without the type of what it contains.
    """
    return _jit_internal._isinstance(obj, target_type)


def interface(obj: T) -> T:
    """`obj`, a class that declares methods. RuntimeError for what is no class, or inherits from others than Module."""
    _deprecated("interface")
    if not inspect.isclass(obj):
        raise RuntimeError("interface must be applied to a class")
    if obj.__bases__ not in ((object,), (Module,)):
        raise RuntimeError(
            "TorchScript interface does not support inheritance yet. "
            "Please directly inherit from 'object' or 'nn.Module'."
        )
    obj.__torch_script_interface__ = f"__torch__.{obj.__qualname__}"  # type: ignore[attr-defined]
    return obj


def fork(func: Callable[..., T], *args: Any, **kwargs: Any) -> Future[T]:
    """A future that is done: the function is called at once, and raises at once, as PyTorch does outside of TorchScript."""
    _deprecated("fork")
    result: Future[T] = Future()
    result.set_result(func(*args, **kwargs))
    return result


def wait(future: Future[T]) -> T:
    """The value of a future. TypeError for anything else."""
    _deprecated("wait")
    if not _is(future, Future):
        raise TypeError(f"wait(): argument 'future' must be torch.jit.Future, not {type(future).__name__}")
    return future.wait()


class strict_fusion:
    """A context that asks TorchScript to fuse everything; outside of TorchScript it warns that it does nothing."""

    def __init__(self) -> None:
        warnings.warn("Only works in script mode", stacklevel=2)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        pass


#: settings of the compiler that is not there: they can be set and read, as with PYTORCH_JIT=0
_onednn = False
_strategy: list[tuple[str, int]] = [("STATIC", 2), ("DYNAMIC", 10)]


def enable_onednn_fusion(enabled: bool) -> None:
    """Sets what `onednn_fusion_enabled` says."""
    global _onednn
    _onednn = bool(enabled)


def onednn_fusion_enabled() -> bool:
    """What was set; False at first."""
    return _onednn


def set_fusion_strategy(strategy: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Sets how TorchScript would specialise; gives what was set before."""
    global _strategy
    _deprecated("set_fusion_strategy")
    before, _strategy = _strategy, list(strategy)
    return before


@contextlib.contextmanager
def fuser(name: str) -> Iterator[None]:
    """A context that chooses TorchScript's fuser: "fuser0" to "fuser3", or "none". Exception for another name."""
    if name not in ("fuser0", "fuser1", "fuser2", "fuser3", "none"):
        raise Exception(f"unrecognized fuser option (name: {name})")
    yield


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """A context that says whether TorchScript optimises."""
    yield


_fork, _wait, _set_fusion_strategy = fork, wait, set_fusion_strategy
_script_if_tracing, _isinstance = script_if_tracing, _jit_internal._isinstance
_drop, _overload, _overload_method = _jit_internal._drop, _jit_internal._overload, _jit_internal._overload_method
_IgnoreContextManager = _jit_internal._IgnoreContextManager


def _get_trace_graph(*args: Any, **kwargs: Any) -> Any:
    """RuntimeError: there are no TorchScript graphs."""
    raise RuntimeError(
        "torch.jit._get_trace_graph: tabtorch has no TorchScript graphs; torch.fx.symbolic_trace traces modules"
    )
