"""How a row is timed, in either library.

The clock of a GPU is brought up first by half a second of the same work or more, until rounds take the same, and no kernel is
left that runs its baseline text; its results are kept (one that nobody keeps is never computed). Where the GPU has to wait for
Python now and then that takes longer: a prefill in a tab took 18.6 ms after half a second alone, 7.4 since rounds have to agree.

A round is as many steps as take a while, ten at least where they do not take long: before the first one of them the GPU
waits for Python. Each is sent as soon as it is called, and the round ends when the last is done.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from bench.rows import Row

ROUNDS = 5
#: seconds, at least and at most, and the share by which rounds may still differ
WARM, LONG_WARM, STEADY = 0.5, 2.0, 0.04
#: seconds that kernels may take to be compiled from their full texts
COMPILING = 15.0
LONG_ENOUGH, TOO_LONG = 0.1, 1.0
SEVERAL = 10
MOST = 200
#: of a result so many numbers are compared
_COMPARED = 16


class Clock:
    """What a library is asked for: to send what waits, to wait for the GPU, and to count."""

    def __init__(self, torch: Any, device: str) -> None:
        self.torch, self.device = torch, device

    def send(self) -> None:
        """Sends what was called so far."""

    def wait(self) -> None:
        """Until the GPU is done."""
        if self.device.startswith("cuda"):
            self.torch.cuda.synchronize()

    def counters(self) -> dict[str, float]:
        return {}

    def compiled(self) -> bool:
        return True

    def gpu_ms(self, step: Any) -> float | None:
        """Milliseconds that the kernels of a step take, one after the other."""
        if not self.device.startswith("cuda"):
            return None
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.torch.cuda.synchronize()
        found = []
        for _ in range(ROUNDS):
            begin.record()
            step()
            end.record()
            self.torch.cuda.synchronize()
            found.append(begin.elapsed_time(end))
        return statistics.median(found)


COUNTED = ("dispatches", "submits", "kernels", "buffersCreated", "buffersDestroyed", "uploadBytes")


class OwnClock(Clock):
    """tabtorch's."""

    def __init__(self, torch: Any, device: str) -> None:
        from tabtorch.bridge import get_bridge
        from tabtorch.engine import graph

        super().__init__(torch, device)
        self.bridge, self.send = get_bridge(), graph.flush

    def compiled(self) -> bool:
        return not self.bridge.stats()["optimizing"]

    def wait(self) -> None:
        self.bridge.synchronize()

    def counters(self) -> dict[str, float]:
        found = self.bridge.stats()
        return {k: found[k] for k in (*COUNTED, "peakBytes")}

    def gpu_ms(self, step: Any) -> float | None:
        if self.device != "webgpu":
            return None
        found = []
        for _ in range(3):
            self.wait()
            if not self.bridge.start_times():
                return None
            kept = step()
            self.send()
            self.wait()
            found.append(sum(ns for _, ns in self.bridge.take_times()) / 1e6)
            del kept
        return statistics.median(found)


def measure(clock: Clock, row: Row, small: bool) -> dict[str, Any]:
    """Times in milliseconds a step: `done` (median of rounds) and `best`, `called` until Python went on, `gpu`, `first` (the first
    one in this process: what rows before it have compiled is there); counts of one warmed-up step; and some numbers of the result.
    """
    torch = clock.torch
    sizes = row.small if small else row.sizes
    step = row.make(torch, clock.device, **sizes)
    clock.send()
    clock.wait()

    def seconds(n: int) -> tuple[float, float]:
        kept: Any = None
        begin = time.perf_counter()
        for _ in range(n):
            new = step()
            clock.send()
            kept = new
        called = time.perf_counter()
        clock.wait()
        done = time.perf_counter()
        del kept
        return called - begin, done - begin

    begin = time.perf_counter()
    result = step()
    clock.send()
    clock.wait()
    first = time.perf_counter() - begin
    digest = _numbers(result)
    del result
    for _ in range(3):
        seconds(1)
    once = min(seconds(1)[1] for _ in range(3))
    once = max(once, 1e-6)
    n = max(1, min(MOST, int(LONG_ENOUGH / once)), min(SEVERAL, int(TOO_LONG / once)))
    begin, last = time.perf_counter(), float("inf")
    while (passed := time.perf_counter() - begin) < LONG_WARM or (passed < COMPILING and not clock.compiled()):
        now = seconds(n)[1]
        if passed > WARM and abs(now - last) < STEADY * now and clock.compiled():
            break
        last = now
    before = clock.counters()
    seconds(1)
    after = clock.counters()
    times = [seconds(n) for _ in range(ROUNDS)]
    ms = 1000 / n
    found: dict[str, Any] = {
        "name": row.name,
        "done": statistics.median(t for _, t in times) * ms,
        "best": min(t for _, t in times) * ms,
        "called": statistics.median(t for t, _ in times) * ms,
        "gpu": clock.gpu_ms(step),
        "first": first * 1000,
        "numbers": digest,
        "counts": {k: after[k] - before[k] for k in after if k != "peakBytes"},
        "peak": after.get("peakBytes"),
    }
    if row.work is not None:
        found["work"] = row.work(**{k: v for k, v in sizes.items() if not isinstance(v, bool)})
    return found


def _numbers(x: Any) -> list[float]:
    if isinstance(x, (tuple, list)):
        return [n for each in x for n in _numbers(each)]
    if isinstance(x, (int, float)):
        return [float(x)]
    flat = x.detach().reshape(-1)
    step = max(1, flat.shape[0] // _COMPARED)
    return [float(v) for v in flat[::step][:_COMPARED].float().cpu().tolist()]
