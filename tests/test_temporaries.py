"""Where temporaries lie: no two that live at once share bytes, and what a step reads and writes lies in different pieces."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from sidebyside import to_tab
from tabtorch.engine import graph, schedules, temporaries
from tabtorch.engine.temporaries import ALIGNMENT, lay_out


@pytest.mark.parametrize("seed", range(60))
def test_no_two_that_live_at_once_overlap(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporaries, "LITTLE", (seed % 2) << 40)  # as laid out by offset, and in a hurry
    r = random.Random(seed)
    count = r.randint(1, 40)
    lives = sorted((first, first + r.randint(0, 12)) for first in (r.randint(0, 60) for _ in range(count)))
    sizes = [r.choice([4, 256, 260, 10_000, 1 << 20]) for _ in range(count)]
    at_once = [(i, j) for i in range(count) for j in range(i) if lives[i][0] <= lives[j][1]]
    pairs = set(r.sample(at_once, len(at_once) // 6))
    apart = [[j for j in range(count) if (i, j) in pairs or (j, i) in pairs] for i in range(count)]
    limit = 3 << 20
    pieces, places = lay_out(lives, sizes, apart, limit)
    for (piece, begin), size in zip(places, sizes, strict=True):
        assert begin % ALIGNMENT == 0 and begin + size <= pieces[piece] <= limit
    for i, j in at_once:
        (p, a), (q, b) = places[i], places[j]
        assert p != q or a + sizes[i] <= b or b + sizes[j] <= a
    assert all(places[i][0] != places[j][0] for i, j in pairs)


def test_programs_whose_temporaries_share_pieces(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.flush()
    monkeypatch.setattr(temporaries, "LITTLE", 0)
    monkeypatch.setattr(graph, "_plans", {})
    schedules.forget()
    generator = torch.Generator().manual_seed(0)
    xs = [torch.randn(*s, generator=generator) for s in ((60, 50), (50, 70), (70, 60))]

    def f(a: Any, b: Any, c: Any) -> Any:
        x = (a @ b).softmax(-1)
        y = (x @ c).relu() @ (x @ c).sigmoid().T
        z = (y.cumsum(0) @ y.sort(1)[0]).softmax(0)
        return ((z @ a) @ b).sum(1) + (y * y.mean(0)).sum(1)

    got = torch.from_numpy(f(*(to_tab(x, device) for x in xs)).numpy())
    torch.testing.assert_close(got, f(*xs), rtol=1e-4, atol=1e-3)
    assert any(len(set(p)) < len(p) for p in [[place[0] for place in _places(plan)] for plan in graph._plans.values()])


def _places(plan: Any) -> Any:
    """The places of a plan's temporaries, laid out again."""
    s = plan.schedule
    return s.placed([size or 4 for size in (getattr(x, "value", x) for x in s.numbers[s.first_temp :])])[1]
