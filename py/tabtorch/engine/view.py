"""Index maps. A `Meta` says how a tensor's elements lie in a flat storage; equal ones are the same object."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from operator import mul
from typing import TYPE_CHECKING, Any

from .symbols import Symbol, concrete

if TYPE_CHECKING:
    from tabtorch.base.device import device as Device
    from tabtorch.base.dtypes import dtype as Dtype


class Size(tuple):
    """`torch.Size`: a shape, a tuple of ints."""

    __slots__ = ()

    def numel(self) -> int:
        return prod(self)

    def __repr__(self) -> str:
        return "torch.Size([" + ", ".join(map(str, self)) + "])"

    def __getitem__(self, i: Any) -> Any:
        r = tuple.__getitem__(self, i)
        return Size(r) if type(i) is slice else r

    def __add__(self, other: Any) -> Size:
        return Size(tuple.__add__(self, tuple(other)))

    def __reduce__(self) -> Any:
        return (Size, (tuple(self),))


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements; a dimension of size 0 counts as 1, as PyTorch does."""
    if not shape:
        return ()
    inner = tuple(shape)[:0:-1]  # a Size gives its elements in Python, a tuple in C
    if 0 in inner:
        inner = tuple([n or 1 for n in inner])
    return tuple(accumulate(inner, mul, initial=1))[::-1]


def ordered_strides(shape: tuple[int, ...], order: Sequence[int]) -> tuple[int, ...]:
    """The same for dimensions that lie in `order`, slowest first."""
    strides = [0] * len(shape)
    n = 1
    for d in reversed(order):
        strides[d] = n
        n *= max(shape[d], 1)
    return tuple(strides)


#: what a view may show of each element in its place: its conjugate, its negative, or (CONJ | NEG) both
CONJ, NEG = 1, 2


