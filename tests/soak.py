"""Long training: what it holds is counted after the first steps and again and again, and does not grow.

`python -m soak --steps 100000` in tests/; `python -m wasm -m soak` in Pyodide.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tabtorch as torch
from host import IN_TAB, host
from reliability import record
from tabtorch import nn
from tabtorch.bridge import get_bridge
from tabtorch.engine import graph, instructions

#: after so many steps each program is where it was. It is counted only there: counting cuts the window, and the parts of a
#: window that is cut somewhere else are windows of their own, with plans that are kept
CYCLE = 60
#: how often it is counted, a cycle apart, until what counting itself cuts is as it will be: a plan is first made, then kept
SETTLING = 4
#: what may grow between two counts, whatever the number of steps: caches of the interpreters themselves
ROOM = {
    "python blocks": 100,
    "python objects": 20,
    "javascript heap": 800_000,  # of code that V8 compiles until some 10,000 steps are done; after that it stays
    "bytes free for reuse": 1 << 20,
}
#: caches that grow to a bound of their own, after which what has not been used goes
BOUNDED = {"bind groups": 3 * 8192, "plans": 4097, "instructions": 200_001}
#: what one more of such takes: (what there is one more of, how much of it)
TAKES = {"javascript heap": ("bind groups", 2000)}


def plain(compiled: bool) -> Callable[[int], None]:
    """A classifier with AdamW; the loss of every tenth step is read."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = torch.randn(8, 8), torch.randint(0, 4, (8,))

    def one(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = torch.compile(one) if compiled else one

    def step(i: int) -> None:
        loss = run(x, y)
        if i % 10 == 0:
            loss.item()

    return step


def mixed(compiled: bool) -> Callable[[int], None]:
    """Dropout, a schedule, three batch sizes, clipping, evaluation between, exceptions, tensors that are kept for a while."""
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
    data = [(torch.randn(n, 8), torch.randint(0, 4, (n,))) for n in (4, 8, 12)]
    kept: deque[Any] = deque(maxlen=8)

    def one(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        out = model(x)
        loss = nn.functional.cross_entropy(out, y, label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss, out

    run = torch.compile(one) if compiled else one

    def step(i: int) -> None:
        x, y = data[i % 3]
        if i % 30 == 17:
            try:
                model(x)[:, :3] @ torch.ones(2, 2)
            except RuntimeError:
                pass
        loss, out = run(x, y)
        schedule.step()
        if i % 5 == 0:
            kept.append(out.detach())
        if i % 60 == 0:
            model.eval()
            with torch.no_grad():
                model(x).argmax(1).tolist()
            model.train()
        if i % 10 == 0:
            loss.item()

    return step


def lengths(compiled: bool) -> Callable[[int], None]:
    """Attention over sequences of 20 lengths in turn, with a key cache that grows and is dropped."""
    query, key = nn.Linear(8, 8), nn.Linear(8, 8)

    def one(x: Any) -> Any:
        return nn.functional.scaled_dot_product_attention(query(x), key(x), x)

    run = torch.compile(one) if compiled else one
    cache: list[Any] = []

    def step(i: int) -> None:
        n = 2 + i % 20
        if n == 2:
            cache.clear()
        with torch.no_grad():
            x = torch.ones(1, n, 8)
            out = run(x)
            cache.append(out[:, -1])
            if i % 4 == 0:
                torch.cat(cache).sum().item()

    return step


PROGRAMS: dict[str, Callable[[bool], Callable[[int], None]]] = {"plain": plain, "mixed": mixed, "lengths": lengths}


def counted() -> dict[str, int]:
    """What is held now: of the device, of Python, of JavaScript, of wasm."""
    bridge = get_bridge()
    for _ in range(3):
        gc.collect()
    graph.flush()
    bridge.synchronize()
    stats = bridge.stats()
    found = {
        "buffers": stats["buffers"],
        "bytes": stats["bytes"],
        "bytes free for reuse": stats["pooledBytes"],
        "buffer ids": stats["ids"],
        "plan ids": stats["planIds"],
        "bind groups": stats["groups"],
        "kernels": stats["kernels"],
        "plans": len(graph._plans),
        "instructions": len(instructions._insts),
    }
    if IN_TAB:
        import pyodide_js

        found["javascript heap"] = _heap_here()
        found["wasm"] = int(pyodide_js._module.HEAPU8.length)
    else:
        found["javascript heap"] = int(bridge._call("heap"))
    found["python objects"] = len(gc.get_objects())
    found["python blocks"] = sys.getallocatedblocks()
    return found


_HEAP = """
async () => {
  if (!globalThis.__collect) {
    (await import("node:v8")).setFlagsFromString("--expose_gc");
    globalThis.__collect = (await import("node:vm")).runInNewContext("gc");
  }
  globalThis.__collect();
  return process.memoryUsage().heapUsed;
}
"""


def _heap_here() -> int:
    """Bytes of JavaScript objects, in Node, where this Python is in the same heap."""
    from pyodide.code import run_js
    from pyodide.ffi import run_sync

    return int(run_sync(run_js(_HEAP)()))


def whole(steps: int) -> int:
    """So many steps or a few more: whole cycles."""
    return -(-steps // CYCLE) * CYCLE


def soak(
    program: str, compiled: bool, warm: int, steps: int, counts: int = 5
) -> tuple[dict[str, int], dict[str, int], list[str]]:
    """(first count, last count, what grew) of `steps` steps after `warm` ones, counted `counts` times on the way.

    Both are rounded up to whole cycles.
    """
    torch.compiler.reset()
    torch.manual_seed(0)
    step = PROGRAMS[program](compiled)
    at = 0

    def count_at(end: int) -> dict[str, int]:
        nonlocal at
        for i in range(at, end):
            step(i)
        at = end
        return counted()

    first = count_at(whole(warm))
    for _ in range(SETTLING):
        first = count_at(at + CYCLE)
    begin, last = at, first
    for part in range(1, counts + 1):
        last = count_at(begin + whole(steps * part // counts))
    grew = []
    for name in first:
        room = max(ROOM.get(name, 0), BOUNDED.get(name, 0) - first[name])
        if name in TAKES:
            of, each = TAKES[name]
            room += each * max(0, last[of] - first[of])
        if last[name] - first[name] > room:
            grew.append(f"{name}: {first[name]:,} after {begin} steps, {last[name]:,} after {at}")
    return first, last, grew


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--warm", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=None, help="fewer steps, about so long for each program")
    parser.add_argument("--programs", nargs="*", default=list(PROGRAMS))
    parser.add_argument("--modes", nargs="*", default=["eager", "compiled"])
    parser.add_argument("--device", default=None)
    parser.add_argument("--results", type=Path, default=None, help="append lines of JSON (see reliability.py)")
    args = parser.parse_args()
    if args.device:
        torch.set_default_device(args.device)
    device = torch.empty(0).device.type
    on = f"{device}, {host()}"
    failed = 0
    for program in args.programs:
        for mode in args.modes:
            begun = time.monotonic()
            steps = args.steps
            if args.seconds:
                soak(program, mode == "compiled", 200, 0, 1)
                pace = time.monotonic()
                soak(program, mode == "compiled", 100, 100, 1)
                steps = max(100, min(steps, int(args.seconds * 200 / (time.monotonic() - pace))))
            first, last, grew = soak(program, mode == "compiled", args.warm, steps)
            took = time.monotonic() - begun
            failed += bool(grew)
            print(f"{program}, {mode}, {on}: {steps:,} steps in {took:.0f} s; {'; '.join(grew) or 'nothing grew'}")
            print("   " + json.dumps({name: [first[name], last[name]] for name in first}), flush=True)
            record(
                args.results,
                "soak",
                count=steps,
                unit=f"steps, {program}, {mode}",
                found=len(grew),
                seconds=took,
                on=on,
                **{name: f"{first[name]:,} → {last[name]:,}" for name in first},
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
