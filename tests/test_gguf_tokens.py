"""Vocabularies of GGUF files give the tokens that `tokenizers` gives with the same vocabularies, and the texts back."""

from __future__ import annotations

import json
import random
import unicodedata
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers.tokenization_utils_base import generate_merges

from tabtorch.gguf import GGUFError, words
from tabtorch.gguf import Tokenizer as Ours
from tabtorch.gguf.tokenizer import merged

ROOT = Path(__file__).parents[1]
CORPUS = [(ROOT / name).read_text() for name in ("README.md", "docs/models.md", "ARCHITECTURE.md")]
MARKED = ["<|end|>", "<|a|>", "<|a|>b"]
#: as the models' own files have it; in files of GGUF it is named
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
#: of bytes; as many of pieces
TEXTS = 5000


@cache
def characters() -> list[str]:
    """Those that Unicode has had for long."""
    return [chr(c) for c in range(0x30000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]


def text(rng: random.Random) -> str:
    """A random one: words, any characters, spaces of all kinds, endings, digits, control tokens and parts of them."""
    out = []
    for _ in range(rng.randrange(1, 12)):
        match rng.randrange(6):
            case 0:
                out.append(rng.choice(characters()))
            case 1:
                s = rng.choice(CORPUS)
                at = rng.randrange(len(s))
                out.append(s[at : at + rng.randrange(1, 30)])
            case 2:
                out.append(
                    rng.choice([" ", "  ", "\n", "\r\n", "\t", "\x85", "\u2028", "\x1c", "\xa0"]) * rng.randrange(1, 4)
                )
            case 3:
                out.append(rng.choice(["'s", "'S", "'\u017f", "'LL", "'Re", "don't", *MARKED, "<|", "\u2581"]))
            case 4:
                out.append(str(rng.randrange(10**6)))
            case _:
                out.append("".join(rng.choice("aZ\xe9'9 .,!\n中日한") for _ in range(8)))
    return "".join(out)


@cache
def byte_pairs() -> tuple[Tokenizer, dict[str, Any]]:
    """A vocabulary that is trained here, in `tokenizers` and as the metadata of a file."""
    theirs = Tokenizer(models.BPE(ignore_merges=True))
    cut = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
    theirs.pre_tokenizer = pre_tokenizers.Sequence(
        [cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    theirs.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    theirs.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(vocab_size=1500, special_tokens=MARKED, initial_alphabet=alphabet, show_progress=False),
    )
    held = json.loads(theirs.to_str())["model"]
    tokens = sorted(held["vocab"], key=held["vocab"].get)
    return theirs, {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "llama-bpe",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": [" ".join(m) for m in held["merges"]],
        "tokenizer.ggml.token_type": [3 if t in MARKED else 1 for t in tokens],
    }


@cache
def pieces() -> dict[str, Any]:
    """The metadata of a vocabulary of SentencePiece's kind: pieces of texts by how often they are there."""
    joined = " ".join(CORPUS).replace(" ", "\u2581").replace("\n", "\u2581")
    found = Counter(joined[at : at + n] for n in range(1, 9) for at in range(len(joined) - n))
    common = sorted(found, key=lambda p: -len(p) * found[p])[:1500]
    usual = dict.fromkeys([*common, *sorted(set(joined))])
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *usual]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * 259 + [float(-k) for k in range(len(usual))],
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * len(usual),
        "tokenizer.ggml.add_bos_token": False,
    }


def compare(ours: Ours, theirs: Tokenizer, seed: int, texts: int = TEXTS) -> None:
    rng = random.Random(seed)
    for _ in range(texts):
        s = text(rng)
        ids = ours.encode(s)
        assert ids == theirs.encode(s).ids, s
        assert ours.decode(ids) == theirs.decode(ids), s


def test_byte_pairs_are_those_of_tokenizers() -> None:
    theirs, metadata = byte_pairs()
    compare(Ours(metadata), theirs, 1)


