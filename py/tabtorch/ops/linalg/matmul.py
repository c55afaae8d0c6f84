"""Products of matrices and vectors. Each checks its shapes as PyTorch does and is one contraction."""

from __future__ import annotations

from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.grad_mode import STATE
from tabtorch.autograd.match_input import sum_to
from tabtorch.autograd.tape import named, record
from tabtorch.base.dtypes import cxx_name
from tabtorch.core.layout import contiguous_format
from tabtorch.core.shapes import type_name, unsqueezed, wrap_dim
from tabtorch.core.tensor import Tensor
from tabtorch.ops.compatibility.deprecated_overloads import beta_and_alpha_among
from tabtorch.ops.linalg.contract import back, contract, gradient, plan, plus, product, same_types, wide_dtype
from tabtorch.ops.machinery.dispatch import layout_of
from tabtorch.ops.machinery.operand_devices import together
from tabtorch.ops.machinery.operation import in_place, into, operation
from tabtorch.ops.machinery.out_types import EXACT, safely, same
from tabtorch.ops.machinery.promotion import NUMBERS, SINGLE_DOUBLE, check_kernel
from tabtorch.ops.machinery.recorded import Recorded
from tabtorch.ops.machinery.registry import function, register
from tabtorch.ops.rows.row_helpers import conj
from tabtorch.ops.shaping.convert import in_order

_MM = ((0, 1), (1, 2), (0, 2))
_BMM = ((0, 1, 2), (0, 2, 3), (0, 1, 3))
_MV = ((0, 1), (1,), (0,))
_DOT: Any = ((0,), (0,), ())
_OUTER = ((0,), (1,), (0, 1))
_TRACED = ((0, 1, 2), (0, 2, 3), (1, 3))


def _by(s: Any) -> str:
    return "x".join(map(str, s))


def _check_mm(a: Tensor, b: Tensor, name: str = "mm") -> tuple[Tensor, Tensor]:
    if a.ndim != 2:
        raise RuntimeError("self must be a matrix" if name == "mm" else f"mat1 must be a matrix, got {a.ndim}-D tensor")
    if b.ndim != 2:
        raise RuntimeError("mat2 must be a matrix" + ("" if name == "mm" else f", got {b.ndim}-D tensor"))
    _check_inner(a, b)
    return same_types(name, a, b)


def _check_inner(a: Tensor, b: Tensor) -> None:
    if a._tab_meta.shape[1] != b._tab_meta.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({_by(a.shape)} and {_by(b.shape)})")


_DOT_OUT = same("result dtype {Have} does not match input dtype {Want}")
_MV_OUT = same("addmv input tensors must have the same dtype, but got {Have}, {Want}, and {Want}")
_ADDBMM_OUT = same("self and mat2 must have the same dtype, but got {Have} and {Want}")
_TENSORDOT_OUT = same(
    "tensordot: Expected the output tensor to have dtype {Want}, but got an output tensor with dtype {Have}"
)


@operation("mm")
def mm(input: Tensor, mat2: Tensor, *, out: Any = None) -> Tensor:
    """Matrix product: (n, k) and (k, m) to (n, m)."""
    input, mat2 = _check_mm(input, mat2)
    return into(out, contract(input, mat2, _MM, "MmBackward0"), rule=EXACT)


@operation("bmm")
def bmm(input: Tensor, mat2: Tensor, *, out: Any = None) -> Tensor:
    """Products of two batches of matrices: (b, n, k) and (b, k, m) to (b, n, m)."""
    input, mat2 = _check_bmm(input, mat2)
    return into(out, contract(input, mat2, _BMM, "BmmBackward0"), rule=EXACT)


def _check_bmm(a: Tensor, b: Tensor, kernel: str = "bmm") -> tuple[Tensor, Tensor]:
    for name, t in (("batch1", a), ("batch2", b)):
        if t.ndim != 3:
            raise RuntimeError(f"{name} must be a 3D tensor")
    x, y = a._tab_meta.shape, b._tab_meta.shape
    if x[0] != y[0] or x[2] != y[1]:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{x[0]}, {x[2]}] but got: [{y[0]}, {y[1]}]."
        )
    return same_types(kernel, a, b)


