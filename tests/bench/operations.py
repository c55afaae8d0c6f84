"""The measurements of overhead.py, run in a tab: prints one JSON object.

"Per operation, until done" is the time of this thread from the first operation to the end of the device's work on the
last, divided by the number of operations: medians of several rounds, after a warm-up.
"""

import json
import shutil
import statistics
import sys
import time
from pathlib import Path

try:  # in a tab: how long it took until this line ran, since the worker began
    from js import performance

    STARTED = performance.now()
except ImportError:
    STARTED = None

import torch
import torch.nn as nn
import torch.nn.functional as F

import tabtorch
from tabtorch.bridge import get_bridge
from tabtorch.engine import graph

OPERATIONS = 1000
COUNTERS = ("dispatches", "submits", "kernels", "bindGroups", "uploadBytes", "bytes", "pooledBytes")
bridge = get_bridge()


def add():
    x = ONES
    for _ in range(OPERATIONS):
        x = x + STEP
    return x


def add_backward():
    LEAF.grad = None
    x = LEAF
    for _ in range(OPERATIONS):
        x = x + STEP
    x.sum().backward()
    return LEAF.grad


def multiply_by_number():
    x = ONES
    for _ in range(OPERATIONS):
        x = x * 1.001
    return x


def mixed():
    x = ONES
    for _ in range(OPERATIONS // 4):
        x = (x * 0.5 + STEP).tanh().abs()
    return x


def matmul():
    x = SQUARE
    for _ in range(OPERATIONS):
        x = x @ SQUARE
    return x


class Perceptron:
    """A step of a small MLP, AdamW: 64-128-64-10, batches of 32."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.images, self.labels = torch.rand(32, 64), torch.randint(0, 10, (32,))

    def __call__(self):
        loss = F.cross_entropy(self.model(self.images), self.labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


def timed(work, rounds):
    """(seconds until submitted, seconds until done) of each round."""
    found = []
    for _ in range(rounds):
        begin = time.perf_counter()
        kept = work()
        graph.flush()
        submitted = time.perf_counter()
        bridge.synchronize()
        found.append((submitted - begin, time.perf_counter() - begin))
        del kept
    return found


def measure(name, work, per, unit, rounds=15, warm=4):
    """A row of the table: times per operation or per step, and what one round sends."""
    bridge.synchronize()
    bridge.reset_stats()
    before = graph.counts["plans"]
    first = timed(work, 1)[0][1]
    timed(work, warm - 1)
    compiled, planned = bridge.stats()["kernels"], graph.counts["plans"] - before
    bridge.reset_stats()
    timed(work, 1)
    stats = bridge.stats()
    rows = timed(work, rounds)
    scale = {"µs": 1e6, "ms": 1e3}[unit] / per
    return {
        "name": name,
        "unit": unit,
        "done": round(statistics.median(r[1] for r in rows) * scale, 3),
        "best": round(min(r[1] for r in rows) * scale, 3),
        "submitted": round(statistics.median(r[0] for r in rows) * scale, 3),
        "first": round(first * scale, 3),
        "compiles": compiled,
        "plans": planned,
        **{key: stats[key] for key in COUNTERS},
    }


def item(rounds=60):
    """Milliseconds of `(x + 1).item()`: an operation, its submission, and a read."""
    x = torch.zeros(())
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        (x + 1).item()
        times.append(time.perf_counter() - begin)
    return round(statistics.median(times[5:]) * 1e3, 3)


def import_again():
    """Milliseconds of `import tabtorch` with nothing cached; the tensors made before are of no use after it."""
    folder = Path(tabtorch.__file__).parent
    for cache in folder.rglob("__pycache__"):
        shutil.rmtree(cache, ignore_errors=True)
    for name in [n for n in sys.modules if n.partition(".")[0] in ("tabtorch", "torch")]:
        del sys.modules[name]
    begin = time.perf_counter()
    __import__("tabtorch")
    first = time.perf_counter() - begin
    begin = time.perf_counter()
    __import__("tabtorch.nn", fromlist=["functional"])
    return round(first * 1e3, 1), round((time.perf_counter() - begin) * 1e3, 1)


if __name__ == "__main__":
    torch.manual_seed(0)
    ONES, STEP = torch.ones(64), torch.full((64,), 0.5)
    LEAF = torch.ones(64, requires_grad=True)
    SQUARE = torch.eye(16)
    rows = [
        measure("add, 64 floats", add, OPERATIONS, "µs"),
        measure("add with backward", add_backward, OPERATIONS, "µs"),
        measure("multiply by a number", multiply_by_number, OPERATIONS, "µs"),
        measure("mul, add, tanh, abs", mixed, OPERATIONS, "µs"),
        measure("matmul 16 x 16", matmul, OPERATIONS, "µs"),
        measure("MLP step", Perceptron(), 1, "ms", rounds=30, warm=6),
    ]
    webgpu = bridge.info["webgpu"]
    result = {
        "device": str(ONES.device),
        "adapter": webgpu and webgpu["adapter"],
        "platform": bridge.info.get("platform"),
        "python": sys.version.split()[0],
        "tabtorch": tabtorch.__version__,
        "rows": rows,
        "item_ms": item(),
        "start_ms": STARTED and round(STARTED, 1),
    }
    result["import_ms"], result["import_nn_ms"] = import_again() if STARTED else (None, None)
    print(json.dumps(result))
