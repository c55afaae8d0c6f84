"""Equations and determinants: `linalg.solve`, triangular ones, inverses, `det`. Gradients are formulas over tensors."""

from __future__ import annotations

from math import prod
from typing import Any

from tabtorch import ops
from tabtorch.autograd.tape import named as grad_named
from tabtorch.autograd.tape import record
from tabtorch.base import dtypes
from tabtorch.core.shapes import type_name
from tabtorch.core.tensor import Tensor
from tabtorch.ops.indexing.index_maps import every_example
from tabtorch.ops.linalg.host_kernels import (
    by_columns,
    check_info,
    doubles,
    given,
    need_equation,
    need_float,
    need_kernel,
    need_matrix,
    need_system,
    run,
    within,
)
from tabtorch.ops.machinery.operation import into, into_two, named, operation
from tabtorch.ops.machinery.out_types import DATA_TYPE, EXACT, safely
from tabtorch.ops.machinery.registry import register

# ---- A X = B


def _solve(name: str, A: Tensor, B: Tensor, left: bool, check: bool) -> tuple[Tensor, Tensor]:
    need_float("linalg.solve", A)
    if A.dtype is not B.dtype:
        raise RuntimeError(
            f"linalg.solve: Expected A and B to have the same dtype, but found A of type {type_name(A.dtype)} and B of "
            f"type {type_name(B.dtype)} instead"
        )
    vector = A.ndim > 1 and (B.ndim == 1 or A.shape[:-1] == B.shape)
    b = B.unsqueeze(-1) if vector else B
    need_equation("linalg.solve", A, b, left)
    if vector and not left:
        raise RuntimeError(
            "linalg.solve: Vector broadcasting of the left hand side is not supported for left=False. In this case "
            "linalg.solve is equivalent to B / A.squeeze(-1)"
        )
    need_kernel("lu_cpu", A)
    return _solved(name, A, B, left, check, vector)


def _solved(name: str, A: Tensor, B: Tensor, left: bool = True, check: bool = False, vector: bool = False) -> Any:
    def back(g: Any, A: Tensor, X: Any) -> Any:
        if vector:
            g, X = g.unsqueeze(-1), X.unsqueeze(-1)
        gB = _solved(name, A.mH, g, left)[0]
        return -(gB @ X.mH if left else X.mH @ gB), gB.squeeze(-1) if vector else gB

    a, b = doubles(A, B)
    b = b.unsqueeze(-1) if vector else b
    a, b = (a, b) if left else (a.mH, b.mH)
    x, found = run("solve", [a, b], [b.shape[-2:], []])
    if check:
        check_info(name, found)
    X = given(x.squeeze(-1), A) if vector else given(x, A, order="F") if left else given(x.mH, A)
    info = given(found, A, dtypes.int32)
    record("LinalgSolveExBackward0", (A, B), X, back, (A, X))
    return X, info


_SolveEx = named("linalg_solve_ex", "result", "info")


@operation("linalg_solve_ex", method=False)
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False, out: Any = None) -> Any:
    """`solve` that tells in `info` whether a matrix is singular (0: it is not), in place of an error."""
    return into_two(out, _SolveEx(_solve("torch.linalg.solve_ex", A, B, left, check_errors)))


@operation("linalg_solve", method=False)
def linalg_solve(A: Tensor, B: Tensor, *, left: bool = True, out: Any = None) -> Tensor:
    """X with A X = B (X A = B where not `left`). `A` (*, n, n), `B` (*, n, k) or (*, n). LinAlgError for singular ones."""
    return into(out, _solve("torch.linalg.solve", A, B, left, True)[0], rule=EXACT)


# ---- triangular


def _triangle(a: Tensor, b: Tensor, upper: bool, left: bool = True, unit: bool = False, turned: bool = False) -> Tensor:
    """x with a x = b (aᴴ x = b where `turned`, x a = b where not `left`), as float64. One triangle of `a` is looked at."""
    if not left:
        return _triangle(a, b.mH, upper, True, unit, not turned).mH
    return run("triangular", [a, b], [b.shape[-2:]], int(upper), int(unit), int(turned))[0]


