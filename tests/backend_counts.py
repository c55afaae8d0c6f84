"""What a training step of a small GPT sends to a GPU: of tabtorch's own compiled step, and of real PyTorch's on device="webgpu".

    PYTHONPATH=py python tests/backend_counts.py [--large]

prints a line a way of running it, as JSON: its name, the kernels it runs, the plans, and the bytes it stores. Plans are made for
a made-up GPU, and nothing is sent: so no memory is needed.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from typing import Any

import torch

import plain_torch  # noqa: F401
import tabtorch
import tabtorch.backend
import tabtorch.backend.dynamo
from backend_gpt import LARGE, make, step_of, tokens
from tabtorch.bridge import get_bridge
from tabtorch.engine import builder, graph, plan, schedules
from tabtorch.engine.steps import Dispatch
from tabtorch.engine.target import target

#: layers, heads, width, context, batch
TINY = (2, 2, 64, 64, 64)
sent: list[plan.Plan] = []


def make_up_a_gpu() -> None:
    """From now on there is a GPU with barriers, which nothing is sent to."""
    t, bridge, numbers = target(0), get_bridge(), itertools.count(1)
    t.software, t.barriers, t.buffers = False, True, 16
    graph._plans.clear()
    schedules._families.clear()
    builder._kernels.clear()
    type(bridge).portion = property(lambda self: float("inf"), lambda self, portion: None)  # type: ignore[attr-defined,assignment,misc]
    for name in ("define_kernel", "define_plan", "bind_plan"):
        setattr(bridge, name, lambda *args: next(numbers))
    bridge.forget_plans = lambda ids: None  # type: ignore[method-assign]
    plan.Plan.send = lambda self, ids, scalars: sent.append(self)  # type: ignore[method-assign]


def count(step: Callable[[], Any]) -> dict[str, Any]:
    """Of a step that runs as all later ones do."""
    for _ in range(6):
        graph.flush()
        sent.clear()
        kept = step()
        graph.flush()
    assert kept is not None
    labels = [s.label for p in sent for s in p.steps if type(s) is Dispatch]
    return {
        "kernels": len(labels),
        "plans": len(sent),
        "bytes": sum(sum(p.temps) + sum(n for _, n in p.fresh) for p in sent),
        "labels": labels,
    }


def own(sizes: tuple[int, ...]) -> Callable[[], Any]:
    """The whole step compiled by tabtorch."""
    tabtorch.set_default_device("webgpu")
    model = make(tabtorch, *sizes[:4])
    x, y = tokens(tabtorch, *sizes[3:])
    step = tabtorch.compile(step_of(tabtorch, model, tabtorch.optim.AdamW(model.parameters())))
    return lambda: step(x, y)


def theirs(sizes: tuple[int, ...], compiled: bool) -> Callable[[], Any]:
    """PyTorch's model, compiled or not, with the optimizer as PyTorch has it."""
    model = make(torch, *sizes[:4], "webgpu")
    x, y = tokens(torch, *sizes[3:], "webgpu")
    run = torch.compile(model, backend="webgpu") if compiled else model
    step = step_of(torch, run, torch.optim.AdamW(model.parameters()))
    return lambda: step(x, y)


def main() -> None:
    make_up_a_gpu()
    sizes = LARGE if "--large" in sys.argv else TINY
    legs = {
        "own": lambda: own(sizes),
        "compiled": lambda: theirs(sizes, True),
        "eager": lambda: theirs(sizes, False),
    }
    for name, leg in legs.items():
        print(json.dumps([name, count(leg())]), flush=True)


if __name__ == "__main__":
    main()
