"""Random programs for the engine against PyTorch, on both devices and in the forms that kernels have on a GPU.

Fresh ones each time: `python -m fuzz.kernels`.
"""

from __future__ import annotations

import pytest

from fuzz import kernels
from tabtorch.engine import row_kernel

#: seconds, and the number of programs at most
BOX = {"cpu": (6, 100), "webgpu": (8, 40), "gpu": (10, 40)}


@pytest.mark.parametrize("target", kernels.TARGETS)
def test_programs(target: str) -> None:
    seconds, most = BOX[target]
    ran, wrong = kernels.run_many(0, target, seconds, most)
    assert not wrong, "\n\n".join(f"{kernels.shown(seed)}\n# on {target}: {why}" for seed, why in wrong)
    assert ran > 5


def test_a_wrong_kernel_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of which each thread knows its own elements only do not pass. Some program of these has such rows."""
    monkeypatch.setattr(row_kernel.RowKernel, "join_threads", lambda self, states: states)
    _, wrong = kernels.run_many(14, "gpu", 60, 4)
    assert wrong
