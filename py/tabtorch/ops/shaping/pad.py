"""Padding: a number around the tensor, or elements of the tensor mirrored, repeated or wrapped. One indexed map each."""

from __future__ import annotations

from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.tape import record
from tabtorch.core.layout import suggested_order
from tabtorch.core.shapes import ints, permuted
from tabtorch.core.tensor import Tensor
from tabtorch.engine.expr import Expr, cast, const, minimum, where
from tabtorch.engine.graph import Map, emit, inst
from tabtorch.engine.view import Meta, contiguous_meta, meta, ordered_strides
from tabtorch.ops.machinery.promotion import NUMBERS, check_kernel
from tabtorch.ops.machinery.registry import register
from tabtorch.ops.shaping.convert import as_cloned
from tabtorch.ops.sliding.sliding_views import Ints

#: (before, after) of each dimension
Sides = tuple[tuple[int, int], ...]


def _inside(p: Any, d: int, c: Expr, before: int, n: int) -> tuple[Expr, Expr]:
    """(coordinate in the source, clamped; whether it is inside), of coordinate c of the result."""
    c = c - p.dim(before & 0xFFFFFFFF, ("before", d))  # wraps to a large number in front of the source
    return minimum(c, p.dim(n - 1, ("last", d))), c < p.dim(n, ("n", d))


def _constant_at(p: Any) -> Any:
    m = p.inst.ins[0]
    coords: list[Expr] = []
    inside: Any = None
    for d, (before, after) in enumerate(p.static):
        c = p.coords[d]
        if before or after:
            c, ok = _inside(p, d, c, before, m.shape[d])
            c = p.k.let(c, "c")
            inside = ok if inside is None else inside & ok
        coords.append(c)
    v = p.at(0, coords)
    return v if inside is None else where(inside, v, p.scalar(0))


def _borrowed_at(kind: str) -> Any:
    def at(p: Any) -> Any:
        m = p.inst.ins[0]
        coords: list[Expr] = []
        for d, (before, after) in enumerate(p.static):
            c = p.coords[d]
            if before or after:
                n = cast(p.dim(m.shape[d], ("n", d)), "i32")
                i = cast(c, "i32") - cast(p.dim(before & 0xFFFFFFFF, ("before", d)), "i32")
                if kind == "reflect":
                    i = where(i < 0, -i, i)
                    i = where(i >= n, n + n - 2 - i, i)
                elif kind == "circular":
                    i = where(i < 0, i + n, i)
                    i = where(i >= n, i - n, i)
                else:
                    i = where(i < 0, const(0, "i32"), i)
                c = p.k.let(minimum(cast(i, "u32"), p.dim(m.shape[d] - 1, ("last", d))), "c")
            coords.append(c)
        return p.at(0, coords)

    return at


_CONSTANT = Map("constant_pad_nd", _constant_at, indexed=True, cost=4, sized=True)
_BORROWED = {
    kind: Map(kind + "_pad", _borrowed_at(kind), indexed=True, cost=5, sized=True)
    for kind in ("reflect", "replicate", "circular")
}


def _laid_out(m: Meta, shape: Ints, sides: Sides, order: Ints) -> tuple[Meta, Meta, Sides, Meta]:
    """(source, result, its sides, the result as it is seen), of which the first three have their dimensions in the order in
    which the result lies in memory (none: row-major): kernels write row by row."""
    shown = contiguous_meta(shape, m.dtype, m.device)
    if not order:
        return m, shown, sides, shown
    inner = contiguous_meta(tuple([shape[d] for d in order]), m.dtype, m.device)
    shown = meta(shape, ordered_strides(shape, order), 0, m.dtype, m.device)
    return permuted(m, order), inner, tuple([sides[d] for d in order]), shown


