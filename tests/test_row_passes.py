"""Rows that one thread walks several times, as software adapters and the cpu device have them: what later passes find in memory."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import tabtorch
from sidebyside import to_tab
from tabtorch.bridge import get_bridge


def test_what_is_dear_is_computed_once(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one thread walks a row several times, exponentials wait for the last pass in the memory of the result; a value that is
    stored itself is read again. Where that memory has another dtype, or several elements share a word of it, they are computed
    again."""
    texts: list[str] = []
    bridge = get_bridge()
    define = bridge.define_kernel
    monkeypatch.setattr(bridge, "define_kernel", lambda spec: texts.append(spec["source"]) or define(spec))
    monkeypatch.setattr("tabtorch.engine.builder._kernels", {})
    x = torch.randn(64, 300, generator=torch.Generator().manual_seed(0))

    def both(lib: Any, x: Any) -> list[Any]:
        e = (x - 1).exp()
        return [e, e / e.sum(-1, keepdim=True)]

    def halves(lib: Any, x: Any) -> list[Any]:
        e = x.half().exp()
        return [e, e.float() / e.float().sum(-1, keepdim=True)]

    cases: list[tuple[Any, int]] = [
        (lambda lib, x: [lib.softmax(x, -1)], 1),
        (both, 1),
        (lambda lib, x: [lib.softmax(x, -1).to(lib.float16)], 2),
        (halves, 1 if device == "cpu" else 2),
        (lambda lib, x: [lib.nn.functional.layer_norm(lib.exp(x), (300,))], 1),
    ]
    for f, calls in cases:
        del texts[:]
        mine = to_tab(x, device)
        for got, want in zip(f(tabtorch, mine), f(torch, x), strict=True):
            torch.testing.assert_close(torch.from_numpy(got.numpy()), want)
        assert sum(len(re.findall(r"= (?:tt_exp_f32|\(Math\.exp)\(", t)) for t in texts) == calls
