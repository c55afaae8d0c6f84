"""Operators that have graphs as arguments (`torch.cond`, `while_loop`, `map`, `scan`, `flex_attention`, …).

What runs its graph a number of times that is known is written out in Dynamo's graph, before AOTAutograd differentiates that
(`inline`): by PyTorch's own formula, or by a loop. `cond` and `while_loop` ask a value which way to go: they stay in AOTAutograd's
graphs, and read it while the program runs. So such a program is no kept plan, but runs operation by operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._higher_order_ops.auto_functionalize import auto_functionalized_dense, auto_functionalized_v2_dense
from torch._higher_order_ops.flex_attention import sdpa_dense

import tabtorch
from tabtorch.backend.dynamo.edges import apart
from tabtorch.core.tensor import Tensor

# ---- in Dynamo's graph: functions of PyTorch's tensors


def _run(graph: Any, *args: Any) -> Any:
    """Runs a graph so that what comes of it knows the lines of the script."""
    return torch.fx.Interpreter(graph).run(*args) if isinstance(graph, torch.fx.GraphModule) else graph(*args)


def _stacked(rows: Sequence[Sequence[Any]]) -> list[Any]:
    return [torch.stack(column) for column in zip(*rows, strict=True)]


def _map(f: Any, xs: Sequence[Any], more: Sequence[Any]) -> list[Any]:
    return _stacked([_run(f, *row, *more) for row in zip(*xs, strict=True)])


def _scan(f: Any, init: Sequence[Any], xs: Sequence[Any], more: Sequence[Any] = ()) -> list[Any]:
    """What is carried in the end, and then what each step has given, stacked."""
    carried, rows = list(init), []
    for row in zip(*xs, strict=True):
        found = list(_run(f, *carried, *row, *more))
        carried = found[: len(carried)]
        rows.append(found[len(carried) :])
    return [*carried, *_stacked(rows)]


def _associative_scan(f: Any, xs: Sequence[Any], more: Sequence[Any] = ()) -> list[Any]:
    rows: list[list[Any]] = []
    for row in zip(*xs, strict=True):
        rows.append(list(_run(f, *rows[-1], *row, *more)) if rows else list(row))
    return _stacked(rows)


def _subgraph(graph: Any, identifier: Any, *args: Any) -> Any:
    return _run(graph, *args)


_WRITTEN_OUT: dict[str, Callable[..., Any]] = {
    "map_impl": _map,
    "scan": _scan,
    "associative_scan": _associative_scan,
    "invoke_subgraph": _subgraph,
    "flex_attention": sdpa_dense,
}


def inline(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Writes such operators out in a graph of Dynamo's, and in the graphs in it."""
    for part in gm.modules():
        if not isinstance(part, torch.fx.GraphModule):
            continue
        found = False
        for n in part.graph.nodes:
            if isinstance(n.target, torch._ops.HigherOrderOperator) and n.target.name() in _WRITTEN_OUT:
                n.target = _WRITTEN_OUT[n.target.name()]
                found = True
        if found:
            part.recompile()
    return gm


# ---- in AOTAutograd's graphs: functions of our tensors, whose graphs are Python functions

Graph = Callable[..., list[Any]]

#: operators that stand for one of the script's own that writes to its arguments, and PyTorch's formulas for them: copies are written to
WRITING = {
    "auto_functionalized": auto_functionalized_dense,
    "auto_functionalized_v2": auto_functionalized_v2_dense,
}


def writing(name: str, op: Any) -> Callable[..., Any]:
    """`WRITING[name]` of an operator, as a function of tensors of PyTorch."""
    return lambda **kw: WRITING[name](op, **kw)


def _apart(values: Sequence[Any]) -> list[Any]:
    return [apart(x) if isinstance(x, Tensor) else x for x in values]


def cond(predicate: Any, true: Graph, false: Graph, operands: Sequence[Any] = ()) -> list[Any]:
    """The results of one of two graphs. Reads the predicate, if that is a tensor."""
    return _apart((true if bool(predicate) else false)(*operands))


def while_loop(go_on: Graph, body: Graph, carried: Sequence[Any], more: Sequence[Any]) -> list[Any]:
    """What is carried in the end. Reads a value at each step."""
    carried = list(carried)
    while bool(go_on(*carried, *more)[0]):
        carried = body(*carried, *more)
    return _apart(carried)


def while_loop_stack_output(go_on: Graph, body: Graph, carried: Sequence[Any], more: Sequence[Any]) -> list[Any]:
    """What is carried after each step, stacked; of no step, a stack of none."""
    rows: list[list[Any]] = []
    now = list(carried)
    while bool(go_on(*now, *more)[0]):
        now = body(*now, *more)
        rows.append(now)
    if rows:
        return [tabtorch.stack(column) for column in zip(*rows, strict=True)]
    return [x.new_empty((0, *x.shape)) for x in carried]


def with_effects(token: Any, results: Any) -> list[Any]:
    """What stands for the order of such calls, and then what one has given."""
    return [token, *(results if isinstance(results, (list, tuple)) else [results])]


#: names of higher-order operators in a program, and the functions that stand for them
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cond": cond,
    "while_loop": while_loop,
    "while_loop_stack_output": while_loop_stack_output,
    "with_effects": with_effects,
}
