"""Programs that many threads run at once: each has to come to what it comes to alone.

    python -m fuzz.threads --threads 16 --programs 1000 [--seed N] [--device cpu|webgpu]

A program is made of its seed: a few steps of `STEPS`, in an order of its own, over tensors of its own and over models,
compiled functions and a pool of threads that all share. It needs nothing but the library under test.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from reliability import record

Values = list[Any]
STEPS: dict[str, Callable[..., Any]] = {}


def step(f: Callable[..., Any]) -> Callable[..., Any]:
    STEPS[f.__name__] = f
    return f


class World:
    """What the programs of all threads share."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).eval()
        self.pool = ThreadPoolExecutor(4)
        self.compiled = torch.compile(lambda x, y: (x @ y).relu().sum(0) + x.mean())
        self.scale = torch.compile(lambda x, k: x * k + 1)
        self.net = torch.compile(self.model)


class Program:
    """One of them: what it draws from, and what it has at hand."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.torch = world.torch
        self.draw = random.Random(seed)
        self.generator = world.torch.Generator().manual_seed(seed)

    def tensor(self, *shape: int) -> Any:
        return self.torch.randn(*(shape or (4, 4)), generator=self.generator)

    def run(self) -> Values:
        out: Values = []
        for name in self.draw.choices(list(STEPS), k=self.draw.randint(1, 4)):
            out.append((name, STEPS[name](self)))
        return out


# ---- what they do


@step
def maths(p: Program) -> Any:
    x, y = p.tensor(), p.tensor()
    for _ in range(p.draw.randint(1, 8)):
        x = p.draw.choice([
            lambda a, b: a + b * 2,
            lambda a, b: (a @ b) / 4,
            lambda a, b: a.softmax(-1) - b,
            lambda a, b: (a * b).tanh() + a.sum(0),
            lambda a, b: p.torch.where(a > b, a, b.sin()),
            lambda a, b: a - a.mean(1, keepdim=True) + b.t(),
            lambda a, b: p.torch.cat([a[:2], b[2:]]).flip(0),
            lambda a, b: a.sort(1).values + b.cumsum(0),
        ])(x, y)  # fmt: skip
    return x.tolist()


@step
def integers(p: Program) -> Any:
    n = p.torch.arange(p.draw.randint(3, 40))
    k = p.draw.randint(2, 7)
    return [(n * k % 11).tolist(), int((n // k).sum()), bool((n > k).any()), n.roll(k)[n % 3 == 0].tolist()]


@step
def views(p: Program) -> Any:
    x = p.tensor(6, 4)
    v = x.t()[1:3]
    for _ in range(p.draw.randint(1, 6)):
        p.draw.choice([
            lambda: v.add_(1),
            lambda: x[2:4].mul_(0.5),
            lambda: v[0].copy_(x[:, 3]),
            lambda: x.view(-1)[::3].sub_(1),
            lambda: x.__setitem__((0, slice(1, 3)), 7.0),
            lambda: v.clamp_(-1, 1),
        ])()  # fmt: skip
    return [x.tolist(), v.sum().item()]


@step
def gradients(p: Program) -> Any:
    w, b = p.tensor().requires_grad_(), p.tensor(4).requires_grad_()
    loss = ((p.tensor() @ w + b).tanh() ** 2).mean()
    if p.draw.random() < 0.5:
        loss.backward()
        (w * 2).sum().backward()
    else:
        w.grad, b.grad = p.torch.autograd.grad(loss, (w, b), create_graph=False)
    return [w.grad.tolist(), b.grad.tolist(), loss.item()]


@step
def training(p: Program) -> Any:
    torch = p.torch
    model = torch.nn.Linear(3, 2)
    with torch.no_grad():
        for q in model.parameters():
            q.copy_(p.tensor(*q.shape))
    kind = p.draw.choice(["SGD", "Adam", "RMSprop"])
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.05)
    x, losses = p.tensor(5, 3), []
    for _ in range(p.draw.randint(1, 3)):
        optimizer.zero_grad()
        loss = (model(x) - 1).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [losses, {k: v.tolist() for k, v in model.state_dict().items()}]


@step
def serving(p: Program) -> Any:
    """As a server: the model is everybody's."""
    with p.torch.inference_mode():
        return [p.world.model(p.tensor(n, 4)).tolist() for n in range(1, p.draw.randint(2, 4))]


@step
def compiled(p: Program) -> Any:
    x, y = p.tensor(), p.tensor()
    out = [p.world.compiled(x, y).tolist() for _ in range(p.draw.randint(1, 4))]
    out.append(p.world.scale(x, p.draw.choice([2.0, 3.0])).tolist())
    with p.torch.no_grad():
        out.append(p.world.net(p.tensor(2, 4)).tolist())
    return out


@step
def compiled_training(p: Program) -> Any:
    torch = p.torch
    w = p.tensor(3, 3).requires_grad_()
    optimizer = torch.optim.SGD([w], lr=0.1, momentum=0.9)
    x = p.tensor(4, 3)

    def once() -> Any:
        optimizer.zero_grad()
        loss = (x @ w).relu().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    f = torch.compile(once)
    return [[f().item() for _ in range(p.draw.randint(1, 4))], w.tolist()]


@step
def checkpoint(p: Program) -> Any:
    torch = p.torch
    file = io.BytesIO()
    torch.save({"x": p.tensor(), "model": p.world.model.state_dict()}, file)
    file.seek(0)
    found = torch.load(file)
    return [found["x"].tolist(), found["model"]["0.weight"].sum().item()]


