"""Products of matrices, some of them sparse.

A sparse matrix times a dense one takes a row of the dense one for each element, and adds them up by rows. A product of two
sparse ones takes as many elements as there are pairs that meet.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.tape import named, record
from tabtorch.core.tensor import Tensor
from tabtorch.sparse.convert import (
    compressed,
    coo,
    from_keys,
    keys,
    loose,
    merged,
    parts,
    positions,
    sparse_dims,
    values_at,
)
from tabtorch.sparse.rows import OPS, add, mul
from tabtorch.sparse.tensor import BLOCKED, COO, CSR, WORDS, is_sparse, like, made, op, refused, values_of


def _transposed(x: Any) -> Any:
    return OPS["transpose"](x, 0, 1) if is_sparse(x) else x.t()


def times_dense(s: Any, d: Any) -> Any:
    """The product of a sparse matrix (n, m) and a dense one (m, k)."""
    at, v = loose(s)
    row, col = at[0], at[1]
    part = d.index_select(0, col) * v.unsqueeze(1)
    return part.new_zeros((s.shape[0], d.shape[1])).index_add(0, row, part)


def times_sparse(a: Any, b: Any) -> tuple[Any, Any]:
    """(indices, values) of the product of two sparse matrices."""
    torch = _lazy.torch
    (aa, va), (ab, vb) = coo(a), coo(b)
    m, k = b.shape
    ends = (
        torch.zeros(m + 1, dtype=aa.dtype, device=aa.device).index_add(0, ab[0] + 1, torch.ones_like(ab[0])).cumsum(0)
    )
    first, count = ends.index_select(0, aa[1]), ends.diff().index_select(0, aa[1])
    total = int(count.sum()) if count.numel() else 0
    which = torch.arange(aa.shape[1], device=aa.device).repeat_interleave(count, output_size=total)
    before = count.cumsum(0) - count
    other = torch.arange(total, device=aa.device) - before.index_select(0, which) + first.index_select(0, which)
    number = aa[0].index_select(0, which) * k + ab[1].index_select(0, other)
    number, v = merged(number, va.index_select(0, which) * vb.index_select(0, other))
    return from_keys(number, (a.shape[0], k)), v


def _checked(name: str, a: Any, b: Any) -> None:
    for x in (a, b):
        if is_sparse(x) and x.layout is COO and sparse_dims(x) != 2:
            raise RuntimeError(f"addmm: matrices expected, got {sparse_dims(x)}D tensor")
    if a.ndim != 2 or b.ndim != 2:
        raise RuntimeError(f"addmm: matrices expected, got {a.ndim if a.ndim != 2 else b.ndim}D tensor")
    if a.shape[1] != b.shape[0]:
        if is_sparse(a) and not is_sparse(b) and a.layout is COO:
            raise RuntimeError(f"addmm: Argument #3 (dense): Expected dim 0 size {a.shape[1]}, got {b.shape[0]}")
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({a.shape[0]}x{a.shape[1]} and {b.shape[0]}x{b.shape[1]})"
        )
    if a.dtype is not b.dtype:
        word = _lazy.shapes.type_name
        raise RuntimeError(f"expected scalar type {word(a.dtype)} but found {word(b.dtype)}")


def product(a: Any, b: Any, label: str) -> Any:
    """The product of two matrices, at least one of which is sparse."""
    _checked(label, a, b)
    if is_sparse(a) and is_sparse(b):
        if (a.layout is COO) is not (b.layout is COO):
            raise RuntimeError(
                f"addmm: computation on CPU is not implemented for {WORDS[a.layout][0]} + {WORDS[a.layout][0]} @ {WORDS[b.layout][0]}"
            )
        at, v = times_sparse(a, b)
        shape = (a.shape[0], b.shape[1])
        if a.layout is COO:
            return made("SparseSparseMatmul", COO, (at,), v, shape, True)
        to = a.layout if a.layout is b.layout and a.layout not in BLOCKED else CSR
        return compressed(shape, at, v, to)
    if label.startswith("Sparse"):
        return named(times_dense(a, b) if is_sparse(a) else times_dense(_transposed(b), a.t()).t(), label, a, b)
    # as PyTorch: the gradient for a sparse factor is dense, so that it may become elements which are not stored
    x, y = a.detach(), b.detach()
    r = times_dense(x, y) if is_sparse(a) else times_dense(_transposed(y), x.t()).t()
    record(
        label,
        (a, b),
        r,
        (lambda g, x, y: _any(g, _transposed(y).conj(), label), lambda g, x, y: _any(_transposed(x).conj(), g, label)),
        (a, b),
    )
    return r


def _any(a: Any, b: Any, label: str) -> Any:
    return product(a, b, label) if is_sparse(a) or is_sparse(b) else a.mm(b)


@op("mm")
def mm(a: Any, b: Any, reduce: Any = None) -> Any:
    """The product of two matrices; `reduce`: what is made of the terms instead of their sum ("mean", "amax", "amin")."""
    return product(a, b, "MmBackward0") if reduce is None else reduced(a, b, reduce)


@op("_sparse_mm")
def sparse_mm(a: Any, b: Any, reduce: Any = None) -> Any:
    """`torch.sparse.mm`."""
    if reduce is not None:
        return reduced(a, b, reduce)
    if not is_sparse(a) and not is_sparse(b):
        raise RuntimeError("torch.sparse.mm: at least one of the matrices has to be sparse")
    return product(a, b, "SparseAddmmBackward0")


def reduced(s: Any, d: Any, reduce: str) -> Any:
    """A row-wise reduction of the terms of a product of a CSR matrix and a dense one."""
    if reduce not in ("sum", "mean", "amax", "amin"):
        raise RuntimeError(f"reduce argument must be either sum, mean, amax or amin, got {reduce}")
    if not is_sparse(s) or s.layout is not CSR:
        raise RuntimeError("torch.sparse.mm: reduce is only supported for a matrix of layout torch.sparse_csr")
    _lazy.promotion.check_kernel("spmm_reduce_kernel", s.dtype, _lazy.promotion.FLOATING)
    torch = _lazy.torch
    at, _ = positions(s)
    part = d.index_select(0, at[1]) * values_of(s).unsqueeze(1)
    target = part.new_zeros((s.shape[0], d.shape[1]))
    where = at[0].unsqueeze(1).expand(part.shape)
    r = target.scatter_reduce(0, where, part, reduce, include_self=False) if part.numel() else target
    return named(r, "SparseMmReduceImplBackward0", s, d) if isinstance(torch, object) else r


@op("addmm", "sspaddmm")
def addmm(c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1, label: str = "MmBackward0") -> Any:
    """beta · c + alpha · a @ b. Sparse only where all three are."""
    if is_sparse(c) and (not is_sparse(a) or not is_sparse(b)):
        raise RuntimeError(
            f"addmm_sparse_dense: expected strided result tensor, got tensor with layout {WORDS[c.layout][0]}"
        )
    p = product(a, b, label)
    if alpha != 1:
        p = p * alpha
    if is_sparse(p) and is_sparse(c):
        return add(p, c if beta == 1 else mul(c, beta))
    if beta == 0:
        return p
    c = c if beta == 1 else c * beta
    if is_sparse(p):
        return add(c, p)
    return named(p + c, "AddmmBackward0", c if isinstance(c, Tensor) else None, a, b)


op("_sparse_addmm")(lambda c, a, b, **kw: addmm(c, a, b, **kw, label="SparseAddmmBackward0"))


@op()
def mv(a: Any, v: Any) -> Any:
    """The product of a matrix and a vector."""
    if is_sparse(v):
        raise refused("mv", v)
    if a.ndim != 2 or v.ndim != 1 or a.shape[-1] != v.shape[0]:
        raise RuntimeError("mv: expected self.size(-1) == vec.size(-1)")
    return named(product(a, v.unsqueeze(1), "MvBackward0").squeeze(1), "MvBackward0", a, v)


@op()
def addmv(c: Any, a: Any, v: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta · c + alpha · a @ v."""
    r = mv(a, v) * alpha
    return r if beta == 0 else r + c * beta


