"""A graph as a function over tensors: its nodes one after another, each a call that is prepared once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tabtorch.export import higher_order
from tabtorch.export.fields import bad
from tabtorch.export.graphs import DEVICE, Graph, OperatorName, Ref
from tabtorch.export.operators import Finder, settled

#: the values of a run by their numbers; the first is the device
Values = list[Any]


class Runner:
    """`run(device, inputs)` -> the values of the graph's outputs, as a list."""

    def __init__(self, graph: Graph, find: Finder) -> None:
        self.slots: dict[str, int] = {}
        self.find = find
        self.takes = [self._slot(x.name) if isinstance(x, Ref) else None for x in graph.inputs]
        uses = _last_uses(graph)
        self.steps: list[tuple[Callable[..., Any], Any, Any, Any, tuple[int, ...]]] = []
        for i, node in enumerate(graph.calls):
            f = find(node.target)
            args = [self._getter(a) for a in node.args]
            kwargs = [(k, self._getter(v)) for k, v in node.kwargs.items() if not settled(k)]
            put = self._putter(node.outputs, node.target)
            done = tuple(self.slots[name] for name in uses.get(i, ()) if name in self.slots)
            self.steps.append((f, args, kwargs, put, done))
        self.results = [self._getter(x) for x in graph.outputs]
        self.single = graph.single

    def _slot(self, name: str) -> int:
        return self.slots.setdefault(name, len(self.slots) + 1)

    def _getter(self, x: Any) -> Callable[[Values], Any]:
        if isinstance(x, Ref):
            n = self.slots[x.name]
            return lambda values: values[n]
        if x is DEVICE:
            return lambda values: values[0]
        if isinstance(x, Graph):
            inner = Runner(x, self.find)
            return lambda values: partial(_called, inner, values[0])
        if isinstance(x, OperatorName):
            f = self.find(x.name)
            return lambda values: f
        if isinstance(x, list) and any(_varies(y) for y in x):
            each = [self._getter(y) for y in x]
            return lambda values: [get(values) for get in each]
        if isinstance(x, dict) and any(_varies(y) for y in x.values()):
            named = [(k, self._getter(v)) for k, v in x.items()]
            return lambda values: {k: get(values) for k, get in named}
        return lambda values: x

    def _putter(self, outputs: Any, target: str) -> Callable[[Values, Any], None]:
        if isinstance(outputs, str):
            n = self._slot(outputs)

            def one(values: Values, r: Any) -> None:
                if isinstance(r, (list, tuple)):  # a tuple of one, of a higher-order operator
                    if len(r) != 1:
                        raise bad(f"{target} has {len(r)} results, but the program expects one")
                    (r,) = r
                values[n] = r

            return one
        if not outputs:
            return lambda values, r: None
        each = [None if o is None else self._putter(o, target) for o in outputs]

        def many(values: Values, r: Any) -> None:
            if not isinstance(r, (list, tuple)) or len(r) < len(each):
                raise bad(f"{target} has not the {len(each)} results that the program expects")
            for put, v in zip(each, r):
                if put is not None:
                    put(values, v)

        return many

    def run(self, device: Any, inputs: Sequence[Any]) -> list[Any]:
        values: Values = [device] + [None] * len(self.slots)
        if len(inputs) != len(self.takes):
            raise TypeError(f"the graph takes {len(self.takes)} inputs, but {len(inputs)} were given")
        for n, x in zip(self.takes, inputs):
            if n is not None:
                values[n] = x
        del inputs
        levels = higher_order.levels()
        try:
            for f, args, kwargs, put, done in self.steps:
                put(values, f(*[get(values) for get in args], **{k: get(values) for k, get in kwargs}))
                for n in done:
                    values[n] = None
        except BaseException:
            higher_order.close(levels)
            raise
        return [get(values) for get in self.results]


def _called(runner: Runner, device: Any, *args: Any) -> Any:
    found = runner.run(device, args)
    return found[0] if runner.single else found


def _varies(x: Any) -> bool:
    if isinstance(x, (list, tuple)):
        return any(map(_varies, x))
    if isinstance(x, dict):
        return any(map(_varies, x.values()))
    return isinstance(x, (Ref, Graph, OperatorName)) or x is DEVICE


def _refs(x: Any) -> Any:
    if isinstance(x, Ref):
        yield x.name
    elif isinstance(x, (list, tuple)):
        for y in x:
            yield from _refs(y)
    elif isinstance(x, dict):
        for y in x.values():
            yield from _refs(y)


def _last_uses(graph: Graph) -> dict[int, list[str]]:
    """Node -> the values that nobody wants after it, so that their memory is free for others."""
    last: dict[str, int] = {}
    for i, node in enumerate(graph.calls):
        for name in _refs([node.args, node.kwargs]):
            last[name] = i
        for name in _names(node.outputs):
            last[name] = i
    for name in _refs(graph.outputs):
        last.pop(name, None)
    found: dict[int, list[str]] = {}
    for name, i in last.items():
        found.setdefault(i, []).append(name)
    return found


def _names(outputs: Any) -> Any:
    if isinstance(outputs, str):
        yield outputs
    elif isinstance(outputs, list):
        for o in outputs:
            yield from _names(o)
