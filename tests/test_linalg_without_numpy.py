"""torch.linalg where there is no NumPy: in a process that cannot import it, compared with what PyTorch gave, and in Pyodide."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

HERE = Path(__file__).parent
#: of the results of float32, and of float64, in units of the last place of the largest element, times the size
ULPS = 8

#: reads {name: (dtype, shape, numbers)} and writes {name: {function: results as (dtype name, shape, numbers)}}. No NumPy here
CHILD = """
import pickle, sys
sys.modules["numpy"] = None
import tabtorch as m
L = m.linalg
def back(r):
    if isinstance(r, (tuple, list)):
        return [back(x) for x in r]
    r = r.detach().contiguous()
    values = m.view_as_real(r.resolve_conj()) if r.is_complex() else r
    return str(r.dtype), tuple(r.shape), values.reshape(-1).tolist()
cases, functions = pickle.load(sys.stdin.buffer)
out = {}
for name, (dtype, shape, values, turned) in cases.items():
    d = getattr(m, dtype)
    a = m.tensor(values, dtype=m.float64)
    a = (m.view_as_complex(a.reshape(-1, 2)) if d.is_complex else a).to(d).reshape(shape)
    a = a.mT if turned else a
    for f in functions:
        try:
            out[name, f] = back(eval(f, {"m": m, "L": L, "a": a}))
        except Exception as e:
            out[name, f] = f"{type(e).__name__}: {e}"
assert not sys.modules["numpy"]
sys.stdout.buffer.write(b"\\0RESULT" + pickle.dumps(out))
"""
#: what has one right result
PLAIN = (
    """
