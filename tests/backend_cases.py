"""What holds of real PyTorch's device="webgpu", each a function. test_backend_eager.py has them run in a process of their own.

    TABTORCH_DEVICE=cpu|webgpu python tests/backend_cases.py [NAME ...]

prints a line a case: its name, and what it raised, as JSON.
"""

from __future__ import annotations

import copy
import gc
import io
import json
import os
import pickle
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

CASES: dict[str, Callable[[], None]] = {}
W = "webgpu"


def case(f: Callable[[], None]) -> Callable[[], None]:
    """Makes a function a case."""
    CASES[f.__name__] = f
    return f


@contextmanager
def raises(kind: type[BaseException], words: str) -> Any:
    """Holds if the block raises `kind` with these words."""
    try:
        yield
    except kind as e:
        assert words in str(e), str(e)
    else:
        raise AssertionError(f"no {kind.__name__}")


def same(x: torch.Tensor, y: Any, **kw: Any) -> None:
    """Holds if a tensor on the device has these values and this type."""
    assert x.device.type == W, x.device
    torch.testing.assert_close(x.detach().cpu(), y if isinstance(y, torch.Tensor) else torch.tensor(y), **kw)


# ---- the one device, and its one stream


@case
def another_index() -> None:
    """There is one device."""
    words = "invalid device ordinal: there is one webgpu device, index 1 was asked for"
    saved = io.BytesIO()
    torch.save(torch.ones(2), saved)
    saved.seek(0)
    for f in (
        lambda: torch.ones(2, device="webgpu:1"),
        lambda: torch.empty(2, device="webgpu:1"),
        lambda: torch.tensor([1.0], device="webgpu:1"),
        lambda: torch.ones(2).to("webgpu:1"),
        lambda: torch.ones(2, device=W).to("webgpu:1"),
        lambda: torch.ones_like(torch.ones(2), device="webgpu:1"),
        lambda: torch.load(saved, map_location="webgpu:1"),
        lambda: torch.webgpu.set_device(1),
    ):
        with raises(RuntimeError, words):
            f()
    same(torch.ones(2, device="webgpu:0"), [1.0, 1.0])


@case
def streams() -> None:
    """One stream, by the words of CUDA: events are timed, and nothing waits."""
    s = torch.webgpu.Stream()
    first, last = (torch.webgpu.Event(enable_timing=True) for _ in range(2))
    with torch.webgpu.stream(s):
        first.record()
        x = torch.ones(4, device=W) * 2
        s.record_event(last)
    s.wait_stream(torch.webgpu.current_stream())
    s.wait_event(last)
    x.record_stream(s)
    s.synchronize()
    assert first.elapsed_time(last) >= 0 and last.query() and s.query()
    assert isinstance(s, torch.Stream) and s.device.type == W, s
    assert s == torch.webgpu.current_stream() and "cuda" not in repr(s), s
    same(x, [2.0] * 4)


