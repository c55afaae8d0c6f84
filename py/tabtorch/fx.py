"""`torch.fx`: its marks and its types, for code that carries the one and asks for the other. Nothing is traced here.

`wrap` is what it is in PyTorch outside of a trace. The classes are there for `isinstance`: no object is of one of them, and
making one is a RuntimeError, as `symbolic_trace` is. What records a program here is `torch.compile`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn

__all__ = [
    "Graph",
    "GraphModule",
    "Interpreter",
    "Node",
    "Proxy",
    "Tracer",
    "Transformer",
    "has_side_effect",
    "replace_pattern",
    "symbolic_trace",
    "wrap",
]


def _unavailable(name: str) -> RuntimeError:
    return RuntimeError(
        f"torch.fx.{name}: tabtorch does not trace Python programs; torch.compile records what one does"
    )


class _Untraced:
    """RuntimeError: there is no tracer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise _unavailable(type(self).__name__)


class Proxy(_Untraced):
    """In a trace, what stands for a value."""


class Node(_Untraced):
    """In a graph, one operation."""


class Graph(_Untraced):
    """What a trace records."""


class GraphModule(_Untraced):
    """A module whose `forward` a graph gives."""


class Tracer(_Untraced):
    """What traces."""


class Interpreter(_Untraced):
    """What runs a graph, node by node."""


class Transformer(Interpreter):
    """What makes another graph of a graph."""


class ConstraintViolationError(RuntimeError):
    """A size that `mark_dynamic` says varies cannot: it is `torch.fx.experimental.symbolic_shapes.ConstraintViolationError`."""


def wrap(fn_or_name: Any) -> Any:
    """`fn_or_name`: a function at the top of a module, or its name, that a trace would not enter.

    RuntimeError for anything else, NotImplementedError elsewhere than at the top of a module.
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    if sys._getframe(1).f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    return fn_or_name


def get_proxy_mode() -> None:
    """None: no trace is being made. It is `torch.fx.experimental.proxy_tensor.get_proxy_mode`."""


def has_side_effect(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn`, which a graph would keep although nothing uses its result."""
    return fn


def symbolic_trace(root: Any, concrete_args: dict[str, Any] | None = None) -> NoReturn:
    """RuntimeError: there is no tracer."""
    raise _unavailable("symbolic_trace")


def replace_pattern(gm: Any, pattern: Any, replacement: Any) -> NoReturn:
    """RuntimeError: there is no graph."""
    raise _unavailable("replace_pattern")