@operation("mv")
def mv(input: Tensor, vec: Tensor, *, out: Any = None) -> Tensor:
    """Matrix times vector: (n, m) and (m,) to (n,)."""
    if input.ndim != 2 or vec.ndim != 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got 1, {input.ndim}, {vec.ndim}")
    if input.shape[1] != vec.shape[0]:
        raise RuntimeError(
            f"size mismatch, got input ({input.shape[0]}), mat ({_by(input.shape)}), vec ({vec.shape[0]})"
        )
    input, vec = same_types("mv", input, vec)
    return into(out, contract(input, vec, _MV, "MvBackward0"), rule=_MV_OUT)


@operation("dot")
def dot(input: Tensor, tensor: Tensor, *, out: Any = None) -> Tensor:
    """Sum of products of two vectors of one length."""
    if input.ndim != 1 or tensor.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {input.ndim}D and {tensor.ndim}D tensors")
    if input.dtype is not tensor.dtype:
        kinds = " and ".join(_lazy.shapes.type_name(t.dtype) for t in (input, tensor))
        raise RuntimeError(f"dot : expected both vectors to have same dtype, but found {kinds}")
    if input.numel() != tensor.numel():
        raise RuntimeError(
            f"inconsistent tensor size, expected tensor [{input.numel()}] and src [{tensor.numel()}] to have the same number "
            f"of elements, but got {input.numel()} and {tensor.numel()} elements respectively"
        )
    input, tensor = same_types("dot", input, tensor)
    return into(out, contract(input, tensor, _DOT, "DotBackward0"), rule=_DOT_OUT)


