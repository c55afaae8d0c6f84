"""Random programs for the engine against PyTorch, on both devices and in the forms that kernels have on a GPU.

Fresh ones each time: `python -m fuzz.kernels`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from fuzz import kernel_forms, kernels
from tabtorch.engine import row_kernel

#: seconds, and the number of programs at most
BOX = {"cpu": (6, 100), "webgpu": (8, 40), "gpu": (10, 40)}


@pytest.mark.parametrize("target", kernels.TARGETS)
def test_programs(target: str) -> None:
    seconds, most = BOX[target]
    ran, wrong = kernels.run_many(0, target, seconds, most)
    assert not wrong, "\n\n".join(f"{kernels.shown(seed)}\n# on {target}: {why}" for seed, why in wrong)
    assert ran > 1


def test_each_form_of_kernel_is_reached() -> None:
    """By the programs that are for it, whatever else they do; and a few lead to none but what comes."""
    turns = 4
    every = len(kernel_forms.THEMES) + 1
    found: Counter[str] = Counter()
    for seed in range(turns * every):
        found.update(kernels.forms_of(seed))
    assert "rows" in found
    assert not {k: found[k] for k in kernel_forms.THEMES if found[k] < turns - 1}, found


def test_a_wrong_kernel_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of which each thread knows its own elements only do not pass. Programs for registers have such rows."""
    monkeypatch.setattr(row_kernel.RowKernel, "join_threads", lambda self, states: states)
    first = list(kernel_forms.THEMES).index("registers")
    assert any(kernels.check(first + k * (len(kernel_forms.THEMES) + 1), "gpu") for k in range(3))
