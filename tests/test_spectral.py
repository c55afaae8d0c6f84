"""Singular values, eigenvalues, least squares, incomplete gamma functions, beside PyTorch: edges, errors, named results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tabtorch
from gradients import check
from sidebyside import to_tab
from tabtorch.engine.expr import const, define, repeat

PLAIN = """
m.linalg.svd(m.ones(2))
m.linalg.svd(m.ones(2, 2).long())
m.linalg.svd(m.ones(2, 2).half())
m.linalg.svd(m.tensor([[[1.]], [[nan]]]))
m.linalg.svd(m.ones(2, 2), driver="gesvd")
m.linalg.svd(m.ones(0, 3))
m.linalg.svd(m.ones(2, 3, 0), full_matrices=False)
m.linalg.svd(m.ones(2, 2), out=(m.empty(1), m.empty(0).long(), m.empty(0)))
m.svd(m.diag(m.arange(1., 4)), compute_uv=False)
m.linalg.svdvals(m.arange(12.).reshape(2, 2, 3))
m.linalg.eigh(m.ones(2, 3))
m.linalg.eigh(m.ones(2, 2), "X")
m.linalg.eigh(m.tensor([[2., 100], [1, 3]]))[0], m.linalg.eigvalsh(m.tensor([[2., 1], [100, 3]]), UPLO="u")
m.linalg.eig(m.ones(0, 0))
m.linalg.eig(m.tensor([[inf]]))
m.linalg.eigvals(m.tensor([[[inf]], [[2.]]]))
m.linalg.eigvals(m.tensor([[0., 1], [-1, 0]]))
m.linalg.eig(m.ones(2, 2), out=(m.empty(0), m.empty(0).cfloat()))
m.linalg.lstsq(m.ones(2), m.ones(2))
m.linalg.lstsq(m.ones(3, 2), m.ones(2, 2))
m.linalg.lstsq(m.ones(3, 2), m.ones(3, 2), driver="x")
m.linalg.lstsq(m.ones(2, 3, 2), m.ones(2, 3, 2), driver="gels")
m.linalg.lstsq(m.ones(2, 0, 3), m.ones(2, 0, 1))
m.linalg.lstsq(m.ones(2, 3, 0), m.ones(2, 3, 1))
m.linalg.lstsq(m.eye(3, 2) + 1, m.arange(3.), driver="gelsd")
m.linalg.lstsq(m.eye(3, 2) + 1, m.ones(3, 1).cfloat())
m.linalg.pinv(m.ones(3))
m.linalg.pinv(m.ones(2, 0, 3))
m.linalg.pinv(m.diag(m.tensor([1., 1e-3, 0])), atol=m.tensor(1e-2)), m.linalg.pinv(m.diag(m.tensor([1., 1e-3])), 1e-4)
m.pinverse(m.ones(2, 3) + m.eye(2, 3))
m.linalg.matrix_rank(m.ones(3))
m.linalg.matrix_rank(m.stack([m.ones(2, 2), m.eye(2)]), atol=m.tensor([.1, 1.])), m.linalg.matrix_rank(m.ones(2, 0, 3))
m.linalg.matrix_rank(m.diag(m.tensor([1., -1e-3])), 1e-2, hermitian=True)
m.linalg.cond(m.ones(3, 2), 1)
m.linalg.cond(m.ones(3, 3), 5)
m.linalg.cond(m.ones(3, 3), "fro"), m.linalg.cond(m.ones(0, 0)), m.linalg.cond(m.diag(m.arange(1., 4)), -2)
m.linalg.matrix_norm(m.ones(0, 3), 2), m.linalg.matrix_norm(m.ones(2, 3, 4), "nuc", (0, 2), keepdim=True)
m.linalg.matrix_norm(m.ones(2, 3), "nux")
m.norm(m.ones(2, 3), "nuc"), m.nuclear_norm(m.ones(3, 3))
m.igamma(m.tensor([0., 0, 1, inf, 2, -1, nan, nan, 5]), m.tensor([0., 1, 0, 1, inf, 1, inf, 0, 5]))
m.special.gammaincc(m.tensor([.5, 5, 50, 500, 5e4]), m.tensor([.3, 6, 40, 510, 50100]))
m.igamma(m.ones(1, requires_grad=True), m.ones(1)).backward()
m.igammac(m.tensor([1]), m.tensor([1]))
m.polygamma(3, m.tensor([-.5, -1.25, -1000.25, 0, -1, .3, 40]))
m.polygamma(-1, m.ones(1))
m.special.zeta(m.tensor([2., 3, 2.5, 1, .5, 4]), m.tensor([-.5, -2.25, -.5, 1, 1, -3]))
""".strip().split("\n")

#: expressions over a (4, 3), s (3, 3) and b (4, 2) that require grad; f turns singular vectors into what has no sign
DIFFERENTIABLE = [
    "f(m.linalg.svd(a))",
    "f(m.linalg.svd(a.mT))",
    "m.linalg.svdvals(a)",
    "f(m.linalg.eigh(s + s.mT))",
    "m.linalg.eigvals(s).abs().sort()[0]",
    "m.linalg.lstsq(a, b)[0]",
    "m.linalg.lstsq(a, b, driver='gelsd')[:2]",
    "m.linalg.lstsq(a, b[:, 0], driver='gels')[1]",
    "m.linalg.pinv(a)",
    "m.linalg.cond(s)",
    "m.linalg.matrix_norm(a, -2)",
    "m.igamma(b.abs().detach(), b.abs() + .5)",
    "m.polygamma(2, a.abs() + .5)",
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", PLAIN)
def test_as_pytorch(expression: str, device: str) -> None:
    check(expression, {}, device, tol=2e-5, twice=False, named=False)


@pytest.mark.parametrize("expression", DIFFERENTIABLE)
def test_gradients(expression: str, device: str) -> None:
    g = torch.Generator().manual_seed(4)
    names: dict[str, Any] = {
        k: torch.randn(s, generator=g).requires_grad_() for k, s in (("a", (4, 3)), ("s", (3, 3)), ("b", (4, 2)))
    }
    names["f"] = lambda parts: tuple(p.abs() for p in parts)
    check(expression, names, device, tol=2e-4, twice=False, named=False)


@pytest.mark.parametrize("expression", ["svd(x)[0]", "eig(x)[1]", "eigh(x + x.mH)[1]"])
def test_a_loss_that_depends_on_the_phase(expression: str, device: str) -> None:
    x = torch.randn(3, 3, dtype=torch.complex64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    seen = []
    for m, v in ((torch, x), (tabtorch, to_tab(x, device))):
        with pytest.raises(RuntimeError) as e:
            eval("m.linalg." + expression, {"m": m, "x": v}).imag.sum().backward()
        seen.append(str(e.value).split("\n")[0])
    assert seen[0] == seen[1]


def test_lobpcg(device: str) -> None:
    g = torch.Generator().manual_seed(1)
    a = torch.randn(2, 20, 20, generator=g)
    a = torch.diag(torch.arange(1.0, 21)) + 0.2 * (a + a.mT)
    for largest in (True, False):
        mine = to_tab(a, device).requires_grad_()
        theirs = a.clone().requires_grad_()
        E, V = tabtorch.lobpcg(mine, 2, largest=largest, tol=1e-6, niter=200)
        L, Q = torch.linalg.eigh(theirs)
        pick = [19, 18] if largest else [0, 1]
        np.testing.assert_allclose(E.detach().numpy(), L.detach()[:, pick].numpy(), rtol=1e-4, atol=1e-5)
        (V[..., 0].square() * tabtorch.arange(20, device=device)).sum().backward()
        (Q[..., pick[0]].square() * torch.arange(20)).sum().backward()
        half = (mine.grad + mine.grad.mT) / 2  # PyTorch's own is not symmetric either
        np.testing.assert_allclose(half.numpy(), theirs.grad.numpy(), rtol=2e-2, atol=2e-2)


def test_low_rank(device: str) -> None:
    """The random vectors are PyTorch's, so the result is."""
    a = torch.randn(9, 4, generator=torch.Generator().manual_seed(2)) @ torch.randn(4, 7)
    torch.manual_seed(5)
    want = torch.pca_lowrank(a, 3)
    tabtorch.manual_seed(5)
    got = tabtorch.pca_lowrank(to_tab(a, device), 3)
    for w, h in zip(want, got, strict=True):
        np.testing.assert_allclose(np.abs(h.numpy()), w.abs().numpy(), rtol=1e-3, atol=1e-4)


