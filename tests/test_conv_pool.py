"""Convolutions and pooling against real PyTorch on both devices."""

from __future__ import annotations

from math import prod
from random import Random
from typing import Any

import pytest
import torch

import tabtorch
from gradients import check_all
from sidebyside import DEVICES
from tabtorch.engine.view import contiguous_meta
from tabtorch.ops.sliding import phases


def inputs() -> dict[str, Any]:
    g = torch.Generator().manual_seed(0)
    shapes = {
        "x1": (2, 3, 9),
        "x2": (2, 3, 7, 6),
        "x3": (1, 2, 4, 5, 4),
        "x4": (2, 4, 5, 6),
        "w1": (4, 3, 3),
        "w2": (4, 3, 3, 2),
        "w22": (3, 2, 3, 3),
        "w3": (3, 2, 2, 2, 3),
        "point": (4, 3, 1, 1),
        "g2": (6, 2, 3, 3),
        "depth": (4, 1, 3, 3),
        "t2": (3, 2, 3, 3),
        "t3": (2, 2, 2, 2, 2),
        "b2": (2,),
        "b3": (3,),
        "b4": (4,),
        "b6": (6,),
    }
    out: dict[str, Any] = {k: torch.randn(s, generator=g).requires_grad_() for k, s in shapes.items()}
    out["lone"] = torch.full((1, 1, 4, 4), -float("inf"))
    out["none"] = torch.tensor([[[[1.0, float("nan")], [2, 3]]]])
    out["empty"] = torch.zeros(0, 3, 5, 5)
    out["ints"] = torch.arange(16).reshape(1, 1, 4, 4)
    out["half"] = torch.randn(2, 3, 5, 5, generator=g).half()
    out["bf"] = torch.randn(2, 3, 7, 6, generator=g).bfloat16()
    return out


CONV_TWICE = """
F.conv2d(x2, w2, b4); F.conv2d(x2, w2, None, 2, 1); F.conv2d(x2, w2, b4, (2, 1), (1, 0), (1, 2))
F.conv2d(x4, g2, b6, 1, 1, 1, 2); F.conv2d(x2, w2, None, 3, 2, 2); F.conv1d(x1, w1, b4, 2, 1); F.conv_transpose2d(x2, t2, b2)
F.conv_transpose2d(x2, t2, b2, 2, 1, 1); F.conv_transpose2d(x4, depth, b4, 2, 1, (1, 0), 4, (1, 2))
F.conv2d(x2.transpose(2, 3)[:, :, 1:], w2.transpose(2, 3)).relu()
"""
CONV_ONCE = """
F.conv2d(x2[0], w2, b4); F.conv2d(x4, depth, padding=1, groups=4); F.conv2d(x2, point, b4)
F.conv2d(x4[:, :2], w22, b3, padding="same"); F.conv2d(x4[:, :2], w22, padding="valid")
F.conv1d(x1[0], w1, padding="same", dilation=2); F.conv3d(x3, w3, b3, 1, 1); F.conv_transpose2d(x2[0], t2, None, 3)
F.conv_transpose1d(x1, w1.transpose(0, 1), b4, 2, output_padding=1)
F.conv_transpose1d(x1, w1.transpose(0, 1), b4, 1, output_padding=1, dilation=2); F.conv_transpose3d(x3, t3, b2, 2)
F.conv2d(empty, w2.detach(), b4.detach()); F.conv2d(bf, m.ones(4, 3, 3, 2, dtype=m.bfloat16), m.ones(4, dtype=m.bfloat16))
m.conv2d(x2, w2, b4)
"""
CONV_ERRORS = """
F.conv2d(x2[0, 0], w2); F.conv2d(x4, w2); F.conv2d(x2[:, :, :2], w2); F.conv2d(x2, w2, b3); F.conv2d(x2, w2, padding=-1)
F.conv2d(x2, w2, stride=0); F.conv2d(x4, w22, groups=2); F.conv2d(x2, w2, dilation=0); F.conv1d(x1[:, :2], w1)
F.conv2d(x2, w2, stride=(1, 2, 3)); F.conv_transpose2d(x4, t2); F.conv_transpose2d(x2, t2, b2, 2, 1, 2)
F.conv_transpose2d(x2, t2, b3); F.conv2d(x4[:, :2], w22, padding="same", stride=2); F.conv2d(x2, w2, padding="full")
F.conv2d(x2, w2, b4.detach().half())
"""
POOL_TWICE = """
F.max_pool2d(x2, 2); F.avg_pool2d(x2, 2); F.avg_pool2d(x2, 3, 2, 1); F.adaptive_avg_pool2d(x2, 3); F.max_pool2d(x2, 3, 2, 1)
F.avg_pool1d(x1, 3, 2, 1)
"""
POOL_ONCE = """
F.max_pool2d(x2, 2, 1); F.max_pool2d(x2[0], 2); F.max_pool2d(x2, 2, 2, 0, 2); F.max_pool2d(x2, 3, 2, 1, ceil_mode=True)
F.max_pool2d(x2, 2, ceil_mode=True); F.max_pool2d(x2, 3, 2, 1, return_indices=True); F.max_pool2d(x2, (3, 2), (1, 2), (1, 0))
F.max_pool1d(x1, 3, 2, 1); F.max_pool1d(x1, 2, return_indices=True); F.avg_pool2d(x2, 2, 1)
F.avg_pool2d(x2, 3, 2, 1, False, False); F.avg_pool2d(x2, 3, 2, 1, True); F.avg_pool2d(x2, 3, 2, 1, True, False)
F.avg_pool2d(x2, 3, 2, 1, divisor_override=5); F.avg_pool1d(x1, 2); F.adaptive_avg_pool2d(x2, 1)
F.adaptive_avg_pool2d(x2[0], (2, None)); F.adaptive_avg_pool1d(x1, 4); F.adaptive_max_pool2d(x2, 3)
F.adaptive_max_pool2d(x2, 2, return_indices=True); F.adaptive_max_pool1d(x1, 4)
F.max_pool2d(lone, 3, 2, 1, return_indices=True); F.max_pool2d(none, 2); F.max_pool2d(ints, 2); F.max_pool2d(half, 2)
F.avg_pool2d(half, 2); F.lp_pool2d(x2, 2, 2); F.max_pool2d(x2.transpose(2, 3), 2)
"""
POOL_ERRORS = """
F.max_pool2d(b4, 2); F.max_pool2d(x2[0, 0], 2); F.max_pool2d(x2[:, :, :1], 3); F.max_pool2d(x2, 2, padding=2)
F.avg_pool2d(x2[0, 0], 2); F.avg_pool2d(x2, 2, padding=2); F.avg_pool2d(x2[:, :, :1], 2)
F.avg_pool2d(x2, 2, divisor_override=0); F.max_pool1d(b4, 2); F.max_pool1d(x1[:, :, :2], 3); F.max_pool2d(x2, (2, 2, 2))
F.max_pool2d(x2, 0); F.max_pool2d(x2, 2, dilation=0); F.max_pool1d(x1, 0); F.avg_pool1d(x1, 0); F.adaptive_avg_pool2d(b4, 2)
"""


