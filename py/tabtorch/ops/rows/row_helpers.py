"""What the rows of the elementwise table share: pieces of expressions, of gradients and of type rules.

The table is in elementwise.py, powers.py, bounds.py, transcendental.py, bitwise.py, special.py and activations.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tabtorch import _lazy
from tabtorch.base.dtypes import bool_, dtype, get_default_dtype
from tabtorch.engine.expr import Complex, absolute, cast, const, exp, fit, isinf, isnan, log, signbit, where
from tabtorch.ops.machinery.promotion import not_implemented
from tabtorch.ops.machinery.registry import Row, elementwise

# ---- expressions


def is_float(x: Any) -> bool:
    """Whether an expression is of a real floating type."""
    return x.type in ("f32", "f64")


def one(x: Any) -> Any:
    return const(1, x.type)


def zero(x: Any) -> Any:
    return const(0, x.type)


def rounded(x: Any) -> Any:
    """A f32 value as f32 arithmetic has it. On the cpu device values are doubles inside a formula: before a function that
    jumps (floor, round) that would show."""
    return fit(x, "float32") if x.type == "f32" else x


def greatest(a: Any, b: Any) -> Any:
    """The larger; NaN if either is."""
    if a.type == "bool":
        return a | b
    return where((a > b) | isnan(a), a, b)


def least(a: Any, b: Any) -> Any:
    """The smaller; NaN if either is."""
    if a.type == "bool":
        return a & b
    return where((a < b) | isnan(a), a, b)


def conjugate(x: Any) -> Any:
    """The conjugate of an expression."""
    return Complex(x.re, -x.im) if isinstance(x, Complex) else x


def isfinite(x: Any) -> Any:
    if isinstance(x, Complex):
        return isfinite(x.re) & isfinite(x.im)
    return ~(isinf(x) | isnan(x))


def negative(x: Any) -> Any:
    """Whether the sign bit is set."""
    return const(False, "bool") if x.type == "bool" else signbit(x)


def as_number(cond: Any, like: Any) -> Any:
    """1 or 0 in the type of `like`."""
    return cast(cond, like.type)


def logaddexp(x: Any, y: Any) -> Any:
    """log(exp(x) + exp(y))."""
    if isinstance(x, Complex):
        first = x.re > y.re
        high, low = where(first, x, y), where(first, y, x)
        v = high + _lazy.engine_functions.log1p(exp(low - high))
        same = isinf(low.re) & (low.re == high.re)
        v = where(same, where(low.re < 0.0, low, log(exp(low) + exp(high))), v)
        none = const(math.nan, low.re.type)
        return where(isnan(x) | isnan(y), Complex(none, none), v)
    big = where(x > y, x, y)
    v = big + _lazy.engine_functions.log1p(exp(-absolute(x - y)))
    return where(isnan(x) | isnan(y), x + y, where(isinf(x) & (x == y), x, v))


# ---- gradients


def conj(x: Any) -> Any:
    """The conjugate of a tensor or number; real ones are given back as they are."""
    m = getattr(x, "_tab_meta", None)
    if m is None:
        return x.conjugate() if isinstance(x, complex) else x
    return x.conj() if m.dtype.is_complex else x


def nothing(g: Any, *kept: Any) -> Any:
    """Zeros: the gradient of what is constant piece by piece. kept: what PyTorch's formula has of the operands, and so saves."""
    return g.new_zeros(g.shape)


def refuse(name: str, operands: int) -> tuple[Callable[..., Any], ...]:
    """The gradients of an operation that PyTorch has none for: an error when they are asked for."""

    def raises(g: Any, *args: Any) -> Any:
        raise RuntimeError(f"derivative for aten::{name} is not implemented")

    raises.refuses = True  # type: ignore[attr-defined]
    return (raises,) * operands


def scaled(g: Any, factor: Any) -> Any:
    """g * factor, or g where no factor was given."""
    return g if factor is None else g * factor


def linear(name: str, expr: Callable[..., Any], args: str, doc: str, operands: int | None = None, cost: int = 4) -> Row:
    """A gradient formula as one node: `expr(g, …)`, linear in g, and constant or piecewise so in the rest.

    Its own gradient, for g, is the same formula; the other operands have none.
    """

    def again(gg: Any, g: Any, *rest: Any, **options: Any) -> Any:
        return getattr(_lazy.ops, name)(gg, *rest[:-1], **options)

    row = Row(
        name, expr, None, "arith", args, doc, operands=operands, cost=cost, method=False, inplace=False, out=False
    )
    row.grads = (again, *(None for _ in range(row.operands - 1)))
    return elementwise(row)


# ---- type rules that refuse some types


def rule(
    kernel: str = "",
    *,
    bools: bool = True,
    ints: bool = True,
    complexes: bool = False,
    to_float: bool = False,
    result: dtype | None = None,
    complex_error: Exception | None = None,
    bool_error: Exception | None = None,
    half: bool = True,
) -> Any:
    """A rule that raises PyTorch's error ('"kernel" not implemented for …', unless another is given) for types it excludes."""

    def types(row: Row, d: dtype) -> tuple[dtype, dtype]:
        name = kernel or row.kernel
        if d.is_complex and not complexes:
            raise complex_error or not_implemented(name, d)
        if d.category == 0 and not bools:
            raise bool_error or not_implemented(name, d)
        if d.category == 1 and not ints:
            raise not_implemented(name, d)
        if d.itemsize == 2 and d.category == 2 and not half:
            raise not_implemented(name, d)
        if to_float and d.category < 2:
            d = get_default_dtype()
        return d, result or d

    return types


def real_float(kernel: str = "") -> Any:
    """Integers become floats; complex types are refused."""
    return rule(kernel, to_float=True)


def real_test(kernel: str = "") -> Any:
    """A bool result of real operands."""
    return rule(kernel, result=bool_)


def floating(kernel: str = "") -> Any:
    """Real floating types only."""
    return rule(kernel, bools=False, ints=False)
