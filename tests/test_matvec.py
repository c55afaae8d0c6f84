"""A few rows times a matrix in the form that GPUs have, beside real PyTorch: sizes, views, types, what follows, gradients."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import tabtorch
from sidebyside import to_tab
from tabtorch.engine import graph, matvec
from test_counts import counted

pytestmark = pytest.mark.usefixtures("made_up_gpu")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products are worth a launch here."""
    monkeypatch.setattr(matvec, "_LARGE", 1 << 12)


@pytest.fixture
def forms(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, int]]]:
    """The constants of each kernel that is written."""
    found: list[dict[str, int]] = []
    written = matvec._written

    def noting(*args: Any) -> Any:
        out = written(*args)
        found.append(out[2])
        return out

    monkeypatch.setattr(matvec, "_written", noting)
    yield found


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def agree(f: Callable[..., Any], *xs: torch.Tensor, rtol: float = 1e-5, atol: float = 2e-4) -> None:
    want = f(torch, *xs)
    got = f(tabtorch, *(to_tab(x, "webgpu") for x in xs))
    got = torch.from_numpy(got.float().numpy())
    torch.testing.assert_close(got, want.float(), rtol=rtol, atol=atol, equal_nan=True)


#: how a matrix of n rows of k lies in memory
LAYOUTS: dict[str, Callable[[Any, int, int], Any]] = {
    "rows": lambda w, n, k: w[: n * k].view(n, k),
    "columns": lambda w, n, k: w[: n * k].view(k, n).t(),
    "rows apart": lambda w, n, k: w.view(-1, k + 4)[:n, :k],
    "rows that begin late": lambda w, n, k: w[3:].as_strided((n, k), (k + 1, 1)),
    "columns that begin late": lambda w, n, k: w[5:].as_strided((n, k), (1, n)),
    "every other": lambda w, n, k: w.as_strided((n, k), (2 * k, 2)),
    "one row": lambda w, n, k: w[:k].expand(n, k),
    "backwards columns": lambda w, n, k: w.as_strided((n, k), (1, n + 4)),
}


def cases() -> list[tuple[str, int, int, int, bool]]:
    """Each layout with sizes of some kinds: multiples of four or not, some rows or one, one thread's k or many's."""
    rng = random.Random(7)
    few, n, k = [1, 2, 3, 5, 8, 13, 16], [64, 70, 71, 132], [64, 200, 515, 1030]
    return [(name, rng.choice(few), rng.choice(n), rng.choice(k), rng.random() < 0.3) for name in LAYOUTS]


