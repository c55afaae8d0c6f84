"""Reductions and norms against real PyTorch on both devices."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tabtorch
from gradients import check_all
from sidebyside import DEVICES, to_tab


def inputs() -> dict[str, Any]:
    g = torch.Generator().manual_seed(0)
    return {
        "x": torch.randn(3, 4, 5, generator=g).requires_grad_(),
        "y": torch.randn(4, 5, generator=g).requires_grad_(),
        "v": torch.randn(6, generator=g).requires_grad_(),
        "s": torch.tensor(3.0).requires_grad_(),
        "c": torch.complex(torch.randn(2, 3, generator=g), torch.randn(2, 3, generator=g)).requires_grad_(),
        "h": torch.randn(3, 4, generator=g).half().requires_grad_(),
        "bf": torch.randn(3, 4, generator=g).bfloat16().requires_grad_(),
        "i": torch.randint(-5, 5, (3, 4), generator=g),
        "long": torch.tensor([2**40, 2**41, -5, 2**41]),
        "u": torch.tensor([1, 0, 5, 3], dtype=torch.uint8),
        "b": torch.rand(3, 4, generator=g) > 0.5,
        "n": torch.tensor([[1.0, float("nan"), 3], [2, 5, 4], [-float("inf"), float("inf"), 0]]),
        "zeros": torch.tensor([[1.0, 0, 3], [0, 2, 0], [1, 2, 3]]).requires_grad_(),
        "ties": torch.tensor([[1.0, 1, 0], [2, 2, 2]]).requires_grad_(),
        "e": torch.zeros(0),
        "e3": torch.zeros(0, 3),
    }


TWICE = """
x.sum(); x.sum(1); x.sum((0, 2), keepdim=True); x.mean(); x.mean(-1); x.mean((1, 2), True); m.sum(x, [0, 1])
x.transpose(0, 2)[1:, :, ::2].sum(1); x.expand(2, 3, 4, 5).sum((0, 2)); x.amax(); x.amax(0); x.amin((0, 2), True); x.max()
y.min(); ties.amax(1); ties.max(); x.var(); x.var(1); x.std(); x.std((0, 2), keepdim=True); x.var(dim=1, correction=0)
y.var(0, False); y.var(False); x.logsumexp(1); y.logsumexp((0, 1)); x.norm(); x.norm(2, 1); x.norm(1, -1, True); x.norm(3, 0)
x.norm(1.5); m.var_mean(x, 1); m.std_mean(x, (0, 2), keepdim=True); m.var_mean(x); x.nansum(1); zeros.prod(1); v.prod()
x.prod(0); zeros.prod(); x.sum_to_size(1, 4, 1); x.sum_to_size(4, 5)
"""
ONCE = """
x.prod(-1, True); x.norm(inf); x.norm(-inf, 1); x.norm(0); x.norm(0.5, 1, True); x.norm(-1.5); x.max(1); x.max(-1, True)
x.max(dim=0); x.min(1); m.max(y, 0, True); x.max(y); m.min(x, y); m.aminmax(x); m.aminmax(x, dim=1, keepdim=True); s.sum()
s.sum(0); s.mean(); s.prod(); s.prod(0); s.amax(); s.max(); s.max(0); s.norm(); s.argmax(0); s.logsumexp(0); c.sum()
c.sum(0); c.mean(); c.prod(1); h.sum(1); h.mean(); h.amax(1); bf.sum(0); bf.mean(1); m.linalg.norm(y)
m.linalg.vector_norm(x, 3, 1); m.linalg.norm(v, 1); m.linalg.matrix_norm(x); m.sum(x, axis=1, keepdims=True)
zeros.sum(0).sum()
"""
PLAIN = """
i.sum(); i.sum(0); b.sum(); b.sum(1); u.sum(); i.sum(dtype=m.float32); i.mean(dtype=m.float32); i.prod(); b.prod(1)
i.amax(0); i.amin(); b.amax(1); u.amax(); long.sum(); long.max(); long.argmax(); long.min(0); i.argmax(); i.argmin(1)
i.argmax(0, True); x.argmax(); x.argmin(-1); b.any(); b.all(1); x.any(0); x.all(); u.any(); u.all(0, True); b.any((0, 1))
i.count_nonzero(); i.count_nonzero(1); n.count_nonzero((0, 1)); n.sum(1); n.amax(1); n.amin(1); n.argmax(1); n.argmin(1)
n.nansum(1); n.nanmean(1); n.logsumexp(1); n.any(1); n.all(0); n.max(); n.min(1); n.max(0); e.sum(); e3.sum(0); e3.sum(1)
e.mean(); e3.prod(0); e3.amax(1); e3.any(0); e3.all(0); i.max(); i.max(1); b.max(); b.min(0)
m.full((2, 3), -inf).logsumexp(1); m.full((300000,), 0.1).sum(); m.arange(20000.0).var(); m.arange(20000.0).max()
m.arange(60000.0).reshape(3, 20000).argmax(1); m.std(m.arange(4.0).reshape(4, 1), 0)
"""
ERRORS = """
x.sum(7); x.sum((0, 0)); x.mean(-4); i.mean(); i.mean(0); x.amax((0, 5)); x.max(5); e.max(); e3.max(0); e3.amax(0); e3.amax()
e.argmax(); e3.argmin(0); i.std(); i.var(0); i.norm(); b.argmax(); e.aminmax(); x.sum_to_size(2, 4, 1); s.sum(1); s.max(2)
x.logsumexp(3); i.nanmean(); c.nansum(); x.norm("other"); m.linalg.vector_norm(i)
m.sum(n, 1, out=m.zeros(3).requires_grad_()); m.sum(c, 1, out=m.zeros(2))
"""


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_twice(device: str) -> None:
    check_all(TWICE, inputs, device, tol=5e-5, twice=True)


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_once(device: str) -> None:
    check_all(ONCE, inputs, device)


@pytest.mark.parametrize("device", DEVICES)
def test_values(device: str) -> None:
    check_all(PLAIN, inputs, device, tol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_errors(device: str) -> None:
    check_all(ERRORS, inputs, device)


@pytest.mark.parametrize("device", DEVICES)
def test_names_of_results(device: str) -> None:
    x = torch.tensor([[1.0, 3.0], [4.0, 2.0]])
    for f in (lambda t: t.max(1), lambda t: t.min(0), lambda t: t.aminmax(), lambda t: t.sort(), lambda t: t.topk(1)):
        with tabtorch.device(device):
            assert repr(f(to_tab(x, device))) == repr(f(x))
    r = to_tab(x, device).max(1)
    assert r.values is r[0] and r.indices is r[1]


@pytest.mark.parametrize("device", DEVICES)
def test_out(device: str) -> None:
    x = to_tab(torch.arange(6.0).reshape(2, 3), device)
    out = tabtorch.zeros(2, device=device)
    assert tabtorch.sum(x, 1, out=out) is out
    assert out.tolist() == [3.0, 12.0]
    whole = tabtorch.zeros(2, dtype=tabtorch.int64, device=device)
    tabtorch.sum(x, 1, out=whole)
    assert whole.tolist() == [3, 12]


@pytest.mark.parametrize("device", DEVICES)
def test_var_of_large_numbers_keeps_its_digits(device: str) -> None:
    x = torch.randn(4096, generator=torch.Generator().manual_seed(0)) + 1000
    got = to_tab(x, device).var().item()
    assert abs(got / x.double().var().item() - 1) < 1e-4