@op()
def bmm(a: Any, b: Any) -> Any:
    """Products of batches: of a sparse (b, n, m) and a dense (b, m, k)."""
    if not is_sparse(a) or is_sparse(b) or a.layout is not COO:
        raise refused("bmm", a if is_sparse(a) else b)
    if sparse_dims(a) != 3 or b.ndim != 3:
        raise RuntimeError("bmm_sparse: Any 'self' must have 3 sparse dims, 'mat2' must be a 3D tensor")
    if a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise RuntimeError(
            "bmm_sparse: Expected size for first two dimensions of batch2 tensor to be: "
            f"[{a.shape[0]}, {a.shape[2]}] but got: [{b.shape[0]}, {b.shape[1]}]."
        )
    at, v = loose(a)
    part = b.reshape(-1, b.shape[2]).index_select(0, at[0] * a.shape[2] + at[2]) * v.unsqueeze(1)
    flat = part.new_zeros((a.shape[0] * a.shape[1], b.shape[2])).index_add(0, at[0] * a.shape[1] + at[1], part)
    return named(flat.reshape(a.shape[0], a.shape[1], b.shape[2]), "BmmBackward0", a, b)


@op("matmul", "__matmul__")
def matmul(a: Any, b: Any) -> Any:
    """`a @ b` of vectors and matrices."""
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return NotImplemented
    if a.ndim == 2 and b.ndim == 2:
        return mm(a, b)
    if a.ndim == 2 and b.ndim == 1:
        return mv(a, b)
    if a.ndim == 1 and b.ndim == 2:
        r = product(OPS["unsqueeze"](a, 0) if is_sparse(a) else a.unsqueeze(0), b, "MmBackward0")
        return OPS["select"](r, 0, 0) if is_sparse(r) else r.squeeze(0)
    s = a if is_sparse(a) else b
    if a.ndim == 1 and b.ndim == 1:
        raise refused("dot", s)
    raise RuntimeError("expand is unsupported for Sparse tensors")


