"""Random programs, compiled and not: as many of a fixed sequence as fit into some seconds. A program that differs is shown by

cd tests && python -m fuzz.compiled --show SEED --device DEVICE

and the long form is `python -m fuzz.compiled --seconds 3600`. TABTORCH_FUZZ_SEED: from which program on.
"""

from __future__ import annotations

import os
import time

import pytest

import tabtorch as torch
from fuzz import compiled
from fuzz.draft import Draft

FIRST = int(os.environ.get("TABTORCH_FUZZ_SEED") or 2_000_000)  # `make fuzz` takes a fresh one each time
#: seconds, and programs at most
BUDGET = {"cpu": (20, 400), "webgpu": (20, 30)}


def test_random_programs(device: str) -> None:
    seconds, most = BUDGET[device]
    until = time.monotonic() + seconds
    ran = 0
    while ran < most and (ran < 5 or time.monotonic() < until):
        found = compiled.run(FIRST + ran, device)
        assert not found, f"program {FIRST + ran} on {device}: {found[:5]}"
        ran += 1


def test_the_same_seed_is_the_same_program() -> None:
    for seed in range(20):
        text, d = compiled.draft(seed)
        assert compiled.draft(seed)[0] == text
        assert all(compiled.draft(seed, frozenset([f]))[1].features for f in d.features[:3])
    assert len({compiled.draft(seed)[0] for seed in range(50)}) == 50


def test_every_part_can_be_chosen() -> None:
    """No feature is dead: over many seeds, each kind of layer, optimizer and part comes up."""
    from fuzz.inference import PARTS
    from fuzz.training import LAYERS, OPTIMIZERS

    names: set[str] = set()
    for seed in range(1500):
        d = compiled.draft(seed)[1]
        names |= {f.partition(": ")[2] or f for f in d.features}
    assert names >= {*LAYERS, *PARTS, *[f"optimizer {n}" for n in OPTIMIZERS]}


@pytest.mark.parametrize("fault", ["values", "identity", "an earlier call"])
def test_a_fault_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled functions that are wrong on purpose."""
    text = "kept = []\n@compile\ndef f(x):\n    return x * 2\ndef call(i):\n    kept.append(f(torch.ones(3)))\n"
    last: list[torch.Tensor] = []

    def wrong(function: object) -> object:
        def call(x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = function(x)  # type: ignore[operator]
            if fault == "values":
                return out * 1.01
            if last and fault == "identity":
                return last[0]
            if last:
                last[0].add_(1)
            last[:] = [out]
            return out

        return call

    monkeypatch.setattr(torch, "compile", wrong)
    assert compiled.judged(text, 0, torch, "cpu")


def test_what_is_dropped_is_gone() -> None:
    """A smaller program has the choices of the larger one, but for what was dropped."""
    whole = Draft(7)
    part = Draft(7, frozenset(["a"]))
    assert whole.on("a") and not part.on("a")
    assert whole.choice("b", list(range(1000))) == part.choice("b", list(range(1000)))
