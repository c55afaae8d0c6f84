"""From the arguments of a call to operands and options, as the names and defaults of a `Row` have them; else PyTorch's TypeErrors."""

from __future__ import annotations

from typing import Any

from tabtorch import _lazy
from tabtorch.core.tensor import Tensor
from tabtorch.engine.symbols import is_number
from tabtorch.ops.machinery.registry import Row, missing

_NUMBERS = (bool, int, float, complex)
#: names of arguments that PyTorch's parser takes too
_SYNONYMS = {"self": "input", "a_min": "min", "a_max": "max"}


def as_operand(x: Any) -> Any:
    """A tensor, or a Python number of exactly one of the four types; None for what is neither."""
    if isinstance(x, Tensor):
        return x
    for kind in _NUMBERS:
        if isinstance(x, kind):
            return x if type(x) is kind or is_number(x) else kind(x)  # type: ignore[arg-type]
    if type(x).__module__ == "numpy" and getattr(x, "ndim", 1) == 0 and hasattr(x, "item"):
        return as_operand(x.item())
    return None


def class_name(x: Any) -> str:
    """The class of an argument as PyTorch's messages have it."""
    t = type(x)
    if t.__name__ == "Tensor" and t.__module__ == "torch" and not isinstance(x, Tensor):
        return "Tensor of PyTorch"  # which is loaded, too
    return f"numpy.{t.__name__}" if t.__module__ == "numpy" else t.__name__


def bind(row: Row, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any], Any]:
    """Operands, options that differ from their defaults, and `out`. TypeError as PyTorch's."""
    out = kwargs.pop("out", None) if kwargs else None
    names = row.names
    if len(args) > row.positional:
        moved = _lazy.deprecated_overloads.number_second(name, names, args, kwargs)
        if moved is not None:
            return (*bind(row, name, *moved)[:2], out)
        s = "" if row.positional == 1 else "s"
        raise TypeError(f"{name}() takes {row.positional} positional argument{s} but {len(args)} were given")
    given = dict(zip(names, args))
    for k, v in kwargs.items():
        k = _SYNONYMS.get(k, k) if k not in names else k
        if k not in names:
            raise TypeError(f"{name}() got an unexpected keyword argument '{k}'")
        if k in given:
            raise TypeError(f"{name}() got multiple values for argument '{k}'")
        given[k] = v
    operands: list[Any] = []
    for pos, n in enumerate(names[: row.operands]):
        if n not in given:
            if n not in row.defaults:
                raise missing(name, [m for m in names[: row.operands] if m not in given and m not in row.defaults])
            operands.append(None)
            continue
        v = given[n]
        x = None if v is None else as_operand(v)
        if x is None and not (v is None and n in row.defaults):
            raise must_be_tensor(name, n, pos, v)
        operands.append(x)
    _check_numbers(row, name, operands)
    options: dict[str, Any] = {}
    for n in names[row.operands :]:
        if n in given:
            v = given[n]
            if isinstance(v, Tensor):
                v = v.item()
            if n in row.defaults and type(v) is not bool and not is_number(v) and v == row.defaults[n]:
                continue
            options[n] = v
        elif n not in row.defaults:
            raise missing(name, [n])
    return operands, options, out


def _check_numbers(row: Row, name: str, operands: list[Any]) -> None:
    """TypeError, as PyTorch's parser raises it, for a Python number where none may be; all of them become a tensor where they may."""
    tensors = [x is None or isinstance(x, Tensor) for x in operands]
    wrong = [k for k, t in enumerate(tensors) if not t and str(k) not in row.numbers and row.numbers != "*"]
    if not wrong and any(isinstance(x, Tensor) for x in operands):
        return
    if row.numbers == "*":
        operands[0] = _lazy.creation.tensor(operands[0])
        return
    if len(operands) == 1 or not row.numbers:
        k = wrong[0] if wrong else 0
        raise must_be_tensor(name, row.names[k], k, operands[k])
    given = ", ".join("Tensor" if t else class_name(x) for t, x in zip(tensors, operands))
    forms = [[n == k and "Number" or "Tensor" for n in range(row.operands)] for k in (-1, *map(int, row.numbers))]
    shown = [", ".join(map(" ".join, zip(types, row.names))) for types in forms if len(types) == row.operands]
    raise TypeError(
        f"{name}() received an invalid combination of arguments - got ({given}), but expected one of:\n"
        + "".join(f" * ({s}, *, Tensor out = None)\n" for s in dict.fromkeys(shown))
    )


def must_be_tensor(name: str, argument: str, position: int, x: Any) -> TypeError:
    return TypeError(f"{name}(): argument '{argument}' (position {position + 1}) must be Tensor, not {class_name(x)}")


def check_tensors(name: str, **arguments: Any) -> None:
    """TypeError for one that is no tensor; in the order of their positions."""
    for k, (n, x) in enumerate(arguments.items()):
        if not isinstance(x, Tensor):
            raise must_be_tensor(name, n, k, x)
