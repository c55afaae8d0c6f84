"""GGUF files: what PyPI's `gguf` writes is read, bytes stay packed, and models of it are transformers' models."""

from __future__ import annotations

import gc
import io
from typing import Any

import gguf
import numpy as np
import pytest
import torch as pytorch
import transformers
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize, quantize

import tabtorch as torch
from fuzz import gguf_files
from tabtorch.bridge import get_bridge
from tabtorch.engine import graph, memory, plan
from tabtorch.gguf import GGUFError, Llama, load, model, reader
from tabtorch.packed import Packed


def written(path: Any, metadata: dict[str, Any], tensors: dict[str, tuple[Any, Any]], arch: str = "llama") -> Any:
    """A file of `gguf`'s own writer. tensors: name -> (bytes or numbers, their kind)."""
    w = gguf.GGUFWriter(path, arch)
    for key, value in metadata.items():
        if isinstance(value, (bool, np.bool_)):
            w.add_bool(key, value)
        elif isinstance(value, str):
            w.add_string(key, value)
        elif isinstance(value, float):
            w.add_float32(key, value)
        elif isinstance(value, list):
            w.add_array(key, value)
        else:
            w.add_uint32(key, value)
    for name, (data, kind) in tensors.items():
        w.add_tensor(name, data, raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


@pytest.fixture
def small(tmp_path: Any) -> Any:
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((40, 64), (3, 5), (24, 32)))
    tensors = {
        "a": (quantize(a, Kind.Q4_0), Kind.Q4_0),
        "b": (b, Kind.F32),
        "h": (b.astype(np.float16), Kind.F16),
        "c": (quantize(c, Kind.Q8_0), Kind.Q8_0),
    }
    metadata = {"n": 7, "x": 0.5, "yes": True, "s": "hé", "l": ["a", "", "ü"], "f": [1.5, -2.0], "i": [[1, 2], [3]]}
    return written(tmp_path / "small.gguf", metadata, tensors), metadata, tensors


def check_small(found: Any, metadata: Any, tensors: Any) -> None:
    for key, value in metadata.items():
        assert found.metadata[key] == value
    assert list(found.tensors) == list(tensors)
    for name, (data, kind) in tensors.items():
        want = dequantize(data, kind) if kind in (Kind.Q4_0, Kind.Q8_0) else data
        got = found.tensors[name]
        got = got.dequantize() if isinstance(got, Packed) else got
        assert np.array_equal(got.numpy(), want), name