@case
def lazy_modules_go_there_without_sizes() -> None:
    """A module that has no sizes yet has none after a move, and an optimizer of it is told the same as by PyTorch."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d()).to(W)
    assert type(model[0].weight) is nn.UninitializedParameter and model[0].weight.device.type == W
    model(torch.ones(2, 4, device=W)).sum().backward()
    assert model[0].weight.shape == (3, 4) and model[0].weight.grad.device.type == W
    assert type(pickle.loads(pickle.dumps(model))[0]) is nn.Linear


@case
def other_processes() -> None:
    """One that is forked or started anew has a device of its own; tensors are not sent there."""
    from multiprocessing.reduction import ForkingPickler

    with raises(NotImplementedError, "cannot be sent to another process: send x.cpu()"):
        ForkingPickler.dumps(torch.ones(2, device=W))
    same(torch.ones(2, device=W) + 1, [2.0, 2.0])
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, str((torch.ones(2, device=W) * 3).tolist()).encode())
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(reading, 100) == b"[3.0, 3.0]"
    same(torch.ones(2, device=W) + 1, [2.0, 2.0])


# ---- tensors


@case
def plain_tensors() -> None:
    x = torch.ones(2, 3, device=W)
    assert type(x) is torch.Tensor and type(x + 1) is torch.Tensor
    assert type(nn.Parameter(x)) is nn.Parameter and nn.Parameter(x).device.type == W
    assert x.is_webgpu and not torch.ones(1).is_webgpu and torch.ones(2).webgpu().is_webgpu
    assert x.type() == "torch.webgpu.FloatTensor" and x.get_device() == 0
    assert repr(torch.arange(3, device=W)) == "tensor([0, 1, 2], device='webgpu:0')"
    assert repr(torch.tensor([1.5, 2], device=W)) == "tensor([1.5000, 2.0000], device='webgpu:0')"
    assert x.data_ptr() != torch.ones(2, 3, device=W).data_ptr()
    assert x[1].data_ptr() == x.data_ptr() + 12


@case
def views_and_writes() -> None:
    x = torch.arange(6.0, device=W)
    x.view(3, 2).t()[0].mul_(10)
    same(x, [0.0, 1.0, 20.0, 3.0, 40.0, 5.0])
    x[x > 10] = -1.0
    x[1:3] += 1
    same(x, [0.0, 2.0, 0.0, 3.0, -1.0, 5.0])
    assert x._version == 4 and x[0]._base is x
    y = torch.arange(6.0, device=W).as_strided((2, 2), (3, 1), 1)
    same(y, [[1.0, 2.0], [4.0, 5.0]])
    z = torch.zeros(2, 3, device=W)
    z[:, 1] = torch.tensor([5.0, 6.0])
    same(z.permute(1, 0).contiguous(), [[0.0, 0.0], [5.0, 6.0], [0.0, 0.0]])
    z.squeeze_().unsqueeze_(0).transpose_(1, 2)
    assert z.shape == (1, 3, 2) and z._base is None
    a = torch.ones(2, device=W)
    a.view(torch.int32).zero_()
    same(a, [0.0, 0.0])
    a.set_(torch.tensor([7.0, 8.0], device=W))
    same(a, [7.0, 8.0])


@case
def results_share_nothing() -> None:
    x = torch.ones(3, device=W)
    for y in (x.clone(), x + 0, x.relu(), x.to(torch.float32, copy=True), torch.stack([x]), x.expand(2, 3).clone()):
        y.fill_(9.0)
    same(x, [1.0, 1.0, 1.0])
    y = x.expand(2, 3) + 0
    y[0, 0] = 5
    same(y, [[5.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    z = torch.nn.functional.dropout(x, 0.5, training=False)
    assert z is x or z.data_ptr() == x.data_ptr()


@case
def columns_are_put() -> None:
    """Indices after dimensions that are kept."""
    at = torch.tensor([2, 0])
    for d in (W, "cpu"):
        x = torch.zeros(2, 3, device=W)
        x[:, at.to(d)] = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=W)
        same(x, [[2.0, 0.0, 1.0], [4.0, 0.0, 3.0]])
        x[:, at.to(d)] += 1
        same(x, [[3.0, 0.0, 2.0], [5.0, 0.0, 4.0]])
    x = torch.zeros(3, 2, 4, device=W, requires_grad=True)
    y = x * 1
    y[..., at.to(W)] = 5.0
    y.sum().backward()
    same(x.grad[0], [[0.0, 1.0, 0.0, 1.0]] * 2)


@case
def out_is_read() -> None:
    """What is refused where `out=` lies in what is read; the types of sums; how a resized one lies."""
    x = torch.arange(4.0, device=W)
    torch.add(x, 1, out=x)
    same(x, [1.0, 2.0, 3.0, 4.0])
    with raises(RuntimeError, "some elements of the input tensor and the written-to tensor refer to a single memory"):
        torch.add(x[1:], 1, out=x[:3])
    with raises(RuntimeError, "output with shape [4] doesn't match the broadcast shape [2, 4]"):
        torch.maximum(x, torch.ones(2, 4, device=W), out=x)
    with raises(RuntimeError, "some elements of the input tensor and the written-to tensor refer to a single memory"):
        x.index_put_((torch.tensor([0, 1, 2, 3], device=W),), x)
    same(torch.sum(x > 2, 0, out=torch.zeros((), dtype=torch.bool, device=W)), True)
    out = torch.empty(0, device=W)
    torch.neg(torch.ones(2, 3, device=W).t(), out=out)
    assert out.stride() == (1, 3)


@case
def strides_are_kept() -> None:
    x = torch.ones(2, 3, 4, 4, device=W).to(memory_format=torch.channels_last)
    assert x.is_contiguous(memory_format=torch.channels_last) and x.clone().stride() == x.stride()
    assert torch.empty_like(x).stride() == x.stride() and torch.empty_strided((2, 3), (1, 2), device=W).stride() == (
        1,
        2,
    )
    same(x.sum((2, 3)), torch.full((2, 3), 16.0))


@case
def results_go_to_out() -> None:
    x = torch.randn(3, 4)
    for d in ("cpu", W):
        y = x.clone().to(d)
        base = torch.zeros(3, 4, 2, device=d)
        torch.exp(y, out=base[..., 1])
        torch.ones(3, 4, out=base[..., 0])
        same(base.to(W), torch.stack([torch.ones(3, 4), x.exp()], 2))
        assert torch.eye(3, out=torch.empty(0, dtype=torch.long, device=d)).sum().item() == 3
        assert torch.cumsum(y, 0, out=torch.empty(3, 4, dtype=torch.int32, device=d)).dtype is torch.int32
        with raises(RuntimeError, "Expected out tensor to have dtype"):
            torch.mm(y, y.t(), out=torch.empty(3, 3, dtype=torch.complex64, device=d))
        with raises(TypeError, "can't be cast to the desired output type Int"):
            torch.cat([y, y], out=torch.empty(6, 4, dtype=torch.int32, device=d))
        z = torch.zeros(1, 4, device=d)
        with raises(RuntimeError, "more than one element of the written-to tensor"):
            torch.add(y, 1, out=z.expand(3, 4))
        with raises(RuntimeError, "some elements of the input tensor and the written-to"):
            torch.exp(y[1:], out=y[:-1])
        with raises(RuntimeError, "some elements of the input tensor and the written-to"):
            torch.gather(y, 0, torch.zeros(3, 4, dtype=torch.long, device=d), out=y)
        torch.exp(y, out=y)
        same(y.to(W), x.exp())
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            assert torch.exp(y, out=torch.empty(2, device=d)).shape == (3, 4)
            assert any("was resized" in str(w.message) for w in seen)
    assert torch.ones((1,) * 65, device=W).add(1).sum().item() == 2


@case
def lazy_modules_move() -> None:
    def make() -> Any:
        torch.manual_seed(0)
        return nn.Sequential(nn.LazyConv1d(3, 2), nn.LazyBatchNorm1d(), nn.Flatten(), nn.LazyLinear(2))

    x = torch.randn(4, 5, 6)
    here, there, made = make(), make().to(W), None
    with torch.device(W):
        made = make()
    assert all(
        nn.parameter.is_lazy(p) for p in (*there[0].parameters(), *there[1].buffers()) if p.dtype.is_floating_point
    )
    for m in (here, there, made):
        torch.manual_seed(1)
        m(x.to(m[0].weight.device))
    for k, v in here.state_dict().items():
        same(there.state_dict()[k], v, atol=1e-5, rtol=1e-4)
        same(made.state_dict()[k], v, atol=1e-5, rtol=1e-4)
    assert type(there[0].weight) is nn.Parameter and there[0].weight.device.type == W


@case
def sizes_change() -> None:
    x = torch.arange(4.0, device=W)
    x.resize_(6)
    same(x[:4], [0.0, 1.0, 2.0, 3.0])
    x.resize_(2)
    same(x, [0.0, 1.0])
    out = torch.empty(0, device=W)
    torch.add(torch.ones(3, device=W), 1, out=out)
    same(out, [2.0, 2.0, 2.0])
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.add(torch.ones(2, device=W), 1, out=out)
    assert "An output with one or more elements was resized" in str(seen[0].message)
    values, indices = torch.empty(0, device=W), torch.empty(0, dtype=torch.int64, device=W)
    torch.sort(torch.tensor([3.0, 1.0, 2.0], device=W), out=(values, indices))
    same(indices, [1, 2, 0])
    with raises(RuntimeError, "result type Float can't be cast to the desired output type Long"):
        torch.add(torch.ones(2, device=W), 1, out=torch.empty(2, dtype=torch.int64, device=W))


@case
def conjugates_and_negatives() -> None:
    x = torch.tensor([1 + 1j, 2 - 1j], device=W)
    assert x.conj().is_conj()
    x.conj().mul_(2)
    same(x, [2 + 2j, 4 - 2j])
    x.conj().copy_(torch.tensor([5 + 2j, 1j], device=W))
    same(x, [5 - 2j, -1j])
    same(x.conj().imag, [2.0, 1.0])
    same(x @ x.conj(), torch.tensor(30 + 0j))
    same(x.conj().clone(), [5 + 2j, 1j])


@case
def numbers_of_the_cpu_stand_beside() -> None:
    x = torch.ones(2, device=W)
    same(x * torch.tensor(2.0), [2.0, 2.0])
    assert (x * torch.tensor(2.5, dtype=torch.float64)).dtype is torch.float32
    same(torch.where(x > 0, x, torch.tensor(0.0)), [1.0, 1.0])
    x[0] = torch.tensor(3.0)
    same(x.masked_fill(x > 2, torch.tensor(7.0)), [7.0, 1.0])
    same(torch.arange(4, device=W) // torch.tensor(2), [0, 0, 1, 1])
    same(torch.arange(4.0, device=W)[torch.tensor([1, 2])], [1.0, 2.0])


@case
def devices_are_not_mixed() -> None:
    x, y = torch.ones(2, 2, device=W), torch.ones(2, 2)
    words = "Expected all tensors to be on the same device, but found at least two devices, webgpu:0 and cpu!"
    for f in (
        lambda: x + y,
        lambda: y + x,
        lambda: x @ y,
        lambda: y.add_(x),
        lambda: torch.cat([x, y]),
        lambda: nn.Linear(2, 2)(x),
        lambda: nn.Embedding(2, 2)(x.long()),
        lambda: F.mse_loss(x, y),
    ):
        with raises(RuntimeError, words):
            f()
    with raises(TypeError, "can't convert webgpu:0 device type tensor to numpy. Use Tensor.cpu()"):
        x.numpy()


@case
def errors_are_pytorchs() -> None:
    x = torch.ones(2, device=W)
    with raises(
        RuntimeError, "The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 0"
    ):
        x + torch.ones(3, device=W)
    with raises(IndexError, "index 5 is out of bounds for dimension 0 with size 2"):
        x[5]
    with raises(RuntimeError, "mat1 and mat2 shapes cannot be multiplied"):
        torch.ones(2, 3, device=W) @ torch.ones(2, 3, device=W)
    with raises(TypeError, "torch.uint16 is not supported on device 'webgpu'"):
        torch.ones(2, dtype=torch.uint16, device=W)
    with raises(NotImplementedError, "aten::_to_sparse"):
        torch.ones(2, 2, device=W).to_sparse()
    w = torch.ones(2, device=W, requires_grad=True)
    y = w * 1
    z = (y * y).sum()
    y.add_(1)
    with raises(RuntimeError, "modified by an inplace operation"):
        z.backward()


@case
def the_default_type_is_followed() -> None:
    n = torch.ones(2, dtype=torch.int64, device=W)
    assert (n / 2).dtype is torch.float32
    torch.set_default_dtype(torch.float16)
    try:
        assert (n / 2).dtype is torch.float16 and torch.ones(2, device=W).dtype is torch.float16
    finally:
        torch.set_default_dtype(torch.float32)
    assert (n / 2).dtype is torch.float32


@case
def indices() -> None:
    x = torch.arange(12.0, device=W).reshape(3, 4)
    same(x[torch.tensor([0, 2], device=W), 1:3], [[1.0, 2.0], [9.0, 10.0]])
    x.index_put_((torch.tensor([0, 0], device=W),), torch.ones(4, device=W), accumulate=True)
    same(x[0], [2.0, 3.0, 4.0, 5.0])
    same(x.gather(1, torch.tensor([[1], [0], [3]], device=W)), [[3.0], [4.0], [11.0]])
    assert torch.nonzero(x > 10).cpu().tolist() == [[2, 3]]
    assert x.max(1).indices.cpu().tolist() == [3, 3, 3]


@case
def histograms_of_integers() -> None:
    """As on other GPUs, and unlike on the CPU. Mixtures of experts count their tokens so."""
    x = torch.tensor([[3, 0, 1], [3, 7, 2]])
    for dtype in (torch.int32, torch.int64, torch.uint8):
        for bins, low, high in ((4, 0, 3), (3, 0, 0), (2, 1, 3), (5, 3, 7)):
            want = torch.histc(x.float(), bins, low, high).to(dtype)
            same(torch.histc(x.to(dtype).to(W), bins, low, high), want)
    same(torch.histc(torch.full((3,), 5, device=W), 2), [0, 3])
    same(torch.histc(torch.ones(0, dtype=torch.int64, device=W), 2), [0, 0])
    with raises(RuntimeError, "max must be larger than min"):
        torch.histc(x.to(W), 2, 3, 1)
    with raises(RuntimeError, "bins must be > 0"):
        torch.histc(x.to(W), 0)


@case
def ranks_and_inverses() -> None:
    """PyTorch's own formulas for these make numbers of float64 on the way."""
    x = torch.tensor([[1.0, 2.0], [2.0, 4.0], [0.0, 1e-9]])
    y = x.to(W)
    for kw in ({}, {"atol": 1e-3}, {"rtol": 1e-2}, {"atol": 10.0, "rtol": 0.1}, {"atol": torch.tensor(1e-3)}):
        here = {k: v.to(W) if isinstance(v, torch.Tensor) else v for k, v in kw.items()}
        assert torch.linalg.matrix_rank(y, **here).item() == torch.linalg.matrix_rank(x, **kw).item(), kw
        same(torch.linalg.pinv(y, **here), torch.linalg.pinv(x, **kw), rtol=1e-4, atol=1e-5)
    assert torch.linalg.matrix_rank(y, 1e-3).item() == 1
    assert torch.linalg.matrix_rank(y, 1e-3, out=torch.empty(0, dtype=torch.long, device=W)).tolist() == 1
    for d in ("cpu", W):
        w = torch.tensor([[3.0, 4.0], [0.3, 0.4]], device=d, requires_grad=True)
        torch.renorm(w, 2, 0, 1.0).square().sum().backward()
        torch.testing.assert_close(w.grad.cpu(), torch.tensor([[0.0, 0.0], [0.6, 0.8]]), atol=1e-4, rtol=0)
    same(torch.pinverse(y, 1e-3), torch.pinverse(x, 1e-3), rtol=1e-4, atol=1e-5)
    z = torch.eye(2, device=W).mul_(2).requires_grad_()
    torch.linalg.pinv(z).sum().backward()
    same(z.grad, torch.full((2, 2), -0.25), rtol=1e-4, atol=1e-5)


