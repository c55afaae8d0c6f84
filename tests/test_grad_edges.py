"""Gradients where a function has a corner, and at infinite numbers and NaN, against PyTorch's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tabtorch
from sidebyside import DEVICES

NAN, INF = math.nan, math.inf
#: few enough that PyTorch takes them one by one: for NaN its vector units give other gradients than its formulas
NUMBERS = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0]
ROWS = [[1.0, 0.0, 2.0, -1.0], [0.5, 0.5, -0.5, 1.5]]
IMAGE = [[NAN, 1.0, NAN, 2.0], [3.0, NAN, 5.0, 6.0], [1.0, 2.0, 3.0, 4.0], [NAN, NAN, 1.0, NAN]]
#: what is beside them has no part in them
EDGED = [[INF, 1.0, 2.0, 2.0], [3.0, 1.0, 5.0, 6.0], [1.0, 2.0, 3.0, 4.0], [0.5, 0.5, 1.0, NAN]]

ELEMENTWISE = (
    "hardtanh relu6 relu elu selu celu leaky_relu hardswish hardsigmoid softplus logsigmoid silu mish tanhshrink threshold"
).split()


def functions() -> dict[str, tuple[Callable[[Any, Any], Any], Any]]:
    """Of a library and a tensor; and the numbers of that tensor."""
    found: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
        "smooth_l1_loss": (lambda t, x: t.nn.functional.smooth_l1_loss(x, t.zeros_like(x), beta=0.5), NUMBERS),
        "huber_loss": (lambda t, x: t.nn.functional.huber_loss(x, t.zeros_like(x), delta=0.5), NUMBERS),
        "acosh": (lambda t, x: x.acosh(), [-INF, -3.0, -1.0, 1.0, 2.0, INF]),
        "multi_margin_loss": (
            lambda t, x: t.nn.functional.multi_margin_loss(x, t.tensor([0, 3], device=x.device)),
            ROWS,
        ),
        "multi_margin_loss of NaN": (
            lambda t, x: t.nn.functional.multi_margin_loss(x[:2], t.tensor([3, 0], device=x.device)),
            IMAGE,
        ),
        "multilabel_margin_loss": (
            lambda t, x: t.nn.functional.multilabel_margin_loss(
                x, t.tensor([[0, 2, -1, 0], [3, -1, 1, 0]], device=x.device)
            ),
            ROWS,
        ),
        "amax": (lambda t, x: x.amax(), NUMBERS),
        "amax over rows": (lambda t, x: x.amax(1), IMAGE),
        "aminmax": (lambda t, x: x.aminmax()[0], NUMBERS),
        "max": (lambda t, x: x.max(), NUMBERS),
        "scatter_reduce": (
            lambda t, x: x.scatter_reduce(0, t.tensor([0, 1, 1], device=x.device), x[3:6] * 1, "amax"),
            NUMBERS,
        ),
        "cdist of 0": (
            lambda t, x: t.cdist(x, x.detach() * t.tensor([1.0, 2.0, 1.0, 1.0], device=x.device), p=0),
            ROWS,
        ),
        "pdist of one row": (lambda t, x: t.nn.functional.pdist(x[:1]), ROWS),
        "max_pool2d": (lambda t, x: t.nn.functional.max_pool2d(x[None], 2), IMAGE),
        "adaptive_max_pool2d": (lambda t, x: t.nn.functional.adaptive_max_pool2d(x[None], 2), IMAGE),
        "adaptive_avg_pool2d": (lambda t, x: t.nn.functional.adaptive_avg_pool2d(x[None], 3), EDGED),
        "interpolate": (lambda t, x: t.nn.functional.interpolate(x[None, None], (3, 5), mode="area"), EDGED),
        "max_pool3d": (lambda t, x: t.nn.functional.max_pool3d(x[None, None, None], (1, 2, 2)), IMAGE),
        "fractional_max_pool2d": (
            lambda t, x: t.nn.functional.fractional_max_pool2d(
                x[None], 2, output_size=2, _random_samples=t.full((1, 1, 2), 0.5, device=x.device)
            ),
            IMAGE,
        ),
    }
    for name in ELEMENTWISE:
        args = (0.0, 2.0) if name == "threshold" else ()
        found[name] = (lambda t, x, name=name, args=args: getattr(t.nn.functional, name)(x, *args), NUMBERS)
    return found


@pytest.mark.parametrize("name", functions())
@pytest.mark.parametrize("device", DEVICES)
def test_gradients(name: str, device: str) -> None:
    f, numbers = functions()[name]
    found = []
    for t, where in ((torch, "cpu"), (tabtorch, device)):
        x = t.tensor(numbers, device=where, requires_grad=True)
        y = f(t, x)
        (g,) = t.autograd.grad(y, x, t.ones_like(y))
        found.append([torch.tensor(v.detach().tolist()) for v in (y, g)])
    for want, got in zip(*found):
        torch.testing.assert_close(got, want, equal_nan=True)


@pytest.mark.parametrize("device", DEVICES)
def test_the_last_of_several_nan(device: str) -> None:
    """A window's place of NaN is the last; `max` along a dimension names the first."""
    for name, args in (("max_pool2d", (2,)), ("adaptive_max_pool2d", (2,)), ("max_pool1d", (4,))):
        places = [
            getattr(t.nn.functional, name)(t.tensor(IMAGE, device=where)[None], *args, return_indices=True)[1].tolist()
            for t, where in ((torch, "cpu"), (tabtorch, device))
        ]
        assert places[0] == places[1], name
    assert tabtorch.tensor(IMAGE, device=device).max(1)[1].tolist() == [0, 1, 3, 0]


@pytest.mark.parametrize("device", DEVICES)
def test_a_view_that_nothing_recorded(device: str) -> None:
    """It says that it requires a gradient, as its base does; there is no way back from it."""
    for t, where in ((torch, "cpu"), (tabtorch, device)):
        x = t.ones(2, 3, device=where, requires_grad=True)
        with t.no_grad():
            y = x.t()
        assert y.requires_grad
        with pytest.raises(
            RuntimeError, match="element 0 of tensors does not require grad and does not have a grad_fn"
        ):
            y.backward(t.ones(3, 2, device=where))


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "threshold", "rrelu"])
def test_what_a_gradient_of_slope_zero_hangs_on(name: str) -> None:
    """It requires a gradient, of zeros, in place too: a penalty on it goes back."""
    args = (0.0, 1.0) if name == "threshold" else ()
    for t in (torch, tabtorch):
        x = t.tensor([-1.0, 0.5, 2.0], device="cpu", requires_grad=True)
        y = getattr(t.nn.functional, name)(x * 1, *args, inplace=True)
        (g,) = t.autograd.grad(y.sum(), x, create_graph=True)
        (g * g).sum().backward()
        assert x.grad.tolist() == [0.0, 0.0, 0.0]
