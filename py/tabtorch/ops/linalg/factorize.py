"""Factorisations: Cholesky, LU, QR, L D Lᵀ, products of Householder reflections. Their gradients are formulas over tensors."""

from __future__ import annotations

from typing import Any

from tabtorch import ops
from tabtorch.autograd.tape import named as grad_named
from tabtorch.autograd.tape import record
from tabtorch.base import dtypes
from tabtorch.core.shapes import type_name
from tabtorch.core.tensor import Tensor
from tabtorch.ops.linalg.host_kernels import (
    by_columns,
    check_info,
    doubles,
    given,
    need_float,
    need_kernel,
    need_matrix,
    run,
    within,
)
from tabtorch.ops.machinery.operation import into, into_two, named, operation
from tabtorch.ops.machinery.out_types import EXACT, anything, safely, same


def _divide(T: Tensor, X: Tensor, *, upper: bool, left: bool = True, unit: bool = False) -> Tensor:
    return ops.linalg_solve_triangular(T, X, upper=upper, left=left, unitriangular=unit)


# ---- Cholesky


def _cholesky(name: str, A: Tensor, upper: bool, check: bool) -> tuple[Tensor, Tensor]:
    public = name.removesuffix("_ex")
    need_matrix(public, A, square=True)
    if public != "cholesky":
        need_float(public, A)
    need_kernel("cholesky_cpu", A)

    def back(g: Any, L: Any) -> Tensor:
        # L⁻ᴴ π(Lᴴ g) L⁻¹, where π(X) is half of the Hermitian matrix with the lower triangle of X
        if upper:
            g, L = g.mH, L.mH
        x = (L.mH @ g).tril()
        x = (x + x.tril(-1).mH) * 0.5
        return _divide(L, _divide(L.mH, x, upper=True), upper=False, left=False)

    a = doubles(A.mH if upper else A)
    low, found = run("cholesky", a, [A.shape[-2:], []])
    if check:
        check_info(name, found)
    L, info = given(low.mH if upper else low, A, order="F"), given(found, A, dtypes.int32)
    record("CholeskyBackward0" if name == "cholesky" else "LinalgCholeskyExBackward0", (A,), L, back, (L,))
    return L, info


_CholeskyEx = named("linalg_cholesky_ex", "L", "info")


@operation("linalg_cholesky_ex", method=False)
def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False, out: Any = None) -> Any:
    """`linalg.cholesky` that tells in `info` which leading minor is not positive (0: all are), in place of an error."""
    return into_two(out, _CholeskyEx(_cholesky("linalg.cholesky_ex", A, upper, check_errors)))


@operation("linalg_cholesky", method=False)
def linalg_cholesky(A: Tensor, *, upper: bool = False, out: Any = None) -> Tensor:
    """L with L Lᴴ = A (U with Uᴴ U = A), of positive-definite Hermitian matrices (*, n, n). LinAlgError for others."""
    return into(out, _cholesky("linalg.cholesky", A, upper, True)[0], rule=EXACT)


@operation("cholesky")
def cholesky(input: Tensor, upper: bool = False, *, out: Any = None) -> Tensor:
    """`linalg.cholesky`, which is newer."""
    L = _cholesky("cholesky", input, upper, True)[0]
    return into(out, L if out is None else L.contiguous(), rule=safely("cholesky"))  # an empty out= becomes row-major


# ---- LU


def _need_lu(name: str, A: Tensor, pivot: bool) -> None:
    if A.ndim < 2:
        raise RuntimeError(f"{name}: Expected tensor with 2 or more dimensions. Got size: {list(A.shape)} instead")
    need_kernel("lu_cpu", A)
    if not pivot and A.device.type == "cpu":
        raise RuntimeError("linalg.lu_factor: LU without pivoting is not implemented on the CPU")


