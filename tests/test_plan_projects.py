"""The programs of tests/projects, written to files: 20 steps of each file are those of the program, to the last digit."""

from __future__ import annotations

import io
from typing import Any

import pytest

import tabtorch as torch
from plan_projects import ENDS, methods, program
from tabtorch import plan_files
from tabtorch.compiled.tree import flatten
from tabtorch.engine import graph
from test_plan_files import _words_of


def tensors_of(x: Any) -> list[Any]:
    found: list[Any] = []
    flatten(x, found, [], [])
    return found


@pytest.mark.parametrize("name", ENDS)
def test_a_project(name: str) -> None:
    torch.manual_seed(1)
    with torch.device("cpu"):
        space = program(name, "cpu")
        step, predict, args = methods(space)
        shown = {"gan": (torch.randn(2, space.get("nz", 1), 1, 1),), "vae": (torch.randn(5, 4),)}.get(name)
        if shown is None:
            shown = (args[0], args[2]) if name == "lstm_lm" else args[: 2 if name == "diffusion" else 1]
        file = io.BytesIO()
        plan_files.save(
            file,
            {"predict": (predict, shown), "step": (step, args)},
            model=space.get("models", space["model"]),
            optimizer=space["optimizer"],
            devices=("cpu",),
        )
        m = plan_files.load(file.getvalue(), "cpu")
        for k in range(20):
            args = tuple(space.get("arguments", space["batch"])())
            for i, g in enumerate(m._generators):  # the batches came of the same generator
                if not isinstance(g, list):
                    m._generators[i] = _words_of(torch.default_generator)
            got = [t.tolist() for t in tensors_of(m.step(*args))]
            assert got == [t.tolist() for t in tensors_of(step(*args))], k
        got, want = m.predict(*shown), predict(*shown)
        assert torch.equal(got, want)
        assert graph.bridge().alive
