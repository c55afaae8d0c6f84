"""Gamma, Dirichlet and binomial draws with PyTorch's own numbers, and the derivatives of the first two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tabtorch


def pair(x: torch.Tensor, device: str) -> tuple[torch.Tensor, Any]:
    return x, tabtorch.tensor(x.contiguous().numpy(), device=device)


def same(want: torch.Tensor, got: Any, rtol: float) -> None:
    assert str(want.dtype) == str(got.dtype)
    np.testing.assert_allclose(got.detach().cpu().numpy(), want.detach().numpy(), rtol=rtol, atol=0)


def spread(n: int, dtype: torch.dtype, low: float, high: float) -> torch.Tensor:
    """Numbers from 10**low to 10**high."""
    g = torch.Generator().manual_seed(7)
    return (10 ** (low + (high - low) * torch.rand(n, generator=g, dtype=torch.float64))).to(dtype)


def seeded() -> None:
    torch.manual_seed(5)
    tabtorch.manual_seed(5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws(dtype: torch.dtype, device: str) -> None:
    if device == "webgpu" and dtype is torch.float64:
        return
    rtol = 0 if dtype is torch.float32 else 1e-13
    alpha, mine = pair(torch.cat([spread(2000, dtype, -3, 5), torch.zeros(2, dtype=dtype)]), device)
    rows, my_rows = pair(spread(900, dtype, -2, 3).reshape(300, 3), device)
    count, my_count = pair(spread(3000, dtype, -0.5, 5).floor(), device)
    p, my_p = pair(spread(3000, dtype, -4, 0.05).clamp(max=1), device)
    p[::7] = my_p[::7] = float("nan")
    p[1::3] = 1 - p[1::3]
    my_p[1::3] = 1 - my_p[1::3]
    seeded()
    same(torch._standard_gamma(alpha), tabtorch._standard_gamma(mine), rtol)
    same(torch._sample_dirichlet(rows), tabtorch._sample_dirichlet(my_rows), rtol)
    same(torch.binomial(count, p), tabtorch.binomial(my_count, my_p), 0)
    same(torch._sample_dirichlet(rows.t()), tabtorch._sample_dirichlet(my_rows.t()), rtol)
    same(torch.rand(3), tabtorch.rand(3), 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_derivatives(dtype: torch.dtype, device: str) -> None:
    if device == "webgpu" and dtype is torch.float64:
        return
    rtol = 1e-8 if dtype is torch.float64 else 1e-2 if device == "webgpu" else 1e-6
    wide = torch.float64  # in float32 PyTorch's own are as far off as the GPU's where the concentrations are large
    alpha, mine = pair(spread(3000, dtype, -2, 3), device)
    torch.manual_seed(2)
    x, my_x = pair(torch._standard_gamma(alpha).clamp(min=1e-8), device)
    same(
        torch._standard_gamma_grad(alpha.to(wide), x.to(wide)).to(dtype),
        tabtorch._standard_gamma_grad(mine, my_x),
        rtol,
    )
    rows, my_rows = pair(spread(3000, dtype, -2, 3).reshape(1000, 3), device)
    y, my_y = pair(torch._sample_dirichlet(rows).clamp(1e-6, 1 - 1e-6), device)
    total, my_total = pair(rows.sum(-1, True).expand_as(rows), device)
    same(
        torch._dirichlet_grad(y.to(wide), rows.to(wide), total.to(wide)).to(dtype),
        tabtorch._dirichlet_grad(my_y, my_rows, my_total),
        rtol,
    )
    alpha.requires_grad_()
    mine.requires_grad_()
    seeded()
    torch._standard_gamma(alpha).sum().backward()
    r = tabtorch._standard_gamma(mine)
    assert type(r.grad_fn).__name__ == "StandardGammaBackward0"
    r.sum().backward()
    same(alpha.grad, mine.grad, rtol)


@pytest.mark.parametrize(
    "call",
    [
        "m._standard_gamma(m.ones(2).half())",
        "m._standard_gamma(m.ones(2).long())",
        "m._standard_gamma(2.0)",
        "m._sample_dirichlet(m.ones(2).half())",
        "m.binomial(m.ones(2).long(), m.ones(2))",
        "m.binomial(m.ones(2), m.ones(2).double())",
        "m.binomial(m.ones(2), m.ones(3))",
        "m.binomial(m.ones(2).half(), m.ones(2).half())",
        "m.binomial(m.ones(2, requires_grad=True), m.ones(2)).sum().backward()",
        "m._sample_dirichlet(m.ones(2, requires_grad=True)).sum().backward()",
        "m._standard_gamma_grad(m.ones(2).half(), m.ones(2).half())",
    ],
)
def test_errors(call: str) -> None:
    messages = []
    with tabtorch.device("cpu"):
        for m in (torch, tabtorch):
            with pytest.raises((RuntimeError, TypeError, ValueError)) as e:
                eval(call, {"m": m})
            messages.append((type(e.value), str(e.value).split("\n")[0]))
    assert messages[0] == messages[1]


def test_generators() -> None:
    with tabtorch.device("cpu"):
        g, h = tabtorch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
        same(
            torch.binomial(torch.ones(5) * 9, torch.ones(5) / 3, h),
            tabtorch.binomial(tabtorch.ones(5) * 9, tabtorch.ones(5) / 3, g),
            0,
        )
        assert tabtorch._standard_gamma(tabtorch.ones(0)).shape == (0,)


def test_a_generator_of_the_gpu_is_refused(webgpu: None) -> None:
    with pytest.raises(NotImplementedError, match="with a generator on webgpu"):
        tabtorch._standard_gamma(tabtorch.ones(3), tabtorch.Generator("webgpu"))