def _lu_back(P: Any, L: Any, U: Any, gL: Any, gU: Any) -> Tensor:
    """The gradient of A = P L U. Of a wide or tall matrix, the square part comes first, and the rest follows from it."""
    m, n = L.shape[-2], U.shape[-1]
    k = min(m, n)
    gL = ops.zeros_like(L) if gL is None else gL
    gU = ops.zeros_like(U) if gU is None else gU
    square, below = L[..., :k, :].mH, gL[..., k:, :]
    first, right = U[..., :k].mH, gU[..., k:]
    low, high = square @ gL[..., :k, :], gU[..., :k] @ first
    if n > k:
        low = low - right @ U[..., k:].mH
    if m > k:
        high = high - L[..., k:, :].mH @ below
    r = _divide(first, low.tril(-1) + high.triu(), upper=False, left=False)
    if n > k:
        r = ops.cat([r, right], -1)
    r = _divide(square, r, upper=True, unit=True)
    if m > k:
        r = ops.cat([r, _divide(first, below, upper=False, left=False)], -2)
    return r if P is None else P @ r


def _lu(A: Tensor, pivot: bool) -> list[Tensor]:
    return run("lu", doubles(A), [A.shape[-2:], [min(A.shape[-2:])], []], int(pivot))


def _lu_factor(name: str, A: Tensor, pivot: bool, check: bool) -> tuple[Tensor, Tensor, Tensor]:
    _need_lu("torch.lu_factor", A, pivot)

    def back(g: Any, LU: Any, pivots: Tensor) -> Tensor:
        P, L, U = lu_unpack(LU, pivots, unpack_pivots=pivot)
        k = L.shape[-1]
        return _lu_back(P if pivot else None, L, U, g[..., :k].tril(-1), g[..., :k, :].triu())

    LU, pivots, found = _lu(A, pivot)
    if check:
        check_info(name, found)
    LU, pivots, info = given(LU, A, order="F"), given(pivots, A, dtypes.int32), given(found, A, dtypes.int32)
    record("LinalgLuFactorExBackward0", (A,), LU, back, (LU, pivots))
    return LU, pivots, info


_LuFactorEx = named("linalg_lu_factor_ex", "LU", "pivots", "info")
_LuFactor = named("linalg_lu_factor", "LU", "pivots")
_LuWithInfo = named("_lu_with_info", "LU", "pivots", "info")
_LinalgLu = named("linalg_lu", "P", "L", "U")
_LuUnpack = named("lu_unpack", "P", "L", "U")


@operation("linalg_lu_factor_ex", method=False)
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False, out: Any = None) -> Any:
    """`lu_factor` that tells in `info` which diagonal element of U is zero (0: none), in place of an error."""
    return into_two(out, _LuFactorEx(_lu_factor("torch.linalg.lu_factor_ex", A, pivot, check_errors)))


@operation("linalg_lu_factor", method=False)
def lu_factor(A: Tensor, *, pivot: bool = True, out: Any = None) -> Any:
    """L and U in one matrix (the ones on L's diagonal left out), and the row that each row was swapped with, from 1."""
    return into_two(out, _LuFactor(_lu_factor("torch.linalg.lu_factor", A, pivot, True)[:2]))


@operation("lu")
def torch_lu(A: Tensor, pivot: bool = True, get_infos: bool = False, out: Any = None) -> Any:
    """`linalg.lu_factor_ex`, of which `info` comes with `get_infos`. It is no error where U has a zero on its diagonal."""
    r = _lu_factor("lu", A, pivot, False)
    if out is not None:
        r = (r[0].contiguous(), *r[1:])  # as an empty out= becomes
    if get_infos:
        return into_two(out, _LuWithInfo(r), anything)
    return tuple(into_two(out, _LuFactor(r[:2]), anything))


@operation("linalg_lu", method=False)
def linalg_lu(A: Tensor, *, pivot: bool = True, out: Any = None) -> Any:
    """(P, L, U) with A = P L U: (*, m, m), (*, m, k), (*, k, n) of (*, m, n). Without `pivot` P is empty."""
    _need_lu("linalg.lu", A, pivot)
    m = A.shape[-2]

    def back(g: Any, P: Tensor, L: Tensor, U: Tensor) -> Tensor:
        return _lu_back(P if pivot else None, L, U, *g)

    x, pivots, _ = _lu(A, pivot)
    P = _permutation(A, pivots, m) if pivot else A.new_empty((0,))
    L, U = [given(t, A) for t in _low_and_high(x)]
    record("LinalgLuBackward0", (A,), (L, U), back, (P, L, U))
    return into_two(out, _LinalgLu(P, L, U))


