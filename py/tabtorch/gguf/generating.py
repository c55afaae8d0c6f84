"""Writing texts with a model: the prompt goes in by chunks of few sizes, then each token is drawn on the device and read."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, overload

import tabtorch as torch
from tabtorch.compiled.driver import Compiled
from tabtorch.engine import graph

#: tokens of a prompt that go in at once; fewer are filled up to a power of two, so that there are few plans
CHUNK = 128
#: held while a model's keys and values change, and with them what is noted of them
_CHANGING = threading.RLock()

Prompt = str | Sequence[dict[str, Any]] | Sequence[int]


class Sampling(NamedTuple):
    """How a token is drawn; see `Generating.generate`."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float

    def check(self) -> None:
        """ValueError for what is out of range."""
        for name, low, high in (
            ("temperature", 0, float("inf")),
            ("top_k", 0, float("inf")),
            ("top_p", 0, 1),
            ("min_p", 0, 1),
            ("repetition_penalty", 1e-9, float("inf")),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} must be from {low} to {high}, and not {value}")

    def pick(self, logits: Any, seen: Any, generator: Any) -> Any:
        """A token (1,), as the logits (vocabulary,) have it. seen (vocabulary,): which tokens were there, or None."""
        if self.temperature <= 0:
            return self._penalized(logits, seen).argmax(-1, keepdim=True)
        p, order = self.probabilities(logits, seen)
        # as `multinomial` draws one: who is first in a race, of which the host reads nothing
        times = torch.empty_like(p).exponential_(generator=generator).clamp_min(1e-30)
        drawn = (p / times).argmax(-1, keepdim=True)
        return drawn if order is None else order.gather(0, drawn)

    def _penalized(self, logits: Any, seen: Any) -> Any:
        if seen is None or self.repetition_penalty == 1:
            return logits
        r = self.repetition_penalty
        return torch.where(seen, torch.where(logits < 0, logits * r, logits / r), logits)

    def probabilities(self, logits: Any, seen: Any) -> tuple[Any, Any]:
        """Probabilities (n,), which need not add up to one, and the tokens that have them; None for all in their order."""
        logits, order = self._penalized(logits, seen) / self.temperature, None
        if 0 < self.top_k < logits.shape[0]:
            logits, order = logits.topk(self.top_k)
        elif self.top_p < 1:
            logits, order = logits.sort(descending=True)
        p = logits.softmax(-1)
        kept = p.cumsum(-1) - p < self.top_p if self.top_p < 1 else None
        if self.min_p > 0:
            likely = p >= self.min_p * p.max()
            kept = likely if kept is None else kept & likely
        return (p if kept is None else torch.where(kept, p, 0.0)), order


class _Step(NamedTuple):
    """What makes a token of the one before: one compiled call, whatever the position. It draws from `generator`."""

    call: Compiled
    generator: Any

    @staticmethod
    def of(model: Any, sampling: Sampling) -> _Step:
        generator = torch.Generator(device=model.device) if sampling.temperature > 0 else None

        def step(token: Any, position: Any, seen: Any) -> tuple[Any, Any]:
            if seen is not None:
                seen.index_fill_(0, token, True)
            logits = model._logits(model._hidden(token.view(1, 1), position))
            return sampling.pick(logits[0, 0], seen, generator), position + 1

        return _Step(Compiled(step, dynamic=False), generator)


class _Text:
    """Which text a model's KV cache holds. Kept beside the model, as its attributes are guards of the compiled step: a new text would
    have it recorded again."""

    owner: object | None = None  # the text that is being written
    written: Sequence[int] = ()  # the tokens whose keys and values are there


_TEXTS: weakref.WeakKeyDictionary[Any, _Text] = weakref.WeakKeyDictionary()


class _Writer:
    """Makes texts of tokens, up to the first of the texts that end them; what may become one of those is held back."""

    def __init__(self, tokenizer: Any, stops: Collection[int], ends: Collection[str], following: bool) -> None:
        self.stream = tokenizer.stream(following=following)
        self.stops = stops
        self.ends = ends
        self.held = ""
        self.done = False

    def push(self, token: int | None) -> str:
        """What is to be written once this token came; None is the end."""
        over = token is None or token in self.stops
        self.held += self.stream(None if over else token)
        found = [at for end in self.ends if (at := self.held.find(end)) >= 0]
        if found:
            self.held, over = self.held[: min(found)], True
        keep = 0
        if not over:
            for end in self.ends:
                fits = [n for n in range(1, len(end)) if self.held.endswith(end[:n])]
                keep = max(keep, *fits, 0)
        at = len(self.held) - keep
        text, self.held = self.held[:at], self.held[at:]
        self.done = over
        return text


