"""Maps of many elements compute four neighbours at once where these lie in vectors: values, and that they do."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tabtorch
from tabtorch.engine import builder, graph, map_kernel, schedules, wgsl
from tabtorch.engine.target import target

pytestmark = pytest.mark.usefixtures("made_up_gpu")

#: the last vector is not whole
N = (1 << 14) + 3
SIDE = 128


def written(t: Any, x: Any, y: Any) -> Any:
    z = x.clone()
    z.mul_(3).add_(y)
    return z


def partly(t: Any, x: Any, y: Any) -> Any:
    z = x.clone()
    z[5:900] *= 3
    return z


def square(x: Any) -> Any:
    return x[: SIDE * SIDE].view(SIDE, SIDE)


#: vectors: whether there is a kernel that stores them
CASES: dict[str, tuple[Callable[[Any, Any, Any], Any], bool]] = {
    "one": (lambda t, x, y: x * 2, True),
    "chain": (lambda t, x, y: (x * 2 + 1).tanh() * x, True),
    "two results": (lambda t, x, y: (x + y, (x * y).relu()), True),
    "int32": (lambda t, x, y: x.to(t.int32) * 3, True),
    "int64": (lambda t, x, y: x.to(t.int64) * 3, False),
    "complex": (lambda t, x, y: t.complex(x, y) * 2, False),
    "bool": (lambda t, x, y: (x > 0) & (y > 0), True),
    "float16": (lambda t, x, y: x.to(t.float16) + y.to(t.float16), True),
    "windows": (lambda t, x, y: x[1:] + y[:-1], False),
    "written": (written, True),
    "partly written": (partly, False),
    "broadcast": (lambda t, x, y: square(x) + y[:SIDE], True),
    "transposed": (lambda t, x, y: square(x).t() * 2 + square(y), True),
    "both ways": (lambda t, x, y: square(x).t() + square(x), False),
    "flipped": (lambda t, x, y: x.flip(0) + x, False),
    "filled": (lambda t, x, y: t.full_like(x, 2.5), True),
    "where": (lambda t, x, y: t.where(x > 0, x, -y), True),
}


def few_are_many(monkeypatch: pytest.MonkeyPatch, software: bool) -> list[str]:
    """The texts of the kernels that are written from now on, with all thresholds of many elements set down."""
    texts: list[str] = []
    source = wgsl.Wgsl.source

    def kept(self: Any, k: Any, head: Any) -> str:
        texts.append(source(self, k, head))
        return texts[-1]

    monkeypatch.setattr(wgsl.Wgsl, "source", kept)
    graph.flush()
    monkeypatch.setattr(graph, "_plans", {})
    monkeypatch.setattr(schedules, "_families", {})
    monkeypatch.setattr(target(0), "software", software)
    for module, name in (
        (map_kernel, "MANY"),
        (map_kernel, "MANY_IN_SOFTWARE"),
        (builder, "MANY_IN_SOFTWARE"),
        (builder, "MOST_SHARED"),
    ):
        monkeypatch.setattr(module, name, 1 << 12)
    return texts


@pytest.mark.parametrize("software", [False, True], ids=["gpu", "software"])
@pytest.mark.parametrize("name", CASES)
def test_equal(name: str, software: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    f, vectors = CASES[name]
    torch.manual_seed(0)
    x, y = torch.randn(N), torch.randn(N)
    texts = few_are_many(monkeypatch, software)
    mine = [tabtorch.tensor(v.numpy(), device="webgpu") for v in (x, y)]
    want, got = f(torch, x, y), f(tabtorch, *mine)
    for w, g in zip(*[(r if isinstance(r, tuple) else (r,)) for r in (want, got)], strict=True):
        torch.testing.assert_close(torch.from_numpy(g.cpu().numpy()), w, rtol=1e-5, atol=1e-6)
    if vectors:
        assert any("vec4<f32>>" in t or "vec4<i32>>" in t or " >> 1u) + 1u]" in t or "<< 24u)" in t for t in texts), (
            texts
        )


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int64", "complex64", "bool"])
@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((64, 100), (1, 0)),
        ((100, 68), (1, 0)),
        ((3, 36, 50), (0, 2, 1)),
        ((2, 16, 5, 40), (0, 3, 2, 1)),
        ((20, 13, 24), (2, 1, 0)),
        ((2, 24, 18, 20), (0, 2, 3, 1)),
        ((2, 18, 20, 24), (0, 3, 1, 2)),
    ],
)
def test_transposed(
    shape: tuple[int, ...], order: tuple[int, ...], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read along columns goes in squares, whatever dimensions lie before, between and after."""
    torch.manual_seed(0)
    x = (torch.randn(shape) * 50).to(getattr(torch, dtype))
    texts = few_are_many(monkeypatch, False)
    mine = tabtorch.tensor(x.tolist(), dtype=getattr(tabtorch, dtype), device="webgpu")
    flat = tabtorch.tensor(x.permute(order).contiguous().tolist(), dtype=mine.dtype, device="webgpu")
    graph.flush()
    texts.clear()
    moved = mine.permute(order).contiguous()
    both = (mine.permute(order) == flat).all()
    assert moved.cpu().tolist() == x.permute(order).tolist()
    assert both
    if x.permute(order).shape[-1] % 4 == 0 and min(x.permute(order).shape[-1], x.shape[-1]) >= 16:
        assert any("square" in t for t in texts), texts


FIRST = int(os.environ.get("TABTORCH_FUZZ_SEED") or 0)


def test_random_transposes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random shapes, orders of dimensions and maps, against PyTorch."""
    texts = few_are_many(monkeypatch, False)
    monkeypatch.setattr(map_kernel, "LEAST_SIDE", 4)
    monkeypatch.setattr(map_kernel, "MANY", 1)
    monkeypatch.setattr(builder, "MOST_SHARED", 0)
    maps: list[Callable[[Any, Any], Any]] = [
        lambda x, y: x.contiguous(),
        lambda x, y: x * 2 + y,
        lambda x, y: (x > y, x.half()),
        lambda x, y: (x + 1).exp() * y,
    ]
    reached = 0
    for seed in range(FIRST, FIRST + 40):
        r = random.Random(seed)
        torch.manual_seed(seed)
        shape = [r.choice((1, 3, 4, 8, 12, 20, 33, 40)) for _ in range(r.choice((2, 3, 3, 4)))]
        order = r.sample(range(len(shape)), len(shape))
        f = r.choice(maps)
        x = torch.randn(shape)
        y = torch.randn(x.permute(order).shape)
        mine = [tabtorch.tensor(v.numpy(), device="webgpu") for v in (x, y)]
        graph.flush()
        texts.clear()
        want, got = f(x.permute(order), y), f(mine[0].permute(order), mine[1])
        for w, g in zip(*[v if isinstance(v, tuple) else (v,) for v in (want, got)], strict=True):
            torch.testing.assert_close(torch.from_numpy(g.cpu().numpy()), w, msg=lambda m, seed=seed: f"{seed}: {m}")
        reached += any("square" in t for t in texts)
    assert reached > 8, reached
