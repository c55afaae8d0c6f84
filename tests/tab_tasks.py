"""Run in a tab (Pyodide in Node, a browser): tasks of asyncio that interleave while others wait for the device.

Each comes to what it comes to alone, and none sees the modes of another, though any of them may be in the middle of a read.
"""

import asyncio

import js
import torch

device = torch.get_default_device().type
turns: list[int] = []


def read(task: int, x):
    """The value, with which other tasks may have their turn."""
    turns.append(task)
    found = x.item()
    turns.append(task)
    return round(found, 4)


async def training(task: int) -> list:
    generator = torch.Generator().manual_seed(task)
    w = torch.randn(4, 3, generator=generator).requires_grad_()
    optimizer = torch.optim.Adam([w], lr=0.1)
    x, out = torch.randn(5, 4, generator=generator), []
    for step in range(4):
        optimizer.zero_grad()
        loss = (x @ w).pow(2).mean()
        assert loss.requires_grad and torch.is_grad_enabled(), "another task's mode"
        loss.backward()
        optimizer.step()
        out.append(read(task, loss))
        if step % 2:
            await asyncio.sleep(0)
    assert w.grad is not None
    return out


async def serving(task: int) -> list:
    out = []
    for k in range(4):
        with torch.no_grad(), torch.device("cpu"):
            y = torch.ones(3) * k
            out.append(read(task, y.sum()))
            assert not torch.is_grad_enabled() and (torch.zeros(2) + 1).device.type == "cpu"
        with torch.inference_mode(), torch.device(device):
            x = torch.ones(3) * (task + k)
            out.append(read(task, (x * 2).sum()))
            assert torch.is_inference_mode_enabled() and x.is_inference()
        assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        await asyncio.sleep(0)
    return out


async def lower(task: int) -> list:
    a, out = torch.ones(4, 4) * task, []
    for _ in range(3):
        with torch.autocast(device, dtype=torch.bfloat16):
            out.append(read(task, (a @ a).float().sum()))
            assert (a @ a).dtype == torch.bfloat16
        assert (a @ a).dtype == torch.float32
        await asyncio.sleep(0)
    return out


@torch.compile
def compiled(x, y):
    return (x @ y).relu().sum(0)


async def compiling(task: int) -> list:
    out = []
    for k in range(5):
        x = torch.eye(3) * (task + k)
        out.append(read(task, compiled(x, x).sum()))
        assert (torch.ones(2, requires_grad=True) * 2).requires_grad
        await asyncio.sleep(0)
    return out


async def reading(task: int) -> list:
    out = []
    for k in range(4):
        x = torch.arange(6.0) * (task + k)
        out.append(await x.read())
        x.add_(1)
        out.append(read(task, x.sum()))
    return out


KINDS = [training, serving, lower, compiling, reading]
# Node 20's V8 falls over more stacks than that
tasks = [(KINDS[k % len(KINDS)], k) for k in range((1 if hasattr(js, "process") else 2) * len(KINDS))]


async def alone() -> list:
    return [await f(k) for f, k in tasks]


async def together() -> list:
    return await asyncio.gather(*[asyncio.create_task(f(k)) for f, k in tasks])


first = await alone()  # noqa: F704
turns.clear()
second = await together()  # noqa: F704
assert first == second, [(a, b) for a, b in zip(first, second) if a != b][0]
interleaved = sum(a != b for a, b in zip(turns[::2], turns[1::2]))
assert torch.is_grad_enabled() and torch.get_default_device().type == device
assert interleaved or device == "cpu", "no task had its turn while another one read"
print("as alone;", interleaved, "of", len(turns) // 2, "reads with another task in between")
