"""Slices of the random programs and mutated archives of `torch.export`, and of PyTorch's table of modules through them.

The wholes: `python -m fuzz.exported`, `python -m fuzz.exported_files`, `python export_modules.py`, from tests.
"""

from __future__ import annotations

import pytest

import export_modules
import slices
from fuzz import exported, exported_files


def test_random_programs() -> None:
    """Three others with each commit."""
    found, counts = exported.run(3, f"suite-{slices.number()}")
    assert not found
    assert counts


def test_mutated_archives() -> None:
    """An error of reading, or a program; 150 others with each commit."""
    found, counts = exported_files.run(150, f"suite-{slices.number()}")
    assert not found
    assert counts["refused"] > 50


@pytest.mark.parametrize(
    "name",
    slices.part(
        [
            "nn.Linear",
            "nn.Conv2d",
            "nn.BatchNorm2d",
            "nn.LSTM",
            "nn.AdaptiveMaxPool2d",
            "nn.LocalResponseNorm",
            "nn.MultiheadAttention",
            "nn.CrossEntropyLoss",
            "nn.Embedding",
            "nn.GRU",
            "nn.NLLLoss",
            "nn.MaxPool2d",
        ],
        5,
        "export modules",
    ),
)
@pytest.mark.parametrize("question", export_modules.QUESTIONS)
def test_modules(name: str, question: str) -> None:
    answers = export_modules.answer(name, question, samples=1)
    assert answers and not any(len(a) > 1 for a in answers)
