"""Random programs for the engine against PyTorch, on both devices and in the forms that kernels have on a GPU.

Fresh ones each time: `python -m fuzz.kernels`.
"""

from __future__ import annotations

from typing import Any

import pytest

from fuzz import kernels
from tabtorch.engine import row_chunks

#: seconds, and the number of programs at most
BOX = {"cpu": (6, 100), "webgpu": (8, 40), "gpu": (10, 40)}


@pytest.mark.parametrize("target", kernels.TARGETS)
def test_programs(target: str) -> None:
    seconds, most = BOX[target]
    ran, wrong = kernels.run_many(0, target, seconds, most)
    assert not wrong, "\n\n".join(f"{kernels.shown(seed)}\n# on {target}: {why}" for seed, why in wrong)
    assert ran > 5


def test_a_wrong_kernel_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks whose last one is forgotten do not pass."""
    load = row_chunks.States.load

    def first_only(self: Any, k: Any, p: int, o: Any, c: Any) -> Any:
        return load(self, k, p, o, c * row_chunks.const(0, "u32"))

    monkeypatch.setattr(row_chunks.States, "load", first_only)
    _, wrong = kernels.run_many(0, "gpu", 12, 60)
    assert wrong