class Generating:
    """A model whose keys and values are kept in place, and which can write: what `generate` needs is in its class."""

    length: int
    vocabulary: int
    tokenizer: Any
    device: Any

    _step: tuple[tuple[Sampling, Any], _Step] | None = None  # of the last text: how it draws, and on which device

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_step"}  # which writes to this model's keys and values

    @property
    def _text(self) -> _Text:
        return _TEXTS.setdefault(self, _Text())

    def _hidden(self, ids: Any, position: Any) -> Any:
        raise NotImplementedError

    def _logits(self, x: Any) -> Any:
        raise NotImplementedError

    def forget(self) -> None:
        """Nothing that was written before is taken for the beginning of the next text."""
        with _CHANGING:
            self._text.owner, self._text.written = None, ()

    @overload
    def generate(
        self, prompt: str | Sequence[dict[str, Any]], max_new_tokens: int = ..., **options: Any
    ) -> Iterator[str]: ...
    @overload
    def generate(self, prompt: Sequence[int], max_new_tokens: int = ..., **options: Any) -> Iterator[int]: ...

    def generate(self, prompt: Any, max_new_tokens: int = 256, **options: Any) -> Iterator[Any]:
        """What follows the prompt, as it comes: pieces of text, or the numbers of tokens where the prompt is those.

        prompt: a text; messages ({"role": "user", "content": "Hi"}), which the file's chat template writes down; or numbers of
        tokens. Options, by name:

        - temperature (0.0): 0 takes the likeliest token. top_k (0): of the k likeliest only. top_p (1.0): of the likeliest that
          have this probability together. min_p (0.0): of those that have this part of the likeliest's probability.
          repetition_penalty (1.0): divides what the tokens have that were there already.
        - seed (None): of the draws.
        - stop (()): tokens, or texts, after which it is over. A text ends before them, and before the file's own ends of
          answers; numbers end with the one that is in `stop`.
        - variables ({}): what the chat template knows besides, such as {"enable_thinking": False}.

        It is over, too, when the model's `length` is full. What a prompt has in common with the text before (the talk so far) is
        not computed again. ValueError for no tokens, or more than `length`; TypeError for an unknown option; RuntimeError when
        another text was begun meanwhile, for a model has room for one.
        """
        begun = _Run(self, prompt, max_new_tokens, **options)
        return begun.written() if begun.writer is not None else begun.tokens()

    def generate_async(self, prompt: Any, max_new_tokens: int = 256, **options: Any) -> AsyncIterator[Any]:
        """As `generate`, for `async for`: the page lives on between the tokens, and nothing blocks."""
        begun = _Run(self, prompt, max_new_tokens, **options)
        return begun.written_async()


