"""Small projects in the usual style (a GPT, a ResNet, a U-Net, …) learn on tabtorch as on real PyTorch: the same losses.

Losses are compared to 1 %: fifty steps of training carry the last bit of a sum quite far.
"""

from __future__ import annotations

from functools import cache

import pytest

from sidebyside import DEVICES
from test_programs import HERE, assert_same, run_programs

NAMES = sorted(path.stem for path in (HERE / "projects").glob("*.py"))
#: these run on webgpu in a tab: browser/test_projects.py
IN_A_TAB = ("dqn", "gpt", "resnet18", "vit")


@cache
def on_pytorch(name: str) -> dict[str, str]:
    return run_programs("projects", "pytorch", name)[name]


@pytest.mark.parametrize(
    ("name", "device"), [(n, d) for d in DEVICES for n in NAMES if d == "cpu" or n not in IN_A_TAB]
)
def test_a_project(name: str, device: str) -> None:
    here, there = run_programs("projects", device, name)[name], on_pytorch(name)
    for each in (there, here):
        if each["error"]:
            pytest.fail(each["error"], pytrace=False)
    assert_same(here["out"], there["out"], 1e-2)
