"""What a length costs that was not there before: a GPT's forward pass, a training step, and decoding with a cache, each length
twice. `cd tests && python bench_lengths.py [cpu|webgpu] [width]`: median times in ms, their ratio, and the schedules and plans made.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import tabtorch
from language_model import GPT
from tabtorch import nn
from tabtorch.engine import graph


def measure(name: str, call: Callable[[int], Any], lengths: list[int]) -> None:
    for n in (lengths[0], lengths[0] + 1, lengths[-1]):
        call(n)
    before = dict(graph.counts)
    first: list[float] = []
    later: list[float] = []
    for n in lengths[1:-1]:
        for times in (first, later):
            start = perf_counter()
            call(n)
            times.append((perf_counter() - start) * 1000)
    new = statistics.median(first)
    seen = statistics.median(later)
    made = {k: graph.counts[k] - before[k] for k in ("schedules", "plans")}
    print(f"{name:10} new {new:7.2f} ms, seen {seen:7.2f} ms, ratio {new / seen:.2f}; {made}")


def main(device: str = "cpu", width: int = 32) -> None:
    tabtorch.manual_seed(0)
    model = GPT(width).to(device)
    ids = tabtorch.arange(300, device=device) % 13
    optimizer = tabtorch.optim.AdamW(model.parameters(), lr=1e-3)

    def forward(n: int) -> None:
        with tabtorch.no_grad():
            model(ids[:n].reshape(1, n)).tolist()

    def step(n: int) -> None:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(ids[:n].reshape(1, n))[0], ids[1 : n + 1])
        loss.backward()
        optimizer.step()
        loss.item()

    def decode(n: int) -> None:
        """One token after n of them."""
        with tabtorch.no_grad():
            model(ids[:1].reshape(1, 1), n, [[k.narrow(2, 0, n).clone() for k in full] for full in caches]).tolist()

    lengths = list(range(8, 72))
    random.Random(0).shuffle(lengths)
    measure("forward", forward, lengths)
    measure("step", step, lengths)
    caches: list[list[Any]] = [[] for _ in model.blocks]
    with tabtorch.no_grad():
        model(ids[:100].reshape(1, 100), 0, caches)
    measure("decode", decode, lengths)


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
