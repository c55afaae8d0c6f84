"""`torch.memory_format` and `torch.layout`."""

from __future__ import annotations

from typing import Any

from tabtorch.core.shapes import remembered
from tabtorch.engine.view import Meta, contiguous_strides, ordered_strides


class memory_format:
    """How the dimensions of a tensor lie in memory."""

    def __init__(self, name: str, order: tuple[int, ...] | None = None) -> None:
        self.name = name
        self.order = order  # dimensions, slowest first

    def __repr__(self) -> str:
        return "torch." + self.name

    def __reduce__(self) -> str:
        return self.name

    def __deepcopy__(self, memo: Any) -> memory_format:
        return self


class layout:
    """How the elements of a tensor are stored: `strided`, or one of the sparse ones (see `tabtorch.sparse`)."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return "torch." + self.name

    def __reduce__(self) -> str:
        return self.name


strided = layout("strided")
sparse_coo, sparse_csr, sparse_csc, sparse_bsr, sparse_bsc, jagged = map(
    layout, ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged")
)
contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last", (0, 2, 3, 1))
channels_last_3d = memory_format("channels_last_3d", (0, 2, 3, 4, 1))


def order_of(f: memory_format, ndim: int) -> tuple[int, ...]:
    """Dimensions, slowest first. RuntimeError for another number of dimensions."""
    order = f.order
    if order is None or len(order) != ndim:
        raise RuntimeError(f"required rank {len(order or ())} tensor to use {f.name} format")
    return order


def is_contiguous(m: Meta, f: memory_format) -> bool:
    """Whether the strides of `m` are those of a new tensor in format `f`."""
    if f.order is None:
        return m.contiguous
    if len(f.order) != m.ndim:
        return False
    expected = 1
    for d in reversed(f.order):
        if m.shape[d] != 1:
            if m.strides[d] != expected:
                return False
            expected *= m.shape[d]
    return True


def suggested_format(m: Meta) -> memory_format:
    """What PyTorch takes the format of `m` to be: channels last if its strides are in that order, else contiguous."""
    for f in (channels_last, channels_last_3d):
        if f.order is None or len(f.order) != m.ndim or m.strides[1] == 0:
            continue
        least = 0
        for d in reversed(f.order):
            if m.shape[d] == 0 or m.strides[d] < least or (d == 0 and least == m.strides[1]):
                break
            least = m.strides[d] * max(m.shape[d], 1)
        else:
            return f
    return contiguous_format


@remembered
def suggested_order(m: Meta) -> tuple[int, ...]:
    """The dimensions of `m`, slowest first, where PyTorch takes it to be channels last; () where it takes it to be row-major."""
    return suggested_format(m).order or ()


def format_strides(shape: tuple[int, ...], f: memory_format) -> tuple[int, ...]:
    """Strides of a new tensor of `shape` in format `f`. RuntimeError where it is for another number of dimensions."""
    if f.order is None:
        return contiguous_strides(shape)
    return ordered_strides(shape, order_of(f, len(shape)))


def check_layout(x: Any) -> None:
    """TypeError for what is no layout, NotImplementedError for one that no tensor here has."""
    if x is not None and not isinstance(x, layout):
        raise TypeError(f"argument 'layout' must be torch.layout, not {type(x).__name__}")
    if x is jagged:
        raise NotImplementedError(f"layout {x!r} is not supported by tabtorch")
