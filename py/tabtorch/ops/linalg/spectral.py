"""Singular values, eigenvalues, least squares: computed on the host, in double precision.

The gradients are formulas over tensors: those of PyTorch (torch/csrc/autograd/FunctionsManual.cpp), which say where they
come from.
"""

from __future__ import annotations

from typing import Any

from tabtorch import ops
from tabtorch.autograd.tape import needs_record, record
from tabtorch.base import dtypes
from tabtorch.core import shapes
from tabtorch.core.shapes import type_name
from tabtorch.core.tensor import Tensor
from tabtorch.ops.indexing.index_maps import every_example
from tabtorch.ops.linalg.host_kernels import (
    LAPACK,
    check_info,
    doubles,
    given,
    need_float,
    need_kernel,
    need_matrix,
    run,
)
from tabtorch.ops.machinery.operand_devices import together
from tabtorch.ops.machinery.operation import into, into_two, named, operation
from tabtorch.ops.machinery.out_types import EXACT, safely


def _apart(x: Any) -> Any:
    """The differences x_j - x_i; 1 on the diagonal, where they only divide zeros."""
    return x.unsqueeze(-2) - x.unsqueeze(-1) + ops.eye(x.shape[-1], dtype=x.dtype, device=x.device)


def _need_invariance(a: Tensor, b: Tensor, text: str) -> None:
    """RuntimeError unless a and b are near: the loss depends on what the decomposition leaves open. Waits for the device."""
    if not ops.allclose(every_example(a), every_example(b), 1e-2, 1e-2):
        raise RuntimeError(text)


def need_eps(A: Tensor) -> None:
    """PyTorch's RuntimeError where the usual tolerance is asked for, a multiple of what only these types have."""
    if A._tab_meta.dtype not in LAPACK:
        raise RuntimeError("This function doesn't handle types other than float and double")


# ---- singular values


def svd_doubles(a: Tensor, full: bool = False, vectors: bool = True) -> list[Any]:
    """(U, S, Vh), or without `vectors` S alone, of what `doubles` gave; LinAlgError in PyTorch's words where there is none."""
    m, n = a.shape[-2:]
    k = min(m, n)
    shapes: list[Any] = [(m, m if full else k), [k], (n if full else k, n)] if vectors else [[k]]
    *r, info = run("svd", [a], [*shapes, []], int(full), int(vectors))
    check_info("linalg.svd", info)
    return r


def eigh_doubles(a: Tensor, vectors: bool = True) -> list[Any]:
    """The same of Hermitian matrices, whose lower triangle is looked at: (L, Q), or without `vectors` L alone."""
    n = a.shape[-1]
    *r, info = run("eigh", [a], [[n], (n, n), []] if vectors else [[n], []], int(vectors))
    check_info("linalg.eigh", info)
    return r


def svd_of(A: Tensor, full: bool, vectors: bool) -> tuple[Any, Any, Any]:
    """(U, S, Vh), recorded; without `vectors`, and where no gradient is wanted, U and Vh are None."""
    need_matrix("linalg.svd", A)
    need_float("linalg.svd", A)
    need_kernel("linalg_svd_cpu", A)
    vectors = vectors or needs_record(A)
    k = min(A.shape[-2:])
    r = svd_doubles(doubles(A)[0], full, vectors)
    if not vectors:
        return None, given(r[0], A), None
    U, S, Vh = [given(x, A, order=order) for x, order in zip(r, "FCF")]
    cut = full and A.shape[-1] != A.shape[-2]

    def back(g: list[Any], U: Any, S: Any, Vh: Any) -> Any:
        gU, gS, gVh = g
        if cut:
            U, Vh = U[..., :k], Vh[..., :k, :]
            gU, gVh = gU if gU is None else gU[..., :k], gVh if gVh is None else gVh[..., :k, :]
        return (_svd_back(gU, gS, gVh, U, S, Vh),)

    record("LinalgSvdBackward0", (A,), (U, S, Vh), back, (U, S, Vh))
    return U, S, Vh