def test_names_and_strides(device: str) -> None:
    for m in (torch, tabtorch):
        r = m.linalg.svd(m.ones(2, 4, 3, device=device if m is tabtorch else "cpu"))
        assert type(r) is m.return_types.linalg_svd
        assert (r.U.stride(), r.S.stride(), r.Vh.stride()) == ((16, 1, 4), (3, 1), (9, 1, 3))


def test_loops_in_functions(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`repeat`: states that depend on each other, an early end, two loops of which one is inside what the other needs."""

    @define("fibonacci_test")
    def fibonacci(x: Any) -> Any:
        n, _ = repeat("n", 50, lambda k, a, b: (a < x, b, a + b), const(1, x.type), const(1, x.type))
        (total,) = repeat("t", 3, lambda k, s: (n > 0.0, s + n * k), x)
        return total

    from tabtorch.ops.machinery.registry import ROW_NAMES, ROWS, Row, elementwise, function

    row = Row("_fibonacci_test", fibonacci, None, "float", method=False, inplace=False, out=False)
    monkeypatch.setitem(ROWS, row.name, row)  # so that both tables lose it when the test is over
    monkeypatch.setitem(ROW_NAMES, row.name, (row, False))
    elementwise(row)
    f = function("_fibonacci_test")
    assert f is not None
    # 1, 1, 2, 3, 5, 8: the state moves on once more where the condition first fails
    assert f(tabtorch.tensor([2.0, 4.0])).tolist() == [2 + 3 * 3.0, 4 + 8 * 3.0]
