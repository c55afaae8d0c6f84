"""Models of GGUF files are transformers' models on the weights that the files stand for, in every architecture that is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch as pytorch
from gguf import GGMLQuantizationType as Kind

import tabtorch as torch
from gguf_models import CASES, pair
from tabtorch.gguf import GGUFError, load, model
from tabtorch.gguf.config import FAMILIES

IDS = [3, 71, 5, 0, 44, 18, 2, 9, 33]


def test_every_architecture_has_a_case() -> None:
    assert {c.arch for c in CASES.values()} == set(FAMILIES)


@pytest.mark.parametrize("name", CASES)
def test_logits_and_tokens_are_transformers(tmp_path: Any, name: str) -> None:
    tied = name in ("qwen2", "gemma", "gemma2", "gemma3")
    kind = {"qwen2": Kind.Q4_0, "qwen3": Kind.F16}.get(name, Kind.Q8_0)
    path, theirs = pair(tmp_path / "m.gguf", name, kind, tied)
    with torch.device("cpu"):
        ours = model(path, length=640)
        with pytorch.no_grad():
            want = theirs(pytorch.tensor([IDS])).logits.numpy()
            tokens = theirs.generate(
                pytorch.tensor([IDS]),
                attention_mask=pytorch.ones(1, len(IDS), dtype=pytorch.long),
                max_new_tokens=12,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
            )[0, len(IDS) :].tolist()
        assert np.allclose(ours(torch.tensor([IDS])).numpy(), want, rtol=1e-3, atol=1e-3)
        assert list(ours.generate(IDS, 12)) == tokens
        # one at a time, at positions that are tensors
        parts = [ours(torch.tensor([[t]]), torch.tensor(k)) for k, t in enumerate(IDS)]
        assert np.allclose(torch.cat(parts, 1).numpy(), want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_on_a_gpu(tmp_path: Any, name: str) -> None:
    path, theirs = pair(tmp_path / "m.gguf", name, Kind.Q8_0, name == "gemma2")
    with torch.device("webgpu"):
        ours = model(path, length=64)
        with pytorch.no_grad():
            want = theirs(pytorch.tensor([IDS])).logits.numpy()
        assert np.allclose(ours(torch.tensor([IDS])).numpy(), want, rtol=1e-3, atol=1e-3)


def test_an_unknown_architecture_is_an_error_that_lists_the_known(tmp_path: Any) -> None:
    path, _ = pair(tmp_path / "m.gguf", "llama", Kind.Q8_0)
    found = load(path, "cpu")
    with pytest.raises(GGUFError, match="'mamba' is not supported; llama, qwen2, qwen3"):
        model(found._replace(metadata={**found.metadata, "general.architecture": "mamba"}))


def test_positions_beyond_the_original_have_the_long_factors(tmp_path: Any) -> None:
    path, theirs = pair(tmp_path / "m.gguf", "phi3 long", Kind.Q8_0)
    with torch.device("cpu"):
        ours = model(path, length=700)
        cos, sin = theirs.model.rotary_emb(pytorch.zeros(1), pytorch.arange(700)[None])
        assert np.allclose(ours.cos.numpy(), cos[0, :, :6].numpy(), atol=1e-4)
        assert np.allclose(ours.sin.numpy(), sin[0, :, :6].numpy(), atol=1e-4)
        assert not np.allclose(ours.cos.numpy(), model(path, length=640).cos.numpy()[:1], atol=1e-2)
