"""Convolutions of 1 to 3 dimensions, and transposed ones.

Three functions, each one contraction over a view that shows every window of the (padded) input: the convolution itself, its
gradient for the input (a transposed convolution is this one), and its gradient for the weight. They are the three ways to
leave one factor out of the same sum  Σ g[o] w[k] x[o·stride + k·dilation - padding], so the gradients of each are the others.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tabtorch.autograd.grad_mode import STATE
from tabtorch.autograd.tape import record, type_string
from tabtorch.base import dtypes
from tabtorch.base.dtypes import cxx_name
from tabtorch.core.layout import suggested_order
from tabtorch.core.shapes import permuted, remembered, type_name, unsqueezed
from tabtorch.core.tensor import Tensor
from tabtorch.engine import tiles
from tabtorch.engine.graph import Inst, Map, inst
from tabtorch.engine.target import on_gpu, target
from tabtorch.engine.view import Meta, contiguous_meta, meta, ordered_strides
from tabtorch.ops.linalg.contract import CONTRACT, wide_dtype
from tabtorch.ops.machinery.operand_devices import together
from tabtorch.ops.machinery.operation import run, view_meta
from tabtorch.ops.machinery.promotion import FLOATING_COMPLEX, NUMBERS, check_kernel
from tabtorch.ops.machinery.registry import function, register
from tabtorch.ops.rows.row_helpers import conj
from tabtorch.ops.shaping.convert import in_order
from tabtorch.ops.sliding import phases
from tabtorch.ops.sliding.sliding_views import (
    Frame,
    Ints,
    expand_ints,
    framed,
    framed_for_tiles,
    out_size,
    padded_frame,
)

#: stride, padding, dilation (one number a dimension each), groups
Geometry = tuple[Ints, Ints, Ints, int]


# ---- the three contractions


def _by_onednn(x: Meta, w: Meta, geo: Geometry, size: Ints) -> bool:
    """Whether PyTorch leaves a 3-d convolution to oneDNN, which keeps channels last; its own kernels give rows."""
    stride, padding, dilation, groups = geo
    base = [
        (n - 1) * s - 2 * p + d * (k - 1) + 1
        for n, k, s, p, d in zip(x.shape[2:], w.shape[2:], stride, padding, dilation)
    ]
    if any(n - b >= s for n, b, s in zip(size, base, stride)):  # output_padding that oneDNN has not
        return False
    if x.dtype in (dtypes.float16, dtypes.bfloat16):
        return True
    large = min(w.shape[-2:]) > 3 or prod(x.shape[:4]) > 20480
    return x.dtype in (dtypes.float32, dtypes.complex64) and (groups > 1 or x.shape[0] > 1 or large)


@remembered
def _order(x: Meta, w: Meta, geo: Geometry, size: Ints = ()) -> Ints:
    """The order of dimensions in which PyTorch gives the result: channels last where it takes input or weight to be so, else
    row-major: (). One dimension is two to it, of an input that it has made row-major. size: of a transposed one's result."""
    if x.ndim == 3:
        last = suggested_order(unsqueezed(w, 2))
    elif x.ndim == 5 and not _by_onednn(x, w, geo, size):
        last = ()
    else:
        last = suggested_order(x) or suggested_order(w)
    return (0, *range(2, x.ndim), 1) if last else ()


def _product(
    w: Meta, x: Meta, shape: Ints, ws: Ints, xs: Ints, last: int, dtype: Any, order: Ints
) -> tuple[Inst, Meta, bool]:
    """(instruction, Meta of the result (N, channels, *size), whether the input comes first) of a contraction with `shape`,
    (N, groups, channels, *size, channels summed, *kernel); `last`: where the weight begins.

    The result of one group in channels last is the same with the operands exchanged, so that it is stored as it should lie.
    """
    size = (len(shape) - 4) // 2
    n, groups, channels = shape[:3]
    shown = contiguous_meta((n, groups * channels, *shape[3 : 3 + size]), dtype, x.device)
    if not order or groups > 1:
        flat = contiguous_meta(shape[: 3 + size], dtype, x.device)
        ins = (view_meta(w, shape, ws, last), view_meta(x, shape, xs))
        return inst(CONTRACT, ins, flat, static=(2, 1, size, 1 + size)), shown, False
    turn = (0, 1, *range(3, 3 + size), 2, *range(3 + size, len(shape)))
    ins = (permuted(view_meta(x, shape, xs), turn), permuted(view_meta(w, shape, ws, last), turn))
    flat = contiguous_meta(ins[0].shape[: 3 + size], dtype, x.device)
    shown = meta(shown.shape, ordered_strides(shown.shape, order), 0, dtype, x.device)
    return inst(CONTRACT, ins, flat, static=(2, size, 1, 1 + size)), shown, True