@op("linear")
def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """x @ weight.T + bias, of matrices."""
    r = matmul(x, OPS["transpose"](weight, 0, 1) if is_sparse(weight) else weight.t())
    return r if bias is None else r + bias


@op()
def hspmm(s: Any, d: Any) -> Any:
    """The product of a sparse matrix and a dense one as a hybrid tensor: only the rows that `s` has elements in."""
    _checked("hspmm", s, d)
    at, v = coo(s)
    row, r = merged(at[0], d.index_select(0, at[1]) * v.unsqueeze(1))
    return made("Hspmm", COO, (row.unsqueeze(0),), r, (s.shape[0], d.shape[1]), False)


@op()
def smm(s: Any, d: Any) -> Any:
    """The same with two sparse dimensions."""
    h = hspmm(s, d)
    torch = _lazy.torch
    row, k = parts(h)[0][0], d.shape[1]
    at = torch.stack([row.repeat_interleave(k), torch.arange(k, device=row.device).repeat(row.shape[0])])
    return made("Smm", COO, (at,), values_of(h).reshape(-1), h.shape)


@op("sparse_sampled_addmm", "sampled_addmm")
def sampled_addmm(s: Any, a: Any, b: Any, *, beta: Any = 1.0, alpha: Any = 1.0) -> Any:
    """alpha · (a @ b) where the CSR tensor `s` has elements, + beta · s."""
    if not is_sparse(s) or s.layout is not CSR:
        got = WORDS[s.layout][0]
        raise RuntimeError(f"sampled_addmm: Expected self to have sparse csr layout, but got {got}")
    if s.dtype.itemsize < 4 or not (s.dtype.is_floating_point or s.dtype.is_complex):
        got = _lazy.shapes.type_name(s.dtype)
        raise RuntimeError(
            f"sparse_sampled_addmm: Expected self to be a floating-point or complex tensor, but got {got}"
        )
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        raise RuntimeError(
            f"sampled_addmm: mat1 and mat2 shapes cannot be multiplied ({a.shape[-2]}x{a.shape[-1]} and {b.shape[-2]}x{b.shape[-1]})"
        )
    for d, n in ((-2, a.shape[-2]), (-1, b.shape[-1])):
        if s.shape[d] != n:
            raise RuntimeError(f"sampled_addmm: self.shape[{d}] must match mat{1 if d == -2 else 2}.shape[{d}]")
    at, _ = positions(s)
    batch = s.shape[:-2]
    n = prod(batch)
    left, right = a.reshape(n * a.shape[-2], a.shape[-1]), b.mT.reshape(n * b.shape[-1], b.shape[-2])
    which = keys(at[:-2], batch) if batch else 0
    picked = left.index_select(0, which * s.shape[-2] + at[-2]) * right.index_select(0, which * s.shape[-1] + at[-1])
    v = picked.sum(-1).reshape(parts(s)[-1].shape)
    v = v * alpha if alpha != 1 else v
    own = s.detach()
    r = like("", own, v.detach() if beta == 0 else v.detach() + parts(s)[-1] * beta)
    record(
        "SparseSampledAddmmBackward0",
        (s, v),
        r,
        (lambda g: g * (beta.conjugate() if isinstance(beta, complex) else beta), lambda g: values_at(g, own)),
    )
    return r
