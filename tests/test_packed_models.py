"""Models whose weights are packed: quantized here under torchao's names, and loaded from quantized checkpoints."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tabtorch as torch
from tabtorch import nn
from tabtorch.engine import graph
from tabtorch.nn import functional as F
from tabtorch.packed import Packed, load_quantized, quantize_4bit
from tabtorch.packed.quantization import CODES
from tabtorch.packed.torchao import Int4WeightOnlyConfig, Int8WeightOnlyConfig, quantize_
from test_packed import counted
from test_packed_schemes import K, N, bnb, compressed, made


def model() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 48), nn.SiLU(), nn.Linear(48, 64, bias=False))


def int8(w: Any, groups: int) -> Any:
    """What torchao's Int8WeightOnlyConfig makes of a weight, as numbers."""
    g = w.reshape(len(w), groups, -1)
    scale = np.maximum(np.abs(g).max(-1, keepdims=True) / np.float32(127.5), np.finfo(np.float32).eps)
    codes = np.clip(np.round(g * (np.float32(1) / scale)), -128, 127)
    return (codes * scale).reshape(w.shape)


def int4(w: Any, size: int) -> Any:
    """The same of Int4WeightOnlyConfig."""
    g = w.reshape(len(w), -1, size)
    low, high = g.min(-1, keepdims=True), g.max(-1, keepdims=True)
    scale = np.maximum((high - low) / np.float32(15), np.float32(1e-6))
    zero = low + scale * np.float32(8)
    codes = np.clip(np.round((g - (zero - scale * np.float32(8))) / scale), 0, 15)
    return ((codes - np.float32(8)) * scale + zero).reshape(w.shape)