@operation("vdot")
def vdot(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """`dot` with the conjugate of the first."""
    return dot(input.conj() if input.is_complex() else input, other, out=out)


@operation("inner")
def inner(input: Any, other: Any, *, out: Any = None) -> Tensor:
    """Sums of products over the last dimensions; with a 0-d tensor, the product."""
    if input.ndim == 0 or other.ndim == 0:
        return into(out, input * other)
    if input.shape[-1] != other.shape[-1]:
        raise RuntimeError(
            "inner() the last dimension must match on both input tensors but got shapes "
            f"{list(input.shape)} and {list(other.shape)}"
        )
    input, other = same_types("inner", input, other)
    a = tuple(range(1, input.ndim))
    b = tuple(range(input.ndim, input.ndim + other.ndim - 1))
    return into(out, contract(input, other, ((*a, 0), (*b, 0), (*a, *b)), "ViewBackward0"), rule=_TENSORDOT_OUT)


@operation("outer", aliases=("ger",))
def outer(input: Tensor, vec2: Tensor, *, out: Any = None) -> Tensor:
    """All products of an element of each of two vectors: (n,) and (m,) to (n, m)."""
    for name, t in (("self", input), ("vec2", vec2)):
        if t.ndim != 1:
            raise RuntimeError(f"outer: Expected 1-D argument {name}, but got {t.ndim}-D")
    return into(out, input.unsqueeze(1) * vec2.unsqueeze(0))


_SPECS: dict[tuple[int, int], tuple] = {}


def _matmul_spec(x: int, y: int) -> tuple:
    """Labels of a matmul of an x-d and a y-d tensor: 0 rows, 1 summed, 2 columns, 3… batch from the right."""
    spec = _SPECS.get((x, y))
    if spec is None:
        n = max(x, y, 2) - 2
        batch = tuple(range(n + 2, 2, -1))
        la = (1,) if x == 1 else (*batch[n - (x - 2) :], 0, 1)
        lb = (1,) if y == 1 else (*batch[n - (y - 2) :], 1, 2)
        lo = (*batch, *((0,) if x > 1 else ()), *((2,) if y > 1 else ()))
        spec = _SPECS[x, y] = (la, lb, lo)
    return spec


def matmul(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """Product of two tensors: vectors, matrices, or batches of them, whose leading dimensions broadcast."""
    x, y = input._tab_meta, other._tab_meta
    if x.ndim == 2 and y.ndim == 2:
        if x.shape[1] != y.shape[0]:
            _check_inner(input, other)
        input, other = same_types("mm", input, other)
        r = contract(input, other, _MM, "MmBackward0")
        return r if out is None else into(out, r, rule=EXACT)
    if x.ndim == 0 or y.ndim == 0:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {x.ndim}D and {y.ndim}D")
    if x.ndim == 1 and y.ndim == 1:
        return dot(input, other, out=out)
    if x.ndim == 2 and y.ndim == 1:
        return mv(input, other, out=out)
    if x.ndim > 2 and y.ndim > 2:
        for d in range(3, min(x.ndim, y.ndim) + 1):
            p, q = x.shape[-d], y.shape[-d]
            if p != q and p != 1 and q != 1:
                raise RuntimeError(
                    f"The size of tensor a ({p}) must match the size of tensor b ({q}) at non-singleton dimension "
                    f"{max(x.ndim, y.ndim) - d}"
                )
    if x.shape[-1] != (y.shape[-2] if y.ndim > 1 else y.shape[0]):
        _inner_error(x.shape, y.shape)
    input, other = same_types("mm" if y.ndim == 2 or x.ndim == 2 else "matmul", input, other)
    spec = _matmul_spec(x.ndim, y.ndim)
    name = "SqueezeBackward4" if x.ndim == 1 else "UnsafeViewBackward0"
    if x.ndim == y.ndim == 3 and x.shape[0] == y.shape[0]:
        name = "BmmBackward0"
    r = contract(input, other, spec, name)
    return r if out is None else into(out, r, rule=_MV_OUT if y.ndim == 1 else EXACT)


operation("matmul", aliases=("__matmul__",))(matmul)


def _inner_error(x: Any, y: Any) -> None:
    """The message depends on how PyTorch would fold the operands."""
    if len(y) == 1:
        rows = 1
        for n in x[:-1]:
            rows *= n
        raise RuntimeError(f"size mismatch, got input ({rows}), mat ({rows}x{x[-1]}), vec ({y[0]})")
    if len(y) == 2:
        rows = 1
        for n in x[:-1]:
            rows *= n
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({rows}x{x[-1]} and {_by(y)})")
    if len(x) <= 2:
        rows = y[-1]
        for n in y[:-2]:
            rows *= n
        if len(x) == 1:
            raise RuntimeError(f"size mismatch, got input ({rows}), mat ({rows}x{y[-2]}), vec ({x[0]})")
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({rows}x{y[-2]} and {x[1]}x{x[0]})")
    batch = 1
    for p, q in zip(((1,) * (len(y) - len(x)) + tuple(x[:-2])), ((1,) * (len(x) - len(y)) + tuple(y[:-2]))):
        batch *= max(p, q)
    raise RuntimeError(
        f"Expected size for first two dimensions of batch2 tensor to be: [{batch}, {x[-1]}] but got: [{batch}, {y[-2]}]."
    )


def _rmatmul(self: Tensor, other: Tensor) -> Tensor:
    return matmul(other, self)


register("__rmatmul__", _rmatmul, method=True, torch=False, doc="other @ self.")


# ---- products that are added to something


_BADDBMM = (("self", "batch1", "batch2"), "baddbmm")


def _added(name: str, c: Tensor, a: Tensor, b: Tensor, spec: Any, beta: Any, alpha: Any) -> Tensor:
    """beta * c + alpha * (a b), recorded as one."""
    beta, alpha = (s.item() if isinstance(s, Tensor) else s for s in (beta, alpha))
    if c._tab_meta.device.number != a._tab_meta.device.number:
        c, a, b = together((c, a, b), (("self", "mat1", "mat2"), "addmm") if spec is not _BMM else _BADDBMM)
    shown = plan(a._tab_meta, b._tab_meta, spec, a._tab_meta.dtype)[1]
    if c._tab_meta.dtype is not a._tab_meta.dtype:
        raise RuntimeError(
            f"self and mat2 must have the same dtype, but got {_type(c)} and {_type(b)}"
            if spec is not _BMM
            else f"Input dtypes must be the same, got: input {cxx_name(c.dtype)}, batch1: {cxx_name(a.dtype)}, "
            f"batch2: {cxx_name(b.dtype)}"
        )
    try:
        _expandable(c._tab_meta.shape, shown.shape)
        r = plus(c, product(a, b, spec, wide_dtype(a._tab_meta.dtype)), beta, alpha)
        if spec is _OUTER:  # elementwise to PyTorch, which lays it out as such
            r = in_order(r, layout_of([c._tab_meta, unsqueezed(a._tab_meta, 1), b._tab_meta], shown.shape) or ())
    except ValueError:
        raise RuntimeError(
            f"The expanded size of the tensor ({shown.shape[-1]}) must match the existing size ({c.shape[-1]}) at "
            f"non-singleton dimension {len(shown.shape) - 1}.  Target sizes: {list(shown.shape)}.  Tensor sizes: "
            f"{list(c.shape)}"
        ) from None
    if STATE.grad and (c._tab_requires_grad or a._tab_requires_grad or b._tab_requires_grad):
        la, lb, lo = spec

        def times(g: Tensor, s: Any) -> Tensor:
            return g if s == 1 else g * conj(s)

        shape_a, shape_b = a.shape, b.shape
        record(
            name,
            (c, a, b),
            r,
            (
                lambda g, a, b: times(g, beta),
                lambda g, a, b: times(gradient(g, b, (lo, lb, la, shape_a)), alpha),
                lambda g, a, b: times(gradient(g, a, (lo, la, lb, shape_b)), alpha),
            ),
            (a if b._tab_requires_grad else None, b if a._tab_requires_grad else None),
        )
    return r


def _type(t: Tensor) -> str:
    return _lazy.shapes.type_name(t.dtype)


def _of_one_type(input: Tensor, mat2: Tensor) -> None:
    if input.dtype is not mat2.dtype:
        raise RuntimeError(f"self and mat2 must have the same dtype, but got {_type(input)} and {_type(mat2)}")


def _expandable(have: Any, want: Any) -> None:
    if len(have) > len(want) or any(n not in (1, w) for n, w in zip(reversed(have), reversed(want))):
        raise ValueError


@operation("addmm")
@beta_and_alpha_among
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1, out: Any = None) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2)."""
    _of_one_type(input, mat2)
    mat1, mat2 = _check_mm(mat1, mat2, "addmm")
    return into(out, _added("AddmmBackward0", input, mat1, mat2, _MM, beta, alpha), rule=EXACT)


@operation("addmv")
@beta_and_alpha_among
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1, out: Any = None) -> Tensor:
    """beta * input + alpha * (mat @ vec)."""
    if mat.ndim != 2 or vec.ndim != 1 or input.ndim > 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got {input.ndim}, {mat.ndim}, {vec.ndim}")
    if mat.shape[1] != vec.shape[0]:
        n = input.shape[0] if input.ndim else mat.shape[0]
        raise RuntimeError(f"size mismatch, got input ({n}), mat ({_by(mat.shape)}), vec ({vec.shape[0]})")
    if not input.dtype is mat.dtype is vec.dtype:
        types = f"{_type(input)}, {_type(mat)}, and {_type(vec)}"
        raise RuntimeError("addmv input tensors must have the same dtype, but got " + types)
    mat, vec = same_types("mv", mat, vec)
    return into(out, _added("AddmvBackward0", input, mat, vec, _MV, beta, alpha), rule=EXACT)


@operation("addr")
@beta_and_alpha_among
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Any = 1, alpha: Any = 1, out: Any = None) -> Tensor:
    """beta * input + alpha * outer(vec1, vec2)."""
    for name, t in (("vec1", vec1), ("vec2", vec2)):
        if t.ndim != 1:
            raise RuntimeError(f"addr: Expected 1-D argument {name}, but got {t.ndim}-D")
    if input._tab_meta.dtype.name == "bool":
        c: Any = input
        ab: Any = vec1.unsqueeze(1)
        return into(out, (c & bool(beta)) | (ab & vec2 & bool(alpha)))
    return into(out, _added("AddrBackward0", input, vec1, vec2, _OUTER, beta, alpha))


@operation("baddbmm")
@beta_and_alpha_among
def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1, out: Any = None) -> Tensor:
    """beta * input + alpha * (batch1 @ batch2), for each of a batch."""
    batch1, batch2 = _check_bmm(batch1, batch2)
    return into(out, _added("BaddbmmBackward0", input, batch1, batch2, _BMM, beta, alpha), rule=EXACT)


@operation("addbmm")
@beta_and_alpha_among
def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1, out: Any = None) -> Tensor:
    """beta * input + alpha * the sum over the batch of batch1 @ batch2."""
    _of_one_type(input, batch2)
    batch1, batch2 = _check_bmm(batch1, batch2, "addmm")
    return into(out, _added("AddbmmBackward0", input, batch1, batch2, _TRACED, beta, alpha), rule=_ADDBMM_OUT)


# in place, PyTorch reads them where they are also written; it looks at the tensor alone, and not always
in_place(addmm, structured=True, meets=lambda self, mat1, mat2: ())
in_place(addmv, structured=True, meets=lambda self, mat, vec: None if mat.numel() else ())
in_place(baddbmm, structured=True, meets=lambda self, batch1, batch2: None)


def _addr_(self: Tensor, vec1: Tensor, vec2: Tensor, **kw: Any) -> Tensor:
    if self.ndim != 2:
        raise RuntimeError(f"2D tensor expected, got {self.ndim}D tensor for input")
    have, want = self.shape, (vec1.numel(), vec2.numel())
    if have != want:
        raise RuntimeError(f"size mismatch, input: {list(have)}, v1: {list(vec1.shape)}, v2: {list(vec2.shape)}")
    return _in_place_addr(self, vec1, vec2, **kw)


def _addbmm_(self: Tensor, batch1: Tensor, batch2: Tensor, **kw: Any) -> Tensor:
    """As PyTorch's, it grows to the size of the result."""
    shape = (batch1.shape[-2], batch2.shape[-1])
    if self.shape != shape and batch1.ndim == batch2.ndim == 3 and not self._tab_requires_grad:
        old = self.clone()
        return self.resize_(shape).copy_(addbmm(old, batch1, batch2, **kw))
    return _in_place_addbmm(self, batch1, batch2, **kw)


