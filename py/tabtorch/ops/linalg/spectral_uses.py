"""What is made of singular values and eigenvalues: pseudoinverses, ranks, condition numbers, decompositions of low rank."""

from __future__ import annotations

from functools import partial
from typing import Any

from tabtorch import ops
from tabtorch.autograd.tape import record
from tabtorch.base.dtypes import bfloat16, float32, int64
from tabtorch.core.shapes import type_name
from tabtorch.core.tensor import Tensor
from tabtorch.ops.linalg.host_arrays import LAPACK, host, need_float, need_kernel, need_matrix, numpy
from tabtorch.ops.linalg.spectral import need_eps, pinv_back, svd_arrays, svd_of, svdvals
from tabtorch.ops.machinery.operand_devices import on_device_of
from tabtorch.ops.machinery.operation import into, operation
from tabtorch.ops.machinery.out_types import safely
from tabtorch.ops.machinery.registry import register

# ---- pseudoinverses and ranks


def _tolerance(name: str, A: Tensor, atol: Any, rtol: Any) -> tuple[list[Tensor], Any]:
    """The tensors among the tolerances, and a function of their arrays and of the largest absolute values (*, 1)."""
    given = [atol, rtol]
    for k, t in enumerate(given):
        if isinstance(t, Tensor):
            if t.is_complex():
                raise RuntimeError(
                    f"{name}: {'ar'[k]}tol tensor of complex type is not supported. Got {type_name(t.dtype)}"
                )
            given[k] = on_device_of(A, t)

    def low(largest: Any, *arrays: Any) -> Any:
        np = numpy()
        rest = iter(arrays)
        a, r = [next(rest)[..., None] if isinstance(t, Tensor) else t for t in given]
        usual = np.finfo(largest.dtype).eps * max(A.shape[-2:])
        r = usual * np.equal(0 if a is None else np.maximum(a, 0), 0) if r is None else r
        return np.maximum(0 if a is None else a, r * largest)

    return [t for t in given if isinstance(t, Tensor)], low


@operation("linalg_pinv", method=False)
def pinv(
    A: Tensor, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None, out: Any = None
) -> Tensor:
    """The pseudoinverse of matrices: (*, m, n) to (*, n, m). On the host, with NumPy.

    Singular values up to max(atol, rtol · the largest) count as 0. atol, rtol: numbers, or tensors of shape (*).
    """
    if A.ndim < 2 or A.dtype not in LAPACK:
        raise RuntimeError(
            f"linalg.pinv({type_name(A.dtype)}{{{list(A.shape)}}}): expected a tensor with 2 or more dimensions of float, "
            "double, cfloat or cdouble types"
        )
    tensors, low = _tolerance("torch.linalg.pinv", A, atol, rcond if rtol is None else rtol)
    if hermitian:
        need_matrix("linalg.eigh", A, square=True)

    def f(a: Any, *tols: Any) -> Any:
        np = numpy()
        if hermitian:
            s, u = np.linalg.eigh(a)
            vh = u.conj().swapaxes(-1, -2)
        else:
            u, s, vh = svd_arrays(a)
        keep = abs(s) > low(abs(s).max(-1, keepdims=True, initial=0), *tols)
        inverse = np.divide(1, s, out=np.zeros(keep.shape, s.dtype), where=keep)
        return (vh.conj().swapaxes(-1, -2) * inverse[..., None, :]) @ u.conj().swapaxes(-1, -2)

    r = host(f, A.detach(), *tensors)
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
    """How many singular values are larger than max(atol, rtol · the largest), an int64. On the host, with NumPy.

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
    tensors, low = _tolerance(name, input, atol if tol is None else tol, rtol if tol is None else 0.0)
    if hermitian:
        need_matrix("linalg.eigh", input, square=True)
    else:
        need_float("linalg.svd", input)
    need_kernel("linalg_eigh_cpu" if hermitian else "linalg_svd_cpu", input)

    def f(a: Any, *tols: Any) -> Any:
        np = numpy()
        s = abs(np.linalg.eigvalsh(a)) if hermitian else svd_arrays(a, vectors=False)
        return (s > low(s.max(-1, keepdims=True, initial=0), *tols)).sum(-1, dtype=np.int64)

    if not input.numel():
        return into(out, input.new_zeros(input.shape[:-2], dtype=int64), rule=safely(name))
    return into(out, host(f, input, *tensors), rule=safely(name))


@operation("linalg_cond", method=False)
def cond(A: Tensor, p: Any = None, *, out: Any = None) -> Tensor:
    """norm(A) · norm(inverse of A), in the norm `p`: None or 2, -2, 1, -1, inf, -inf, "fro", "nuc". Infinite for singular A.

    On the host, with NumPy.
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


def _lobpcg(np: Any, a: Any, b: Any, x: Any, ik: Any, k: int, niter: int, tol: float | None, largest: bool) -> Any:
    """The eigenpairs of one matrix: Rayleigh and Ritz in the span of the vectors, their residuals and their last steps."""
    sign = -1 if largest else 1
    n = x.shape[-1]
    tol = tol or float(np.finfo(a.dtype).eps ** 0.5)
    size = [np.linalg.norm(m @ x) / np.linalg.norm(x) if m is not None else 1.0 for m in (a, b)]
    times = lambda m, v: v if m is None else m @ v  # noqa: E731
    s, p = x, None
    while True:
        # a basis in which b is the identity; what depends on the rest is left out
        d, z = np.linalg.eigh(s.T @ times(b, s))
        fine = d > d[-1] * len(d) * np.finfo(d.dtype).eps
        s = s @ (z[:, fine] / np.sqrt(d[fine]))
        e, z = np.linalg.eigh(sign * (s.T @ a @ s))
        e, new = sign * e[:n], s @ z[:, :n]
        r = a @ new - times(b, new) * e
        error = np.linalg.norm(r, axis=0) / (np.linalg.norm(new, axis=0) * (size[0] + abs(e) * size[1]))
        p = new - x @ (x.T @ times(b, new)) if p is not None or s.shape[1] > n else None
        x, niter = new, niter - 1
        if niter == 0 or (error[:k] < tol).all():
            return e[:k], x[:, :k]
        parts = [v / np.maximum(np.linalg.norm(v, axis=0), 1e-30) for v in (times(ik, r), p) if v is not None]
        s = np.concatenate([x, *parts], -1)
        for _ in range(2):  # twice is enough
            s[:, n:] -= x @ (times(b, x).T @ s[:, n:])


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

    iK: a preconditioner. X: first vectors (*, m, n), else random ones. Iterates on the host, with NumPy, until the residuals
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

    def f(a: Any, x: Any, *others: Any) -> Any:
        np = numpy()
        every = iter(others)
        b, ik = [None if t is None else np.broadcast_to(next(every), a.shape) for t in (B, iK)]
        x = np.broadcast_to(x, (*a.shape[:-2], *x.shape[-2:]))
        found = [
            _lobpcg(
                np, a[i], b if b is None else b[i], x[i], ik if ik is None else ik[i], k, niter or 1000, tol, largest
            )
            for i in np.ndindex(*a.shape[:-2])
        ]
        return tuple([np.reshape([p[j] for p in found], (*a.shape[:-2], *found[0][j].shape)) for j in (0, 1)])

    E, V = host(f, A, start, *rest)

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
