"""What is made of singular values and eigenvalues: pseudoinverses, ranks, condition numbers, decompositions of low rank."""

from __future__ import annotations

from functools import partial
from typing import Any

from tabtorch import ops
from tabtorch.autograd.tape import record
from tabtorch.base.dtypes import bfloat16, finfo, float32, float64, int64
from tabtorch.core.shapes import type_name
from tabtorch.core.tensor import Tensor
from tabtorch.ops.linalg.host_kernels import LAPACK, doubles, given, need_float, need_kernel, need_matrix
from tabtorch.ops.linalg.spectral import eigh_doubles, need_eps, pinv_back, svd_doubles, svd_of, svdvals
from tabtorch.ops.machinery.operand_devices import on_device_of
from tabtorch.ops.machinery.operation import into, operation
from tabtorch.ops.machinery.out_types import safely
from tabtorch.ops.machinery.registry import register

# ---- pseudoinverses and ranks


def _tolerance(name: str, A: Tensor, atol: Any, rtol: Any) -> Any:
    """A function of absolute values (*, n), decreasing or not, that says up to which they count as 0: (*, 1)."""
    limits = [atol, rtol]
    for k, t in enumerate(limits):
        if isinstance(t, Tensor):
            if t.is_complex():
                raise RuntimeError(
                    f"{name}: {'ar'[k]}tol tensor of complex type is not supported. Got {type_name(t.dtype)}"
                )
            limits[k] = doubles(on_device_of(A, t))[0].unsqueeze(-1)
    a: Any
    r: Any
    a, r = [
        t if isinstance(t, Tensor) or t is None else ops.tensor(float(t), dtype=float64, device="cpu") for t in limits
    ]
    if r is None:
        r = finfo(A.dtype).eps * max(A.shape[-2:])
        r = r if a is None else r * (a <= 0)

    def low(s: Tensor) -> Any:
        most = r * s.amax(-1, keepdim=True)
        return most if a is None else ops.maximum(most, a)

    return low


@operation("linalg_pinv", method=False)
def pinv(
    A: Tensor, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None, out: Any = None
) -> Tensor:
    """The pseudoinverse of matrices: (*, m, n) to (*, n, m). On the host.

    Singular values up to max(atol, rtol · the largest) count as 0. atol, rtol: numbers, or tensors of shape (*).
    """
    if A.ndim < 2 or A.dtype not in LAPACK:
        raise RuntimeError(
            f"linalg.pinv({type_name(A.dtype)}{{{list(A.shape)}}}): expected a tensor with 2 or more dimensions of float, "
            "double, cfloat or cdouble types"
        )
    low = _tolerance("torch.linalg.pinv", A, atol, rcond if rtol is None else rtol)
    if hermitian:
        need_matrix("linalg.eigh", A, square=True)

    if not A.numel():
        r = A.new_zeros((*A.shape[:-2], A.shape[-1], A.shape[-2]))
    else:
        (a,) = doubles(A)
        if hermitian:
            s, u = eigh_doubles(a)
            v = u
        else:
            u, s, vh = svd_doubles(a)
            v = vh.mH
        keep = s.abs() > low(s.abs())
        r = given((v * ops.where(keep, 1 / s, 0).unsqueeze(-2)) @ u.mH, A)
    record("LinalgPinvBackward0", (A,), r, pinv_back, (A, r))
    return into(out, r, rule=safely("linalg.pinv"))


@operation("pinverse")
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """`torch.linalg.pinv`."""
    return pinv(input, rcond)


@operation("linalg_matrix_rank", method=False)
def matrix_rank(
    input: Tensor, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None, out: Any = None
) -> Tensor:
    """How many singular values are larger than max(atol, rtol · the largest), an int64. On the host.

    atol, rtol: numbers, or tensors of shape (*). tol: atol, with an rtol of 0.
    """
    name = "torch.linalg.matrix_rank"
    if out is not None and out.dtype.category not in (1, 2, 3):
        raise RuntimeError(
            f"{name}: Expected result to be safely castable from Long dtype, but got result with dtype "
            f"{type_name(out.dtype)}"
        )
    need_matrix(name, input, "input")
    if tol is None and rtol is None:
        need_eps(input)
    low = _tolerance(name, input, atol if tol is None else tol, rtol if tol is None else 0.0)
    if hermitian:
        need_matrix("linalg.eigh", input, square=True)
    else:
        need_float("linalg.svd", input)
    need_kernel("linalg_eigh_cpu" if hermitian else "linalg_svd_cpu", input)

    if not input.numel():
        return into(out, input.new_zeros(input.shape[:-2], dtype=int64), rule=safely(name))
    (a,) = doubles(input)
    s = eigh_doubles(a, False)[0].abs() if hermitian else svd_doubles(a, vectors=False)[0]
    return into(out, given((s > low(s)).sum(-1), input, int64), rule=safely(name))


