"""Texts, which the host has, and vectors that count them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import tabtorch as torch
from tabtorch.onnx.registry import Host, Tensor, operator
from tabtorch.onnx.values import BOOL, INT64, STRING, Known, Unsupported, broadcast, places

_CASES: dict[str, Callable[[str], str]] = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}


@operator("StringConcat")
def string_concat(a: Host, b: Host) -> Known:
    shape = broadcast([a.shape, b.shape])
    columns = [[k.values[i] for i in places(k.shape, shape)] for k in (a, b)]
    return Known([x + y for x, y in zip(*columns)], shape, STRING)


@operator("StringSplit")
def string_split(x: Host, *, delimiter: str = "", maxsplit: int = -1) -> tuple[Known, Known]:
    parts = [v.split(delimiter or None, maxsplit) for v in x.values]
    most = max((len(p) for p in parts), default=0)
    filled = [w for p in parts for w in p + [""] * (most - len(p))]
    return Known(filled, (*x.shape, most), STRING), Known([len(p) for p in parts], x.shape, INT64)


@operator("RegexFullMatch")
def regex_full_match(x: Host, *, pattern: str) -> Known:
    return Known([re.fullmatch(pattern, v) is not None for v in x.values], x.shape, BOOL)


@operator("StringNormalizer")
def string_normalizer(
    x: Host,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str = "",
    stopwords: list[str] | None = None,
) -> Known:
    same = str if is_case_sensitive else str.lower
    stops = {same(w) for w in stopwords or ()}
    kept = [_CASES[case_change_action](v) for v in x.values if same(v) not in stops] or [""]
    return Known(kept, (*x.shape[:-1], len(kept)), STRING)


@operator("TfIdfVectorizer")
def tf_idf_vectorizer(
    x: Host,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: list[int],
    ngram_indexes: list[int],
    pool_int64s: list[int] | None = None,
    pool_strings: list[str] | None = None,
    weights: list[float] | None = None,
    run: Any,
) -> Tensor:
    if mode not in ("TF", "IDF", "TFIDF"):
        raise Unsupported(f"TfIdfVectorizer with the mode {mode!r} is not supported")
    pool: list[Any] = pool_strings or pool_int64s or []
    columns: dict[tuple[Any, ...], int] = {}
    seen = 0
    for n, (a, b) in enumerate(zip(ngram_counts, [*ngram_counts[1:], len(pool)]), 1):
        for at in range(a, b, n):
            columns[tuple(pool[at : at + n])] = ngram_indexes[seen]
            seen += 1
    width = x.shape[-1]
    rows = [x.values[i : i + width] for i in range(0, len(x.values), width)] if width else []
    found = [[0] * (max(ngram_indexes) + 1) for _ in rows] or [[0] * (max(ngram_indexes) + 1)]
    for row, counts in zip(rows, found):
        for n in range(min_gram_length, max_gram_length + 1):
            # of single words there is nothing to be skipped
            for step in range(1, (max_skip_count if n > 1 else 0) + 2):
                for at in range(width - (n - 1) * step):
                    column = columns.get(tuple(row[at : at + (n - 1) * step + 1 : step]))
                    if column is not None:
                        counts[column] += 1
    y = torch.tensor(found, dtype=torch.float32, device=run.device)
    y = y.clamp(max=1) if mode == "IDF" else y
    if mode != "TF" and weights:
        y = y * torch.tensor(weights, device=run.device)
    return y.reshape(*x.shape[:-1], -1)
