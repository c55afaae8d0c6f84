"""What a training step of a GPT costs on a GPU: real PyTorch compiled for webgpu, its eager optimizers and a compiled one, beside
PyTorch's CUDA and tabtorch's own compiled step. Prints milliseconds a step, and compares the losses.

bench_backend_gpu.py [--small] [--rounds N] [--steps N] [--legs NAME,NAME]

A round is as many steps, whose losses are kept, and ends with a read of the last one. Before it stands half a second of such steps,
so that the clock of the GPU is up. A leg that fails says so, and the others go on.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # from here, whatever is installed
sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "py"), str(Path(__file__).resolve().parent)]

import torch

from backend_gpt import LARGE, SMALL, make, step_of, tokens

ALONE = "cuda"  # this leg runs in a process without device="webgpu", as PyTorch's backward on CUDA needs CUDA as the accelerator
if sys.argv[-1] != ALONE:
    import tabtorch
    import tabtorch.backend
    import tabtorch.backend.dynamo
    from tabtorch.backend.tensors import place
    from tabtorch.bridge import get_bridge
    from tabtorch.engine import graph

WARM = 0.5  # seconds
Step = Callable[[], Any]


def adamw(torch: Any, model: Any, **kw: Any) -> Any:
    return torch.optim.AdamW(model.parameters(), lr=1e-3, **kw)


def cuda(sizes: tuple[int, ...]) -> Step:
    """PyTorch on CUDA, eager, in full float32."""
    if not torch.cuda.is_available():
        raise RuntimeError("there is no CUDA")
    return _theirs(sizes, "cuda", lambda m: m, {})


def _theirs(sizes: tuple[int, ...], device: str, run: Any, kw: Any, optimizer: Any = None) -> Step:
    model = make(torch, *sizes[:4], device)
    made = adamw(torch, model, **kw)
    x, y = tokens(torch, *sizes[3:], device)
    step = step_of(torch, run(model), made if optimizer is None else optimizer(made))
    return lambda: step(x, y)


def _compiled(f: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(f, backend="webgpu")


def eager(sizes: tuple[int, ...]) -> Step:
    """Nothing compiled."""
    return _theirs(sizes, "webgpu", lambda m: m, {})


def foreach(sizes: tuple[int, ...]) -> Step:
    """The model compiled; the optimizer as PyTorch chooses it."""
    return _theirs(sizes, "webgpu", _compiled, {})


def fused(sizes: tuple[int, ...]) -> Step:
    return _theirs(sizes, "webgpu", _compiled, {"fused": True})


class _CompiledSteps:
    """An optimizer, with its step compiled."""

    def __init__(self, optimizer: Any) -> None:
        self.zero_grad = optimizer.zero_grad
        self.step = torch.compile(optimizer.step, backend="webgpu")


def compiled_optimizer(sizes: tuple[int, ...]) -> Step:
    return _theirs(sizes, "webgpu", _compiled, {}, _CompiledSteps)


def own(sizes: tuple[int, ...]) -> Step:
    """tabtorch's, the whole step compiled."""
    device = place().type
    tabtorch.set_default_device(device)
    try:
        model = make(tabtorch, *sizes[:4])
        x, y = tokens(tabtorch, *sizes[3:])
        step = tabtorch.compile(step_of(tabtorch, model, adamw(tabtorch, model)))
    finally:
        tabtorch.set_default_device(None)

    def run() -> Any:
        with tabtorch.device(device):
            return step(x, y)

    return run


LEGS: dict[str, tuple[str, Callable[[tuple[int, ...]], Step]]] = {
    "own": ("tabtorch.compile, the whole step", own),
    "foreach": ("model compiled, AdamW", foreach),
    "fused": ("model compiled, AdamW(fused=True)", fused),
    "optimizer": ("model compiled, AdamW compiled", compiled_optimizer),
    "eager": ("webgpu, nothing compiled", eager),
    "cuda": ("CUDA eager, no TF32", cuda),
}


def measure(step: Step, rounds: int, steps: int) -> tuple[list[float], list[float]]:
    """(milliseconds a step, of each round; the first losses). Each step runs in the same loop, recorded or not."""
    losses = [float(step().item()) for _ in range(6)]
    found = []
    for _ in range(rounds):
        until = time.perf_counter() + WARM
        while time.perf_counter() < until:
            kept = [step() for _ in range(3)]
            kept[-1].item()
        begin = time.perf_counter()
        kept = [step() for _ in range(steps)]
        kept[-1].item()
        found.append((time.perf_counter() - begin) * 1000 / steps)
    return found, losses


def counted(step: Step) -> str:
    """What one step sends."""
    graph.flush()
    before = get_bridge().stats()
    step()
    graph.flush()
    after = get_bridge().stats()
    names = [n for n in ("runs", "dispatches", "submits") if isinstance(after.get(n), (int, float))]
    return ", ".join(f"{after[n] - before[n]:.0f} {n}" for n in names)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--small", action="store_true", help="4 layers, 128 wide, 64 tokens, 12 sequences")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--legs", default=",".join(LEGS))
    options = parser.parse_args()
    sizes = SMALL if options.small else LARGE
    print(f"torch {torch.__version__}, layers/heads/width/context/batch {'/'.join(map(str, sizes))}", flush=True)
    first: list[float] = []
    base = 0.0
    wrong = 0
    for name in options.legs.split(","):
        words, leg = LEGS[name]
        if name == ALONE and options.legs != ALONE:
            command = [sys.executable, __file__, *sys.argv[1:], "--legs", ALONE]
            wrong += subprocess.run(command, check=False).returncode
            continue
        try:
            step = leg(sizes)
            times, losses = measure(step, options.rounds, options.steps)
            sent = counted(step) if name != ALONE else ""
        except Exception as error:
            traceback.print_exc(limit=8)
            print(f"{words:38} failed: {type(error).__name__}: {error}", flush=True)
            wrong += name != ALONE
            continue
        first, base = first or losses, base or statistics.median(times)
        off = max(abs(a - b) for a, b in zip(first, losses))
        wrong += off > 1e-3
        ms = statistics.median(times)
        print(
            f"{words:38}{ms:9.2f} ms  {ms / base:5.2f} x   best {min(times):.2f}   losses {losses[0]:.4f} … {losses[-1]:.4f}"
            f"{'' if off <= 1e-3 else f'  NOT EQUAL: {off:.1e} apart'}   {sent}",
            flush=True,
        )
        del step
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
