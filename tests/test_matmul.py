"""Products of matrices against real PyTorch on both devices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch

import tabtorch
from gradients import check_all
from sidebyside import DEVICES, to_tab, values
from tabtorch.engine import builder, graph, schedules, tiles
from tabtorch.engine.lower import Kernel, grid_for
from tabtorch.engine.target import target
from tabtorch.engine.tiles import algorithm


def inputs() -> dict[str, Any]:
    """v3 is a vector of 3, m23 a matrix of 2 by 3, and so on."""
    g = torch.Generator().manual_seed(0)
    out: dict[str, Any] = {}
    for name in "s v2 v3 v4 v5 m23 m33 m34 m43 m44 m45 m35 m24 m53 m54 b234 b243 b245 b224 b1234 b5234 b134 b534 b513 b334".split():
        shape = [int(d) for d in name[1:]]
        out[name] = torch.randn(shape, generator=g).requires_grad_()
    out["q"] = torch.randn(2, 2, 3, 4, generator=g).requires_grad_()
    out["k"] = torch.randn(2, 2, 5, 4, generator=g).requires_grad_()
    out["w"] = torch.randn(5, 3, 2, generator=g).requires_grad_()
    out["c"] = torch.complex(torch.randn(2, 3, generator=g), torch.randn(2, 3, generator=g)).requires_grad_()
    out["i"] = torch.arange(6).reshape(2, 3)
    out["h"] = torch.randn(4, 6, generator=g).half()
    out["bf"] = torch.randn(4, 6, generator=g).bfloat16().requires_grad_()
    out["e"] = torch.zeros(0, 3)
    out["flag"] = torch.ones(2, 2, dtype=torch.bool)
    return out


TWICE = """
m23 @ m34; m.mm(m34, m45); m.bmm(b234, b243); m34.mv(v4); v4.dot(v4); m33.t() @ m34[:, ::2]; (m34 @ m45).relu() @ m45.t()
b234 @ m45; b234 @ b245; m23 @ b534; b1234 @ m43; b134 @ b243[0]; v3 @ m34; m34 @ v4; b234 @ v4; v3 @ b534; v3 @ v3
b513 @ b534; m.addmm(m35, m34, m45); m.addmm(v5, m34, m45, beta=0.5, alpha=2.0); m.addmv(v3, m34, v4)
m.addr(m34, v3, v4, beta=0.5); m.baddbmm(b224, b234[:, :2], b245[:, :, :4], alpha=0.5); m.addbmm(m35, b234, b245)
m.einsum("ij,jk->ik", m23, m34); m.einsum("ii", m33); m.einsum("bhqd,bhkd->bhqk", q, k)
m.einsum("bqhd,bkhd->bhqk", q.transpose(1, 2), k.transpose(1, 2)); m.einsum("ij,jk,kl->il", m23, m34, m45)
m.einsum("...ij,...jk->...ik", q, k.transpose(2, 3)); m.einsum("i...->...", b234)
m.einsum("iij,j->i", w[:3, :, :] @ m24, v4); m.einsum("bn,anm,bm->ba", m23, w, m23[:, :2])
m.einsum(m23, [0, 1], m34, [1, 2], [0, 2]); m.tensordot(b234, m34, 2); m.tensordot(b234, w, ([1], [1]))
F.linear(m23, m53, v5); F.linear(m23, m53); F.linear(b243, m53, v5); F.linear(v3, m53); F.bilinear(m43, m24.t(), w, v5)
m.inner(m23, m53)
"""
ONCE = """
m.outer(v3, v4); m.inner(v3, v3); m.vdot(v3, v3); m.trace(m34); m.linalg.multi_dot([m23, m34, m45])
m.linalg.multi_dot([v2, m23, m34, m45, v5]); m.matrix_power(m33, 5); m.cross(m23, m23.flip(0), dim=1)
m.linalg.cross(m23, m23.flip(0)); m.cdist(b234, b534[:2]); m.cdist(m34, m54, 1.0); m.linalg.vecdot(m23, m23); c @ c.t()
bf @ bf.t(); h @ h.t(); h.t() @ h; i @ i.t(); m.einsum("ij->ji", m23); m.einsum("ij->", m23); m.einsum("ij,k->ik", m34, v2)
m.einsum("i,i,i->i", v3, v3, v3); m.einsum("Ab,bC->AC", m23, m34); m.einsum("ij,kj->ik", m23, m53)
m.einsum("ij,jk", m23, m34); m.matrix_power(m33.detach(), 0); m.addmm(m34[:, :1], m34, m45, beta=0); e @ m34
m.zeros(2, 0) @ m.zeros(0, 3); m.bmm(m.zeros(0, 2, 3), m.zeros(0, 3, 4)); m.linalg.matmul(m23, m34)
"""
ERRORS = """
m23 @ m45; m.mm(v3, m34); m.mm(m34, v4); m.bmm(b234, b534); m.bmm(b234, b234); m.bmm(m23, b234); m34.mv(v3); v3.dot(v4)
v3.dot(m34); v3 @ v4; m34 @ v3; v4 @ m34; b234 @ m34; b234 @ b234; b234 @ b534; s @ v3; v4 @ b534; b234 @ v3; m24 @ b534
m23 @ h; m23 @ m.zeros(2, 3).double(); flag @ flag; m.bmm(b234, m.zeros(2, 4, 5).double()); m.addmm(v4, m34, m45)
m.addmm(m.zeros(5).double(), m34, m45); m.addmm(v5, m34, m34); m.einsum("ij,jk->iz", m23, m34); m.einsum("ij,jk", m23, m45)
m.einsum("ijk", m23); m.einsum("ij,jk->ii", m23, m34); m.einsum("i.j", m23); m.einsum("i1", m23); m.einsum("ij,jk", m23)
m.tensordot(m23, m45, 1); m.inner(m23, m34); m.outer(m23, v3); m.trace(v3); m.matrix_power(m34, 2); F.linear(m23, m45, v4)
m.cdist(m23, m45)
"""
# float64 is not on webgpu, so its errors are seen on the cpu device
GPU_ERRORS = "; ".join(e for line in ERRORS.strip().split("\n") for e in line.split(";") if "double" not in e)


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_twice(device: str) -> None:
    check_all(TWICE, inputs, device, twice=True, named=False)


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_once(device: str) -> None:
    check_all(ONCE, inputs, device, tol=5e-5, named=False)


@pytest.mark.parametrize("device", DEVICES)
def test_errors(device: str) -> None:
    check_all(ERRORS if device == "cpu" else GPU_ERRORS, inputs, device)


@pytest.mark.parametrize("device", DEVICES)
def test_names_of_backward_nodes(device: str) -> None:
    check_all(
        "m23 @ m34; m.bmm(b234, b243); m34 @ v4; v3 @ v3; b234 @ m45; m.addmm(m35, m34, m45); m.baddbmm(b224, b234[:, :2], b245[:, :, :4])"
        "; m.addmv(v3, m34, v4); m.inner(v3, v3)",
        inputs,
        device,
    )


@pytest.mark.parametrize("device", DEVICES)
def test_results_are_contiguous(device: str) -> None:
    shapes = [
        ((2, 3), (5, 3, 4)),
        ((5, 2, 3), (3, 4)),
        ((1, 2, 3), (5, 3, 4)),
        ((5, 1, 2, 3), (6, 3, 4)),
        ((3,), (5, 3, 4)),
    ]
    for a, b in shapes:
        r = tabtorch.zeros(a, device=device) @ tabtorch.zeros(b, device=device)
        assert r.is_contiguous(), (a, b)


@pytest.mark.parametrize("device", DEVICES)
def test_in_place(device: str) -> None:
    c = tabtorch.ones(2, 2, device=device)
    a = tabtorch.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    assert c.addmm_(a, a) is c
    assert c.tolist() == [[8.0, 11.0], [16.0, 23.0]]
    assert a.cumsum_(1) is a
    assert a.tolist() == [[1.0, 3.0], [3.0, 7.0]]
    with pytest.raises(NotImplementedError, match="cumsum_out_cpu"):
        tabtorch.ones(3, dtype=tabtorch.bool, device=device).cumsum_(0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("shape", "bias", "name"),
    [
        ((2, 3), True, "AddmmBackward0"),
        ((2, 3), False, "MmBackward0"),
        ((4, 2, 3), True, "ViewBackward0"),
        ((4, 2, 3), False, "UnsafeViewBackward0"),
    ],
)
def test_linear_is_one_backward_node(device: str, shape: tuple[int, ...], bias: bool, name: str) -> None:
    from tabtorch.ops.linalg.matmul import linear

    x, w, b = torch.randn(shape), torch.randn(5, 3), torch.randn(5)
    want = torch.nn.functional.linear(x, w, b if bias else None)
    y = linear(to_tab(x, device).requires_grad_(), to_tab(w, device), to_tab(b, device) if bias else None)
    assert y.grad_fn.name() == name
    np.testing.assert_allclose(values(y), want.numpy(), rtol=1e-5, atol=1e-6)


def test_gradients_of_a_product_are_matrix_products() -> None:
    """The contraction of a gradient keeps rows and columns apart, so that a tile kernel can take it."""
    from tabtorch.ops.linalg.contract import _arrange

    assert _arrange((0, 1), (1, 2), (0, 2)) == ((), [0], [2], False)
    # gradient of the second factor: the first operand's label comes last in it
    assert _arrange((0, 2), (0, 1), (1, 2)) == ((), [1], [2], True)
    assert _arrange((3, 0, 1), (3, 1, 2), (3, 0, 2)) == ((3,), [0], [2], False)
    # attention's einsum: batch labels in between make the result a permuted view rather than many small products
    assert _arrange((0, 1, 2, 3), (0, 3, 1, 4), (0, 2, 1, 4)) == ([0, 1], [2], [4], False)


def test_what_follows_a_product_is_compiled_once() -> None:
    """A software adapter writes every call out in place: with one for each of a thread's results, GELU's gradient took seconds."""
    assert algorithm("matmul_registers.wgsl").partition("fn main")[2].count("store_out(") == 1


def test_operands_are_read_without_exact_quotients(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel has many copies of what reads an operand: with an exact quotient in each, compilers took a minute."""
    if not tabtorch.webgpu.is_available():
        pytest.skip("no WebGPU adapter")
    texts: list[str] = []
    source = Kernel.source

    def seen(self: Kernel, *args: Any) -> str:
        texts.append(source(self, *args))
        return texts[-1]

    monkeypatch.setattr(Kernel, "source", seen)
    monkeypatch.setattr(schedules, "_families", {})
    a, b = torch.rand(37, 29) + 1, torch.rand(29, 31)
    mine = [to_tab(t, "webgpu") for t in (a, b)]
    got = (mine[0].rsqrt() / 3.7) @ (mine[1] / mine[0].sum())
    torch.testing.assert_close(torch.from_numpy(values(got)), (a.rsqrt() / 3.7) @ (b / a.sum()))
    (text,) = [t for t in texts if "fn load_a" in t]
    assert "tt_ratio" in text and "tt_quotient" not in text and "tt_root" not in text


