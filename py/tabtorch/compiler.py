"""`torch.compile` and `torch.compiler`. See https://docs.pytorch.org/docs/stable/torch.compiler_api.html

What compiles is in compiled/.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tabtorch._dynamo.exc import InvalidBackend
from tabtorch.base.thread_state import STATE
from tabtorch.compiled import driver
from tabtorch.compiled.driver import Compiled
from tabtorch.nn.modules.module import Module

__all__ = [
    "OptimizedModule",
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "cudagraph_mark_step_begin",
    "disable",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "list_backends",
    "reset",
    "set_stance",
]


MODES = ("default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
#: PyTorch's; all of them are the one engine here
BACKENDS = ("cudagraphs", "eager", "aot_eager", "inductor", "onnxrt", "openxla", "tvm")


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """A function (or module) that does what `model` does, as one kept plan; without `model`, a decorator.

    fullgraph: what breaks the plan (a read of a value) raises `torch._dynamo.exc.Unsupported`, else it warns once.
    dynamic: True: sizes of arguments may vary, and one recording serves them; False: each size is recorded; None: a size is
    recorded with the others that it has had once it has varied. 0 and 1 are always static, and so are sizes that Python needs.
    mode, options, backend: accepted; there is one backend. disable: gives back `model`.
    Inside it the range of indices and classes is checked where arguments have values that the host knows, and not elsewhere, on
    cpu neither: that would read values, and break the plan. What a draw says of bad probabilities comes at the next read.
    RuntimeError: an unknown mode, or mode and options both. InvalidBackend: an unknown name.
    """
    if model is None:
        return functools.partial(
            compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable
        )
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if mode is not None and mode not in MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(MODES)}")
    if isinstance(backend, str) and backend not in BACKENDS:
        raise InvalidBackend(
            f"Invalid backend: {backend!r}, see `torch._dynamo.list_backends()` for available backends."
        )
    if not callable(model):
        raise AssertionError(f"A callable function is expected, but {type(model)} is provided.")
    if disable:
        return model
    if isinstance(model, Module):
        return OptimizedModule(model, fullgraph, dynamic)
    return wrapped(model, Compiled(getattr(model, "_torchdynamo_orig_callable", model), fullgraph, dynamic))


def wrapped(function: Callable[..., Any], call: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, looking like `function`."""

    @functools.wraps(function, updated=())
    def compiled(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    compiled._torchdynamo_orig_callable = function  # type: ignore[attr-defined]
    compiled._compiled = call  # type: ignore[attr-defined]
    return compiled


class OptimizedModule(Module):
    """A module whose call is compiled. It has the attributes of the original, which is its child `_orig_mod`."""

    def __init__(self, mod: Module, fullgraph: bool = False, dynamic: bool | None = None) -> None:
        super().__init__()
        self._modules["_orig_mod"] = mod
        self.__dict__["_fullgraph"] = fullgraph
        self.__dict__["_dynamic"] = dynamic
        self.__dict__.pop("training")
        self._compile()

    def _compile(self) -> None:
        mod = self._modules["_orig_mod"]
        self.__dict__["forward"] = Compiled(mod, self._fullgraph, self._dynamic)

    @property
    def training(self) -> bool:
        return bool(self._modules["_orig_mod"].training)

    @training.setter
    def training(self, value: bool) -> None:
        self._modules["_orig_mod"].training = value

    def __getattr__(self, name: str) -> Any:
        mod = self.__dict__["_modules"]["_orig_mod"]
        return mod if name == "_orig_mod" else getattr(mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(type(self), name):
            object.__setattr__(self, name, value)
        elif name == "forward":
            self.__dict__[name] = value
        else:
            setattr(self._modules["_orig_mod"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._modules["_orig_mod"], name)

    def __len__(self) -> int:
        mod: Any = self._modules["_orig_mod"]
        if hasattr(type(mod), "__len__"):
            return len(mod)
        raise TypeError(f"{type(mod).__name__} does not support len()")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._modules["_orig_mod"])})

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "forward"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._compile()


def reset() -> None:
    """Every compiled function forgets what it has recorded."""
    for each in list(driver.every):
        each.reset()


def is_compiling() -> bool:
    """Whether a compiled function is being run or recorded. A replay runs no Python that could ask."""
    return STATE.held is not None


is_dynamo_compiling = is_compiling


def is_exporting() -> bool:
    """False: there is no `torch.export`."""
    return False


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """`fn`, which is never recorded: a compiled function that calls it runs its Python on every call."""
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    plain = getattr(fn, "_torchdynamo_orig_callable", fn)

    def call(*args: Any, **kwargs: Any) -> Any:
        if STATE.held is not None:
            STATE.held.breaks(f"calls {getattr(plain, '__qualname__', plain)}, which is disabled,")
        return plain(*args, **kwargs)

    return wrapped(plain, call)


def allow_in_graph(fn: Any) -> Any:
    """`fn` itself: whatever it computes is part of the graph."""
    return fn


def assume_constant_result(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn`, whose result is asked for once, and again only when `torch.compiler.reset()` was called."""
    known: dict[Any, Any] = {}

    def call(*args: Any) -> Any:
        if STATE.held is None:
            return fn(*args)
        if args not in known:
            known[args] = fn(*args)
        return known[args]

    return wrapped(fn, call)


def cudagraph_mark_step_begin() -> None:
    """A new iteration begins. The results of earlier ones stay what they are here, so there is nothing to mark."""


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """The backends that `torch.compile` takes by name."""
    return [b for b in BACKENDS if not ("debug" in exclude_tags and "eager" in b)]


class set_stance:
    """How compiled functions behave from here on, or inside a `with`, or in a decorated function.

    "default"; "force_eager": as if they were not compiled; "eager_on_recompile", "fail_on_recompile": what is recorded is
    replayed, all else runs as if it were not compiled, or raises RuntimeError. RuntimeError for other names.
    """

    _KNOWN = (
        "default",
        "force_eager",
        "eager_on_recompile",
        "fail_on_recompile",
        "eager_then_compile",
        "aot_eager_then_compile",
    )

    def __init__(self, stance: str = "default", **options: Any) -> None:
        if stance not in self._KNOWN:
            raise RuntimeError(f"invalid torch.compile stance '{stance}'")
        self.stance = stance
        self.before = driver.stance
        driver.stance = stance

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        driver.stance = self.before

        @functools.wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self:
                return fn(*args, **kwargs)

        return call

    def __enter__(self) -> None:
        driver.stance = self.stance

    def __exit__(self, *exc: Any) -> None:
        driver.stance = self.before
