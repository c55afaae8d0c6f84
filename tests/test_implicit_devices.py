"""Tensors that named no device: on the GPU, 64-bit floats on the cpu while they have to be, and beside named ones where those are."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tabtorch as tt

device: Any = importlib.import_module("tabtorch.base.device")


@pytest.fixture(autouse=True)
def _automatic(webgpu: None) -> Iterator[None]:
    """No device is named as the default."""
    before = device._default.stack[:]
    device._default.stack.clear()
    try:
        yield
    finally:
        device._default.stack[:] = before


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
    assert (
        a.device == e.device
        and e.device == a.device
        and len({a.device, e.device}) == 1
        and str(a.device) == "cpu"
        and a.is_cpu
    )
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
        tt.ones(2, device="webgpu") * a


def test_gradients_go_back() -> None:
    w = tt.ones(2, requires_grad=True)
    (w.cpu().double() * tt.tensor([1.0, 2.0], dtype=tt.float64)).sum().backward()
    assert w.grad.device.type == "webgpu" and w.grad.tolist() == [1.0, 2.0]


def test_none_where_the_default_is_the_cpu() -> None:
    with tt.device("cpu"):
        assert tt.ones(2, dtype=tt.float64).float().device.type == "cpu"


def make(kind: str, values: Any, dtype: Any = None) -> Any:
    """kind: "none" names no device, else the device."""
    return tt.tensor(values, dtype=dtype, **({} if kind == "none" else {"device": kind}))


#: of two float tensors x and y with two elements
TOGETHER: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "compare": lambda x, y: (x > 1.5) == (y > 1.5),
    "where": lambda x, y: tt.where(x > 1.5, y, x),
    "cat": lambda x, y: tt.cat([x, y]),
    "stack": lambda x, y: tt.stack([x, y], 1),
    "dot": lambda x, y: x @ y,
    "matmul": lambda x, y: x[None] @ y[:, None],
    "linear": lambda x, y: tt.nn.functional.linear(x, y[None], y[:1]),
    "linear bias": lambda x, y: tt.nn.functional.linear(x, x[None], y[:1]),
    "addmm": lambda x, y: tt.addmm(x, x[None], tt.eye(2, device=y.device)),
    "einsum": lambda x, y: tt.einsum("i,j->ij", x, y),
    "conv": lambda x, y: tt.nn.functional.conv1d(x[None, None], y[:1, None, None]),
    "mse": lambda x, y: tt.nn.functional.mse_loss(x, y),
    "equal": lambda x, y: tt.tensor(tt.equal(x, y)),
    "searchsorted": lambda x, y: tt.searchsorted(x, y),
    "complex": lambda x, y: tt.complex(x, y),
    "bilinear": lambda x, y: tt.nn.functional.bilinear(x, y, x.reshape(1, 2, 1).expand(1, 2, 2)),
    "twice": lambda x, y: tt.cat([tt.cat([x, y]), tt.cat([x, y])]),
}
#: what stays where its first tensor is
BESIDE: dict[str, Callable[[Any, Any], Any]] = {
    "add_": lambda x, y: x.clone().add_(y),
    "copy_": lambda x, y: x.clone().copy_(y),
    "gather": lambda x, y: x.gather(0, y.long() - 1),
    "index": lambda x, y: x[y.long() - 1],
    "mask": lambda x, y: x[y > 1.5],
    "masked_fill": lambda x, y: x.masked_fill(y > 1.5, 7.0),
    "masked_select": lambda x, y: x.masked_select(y > 1.5),
    "index_select": lambda x, y: x.index_select(0, y.long() - 1),
    "scatter": lambda x, y: x.scatter(0, y.long() - 1, y),
    "scatter_add": lambda x, y: x.scatter_add(0, y.long() - 1, y),
    "scatter value": lambda x, y: x.scatter(0, y.long() - 1, 5.0),
    "index_put": lambda x, y: x.index_put((y.long() - 1,), y),
    "out": lambda x, y: tt.add(y, 1, out=tt.zeros(2, device=x.device)),
    "index_add": lambda x, y: x.index_add(0, y.long() - 1, y),
    "index_copy": lambda x, y: x.index_copy(0, y.long() - 1, y),
    "index_fill": lambda x, y: x.index_fill(0, y.long() - 1, 4.0),
    "index_reduce": lambda x, y: x.index_reduce(0, y.long() - 1, y, "amax"),
    "take": lambda x, y: x.take(y.long() - 1),
    "put": lambda x, y: x.put(y.long() - 1, y),
    "select_scatter": lambda x, y: x.select_scatter(y[0], 0, 1),
    "embedding": lambda x, y: tt.nn.functional.embedding(y.long() - 1, x[:, None]),
}


@pytest.mark.parametrize("name", [*TOGETHER, *BESIDE])
@pytest.mark.parametrize("kinds", ["none cpu", "cpu none", "none webgpu", "webgpu none", "none none"])
def test_beside_a_named_one(name: str, kinds: str) -> None:
    """It goes to the named one, or that comes to it where it is written to or indexed; the values are PyTorch's."""
    f = (TOGETHER | BESIDE)[name]
    a, b = kinds.split()
    x, y = make(a, [1.0, 2.0]), make(b, [2.0, 1.0])
    want = f(make("cpu", [1.0, 2.0]), make("cpu", [2.0, 1.0]))
    r = f(x, y)
    assert r.tolist() == want.tolist() and r.dtype is want.dtype
    named = a if name in BESIDE else a if b == "none" else b
    if name != "equal":
        assert r.device.type == (named if named != "none" else "webgpu")


