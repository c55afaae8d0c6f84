"""Models of transformers that PyTorch exported, with any batch and length: equal numbers here."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hf

import tabtorch
from conformance.compare import same
from conformance.translate import Translator, tensors
from tabtorch import export

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
TEXT = {**SMALL, "vocab_size": 50, "max_position_embeddings": 64}
B = torch.export.Dim("batch", min=1, max=16)


def ids(batch: int = 2) -> torch.Tensor:
    return (torch.arange(batch * 8) * 7 % 50).reshape(batch, 8)


def text(batch: int) -> dict[str, Any]:
    return {"input_ids": ids(batch), "use_cache": False}


def pixels(batch: int) -> dict[str, Any]:
    return {"pixel_values": torch.linspace(-1, 1, batch * 768).reshape(batch, 3, 16, 16).sin()}


def _gpt2() -> Any:
    config = hf.GPT2Config(
        vocab_size=50, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
    )
    return hf.GPT2LMHeadModel(config)


def _t5() -> Any:
    config = hf.T5Config(vocab_size=50, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
    return hf.T5ForConditionalGeneration(config)


CASES: dict[str, tuple[Callable[[], Any], Callable[[int], dict[str, Any]]]] = {
    "qwen2": (lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**TEXT, num_key_value_heads=2)), text),
    "llama": (lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**TEXT, num_key_value_heads=2)), text),
    "bert": (
        lambda: hf.BertModel(hf.BertConfig(**TEXT)),
        lambda n: {"input_ids": ids(n), "attention_mask": torch.ones(n, 8, dtype=torch.int64)},
    ),
    "vit": (lambda: hf.ViTForImageClassification(hf.ViTConfig(**SMALL, image_size=16, patch_size=8)), pixels),
    "gpt2": (_gpt2, text),
    "t5": (_t5, lambda n: {**text(n), "decoder_input_ids": ids(n)}),
}


@pytest.mark.parametrize("core", [False, True], ids=["training", "core"])
@pytest.mark.parametrize("name", CASES)
def test_equal(name: str, core: bool) -> None:
    if core and name == "gpt2":
        pytest.skip("PyTorch itself cannot decompose it")
    torch.manual_seed(0)
    make, inputs = CASES[name]
    model, file = make().eval(), io.BytesIO()
    dims = {k: {0: B} if isinstance(v, torch.Tensor) else None for k, v in inputs(2).items()}
    with warnings.catch_warnings():  # theirs, of their own code
        warnings.simplefilter("ignore")
        ep = torch.export.export(model, (), inputs(2), dynamic_shapes=dims, strict=False)
        torch.export.save(ep.run_decompositions() if core else ep, file)
    ours, to = export.load(file.getvalue(), map_location="cpu").module(), Translator("cpu")
    for n in (2, 3):
        with torch.no_grad():
            want = model(**inputs(n))
        got = ours(**{k: to(v) if isinstance(v, torch.Tensor) else v for k, v in inputs(n).items()})
        mine = [t for t in tabtorch.utils._pytree.tree_leaves(got) if isinstance(t, tabtorch.Tensor)]
        for w, g in zip(tensors(want), mine, strict=True):
            same(w, g.detach(), lambda dtype: (2e-4, 2e-5), where=name, values=True)
        first = next(k for k in want if isinstance(want[k], torch.Tensor))
        same(want[first], got[first].detach(), lambda dtype: (2e-4, 2e-5), where=first, values=True)


def test_cache() -> None:
    """A cache of keys and values goes in as a dict of its parts, or as what an earlier call gave."""
    from transformers.integrations import executorch

    executorch.register_dynamic_cache_export_support()
    torch.manual_seed(0)
    model = hf.Qwen2ForCausalLM(hf.Qwen2Config(**TEXT, num_key_value_heads=2)).eval()
    with torch.no_grad():
        cache = model(input_ids=ids(), use_cache=True).past_key_values
        given = {"input_ids": ids()[:, :1], "past_key_values": cache, "use_cache": True}
        file = io.BytesIO()
        with warnings.catch_warnings():  # theirs, of their own code
            warnings.simplefilter("ignore")
            torch.export.save(torch.export.export(model, (), given, strict=False), file)
        parts = {"key_cache": [x.keys for x in cache.layers], "value_cache": [x.values for x in cache.layers]}
        parts = {k: [t.clone() for t in v] for k, v in parts.items()}
        want = model(**given)
    ours, to = export.load(file.getvalue(), map_location="cpu").module(), Translator("cpu")
    mine = {k: [to(t) for t in v] for k, v in parts.items()}
    got = ours(input_ids=to(ids()[:, :1]), past_key_values=mine, use_cache=True)
    same(want.logits, got["logits"].detach(), lambda dtype: (2e-4, 2e-5), where="logits", values=True)
    made = got["past_key_values"]
    for k, layer in enumerate(want.past_key_values.layers):
        same(layer.keys, made["key_cache"][k].detach(), lambda dtype: (2e-4, 2e-5), where="keys", values=True)
    shorter = type(made)(key_cache=[t[:, :, :8] for t in made["key_cache"]], value_cache=mine["value_cache"])
    shorter.class_name = made.class_name
    again = ours(input_ids=to(ids()[:, :1]), past_key_values=shorter, use_cache=True)
    tabtorch.testing.assert_close(again["logits"], got["logits"])
    with pytest.raises(ValueError, match="exported input tree spec"):
        ours(input_ids=to(ids()[:, :1]), past_key_values={"keys": [], "values": []}, use_cache=True)
