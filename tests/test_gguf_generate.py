"""Writing with models of GGUF files: texts and talks in pieces, draws, what is kept between talks, and what a step costs."""

from __future__ import annotations

import asyncio
import copy
import gc
import threading
from typing import Any

import numpy as np
import pytest
import torch as pytorch
import transformers
from gguf import GGMLQuantizationType as Kind

import tabtorch as torch
import tiny_gguf
from gguf_models import pair
from gguf_templates import FAMILIES
from sidebyside import DEVICES
from slices import whole
from tabtorch.bridge import get_bridge
from tabtorch.engine import graph, memory, plan
from tabtorch.gguf import GGUFError, generating, load, model, model_async
from tabtorch.gguf.generating import Sampling
from test_counts import counted

#: a vocabulary of 80: control tokens, letters, and pairs that are merged
LETTERS = [chr(c) for c in range(97, 123)] + ["\u0120", "<", ">", "|", "_", "\u010a", ".", "A"]
PAIRS = ["t h", "th e", "\u0120 the", "a n", "i n", "e r", "o n", "\u0120 a", "u s", "us er"]
MARKED = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
_KNOWN = [*MARKED, *LETTERS, *("".join(p.split()) for p in PAIRS)]
TOKENS = _KNOWN + [f"<unused{k}>" for k in range(80 - len(_KNOWN))]
VOCABULARY = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "qwen2",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.merges": PAIRS,
    "tokenizer.ggml.token_type": [3] * 3 + [1] * (len(_KNOWN) - 3) + [5] * (80 - len(_KNOWN)),
    "tokenizer.ggml.eos_token_id": 1,
    "tokenizer.chat_template": FAMILIES["chatml"],
}
TALK = [{"role": "user", "content": "the user is in"}]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return pair(tmp_path_factory.mktemp("gguf") / "m.gguf", "llama", Kind.Q8_0, **VOCABULARY)[0]


@pytest.fixture
def ours(file: Any) -> Any:
    with torch.device("cpu"):
        yield model(file)


def test_a_text_is_what_its_tokens_are(ours: Any) -> None:
    t = ours.tokenizer
    ids = t.encode("the user")
    numbers = list(ours.generate(ids, 20, stop=t.stops))
    shown = [n for n in numbers if n not in t.stops]
    assert "".join(ours.generate("the user", 20)) == t.decode(shown)
    talk = t.encode(t.chat(TALK))
    assert (
        talk[0] == 0
        and t.decode(talk, special=True) == "<|im_start|>user\nthe user is in<|im_end|>\n<|im_start|>assistant\n"
    )
    numbers = list(ours.generate(talk, 20, stop=t.stops))
    assert "".join(ours.generate(TALK, 20)) == t.decode([n for n in numbers if n not in t.stops])


def test_a_text_ends_before_what_is_to_end_it(ours: Any) -> None:
    text = "".join(ours.generate("the user", 30))
    assert len(text) > 12
    for n in (1, 2, 3):
        end = text[6 : 6 + n]
        pieces = list(ours.generate("the user", 30, stop=end))
        assert "".join(pieces) == text[: text.index(end)] and all(pieces)
    # what only begins as such an end is written after all
    assert "".join(ours.generate("the user", 30, stop=[text[-1] + "~", text[3:5] + "~"])) == text
    with pytest.raises(TypeError, match="texts end only texts"):
        ours.generate([1, 2], 3, stop="a")


def test_async_is_the_same(ours: Any, file: Any) -> None:
    async def all_of(prompt: Any, **options: Any) -> list[Any]:
        other = await model_async(file, device="cpu")
        return [x async for x in other.generate_async(prompt, 12, **options)]

    for prompt in ("the user", TALK, [5, 6, 7]):
        for options in ({}, {"temperature": 1.0, "seed": 3}):
            assert asyncio.run(all_of(prompt, **options)) == list(ours.generate(prompt, 12, **options))


