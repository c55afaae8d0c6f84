"""What convolution and pooling share: sizes of windows, padded and spread inputs, and views that show every window."""

from __future__ import annotations

from math import prod
from typing import Any

from tabtorch import _lazy
from tabtorch.base import dtypes
from tabtorch.core.shapes import one_or_more, remembered
from tabtorch.core.tensor import Tensor
from tabtorch.engine.expr import Expr, const, idiv, minimum, where
from tabtorch.engine.graph import Inst, Map, inst
from tabtorch.engine.view import Meta, contiguous_meta
from tabtorch.ops.machinery.operation import run

Ints = tuple[int, ...]


def expand_ints(value: Any, n: int, name: str = "") -> Ints:
    """A number or a sequence of 1 or n numbers as n numbers."""
    if isinstance(value, int):
        return (value,) * n
    v = one_or_more(value, arg=name)
    if len(v) == 1 and n > 1:
        return v * n
    if len(v) != n:
        raise RuntimeError(
            f"expected {name} to be a single integer value or a list of {n} values to match the convolution dimensions, "
            f"but got {name}={list(v)}"
        )
    return v


# ---- a value laid out in a larger frame

#: per dimension: (size of the frame, where the first element goes (may be negative), distance of neighbours)
Frame = tuple[tuple[int, int, int], ...]


def _framed_at(p: Any) -> Any:
    frame, fill = p.static
    m = p.inst.ins[0]
    at: list[Expr] = []
    inside: Expr | None = None
    for d, (n, first, step) in enumerate(frame):
        c = p.coords[d]
        size = m.shape[d]
        if first == 0 and step == 1 and n == size:
            at.append(c)
            continue
        # a place before the first wraps to a large number, so one comparison does for both ends
        c = c - p.dim(first, ("first", d))
        if step != 1:
            q = p.k.let(idiv(c, p.dim(step, ("step", d))), "q")
            ok = (q * p.dim(step, ("step", d)) == c) & (q < p.dim(size, ("size", d)))
            c = q
        else:
            c = p.k.let(c, "q")
            ok = c < p.dim(size, ("size", d))
        inside = ok if inside is None else inside & ok
        at.append(minimum(c, p.dim(size - 1, ("last", d))))
    v = p.at(0, at)
    if inside is None:
        return v
    return where(inside, v, _fill(fill, v.type, m.dtype))


def _fill(fill: str, t: str, d: Any) -> Any:
    if fill == "zero":
        return const(0, t)
    if d.category == 1:  # what is stored has fewer bits than what is computed with
        return const(dtypes.iinfo(d).min, t)
    return _lazy.reduce._lowest(t)


#: dear enough that a contraction, which reads each place many times, has it stored
FRAMED = Map("frame", _framed_at, indexed=True, cost=8, sized=True)


def _spaced_at(p: Any) -> Any:
    """The same for a frame whose last dimensions are powers of two: a place is taken apart by shifts, not divisions. A place
    outside is looked up all the same, which WebGPU allows, and not used."""
    frame, bits = p.static
    m = p.inst.ins[0]
    shape = p.inst.out.shape
    rest = p.index
    at: Any = None
    inside: Any = None
    for d in range(m.ndim - 1, 1, -1):
        first, step = frame[d]
        c = rest & p.dim(shape[d] - 1, ("mask", d))
        rest = p.k.let(rest >> p.dim(bits[d], ("bits", d)), "rest")
        c = p.k.let(c - p.dim(first, ("first", d)) if first else c, "q")
        size = p.dim(m.shape[d], ("size", d))
        ok = c < size
        if step != 1:
            q = p.k.let(idiv(c, p.dim(step, ("step", d))), "q")
            ok = (q * p.dim(step, ("step", d)) == c) & (q < size)
            c = q
        inside = ok if inside is None else inside & ok
        part = c if m.strides[d] == 1 else c * p.dim(m.strides[d], ("stride", d))
        at = part if at is None else at + part
    channel = p.dim(m.strides[1], ("stride", 1))
    if m.strides[0] == m.shape[1] * m.strides[1]:
        at = rest * channel + at
    else:
        count = p.dim(m.shape[1], ("size", 1))
        sample = p.k.let(idiv(rest, count), "sample")
        at = sample * p.dim(m.strides[0], ("stride", 0)) + (rest - sample * count) * channel + at
    if m.offset:
        at = at + p.k.offset((p.pos, 0))
    v = p.values.element(p.pos, 0, at)
    return where(inside, v, const(0, v.type))


#: cheap enough that a contraction reads through it
_SPACED = Map("frame", _spaced_at, indexed=True, cost=3, sized=True)


@remembered
def _spaced_inst(m: Meta, frame: Frame) -> Inst | None:
    """None where it is no frame of two leading dimensions as they are, or has too many places."""
    bits = (0, 0, *((n - 1).bit_length() for n, _, _ in frame[2:]))
    shape = (*m.shape[:2], *(2**b for b in bits[2:]))
    if any(f != (n, 0, 1) for f, n in zip(frame[:2], m.shape)) or prod(shape) > 2**31 or m.mark:
        return None
    return inst(_SPACED, (m,), contiguous_meta(shape, m.dtype, m.device), (), (tuple(f[1:] for f in frame), bits))


def framed_for_tiles(x: Tensor, frame: Frame) -> Tensor:
    """What `framed` gives in the corner of a larger frame, which a contraction in tiles need not have stored."""
    m = x._tab_meta
    if m.numel and not all(n == s and first == 0 for (n, first, _), s in zip(frame, m.shape)):
        i = _spaced_inst(m, frame)
        if i is not None:
            return run(i, i.out, x)
    return framed(x, frame)


@remembered
def _framed_inst(m: Meta, frame: Frame, fill: str) -> Inst:
    return inst(FRAMED, (m,), contiguous_meta(tuple(n for n, _, _ in frame), m.dtype, m.device), (), (frame, fill))


def framed(x: Tensor, frame: Frame, fill: str = "zero") -> Tensor:
    """`x` laid out in a frame of zeros (or of the lowest value); itself where the frame is what it is. Not recorded."""
    m = x._tab_meta
    if all(n == s and first == 0 for (n, first, _), s in zip(frame, m.shape)):
        return x
    if m.numel == 0:
        return x.new_zeros(tuple(n for n, _, _ in frame))
    i = _framed_inst(m, frame, fill)
    return run(i, i.out, x)


def padded(x: Tensor, before: Ints, after: Ints, fill: str = "zero") -> Tensor:
    """`x` with its last dimensions padded."""
    frame = padded_frame(x._tab_meta.shape, before, after)
    return framed(x, frame, fill) if frame else x


@remembered
def padded_frame(shape: Ints, before: Ints, after: Ints) -> Frame:
    if not any(before) and not any(after):
        return ()
    lead = len(shape) - len(before)
    return tuple((n, 0, 1) for n in shape[:lead]) + tuple(
        (b + n + a, b, 1) for n, b, a in zip(shape[lead:], before, after, strict=True)
    )


def out_size(
    n: int, k: int, pad: int, stride: int, dilation: int, ceil: bool = False, pad_after: int | None = None
) -> int:
    """How many windows fit. With `ceil`, one that begins inside but ends outside counts too."""
    room = n + pad + (pad if pad_after is None else pad_after) - dilation * (k - 1) - 1
    r = (room + (stride - 1 if ceil else 0)) // stride + 1
    if ceil and (r - 1) * stride >= n + pad:
        r -= 1
    return r
