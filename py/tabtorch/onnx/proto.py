"""ONNX's messages, from and to Protocol Buffers' wire format: one table says which fields there are, for both ways.

The format: https://protobuf.dev/programming-guides/encoding; the messages: onnx.proto3 of https://github.com/onnx/onnx. Fields that
are not in the table are passed over. A large field of bytes that lies in an initializer is not read but remembered as a place
in the file (`Place`), so that weights go to the device in pieces.
"""

from __future__ import annotations

import struct
from typing import Any

from tabtorch.utils.fetch import PIECE, Reader, Work

#: message -> number of the field -> (name, kind; with a star: repeated). A kind with a capital letter is a message
TABLE: dict[str, dict[int, tuple[str, str]]] = {
    "Model": {
        1: ("ir_version", "int"),
        2: ("producer_name", "str"),
        3: ("producer_version", "str"),
        7: ("graph", "Graph"),
        8: ("opset_import", "OperatorSetId*"),
        14: ("metadata_props", "Entry*"),
        25: ("functions", "Function*"),
    },
    "OperatorSetId": {1: ("domain", "str"), 2: ("version", "int")},
    "Graph": {
        1: ("node", "Node*"),
        2: ("name", "str"),
        5: ("initializer", "Tensor*"),
        11: ("input", "ValueInfo*"),
        12: ("output", "ValueInfo*"),
        13: ("value_info", "ValueInfo*"),
        15: ("sparse_initializer", "SparseTensor*"),
    },
    "Node": {
        1: ("input", "str*"),
        2: ("output", "str*"),
        3: ("name", "str"),
        4: ("op_type", "str"),
        5: ("attribute", "Attribute*"),
        7: ("domain", "str"),
        8: ("overload", "str"),
    },
    "Attribute": {
        1: ("name", "str"),
        2: ("f", "float"),
        3: ("i", "int"),
        4: ("s", "bytes"),
        5: ("t", "Tensor"),
        6: ("g", "Graph"),
        7: ("floats", "float*"),
        8: ("ints", "int*"),
        9: ("strings", "bytes*"),
        10: ("tensors", "Tensor*"),
        11: ("graphs", "Graph*"),
        14: ("tp", "Type"),
        20: ("type", "int"),
        21: ("ref_attr_name", "str"),
        22: ("sparse_tensor", "SparseTensor"),
    },
    "Tensor": {
        1: ("dims", "int*"),
        2: ("data_type", "int"),
        4: ("float_data", "float*"),
        5: ("int32_data", "int*"),
        6: ("string_data", "bytes*"),
        7: ("int64_data", "int*"),
        8: ("name", "str"),
        9: ("raw_data", "bytes"),
        10: ("double_data", "double*"),
        11: ("uint64_data", "int*"),
        13: ("external_data", "Entry*"),
        14: ("data_location", "int"),
    },
    "SparseTensor": {1: ("values", "Tensor"), 2: ("indices", "Tensor"), 3: ("dims", "int*")},
    "Entry": {1: ("key", "str"), 2: ("value", "str")},
    "ValueInfo": {1: ("name", "str"), 2: ("type", "Type")},
    "Type": {
        1: ("tensor_type", "TensorType"),
        4: ("sequence_type", "ElementType"),
        9: ("optional_type", "ElementType"),
    },
    "TensorType": {1: ("elem_type", "int"), 2: ("shape", "Shape")},
    "ElementType": {1: ("elem_type", "Type")},
    "Shape": {1: ("dim", "Dimension*")},
    "Dimension": {1: ("dim_value", "int"), 2: ("dim_param", "str")},
    "Function": {
        1: ("name", "str"),
        4: ("input", "str*"),
        5: ("output", "str*"),
        6: ("attribute", "str*"),
        7: ("node", "Node*"),
        9: ("opset_import", "OperatorSetId*"),
        10: ("domain", "str"),
        11: ("attribute_proto", "Attribute*"),
        13: ("overload", "str"),
    },
    "TensorList": {1: ("name", "str"), 2: ("elem_type", "int"), 3: ("tensor_values", "Tensor*")},
}
_DEFAULTS: dict[str, Any] = {"int": 0, "float": 0.0, "double": 0.0, "str": "", "bytes": b""}

#: how deep messages may lie in each other: a graph in an attribute of a node of a graph is three
DEPTH = 100
#: a field of bytes of an initializer is left where it is from this length on
LEFT = 1 << 16


