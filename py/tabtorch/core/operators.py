"""Python's operators on tensors. Each is put into the class, as the fast function of its row, when it is first used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabtorch import _lazy
from tabtorch.core.tensor import Tensor
from tabtorch.ops.machinery import registry

#: operator -> row, for operators whose both operands may be numbers or tensors
_BINARY = {
    "__add__": "add",
    "__radd__": "add",
    "__sub__": "sub",
    "__mul__": "mul",
    "__rmul__": "mul",
    "__truediv__": "div",
    "__floordiv__": "floor_divide",
    "__mod__": "remainder",
    "__pow__": "pow",
    "__and__": "bitwise_and",
    "__rand__": "bitwise_and",
    "__or__": "bitwise_or",
    "__ror__": "bitwise_or",
    "__xor__": "bitwise_xor",
    "__rxor__": "bitwise_xor",
    "__lshift__": "bitwise_left_shift",
    "__rshift__": "bitwise_right_shift",
    "__eq__": "eq",
    "__ne__": "ne",
    "__lt__": "lt",
    "__le__": "le",
    "__gt__": "gt",
    "__ge__": "ge",
}
#: operands swapped
_REFLECTED = {
    "__rfloordiv__": "floor_divide",
    "__rmod__": "remainder",
    "__rpow__": "pow",
    "__rlshift__": "bitwise_left_shift",
    "__rrshift__": "bitwise_right_shift",
}
_INPLACE = {
    "__iadd__": "add_",
    "__isub__": "sub_",
    "__imul__": "mul_",
    "__itruediv__": "div_",
    "__ifloordiv__": "floor_divide_",
    "__imod__": "remainder_",
    "__ipow__": "pow_",
    "__iand__": "bitwise_and_",
    "__ior__": "bitwise_or_",
    "__ixor__": "bitwise_xor_",
    "__ilshift__": "bitwise_left_shift_",
    "__irshift__": "bitwise_right_shift_",
}
_UNARY = {"__neg__": "neg", "__pos__": "positive", "__abs__": "abs"}


def _on_first_use(name: str, make: Callable[[], Any]) -> None:
    def first(self: Tensor, *args: Any) -> Any:
        f = make()
        setattr(Tensor, name, f)
        return f(self, *args)

    first.__name__ = first.__qualname__ = name
    setattr(Tensor, name, first)


def _found(name: str) -> Callable[..., Any]:
    f = registry.method(name) or registry.function(name)
    if f is None:
        raise NotImplementedError(f"torch.Tensor.{name} is not there yet in tabtorch")
    return f


def _binary(row: str, name: str = "") -> Callable[..., Any]:
    _found(row)
    if row not in registry.ROWS:  # a composite, not a row
        f = _found(row)

        def composite(self: Tensor, other: Any) -> Any:
            return f(self, other) if _operand(other) else _overridden(composite, self, other)

        return composite
    return _lazy.dispatch.operator(row, name)


def _overridden(op: Any, self: Tensor, other: Any) -> Any:
    """What an operand that overrides the operator makes of it, else NotImplemented."""
    r = registry.overridden(op, (self, other), {})
    return NotImplemented if r is registry.NOTHING else r


def _operand(x: Any) -> bool:
    return _lazy.arguments.as_operand(x) is not None


def _reflected(row: str) -> Callable[..., Any]:
    _found(row)
    if row in registry.ROWS:
        f = _lazy.dispatch.operator(row)
    else:
        f = _found(row)

    def swapped(self: Tensor, other: Any) -> Any:
        return f(other, self) if _operand(other) else NotImplemented

    return swapped


def _inplace(row: str) -> Callable[..., Any]:
    f = _found(row)

    def inplace(self: Tensor, other: Any) -> Any:
        return f(self, other) if _operand(other) else NotImplemented

    return inplace


def _rsub() -> Callable[..., Any]:
    rsub = _binary("rsub")

    def op(self: Tensor, other: Any) -> Any:
        return rsub(self, other) if isinstance(self, Tensor) else NotImplemented

    return op


def _rdiv() -> Callable[..., Any]:
    reciprocal, mul = _found("reciprocal"), _binary("mul")

    # as PyTorch: one over it, times the number
    def op(self: Tensor, other: Any) -> Any:
        if not isinstance(self, Tensor):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute 'reciprocal'")
        return mul(reciprocal(self), other)

    return op


def _matmul() -> Callable[..., Any]:
    f = _found("matmul")

    def op(self: Tensor, other: Any) -> Any:
        return f(self, other) if isinstance(other, Tensor) else _overridden(op, self, other)

    return op


def _rmatmul() -> Callable[..., Any]:
    f = _found("matmul")

    def op(self: Tensor, other: Any) -> Any:
        return f(other, self) if isinstance(other, Tensor) else NotImplemented

    return op


def _unary(name: str) -> Callable[..., Any]:
    f = _found(name)

    def op(self: Tensor) -> Any:
        return f(self)

    return op


def _invert() -> Callable[..., Any]:
    f = _found("bitwise_not")

    def op(self: Tensor) -> Any:
        if self._tab_meta.dtype.category > 1:
            raise TypeError("~ (operator.invert) is only implemented on integer and Boolean-type tensors")
        return f(self)

    return op


def install() -> None:
    """Puts the operators into the class."""
    for name, row in _BINARY.items():
        _on_first_use(name, lambda row=row, name=name: _binary(row, name))  # type: ignore[misc]
    for name, row in _REFLECTED.items():
        _on_first_use(name, lambda row=row: _reflected(row))  # type: ignore[misc]
    for name, row in _INPLACE.items():
        _on_first_use(name, lambda row=row: _inplace(row))  # type: ignore[misc]
    for name, row in _UNARY.items():
        _on_first_use(name, lambda row=row: _unary(row))  # type: ignore[misc]
    _on_first_use("__invert__", _invert)
    _on_first_use("__rsub__", _rsub)
    _on_first_use("__rtruediv__", _rdiv)
    _on_first_use("__rdiv__", _rdiv)  # Python 2's name, which PyTorch still has
    _on_first_use("__matmul__", _matmul)
    _on_first_use("__rmatmul__", _rmatmul)