@pytest.mark.parametrize("device", DEVICES)
def test_conv_gradients_twice(device: str) -> None:
    check_all(CONV_TWICE, inputs, device, tol=1e-4, twice=True, named=False)


@pytest.mark.parametrize("device", DEVICES)
def test_conv_gradients_once(device: str) -> None:
    check_all(CONV_ONCE, inputs, device, tol=1e-4, named=False)


@pytest.mark.parametrize("device", DEVICES)
def test_conv_errors(device: str) -> None:
    check_all(CONV_ERRORS, inputs, device)


@pytest.mark.parametrize("device", DEVICES)
def test_pool_gradients_twice(device: str) -> None:
    check_all(POOL_TWICE, inputs, device, twice=True, named=False)


@pytest.mark.parametrize("device", DEVICES)
def test_pool_gradients_once(device: str) -> None:
    check_all(POOL_ONCE, inputs, device, named=False)


@pytest.mark.parametrize("device", DEVICES)
def test_pool_errors(device: str) -> None:
    check_all(POOL_ERRORS, inputs, device)


@pytest.mark.parametrize("device", DEVICES)
def test_names_of_backward_nodes(device: str) -> None:
    names = (
        "F.conv2d(x2, w2, b4); F.conv1d(x1, w1); F.conv_transpose2d(x2, t2); F.max_pool2d(x2, 2); F.avg_pool2d(x2, 2)"
    )
    check_all(names, inputs, device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_three_dimensions_and_back(device: str, n: int) -> None:
    """Pools of 1 to 3 dimensions by the functions of `ops.pool`, and back with max_unpool."""
    from tabtorch.ops.sliding import pool

    x = inputs()["x1" if n == 1 else "x2" if n == 2 else "x3"].detach()
    x = (x if n < 3 else x[..., :4, :].clone()).requires_grad_()
    space = {"P": None, "x": x}
    for call in (
        f"P.max_pool{n}d(x, 3, 2, 1, return_indices=True)",
        f"P.avg_pool{n}d(x, 3, 2, 1, True)",
        f"P.adaptive_avg_pool{n}d(x, 3)",
        f"P.adaptive_max_pool{n}d(x, 2, True)",
        f"P.max_unpool{n}d(*P.max_pool{n}d(x, 2, return_indices=True), 2)",
    ):
        ours = call.replace("P.", "(pool if m.__name__ == 'tabtorch' else F).")
        check_all(ours, lambda: {"x": x, "pool": pool}, device, tol=1e-4, named=False)
    assert space["P"] is None


@pytest.mark.parametrize("device", DEVICES)
def test_gradient_of_a_pool_stores_no_windows(device: str) -> None:
    """The map that deals gradients out to windows lives inside the sum over them."""
    from tabtorch.engine import graph

    x = tabtorch.rand(1, 2, 8, 8, device=device).requires_grad_()
    y = tabtorch.nn.functional.avg_pool2d(x, 3, 1, 1)
    graph.flush()
    before = graph.memory.live[x.device.number]
    graph.memory.peak[x.device.number] = before
    (g,) = tabtorch.autograd.grad(y, x, tabtorch.ones_like(y))
    graph.flush()
    assert g.shape == x.shape
    assert graph.memory.peak[x.device.number] - before < 4 * x.nbytes


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint8", "int64"])
def test_padding_is_the_lowest_of_the_type(device: str, dtype: str) -> None:
    """Against PyTorch's int64: its own narrow types have another result with padding."""
    x = torch.arange(-9, 9).reshape(1, 3, 6) if dtype != "uint8" else torch.arange(18).reshape(1, 3, 6)
    options: Any = {"kernel_size": (3, 2), "stride": (2, 1), "padding": 1, "dilation": (1, 2), "ceil_mode": True}
    got = tabtorch.nn.functional.max_pool2d(
        tabtorch.tensor(x.tolist(), dtype=getattr(tabtorch, dtype), device=device), **options
    )
    assert got.tolist() == torch.nn.functional.max_pool2d(x, **options).tolist()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_strided_gradients_by_phases(device: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random geometries, whose products are too small to go by phases if they were not made to."""
    monkeypatch.setattr(phases, "_SAVED", 0)
    monkeypatch.setattr(phases, "_SAVED_ELSEWHERE", 0)
    product, used = phases.product, []
    monkeypatch.setattr(phases, "product", lambda *args: (used.append(1), product(*args))[1])
    rng = Random(n)
    torch.manual_seed(n)
    for _ in range({1: 24, 2: 16, 3: 6}[n]):
        groups = rng.choice([1, 1, 2])
        kernel, stride, pad, out = (
            tuple(rng.choice(some) for _ in range(n))
            for some in ([1, 2, 3, 4, 5], [1, 2, 2, 3, 4], [0, 1, 2], [2, 3, 5])
        )
        size = tuple((o - 1) * s - 2 * p + k for o, s, p, k in zip(out, stride, pad, kernel))
        if min(size) < 1:
            continue
        extra = tuple(rng.randrange(s) for s in stride)
        g = torch.randn(2, 2 * groups, *out, requires_grad=True)
        w = torch.randn(2 * groups, 3, *kernel, requires_grad=True)
        b = torch.randn(3 * groups, requires_grad=True)
        space = {"g": g, "w": w, "b": b, "geo": (stride, pad, extra, groups)}
        check_all(f"F.conv_transpose{n}d(g, w, b, *geo)", lambda space=space: space, device, tol=1e-4, named=False)
    assert len(used) > 2


def test_phases_leave_out_the_zeros() -> None:
    def left(kernel: int, stride: int, padding: int, size: int) -> float:
        """Which part of the multiplications of a spread gradient is left."""
        out = (size + 2 * padding - kernel) // stride + 1
        g, w = (
            contiguous_meta(s, tabtorch.float32, tabtorch.device("cpu"))
            for s in ((8, 64, out, out), (64, 64, kernel, kernel))
        )
        how = phases.by_phases(g, w, (size, size), (stride, stride), (padding, padding), (1, 1), 1)
        return 1.0 if how is None else prod(d.phases * d.taps * d.length for d in how.dims) / (size * kernel) ** 2

    assert left(2, 2, 0, 64) == left(1, 2, 0, 64) == 1 / 4
    assert left(4, 2, 1, 64) < 0.27
    assert left(3, 2, 1, 64) < 0.48
    assert left(3, 1, 1, 64) == left(2, 3, 0, 64) == 1


def test_on_meta() -> None:
    """Where nothing is computed shapes and strides are PyTorch's: with padding, and with work enough for phases."""
    for call in (
        "F.conv2d(x, w, None, 1, 1)",
        "F.conv2d(x.requires_grad_(), w, None, 2, 1).sum().backward() or x.grad",
        "F.conv_transpose2d(x, w, None, 2, 1)",
        "F.conv_transpose2d(x, w, w[0, :, 0, 0], 2, 1)",
    ):
        found = []
        for m in (torch, tabtorch):
            x, w = m.ones(8, 64, 32, 32, device="meta"), m.ones(64, 64, 4, 4, device="meta")
            r = eval(call, {"F": m.nn.functional, "x": x, "w": w, "m": m})
            found.append((tuple(r.shape), r.stride(), r.device.type))
        assert found[0] == found[1], call
