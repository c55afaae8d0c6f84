"""Cases of dynamo_cases.py: sizes that vary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from dynamo_models import GPT, close, compiled, counted, raises


class Decoder(nn.Module):
    """One block of attention over what it has been given so far."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.tokens = nn.Embedding(50, width)
        self.qkv = nn.Linear(width, 3 * width)
        self.head = nn.Linear(width, 50)

    def forward(
        self, ids: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        b, t = ids.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.tokens(ids)).chunk(3, -1))
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        out = F.scaled_dot_product_attention(q, keys, values)
        return self.head(out.transpose(1, 2).reshape(b, t, -1)), keys, values


def _nothing_new(step: Callable[[int], Any], sizes: range, warm: int) -> None:
    """After the first `warm` sizes, the others make no kernel and no schedule."""
    for n in sizes[:warm]:
        step(n)
    count = counted(lambda: [step(n) for n in sizes[warm:]])
    assert count["kernels"] == 0 and count["schedules"] == 0, count


def case_sizes_forward() -> None:
    """Twenty lengths of a GPT: a kept recording is bound to each, and the program runs for the first two alone."""
    torch.manual_seed(0)
    net = GPT(length=32).to("webgpu")
    run = compiled(net, dynamic=True, fullgraph=True)
    given = {n: torch.randint(0, 50, (1, n), device="webgpu") for n in range(4, 24)}
    with torch.no_grad():
        _nothing_new(lambda n: run(given[n]), range(4, 24), 3)
        count = counted(lambda: [run(x) for x in given.values()])
        assert count["runs"] == 20 and count["planned"] == 0, count  # each is a replay of one plan
        for n in (4, 11, 23):
            close(run(given[n]), net(given[n]))


def case_sizes_training() -> None:
    """The same of a training step on parts of one tensor, which begin elsewhere each time: forward and backward are replays."""
    torch.manual_seed(0)
    net = GPT(length=32).to("webgpu")
    ids = torch.randint(0, 50, (64,), device="webgpu")

    def loss(x: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(net(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())

    run = compiled(loss, dynamic=True, fullgraph=True)
    found = {}

    def step(n: int) -> None:
        net.zero_grad()
        value = run(ids[n : 2 * n].reshape(1, n))
        value.backward()
        found[n] = [value, *[p.grad for p in net.parameters()]]

    _nothing_new(step, range(5, 25), 5)
    for n in (5, 12, 24):
        net.zero_grad()
        value = loss(ids[n : 2 * n].reshape(1, n))
        value.backward()
        for a, b in zip(found[n], [value, *[p.grad for p in net.parameters()]], strict=True):
            close(a, b, 1e-4)


def case_sizes_decoding() -> None:
    """Decoding with a cache that grows by `torch.cat`."""
    torch.manual_seed(0)
    net = Decoder().to("webgpu")
    run = compiled(net, dynamic=True, fullgraph=True)
    with torch.no_grad():
        ids = torch.randint(0, 50, (1, 24), device="webgpu")
        state = [torch.zeros(1, 2, 2, 8, device="webgpu") for _ in range(2)]
        plain = list(state)

        def step(n: int) -> None:
            out, *state[:] = run(ids[:, n : n + 1], *state)
            expected, *plain[:] = net(ids[:, n : n + 1], *plain)
            if n in (0, 9, 19):
                close(out, expected)

        for n in range(4):
            step(n)
        _nothing_new(step, range(4, 20), 4)


def case_sizes_marked() -> None:
    """`mark_dynamic` and automatic sizes: one graph for all of them, or PyTorch's error."""
    net = nn.Linear(8, 4)
    for where in ("cpu", "webgpu"):
        net = net.to(where)
        run = compiled(net)
        stats = torch._dynamo.utils.counters["stats"]
        stats.clear()
        with torch.no_grad():
            for n in (4, 7, 9):
                x = torch.randn(n, 8).to(where)
                torch._dynamo.mark_dynamic(x, 0)
                close(run(x), net(x))
        assert stats["unique_graphs"] == 1, stats


def case_sizes_as_strided() -> None:
    def windows(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).as_strided((x.shape[0] - 1, 3), (x.shape[1], 2), 1)

    def scattered(x: torch.Tensor) -> torch.Tensor:
        ones = torch.ones(x.shape[0], device=x.device)
        return torch.as_strided_scatter(x, ones, (x.shape[0],), (x.shape[1] + 1,))

    for f in (windows, scattered):
        run = compiled(f, dynamic=True, fullgraph=True)
        for n in range(6, 10):
            x = torch.randn(n, n + 1, requires_grad=True)
            y = x.detach().to("webgpu").requires_grad_()
            a, b = f(x), run(y)
            close(b, a)
            a.square().sum().backward()
            b.square().sum().backward()
            close(y.grad, x.grad)

    def around(x: torch.Tensor) -> torch.Tensor:
        """Reads what lies before its argument."""
        return x.as_strided((3,), (1,), 0) + x.as_strided((x.shape[0],), (1,), 0)[0]

    base = torch.randn(100)
    run = compiled(around, dynamic=True)
    for n in range(5, 8):
        close(run(base.to("webgpu")[n : 2 * n]), around(base[n : 2 * n]))
    with raises(NotImplementedError, "as_strided of an argument on the CPU that is a view of a part"):
        run(base[5:10])
