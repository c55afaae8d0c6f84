"""What goes along the edges of an ONNX graph: a tensor of a device, a list of values (sequence), None (an optional that is
empty), or a `Known`: a small array whose numbers the host knows, or whose type no device has (texts, unsigned numbers).
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tabtorch.base import dtypes
from tabtorch.core.creation import placed
from tabtorch.core.from_host import tensor as make_tensor
from tabtorch.core.tensor import Tensor

#: ONNX's number of a type -> its name there
TYPE_NAMES = dict(
    enumerate(
        "UNDEFINED FLOAT UINT8 INT8 UINT16 INT16 INT32 INT64 STRING BOOL FLOAT16 DOUBLE UINT32 UINT64 COMPLEX64 COMPLEX128 BFLOAT16 "
        "FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ UINT4 INT4 FLOAT4E2M1 FLOAT8E8M0 UINT2 INT2".split()
    )
)
TYPES = {name: number for number, name in TYPE_NAMES.items()}
FLOAT, INT64, STRING, BOOL = 1, 7, 8, 9
#: those that are types of tensors here too
DTYPES: dict[int, dtypes.dtype] = {
    1: dtypes.float32,
    2: dtypes.uint8,
    3: dtypes.int8,
    5: dtypes.int16,
    6: dtypes.int32,
    7: dtypes.int64,
    9: dtypes.bool_,
    10: dtypes.float16,
    11: dtypes.float64,
    14: dtypes.complex64,
    15: dtypes.complex128,
    16: dtypes.bfloat16,
}
NUMBERS = {d: n for n, d in DTYPES.items()}
#: bits of whole numbers; below zero: signed
INTEGERS = {2: 8, 3: -8, 4: 16, 5: -16, 6: -32, 7: -64, 12: 32, 13: 64}
#: how a float's bits are packed, and what the float of a Python number is
_FLOATS = {1: "f", 10: "e", 11: "d"}
#: struct's letter of a type whose numbers lie in bytes one after another
LETTERS = {**_FLOATS, 2: "B", 3: "b", 4: "H", 5: "h", 6: "i", 7: "q", 9: "?", 12: "I", 13: "Q"}

#: numbers of an array that the host computes with; a device has larger ones
LIMIT = 4096


class Unsupported(NotImplementedError):
    """What a model asks for is not there."""


def type_name(number: int) -> str:
    return TYPE_NAMES.get(number, f"type {number}")


def dtype_of(number: int) -> dtypes.dtype:
    """The type of tensors that ONNX gives this number. Unsupported if there is none."""
    found = DTYPES.get(number)
    if found is None:
        raise Unsupported(f"tensors of ONNX's type {type_name(number)} are not supported")
    return found


def wrap(number: int, value: Any) -> Any:
    """`value` as a number of a type: rounded, or cut to its bits, as C does it."""
    bits = INTEGERS.get(number)
    if bits is not None:
        n = int(value) & ((1 << abs(bits)) - 1)
        return n - (1 << -bits) if bits < 0 and n >> (-bits - 1) else n
    if number == BOOL:
        return bool(value)
    if number == STRING:
        return value
    letter = _FLOATS.get(number)
    if letter is None:
        raise Unsupported(f"numbers of ONNX's type {type_name(number)} are not computed with on the host")
    try:
        return struct.unpack(letter, struct.pack(letter, value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


class Known:
    """An array whose numbers the host has: `values` in order, `shape`, and ONNX's number of its type."""

    __slots__ = ("_held", "shape", "type", "values")

    def __init__(self, values: list[Any], shape: Iterable[int], type: int) -> None:
        self.values = values
        self.shape = tuple(shape)
        self.type = type
        self._held: Callable[[], Tensor] | None = None

    def hold(self, tensor: Callable[[], Tensor]) -> None:
        """Says where there is a tensor of these numbers."""
        self._held = tensor

    def tensor(self, device: Any) -> Tensor:
        """A tensor of it. Unsupported for a type that no tensor has."""
        dtype = dtype_of(self.type)
        if self._held is not None:
            return self._held()
        return make_tensor(self.values, dtype=dtype, device=placed(dtype, device)).reshape(self.shape)

    def take(self, places: list[int], shape: Iterable[int]) -> Known:
        """The values at these places, in order."""
        v = self.values
        return Known([v[i] for i in places], shape, self.type)

    def nested(self) -> Any:
        """A number, or lists in lists."""
        flat = self.values
        if not self.shape:
            return flat[0]
        for n in reversed(self.shape[1:]):
            flat = [flat[i : i + n] for i in range(0, len(flat), n)] if n else [[] for _ in range(self.shape[0])]
        return flat


def known_of(value: Any, type: int) -> Known:
    """The Known of a number, a text, or lists of them in each other. ValueError for lists that are no array."""
    shape: list[int] = []
    probe = value
    while isinstance(probe, (list, tuple)):
        shape.append(len(probe))
        if not probe:
            break
        probe = probe[0]
    flat = [value]
    for n in shape:
        if any(not isinstance(v, (list, tuple)) or len(v) != n for v in flat):
            raise ValueError("lists of different lengths are no array")
        flat = list(itertools.chain.from_iterable(flat))
    return Known([wrap(type, v) for v in flat], shape, type)


def to_known(x: Any) -> Known:
    """`x` on the host; reads it from the device, where it is there."""
    if isinstance(x, Known):
        return x
    flat = x.detach().reshape(-1).tolist()
    return Known(flat, tuple(x.shape), NUMBERS[x.dtype])


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that these have together, as NumPy's rules say it. RuntimeError where they do not fit."""
    out: list[int] = []
    for sizes in itertools.zip_longest(*[s[::-1] for s in shapes], fillvalue=1):
        wanted = {n for n in sizes if n != 1} or {1}
        if len(wanted) > 1:
            raise RuntimeError(f"shapes {', '.join(str(list(s)) for s in shapes)} do not broadcast")
        out.append(wanted.pop())
    return tuple(reversed(out))


def places(shape: tuple[int, ...], within: tuple[int, ...]) -> list[int]:
    """Where in an array of the shape `shape`, broadcast to `within`, each value is."""
    steps = []
    step = 1
    for n in reversed(shape):
        steps.append(0 if n == 1 else step)
        step *= n
    steps += [0] * (len(within) - len(steps))
    found = [0]
    for n, s in zip(within, reversed(steps)):
        found = [at + i * s for at in found for i in range(n)]
    return found


def mapped(f: Callable[..., Any], type: int | None, *inputs: Known) -> Any:
    """`f` of each value, broadcast; NotImplemented where that is more than the host computes."""
    shape = broadcast([k.shape for k in inputs])
    if math.prod(shape) > LIMIT:
        return NotImplemented
    columns = [[k.values[i] for i in places(k.shape, shape)] for k in inputs]
    of = inputs[0].type if type is None else type
    return Known([wrap(of, f(*row)) for row in zip(*columns)], shape, of)