@operation("linalg_cond", method=False)
def cond(A: Tensor, p: Any = None, *, out: Any = None) -> Tensor:
    """norm(A) · norm(inverse of A), in the norm `p`: None or 2, -2, 1, -1, inf, -inf, "fro", "nuc". Infinite for singular A.

    On the host.
    """
    if p not in (None, 2, -2, 1, -1, float("inf"), -float("inf"), "fro", "nuc"):
        raise RuntimeError(f"linalg.cond got an invalid norm type: {p}")
    if A.ndim < 2:
        raise RuntimeError(
            "linalg.cond: The input tensor must have at least 2 dimensions."
            if not isinstance(p, str)
            else f"linalg.cond(ord={p}): The input tensor A must have at least 2 dimensions."
        )
    if not A.numel():
        r = A.new_zeros(A.shape[:-2])
        return into(out, r.real if A.is_complex() else r, rule=safely("linalg.cond"))
    if p is None or abs(p) == 2 if not isinstance(p, str) else False:
        s = svdvals(A)
        most, least = s.narrow(-1, 0, 1), s.narrow(-1, s.shape[-1] - 1, 1)
        return into(out, (least / most if p == -2 else most / least).squeeze(-1), rule=safely("linalg.cond"))
    shown = f"{p:f}" if isinstance(p, float) else p
    need_matrix(f"linalg.cond(ord={shown})", A, square=True)
    if p == "nuc":
        s = svdvals(A)
        return into(out, s.sum(-1) * s.reciprocal().sum(-1), rule=safely("linalg.cond"))
    inverse, info = ops.linalg_inv_ex(A)
    inverse = inverse.masked_fill((info > 0)[..., None, None], float("inf"))
    norm = partial(ops.linalg_matrix_norm, ord=p)
    return into(
        out, (norm(A) * norm(inverse)).nan_to_num(float("inf"), float("inf"), -float("inf")), rule=safely("linalg.cond")
    )


# ---- low rank


@operation("svd_lowrank", method=False)
def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """(U, S, V) with A - M ≈ U diag(S) V^H of rank q, by `niter` iterations from random vectors (Halko et al. 2009).

    A (*, m, n): U (*, m, q), S (*, q), V (*, n, q).
    """
    if M is not None:
        A = A - M.broadcast_to(A.shape)
    wide = A.shape[-2] < A.shape[-1]
    if wide:
        A = A.mH
    Ah = A.mH
    basis = lambda X: ops.linalg_qr(X)[0]  # noqa: E731
    dtype = A.dtype if A.dtype.category > 1 and A.dtype is not bfloat16 else float32  # as PyTorch has it
    Q = basis(A @ ops.randn(A.shape[-1], 6 if q is None else q, dtype=dtype, device=A.device))
    for _ in range(2 if niter is None else niter):
        Q = basis(A @ basis(Ah @ Q))
    U, S, Vh = svd_of(Q.mH @ A, False, True)
    U, V = Q @ U, Vh.mH
    return (V, S, U) if wide else (U, S, V)


@operation("pca_lowrank", method=False)
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """`svd_lowrank` of A less the mean of its rows; its V has the principal directions as columns."""
    least = min(A.shape[-2:])
    if q is None:
        q = min(6, least)
    elif not 0 <= q <= least:
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)={least}")
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    return svd_lowrank(A - A.mean(-2, True) if center else A, q, niter)


def _lobpcg(a: Any, b: Any, x: Any, ik: Any, k: int, niter: int, tol: float, largest: bool) -> Any:
    """The eigenpairs of one matrix: Rayleigh and Ritz in the span of the vectors, their residuals and their last steps."""
    sign = -1 if largest else 1
    n = x.shape[-1]
    size = [(m @ x).norm() / x.norm() if m is not None else 1.0 for m in (a, b)]
    times = lambda m, v: v if m is None else m @ v  # noqa: E731
    s, p = x, None
    while True:
        # a basis in which b is the identity; what depends on the rest is left out
        d, z = eigh_doubles(s.T @ times(b, s))
        fine = int((d <= d[-1] * len(d) * 2**-52).sum())  # d increases
        s = s @ (z[:, fine:] / d[fine:].sqrt())
        e, z = eigh_doubles(sign * (s.T @ a @ s))
        e, new = sign * e[:n], s @ z[:, :n]
        r = a @ new - times(b, new) * e
        error = r.norm(dim=0) / (new.norm(dim=0) * (size[0] + e.abs() * size[1]))
        p = new - x @ (x.T @ times(b, new)) if p is not None or s.shape[1] > n else None
        x, niter = new, niter - 1
        if niter == 0 or bool((error[:k] < tol).all()):
            return e[:k], x[:, :k]
        rest = ops.cat([v / v.norm(dim=0).clamp(min=1e-30) for v in (times(ik, r), p) if v is not None], -1)
        for _ in range(2):  # twice is enough
            rest = rest - x @ (times(b, x).T @ rest)
        s = ops.cat([x, rest], -1)


