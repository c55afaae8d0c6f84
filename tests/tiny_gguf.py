"""A GGUF file of a tiny model of the llama family with random weights, written by PyPI's `gguf`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf.quants import quantize

WIDTH, INNER, HEADS, BLOCKS = 64, 96, 2, 2


def alphabet() -> list[str]:
    """How byte-level vocabularies write the bytes 0 to 255."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    return [chr(b if b in plain else next(rest)) for b in range(256)]


def write(path: Path, name: str = "A tiny random Llama") -> Path:
    """Tokens are bytes, and the two marks of ChatML."""
    rng = np.random.default_rng(0)
    tokens = [*alphabet(), "<|im_start|>", "<|im_end|>"]
    w: Any = gguf.GGUFWriter(path, "llama")
    w.add_name(name)
    w.add_context_length(512)
    w.add_embedding_length(WIDTH)
    w.add_feed_forward_length(INNER)
    w.add_block_count(BLOCKS)
    w.add_head_count(HEADS)
    w.add_head_count_kv(HEADS)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(10_000.0)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(tokens)
    w.add_token_merges(["Ġ t"])
    w.add_token_types([gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL] * 2)
    w.add_eos_token_id(257)

    def add(name: str, *shape: int, packed: bool = True) -> None:
        values = rng.standard_normal(shape).astype(np.float32) * 0.3
        if packed:
            w.add_tensor(name, quantize(values, Kind.Q8_0), raw_dtype=Kind.Q8_0)
        else:
            w.add_tensor(name, np.abs(values) + 0.5)

    add("token_embd.weight", len(tokens), WIDTH)
    add("output.weight", len(tokens), WIDTH)
    add("output_norm.weight", WIDTH, packed=False)
    for k in range(BLOCKS):
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{k}.{part}.weight", WIDTH, WIDTH)
        add(f"blk.{k}.ffn_gate.weight", INNER, WIDTH)
        add(f"blk.{k}.ffn_up.weight", INNER, WIDTH)
        add(f"blk.{k}.ffn_down.weight", WIDTH, INNER)
        add(f"blk.{k}.attn_norm.weight", WIDTH, packed=False)
        add(f"blk.{k}.ffn_norm.weight", WIDTH, packed=False)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path
