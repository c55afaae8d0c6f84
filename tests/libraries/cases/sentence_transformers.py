"""sentence-transformers: encoding, similarity, losses, training, with a small model and tokenizer made here."""

from __future__ import annotations

import tempfile

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer, losses, models, util
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast

NEEDS = ("transformers", "accelerate")

_SENTENCES = ["a cat sat on the mat", "the dog sat", "a man rides a red bicycle", "the cat is on a mat"]


def _folder(where, kind=BertModel, **more):
    words = {
        w: i for i, w in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *sorted(set(" ".join(_SENTENCES).split()))])
    }
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(where)
    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    torch.manual_seed(0)
    kind(
        BertConfig(vocab_size=len(words), hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **size, **more)
    ).save_pretrained(where)
    return where


def _model(device):
    with tempfile.TemporaryDirectory() as folder:
        word = models.Transformer(_folder(folder), max_seq_length=16)
    pool = models.Pooling(16, pooling_mode="mean")
    return SentenceTransformer(modules=[word, pool, models.Normalize()], device=device)


def encoding(device):
    model = _model(device)
    found = model.encode(_SENTENCES, batch_size=2)
    return {
        "found": found,
        "similar": model.similarity(found, found),
        "tensor": model.encode("the cat", convert_to_tensor=True),
    }


def searching(device):
    model = _model(device)
    corpus = model.encode(_SENTENCES, convert_to_tensor=True)
    hits = util.semantic_search(model.encode(["a cat"], convert_to_tensor=True), corpus, top_k=2)[0]
    pairs = util.paraphrase_mining(model, _SENTENCES)
    return {
        "ids": [h["corpus_id"] for h in hits],
        "scores": [h["score"] for h in hits],
        "pair": pairs[0][1:],
        "dot": util.dot_score(corpus, corpus),
    }


def training(device):
    model = _model(device)
    found = {}
    pairs = [(_SENTENCES[0], _SENTENCES[3]), (_SENTENCES[1], _SENTENCES[2])]
    for name, loss in {
        "cosine": losses.CosineSimilarityLoss(model),
        "ranking": losses.MultipleNegativesRankingLoss(model),
        "contrastive": losses.ContrastiveLoss(model),
    }.items():
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        said = []
        for _ in range(3):
            features = [
                {k: v.to(device) for k, v in model.tokenize([p[i] for p in pairs]).items() if hasattr(v, "to")}
                for i in (0, 1)
            ]
            value = loss(features, torch.tensor([1.0, 0.0]).to(device))
            value.backward()
            optimizer.step()
            optimizer.zero_grad()
            said.append(value.item())
        found[name] = said
    return found


def saved_and_loaded(device):
    model = _model(device)
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        again = SentenceTransformer(folder, device=device)
    return {"found": again.encode(_SENTENCES[:2]), "n": again.get_sentence_embedding_dimension()}


def cross_encoder(device):
    with tempfile.TemporaryDirectory() as folder:
        model = CrossEncoder(_folder(folder, BertForSequenceClassification, num_labels=1), device=device)
    return {
        "scores": model.predict([(_SENTENCES[0], s) for s in _SENTENCES]),
        "ranks": [r["corpus_id"] for r in model.rank("a cat", _SENTENCES)],
    }
