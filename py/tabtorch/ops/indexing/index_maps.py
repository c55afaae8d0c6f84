"""Places that depend on data: how index tensors become coordinates, in maps that gather and in kernels that scatter.

An index is wrapped (negative ones count from the end) and clamped, so that no index, however wrong, reaches memory that is
not the tensor's. That none is wrong is asserted beside (`check_range`): at once where the host knows, else by the device.
"""

from __future__ import annotations

import math
from typing import Any

from tabtorch import _lazy
from tabtorch.base.dtypes import int64
from tabtorch.base.thread_state import STATE
from tabtorch.core.shapes import remembered
from tabtorch.core.tensor import Tensor
from tabtorch.engine.expr import Expr, cast, minimum, where
from tabtorch.engine.lower import Kernel
from tabtorch.engine.view import Meta, broadcast_strides, collapse, contiguous_meta
from tabtorch.ops.machinery.asserts import Complaint, assert_range
from tabtorch.ops.machinery.batching import batches
from tabtorch.ops.machinery.integer_bounds import Range, known


def wrapped(index: Any, size: Expr, last: Expr, negative: bool = True) -> Expr:
    """An index of type i32 or i64 as a u32 coordinate of a dimension with `size` = last + 1 elements."""
    i = cast(index, "i32")
    if negative:
        i = where(i < 0, i + cast(size, "i32"), i)
    return minimum(cast(i, "u32"), last)  # what is still negative is a large u32


def offset_at(k: Kernel, m: Meta, coords: list[Expr], role: Any) -> Expr | int:
    """Where in its storage view `m` has the element at these coordinates. `role`: see `index_of`."""
    e: Any = None
    for d, (c, n, st) in enumerate(zip(coords, m.shape, m.strides, strict=True)):
        if n != 1 and st:
            t = c if st == 1 else c * k.dim(st, ("st", role, d))
            e = t if e is None else e + t
    if m.offset:
        o = k.offset(role) if isinstance(role, tuple) else k.dim(m.offset, ("off", role))
        e = o if e is None else e + o
    if e is None:
        return 0
    return e


def host_values(t: Tensor) -> Any:
    """The elements of `t`, flat, if they are known without asking the device.

    Not in a compiled function, whose next call has others.
    """
    return None if STATE.held is not None else known(t._tab_storage.node, t._tab_meta)


def row_sums(t: Tensor) -> Tensor:
    """Sums over the last dimension, as int64; they are known where the elements of `t` are."""
    values = host_values(t)
    if values is None:
        return t.sum(-1)
    n = t._tab_meta.shape[-1]
    sums = [sum(values[k * n : (k + 1) * n]) for k in range(math.prod(t._tab_meta.shape[:-1]))]
    return _of_host(sums, t).reshape(t._tab_meta.shape[:-1])


def row_steps(t: Tensor) -> Tensor:
    """What each element of a vector is more than the one before it; that is known where the elements are."""
    values = host_values(t)
    if values is None:
        return t.diff()
    return _of_host([b - a for a, b in zip(values, values[1:])], t)


def _of_host(values: list[int], like: Tensor) -> Tensor:
    return _lazy.creation.tensor(values, dtype=int64, device=like._tab_meta.device)


def every_example(t: Tensor) -> Tensor:
    """`t`; inside `vmap` the tensor with the values of all examples, whose check is then that of each."""
    if not batches[0]:
        return t
    return _lazy.transforms.debug_unwrap(t)


def check_range(
    t: Tensor, size: int, low: int, complaint: Complaint, operation: str, exempt: int | None = None
) -> None:
    """Asserts that low <= i < size (or i == exempt) for every element of `t`: see asserts.py for when it raises."""
    t = every_example(t)
    if size == 0 and t._tab_meta.numel:
        values = host_values(t)
        raise complaint.of(values[0] if values is not None else 0, 0)
    assert_range(t, Range(low, size - 1, exempt), complaint, operation)


_NO_ZERO = Complaint(RuntimeError, "ZeroDivisionError")


def check_divisor(operands: list[Any]) -> None:
    """Asserts that the second of two operands is nowhere 0, if there is something to divide."""
    by = operands[1]
    if not isinstance(by, Tensor):
        if by == 0 and operands[0]._tab_meta.numel:
            raise _NO_ZERO.of(0, 0)
        return
    if isinstance(operands[0], Tensor) and not operands[0]._tab_meta.numel:
        return
    by = every_example(by)
    values = host_values(by)
    if values is None:
        assert_range(by.eq(0), Range(0, 0), _NO_ZERO, "an integer division")
    elif 0 in values:
        raise _NO_ZERO.of(0, 0)


def check_reals(t: Tensor, wanted: Range, complaint: Complaint, operation: str) -> None:
    """Asserts a range for real numbers. Of these the host keeps none, so on cpu, where nobody waits for a GPU, they are read."""
    t = every_example(t.detach())
    if t._tab_meta.device.type == "cpu" and STATE.held is None:
        bad = wanted.first_bad(t.reshape(-1).tolist())
        if bad is not None:
            raise complaint.of(bad, wanted.high)
        return
    assert_range(t, wanted, complaint, operation)