@remembered
def _forward_inst(x: Meta, w: Meta, geo: Geometry, out: Ints, dtype: Any, order: Ints) -> tuple[Inst, Meta, bool]:
    """What `_product` gives. `x` is padded already.

    Dimensions: batch (N, groups), m = out channels, n = out size, k = (in channels, kernel).
    """
    stride, _, dilation, groups = geo
    n = x.shape[0]
    o, cg, *kernel = w.shape
    og = o // groups
    sp = x.strides[2:]
    xs = (
        x.strides[0], cg * x.strides[1], 0, *(s * t for s, t in zip(sp, stride)),
        x.strides[1], *(s * d for s, d in zip(sp, dilation)),
    )  # fmt: skip
    ws = (0, og * w.strides[0], w.strides[0], *(0,) * len(out), *w.strides[1:])
    return _product(w, x, (n, groups, og, *out, cg, *kernel), ws, xs, 0, dtype, order)


@remembered
def _weight_inst(g: Meta, x: Meta, kernel: Ints, geo: Geometry) -> tuple[Inst, Meta]:
    """`x` is padded already. Dimensions: batch (groups), m = out channels, n = (in channels, kernel), k = (N, out size)."""
    stride, _, dilation, groups = geo
    n, o, *out = g.shape
    cg = x.shape[1] // groups
    og = o // groups
    sp = x.strides[2:]
    z = (0,) * len(kernel)
    gs = (og * g.strides[1], g.strides[1], 0, *z, g.strides[0], *g.strides[2:])
    xs = (
        cg * x.strides[1], 0, x.strides[1], *(s * d for s, d in zip(sp, dilation)),
        x.strides[0], *(s * t for s, t in zip(sp, stride)),
    )  # fmt: skip
    shape = (groups, og, cg, *kernel, n, *out)
    dims = (1, 1, 1 + len(kernel), 1 + len(kernel))
    flat = contiguous_meta((groups, og, cg, *kernel), x.dtype, x.device)
    i = inst(CONTRACT, (view_meta(g, shape, gs), view_meta(x, shape, xs)), flat, static=dims)
    return i, contiguous_meta((o, cg, *kernel), x.dtype, x.device)


@remembered
def _input_inst(g: Meta, w: Meta, size: Ints, geo: Geometry, dtype: Any, order: Ints) -> tuple[Inst, Meta, bool]:
    """What `_product` gives. `g` is spread and padded already, so that the kernel, read backwards, slides over it by ones.

    Dimensions: batch (N, groups), m = in channels, n = in size, k = (out channels, kernel).
    """
    _, _, dilation, groups = geo
    n = g.shape[0]
    o, cg, *kernel = w.shape
    og = o // groups
    sp = g.strides[2:]
    gs = (
        g.strides[0], og * g.strides[1], 0, *sp,
        g.strides[1], *(s * d for s, d in zip(sp, dilation)),
    )  # fmt: skip
    # the kernel backwards: negative strides from its last element
    ws = (0, og * w.strides[0], w.strides[1], *(0,) * len(size), w.strides[0], *(-s for s in w.strides[2:]))
    last = sum((k - 1) * s for k, s in zip(kernel, w.strides[2:]))
    return _product(w, g, (n, groups, cg, *size, og, *kernel), ws, gs, last, dtype, order)


# ---- recorded, each with the others as gradients


_BIAS = Map("bias", lambda y, b: y + b)


@remembered
def _bias_inst(y: Meta, b: Meta, order: Ints) -> tuple[Inst, Meta]:
    along = b.view(y.shape, (0, b.strides[0], *(0,) * (y.ndim - 2)), b.offset)
    shown = contiguous_meta(y.shape, b.dtype, y.device)
    if order:
        shown = meta(y.shape, ordered_strides(y.shape, order), 0, b.dtype, y.device)
        y, along = permuted(y, order), permuted(along, order)
    return inst(_BIAS, (y, along), contiguous_meta(y.shape, b.dtype, y.device)), shown