_in_place_addr = in_place(addr, meets=lambda self, vec1, vec2: (vec1.detach().unsqueeze(1), vec2))
_in_place_addbmm = in_place(addbmm, meets=lambda self, batch1, batch2: ())
register("addr_", _addr_, method=True, torch=False, doc="`addr` in place.")
register("addbmm_", _addbmm_, method=True, torch=False)


# ---- linear


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """x Wᵀ + b. `input` (*, in), `weight` (out, in) or (in,), `bias` (out,). Returns (*, out) or (*)."""
    x, w = input._tab_meta, weight._tab_meta
    nd = x.ndim
    if nd == 0 or w.ndim == 0:
        raise RuntimeError(f"both arguments to linear need to be at least 1D, but they are {nd}D and {w.ndim}D")
    if w.ndim == 1 and nd == 2 and bias is not None:
        raise RuntimeError("mat2 must be a matrix, got 1-D tensor")
    if w.ndim != 2 or x.shape[-1] != w.shape[1]:
        r: Any = matmul(input, weight.t())
        return r if bias is None else r + bias
    if bias is not None and bias._tab_meta.dtype is not w.dtype:
        raise RuntimeError(f"self and mat2 must have the same dtype, but got {_type(bias)} and {_type(weight)}")
    if bias is not None and not (x.device.number == w.device.number == bias._tab_meta.device.number):
        bias, input, weight = together((bias, input, weight), (("self", "mat1", "mat2"), "addmm"))
    input, weight = same_types("mm" if bias is None else "addmm", input, weight)
    spec = _LINEAR.get(nd)
    if spec is None:
        lead = tuple(range(2, nd + 1))
        spec = _LINEAR[nd] = ((*lead, 0), (1, 0), (*lead, 1))
    if bias is None:
        return contract(
            input, weight, spec, "MmBackward0" if nd == 2 else "UnsafeViewBackward0" if nd > 2 else "SqueezeBackward4"
        )
    name = "AddmmBackward0" if nd == 2 else "ViewBackward0"
    if bias._tab_meta.shape != w.shape[:1]:
        return _added(name, bias, input, weight, spec, 1, 1)
    r = _with_bias((input, weight, bias), (spec,))
    needs = input._tab_requires_grad, weight._tab_requires_grad, bias._tab_requires_grad
    if STATE.grad and True in needs:
        how = spec, x.shape, w.shape

        def of_all(g: Tensor, x: Any, w: Any) -> Any:
            if STATE.grad:
                found = iter(_linear_back(g, x, w, *how, needs))
            else:
                found = iter(_of_linear((g, x, w), (*how, needs)))
            gx, gw, gb = [next(found) if need else None for need in needs]
            return gb, gx, gw

        saved = input if needs[1] else None, weight if needs[0] else None
        record(name, (bias, input, weight), r, of_all, saved)
    return r


