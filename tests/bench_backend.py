"""What an operation of real PyTorch costs on device="webgpu", beside PyTorch's CPU: CPU time of Python's process, not of the device.

    PYTHONPATH=py TABTORCH_DEVICE=cpu python tests/bench_backend.py [--rounds N] [NAME ...]

A row is the median, in µs, of rounds that alternate between the devices, each of so many calls, whose results are dropped: as
operations wait until they are sent, that is what the script's thread pays. `sent`: with the sending of all that waits, and
results kept.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import plain_torch  # noqa: F401
from backend_gpt import make, step_of, tokens
from tabtorch.engine import graph

CALLS = 100


def operations(device: str) -> dict[str, Callable[[], Any]]:
    """Those of one call each."""
    x, y = torch.ones(8, 8, device=device), torch.ones(8, 8, device=device)
    w, b = torch.ones(8, device=device), torch.zeros(8, device=device)
    mask, i = x > 0, torch.zeros(4, dtype=torch.long, device=device)
    return {
        "x + y": lambda: x + y,
        "x * 2": lambda: x * 2,
        "x.add_(1)": lambda: b.add_(1),
        "x.mul_(y)": lambda: b.mul_(w),
        "x > 0": lambda: x > 0,
        "relu": lambda: x.relu(),
        "x @ y": lambda: x @ y,
        "addmm": lambda: torch.addmm(b, x, y),
        "x.view": lambda: x.view(64),
        "x.t()": lambda: x.t(),
        "x[:, 2:4]": lambda: x[:, 2:4],
        "x[0]": lambda: x[0],
        "x[i]": lambda: x[i],
        "x.sum()": lambda: x.sum(),
        "x.sum(1)": lambda: x.sum(1),
        "x.mean(-1, keepdim)": lambda: x.mean(-1, keepdim=True),
        "x.argmax(1)": lambda: x.argmax(1),
        "cat": lambda: torch.cat([x, y]),
        "stack": lambda: torch.stack([x, y]),
        "where": lambda: torch.where(mask, x, y),
        "masked_fill": lambda: x.masked_fill(mask, 0.0),
        "clamp": lambda: x.clamp(0, 1),
        "softmax": lambda: x.softmax(-1),
        "gelu": lambda: F.gelu(x),
        "layer_norm": lambda: F.layer_norm(x, (8,), w, b),
        "embedding": lambda: F.embedding(i, x),
        "linear": lambda: F.linear(x, y, b),
        "zeros_like": lambda: torch.zeros_like(x),
        "torch.ones(8)": lambda: torch.ones(8, device=device),
        "x.clone()": lambda: x.clone(),
        "x.to(float16)": lambda: x.to(torch.float16),
        "x.detach()": lambda: x.detach(),
    }


def longer(device: str) -> dict[str, Callable[[], Any]]:
    """Steps, and what waits for the device."""
    x = torch.randn(8, 8).to(device)
    leaf = torch.randn(8, 8).to(device).requires_grad_()
    layer = nn.Linear(8, 8).to(device)
    net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8)).to(device)
    sgd = torch.optim.SGD(net.parameters(), 0.01)
    many = [torch.zeros(16, device=device, requires_grad=True) for _ in range(100)]
    for p in many:
        p.grad = torch.ones(16, device=device)
    adamw = torch.optim.AdamW(many)
    gpt = make(torch, 2, 2, 32, 16, device)
    own = step_of(torch, gpt, torch.optim.AdamW(gpt.parameters()))
    ids = tokens(torch, 16, 2, device)

    def chain() -> None:
        leaf.grad = None
        ((leaf * 2 + 1).relu() * leaf).sum().backward()

    def both() -> None:
        layer.zero_grad()
        layer(x).sum().backward()

    def step() -> None:
        sgd.zero_grad()
        net(x).square().mean().backward()
        sgd.step()

    return {
        "x.sum().item()": lambda: x.sum().item(),
        "x.cpu()": lambda: x.cpu(),
        "chain of 5, and backward": chain,
        "linear, and backward": both,
        "MLP step, SGD": step,
        "AdamW of 100 tensors": adamw.step,
        "tiny GPT step, AdamW": lambda: own(*ids),
    }


def timed(f: Callable[[], Any], calls: int, kept: bool) -> float:
    """µs of the process a call."""
    graph.flush()
    begin = time.process_time()
    results = [f() for _ in range(calls)] if kept else []
    if kept:
        graph.flush()
    else:
        for _ in range(calls):
            f()
    found = (time.process_time() - begin) * 1e6 / calls
    graph.flush()
    del results
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad():
        both = {d: operations(d) for d in ("webgpu", "cpu")}
    more = {d: longer(d) for d in ("webgpu", "cpu")}
    print(f"{'µs a call, medians':28}{'webgpu':>9}{'best':>9}{'sent':>9}{'PyTorch CPU':>13}")
    for rows, calls, plain in ((both, CALLS, True), (more, 10, False)):
        for name in rows["cpu"]:
            if options.names and name not in options.names:
                continue
            found: dict[str, list[float]] = {"webgpu": [], "sent": [], "cpu": []}
            with torch.set_grad_enabled(not plain):
                for _ in range(options.rounds + 2):
                    found["webgpu"].append(timed(rows["webgpu"][name], calls, False))
                    if plain:
                        found["sent"].append(timed(rows["webgpu"][name], calls, True))
                    found["cpu"].append(timed(rows["cpu"][name], calls, False))
            m = {k: statistics.median(v[2:]) if v else float("nan") for k, v in found.items()}
            sent = f"{m['sent']:9.1f}" if plain else " " * 9
            print(f"{name:28}{m['webgpu']:9.1f}{min(found['webgpu'][2:]):9.1f}{sent}{m['cpu']:13.1f}", flush=True)


if __name__ == "__main__":
    main()
