"""Part of backend_people.py: tiny models of transformers, of random weights: logits, training, generation, in float32."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
import transformers as T

from backend_people_common import WAYS, D, answer, near

T.logging.set_verbosity_error()
_IDS: dict[str, Any] = {"vocab_size": 99, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 98}
_LM = {
    **_IDS, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128,
}  # fmt: skip
_ENCODER = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
_SURE = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
_BOTH = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "dropout": 0, "decoder_start_token_id": 1,
}  # fmt: skip
_LOCAL = {"head_dim": 8, "sliding_window": 8, "query_pre_attn_scalar": 8}
_PICTURE = {**_ENCODER, "image_size": 32, "patch_size": 8}


def _text() -> dict[str, torch.Tensor]:
    return {"input_ids": torch.randint(2, 98, (2, 12))}


def _padded() -> dict[str, torch.Tensor]:
    return {**_text(), "attention_mask": torch.tensor([[1] * 12, [1] * 7 + [0] * 5])}


def _two_texts() -> dict[str, torch.Tensor]:
    return {**_text(), "decoder_input_ids": torch.randint(2, 98, (2, 5))}


def _picture() -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(2, 3, 32, 32)}


def _sound() -> dict[str, torch.Tensor]:
    return {"input_features": torch.randn(2, 20, 60), "decoder_input_ids": torch.randint(2, 98, (2, 5))}


#: name -> (class, configuration, batch, whether it generates)
MODELS: dict[str, tuple[Any, Any, Any, bool]] = {
    "llama": (T.LlamaForCausalLM, T.LlamaConfig(**_LM), _text, True),
    "mistral": (T.MistralForCausalLM, T.MistralConfig(**_LM, sliding_window=8), _text, True),
    "qwen2": (T.Qwen2ForCausalLM, T.Qwen2Config(**_LM), _text, True),
    "qwen3": (T.Qwen3ForCausalLM, T.Qwen3Config(**_LM, head_dim=8), _text, True),
    "gemma": (T.GemmaForCausalLM, T.GemmaConfig(**_LM, head_dim=8), _text, True),
    "gemma2": (T.Gemma2ForCausalLM, T.Gemma2Config(**_LM, **_LOCAL), _text, True),
    "gemma3": (T.Gemma3ForCausalLM, T.Gemma3TextConfig(**_LM, **_LOCAL), _text, True),
    "phi": (T.PhiForCausalLM, T.PhiConfig(**{**_LM, "num_key_value_heads": 4}), _text, True),
    "phi3": (T.Phi3ForCausalLM, T.Phi3Config(**_LM), _text, True),
    "mixtral": (T.MixtralForCausalLM, T.MixtralConfig(**_LM, num_local_experts=4), _text, True),
    "gpt2": (
        T.GPT2LMHeadModel,
        T.GPT2Config(**_IDS, n_embd=32, n_layer=2, n_head=4, n_positions=128, resid_pdrop=0, attn_pdrop=0, embd_pdrop=0),
        _text,
        True,
    ),
    "gptneox": (T.GPTNeoXForCausalLM, T.GPTNeoXConfig(**_IDS, **_ENCODER), _text, True),
    "opt": (
        T.OPTForCausalLM,
        T.OPTConfig(**_IDS, hidden_size=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=4, word_embed_proj_dim=32, dropout=0.0),
        _text,
        True,
    ),
    "bloom": (T.BloomForCausalLM, T.BloomConfig(**_IDS, hidden_size=32, n_layer=2, n_head=4), _text, True),
    "mamba": (T.MambaForCausalLM, T.MambaConfig(**_IDS, hidden_size=32, num_hidden_layers=2, state_size=4), _text, True),
    "bert": (T.BertForMaskedLM, T.BertConfig(**_ENCODER, **_SURE, vocab_size=99), _padded, False),
    "roberta": (T.RobertaForSequenceClassification, T.RobertaConfig(**_ENCODER, **_SURE, vocab_size=99), _text, False),
    "distilbert": (
        T.DistilBertForQuestionAnswering,
        T.DistilBertConfig(dim=32, hidden_dim=64, n_layers=2, n_heads=4, vocab_size=99, dropout=0, attention_dropout=0, qa_dropout=0),
        _text,
        False,
    ),
    "t5": (
        T.T5ForConditionalGeneration,
        T.T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=99, decoder_start_token_id=0, dropout_rate=0),
        _two_texts,
        True,
    ),
    "bart": (
        T.BartForConditionalGeneration,
        T.BartConfig(**_IDS, **_BOTH, max_position_embeddings=64, forced_eos_token_id=None),
        _two_texts,
        True,
    ),
    "whisper": (
        T.WhisperForConditionalGeneration,
        T.WhisperConfig(
            **_IDS, **_BOTH, num_mel_bins=20, max_source_positions=30, max_target_positions=40, suppress_tokens=None,
            begin_suppress_tokens=None,
        ),
        _sound,
        True,
    ),
    "vit": (T.ViTForImageClassification, T.ViTConfig(**_PICTURE, **_SURE), _picture, False),
    "clip": (
        T.CLIPModel,
        T.CLIPConfig(
            text_config={**_ENCODER, **_IDS, "max_position_embeddings": 32}, vision_config=_PICTURE, projection_dim=16
        ),
        lambda: {**_text(), **_picture()},
        False,
    ),
}  # fmt: skip


def _moved(batch: dict[str, torch.Tensor], device: str) -> dict[str, torch.Tensor]:
    return {k: v.to(device) for k, v in batch.items()}


def _logits(output: Any) -> torch.Tensor:
    found = (getattr(output, name, None) for name in ("logits", "start_logits", "logits_per_image"))
    return next(x for x in found if x is not None)


def _built(name: str, **kw: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    kind, configuration, batch, _ = MODELS[name]
    torch.manual_seed(0)
    configuration = copy.deepcopy(configuration)
    model = kind._from_config(configuration, **kw) if kw else kind(configuration)
    torch.manual_seed(1)
    return model, batch()


def forward(name: str, way: str, **kw: Any) -> None:
    device, wrap = WAYS[way]
    model, batch = _built(name, **kw)
    model.eval()
    with torch.no_grad():
        want = _logits(model(**batch))
        got = _logits(wrap(model.to(device))(**_moved(batch, device)))
    assert got.device.type == device
    near(got, want, 1e-4, "logits")


def _steps(name: str, device: str, wrap: Any) -> tuple[list[float], dict[str, torch.Tensor]]:
    model, batch = _built(name)
    model.to(device).train()
    run, batch = wrap(model), _moved(batch, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses: list[float] = []
    gradients: dict[str, torch.Tensor] = {}
    for _ in range(5):
        loss = _logits(run(**batch)).float().log_softmax(-1)[..., 1].mean().neg()
        optimizer.zero_grad()
        loss.backward()
        if not losses:
            gradients = {n: p.grad.cpu().clone() for n, p in model.named_parameters() if p.grad is not None}
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses, gradients


def train(name: str, way: str) -> None:
    want, gradients = _steps(name, "cpu", lambda m: m)
    got, found = _steps(name, *WAYS[way])
    assert gradients.keys() == found.keys(), gradients.keys() ^ found.keys()
    for n, g in gradients.items():
        near(found[n], g, 1e-4, f"the gradient of {n}")
    assert max(abs(a - b) for a, b in zip(want, got)) < 1e-4, (want, got)


def generate(name: str, **kw: Any) -> None:
    model, batch = _built(name)
    model.eval()
    batch.pop("decoder_input_ids", None)
    kw = {"max_new_tokens": 12, "do_sample": False, **kw}
    want = model.generate(**batch, **kw)
    got = model.to(D).generate(**_moved(batch, D), **kw)
    assert got.device.type == D and torch.equal(got.cpu(), want), (want, got)


def sample(name: str) -> None:
    model, batch = _built(name)
    batch.pop("decoder_input_ids", None)
    batch = _moved(batch, D)
    found = model.to(D).eval().generate(**batch, max_new_tokens=6, do_sample=True, top_k=20, top_p=0.9, temperature=0.8)
    assert found.device.type == D and found.max() < 99


CASES: dict[str, Any] = {}
for _name, (*_, _generates) in MODELS.items():
    for _way in WAYS:
        CASES[f"forward_{_way}/{_name}"] = partial(forward, _name, _way)
        CASES[f"train_{_way}/{_name}"] = partial(train, _name, _way)
    CASES[f"attention_eager/{_name}"] = partial(forward, _name, "eager", attn_implementation="eager")
    if _generates:
        CASES[f"generate/{_name}"] = partial(generate, _name)
        CASES[f"generate_static/{_name}"] = partial(generate, _name, cache_implementation="static")
        CASES[f"generate_beams/{_name}"] = partial(generate, _name, num_beams=3)
        CASES[f"generate_sampled/{_name}"] = partial(sample, _name)

if __name__ == "__main__":
    answer(dict(sorted(CASES.items())))