def _svd_back(gU: Any, gS: Any, gVh: Any, U: Any, S: Any, Vh: Any) -> Any:
    m, n = U.shape[-2], Vh.shape[-1]
    col, row = S.unsqueeze(-1), S.unsqueeze(-2)
    if gU is None and gVh is None:
        return U @ (gS.unsqueeze(-1) * Vh) if m >= n else (U * gS.unsqueeze(-2)) @ Vh
    u: Any = None
    v: Any = None
    if gU is not None:
        u = U.mH @ gU
        u = u - u.mH
    if gVh is not None:
        v = Vh @ gVh.mH
        v = v - v.mH
    if U.is_complex():
        of_u, of_v = [ops.zeros_like(S) if x is None else x.diagonal(0, -2, -1).imag for x in (u, v)]
        _need_invariance(
            of_u,
            -of_v,
            "svd_backward: The singular vectors in the complex case are specified up to multiplication by e^{i phi}. The "
            "specified loss function depends on this phase term, making it ill-defined.",
        )
    E = _apart(S * S)
    if u is None:
        g = col * (v / E)
    else:
        g = u / E * row if v is None else (u * row + col * v) / E
    if gS is not None:
        g = g + gS.diag_embed()
    if U.is_complex() and u is not None and v is not None:
        g = g + (u.diagonal(0, -2, -1) / (2 * S)).diag_embed()
    if m > n and gU is not None:
        s = gU / row
        return (U @ g + s - U @ (U.mH @ s)) @ Vh
    if m < n and gVh is not None:
        s = gVh / col
        return U @ (g @ Vh + s - (s @ Vh.mH) @ Vh)
    return U @ (g @ Vh) if m >= n else (U @ g) @ Vh


_SVD = named("linalg_svd", "U", "S", "Vh")
_OLD_SVD = named("svd", "U", "S", "V")


@operation("linalg_svd", method=False)
def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None, out: Any = None) -> Any:
    """A = U diag(S) Vh for matrices (*, m, n): (U, S, Vh), S decreasing. On the host.

    full_matrices: U (*, m, m) and Vh (*, n, n) rather than (*, m, k) and (*, k, n), k = min(m, n).
    """
    if driver is not None:
        raise RuntimeError(
            "torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend."
        )
    return into_two(out, _SVD(*svd_of(A, full_matrices, True)))


@operation("linalg_svdvals", method=False)
def svdvals(A: Tensor, *, driver: str | None = None, out: Any = None) -> Tensor:
    """The singular values of matrices, decreasing. On the host."""
    if driver is not None:
        svd(A, driver=driver)
    return into(out, svd_of(A, False, False)[1], rule=EXACT)


@operation("svd")
def old_svd(input: Tensor, some: bool = True, compute_uv: bool = True, *, out: Any = None) -> Any:
    """input = U diag(S) V^H: (U, S, V); U and V are zeros where not `compute_uv`. On the host."""
    need_matrix("linalg.svd", input)
    if compute_uv:
        U, S, Vh = svd_of(input, not some, True)
        return into_two(out, _OLD_SVD(U, S, Vh.mH))
    S = svd_of(input, False, False)[1]
    zeros = [input.new_zeros((*input.shape[:-2], n, n)) for n in input.shape[-2:]]
    return into_two(out, _OLD_SVD(zeros[0], S, zeros[1]))


# ---- eigenvalues


def _eig_back(g: list[Any], L: Any, V: Any, hermitian: bool) -> Any:
    gL, gV = g
    Vh = V.mH
    if gV is None:
        if hermitian:
            return (V * gL.unsqueeze(-2)) @ Vh
        return ops.linalg_solve(Vh, gL.unsqueeze(-1) * Vh)
    r = Vh @ gV
    diagonal = r.diagonal(0, -2, -1)
    if V.is_complex():
        _need_invariance(
            diagonal.imag,
            ops.zeros_like(diagonal.imag),
            f"linalg_{'eigh' if hermitian else 'eig'}_backward: The eigenvectors in the complex case are specified up to "
            "multiplication by e^{i phi}. The specified loss function depends on this quantity, so it is ill-defined.",
        )
    # brought to the tangent space: eigenvectors keep their length 1
    r = 0.5 * (r - r.mH) if hermitian else r - Vh @ (V * diagonal.real.unsqueeze(-2))
    r = r / _apart(L.conj())
    if gL is not None:
        r = r * (1 - ops.eye(L.shape[-1], dtype=L.dtype, device=L.device)) + gL.diag_embed()
    return V @ (r @ Vh) if hermitian else ops.linalg_solve(Vh, r @ Vh)


