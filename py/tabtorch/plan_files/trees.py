"""What a method takes and gives, as a flat list of tensors and a tree of what was around them, in JSON.

A tree is {"tensor": k}, {"value": a number, text, bool or null}, {"size": step}, {"list": [trees]}, {"tuple": [trees]}
or {"dict": {name: tree}}. A namedtuple, and an object with the fields of a dataclass (transformers' outputs are such), is a dict.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tabtorch.core.tensor import Tensor
from tabtorch.engine.symbols import is_number

#: how deep a tree of a file may be
DEEPEST = 64


def flatten(x: Any, tensors: list[Tensor], size: Callable[[Any], Any] | None = None) -> dict[str, Any]:
    """The tree of a value, whose tensors go to `tensors`. size: what stands for a size that varies. TypeError for other objects."""
    if isinstance(x, Tensor):
        for k, t in enumerate(tensors):
            if t is x:
                return {"tensor": k}
        tensors.append(x)
        return {"tensor": len(tensors) - 1}
    if is_number(x) and size is not None:
        return {"size": size(x)}
    if x is None or type(x) in (bool, int, float, str):
        return {"value": x}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return {"dict": {name: flatten(v, tensors, size) for name, v in zip(x._fields, x, strict=True)}}
    if isinstance(x, (list, tuple)):
        return {"list" if isinstance(x, list) else "tuple": [flatten(v, tensors, size) for v in x]}
    if isinstance(x, Mapping):
        if not all(isinstance(k, str) for k in x):
            raise TypeError("a dict whose keys are not all text")
        return {"dict": {k: flatten(v, tensors, size) for k, v in x.items()}}
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        fields = {f.name: getattr(x, f.name) for f in dataclasses.fields(x)}
        return {"dict": {k: flatten(v, tensors, size) for k, v in fields.items() if v is not None}}
    raise TypeError(f"an object of type {type(x).__qualname__}")


def names(tree: dict[str, Any], prefix: str) -> dict[int, str]:
    """A name for each tensor of a tree: the way to it, in dots."""
    found: dict[int, str] = {}

    def walk(t: dict[str, Any], path: str) -> None:
        ((kind, x),) = t.items()
        if kind == "tensor":
            found.setdefault(x, path or prefix)
        elif kind in ("list", "tuple", "dict"):
            items = x.items() if kind == "dict" else enumerate(x)
            for k, v in items:
                walk(v, f"{path or ('' if kind == 'dict' else prefix)}.{k}".lstrip("."))

    walk(tree, "")
    return found


def built(tree: dict[str, Any], tensors: list[Any], sizes: list[Any] = []) -> Any:  # noqa: B006  # never written
    """The value of a tree with these tensors."""
    ((kind, x),) = tree.items()
    if kind == "tensor":
        return tensors[x]
    if kind == "size":
        return sizes[x]
    if kind == "dict":
        return {k: built(v, tensors, sizes) for k, v in x.items()}
    if kind in ("list", "tuple"):
        parts = [built(v, tensors, sizes) for v in x]
        return parts if kind == "list" else tuple(parts)
    return x
