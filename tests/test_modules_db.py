"""A slice of PyTorch's table of modules on both devices; the whole is `python -m conformance.modules`."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tabtorch
from conformance import modules
from tabtorch.nn import functional as F
from tabtorch.ops.functional import attention

SLICE = (
    "Linear Conv2d ConvTranspose1d BatchNorm1d InstanceNorm2d LayerNorm Embedding AdaptiveAvgPool2d MaxPool2d GELU LSTM GRU "
    "LSTMCell MultiheadAttention TransformerEncoder CrossEntropyLoss LinearCrossEntropyLoss CTCLoss CircularPad2d LazyConv1d "
    "Dropout Dropout1d AlphaDropout RReLU"
).split()


def failures(name: str, device: str, check: str, samples: int = 3) -> list[tuple[str, str]]:
    found = modules.answer(name, device, check, "float32", samples)
    assert found.failed + found.passed + found.skipped
    return found.failures


@pytest.mark.parametrize("name", SLICE)
def test_module(name: str, device: str) -> None:
    info = modules.infos()["nn." + name]
    for check, dtype in modules.asked(info, device):
        if dtype == "float32":
            assert not failures(info.name, device, check), check


def test_every_module_has_a_counterpart() -> None:
    assert [n for n, m in modules.infos().items() if not hasattr(tabtorch.nn, m.module_cls.__name__)] == []


def test_rows_for_the_page() -> None:
    answers = [modules.answer("nn.Hardtanh", "cpu", check, "float32") for check in ("construct", "forward", "gradient")]
    (row,) = modules.rows(answers)
    assert row["name"] == "nn.Hardtanh" and row["forward"][0] == row["forward"][1] > 0


@pytest.mark.parametrize(
    "check,method,wrong",
    [
        ("forward", "forward", lambda self, x: tabtorch.nn.functional.gelu(x) + 1e-3),
        ("gradient", "forward", lambda self, x: tabtorch.nn.functional.gelu(x).detach() + 0 * x),
        ("construct", "extra_repr", lambda self: "approximate='other'"),
    ],
)
def test_it_can_fail(monkeypatch: pytest.MonkeyPatch, check: str, method: str, wrong: object) -> None:
    monkeypatch.setattr(tabtorch.nn.GELU, method, wrong)
    assert failures("nn.GELU", "cpu", check)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda self, x: F.dropout(x, self.p / 2, self.training),
        lambda self, x: F.dropout(x, self.p, self.training) * 1.01,
        lambda self, x: F.dropout(x, self.p, self.training) + x.mean(),
        lambda self, x: F.dropout(F.dropout(x, self.p, self.training), 0.1, self.training),
        lambda self, x: x,
    ],
    ids=["another share", "another scale", "no zeros", "twice", "never"],
)
def test_what_is_drawn_is_held_against_the_formula(monkeypatch: pytest.MonkeyPatch, wrong: object, device: str) -> None:
    monkeypatch.setattr(tabtorch.nn.Dropout, "forward", wrong)
    assert failures("nn.Dropout", device, "forward")


def test_dropout_of_weights_is_held_against_the_formula(monkeypatch: pytest.MonkeyPatch, webgpu: None) -> None:
    def wrong(x: Any, p: float) -> Any:
        return F.dropout(x.detach(), p) + 0 * x

    monkeypatch.setattr(attention, "dropout", wrong)
    assert failures("nn.MultiheadAttention", "webgpu", "gradient", 1)


def test_a_wrong_initial_value_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tabtorch.nn.Linear, "reset_parameters", lambda self: tabtorch.nn.init.ones_(self.weight))
    assert failures("nn.Linear", "cpu", "construct")
    torch.manual_seed(0)