# ---- autograd and what is built on it


@case
def gradients() -> None:
    x = torch.arange(3.0, device=W, requires_grad=True)
    (x * x).sum().backward()
    assert x.grad is not None
    same(x.grad, [0.0, 2.0, 4.0])
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    same(torch.autograd.grad(g.sum(), x)[0], [0.0, 6.0, 12.0])
    a = torch.ones(2, 2, dtype=torch.float32, device=W, requires_grad=True)
    b = a.clone()
    b[0].mul_(3)
    b.sum().backward()
    assert a.grad is not None
    same(a.grad, [[3.0, 3.0], [1.0, 1.0]])


@case
def backward_in_the_devices_thread() -> None:
    seen = []

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            seen.append(threading.get_ident())
            return g * 2

    x = torch.ones(2, device=W, requires_grad=True)
    Double.apply(x).sum().backward()
    same(x.grad, [2.0, 2.0])
    assert torch._C._is_multithreading_enabled() and seen != [threading.get_ident()]


@case
def threads() -> None:
    found = {}

    def run(i: int) -> None:
        x = torch.full((3,), float(i), device=W, requires_grad=True)
        for _ in range(10):
            (x * x).sum().backward()
        found[i] = x.grad.cpu().tolist()  # type: ignore[union-attr]

    started = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for t in started:
        t.start()
    for t in started:
        t.join()
    assert found == {i: [20.0 * i] * 3 for i in range(4)}


