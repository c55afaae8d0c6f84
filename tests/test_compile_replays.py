"""That ordinary functions are replayed: what goes stale in every call gives the right numbers too, and is no faster than eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tabtorch as torch
from tabtorch import nn
from tabtorch.compiled.record import CallRecorder


def batch_norm() -> Callable[[], Any]:
    net = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)))
    return lambda: net(torch.ones(6, 4))


def _step(make: Callable[[Any], Any], net: nn.Module, clip: bool = False) -> Callable[[], Any]:
    optimizer = make(net.parameters())

    @torch.compile
    def step() -> Any:
        optimizer.zero_grad()
        loss = net(torch.ones(6, 4)).pow(2).mean()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()
        return loss

    return step


def training(make: Callable[[Any], Any], clip: bool = False) -> Callable[[], Callable[[], Any]]:
    def program() -> Callable[[], Any]:
        return _step(make, nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2)), clip)

    return program


def transformer() -> Callable[[], Any]:
    """A step as people write it for a language model: embeddings, attention, AdamW, clipping, a schedule."""
    embed, head = nn.Embedding(12, 8), nn.Linear(8, 12)
    block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    net = nn.ModuleList([embed, block, head])
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(1.0, (i + 1) / 4))

    @torch.compile
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(head(block(embed(x))).flatten(0, 1), y.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss

    def call() -> Any:
        loss = step(torch.tensor([[1, 2, 3]]), torch.tensor([[2, 3, 4]]))
        schedule.step()
        return loss

    return call


def classifying(net: nn.Module, optimizer: Any) -> Callable[[Any, Any], Any]:
    """A compiled training step."""

    @torch.compile
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def convolutional() -> Callable[[], Any]:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(18, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    step = classifying(net, optimizer)

    return lambda: step(torch.randn(4, 1, 5, 5), torch.tensor([0, 1, 2, 0])).item()


def cache() -> Callable[[], Any]:
    kept, weight = torch.zeros(8, 4), torch.ones(4, 4)

    @torch.compile
    def write(x: Any) -> Any:
        kept[2] = x @ weight
        return kept.sum(0)

    return lambda: write(torch.ones(4))


def batches() -> Callable[[], Any]:
    """Slices of a data set, each further on than the one before."""
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    data, labels = torch.randn(80, 4), torch.tensor([i % 3 for i in range(80)])
    starts = iter(range(0, 80, 8))
    step = classifying(net, optimizer)

    def call() -> Any:
        i = next(starts)
        return step(data[i : i + 8], labels[i : i + 8])

    return call


def text() -> Callable[[], Any]:
    """A text and what follows, which lie in one storage."""
    net = nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 12))
    tokens = torch.randint(0, 12, (100,))
    starts = iter(range(0, 80, 8))

    @torch.compile
    def loss(x: Any, y: Any) -> Any:
        return nn.functional.cross_entropy(net(x), y)

    def call() -> Any:
        i = next(starts)
        out = loss(tokens[i : i + 8], tokens[i + 1 : i + 9])
        out.backward()
        return out

    return call


PROGRAMS = {
    "a model with state": batch_norm,
    "sgd with momentum, clipped": training(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), clip=True),
    "adamw": training(lambda p: torch.optim.AdamW(p, lr=0.1)),
    "rmsprop": training(lambda p: torch.optim.RMSprop(p, lr=0.1)),
    "a language model, adamw, clipped, scheduled": transformer,
    "a convolutional network, nesterov": convolutional,
    "a cache that is written to": cache,
    "batches of a data set": batches,
    "windows of a text": text,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_replayed(name: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = []
    run = CallRecorder.run

    def counted(self: CallRecorder, *args: Any) -> Any:
        recorded.append(1)
        return run(self, *args)

    monkeypatch.setattr(CallRecorder, "run", counted)
    call = PROGRAMS[name]()
    for _ in range(4):  # states are made, the world settles, and what was recorded is checked
        call()
    recorded.clear()
    for _ in range(4):
        call()
    assert not recorded