def _finished(product: tuple[Inst, Meta, bool], w: Tensor, x: Tensor, b: Tensor | None, order: Ints) -> Tensor:
    """What `_product` says, with the bias added, laid out in `order` of dimensions (none: row-major)."""
    i, shown, turned = product
    return _with_bias(run(i, shown, x, w) if turned else run(i, shown, w, x), b, order)


def _with_bias(y: Tensor, b: Tensor | None, order: Ints) -> Tensor:
    if b is None:
        return in_order(y, order)
    i, shown = _bias_inst(y._tab_meta, b._tab_meta, order)
    return run(i, shown, y, b)


def _first_dtype(x: Tensor, b: Tensor | None) -> Any:
    """Halves stay float32 until the bias is added, so that they are rounded once."""
    d = x._tab_meta.dtype
    return d if b is None else wide_dtype(d)


#: multiplications of a product that reads through a frame
_THROUGH = 1 << 27
#: terms of a result, so few that it reads through the frame though no tiles compute it: a depthwise kernel's
_FEW = 32


def _laid(x: Tensor, frame: Frame, batch: int, m: int, n: int, k: int) -> Tensor:
    """`x` in a frame of zeros (none: as it is), for a product of these sizes.

    On a GPU that computes it in tiles, or of few terms each, the frame need not be stored. What that takes to find each value makes
    a large product a fifth slower, and is less than a launch in a small one. Of a size that an export leaves open nothing is
    asked: an answer would hold for some sizes only.
    """
    if not frame:
        return x
    device, compute, sizes = x._tab_meta.device, x._tab_meta.dtype.compute, (batch, m, n, k)
    if not on_gpu(device) or any(type(size) is not int for size in sizes) or prod(sizes) > _THROUGH:
        return framed(x, frame)
    return (framed_for_tiles if k <= _FEW or tiles.does(target(device.number), compute, *sizes) else framed)(x, frame)


def _bias_grad(g: Tensor) -> Tensor:
    return g.sum((0, *range(2, g.ndim)))


@remembered
def _out_sizes(x: Meta, w: Meta, geo: Geometry) -> Ints:
    stride, padding, dilation, _ = geo
    return tuple(
        out_size(s, k, p, t, d)
        for s, k, p, t, d in zip(x.shape[2:], w.shape[2:], padding, stride, dilation, strict=True)
    )