def eigh_of(A: Tensor, UPLO: str, vectors: bool) -> tuple[Any, Any]:
    """(L, Q) of Hermitian matrices, recorded; without `vectors`, and where no gradient is wanted, Q is None."""
    need_matrix("linalg.eigh", A, square=True)
    side = UPLO.upper() if isinstance(UPLO, str) else UPLO
    if side not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    need_kernel("linalg_eigh_cpu", A)
    vectors = vectors or needs_record(A)

    r = eigh_doubles(doubles(A if side == "L" else A.mH)[0], vectors)
    if not vectors:
        return given(r[0], A), None
    L, Q = given(r[0], A), given(r[1], A, order="F")
    back = lambda g, L, Q: (_eig_back(g, L, Q, True),)  # noqa: E731
    record("LinalgEighBackward0", (A,), (L, Q), back, (L, Q))
    return L, Q


_EIGH = named("linalg_eigh", "eigenvalues", "eigenvectors")
_EIG = named("linalg_eig", "eigenvalues", "eigenvectors")


@operation("linalg_eigh", method=False)
def eigh(A: Tensor, UPLO: str = "L", *, out: Any = None) -> Any:
    """A = Q diag(L) Q^H for Hermitian matrices (*, n, n): (L, Q), L real and increasing. On the host.

    UPLO: "L" or "U", the triangle of A that is looked at.
    """
    return into_two(out, _EIGH(*eigh_of(A, UPLO, True)))


@operation("linalg_eigvalsh", method=False)
def eigvalsh(A: Tensor, UPLO: str = "L", *, out: Any = None) -> Tensor:
    """The eigenvalues of Hermitian matrices (*, n, n), increasing. On the host."""
    return into(out, eigh_of(A, UPLO, False)[0], rule=EXACT)


