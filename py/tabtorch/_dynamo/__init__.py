"""`torch._dynamo`: the names of it that programs use. What compiles is in `tabtorch/compiled`."""

from __future__ import annotations

from typing import Any

from tabtorch import _lazy
from tabtorch._dynamo import config, exc, utils
from tabtorch.base.thread_state import STATE

__all__ = [
    "OptimizedModule",
    "allow_in_graph",
    "assume_constant_result",
    "config",
    "disable",
    "disallow_in_graph",
    "exc",
    "explain",
    "graph_break",
    "is_compiling",
    "is_dynamo_supported",
    "list_backends",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "maybe_mark_dynamic",
    "optimize",
    "reset",
    "run",
    "utils",
]


def __getattr__(name: str) -> Any:
    if name in (
        "OptimizedModule",
        "allow_in_graph",
        "assume_constant_result",
        "disable",
        "eval_frame",
        "is_compiling",
        "list_backends",
        "reset",
    ):
        return _lazy.compiler if name == "eval_frame" else getattr(_lazy.compiler, name)
    raise AttributeError(f"module 'torch._dynamo' has no attribute '{name}'")


def is_dynamo_supported() -> bool:
    """Whether `torch.compile` works: everywhere."""
    return True


def _mark(name: str, t: Any, index: Any) -> tuple[Any, ...]:
    own = f"_dynamo_{name}_indices"
    if not isinstance(t, _lazy.tensor.Tensor):
        raise AttributeError(f"'{type(t).__name__}' object has no attribute '{own}'")
    each = tuple(index) if isinstance(index, (list, tuple)) else (index,)
    setattr(t, own, {*getattr(t, own, ()), *each})
    return each


def mark_dynamic(t: Any, index: Any, *, hint_override: Any = None, min: Any = None, max: Any = None) -> None:
    """Says that size `index` of `t`, or several, varies: compiled functions record it so at once, whatever they were told.

    min, max: between which it lies. Where a function makes a constant of it (compares it with a number, or goes through
    `range` of it), or it lies elsewhere, torch.fx.experimental.symbolic_shapes.ConstraintViolationError. A size of 1 is static.
    Where something here needs the very number, and PyTorch would not, it becomes static.
    """
    each = _mark("dynamic", t, index)
    t._dynamo_dynamic_range = {*getattr(t, "_dynamo_dynamic_range", ()), *[(i, min, max) for i in each]}


def maybe_mark_dynamic(t: Any, index: Any) -> None:
    """The same as a hint: no error where it comes out static."""
    _mark("weak_dynamic", t, index)


def mark_static(t: Any, index: Any = None) -> None:
    """Says that a size (None: each) is to be recorded as it is."""
    if not isinstance(t, _lazy.tensor.Tensor):
        raise TypeError(f"expected a tensor, but received {type(t)}")
    _mark("static", t, tuple(range(t.dim())) if index is None else index)


def mark_static_address(t: Any, guard: bool = False) -> None:
    """Says that a tensor stays where it is from call to call. A plan refers to its inputs anew anyway. TypeError for no tensor."""
    if not isinstance(t, _lazy.tensor.Tensor):
        raise TypeError(f"mark_static_address expects a tensor but received {type(t)}")


def graph_break(msg: str = "") -> None:
    """Inside a compiled function: from here on its Python runs on every call."""
    if STATE.held is not None:
        STATE.held.breaks("asks for a break")


def disallow_in_graph(fn: Any) -> Any:
    """`fn` breaks the plan of a compiled function that calls it."""
    return _lazy.compiler.disable(fn)


def optimize(backend: Any = "inductor", *, nopython: bool = False, **kwargs: Any) -> Any:
    """A decorator: `torch.compile` by its old name."""
    return _lazy.compiler.compile(backend=backend, fullgraph=nopython, **kwargs)


def run(fn: Any) -> Any:
    """`fn` itself."""
    return fn


def explain(f: Any, *extra_args: Any, **extra_kwargs: Any) -> Any:
    """`explain(f)(*args)` runs `f` once; tells how many graphs it takes, and why it runs eagerly on every call, if it does."""
    return (
        (lambda *args, **kwargs: _lazy.explain.explain(f, args, kwargs))
        if not extra_args and not extra_kwargs
        else _lazy.explain.explain(f, extra_args, extra_kwargs)
    )
