"""Parametrized, normalized, fused and pruned weights, beside PyTorch."""

from __future__ import annotations

import copy
import importlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tabtorch
from sidebyside import DEVICES


def on_device_of(program: Callable[[Any, str], list[Any]], device: str, tolerance: float = 2e-5) -> None:
    """The same program gives the same values, texts and errors in both libraries."""
    found = []
    for library, where in ((torch, "cpu"), (tabtorch, device)):
        library.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(program(library, where))
    theirs, ours = found
    assert len(theirs) == len(ours)
    for k, (a, b) in enumerate(zip(theirs, ours)):
        if isinstance(a, torch.Tensor):
            torch.testing.assert_close(
                torch.tensor(b.detach().tolist()).reshape(b.shape),
                a.detach().to(torch.get_default_dtype()),
                rtol=tolerance,
                atol=tolerance,
                msg=lambda text, k=k: f"value {k}: {text}",
            )
        else:
            assert a == b, f"value {k}"


def error(call: Callable[[], Any]) -> str:
    try:
        call()
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return "no error"


def parametrizing(m: Any, device: str) -> list[Any]:
    P = m.nn.utils.parametrize

    class Symmetric(m.nn.Module):
        def forward(self, X: Any) -> Any:
            return X.triu() + X.triu(1).transpose(-1, -2)

        def right_inverse(self, A: Any) -> Any:
            return A.triu()

    class Two(m.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return x * y

        def right_inverse(self, z: Any) -> Any:
            return z, m.ones_like(z)

    class Wider(m.nn.Module):
        def forward(self, X: Any) -> Any:
            return m.cat([X, X])

    layer = m.nn.Linear(3, 3, device=device)
    P.register_parametrization(layer, "weight", Symmetric())
    x = m.arange(6.0, device=device).reshape(2, 3)
    loss = layer(x).square().sum()
    loss.backward()
    out = [repr(layer), sorted(layer.state_dict()), layer.weight, layer.parametrizations.weight.original.grad]
    out += [type(layer).__name__, P.type_before_parametrizations(layer).__name__, P.is_parametrized(layer, "bias")]
    layer.weight = m.eye(3, device=device)
    out += [layer.weight, layer.parametrizations.weight.original]
    with P.cached():
        out.append(layer.weight is layer.weight)
    out.append(layer.weight is layer.weight)
    twin = copy.deepcopy(layer)
    out += [twin.weight, error(lambda: __import__("pickle").dumps(layer))]
    out.append(error(lambda: P.register_parametrization(layer, "weight", Wider())))
    out.append(error(lambda: P.register_parametrization(m.nn.Linear(2, 2), "nothing", Symmetric())))
    out.append(error(lambda: P.register_parametrization(m.nn.Linear(2, 2), "weight", Wider())))
    two = m.nn.Linear(3, 3, device=device)
    P.register_parametrization(two, "weight", Two())
    P.register_parametrization(two, "weight", Symmetric())
    out += [two.weight, sorted(dict(two.named_parameters())), repr(two)]
    other = P.transfer_parametrizations_and_params(two, m.nn.Linear(3, 3, device=device))
    out += [other.weight, error(lambda: P.remove_parametrizations(two, "weight", leave_parametrized=False))]
    P.remove_parametrizations(two, "weight")
    P.remove_parametrizations(layer, "weight", leave_parametrized=False)
    return [*out, two.weight, layer.weight, repr(two), type(layer) is m.nn.Linear, sorted(layer.state_dict())]


def normalizing(m: Any, device: str) -> list[Any]:
    U = m.nn.utils
    out = []
    x = m.linspace(-1, 1, 2 * 3 * 5 * 5, device=device).reshape(2, 3, 5, 5)
    for make in (
        lambda layer: U.parametrizations.weight_norm(layer),
        lambda layer: U.parametrizations.weight_norm(layer, dim=None),
        lambda layer: U.parametrizations.spectral_norm(layer),
        lambda layer: U.weight_norm(layer),
        lambda layer: U.spectral_norm(layer, n_power_iterations=2),
    ):
        for kind in (m.nn.Conv2d, m.nn.ConvTranspose2d):
            layer = make(kind(3, 4, 3).to(device))
            for _ in range(2):
                layer(x).square().mean().backward()
            out += [layer(x), repr(layer), *(p.grad for p in layer.parameters()), list(layer.state_dict())]
            layer.eval()
            twin = make(kind(3, 4, 3).to(device))
            twin.load_state_dict(layer.state_dict())
            out.append(twin.eval()(x))
    old, new = (
        U.weight_norm(m.nn.Linear(3, 2, device=device)),
        U.parametrizations.weight_norm(m.nn.Linear(3, 2, device=device)),
    )
    new.load_state_dict(old.state_dict())
    out += [new.weight, U.remove_weight_norm(old).weight, error(lambda: U.remove_weight_norm(old))]
    sn = U.spectral_norm(m.nn.Linear(3, 2, device=device))
    out += [
        sn(x[0, 0, :, :3]),
        error(lambda: U.spectral_norm(sn)),
        U.remove_spectral_norm(sn).weight,
        list(sn.state_dict()),
    ]
    return out


def orthogonal(m: Any, device: str) -> list[Any]:
    out = []
    for kind in ("matrix_exp", "cayley", "householder"):
        for sizes in ((3, 3), (2, 4), (4, 2)):
            layer = m.nn.utils.parametrizations.orthogonal(m.nn.Linear(*sizes, device=device), orthogonal_map=kind)
            q = layer.weight
            gram = q.mT @ q if q.shape[0] >= q.shape[1] else q @ q.mT
            (q * m.arange(q.numel(), device=device).reshape(q.shape)).sum().backward()
            out += [gram, q, layer.parametrizations.weight.original.grad, repr(layer)]
    out.append(error(lambda: m.nn.utils.parametrizations.orthogonal(m.nn.Linear(2, 2), orthogonal_map="nothing")))
    return out


def fusing(m: Any, device: str) -> list[Any]:
    x = m.linspace(-1, 1, 2 * 3 * 5 * 5, device=device).reshape(2, 3, 5, 5)
    out = []
    for conv, transpose in (
        (m.nn.Conv2d(3, 4, 3), False),
        (m.nn.Conv2d(3, 4, 3, bias=False), False),
        (m.nn.ConvTranspose2d(3, 4, 3), True),
    ):
        bn = m.nn.BatchNorm2d(4)
        both = m.nn.Sequential(conv, bn).to(device)
        both(x)
        both.eval()
        fused = m.nn.utils.fuse_conv_bn_eval(conv, bn, transpose)
        out += [fused(x), both(x), repr(fused)]
    linear, bn = m.nn.Linear(5, 4, device=device), m.nn.BatchNorm1d(4, device=device).train()
    out.append(error(lambda: m.nn.utils.fuse_linear_bn_eval(linear, bn)))
    bn(linear(x[0, 0]))
    return [*out, m.nn.utils.fuse_linear_bn_eval(linear.eval(), bn.eval())(x[0, 0])]


def pruning(m: Any, device: str) -> list[Any]:
    prune = importlib.import_module(m.__name__ + ".nn.utils.prune")
    out = []
    for act in (
        lambda layer: prune.random_unstructured(layer, "weight", 0.3),
        lambda layer: prune.l1_unstructured(layer, "weight", 5),
        lambda layer: prune.random_structured(layer, "weight", 2, dim=0),
        lambda layer: prune.ln_structured(layer, "weight", 0.5, n=2, dim=1),
        lambda layer: prune.identity(layer, "weight"),
    ):
        layer = act(m.nn.Linear(4, 6).to(device))
        out += [layer.weight, layer.weight_mask, list(layer.state_dict()), prune.is_pruned(layer)]
        prune.l1_unstructured(layer, "weight", 0.2)  # once more, of what is left
        layer(m.ones(2, 4, device=device)).sum().backward()
        out += [layer.weight, layer.weight_orig.grad, [type(h).__name__ for h in layer._forward_pre_hooks.values()]]
        prune.remove(layer, "weight")
        out += [layer.weight, list(layer.state_dict()), error(lambda layer=layer: prune.remove(layer, "weight"))]
    net = m.nn.Sequential(m.nn.Linear(4, 6), m.nn.Linear(6, 2)).to(device)
    where = [(net[0], "weight"), (net[1], "weight")]
    prune.global_unstructured(where, pruning_method=prune.L1Unstructured, amount=0.4)
    out += [net[0].weight, net[1].weight]
    out += [
        error(lambda: prune.l1_unstructured(net[0], "weight", 100)),
        error(lambda: prune.l1_unstructured(net[0], "bias", 1.5)),
    ]
    return out


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("program", [parametrizing, normalizing, orthogonal, fusing, pruning], ids=lambda f: f.__name__)
def test_beside_pytorch(program: Callable[[Any, str], list[Any]], device: str) -> None:
    on_device_of(program, device)