class FormatError(ValueError):
    """Bytes that are no ONNX model."""


class Place:
    """Bytes that were left in the file: from `offset` on, `nbytes` of them."""

    __slots__ = ("nbytes", "offset")

    def __init__(self, offset: int, nbytes: int) -> None:
        self.offset = offset
        self.nbytes = nbytes


class Message:
    """One message: an attribute a field, of the table; `kind` is its name there. `None`: a message that is not there."""

    kind: str

    def __init__(self, kind: str, **fields: Any) -> None:
        self.kind = kind
        for name, of in TABLE[kind].values():
            setattr(self, name, [] if of.endswith("*") else _DEFAULTS.get(of))
        self.__dict__.update(fields)

    def but(self, **changes: Any) -> Message:
        """A message like this, but for these fields."""
        made = Message(self.kind)
        made.__dict__.update(self.__dict__, **changes)
        return made

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"ONNX's {self.kind} has no field {name!r}")


# ---- reading


def _varint(data: Any, i: int) -> tuple[int, int]:
    """(the number at `i`, where the next begins)."""
    n = shift = 0
    while True:
        if i >= len(data) or shift > 63:
            raise FormatError("not an ONNX model: a number does not end")
        c = data[i]
        i += 1
        n |= (c & 127) << shift
        if c < 128:
            return n & (1 << 64) - 1, i
        shift += 7


def _signed(n: int) -> int:
    return n - (1 << 64) if n >> 63 else n


def _packed(of: str, data: Any) -> list[Any]:
    """The numbers of a packed field."""
    if of != "int":
        width, letter = (4, "f") if of == "float" else (8, "d")
        if len(data) % width:
            raise FormatError("not an ONNX model: a list of numbers ends in the middle of one")
        return list(struct.unpack(f"<{len(data) // width}{letter}", data))
    found = []
    i = 0
    while i < len(data):
        n, i = _varint(data, i)
        found.append(_signed(n))
    return found


def _values(of: str, wire: int, value: Any, depth: int) -> list[Any]:
    """What stands in one field, as a list."""
    if of in ("int", "float", "double"):
        if wire == 2:
            return _packed(of, value)
        if wire != {"int": 0, "float": 5, "double": 1}[of]:
            raise FormatError(f"not an ONNX model: a field of {of}s has wire type {wire}")
        return [_signed(value)] if of == "int" else _packed(of, value)
    if wire != 2:
        raise FormatError(f"not an ONNX model: a field of {of} has wire type {wire}")
    if of == "bytes":
        return [bytes(value)]
    if of == "str":
        try:
            return [bytes(value).decode()]
        except UnicodeDecodeError as e:
            raise FormatError(f"not an ONNX model: {e}") from None
    return [read(of, value, depth + 1)]


def _put(message: Message, name: str, of: str, values: list[Any]) -> None:
    if of.endswith("*"):
        getattr(message, name).extend(values)
    elif values:
        setattr(message, name, values[-1])


def read(kind: str, data: Any, depth: int = 0) -> Message:
    """The message whose bytes `data` are. FormatError for what is none."""
    if depth > DEPTH:
        raise FormatError(f"not an ONNX model: messages lie more than {DEPTH} deep in each other")
    message, fields, i, end = Message(kind), TABLE[kind], 0, len(data)
    while i < end:
        key, i = _varint(data, i)
        wire = key & 7
        value: Any
        if wire == 0:
            value, i = _varint(data, i)
        else:
            n, i = _length(data, i, wire)
            if n > end - i:
                raise FormatError("not an ONNX model: a field is longer than what it lies in")
            value, i = data[i : i + n], i + n
        field = fields.get(key >> 3)
        if field is not None:
            _put(message, *field, _values(field[1].rstrip("*"), wire, value, depth))
    return message


def _length(data: Any, i: int, wire: int) -> tuple[int, int]:
    """(bytes of the value of a field, where they begin)."""
    if wire == 2:
        return _varint(data, i)
    if wire not in (1, 5):
        raise FormatError(f"not an ONNX model: wire type {wire}")
    return (8 if wire == 1 else 4), i


