"""`torch.fx.experimental.symbolic_shapes`: sizes are numbers wherever a program sees them, so what asks about symbols says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabtorch.engine.symbols import ConstraintViolationError, Symbol

__all__ = [
    "ConstraintViolationError",
    "GuardOnDataDependentSymNode",
    "check_consistent",
    "constrain_range",
    "definitely_false",
    "definitely_true",
    "free_symbols",
    "free_unbacked_symbols",
    "guard_bool",
    "guard_float",
    "guard_int",
    "guard_or_false",
    "guard_or_true",
    "guard_scalar",
    "guard_size_oblivious",
    "has_free_symbols",
    "has_free_unbacked_symbols",
    "has_hint",
    "has_static_value",
    "hint_int",
    "is_concrete_bool",
    "is_concrete_float",
    "is_concrete_int",
    "is_nested_int",
    "is_symbolic",
    "statically_known_false",
    "statically_known_true",
    "sym_and",
    "sym_eq",
    "sym_or",
]


class GuardOnDataDependentSymNode(RuntimeError):
    """A way that a program takes depends on values of tensors, of which nothing is known. Nothing here raises it."""


def is_symbolic(val: Any) -> bool:
    """Whether it is a size that stands for others too, which a function sees only while it is recorded with varying sizes."""
    return type(val) is Symbol


def free_symbols(val: Any) -> set[Any]:
    """The symbols in a value: none, they have no names here."""
    return set()


free_unbacked_symbols = free_symbols


def has_free_symbols(val: Any) -> bool:
    """False: see `free_symbols`."""
    return False


has_free_unbacked_symbols = has_free_symbols


def hint_int(a: Any, fallback: int | None = None) -> int:
    """The number that a size is."""
    return int(a.value) if type(a) is Symbol else int(a)


def has_hint(a: Any) -> bool:
    """True: every size is known."""
    return True


def guard_int(a: Any) -> int:
    """A size as an int. In a recording of varying sizes it is a constant from then on."""
    return int(a)


def guard_bool(a: Any) -> bool:
    """Whether something holds; a recording of varying sizes holds where the answer is the same."""
    return bool(a)


def guard_float(a: Any) -> float:
    """A number as a float."""
    return float(a)


def guard_scalar(a: Any) -> Any:
    """A number as a bool, an int or a float."""
    return a if isinstance(a, (bool, int, float)) else guard_int(a)


def guard_size_oblivious(expr: Any) -> bool:
    """Whether something holds: sizes are known, and nothing has to be assumed of them."""
    return bool(expr)


def guard_or_true(a: Any) -> bool:
    """Whether something holds; it is always known."""
    return bool(a)


guard_or_false = guard_or_true
statically_known_true = guard_or_true
definitely_true = guard_or_true


def statically_known_false(x: Any) -> bool:
    """Whether something does not hold."""
    return not x


definitely_false = statically_known_false


def has_static_value(a: Any) -> bool:
    """Whether it is a number that stands for itself only."""
    return not is_symbolic(a)


def is_concrete_int(a: Any) -> bool:
    """Whether it is a whole number."""
    return type(a) is int


def is_concrete_float(a: Any) -> bool:
    """Whether it is a float."""
    return type(a) is float


def is_concrete_bool(a: Any) -> bool:
    """Whether it is a bool."""
    return type(a) is bool


def is_nested_int(s: Any) -> bool:
    """False: no size is one of nested tensors'."""
    return False


def constrain_range(a: Any, *, min: int | None = None, max: int | None = None) -> None:
    """ValueError if a number is outside of the range."""
    if (min is not None and a < min) or (max is not None and a > max):
        raise ValueError(f"Invalid value {a} for range [{min}:{max}]")


def check_consistent(new: Any, old: Any) -> None:
    """AssertionError if two tensors have other shapes, or two numbers are not equal."""
    if hasattr(new, "shape") and hasattr(old, "shape"):
        assert tuple(new.shape) == tuple(old.shape), f"{new.shape} != {old.shape} (old != new)"
    elif not isinstance(new, type(None)) and isinstance(new, (int, float, bool)):
        assert new == old, f"{old} != {new} (old != new)"


def sym_eq(x: Any, y: Any) -> bool:
    """Whether two numbers, or sequences of them, are equal."""
    if isinstance(x, (tuple, list)) and isinstance(y, (tuple, list)):
        return len(x) == len(y) and all(map(sym_eq, x, y))
    return bool(x == y)


def _joined(how: Callable[[Any], bool]) -> Callable[..., bool]:
    def f(*args: Any) -> bool:
        return how(args)

    return f


sym_and = _joined(all)
sym_or = _joined(any)