def test_a_file_is_read_from_wherever_it_is(device: str, small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path, *want = small
    for source in (path, str(path), path.read_bytes(), io.BytesIO(path.read_bytes())):
        check_small(load(source), *want)
    # pieces that end anywhere, and buffers that hold some rows
    monkeypatch.setattr("tabtorch.gguf.header.STEP", 7)
    monkeypatch.setattr("tabtorch.serialization.transfer.PIECE", 64)
    monkeypatch.setattr(reader, "largest", lambda device: 400)
    found = load(path)
    assert len(found.tensors["a"].parts) == 4
    check_small(found, *want)


def test_a_connection_is_read_forwards(small: Any) -> None:
    path, *want = small
    data, at = path.read_bytes(), 0

    class Forwards(reader.Reader):
        size = len(data)

        def read(self, offset: int, nbytes: int) -> Any:
            nonlocal at
            assert offset >= at
            at = offset + nbytes
            return data[offset : offset + nbytes]

    check_small(load(Forwards()), *want)


def test_it_takes_the_bytes_of_the_file(tmp_path: Any, device: str) -> None:
    rng = np.random.default_rng(1)
    w = quantize(rng.standard_normal((256, 512)).astype(np.float32), Kind.Q4_0)
    path = written(tmp_path / "w.gguf", {}, {"w": (w, Kind.Q4_0)})
    gc.collect()  # what tests before left in cycles would be given back while this one counts
    graph.flush()
    before = sum(memory.memory.live)
    found = load(path)
    graph.flush()
    took = sum(memory.memory.live) - before
    assert found.tensors["w"].packed_nbytes <= took <= 1.15 * path.stat().st_size


def test_what_is_no_such_file_is_refused(small: Any) -> None:
    data = small[0].read_bytes()
    for bad in (
        b"",
        b"GGUF",
        b"GGML" + data[4:],
        data[:4] + b"\1\0\0\0" + data[8:],
        data[:4] + b"\0\0\0\3",
        data[:-100],
    ):
        with pytest.raises(GGUFError):
            load(bad)
    for at in (8, 16, 24):  # counts and a length
        with pytest.raises(GGUFError, match="beyond"):
            load(data[:at] + b"\xff" * 7 + b"\x7f" + data[at + 8 :])


def test_version_2_is_read(small: Any) -> None:
    data = small[0].read_bytes()
    check_small(load(data[:4] + b"\2\0\0\0" + data[8:]), *small[1:])


def test_a_slice_of_the_fuzzer() -> None:
    done, refused, found = gguf_files.run("5ad01", 300)
    assert done == 300 and 0 < refused < 300 and found == []


# ---- models


def llama_rows(w: Any, heads: int) -> Any:
    """The rows of a projection in the order of llama.cpp, in which what is rotated together lies side by side."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def back(w: Any, heads: int) -> Any:
    return w.reshape(heads, w.shape[0] // heads // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def pair(path: Any, arch: str, kind: Any, tied: bool = False) -> tuple[Llama, Any]:
    """A random model as a file's, and as transformers' on the weights that the file stands for."""
    pytorch.manual_seed(3)
    make = {"llama": transformers.LlamaConfig, "qwen2": transformers.Qwen2Config, "qwen3": transformers.Qwen3Config}[
        arch
    ]
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    # angles as llama 3 has them, which a file gives as factors; positions that are divided; heads of another size
    more: dict[str, Any] = {
        "llama": {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 5000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
        "qwen2": {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}},
        "qwen3": {"head_dim": 32},
    }[arch]
    config = make(
        vocab_size=80, num_key_value_heads=2, max_position_embeddings=640, tie_word_embeddings=tied, **sizes, **more
    )
    theirs = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with pytorch.no_grad():
        for p in theirs.parameters():
            p.normal_(0, 0.15).add_(1.0 if p.ndim == 1 else 0.0)
    tensors: dict[str, Any] = {}
    for name, p in theirs.named_parameters():
        heads = {"q_proj": 4, "k_proj": 2}.get(name.split(".")[-2], 0) if arch == "llama" else 0
        value = p.detach().numpy()
        value = llama_rows(value, heads) if heads else value
        data, of = (quantize(value, kind), kind) if p.ndim == 2 else (value, Kind.F32)
        *place, leaf = name.removeprefix("model.").split(".")
        if place[0] == "layers":
            to = f"blk.{place[1]}.{NAMES['.'.join(place[2:])]}.{leaf}"
        else:
            to = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}[place[0]] + "." + leaf
        tensors[to] = data, of
        held = dequantize(data, of) if p.ndim == 2 else data
        with pytorch.no_grad():
            p.copy_(pytorch.from_numpy(np.array(back(held, heads) if heads else held)))
    if arch == "llama":
        angles = theirs.model.rotary_emb.inv_freq.numpy()
        factors = (5000.0 ** (-np.arange(0, 16, 2) / 16) / angles).astype(np.float32)
        assert factors.min() < 1.01 < 7 < factors.max()
        tensors["rope_freqs.weight"] = factors, Kind.F32
    metadata = {
        f"{arch}.{k}": v
        for k, v in {
            "context_length": 640,
            "embedding_length": 64,
            "feed_forward_length": 96,
            "block_count": 2,
            "attention.head_count": 4,
            "attention.head_count_kv": 2,
            "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
            "rope.freq_base": float(config.rope_parameters["rope_theta"]),
            **({"rope.scaling.type": "linear", "rope.scaling.factor": 2.0} if arch == "qwen2" else {}),
            **({"attention.key_length": 32, "attention.value_length": 32} if arch == "qwen3" else {}),
        }.items()
    }
    return model(written(path, metadata, tensors, arch)), theirs


@pytest.mark.parametrize(
    ("arch", "kind", "tied"),
    [("llama", Kind.Q8_0, False), ("qwen2", Kind.Q4_0, True), ("qwen3", Kind.F16, False)],
    ids=lambda x: getattr(x, "name", str(x)),
)
def test_logits_and_tokens_are_transformers(device: str, tmp_path: Any, arch: str, kind: Any, tied: bool) -> None:
    if device == "webgpu" and arch == "qwen2":
        pytest.skip("a GPU in software is slow; the two others have all of it")
    ours, theirs = pair(tmp_path / "m.gguf", arch, kind, tied)
    ids = [3, 71, 5, 0, 44, 18, 2]
    with pytorch.no_grad():
        want = theirs(pytorch.tensor([ids])).logits.numpy()
        tokens = theirs.generate(
            pytorch.tensor([ids]),
            attention_mask=pytorch.ones(1, 7, dtype=pytorch.long),
            max_new_tokens=12,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )[0, 7:].tolist()
    assert np.allclose(ours(torch.tensor([ids])).numpy(), want, rtol=1e-3, atol=1e-3)
    assert list(ours.generate(ids, 12)) == tokens
    assert list(ours.generate(ids, 12, stop=tokens[4:5])) == tokens[: tokens.index(tokens[4]) + 1]
    if device == "webgpu":
        return
    # one at a time, at positions that are tensors
    parts = [ours(torch.tensor([[t]]), torch.tensor(k)) for k, t in enumerate(ids)]
    assert np.allclose(torch.cat(parts, 1).numpy(), want, rtol=1e-3, atol=1e-3)


def test_a_step_is_one_plan_that_is_kept(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    with torch.device("cpu"):
        ours, _ = pair(tmp_path / "m.gguf", "llama", Kind.Q8_0)
        tokens = ours.generate([1, 2, 3], 504)
        for _ in range(4):
            next(tokens)
        bridge, define, schedule = get_bridge(), get_bridge().define_kernel, plan._scheduled
        monkeypatch.setattr(bridge, "define_kernel", lambda spec: (made.append(spec["name"]), define(spec))[1])
        monkeypatch.setattr(plan, "_scheduled", lambda *a, **k: (made.append("schedule"), schedule(*a, **k))[1])
        assert len(list(tokens)) == 500
    assert made == []


def test_draws_are_those_of_the_seed(device: str, tmp_path: Any) -> None:
    ours, _ = pair(tmp_path / "m.gguf", "llama", Kind.Q8_0)
    options = {"temperature": 1.5, "top_k": 20, "top_p": 0.9}
    first = list(ours.generate([1, 2], 8, seed=1, **options))
    assert first == list(ours.generate([1, 2], 8, seed=1, **options))
    assert any(first != list(ours.generate([1, 2], 8, seed=s, **options)) for s in (2, 3))
    assert list(ours.generate([1, 2], 8, temperature=1.0, top_k=1)) == list(ours.generate([1, 2], 8))


def test_what_is_no_model_is_refused(small: Any, tmp_path: Any) -> None:
    with pytest.raises(GGUFError, match=r"llama\.embedding_length must be"):
        model(small[0])
    ours, _ = pair(tmp_path / "m.gguf", "qwen2", Kind.Q8_0)
    found = load(tmp_path / "m.gguf")
    with pytest.raises(GGUFError, match="experts"):
        model(found._replace(metadata={**found.metadata, "qwen2.expert_count": 8}))
    for key, value in (("rope.dimension_count", 8), ("attention.sliding_window", 4), ("rope.scaling.type", "yarn")):
        with pytest.raises(GGUFError, match="not supported"):
            model(found._replace(metadata={**found.metadata, f"qwen2.{key}": value}))
    with pytest.raises(GGUFError, match="no qwen2 has: extra"):
        model(found._replace(tensors={**found.tensors, "extra": torch.zeros(2)}))
    with pytest.raises(GGUFError, match="no tensor 'output_norm"):
        model(found._replace(tensors={k: v for k, v in found.tensors.items() if k != "output_norm.weight"}))
    with pytest.raises(GGUFError, match="is of"):
        model(found._replace(tensors={**found.tensors, "output_norm.weight": torch.zeros(2)}))
    with pytest.raises(ValueError, match="more than the model's 640"):
        ours(torch.tensor([[1]]), 640)
    with pytest.raises(ValueError, match="more than the model's 640"):
        next(ours.generate([1] * 641, 1))
    assert len(list(ours.generate([1] * 638, 9))) == 3  # the last is not written
