"""What an ONNX graph is made with: nodes, constants, and values whose types and sizes are known as far as the program says them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from tabtorch.base import dtypes
from tabtorch.onnx.proto import Message

#: ONNX's numbers of types
TYPES = {
    dtypes.float32: 1, dtypes.uint8: 2, dtypes.int8: 3, dtypes.int16: 5, dtypes.int32: 6, dtypes.int64: 7, dtypes.bool_: 9,
    dtypes.float16: 10, dtypes.float64: 11, dtypes.bfloat16: 16,
}  # fmt: skip
_FORMATS = {
    "float32": "f",
    "uint8": "B",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "bool": "?",
    "float16": "e",
    "float64": "d",
}


class Value:
    """A tensor of the graph. sizes: a number, or None where it varies."""

    __slots__ = ("dtype", "name", "sizes")

    def __init__(self, name: str, dtype: Any, sizes: Sequence[int | None]) -> None:
        self.name = name
        self.dtype = dtype
        self.sizes = tuple(sizes)

    @property
    def rank(self) -> int:
        return len(self.sizes)


class Size(Value):
    """A whole number that is known when the graph runs: one int64, in a vector."""

    __slots__ = ()

    def __init__(self, name: str) -> None:
        super().__init__(name, dtypes.int64, (1,))


def number_of(dtype: Any) -> int:
    """RuntimeError for a type that ONNX, or this exporter, has not."""
    if dtype not in TYPES:
        raise RuntimeError(f"ONNX's operators have no values of type {dtype}")
    return TYPES[dtype]


def _attribute(name: str, value: Any) -> Message:
    if isinstance(value, bool) or type(value) is int:
        return Message("Attribute", name=name, type=2, i=int(value))
    if isinstance(value, float):
        return Message("Attribute", name=name, type=1, f=value)
    if isinstance(value, str):
        return Message("Attribute", name=name, type=3, s=value.encode())
    if isinstance(value, Message):
        return Message("Attribute", name=name, type=4, t=value)
    if all(isinstance(v, int) for v in value):
        return Message("Attribute", name=name, type=7, ints=[int(v) for v in value])
    if all(isinstance(v, str) for v in value):
        return Message("Attribute", name=name, type=8, strings=[v.encode() for v in value])
    return Message("Attribute", name=name, type=6, floats=[float(v) for v in value])


def _flat(x: Any) -> list[Any]:
    return [v for e in x for v in _flat(e)] if isinstance(x, (list, tuple)) else [x]


def _shape(x: Any) -> list[int]:
    return [len(x), *(_shape(x[0]) if x else [])] if isinstance(x, (list, tuple)) else []


class Builder:
    """`b.Add(x, y)` is a node, and its result has the type and sizes that `type` and `sizes` say (those of `x` if they do not)."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[Message] = []
        self.initializers: list[Message] = []
        self.constants: dict[Any, Value] = {}
        self.taken: set[str] = set()

    def name(self, wanted: str) -> str:
        """A name that nothing has yet."""
        made, n = wanted, 0
        while made in self.taken:
            n += 1
            made = f"{wanted}_{n}"
        self.taken.add(made)
        return made

    def node(self, kind: str, inputs: Sequence[Value | None], count: int = 1, **attributes: Any) -> list[str]:
        """The names of a node's results. Attributes that are None are left out."""
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        outputs = [self.name(f"{kind.lower()}_{len(self.nodes)}" + (f"_{k}" if k else "")) for k in range(count)]
        given = [_attribute(k, v) for k, v in sorted(attributes.items()) if v is not None]
        names = ["" if x is None else x.name for x in inputs]
        self.nodes.append(
            Message("Node", input=names, output=outputs, op_type=kind, name=f"node_{outputs[0]}", attribute=given)
        )
        return outputs

    def op(self, kind: str, *inputs: Value | None, type: Any = None, sizes: Any = None, **attributes: Any) -> Value:
        (name,) = self.node(kind, inputs, **attributes)
        first = next((x for x in inputs if x is not None), None)
        if first is None and (type is None or sizes is None):
            raise AssertionError(f"{kind} takes nothing that its type could be that of")
        return Value(
            name,
            type if type is not None else first.dtype,  # type: ignore[union-attr]
            sizes if sizes is not None else first.sizes,  # type: ignore[union-attr]
        )

    def constant(self, value: Any, dtype: Any = dtypes.int64) -> Value:
        """A number, or lists of numbers, as a constant of the graph; the same one for the same numbers."""
        flat = _flat(value)
        if dtype.is_floating_point:
            flat = [float(v) for v in flat]
        key = (str(flat), str(_shape(value)), dtype)
        if key not in self.constants:
            short = str(dtype).removeprefix("torch.")
            if short == "bfloat16":
                raw = b"".join(struct.pack("<f", v)[2:] for v in flat)
            else:
                raw = struct.pack(f"<{len(flat)}{_FORMATS[short]}", *flat)
            name = self.name(f"constant_{len(self.constants)}")
            self.initializers.append(
                Message("Tensor", dims=_shape(value), data_type=number_of(dtype), name=name, raw_data=raw)
            )
            self.constants[key] = Value(name, dtype, _shape(value))
        return self.constants[key]

    # ---- what many operators want

    def cast(self, x: Value, dtype: Any) -> Value:
        return x if x.dtype == dtype else self.op("Cast", x, type=dtype, to=number_of(dtype))

    def like(self, x: Any, dtype: Any) -> Value:
        """A value, a size or a number as a value of a type; numbers have no dimensions."""
        if isinstance(x, Size):
            return self.cast(self.scalar(x), dtype)
        return self.cast(x, dtype) if isinstance(x, Value) else self.constant(x, dtype)

    def scalar(self, x: Value) -> Value:
        """A vector of one element as a number."""
        return self.op("Squeeze", x, self.constant([0]), sizes=())

    def sizes(self, dims: Sequence[Any]) -> Value:
        """A list of sizes, numbers or `Size`s, as a vector."""
        if not any(isinstance(d, Value) for d in dims):
            return self.constant([int(d) for d in dims])
        parts = [self._part(d) for d in dims]
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, sizes=(len(parts),), axis=0)

    def _part(self, d: Any) -> Value:
        if not isinstance(d, Value):
            return self.constant([int(d)])
        d = self.cast(d, dtypes.int64)
        return d if d.rank else self.op("Reshape", d, self.constant([1]), sizes=(1,))

    def size(self, x: Value, dim: int) -> int | Size:
        """How long a dimension is."""
        n = x.sizes[dim]
        if n is not None:
            return n
        dim %= x.rank
        return Size(self.node("Shape", [x], start=dim, end=dim + 1)[0])

    def shape(self, x: Value) -> Value:
        return self.sizes([self.size(x, d) for d in range(x.rank)])

    def reshape(self, x: Value, dims: Sequence[Any], sizes: Any = None) -> Value:
        known = [d if isinstance(d, int) and d >= 0 else None for d in dims]
        return self.op("Reshape", x, self.sizes(dims), sizes=known if sizes is None else sizes, allowzero=1)

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        if list(perm) == list(range(x.rank)):
            return x
        return self.op("Transpose", x, sizes=[x.sizes[p] for p in perm], perm=list(perm))

    def reduce(self, kind: str, x: Value, dims: Sequence[int], keepdim: bool = False, type: Any = None) -> Value:
        """`dims`: none is all."""
        if not x.rank:
            x, dims, keepdim = self.reshape(x, [1]), [0], False
        axes = sorted(d % x.rank for d in dims) if dims else list(range(x.rank))
        left = [1 if k in axes else n for k, n in enumerate(x.sizes) if keepdim or k not in axes]
        return self.op(kind, x, self.constant(axes), sizes=left, type=type, keepdims=int(keepdim))
