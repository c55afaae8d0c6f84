r"""How a text is cut into words before pairs are merged: regular expressions by the name of `tokenizer.ggml.pre`.

They are written with classes of Unicode (`\p{L}`), which Python's `re` has not: each is put out as the ranges of its characters,
of the Unicode that this Python knows. What none of an expression's matches covers is a word, too.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Sequence
from functools import cache
from itertools import groupby

#: `\s` of Unicode: Python's own has four control characters besides
_SPACES = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
#: planes in which there is no character
_EMPTY = range(0x40000, 0xE0000)

_ENDINGS = r"'(?:[sSſtTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _REST
_QWEN2 = _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _REST
_QWEN35 = _ENDINGS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+END|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*END"
_SLASHES = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_DEEPSEEK3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CHINESE = "[一-龥ࠀ-一가-\ud7ff]+"  # as DeepSeek has them

#: ways to cut: each expression cuts further what the ones before left
_WAYS: dict[str, tuple[str, ...]] = {
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
    "gpt-2": (_GPT2,),
    "llama-bpe": (_LLAMA3,),
    "qwen2": (_QWEN2,),
    "qwen35": (_QWEN35,),
    "starcoder": (r"\p{N}", _GPT2),
    "falcon": (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]"),
    "tekken": (_CASED.replace("END", "") + r"|\p{N}" + _SLASHES,),
    "gpt-4o": (_CASED.replace("END", f"(?:{_ENDINGS})?") + r"|\p{N}{1,3}" + _SLASHES,),
    "deepseek-coder": (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CHINESE, r"\p{N}"),
    "deepseek-v3": (r"\p{N}{1,3}", "[一-龥\u3040-\u309f゠-ヿ]+", _DEEPSEEK3),
    "bloom": (r" ?[^(\s|.,!?…。，、।۔،)]+",),
    "viking": (r" ?[^(\s|.,!?…。，、।۔،)]+", r"\p{N}"),
}

#: other names of the same ways
_SAME = {
    "gpt-2": "phi-2 mpt olmo jais roberta-bpe exaone4 jina-es jina-de jina-v2-es jina-v2-de jina-v2-code modern-bert",
    "llama-bpe": "llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 dbrx smaug-bpe chatglm-bpe glm4",
    "qwen2": "deepseek-r1-qwen stablelm2 megrez kormo hunyuan",
    "starcoder": "refact command-r smollm codeshell exaone minerva-7b",
    "gpt-4o": "llama4 kanana2 minimax-m2",
    "deepseek-v3": "hunyuan-dense",
    "bloom": "poro-chat gpt3-finnish",
}
_NAMES = {name: name for name in _WAYS} | {name: way for way, names in _SAME.items() for name in names.split()}

#: names of ways -> what stands at once for a word that is a token, whatever pairs would be merged
WHOLE_WORDS = {"llama-bpe", "tekken"}


def known() -> list[str]:
    """Every name of a way to cut."""
    return sorted(_NAMES)


def way(name: str) -> str | None:
    """The way that a name of `tokenizer.ggml.pre` stands for; None where it is not known."""
    return _NAMES.get(name)


@cache
def _classes() -> dict[str, str]:
    """Class of Unicode, of one letter or two, -> the ranges of its characters as an expression in brackets has them."""
    found: dict[str, list[str]] = {}
    codes = [c for c in range(sys.maxunicode + 1 - 0x20000) if c not in _EMPTY]
    for kind, group in groupby(codes, lambda c: unicodedata.category(chr(c))):
        run = list(group)
        text = f"\\U{run[0]:08x}-\\U{run[-1]:08x}"
        found.setdefault(kind, []).append(text)
        found.setdefault(kind[0], []).append(text)
    return {kind: "".join(runs) for kind, runs in found.items()}


def translated(expression: str) -> str:
    r"""An expression that Python's `re` reads, in which `\p{…}` and `\s` are ranges."""
    out, inside = [], False
    for part in re.findall(r"\\p\{\w+\}|\\.|\[|\]|[^\\\[\]]+", expression, re.DOTALL):
        if part.startswith("\\p"):
            ranges = _classes()[part[3:-1]]
            part = ranges if inside else f"[{ranges}]"
        elif part == "\\s":
            part = _SPACES if inside else f"[{_SPACES}]"
        elif part == "\\S":
            part = f"[^{_SPACES}]"
        elif part in "[]":
            inside = part == "["
        out.append(part)
    return "".join(out)


@cache
def _compiled(name: str) -> Sequence[re.Pattern[str]]:
    return [re.compile(translated(expression)) for expression in _WAYS[name]]


def split(text: str, name: str) -> list[str]:
    """The words of a text, which are all of it, by the way `name` (of `way`)."""
    words = [text]
    for pattern in _compiled(name):
        found = []
        for word in words:
            at = 0
            for m in pattern.finditer(word):
                begin, end = m.span()
                if begin > at:
                    found.append(word[at:begin])
                if end > begin:
                    found.append(word[begin:end])
                at = end
            if at < len(word):
                found.append(word[at:])
        words = found
    return words
