"""ONNX's tensors: their numbers out of a message, out of the model's file, or out of a file beside it."""

from __future__ import annotations

import math
import os
import struct
import sys
from typing import Any

from tabtorch.core.creation import placed
from tabtorch.core.from_host import tensor as make_tensor
from tabtorch.core.storage import Storage
from tabtorch.core.tensor import Tensor
from tabtorch.engine.view import contiguous_meta
from tabtorch.onnx.proto import FormatError, Message, Place
from tabtorch.onnx.values import (
    DTYPES,
    INTEGERS,
    LETTERS,
    LIMIT,
    STRING,
    TYPES,
    Known,
    Unsupported,
    dtype_of,
    type_name,
    wrap,
)
from tabtorch.serialization.transfer import Span, reserve
from tabtorch.utils.fetch import is_url

#: types of fewer than 8 bits -> bits, and whether signed
_PACKED = {TYPES["UINT4"]: (4, False), TYPES["INT4"]: (4, True), TYPES["UINT2"]: (2, False), TYPES["INT2"]: (2, True)}
#: 8-bit floats -> bits of the exponent, bits of the mantissa, bias, what the last code is
_FLOAT8 = {
    TYPES["FLOAT8E4M3FN"]: (4, 3, 7, "fn"),
    TYPES["FLOAT8E4M3FNUZ"]: (4, 3, 8, "fnuz"),
    TYPES["FLOAT8E5M2"]: (5, 2, 15, "ieee"),
    TYPES["FLOAT8E5M2FNUZ"]: (5, 2, 16, "fnuz"),
}
#: what such a type is held as: exactly, but for results only where the model converts it
HELD = {**{n: TYPES["INT8"] if signed else TYPES["UINT8"] for n, (_, signed) in _PACKED.items()}}
HELD |= dict.fromkeys(_FLOAT8, TYPES["FLOAT"])
HELD |= {TYPES["UINT16"]: TYPES["INT32"], TYPES["UINT32"]: TYPES["INT64"]}
#: operators that give the same result when such a type is held as a larger one: input -> which
HOLDING = {"DequantizeLinear": (0, 2), "Cast": (0,)}


def count_of(t: Message) -> int:
    """How many numbers a tensor has. FormatError for sizes that are none."""
    if any(n < 0 for n in t.dims):
        raise FormatError(f"tensor {t.name!r} has the shape {list(t.dims)}")
    n = math.prod(t.dims)
    if n >= 1 << 48:
        raise FormatError(f"tensor {t.name!r} has too large a shape: {list(t.dims)}")
    return n


