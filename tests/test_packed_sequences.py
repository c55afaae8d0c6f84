"""Packed sequences, and the recurrent layers over them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tabtorch
from sidebyside import DEVICES, same, to_tab

LENGTHS = [2, 5, 3]


def both(device: str) -> Any:
    torch.manual_seed(0)
    x = torch.randn(5, 3, 4)
    return (torch, x.clone().requires_grad_()), (tabtorch, to_tab(x.requires_grad_(), device))


def equal(want: Any, got: Any) -> None:
    if isinstance(want, tuple):
        for w, g in zip(want, got, strict=True):
            equal(w, g)
    elif want is not None:
        same(want.detach(), got.detach(), exact=False, strides=False)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("batch_first", [False, True])
def test_packing(batch_first: bool, device: str) -> None:
    found = []
    for t, x in both(device):
        rnn = t.nn.utils.rnn
        packed = rnn.pack_padded_sequence(
            x.transpose(0, 1) if batch_first else x, LENGTHS, batch_first=batch_first, enforce_sorted=False
        )
        padded, lengths = rnn.pad_packed_sequence(packed, batch_first, padding_value=-1.0, total_length=6)
        padded.pow(2).sum().backward()
        found.append((tuple(packed), padded, lengths, tuple(rnn.unpack_sequence(packed)), x.grad))
    equal(*found)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("state", [False, True])
def test_recurrent_layers(kind: str, state: bool, device: str) -> None:
    found = []
    torch.manual_seed(1)
    first = getattr(torch.nn, kind)(4, 3, 2, bidirectional=True)
    h = torch.randn(4, 3, 3)
    for t, x in both(device):
        layer = first if t is torch else getattr(tabtorch.nn, kind)(4, 3, 2, bidirectional=True).to(device)
        if t is tabtorch:
            layer.load_state_dict({k: to_tab(v, device) for k, v in first.state_dict().items()})
        hx: Any = None
        if state:
            mine = h if t is torch else to_tab(h, device)
            hx = (mine, mine) if kind == "LSTM" else mine
        packed = t.nn.utils.rnn.pack_padded_sequence(x, LENGTHS, enforce_sorted=False)
        out, last = layer(packed, hx)
        out.data.pow(2).sum().backward()
        found.append((tuple(out), last, x.grad, layer.weight_hh_l1_reverse.grad))
    equal(*found)


@pytest.mark.parametrize(
    "call",
    [
        lambda t, x: t.nn.utils.rnn.pack_padded_sequence(x, LENGTHS),
        lambda t, x: t.nn.utils.rnn.pack_padded_sequence(x, [1, 2]),
        lambda t, x: t.nn.utils.rnn.pack_padded_sequence(x, [3, 2, 0]),
        lambda t, x: t.nn.utils.rnn.pad_packed_sequence(
            t.nn.utils.rnn.pack_padded_sequence(x, [3, 2, 2]), total_length=1
        ),
    ],
)
def test_errors(call: Any) -> None:
    (_, x), (_, y) = both("cpu")
    with pytest.raises((RuntimeError, ValueError)) as want:
        call(torch, x)
    with pytest.raises(want.type) as got:
        call(tabtorch, y)
    assert str(got.value) == str(want.value)