def _low_and_high(x: Tensor) -> tuple[Tensor, Tensor]:
    """L and U of a matrix that has both."""
    m, n = x.shape[-2:]
    k = min(m, n)
    return x[..., :k].tril(-1) + ops.eye(m, k, dtype=x.dtype, device=x.device), x[..., :k, :].triu()


def _permutation(A: Tensor, pivots: Tensor, m: int) -> Tensor:
    """P, of the type of `A`, of pivots from 1: column i has its one in the row that row i of L U was."""
    (rows,) = run("permutation", doubles(pivots.unsqueeze(-1)), [[m]], m)
    return given(rows.unsqueeze(-2) == ops.arange(m, device=rows.device).unsqueeze(-1), A, A.dtype)


@operation("lu_unpack", method=False)
def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True, *, out: Any = None
) -> Any:
    """(P, L, U) of what `linalg.lu_factor` gave. What is not to be unpacked is empty."""
    if LU_data.ndim < 2:
        raise RuntimeError(
            f"torch.lu_unpack: Expected tensor with 2 or more dimensions. Got size: {list(LU_data.shape)} instead"
        )
    if unpack_pivots and LU_pivots.dtype is not dtypes.int32:
        raise RuntimeError(
            "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype.\n"
            "Note: this function is intended to be used with the output produced by torch.linalg.lu_factor"
        )
    m = LU_data.shape[-2]
    P, L, U = (LU_data.new_empty((0,)) for _ in range(3))
    if unpack_pivots:
        if not within(LU_pivots, m):
            raise RuntimeError(
                "pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive."
                "Did you properly pass the result of lu_factor?"
            )
        P = _permutation(LU_data, LU_pivots, m)
    if unpack_data:
        L, U = _low_and_high(LU_data)
        for t in (L, U):
            grad_named(t, "LuUnpackBackward0", LU_data)
    return into_two(out, _LuUnpack(P, L, U))


# ---- QR


def _qr(A: Tensor, mode: str) -> tuple[Tensor, Tensor]:
    need_matrix("linalg.qr", A)
    need_float("linalg.qr", A)
    if mode not in ("reduced", "r", "complete"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
        )
    need_kernel("geqrf_cpu", A)

    def back(g: Any, Q: Tensor, R: Tensor) -> Tensor:
        if mode == "r":
            raise RuntimeError(
                "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use linalg.qr(A, "
                "mode='reduced') if you are going to differentiate through linalg.qr."
            )
        m, n = Q.shape[-2], R.shape[-1]
        if mode == "complete" and m > n:
            raise RuntimeError("The QR decomposition is not differentiable when mode='complete' and nrows > ncols.")
        gQ, gR = g
        x = ops.zeros_like(R[..., :0]) @ ops.zeros_like(R[..., :0]).mH if gR is None else gR @ R.mH
        if gQ is not None:
            x = x - Q.mH @ gQ
        if m >= n:
            x = x.triu()
            x = Q @ (x + x.mH - ops.diag_embed(x.diagonal(0, -2, -1).real.to(x.dtype)))
            return _divide(R.mH, x if gQ is None else x + gQ, upper=False, left=False)
        x = (x.mH - x).tril()
        if x.is_complex():  # half of the diagonal, which is imaginary
            x = x - 0.5 * ops.diag_embed(x.diagonal(0, -2, -1))
        x = _divide(R[..., :m].mH, Q @ x, upper=False, left=False)
        x = ops.cat([x, ops.zeros_like(R[..., m:])], -1)
        return x if gR is None else x + Q @ gR

    m, n = A.shape[-2:]
    k = m if mode == "complete" else min(m, n)
    Q, R = [given(x, A, order="F") for x in run("qr", doubles(A), [(m, k), (k, n)], 1 + (mode == "complete"))]
    if mode == "r":
        Q = A.new_empty((0,))
    record("LinalgQrBackward0", (A,), (Q, R), back, (Q, R))
    return Q, R


_LinalgQr = named("linalg_qr", "Q", "R")
_Qr = named("qr", "Q", "R")
_Geqrf = named("geqrf", "a", "tau")