@case
def transforms() -> None:
    x = torch.arange(3.0, device=W)
    same(torch.func.vmap(lambda a: (a * 2).sum())(torch.ones(3, 2, device=W)), [4.0, 4.0, 4.0])
    same(torch.func.grad(lambda a: (a**3).sum())(x), [0.0, 3.0, 12.0])
    _, tangent = torch.func.jvp(lambda a: a * a, (x,), (torch.ones_like(x),))
    same(tangent, [0.0, 2.0, 4.0])
    same(torch.func.jacrev(lambda a: a * a)(x), torch.diag(torch.tensor([0.0, 2.0, 4.0])))
    same(torch.func.hessian(lambda a: (a**3).sum())(x), torch.diag(torch.tensor([0.0, 6.0, 12.0])))


@case
def checkpoints() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1)).to(W)
    x = torch.ones(2, 4, device=W, requires_grad=True)
    found = []
    for form in (None, False, True):
        torch.manual_seed(3)
        (model(x) if form is None else checkpoint(model, x, use_reentrant=form)).sum().backward()
        found.append(x.grad.cpu().tolist())  # type: ignore[union-attr]
        x.grad = None
    assert found[0] == found[1] == found[2]


@case
def inference() -> None:
    with torch.inference_mode():
        x = torch.ones(2, device=W) + 1
        assert x.is_inference()
    with raises(RuntimeError, "Inference tensors cannot be saved for backward"):
        x * torch.ones(2, device=W, requires_grad=True)