LAYOUTS = [(16, 16, 1), (16, 8, 1), (8, 16, 1), (8, 8, 1), (16, 8, 2), (16, 16, 3), (8, 8, 5)]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_layout_of_a_product(layout: tuple[int, int, int], made_up_gpu: None, monkeypatch: Any) -> None:
    """Whatever a large GPU is given: sizes that divide evenly and that do not, operands along and across rows."""
    monkeypatch.setattr(tiles, "_laid_out", lambda *sizes: layout)
    monkeypatch.setattr(tiles, "_LARGE", 1)
    rng = np.random.default_rng(sum(layout))
    for across in range(4):
        m, n, k = (int(rng.choice(c)) for c in ((64, 97, 132), (64, 70, 131), (160, 172, 255)))
        a, b = torch.randn(m, k) / 4, torch.randn(k, n) / 4
        x, y = (
            tabtorch.tensor(v.t().contiguous().numpy(), device="webgpu").t() if across & bit else to_tab(v, "webgpu")
            for v, bit in ((a, 1), (b, 2))
        )
        got = (x @ y).relu().cpu().numpy()
        torch.testing.assert_close(torch.from_numpy(got), (a @ b).relu(), rtol=1.3e-6, atol=1e-5)


#: (m, n, k): (threads along x, along y, parts of k)
MEASURED = {
    (2048, 768, 768): (16, 8, 2),
    (2304, 768, 2048): (16, 8, 3),
    (768, 768, 2048): (16, 16, 7),
    (3072, 768, 2048): (16, 8, 3),
    (2048, 2304, 768): (16, 8, 1),
    (512, 2304, 768): (16, 8, 3),
    (512, 3072, 768): (16, 8, 2),
    (512, 768, 3072): (16, 16, 11),
    (1024, 1024, 1024): (16, 8, 1),
    (2048, 2048, 2048): (16, 16, 1),
    (4096, 4096, 4096): (16, 8, 1),
    (768, 384, 128): (8, 8, 1),
}