class Meta:
    """Shape, strides and offset (in elements), dtype, device and mark of a tensor. Interned: compare with `is`.

    mark: 0, CONJ, NEG or both. What is read through a marked view is made so where it is loaded, and what is written through
    one where it is stored (`Kernel.load`, `ops/inplace.py`): each mark is its own inverse.
    """

    __slots__ = (
        "contiguous",
        "device",
        "dtype",
        "flat",
        "mark",
        "ndim",
        "numel",
        "offset",
        "shape",
        "strides",
        "structure",
        "symbolic",
        "whole",
    )

    shape: Size
    strides: tuple[int, ...]

    def __init__(
        self, shape: Size, strides: tuple[int, ...], offset: int, dtype: Dtype, device: Device, mark: int = 0
    ) -> None:
        self.shape = shape
        self.strides = strides
        self.offset = offset
        self.dtype = dtype
        self.device = device
        self.mark = mark
        self.ndim = len(shape)
        self.numel = prod(shape)
        expected, ok = 1, True
        for s, st in zip(tuple(shape)[::-1], strides[::-1], strict=True):
            if s != 1:
                if st != expected:
                    ok = False
                    break
                expected *= s
        self.contiguous = ok or self.numel == 0
        self.flat = self.contiguous and offset == 0  # element i of the view lies where element i of the storage does
        self.whole = self.flat and not mark  # and is it
        self.structure: Any = None  # see schedules.py
        self.symbolic = False  # whether some of its numbers are Symbols of a capture

    def view(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Meta:
        """The same elements, or some of them, in another geometry."""
        return meta(shape, strides, offset, self.dtype, self.device, self.mark)

    def marked(self, mark: int) -> Meta:
        """The same view with another mark."""
        return meta(self.shape, self.strides, self.offset, self.dtype, self.device, mark)

    def __repr__(self) -> str:
        mark = ("", ", conj", ", neg", ", conj neg")[self.mark]
        return f"Meta({tuple(self.shape)}, {self.strides}, +{self.offset}, {self.dtype.name}, {self.device}{mark})"


_interned: dict[tuple, Meta] = {}


def meta(
    shape: tuple[int, ...], strides: tuple[int, ...], offset: int, dtype: Dtype, device: Device, mark: int = 0
) -> Meta:
    """The one Meta with these properties."""
    key = (shape, strides, offset, dtype, device, mark)
    m = _interned.get(key)
    if m is None:
        if Symbol in map(type, (*shape, *strides, offset)):
            return symbolic_meta(shape, strides, offset, dtype, device, mark)
        if len(_interned) > 200_000:  # every-size-once programs must not grow without end
            _interned.clear()
        m = _interned.setdefault(key, Meta(Size(shape), tuple(strides), offset, dtype, device, mark))
    return m


def symbolic_meta(
    shape: Sequence[Any], strides: Sequence[Any], offset: Any, dtype: Dtype, device: Device, mark: int = 0
) -> Meta:
    """The same where some of the numbers are Symbols. Those of one capture are interned by which Symbols they have."""
    numbers = (*shape, *strides, offset)
    trace = next(n.trace for n in numbers if type(n) is Symbol)
    if not trace.captures:
        return Meta(Size(shape), tuple(strides), offset, dtype, device, mark)
    key = (tuple([(id(n),) if type(n) is Symbol else n for n in numbers]), dtype, device, mark)
    m = trace.views.get(key)
    if m is None:
        m = trace.views[key] = Meta(Size(shape), tuple(strides), offset, dtype, device, mark)
        m.symbolic = True
    return m


def concrete_meta(m: Meta) -> Meta:
    """A view with the numbers that its Symbols have for the sizes at hand."""
    if not m.symbolic:
        return m
    found = tuple(map(concrete, (*m.shape, *m.strides, m.offset)))
    return meta(found[: m.ndim], found[m.ndim : -1], found[-1], m.dtype, m.device, m.mark)


def pinned_meta(m: Meta) -> Meta:
    """The same where its Symbols are not to vary: their values become guards."""
    for n in (*m.shape, *m.strides, m.offset) if m.symbolic else ():
        if type(n) is Symbol:
            n.pinned()
    return concrete_meta(m)


def started(m: Meta) -> Meta:
    """The view that stands for all that are as `m` but for where they begin; those that begin at 0 are apart."""
    return m.view(m.shape, m.strides, 1) if m.offset else m


def contiguous_meta(shape: tuple[int, ...], dtype: Dtype, device: Device) -> Meta:
    return meta(shape, contiguous_strides(shape), 0, dtype, device)


def collapse(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """Merges neighbouring dimensions that one stride can walk; drops size-1 dimensions."""
    sizes: list[int] = []
    steps: list[int] = []
    for n, s in zip(shape, strides, strict=True):
        if n == 1:
            continue
        if sizes and steps[-1] == n * s:
            sizes[-1] *= n
            steps[-1] = s
        else:
            sizes.append(n)
            steps.append(s)
    return sizes, steps


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape, right-aligned. Raises PyTorch's RuntimeError where sizes do not match."""
    nd = max(map(len, shapes), default=0)
    out = [1] * nd
    joined = 0  # dimensions of those that have been looked at
    for shape in shapes:
        joined = max(joined, len(shape))
        for k, n in enumerate(tuple(shape)[::-1], 1):
            if n != 1:
                if out[-k] not in (1, n):
                    raise RuntimeError(
                        f"The size of tensor a ({out[-k]}) must match the size of tensor b ({n}) "
                        f"at non-singleton dimension {joined - k}"
                    )
                out[-k] = n
    return tuple(out)


def broadcast_strides(m: Meta, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides that read `m` as if it had been expanded to `shape`."""
    lead = len(shape) - m.ndim
    wanted = tuple(shape)[lead:]
    return (0,) * lead + tuple(
        [0 if n == 1 and want != 1 else st for n, st, want in zip(m.shape, m.strides, wanted, strict=True)]
    )


def view_strides(m: Meta, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides with which `m` can be seen in `shape` without a copy, or None."""
    shape, sizes, strides = tuple(shape), tuple(m.shape), m.strides
    if m.numel == 0:
        return strides if sizes == shape else contiguous_strides(shape)
    out: list[int] = [0] * len(shape)
    d = len(shape) - 1
    base = strides[-1] if m.ndim else 1
    n_block, n_view = 1, 1
    for i in range(m.ndim - 1, -1, -1):
        n_block *= sizes[i]
        if i == 0 or (sizes[i - 1] != 1 and strides[i - 1] != n_block * base):
            while d >= 0 and (n_view < n_block or shape[d] == 1):
                out[d] = n_view * base
                n_view *= shape[d]
                d -= 1
            if n_view != n_block:
                return None
            if i > 0:
                base = strides[i - 1]
                n_block, n_view = 1, 1
    if m.ndim == 0:
        return (1,) * len(shape)
    return tuple(out) if d == -1 else None
