"""Scans, sorts and what is made of them, against real PyTorch on both devices."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gradients import check_all
from sidebyside import DEVICES, to_tab, values

LONG = 700  # several chunks of a scan, several merges of a sort


def inputs() -> dict[str, Any]:
    g = torch.Generator().manual_seed(0)
    nan, inf = float("nan"), float("inf")
    return {
        "x": torch.randn(3, 4, 5, generator=g).requires_grad_(),
        "y": torch.randn(4, 5, generator=g).requires_grad_(),
        "v": torch.randn(5, generator=g).requires_grad_(),
        "z": torch.tensor([1.0, 2, 0, 3, 0, 4]).requires_grad_(),
        "s": torch.tensor(2.0).requires_grad_(),
        "c": torch.complex(torch.randn(2, 3, generator=g), torch.randn(2, 3, generator=g)).requires_grad_(),
        "long": torch.rand(LONG, generator=g).requires_grad_(),
        "near": (1 + torch.rand(LONG, generator=g) * 0.01).requires_grad_(),
        "wide": torch.randn(40, 70, generator=g).requires_grad_(),
        "i": torch.randint(-3, 4, (3, 4), generator=g),
        "many": torch.randint(0, 9, (130,), generator=g),
        "big": torch.tensor([2**40, -(2**50), 3]),
        "u": torch.randint(0, 255, (70,), generator=g, dtype=torch.uint8),
        "b": torch.rand(3, 4, generator=g) > 0.5,
        "h": torch.rand(6, generator=g).half(),
        "n": torch.tensor([1.0, 3, 3, nan, 2, -inf, inf]),
        "low": torch.tensor([-inf, -inf, 1.0, 1.0]),
        "rows": torch.tensor([[3, 1], [2, 3], [3, 1], [2, 0]]),
        "nans": torch.tensor([[1.0, nan, 3, 2], [4, 1, 2, 3]]),
        "e": torch.zeros(0, 3),
        "edges": torch.tensor([1.0, 3, 5, 7]),
        "edge_rows": torch.tensor([[1.0, 3, 5], [2, 4, 6]]),
    }


SCAN_TWICE = """
x.cumsum(0); x.cumsum(1); y.cumsum(-1); x.cumprod(0); y.cumprod(1); y.logcumsumexp(0); y.logcumsumexp(1); y.t()[1:].cumsum(1)
s.cumsum(0); m.trapezoid(y); m.trapezoid(y, dx=0.5, dim=0); m.diff(y); m.diff(y, 2, 0)
"""
SCAN = """
long.cumsum(0); near.cumprod(0); long.logcumsumexp(0); long.cummax(0); long.cummin(0); wide.cumsum(0); wide.cumsum(1)
x.cummax(1); x.cummin(-1); y.t().cummax(0); z.cumprod(0); i.cumsum(1); b.cumsum(0); i.cumprod(1); i.cummax(0); b.cummin(1)
e.cumsum(0); e.cumprod(1); c.cumsum(1); c.cumprod(0); h.cumsum(0); m.ones(5).cumsum(0, dtype=m.int64); n.cummax(0)
n.cummin(0); n.cumsum(0); n.logcumsumexp(0); low.logcumsumexp(0); low.cummax(0); s.cummax(0); s.cumprod(0)
m.diff(v, prepend=v[:2], append=v[:1]); m.diff(b); m.trapezoid(y, v); m.cumulative_trapezoid(y); m.trapz(y); x.cumsum(3)
x.cumprod(-4); i.logcumsumexp(0); s.diff(); c.cummax(0)
"""
SORT = """
y.sort(0); y.sort(-1, True); m.sort(v, stable=True); long.sort(); wide.sort(0); wide.sort(1, True); y.t()[::2].sort(0)
many.sort(stable=True); many.sort(descending=True, stable=True); n.sort(); n.sort(descending=True, stable=True)
b.sort(dim=1, stable=True); u.sort(stable=True); big.sort(); h.sort(); s.sort(); e.sort(1); y.argsort(1)
many.argsort(stable=True); m.msort(y); y.topk(3); y.topk(2, 0, False); v.topk(0); long.topk(5); s.topk(1); y.kthvalue(3)
y.kthvalue(1, 0, True); v.topk(6); v.kthvalue(9); c.sort(); v.sort(2); b.topk(1); e.kthvalue(1, 0)
"""
ORDER = """
y.median(); y.median(1); x.median(0, True); nans.median(1); nans.nanmedian(1); nans.nanmedian(); many.median(); s.median()
y.nanmedian(0); m.quantile(y, 0.3, 1); m.quantile(y, 0.5); m.quantile(y.detach(), m.tensor([0.1, 0.5, 0.9]), 0, keepdim=True)
m.quantile(nans, 0.4, 1); m.nanquantile(nans, 0.4, 1); m.quantile(y, 0.3, 1, interpolation="lower")
m.quantile(y, 0.3, 1, interpolation="higher"); m.quantile(y, 0.3, 1, interpolation="midpoint")
m.quantile(y, 0.3, 1, interpolation="nearest"); m.quantile(v, 2.0); m.quantile(many, 0.5)
m.mode(m.tensor([[1, 2, 2, 3, 3], [5, 5, 1, 1, 1]]), 1); m.mode(m.tensor([[1.0, 2, 2], [2, 1, 1]]), 0, True)
"""
UNIQUE = """
m.unique(many); m.unique(many, return_inverse=True, return_counts=True); m.unique(i, return_inverse=True)
m.unique(rows, dim=0, return_inverse=True, return_counts=True); m.unique(rows, dim=1)
m.unique_consecutive(m.tensor([1, 1, 2, 2, 3, 1, 1, 2]), return_inverse=True, return_counts=True)
m.unique_consecutive(rows, dim=0); m.searchsorted(edges, m.tensor([[0.0, 1, 2], [3, 7, 8]]))
m.searchsorted(edges, m.tensor([[0.0, 1, 2], [3, 7, 8]]), right=True); m.searchsorted(edges, 4.0)
m.searchsorted(edge_rows, m.tensor([[3.0, 1], [4, 9]])); m.searchsorted(edges, m.tensor([3.0]), side="right")
m.searchsorted(edges, m.tensor([4.0]), out_int32=True)
m.searchsorted(m.tensor([5.0, 1, 3]), m.tensor([2.0, 4]), sorter=m.tensor([1, 2, 0]))
m.bucketize(m.tensor([0.0, 1, 2, 9]), edges); m.bucketize(3, m.tensor([1, 3, 5]))
m.bucketize(m.tensor([0.0, 1, 2, 9]), edges, right=True); m.bincount(many); m.bincount(many, minlength=20)
m.bincount(m.tensor([], dtype=m.int64)); m.histc(m.tensor([1.0, 2, 1, 3]), 4, 0, 3); m.histc(long.detach(), 7); m.bincount(i)
m.bincount(m.tensor([-1])); m.bincount(v); m.histc(i); m.searchsorted(edges, m.tensor([3.0]), side="up")
m.searchsorted(edge_rows, m.tensor([3.0])); m.bucketize(3.0, edge_rows)
"""


@pytest.mark.parametrize("device", DEVICES)
def test_scan_gradients_twice(device: str) -> None:
    check_all(SCAN_TWICE, inputs, device, tol=1e-4, twice=True, named=False)


@pytest.mark.parametrize("device", DEVICES)
def test_scans(device: str) -> None:
    check_all(SCAN, inputs, device, tol=5e-4, named=False)


@pytest.mark.parametrize("device", DEVICES)
def test_sorts(device: str) -> None:
    check_all(SORT, inputs, device, named=False)


@pytest.mark.parametrize("device", DEVICES)
def test_order_statistics(device: str) -> None:
    check_all(ORDER, inputs, device, named=False)


@pytest.mark.parametrize("device", DEVICES)
def test_distinct_values_and_counts(device: str) -> None:
    check_all(UNIQUE, inputs, device)


@pytest.mark.parametrize("device", DEVICES)
def test_names_of_backward_nodes(device: str) -> None:
    names = "y.cumsum(0); y.cumprod(0); y.logcumsumexp(0); y.cummax(0); y.sort(); y.sort(stable=True); y.topk(2); y.kthvalue(2)"
    check_all(names, inputs, device, tol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_a_long_running_sum_keeps_its_digits(device: str) -> None:
    x = torch.full((50_000,), 0.1)
    want = x.double().cumsum(0)
    got = torch.from_numpy(values(to_tab(x, device).cumsum(0))).double()
    assert ((got - want).abs() / want).max() < 1e-5
