"""Deprecated overloads that older programs still write, as PyTorch takes them: `x.add_(alpha, other)`, `addmm(beta, x, alpha, a, b)`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

from tabtorch.core.tensor import Tensor

_warned = False

_NUMBERS = (int, float, complex)


def _warn(name: str, old: str, new: str) -> None:
    """Says so once in a program, whichever overload it is."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"This overload of {name} is deprecated:\n\t{name}({old})\n"
            f"Consider using one of the following signatures instead:\n\t{name}({new})",
            UserWarning,
            stacklevel=5,
        )


def number_second(name: str, names: list[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`(x, alpha, other)` of `add` and its kin as (args, kwargs) of today's order; None if the arguments are not of that form.

    names: of the tensors, then of the number.
    """
    *tensors, number = names
    fits = len(args) == len(names) and not kwargs and number in ("alpha", "value")
    if not fits or not isinstance(args[1], _NUMBERS) or not all(isinstance(x, Tensor) for x in (args[0], *args[2:])):
        return None
    rest = ", ".join(f"Tensor {n}" for n in tensors[1:])
    _warn(name, f"Number {number}, {rest}", f"{rest}, *, Number {number} = 1")
    return (args[0], *args[2:]), {number: args[1]}


def beta_and_alpha_among(f: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """For `f(input, a, b, *, beta, alpha)`: also takes beta and alpha as numbers before `input`, `a` or `b`."""

    @wraps(f)
    def call(*args: Any, **kwargs: Any) -> Tensor:
        if 3 < len(args) <= 5 and all(isinstance(x, Tensor) for x in args[-2:]):
            numbers = [x for x in args if isinstance(x, _NUMBERS)]
            tensors = [x for x in args if isinstance(x, Tensor)]
            if len(tensors) == 3 and len(numbers) == len(args) - 3 and not kwargs.keys() & {"beta", "alpha"}:
                rest = "Tensor {1}, Tensor {2}".format(*f.__code__.co_varnames)
                old = "Number beta, Tensor self, Number alpha, "[: None if len(numbers) == 2 else 26]
                _warn(f.__name__, old + rest, f"Tensor input, {rest}, *, Number beta = 1, Number alpha = 1")
                return f(*tensors, **dict(zip(("beta", "alpha"), numbers)), **kwargs)
        return f(*args, **kwargs)

    return call