@step
def numbers(p: Program) -> Any:
    torch, g = p.torch, p.generator
    return [
        torch.rand(3, generator=g).tolist(),
        torch.randperm(7, generator=g).tolist(),
        torch.randint(9, (4,), generator=g).tolist(),
    ]


@step
def handed_over(p: Program) -> Any:
    """What waits in one thread is used, and read, in another, and comes back."""
    x = p.tensor() * 2
    future = p.world.pool.submit(lambda: (x @ x.t()).sum(1))
    y = x + 1
    z = future.result()
    read = p.world.pool.submit(lambda: (z * y).tolist())
    x.add_(5)
    return [read.result(), (z + x).tolist()]


@step
def backward_elsewhere(p: Program) -> Any:
    w = p.tensor().requires_grad_()
    losses = [(w * k).sin().sum() for k in range(1, 4)]
    for future in [p.world.pool.submit(loss.backward) for loss in losses]:
        future.result()
    return w.grad.tolist()


@step
def modes(p: Program) -> Any:
    torch = p.torch
    w = p.tensor(3).requires_grad_()
    out = []
    for context in p.draw.sample([torch.no_grad, torch.enable_grad, torch.inference_mode], 3):
        with context():
            y = w * 2
            out += [torch.is_grad_enabled(), torch.is_inference_mode_enabled(), y.requires_grad, y.is_inference()]
            out.append(p.world.pool.submit(lambda: (w * 2).requires_grad).result())
            out.append(y.sum().item())
    out += [torch.is_grad_enabled(), (w * 2).requires_grad]
    return out


@step
def lower_types(p: Program) -> Any:
    torch = p.torch
    x, y = p.tensor(), p.tensor()
    kind = x.device.type
    with torch.autocast("cpu" if kind == "cpu" else "cuda" if kind == "cuda" else "webgpu", dtype=torch.float16):
        inside = x @ y
        y = y + inside.float()
        elsewhere = p.world.pool.submit(lambda: str((x @ x).dtype)).result()
    return [str(inside.dtype), str((x @ x).dtype), elsewhere, inside.tolist(), y.tolist()]


@step
def transforms(p: Program) -> Any:
    torch = p.torch
    x, y = p.tensor(3, 4), p.tensor(4)
    f = lambda a: (a * y).sin().sum()  # noqa: E731
    return [torch.vmap(torch.func.grad(f))(x).tolist(), torch.vmap(lambda a: a @ y)(x).tolist()]


@step
def many(p: Program) -> Any:
    """More than one window."""
    x = p.tensor(3)
    for k in range(p.draw.choice([40, 300])):
        x = x * 0.99 + k % 3
    return x.tolist()


# ---- running them


def alike(a: Any, b: Any) -> bool:
    """Whether two results are the same; where windows are cut decides about the last digits of floating-point numbers."""
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(a[k], b[k]) for k in a)
    if isinstance(a, float):
        return abs(a - b) <= 1e-5 + 1e-4 * abs(a)
    return bool(a == b)


def run(world: World, seeds: list[int], threads: int) -> list[str]:
    """Runs the programs alone, then all at once; says which differ."""
    expected = {seed: Program(world, seed).run() for seed in seeds}
    failures: list[str] = []
    start = threading.Barrier(threads)

    def work(number: int) -> None:
        start.wait()
        order = list(seeds)
        random.Random(number).shuffle(order)
        for seed in order:
            try:
                found = Program(world, seed).run()
            except Exception:
                failures.append(f"seed {seed}, thread {number}:\n{traceback.format_exc()}")
            else:
                if not alike(found, expected[seed]):
                    wrong = [(e, f) for e, f in zip(expected[seed], found) if not alike(e, f)]
                    failures.append(f"seed {seed}, thread {number}: alone {wrong[0][0]}, among others {wrong[0][1]}")

    workers = [threading.Thread(target=work, args=(k,)) for k in range(threads)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for w in workers:
            w.start()
        for w in workers:
            w.join()
    finally:
        sys.setswitchinterval(before)
    return failures


#: how many programs are run alone before they are run at once
BATCH = 50


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=None, help="of the first program; a fresh one each time")
    parser.add_argument("--device", default=None)
    parser.add_argument("--seconds", type=float, default=None, help="no more programs are begun after so long")
    parser.add_argument("--results", type=Path, default=None, help="append a line of JSON (see reliability.py)")
    given = parser.parse_args()
    if given.device:
        os.environ["TABTORCH_DEVICE"] = given.device
    import tabtorch
    from host import host

    first = random.SystemRandom().randrange(1 << 30) if given.seed is None else given.seed
    world = World(tabtorch)
    begun = time.monotonic()
    ran, wrong = 0, 0
    while ran < given.programs and (given.seconds is None or time.monotonic() - begun < given.seconds):
        batch = range(first + ran, first + min(ran + BATCH, given.programs))
        failures = run(world, list(batch), given.threads)
        print(*failures[: max(0, 5 - wrong)], sep="\n", end="\n" if failures else "")
        ran, wrong = ran + len(batch), wrong + len(failures)
        print(f"{ran} programs, {wrong} wrong", flush=True)
    took = time.monotonic() - begun
    print(f"{given.threads} threads x {ran} programs from --seed {first}: {wrong} wrong, {took:.0f} s")
    record(
        given.results,
        "threads",
        count=ran,
        unit=f"programs, {given.threads} threads",
        found=wrong,
        seconds=took,
        on=f"{tabtorch.empty(0).device.type}, {host()}",
        seed=first,
    )
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