# ---- modules


class Attention(nn.Module):
    """A little GPT with tied weights."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(20, 16), nn.Embedding(8, 16)
        self.qkv, self.norm, self.up, self.down = (
            nn.Linear(16, 48),
            nn.LayerNorm(16),
            nn.Linear(16, 32),
            nn.Linear(32, 16),
        )
        self.head = nn.Linear(16, 20, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, i: torch.Tensor) -> torch.Tensor:
        b, t = i.shape
        x = self.tokens(i) + self.places(torch.arange(t, device=i.device))
        q, k, v = (h.view(b, t, 2, 8).transpose(1, 2) for h in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, 16)
        return self.head(x + self.down(F.gelu(self.up(x))))  # type: ignore[no-any-return]


class Recurrent(nn.Module):
    """An LSTM, then a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru, self.head = (
            nn.LSTM(4, 8, batch_first=True),
            nn.GRU(8, 6, batch_first=True),
            nn.Linear(6, 20),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.gru(self.lstm(x)[0])[0])  # type: ignore[no-any-return]


def _losses(model: Any, x: Any, make: Any, device: str, steps: int = 4) -> list[float]:
    torch.manual_seed(0)
    m = model()
    x = x()
    y = torch.randint(0, 20, x.shape[:2] if x.dim() < 4 else x.shape[:1])
    optimizer = make(m.parameters())  # before the move, which must not part them
    m, x, y = m.to(device), x.to(device), y.to(device)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(m(x).flatten(0, -2), y.flatten())
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def _trains(model: Any, x: Any, make: Any) -> None:
    expected, found = (_losses(model, x, make, d) for d in ("cpu", W))
    assert expected[-1] < expected[0]
    assert max(abs(a - b) for a, b in zip(expected, found)) < 1e-4, (expected, found)


@case
def a_gpt_trains() -> None:
    _trains(Attention, lambda: torch.randint(0, 20, (2, 8)), lambda p: torch.optim.AdamW(p, 1e-2))


@case
def a_cnn_trains() -> None:
    def model() -> nn.Module:
        return nn.Sequential(
            *(
                nn.Conv2d(3, 4, 3, padding=1),
                nn.BatchNorm2d(4),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(4, 4, 3, stride=2),
            ),
            *(nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 20)),
        )

    _trains(model, lambda: torch.randn(4, 3, 8, 8), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True))


@case
def recurrent_layers_train() -> None:
    _trains(Recurrent, lambda: torch.randn(2, 5, 4), lambda p: torch.optim.Adam(p, 1e-2))


@case
def steps_are_planned_once() -> None:
    """A loop that reads nothing: what is sent together is the same in each step."""
    from tabtorch.engine import graph

    torch.manual_seed(0)
    model = Attention().to(W)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    x = torch.randint(0, 20, (2, 8)).to(W)
    seen = []
    for _ in range(8):
        optimizer.zero_grad()
        F.cross_entropy(model(x).flatten(0, 1), x.flatten()).backward()
        optimizer.step()
        seen.append((graph.counts["plans"], graph.counts["flushes"]))
    assert seen[-1][0] == seen[3][0], seen
    assert seen[-1][1] == seen[3][1] + 4, seen


