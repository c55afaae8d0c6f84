"""Where 64-bit floats live: on cpu while they have to, then on the default device, unless the script named the cpu."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tabtorch as tt

pytestmark = pytest.mark.usefixtures("webgpu")

# from `a`, which named no device, and `e`, which named the cpu, to where `.float()` of the result is
FROM: list[tuple[Callable[[Any, Any], Any], str]] = [
    (lambda a, e: a, "webgpu"),
    (lambda a, e: e, "cpu"),
    (lambda a, e: (a * 2 + 1).exp() / a.mean(), "webgpu"),
    (lambda a, e: (e * 2 + 1).exp() / e.mean(), "cpu"),
    (lambda a, e: a + e, "webgpu"),
    (lambda a, e: e + a, "webgpu"),
    (lambda a, e: a.cpu(), "cpu"),
    (lambda a, e: a.to("cpu"), "cpu"),
    (lambda a, e: a.sort()[0], "webgpu"),
    (lambda a, e: tt.zeros_like(a) + tt.randn_like(a), "webgpu"),
    (lambda a, e: tt.zeros_like(e) + tt.randn_like(e), "cpu"),
    (lambda a, e: a.clone().copy_(e), "webgpu"),
    (lambda a, e: e.clone().add_(a), "cpu"),
    (lambda a, e: tt.rand(2, dtype=tt.float64), "webgpu"),
    (lambda a, e: tt.rand(2, dtype=tt.float64, device="cpu"), "cpu"),
    (lambda a, e: tt.linspace(0, 1, 2, dtype=tt.float64), "webgpu"),
    (lambda a, e: tt.from_numpy(np.ones(2)), "webgpu"),
    (lambda a, e: tt.as_tensor(np.ones(2), device="cpu"), "cpu"),
]


@pytest.mark.parametrize("case", range(len(FROM)))
def test_where_float_goes(case: int) -> None:
    make, where = FROM[case]
    a = tt.tensor([1.0, 2.0], dtype=tt.float64)
    e = tt.tensor([1.0, 2.0], dtype=tt.float64, device="cpu")
    t = make(a, e)
    assert t.device == tt.device("cpu") and t.dtype is tt.float64
    assert t.float().device.type == where and t.to(tt.float32).device.type == where
    assert t.to(tt.complex128).device.type == "cpu"


def test_both_are_the_cpu() -> None:
    a = tt.tensor([1.0, 2.0], dtype=tt.float64)
    e = tt.tensor([1.0, 2.0], dtype=tt.float64, device="cpu")
    assert a.device is e.device and str(a.device) == "cpu" and a.is_cpu
    assert tt.cat([a, e]).tolist() == [1.0, 2.0, 1.0, 2.0] and tt.stack([e, a]).shape == (2, 2)
    assert tt.where(a > 1, a, e).tolist() == [1.0, 2.0] and a[e > 1].tolist() == [2.0] and e[a.argmax()].item() == 2.0
    assert (a[:, None] @ e[None]).tolist() == [[1.0, 2.0], [2.0, 4.0]] and tt.einsum("i,i->", a, e).item() == 5.0
    assert a.argmax().long().device == tt.device("cpu")
    b = a.clone()
    b[0] = e[1]
    assert b.tolist() == [2.0, 2.0]
    x = tt.tensor([1.0, 2.0], dtype=tt.float64, requires_grad=True)
    (x.cpu() * e + x).sum().backward()
    assert x.grad.tolist() == [2.0, 3.0]
    with pytest.raises(RuntimeError, match="at least two devices"):
        tt.ones(2) * a


def test_gradients_go_back() -> None:
    w = tt.ones(2, requires_grad=True)
    (w.cpu().double() * tt.tensor([1.0, 2.0], dtype=tt.float64)).sum().backward()
    assert w.grad.device.type == "webgpu" and w.grad.tolist() == [1.0, 2.0]


def test_none_where_the_default_is_the_cpu() -> None:
    with tt.device("cpu"):
        assert tt.ones(2, dtype=tt.float64).float().device.type == "cpu"