def _eig_of(A: Tensor, vectors: bool) -> tuple[Any, Any]:
    need_matrix("linalg.eig", A, square=True)
    need_float("linalg.eig", A)
    need_kernel("linalg_eig_out_cpu", A)
    alone = not (vectors or needs_record(A))
    n = A.shape[-1]
    (a,) = doubles(A)
    each = 1 if a.is_complex() else 2  # elements that a complex number takes
    *parts, found = run("eig", [a], [(each * n,), *[(each * n * n,)] * (not alone), []], int(not alone))
    if vectors and min(every_example(found).reshape(-1).tolist(), default=0) < 0:
        raise RuntimeError("torch.linalg.eig: input tensor should not contain infs or NaNs.")
    check_info("linalg.eig", found.clamp(min=0))
    d = A.dtype.to_complex()
    if not a.is_complex():
        parts = [ops.view_as_complex(x.contiguous().reshape((*x.shape[:-1], x.shape[-1] // 2, 2))) for x in parts]
    L = given(parts[0], A, d)
    if alone:
        return L, None
    V = given(parts[1].reshape(A.shape).mT, A, d, "F")
    back = lambda g, L, V: (_eig_back(g, L, V, False),)  # noqa: E731
    record("LinalgEigBackward0", (A,), (L, V), back, (L, V))
    return L, V


@operation("linalg_eig", method=False)
def eig(A: Tensor, *, out: Any = None) -> Any:
    """A = V diag(L) V^-1 for square matrices: (L, V), complex, each column of V of length 1. On the host."""
    return into_two(out, _EIG(*_eig_of(A, True)), safely("torch.linalg.eig"))


@operation("linalg_eigvals", method=False)
def eigvals(A: Tensor, *, out: Any = None) -> Tensor:
    """The eigenvalues of square matrices, complex, in no order. On the host."""
    return into(out, _eig_of(A, False)[0], rule=safely("torch.linalg.eigvals", "eigenvalues"))


# ---- least squares


def pinv_back(g: Any, A: Any, P: Any) -> Any:
    """The gradient for A of its pseudoinverse P (Golub & Pereyra 1973)."""
    Ph, gh = P.mH, g.mH
    if A.shape[-2] <= A.shape[-1]:
        K = gh @ P
        L = K @ Ph
        return L - (P @ K).mH - (A @ P) @ L + (Ph @ P) @ (gh - K @ A)
    K = P @ gh
    L = Ph @ K
    return L - (K @ P).mH - (L @ P) @ A + (gh - A @ K) @ P @ Ph


_LSTSQ = named("linalg_lstsq", "solution", "residuals", "rank", "singular_values")
#: PyTorch calls the residuals the solution too
_LSTSQ_OUT = tuple(safely("torch.linalg.lstsq", n) for n in ("solution", "solution", "rank", "singular_values"))
_DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


@operation("linalg_lstsq", method=False)
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None, out: Any = None) -> Any:
    """X with the least |A X - B|, for A (*, m, n) and B (*, m, k) or (*, m). On the host.

    Returns (solution, residuals, rank, singular_values); those that the driver does not tell are empty, as are the residuals
    where m <= n or a rank is less than n. All drivers solve by singular values; "gels" wants full rank (else LinAlgError).
    """
    name = "torch.linalg.lstsq: "
    more = A.ndim - B.ndim
    if A.ndim < 2:
        raise RuntimeError(name + "input must have at least 2 dimensions.")
    if B.ndim < 1:
        raise RuntimeError(name + "other must have at least 1 dimension.")
    if not 0 <= more <= 1:
        raise RuntimeError(
            name + "input.dim() must be greater or equal to other.dim() and (input.dim() - other.dim()) <= 1"
        )
    if A.shape[-2] != B.shape[-1 if more else -2]:
        raise RuntimeError(name + f"input.size(-2) should match other.size({-1 if more else -2})")
    A, B = together((A, B))
    if A.dtype is not B.dtype:
        raise RuntimeError(
            name + f"Expected input and other to have the same dtype, but got input's dtype {type_name(A.dtype)} and "
            f"other's dtype {type_name(B.dtype)}"
        )
    if driver is not None and driver not in _DRIVERS:
        raise RuntimeError(name + f"parameter `driver` should be one of ({', '.join(_DRIVERS)})")
    if rcond is None:
        need_eps(A)
    need_kernel("linalg_lstsq_cpu", A)
    driver = driver or "gelsy"
    m, n = A.shape[-2:]

    a, b = doubles(A, B)
    b = b.unsqueeze(-1) if more else b
    u, s, vh = svd_doubles(a)
    eps = dtypes.finfo(A.dtype).eps
    keep = (
        s
        > (eps if driver == "gels" else eps * max(m, n) if rcond is None else rcond if rcond >= 0 else eps) * s[..., :1]
    )
    rank = keep.sum(-1)
    lost = rank < min(m, n)
    lacking = driver != "gelsy" and bool(every_example(lost).any())
    if lacking and driver == "gels":
        r = run("qr", [a if m >= n else a.mH], [a.shape[-2:] if m >= n else (n, m), (min(m, n),)], 0)[0].diagonal(
            0, -2, -1
        )
        check_info("torch.linalg.lstsq", (r.abs().argmin(-1) + 1) * lost)
    x = vh.mH @ (ops.where(keep, 1 / s, 0).unsqueeze(-1) * (u.mH @ b))
    rest = s.new_empty((0,))
    if m > n and driver != "gelsy" and not lacking:
        rest = (a @ x - b).abs().square().sum(-2)
    x = ops.constant_pad_nd(x, (0, 0, 0, max(m - n, 0)))  # LAPACK's: X takes the place of B
    space = given(x.squeeze(-1), A) if more else given(x, A, order="F")
    residuals = given(rest, A)
    rank = given(rank if driver != "gels" else rest.new_empty((0,)), A, dtypes.int64)
    s = given(s if driver in ("gelsd", "gelss") else rest.new_empty((0,)), A)
    X = Tensor._wrap(space._tab_storage.node, shapes.narrowed(space._tab_meta, -1 if more else -2, 0, n))

    def back(g: list[Any], A: Any, B: Any, X: Any) -> Any:
        if more:
            B, X = B.unsqueeze(-1), X.unsqueeze(-1)
        gX, gR = g
        gA: Any = 0
        gB: Any = 0
        if gX is not None:
            gX = gX.unsqueeze(-1) if more else gX
            P = ops.linalg_pinv(A)
            gA = pinv_back(gX @ B.mH, A, P)
            gB = P.mH @ gX
        if gR is not None and gR.numel():
            twice = (A @ X - B) * (2 * gR.unsqueeze(-2))
            gA = gA + twice @ X.mH
            gB = gB - twice
        if isinstance(gA, int):  # only of residuals that there are none of
            return None, None
        return gA, gB.squeeze(-1) if more else gB

    record("LinalgLstsqBackward0", (A, B), (X, residuals), back, (A, B, X))
    return into_two(out, _LSTSQ(X, residuals, rank, s), _LSTSQ_OUT)