def _substituted(A: Tensor, B: Tensor, upper: bool, left: bool, unit: bool) -> Tensor:
    def back(g: Any, A: Tensor, X: Any) -> Any:
        gB: Any = _substituted(A.mH, g, not upper, left, unit)
        gA = -(gB @ X.mH if left else X.mH @ gB)
        return (gA.triu(int(unit)) if upper else gA.tril(-unit)), gB

    a, b = doubles(A, B)
    X = given(_triangle(a, b, upper, left, unit), A, order="F")
    record("LinalgSolveTriangularBackward0", (A, B), X, back, (A, X))
    return X


@operation("linalg_solve_triangular", method=False)
def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False, out: Any = None
) -> Tensor:
    """X with A X = B (X A = B where not `left`), where only one triangle of `A` (*, n, n) is looked at.

    With `unitriangular` its diagonal counts as ones. A zero on the diagonal is no error: it makes inf and nan.
    """
    need_equation("linalg.solve_triangular", A, B, left)
    need_kernel("triangular_solve_cpu", A)
    return into(out, _substituted(A, B, bool(upper), left, bool(unitriangular)), rule=DATA_TYPE)


_TriangularSolve = named("triangular_solve", "solution", "cloned_coefficient")


@operation("triangular_solve")
def triangular_solve(
    b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False, *, out: Any = None
) -> Any:
    """X with A X = b (Aᵀ X = b with `transpose`) of one triangle of `A`, and a copy of `A`. `linalg.solve_triangular` is newer."""
    for name, t in (("b", b), ("A", A)):
        if t.ndim < 2:
            raise RuntimeError(
                f"torch.triangular_solve: Expected {name} to have at least 2 dimensions, but it has {t.ndim} dimensions instead"
            )
    need_system("triangular_solve", b, A)
    need_kernel("triangular_solve_cpu", A)
    X = _substituted(A.mT if transpose else A, b, upper != transpose, True, bool(unitriangular))
    C = by_columns(A.expand(*X.shape[:-2], *A.shape[-2:]))
    for t in (X, C):
        grad_named(t, "TriangularSolveBackward0", b, A)
    return into_two(out, _TriangularSolve(X, C))


# ---- of factorisations


def need_pivots(kind: str, pivots: Tensor, rows: int, shown: str = "") -> None:
    """RuntimeError for pivots that do not all name one of `rows` rows, counted from 1."""
    if within(pivots, rows):
        return
    start, asked = f"Pivots given to {kind}_solve must all ", f". Did you properly pass the result of {kind}_factor?"
    if not within(pivots, 2**31):
        raise RuntimeError(f"{start}{f'satisfy {shown} >=' if shown else 'be greater or equal to'} 1{asked}")
    size = f"{'LD' if shown else 'LU'}.size(-2)"
    raise RuntimeError(f"{start}{f'satisfy {shown} <=' if shown else 'be smaller or equal to'} {size}{asked}")


@operation("linalg_lu_solve", method=False)
def linalg_lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False, out: Any = None
) -> Tensor:
    """X with A X = B (X A = B where not `left`, Aᴴ with `adjoint`), given `linalg.lu_factor(A)`."""
    need_float("torch.linalg.lu_solve", LU)
    if LU.dtype is not B.dtype:
        raise RuntimeError(
            f"linalg.lu_solve: Expected LU and B to have the same dtype, but found LU of type {type_name(LU.dtype)} and B "
            f"of type {type_name(B.dtype)} instead"
        )
    if pivots.dtype is not dtypes.int32:
        raise RuntimeError("linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32")
    need_matrix("torch.linalg.lu_solve", LU, square=True)
    need_equation("linalg.lu_solve", LU, B, left)
    if LU.shape[-1] != pivots.shape[-1]:
        raise RuntimeError("linalg.lu_solve: Number of pivots per batch should be same as the dimension of the matrix")
    if LU.shape[:-1] != pivots.shape:
        raise RuntimeError(
            "linalg.lu_solve: Expected LU.shape[:-1] and pivots.shape to be the same, but got pivots with shape "
            f"{list(pivots.shape)} instead"
        )
    need_kernel("linalg.lu_solve_cpu", LU)

    def back_lu(g: Any, LU: Tensor, pivots: Tensor, X: Any) -> Tensor:
        P, L, U = ops.lu_unpack(LU, pivots)
        r: Any
        if not left:
            X, g = X.mH, g.mH
        if left != adjoint:
            r = _substituted(U.mH, -g @ X.mH, False, True, False)
            return _substituted(L.mH, r @ U.mH, True, True, True).tril(-1) + r.triu()
        r = _substituted(L.mH, -P.mT @ X @ g.mH @ P, True, False, True)
        return r.tril(-1) + _substituted(U.mH, L.mH @ r, False, False, False).triu()

    def back_b(g: Any, LU: Tensor, pivots: Tensor, X: Any) -> Tensor:
        return linalg_lu_solve(LU, pivots, g, left=left, adjoint=not adjoint)

    need_pivots("lu", pivots, LU.shape[-1])
    a, p, b = doubles(LU, pivots.unsqueeze(-1), B if left else B.mH)
    (x,) = run("luSolve", [a, p, b], [b.shape[-2:]], int(left == adjoint))
    X = given(x, LU, order="F") if left else given(x.mH, LU)
    record("LinalgLuSolveBackward0", (LU, B), X, (back_lu, back_b), (LU, pivots, X))
    return into(out, X, rule=EXACT)