@pytest.mark.parametrize("prefix", [True, False])
def test_pieces_are_those_of_tokenizers(prefix: bool) -> None:
    metadata = {**pieces(), "tokenizer.ggml.add_space_prefix": prefix}
    tokens, scores = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.scores"]
    vocabulary = {t: k for k, t in enumerate(tokens)}
    merges = generate_merges(vocabulary, dict(zip(tokens, scores)))
    theirs = Tokenizer(
        models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    )
    before = [normalizers.Prepend("\u2581")] if prefix else []
    theirs.normalizer = normalizers.Sequence([*before, normalizers.Replace(" ", "\u2581")])
    parts = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    theirs.decoder = decoders.Sequence([*parts, *([decoders.Strip(" ", 1, 0)] if prefix else [])])
    compare(Ours(metadata), theirs, 2, TEXTS // 2)


@pytest.mark.parametrize("name", sorted({n for n in words.known() if words.way(n) == n}))
def test_words_are_cut_as_by_oniguruma(name: str) -> None:
    ways = [Regex(w.replace("\ud7ff", r"\x{d7ff}")) for w in words._WAYS[name]]
    theirs = pre_tokenizers.Sequence([pre_tokenizers.Split(w, "isolated") for w in ways])
    rng = random.Random(name)
    for _ in range(TEXTS // 30):
        s = text(rng)
        assert words.split(s, name) == [w for w, _ in theirs.pre_tokenize_str(s)], s


def test_what_begins_and_ends_a_text_is_added_where_the_file_says_so() -> None:
    metadata = {**pieces(), "tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True}
    ours = Ours(metadata)
    ids = ours.encode("a b")
    assert (ids[0], ids[-1]) == (1, 2) and ours.encode("a b", add=False) == ids[1:-1]
    assert ours.decode(ids) == "a b" and ours.decode(ids, special=True) == "<s>a b</s>"
    assert ours.stops == {2}
    # the file's usual settings: one that begins, none that ends
    del metadata["tokenizer.ggml.add_bos_token"], metadata["tokenizer.ggml.add_eos_token"]
    assert Ours(metadata).encode("a b") == ids[:-1]


def test_control_tokens_are_texts_where_that_is_asked_for() -> None:
    _, metadata = byte_pairs()
    ours = Ours(metadata)
    assert ours.encode("x<|a|>b<|end|>")[1:] == [2, 0]
    plain = ours.encode("x<|a|>b<|end|>", special=False)
    assert not {0, 1, 2} & set(plain) and ours.decode(plain) == "x<|a|>b<|end|>"
    assert ours.stops == {0}  # by its name
    kinds = list(metadata["tokenizer.ggml.token_type"])
    kinds[1] = 4  # what the user defined is always one token, and text
    ours = Ours({**metadata, "tokenizer.ggml.token_type": kinds})
    assert 1 in ours.encode("x<|a|>c", special=False) and ours.decode(ours.encode("x<|a|>c")) == "x<|a|>c"


def test_characters_come_when_they_are_whole() -> None:
    ours = Ours(pieces())
    stream = ours.stream()
    ids = [3 + b for b in "é中".encode()]
    assert [stream(k) for k in ids] == ["", "é", "", "", "中"] and stream(None) == ""
    stream = ours.stream()
    assert stream(ids[0]) == "" and stream(None) == "\ufffd"


def test_long_words_take_no_longer_than_they_are_long() -> None:
    """Counted: how often a pair is looked up."""
    asked = 0

    def rank(a: str, b: str) -> int | None:
        nonlocal asked
        asked += 1
        return len(a) if len(a) == len(b) and len(a) < 64 else None

    assert "".join(merged(["a"] * 4096, rank)) == "a" * 4096
    assert asked < 4 * 4096


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("model", "bert", "'bert' is not supported"),
        ("model", 7, "must be a str"),
        ("pre", "of nobody", "'of nobody', which is not known; .*llama-bpe"),
        ("tokens", [], "no tokens"),
        ("tokens", ["a", 1], "must be a list"),
        ("token_type", [1], "must be a list of 1500 int"),
        ("merges", None, "no list of pairs"),
        ("add_bos_token", 1, "must be a bool"),
        ("bos_token_id", "x", "must be a int"),
    ],
)
def test_a_vocabulary_that_is_none_is_refused(key: str, value: Any, said: str) -> None:
    metadata = dict(byte_pairs()[1])
    if value is None:
        del metadata["tokenizer.ggml." + key]
    else:
        metadata["tokenizer.ggml." + key] = value
    with pytest.raises(GGUFError, match=said):
        Ours(metadata)


def test_numbers_of_no_token_are_none() -> None:
    _, metadata = byte_pairs()
    ours = Ours({**metadata, "tokenizer.ggml.bos_token_id": 2**32 - 1, "tokenizer.ggml.add_bos_token": True})
    assert ours.bos is None and ours.encode("") == []
    with pytest.raises(IndexError, match="1500 tokens, and no 1500"):
        ours.decode([1500])
