"""Programs that were loaded, as modules: one plan when they are compiled, trained in the browser's device and the other, draws."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch

import export_models
import tabtorch
from conformance.translate import Translator, back
from tabtorch import export
from tabtorch._dynamo.utils import counters


def archive(lib: Any, name: str, **dims: tuple[int, int]) -> tuple[Any, bytes, tuple[Any, ...]]:
    """(module, archive, inputs); dims: of the first input's dimensions, in order, which may vary."""
    lib.manual_seed(0)
    with lib.device("cpu"):
        module, args, _ = export_models.cases(lib)[name]()
        named = {d: lib.export.Dim(n, min=a, max=b) for d, (n, (a, b)) in enumerate(dims.items())}
        ep, file = lib.export.export(module, args, dynamic_shapes=(named,) if named else None), io.BytesIO()
        lib.export.save(ep, file)
    return module, file.getvalue(), args


@pytest.mark.parametrize("lib", [torch, tabtorch], ids=["theirs", "ours"])
def test_one_recording(lib: Any) -> None:
    """Compiled, it is recorded once: called again at the same size, and, where sizes are dynamic, at any."""
    _, data, _ = archive(lib, "gpt", batch=(2, 64), length=(2, 16))
    module = export.load(data, map_location="cpu").module()
    for dynamic, sizes in ((False, [(3, 5)] * 3), (True, [(3, 5), (4, 6), (5, 7), (6, 9), (2, 16)])):
        counters.clear()
        compiled = tabtorch.compile(module, fullgraph=True, dynamic=dynamic)
        for shape in sizes:
            x = (tabtorch.arange(shape[0] * shape[1], device="cpu") * 7 % 10).reshape(shape)
            tabtorch.testing.assert_close(compiled(x), module(x))
        assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("name", ["mlp", "cnn_training", "gpt"])
def test_what_we_exported_trains(name: str, device: str) -> None:
    """Five steps, with the losses of the module itself, and with its parameters and buffers afterwards."""
    module, data, args = archive(tabtorch, name)
    module, args = module.to(device), tuple(a.to(device) for a in args)
    loaded = export.load(data, map_location=device).module()
    steps = [tabtorch.optim.SGD(m.parameters(), lr=0.1) for m in (module, loaded)]
    for _ in range(5):
        losses = []
        for m, optimizer in zip((module, loaded), steps, strict=True):
            optimizer.zero_grad()
            loss = m(*args).pow(2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    want = module.state_dict()
    for key, value in loaded.state_dict().items():
        tabtorch.testing.assert_close(value, want[key], rtol=1e-3, atol=1e-5)


class _Draws:
    """A module that draws, over either library."""

    def __new__(cls, lib: Any) -> Any:
        class Draws(lib.nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.drop = lib.nn.Dropout(0.4)

            def forward(self, x: Any) -> Any:
                return self.drop(x) + lib.rand_like(x) + lib.randn(3, 4) * lib.bernoulli(x.sigmoid())

        return Draws().train()


@pytest.mark.parametrize("lib", [torch, tabtorch], ids=["theirs", "ours"])
def test_draws(lib: Any) -> None:
    """Dropout stays what it was when it was exported; after a seed the numbers are PyTorch's, on the cpu, each call's others."""
    with lib.device("cpu"):
        ep, file = lib.export.export(_Draws(lib), (lib.ones(3, 4),)), io.BytesIO()
        lib.export.save(ep, file)
    theirs = torch.export.load(io.BytesIO(file.getvalue())).module()
    ours = export.load(file.getvalue(), map_location="cpu").module()
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    torch.manual_seed(5)
    tabtorch.manual_seed(5)
    calls = [(theirs(x), ours(Translator("cpu")(x))) for _ in range(2)]
    for want, got in calls:
        torch.testing.assert_close(back(got.detach()), want, rtol=1e-5, atol=1e-6)
    assert not torch.equal(calls[0][0], calls[1][0])