_HERE = "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
#: name -> (argument, where it is, where the others are, the function): what PyTorch's checks of CUDA's arguments say
_ARGUMENT = {
    "cat": ("tensors", "webgpu:0", "cpu", "cat"),
    "stack": ("tensors", "webgpu:0", "cpu", "cat"),
    "twice": ("tensors", "webgpu:0", "cpu", "cat"),
    "dot": ("tensor", "webgpu:0", "cpu", "_dot"),
    "matmul": ("mat2", "webgpu:0", "cpu", "mm"),
    "linear": ("mat1", "cpu", "webgpu:0", "addmm"),
    "linear bias": ("mat1", "cpu", "webgpu:0", "addmm"),
    "gather": ("index", "webgpu:0", "cpu", "gather"),
    "index_select": ("index", "webgpu:0", "cpu", "_index_select"),
    "embedding": ("index", "webgpu:0", "cpu", "_index_select"),
}
_OF_ITS_OWN = {
    "conv": "Input type (torch.FloatTensor) and weight type (torch.webgpu.FloatTensor) should be the same or input should be a "
    "MKLDNN tensor and weight is a dense tensor",
    "searchsorted": "torch.searchsorted(): boundaries and input value tensors should have same device type, but got boundaries "
    "tensor device type cpu and input value tensor device type webgpu",
    "index": _HERE,
    "mask": _HERE,
    "index_put": _HERE,
}


def two_devices(name: str) -> str:
    if name in _OF_ITS_OWN:
        return _OF_ITS_OWN[name]
    same = "Expected all tensors to be on the same device, but "
    if name not in _ARGUMENT:
        return same + "found at least two devices, cpu and webgpu:0!"
    which, here, others, f = _ARGUMENT[name]
    return (
        f"{same}got {which} is on {here}, different from other tensors on {others} "
        f"(when checking argument in method wrapper_WEBGPU_{f})"
    )


@pytest.mark.parametrize("name", [n for n in (*TOGETHER, *BESIDE) if n not in ("copy_", "select_scatter")])
def test_two_named_ones(name: str) -> None:
    f = (TOGETHER | BESIDE)[name]
    with pytest.raises(RuntimeError, match=re.escape(two_devices(name)) + "$"):
        f(make("cpu", [1.0, 2.0]), make("webgpu", [2.0, 1.0]))


def test_wide_among_unnamed() -> None:
    """What PyTorch computes with 64-bit floats on the cpu is computed so, if nothing was named."""
    a, b = tt.tensor([0.5, 1.5], dtype=tt.float64), tt.ones(2)
    for r in (a * b, b * a, tt.cat([a, b]), b.double() + 1, tt.arange(2) * tt.tensor(0.5, dtype=tt.float64)):
        assert r.dtype is tt.float64 and r.float().device.type == "webgpu"
    assert (b * tt.tensor(2.0, dtype=tt.float64)).dtype is tt.float32
    assert b.add_(a).tolist() == [1.5, 2.5] and b.device.type == "webgpu"
    assert (b[a > 1] + b[:1]).device.type == "webgpu"
    m = tt.nn.Linear(2, 1).double()
    m(a).sum().backward()
    assert m.weight.grad.tolist() == [[0.5, 1.5]] and m.float().weight.device.type == "webgpu"
    with pytest.raises(TypeError, match="float64 is not available on webgpu"):
        tt.ones(2, device="webgpu").double()


def test_where_it_leads() -> None:
    """`device=x.device` of a tensor that named none names none; `.to` copies, and is recorded, as from PyTorch's cpu to a GPU."""
    x = tt.ones(2)
    assert (tt.zeros(2, device=x.device) + tt.ones(2, device="cpu")).tolist() == [1.0, 1.0]
    assert x.to(x.device) is x and x.to("webgpu") is not x
    y = x.to("webgpu")
    x += 1
    assert (x.tolist(), y.tolist()) == ([2.0, 2.0], [1.0, 1.0])
    w = tt.ones(2, requires_grad=True)
    moved = w.to("webgpu")
    assert not moved.is_leaf and moved.to("webgpu") is moved
    (moved * 3).sum().backward()
    assert w.grad.tolist() == [3.0, 3.0] and (w.grad + tt.ones(2, device="cpu")).device.type == "cpu"
    m = tt.nn.Linear(2, 2)
    p = m.weight
    assert m.to("webgpu").weight is p and p.is_leaf
    with pytest.raises(RuntimeError, match="got mat1 is on cpu, different from other tensors on webgpu:0"):
        m(tt.ones(1, 2, device="cpu"))
    assert tt.get_default_device() == tt.device("webgpu", 0) and str(x.device) == "webgpu:0"


def test_draws_of_an_unnamed_generator() -> None:
    """`Generator(x.device)` is PyTorch's on the cpu, where PyTorch has `x`."""
    g = tt.Generator(device=tt.ones(1).device).manual_seed(3)
    h = tt.Generator().manual_seed(3)
    assert tt.rand(2, generator=g).tolist() == tt.rand(2, generator=h).tolist()


def test_autocast_of_the_cpu() -> None:
    x = tt.ones(2, 2)
    with tt.autocast("cpu", dtype=tt.bfloat16):
        assert (x @ x).dtype is tt.bfloat16 and (tt.ones(2, 2, device="webgpu") @ x).dtype is tt.float32
    with tt.autocast("webgpu"):
        assert (x @ x).dtype is tt.float16