L.det(a @ a.mH); L.slogdet(a); L.inv(a); L.inv_ex(a); L.lu(a); L.lu_factor(a); L.lu_factor_ex(a); L.qr(a); L.qr(a, 'r')
L.qr(a, 'complete'); m.geqrf(a); L.solve(a, a.mH); L.solve(a, a[..., :1], left=True); L.solve(a, a, left=False)
L.solve_triangular(a + 9 * m.eye(a.shape[-1], dtype=a.dtype), a, upper=True)
L.solve_triangular(a + 9 * m.eye(a.shape[-1], dtype=a.dtype), a, upper=False, left=False)
L.lu_solve(*L.lu_factor(a), a, adjoint=True); L.cholesky(a @ a.mH + m.eye(a.shape[-2], dtype=a.dtype))
L.cholesky(a @ a.mH + m.eye(a.shape[-2], dtype=a.dtype), upper=True); L.cholesky_ex(-(a @ a.mH)).info
m.cholesky_solve(a, L.cholesky(a @ a.mH + m.eye(a.shape[-2], dtype=a.dtype)))
m.cholesky_inverse(L.cholesky(a @ a.mH + m.eye(a.shape[-2], dtype=a.dtype)))
L.ldl_factor(a + a.mT); L.ldl_factor(a + a.mH, hermitian=True)
L.ldl_solve(*L.ldl_factor(a + a.mH, hermitian=True), a, hermitian=True)
L.svdvals(a); L.eigvalsh(a + a.mH); L.pinv(a); L.matrix_rank(a); L.pinv(a + a.mH, hermitian=True)
L.matrix_rank(a + a.mH, hermitian=True, atol=.1); L.lstsq(a, a[..., :1]).solution
L.lstsq(a, a[..., :1], driver='gelsd')[2:]; L.lstsq(a, a[..., :1], driver='gels').solution
L.lstsq(a, a[..., :1] * 2, driver='gelss').residuals; L.matrix_exp(a / 4); L.householder_product(*m.geqrf(a))
m.ormqr(*m.geqrf(a), a); L.cond(a); L.matrix_norm(a, 'nuc'); L.eig(a[..., :4, :4] * float('nan')) if a.shape[-1] == a.shape[-2] else a
L.svd(a * float('nan'))
L.cholesky(-(a @ a.mH)); L.inv(a * 0); L.solve(a * 0, a)
""".strip()
    .replace("\n", "; ")
    .split("; ")
)
#: what is right up to signs, phases and bases of equal values: what it is put together to, which is compared with `a` and 1
GAUGED = {
    "L.svd(a, full_matrices=False)": lambda r, a: (
        (r[0] * r[1][..., None, :]) @ r[2],
        a,
        [r[0], r[2].conj().swapaxes(-1, -2)],
    ),
    "L.svd(a)": lambda r, a: (
        (r[0][..., : r[1].shape[-1]] * r[1][..., None, :]) @ r[2][..., : r[1].shape[-1], :],
        a,
        [r[0], r[2].conj().swapaxes(-1, -2)],
    ),
    "L.eigh(a + a.mH)": lambda r, a: ((r[1] * r[0][..., None, :]) @ adjoint(r[1]), a + adjoint(a), [r[1]]),
    "L.eigh(a + a.mH, 'U')": lambda r, a: ((r[1] * r[0][..., None, :]) @ adjoint(r[1]), a + adjoint(a), [r[1]]),
    "L.eig(a)": lambda r, a: (r[1] * r[0][..., None, :], a @ r[1], []),
}


def adjoint(x: Any) -> Any:
    return x.conj().swapaxes(-1, -2)


def case(kind: str, n: int, g: torch.Generator, dtype: torch.dtype) -> torch.Tensor:
    a = torch.randn(n, n, dtype=torch.complex128 if dtype.is_complex else torch.float64, generator=g)
    if kind == "ill":  # singular values from 1 to 1e-6
        q, r = (torch.linalg.qr(x)[0] for x in (a, a.mT))
        a = q * torch.logspace(0, -6, n, dtype=torch.float64) @ r
    elif kind == "repeated":
        q = torch.linalg.qr(a)[0]
        a = (q * torch.arange(n, dtype=torch.float64).div(3).floor()) @ q.mH
    elif kind == "triangular":
        a = a.tril()
    return a.to(dtype)


def cases() -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(1)
    found = {}
    for dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128):
        short = str(dtype)[6:]
        for n in (0, 1, 2, 3, 8, 33):
            found[f"{short} random {n}"] = case("random", n, g, dtype)
        for kind in ("ill", "repeated", "triangular"):
            found[f"{short} {kind} 8"] = case(kind, 8, g, dtype)
        found[f"{short} batch"] = torch.stack([case("random", 5, g, dtype) for _ in range(6)]).reshape(2, 3, 5, 5)
        found[f"{short} empty batch"] = torch.ones(0, 3, 3, dtype=dtype)
        found[f"{short} tall"] = torch.stack([case("random", 9, g, dtype)[:, :4] for _ in range(2)])
        found[f"{short} wide"] = case("random", 9, g, dtype)[:4]
        found[f"{short} low rank"] = (case("random", 9, g, dtype)[:, :2] @ case("random", 9, g, dtype)[:2]).to(dtype)
        found[f"{short} turned"] = case("random", 6, g, dtype).mT
    found["float32 random 100"] = case("random", 100, g, torch.float32)
    # at 100 the QR that PyTorch brings leaves the last element of R complex; LAPACK's own, and ours, makes it real
    found["complex128 random 64"] = case("random", 64, g, torch.complex128)
    return found


def numbers(x: torch.Tensor) -> list[float]:
    wide = x.detach().to(torch.complex128 if x.is_complex() else torch.float64).contiguous()
    return (torch.view_as_real(wide) if x.is_complex() else wide).reshape(-1).tolist()


@pytest.fixture(scope="module")
def computed() -> tuple[dict[str, torch.Tensor], dict[Any, Any]]:
    """The cases, and what a process without NumPy makes of them."""
    given = cases()
    sent = {
        k: (
            str(t.dtype)[6:],
            tuple(t.mT.shape if "turned" in k else t.shape),
            numbers(t.mT if "turned" in k else t),
            "turned" in k,
        )
        for k, t in given.items()
    }
    data = pickle.dumps((sent, [*PLAIN, *GAUGED]))
    r = subprocess.run(
        [sys.executable, "-c", CHILD], input=data, stdout=subprocess.PIPE, check=True, cwd=HERE, timeout=500
    )
    return given, pickle.loads(r.stdout.split(b"\0RESULT")[1])


def arrays(r: Any) -> list[Any]:
    if isinstance(r, list):
        return [a for x in r for a in arrays(x)]
    dtype, shape, values = r
    d = dtype.removeprefix("torch.").removeprefix("tabtorch.")
    a = np.array(values, np.float64)
    return [(a.view(np.complex128) if d.startswith("complex") else a).reshape(shape)]


def wanted(f: str, a: torch.Tensor) -> Any:
    try:
        r = eval(f, {"m": torch, "L": torch.linalg, "a": a})
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return [x.detach().resolve_conj().numpy() for x in ((r,) if isinstance(r, torch.Tensor) else r)]


def eps(a: torch.Tensor) -> float:
    return torch.finfo(a.dtype).eps * max(1, *a.shape[-2:])


@pytest.mark.parametrize("f", PLAIN)
def test_as_pytorch(f: str, computed: Any) -> None:
    given, out = computed
    bad = []
    for name, a in given.items():
        got, exact = out[name, f], wanted(f, a)
        if isinstance(exact, str) or isinstance(got, str):
            said = [x.split("\n")[0].strip() if isinstance(x, str) else "a result" for x in (got, exact)]
            # whether a singular matrix's last pivot is exactly zero depends on rounding
            if said[0] != said[1] and not any(k in name for k in ("low rank", "repeated", "ill")):
                bad.append(" instead of ".join([f"{name}: {said[0]}", said[1]]))
            continue
        results = arrays(got)
        assert [x.shape for x in results] == [x.shape for x in exact], name
        if any(k in name for k in ("low rank", "ill", "repeated", "triangular")):
            continue  # the results are not near to each other, for they depend on rounding: see below
        wide = wanted(f, a.to(torch.complex128 if a.is_complex() else torch.float64))
        for x, y, z in zip(results, exact, wide if len(wide) == len(exact) else exact):
            if not y.size:
                continue
            # as near to what float64 gives as PyTorch, or a few units in the last place
            size = np.abs(z[np.isfinite(z)]).max(initial=1)
            error, theirs = (np.abs(v - z)[np.isfinite(z)].max(initial=0) / size for v in (x, y))
            most = ULPS if eps(a) > 1e-9 else 16 * ULPS  # of float64 nobody knows it better
            if not error <= max(most * eps(a), 2 * theirs):
                bad.append(f"{name}: {error / eps(a):.1f} ulp, PyTorch {theirs / eps(a):.1f}")
    assert not bad, bad


@pytest.mark.parametrize("f", GAUGED)
def test_up_to_gauge(f: str, computed: Any) -> None:
    given, out = computed
    bad = []
    for name, a in given.items():
        exact = wanted(f, a)
        if isinstance(exact, str):
            continue  # of matrices that are not square
        results = arrays(out[name, f])
        assert [x.shape for x in results] == [x.shape for x in exact], name
        if not a.numel():
            continue
        made, of, unitary = GAUGED[f](
            results, a.to(torch.complex128 if a.is_complex() else torch.float64).resolve_conj().numpy()
        )
        error = np.abs(made - of).max() / max(np.abs(of).max(), 1e-30) / eps(a)
        for q in unitary:
            error = max(error, np.abs(adjoint(q) @ q - np.eye(q.shape[-1])).max() / eps(a))
        if error > ULPS:
            bad.append(f"{name}: {error:.1f} ulp")
        if f == "L.eig(a)":
            np.testing.assert_allclose(np.abs(results[1] ** 2).sum(-2), 1, rtol=4 * eps(a))
            if not a.is_complex():  # conjugates come in pairs, the positive imaginary part first; exactly
                im = results[0].imag.reshape(-1)
                assert sorted(im[im > 0]) == sorted(-im[im < 0]), name
    assert not bad, bad


TAB = """
import sys, tabtorch as m
assert "numpy" not in sys.modules
L = m.linalg
for d in (m.float32, m.complex128):
    a = m.arange(18.0, dtype=m.float64).square().sin().reshape(2, 3, 3).to(d)
    s, one = a + a.mH, m.eye(3, dtype=d)
    (w, V), (l, q), (u, v, vh) = L.eig(a), L.eigh(s), L.svd(a)
    pairs = [(a @ L.inv(a), one), ((u * v.unsqueeze(-2)) @ vh, a), ((q * l.unsqueeze(-2)) @ q.mH, s)]
    for x, y in [*pairs, (a.to(V.dtype) @ V, V * w.unsqueeze(-2))]:
        assert m.allclose(x, y.expand(x.shape), 1e-4, 1e-5), (d, x, y)
