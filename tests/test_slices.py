"""Slices: n commits' worth of them is everything, and what is sliced is there."""

from __future__ import annotations

from pathlib import Path

import pytest

import slices

ROOT = Path(__file__).parents[1]


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> object:
    def choose(value: str) -> None:
        monkeypatch.setenv("TABTORCH_SLICE", value)
        slices.number.cache_clear()

    yield choose
    slices.number.cache_clear()


def test_all_slices_are_the_whole(chosen: object) -> None:
    seen: list[int] = []
    for k in range(5):
        chosen(str(k))  # type: ignore[operator]
        seen += slices.part(range(23), 5, "x")
    assert sorted(seen) == list(range(23))
    chosen("all")  # type: ignore[operator]
    assert slices.part(range(23), 5, "x") == list(range(23))


def test_tests_are_left_to_other_slices(chosen: object) -> None:
    file, word, n = slices.SLICES[0]
    names = [f"{file}::test[{word}-{i}]" for i in range(3 * n)] + ["tests/test_tiny.py::test"]
    left = []
    for k in range(n):
        chosen(str(k))  # type: ignore[operator]
        out, said = slices.sliced(names)
        assert len(out) == 3 * n - 3 and len(said) == 1 and len(names) - 1 not in out
        left += sorted(out)
    assert sorted(left) == sorted([*range(3 * n)] * (n - 1))
    chosen("all")  # type: ignore[operator]
    assert slices.sliced(names) == (set(), [])


def test_what_is_sliced_is_there() -> None:
    assert all((ROOT / file).is_file() for file, _, _ in slices.SLICES)


def test_without_a_repository_there_is_a_slice(chosen: object, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen("")  # type: ignore[operator]
    monkeypatch.setenv("PATH", "/nonexistent")
    assert slices.number() == 0