@operation("linalg_qr", method=False)
def linalg_qr(A: Tensor, mode: str = "reduced", *, out: Any = None) -> Any:
    """(Q, R) with A = Q R: (*, m, k), (*, k, n) of (*, m, n); "complete": (*, m, m), (*, m, n); "r": Q is empty."""
    return into_two(out, _LinalgQr(_qr(A, mode)))


@operation("qr")
def qr(input: Tensor, some: bool = True, *, out: Any = None) -> Any:
    """`linalg.qr`, which is newer; `some=False` is its "complete"."""
    return into_two(out, _Qr(_qr(input, "reduced" if some else "complete")))


@operation("geqrf")
def geqrf(input: Tensor, *, out: Any = None) -> Any:
    """R and the vectors of the reflections below its diagonal in one matrix, and their factors tau. Not differentiable."""
    if input.ndim < 2:
        raise RuntimeError("torch.geqrf: input must have at least 2 dimensions.")
    need_kernel("geqrf_cpu", input)

    def refuse(g: Any) -> Any:
        raise NotImplementedError("the derivative for 'geqrf' is not implemented.")

    a, tau = run("qr", doubles(input), [input.shape[-2:], (min(input.shape[-2:]),)], 0)
    a, tau = given(a, input, order="F"), given(tau, input)
    record("GeqrfBackward0", (input,), (a, tau), refuse)
    return into_two(out, _Geqrf(a, tau), rule=safely("torch.geqrf"))


# ---- reflections

# H₁ H₂ … = I - V T Vᴴ, where V has the vectors as columns and T = (I + diag(tau) triu(Vᴴ V, 1))⁻¹ diag(tau)
# (Schreiber and Van Loan, 1989), which products of matrices and one triangular equation compute.


def _reflections(input: Tensor, tau: Any) -> tuple[Any, Any]:
    m, k = input.shape[-2], tau.shape[-1]
    V: Any = input[..., :k].tril(-1) + ops.eye(m, k, dtype=input.dtype, device=input.device)
    return V, _divide(tau.unsqueeze(-1) * (V.mH @ V), ops.diag_embed(tau), upper=True, unit=True)


def _need_tau(name: str, input: Tensor, tau: Tensor) -> None:
    if input.ndim - tau.ndim != 1:
        raise RuntimeError(
            f"{name}: Expected tau to have one dimension less than input, but got tau.ndim equal to {tau.ndim} and "
            f"input.ndim is equal to {input.ndim}"
        )


def _need_batch(name: str, input: Tensor, what: str, batch: Any) -> None:
    if input.shape[:-2] != batch:
        raise RuntimeError(
            f"{name}: Expected batch dimensions of {what} to be equal to input.shape[:-2], but got {list(batch)}"
        )


@operation("linalg_householder_product", method=False)
def householder_product(input: Tensor, tau: Tensor, *, out: Any = None) -> Tensor:
    """The first columns of H₁ H₂ …, Hᵢ = I - tauᵢ vᵢ vᵢᴴ: `input` (*, m, n) with vᵢ below the diagonal, `tau` (*, k), k <= n <= m."""
    name = "torch.linalg.householder_product"
    if input.ndim < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.")
    m, n = input.shape[-2:]
    if m < n:
        raise RuntimeError(f"{name}: input.shape[-2] must be greater than or equal to input.shape[-1]")
    if n < tau.shape[-1]:
        raise RuntimeError(f"{name}: input.shape[-1] must be greater than or equal to tau.shape[-1]")
    _need_tau(name, input, tau)
    _need_batch(name, input, "tau", tau.shape[:-1])
    if input.dtype is not tau.dtype:
        raise RuntimeError(
            f"{name}: tau dtype {type_name(tau.dtype)} does not match input dtype {type_name(input.dtype)}"
        )
    need_kernel("orgqr_cpu", input)
    V, T = _reflections(input, tau)
    r: Tensor = ops.eye(m, n, dtype=input.dtype, device=input.device) - V @ (T @ V[..., :n, :].mH)
    return into(
        out,
        grad_named(by_columns(r), "LinalgHouseholderProductBackward0", input, tau),
        rule=safely("torch.linalg.householder_product"),
    )


@operation("orgqr")
def orgqr(input: Tensor, input2: Tensor, *, out: Any = None) -> Tensor:
    """`linalg.householder_product`."""
    return householder_product(input, input2, out=out)


