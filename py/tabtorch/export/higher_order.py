"""Operators that have graphs as arguments: `torch.ops.higher_order.NAME`, as functions over our tensors.

A graph comes as a function that takes its inputs and gives a list. What asks a value which way to go (`cond`, `while_loop`) reads it,
so that `torch.compile` makes a plan of what is before, and one of what is after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tabtorch as torch
from tabtorch.amp import autocast
from tabtorch.autograd import grad_mode

Graph = Callable[..., Any]

#: turns of a `while_loop` after which something is wrong
_MOST_TURNS = 1 << 24


def _list(x: Any) -> list[Any]:
    return list(x) if isinstance(x, (list, tuple)) else [x]


def cond(pred: Any, true: Graph, false: Graph, operands: Sequence[Any] = ()) -> list[Any]:
    return _list((true if bool(pred) else false)(*operands))


def while_loop(go_on: Graph, body: Graph, carried: Sequence[Any], more: Sequence[Any] = ()) -> list[Any]:
    now = list(carried)
    for _ in range(_MOST_TURNS):
        if not bool(_list(go_on(*now, *more))[0]):
            return now
        now = _list(body(*now, *more))
    raise RuntimeError(f"a while_loop has not ended after {_MOST_TURNS} turns")


def _stacked(rows: Sequence[Sequence[Any]]) -> list[Any]:
    return [None if column[0] is None else torch.stack(column) for column in zip(*rows, strict=True)]


def map_impl(f: Graph, xs: Sequence[Any], more: Sequence[Any] = ()) -> list[Any]:
    return _stacked([_list(f(*row, *more)) for row in zip(*xs, strict=True)])


def scan(f: Graph, init: Sequence[Any], xs: Sequence[Any], more: Sequence[Any] = ()) -> list[Any]:
    """What is carried in the end, and then what each step has given, stacked."""
    carried, rows = list(init), []
    for row in zip(*xs, strict=True):
        found = _list(f(*carried, *row, *more))
        carried = found[: len(carried)]
        rows.append(found[len(carried) :])
    return [*carried, *_stacked(rows)]


def associative_scan(f: Graph, xs: Sequence[Any], more: Sequence[Any] = ()) -> list[Any]:
    rows: list[list[Any]] = []
    for row in zip(*xs, strict=True):
        rows.append(_list(f(*rows[-1], *row, *more)) if rows else list(row))
    return _stacked(rows)


def wrap_with_set_grad_enabled(enabled: bool, f: Graph, *args: Any) -> Any:
    with grad_mode.set_grad_enabled(enabled):
        return f(*args)


def wrap_with_autocast(device_type: str, dtype: Any, enabled: bool, cache_enabled: Any, f: Graph, *args: Any) -> Any:
    """On the device where it runs, whatever the file says."""
    kind = next((x.device.type for x in args if isinstance(x, torch.Tensor)), device_type)
    with autocast(kind, dtype, enabled, cache_enabled):
        return f(*args)


def invoke_subgraph(f: Graph, identifier: Any, *args: Any) -> Any:
    return f(*args)


def _run(f: Graph, *args: Any) -> Any:
    return f(*args)


def with_effects(token: Any, op: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
    found = op(*args, **kwargs)
    return [token, *(() if found is None else _list(found))]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cond": cond,
    "while_loop": while_loop,
    "map_impl": map_impl,
    "map": map_impl,
    "scan": scan,
    "associative_scan": associative_scan,
    "wrap_with_set_grad_enabled": wrap_with_set_grad_enabled,
    "wrap_with_autocast": wrap_with_autocast,
    "invoke_subgraph": invoke_subgraph,
    "run_const_graph": _run,
    "strict_mode": _run,
    "wrap": _run,
    "with_effects": with_effects,
}
