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
from tabtorch.autograd.grad_mode import STATE
from tabtorch.func.batch import Level, enter, leave

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
    return [token, *_list(found)]  # None, too, has its place


# ---- `torch._functorch.predispatch`: the steps of a `vmap`, as the training dialect has them


class _Opened(Level):
    """A `vmap` of a program, from one of its nodes to another. `given`: what was batched, and how: it may be written to."""

    def __init__(self, size: int, randomness: str) -> None:
        super().__init__(size, randomness)
        self.given: list[tuple[Any, int, Any, int]] = []


def _opened() -> list[_Opened]:
    return [x for x in STATE.levels if isinstance(x, _Opened)]


def _increment(size: int, randomness: str) -> None:
    _Opened(size, randomness).__enter__()


def _decrement() -> None:
    level = _opened()[-1]
    for x, dim, t, version in level.given:
        if t._tab_storage.version != version:
            x.copy_(leave(t, level, dim))
    level.__exit__()


def _add(x: Any, dim: int, number: int) -> Any:
    level, dim = _opened()[number - 1], dim % x.dim()
    t = enter(x, level, dim)
    level.given.append((x, dim, t, t._tab_storage.version))
    return t


def _remove(x: Any, number: int, size: int, dim: int) -> Any:
    return leave(x, _opened()[number - 1], dim % (x.dim() + 1))


def close(before: int) -> None:
    """Ends what a program that failed has left open: all but so many levels."""
    for level in reversed(STATE.levels[before:]):
        level.__exit__()


def levels() -> int:
    return len(STATE.levels)


PREDISPATCH: dict[str, Callable[..., Any]] = {
    "lazy_load_decompositions": lambda: None,
    "_vmap_increment_nesting": _increment,
    "_vmap_decrement_nesting": _decrement,
    "_add_batch_dim": _add,
    "_remove_batch_dim": _remove,
}


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
