"""Random models of transformers as GGUF files, by the conventions of llama.cpp's converter, and the same weights in transformers."""

from __future__ import annotations

from typing import Any, NamedTuple

import gguf
import numpy as np
import torch as pytorch
import transformers
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize, quantize

VOCABULARY, CONTEXT = 80, 640


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


def llama_rows(w: Any, heads: int) -> Any:
    """The rows of a projection in the order of llama.cpp, in which what is rotated together lies side by side."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def back(w: Any, heads: int) -> Any:
    return w.reshape(heads, w.shape[0] // heads // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


class Case(NamedTuple):
    """A model: its architecture in GGUF, the configuration's class, what it is given besides the sizes, and what metadata has."""

    arch: str
    config: str
    options: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    turned: bool = False  # rows of queries and keys are in llama.cpp's order
    plus_one: bool = False  # weights of norms are what is added to one


def rope(kind: str, **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 5000.0, **more}}


_LLAMA3 = rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
_LONG = [1.0 + 0.25 * k for k in range(6)]
_SHORT = [1.0 + 0.125 * k for k in range(6)]
_GEMMA3 = {
    "full_attention": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 8.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
}

CASES = {
    "llama": Case("llama", "LlamaConfig", turned=True),
    "llama3": Case("llama", "LlamaConfig", _LLAMA3, turned=True),
    "mistral": Case("llama", "MistralConfig", {"sliding_window": 4}, {"attention.sliding_window": 4}, turned=True),
    "smollm3": Case(
        "smollm3", "SmolLM3Config", {"num_hidden_layers": 4, "pad_token_id": 0}, {"block_count": 4}, turned=True
    ),
    "qwen2": Case(
        "qwen2", "Qwen2Config", rope("linear", factor=2.0), {"rope.scaling.type": "linear", "rope.scaling.factor": 2.0}
    ),
    "qwen2 yarn": Case(
        "qwen2",
        "Qwen2Config",
        rope("yarn", factor=4.0, original_max_position_embeddings=160),
        {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 160},
    ),
    "qwen3": Case("qwen3", "Qwen3Config", {"head_dim": 32}, {"attention.key_length": 32, "attention.value_length": 32}),
    "gemma": Case(
        "gemma",
        "GemmaConfig",
        {"head_dim": 32, "hidden_activation": "gelu_pytorch_tanh"},
        {"attention.key_length": 32, "attention.value_length": 32},
        plus_one=True,
    ),
    "gemma2": Case(
        "gemma2",
        "Gemma2Config",
        {"head_dim": 32, "sliding_window": 4, "query_pre_attn_scalar": 32, "attn_logit_softcapping": 2.0},
        {
            "attention.key_length": 32,
            "attention.value_length": 32,
            "attention.sliding_window": 4,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 30.0,
        },
        plus_one=True,
    ),
    "gemma3": Case(
        "gemma3",
        "Gemma3TextConfig",
        {
            "head_dim": 32,
            "sliding_window": 4,
            "query_pre_attn_scalar": 32,
            "num_hidden_layers": 7,
            "rope_parameters": _GEMMA3,
        },
        {
            "attention.key_length": 32,
            "attention.value_length": 32,
            "attention.sliding_window": 4,
            "block_count": 7,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 8.0,
        },
        plus_one=True,
    ),
    "phi3": Case("phi3", "Phi3Config", {"sliding_window": 5, "pad_token_id": 0}, {"attention.sliding_window": 5}),
    "phi3 long": Case(
        "phi3",
        "Phi3Config",
        {
            "pad_token_id": 0,
            "original_max_position_embeddings": 640,
            "partial_rotary_factor": 0.75,
            "max_position_embeddings": 1280,
            **rope("longrope", long_factor=_LONG, short_factor=_SHORT, partial_rotary_factor=0.75, factor=2.0),
        },
        {
            "rope.dimension_count": 12,
            "rope.scaling.original_context_length": 640,
            "context_length": 1280,
            "rope.scaling.attn_factor": float(np.sqrt(1 + np.log(2) / np.log(640))),
        },
    ),
    "starcoder2": Case("starcoder2", "Starcoder2Config", {"sliding_window": None}),
}


def pair(path: Any, name: str, kind: Any, tied: bool = False, **metadata: Any) -> tuple[Any, Any]:
    """A random model's file, and it in transformers on the weights that the file stands for. metadata: more of it."""
    pytorch.manual_seed(3)
    case = CASES[name]
    sizes: dict[str, Any] = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    sizes |= {"vocab_size": VOCABULARY, "num_key_value_heads": 2, "max_position_embeddings": CONTEXT}
    config = getattr(transformers, case.config)(**{**sizes, "tie_word_embeddings": tied, **case.options})
    theirs = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with pytorch.no_grad():
        for p in theirs.parameters():
            p.normal_(0, 0.15).add_(1.0 if p.ndim == 1 and not case.plus_one else 0.0)
    arch = next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == case.arch)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    tensors: dict[str, Any] = {}
    for own, p in theirs.named_parameters():
        heads = {"q_proj": 4, "k_proj": 2}.get(own.split(".")[-2], 0) if case.turned else 0
        value = p.detach().numpy()
        value = llama_rows(value, heads) if heads else value
        value = value + 1 if case.plus_one and own.endswith("norm.weight") else value
        data, of = (quantize(value, kind), kind) if p.ndim == 2 else (value, Kind.F32)
        to = names.get_name(own, try_suffixes=(".weight", ".bias"))
        assert to is not None, own
        tensors[to] = data, of
        held = dequantize(data, of) if p.ndim == 2 else data - 1 if case.plus_one else data
        with pytorch.no_grad():
            p.copy_(pytorch.from_numpy(np.array(back(held, heads) if heads else held)))
    if name == "llama3":
        angles = theirs.model.rotary_emb.inv_freq.numpy()
        factors = (5000.0 ** (-np.arange(0, 16, 2) / 16) / angles).astype(np.float32)
        assert factors.min() < 1.01 < 7 < factors.max()
        tensors["rope_freqs.weight"] = factors, Kind.F32
    if name == "phi3 long":
        for which, values in (("long", _LONG), ("short", _SHORT)):
            tensors[f"rope_factors_{which}.weight"] = np.array(values, np.float32), Kind.F32
    eps = getattr(config, "rms_norm_eps", None) or config.norm_epsilon
    theta = (config.rope_parameters.get("full_attention") or config.rope_parameters)["rope_theta"]
    values = {
        "context_length": CONTEXT,
        "embedding_length": 64,
        "feed_forward_length": 96,
        "block_count": 2,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.layer_norm_epsilon" if case.arch == "starcoder2" else "attention.layer_norm_rms_epsilon": float(eps),
        "rope.freq_base": float(theta),
        **case.metadata,
    }
    return written(path, {f"{case.arch}.{k}": v for k, v in values.items()} | metadata, tensors, case.arch), theirs