@pytest.mark.parametrize(
    ("config", "formula"),
    [
        (Int8WeightOnlyConfig(), lambda w: int8(w, 1)),
        (Int8WeightOnlyConfig(group_size=16), lambda w: int8(w, w.shape[1] // 16)),
        (Int4WeightOnlyConfig(group_size=16), lambda w: int4(w, 16)),
    ],
)
def test_quantized_as_torchao_does(device: str, config: Any, formula: Any) -> None:
    m = model()
    before = {k: v.numpy().copy() for k, v in m.state_dict().items()}
    assert quantize_(m, config) is None
    for i in (0, 2):
        w = m[i].weight
        assert isinstance(w, Packed) and w.packed_nbytes < before[f"{i}.weight"].nbytes / 2
        want = formula(before[f"{i}.weight"])
        # a code at the middle between two may go either way where a device divides otherwise
        far = np.abs(w.dequantize().numpy() - want) > 1e-6
        assert far.mean() < 0.002, far.mean()
    quantize_(m, config)  # what is packed stays
    x = torch.randn(3, 64)
    dense = F.silu(F.linear(x, m[0].weight.dequantize(), m[0].bias)) @ m[2].weight.dequantize().t()
    assert torch.allclose(m(x), dense, atol=1e-4)
    other = model()
    other.load_state_dict(m.state_dict(), assign=True)
    assert torch.equal(other(x), m(x))
    m.to("cpu")
    assert torch.allclose(m(x.to("cpu")), dense.to("cpu"), atol=1e-4)


def test_which_layers_are_quantized(device: str) -> None:
    m = model()
    seen = []
    quantize_(m, Int8WeightOnlyConfig(), filter_fn=lambda module, name: seen.append(name) or name == "2")
    assert seen == ["", "0", "1", "2"]
    assert [isinstance(m[i].weight, Packed) for i in (0, 2)] == [False, True]
    with pytest.warns(UserWarning, match="'0' stays as it is: 64 columns"):
        quantize_(m, Int4WeightOnlyConfig(group_size=48))
    for config in (None, int8, Int4WeightOnlyConfig):
        with pytest.raises(TypeError):
            quantize_(m, config)
    for size in (0, -1, 1.5, None):
        with pytest.raises(ValueError):
            quantize_(m, Int4WeightOnlyConfig(group_size=size))
    with pytest.raises(TypeError, match="SiLU"):
        quantize_(m, Int8WeightOnlyConfig(), filter_fn=lambda module, name: True if name == "1" else False)
    alone = nn.Linear(32, 4)
    quantize_(alone, Int4WeightOnlyConfig(group_size=32))
    assert isinstance(alone.weight, Packed)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_quantized(device: str, dtype: Any) -> None:
    for config in (Int8WeightOnlyConfig(), Int4WeightOnlyConfig(group_size=16)):
        m = model().to(dtype)
        x = torch.randn(3, 64).to(dtype)
        want = m(x).float()
        quantize_(m, config)
        assert m[0].weight.dtype is dtype
        assert (m(x).float() - want).abs().max() < 0.25


def test_lora_trains_on_top(device: str) -> None:
    layer = nn.Linear(64, 64)
    quantize_(layer, Int4WeightOnlyConfig(group_size=32))
    a, b = nn.Parameter(torch.randn(64, 4) * 0.1), nn.Parameter(torch.zeros(4, 64))
    layer.bias.requires_grad_(False)
    codes = layer.weight.parts[0].clone()
    x = torch.randn(32, 64)
    target = x @ (layer.weight.dequantize() + torch.randn(64, 4) @ torch.randn(4, 64) * 0.1).t()
    opt = torch.optim.AdamW([a, b], lr=2e-2)
    losses = []
    for _ in range(60):
        opt.zero_grad()
        loss = F.mse_loss(layer(x) + (x @ a) @ b, target)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 3
    assert torch.equal(layer.weight.parts[0], codes) and layer.weight.grad is None


@pytest.mark.parametrize("kind", ["nf4", "fp4"])
@pytest.mark.parametrize("shape", [(32, 64), (5, 27)])
def test_four_bits_as_bitsandbytes_has_them(device: str, kind: str, shape: tuple[int, int]) -> None:
    w = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    w.reshape(-1)[:64] = 0
    p = quantize_4bit(torch.from_numpy(w), kind)
    values = np.array(CODES[kind], np.float32)
    want = np.zeros(w.size, np.float32)
    for at in range(0, w.size, 64):
        block = w.reshape(-1)[at : at + 64]
        most = np.abs(block).max()
        if most:
            want[at : at + 64] = values[np.abs(block[:, None] / most - values).argmin(1)] * most
    assert np.array_equal(p.dequantize().numpy(), want.reshape(shape))
    for bad in (torch.zeros(3), torch.zeros(2, 2, dtype=torch.int32)):
        with pytest.raises(ValueError):
            quantize_4bit(bad)
    with pytest.raises(ValueError):
        quantize_4bit(p.dequantize(), "int4")


ENDS = {
    "GPTQ4": ("qweight", "qzeros", "scales", "g_idx"),
    "GPTQ3_V2": ("qweight", "qzeros", "scales", "g_idx"),
    "AWQ4": ("qweight", "qzeros", "scales"),
    "CT4": ("weight_packed", "weight_scale"),
    "CT8_ZEROS": ("weight_packed", "weight_scale", "weight_zero_point"),
}
CONFIGS = {
    "GPTQ4": {"quant_method": "gptq", "bits": 4, "group_size": 16, "desc_act": True},
    "GPTQ3_V2": {"quant_method": "gptq", "bits": 3, "group_size": 16, "checkpoint_format": "gptq_v2"},
    "AWQ4": {"quant_method": "awq", "bits": 4, "group_size": 16, "version": "gemm", "zero_point": True},
    "CT4": {"quant_method": "compressed-tensors", "format": "pack-quantized"},
    "CT8_ZEROS": {"quant_method": "compressed-tensors", "format": "pack-quantized"},
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, K)
        self.proj = nn.Linear(K, N, bias=False)

    def forward(self, ids: Any) -> Any:
        return self.proj(self.embed(ids))


def checkpoint(name: str) -> tuple[dict[str, Any], Any]:
    w, want = made(name)
    state = {f"proj.{end}": part for end, part in zip(ENDS[name], w.parts, strict=True)}
    return {"embed.weight": torch.randn(10, K), **state}, torch.from_numpy(want)


@pytest.mark.parametrize("name", ENDS)
def test_a_checkpoint_is_loaded(device: str, name: str) -> None:
    state, dense = checkpoint(name)
    for extra in ({}, {"proj.bias": torch.randn(N)}):
        net = Net()
        result = load_quantized(net, {**state, **extra}, {"quantization_config": CONFIGS[name]})
        assert not result.missing_keys and not result.unexpected_keys
        assert isinstance(net.proj.weight, Packed) and net.proj.weight.scheme == name
        net.float()
        ids = torch.tensor([1, 9, 3])
        want = F.linear(state["embed.weight"][ids], dense, extra.get("proj.bias"))
        graph.flush()
        with counted() as n:
            y = net(ids)
        assert n.temporaries <= 1  # no more than the rows of the embedding
        assert n.bytes < 4 * N * K
        assert torch.allclose(y, want, rtol=1e-3, atol=1e-3)


def test_groups_without_g_idx(device: str) -> None:
    state, _ = checkpoint("GPTQ4")
    plain = (torch.arange(K) // 16).to(torch.int32)
    nets = []
    for given in ({**state, "proj.g_idx": plain}, {k: v for k, v in state.items() if k != "proj.g_idx"}):
        nets.append(Net())
        load_quantized(nets[-1], given, {**CONFIGS["GPTQ4"], "desc_act": False})
    assert torch.equal(nets[0].proj.weight, nets[1].proj.weight)
    with pytest.raises(ValueError, match="desc_act"):
        load_quantized(Net(), given, CONFIGS["GPTQ4"])


@pytest.mark.parametrize("nested", [False, True])
def test_a_checkpoint_of_bitsandbytes(device: str, nested: bool) -> None:
    parts, want = bnb(nested, np.random.default_rng(0))
    tables = parts[-1]
    about = {"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [N, K]}
    state = {"embed.weight": torch.randn(10, K), "proj.weight": torch.from_numpy(parts[0]).reshape(-1, 1)}
    named = {"quant_map": tables[:16], "absmax": parts[1] if nested else tables[16:]}
    if nested:
        about |= {"nested_blocksize": 8, "nested_dtype": "float32", "nested_offset": float(tables[272])}
        named |= {"nested_quant_map": tables[16:272], "nested_absmax": tables[273:]}
    named["quant_state.bitsandbytes__nf4"] = np.frombuffer(json.dumps(about).encode(), np.uint8).copy()
    state |= {f"proj.weight.{k}": torch.from_numpy(np.ascontiguousarray(v)) for k, v in named.items()}
    net = Net()
    load_quantized(net, state, {"quant_method": "bitsandbytes"})
    assert np.array_equal(net.proj.weight.dequantize().numpy(), want.astype(np.float32))
    for key, wrong in (("shape", [K, N]), ("blocksize", 0), ("blocksize", 128), ("dtype", "int8"), ("blocksize", "64")):
        text = json.dumps({**about, key: wrong}).encode()
        broken = {**state, "proj.weight.quant_state.bitsandbytes__nf4": torch.tensor(list(text), dtype=torch.uint8)}
        with pytest.raises(ValueError):
            load_quantized(Net(), broken, {"quant_method": "bitsandbytes"})
    broken["proj.weight.quant_state.bitsandbytes__nf4"] = torch.tensor([123], dtype=torch.uint8)
    with pytest.raises(ValueError):
        load_quantized(Net(), broken, {"quant_method": "bitsandbytes"})


@pytest.mark.parametrize("name", ENDS)
def test_states_that_contradict_are_refused(device: str, name: str) -> None:
    """Any tensor gone, of another size, or of another type: an error, and the model is as it was."""
    state, _ = checkpoint(name)
    net = Net()
    before = {k: (v, v.clone()) for k, v in net.state_dict(keep_vars=True).items()}
    packed = [k for k in state if k.startswith("proj.")]
    for key in packed:
        part = state[key]
        changes: list[Any] = [part[:-1], torch.cat([part, part]), part.to(torch.int64), part.reshape(1, *part.shape)]
        if key not in ("proj.g_idx", "proj.weight_zero_point"):
            changes.append(None)  # gone
        if key == "proj.g_idx":
            changes += [part + 1, part - 1]
        for change in changes:
            broken = {k: (change if k == key else v) for k, v in state.items() if k != key or change is not None}
            with pytest.raises(ValueError):
                load_quantized(net, broken, CONFIGS[name])
    without = {k: v for k, v in state.items() if k != "embed.weight"}
    renamed = {k.replace("proj", "other"): v for k, v in state.items()}
    on_embedding = {k.replace("proj", "embed"): v for k, v in state.items()}
    for broken in (without, renamed, on_embedding, {**state, "proj.bias": torch.zeros(N + 1)}):
        with pytest.raises(ValueError):
            load_quantized(net, broken, CONFIGS[name])
    for config in ({}, {"quant_method": "exl2"}, {"quantization_config": 3}, {**CONFIGS[name], "quant_method": None}):
        with pytest.raises(ValueError):
            load_quantized(net, state, config)
    for k, v in net.state_dict(keep_vars=True).items():
        assert v is before[k][0] and torch.equal(v, before[k][1])


@pytest.mark.parametrize(
    "config",
    [
        {"quant_method": "gptq", "bits": 5},
        {"quant_method": "gptq"},
        {"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"},
        {"quant_method": "awq", "bits": 8},
        {"quant_method": "awq", "bits": 4, "version": "gemv"},
    ],
)
def test_methods_without_a_reader_are_refused(config: Any) -> None:
    state, _ = checkpoint("GPTQ4")
    with pytest.raises(ValueError):
        load_quantized(Net(), state, config)


def test_compressed_tensors_state_their_shape(device: str) -> None:
    state, _ = checkpoint("CT4")
    for shape, fits in (([N, K], True), ([K, N], False), ([N], False)):
        state["proj.weight_shape"] = torch.tensor(shape)
        if fits:
            load_quantized(Net(), state, CONFIGS["CT4"])
        else:
            with pytest.raises(ValueError):
                load_quantized(Net(), state, CONFIGS["CT4"])
    state.pop("proj.weight_shape")
    with pytest.raises(ValueError, match="g_idx"):
        load_quantized(Net(), {**state, "proj.weight_g_idx": torch.zeros(K)}, CONFIGS["CT4"])
    assert compressed(4, False, np.random.default_rng(0))


def test_the_names_of_torchao_after_install() -> None:
    code = """
import sys, tabtorch
tabtorch.install()
assert "tabtorch.packed" not in sys.modules
from torchao.quantization import quantize_, Int4WeightOnlyConfig, Int8WeightOnlyConfig
from torchao.quantization.quant_api import quantize_ as same
import torch
assert same is quantize_
m = torch.nn.Linear(64, 4)
quantize_(m, Int4WeightOnlyConfig(group_size=32))
print(type(m.weight).__name__, m(torch.ones(2, 64)).shape)
try:
    import bitsandbytes
except ImportError:
    print("none")
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert out.stdout.split() == "Packed torch.Size([2, 4]) none".split(), out.stderr