@case
def a_transformer_layer() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).eval()
    x = torch.randn(2, 3, 8)
    expected = layer(x)
    layer.to(W)
    same(layer(x.to(W)), expected.detach(), rtol=1e-4, atol=1e-5)
    with torch.no_grad():  # PyTorch's fast path
        same(layer(x.to(W)), expected.detach(), rtol=1e-4, atol=1e-5)


@case
def a_padded_batch() -> None:
    """On the CPU the encoder packs it into a nested tensor, and what comes out of padding is 0."""
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    x = torch.randn(2, 4, 8)
    padding = torch.tensor([[False] * 4, [False, False, True, True]])
    expected = encoder(x, src_key_padding_mask=padding).detach()
    with torch.no_grad():
        found = encoder.to(W)(x.to(W), src_key_padding_mask=padding.to(W))
    same(found[~padding.to(W)], expected[~padding], rtol=1e-4, atol=1e-5)


@case
def written_between_whole_dimensions() -> None:
    """Indices in some dimensions, and others taken whole: ATen's list of indices has None for those."""
    rows, columns = torch.tensor([0, 2, 0]), torch.tensor([1, 3, 1])
    for accumulate in (False, True):
        x = torch.arange(60.0).reshape(3, 4, 5)
        y = x.to(W)
        x[:, :, columns] = -1.0
        y[:, :, columns.to(W)] = -1.0
        x[rows, :, columns] = torch.full((3, 4), 7.0)
        y[rows.to(W), :, columns.to(W)] = torch.full((3, 4), 7.0, device=W)
        if accumulate:
            ones = torch.ones(3, 4)
            torch.ops.aten.index_put_(x, [rows, None, columns], ones, True)
            torch.ops.aten.index_put_(y, [rows.to(W), None, columns.to(W)], ones.to(W), True)
        same(y, x)
    z = torch.randn(3, 4, 5, requires_grad=True)
    z[rows, :, columns].sin().sum().backward()
    w = z.detach().to(W).requires_grad_()
    w[rows.to(W), :, columns.to(W)].sin().sum().backward()
    same(w.grad, z.grad)


@case
def optimizers() -> None:
    kinds: list[tuple[Any, dict[str, Any]]] = [
        *((k, {}) for k in (torch.optim.RMSprop, torch.optim.Adagrad, torch.optim.NAdam, torch.optim.RAdam)),
        *((k, {}) for k in (torch.optim.Adamax, torch.optim.Adadelta, torch.optim.Rprop, torch.optim.ASGD)),
        (torch.optim.Adam, {"fused": True}),
        (torch.optim.AdamW, {"foreach": False, "amsgrad": True}),
        (torch.optim.Adam, {"capturable": True}),
    ]
    for kind, kw in kinds:
        found = []
        for device in ("cpu", W):
            torch.manual_seed(0)
            if device == "cpu":
                kw = {k: v for k, v in kw.items() if k != "capturable"}
            layer = nn.Linear(3, 2).to(device)
            optimizer = kind(layer.parameters(), 1e-2, **({**kw} if device == "cpu" else dict(kw)))
            for _ in range(3):
                optimizer.zero_grad()
                layer(torch.ones(1, 3, device=device)).sum().backward()
                optimizer.step()
            found.append(layer.weight.detach().cpu())
        torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-6, msg=lambda m, k=kind: f"{k}: {m}")


@case
def parameters_stay_themselves() -> None:
    embedding, head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
    head.weight = embedding.weight
    model = nn.ModuleList([embedding, head])
    weight = embedding.weight
    head(embedding(torch.tensor([1]))).sum().backward()
    grad = weight.grad.clone()  # type: ignore[union-attr]
    for move in (lambda: model.to(W), model.cpu, model.webgpu, model.half, lambda: model.to("cpu", torch.float32)):
        move()
        assert embedding.weight is head.weight is weight
        assert weight.grad is not None and weight.grad.device == weight.device
    torch.testing.assert_close(weight.grad, grad, rtol=1e-3, atol=1e-3)  # it has been in half precision
    with torch.device(W):
        assert nn.Linear(2, 2).weight.is_webgpu
    assert nn.Linear(2, 2, device=W).to_empty(device="cpu").weight.device.type == "cpu"


# ---- automatic mixed precision


@case
def autocast() -> None:
    x = torch.randn(3, 3, device=W, requires_grad=True)
    with torch.autocast(W):
        assert (x @ x).dtype is torch.float16 and F.linear(x, x).dtype is torch.float16
        assert torch.softmax((x @ x), 0).dtype is torch.float32 and (x + 1).dtype is torch.float32
        assert (x @ x).sum().dtype is torch.float32 and F.mse_loss(x @ x, x).dtype is torch.float32
        assert torch.addcmul(x, x.half(), x.half()).dtype is torch.float32
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.float32
        with raises(RuntimeError, "unsafe to autocast"):
            F.binary_cross_entropy(x.sigmoid(), x.sigmoid())
        torch.softmax((x @ x), 0).sum().backward()
    assert x.grad is not None and x.grad.dtype is torch.float32
    with torch.autocast(W, dtype=torch.bfloat16):
        assert F.conv2d(x.reshape(1, 1, 3, 3), x.reshape(1, 1, 3, 3)).dtype is torch.bfloat16
    assert (x @ x).dtype is torch.float32


