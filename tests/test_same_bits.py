"""What is called again gives the same bits: the first time operation by operation, later as a recorded composite whose maps are
joined, and then by plans that are there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import tabtorch
from tabtorch.engine import graph

F = tabtorch.nn.functional

#: of (512, 140), (512, 140), (140, 90), a vector of 140, and 512 classes
CALLS: dict[str, Callable[..., Any]] = {
    "softmax": lambda x, y, w, v, c: F.softmax(x, -1),
    "softmax of columns": lambda x, y, w, v, c: F.softmax(x, 0),
    "log_softmax": lambda x, y, w, v, c: F.log_softmax(x, -1),
    "layer_norm": lambda x, y, w, v, c: F.layer_norm(x, (140,), v, v),
    "rms_norm": lambda x, y, w, v, c: F.rms_norm(x, (140,), v),
    "cross_entropy": lambda x, y, w, v, c: F.cross_entropy(x, c, label_smoothing=0.1),
    "kl_div": lambda x, y, w, v, c: F.kl_div(F.log_softmax(x, 1), F.softmax(y, 1), reduction="batchmean"),
    "silu": lambda x, y, w, v, c: F.silu(x) * y,
    "var": lambda x, y, w, v, c: x.var(0),
    "cosine_similarity": lambda x, y, w, v, c: F.cosine_similarity(x, y),
    "cdist": lambda x, y, w, v, c: tabtorch.cdist(x, y),
    "softplus": lambda x, y, w, v, c: F.softplus(x).sum(1),
    "two products": lambda x, y, w, v, c: F.softmax(x @ w, -1) @ w.t(),
    "focal": lambda x, y, w, v, c: ((1 - tabtorch.exp(-F.cross_entropy(x, c, reduction="none"))) ** 2).mean(),
    "standardized": lambda x, y, w, v, c: (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5),
    "attention": lambda x, y, w, v, c: F.scaled_dot_product_attention(
        x.view(8, 64, 140), y.view(8, 64, 140), x.view(8, 64, 140)
    ),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("train", [False, True])
def test_called_again(name: str, train: bool, device: str) -> None:
    sizes = ((512, 140), (512, 140), (140, 90), (140,))
    args = [tabtorch.randn(s, device=device, requires_grad=train) for s in sizes]
    classes = tabtorch.randint(0, 140, (512,), device=device)
    before: list[Any] = []
    for _ in range(4):
        out = CALLS[name](*args, classes)
        grads = tabtorch.autograd.grad(out.sum(), args, allow_unused=True) if train else ()
        graph.flush()
        now = [g.detach().cpu().numpy() for g in (out, *grads) if g is not None]
        for a, b in zip(before, now, strict=False):
            np.testing.assert_array_equal(a, b)
        before = now
