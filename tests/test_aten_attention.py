"""Attention as ATen splits it, by the kernels of a GPU: the gradient takes the totals that the forward pass gave."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tabtorch
from sidebyside import to_tab
from tabtorch.engine import graph
from tabtorch.ops import aten
from test_counts import counted

pytestmark = pytest.mark.usefixtures("made_up_gpu")


def call(name: str, *args: Any, **kw: Any) -> Any:
    f = aten.lookup("aten::" + name)
    assert f is not None
    with tabtorch.no_grad():
        return f(*args, **kw)


@pytest.mark.parametrize(
    ("causal", "dtype", "heads"), [(True, torch.float32, 2), (False, torch.float32, 1), (True, torch.float16, 2)]
)
def test_one_dispatch_forward_and_three_backward(causal: bool, dtype: torch.dtype, heads: int) -> None:
    torch.manual_seed(0)
    q, k, v, g = (torch.randn(1, n, 18, 8).to(dtype).requires_grad_() for n in (2, heads, heads, 2))
    wide = [t.detach().float().requires_grad_() for t in (q, k, v)]
    grouped = heads == 1
    want = torch.nn.functional.scaled_dot_product_attention(*wide, is_causal=causal, enable_gqa=grouped)
    scores = wide[0] @ wide[1].mT / 8**0.5
    if causal:
        scores = scores.masked_fill(torch.ones(18, 18).triu(1).bool(), float("-inf"))
    grads = torch.autograd.grad(want, wide, g.detach().float())
    mine = [to_tab(t.detach(), "webgpu") for t in (q, k, v)]
    by = to_tab(g.detach(), "webgpu")
    graph.flush()
    with counted() as forward:
        made = call("_scaled_dot_product_flash_attention_for_cpu", *mine, 0.0, causal)
        graph.flush()
    assert forward.dispatches == 1
    with counted() as backward:
        found = call("_scaled_dot_product_flash_attention_for_cpu_backward", by, *mine, *made, 0.0, causal)
        graph.flush()
    assert backward.dispatches == 3
    close = 2e-5 if dtype is torch.float32 else 4e-3
    for a, b in zip([want, scores.logsumexp(-1), *grads], [*made, *found], strict=True):
        torch.testing.assert_close(torch.from_numpy(b.float().numpy()), a.detach(), rtol=close, atol=close)
    assert made[1].dtype is tabtorch.float32