@operation("lobpcg", method=False)
def lobpcg(
    A: Tensor,
    k: int | None = None,
    B: Tensor | None = None,
    X: Tensor | None = None,
    n: int | None = None,
    iK: Tensor | None = None,
    niter: int | None = None,
    tol: float | None = None,
    largest: bool | None = None,
    method: str | None = None,
    tracker: None = None,
    ortho_iparams: Any = None,
    ortho_fparams: Any = None,
    ortho_bparams: Any = None,
) -> tuple[Tensor, Tensor]:
    """The k largest (or smallest) eigenvalues (*, k) of symmetric A (*, m, m), or of A x = B x e, and vectors (*, m, k).

    iK: a preconditioner. X: first vectors (*, m, n), else random ones. Iterates on the host until the residuals
    are below `tol`, at most `niter` times (default 1000); `method` and what belongs to it make no difference.
    """
    need_matrix("lobpcg", A, square=True)
    m = A.shape[-1]
    k = (1 if X is None else X.shape[-1]) if k is None else k
    n = (k if X is None else X.shape[-1]) if n is None else n
    if m < 3 * n:
        raise ValueError(
            f"LPBPCG algorithm is not applicable when the number of A rows (={m}) is smaller than 3 x the number of "
            f"requested eigenpairs (={n})"
        )
    if method not in (None, "basic", "ortho"):
        raise ValueError(f"unknown method {method!r}")
    if tracker is not None:
        raise NotImplementedError("lobpcg: a tracker is not supported")
    largest = largest is None or largest
    start = ops.randn(*A.shape[:-1], n, dtype=A.dtype, device=A.device) if X is None else X
    rest = [t for t in (B, iK) if t is not None]

    a, x, *others = doubles(A, start, *rest)
    every = [t.expand(*A.shape[:-2], *t.shape[-2:]).reshape(-1, *t.shape[-2:]) for t in (a, x, *others)]
    found = []
    for i in range(len(every[0])):
        rest = [t[i] for t in every]
        one, start = rest[:2]
        b, ik = None if B is None else rest[2], None if iK is None else rest[-1]
        found.append(_lobpcg(one, b, start, ik, k, niter or 1000, tol or finfo(A.dtype).eps ** 0.5, largest))
    E, V = [given(ops.stack(parts).unflatten(0, A.shape[:-2]) if A.ndim > 2 else parts[0], A) for parts in zip(*found)]

    def back(g: list[Any], A: Any, E: Any, V: Any) -> Any:
        if B is not None:
            raise ValueError("lobpcg.backward does not support backward with B != I yet.")
        gE, gV = g
        Vt = V.mT
        inside: Any = 0 if gE is None else gE.diag_embed()
        if gV is None:
            return (V @ inside @ Vt,)
        eye = ops.eye(m, dtype=A.dtype, device=A.device)
        apart = E.unsqueeze(-2) - E.unsqueeze(-1)
        F = ops.where(apart == 0, 0, 1 / ops.where(apart == 0, 1, apart))
        # the other eigenvectors: (e - A)^-1 outside the span of V, for each e
        outside = eye - V @ Vt
        P = outside.unsqueeze(-3)
        M = P @ (A.unsqueeze(-3) - E[..., None, None] * eye) @ P + (V @ Vt).unsqueeze(-3)
        Y = ops.linalg_solve(M, (outside @ gV).mT.unsqueeze(-1)).squeeze(-1)
        return (V @ (inside + (Vt @ gV) * F) @ Vt - Y.mT @ Vt,)

    record("LOBPCGAutogradFunctionBackward", (A,), (E, V), back, (A, E, V))
    return E, V


# ---- what PyTorch has taken away


def _removed(old: str, new: str, *_: Any, **__: Any) -> Any:
    raise RuntimeError(
        "This function was deprecated since version 1.9 and is now removed.\n"
        f"Please use the `torch.linalg.{new}` function instead of `torch.{old}`."
    )


for _old, _new in (("matrix_rank", "matrix_rank"), ("symeig", "eigh"), ("eig", "eig"), ("lstsq", "lstsq")):
    register(_old, partial(_removed, _old, _new), method=True)
