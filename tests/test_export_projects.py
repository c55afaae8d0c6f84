"""The models of tests/projects, exported here: PyTorch loads them, and has our numbers, at another batch, too."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch

import plan_projects
import tabtorch
from conformance.translate import back
from tabtorch import export

#: the model of a program, what it is called with, and the dimension of the batch in each argument
MODELS: dict[str, Callable[[dict[str, Any]], tuple[Any, tuple[Any, ...], tuple[Any, ...]]]] = {
    "resnet18": lambda s: (s["model"], s["batch"]()[:1], ({0: "AUTO"},)),
    "gpt": lambda s: (s["model"], s["batch"]()[:1], ({0: "AUTO"},)),
    "lstm_lm": lambda s: (s["model"], (s["batch"]()[0], s["batch"]()[2]), (None, None)),
    "vit": lambda s: (s["model"], s["arguments"]()[:1], ({0: "AUTO"},)),
    "gan": lambda s: (s["netG"], (tabtorch.randn(4, s["nz"], 1, 1),), ({0: "AUTO"},)),
    "dqn": lambda s: (s["policy_net"], s["batch"]()[:1], ({0: "AUTO"},)),
    "diffusion": lambda s: (s["models"]["model"], s["batch"](), ({0: "AUTO"}, {0: "AUTO"})),
    "unet": lambda s: (s["net"], s["batch"]()[:1], ({0: "AUTO"},)),
    "vae": lambda s: (
        s["model"].decoder,
        (tabtorch.randn(4, next(s["model"].decoder.parameters()).shape[1]),),
        ({0: "AUTO"},),
    ),
}


def _flat(x: Any, lib: Any) -> list[Any]:
    return [t.detach() for t in lib.utils._pytree.tree_leaves(x) if isinstance(t, lib.Tensor)]


@pytest.mark.parametrize("name", MODELS)
def test_project(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    space = plan_projects.program(name, "cpu")
    with tabtorch.device("cpu"):
        model, args, dims = MODELS[name](space)
        model.eval()
        shapes = tuple(None if d is None else dict.fromkeys(d, export.Dim.AUTO) for d in dims)
        ep, file = export.export(model, tuple(args), dynamic_shapes=shapes), io.BytesIO()
        export.save(ep, file)
        theirs = torch.export.load(io.BytesIO(file.getvalue())).module()
        mine = export.load(file.getvalue()).module()
        calls = [tuple(args)]
        if shapes[0]:
            assert ep.range_constraints
            calls.append(tuple(tabtorch.cat([a, a[:1]]) for a in args))
        for given in calls:
            want = _flat(model(*given), tabtorch)
            got = _flat(
                theirs(
                    *tabtorch.utils._pytree.tree_map(lambda x: back(x) if isinstance(x, tabtorch.Tensor) else x, given)
                ),
                torch,
            )
            own = _flat(mine(*given), tabtorch)
            assert len(want) == len(got) == len(own) > 0
            for w, g, o in zip(want, got, own, strict=True):
                torch.testing.assert_close(g, back(w), rtol=1e-3, atol=1e-4)
                tabtorch.testing.assert_close(o, w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["resnet18", "gpt", "vit", "gan", "dqn", "diffusion", "unet"])
def test_forms_of_a_gpu_leave_sizes_open(
    name: str, made_up_gpu: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """What a GPU's kernels would rather have decides nothing about the sizes of an exported program."""
    monkeypatch.chdir(tmp_path)
    space = plan_projects.program(name, "webgpu")
    with tabtorch.device("webgpu"):
        model, args, dims = MODELS[name](space)
        model.eval()
        shapes = tuple(None if d is None else dict.fromkeys(d, export.Dim.AUTO) for d in dims)
        assert export.export(model, tuple(args), dynamic_shapes=shapes).range_constraints
