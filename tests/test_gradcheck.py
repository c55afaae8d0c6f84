"""torch.autograd.gradcheck and gradgradcheck beside PyTorch's: what passes, what does not, and what is said then."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import tabtorch

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def leaf(t: Any, *shape: int, dtype: str = "float64", scale: float = 1.0) -> Any:
    n = 1
    for s in shape:
        n *= s
    x = (t.arange(1, n + 1, dtype=t.float64, device="cpu") * scale).sin().reshape(shape)
    x = t.complex(x, x.cos()) if dtype == "complex128" else x
    return x.to(getattr(t, dtype)).detach().requires_grad_()


def wrong(t: Any, factor: float = 3.0, forward: float = 2.0) -> Any:
    class Double(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * factor

        @staticmethod
        def jvp(ctx: Any, v: Any) -> Any:
            return v * forward

    return Double.apply


def constant(t: Any) -> Any:
    class One(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return t.ones_like(g)

    return One.apply


C = {
    "product": lambda t, check, **k: check(lambda x, y: x * y.exp(), (leaf(t, 2, 2), leaf(t, 2)), **k),
    "two outputs": lambda t, check, **k: check(lambda x: (x.sum(), (x > 0), x.sin()), leaf(t, 3), **k),
    "complex": lambda t, check, **k: check(
        lambda x, y: x * y.conj(), (leaf(t, 2, dtype="complex128"), leaf(t, 2, dtype="complex128")), **k
    ),
    "to real": lambda t, check, **k: check(lambda x: x.abs(), leaf(t, 2, dtype="complex128"), **k),
    "empty": lambda t, check, **k: check(lambda x: x.exp(), leaf(t, 0), **k),
    "detached": lambda t, check, **k: check(lambda x: x.detach() * 2, leaf(t, 2), **k),
    "no grad": lambda t, check, **k: check(lambda x: x, t.ones(2), **k),
    "single": lambda t, check, **k: check(lambda x: x * 2, leaf(t, 2, dtype="float32"), **k),
    "stride 0": lambda t, check, **k: check(lambda x: x * 2, leaf(t, 1).detach().expand(3).requires_grad_(), **k),
    "wrong": lambda t, check, **k: check(lambda x: wrong(t)(x), leaf(t, 2), **k),
    "wrong second": lambda t, check, **k: check(lambda x, y: (x * y, wrong(t)(y)), (leaf(t, 2), leaf(t, 2)), **k),
    "wrong complex": lambda t, check, **k: check(lambda x: wrong(t)(x), leaf(t, 1, dtype="complex128"), **k),
    "not linear": lambda t, check, **k: check(lambda x: constant(t)(x), leaf(t, 2), **k),
}
OPTIONS: dict[str, Any] = {
    "": {},
    "fast": {"fast_mode": True},
    "quiet": {"raise_exception": False},
    "forward": {"check_forward_ad": True},
    "only forward": {"check_forward_ad": True, "check_backward_ad": False, "check_undefined_grad": False},
    "fast forward": {"check_forward_ad": True, "fast_mode": True},
}


def outcome(call: Any, t: Any, check: Any, options: Any) -> Any:
    with warnings.catch_warnings(record=True) as w, tabtorch.device("cpu"):
        warnings.simplefilter("always")
        try:
            r: Any = call(t, check, **options)
        except Exception as e:
            r = f"{type(e).__name__}: {e}".replace(", device='cpu'", "")
    told = [str(x.message) for x in w if x.category is UserWarning and "Backwards compat" not in str(x.message)]
    return r, told


@pytest.mark.parametrize("how", OPTIONS)
@pytest.mark.parametrize("name", C)
def test_gradcheck(name: str, how: str) -> None:
    want = outcome(C[name], torch, torch.autograd.gradcheck, OPTIONS[how])
    assert outcome(C[name], tabtorch, tabtorch.autograd.gradcheck, OPTIONS[how]) == want


@pytest.mark.parametrize("name", ["product", "two outputs", "complex", "to real", "wrong"])
@pytest.mark.parametrize("options", [{}, {"fast_mode": True}, {"check_fwd_over_rev": True}])
def test_gradgradcheck(name: str, options: Any) -> None:
    torch.manual_seed(0)
    tabtorch.manual_seed(0)
    want = outcome(C[name], torch, torch.autograd.gradgradcheck, options)
    assert outcome(C[name], tabtorch, tabtorch.autograd.gradgradcheck, options) == want


@pytest.mark.parametrize(
    "options",
    [
        {"check_backward_ad": False},
        {"check_backward_ad": False, "check_forward_ad": True, "check_batched_grad": True},
        {"check_batched_forward_grad": True},
    ],
)
def test_options_that_contradict(options: Any) -> None:
    want = outcome(C["product"], torch, torch.autograd.gradcheck, options)
    assert outcome(C["product"], tabtorch, tabtorch.autograd.gradcheck, options) == want


def test_on_the_gpu_in_single_precision(webgpu: None) -> None:
    x = tabtorch.tensor([0.5, 1.5], requires_grad=True)
    with pytest.warns(UserWarning, match="not a double precision"):
        assert tabtorch.autograd.gradcheck(lambda x: x * x, x, eps=1e-2, atol=1e-2)
    with pytest.warns(UserWarning), pytest.raises(tabtorch.autograd.GradcheckError, match="Jacobian mismatch"):
        tabtorch.autograd.gradcheck(wrong(tabtorch), x, eps=1e-2, atol=1e-2)