def expanded(m: Meta, shape: tuple[int, ...]) -> Meta:
    """`m` seen in a broadcast shape."""
    return m if m.shape == shape else m.view(shape, broadcast_strides(m, shape), m.offset)


def folded(m: Meta, groups: list[tuple[int, int]]) -> Meta | None:
    """`m` with each range of dimensions merged into one, or None where its strides do not allow that."""
    shape: list[int] = []
    strides: list[int] = []
    for a, b in groups:
        sizes, steps = collapse(m.shape[a:b], m.strides[a:b])
        if len(sizes) > 1:
            return None
        shape.append(sizes[0] if sizes else 1)
        strides.append(steps[0] if steps else 0)
    return m.view(tuple(shape), tuple(strides), m.offset)


class Layout:
    """How an indexing with tensors reads or writes, with as few dimensions as its strides allow. Interned by `layout`.

    pattern: per dimension of `source`, the number of its index, or -1 where it is kept.
    domain: shape of what is gathered; its dimensions at .. at + n are those of the indices.
    shape: the same as PyTorch shows it.
    """

    __slots__ = ("at", "domain", "ins", "n", "pattern", "shape", "source")

    def __init__(
        self,
        source: Meta,
        ins: tuple[Meta, ...],
        pattern: tuple[int, ...],
        at: int,
        shape: tuple[int, ...],
    ) -> None:
        self.shape = shape
        self.pattern = pattern
        self.at = at
        self.source = source
        self.ins = ins
        self.n = ins[0].ndim
        kept = [n for n, j in zip(source.shape, pattern) if j < 0]
        self.domain = (*kept[:at], *ins[0].shape, *kept[at:])

    def sizes(self) -> tuple[Any, ...]:
        """What of it hangs on sizes, for schedules.py."""
        return (self.source, self.ins, tuple(self.shape))

    def rest(self) -> tuple[Any, ...]:
        """What does not."""
        return (self.pattern, self.at)

    @classmethod
    def of_parts(cls, sizes: tuple[Any, ...], rest: tuple[Any, ...]) -> Layout:
        """The layout with these `sizes` and this `rest`."""
        source, ins, shape = sizes
        pattern, at = rest
        return cls(source, ins, pattern, at, shape)

    @property
    def key(self) -> tuple:
        return (self.pattern, self.at, self.n)


@remembered
def layout(source: Meta, given: tuple[Meta | None, ...]) -> Layout:
    """The layout of `source[given]`, where None keeps a dimension and the others are index tensors of one common shape."""
    given = given + (None,) * (source.ndim - len(given))
    ins = tuple(m for m in given if m is not None)
    where_ = [d for d, m in enumerate(given) if m is not None]
    together = where_[-1] - where_[0] + 1 == len(where_)
    lead = where_[0] if together else 0
    common = tuple(ins[0].shape)
    kept = [source.shape[d] for d, m in enumerate(given) if m is None]
    shape = (*kept[:lead], *common, *kept[lead:])
    # kept dimensions in a run become one where the source's strides allow
    groups: list[tuple[int, int]] = []
    pattern: list[int] = []
    for d, m in enumerate(given):
        if m is not None:
            groups.append((d, d + 1))
            pattern.append(where_.index(d))
        elif groups and pattern[-1] < 0 and folded(source, [(groups[-1][0], d + 1)]) is not None:
            groups[-1] = (groups[-1][0], d + 1)
        else:
            groups.append((d, d + 1))
            pattern.append(-1)
    small = folded(source, groups)
    assert small is not None
    at = 0
    if together:
        first = pattern.index(0)
        at = first
    # the indices' own dimensions become one where all of them allow
    flat = [folded(m, [(0, m.ndim)]) for m in ins]
    if all(f is not None for f in flat):
        ins = tuple(f for f in flat if f is not None)
    return Layout(small, ins, tuple(pattern), at, shape)


def result_meta(lay: Layout, dtype: Any, device: Any) -> tuple[Meta, Meta]:
    """(the node's output, what the tensor shows)."""
    return contiguous_meta(lay.domain, dtype, device), contiguous_meta(lay.shape, dtype, device)


def source_coords(k: Any, lay: Layout, coords: list[Expr], index: Any, dim: Any) -> list[Expr]:
    """Coordinates in the source of the point `coords` of the domain; `index(j, coords)` loads index j, `dim(v, role)` is a parameter."""
    mine = coords[lay.at : lay.at + lay.n]
    rest = iter(coords[: lay.at] + coords[lay.at + lay.n :])
    out = []
    for d, j in enumerate(lay.pattern):
        if j < 0:
            out.append(next(rest))
        else:
            n = lay.source.shape[d]
            out.append(k.let(wrapped(index(j, mine), dim(n, ("n", d)), dim(n - 1, ("last", d))), "at"))
    return out


def lines(metas: list[Meta], dim: int) -> list[Meta] | None:
    """Views with the dimensions before and after `dim` merged, if all of them can be seen so and agree there."""
    nd = metas[0].ndim
    first = metas[0].shape
    if any(m.shape[:dim] != first[:dim] or m.shape[dim + 1 :] != first[dim + 1 :] for m in metas):
        return None
    out = [folded(m, [(0, dim), (dim, dim + 1), (dim + 1, nd)]) for m in metas]
    return None if any(m is None for m in out) else out  # type: ignore[return-value]
