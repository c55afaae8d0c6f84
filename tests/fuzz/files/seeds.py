"""Valid files to begin with: checkpoints in both formats, and safetensors, as real PyTorch writes them."""

from __future__ import annotations

import io
import random
import re
import warnings
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from safetensors.torch import save as save_safetensors

DTYPES = [
    getattr(torch, name)
    for name in "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64 complex128".split()
]
SHAPES: list[tuple[int, ...]] = [(), (1,), (3,), (2, 3), (0,), (2, 0, 3), (17,), (4, 1, 5), (300,)]

#: what a file is: the kind says which loader is asked
ZIP, OLD, SAFE = "zip", "old", "safetensors"


def tensor(rng: random.Random) -> torch.Tensor:
    """Random bits of a random type and shape."""
    shape, dtype = rng.choice(SHAPES), rng.choice(DTYPES)
    n = torch.Size(shape).numel()
    if dtype is torch.bool:
        return torch.tensor([rng.random() < 0.5 for _ in range(n)], dtype=dtype).reshape(shape)
    raw = torch.tensor(list(rng.randbytes(n * dtype.itemsize)), dtype=torch.uint8)
    return raw.view(dtype).reshape(shape) if n else torch.empty(shape, dtype=dtype)


def _view(t: torch.Tensor, rng: random.Random) -> torch.Tensor:
    how = rng.randrange(5)
    if how == 0 and t.dim() == 2:
        return t.t()
    if how == 1 and t.dim() and t.shape[0] > 1:
        return t[1:]
    if how == 2 and t.dim():
        return t[::2]
    if how == 3:
        return t.reshape(-1)[:1].expand(3) if t.numel() else t
    return t


def value(rng: random.Random, depth: int = 0) -> Any:
    """What a checkpoint may hold."""
    kind = rng.randrange(12 if depth < 2 else 9)
    if kind < 4:
        t = tensor(rng)
        if kind == 1:
            t = _view(t, rng)
        elif kind == 2:
            t = torch.nn.Parameter(t, requires_grad=t.dtype.is_floating_point or t.dtype.is_complex)
        elif kind == 3 and t.dtype.is_complex:
            t = t.conj()
        return t
    if kind == 4:
        return rng.choice([0, 255, 65536, -1, 2**40, -(2**70), 1.5, float("inf"), True, None, 1 + 2j])
    if kind == 5:
        return rng.choice(["", "lr", "ä€", "x" * 300, b"", b"\x00\xff", bytearray(b"12")])
    if kind == 6:
        return rng.choice([torch.float16, torch.Size([1, 2]), torch.device("cpu"), torch.strided, {1, 2}, ()])
    if kind == 7:
        return Counter("abca")
    if kind == 8:
        return tensor(rng).untyped_storage()
    items = [value(rng, depth + 1) for _ in range(rng.randrange(1, 5))]
    if kind == 9:
        return items
    if kind == 10:
        return tuple(items)
    return rng.choice([dict, OrderedDict])((f"k{i}", x) for i, x in enumerate(items))


def checkpoint(rng: random.Random, old: bool = False) -> bytes:
    """A checkpoint of a few tensors, some of which share their memory."""
    w = tensor(rng)
    x = OrderedDict(weight=w, again=_view(w, rng), other=value(rng), epoch=3)
    x["more"] = value(rng)
    file = io.BytesIO()
    with warnings.catch_warnings(), _in_order():
        warnings.simplefilter("ignore")
        torch.save(x, file, _use_new_zipfile_serialization=not old)
    data = file.getvalue()
    found = re.findall(rb"(?<=X.\0\0\0)\d{12,16}(?=q|r|X)", data, re.S) if old else []
    for i, name in enumerate(dict.fromkeys(found)):
        data = data.replace(name, b"%0*d" % (len(name), 10 ** (len(name) - 1) + i))
    return data


@contextmanager
def _in_order() -> Iterator[None]:
    """The old format names storages by their addresses and sorts them, which is another file in every process."""
    serialization: Any = torch.serialization
    serialization.sorted = list
    try:
        yield
    finally:
        del serialization.sorted


def records(data: bytes) -> dict[str, bytes]:
    """The records of an archive, by their whole names."""
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        return {i.filename: z.read(i) for i in z.infolist()}


def safetensors(rng: random.Random) -> bytes:
    """A file of a few tensors."""
    tensors = {f"layer.{i}": tensor(rng).contiguous() for i in range(rng.randrange(1, 5))}
    tensors = {k: t for k, t in tensors.items() if t.dtype not in (torch.complex128,)}
    metadata = rng.choice([None, {"format": "pt"}, {"ä": "€"}])
    return save_safetensors(tensors, metadata)
