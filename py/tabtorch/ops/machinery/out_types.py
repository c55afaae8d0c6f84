"""Which types of `out=` an operation takes: PyTorch's families of rules, one of which an operation's definition names.

A rule is called with the type of the result, that of `out`, and what a result with several tensors calls this one. It
raises PyTorch's error where that will not do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from tabtorch.base.dtypes import CXX_NAMES, TYPE_NAMES, can_cast, dtype, given_dtype, int64
from tabtorch.core.tensor import Tensor
from tabtorch.ops.machinery.promotion import types_of

Rule = Callable[..., None]

#: what PyTorch adds where nobody has written a message
ASK = "  (Could this error message be improved?  If so, please report an enhancement request to PyTorch.)"


def _rule(fits: Callable[[dtype, dtype], bool], text: str, error: type[Exception] = RuntimeError) -> Rule:
    """What is said may name the types, {Want} and {Have}, as C++ does ({want} and {have}), and the {field}."""

    def check(want: dtype, have: dtype, field: str = "result") -> None:
        if not fits(want, have):
            a, b = want.name, have.name
            names = {"Want": TYPE_NAMES[a], "Have": TYPE_NAMES[b], "want": CXX_NAMES[a], "have": CXX_NAMES[b]}
            raise error(text.format(**names, field=field))

    return check


def castable(text: str, error: type[Exception] = RuntimeError) -> Rule:
    """Any type that the result can be cast to."""
    return _rule(can_cast, text, error)


def same(text: str, *others: dtype) -> Rule:
    """The very type of the result, or one of `others`."""
    return _rule(lambda want, have: have is want or have in others, text)


@cache
def safely(name: str, field: str = "{field}") -> Rule:
    """That of `linalg`, where the result is copied to `out`."""
    return castable(
        f"{name}: Expected {field} to be safely castable from {{Want}} dtype, but got {field} with dtype {{Have}}"
    )


def anything(want: dtype, have: dtype, field: str = "") -> None:
    """Any type: PyTorch copies what was computed, in Python."""


#: of operations that promote their operands
CASTABLE = castable("result type {Want} can't be cast to the desired output type {Have}")
#: of structured kernels, and of what is generated from a function without `out`
EXACT = same("Expected out tensor to have dtype {want}, but got {have} instead")
#: of elementwise operations with one operand that do not promote it
FOUND = same("Found dtype {Have} but expected {Want}")
#: of kernels that compare the types of their arguments
SCALAR_TYPE = same("expected scalar_type {Want} but found {Have}")
#: of kernels that take their data by the type
DATA_TYPE = same("expected scalar type {Want} but found {Have}")
#: where the call names a type beside `out`
DECLARED = same("dtype {Want} does not match dtype of out parameter ({Have})")


def dtype_with_out(name: str, given: Any, out: Any) -> Any:
    """The type that the result of a factory has by its arguments `dtype` and `out`; None: they do not tell."""
    d = given_dtype(name, given)
    if out is None:
        return d
    if d is not None:
        DECLARED(d, out.dtype)
    return out.dtype


def of_row(row: Any, operands: list[Any]) -> Rule:
    """The rule of an elementwise operation: its row's own, or that of its family."""
    if row.out_rule is not None:
        return row.out_rule
    several = any(isinstance(x, Tensor) or str(k) not in row.apart for k, x in enumerate(operands[1:], 1))
    if several or _promotes(row):
        return CASTABLE
    d = operands[0]._tab_meta.dtype
    return _real_of(d) if d.is_complex and types_of(row, d)[1].category == 2 else FOUND


def _promotes(row: Any) -> bool:
    try:
        return types_of(row, int64)[1] is not int64
    except NotImplementedError:
        return False


def _real_of(d: dtype) -> Rule:
    """What is real comes from a tensor of PyTorch's own; a complex `out` is given to the kernel."""
    return lambda want, have: FOUND(d, have) if have.is_complex else CASTABLE(want, have)
