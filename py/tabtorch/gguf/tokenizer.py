"""Texts to tokens and back, by the vocabulary in a GGUF file (`tokenizer.ggml.*`).

Two kinds of vocabularies are known. `gpt2`: a text is cut into words (words.py), and the bytes of each are merged pair by pair,
in the order of a list. `llama` (SentencePiece): the characters of the whole text are merged, those first that make the token of
the best score; what is in no token is written in tokens of bytes.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from tabtorch.gguf import templates, words
from tabtorch.gguf.header import GGUFError

#: kinds of tokens
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
#: how control tokens that end an answer are written in the vocabularies that do not name them
_ENDS = {
    *("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<EOT>", "_<EOT>", "<|end_of_text|>"),
    *("</s>", "<|eom_id|>", "<eos>", "<|end_of_turn|>", "<|eot|>", "<\uff5cend\u2581of\u2581sentence\uff5c>"),
}
#: words whose tokens are kept
_KEPT = 20_000
#: a space in the vocabularies of SentencePiece
_SPACE = "\u2581"


def _alphabet() -> dict[int, str]:
    """Byte -> the character that it is written as in vocabularies of the kind `gpt2`."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {b: chr(b) for b in shown}
    for b in range(256):
        if b not in table:
            table[b] = chr(256 + len(table) - len(shown))
    return table


_WRITTEN = _alphabet()
_READ = {c: b for b, c in _WRITTEN.items()}


def merged(parts: list[str], rank: Callable[[str, str], Any]) -> list[str]:
    """What is left of the parts when neighbours are merged, of the least rank first, and from the left where ranks are equal.

    rank(left, right): None where the two are not merged.
    """
    if len(parts) < 2:
        return parts
    left = list(range(-1, len(parts) - 1))
    right = [*range(1, len(parts)), -1]
    heap = []
    for k in range(len(parts) - 1):
        r = rank(parts[k], parts[k + 1])
        if r is not None:
            heap.append((r, k, parts[k], parts[k + 1]))
    heapify(heap)
    while heap:
        _, k, a, b = heappop(heap)
        n = right[k]
        if n < 0 or parts[k] != a or parts[n] != b:
            continue  # one of them has been merged since
        parts[k], parts[n] = a + b, ""
        right[k] = right[n]
        if right[n] >= 0:
            left[right[n]] = k
        right[n] = -1
        for i, j in ((left[k], k), (k, right[k])):
            if i >= 0 and j >= 0:
                r = rank(parts[i], parts[j])
                if r is not None:
                    heappush(heap, (r, i, parts[i], parts[j]))
    return [p for p in parts if p]


