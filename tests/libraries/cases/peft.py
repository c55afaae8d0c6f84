"""peft: adapters of language models and of one's own modules, trained, merged, saved."""

from __future__ import annotations

import tempfile

import torch
from peft import (
    IA3Config,
    LoHaConfig,
    LoraConfig,
    PeftModel,
    PrefixTuningConfig,
    PromptTuningConfig,
    get_peft_model,
    get_peft_model_state_dict,
)
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

NEEDS = ("transformers", "accelerate")


def _llama():
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=50,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            intermediate_size=32,
        )
    )


def _steps(model, device, n=3):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    ids = torch.randint(50, (2, 8)).to(device)
    losses = []
    for _ in range(n):
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def lora(device):
    config = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], lora_dropout=0.0, task_type="CAUSAL_LM")
    model = get_peft_model(_llama(), config).to(device)
    losses = _steps(model, device)
    ids = torch.tensor([[1, 2, 3]]).to(device)
    before = model(input_ids=ids).logits
    merged = model.merge_and_unload()
    return {"losses": losses, "trained": model.get_nb_trainable_parameters(), "y": before, "merged": merged(ids).logits}


def saved_and_loaded(device):
    base = _llama()
    state = {k: v.clone() for k, v in base.state_dict().items()}
    model = get_peft_model(base, LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")).to(device)
    _steps(model, device, 2)
    ids = torch.tensor([[1, 2, 3]]).to(device)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        fresh = _llama()
        fresh.load_state_dict(state)
        again = PeftModel.from_pretrained(fresh, folder).to(device)
    return {
        "keys": sorted(get_peft_model_state_dict(model))[:3],
        "y": again(input_ids=ids).logits,
        "same": torch.allclose(again(input_ids=ids).logits, model(input_ids=ids).logits, atol=1e-6),
    }


def several_adapters(device):
    model = get_peft_model(_llama(), LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    model.add_adapter("other", LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    model.to(device)
    ids = torch.tensor([[1, 2, 3]]).to(device)
    first = model(input_ids=ids).logits
    model.set_adapter("other")
    second = model(input_ids=ids).logits
    model.add_weighted_adapter(["default", "other"], [0.5, 0.5], "both", combination_type="linear")
    model.set_adapter("both")
    third = model(input_ids=ids).logits
    with model.disable_adapter():
        without = model(input_ids=ids).logits
    return {"first": first, "second": second, "third": third, "without": without}


def dora_and_others(device):
    found = {}
    for name, config in {
        "dora": LoraConfig(r=2, target_modules=["q_proj"], use_dora=True, task_type="CAUSAL_LM"),
        "ia3": IA3Config(
            target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"], task_type="CAUSAL_LM"
        ),
        "loha": LoHaConfig(r=2, target_modules=["q_proj"]),
    }.items():
        found[name] = _steps(get_peft_model(_llama(), config).to(device), device)
    return found


def prompts(device):
    found = {}
    for name, config in {
        "prompt": PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3),
        "prefix": PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3),
    }.items():
        found[name] = _steps(get_peft_model(_llama(), config).to(device), device)
    return found


def own_module(device):
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    model = get_peft_model(net, LoraConfig(r=2, target_modules=["0"], modules_to_save=["2"])).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    x, y = torch.randn(8, 4).to(device), torch.randint(3, (8,)).to(device)
    losses = []
    for _ in range(3):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "y": model(x)}
