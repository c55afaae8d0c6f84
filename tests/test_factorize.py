"""Equations, determinants and factorisations beside PyTorch: edge cases, errors, names of backward nodes, gradients."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import tabtorch
from gradients import check

#: P is positive-definite, N is not, S is singular, P3 has the three as a batch; R (2, 3), v (2,), V int32 pivots
PLAIN = """
L.cholesky(N); L.cholesky(P3); L.cholesky_ex(P3, check_errors=True); L.cholesky_ex(P3).info; L.cholesky(R)
L.cholesky(v)
L.cholesky(R.long()); L.cholesky(P.half()); m.cholesky(N); m.cholesky(v); L.cholesky(m.ones(0, 0))
L.cholesky(P * nan)
L.inv(S); L.inv(P3); L.inv_ex(P3, check_errors=True); L.inv_ex(P3).info; L.inv(R); L.inv(P.long()); L.inv(P.half())
L.inv(P * nan)
L.solve(S, v); L.solve(P3, R); L.solve_ex(P3, R); L.solve_ex(P3, R, check_errors=True); L.solve(P, m.ones(3, 2))
L.solve(R, R)
L.solve(P, v, left=False); L.solve(P, m.ones(3, 2), left=False); L.solve(P, v.half()); L.solve(P, v[0])
L.solve(P3, m.ones(2, 2, 2))
L.solve(P3[::2], m.ones(2, 2)); L.solve(P, m.ones(3, 2)[:, None, :, None]); L.solve(P * nan, v)
L.solve(m.ones(0, 0), m.ones(0, 3))
L.solve_triangular(P, v, upper=True); L.solve_triangular(P * 0, R, upper=True)
L.solve_triangular(P.half(), P.half(), upper=True)
L.solve_triangular(P, R.mT, upper=False, left=False, unitriangular=True); L.solve_triangular(R, R, upper=True)
L.lu(S); L.lu(v); L.lu_factor(S); L.lu_factor(P3); L.lu_factor_ex(P3); m.lu(S); m.lu(P3, get_infos=True)
L.lu(m.ones(0, 3)); P.lu()
L.lu(P * nan).P; L.lu(R.long()); L.lu(m.ones(0, 2, 3)); L.lu(G); L.lu(G[:, :40])
L.lu_solve(P, V, R); L.lu_solve(P, V.long(), R); L.lu_solve(R, V, R); L.lu_solve(P, V[:1], R); L.lu_solve(P3, V, R)
m.lu_solve(v, P, V)
L.lu_solve(*L.lu_factor(N), R, adjoint=True); L.lu_solve(*L.lu_factor(N), R.mT, left=False)
m.lu_solve(R, P3[:1], V.expand(1, 2))
m.lu_unpack(P, V); m.lu_unpack(P, V + 5); m.lu_unpack(v, V); m.lu_unpack(P, V.long())
m.lu_unpack(P, V, False, False); m.lu_unpack(P, V, unpack_data=False)
L.det(R); L.det(P3); L.det(P * nan); L.det(P.half()); m.slogdet(P3); L.slogdet(m.ones(0, 0)); m.logdet(P3)
m.logdet(v); m.logdet(m.ones(2, 0, 0))
L.slogdet(m.tensor([[1, 2j], [3., 1j]])); m.logdet(m.tensor([[1, 2j], [3., 1j]]))
L.det(m.tensor([[inf, 0], [0, 2]])); P.det(); P.slogdet(); P.logdet()
L.ldl_factor(N); L.ldl_factor_ex(P * 0); L.ldl_factor(m.tensor([[0., 1, 2], [1, 0, 3], [2, 3, 0]])); L.ldl_factor(R)
L.ldl_factor(P3[:2] - 1)
L.ldl_factor(m.tensor([[0., 1j], [1j, 1]])); L.ldl_factor(m.tensor([[0., 1j], [-1j, 1]]), hermitian=True)
L.ldl_solve(P, V[:1], R)
L.ldl_solve(*L.ldl_factor(m.tensor([[0., 1, 2], [1, 0, 3], [2, 3, 0]])), m.ones(3, 2))
L.ldl_solve(P, V, m.ones(3, 2))
L.qr(R); L.qr(R.mT, "complete"); L.qr(R, "r"); L.qr(v); L.qr(R, "x"); L.qr(R.long()); L.qr(m.ones(3, 0), "complete")
m.qr(R.mT, False); L.qr(m.ones(2, 0, 3))
m.geqrf(R); m.geqrf(v); m.geqrf(m.ones(0, 3)); m.orgqr(R.mT, v); L.householder_product(R, v)
L.householder_product(R.mT, m.ones(3))
L.householder_product(R.mT, v.half()); L.householder_product(R.mT, R); m.ormqr(R.mT, v, R.mT)
m.ormqr(R.mT, v, R, False, True); m.ormqr(R.mT, v, R)
m.ormqr(v, v, v); m.ormqr(R.mT, m.ones(3), R.mT); m.ormqr(R.mT, v, R.mT.half()); m.ormqr(m.ones(2, 3, 2), v, R.mT)
L.tensorinv(m.eye(6).view(2, 3, 6)); L.tensorinv(P, 0); L.tensorinv(R, 1); L.tensorinv(S, 1)
L.tensorsolve(m.eye(6).view(2, 6, 3) + 1, R, dims=(1,))
L.tensorsolve(R, v); L.matrix_exp(R); L.matrix_exp(v); L.matrix_exp(R.long())
m.matrix_exp(P3 * m.tensor([.001, 1, 9]).view(3, 1, 1)); m.matrix_exp(P * nan)
m.matrix_exp(P * inf); m.matrix_exp(P * 50); m.matrix_exp(m.ones(0, 0)); m.matrix_exp(m.ones(2, 1, 1))
m.matrix_exp(m.tensor([[1, 2j], [3., 1j]]))
L.matrix_power(P, -2); L.matrix_power(S, -1); L.matrix_power(P.long(), -1); m.cholesky_inverse(P)
m.cholesky_inverse(P, True); m.cholesky_inverse(P * 0)
m.cholesky_inverse(v); m.cholesky_inverse(P.half()); m.cholesky_solve(R, P); m.cholesky_solve(v, P)
m.cholesky_solve(R, R); m.cholesky_solve(R, P3, True)
m.triangular_solve(R, P); m.triangular_solve(R, P, False, True, True); m.triangular_solve(v, P)
m.triangular_solve(m.ones(3, 2), P); R.triangular_solve(P3)
L.solve(P, R, out=m.empty(0)); L.qr(R, out=(m.empty(0), m.empty(0)))
L.lu_factor(P, out=(m.empty(2, 2), m.empty(0, dtype=m.int32)))
L.lu_factor(N).LU.stride(), L.inv(P3).stride(), L.qr(R)[1].stride(), L.lu(P)[2].stride(), L.solve(P, R).stride(), L.cholesky(P).stride(
.lu_factor(N).LU.stride(), L.inv(P3).stride(), L.qr(R)[1].stride(), L.lu(P)[2].stride(), L.solve(P, R).stride(), L.cholesky(P).stride(
lu_factor(N).LU.stride(), L.inv(P3).stride(), L.qr(R)[1].stride(), L.lu(P)[2].stride(), L.solve(P, R).stride(), L.cholesky(P).stride(
u_factor(N).LU.stride(), L.inv(P3).stride(), L.qr(R)[1].stride(), L.lu(P)[2].stride(), L.solve(P, R).stride(), L.cholesky(P).stride(
_factor(N).LU.stride(), L.inv(P3).stride(), L.qr(R)[1].stride(), L.lu(P)[2].stride(), L.solve(P, R).stride(), L.cholesky(P).stride(
factor(N).LU.stride(), L.inv(P3).stride(), L.qr(R)[1].stride(), L.lu(P)[2].stride(), L.solve(P, R).stride(), L.cholesky(P).stride(
actor(N).LU.stride(), L.inv(P3).stride(), L.qr(R)[1].stride(), L.lu(P)[2].stride(), L.solve(P, R).stride(), L.cholesky(P).stride(
ctor(N).LU.stride(), L.inv(P3).stride(), L.qr(R)[1].stride(), L.lu(P)[2].stride(), L.solve(P, R).stride(), L.cholesky(P).stride(
tor(N).LU.stride(), L.inv(P3).stride(), L.qr(R)[1].stride(), L.lu(P)[2].stride(), L.solve(P, R).stride(), L.cholesky(P).stride(
or(N).LU.stride(), L.inv(P3).stride(), L.qr(R)[1].stride(), L.lu(P)[2].stride(), L.solve(P, R).stride(), L.cholesky(P).stride(
r(N).LU.stride(), L.inv(P3).stride(), L.qr(R)[1].stride(), L.lu(P)[2].stride(), L.solve(P, R).stride(), L.cholesky(P).stride(
(N).LU.stride(), L.inv(P3).stride(), L.qr(R)[1].stride(), L.lu(P)[2].stride(), L.solve(P, R).stride(), L.cholesky(P).stride(
N).LU.stride(), L.inv(P3).stride(), L.qr(R)[1].stride(), L.lu(P)[2].stride(), L.solve(P, R).stride(), L.cholesky(P).stride(
).LU.stride(), L.inv(P3).stride(), L.qr(R)[1].stride(), L.lu(P)[2].stride(), L.solve(P, R).stride(), L.cholesky(P).stride(
.LU.stride(), L.inv(P3).stride(), L.qr(R)[1].stride(), L.lu(P)[2].stride(), L.solve(P, R).stride(), L.cholesky(P).stride(
LU.stride(), L.inv(P3).stride(), L.qr(R)[1].stride(), L.lu(P)[2].stride(), L.solve(P, R).stride(), L.cholesky(P).stride(
U.stride(), L.inv(P3).stride(), L.qr(R)[1].stride(), L.lu(P)[2].stride(), L.solve(P, R).stride(), L.cholesky(P).stride(
.stride(), L.inv(P3).stride(), L.qr(R)[1].stride(), L.lu(P)[2].stride(), L.solve(P, R).stride(), L.cholesky(P).stride(
stride(), L.inv(P3).stride(), L.qr(R)[1].stride(), L.lu(P)[2].stride(), L.solve(P, R).stride(), L.cholesky(P).stride()
m.return_types.linalg_lu_factor is type(L.lu_factor(P)); m.return_types.slogdet is type(P.slogdet())
issubclass(L.LinAlgError, RuntimeError)
"""

#: over x (3, 3), w (3, 5), b (2, 3, 2), h (2, 3, 3) complex: all require grad
DIFFERENTIABLE = """
L.cholesky(x @ x.mT + m.eye(3)); m.cholesky(h @ h.mH + m.eye(3), upper=True); L.inv(h); L.solve(x, b)
L.solve(x, b.mT, left=False); L.solve(h, b[..., 0] + 0j)
L.solve_triangular(x, b, upper=True); L.solve_triangular(h, w + 0j, upper=False, unitriangular=True)
L.solve_triangular(x, w.mT, upper=True, left=False)
m.triangular_solve(b, x, False, True); m.cholesky_solve(b, x); m.cholesky_solve(w, x, True); m.cholesky_inverse(x)
m.cholesky_inverse(L.cholesky(h @ h.mH + m.eye(3), upper=True), True)
L.lu(x); L.lu(w); L.lu(w.mT); L.lu(h); L.lu(w)[1]; L.lu_factor(w)[0]; L.lu_factor(h)[0]; m.lu(x)[0]
m.lu_unpack(w.mT, m.tensor([1, 3, 3], dtype=m.int32))
m.lu_solve(b, *L.lu_factor(x)); L.lu_solve(*L.lu_factor(x), w.mT, left=False)
L.lu_solve(*L.lu_factor(h), b + 0j, adjoint=True)
L.lu_solve(*L.lu_factor(x), b.mT, left=False, adjoint=True)
L.lu_solve(m.ones(3, 3) + m.eye(3), m.tensor([1, 2, 3], dtype=m.int32), b)
L.det(x); m.det(h); L.slogdet(x); m.slogdet(h); m.logdet(x @ x.mT); L.qr(w); L.qr(w.mT); L.qr(h); L.qr(x)[1]
L.qr(x)[0]; m.qr(w, False)
L.householder_product(w.mT, x[0]); m.orgqr(h, h[..., 0]); m.ormqr(w.mT, x[0], w.mT)
m.ormqr(h, h[..., 1], h, False, True); m.matrix_exp(x); m.matrix_exp(h)
L.tensorinv(x, 1); L.tensorsolve(x, w[:, 0]); L.matrix_power(x, -2); L.inv_ex(x)[0]
L.ldl_solve(*[t.detach() for t in L.ldl_factor(x.detach())], b.detach())
"""


def expressions(text: str) -> list[str]:
    return [e.strip() for line in text.strip().split("\n") for e in line.split("; ")]


def noise(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(2))


def plain_names() -> dict[str, Any]:
    P, N, S = (torch.tensor(x) for x in ([[2.0, 1], [1, 3]], [[1.0, 2], [2, 1]], [[1.0, 2], [2, 4]]))
    names = {
        "P": P,
        "N": N,
        "S": S,
        "P3": torch.stack([P, N, S]),
        "R": torch.arange(6.0).sin().view(2, 3),
        "G": noise((64, 70)),
    }
    return {**names, "v": torch.tensor([0.5, 2]), "V": torch.tensor([1, 2], dtype=torch.int32)}


def differentiable_names() -> dict[str, Any]:
    names = {"x": noise((3, 3)), "w": noise((3, 5)), "b": noise((2, 3, 2)), "h": noise((2, 3, 3), torch.complex64)}
    return {k: t.requires_grad_() for k, t in names.items()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", expressions(PLAIN))
def test_as_pytorch(expression: str, device: str) -> None:
    check(expression.replace("L.", "m.linalg."), plain_names(), device, tol=2e-5, twice=False, named=False)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", expressions(DIFFERENTIABLE))
def test_gradients(expression: str, device: str) -> None:
    e = expression.replace("L.", "m.linalg.")
    named = not any(part in e for part in ("tensorinv", "tensorsolve", "power", "slogdet", "logdet", "b.mT"))
    check(e, differentiable_names(), device, tol=2e-4, twice="h" not in re.findall(r"\w+", e), named=named)


def test_gradient_of_a_singular_determinant(device: str) -> None:
    a = torch.tensor(
        [[[1.0, 2, 3], [4, 5, 6], [7, 8, 9]], [[1, 2, 3], [2, 4, 6], [1, 0, 2]], [[2, 1, 0], [1, 3, 1], [0, 1, 4]]]
    )
    check("m.det(a)", {"a": a.requires_grad_()}, device, tol=2e-4, twice=True, named=True)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("m.geqrf(w)[0]", "the derivative for 'geqrf' is not implemented."),
        ("m.linalg.ldl_factor(w[:, :3])[0]", "derivative for aten::linalg_ldl_factor_ex is not implemented"),
        ("m.linalg.qr(w, 'r')[1]", "The derivative of linalg.qr depends on Q, which is not computed when mode='r'."),
        (
            "m.linalg.qr(w.mT, 'complete')[1]",
            "The QR decomposition is not differentiable when mode='complete' and nrows > ncols.",
        ),
    ],
)
def test_no_gradient(expression: str, text: str) -> None:
    w = tabtorch.arange(15.0).sin().reshape(3, 5).requires_grad_()
    with pytest.raises((RuntimeError, NotImplementedError)) as e:
        eval(expression, {"m": tabtorch, "w": w}).sum().backward()
    assert str(e.value).startswith(text)


def test_lu_without_pivoting(device: str) -> None:
    a = tabtorch.tensor([[2.0, 1, 5], [1, 3, 2]], device=device, requires_grad=True)
    if device == "cpu":  # PyTorch has it on the GPU only
        with pytest.raises(RuntimeError, match="LU without pivoting is not implemented on the CPU"):
            tabtorch.linalg.lu(a, pivot=False)
        return
    P, L, U = tabtorch.linalg.lu(a, pivot=False)
    assert tuple(P.shape) == (0,)
    assert tabtorch.allclose(L @ U, a)
    assert tabtorch.linalg.lu_factor_ex(a * 0, pivot=False).info.item() == 1
    (L @ U).sum().backward()
    assert tabtorch.allclose(a.grad, tabtorch.ones_like(a), atol=1e-5)


def test_64_bits() -> None:
    names = {"a": noise((3, 40, 40), torch.float64).requires_grad_(), "c": noise((2, 40, 40), torch.complex128)}
    for e in (
        "lu(a)",
        "qr(a)",
        "inv(a)",
        "solve(a, a)",
        "slogdet(a)",
        "matrix_exp(a)",
        "lu_factor(c)",
        "ldl_factor(c, hermitian=True)",
    ):
        check("m.linalg." + e, names, "cpu", tol=1e-9, twice=False, named=True)


def test_two_devices(device: str) -> None:
    if device == "webgpu":
        a = tabtorch.eye(2, device=device)
        with pytest.raises(RuntimeError, match="found at least two devices, webgpu:0 and cpu!"):
            tabtorch.linalg.solve(a, a.cpu())