@pytest.mark.parametrize("layout, m, n, k, across", cases())
def test_sizes_and_layouts(layout: str, m: int, n: int, k: int, across: bool, forms: list[Any]) -> None:
    """`across`: rows of the vector are columns of its memory, and the matrix comes first."""
    seen = LAYOUTS[layout]
    w = draw(2 * (n + 4) * (k + 4))[: (n + 4) * (k + 4) * 2 // (k + 4) * (k + 4)]
    x = draw(k, m).t() if across else draw(m, k)

    def product(_: Any, x: Any, w: Any) -> Any:
        w = seen(w, n, k)
        return w @ x.t() if across else x @ w.t()

    agree(product, x, w)
    assert len(forms) <= 1  # a schedule serves several sizes


@pytest.mark.parametrize("team, m, walk", [(16, 1, 0), (32, 2, 1), (32, 5, 0), (64, 3, 0), (128, 5, 1)])
def test_teams_of_each_size(team: int, m: int, walk: int, forms: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are for small matrices."""
    monkeypatch.setattr(matvec, "team", lambda *_: team)
    w = draw(100, 1030).t() if walk else draw(1030, 100)
    agree(lambda _, x, w: (x @ w).sin(), draw(m, 1030), w / 9)
    assert [(f["TEAM"], f["WALK"]) for f in forms] == [(team, walk)]


def test_workgroups_are_enough_for_a_large_device() -> None:
    def workgroups(m: int, n: int, k: int, walk: bool, batch: int = 1) -> int:
        team = matvec.team(m, n, batch, k, walk)
        return -(-n // (1024 // team)) * batch * matvec.parts(n, batch, k, team)[0]

    for m in (1, 16):
        for walk in (False, True):
            assert all(
                workgroups(m, n, k, walk) >= 96
                for n, k in ((4096, 4096), (2304, 768), (768, 768), (768, 3072), (50257, 768))
            )
    assert workgroups(1, 64, 1000, False, 12) >= 96  # of a head's values


def test_rows_in_classes(forms: list[Any]) -> None:
    """A form serves all of a class, and what has more rows has tiles."""
    for m in (3, 4, 9, 16, 17):
        agree(lambda t, x, w: t.nn.functional.linear(x, w), draw(m, 256), draw(100, 256))
    assert [f["FEW"] for f in forms] == [4, 16]


@pytest.mark.parametrize("dtype, columns", [(torch.float16, True), (torch.bfloat16, False), (torch.int8, False)])
def test_packed_weights(dtype: torch.dtype, columns: bool, forms: list[Any]) -> None:
    """Subnormal halves, infinities and all; of whole numbers, those that are converted by who reads them."""
    w = draw(512, 132) if columns else draw(132, 512)
    w = (w * 40).to(dtype)
    x = draw(3, 512)
    if not dtype.is_floating_point:
        agree(lambda _, x, w: x @ (w.float() * 0.25 if columns else (w.float() * 0.25).t()), x, w, atol=1e-2)
    else:
        w.view(-1)[5:200:7] *= 1e-7
        w.view(-1)[1000] = torch.inf
        wide = 2e-3 if dtype is torch.float16 else 1.6e-2
        agree(lambda _, x, w: x @ (w if columns else w.t()), x.to(dtype), w, rtol=wide, atol=1.0)
    assert forms


@pytest.mark.parametrize("k, columns", [(515, False), (515, True)])
def test_numbers_that_are_none(k: int, columns: bool) -> None:
    """They reach their own results only: what is read again for want of a row, column or k does not count."""
    x, w = draw(3, k), draw(k, 101)
    x[0, k - 1], x[2, 3] = torch.inf, torch.nan
    w[k - 1, 100], w[7, 0] = -torch.inf, torch.inf
    agree(lambda _, x, w: x @ (w if columns else w.t().contiguous().t()), x, w)


def test_what_follows() -> None:
    x, w, b, r = draw(2, 300), draw(100, 300) / 17, draw(100), draw(2, 100)
    agree(lambda t, x, w, b, r: t.nn.functional.gelu(t.nn.functional.linear(x, w, b)) + r, x, w, b, r)
    agree(lambda t, x, w, b, r: t.addmm(b, x, w.t()).half(), x, w, b, r, rtol=1e-3, atol=1e-3)
    agree(lambda t, x, w, b, r: x[0] @ w.t() > 0, x, w, b, r)
    agree(lambda t, x, w, b, r: (w @ x[0]) * 2 + w[:, 0], x, w, b, r)  # read both ways
    y = draw(1, 256)
    agree(lambda t, y, z: (y @ z).relu() + y, y, draw(256, 256) / 20)


def test_it_is_one_launch() -> None:
    x, w, b = (to_tab(x, "webgpu") for x in (draw(1, 300), draw(100, 300), draw(100)))
    graph.flush()
    with counted() as n:
        y = tabtorch.nn.functional.relu(tabtorch.nn.functional.linear(x, w, b))
        graph.flush()
    assert n.dispatches == 1 and y.shape == (1, 100)


@pytest.mark.parametrize("walk", [False, True], ids=["columns", "rows"])
def test_a_long_k_is_cut(walk: bool, forms: list[Any]) -> None:
    """And the batch beside it."""
    k = 17_003
    w = draw(2, 66, k).transpose(1, 2) if walk else draw(2, k, 66)
    agree(lambda _, x, w: (x @ w) * 0.5 + 1, draw(2, 2, k), w, atol=4e-3)
    assert [(f["FEW"], f["WALK"]) for f in forms] == [(2, int(walk))]


def test_a_token_looks_at_a_cache(forms: list[Any]) -> None:
    """The cache is longer than what is valid of it; heads share keys, whose part of it begins late."""

    def look(m: Any, q: Any, cache: Any, t: Any = None) -> Any:
        keys, values = cache[0, :, :, :133], cache[1, :, :, :133]
        p = (q @ keys.transpose(2, 3) * 0.125).softmax(-1)
        return p @ values

    agree(look, draw(2, 4, 1, 64), draw(2, 2, 4, 200, 64))
    agree(look, draw(1, 4, 3, 64), draw(2, 1, 1, 200, 64).expand(2, 1, 4, 200, 64))
    assert {f["WALK"] for f in forms} == {0, 1}


def test_a_cache_that_grows_schedules_nothing() -> None:
    q, cache = to_tab(draw(1, 4, 1, 64), "webgpu"), to_tab(draw(1, 4, 200, 64), "webgpu")

    def step(n: int) -> None:
        now = cache[:, :, :n]
        ((q @ now.transpose(2, 3)).softmax(-1) @ now).sum().item()

    step(101)
    before = graph.counts["schedules"]
    for n in range(102, 120):
        step(n)
    assert graph.counts["schedules"] <= before + 1  # as sizes that were equal by chance are told apart


def test_gradients_of_a_layer() -> None:
    def gradients(t: Any, x: Any, w: Any, b: Any) -> Any:
        x, w, b = (y.clone().requires_grad_() for y in (x, w, b))
        y = t.nn.functional.linear(x, w, b)
        (y * y).sum().backward()
        return t.cat([x.grad.flatten(), w.grad.flatten(), b.grad.flatten()])

    agree(gradients, draw(1, 300), draw(100, 300) / 17, draw(100), atol=1e-3)