def test_long_prompts_go_in_by_parts_of_few_sizes(ours: Any, file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    ids = rng.integers(3, 80, 60).tolist()
    want = list(ours.generate(ids, 3))
    sizes: list[int] = []
    hidden = ours._hidden
    monkeypatch.setattr(ours, "_hidden", lambda i, p: (sizes.append(i.shape[1]), hidden(i, p))[1])
    monkeypatch.setattr(generating, "CHUNK", 8)
    ours.forget()
    assert list(ours.generate(ids, 3)) == want
    assert sizes == [8] * 7 + [4] + [1] * 2
    # where the model is nearly full nothing is filled up
    monkeypatch.setattr(generating, "CHUNK", 64)
    small = model(file, length=62)
    hidden = small._hidden
    monkeypatch.setattr(small, "_hidden", lambda i, p: (sizes.append(i.shape[1]), hidden(i, p))[1])
    sizes.clear()
    assert list(small.generate(ids, 10)) == want
    assert sizes == [60, 1, 1]


def test_what_a_talk_has_in_common_with_the_last_is_not_computed_again(
    ours: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = list(range(10, 40))
    first = list(ours.generate(ids, 5))
    more = [*ids, *first[:4], 7, 8, 9]
    ours.forget()
    want = list(ours.generate(more, 5))
    list(ours.generate(ids, 5))
    sizes: list[int] = []
    hidden = ours._hidden
    monkeypatch.setattr(ours, "_hidden", lambda i, p: (sizes.append(i.shape[1]), hidden(i, p))[1])
    assert list(ours.generate(more, 5)) == want
    assert sizes == [4, 1, 1, 1, 1]  # three, filled up to four
    # what was written by hand counts for nothing
    ours(torch.tensor([[1, 2, 3]]))
    sizes.clear()
    assert list(ours.generate(more, 5)) == want and sizes[0] == 64


def test_a_model_writes_one_text_at_a_time(ours: Any) -> None:
    first = ours.generate([3, 4, 5], 9)
    next(first)
    want = list(ours.generate([3, 4, 5], 9))
    with pytest.raises(RuntimeError, match="has begun another text"):
        next(first)
    assert list(ours.generate([3, 4, 5], 9)) == want
    given_up = ours.generate([3, 4, 5], 9)
    next(given_up)
    given_up.close()
    assert list(ours.generate([3, 4, 5], 9)) == want


def test_threads_get_a_right_text_or_an_error(ours: Any) -> None:
    want = {k: list(ours.generate([k, 4, 5], 6)) for k in (3, 9)}
    found: list[Any] = []

    def write(k: int) -> None:
        try:
            found.append((k, list(ours.generate([k, 4, 5], 6))))
        except RuntimeError as e:
            found.append((k, e))

    for _ in range(3):
        threads = [threading.Thread(target=write, args=(k,)) for k in (3, 9)]
        [t.start() for t in threads]
        [t.join() for t in threads]
    assert len(found) == 6
    for k, what in found:
        assert what == want[k] or "another text" in str(what)


OPTIONS = [
    {"temperature": 0.7},
    {"temperature": 1.3, "top_k": 5},
    {"temperature": 1.3, "top_p": 0.6},
    {"temperature": 0.9, "top_k": 12, "top_p": 0.7},
    {"temperature": 1.5, "min_p": 0.2},
    {"temperature": 1.2, "top_k": 30, "top_p": 0.9, "min_p": 0.05, "repetition_penalty": 1.7},
    {"temperature": 1.0, "repetition_penalty": 0.6},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_tokens_are_drawn_from_transformers_probabilities(options: dict[str, float]) -> None:
    rng = np.random.default_rng(5)
    logits = (rng.standard_normal(80) * 2).astype(np.float32)
    was = [3, 9, 11]
    config = transformers.GenerationConfig(**{"do_sample": True, "top_k": 0, **options})
    p = pytorch.from_numpy(logits)[None]
    sizes = {
        "vocab_size": 80,
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "intermediate_size": 8,
    }
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
    for one in theirs._get_logits_processor(config, input_ids_seq_length=3, device="cpu"):
        p = one(pytorch.tensor([was]), p)
    want = p.softmax(-1)[0].numpy()
    full: Any = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
    with torch.device("cpu"):
        seen = torch.zeros(80, dtype=torch.bool)
        seen[torch.tensor(was)] = True
        p, order = Sampling(**{**full, **options}).probabilities(torch.tensor(logits), seen)
    got = np.zeros(80)
    got[np.arange(80) if order is None else order.numpy()] = p.numpy() / p.numpy().sum()
    assert np.allclose(got, want, atol=1e-6) and np.array_equal(got > 0, want > 0)


def test_draws_are_as_often_as_they_are_likely(device: str) -> None:
    p = torch.tensor([0.1, 0.5, 0.0, 0.4], device=device)
    sampling = Sampling(1.0, 0, 1.0, 0.0, 1.0)
    generator = torch.Generator(device=device).manual_seed(0)
    n = 400 if device == "cpu" else 40
    found = [sampling.pick(p.log(), None, generator).item() for _ in range(n)]
    often = np.bincount(found, minlength=4) / n
    assert often[2] == 0 and np.abs(often - p.numpy()).max() < 2 / n**0.5


@pytest.mark.parametrize(
    "bad", [{"top_p": 1.5}, {"temperature": -1}, {"top_k": -1}, {"min_p": 2}, {"repetition_penalty": 0}], ids=str
)
def test_options_are_checked_at_once(ours: Any, bad: Any) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must be from"):
        ours.generate([1], 1, **bad)
    with pytest.raises(TypeError, match="unexpected"):
        ours.generate([1], 1, temprature=1)
    with pytest.raises(ValueError, match="from 0 to 79"):
        ours.generate([80], 1)
    with pytest.raises(ValueError, match="a token to begin with"):
        ours.generate([], 1)


def test_draws_are_the_same_whether_a_step_is_recorded_or_replayed(file: Any) -> None:
    """A model that was moved has another step, whose generator is the GPU's: as one that was made there."""
    options = {"temperature": 0.9, "top_k": 12, "repetition_penalty": 1.2, "seed": 5}
    moved = model(file, device="cpu")
    first = list(moved.generate([1, 2, 3], 12, **options))
    assert list(moved.generate([1, 2, 3], 12, **options)) == first
    assert list(moved.generate([1, 2, 3], 12, **{**options, "seed": 6})) != first
    if "webgpu" in DEVICES:
        moved.to("webgpu")
        want = list(model(file, device="webgpu").generate([1, 2, 3], 12, **options))
        assert [list(moved.generate([1, 2, 3], 12, **options)) for _ in range(2)] == [want, want]


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "repetition_penalty": 1.1}], ids=str
)
def test_a_step_is_one_plan_that_is_kept(device: str, file: Any, options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over 500 tokens (40 where not all is run) nothing is compiled, no window is planned, and each token is read back once."""
    steps = 500 if whole() else 40
    ours = model(file)
    tokens = ours.generate([1, 2, 3], steps + 8, **options)
    for _ in range(6):
        next(tokens)
    made: list[str] = []
    bridge, define, schedule = get_bridge(), get_bridge().define_kernel, plan._scheduled
    monkeypatch.setattr(bridge, "define_kernel", lambda spec: (made.append(spec["name"]), define(spec))[1])
    monkeypatch.setattr(plan, "_scheduled", lambda *a, **k: (made.append("schedule"), schedule(*a, **k))[1])
    waits = 0

    def waiting(original: Any) -> Any:
        def read(*a: Any) -> Any:
            nonlocal waits
            waits += 1
            return original(*a)

        return read

    for name in ("read", "read_many"):
        monkeypatch.setattr(bridge, name, waiting(getattr(bridge, name)))
    with counted() as count:
        for _ in range(steps):
            next(tokens)
    # of the device: the token, and with it whether an index was out of range
    assert made == [] and (count.planned, count.kernels, waits) == (0, 0, steps)
    assert count.reads <= 2 * steps


def test_a_token_of_a_deep_model_is_one_run(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though its nodes fill several windows; and another text has the plan of the first."""
    monkeypatch.setattr(tiny_gguf, "BLOCKS", 12)
    with torch.device("cpu"):
        deep = model(tiny_gguf.write(tmp_path / "deep.gguf"))
        first = list(deep.generate([1, 2, 3], 14))
        tokens = deep.generate([1, 2, 3], 14)
        assert next(tokens) == first[0]
        with counted() as count:
            rest = list(tokens)
    assert rest == first[1:]
    assert (count.planned, count.kernels, count.runs) == (0, 0, len(rest))
    (entry,) = deep._step[1].call.entries.values()
    assert entry.why == "" and len(entry.replays) == 1  # and none of its Python is run
    with counted() as count:  # nothing is copied between texts, and nothing kept of them
        for k in range(10):
            list(deep.generate([1, 2, 3, k], 6))
    assert (count.planned, count.copies, count.buffersCreated) == (0, 0, 0)
    assert len(entry.replays) == 1
    with torch.device("cpu"):
        gc.collect()
        before = sum(memory.memory.live)
        other = model(tiny_gguf.write(tmp_path / "deep.gguf"))
        list(other.generate([1, 2, 3], 14))
        one = sum(memory.memory.live) - before
        gc.disable()
        del other  # though it is in a cycle with its step, the next one has its memory
        try:
            other = model(tiny_gguf.write(tmp_path / "deep.gguf"))
        finally:
            gc.enable()
        graph.flush()
        assert sum(memory.memory.live) - before < 1.5 * one
    other = copy.deepcopy(deep)  # has a step of its own
    assert list(other.generate([1, 2, 3], 14)) == first
    assert list(deep.generate([1, 2, 3], 14)) == first


def test_a_whole_model_takes_the_bytes_of_its_file(device: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = pair(tmp_path / "m.gguf", "llama", Kind.Q8_0)
    uncut = model(path, device=device, length=1)
    graph.flush()
    monkeypatch.setattr("tabtorch.gguf.reader.largest", lambda device: 2000)  # weights lie in several buffers
    ids = torch.tensor([[5]], device=uncut.device)
    want = uncut(ids).numpy()
    del uncut
    gc.collect()
    graph.flush()
    before = sum(memory.memory.live)
    ours = model(path, device=device, length=1)
    graph.flush()
    took = sum(memory.memory.live) - before
    assert len(ours.blocks[0].network.up.weight.parts) > 1
    assert took <= 1.15 * path.stat().st_size
    assert np.allclose(ours(ids).numpy(), want, atol=1e-5)


def test_a_file_without_a_vocabulary_still_takes_numbers(tmp_path: Any) -> None:
    path, _ = pair(tmp_path / "m.gguf", "llama", Kind.Q8_0)
    ours = model(load(path, "cpu"))
    assert len(list(ours.generate([1, 2], 3))) == 3
    with pytest.raises(GGUFError, match="a vocabulary of the kind None"):
        ours.generate("the", 3)


def test_a_lost_device_is_an_error_and_the_file_is_loaded_again(file: Any) -> None:
    with torch.device("webgpu"):
        ours = model(file, length=32)
        tokens = ours.generate([1, 2, 3], 9)
        first = next(tokens)
        get_bridge().lose_device()
        with pytest.raises(torch.AcceleratorError, match="lost"):
            list(tokens)
        with pytest.raises(torch.AcceleratorError, match="lost"):
            list(ours.generate([1, 2, 3], 9))
        assert next(model(file, length=32).generate([1, 2, 3], 9)) == first