_ORMQR_OUT = same(
    "torch.ormqr: Expected input and result to have the same dtype, but input has dtype{Want} and result has dtype {Have}"
)


@operation("ormqr")
def ormqr(
    input: Tensor, input2: Tensor, input3: Tensor, left: bool = True, transpose: bool = False, *, out: Any = None
) -> Tensor:
    """Q times `input3` (`input3` times Q where not `left`, Qᴴ with `transpose`), with Q of all reflections of `geqrf`."""
    tau, other = input2, input3
    for n, t in (("input", input), ("other", other)):
        if t.ndim < 2:
            raise RuntimeError(f"torch.ormqr: {n} must have at least 2 dimensions.")
    d = -2 if left else -1
    k, rows = tau.shape[-1], other.shape[d]
    if rows < k:
        raise RuntimeError(f"torch.ormqr: other.shape[{d}] must be greater than or equal to tau.shape[-1]")
    if rows != input.shape[-2]:
        raise RuntimeError(f"torch.ormqr: other.shape[{d}] must be equal to input.shape[-2]")
    if min(rows, input.shape[-1]) != k:
        raise RuntimeError(f"torch.ormqr: tau.shape[-1] must be equal to min(other.shape[{d}], input.shape[-1])")
    _need_tau("torch.ormqr", input, tau)
    if input.ndim != other.ndim:
        raise RuntimeError(
            "torch.ormqr: Expected other to have the same number of dimensions as input, but got other.ndim equal to "
            f"{other.ndim} and input.ndim is equal to {input.ndim}"
        )
    _need_batch("torch.ormqr", input, "tau", tau.shape[:-1])
    _need_batch("torch.ormqr", input, "other", other.shape[:-2])
    for n, t in (("tau", tau), ("other", other)):
        if t.dtype is not input.dtype:
            raise RuntimeError(
                f"torch.ormqr: Expected input and {n} to have the same dtype, but input has dtype{type_name(input.dtype)} "
                f"and {n} has dtype {type_name(t.dtype)}"
            )
    need_kernel("ormqr_cpu", input)
    V, T = _reflections(input, tau)
    if transpose:
        T = T.mH
    r: Tensor = other - (V @ (T @ (V.mH @ other)) if left else ((other @ V) @ T) @ V.mH)
    return into(out, grad_named(by_columns(r), "OrmqrBackward0", input, tau, other), rule=_ORMQR_OUT)


# ---- L D Lᵀ


def _ldl(name: str, A: Tensor, hermitian: bool, check: bool) -> tuple[Tensor, Tensor, Tensor]:
    need_matrix("torch.linalg.ldl_factor_ex", A, square=True)
    need_float("torch.linalg.ldl_factor_ex", A)
    need_kernel("ldl_factor_kernel_cpu", A)

    def refuse(g: Any) -> Any:
        raise RuntimeError("derivative for aten::linalg_ldl_factor_ex is not implemented")

    LD, pivots, found = run("ldl", doubles(A, wide=True), [A.shape[-2:], [A.shape[-1]], []], int(hermitian))
    if check:
        check_info(name, found)
    LD, pivots, info = given(LD, A, A.dtype, "F"), given(pivots, A, dtypes.int32), given(found, A, dtypes.int32)
    record("NotImplemented", (A,), LD, refuse)
    return LD, pivots, info


_LdlFactorEx = named("linalg_ldl_factor_ex", "LD", "pivots", "info")
_LdlFactor = named("linalg_ldl_factor", "LD", "pivots")


@operation("linalg_ldl_factor_ex", method=False)
def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False, out: Any = None) -> Any:
    """`ldl_factor` that tells in `info` which diagonal element of D is zero (0: none), in place of an error."""
    return into_two(out, _LdlFactorEx(_ldl("torch.linalg.ldl_factor_ex", A, hermitian, check_errors)))


@operation("linalg_ldl_factor", method=False)
def ldl_factor(A: Tensor, *, hermitian: bool = False, out: Any = None) -> Any:
    """L and D in one lower triangle, and LAPACK's pivots, of symmetric (Hermitian) matrices: A = L D Lᵀ. Not differentiable."""
    return into_two(out, _LdlFactor(_ldl("torch.linalg.ldl_factor", A, hermitian, True)[:2]))
