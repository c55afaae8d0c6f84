"""Recurrent layers over many steps: every output's gradients, those of gradients, and how much is sent for a step."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tabtorch
from nn_oracle import close, flat, mine, rand
from tabtorch.bridge import get_bridge
from tabtorch.engine import graph

LAYERS = [
    ("LSTM", {}),
    ("LSTM", {"bias": False, "num_layers": 2, "bidirectional": True}),
    ("LSTM", {"proj_size": 2, "bidirectional": True, "batch_first": True}),
    ("GRU", {}),
    ("GRU", {"bias": False, "num_layers": 2, "bidirectional": True, "batch_first": True}),
    ("RNN", {"bidirectional": True}),
    ("RNN", {"nonlinearity": "relu", "num_layers": 2, "bias": False}),
]


def tensors(value: Any) -> list[Any]:
    return [t for v in value for t in tensors(v)] if isinstance(value, (tuple, list)) else [value]


@pytest.mark.parametrize("name,options", LAYERS, ids=[f"{n} {' '.join(o)}" for n, o in LAYERS])
@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("which", [slice(None), slice(0, 1), slice(1, None)], ids=["all", "output", "states"])
def test_gradients(name: str, options: dict[str, Any], which: slice, device: str) -> None:
    x = rand(4, 4, 3)
    y = mine(x)
    found = []
    for ns, t in ((tabtorch, y), (torch, x)):
        ns.manual_seed(0)
        layer = getattr(ns.nn, name)(3, 4, **options)
        outs = tensors(layer(t))[which]
        weights = [ns.linspace(-1, 1, o.numel()).reshape(o.shape) for o in outs]
        leaves = [t, *layer.parameters()]
        first = ns.autograd.grad(outs, leaves, weights, create_graph=True, allow_unused=True)
        total = sum((g * g).sum() for g in first if g is not None)
        second = ns.autograd.grad(total, leaves, allow_unused=True)
        both = [[g for g in gs if g is not None] for gs in (first, second)]
        found.append([flat(outs), *map(flat, both)])
        plain = ns.autograd.grad(tensors(layer(t))[which], leaves, weights, allow_unused=True)
        close([g for g in plain if g is not None], both[0], 1e-4, "with and without create_graph")
    for ours, theirs in zip(*found, strict=True):
        close([tabtorch.tensor(a) for a in ours], [torch.from_numpy(a) for a in theirs], 2e-4)


@pytest.mark.parametrize("name,most", [("LSTM", 6.0), ("GRU", 5.5), ("RNN", 3.5)])
def test_what_a_step_sends(name: str, most: float, device: str) -> None:
    """Dispatches of forward and backward for each time step, whatever is done once."""
    layer = getattr(tabtorch.nn, name)(6, 8)
    x = {n: tabtorch.randn(n, 2, 6) for n in (8, 40)}
    sent = {}
    for n, t in x.items():
        graph.flush()
        get_bridge().reset_stats()
        layer(t)[0].sum().backward()
        graph.flush()
        sent[n] = get_bridge().stats()["dispatches"]
    assert (sent[40] - sent[8]) / 32 < most


def test_inputs_are_checked(device: str) -> None:
    with pytest.raises(RuntimeError, match="Expected sequence length to be larger than 0 in RNN"):
        tabtorch.nn.GRU(3, 4)(tabtorch.zeros(0, 2, 3))
    out, h = tabtorch.nn.GRU(3, 4)(tabtorch.zeros(2, 0, 3))
    assert out.shape == (2, 0, 4) and h.shape == (1, 0, 4)


def test_weights_that_a_program_puts_into_its_list(device: str) -> None:
    """`_flat_weights` is what is used, until the weights of the names are others: `higher` and weight drops write there."""
    x = rand(4, 2, 3)
    found: list[list[Any]] = []
    for ns, t in ((tabtorch, mine(x)), (torch, x)):
        ns.manual_seed(0)
        layer = ns.nn.LSTM(3, 4, bidirectional=True)
        outs = [layer._flat_weights[0], layer(t)[0]]
        layer._flat_weights = [w * 2 for w in layer._flat_weights]
        outs.append(layer(t)[0])
        layer._flat_weights[1] = layer._flat_weights[1] * 0
        outs.append(layer(t)[0])
        layer.weight_ih_l0 = ns.nn.Parameter(layer.weight_ih_l0 + 1)
        outs += [layer(t)[0], layer._flat_weights[0]]
        layer._flat_weights = [w * 2 for w in layer._flat_weights]
        outs.append(layer.float()(t)[0])
        found.append(outs)
    close(found[0], found[1], 1e-5)
