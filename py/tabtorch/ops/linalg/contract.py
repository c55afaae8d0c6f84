"""Sums of products. Everything from `dot` to `einsum` is one `Contract` node, said in labels as in einsum.

`contract(a, b, (la, lb, lo))`: dimensions of `a` and `b` are labelled with numbers; equal labels run together, labels that
the output lacks are summed over. Size-1 dimensions broadcast. Its gradients are contractions of the same kind, so they can be
differentiated again, any number of times.
"""

from __future__ import annotations

from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.grad_mode import STATE
from tabtorch.autograd.tape import record
from tabtorch.base import dtypes
from tabtorch.base.dtypes import cxx_name
from tabtorch.core.shapes import remembered, type_name
from tabtorch.core.tensor import Tensor
from tabtorch.engine.graph import Contract, Inst, Map, inst
from tabtorch.engine.view import Meta, contiguous_meta, contiguous_strides, meta
from tabtorch.ops.machinery.operand_devices import device_of, together
from tabtorch.ops.machinery.operation import run, view_meta
from tabtorch.ops.machinery.recorded import Recorded

#: labels of the first operand, of the second, and of the output
Spec = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]

CONTRACT = Contract("matmul")


@remembered
def plan(a: Meta, b: Meta, spec: Spec, dtype: Any) -> tuple[Inst, Meta, bool]:
    """(instruction, Meta of the result, whether the operands change places) of a contraction."""
    la, lb, lo = spec
    size: dict[int, int] = {}
    for labels, m in ((la, a), (lb, b)):
        for x, n in zip(labels, m.shape, strict=True):
            if size.get(x, 1) == 1:
                size[x] = n
    order, static, swapped = _arranged(spec)
    shape = tuple([size[x] for x in order])

    def seen(m: Meta, labels: tuple[int, ...]) -> Meta:
        step = {x: (0 if n == 1 and size[x] != 1 else st) for x, n, st in zip(labels, m.shape, m.strides)}
        return view_meta(m, shape, tuple([step.get(x, 0) for x in order]))

    kept = order[: len(lo)]
    device = device_of((a, b))
    out = contiguous_meta(shape[: len(lo)], dtype, device)
    ins = (seen(b, lb), seen(a, la)) if swapped else (seen(a, la), seen(b, lb))
    i = inst(CONTRACT, ins, out, static=static)
    shown = out
    if kept != lo:
        step = dict(zip(kept, contiguous_strides(out.shape)))
        shown = meta(tuple(size[x] for x in lo), tuple(step[x] for x in lo), 0, dtype, device)
    return i, shown, swapped


@remembered
def _arranged(spec: Spec) -> tuple[tuple[int, ...], tuple[int, int, int, int], bool]:
    """(labels in the order of the kernel: batch, first's, second's, summed; how many of each; whether the operands change places)."""
    la, lb, lo = spec
    batch, left, right, swapped = _arrange(la, lb, lo)
    summed = [x for x in dict.fromkeys((*la, *lb)) if x not in lo]
    return (*batch, *left, *right, *summed), (len(batch), len(left), len(right), len(summed)), swapped


def _arrange(la: tuple[int, ...], lb: tuple[int, ...], lo: tuple[int, ...]) -> tuple[Any, Any, Any, bool]:
    """Labels of the output as (batch, first's, second's, operands change places).

    Where the output's order allows, so that it is row-major in it: a label of one operand may have to count as batch then.
    Where that would leave no matrix to multiply, the result is a permuted view instead.
    """
    both = [x for x in lo if x in la and x in lb]
    one, two = [x for x in lo if x in la and x not in lb], [x for x in lo if x in lb and x not in la]
    best: Any = None
    for left, right, swapped in ((one, two, False), (two, one, True)):
        p = max((k + 1 for k, x in enumerate(lo) if x in both), default=0)
        while [x for x in lo[p:] if x in left] + [x for x in lo[p:] if x in right] != list(lo[p:]):
            p += 1
        if best is None or p < len(best[0]):
            rest = lo[p:]
            best = (lo[:p], [x for x in rest if x in left], [x for x in rest if x in right], swapped)
    matrix = bool(best[1]) == bool(one if not best[3] else two) and bool(best[2]) == bool(two if not best[3] else one)
    return best if matrix else (both, one, two, False)


def wide_dtype(d: Any) -> Any:
    """float32 for halves: what a sum is kept in until the last rounding."""
    return dtypes.float32 if d.itemsize == 2 and d.category == 2 else d


def product(a: Tensor, b: Tensor, spec: Spec, dtype: Any = None) -> Tensor:
    """The contraction, not recorded."""
    i, shown, swapped = plan(a._tab_meta, b._tab_meta, spec, dtype or a._tab_meta.dtype)
    if a._tab_meta.dtype is dtypes.bool_:  # of which there are none, for no kernel multiplies them
        return a.new_zeros(shown.shape)
    return run(i, shown, b, a) if swapped else run(i, shown, a, b)


