"""torch.autograd.functional, and torch.testing, beside PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tabtorch
from sidebyside import DEVICES, same, to_tab

FUNCTIONS: dict[str, Any] = {
    "rows": lambda x, y: (x.exp() * y).sum(1),
    "two": lambda x, y: (x * y, x.sum()),
    "unused": lambda x, y: x.pow(2),
    "scalar": lambda x, y: (x.pow(3) * y.sin()).sum(),
}


def inputs() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    return torch.rand(2, 3), torch.rand(2, 3)


def compare(want: Any, got: Any, flags: bool = True) -> None:
    if isinstance(want, (tuple, list)):
        assert isinstance(got, tuple) and len(want) == len(got)
        for w, g in zip(want, got, strict=True):
            compare(w, g, flags)
        return
    same(want.detach(), got.detach(), exact=False, strides=False)
    assert want.requires_grad == got.requires_grad or not flags


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", ["jacobian", "hessian", "vjp", "jvp", "vhp", "hvp"])
def test_products_and_matrices(name: str, function: str, create: bool, device: str) -> None:
    f, x = FUNCTIONS[function], inputs()
    v: Any = ()
    if name in ("jvp", "vhp", "hvp"):
        v = (tuple(torch.ones_like(t) for t in x),)
    elif name == "vjp":
        out = f(*x)
        v = (tuple(torch.ones_like(t) for t in out) if isinstance(out, tuple) else torch.ones_like(out),)
    theirs, ours = getattr(torch.autograd.functional, name), getattr(tabtorch.autograd.functional, name)
    try:
        want = theirs(f, x, *v, create_graph=create)
    except RuntimeError as e:
        with pytest.raises(RuntimeError) as got:
            ours(f, to_tab(x, device), *to_tab(v, device), create_graph=create)
        assert str(got.value) == str(e)
    else:
        compare(want, ours(f, to_tab(x, device), *to_tab(v, device), create_graph=create))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch scripts its formulas on first use
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("vectorize", [False, True])
@pytest.mark.parametrize("strategy", ["forward-mode", "reverse-mode", "neither"])
@pytest.mark.parametrize("name", ["jacobian", "hessian"])
def test_strategies(name: str, strategy: str, vectorize: bool, device: str) -> None:
    word = "strategy" if name == "jacobian" else "outer_jacobian_strategy"
    for function in ("scalar",) if name == "hessian" else FUNCTIONS:
        for how in ({}, {"strict": True}, {"create_graph": True}):
            options = {word: strategy, "vectorize": vectorize, **how}
            f, x = FUNCTIONS[function], inputs()
            theirs, ours = getattr(torch.autograd.functional, name), getattr(tabtorch.autograd.functional, name)
            try:
                want = theirs(f, x, **options)
            except (RuntimeError, AssertionError, NotImplementedError) as e:
                with pytest.raises(type(e)) as got:
                    ours(f, to_tab(x, device), **options)
                assert str(got.value) == str(e)
            else:
                # a Jacobian that is constant may be on the tape all the same, where vmap has made it
                compare(want, ours(f, to_tab(x, device), **options), flags=not (vectorize and how))


@pytest.mark.parametrize("device", DEVICES)
def test_batched_gradients(device: str) -> None:
    def run(t: Any) -> Any:
        x, w = (t.tensor([0.5, 1.0, 2.0], requires_grad=True) for _ in range(2))
        y = (x * w).exp().cumsum(0)
        first = t.autograd.grad(y, (x, w), t.eye(3), retain_graph=True, is_grads_batched=True)
        none = t.autograd.grad(
            y, (t.ones(2, requires_grad=True), w), t.eye(3), is_grads_batched=True, allow_unused=True
        )
        return first, none[0] is None, none[1]

    def flat(r: Any) -> Any:
        return (*r[0], r[2])

    want = run(torch)
    with tabtorch.device(device):
        got = run(tabtorch)
    compare(flat(want), flat(got))
    assert want[1] and got[1]
    with pytest.raises(RuntimeError, match="we interpret the first dimension of each grad_output"):
        x = tabtorch.ones(3, requires_grad=True)
        tabtorch.autograd.grad(x * 2, x, tabtorch.ones(2), is_grads_batched=True)


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.autograd.functional.vjp(lambda x: x * 2, t.ones(3)),
        lambda t: t.autograd.functional.jvp(lambda x: x * 2, t.ones(3), t.ones(2)),
        lambda t: t.autograd.functional.jacobian(lambda x: 3, t.ones(3)),
        lambda t: t.autograd.functional.jacobian(lambda x: x, 3),
        lambda t: t.autograd.functional.jacobian(lambda x, y: x, (t.ones(2), t.ones(2)), strict=True),
        lambda t: t.autograd.functional.hessian(lambda x: x.sum(), t.ones(2), strict=True),
        lambda t: t.testing.assert_close(t.ones(2), t.tensor([1.0, 2.0])),
        lambda t: t.testing.assert_close(t.ones(2), t.ones(3)),
        lambda t: t.testing.assert_close(t.ones(2), t.ones(2, dtype=t.int32)),
        lambda t: t.testing.assert_close([t.ones(2), 1.0], [t.ones(2), 2.0]),
        lambda t: t.testing.assert_close({"a": 1}, {"b": 1}),
        lambda t: t.testing.assert_close(t.tensor([1, 5]), t.tensor([1, 7]), rtol=0, atol=0),
        lambda t: t.testing.assert_close(t.tensor(float("nan")), t.tensor(float("nan"))),
        lambda t: t.testing.assert_close(1.0, 1.5, msg=lambda m: "so: " + m),
        lambda t: t.testing.assert_close(t.ones(1), 1.0),
        lambda t: t.testing.assert_close(1, 1.0),
        lambda t: t.testing.assert_close(1, 2, rtol=1.0),
    ],
)
def test_errors(call: Any) -> None:
    with pytest.raises((RuntimeError, TypeError, AssertionError, ValueError)) as want:
        call(torch)
    with pytest.raises(want.type) as got:
        call(tabtorch)
    assert str(got.value).replace("tabtorch.core.tensor", "torch").replace("tabtorch", "torch") == str(want.value)


def test_what_is_close() -> None:
    t = tabtorch
    t.testing.assert_close(t.ones(2), t.ones(2) + 1e-7)
    t.testing.assert_close((t.ones(2), {"a": 1.0}, None), [t.ones(2), {"a": 1.0}, None])
    t.testing.assert_close(t.tensor(float("nan")), t.tensor(float("nan")), equal_nan=True)
    t.testing.assert_close(t.ones(2), t.ones(2, dtype=t.int32), check_dtype=False)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64"])
def test_make_tensor_draws_pytorchs_numbers(dtype: str) -> None:
    made = []
    for t in (torch, tabtorch):
        t.manual_seed(0)
        made.append(t.testing.make_tensor((3, 4), dtype=getattr(t, dtype), device="cpu", noncontiguous=True))
    same(*made, exact=False)
