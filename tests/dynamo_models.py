"""Models, and what is measured of them, for dynamo_cases.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tabtorch.bridge import get_bridge
from tabtorch.engine import graph

PLACES = ("cpu", "webgpu")  # where the model and its inputs are
Model = Callable[[], nn.Module]


# ---- models


class GPT(nn.Module):
    """Two blocks, with the embedding's weight as the head's."""

    def __init__(self, vocabulary: int = 50, width: int = 32, length: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm": nn.LayerNorm(width),
                    "qkv": nn.Linear(width, 3 * width),
                    "out": nn.Linear(width, width),
                    "mlp": nn.Sequential(
                        nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
                    ),
                }
            )
            for _ in range(2)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        b, t = ids.shape
        x = self.tokens(ids) + self.positions(torch.arange(t, device=ids.device))
        for block in self.blocks:
            q, k, v = (
                y.view(b, t, self.heads, -1).transpose(1, 2) for y in block["qkv"](block["norm"](x)).chunk(3, -1)
            )
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + block["out"](y.transpose(1, 2).reshape(b, t, -1))
            x = x + block["mlp"](x)
        return self.head(self.norm(x))


class LSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 16, batch_first=True)
        self.out = nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.lstm(x)[0][:, -1])


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))


def cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 8, 3, stride=2), nn.GroupNorm(2, 8), nn.SiLU(), nn.AdaptiveAvgPool2d(1)),
        *(nn.Flatten(), nn.Linear(8, 4)),
    )


def transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 1))


def token_loss(out: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(out.flatten(0, 1), ids.flatten())


#: model, inputs and targets, loss
MODELS: dict[str, tuple[Model, Callable[[], tuple[torch.Tensor, torch.Tensor]], Any]] = {
    "mlp": (mlp, lambda: (torch.randn(64, 8), torch.randn(64, 1)), F.mse_loss),
    "cnn": (cnn, lambda: (torch.randn(4, 3, 16, 16), torch.randint(0, 4, (4,))), F.cross_entropy),
    "gpt": (GPT, lambda: (torch.randint(0, 50, (4, 16)), torch.randint(0, 50, (4, 16))), token_loss),
    "transformer": (transformer, lambda: (torch.randn(2, 5, 16), torch.randn(2, 5, 1)), F.mse_loss),
    "lstm": (LSTM, lambda: (torch.randn(4, 6, 8), torch.randn(4, 1)), F.mse_loss),
}


# ---- what is measured


def compiled(f: Any, **kw: Any) -> Any:
    """The function, compiled for webgpu, from nothing."""
    torch._dynamo.reset()
    return torch.compile(f, backend="webgpu", **kw)


def counted(call: Callable[[], Any]) -> dict[str, int]:
    """What a call makes the runtime do: `runs` of plans, new `kernels`, `reads`, `uploadBytes`, … and what was `planned`, and how
    many `schedules` were made for that."""
    graph.flush()
    before, plans, schedules = get_bridge().stats(), graph.counts["plans"], graph.counts["schedules"]
    call()
    graph.flush()
    after = get_bridge().stats()
    found = {k: v - before[k] for k, v in after.items() if isinstance(v, (int, float))}
    made = {"planned": graph.counts["plans"] - plans, "schedules": graph.counts["schedules"] - schedules}
    return {**found, **made}


def close(a: Any, b: Any, tolerance: float = 1e-5) -> None:
    """Whether results are equal, wherever they are; their types and shapes, too."""
    torch.testing.assert_close(a.detach().cpu(), b.detach().cpu(), rtol=tolerance, atol=tolerance)


def same(f: Any, *args: torch.Tensor, grads: bool = False, tolerance: float = 1e-5, **kw: Any) -> None:
    """A function gives the same compiled as eagerly, for arguments at either place; what it writes to them, and gradients, too."""
    for place in PLACES:
        both = []
        for run, where in ((f, "cpu"), (compiled(f, fullgraph=True, **kw), place)):
            for _ in range(3):  # recorded, checked, replayed
                own = [a.detach().clone().to(where) for a in args]
                if grads:
                    own = [a.requires_grad_() if a.is_floating_point() else a for a in own]
                out = run(*own)
                outs = [o for o in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(o, torch.Tensor)]
                assert all(o.device.type == where for o in outs), [o.device for o in outs]
                if grads:
                    sum(
                        (o * torch.arange(1.0, o.numel() + 1, device=where).view(o.shape) / o.numel()).sum()
                        for o in outs
                    ).backward()
            both.append([*outs, *own, *[a.grad for a in own if a.grad is not None]])
        assert len(both[0]) == len(both[1])
        for expected, found in zip(*both, strict=True):
            close(found, expected, tolerance)
            assert found.is_contiguous() or not expected.is_contiguous(), (found.stride(), expected.stride())


def losses(
    name: str, place: str, steps: int, compile: bool, optimizer: Any = torch.optim.SGD, **kw: Any
) -> list[float]:
    """Of a training run from seed 0."""
    model, data, loss = MODELS[name]
    torch.manual_seed(0)
    net = model().to(place)
    x, y = (t.to(place) for t in data())
    run = compiled(net, **kw) if compile else net
    opt = optimizer(net.parameters(), 0.05)
    found = []
    for _ in range(steps):
        opt.zero_grad()
        value = loss(run(x), y)
        value.backward()
        opt.step()
        found.append(value.item())
    return found


@contextmanager
def raises(kind: type[BaseException], words: str) -> Iterator[None]:
    try:
        yield
    except kind as error:
        assert words in str(error), str(error)
        return
    raise AssertionError(f"it did not raise {kind.__name__}")
