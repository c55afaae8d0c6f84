"""The function for an operator's name in a program: ATen's by the one table (`ops.aten`), Python's over sizes, and asserts."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from tabtorch import _lazy
from tabtorch.core.tensor import Tensor
from tabtorch.export import higher_order
from tabtorch.export.expressions import _power
from tabtorch.export.graphs import Graph, Node
from tabtorch.ops import aten

Function = Callable[..., Any]


def _whole(x: Any) -> int:
    return int(x)


#: functions of Python over sizes and other numbers
_NUMBERS: dict[str, Function] = {
    **{
        "_operator." + name: getattr(operator, name)
        for name in "add sub mul floordiv truediv mod neg pos eq ne lt le gt ge and_ or_ xor not_ rshift abs getitem".split()
    },
    "_operator.pow": _power,
    "_operator.lshift": lambda a, b: operator.lshift(a, min(b, 64)),
    "torch.sym_int": _whole,
    "torch.sym_float": float,
    "torch.sym_not": operator.not_,
    "torch.sym_max": max,
    "torch.sym_min": min,
    "torch.sym_sum": sum,
    "torch.sym_ite": lambda c, a, b: a if c else b,
    "torch.sym_sqrt": math.sqrt,
    "torch._sym_sqrt": math.sqrt,
    "builtins.round": round,
    "builtins.abs": abs,
    "math.floor": math.floor,
    "math.ceil": math.ceil,
    "math.trunc": math.trunc,
    "math.sqrt": math.sqrt,
}


# ---- ATen's that are about sizes and values rather than tensors


def _assert_scalar(value: Any, message: str) -> None:
    if not value:
        raise RuntimeError(message)


def _assert_async(value: Tensor, message: str = "Expected Tensor with single nonzero value, but got zero") -> None:
    _lazy.torch._assert_async(value, message)


def _assert_metadata(
    a: Tensor,
    size: Sequence[int] | None = None,
    stride: Any = None,
    dtype: Any = None,
    device: Any = None,
    layout: Any = None,
) -> None:
    """Sizes and types; how it lies in memory may differ here, and the device is the program's."""
    if dtype is not None and a.dtype is not dtype:
        raise RuntimeError(f"Tensor dtype mismatch! Expected: {dtype}, Got: {a.dtype}")
    if size is not None and tuple(a.shape) != tuple(size):
        raise RuntimeError(f"Tensor sizes mismatch! Expected: {list(size)}, Got: {list(a.shape)}")


def _constrain_range(size: Any, min: int | None = None, max: int | None = None) -> None:
    if min is not None and size < min or max is not None and size > max:
        raise RuntimeError(f"Invalid value range for {size} between [{min}, {max}].")


_VALUES: dict[str, Function] = {
    "_assert_scalar": _assert_scalar,
    "_assert_async": _assert_async,
    "_assert_tensor_metadata": _assert_metadata,
    "sym_constrain_range": _constrain_range,
    "sym_constrain_range_for_size": _constrain_range,
    "sym_size": lambda x, dim=None: x.shape if dim is None else x.shape[dim],
    "sym_stride": lambda x, dim=None: x.stride() if dim is None else x.stride(dim),
    "sym_numel": lambda x: x.numel(),
    "sym_storage_offset": lambda x: x.storage_offset(),
    "item": lambda x: x.item(),
    "_local_scalar_dense": lambda x: x.item(),
}


def _viewed(x: Tensor, size: Sequence[int]) -> Tensor:
    """`view`, or a copy where the tensor lies otherwise here than it lay where the program was exported."""
    return x.reshape(tuple(size))


#: arguments that say how a result lies in memory, which is always the same here
_SETTLED = ("layout", "pin_memory")


def _aten(name: str, overload: str, writes: bool) -> Function | None:
    if name in _VALUES:
        return _VALUES[name]
    if name in ("view", "_unsafe_view") and overload in ("default", "") and not writes:
        return _viewed
    return aten.lookup("aten::" + name, overload)


class Finder:
    """Functions by the names that a program has for operators. `missing`: those asked for that there is no function for."""

    def __init__(self, graph: Graph) -> None:
        self.missing: list[str] = []
        #: whether the program writes to values, so that views have to be views
        self.writes = any(_writes(node) for node in graph.all_calls())

    def __call__(self, target: str) -> Function:
        found = self.find(target)
        if found is None:
            if target not in self.missing:
                self.missing.append(target)
            return _absent
        return found

    def find(self, target: str) -> Function | None:
        if target in _NUMBERS:
            return _NUMBERS[target]
        if target.startswith("torch._functorch.predispatch."):
            return higher_order.PREDISPATCH.get(target.rpartition(".")[2])
        space, name, overload = split(target)
        if space == "aten":
            return _aten(name, overload, self.writes)
        if space == "higher_order":
            return higher_order.FUNCTIONS.get(name)
        if space == "prims":
            return _PRIMS.get(name)
        known = _lazy.library._ops
        return (known.get(f"{space}::{name}.{overload}") or known.get(f"{space}::{name}")) if space else None


def _absent(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError("an operator that there is no function for")


_PRIMS: dict[str, Function] = {
    "convert_element_type": lambda a, dtype: a.to(dtype),
    "view_of": lambda a: a,
    "fma": lambda a, b, c: a * b + c,
}


def split(target: str) -> tuple[str, str, str]:
    """(namespace, name, overload) of "torch.ops.aten.add.Tensor"; empty texts for what is no operator."""
    parts = target.split(".")
    if parts[:2] != ["torch", "ops"] or not 4 <= len(parts) <= 5:
        return "", "", ""
    return parts[2], parts[3], parts[4] if len(parts) == 5 else ""


def _writes(node: Node) -> bool:
    """Whether a call writes to one of its arguments. (`batch_norm` does so to buffers, of which nobody has a view.)"""
    space, name, overload = split(node.target)
    return (
        space == "aten" and name.endswith("_") and not name.endswith("__") and name not in ("detach_", "requires_grad_")
    )


def settled(name: str) -> bool:
    """Whether an argument is of no consequence here."""
    return name in _SETTLED
