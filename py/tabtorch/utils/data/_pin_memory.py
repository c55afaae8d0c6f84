"""`torch.utils.data._utils.pin_memory`: libraries' loaders pin batches with it. The structure is kept."""

import copy
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import tabtorch as torch

__all__ = ["pin_memory"]


def pin_memory(data: Any, device: Any = None) -> Any:
    """``data`` with ``pin_memory()`` of whatever in it has that method."""
    if isinstance(data, torch.Tensor) or hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, (str, bytes)):
        return data
    kind: Any = type(data)
    if isinstance(data, Mapping):
        pinned = {k: pin_memory(v, device) for k, v in data.items()}
        try:
            if isinstance(data, MutableMapping):  # what else such a type has is kept
                clone: Any = copy.copy(data)
                clone.update(pinned)
                return clone
            return kind(pinned)
        except TypeError:
            return pinned
    if isinstance(data, tuple):
        items = [pin_memory(v, device) for v in data]
        return type(data)(*items) if hasattr(data, "_fields") else type(data)(items)
    if isinstance(data, Sequence):
        items = [pin_memory(v, device) for v in data]
        try:
            if isinstance(data, MutableSequence):
                clone = copy.copy(data)
                for i, item in enumerate(items):
                    clone[i] = item
                return clone
            return kind(items)
        except TypeError:
            return items
    return data
