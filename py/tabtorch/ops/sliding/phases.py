"""What a strided convolution sends back to its input, without products by the zeros between the spread values of a gradient.

Places of the result that are alike modulo the stride take the same elements of the kernel: the stride has that many *phases*. In
one dimension, with place + padding = stride·q + r:

    y[place] = Σⱼ g[q - j] w[r + stride·j]

so that all phases are one convolution by steps of one, with a channel for each phase, whose results are then put between each
other. A dimension with stride 1 has one phase, and may have a dilation.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from tabtorch.core.shapes import remembered
from tabtorch.core.tensor import Tensor
from tabtorch.engine.graph import Inst, inst
from tabtorch.engine.target import on_gpu
from tabtorch.engine.view import Meta, contiguous_meta, contiguous_strides
from tabtorch.ops.linalg.contract import CONTRACT
from tabtorch.ops.machinery.operation import run, view_meta
from tabtorch.ops.shaping.convert import converted
from tabtorch.ops.sliding.sliding_views import Frame, Ints, framed

#: multiplications that have to be saved for two kernels more: on a GPU, and elsewhere
_SAVED, _SAVED_ELSEWHERE = 1 << 26, 1 << 18


class _Dimension(NamedTuple):
    phases: int  # a kernel of one element has one: all other places of the result are 0
    taps: int  # elements of the kernel that a phase takes
    first: int  # the first q
    length: int  # how many of q
    crop: int  # places before the first of the result


class Phases(NamedTuple):
    """How a product by phases is done: see `by_phases`."""

    weight: Frame  # the kernel with as many elements as all phases together take
    gradient: Frame  # what all windows reach of the gradient
    dims: tuple[_Dimension, ...]
    put: Frame  # the result in what the phases make, put between each other


@remembered
def by_phases(g: Meta, w: Meta, size: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Phases | None:
    """How the gradient (N, C, *size) comes of `g` (N, O, *out) and `w` (O, C / groups, *kernel); None: there is no gain."""
    kernel = w.shape[2:]
    if (
        max(stride) == 1
        or any(type(n) is not int for n in (*size, *g.shape, *w.shape))
        or 0 in (*size, *g.shape, *w.shape)
    ):
        return None
    if any(s > 1 and (d > 1 or 1 < k < s) for s, d, k in zip(stride, dilation, kernel)):
        return None
    dims = []
    for n, k, s, p in zip(size, kernel, stride, padding):
        count = (p + n - 1) // s - p // s + 1
        dims.append(_Dimension(s if k > 1 else 1, -(-k // s), p // s, count, p % s))
    spread = prod(size) * prod(kernel)
    left = prod(x.phases * x.taps * x.length for x in dims)
    enough = _SAVED if on_gpu(g.device) else _SAVED_ELSEWHERE
    if 3 * left > 2 * spread or (spread - left) * g.shape[0] * g.shape[1] * w.shape[1] < enough:
        return None
    lead = tuple((n, 0, 1) for n in w.shape[:2])
    weight = lead + tuple((x.phases * x.taps if s > 1 else k, 0, 1) for x, k, s in zip(dims, kernel, stride))
    gradient = tuple((n, 0, 1) for n in g.shape[:2]) + tuple(
        (x.length + d * (x.taps - 1), d * (x.taps - 1) - x.first, 1) for x, d in zip(dims, dilation)
    )
    put = ((g.shape[0], 0, 1), (w.shape[1] * groups, 0, 1)) + tuple(
        (n, -x.crop, s if x.phases < s else 1) for n, x, s in zip(size, dims, stride)
    )
    return Phases(weight, gradient, tuple(dims), put)


@remembered
def _inst(
    g: Meta, w: Meta, dims: tuple[_Dimension, ...], stride: Ints, dilation: Ints, groups: int, dtype: Any
) -> Inst:
    """`g` and `w` are in their frames. Dimensions: batch (N, groups), m = (in channels, phases), n = counts, k = (out channels,
    taps, backwards)."""
    n, o, cg = g.shape[0], w.shape[0], w.shape[1]
    og = o // groups
    nothing = (0,) * len(dims)
    phases, counts, taps = tuple(d.phases for d in dims), tuple(d.length for d in dims), tuple(d.taps for d in dims)
    shape = (n, groups, cg, *phases, *counts, og, *taps)
    along = g.strides[2:]
    gs = (g.strides[0], og * g.strides[1], 0, *nothing, *along, g.strides[1], *(a * d for a, d in zip(along, dilation)))
    step = tuple(a * s for a, s in zip(w.strides[2:], stride))
    ws = (0, og * w.strides[0], w.strides[1], *w.strides[2:], *nothing, w.strides[0], *(-s for s in step))
    last = sum((t - 1) * s for t, s in zip(taps, step))
    flat = contiguous_meta((n, groups, cg, *phases, *counts), dtype, g.device)
    at = len(dims)
    return inst(
        CONTRACT, (view_meta(w, shape, ws, last), view_meta(g, shape, gs)), flat, static=(2, 1 + at, at, 1 + at)
    )


@remembered
def _between(flat: Meta) -> tuple[Meta, Meta]:
    """(N, groups, channels, *phases, *counts) as (N, channels, count, phase, count, phase, …), and with those two as one."""
    at = (flat.ndim - 3) // 2
    n, groups, cg = flat.shape[:3]
    pairs = [k for d in range(at) for k in (3 + at + d, 3 + d)]
    shape = (n, groups * cg, *(flat.shape[k] for k in pairs))
    strides = (flat.strides[0], flat.strides[2], *(flat.strides[k] for k in pairs))
    whole = (n, groups * cg, *(flat.shape[3 + d] * flat.shape[3 + at + d] for d in range(at)))
    return flat.view(shape, strides, 0), flat.view(whole, contiguous_strides(whole), 0)


def product(p: Phases, g: Tensor, w: Tensor, stride: Ints, dilation: Ints, groups: int, dtype: Any) -> Tensor:
    """The gradient (N, C, *size), row-major, of type `dtype`; not recorded."""
    g, w = framed(g, p.gradient), framed(w, p.weight)
    i = _inst(g._tab_meta, w._tab_meta, p.dims, stride, dilation, groups, dtype)
    shown, whole = _between(i.out)
    y = run(i, shown, w, g)
    y = Tensor._view_of(converted(y, shown.shape, dtype), whole)
    return framed(y, p.put)