class Tokenizer:
    """The vocabulary of a file. `metadata` is the file's; GGUFError where it has none, or one of a kind that is not known.

    tokens: how each is written in the file. bos, eos: numbers of the tokens that begin and end a text, or None. stops: the
    numbers of those after which an answer is over. template: the file's chat template, or None.
    """

    def __init__(self, metadata: dict[str, Any]) -> None:
        def get(key: str, kind: type, default: Any = None) -> Any:
            value = metadata.get("tokenizer." + key, default)
            if value is not default and type(value) is not kind:
                raise GGUFError(f"tokenizer.{key} must be a {kind.__name__}, and not {str(value)[:40]!r}")
            return value

        def listed(key: str, kind: type, length: int | None = None) -> Any:
            values = get("ggml." + key, list)
            if values is None:
                return None
            if not all(type(v) is kind for v in values) or length not in (None, len(values)):
                raise GGUFError(f"tokenizer.ggml.{key} must be a list of {length or ''} {kind.__name__}")
            return values

        self.kind = get("ggml.model", str)
        if self.kind not in ("gpt2", "llama"):
            raise GGUFError(f"a vocabulary of the kind {self.kind!r} is not supported; 'gpt2' and 'llama' are")
        self.tokens: list[str] = listed("tokens", str) or []
        n = len(self.tokens)
        if not n:
            raise GGUFError("the file has no tokens")
        self.kinds: list[int] = listed("token_type", int, n) or [NORMAL] * n
        self._ids = {t: k for k, t in reversed(list(enumerate(self.tokens)))}

        def number(key: str, default: int | None = None) -> int | None:
            value = get(f"ggml.{key}_token_id", int, default)
            # some files have 2**32 - 1 for none
            return value if value is not None and 0 <= value < n else None

        spm = self.kind == "llama"
        self.bos = number("bos", 1 if spm else None)
        self.eos = number("eos", 2 if spm else None)
        self.unknown = number("unknown", 0 if spm else None)
        self.stops = {k for k in (self.eos, number("eot"), number("eom")) if k is not None}
        self.stops |= {
            k for t in _ENDS if (k := self._ids.get(t)) is not None and self.kinds[k] in (CONTROL, USER_DEFINED)
        }
        self.add_bos: bool = get("ggml.add_bos_token", bool, spm)
        self.add_eos: bool = get("ggml.add_eos_token", bool, False)
        self.add_space: bool = get("ggml.add_space_prefix", bool, spm)
        self.template: str | None = get("chat_template", str)
        if spm:
            scores = listed("scores", float, n)
            if scores is None:
                raise GGUFError("the file has no scores of tokens")
            merging = (NORMAL, USER_DEFINED, UNUSED)
            pairs = reversed(list(zip(self.tokens, scores, self.kinds)))
            self._scores = {t: -s for t, s, kind in pairs if kind in merging and s == s}
            self._bytes = [self._ids.get(f"<0x{b:02X}>") for b in range(256)]
        else:
            merges = listed("merges", str)
            if merges is None:
                raise GGUFError("the file has no list of pairs of tokens to merge")
            self._ranks = {pair: k for k, pair in enumerate(merges)}
            name = get("ggml.pre", str, "default")
            self._way = words.way(name)
            if self._way is None:
                raise GGUFError(
                    f"words are cut in the way {name!r}, which is not known; {', '.join(words.known())} are"
                )
        self._kept: dict[str, tuple[int, ...]] = {}
        marked = {k: t for k, t in enumerate(self.tokens) if t and self.kinds[k] in (CONTROL, UNKNOWN, USER_DEFINED)}
        self._always = _any_of(t for k, t in marked.items() if self.kinds[k] == USER_DEFINED)
        self._special = _any_of(marked.values())

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        return f"Tokenizer({self.kind}, {len(self)} tokens)"

    def encode(self, text: str, *, special: bool = True, add: bool = True) -> list[int]:
        """The numbers of the tokens of a text.

        special: whether what is written as a control token (`<|im_end|>`) is one. add: whether the tokens that begin and end
        a text are added, where the file says so.
        """
        found = [self.bos] if add and self.add_bos and self.bos is not None else []
        pattern = self._special if special else self._always
        after = True  # begins the text, or follows a control token
        at = 0
        for m in pattern.finditer(text) if pattern is not None else ():
            if m.start() > at:
                self._piece(text[at : m.start()], after, found)
            found.append(self._ids[m[0]])
            after = True
            at = m.end()
        if at < len(text):
            self._piece(text[at:], after, found)
        if add and self.add_eos and self.eos is not None:
            found.append(self.eos)
        return found

    def _piece(self, text: str, after: bool, found: list[int]) -> None:
        """Appends the tokens of a text in which none is marked."""
        if self.kind == "llama":
            if after and self.add_space:
                text = " " + text
            self._merge_characters(text.replace(" ", _SPACE), found)
            return
        assert self._way is not None
        for word in words.split(text, self._way):
            ids = self._kept.get(word)
            if ids is None:
                ids = tuple(self._merge_bytes(word))
                if len(self._kept) < _KEPT and len(word) < 100:
                    self._kept[word] = ids
            found.extend(ids)

    def _merge_bytes(self, word: str) -> list[int]:
        written = "".join([_WRITTEN[b] for b in word.encode("utf-8", "replace")])
        whole = self._ids.get(written)
        if whole is not None and self._way in words.WHOLE_WORDS:
            return [whole]
        ranks = self._ranks
        found = []
        for part in merged(list(written), lambda a, b: ranks.get(f"{a} {b}")):
            if part in self._ids:
                found.append(self._ids[part])
            else:
                found += [self._ids[c] for c in part if c in self._ids]
        return found

    def _merge_characters(self, text: str, found: list[int]) -> None:
        scores = self._scores
        for part in merged(list(text), lambda a, b: scores.get(a + b)):
            token = self._ids.get(part)
            if token is not None:
                found.append(token)
                continue
            raw = [self._bytes[b] for b in part.encode("utf-8", "replace")]
            if None not in raw:
                found += [k for k in raw if k is not None]
            elif self.unknown is not None:
                found.append(self.unknown)

    def bytes_of(self, token: int, *, special: bool = False) -> bytes:
        """What a token writes. special: whether control tokens are written, too. IndexError for a number of no token."""
        if not 0 <= token < len(self.tokens):
            raise IndexError(f"there are {len(self.tokens)} tokens, and no {token}")
        text, kind = self.tokens[token], self.kinds[token]
        if kind in (CONTROL, UNKNOWN) or kind == UNUSED:
            return text.encode("utf-8", "surrogateescape") if special else b""
        if kind == BYTE or (self.kind == "llama" and kind != USER_DEFINED and re.fullmatch("<0x[0-9A-F]{2}>", text)):
            return bytes([int(text[3:5], 16)]) if re.fullmatch("<0x[0-9A-Fa-f]{2}>", text) else b""
        if self.kind == "llama":
            return text.replace(_SPACE, " ").encode("utf-8", "surrogateescape")
        if kind == USER_DEFINED:
            return text.encode("utf-8", "surrogateescape")
        return b"".join([bytes([_READ[c]]) if c in _READ else c.encode("utf-8", "surrogateescape") for c in text])

    def decode(self, ids: Iterable[int], *, special: bool = False) -> str:
        """The text of tokens; bytes that are no UTF-8 are shown as U+FFFD. special: whether control tokens are written, too."""
        stream = self.stream(special=special)
        return "".join([stream(k) for k in ids]) + stream(None)

    def stream(self, *, special: bool = False, following: bool = False) -> Callable[[int | None], str]:
        """A function that takes tokens one by one, and returns the text that is complete with each; None is the end.

        following: the tokens continue a text, so that a space at their beginning is one.
        """
        pending = codecs.getincrementaldecoder("utf-8")("replace")
        first = self.kind == "llama" and self.add_space and not following

        def push(token: int | None) -> str:
            nonlocal first
            if token is None:
                return pending.decode(b"", True)
            data = self.bytes_of(token, special=special)
            if first and data and self.kinds[token] not in (CONTROL, UNKNOWN):
                data, first = data.removeprefix(b" "), False
            return pending.decode(data)

        return push

    def chat(self, messages: Sequence[dict[str, Any]], *, add_generation_prompt: bool = True, **variables: Any) -> str:
        """The text that a model reads for a talk: messages ({"role": "user", "content": "Hi"}) by the file's chat template.

        variables: what else the template knows (`enable_thinking=False`, `tools=[…]`). ValueError where the template refuses
        the messages. See `tabtorch.gguf.templates` for what happens where there is no `jinja2`.
        """
        written = {"bos_token": self._text(self.bos), "eos_token": self._text(self.eos), **variables}
        return templates.render(self.template, list(messages), add_generation_prompt, written)

    def _text(self, token: int | None) -> str:
        return "" if token is None else self.tokens[token]


def _any_of(texts: Iterable[str]) -> re.Pattern[str] | None:
    """What finds the first of these texts, the longest where several begin there."""
    found = sorted(set(texts), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, found))) if found else None