class _Run:
    """A text that is being written with a model."""

    def __init__(
        self,
        model: Any,
        prompt: Any,
        max_new_tokens: int,
        *,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int | None = None,
        stop: Collection[int | str] | str = (),
        variables: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = model
        self.sampling = Sampling(temperature, top_k, top_p, min_p, repetition_penalty)
        self.sampling.check()
        stops = [stop] if isinstance(stop, str) else list(stop)
        ends = [s for s in stops if isinstance(s, str) and s]
        self.stops = {s for s in stops if not isinstance(s, str)}
        self.writer = None
        if isinstance(prompt, str) or (len(prompt) and isinstance(prompt[0], dict)):
            tokenizer = model.tokenizer
            self.stops |= tokenizer.stops
            if isinstance(prompt, str):
                ids = tokenizer.encode(prompt)
                if tokenizer.add_eos and ids and ids[-1] == tokenizer.eos:
                    ids.pop()  # the text is to go on
            else:
                ids = tokenizer.encode(tokenizer.chat(prompt, **(variables or {})), add=False)
            self.writer = _Writer(tokenizer, self.stops, ends, isinstance(prompt, str))
        elif ends:
            raise TypeError("texts end only texts: give the prompt as a text, or numbers of tokens as `stop`")
        else:
            ids = [int(i) for i in prompt]
        if not ids:
            raise ValueError("there must be a token to begin with")
        if not all(0 <= i < model.vocabulary for i in ids):
            raise ValueError(f"the numbers of tokens must be from 0 to {model.vocabulary - 1}")
        if len(ids) > model.length:
            raise ValueError(f"{len(ids)} tokens are more than the model's {model.length}")
        self.ids = ids
        self.most = min(max_new_tokens, model.length - len(ids) + 1)
        self.seed = seed
        if seed is None and temperature > 0:  # what follows `torch.manual_seed`
            self.seed = int(torch.randint(2**31, (), device="cpu").item())

    # ---- on the device

    def _steps(self) -> Iterator[Any]:
        """The tokens (1,), each to be read before the next; None where a part of the prompt went in."""
        if self.most <= 0:
            return
        model, device = self.model, self.model.device
        seen = None
        if self.sampling.repetition_penalty != 1:
            seen = torch.zeros(model.vocabulary, dtype=torch.bool, device=device)
            seen[torch.tensor(sorted(set(self.ids)), device=device)] = True
        with _CHANGING:
            text = model._text
            text.owner = self
            if model._step is None or model._step[0] != (self.sampling, device):
                model._step = (self.sampling, device), _Step.of(model, self.sampling)
            step, generator = model._step[1]
            if generator is not None:
                generator.manual_seed(self.seed)
            there, text.written = text.written, ()
            at = 0
            while at < min(len(there), len(self.ids) - 1) and there[at] == self.ids[at]:
                at += 1
        done = False
        known = self.ids[:at]
        try:
            while not done:
                with self._own(), torch.no_grad():
                    n = min(len(self.ids) - at, CHUNK)
                    hidden = self._part(at, n)
                    at += n
                    known = self.ids[:at]
                    done = at == len(self.ids)
                    if not done:
                        graph.flush()
                if not done:
                    yield None
            with self._own(), torch.no_grad():
                token = self.sampling.pick(model._logits(hidden)[0, 0], seen, generator)
                position = torch.tensor(len(self.ids), device=device)
            for left in range(self.most - 1, -1, -1):
                chosen = yield token
                if not left:
                    return
                with self._own(), torch.no_grad():
                    token, position = step(token, position, seen)
                    known.append(chosen)
        except GeneratorExit:
            raise
        except BaseException:
            known = []
            raise
        finally:
            with _CHANGING:
                if text.owner is self:
                    text.owner, text.written = None, known
                    step.let_go()

    def _own(self) -> Any:
        """Held while the model computes for this text. RuntimeError if it computes for another one by now."""
        return _Owned(self)

    def _part(self, at: int, n: int) -> Any:
        """What comes of the `n` tokens from `at` on, as the last of them has it (1, 1, width)."""
        model = self.model
        size = 1 << (n - 1).bit_length()
        if at + size > model.length:
            size = n
        # what fills up is written to places whose turn comes later
        ids = self.ids[at : at + n] + [0] * (size - n)
        place = torch.tensor([at, n - 1], device=model.device)
        hidden = model._hidden(torch.tensor([ids], device=model.device), place[0])
        return hidden.index_select(1, place[1:])

    # ---- as they come

    def tokens(self) -> Iterator[int]:
        """The numbers of the tokens; one of `stops` is the last."""
        steps = self._steps()
        try:
            token = next(steps, None)
            while True:
                if token is None:
                    token = next(steps)
                    continue
                chosen = int(token.item())
                yield chosen
                if chosen in self.stops:
                    return
                token = steps.send(chosen)  # type: ignore[attr-defined]
        except StopIteration:
            return
        finally:
            steps.close()  # type: ignore[attr-defined]

    def written(self) -> Iterator[str]:
        """The texts."""
        assert self.writer is not None
        tokens = self.tokens()
        try:
            for token in tokens:
                text = self.writer.push(token)
                if text:
                    yield text
                if self.writer.done:
                    return
            text = self.writer.push(None)
            if text:
                yield text
        finally:
            tokens.close()  # type: ignore[attr-defined]

    async def written_async(self) -> AsyncIterator[Any]:
        """The texts, or the numbers where the prompt was those."""
        steps: Any = self._steps()
        writer = self.writer
        try:
            token = next(steps)
            while True:
                await asyncio.sleep(0)
                if token is None:
                    token = next(steps)
                    continue
                chosen = int((await token.read())[0])
                if writer is None:
                    yield chosen
                elif text := writer.push(chosen):
                    yield text
                if chosen in self.stops or (writer is not None and writer.done):
                    return
                token = steps.send(chosen)
        except StopIteration:
            pass
        finally:
            steps.close()
        if writer is not None and (text := writer.push(None)):
            yield text


class _Owned:
    """A model's keys and values, as long as they are a run's."""

    def __init__(self, run: _Run) -> None:
        self.run = run

    def __enter__(self) -> None:
        _CHANGING.acquire()
        if self.run.model._text.owner is not self.run:
            _CHANGING.release()
            raise RuntimeError("the model has begun another text: it has room for the keys and values of one")

    def __exit__(self, *exc: object) -> None:
        _CHANGING.release()
