"""Random programs of views, in-place writes and arithmetic against real PyTorch: values, versions, the tape, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tabtorch
from sidebyside import DEVICES
from test_autograd import result

VIEWS = [
    lambda t, x, k: x.t() if x.dim() == 2 else x,
    lambda t, x, k: x[k % len(x)] if x.dim() and len(x) else x,
    lambda t, x, k: x[k % 2 :] if x.dim() and len(x) > 1 else x,
    lambda t, x, k: x[..., ::2] if x.dim() else x,
    lambda t, x, k: x.reshape(-1),
    lambda t, x, k: x.unsqueeze(k % (x.dim() + 1)) if x.dim() < 3 else x,
    lambda t, x, k: x.detach() if k == 5 else x,
    lambda t, x, k: x.transpose(0, -1) if x.dim() else x,
]
WRITES = [
    lambda t, x, y, k: x.add_(y),
    lambda t, x, y, k: x.mul_(y),
    lambda t, x, y, k: x.sub_(0.5),
    lambda t, x, y, k: x.sigmoid_(),
    lambda t, x, y, k: x.copy_(y),
    lambda t, x, y, k: x.zero_(),
    lambda t, x, y, k: x.__setitem__(0, 0.25) if x.dim() else x.fill_(0.25),
    lambda t, x, y, k: x.__setitem__(None, y),
]
PURE = [
    lambda t, x, y, k: x + y,
    lambda t, x, y, k: x * y,
    lambda t, x, y, k: x.sin(),
    lambda t, x, y, k: x - y * 0.5,
    lambda t, x, y, k: x.clone(),
]


def random_program(t: Any, dev: str, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    a = t.linspace(-1, 1, 12, device=dev).reshape(3, 4).requires_grad_()
    b = t.linspace(0.5, 2, 4, device=dev).requires_grad_()
    live = [a * 1, b * 2, t.ones(3, 4, device=dev)]
    log: list[Any] = []
    for _ in range(10):
        kind, op, k = rng.integers(3), int(rng.integers(100)), int(rng.integers(6))
        x, y = (live[int(i)] for i in rng.integers(len(live), size=2))
        try:
            if kind == 0:
                live.append(VIEWS[op % len(VIEWS)](t, x, k))
            elif kind == 1:
                WRITES[op % len(WRITES)](t, x, y, k)
            else:
                live.append(PURE[op % len(PURE)](t, x, y, k))
        except (RuntimeError, IndexError) as e:
            log.append((type(e).__name__, str(e).split("\n")[0]))
    loss = sum((v * v).sum() for v in live)
    out = [(v.requires_grad, v.is_leaf, v._version, tuple(v.shape), tuple(v.stride())) for v in live]
    names = [v.grad_fn.name() if v.grad_fn is not None else None for v in live]
    try:
        loss.backward()
    except RuntimeError as e:
        return log, out, names, [v.detach() for v in live], str(e).split(" [")[0]
    return log, out, names, [v.detach() for v in live], [None if v.grad is None else v.grad for v in (a, b)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seed", range(60))
def test_random_program(seed: int, device: str) -> None:
    if device == "webgpu" and seed >= 10:
        pytest.skip("the tape is the same on both")

    def program(t: Any, dev: str) -> Any:
        return random_program(t, dev, seed)

    _close(result(program, tabtorch, device), result(program, torch, "cpu"))


def _close(a: Any, b: Any) -> None:
    """Equal, numbers to float32's accuracy."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        assert len(a) == len(b), (a, b)
        for x, y in zip(a, b, strict=True):
            _close(x, y)
    elif isinstance(a, complex) and isinstance(b, complex):
        assert abs(a - b) <= 1e-3 * max(1, abs(b)), (a, b)
    else:
        assert a == b