_LINEAR: dict[int, Any] = {}


def _linear_forward(x: Tensor, w: Tensor, b: Tensor, spec: Any) -> Tensor:
    return plus(b, product(x, w, spec, wide_dtype(x._tab_meta.dtype)))


def _linear_back(
    g: Tensor, x: Tensor, w: Tensor, spec: Any, shape: Any, shape_w: Any, needs: tuple[bool, ...]
) -> tuple[Any, ...]:
    """The gradients that are wanted of input, weight and bias."""
    la, lb, lo = spec
    found: list[Any] = []
    if needs[0]:
        found.append(back(g, w, lo, lb, la, shape))
    if needs[1]:
        found.append(back(g, x, lo, la, lb, shape_w))
    if needs[2]:
        found.append(sum_to(g, shape_w[:1]))
    return tuple(found)


_with_bias, _of_linear = Recorded(_linear_forward), Recorded(_linear_back)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y_o = x1ᵀ W_o x2 + b_o. `input1` (*, I), `input2` (*, J), `weight` (O, I, J). Returns (*, O)."""
    input1, input2, weight = together((input1, input2, weight))
    check_kernel("bmm", input1._tab_meta.dtype, NUMBERS)
    lead = tuple(range(3, input1.ndim + 2))
    half = contract(input1, weight, ((*lead, 1), (0, 1, 2), (*lead, 0, 2)))
    r: Any = contract(half, input2, ((*lead, 0, 2), (*lead, 2), (*lead, 0)))
    return named(r, "ViewBackward0") if bias is None else r + bias


register("bilinear", bilinear)


# ---- small things made of these


@operation("trace")
def trace(input: Tensor) -> Tensor:
    """Sum of the diagonal of a matrix."""
    if input.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {input.ndim}")
    check_kernel("trace", input._tab_meta.dtype, NUMBERS)
    return input.diagonal().sum()


@operation("chain_matmul", method=False)
def chain_matmul(*matrices: Any, out: Any = None) -> Tensor:
    """Product of several matrices, in the cheapest order."""
    if len(matrices) == 1 and isinstance(matrices[0], (list, tuple)):
        matrices = tuple(matrices[0])
    return into(out, multi_dot(matrices), rule=MULTI_DOT_OUT) if len(matrices) > 1 else into(out, matrices[0])


MULTI_DOT_OUT = same("multi_dot(): expected out tensor to have dtype {want} but got {have}")


def multi_dot(tensors: Any) -> Tensor:
    """`linalg.multi_dot`: a product of matrices (the first and last may be vectors), in the order that costs least."""
    ts = list(tensors)
    if len(ts) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(ts)}")
    first, last = ts[0].ndim == 1, ts[-1].ndim == 1
    if first:
        ts[0] = ts[0].unsqueeze(0)
    if last:
        ts[-1] = ts[-1].unsqueeze(1)
    for k, t in enumerate(ts):
        if t.ndim != 2:
            raise RuntimeError(f"multi_dot(): tensor {k} must be 2D but got {t.ndim}D")
    for k in range(len(ts) - 1):
        _check_inner(ts[k], ts[k + 1])
    n = len(ts)
    p = [ts[0].shape[0], *(t.shape[1] for t in ts)]
    cost = [[0] * n for _ in range(n)]
    cut = [[0] * n for _ in range(n)]
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            cost[i][j], cut[i][j] = min(
                (cost[i][k] + cost[k + 1][j] + p[i] * p[k + 1] * p[j + 1], k) for k in range(i, j)
            )

    def product(i: int, j: int) -> Tensor:
        return ts[i] if i == j else mm(product(i, cut[i][j]), product(cut[i][j] + 1, j))

    r: Tensor = product(0, n - 1)
    if first:
        r = r.squeeze(0)
    return r.squeeze(-1) if last else r


@operation("matrix_power")
def matrix_power(input: Tensor, n: int, *, out: Any = None) -> Tensor:
    """The n-th power of square matrices, by squaring."""
    if input.ndim < 2:
        raise RuntimeError("linalg.matrix_power: The input tensor A must have at least 2 dimensions.")
    if input.shape[-1] != input.shape[-2]:
        raise RuntimeError(
            "linalg.matrix_power: A must be batches of square matrices, but they are "
            f"{input.shape[-2]} by {input.shape[-1]} matrices"
        )
    n = n.__index__()
    if n < 0:
        inverse = function("linalg_inv")
        assert inverse is not None
        input, n = inverse(input), -n
    eye = function("eye")
    assert eye is not None
    if n == 0:
        r = input.clone(memory_format=contiguous_format)
        r.copy_(eye(input.shape[-1], dtype=input.dtype, device=input.device))
        return into(out, r, rule=safely("matrix_power"))
    power, result = input, None
    while True:
        if n & 1:
            result = power if result is None else matmul(result, power)
        n >>= 1
        if not n:
            break
        power = matmul(power, power)
    assert result is not None
    return into(out, result.clone() if result is input else result, rule=safely("matrix_power"))


@operation("cross")
def cross(input: Tensor, other: Any, dim: int | None = None, *, out: Any = None) -> Tensor:
    """Cross products of 3-vectors along `dim` (None: the first dimension of size 3)."""
    if dim is None:
        found = [d for d, n in enumerate(input.shape) if n == 3]
        if not found:
            raise RuntimeError("no dimension of size 3 in input")
        dim = found[0]
    if input.ndim != other.ndim:
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    d = wrap_dim(dim, input.ndim)
    if input.shape[d] != 3 or other.shape[d] != 3:
        raise RuntimeError(
            f"linalg.cross: inputs dimension {dim} must have length 3. Got {input.shape[d]} and {other.shape[d]}"
        )
    check_kernel("cross", input._tab_meta.dtype, NUMBERS)
    a1, b1 = input.roll(-1, d), other.roll(-1, d)
    a2, b2 = input.roll(-2, d), other.roll(-2, d)
    return into(out, a1 * b2 - a2 * b1, rule=EXACT)


def _check_cdist(x1: Tensor, x2: Tensor, p: float, compute_mode: str) -> None:
    """PyTorch's errors for types: what it has no product of matrices for is the work of a kernel that has no halves."""
    for name, t in (("X1", x1), ("X2", x2)):
        if t.dtype.category != 2:
            raise RuntimeError(f"cdist only supports floating-point dtypes, {name} got: {type_name(t.dtype)}")
    many = compute_mode[-9:] != "necessary" or max(x1.shape[-2], x2.shape[-2]) > 25
    product = p == 2 and many and not compute_mode.startswith("donot")
    if not product and x1.numel() and x2.numel():
        check_kernel("cdist", x1._tab_meta.dtype, SINGLE_DOUBLE)


