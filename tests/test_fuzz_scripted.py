"""Random TorchScript programs: a fixed sequence of `fuzz.scripted`, which runs fresh ones."""

from __future__ import annotations

import warnings

import pytest

from fuzz import script_files
from fuzz.scripted import difference


@pytest.mark.parametrize("start", range(0, 640, 40))
def test_programs(start: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [difference(seed) for seed in range(start, start + 40)]
    assert found.count("") < 10  # PyTorch does not compile these
    assert not [f for f in found if f]


def test_mutated_archives() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bad, ends = script_files.findings(150, 1)
    assert not bad
    assert ends["read"] < 100
    assert sum(ends.values()) == 150