def test_layouts_that_were_measured() -> None:
    """On an H200 each of these was the fastest of all, or within 5 % of it."""
    found = {sizes: tiles._laid_out(1, *sizes) for sizes in MEASURED}
    assert found == MEASURED


@pytest.mark.parametrize("threads", [1, 256, 65535 * 256, 65536 * 256, 3 * 10**9, 256 * 65535**2 + 1, 2**41 + 5])
def test_grids(threads: int) -> None:
    """There are enough workgroups, within WebGPU's limit, and few too many."""
    x, y, z = grid_for(threads, 256)
    needed = -(-threads // 256)
    assert max(x, y, z) <= 65535 and needed <= x * y * z <= needed + 2 * 65535


# ---- by matrices of a subgroup, where the adapter has them and float32 may be less than exact


@pytest.fixture
def less(made_up_gpu: None) -> Iterator[None]:
    """An adapter that multiplies matrices, and leave to use them."""
    t = target(0)
    before, t.has_matrices = t.has_matrices, True
    tabtorch.set_float32_matmul_precision("high")
    yield
    tabtorch.set_float32_matmul_precision("highest")
    t.has_matrices = before


def _product(monkeypatch: Any, *sizes: int) -> dict[str, Any]:
    """The kernel of a product of ones, which is not sent."""

    class Seen(Exception):
        pass

    def define(spec: dict[str, Any]) -> int:
        found.update(spec)
        raise Seen

    found: dict[str, Any] = {}
    m, k, n = sizes
    a, b = tabtorch.empty(m, k, device="webgpu"), tabtorch.empty(k, n, device="webgpu")
    graph.flush()
    monkeypatch.setattr(builder.bridge(), "define_kernel", define)
    monkeypatch.setattr(builder, "_kernels", {})
    monkeypatch.setattr(schedules, "_families", {})
    monkeypatch.setattr(graph, "_plans", {})
    kept = a @ b
    with suppress(Seen):
        graph.flush()
    monkeypatch.undo()
    assert kept.shape == (m, n)
    return found


def test_products_by_matrices(less: None, monkeypatch: Any) -> None:
    """What is large enough, and only where it is permitted. That the text works only adapters with such matrices can tell."""
    text = _product(monkeypatch, 128, 64, 256)["source"]
    assert text.startswith("diagnostic(off, chromium.subgroup_matrix_uniformity);\nenable f16;\n")
    assert text.count("subgroupMatrixMultiplyAccumulate(") == 24  # three for each of the 2 x 4 matrices of a subgroup
    assert "subgroupMatrix" not in _product(monkeypatch, 128, 32, 256)["source"]


def test_products_without_leave(less: None, monkeypatch: Any) -> None:
    tabtorch.set_float32_matmul_precision("highest")
    assert "subgroupMatrix" not in _product(monkeypatch, 128, 64, 256)["source"]


def test_precision_makes_plans_anew(less: None) -> None:
    """What is planned and compiled for one precision does not serve another."""
    a = to_tab(torch.ones(8, 8), "webgpu")
    twice = tabtorch.compile(lambda x: x * 2)
    for precision in ("highest", "high"):
        tabtorch.set_float32_matmul_precision(precision)
        assert not graph._plans
        assert (a + 1).sum() == 128 and twice(a).sum() == 128
        assert graph._plans
    with pytest.raises(RuntimeError, match="Invalid float32_matmul_precision: low"):
        tabtorch.set_float32_matmul_precision("low")


@pytest.mark.parametrize("sizes", [(128, 128, 128), (200, 300, 130), (999, 96, 77), (70, 20000, 90)], ids=str)
def test_what_matrices_make(sizes: tuple[int, int, int]) -> None:
    if not target(0).has_matrices:
        pytest.skip("the adapter has no such matrices")
    m, k, n = sizes
    a, b = torch.randn(m, k), torch.randn(k, n)
    tabtorch.set_float32_matmul_precision("high")
    try:
        for x, y in (
            (to_tab(a, "webgpu"), to_tab(b, "webgpu")),
            (to_tab(a.t(), "webgpu").t(), to_tab(b.t(), "webgpu").t()),
        ):
            got = torch.from_numpy((x @ y).cpu().numpy())
            want = a.double() @ b.double()
            assert (got - want).abs().max() < 2e-6 * want.abs().max()
    finally:
        tabtorch.set_float32_matmul_precision("highest")
