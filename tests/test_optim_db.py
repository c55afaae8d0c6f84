"""PyTorch's own table of optimizers: a slice of what `python -m conformance.optimizers` asks in whole."""

import pytest

import tabtorch
from conformance import optimizers
from sidebyside import DEVICES

INFOS = {info.name: info for info in optimizers.optim_db}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", INFOS)
def test_optimizer(name, device, monkeypatch):
    """Some steps of the last input, its state dict to and fro, and all error inputs on one device."""
    monkeypatch.setattr(optimizers, "STEPS", 6)
    info = INFOS[name]
    asked = list(optimizers.questions(info))
    inputs = [q for q in asked if q[0] != "errors" and "differentiable" not in q[1]]
    failed = []
    for kind, what, ask in [*inputs[-3:], *(q for q in asked if q[0] == "errors" and device == "cpu")]:
        with tabtorch.device(device):
            try:
                ask(device)
            except optimizers.Failed as e:
                failed.append(f"{kind} ({what}): {e}")
    assert not failed


def test_all_are_there():
    """The names of torch.optim, its table's fifteen among them."""
    import torch

    assert len(INFOS) == 15
    assert set(torch.optim.__all__) == set(tabtorch.optim.__all__)
    assert all(hasattr(tabtorch.optim, name) for name in torch.optim.__all__)