@operation("lu_solve")
def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor, *, out: Any = None) -> Tensor:
    """X with A X = b, given the LU factorisation of A. `linalg.lu_solve` is newer."""
    return linalg_lu_solve(LU_data, LU_pivots, b, out=out)


def _cholesky_solved(b: Tensor, L: Tensor, upper: bool) -> Tensor:
    def back(g: Any, L: Any, X: Any) -> Any:
        gb: Any = _cholesky_solved(g, L, upper)
        both = gb @ X.mH
        both = both + both.mH
        return gb, -(L @ both if upper else both @ L)

    a, x = doubles(L, b)
    for turned in (upper, not upper):
        x = _triangle(a, x, upper, turned=turned)
    X = given(x, b, order="F")
    record("CholeskySolveBackward0", (b, L), X, back, (L, X))
    return X


@operation("cholesky_solve")
def cholesky_solve(input: Tensor, input2: Tensor, upper: bool = False, *, out: Any = None) -> Tensor:
    """X with A X = input, given the Cholesky factor of A: A = L Lᴴ, or Uᴴ U with `upper`."""
    for name, t in (("b", input), ("u", input2)):
        if t.ndim < 2:
            raise RuntimeError(f"{name} should have at least 2 dimensions, but has {t.ndim} dimensions instead")
    need_system("cholesky_solve", input, input2)
    need_kernel("cholesky_solve_cpu", input)
    return into(out, _cholesky_solved(input, input2, upper), rule=safely("cholesky_solve"))


@operation("cholesky_inverse")
def cholesky_inverse(input: Tensor, upper: bool = False, *, out: Any = None) -> Tensor:
    """The inverse of L Lᴴ (of Uᴴ U with `upper`). LinAlgError for a zero on the diagonal."""
    need_matrix("cholesky_inverse", input, square=True)
    need_kernel("cholesky_inverse_out_cpu", input)

    def back(g: Any, a: Tensor, x: Tensor) -> Tensor:
        both = x @ (g + g.mH) @ x
        return -(a @ both if upper else both @ a)

    (a,) = doubles(input)
    n = a.shape[-1]
    if a.numel():
        zero = a.diagonal(0, -2, -1) == 0
        check_info("cholesky_inverse", ops.where(zero.any(-1), zero.int().argmax(-1) + 1, 0))
    x: Any = _triangle(a, ops.eye(n, dtype=a.dtype, device=a.device), upper, turned=upper)
    X = given(x.mH @ x, input, order="F")
    record("CholeskyInverseBackward0", (input,), X, back, (input, X))
    return into(out, X, rule=safely("cholesky_inverse"))


@operation("linalg_ldl_solve", method=False)
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False, out: Any = None) -> Tensor:
    """X with A X = B, given `linalg.ldl_factor(A)`. Not differentiable."""
    need_matrix("torch.linalg.ldl_solve", LD, square=True)
    need_float("torch.linalg.ldl_solve", LD)
    need_matrix("torch.linalg.ldl_solve", B, "B")
    need_system("torch.linalg.ldl_solve", B, LD)
    if LD.shape[:-1] != pivots.shape:
        raise RuntimeError(
            "torch.linalg.ldl_solve: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with shape "
            f"{list(pivots.shape)} instead"
        )
    if pivots.dtype.category != 1:
        raise RuntimeError(f"torch.linalg.ldl_solve: Expected pivots to be integers. Got {type_name(pivots.dtype)}")
    need_kernel("ldl_solve_kernel_cpu", LD)

    need_pivots("ldl", pivots.abs(), LD.shape[-1], "|pivot|")
    (x,) = run("ldlSolve", doubles(LD, pivots.unsqueeze(-1), B, wide=True), [B.shape[-2:]], int(hermitian))
    return into(out, given(x, LD, LD.dtype, "F"), rule=EXACT)