def bytes_of(t: Message) -> int:
    """How many bytes its numbers take in `raw_data`."""
    n = count_of(t)
    if t.data_type in _PACKED:
        return -(-n * _PACKED[t.data_type][0] // 8)
    if t.data_type in _FLOAT8:
        return n
    bits = INTEGERS.get(t.data_type)
    return n * (abs(bits) // 8 if bits else dtype_of(t.data_type).itemsize)


def _float8(code: int, exponent: int, mantissa: int, bias: int, kind: str) -> float:
    sign = -1.0 if code >> 7 else 1.0
    e, m = (code & 127) >> mantissa, code & (1 << mantissa) - 1
    if kind == "fnuz" and code == 128 or kind == "fn" and code & 127 == 127:
        return math.nan
    if kind == "ieee" and e == (1 << exponent) - 1:
        return math.nan if m else sign * math.inf
    if e == 0:
        return sign * math.ldexp(m, 1 - bias - mantissa)
    return sign * math.ldexp(m + (1 << mantissa), e - bias - mantissa)


def numbers(t: Message) -> list[Any]:
    """The numbers of a tensor whose data are in the message, in order. FormatError where there are too few, or too many."""
    n = count_of(t)
    of = t.data_type
    values: list[Any]
    if isinstance(t.raw_data, Place) or t.data_location == 1:
        raise Unsupported(f"tensor {t.name!r} has its numbers elsewhere, where that is not supported")
    if of == STRING:
        values = [s.decode(errors="surrogateescape") for s in t.string_data]
    elif of in _PACKED:
        bits, signed = _PACKED[of]
        packed = t.raw_data or bytes(v & 255 for v in t.int32_data)
        each = 8 // bits
        values = [b >> i * bits & (1 << bits) - 1 for b in packed for i in range(each)]
        if not n <= len(values) < n + each:
            raise _wrong(t, len(values))
        values = [v - (1 << bits) if signed and v >> (bits - 1) else v for v in values[:n]]
    elif of in _FLOAT8:
        values = [_float8(v & 255, *_FLOAT8[of]) for v in (t.raw_data or t.int32_data)]
    elif t.raw_data:
        values = _unpacked(of, t.raw_data, t)
    else:
        values = _listed(t)
    if len(values) != n:
        raise _wrong(t, len(values))
    return values


def _wrong(t: Message, n: int) -> FormatError:
    return FormatError(f"tensor {t.name!r} of the shape {list(t.dims)} has {n} numbers")


def _unpacked(of: int, raw: bytes, t: Message) -> list[Any]:
    if of == TYPES["BFLOAT16"]:
        if len(raw) % 2:
            raise _wrong(t, len(raw) // 2)
        return [struct.unpack("<f", b"\0\0" + raw[i : i + 2])[0] for i in range(0, len(raw), 2)]
    if of in (TYPES["COMPLEX64"], TYPES["COMPLEX128"]):
        flat = _unpacked(1 if of == TYPES["COMPLEX64"] else 11, raw, t)
        return [complex(a, b) for a, b in zip(flat[::2], flat[1::2])]
    letter = LETTERS.get(of)
    if letter is None:
        raise Unsupported(f"tensor {t.name!r} has the type {type_name(of)}, which is not supported")
    size = struct.calcsize("<" + letter)
    if len(raw) % size:
        raise _wrong(t, len(raw) // size)
    return list(struct.unpack(f"<{len(raw) // size}{letter}", raw))


def _listed(t: Message) -> list[Any]:
    """The numbers in the fields of their own types."""
    of = t.data_type
    if of in (TYPES["FLOAT"], TYPES["COMPLEX64"], TYPES["DOUBLE"], TYPES["COMPLEX128"]):
        flat = t.float_data if of in (TYPES["FLOAT"], TYPES["COMPLEX64"]) else t.double_data
        return (
            flat if of in (TYPES["FLOAT"], TYPES["DOUBLE"]) else [complex(a, b) for a, b in zip(flat[::2], flat[1::2])]
        )
    if of == TYPES["INT64"]:
        return list(t.int64_data)
    if of in (TYPES["UINT32"], TYPES["UINT64"]):
        return [wrap(of, v) for v in t.uint64_data]
    if of in (TYPES["FLOAT16"], TYPES["BFLOAT16"]):
        return _unpacked(of, struct.pack(f"<{len(t.int32_data)}H", *[v & 0xFFFF for v in t.int32_data]), t)
    if of in INTEGERS or of == TYPES["BOOL"]:
        return [wrap(of, v) for v in t.int32_data]
    raise Unsupported(f"tensor {t.name!r} has the type {type_name(of)}, which is not supported")


def known(t: Message) -> Known:
    """A tensor of a message, on the host."""
    return Known(numbers(t), t.dims, t.data_type)


def tensor_of(t: Message, device: Any = None) -> Any:
    """A tensor of a message: a Known where it is small, or no device has its type."""
    if t.data_type not in DTYPES or count_of(t) <= LIMIT:
        return known(t)
    return filled(t, device)


def filled(t: Message, device: Any = None) -> Tensor:
    """A tensor of a message on a device."""
    of = HELD.get(t.data_type, t.data_type)
    dtype = dtype_of(of)
    if t.raw_data and not isinstance(t.raw_data, Place) and t.data_type in DTYPES and t.data_location != 1:
        if len(t.raw_data) != bytes_of(t):
            raise _wrong(t, len(t.raw_data) // dtype.itemsize)
        from_bytes = sys.modules["tabtorch"].frombuffer(bytearray(t.raw_data), dtype=dtype)
        return from_bytes.clone().to(placed(dtype, device)).reshape(tuple(t.dims))
    return make_tensor(numbers(t), dtype=dtype, device=placed(dtype, device)).reshape(tuple(t.dims))


def reserved(t: Message, device: Any, offset: int, nbytes: int, spans: list[Span]) -> Tensor:
    """A tensor whose numbers are poured from `offset` of a file on. FormatError where that is not as many bytes as it has."""
    if nbytes != bytes_of(t):
        raise FormatError(f"tensor {t.name!r} of the shape {list(t.dims)} has {nbytes} bytes")
    dtype = dtype_of(t.data_type)
    node = reserve(count_of(t), dtype, placed(dtype, device))
    spans.append(Span(node, offset, t.name))
    made: Tensor = object.__new__(Tensor)
    made._tab_storage = Storage(node)
    made._tab_meta = contiguous_meta(tuple(t.dims), dtype, node.inst.out.device)
    return made


def outside(t: Message) -> tuple[str, int, int]:
    """(file, offset, bytes) of a tensor in a file beside the model's. FormatError for a file that does not lie there."""
    told = {e.key: e.value for e in t.external_data}
    file = told.get("location", "")
    parts = file.replace("\\", "/").split("/")
    if (
        not file
        or os.path.isabs(file)
        or ".." in parts
        or is_url(file)
        or ":" in file
        or "\0" in file
        or file[0] in "\\/"
    ):
        raise FormatError(f"tensor {t.name!r}: {file!r} does not lie beside the model")
    try:
        offset, nbytes = int(told.get("offset", 0)), int(told.get("length", bytes_of(t)))
    except ValueError:
        raise FormatError(f"tensor {t.name!r}: its place in {file!r} is no number") from None
    if offset < 0 or nbytes < 0:
        raise FormatError(f"tensor {t.name!r}: its place in {file!r} is negative")
    return file, offset, nbytes


def sparse(s: Message) -> Any:
    """A sparse tensor, with its zeros."""
    if s.values is None or s.indices is None:
        raise FormatError("a sparse tensor has no values or no indices")
    dense = Message("Tensor", dims=list(s.dims), data_type=s.values.data_type, name=s.values.name)
    n = count_of(dense)
    if n > 1 << 22:
        raise Unsupported(f"sparse tensor {dense.name!r} has {n} numbers: more than is supported")
    values, at = numbers(s.values), numbers(s.indices)
    rank = len(s.dims)
    if len(at) != len(values) and len(at) != len(values) * rank:
        raise FormatError(f"sparse tensor {dense.name!r} has {len(at)} indices of {len(values)} numbers")
    if len(at) != len(values) or len(s.indices.dims) == 2:
        steps = [math.prod(s.dims[i + 1 :]) for i in range(rank)]
        rows = [at[i : i + rank] for i in range(0, len(at), rank)]
        if any(not 0 <= i < m for row in rows for i, m in zip(row, s.dims)):
            raise FormatError(f"sparse tensor {dense.name!r} has an index out of range")
        at = [sum(i * m for i, m in zip(row, steps)) for row in rows]
    zero = wrap(dense.data_type, 0)
    flat = [zero] * n
    for i, v in zip(at, values):
        if not 0 <= i < n:
            raise FormatError(f"sparse tensor {dense.name!r} has an index out of range")
        flat[i] = v
    made = Known(flat, s.dims, dense.data_type)
    return made if n <= LIMIT or dense.data_type not in DTYPES else made.tensor(None)
