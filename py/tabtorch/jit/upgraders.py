"""What operators meant in older archives (source: torch/csrc/jit/operator_upgraders/upgraders_entry.cpp).

A row is one operator, the first version of archives that has today's meaning, and the older one in today's operators. PyTorch writes the
lowest version whose meanings a program's operators have, so that an archive of version 3 may well divide numbers of Python's kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabtorch.core.tensor import Tensor

Operator = Callable[..., Any]


def _floating(x: Any) -> bool:
    return x.is_floating_point() if isinstance(x, Tensor) else isinstance(x, float)


def _div(div: Operator, x: Any, other: Any, *rest: Any, **given: Any) -> Any:
    """Whole numbers were divided towards nought."""
    if not isinstance(x, Tensor) or rest or "rounding_mode" in given or _floating(x) or _floating(other):
        return div(x, other, *rest, **given)
    return div(x, other, rounding_mode="trunc", **given)


def _full(full: Operator, size: Any, fill_value: Any, *rest: Any, **given: Any) -> Any:
    """Without a type the result was of floating point, whatever filled it."""
    untyped = "names" not in given and not any(v is not None for v in rest) and given.get("dtype") is None
    return full(size, float(fill_value) if untyped else fill_value, *rest, **given)


def _spaced(spaced: Operator, start: Any, end: Any, steps: Any = None, *rest: Any, **given: Any) -> Any:
    """The number of steps might be left out."""
    return spaced(start, end, 100 if steps is None else steps, *rest, **given)


UPGRADERS: dict[str, tuple[int, Callable[..., Any]]] = {
    "div": (4, _div),
    "div_": (4, _div),
    "full": (5, _full),
    "linspace": (8, _spaced),
    "logspace": (9, _spaced),
}


def upgraded(name: str, version: int, today: Operator) -> Operator:
    """The operator `name` as an archive of `version` means it, from today's."""
    first, older = UPGRADERS.get(name, (0, None))
    if older is None or version >= first:
        return today
    return lambda *args, **given: older(today, *args, **given)