@case
def gradients_are_scaled() -> None:
    layer = nn.Linear(3, 1).to(W)
    optimizer, scaler = (
        torch.optim.SGD(layer.parameters(), 0.1),
        torch.amp.GradScaler(W, init_scale=4.0, growth_interval=2),
    )
    for k in range(4):
        optimizer.zero_grad()
        x = torch.full((2, 3), float("inf") if k == 3 else 1.0, device=W)
        before = layer.weight.detach().clone()
        scaler.scale(layer(x).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        moved = not torch.equal(before, layer.weight)
        assert moved is (k < 3), k
    assert scaler.get_scale() == 4.0  # doubled after two steps, halved by the infinite one
    for device in (W, "cpu"):
        torch.amp.GradScaler(device, enabled=False).unscale_(optimizer)  # nothing


# ---- random numbers


@case
def seeds_give_the_cpus_numbers() -> None:
    for draw in (
        lambda d: torch.rand(5, device=d),
        lambda d: torch.randn(3, 7, device=d),
        lambda d: torch.randint(0, 9, (4,), device=d),
        lambda d: torch.randperm(6, device=d),
        lambda d: torch.empty(4, device=d).exponential_(),
        lambda d: torch.bernoulli(torch.full((8,), 0.5, device=d)),
        lambda d: torch.multinomial(torch.tensor([0.1, 0.7, 0.2], device=d), 2),
        lambda d: torch.randn_like(torch.ones(3, device=d)),
        lambda d: torch.rand(2, device=d, generator=torch.Generator().manual_seed(4)),
        lambda d: torch.normal(torch.zeros(3, device=d), torch.ones(3, device=d)),
        lambda d: F.rrelu(torch.linspace(-1, 1, 6, device=d), training=True),
        lambda d: nn.init.kaiming_uniform_(torch.empty(3, 3, device=d)),
    ):
        torch.manual_seed(1)
        expected = draw("cpu")
        torch.manual_seed(1)
        same(draw(W), expected)
    with raises(NotImplementedError, "getNewGenerator"):
        torch.Generator(device=W)


@case
def states_of_dropout() -> None:
    x = torch.ones(64, device=W)

    def kept() -> list[float]:
        return F.dropout(x, 0.5).cpu().tolist()  # type: ignore[no-any-return]

    torch.manual_seed(7)
    first, second = kept(), kept()
    assert first != second and set(first) == {0.0, 2.0}
    torch.manual_seed(7)
    assert kept() == first
    cpu, device = torch.get_rng_state(), torch.webgpu.get_rng_state()
    assert kept() == second
    torch.set_rng_state(cpu)
    torch.webgpu.set_rng_state(device)
    assert kept() == second
    torch.manual_seed(7)
    with torch.random.fork_rng(device_type=W):
        kept()
    assert kept() == first


# ---- files and copies


@case
def saved_and_loaded() -> None:
    x = torch.arange(6.0, device=W)
    file = io.BytesIO()
    torch.save(
        {"x": x, "part": x[2:].view(2, 2), "n": torch.ones(2, dtype=torch.int64, device=W), "p": nn.Parameter(x)}, file
    )
    file.seek(0)
    found = torch.load(file)
    assert found["p"].requires_grad and isinstance(found["p"], nn.Parameter)
    found["x"][3] = 10
    same(found["part"], [[2.0, 10.0], [4.0, 5.0]])
    same(found["n"], [1, 1])
    assert found["x"].untyped_storage()._tabtorch.node.inst.out.dtype.name == "float32"
    file.seek(0)
    assert torch.load(file, map_location="cpu")["part"].tolist() == [[2.0, 3.0], [4.0, 5.0]]
    file = io.BytesIO()
    torch.save(torch.arange(3), file)
    file.seek(0)
    same(torch.load(file, map_location=W), [0, 1, 2])
    for protocol in (2, 5):
        same(pickle.loads(pickle.dumps(x[1:3], protocol)), [1.0, 2.0])
    layer = nn.Linear(2, 2).to(W)
    other = nn.Linear(2, 2)
    other.load_state_dict(layer.state_dict())
    same(layer.weight, other.weight.detach())


@case
def deep_copies() -> None:
    x = torch.arange(4.0, device=W)
    both = copy.deepcopy([x, x[1:3]])
    both[0][1] = 9
    same(both[1], [9.0, 2.0])
    same(x, [0.0, 1.0, 2.0, 3.0])
    layer = nn.Linear(2, 2).to(W)
    assert copy.deepcopy(layer).weight.data_ptr() != layer.weight.data_ptr()


@case
def storages() -> None:
    made = torch.UntypedStorage(4, device=W)
    assert made.device.type == W and made.cpu().tolist() == [0, 0, 0, 0] and made[1] == 0
    s = torch.ones(2, device=W).untyped_storage()
    assert s.nbytes() == 8 and s.clone().data_ptr() != s.data_ptr() and s.to(device="cpu").tolist() == s.tolist()
    with raises(NotImplementedError, "resize_"):
        s.resize_(0)
    torch.ones(2, device=W).share_memory_()
    t = torch.empty(0, device=W).set_(torch.ones(3, device=W).untyped_storage())
    same(t, [1.0, 1.0, 1.0])


@case
def to_and_fro() -> None:
    x = torch.arange(3.0)
    y = x.to(W, non_blocking=True)
    assert y.to("cpu", non_blocking=True).tolist() == [0.0, 1.0, 2.0]
    x.pin_memory().webgpu()
    z = torch.zeros(2, 3)
    z.copy_(y)
    assert z.tolist() == [[0.0, 1.0, 2.0]] * 2
    z.t()[0].copy_(torch.full((2,), 5.0, device=W))
    assert z[:, 0].tolist() == [5.0, 5.0]
    y.copy_(torch.arange(3, dtype=torch.int64))
    same(y.half(), torch.arange(3).half())
    same(torch.tensor([1, 2], device=W), [1, 2])
    assert torch.equal(y, y) and torch.allclose(y, y) and y.tolist() == [0.0, 1.0, 2.0]


@case
def loaders() -> None:
    from torch.utils.data import DataLoader, TensorDataset

    torch.ones(2, device=W).cpu()
    data = TensorDataset(torch.arange(8.0).view(8, 1), torch.arange(8))
    for workers in (0, 2):
        loader = DataLoader(data, batch_size=4, num_workers=workers, pin_memory=True)
        assert sum(x.to(W, non_blocking=True).sum().item() for x, _ in loader) == 28


# ---- the module of the device


@case
def the_accelerator() -> None:
    assert torch.accelerator.is_available() and torch.accelerator.device_count() == 1
    assert str(torch.accelerator.current_accelerator()) == W
    torch.accelerator.synchronize()
    torch.accelerator.set_device_index(0)
    assert torch.accelerator.current_stream().device.type == W
    assert torch.accelerator.memory_allocated() == torch.webgpu.memory_allocated()
    torch.accelerator.empty_cache()
    assert torch.get_device_module(W) is torch.webgpu


@case
def the_module() -> None:
    g = torch.webgpu
    assert g.is_available() and g.device_count() == 1 and g.current_device() == 0
    before = g.memory_allocated()
    x = torch.ones(1000, device=W)
    g.synchronize()
    assert g.memory_allocated() - before >= 4000 <= g.max_memory_allocated()
    del x
    gc.collect()
    g.empty_cache()
    assert g.memory_allocated() == before
    g.reset_peak_memory_stats()
    assert g.max_memory_allocated() == before
    assert g.get_device_name() and g.get_device_properties().name == g.get_device_name()
    with g.device(0), g.stream(g.current_stream()):
        begin, end = g.Event(enable_timing=True), g.Event(enable_timing=True)
        begin.record()
        end.record()
        assert begin.elapsed_time(end) >= 0
    with raises(RuntimeError, "invalid device ordinal"):
        g.set_device(1)


@case
def default_devices() -> None:
    with torch.device(W):
        assert torch.ones(2).is_webgpu
    torch.set_default_device(W)
    try:
        assert torch.arange(3).is_webgpu and torch.tensor([1.0]).is_webgpu and torch.randn(2).is_webgpu
    finally:
        torch.set_default_device("cpu")


@case
def a_runtime_that_ended() -> None:
    """What it held is lost, and says so; what is made after has another runtime."""
    from tabtorch import bridge

    x = torch.ones(2, device=W) + 1
    torch.webgpu.synchronize()
    bridge.close()
    with raises(RuntimeError, "a tensor has no value any more"):
        x.cpu()
    same(torch.ones(2, device=W) + 1, [2.0, 2.0])


@case
def a_forked_process() -> None:
    """Has a runtime of its own; the parent's tensors have no value there."""
    x = torch.ones(2, device=W) + 1
    torch.webgpu.synchronize()
    child = os.fork()
    if not child:
        status = 1
        try:
            with raises(RuntimeError, "from before the fork"):
                x.cpu()
            same(torch.ones(2, device=W) * 3, [3.0, 3.0])
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    same(x, [2.0, 2.0])


@case
def memory_is_flat() -> None:
    layer = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).to(W)
    optimizer = torch.optim.SGD(layer.parameters(), 0.01, momentum=0.9)
    x = torch.randn(4, 4, device=W)
    seen = []
    for step in range(1000 if SLOW else 100):
        optimizer.zero_grad()
        layer(x).square().mean().backward()
        optimizer.step()
        if step % 10 == 9:
            torch.webgpu.synchronize()
            gc.collect()
            seen.append((torch.webgpu.memory_allocated(), len(gc.get_objects())))
    assert seen[2][0] == seen[-1][0], seen
    assert abs(seen[-1][1] - seen[len(seen) // 2][1]) < 50, seen


SLOW = "--slow" in sys.argv


def main() -> None:
    """Runs the cases that are named, or all."""
    import tabtorch.backend  # noqa: F401

    torch.set_num_threads(1)
    names = [n for n in sys.argv[1:] if not n.startswith("-")]
    for name in names or CASES:
        print(json.dumps([name, "begun"]), flush=True)
        try:
            CASES[name]()
            why = ""
        except Exception:
            why = traceback.format_exc()
        print(json.dumps([name, why]), flush=True)


if __name__ == "__main__":
    main()
