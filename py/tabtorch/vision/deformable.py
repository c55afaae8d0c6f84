"""Deformable convolution (Dai et al., 2017; with a mask: Zhu et al., 2019): each tap of the kernel reads the image somewhere else.

What the taps read is gathered in columns, by a kernel; the rest is a product of matrices. So it goes back, too.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import tabtorch as torch
from tabtorch.base import dtypes
from tabtorch.core.tensor import Tensor
from tabtorch.engine.expr import Expr, cast, const, idiv
from tabtorch.engine.graph import Custom, Inst, inst
from tabtorch.engine.kernel import Kernel
from tabtorch.engine.lowering import Lowering
from tabtorch.engine.view import contiguous_meta
from tabtorch.ops.machinery.operation import run
from tabtorch.vision.sampling import Bilinear, coords, flat


class _Taps(NamedTuple):
    """The sizes of a call."""

    image: tuple[int, ...]  # (N, C, H, W)
    kernel: tuple[int, int]
    out: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int  # of channels with offsets of their own
    masked: bool

    @property
    def columns(self) -> tuple[int, ...]:
        """(N, C, taps, height, width of the result)."""
        return (*self.image[:2], prod(self.kernel), *self.out)


class _Tap:
    """Where one tap reads, in the kernel. Inputs from number `first` on are the offsets, then the mask."""

    def __init__(
        self, i: Inst, low: Lowering, k: Kernel, first: int, n: Expr, group: Expr, tap: Expr, y: Expr, x: Expr
    ) -> None:
        s: _Taps = i.static
        at = [n, k.let((group * k.dim(prod(s.kernel), "taps") + tap) * 2), y, x]
        shape = (s.image[0], 2 * s.groups * prod(s.kernel), *s.out)
        self.weight = None
        if s.masked:
            mask = [n, k.let(group * k.dim(prod(s.kernel), "taps") + tap), y, x]
            place = flat(k, mask, (s.image[0], s.groups * prod(s.kernel), *s.out), "mask")
            self.weight = k.let(
                cast(k.load(low.input(first + 1), low.index(k, i.ins[first + 1], place, first + 1)), i.compute), "m"
            )
        row = k.let(idiv(tap, k.dim(s.kernel[1], "kw")), "row")
        column = k.let(tap - row * k.dim(s.kernel[1], "kw"), "column")
        where = []
        for d, (out, part, name) in enumerate(((y, row, "h"), (x, column, "w"))):
            begin = out * k.dim(s.stride[d], "stride" + name) + part * k.dim(s.dilation[d], "dilation" + name)
            place = flat(k, [at[0], at[1] + d, *at[2:]], shape, "offset")
            shift = cast(k.load(low.input(first), low.index(k, i.ins[first], place, first)), i.compute)
            pad = cast(k.dim(s.padding[d], "pad" + name), i.compute)
            where.append(k.let(cast(begin, i.compute) - pad + shift, "at"))
        self.place = Bilinear(k, where[0], where[1], k.dim(s.image[2], "H"), k.dim(s.image[3], "W"), clamped=False)


def _reader(i: Inst, low: Lowering, k: Kernel, j: int, n: Expr, c: Expr) -> Any:
    """Reads pixels of one plane of input `j`, the image."""
    s: _Taps = i.static
    plane = k.let((n * k.dim(s.image[1], "C") + c) * k.dim(s.image[2], "H") * k.dim(s.image[3], "W"), "plane")
    return lambda at: cast(k.load(low.input(j), low.index(k, i.ins[j], plane + at, j)), i.compute)


def _columns(i: Inst, low: Lowering) -> None:
    """(N, C, taps, height, width): what each tap reads. Inputs: image, offsets, mask."""
    s: _Taps = i.static

    def body(k: Kernel, t: Expr) -> None:
        n, c, tap, y, x = coords(k, s.columns, t, prod(s.columns))
        group = k.let(idiv(c, k.dim(s.image[1] // s.groups, "per group")), "group")
        of = _Tap(i, low, k, 1, n, group, tap, y, x)
        v = of.place.read(_reader(i, low, k, 0, n, c))
        k.store_bits(low.output, t, v if of.weight is None else v * of.weight)

    low.launch("deformed columns", prod(s.columns), body)


def _image(i: Inst, low: Lowering) -> None:
    """The gradient of the image. Inputs: gradient of the columns, offsets, mask."""
    s: _Taps = i.static

    def body(k: Kernel, t: Expr) -> None:
        n, c, tap, y, x = coords(k, s.columns, t, prod(s.columns))
        group = k.let(idiv(c, k.dim(s.image[1] // s.groups, "per group")), "group")
        of = _Tap(i, low, k, 1, n, group, tap, y, x)
        grad = k.let(cast(k.load(low.input(0), low.index(k, i.ins[0], t, 0)), i.compute), "grad")
        if of.weight is not None:
            grad = k.let(grad * of.weight, "grad")
        plane = k.let((n * k.dim(s.image[1], "C") + c) * k.dim(s.image[2], "H") * k.dim(s.image[3], "W"), "plane")
        for at, weight, there in of.place.neighbours():
            with k.when(there):
                k.atomic_add(low.output, k.let(plane + at), grad * weight)

    low.clear(low.output)
    low.launch("deformed image", prod(s.columns), body)


def _shifts(i: Inst, low: Lowering) -> None:
    """(N, groups, taps, 2, height, width): the gradient of the offsets; or, (N, groups, taps, height, width), of the mask.

    Inputs: gradient of the columns, image, offsets, mask.
    """
    s: _Taps = i.static
    of_mask = i.op is MASK
    shape = (s.image[0], s.groups, prod(s.kernel), *s.out)

    def body(k: Kernel, t: Expr) -> None:
        n, group, tap, y, x = coords(k, shape, t, prod(shape))
        of = _Tap(i, low, k, 2, n, group, tap, y, x)
        count = k.dim(s.image[1] // s.groups, "per group")
        totals = [k.var(const(0, i.compute)) for _ in range(1 if of_mask else 2)]
        with k.loop(count, hint="c") as j:
            c = k.let(group * count + j, "c")
            read = _reader(i, low, k, 1, n, c)
            place = flat(k, [n, c, tap, y, x], s.columns, "columns")
            grad = k.let(cast(k.load(low.input(0), low.index(k, i.ins[0], place, 0)), i.compute), "grad")
            for total, v in zip(totals, (of.place.read(read),) if of_mask else of.place.slopes(read), strict=True):
                k.assign(total, total + v * grad)
        if of_mask:
            k.store_bits(low.output, t, totals[0])
            return
        for d, total in enumerate(totals):
            at = flat(k, [n, group, tap, const(d, "u32"), y, x], (*shape[:3], 2, *s.out), "shift")
            k.store_bits(low.output, at, total if of.weight is None else total * of.weight)

    low.launch(i.op.name, prod(shape), body)


COLUMNS, IMAGE = Custom("deformed columns", _columns), Custom("deformed image", _image)
SHIFTS, MASK = Custom("deformed offsets", _shifts), Custom("deformed mask", _shifts)


def _run(op: Custom, s: _Taps, shape: tuple[int, ...], inputs: list[Tensor], dtype: Any = None) -> Tensor:
    m = inputs[0]._tab_meta
    if not s.masked:
        inputs = inputs[:-1]
    compute = "f64" if m.dtype is dtypes.float64 else "f32"
    out = contiguous_meta(shape, dtype or m.dtype, m.device)
    return run(inst(op, tuple([x._tab_meta for x in inputs]), out, (), s, compute), out, *inputs)


def _taps(input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, *sizes: Any) -> _Taps:
    """The call's sizes, checked as torchvision does. RuntimeError for those that do not fit."""
    (sh, sw, ph, pw, dh, dw, groups, offset_groups, masked) = sizes
    torch._check(input.dim() == 4, lambda: "Expected 4D tensor")
    torch._check(offset.dim() == 4, lambda: "Expected 4D tensor")
    torch._check(not masked or mask.dim() == 4, lambda: "Expected 4D tensor")
    torch._check(weight.dim() == 4, lambda: "Expected 4D tensor")
    n, c, h, w = input.shape
    kh, kw = weight.shape[2:]
    torch._check(kh > 0 and kw > 0, lambda: f"weight_h: {kh} weight_w: {kw}")
    torch._check(sh > 0 and sw > 0, lambda: f"stride_h: {sh} stride_w: {sw}")
    torch._check(ph >= 0 and pw >= 0, lambda: f"pad_h: {ph} pad_w: {pw}")
    torch._check(dh > 0 and dw > 0, lambda: f"dil_h: {dh} dil_w: {dw}")
    torch._check(weight.size(1) * groups == c, lambda: f"{weight.size(1) * groups} != {c}")
    torch._check(weight.size(0) % groups == 0, lambda: f"{weight.size(0)} % {groups}")
    torch._check(
        offset.size(1) == offset_groups * 2 * kh * kw,
        lambda: f"offset.shape[1] is not valid: got: {offset.size(1)} expected: {offset_groups * 2 * kh * kw}",
    )
    torch._check(
        not masked or mask.size(1) == offset_groups * kh * kw,
        lambda: f"mask.shape[1] is not valid: got: {mask.size(1)} expected: {offset_groups * kh * kw}",
    )
    torch._check(c % offset_groups == 0, lambda: f"{c} % {offset_groups}")
    torch._check(offset.size(0) == n, lambda: "invalid batch size of offset")
    out = ((h + 2 * ph - dh * (kh - 1) - 1) // sh + 1, (w + 2 * pw - dw * (kw - 1) - 1) // sw + 1)
    torch._check(
        offset.shape[2:] == out,
        lambda: (
            f"offset output dims: ({offset.size(2)}, {offset.size(3)}) - computed output dims: ({out[0]}, {out[1]})"
        ),
    )
    if masked:
        torch._check(mask.size(0) == n, lambda: "invalid batch size of mask")
        torch._check(
            mask.shape[2:] == out,
            lambda: f"mask output dims: ({mask.size(2)}, {mask.size(3)}) - computed output dims: ({out[0]}, {out[1]})",
        )
    torch._check(
        out[0] > 0 and out[1] > 0, lambda: f"Calculated output size too small - out_h: {out[0]} out_w: {out[1]}"
    )
    return _Taps((n, c, h, w), (kh, kw), out, (sh, sw), (ph, pw), (dh, dw), offset_groups, bool(masked))


def deform_conv2d(
    input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, stride_h: int, stride_w: int, pad_h: int,
    pad_w: int, dilation_h: int, dilation_w: int, groups: int, offset_groups: int, use_mask: bool,
) -> Tensor:  # fmt: skip
    """input (N, C, H, W), weight (O, C / groups, kh, kw), offset (N, 2 · offset_groups · kh · kw, H', W') as y, x of each tap,
    mask (N, offset_groups · kh · kw, H', W'), bias (O,): (N, O, H', W'). RuntimeError for sizes that do not fit."""
    sizes = stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups, offset_groups, use_mask
    s = _taps(input, weight, offset, mask, bias, *sizes)
    n, o = input.size(0), weight.size(0)
    columns = _run(COLUMNS, s, s.columns, [input, offset, mask]).reshape(
        n, groups, s.image[1] // groups * prod(s.kernel), prod(s.out)
    )
    made = weight.reshape(groups, o // groups, -1) @ columns
    return made.reshape(n, o, *s.out) + bias.reshape(-1, 1, 1)


def deform_conv2d_backward(
    grad: Tensor, input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, *sizes: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of input, weight, offset, mask and bias."""
    s = _taps(input, weight, offset, mask, bias, *sizes)
    n, o, groups = input.size(0), weight.size(0), sizes[6]
    torch._check(
        grad.shape == (n, o, *s.out), lambda: f"expected grad of shape {(n, o, *s.out)}, got {tuple(grad.shape)}"
    )
    flat_grad = grad.reshape(n, groups, o // groups, prod(s.out))
    columns = _run(COLUMNS, s, s.columns, [input, offset, mask]).reshape(
        n, groups, s.image[1] // groups * prod(s.kernel), prod(s.out)
    )
    of_weight = (flat_grad @ columns.transpose(-2, -1)).sum(0).reshape(weight.shape)
    of_columns = (weight.reshape(groups, o // groups, -1).transpose(-2, -1) @ flat_grad).reshape(s.columns)
    wide = dtypes.float32 if input.element_size() < 4 else input.dtype  # sums of half precision are made in single
    of_input = _run(IMAGE, s, s.image, [of_columns, offset, mask], wide).to(input.dtype)
    shape = (n, s.groups, prod(s.kernel), 2, *s.out)
    of_offset = _run(SHIFTS, s, shape, [of_columns, input, offset, mask]).reshape(offset.shape)
    of_mask = torch.zeros_like(mask)
    if s.masked:
        of_mask = _run(MASK, s, (*shape[:3], *s.out), [of_columns, input, offset, mask]).reshape(mask.shape)
    return of_input, of_weight, of_offset, of_mask, grad.sum((0, 2, 3))


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:5])
    ctx.sizes = inputs[5:]


def _gradient(ctx: Any, grad: Tensor) -> Any:
    return (*deform_conv2d_backward(grad, *ctx.saved_tensors, *ctx.sizes), *[None] * 9)


_ARGUMENTS = (
    "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, SymInt pad_h, "
    "SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask"
)
OPERATORS = {
    f"deform_conv2d({_ARGUMENTS}) -> Tensor": (deform_conv2d, (_setup, _gradient)),
    f"_deform_conv2d_backward(Tensor grad, {_ARGUMENTS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)": (
        deform_conv2d_backward,
        None,
    ),
}
