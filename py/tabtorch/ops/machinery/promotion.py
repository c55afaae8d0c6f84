"""From operands to the types of an elementwise operation: the rules a `Row` can name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabtorch.base import dtypes
from tabtorch.base.dtypes import bool_, dtype, float32, float64, int64

#: types that kernels of PyTorch's have in common
EVERY = frozenset(dtypes.PUBLIC.values())
REAL = frozenset(d for d in EVERY if not d.is_complex)
NUMBERS = EVERY - {bool_}
REAL_NUMBERS = REAL & NUMBERS
INTEGERS = frozenset(d for d in EVERY if d.category == 1)
FLOATING = frozenset(d for d in EVERY if d.is_floating_point)
FLOATING_COMPLEX = FLOATING | (EVERY - REAL)
FLOATING_LONG = FLOATING | {int64}
INDICES = frozenset((dtypes.int32, int64))
SINGLE_DOUBLE = frozenset((float32, float64))


def not_implemented(kernel: str, d: dtype) -> NotImplementedError:
    return NotImplementedError(f"\"{kernel}\" not implemented for '{dtypes.TYPE_NAMES[d.name]}'")


def check_kernel(kernel: str, d: dtype, types: frozenset[dtype]) -> None:
    """NotImplementedError, as PyTorch's, for a type that its kernel of that name lacks; `types` are those that it has."""
    if d not in types:
        raise not_implemented(kernel, d)


def common_dtype(operands: list[Any]) -> dtype:
    """PyTorch's result type of tensors (anything with `_tab_meta`) and Python numbers; None does not count."""
    dims = zeros = numbers = None
    for x in operands:
        if x is None:
            continue
        m = getattr(x, "_tab_meta", None)
        if m is None:
            numbers = _join(numbers, dtypes.scalar_dtype(x.__class__))
        elif m.ndim:
            dims = _join(dims, m.dtype)
        else:
            zeros = _join(zeros, m.dtype)
    d = dtypes.combine(dtypes.combine(dims, zeros), numbers)
    assert d is not None
    return d


def _join(a: dtype | None, b: dtype) -> dtype:
    return b if a is None else dtypes.promote_types(a, b)


Rule = Callable[[Any, dtype], tuple[dtype, dtype]]  # (row, common) -> (computed in, result)


def _arith(row: Any, d: dtype) -> tuple[dtype, dtype]:
    return d, d


def _float(row: Any, d: dtype) -> tuple[dtype, dtype]:
    if d.category < 2:
        d = dtypes.get_default_dtype()
    return d, d


def _compare(row: Any, d: dtype) -> tuple[dtype, dtype]:
    return d, bool_


def _logic(row: Any, d: dtype) -> tuple[dtype, dtype]:
    return bool_, bool_


def _real(row: Any, d: dtype) -> tuple[dtype, dtype]:
    return d, d.to_real()


def _bitwise(row: Any, d: dtype) -> tuple[dtype, dtype]:
    if d.category > 1:
        raise not_implemented(row.kernel, d)
    return d, d


def _int(row: Any, d: dtype) -> tuple[dtype, dtype]:
    if d.category != 1:
        raise not_implemented(row.kernel, d)
    return d, d


def _floating(row: Any, d: dtype) -> tuple[dtype, dtype]:
    if d.category != 2:
        raise not_implemented(row.kernel, d)
    return d, d


#: name -> rule. Inputs are cast to the first type, the expression's value to the second.
#: arith: the promoted type, for both. float: integers become the default float. compare, bool: a bool result of operands of the
#: promoted type. logic: operands are taken as bool. real: a complex operand, a real result. bitwise: integers and bool;
#: int: integers; floating: real floats only, else PyTorch's error. where: as arith, but the first operand is a condition.
RULES: dict[str, Rule] = {
    "arith": _arith,
    "same": _arith,
    "where": _arith,
    "float": _float,
    "compare": _compare,
    "bool": _compare,
    "logic": _logic,
    "real": _real,
    "bitwise": _bitwise,
    "int": _int,
    "floating": _floating,
}


def promoted(row: Any, operands: list[Any]) -> dtype:
    """The type that operands have in common. Raises what PyTorch says of them before it looks at their shapes."""
    common = common_dtype(operands[1:] if row.rule == "where" else operands)
    if row.check is not None:
        row.check(common, operands)
    return common


def types_of(row: Any, common: dtype) -> tuple[dtype, dtype]:
    """The type an operation computes in and its result's type. Raises PyTorch's error where they cannot be."""
    rule = row.rule
    return (RULES[rule] if isinstance(rule, str) else rule)(row, common)