def contract(a: Tensor, b: Tensor, spec: Spec, name: str = "BmmBackward0") -> Tensor:
    """The contraction of two tensors of one dtype and device, recorded as `name`."""
    r = product(a, b, spec)
    if STATE.grad and (a._tab_requires_grad or b._tab_requires_grad):
        la, lb, lo = spec
        shape_a, shape_b = a._tab_meta.shape, b._tab_meta.shape
        record(
            name,
            (a, b),
            r,
            (
                lambda g, a, b: gradient(g, b, (lo, lb, la, shape_a)),
                lambda g, a, b: gradient(g, a, (lo, la, lb, shape_b)),
            ),
            # what the other one's gradient does not need is not kept
            (a if b._tab_requires_grad else None, b if a._tab_requires_grad else None),
        )
    return r


#: labels of the gradient, of the other operand, of the operand whose gradient is wanted, and the shape of that
How = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], Any]


def gradient(g: Tensor, other: Tensor, how: How) -> Tensor:
    """The gradient of one operand: of `g` and the other operand, in the shape of the operand."""
    found: Tensor = back(g, other, *how) if STATE.grad else _of_one((g, other), how)
    return found


def back(
    g: Tensor, other: Tensor, lg: tuple[int, ...], lo: tuple[int, ...], want: tuple[int, ...], shape: Any
) -> Tensor:
    """The same as a formula."""
    if other.is_complex():
        other = other.conj()
    elif g.is_complex():
        other = other.to(g.dtype)
    have = {*lg, *lo}
    out = tuple(x for x in want if x in have)
    # a dimension along which the operand was broadcast is summed over by leaving its label out
    size = dict(zip(want, shape))
    full = {x: n for labels, t in ((lg, g), (lo, other)) for x, n in zip(labels, t.shape) if n != 1}
    thin = [x for x in out if size[x] == 1 and full.get(x, 1) != 1]
    r = contract(g, other, (lg, lo, tuple(x for x in out if x not in thin)))
    for d, x in enumerate(want):
        if x in thin or x not in have:
            r = r.unsqueeze(d)
    return r if tuple(r.shape) == tuple(shape) else r.expand(shape)


_of_one = Recorded(back)


_PLUS = {
    (True, True): Map("addmm", lambda c, m: c + m),
    (True, False): Map("addmm", lambda c, m, alpha: c + m * alpha),
    (False, True): Map("addmm", lambda c, m, beta: c * beta + m),
    (False, False): Map("addmm", lambda c, m, beta, alpha: c * beta + m * alpha),
}


@remembered
def _plus_plan(c: Meta, m: Meta, beta_one: bool, alpha_one: bool) -> tuple[Inst, Meta]:
    out = contiguous_meta(m.shape, c.dtype, device_of((m, c)))
    n = (not beta_one) + (not alpha_one)
    kind = m.dtype.compute
    i = inst(_PLUS[beta_one, alpha_one], (_lazy.index_maps.expanded(c, m.shape), m), out, (kind,) * n)
    return i, out


def plus(c: Tensor, m: Tensor, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * c + alpha * m, where `c` broadcasts to `m`; not recorded. beta = 0 leaves NaNs of `c` out, as PyTorch does."""
    if beta == 0:
        return (m * alpha if alpha != 1 else m).to(c._tab_meta.dtype)
    i, shown = _plus_plan(c._tab_meta, m._tab_meta, beta == 1, alpha == 1)
    kind = float if m._tab_meta.dtype.category == 2 else int if m._tab_meta.dtype.category < 2 else complex
    scalars = tuple(kind(x) for x in (beta, alpha) if x != 1)
    return run(i, shown, c, m, scalars=scalars)


def same_types(name: str, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Both on one device. RuntimeError unless they can be there, and have one dtype."""
    x, y = a._tab_meta, b._tab_meta
    if x.device.number != y.device.number:
        a, b = together((a, b), _ARGUMENTS.get(name))
    if x.dtype is not y.dtype:
        if name == "tensordot":
            raise RuntimeError("both inputs should have same dtype")
        if name == "mv":
            raise RuntimeError(
                "addmv input tensors must have the same dtype, but got "
                f"{type_name(y.dtype)}, {type_name(x.dtype)}, and {type_name(y.dtype)}"
            )
        if name == "addmm":
            raise RuntimeError(
                f"mat1 and mat2 must have the same dtype, but got {type_name(x.dtype)} and {type_name(y.dtype)}"
            )
        raise RuntimeError(
            f"expected m1 and m2 to have the same dtype, but got: {cxx_name(x.dtype)} != {cxx_name(y.dtype)}"
            if name == "mm"
            else f"expected scalar type {type_name(x.dtype)} but found {type_name(y.dtype)}"
        )
    if x.dtype is dtypes.bool_ and x.numel and y.numel:  # where there is nothing to multiply no kernel is asked for
        raise NotImplementedError(f"\"{_KERNELS.get(name, name)}\" not implemented for 'Bool'")
    return a, b


#: see `mixing.mismatch`
_ARGUMENTS = {
    "mm": (("self", "mat2"), "mm"),
    "bmm": (("self", "mat2"), "bmm"),
    "matmul": (("self", "mat2"), "bmm"),
    "dot": (("self", "tensor"), "_dot"),
}
_KERNELS = {"mm": "addmm_impl_cpu_", "mv": "addmv_impl_cpu", "bmm": "baddbmm_with_gemm", "addmm": "addmm_impl_cpu_"}
