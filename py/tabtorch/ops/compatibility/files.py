"""`torch.from_file`."""

from __future__ import annotations

from typing import Any

from tabtorch import _lazy
from tabtorch.base import dtypes
from tabtorch.core.tensor import Tensor
from tabtorch.ops.machinery.registry import register


@register("from_file")
def from_file(
    filename: str,
    shared: bool | None = None,
    size: int = 0,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **kw: Any,
) -> Tensor:
    """A 1-d tensor with a copy of the first `size` elements of a file. NotImplementedError for one that is `shared`."""
    _lazy.creation.check_strided("from_file", kw)
    if shared:
        raise NotImplementedError(
            "from_file(): tabtorch cannot share memory with a file: write it with t.numpy().tofile()"
        )
    dtype = dtypes.get_default_dtype() if dtype is None else dtype
    n = size * dtype.itemsize
    if n < 0:
        raise RuntimeError(f"unable to mmap {n} bytes from file <{filename}>: Cannot allocate memory (12)")
    try:
        with open(filename, "rb") as file:
            data = file.read(n)
            there = file.seek(0, 2)
    except OSError as e:
        raise RuntimeError(f"unable to open file <{filename}> in read-only mode: {e.strerror} ({e.errno})") from None
    if there < n:
        raise RuntimeError(f"file <{filename}> size <{there}> is smaller than the required mapping size <{n}>")
    if not n:
        return _lazy.creation.zeros(0, dtype=dtype, device=device, requires_grad=requires_grad)
    return _lazy.from_host.frombuffer(data, dtype=dtype, requires_grad=requires_grad, device=device)