# ---- inverses


def _inverse(name: str, A: Tensor, check: bool) -> tuple[Tensor, Tensor]:
    need_matrix("linalg.inv", A, square=True)
    need_float("linalg.inv", A, low=False)

    (a,) = doubles(A)
    x, found = run("solve", [a, ops.eye(a.shape[-1], dtype=a.dtype, device=a.device)], [a.shape[-2:], []])
    if check:
        check_info(name, found)
    X, info = given(x, A, order="F"), given(found, A, dtypes.int32)
    record("LinalgInvExBackward0", (A,), X, lambda g, x: -(x.mH @ g @ x.mH), (X,))
    return X, info


_InvEx = named("linalg_inv_ex", "inverse", "info")


@operation("linalg_inv_ex", method=False)
def inv_ex(A: Tensor, *, check_errors: bool = False, out: Any = None) -> Any:
    """`inv` that tells in `info` whether a matrix is singular (0: it is not), in place of an error."""
    return into_two(out, _InvEx(_inverse("linalg.inv_ex", A, check_errors)))


@operation("linalg_inv", method=False)
def inv(A: Tensor, *, out: Any = None) -> Tensor:
    """Inverses of square matrices (*, n, n). LinAlgError for singular ones."""
    return into(out, _inverse("linalg.inv", A, True)[0], rule=EXACT)


@operation("inverse")
def inverse(input: Tensor, *, out: Any = None) -> Tensor:
    """`linalg.inv`."""
    return inv(input, out=out)


@operation("linalg_tensorinv", method=False)
def tensorinv(A: Tensor, ind: int = 2, *, out: Any = None) -> Tensor:
    """The inverse of `tensordot` with `A`, whose first `ind` dimensions have as many elements as the others."""
    if ind <= 0:
        raise RuntimeError(f"Expected a strictly positive integer for 'ind', but got {ind}")
    rows, columns = A.shape[:ind], A.shape[ind:]
    m, n = prod(rows), prod(columns)
    if m != n:
        raise RuntimeError(
            f"Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got {n} != {m}"
        )
    x = _inverse("inv", A.reshape(n, n), True)[0].reshape(*columns, *rows)
    return into(out, x if out is None else x.contiguous(), rule=safely("tensorinv"))  # an empty out= becomes row-major


@operation("linalg_tensorsolve", method=False)
def tensorsolve(A: Tensor, B: Tensor, dims: Any = None, *, out: Any = None) -> Tensor:
    """X with tensordot(A, X, X.ndim) = B; `dims` of `A` are moved to its end first."""
    if dims is not None:
        A = A.movedim(tuple(dims), tuple(range(A.ndim - len(dims), A.ndim)))
    shape = A.shape[B.ndim :]
    m, n = prod(shape), B.numel()
    if m != n:
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), but got "
            f"{m} != {n}"
        )
    return into(out, linalg_solve(A.reshape(m, m), B.flatten()).reshape(shape), rule=safely("tensorsolve"))


# ---- determinants


def _diagonal(d: Tensor, A: Tensor) -> Tensor:
    """Matrices like `A` with one number of `d` on the whole diagonal of each."""
    return ops.diag_embed(d.unsqueeze(-1).expand(A.shape[:-1]))


def _cofactors(A: Tensor, g: Tensor) -> Tensor:
    """The gradient of det where the matrix may be singular: of its singular values (Higham, "What is the adjugate of a matrix?")."""
    U, S, Vh = ops.linalg_svd(A, full_matrices=False)
    one = ops.ones_like(S[..., :1])
    before = ops.cat([one, S[..., :-1]], -1).cumprod(-1)
    after = ops.cat([one, S.flip(-1)[..., :-1]], -1).cumprod(-1).flip(-1)
    sign = (ops.linalg_det(U) * ops.linalg_det(Vh)).conj() * g
    return (U * (sign.unsqueeze(-1) * (before * after)).unsqueeze(-2)) @ Vh


