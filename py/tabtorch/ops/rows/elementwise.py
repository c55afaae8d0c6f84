"""The elementwise table: arithmetic, signs, choice, conjugates. See row_helpers.py for its other files."""

from __future__ import annotations

from typing import Any

from tabtorch import _lazy, ops
from tabtorch.base import dtypes
from tabtorch.engine.expr import Complex, absolute, cast, const, floor, idiv, imod, trunc, where
from tabtorch.ops.machinery.out_types import same
from tabtorch.ops.machinery.promotion import not_implemented
from tabtorch.ops.machinery.registry import Row, elementwise, register
from tabtorch.ops.rows.row_helpers import (
    conj,
    conjugate,
    is_float,
    negative,
    nothing,
    real_float,
    refuse,
    rounded,
    rule,
    scaled,
    zero,
)


def _check_divisor(operands: list[Any]) -> None:
    _lazy.index_maps.check_divisor(operands)


# ---- sums and products


def _times(x: Any, alpha: Any) -> Any:
    if alpha is None:
        return x
    return x & alpha if x.type == "bool" else x * alpha


def _no_bool_sub(d: dtypes.dtype, operands: list[Any]) -> None:
    bools = [x is True or x is False or getattr(x, "dtype", None) is dtypes.bool_ for x in operands]
    if all(bools):
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` operator "
            "instead."
        )
    if any(bools):
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use the "
            "`~` or `logical_not()` operator instead."
        )


elementwise(
    Row(
        "add",
        lambda x, y, alpha=None: x | _times(y, alpha) if x.type == "bool" else x + _times(y, alpha),
        (lambda g, x, y, out, alpha=None: g, lambda g, x, y, out, alpha=None: scaled(g, alpha)),
        args="input, other, *, alpha=1",
        doc="input + alpha * other.",
        numbers="*",
    )
)
elementwise(
    Row(
        "sub",
        lambda x, y, alpha=None: x - _times(y, alpha),
        (lambda g, x, y, out, alpha=None: g, lambda g, x, y, out, alpha=None: -scaled(g, alpha)),
        args="input, other, *, alpha=1",
        doc="input - alpha * other.",
        aliases=("subtract",),
        check=_no_bool_sub,
        numbers="*",
    )
)
elementwise(
    Row(
        "rsub",
        lambda x, y, alpha=None: y - _times(x, alpha),
        (lambda g, x, y, out, alpha=None: -scaled(g, alpha), lambda g, x, y, out, alpha=None: g),
        args="input, other, *, alpha=1",
        doc="other - alpha * input.",
        backward_name="RsubBackward1",
        seen=lambda metas: metas[::-1],  # to PyTorch it is `sub`
        method=False,
        check=_no_bool_sub,
        inplace=False,
        out=False,
        numbers="1",
    )
)
elementwise(
    Row(
        "mul",
        lambda x, y: x & y if x.type == "bool" else x * y,
        (lambda g, x, y, out: g * conj(y), lambda g, x, y, out: g * conj(x)),
        args="input, other",
        doc="input * other.",
        aliases=("multiply",),
        numbers="*",
    )
)

# ---- quotients


def _div_trunc(x: Any, y: Any) -> Any:
    if not is_float(x):
        return idiv(x, y)
    return trunc(rounded(x / y))


def _div_floor(x: Any, y: Any) -> Any:
    if not is_float(x):
        q = idiv(x, y)
        return where((q * y != x) & ((x < 0) ^ (y < 0)), q - 1, q)
    m = _lazy.engine_functions.fmod(x, y)
    d = (x - m) / y - where((m != 0) & ((m < 0) ^ (y < 0)), 1.0, zero(x))
    f = floor(d)
    f = f + where(d - f > 0.5, 1.0, zero(x))
    empty = where(negative(x) ^ negative(y), const(-0.0, x.type), zero(x))
    return where(y == 0, x / y, where(d == 0, empty, f))


def _remainder(x: Any, y: Any) -> Any:
    m = _lazy.engine_functions.fmod(x, y) if is_float(x) else imod(x, y)
    return where((m != 0) & ((m < 0) ^ (y < 0)), m + y, m)


elementwise(
    Row(
        "true_divide",
        lambda x, y: x / y,
        (lambda g, x, y, out: g / conj(y), lambda g, x, y, out: -g * conj((x / y) / y)),
        "float",
        "input, other",
        "input / other; integers become floats.",
        kernel="div_true_cpu",
        backward_name="DivBackward0",
        numbers="*",
    )
)
_div_rules = {k: rule(f"div_{k}_cpu", bools=False) for k in ("trunc", "floor")}
elementwise(
    Row(
        "_div_trunc",
        _div_trunc,
        (lambda g, x, y, out: nothing(g, y), lambda g, x, y, out: nothing(g, x, y)),
        _div_rules["trunc"],
        "input, other",
        "Rounded towards zero.",
        method=False,
        each=_check_divisor,
        backward_name="DivBackward2",
        numbers="*",
    )
)
elementwise(
    Row(
        "_div_floor",
        _div_floor,
        (lambda g, x, y, out: nothing(g, y), lambda g, x, y, out: nothing(g, x, y)),
        _div_rules["floor"],
        "input, other",
        "Rounded down.",
        cost=8,
        method=False,
        backward_name="DivBackward2",
        each=_check_divisor,
        numbers="*",
    )
)
elementwise(
    Row(
        "floor_divide",
        _div_floor,
        refuse("floor_divide", 2),
        _div_rules["floor"],
        "input, other",
        "input / other, rounded down.",
        cost=8,
        backward_name="NotImplemented",
        each=_check_divisor,
        numbers="*",
    )
)


def _by_mode(names: dict[Any, str]) -> Any:
    """div and div_: one row for each rounding mode."""

    def div(input: Any, other: Any, *, rounding_mode: str | None = None, **out: Any) -> Any:
        """input / other: true, or rounded towards zero ("trunc") or down ("floor")."""
        name = names.get(rounding_mode)
        if name is None:
            raise RuntimeError(
                f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{rounding_mode}'"
            )
        return getattr(ops, name)(input, other, **out)

    return div


_div = _by_mode({None: "true_divide", "trunc": "_div_trunc", "floor": "_div_floor"})
_div_ = _by_mode({None: "true_divide_", "trunc": "_div_trunc_", "floor": "_div_floor_"})
for _name in ("div", "divide"):
    register(_name, _div, method=True)
    register(_name + "_", _div_, method=True, torch=False)


def _by_divisor(name: str) -> Any:
    """PyTorch numbers the forms with a number, and with a tensor, for a divisor."""
    return lambda operands: f"{name}Backward{int(len(operands) > 1 and hasattr(operands[1], '_tab_meta'))}"


elementwise(
    Row(
        "remainder",
        _remainder,
        (lambda g, x, y, out: g, lambda g, x, y, out: -g * ops._div_floor(x, y)),
        rule("remainder_cpu", bools=False),
        "input, other",
        "The remainder with the divisor's sign (Python's %).",
        cost=8,
        backward_name=_by_divisor("Remainder"),
        each=_check_divisor,
    )
)
elementwise(
    Row(
        "fmod",
        lambda x, y: _lazy.engine_functions.fmod(x, y) if is_float(x) else imod(x, y),
        (lambda g, x, y, out: g, lambda g, x, y, out: -g * ops.div(x, y, rounding_mode="trunc")),
        rule("fmod_cpu", bools=False),
        "input, other",
        "The remainder with the dividend's sign (C's %).",
        cost=8,
        numbers="1",
        backward_name=_by_divisor("Fmod"),
        each=_check_divisor,
    )
)
elementwise(
    Row(
        "reciprocal",
        lambda x: 1.0 / x,
        (lambda g, x, out: -g * conj(out * out),),
        "float",
        doc="1 / input.",
    )
)

# ---- signs


def _neg_check(d: dtypes.dtype, operands: list[Any]) -> None:
    if d is dtypes.bool_:
        raise RuntimeError(
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use the `~` or "
            "`logical_not()` operator instead."
        )


def _sign(x: Any) -> Any:
    if x.type == "bool":
        return x
    if is_float(x):  # through integers, which have one zero: compilers know a sign function that keeps -0.0
        return cast(cast(x > 0, "i32") - cast(x < 0, "i32"), x.type)
    return where(x > 0, const(1, x.type), where(x < 0, const(-1, x.type), zero(x)))


def _sgn(x: Any) -> Any:
    if not isinstance(x, Complex):
        return _sign(x)
    r = absolute(x)
    d = where(r == 0.0, 1.0, r)
    return Complex(x.re / d, x.im / d)


def _sgn_grad(g: Any, x: Any, out: Any) -> Any:
    if not x._tab_meta.dtype.is_complex:
        return g * 0
    r = ops.abs(x)
    part = ops.real(g * conj(out)) * out
    return ops.where(r == 0, 0, (g - part) / ops.where(r == 0, 1, r))


def _real_abs(row: Row, d: dtypes.dtype) -> tuple[dtypes.dtype, dtypes.dtype]:
    if d is dtypes.bool_:
        raise NotImplementedError("\"abs_cpu\" not implemented for 'Bool'")
    return d, d.to_real()


elementwise(Row("neg", lambda x: -x, (lambda g, x, out: -g,), doc="-input.", aliases=("negative",), check=_neg_check))


@register("positive", method=True)
def positive(input: Any) -> Any:
    """+input: the same tensor. RuntimeError for bools."""
    if input._tab_meta.dtype is dtypes.bool_:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


elementwise(
    Row(
        "abs",
        lambda x: absolute(x),
        (lambda g, x, out: g * ops.sgn(x),),
        _real_abs,
        doc="The absolute value.",
        aliases=("absolute",),
        empty_like="complex",
    )
)
elementwise(
    Row(
        "sign",
        _sign,
        (lambda g, x, out: nothing(g),),
        rule(
            complex_error=NotImplementedError(
                "Unlike NumPy, torch.sign is not intended to support complex numbers. Please use torch.sgn instead."
            )
        ),
        doc="-1, 0 or 1; 0 for NaN.",
        public_inplace=False,
    )
)
elementwise(
    Row(
        "sgn",
        _sgn,
        (lambda g, x, out: _sgn_grad(g, x, out),),
        doc="sign for complex numbers too: z / |z|.",
        public_inplace=False,
    )
)


elementwise(
    Row(
        "copysign",
        lambda x, y: _lazy.engine_functions.copysign(x, y),
        (lambda g, x, y, out: g * (out / x).masked_fill(x == 0, 0), lambda g, x, y, out: nothing(g)),
        real_float(),
        "input, other",
        "|input| with the sign of other.",
        numbers="1",
        backward_name=lambda operands: (
            f"CopysignBackward{int(len(operands) > 1 and not hasattr(operands[1], '_tab_meta'))}"
        ),
    )
)

# ---- three operands


def _lerp(x: Any, y: Any, w: Any) -> Any:
    low = absolute(w) < 0.5
    return where(low, x + (y - x) * w, y - (y - x) * (1.0 - w))


def _check_lerp(d: dtypes.dtype, operands: list[Any]) -> None:
    """A weight that is a number does not promote, and tensors must agree."""
    first, end, weight = (x._tab_meta.dtype if hasattr(x, "_tab_meta") else None for x in operands)
    for name, given in (("end", end), ("weight", weight)):
        if given is not None and given is not first and first is not None:
            words = dtypes.CXX_NAMES
            raise RuntimeError(f"expected dtype {words[first.name]} for `{name}` but got dtype {words[given.name]}")
    if weight is None and first is not None and first.category < 2:
        raise not_implemented("lerp_kernel_scalar", first)


elementwise(
    Row(
        "lerp",
        _lerp,
        (
            lambda g, x, y, w, out: g * conj(1 - w),
            lambda g, x, y, w, out: g * conj(w),
            lambda g, x, y, w, out: g * conj(y - x),
        ),
        rule("lerp_kernel_tensor", bools=False, ints=False, complexes=True),
        "input, end, weight",
        "input + weight * (end - input).",
        check=_check_lerp,
        backward_name=lambda operands: (
            f"LerpBackward{int(hasattr(operands[-1], '_tab_meta'))}" if operands else "LerpBackward0"
        ),
        numbers="2",
        apart="2",
    )
)
elementwise(
    Row(
        "addcmul",
        lambda x, y, z, value=None: x + (y * z if value is None else y * value * z),
        (
            lambda g, x, y, z, out, value=None: g,
            lambda g, x, y, z, out, value=None: g * conj(z if value is None else z * value),
            lambda g, x, y, z, out, value=None: g * conj(y if value is None else y * value),
        ),
        rule=rule("addcmul_cpu_out", bools=False, complexes=True),
        args="input, tensor1, tensor2, *, value=1",
        doc="input + value * tensor1 * tensor2.",
        numbers="",
    )
)


def _no_integer_addcdiv(d: dtypes.dtype, operands: list[Any]) -> None:
    if d.category < 2:
        raise RuntimeError(
            "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform a true "
            "division of tensor1 and tensor2. The historic addcdiv behavior can be implemented as (input + value * "
            "torch.trunc(tensor1 / tensor2)).to(input.dtype) for integer inputs and as (input + value * tensor1 / tensor2) for "
            "float inputs. The future addcdiv behavior is just the latter implementation: (input + value * tensor1 / tensor2), "
            "for all dtypes."
        )


elementwise(
    Row(
        "addcdiv",
        lambda x, y, z, value=None: x + (y / z if value is None else y * value / z),
        (
            lambda g, x, y, z, out, value=None: g,
            lambda g, x, y, z, out, value=None: scaled(g, value) / conj(z),
            lambda g, x, y, z, out, value=None: -scaled(g, value) * conj(y / (z * z)),
        ),
        check=_no_integer_addcdiv,
        args="input, tensor1, tensor2, *, value=1",
        doc="input + value * tensor1 / tensor2.",
        domain=(0.5, 3.0),
        numbers="",
    )
)
elementwise(
    Row(
        "_where",
        lambda c, x, y: where(cast(c, "bool"), x, y),
        (None, lambda g, c, x, y, out: ops._where(c, g, 0), lambda g, c, x, y, out: ops._where(c, 0, g)),
        "where",
        "condition, input, other",
        "input where condition holds, else other.",
        method=False,
        inplace=False,
        backward_name="WhereBackward0",
        out_rule=same("Expected out type to be {Want} but got {Have}"),
    )
)


def _choose(condition: Any, input: Any = None, other: Any = None, **out: Any) -> Any:
    """input where condition holds, else other; with a condition alone, the indices where it holds."""
    if input is None and other is None and not out:
        return condition.nonzero(as_tuple=True)
    if not hasattr(condition, "_tab_meta"):
        raise TypeError(f"where(): argument 'condition' (position 1) must be Tensor, not {type(condition).__name__}")
    d = condition._tab_meta.dtype
    if d is not dtypes.bool_ and d is not dtypes.uint8:
        raise RuntimeError(
            f"where expected condition to be a boolean tensor, but got a tensor with dtype {dtypes.TYPE_NAMES[d.name]}"
        )
    return ops._where(condition, input, other, **out)


register("where", _choose, method=lambda self, condition, other: _choose(condition, self, other))


# ---- complex numbers

for _k, _name in enumerate(("_conj_physical", "_conj_physical_self")):  # the second for its in-place form alone
    elementwise(
        Row(
            _name,
            lambda x: conjugate(x),
            (lambda g, x, out: g.conj_physical(),),
            doc="The complex conjugate.",
            method=False,
            empty_like="complex",
            backward_name=f"ConjPhysicalBackward{_k}",
        )
    )


def _conj_physical(input: Any, **out: Any) -> Any:
    """The complex conjugate, as a tensor of its own; a real tensor is given back as it is."""
    return ops._conj_physical(input, **out) if out or input._tab_meta.dtype.is_complex else input


register("conj_physical", _conj_physical, method=True, inplace=lambda input: ops._conj_physical_self_(input))
