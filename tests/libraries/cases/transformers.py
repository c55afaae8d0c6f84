"""transformers: models made of configurations, forward and backward, generate(), Trainer, saving."""

from __future__ import annotations

import tempfile

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    Trainer,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
    get_linear_schedule_with_warmup,
    set_seed,
)

NEEDS = ("accelerate",)

_SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
#: what is dropped on a GPU is drawn by the GPU's own generator, in PyTorch too
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def _llama(**more):
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=50, num_key_value_heads=1, max_position_embeddings=64, **{**_SMALL, **more})
    )


def classifier(device):
    model = BertForSequenceClassification(BertConfig(vocab_size=60, num_labels=3, **_SMALL, **_NO_DROPOUT)).to(device)
    ids, labels = torch.randint(60, (4, 9)).to(device), torch.tensor([0, 1, 2, 1]).to(device)
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = get_linear_schedule_with_warmup(optimizer, 1, 4)
    losses = []
    for _ in range(3):
        out = model(input_ids=ids, attention_mask=mask, labels=labels)
        out.loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append([out.loss.item(), norm.item()])
    model.eval()
    return {"losses": losses, "logits": model(input_ids=ids, attention_mask=mask).logits}


def language_model(device):
    model = _llama().to(device)
    ids = torch.randint(50, (2, 12)).to(device)
    out = model(input_ids=ids, labels=ids, output_hidden_states=True)
    out.loss.backward()
    return {
        "loss": out.loss,
        "hidden": out.hidden_states[-1],
        "grad": model.model.layers[0].self_attn.q_proj.weight.grad,
        "embed": model.model.embed_tokens.weight.grad.norm(),
    }


def generating(device):
    model = _llama().to(device).eval()
    prompt = torch.tensor([[1, 5, 7], [1, 9, 3]]).to(device)
    options = {"max_new_tokens": 8, "pad_token_id": 0, "eos_token_id": None}
    set_seed(3)
    return {
        "greedy": model.generate(prompt, do_sample=False, **options),
        "beams": model.generate(prompt, num_beams=3, do_sample=False, **options),
        "drawn": model.generate(prompt, do_sample=True, temperature=0.9, top_k=20, top_p=0.95, **options),
        "penalised": model.generate(prompt, do_sample=False, repetition_penalty=1.3, no_repeat_ngram_size=2, **options),
    }


def generating_with_a_mask(device):
    model = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=32, n_embd=16, n_layer=2, n_head=2)).to(device)
    model.eval()
    prompt = torch.tensor([[0, 0, 5, 7], [1, 9, 3, 4]]).to(device)
    mask = (prompt != 0).long()
    out = model.generate(
        prompt,
        attention_mask=mask,
        max_new_tokens=6,
        do_sample=False,
        pad_token_id=0,
        output_scores=True,
        return_dict_in_generate=True,
    )
    return {"ids": out.sequences, "scores": torch.stack(out.scores)}


def sequence_to_sequence(device):
    config = T5Config(
        vocab_size=40,
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=2,
        num_heads=2,
        decoder_start_token_id=0,
        dropout_rate=0.0,
    )
    model = T5ForConditionalGeneration(config).to(device)
    ids, labels = torch.randint(2, 40, (2, 7)).to(device), torch.randint(2, 40, (2, 5)).to(device)
    labels[0, 3:] = -100
    loss = model(input_ids=ids, labels=labels).loss
    loss.backward()
    model.eval()
    return {
        "loss": loss,
        "grad": model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight.grad,
        "made": model.generate(ids, max_new_tokens=6, do_sample=False),
    }


def vision(device):
    model = ViTForImageClassification(ViTConfig(image_size=16, patch_size=4, num_labels=4, **_SMALL)).to(device)
    x, y = torch.randn(3, 3, 16, 16).to(device), torch.tensor([0, 3, 2]).to(device)
    out = model(pixel_values=x, labels=y)
    out.loss.backward()
    return {"loss": out.loss, "logits": out.logits, "grad": model.vit.embeddings.cls_token.grad}


class _Rows(torch.utils.data.Dataset):
    def __init__(self, n=24):
        g = torch.Generator().manual_seed(1)
        self.ids = torch.randint(50, (n, 8), generator=g)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


def trainer(device):
    set_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=8,
            num_train_epochs=2,
            learning_rate=1e-3,
            warmup_steps=1,
            weight_decay=0.01,
            logging_steps=1,
            eval_strategy="epoch",
            save_strategy="epoch",
            report_to=[],
            seed=0,
            use_cpu=device == "cpu",
        )
        run = Trainer(model=_llama(), args=args, train_dataset=_Rows(), eval_dataset=_Rows(8))
        done = run.train()
        history = [entry for entry in run.state.log_history if "loss" in entry or "eval_loss" in entry]
        again = LlamaForCausalLM.from_pretrained(f"{folder}/checkpoint-{done.global_step}").eval()
        logits = again(input_ids=_Rows(2).ids).logits
    return {
        "steps": done.global_step,
        "losses": [entry.get("loss", entry.get("eval_loss")) for entry in history],
        "norms": [entry["grad_norm"] for entry in history if "grad_norm" in entry],
        "logits": logits,
    }


def saved_and_loaded(device):
    model = _llama(tie_word_embeddings=True).to(device).eval()
    ids = torch.tensor([[1, 2, 3, 4]]).to(device)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, max_shard_size="10KB")
        config = AutoConfig.from_pretrained(folder)
        again = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").to(device).eval()
    return {
        "same": torch.equal(model(ids).logits, again(ids).logits),
        "kind": config.model_type,
        "logits": again(ids).logits,
    }
