"""Packed weights: each format bit for bit as PyPI's `gguf` unpacks it, what reads them, and what that costs."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

import tabtorch as torch
from tabtorch import nn
from tabtorch.engine import graph, plan
from tabtorch.engine.memory import memory
from tabtorch.engine.steps import Dispatch
from tabtorch.nn import functional as F
from tabtorch.packed import FORMATS, Packed


@contextmanager
def counted() -> Iterator[SimpleNamespace]:
    """What the block sends: dispatches, temporary buffers of the plans that are run, and the most bytes of values."""
    graph.flush()
    found = SimpleNamespace(dispatches=0, temporaries=0, bytes=0, labels=[])
    with pytest.MonkeyPatch.context() as patch:
        send = plan.Plan.send

        def counting(self: Any, *args: Any) -> Any:
            found.labels += [s.label for s in self.steps if type(s) is Dispatch]
            found.dispatches = len(found.labels)
            found.temporaries += len(self.temps)
            return send(self, *args)

        patch.setattr(plan.Plan, "send", counting)
        memory.peak[:] = memory.live
        start = max(memory.live)
        yield found
        graph.flush()
        found.bytes = max(memory.peak) - start


def blocks(name: str, rows: int, per_row: int, seed: int = 0) -> Any:
    """Random blocks as bytes (rows, bytes): all bits, but for scales that are finite; some are the least, some the largest."""
    f = FORMATS[name]
    rng = np.random.default_rng(seed)
    data = rng.integers(0, 256, (rows * per_row, f.nbytes), dtype=np.uint8)
    data[0], data[1] = 0, 255
    for at in HALVES.get(name, ()):
        scale = rng.standard_normal(len(data)).astype(np.float16)
        scale[:6] = 65504, -65504, 6e-8, 0, -0.0, 6.1e-5
        data[:, at : at + 2] = scale.view(np.uint8).reshape(-1, 2)
    if name == "MXFP4":
        data[:, 0] = rng.integers(3, 250, len(data))  # below lie subnormal numbers, which a GPU may take for 0
    return data.reshape(rows, -1)


#: where in a block the half-precision numbers lie
HALVES = {
    **dict.fromkeys(("Q4_0", "Q5_0", "Q8_0", "IQ4_NL", "IQ4_XS"), (0,)),
    **dict.fromkeys(("Q4_1", "Q5_1", "Q4_K", "Q5_K"), (0, 2)),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q6_K": (208,),
}


def unpacked(name: str, data: Any) -> Any:
    return dequantize(data, GGMLQuantizationType[name])


def packed(name: str, data: Any, **kw: Any) -> Packed:
    f = FORMATS[name]
    shape = (data.shape[0], data.shape[1] // f.nbytes * f.weights)
    return Packed(torch.from_numpy(data.reshape(-1)), name, shape, **kw)


def bits(t: Any) -> Any:
    return np.ascontiguousarray(t).view(np.uint32)


def test_the_table_has_the_numbers_of_ggml() -> None:
    for f in FORMATS.values():
        assert (f.weights, f.nbytes) == gguf.GGML_QUANT_SIZES[GGMLQuantizationType[f.name]]
        assert f.number == GGMLQuantizationType[f.name].value


@pytest.mark.parametrize("name", FORMATS)
def test_each_bit_is_as_gguf_has_it(device: str, name: str) -> None:
    data = blocks(name, 6, 3)
    want = unpacked(name, data)
    w = packed(name, data)
    assert np.array_equal(bits(w.dequantize().numpy()), bits(want))
    # cut between rows
    flat = data.reshape(-1)
    step = data.shape[1]
    parts = [torch.from_numpy(flat[a * step : b * step].copy()) for a, b in ((0, 1), (1, 4), (4, 6))]
    several = Packed(parts, name, tuple(w.shape))
    assert np.array_equal(bits(several.dequantize().numpy()), bits(want))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_values_are_rounded_to_the_type_that_is_shown(device: str, dtype: str) -> None:
    data = blocks("Q5_1", 6, 3)
    w = packed("Q5_1", data, dtype=getattr(torch, dtype))
    want = torch.from_numpy(unpacked("Q5_1", data)).to(getattr(torch, dtype))
    assert w.dtype is want.dtype
    assert torch.equal(w.dequantize(), want)
    assert torch.equal(w.float().dequantize(), torch.from_numpy(unpacked("Q5_1", data)))
    assert torch.equal(w.to(getattr(torch, dtype)), want)


def modest(name: str, rows: int, per_row: int, seed: int = 0) -> Any:
    """Blocks whose weights are of order one."""
    data = blocks(name, rows * per_row + 6, 1, seed)[6:].reshape(rows, -1)
    most = np.abs(unpacked(name, data)).max()
    view = data.reshape(rows * per_row, -1)
    for at in HALVES[name]:
        scale = view[:, at : at + 2].copy().view(np.float16).astype(np.float32) / most
        view[:, at : at + 2] = scale.astype(np.float16).view(np.uint8)
    return data


@pytest.mark.parametrize("name", ["Q4_0", "Q4_K", "Q6_K"])
@pytest.mark.parametrize("m", [1, 3, 32])
def test_a_product_unpacks_in_its_own_kernel(device: str, name: str, m: int) -> None:
    per_row = 256 // FORMATS[name].weights
    data = modest(name, 24, per_row)
    w, dense = packed(name, data), torch.from_numpy(unpacked(name, data))
    x, bias = torch.randn(m, 256), torch.randn(24)
    graph.flush()
    for f in (
        lambda w: F.silu(F.linear(x, w, bias)),
        lambda w: F.silu(x @ w.t() + bias),
        lambda w: F.silu(torch.addmm(bias, x, w.T)),
        lambda w: (w @ x[0]).exp(),
    ):
        with counted() as n:
            y = f(w)
        assert (n.dispatches, n.temporaries) == (1, 0), (name, m)
        assert torch.allclose(y, f(dense), rtol=1e-4, atol=1e-4)


def test_rows_are_looked_up_in_packed_bytes(device: str) -> None:
    data = modest("Q6_K", 50, 1)
    w, dense = packed("Q6_K", data), torch.from_numpy(unpacked("Q6_K", data))
    ids = torch.tensor([[3, 49, 0], [7, 7, 1]])
    graph.flush()
    with counted() as n:
        y = F.embedding(ids, w) * 2
    assert (n.dispatches, n.temporaries) == (1, 0)
    assert torch.equal(y, dense[ids] * 2)
    assert torch.equal(w[5], dense[5])
    assert torch.equal(w[2:4, ::2], dense[2:4, ::2])
    assert torch.equal(torch.index_select(w, 0, ids[0]), dense[ids[0]])


def test_gradients_flow_through_it(device: str) -> None:
    data = modest("Q4_K", 16, 1)
    w, dense = packed("Q4_K", data), torch.from_numpy(unpacked("Q4_K", data))
    x = torch.randn(5, 256)
    grads = []
    for each in (w, dense):
        a = x.clone().requires_grad_()
        y = F.linear(a, each).tanh().sum()
        y.backward()
        grads.append(a.grad)
    assert torch.allclose(grads[0], grads[1], rtol=1e-4, atol=1e-5)
    assert w.grad is None and not w.requires_grad


def test_it_refuses_what_it_cannot_be(device: str) -> None:
    w = packed("Q4_0", modest("Q4_0", 4, 2))
    before = w.dequantize().clone()
    for write in (
        lambda: w.mul_(2),
        lambda: w.zero_(),
        lambda: w.copy_(torch.zeros(4, 64)),
        lambda: w.__setitem__(0, 1.0),
        lambda: w[1].add_(1),
        lambda: w.t().mul_(2.0),
        lambda: w.data.fill_(1),
        lambda: w.uniform_(),
        lambda: setattr(w, "data", torch.zeros(4, 64)),
        lambda: torch.add(before, 1, out=w),
    ):
        torch.zeros(4, 64).mul_(2)
        with pytest.raises(RuntimeError, match="packed as Q4_0"):
            write()
    with pytest.raises(RuntimeError, match="takes no gradient"):
        w.requires_grad_()
    with pytest.raises(RuntimeError, match="takes no gradient"):
        w.requires_grad = True
    assert torch.equal(w, before)
    data = torch.zeros(36, dtype=torch.uint8)
    for parts, scheme, shape, kw in (
        (data, "Q9", (1, 64), {}),
        (data, "Q4_0", (1, 32), {}),
        (data, "Q4_0", (1, 63), {}),
        (data, "Q4_0", (64,), {"options": (1,)}),
        (data, "Q4_0", (1, 64), {"dtype": torch.int32}),
        (data[:35], "Q4_0", (1, 64), {}),
        (data.float(), "Q4_0", (1, 64), {}),
        ([data, data], "Q4_0", (1, 64), {}),
        ([data[:18], data[:18]], "Q4_0", (1, 64), {}),
        (data, "Q4_0", (-1, -64), {}),
        (data, "Q4_0", (), {}),
        ([], "Q4_0", (1, 64), {}),
    ):
        with pytest.raises(ValueError):
            Packed(parts, scheme, shape, **kw)


def test_a_module_keeps_it(device: str, tmp_path: Any) -> None:
    data = modest("Q8_0", 8, 2)
    layer = nn.Linear(64, 8)
    layer.weight = packed("Q8_0", data)
    dense = torch.from_numpy(unpacked("Q8_0", data))
    x = torch.randn(3, 64)
    want = F.linear(x, dense, layer.bias)
    assert isinstance(layer.weight, nn.Parameter)
    assert [n for n, _ in layer.named_parameters()] == ["weight", "bias"]
    assert torch.allclose(layer(x), want, atol=1e-5)
    state = layer.state_dict()
    assert isinstance(state["weight"], Packed)
    # files, copies
    torch.save(state, tmp_path / "state.pt")
    for allowed in (True, False):
        again = torch.load(tmp_path / "state.pt", weights_only=allowed)
        assert isinstance(again["weight"], Packed) and torch.equal(again["weight"], dense)
    other = nn.Linear(64, 8)
    other.load_state_dict(again, assign=True)
    assert torch.equal(other(x), layer(x))
    third = copy.deepcopy(layer)
    third.weight.parts[0].zero_()
    assert torch.allclose(third(x), layer.bias.expand(3, 8))
    third.load_state_dict(layer.state_dict())
    assert torch.equal(third(x), layer(x))
    # types and devices
    layer.half()
    assert isinstance(layer.weight, Packed) and layer.weight.dtype is torch.float16
    assert layer.weight.packed_nbytes == data.size
    assert torch.allclose(layer(x.half()).float(), want, atol=2e-2)
    layer.float().to("cpu")
    assert layer.weight.device.type == "cpu" and isinstance(layer.weight, Packed)
    assert torch.allclose(layer(x.to("cpu")), want.to("cpu"), atol=1e-3)  # the bias went through half precision
    assert "Q8_0" in repr(layer.weight) and f"{data.size} bytes" in repr(layer.weight)
    with torch.autocast(device, dtype=torch.bfloat16):
        assert torch.allclose(third(x).float(), want, atol=5e-2)


def test_a_compiled_function_reads_it(device: str) -> None:
    data = modest("Q4_K", 32, 1)
    layer = nn.Linear(256, 32)
    layer.weight = packed("Q4_K", data)
    dense = torch.from_numpy(unpacked("Q4_K", data))
    f = torch.compile(lambda x: F.silu(layer(x)))
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(2, 256)
            assert torch.allclose(f(x), F.silu(F.linear(x, dense, layer.bias)), rtol=1e-4, atol=1e-4)
        x = torch.randn(2, 256)
        graph.flush()
        with counted() as n:
            f(x)
        assert (n.dispatches, n.temporaries) == (1, 0)
    a = torch.randn(2, 256, requires_grad=True)
    f(a).sum().backward()
    b = a.detach().clone().requires_grad_()
    F.silu(F.linear(b, dense, layer.bias)).sum().backward()
    assert torch.allclose(a.grad, b.grad, rtol=1e-4, atol=1e-4)


def test_examples_of_vmap_share_it(device: str) -> None:
    data = modest("Q4_0", 6, 2)
    w, dense = packed("Q4_0", data), torch.from_numpy(unpacked("Q4_0", data))
    x = torch.randn(4, 3, 64)
    assert torch.allclose(torch.vmap(lambda v: F.linear(v, w))(x), F.linear(x, dense), atol=1e-5)
    assert torch.allclose(torch.func.grad(lambda v: F.linear(v, w).sum())(x), dense.sum(0).expand(4, 3, 64), atol=1e-5)


def test_a_window_that_fills_up_where_it_is_read_does_not_store_it(device: str) -> None:
    data = modest("Q4_0", 48, 2)
    w = packed("Q4_0", data)
    x = torch.randn(4, 64)
    with counted() as n:
        waiting = w._tab_storage.inst.queue.nodes
        kept = []
        while len(waiting) < graph.WINDOW - 1:
            kept.append(x + len(kept))
        assert n.dispatches == 0
        kept.append(x @ w.t())  # the weight is the last of a window, and its reader the first of the next
    assert n.dispatches
    assert not [label for label in n.labels if "unpack" in label and "matmul" not in label]