def _sides(ndim: int, pad: tuple[int, ...]) -> Sides:
    out = [(0, 0)] * ndim
    for i in range(len(pad) // 2):
        out[ndim - 1 - i] = (pad[2 * i], pad[2 * i + 1])
    return tuple(out)


def _check_length(x: Tensor, pad: tuple[int, ...]) -> None:
    if len(pad) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    if len(pad) > 2 * x._tab_meta.ndim:
        raise RuntimeError(
            "Padding length should be less than or equal to two times the input dimension but got padding length "
            f"{len(pad)} and input of dimension {x._tab_meta.ndim}"
        )


@register("constant_pad_nd")
def constant_pad_nd(input: Tensor, pad: Any, value: Any = 0) -> Tensor:
    """`input` with `value` around it: pad = (left, right) of the last dimension, then of the one before it, … Negative crops."""
    pad = ints((pad,), "constant_pad_nd", "pad")
    _check_length(input, pad)
    m = input._tab_meta
    sides = _sides(m.ndim, pad)
    shape = []
    for d, (n, (a, b)) in enumerate(zip(m.shape, sides)):
        if n + a + b < 0:
            if max(-a, 0) + max(-b, 0) > n:
                raise RuntimeError("narrow(): length must be non-negative.")
            raise RuntimeError(
                f"The input size {n}, plus negative padding {a} and {b} resulted in a negative output size, which is invalid. "
                f"Check dimension {d} of your input."
            )
        shape.append(n + a + b)
    v = _lazy.creation.number(value, m.dtype)
    if 0 in shape or m.numel == 0:
        r = input.new_full(shape, value)
    else:
        source, om, at, shown = _laid_out(m, tuple(shape), sides, suggested_order(m))
        i = inst(_CONSTANT, (source,), om, (m.dtype.compute,), at)
        r = Tensor._wrap(emit(i, (input._tab_storage.node,), (v,)), shown)
        if max(pad, default=0) <= 0:  # to PyTorch a copy of a part
            first = sum([-a * st for (a, _), st in zip(sides, m.strides)])
            r = as_cloned(r, m.view(shown.shape, m.strides, m.offset + first))
    if input._tab_requires_grad:
        back = tuple(-n for n in pad)
        record("ConstantPadNdBackward0", (input,), r, lambda g: constant_pad_nd(g, back, 0))
    return r


_KERNELS = {"reflect": "reflection_pad{}d", "replicate": "replication_pad{}d"}
_NAMES = {"reflect": "ReflectionPad{}DBackward0", "replicate": "ReplicationPad{}DBackward0", "circular": "CopySlices"}


def pad(input: Tensor, pad: Any, mode: str = "constant", value: Any = None) -> Tensor:
    """`torch.nn.functional.pad`: mode "constant" (with `value`, default 0), "reflect", "replicate" or "circular".

    The last three pad the last 1 to 3 dimensions of a tensor that has one or two more. Raises as PyTorch.
    """
    return _padded(input, ints((pad,), "pad", "pad"), mode, value)


def _padded(input: Tensor, pads: tuple[int, ...], mode: str, value: Any = None) -> Tensor:
    if mode == "constant":
        return constant_pad_nd(input, pads, 0 if value is None else value)
    _check_length(input, pads)
    if value is not None and value != 0:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    m = input._tab_meta
    k = len(pads) // 2
    if k not in (1, 2, 3) or m.ndim not in (k + 1, k + 2):
        raise NotImplementedError(
            f"Padding size {len(pads)} is not supported for {m.ndim}D input tensor.\n"
            "Supported combinations for non-constant padding:\n"
            "  - 2D or 3D input: padding size = 2 (pads last dimension)\n"
            "  - 3D or 4D input: padding size = 4 (pads last 2 dimensions)\n"
            "  - 4D or 5D input: padding size = 6 (pads last 3 dimensions)"
        )
    if mode not in _BORROWED:
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    sides = _sides(m.ndim, pads)
    for i in range(k):
        d = m.ndim - 1 - i
        a, b = sides[d]
        n = m.shape[d]
        if mode == "reflect" and (a >= n or b >= n):
            raise RuntimeError(
                f"Argument #{4 + 2 * i}: Padding size should be less than the corresponding input dimension, but got: "
                f"padding ({a}, {b}) at dimension {d} of input {list(m.shape)}"
            )
        if mode == "circular":
            if a > n or b > n:
                raise RuntimeError("Padding value causes wrapping around more than once.")
            if a + b + n < 0:
                raise RuntimeError("Negative padding value is resulting in an empty dimension")
        if mode == "circular" and (a < 0 or b < 0):  # what is cropped is not there to be wrapped around
            crop = tuple(min(v, 0) for v in pads)
            return _padded(constant_pad_nd(input, crop), tuple(max(v, 0) for v in pads), mode)
        if n + a + b < 1:
            raise RuntimeError(f"input (W: {n}) is too small. Calculated output W: {n + a + b}")
    if mode in _KERNELS:
        check_kernel(_KERNELS[mode].format(k), m.dtype, NUMBERS)
    padded = tuple(n + a + b for n, (a, b) in zip(m.shape, sides))
    if 0 in padded:
        r = input.new_empty(padded)
    else:
        order = suggested_order(m) if mode != "circular" else ()
        source, om, at, shown = _laid_out(m, padded, sides, order)
        r = Tensor._wrap(emit(inst(_BORROWED[mode], (source,), om, (), at), (input._tab_storage.node,)), shown)
    if input._tab_requires_grad:
        shape = tuple(m.shape)
        record(_NAMES[mode].format(k), (input,), r, lambda g: _pad_back(g, shape, sides, mode))
    return r


def _pad_back(g: Tensor, shape: tuple[int, ...], sides: Sides, mode: str) -> Tensor:
    """Each element of `g` added to the one it came from, a dimension at a time."""
    for d, (a, b) in enumerate(sides):
        if not (a or b):
            continue
        n = shape[d]
        at = _source(_lazy.ranges.arange(-a, n + b, device=g.device), n, mode)
        s = g._tab_meta.shape
        g = g.new_zeros((*s[:d], n, *s[d + 1 :])).index_add(d, at, g)
    return g


def _source(i: Any, n: int, mode: str) -> Any:
    """Where in a dimension of size `n` each place `i` of the result comes from, counted from the first that is not padding."""
    if mode == "circular":
        return i % n
    if mode == "reflect":
        return (n - 1) - ((n - 1) - i.abs()).abs()
    return i.clamp(0, n - 1)