def forward(
    x: Tensor, w: Tensor, b: Tensor | None, geo: Geometry, out: Ints, name: str = "ConvolutionBackward0"
) -> Tensor:
    """The convolution: x (N, C, *size), w (O, C / groups, *kernel) to (N, O, *out)."""
    padding = geo[1]
    n, (o, cg, *taps) = x._tab_meta.shape[0], w._tab_meta.shape
    groups = geo[3]
    frame = padded_frame(x._tab_meta.shape, padding, padding)
    xp = _laid(x, frame, n * groups, o // groups, prod(out), cg * prod(taps))
    order = _order(x._tab_meta, w._tab_meta, geo)
    product = _forward_inst(xp._tab_meta, w._tab_meta, geo, out, _first_dtype(x, b), order)
    y = _finished(product, w, xp, b, order)
    if STATE.grad and (x._tab_requires_grad or w._tab_requires_grad or (b is not None and b._tab_requires_grad)):
        size, kernel = x._tab_meta.shape[2:], w._tab_meta.shape[2:]
        record(
            name,
            (x, w, b),
            y,
            (
                lambda g, x, w: input_gradient(g, conj(w), None, size, geo),
                lambda g, x, w: weight_gradient(g, conj(x), kernel, geo),
                lambda g, x, w: _bias_grad(g),
            ),
            (x if w._tab_requires_grad else None, w if x._tab_requires_grad else None),
        )
    return y


def input_gradient(
    g: Tensor, w: Tensor, b: Tensor | None, size: Ints, geo: Geometry, name: str = "ConvolutionBackwardBackward0"
) -> Tensor:
    """What a convolution's result `g` (N, O, *out) sends back to an input of that size: (N, C, *size)."""
    stride, padding, dilation, groups = geo
    m = g._tab_meta
    kernel = w._tab_meta.shape[2:]
    order = _order(m, w._tab_meta, geo, tuple(size))
    dtype = _first_dtype(g, b)
    by_phases = phases.by_phases(m, w._tab_meta, tuple(size), *geo)
    if by_phases is not None:
        y = _with_bias(phases.product(by_phases, g, w, stride, dilation, groups, dtype), b, order)
    else:
        frame: Frame = ((m.shape[0], 0, 1), (m.shape[1], 0, 1)) + tuple(
            (n + d * (k - 1), d * (k - 1) - p, s)
            for n, k, d, p, s in zip(size, kernel, dilation, padding, stride, strict=True)
        )
        gp = _laid(g, frame, m.shape[0] * groups, w._tab_meta.shape[1], prod(size), m.shape[1] // groups * prod(kernel))
        y = _finished(_input_inst(gp._tab_meta, w._tab_meta, tuple(size), geo, dtype, order), w, gp, b, order)
    if STATE.grad and (g._tab_requires_grad or w._tab_requires_grad or (b is not None and b._tab_requires_grad)):
        out = tuple(m.shape[2:])
        record(
            name,
            (g, w, b),
            y,
            (
                lambda h, g, w: forward(h, conj(w), None, geo, out, "ConvolutionBackwardBackward0"),
                lambda h, g, w: weight_gradient(conj(g), h, kernel, geo),
                lambda h, g, w: _bias_grad(h),
            ),
            (g if w._tab_requires_grad else None, w if g._tab_requires_grad else None),
        )
    return y


def weight_gradient(g: Tensor, x: Tensor, kernel: Ints, geo: Geometry) -> Tensor:
    """What a convolution's result `g` sends back to the weight: (O, C / groups, *kernel)."""
    padding = geo[1]
    m = x._tab_meta
    # rows that no window reaches are cut off by the view, which counts windows by the size of `g`
    frame = padded_frame(m.shape, padding, padding)
    groups, channels = geo[3], m.shape[1] // geo[3]
    k = m.shape[0] * prod(g._tab_meta.shape[2:])
    xp = _laid(x, frame, groups, g._tab_meta.shape[1] // groups, channels * prod(kernel), k)
    i, shown = _weight_inst(g._tab_meta, xp._tab_meta, tuple(kernel), geo)
    r = run(i, shown, g, xp)
    if STATE.grad and (g._tab_requires_grad or x._tab_requires_grad):
        size, out = m.shape[2:], tuple(g._tab_meta.shape[2:])
        record(
            "ConvolutionBackwardBackward0",
            (g, x),
            r,
            (
                lambda h, g, x: forward(conj(x), h, None, geo, out, "ConvolutionBackwardBackward0"),
                lambda h, g, x: input_gradient(conj(g), h, None, size, geo),
            ),
            (g if x._tab_requires_grad else None, x if g._tab_requires_grad else None),
        )
    return r


# ---- arguments


def _check(
    x: Tensor, w: Tensor, b: Tensor | None, n: int, geo: Geometry, transposed: bool, output_padding: Ints = ()
) -> None:
    """PyTorch's errors for numbers, shapes and types that do not fit each other."""
    stride, padding, dilation, groups = geo
    if groups <= 0:
        raise RuntimeError("non-positive groups is not supported")
    if min(padding) < 0:
        raise RuntimeError("negative padding is not supported")
    if output_padding and min(output_padding) < 0:
        raise RuntimeError("negative output_padding is not supported")
    if min(stride) <= 0:
        raise RuntimeError("non-positive stride is not supported")
    if min(dilation) <= 0:
        raise RuntimeError(
            "dilation should be greater than zero" if min(dilation) < 0 else "non-positive dilation is not supported"
        )
    ws, xs = list(w.shape), list(x.shape)
    if w.ndim != n + 2:
        raise RuntimeError(
            f"weight should have at least {n + 2} dimensions" if w.ndim < n + 2 else f"expected {n + 2}D weight"
        )
    if w.shape[0] < groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, but got weight of size {ws} instead"
        )
    if w.shape[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but got weight of size "
            f"[{ws}] instead"
        )
    out_channels = w.shape[1] * groups if transposed else w.shape[0]
    want = w.shape[0] if transposed else w.shape[1] * groups
    if x.shape[1] != want:
        raise RuntimeError(
            f"Given {'transposed=1, weight' if transposed else f'groups={groups}, weight'} of size {ws}, expected input{xs} "
            f"to have {want} channels, but got {x.shape[1]} channels instead"
        )
    if b is not None and (b.ndim != 1 or b.shape[0] != out_channels):
        raise RuntimeError(
            f"Given {'transposed=1, ' if transposed else ''}weight of size {ws}, expected bias to be 1-dimensional with "
            f"{out_channels} elements, but got bias of size {list(b.shape)} instead"
        )
    if not transposed:
        have = [s + 2 * p for s, p in zip(x.shape[2:], padding)]
        need = [d * (k - 1) + 1 for k, d in zip(w.shape[2:], dilation)]
        if any(h < k for h, k in zip(have, need)):
            raise RuntimeError(
                f"Calculated padded input size per channel: ({' x '.join(map(str, have))}). "
                f"Kernel size: ({' x '.join(map(str, need))}). Kernel size can't be greater than actual input size"
            )
    if b is not None and b.dtype is not x.dtype:
        raise RuntimeError(f"Input type ({cxx_name(x.dtype)}) and bias type ({cxx_name(b.dtype)}) should be the same")
    if x.dtype is not w.dtype:
        raise RuntimeError(f"expected scalar type {type_name(x.dtype)} but found {type_name(w.dtype)}")
    if x.numel():
        _check_kernel(x.dtype, w.shape[2:], geo, transposed)


def _check_kernel(d: Any, size: Ints, geo: Geometry, transposed: bool) -> None:
    """NotImplementedError for the types that PyTorch's kernels for such kernel sizes and geometries have not."""
    stride, padding, dilation, groups = geo
    n = max(len(size), 2)
    if transposed:
        check_kernel(f"slow_conv_transpose{n}d_out_cpu", d, FLOATING_COMPLEX | {dtypes.int64})
    elif max(dilation) > 1:
        check_kernel("slow_conv_dilated<>", d, FLOATING_COMPLEX | {dtypes.int64})
    else:
        columns = n == 3 and (max(*size, *stride, groups) > 1 or max(padding) > 0)
        check_kernel("compute_columns3d" if columns else f"slow_conv{n}d_cpu", d, NUMBERS)


def _batched(name: str, x: Tensor, n: int) -> tuple[Tensor, bool]:
    if x.ndim not in (n + 1, n + 2):
        raise RuntimeError(
            f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {name}, but got input of size: {list(x.shape)}"
        )
    return (x, True) if x.ndim == n + 2 else (x.unsqueeze(0), False)


def same_padding(x: Tensor, kernel: Ints, stride: Ints, dilation: Ints) -> tuple[Tensor, Ints]:
    """padding="same": (input, padding); an odd element goes to the right."""
    if any(s != 1 for s in stride):
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    totals = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    if any(t % 2 for t in totals):
        pad = function("constant_pad_nd")
        assert pad is not None
        extra = [v for t in reversed(totals) for v in (0, t % 2)]
        x = pad(x, extra)
    return x, tuple(t // 2 for t in totals)


#: what `_conv` found out and checked, by its arguments: (geometry, out size)
_known: dict[tuple, tuple[Geometry, Ints]] = {}


def _conv(
    name: str, n: int, x: Tensor, w: Tensor, b: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Tensor:
    """Cross-correlation over `n` dimensions, of a batch or of one sample. What was found out of equal arguments is kept."""
    key: Any = None
    known = None
    try:
        key = (x._tab_meta, w._tab_meta, None if b is None else b._tab_meta, stride, padding, dilation, groups, n)
        known = _known.get(key)
    except TypeError:  # lists
        key = None
    if known is not None:
        return forward(x, w, b, *known)
    x, was_batched = _batched(name, x, n)
    st, di = expand_ints(stride, n, "stride"), expand_ints(dilation, n, "dilation")
    if isinstance(padding, str):
        if padding == "valid":
            pa: Ints = (0,) * n
        elif padding == "same":
            if w._tab_meta.ndim != n + 2:
                k = w._tab_meta.ndim
                raise RuntimeError(
                    f"Expected {k}-dimensional input for {k}-dimensional weight{list(w.shape)}, but got {x.ndim}-dimensional "
                    f"input of size {list(x.shape)} instead"
                )
            x, pa = same_padding(x, w._tab_meta.shape[2:], st, di)
        else:
            raise RuntimeError(f"Invalid padding string: '{padding}'")
    else:
        pa = expand_ints(padding, n, "padding")
    geo = (st, pa, di, groups)
    if x._tab_meta.device.number != w._tab_meta.device.number or (
        b is not None and b._tab_meta.device.number != w._tab_meta.device.number
    ):
        try:
            (x, w, b), key = together((x, w, b)), None
        except RuntimeError:
            tail = " or input should be a MKLDNN tensor and weight is a dense tensor" if x.device.type == "cpu" else ""
            raise RuntimeError(
                f"Input type ({type_string(x)}) and weight type ({type_string(w)}) should be the same{tail}"
            ) from None
    _check(x, w, b, n, geo, False)
    out = _out_sizes(x._tab_meta, w._tab_meta, geo)
    if key is not None and was_batched and padding != "same":
        if len(_known) > 20_000:
            _known.clear()
        _known[key] = (geo, out)
    y = forward(x, w, b, geo, out)
    return y if was_batched else y.squeeze(0)


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation. `input` (N, C, L) or (C, L), `weight` (O, C / groups, K). Returns (N, O, L')."""
    return _conv("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation. `input` (N, C, H, W) or (C, H, W), `weight` (O, C / groups, Kh, Kw)."""
    return _conv("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation. `input` (N, C, D, H, W) or (C, D, H, W), `weight` (O, C / groups, Kd, Kh, Kw)."""
    return _conv("conv3d", 3, input, weight, bias, stride, padding, dilation, groups)


def _conv_transpose(
    name: str,
    n: int,
    x: Tensor,
    w: Tensor,
    b: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Tensor:
    x, was_batched = _batched(name, x, n)
    st, pa = expand_ints(stride, n, "stride"), expand_ints(padding, n, "padding")
    op, di = expand_ints(output_padding, n, "output_padding"), expand_ints(dilation, n, "dilation")
    geo = (st, pa, di, groups)
    x, w, b = together((x, w, b))
    _check(x, w, b, n, geo, True, op)
    for o, s, d in zip(op, st, di):
        if o >= s and o >= d:
            raise RuntimeError(
                "output padding must be smaller than either stride or dilation, but got output_padding_height: "
                f"{op[-2] if n > 1 else 0} output_padding_width: {op[-1]} stride_height: {st[-2] if n > 1 else 1} stride_width: "
                f"{st[-1]} dilation_height: {di[-2] if n > 1 else 1} dilation_width: {di[-1]}"
            )
    size = tuple(
        (s - 1) * t - 2 * p + d * (k - 1) + o + 1
        for s, t, p, d, k, o in zip(x._tab_meta.shape[2:], st, pa, di, w._tab_meta.shape[2:], op, strict=True)
    )
    if min(size) < 1:
        raise RuntimeError(
            f"Given input size per channel: ({' x '.join(map(str, x.shape[2:]))}). Calculated output size per channel: "
            f"({' x '.join(map(str, size))}). Output size is too small"
        )
    y = input_gradient(x, w, b, size, geo, "ConvolutionBackward0")
    return y if was_batched else y.squeeze(0)


def conv_transpose1d(
    input: Tensor, weight: Tensor, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1,
) -> Tensor:  # fmt: skip
    """The gradient of `conv1d` as a layer. `input` (N, C, L), `weight` (C, O / groups, K)."""
    return _conv_transpose(
        "conv_transpose1d", 1, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


def conv_transpose2d(
    input: Tensor, weight: Tensor, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1,
) -> Tensor:  # fmt: skip
    """The gradient of `conv2d` as a layer. `input` (N, C, H, W), `weight` (C, O / groups, Kh, Kw)."""
    return _conv_transpose(
        "conv_transpose2d", 2, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


def conv_transpose3d(
    input: Tensor, weight: Tensor, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1,
) -> Tensor:  # fmt: skip
    """The gradient of `conv3d` as a layer. `input` (N, C, D, H, W), `weight` (C, O / groups, Kd, Kh, Kw)."""
    return _conv_transpose(
        "conv_transpose3d", 3, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


for _f in (conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d):
    register(_f.__name__, _f)
