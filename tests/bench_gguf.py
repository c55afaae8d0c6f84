"""What a token costs of a model in a GGUF file: random weights of Llama 3.2 1B's sizes in four bits, written to a folder of its own.

bench_gguf.py [--kind Q4_0] [--blocks 16] [--tokens 64] [--rounds 5] [--device webgpu]

Prints the time until the file is on the device, the first token after a prompt (kernels are compiled), and of rounds of so many tokens
milliseconds a token, as `generate` gives them one after another: median and minimum. Then bytes on the device over bytes of the file,
dispatches a token, and kernels compiled after the first round, which are to be none.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as Kind

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "py")]

WIDTH, INNER, HEADS, KV, VOCABULARY = 2048, 8192, 32, 8, 128_256


def write(path: Path, kind: Kind, blocks: int) -> Path:
    """Blocks of random bytes, with scales near those of a trained model."""
    rng = np.random.default_rng(0)
    w: Any = gguf.GGUFWriter(path, "llama")
    w.add_context_length(2048)
    w.add_embedding_length(WIDTH)
    w.add_feed_forward_length(INNER)
    w.add_block_count(blocks)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(500_000.0)
    w.add_vocab_size(VOCABULARY)
    size, length = GGML_QUANT_SIZES[kind]

    def add(name: str, rows: int, width: int) -> None:
        data = rng.integers(0, 256, (rows, width // size, length), dtype=np.uint8)
        data[..., :2] = np.full(1, 0.004, np.float16).view(np.uint8)
        if kind in (Kind.Q4_K, Kind.Q5_K):  # a second scale, of the minima
            data[..., :2], data[..., 2:4] = (np.full(1, v, np.float16).view(np.uint8) for v in (1e-4, 8e-4))
        if kind == Kind.Q6_K:  # whose scale stands last
            data = rng.integers(0, 256, data.shape, dtype=np.uint8)
            data[..., -2:] = np.full(1, 1e-5, np.float16).view(np.uint8)
        w.add_tensor(name, data.reshape(rows, -1), raw_dtype=kind)

    def ones(name: str) -> None:
        w.add_tensor(name, np.ones(WIDTH, np.float32))

    add("token_embd.weight", VOCABULARY, WIDTH)
    ones("output_norm.weight")
    for k in range(blocks):
        add(f"blk.{k}.attn_q.weight", WIDTH, WIDTH)
        add(f"blk.{k}.attn_k.weight", WIDTH * KV // HEADS, WIDTH)
        add(f"blk.{k}.attn_v.weight", WIDTH * KV // HEADS, WIDTH)
        add(f"blk.{k}.attn_output.weight", WIDTH, WIDTH)
        add(f"blk.{k}.ffn_gate.weight", INNER, WIDTH)
        add(f"blk.{k}.ffn_up.weight", INNER, WIDTH)
        add(f"blk.{k}.ffn_down.weight", WIDTH, INNER)
        ones(f"blk.{k}.attn_norm.weight")
        ones(f"blk.{k}.ffn_norm.weight")
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--kind", default="Q4_0")
    arguments.add_argument("--blocks", type=int, default=16)
    arguments.add_argument("--tokens", type=int, default=64)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--device", default="webgpu")
    given = arguments.parse_args()

    import tabtorch as torch
    from tabtorch.bridge import get_bridge
    from tabtorch.gguf import model

    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "m.gguf", Kind[given.kind], given.blocks)
        size = path.stat().st_size
        with torch.device(given.device):
            start = time.perf_counter()
            llm = model(path, length=2048)
            print(
                f"{size / 1e6:.0f} MB {given.kind} on the device after {time.perf_counter() - start:.1f} s", flush=True
            )
            bridge = get_bridge()
            adapter = (bridge.info.get("webgpu") or {}).get("adapter", {})
            print("adapter:", adapter.get("description") or adapter.get("device") or "none")
            print(f"bytes on the device: {bridge.stats()['bytes'] / size:.3f} of the file's")

            def produce(prompt: list[int]) -> float:
                start = time.perf_counter()
                made = list(llm.generate(prompt, given.tokens, stop=[]))
                return 1e3 * (time.perf_counter() - start) / max(1, len(made))

            prompt = [1, 2, 3, 4, 5, 6, 7, 8]
            start = time.perf_counter()
            next(iter(llm.generate(prompt, 1)))
            print(f"first token: {time.perf_counter() - start:.2f} s")
            produce(prompt)
            warm = dict(bridge.stats())
            times = [produce([*prompt, k]) for k in range(given.rounds)]
            done = dict(bridge.stats())
    print(f"a token: median {statistics.median(times):.2f}, minimum {min(times):.2f} ms")
    count = given.rounds * given.tokens
    for key in ("runs", "submits", "dispatches", "reads"):
        print(f"  {key}: {(done[key] - warm[key]) / count:.2f} a token")
    print(f"after the first round: {done['kernels'] - warm['kernels']} kernels compiled")


if __name__ == "__main__":
    main()
