"""Arguments and results as flat lists: a key of their structure, and structures made again from other tensors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from operator import is_
from typing import Any

from tabtorch.compiled.guards import PLAIN, about, marked
from tabtorch.core.tensor import Tensor
from tabtorch.engine.symbols import is_number
from tabtorch.engine.view import Size, started


def flatten(
    x: Any,
    tensors: list[Tensor],
    objects: list[Any],
    boxes: list[Any],
    form: Callable[[Tensor], Any] = lambda t: None,
) -> Any:
    """What can be told of an argument without its tensors' elements, as a key; `objects` are told apart by identity.

    form: what counts of a tensor instead; None: all of it.

    boxes: the lists and dicts in it, and what is in them, so that it can be seen whether they were changed.
    """
    if isinstance(x, Tensor):
        tensors.append(x)
        if (found := form(x)) is not None:
            return found
        if marked(x):
            objects.append(x)
            return (about(x), id(x))
        kind, m, *rest = about(x)
        return (kind, started(m), *rest)  # where it begins is a number: see storage_offsets.py
    t = type(x)
    if t in PLAIN:
        return (t, repr(x)) if t is float or t is complex else (t, x)
    if t is list or t is tuple or (isinstance(x, tuple) and hasattr(x, "_fields")):
        if t is list:
            boxes.append((x, list(x)))
        return (t, *[flatten(v, tensors, objects, boxes, form) for v in x])
    if t is dict:
        boxes.append((x, [*x, *x.values()]))
        return (t, *x, *[flatten(v, tensors, objects, boxes, form) for v in x.values()])
    objects.append(x)
    return (t, id(x))


def sources(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """How PyTorch's messages call the tensors of a call of `function`, in the order of `flatten`: `L['x']`, `L['parts'][0]`."""

    def within(x: Any, name: str) -> list[str]:
        if isinstance(x, Tensor):
            return [name]
        items = x.items() if type(x) is dict else enumerate(x) if isinstance(x, (list, tuple)) else ()
        return [path for k, v in items for path in within(v, f"{name}[{k!r}]")]

    try:
        parameters = list(inspect.signature(getattr(function, "forward", function)).parameters.values())
    except (TypeError, ValueError):  # of C code
        parameters = []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    found = [
        path
        for i, x in enumerate(args)
        for path in within(x, f"L[{names[i]!r}]" if i < len(names) else f"L[{rest!r}][{i - len(names)}]")
    ]
    return found + [path for k, x in kwargs.items() for path in within(x, f"L[{k!r}]")]


def altered(boxes: list[Any]) -> bool:
    """Whether a list or dict has not the contents that it had."""
    for x, had in boxes:
        now = [*x, *x.values()] if type(x) is dict else x
        if len(now) != len(had) or not all(map(is_, now, had)):
            return True
    return False


class Unknown(Exception):
    """A result that cannot be made again."""


def describe(x: Any, known: dict[int, Any], tensors: list[Tensor], boxes: list[Any]) -> Any:
    """A spec of a result, for `build`. `known`: id -> what stands for an object that is there already; `boxes`: the lists and
    dicts among the arguments. Raises Unknown."""
    if isinstance(x, Tensor):
        for i, t in enumerate(tensors):
            if t is x:
                return ("tensor", i)
        tensors.append(x)
        return ("tensor", len(tensors) - 1)
    kind: Any = type(x)
    if is_number(x) or (kind is Size and any(map(is_number, x))):
        return ("size", x)
    if kind in PLAIN or id(x) in known or kind is Size:
        return ("same", x)
    if any(x is box for box, _ in boxes):
        raise Unknown("it returns a list or dict that it was given")
    if isinstance(x, (list, tuple)) and (kind in (list, tuple) or hasattr(x, "_fields")):
        return (kind, [describe(v, known, tensors, boxes) for v in x])
    if isinstance(x, dict) and type(x).__init__ is dict.__init__:
        return (kind, list(x), [describe(v, known, tensors, boxes) for v in x.values()])
    raise Unknown(f"it returns an object of type {kind.__qualname__}")


def with_sizes(spec: Any, number: Callable[[Any], Any]) -> Any:
    """The spec with these numbers in the place of sizes that are not known."""
    kind = spec[0]
    if kind == "size":
        return ("same", Size(map(number, spec[1])) if type(spec[1]) is Size else number(spec[1]))
    if kind in ("tensor", "same"):
        return spec
    return (*spec[:-1], [with_sizes(s, number) for s in spec[-1]])


def build(spec: Any, tensors: list[Any]) -> Any:
    """The result of a spec with these tensors."""
    kind = spec[0]
    if kind == "tensor":
        return tensors[spec[1]]
    if kind == "same":
        return spec[1]
    if len(spec) == 3:
        made = kind()
        made.update(zip(spec[1], [build(s, tensors) for s in spec[2]]))
        return made
    parts = [build(s, tensors) for s in spec[1]]
    return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