class _Window:
    """A stretch of the file, moved along as it is read."""

    def __init__(self, reader: Reader) -> None:
        self.size = reader.size
        self.start = 0
        self.data: Any = b""

    def bytes(self, offset: int, nbytes: int, ahead: int = 1 << 14) -> Work:
        """`nbytes` from `offset` on, or what there is of them."""
        if not self.start <= offset <= offset + nbytes <= self.start + len(self.data):
            parts = []
            at, left = offset, max(nbytes, ahead)
            while left > 0:
                part = bytes((yield at, min(left, PIECE)))
                if not part:
                    break
                parts.append(part)
                at, left = at + len(part), left - len(part)
            self.start, self.data = offset, b"".join(parts)
        at = offset - self.start
        return memoryview(self.data)[at : at + nbytes]


#: what is walked through field by field rather than read as a whole
_WALKED = {("Model", "graph"), ("Graph", "initializer")}


def read_model(reader: Reader) -> Work:
    """The Model in a file. Large `raw_data` of its initializers are `Place`s. FormatError for what is no model."""
    return (yield from _walk(_Window(reader), "Model", 0, None))


def _walk(window: _Window, kind: str, at: int, end: int | None) -> Work:
    message, fields = Message(kind), TABLE[kind]
    while end is None or at < end:
        head = yield from window.bytes(at, 20 if end is None else min(20, end - at))
        if not len(head):
            if end is not None:
                raise FormatError("the file ends in the middle of the model")
            break
        key, i = _varint(head, 0)
        wire, field = key & 7, fields.get(key >> 3)
        if wire == 0:
            value, i = _varint(head, i)
            at += i
            if field is not None:
                _put(message, *field, _values(field[1].rstrip("*"), wire, value, 1))
            continue
        n, i = _length(head, i, wire)
        at += i
        if n > (window.size if end is None and window.size is not None else 1 << 62 if end is None else end) - at:
            raise FormatError("not an ONNX model: a field is longer than what it lies in")
        if field is None:
            at += n
            continue
        name, of = field
        if wire == 2 and (kind, name) in _WALKED:
            _put(message, name, of, [(yield from _walk(window, of.rstrip("*"), at, at + n))])
        elif wire == 2 and kind == "Tensor" and name == "raw_data" and n >= LEFT:
            setattr(message, name, Place(at, n))
        else:
            value = yield from window.bytes(at, n)
            if len(value) < n:
                raise FormatError("the file ends in the middle of the model")
            _put(message, name, of, _values(of.rstrip("*"), wire, value, 1))
        at += n
    return message


# ---- writing


def _number(n: int) -> bytes:
    n &= (1 << 64) - 1
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def _delimited(number: int, data: Any) -> list[Any]:
    return [_number(number << 3 | 2) + _number(len(data)), data]


def pieces(message: Message) -> list[Any]:
    """The bytes of a message, as a list of parts: large ones are not copied."""
    out: list[Any] = []
    for number, (name, of) in TABLE[message.kind].items():
        value = getattr(message, name)
        if of in ("int", "float", "double"):
            # a nought is left out, but of an attribute that is a number, and of a size
            if not value and name != {("Attribute", 1): "f", ("Attribute", 2): "i"}.get(
                (message.kind, getattr(message, "type", 0))
            ):
                if not (message.kind == "Dimension" and not message.dim_param):
                    continue
            if of == "int":
                out.append(_number(number << 3) + _number(value))
            else:
                wire, letter = (5, "f") if of == "float" else (1, "d")
                out.append(_number(number << 3 | wire) + struct.pack("<" + letter, value))
            continue
        if of in ("int*", "float*", "double*"):
            if value:
                letter = {"float*": "f", "double*": "d"}.get(of, "")
                packed = (
                    struct.pack(f"<{len(value)}{letter}", *value) if letter else b"".join(_number(v) for v in value)
                )
                out += _delimited(number, packed)
            continue
        for each in value if of.endswith("*") else [] if value is None or len_of(value) == 0 else [value]:
            if of.rstrip("*") in ("bytes", "str"):
                out += _delimited(number, each.encode() if isinstance(each, str) else each)
                continue
            inner = pieces(each)
            out.append(_number(number << 3 | 2) + _number(sum(len(p) for p in inner)))
            out += inner
    return out


def len_of(value: Any) -> int:
    """Bytes of a text or bytes; 1 for a message, which is written when it is there, empty or not."""
    return 1 if isinstance(value, Message) else len(value)


def write(message: Message) -> bytes:
    """The bytes of a message."""
    return b"".join(pieces(message))