def _det_back(g: Tensor, A: Tensor, det: Tensor) -> Tensor:
    if A.numel() == 0:
        return ops.zeros_like(A)
    n = A.shape[-1]
    if n == 1:
        return g.reshape(A.shape)
    flat, g1, d1 = A.reshape(-1, n, n), g.reshape(-1), det.reshape(-1)
    # which way depends on the value; the determinant came from the host anyway
    singular: Any = d1.detach().abs() < 100 * dtypes.finfo(A.dtype).eps
    seen = every_example(singular)
    count = int(seen.sum().item())
    plain = lambda A, g, d: _solved("det", A.mH, _diagonal(g * d.conj(), A))[0]  # noqa: E731
    if count == 0:
        r = plain(flat, g1, d1)
    elif count == len(d1) or seen is not singular:
        r = _cofactors(flat, g1)
    else:
        i, j = singular.nonzero()[:, 0], singular.logical_not().nonzero()[:, 0]
        r = ops.cat([_cofactors(flat[i], g1[i]), plain(flat[j], g1[j], d1[j])])[ops.cat([i, j]).argsort()]
    return r.reshape(A.shape)


def _lu_diagonal(A: Tensor) -> tuple[Any, Tensor]:
    """Numbers (*, n) whose product is the determinant but for a sign, and that."""
    n = A.shape[-1]
    LU, pivots, _ = run("lu", doubles(A), [A.shape[-2:], [n], []], 1)
    odd = (pivots != ops.arange(1, n + 1, device=pivots.device)).sum(-1) % 2
    return LU.diagonal(0, -2, -1), 1 - 2 * odd


@operation("linalg_det", method=False)
def linalg_det(A: Tensor, *, out: Any = None) -> Tensor:
    """Determinants of square matrices: (*, n, n) to (*)."""
    need_matrix("linalg.det", A, square=True)
    need_float("linalg.det", A)
    need_kernel("lu_cpu", A)
    d, flip = _lu_diagonal(A)
    r = given(d.prod(-1) * flip, A)
    record("LinalgDetBackward0", (A,), r, _det_back, (A, r))
    return into(out, r, rule=EXACT)


@operation("det")
def det(input: Tensor) -> Tensor:
    """`linalg.det`."""
    return linalg_det(input)


def _slogdet(name: str, A: Tensor) -> tuple[Any, Any]:
    need_matrix(name, A, square=True)
    need_float(name, A, low=False)

    def back(gs: Any, A: Tensor, sign: Tensor) -> Tensor:
        # of log det = log |det| + i θ, whose differential is tr(A⁻¹ dA)
        g_sign, g = gs
        if g is None:
            g = ops.zeros_like(sign.real if A.is_complex() else sign)
        if A.is_complex() and g_sign is not None:
            g = ops.complex(g, -(g_sign.conj() * sign).imag)
        return _solved(name, A.mH, _diagonal(g.to(A.dtype), A))[0]

    d, flip = _lu_diagonal(A)
    sign, logarithm = given(d.sgn().prod(-1) * flip, A), given(d.abs().log().sum(-1), A)
    record("LinalgSlogdetBackward0", (A,), (sign, logarithm), back, (A, sign))
    return sign, logarithm


_LinalgSlogdet = named("linalg_slogdet", "sign", "logabsdet")
_Slogdet = named("slogdet", "sign", "logabsdet")


@operation("linalg_slogdet", method=False)
def linalg_slogdet(A: Tensor, *, out: Any = None) -> Any:
    """(sign, log |det|) of square matrices: (*, n, n) to (*) each."""
    return into_two(out, _LinalgSlogdet(_slogdet("linalg.slogdet", A)))


@operation("slogdet")
def slogdet(input: Tensor, *, out: Any = None) -> Any:
    """`linalg.slogdet`."""
    return into_two(out, _Slogdet(_slogdet("linalg.slogdet", input)))


@register("logdet", method=True)
def logdet(input: Tensor) -> Tensor:
    """log det; nan for a negative determinant, -inf for zero."""
    sign, logarithm = _slogdet("logdet", input)
    return sign.log() + logarithm if input.is_complex() else ops.where(sign == -1, float("nan"), logarithm)