assert "numpy" not in sys.modules
print("done")
"""


def test_in_pyodide(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(TAB)
    program = Path(sys.executable).parent / "tabtorch"
    run = [program, "run", "a.py", "--browser", "node", "--device", "cpu"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_refused_pivots_and_conjugates() -> None:
    """Views that are conjugates, shared operands of a batch, gradients, and a batch of `vmap`."""
    import tabtorch

    g = torch.Generator().manual_seed(3)
    a = torch.randn(4, 3, 3, dtype=torch.complex64, generator=g)
    b = torch.randn(3, 2, dtype=torch.complex64, generator=g)
    mine = [tabtorch.tensor(x.tolist(), dtype=tabtorch.complex64) for x in (a, b)]
    for f in ("m.linalg.solve(a.conj(), b)", "m.func.vmap(lambda x: m.linalg.solve(x, b))(a)", "m.linalg.inv(a.mH)"):
        want = eval(f, {"m": torch, "a": a, "b": b})
        got = eval(f, {"m": tabtorch, "a": mine[0], "b": mine[1]})
        np.testing.assert_allclose(np.array(got.tolist()), want.numpy(), rtol=1e-5, atol=1e-5)
    with pytest.raises(RuntimeError, match="pivots passed to lu_unpack must be between 1 and"):
        tabtorch.lu_unpack(mine[0], tabtorch.full((4, 3), 4, dtype=tabtorch.int32))
