"""The formats: idx (MNIST), and CIFAR's binary records and Python pickles. Bytes in, tensors out.

Sources of the formats: http://yann.lecun.com/exdb/mnist/ and https://www.cs.toronto.edu/~kriz/cifar.html
"""

from __future__ import annotations

import io
import math
import pickle
import struct
import zlib
from array import array
from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor

#: more than this is unpacked of no file
MOST = 1 << 30

#: the type byte of an idx file
_IDX = {8: "uint8", 9: "int8", 11: "int16", 12: "int32", 13: "float32", 14: "float64"}
_CODES = {"int16": "h", "int32": "i", "float32": "f", "float64": "d"}


def unpacked(data: bytes, name: str) -> bytes:
    """The bytes, out of gzip if they are in it. ValueError for what is damaged, or unpacks to more than 1 GiB."""
    if data[:2] != b"\x1f\x8b":
        return data
    stream = zlib.decompressobj(31)
    try:
        out = stream.decompress(data, MOST)
    except zlib.error as e:
        raise ValueError(f"{name} is damaged: {e}") from None
    if stream.unconsumed_tail:
        raise ValueError(f"{name} unpacks to more than {MOST >> 20} MiB")
    if not stream.eof:
        raise ValueError(f"{name} is truncated: its gzip stream does not end")
    return out


def _tensor(data: Any, shape: tuple[int, ...], device: Any, dtype: str = "uint8") -> Tensor:
    if not math.prod(shape):
        return torch.empty(shape, dtype=getattr(torch, dtype), device=device)
    t = torch.frombuffer(data, dtype=getattr(torch, dtype)).reshape(shape)
    return t if device is None else t.to(device)


def idx(data: bytes, name: str = "the file", device: Any = None) -> Tensor:
    """An idx file, packed or not, as a tensor of its type and shape. ValueError for anything else."""
    data = unpacked(data, name)
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _IDX:
        raise ValueError(f"{name} is not an idx file: it begins with {data[:4]!r}")
    kind, ndim = _IDX[data[2]], data[3]
    start = 4 + 4 * ndim
    if len(data) < start:
        raise ValueError(f"{name} is truncated: it ends within its header")
    shape = struct.unpack(f">{ndim}I", data[4:start])
    size = math.prod(shape) * (
        1 if kind in ("uint8", "int8") else 8 if kind == "float64" else 2 if kind == "int16" else 4
    )
    if len(data) - start != size:
        what = "is truncated" if len(data) - start < size else "is too long"
        raise ValueError(f"{name} {what}: shape {list(shape)} of {kind} is {size} bytes, {len(data) - start} follow")
    body: Any = bytearray(memoryview(data)[start:])
    if kind in _CODES:
        body = array(_CODES[kind], bytes(body))
        body.byteswap()
    return _tensor(body, shape, device, kind)


def cifar_binary(data: bytes, labels: int = 1, name: str = "the file", device: Any = None) -> tuple[Tensor, Tensor]:
    """Records of `labels` bytes (1: CIFAR-10; 2, coarse and fine: CIFAR-100) and 3072 of image.

    Gives images (N, 3, 32, 32) and labels (N, labels), uint8. ValueError for a size that is no whole number of records.
    """
    data = unpacked(data, name)
    row = labels + 3072
    if not data or len(data) % row:
        raise ValueError(f"{name} is truncated, or no CIFAR file: {len(data)} bytes are no records of {row}")
    t = _tensor(bytearray(data), (len(data) // row, row), device)
    return t[:, labels:].reshape(-1, 3, 32, 32), t[:, :labels].contiguous()


# ---- CIFAR's "python version" is a pickle


class _Array:
    """Stands for `numpy.ndarray`: the bytes of one of uint8, and nothing else."""

    shape: tuple[int, ...] = ()
    data: Any = b""

    def __setstate__(self, state: Any) -> None:
        _, self.shape, kind, fortran, self.data = state
        if isinstance(self.data, str):
            self.data = self.data.encode("latin1")
        if not isinstance(kind, _Kind) or kind.name != "u1" or fortran or not isinstance(self.data, bytes):
            raise pickle.UnpicklingError("an array that is not of bytes in order")
        if not isinstance(self.shape, tuple) or math.prod(self.shape) != len(self.data):
            raise pickle.UnpicklingError("an array whose size is not that of its data")


class _Kind:
    """Stands for `numpy.dtype`."""

    def __init__(self, name: Any, *args: Any) -> None:
        self.name = name.decode("latin1") if isinstance(name, bytes) else name

    def __setstate__(self, state: Any) -> None:
        """Byte order and the like, of no meaning for bytes."""


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    if not isinstance(text, str):
        raise pickle.UnpicklingError("_codecs.encode of what is no text")
    return text.encode("latin1")


#: all that a file may name; numpy has moved its module once
_ALLOWED = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Kind,
    ("numpy.core.multiarray", "_reconstruct"): lambda *args: _Array(),
    ("numpy._core.multiarray", "_reconstruct"): lambda *args: _Array(),
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle.Unpickler):
    """Knows the names of the table above, and no others: a file can run nothing."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no CIFAR file does") from None


def cifar_python(data: bytes, name: str = "the file", device: Any = None) -> tuple[Tensor, dict[str, list[int]]]:
    """One pickle of the "python version": images (N, 3, 32, 32) uint8, and the lists of labels by their names.

    The names are "labels", or "fine_labels" and "coarse_labels". ValueError for anything else; nothing in it is run.
    """
    try:
        found = _Unpickler(io.BytesIO(unpacked(data, name)), encoding="bytes").load()
    except Exception as e:
        raise ValueError(f"{name} cannot be read as a CIFAR file: {e}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{name} is no CIFAR file: it holds a {type(found).__name__}")
    found = {k.decode("latin1") if isinstance(k, bytes) else k: v for k, v in found.items()}
    images = found.get("data")
    if not isinstance(images, _Array) or len(images.shape) != 2 or images.shape[1] != 3072:
        raise ValueError(f"{name} is no CIFAR file: it has no data of rows of 3072 bytes")
    n = images.shape[0]
    labels = {k: v for k, v in found.items() if isinstance(k, str) and k.endswith("labels")}
    for k, v in labels.items():
        if not isinstance(v, list) or len(v) != n or not all(type(x) is int and 0 <= x < 256 for x in v):
            raise ValueError(f"{name} is no CIFAR file: its {k} are not {n} small numbers")
    if not labels:
        raise ValueError(f"{name} is no CIFAR file: it has no labels")
    return _tensor(bytearray(images.data), (n, 3, 32, 32), device), labels
