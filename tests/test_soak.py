"""Some hundred steps of `python -m soak`: nothing that is counted has grown."""

from __future__ import annotations

import pytest

import soak
import tabtorch


@pytest.mark.filterwarnings("ignore:torch.compile. .* was recompiled for 8 kinds")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("program", list(soak.PROGRAMS))
def test_nothing_grows_on_the_cpu(program: str, compiled: bool) -> None:
    with tabtorch.device("cpu"):
        *_, grew = soak.soak(program, compiled, 200, 150, 1)
    assert grew == []


@pytest.mark.parametrize("compiled", [False, True])
def test_nothing_grows_on_webgpu(compiled: bool, webgpu: None) -> None:
    *_, grew = soak.soak("plain", compiled, 100, 100, 1)
    assert grew == []


def test_what_grows_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    held = []

    def leaking(compiled: bool) -> object:
        return lambda i: held.append(tabtorch.ones(2) if i % 2 else [i])

    monkeypatch.setitem(soak.PROGRAMS, "leaking", leaking)
    with tabtorch.device("cpu"):
        *_, grew = soak.soak("leaking", False, 200, 200, 1)
    assert {line.partition(":")[0] for line in grew} >= {"buffers", "bytes", "python objects"}
