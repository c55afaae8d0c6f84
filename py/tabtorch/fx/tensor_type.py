"""`torch.fx.tensor_type`: a tensor's type with its sizes, as annotations have it."""

from __future__ import annotations

from typing import Any


class TensorType:
    """A tensor of these sizes: `TensorType((1, 2, Dyn))`."""

    def __init__(self, dim: Any) -> None:
        self.__origin__ = TensorType
        self.__args__ = dim

    def __repr__(self) -> str:
        return f"TensorType[{self.__args__}]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorType) and list(self.__args__) == list(other.__args__)

    def __hash__(self) -> int:
        return hash(tuple(self.__args__))

    @staticmethod
    def __class_getitem__(*args: Any) -> TensorType:
        return TensorType(args[0] if len(args) == 1 and isinstance(args[0], tuple) else args)


class _DynType:
    """Any size."""

    def __init__(self) -> None:
        self.__name__ = "_DynType"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _DynType)

    def __hash__(self) -> int:
        return hash(_DynType)

    def __str__(self) -> str:
        return "Dyn"

    __repr__ = __str__


Dyn = _DynType()


def is_consistent(t1: Any, t2: Any) -> bool:
    """Whether a value could be of both types."""
    if t1 == t2 or Dyn in (t1, t2):
        return True
    if isinstance(t1, TensorType) and isinstance(t2, TensorType):
        a, b = t1.__args__, t2.__args__
        return len(a) == len(b) and all(is_consistent(x, y) for x, y in zip(a, b))
    return False


def is_more_precise(t1: Any, t2: Any) -> bool:
    """Whether every value of the first type is of the second."""
    if t1 == t2 or isinstance(t2, _DynType):
        return True
    if isinstance(t1, TensorType) and isinstance(t2, TensorType):
        a, b = t1.__args__, t2.__args__
        return len(a) == len(b) and all(is_more_precise(x, y) for x, y in zip(a, b))
    return False