@operation("cdist", method=False)
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Tensor:
    """Distances between the rows of two batches: (*, P, M) and (*, R, M) to (*, P, R)."""
    for name, t in (("X1", x1), ("X2", x2)):
        if t.ndim < 2:
            raise RuntimeError(f"cdist only supports at least 2D tensors, {name} got: {t.ndim}D")
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}")
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    _check_cdist(x1, x2, p, compute_mode)
    return _lazy.norms.distances(x1.unsqueeze(-2) - x2.unsqueeze(-3), p)


@operation("tensordot", method=False)
def tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Any = None) -> Tensor:
    """Sums of products over the named pairs of dimensions (a number n: the last n of `a` and the first n of `b`)."""
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.ndim, b.ndim):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        da, db = list(range(-dims, 0)), list(range(dims))
    else:
        da, db = ([x] if isinstance(x, int) else list(x) for x in dims)
    if len(da) != len(db):
        raise RuntimeError("both dimension lists should have same length")
    for x, y in zip(da, db, strict=True):
        if a.shape[wrap_dim(x, a.ndim)] != b.shape[wrap_dim(y, b.ndim)] and 1 not in (a.shape[x], b.shape[y]):
            raise RuntimeError(
                f"contracted dimensions need to match, but first has size {a.shape[x]} in dim {x} and second has size "
                f"{b.shape[y]} in dim {y}"
            )
    da, db = [wrap_dim(d, a.ndim) for d in da], [wrap_dim(d, b.ndim) for d in db]
    a, b = same_types("tensordot", a, b)
    la = list(range(a.ndim))
    lb = list(range(a.ndim, a.ndim + b.ndim))
    for x, y in zip(da, db, strict=True):
        lb[y] = la[x]
    lo = [x for d, x in enumerate(la) if d not in da] + [x for d, x in enumerate(lb) if d not in db]
    return into(out, contract(a, b, (tuple(la), tuple(lb), tuple(lo)), "ViewBackward0"), rule=_TENSORDOT_OUT)
