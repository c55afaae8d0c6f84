"""Measures layouts of the products that `tuning.py` has noted: a few ms of GPU time at once, when the device has nothing else to do.

In CPython that is when a read or `synchronize()` has waited for it; in a tab, when the event loop has found for a moment that no
window was sent. A measurement is a generator, which yields what it waits for, so that both can drive it.

A candidate runs on operands of random numbers, which lie as the product's do. What is compared is the median of its runs, each as
the GPU's own timestamps have it, less what a dispatch that does nothing takes (each is a pass of its own while it is timed), and
`_LAUNCH` for each dispatch. Before that the computed layout runs until it becomes no faster. Where the clock is coarse, as browsers
make it, a run is so many in a row that it can tell.
"""

from __future__ import annotations

import asyncio
import random
import struct
import threading
from array import array
from collections.abc import Generator, Sequence
from itertools import accumulate
from math import gcd
from statistics import median
from typing import Any

from tabtorch.base import dtypes
from tabtorch.base.device import webgpu
from tabtorch.base.thread_state import STATE

from .. import bridge as _bridges
from ..bridge.base import LOCK, owned
from . import graph, tuning
from .contractions import sizes
from .expr import absolute, const, where
from .instructions import inst
from .kinds import Map, Reduce
from .memory import Buffer, bridge
from .nodes import Node, blank, from_host
from .plan import Plan, make_plan
from .steps import Dispatch
from .target import target
from .tiles import Layout
from .tuning import Product, Result
from .view import Meta, contiguous_meta, meta
from .window import counts

#: ns of GPU time that are spent at once, about
_SLICE = 4e6
#: ns of it until a clock that was down is thought to be up, as long as runs become faster; and the most runs at once then
_WARMING, _MOST_RUNS = 1e8, 100
#: ns that a dispatch more takes where none is timed
_LAUNCH = 2000
#: a layout takes the place of the computed one if it takes less than this share of its time
_WORTH = 0.97
#: how much longer than the fastest a candidate may take to be tried on, after so many rounds
_FAR = {1: 2.0, 2: 1.3, 5: 1.1}
#: ns: a clock whose times are all multiples of that or more is coarse; a run is so many of its steps then, made of so many runs at most
_COARSE, _STEPS, _IN_A_ROW = 10_000, 50, 512
#: seconds in which no window may have been sent in a tab, and between two slices there
_IDLE, _NEXT = 0.1, 0.01
#: slices whose times were lost, to others who timed or sent work meanwhile, after which a product is given up
_PATIENCE = 50
#: numbers that operands are made of, again and again: a prime, so that they do not fall in with rows
_NUMBERS = 16381

#: what a measurement waits for: that the device has nothing else to do, the times of what it has sent, or bytes of a buffer
IDLE, TIMES = "idle", "times"
Wish = str | tuple[Buffer, int]
Steps = Generator[Wish, Any, Result]

_COPY = Map("tuning: numbers", lambda x: x)
_DIFFERS = Map(
    "tuning: compared",
    lambda x, y, atol, rtol: where(absolute(x - y) <= atol + rtol * absolute(y), const(0, x.type), const(1, x.type)),
)
_COUNT = Reduce(
    "tuning: counted",
    lambda t: (const(0, t),),
    lambda v, k: (v,),
    lambda a, b: (a[0] + b[0],),
    lambda s: s[0],
    True,
)


def _node(
    op: Any, ins: tuple[Meta, ...], out: Meta, sources: list[Node], scalars: tuple = (), static: Any = None
) -> Node:
    kinds = ("f32",) * len(scalars)
    n = Node(inst(op, ins, out, kinds, static, "f32"), tuple(sources), scalars)
    n.pos = 0
    return n


def _holding(b: Buffer, m: Meta) -> Node:
    n = blank(m)
    n.buf = b
    return n


def _planned(n: Node, layout: Layout | None = None) -> Plan:
    """The plan of a window of one node."""
    sources = list(n.srcs)
    for k, s in enumerate(sources):
        s.pos = -k - 1
    none = [False] * len(sources)
    return make_plan(webgpu, [n], [True], sources, none, layouts={} if layout is None else {0: layout})


def _run(p: Plan, inputs: list[Buffer], scalars: tuple = ()) -> Buffer:
    return p.start([b.id for b in inputs], list(scalars))[0][1]


def _once(n: Node) -> Buffer:
    plan = _planned(n)
    try:
        return _run(plan, [s.buf for s in n.srcs if s.buf is not None], n.scalars)
    finally:
        plan.forget()


class _Runs:
    """The runs of a product: its operands, and a plan of each layout. All of it in the LOCK."""

    def __init__(self, p: Product) -> None:
        self.product = p
        self.runtime = bridge()
        self.plans: dict[Layout | None, Plan] = {}
        numbers = array("f", random.Random(0).choices([x / 128 - 0.5 for x in range(128)], k=_NUMBERS))
        self.numbers = from_host(numbers.tobytes(), contiguous_meta((_NUMBERS,), dtypes.float32, webgpu))
        nbytes = sum(tuning.extent(m) * m.dtype.itemsize for m in p.inst.ins)
        # as PyTorch's: more copies than the caches hold, where that is asked for
        self.operands = [self._operands() for _ in range(min(1 + tuning.settings.rotating // nbytes, 64))]
        self.turn = 0

    def _operands(self) -> list[Buffer]:
        return [self._filled(tuning.extent(m), m.dtype) for m in self.product.inst.ins]

    def _filled(self, size: int, dtype: Any) -> Buffer:
        shape = (-(-size // _NUMBERS), _NUMBERS)
        source = meta(shape, (0, 1), 0, dtypes.float32, webgpu)
        return _once(_node(_COPY, (source,), contiguous_meta(shape, dtype, webgpu), [self.numbers]))

    def plan(self, layout: Layout | None) -> Plan:
        """None: of a dispatch that does nothing worth mentioning."""
        plan = self.plans.get(layout)
        if plan is None:
            if layout is None:
                one = contiguous_meta((1,), dtypes.float32, webgpu)
                plan = _planned(_node(_COPY, (one,), one, [self.numbers]))
            else:
                p = self.product.inst
                sources = [
                    _holding(b, contiguous_meta((tuning.extent(m),), m.dtype, webgpu))
                    for b, m in zip(self.operands[0], p.ins, strict=True)
                ]
                n = Node(p, tuple(sources), ())
                n.pos = 0
                plan = _planned(n, layout)
            self.plans[layout] = plan
        return plan

    def dispatches(self, layout: Layout | None) -> int:
        return sum(type(step) is Dispatch for step in self.plan(layout).steps)

    def run(self, layout: Layout | None) -> Buffer:
        if layout is None:
            assert self.numbers.buf is not None
            return _run(self.plan(None), [self.numbers.buf])
        self.turn += 1
        return _run(self.plan(layout), self.operands[self.turn % len(self.operands)])

    def differing(self, one: Layout, other: Layout) -> Buffer:
        """How many results of a layout differ from those of another one."""
        self.turn = -1  # both of the same numbers
        x = self.run(one)
        self.turn = -1
        y = self.run(other)
        out = self.product.inst.out
        flat = contiguous_meta((out.numel,), out.dtype, webgpu)
        single = contiguous_meta((out.numel,), dtypes.float32, webgpu)
        both = [_holding(b, flat) for b in (x, y)]
        found = _once(_node(_DIFFERS, (flat, flat), single, both, self._tolerances()))
        return _once(
            _node(_COUNT, (single,), contiguous_meta((), dtypes.float32, webgpu), [_holding(found, single)], static=0)
        )

    def _tolerances(self) -> tuple[float, float]:
        """(absolute, relative): sums are added up in another order."""
        if tuning.settings.tolerances is not None:
            return tuning.settings.tolerances
        name = self.product.inst.out.dtype.name
        return 1e-4 + 1e-7 * sizes(self.product.inst)[3], {"float16": 2e-3, "bfloat16": 2e-2}.get(name, 1e-5)

    def forget(self) -> None:
        if self.runtime.alive:
            for plan in self.plans.values():
                plan.forget()
        self.plans.clear()


class _Clock:
    """How times are read. grain: ns that all are multiples of. repeat: runs in a row that are timed as one."""

    def __init__(self) -> None:
        self.grain = 0
        self.repeat = 1

    @property
    def coarse(self) -> bool:
        return not 0 < self.grain < _COARSE

    def ns(self, times: list[tuple[float, float]]) -> float:
        """What these dispatches, one after the other, took."""
        if self.coarse:
            return times[-1][0] + times[-1][1] - times[0][0]
        return sum(ns for _, ns in times)


def _sent(runs: _Runs, batch: Sequence[Layout | None], repeat: int) -> Generator[Wish, Any, list[Any]]:
    """Runs each so often in a row: of each the (begin, ns) of its dispatches."""
    for _ in range(_PATIENCE):
        yield IDLE
        with LOCK, graph.undisturbed():
            expected = [repeat * runs.dispatches(layout) for layout in batch]
        if not runs.runtime.start_times():
            raise RuntimeError("the device gives no timestamps")
        _timing[0] = runs.runtime.timing
        with LOCK, graph.undisturbed():
            for layout in batch:
                for _ in range(repeat):
                    runs.run(layout)
        times = yield TIMES
        if len(times) == sum(expected):
            ends = list(accumulate(expected))
            return [times[end - n : end] for n, end in zip(expected, ends, strict=True)]
    raise RuntimeError("others have timed, or sent work, whenever this was measured")


def _clock(runs: _Runs, layout: Layout) -> Generator[Wish, Any, _Clock]:
    """How the times of this product are to be read. RuntimeError where the clock is too coarse for it."""
    clock = _Clock()
    while clock.repeat <= _IN_A_ROW:
        found = yield from _sent(runs, [None, layout], clock.repeat)
        clock.grain = gcd(*(int(x) for times in found for pair in times for x in pair))
        if not clock.coarse or clock.ns(found[1]) >= max(_STEPS * clock.grain, 1):
            return clock
        clock.repeat *= 4
    raise RuntimeError("the clock of the device is too coarse for this product")


def _warmed(runs: _Runs, layouts: list[Layout], clock: _Clock) -> Generator[Wish, Any, None]:
    """Runs each layout once, which compiles it, then the first until that becomes no faster: a device that had nothing to do has its
    clock down, by a factor of up to six, and which layout is best hangs on how fast it computes beside its memory."""
    for layout in layouts:
        yield from _sent(runs, [layout], 1)
    best, since, n = float("inf"), 0.0, 1
    while since < _WARMING:  # each round counts for something, also if the clock says 0
        found = yield from _sent(runs, [layouts[0]] * n, clock.repeat)
        ns = [clock.ns(times) for times in found]
        since = 0.0 if min(ns) < 0.98 * best else since + max(sum(ns), _SLICE / 10)
        best = min(best, *ns)
        n = max(1, min(_MOST_RUNS, int(4 * _SLICE / max(best, 1.0))))


def _sampled(runs: _Runs, layouts: list[Layout]) -> Generator[Wish, Any, dict[Layout | None, float]]:
    """The median ns of each layout, and of a dispatch that does nothing. Those that turn out slow are run less often."""
    settings = tuning.settings
    first = layouts[0]
    clock = yield from _clock(runs, first)
    yield from _warmed(runs, layouts, clock)
    samples: dict[Layout | None, list[float]] = {x: [] for x in (None, *layouts)}
    alive, rounds = layouts, 0
    while alive:
        todo = alive[:: -1 if rounds % 2 else 1]  # in turns: a clock that rises, or heat, is nobody's advantage
        while todo:
            # the first does nothing: it wakes the device up, too
            batch: list[Layout | None] = [None]
            cost = 0.0
            for x in todo:
                cost += clock.repeat * median(samples[x] or samples[first] or [_SLICE])
                if len(batch) > 1 and cost > _SLICE:
                    break
                batch.append(x)
            found = yield from _sent(runs, batch, clock.repeat)
            for each, times in zip(batch, found, strict=True):
                samples[each].append(clock.ns(times) / clock.repeat)
            todo = todo[len(batch) - 1 :]
        rounds += 1
        fastest = min(median(samples[x]) for x in layouts)
        far = min(x for least, x in _FAR.items() if rounds >= least)
        alive = [
            x
            for x in alive
            if len(samples[x]) < settings.iterations
            and sum(samples[x]) * clock.repeat < settings.duration * 1e6
            and (x == first or median(samples[x]) <= far * fastest)
        ]
        if alive == [first] and rounds >= 3:  # nothing is left to compare it with
            break
    return {x: median(found) for x, found in samples.items()}


def measure(p: Product) -> Steps:
    """The steps of finding the best layout of a product."""
    layouts = tuning.candidates(target(0), p.inst)
    first = layouts[0]
    with LOCK, graph.undisturbed():
        runs = _Runs(p)
    try:
        found = yield from _sampled(runs, layouts)
        ns = {}
        for x in layouts:
            n = runs.dispatches(x)
            ns[x] = max(found[x] - n * found[None], 0.0) + n * _LAUNCH
        for x in sorted(layouts, key=ns.__getitem__):
            if x == first or ns[x] >= _WORTH * ns[first]:
                break
            with LOCK, graph.undisturbed():
                differing = runs.differing(x, first)
            (count,) = struct.unpack("<f", bytes((yield differing, 4)))
            if count == 0:
                return Result(x, ns[x] / 1e6)
        return Result(None, ns[first] / 1e6)
    finally:
        runs.forget()


# ---- when it is done

_now: list[tuple[Product, Steps]] = []  # what is being measured
_busy = threading.Lock()  # who has it measures
_timing = [0]  # `Bridge.timing` of what was sent


def _advance(answer: Any = None) -> Wish | None:
    """Goes on with what is being measured, or noted, until it waits; None when it is done. RuntimeError if it failed: it is not tried
    again."""
    if not _now:
        p = next(iter(tuning.noted.values()))
        _now.append((p, measure(p)))
    p, steps = _now[0]
    try:
        return steps.send(answer)
    except StopIteration as found:
        _end(p, found.value)
        return None
    except BaseException:
        _end(p, None)
        raise


def _end(p: Product, result: Result | None) -> None:
    """Keeps a result; once all is measured that was met, windows are planned with what was found."""
    _now.clear()
    tuning.noted.pop(p.key, None)
    if result is None:
        tuning.refused.add(p.key)
    else:
        tuning.table[p.key] = result
        tuning.keep()
    if not tuning.noted:
        graph.waited = None
        if tuning.enabled():
            tuning.renew()


def _watched() -> bool:
    """Whether a profiler, or somebody who times, would take this for the program's."""
    return bool(bridge().timing or bridge().watched)


def _slice() -> None:
    """Measures for a few ms. In `_busy`."""
    runtime = bridge()
    wish = _advance()
    try:
        while wish is not None and wish is not IDLE:
            if isinstance(wish, tuple):
                answer: Any = runtime.read(wish[0].id, 0, 0, wish[1])
            else:
                answer = runtime.take_times() if runtime.timing == _timing[0] else []
            wish = _advance(answer)
    except BaseException:  # of the device, or Ctrl+C
        if _now:
            _end(_now[0][0], None)
        raise
    finally:
        if runtime.alive and runtime.timing and runtime.timing == _timing[0]:
            runtime.end_times()


async def _slice_async() -> None:
    """The same in a tab, where it does not block."""
    runtime = bridge()
    runtime.flush()  # if something else is wrong, this is where it is raised
    try:
        wish = _advance()
        while wish is not None and wish is not IDLE:
            if isinstance(wish, tuple):
                answer: Any = await runtime.read_async(wish[0].id, 0, 0, wish[1])
            else:
                answer = await runtime.take_times_async() if runtime.timing == _timing[0] else []
            if not _now:  # the runtime has ended
                return
            wish = _advance(answer)
    except RuntimeError:
        if _now:
            _end(_now[0][0], None)
    finally:
        if runtime.alive and runtime.timing and runtime.timing == _timing[0]:
            runtime.end_times()


def tune() -> int:
    """Measures all that is noted, now: how many products that were. RuntimeError where one cannot be measured."""
    if not tuning.timed(target(0)):
        raise RuntimeError(
            "the device has no timestamps (the WebGPU feature timestamp-query): nothing can be measured on it"
        )
    before = len(tuning.noted)
    tries = 0
    # one thread is all a tab has: a slice goes on while this waits
    while not _busy.acquire(blocking=not _bridges.IN_TAB):
        bridge().synchronize()
        tries += 1
        if tries == 1000:
            raise RuntimeError("something is being measured, and does not come to an end")
    try:
        while tuning.noted:
            if _watched():
                raise RuntimeError("nothing can be measured while a profiler looks on")
            _slice()
    finally:
        _busy.release()
    return before


def tune_all(products: list[Product]) -> None:
    """The same of these products, but for those that the table has. RuntimeError where one cannot be measured, or is too large."""
    for p in products:
        if p.key not in tuning.table:
            if tuning.too_large(p):
                raise RuntimeError(f"{p.op},{p.parameters} takes too much memory to be measured")
            tuning.noted[p.key] = p
    tune()


def begin() -> None:
    """Something was noted: it is measured when the device has nothing else to do."""
    if _bridges.IN_TAB:
        _wake(_IDLE)
    else:
        graph.waited = _waited


def _waited() -> None:
    if STATE.held is not None or owned() or not tuning.noted or _watched() or not _busy.acquire(blocking=False):
        return
    try:
        _slice()
    except RuntimeError:  # it is not tried again
        pass
    finally:
        _busy.release()


_awake = [False]
_flushes = [-1]  # `counts["flushes"]` when it was looked at last
_tasks: set[Any] = set()


def _wake(seconds: float) -> None:
    """Looks, after so long, whether nothing else is done."""
    if not _awake[0]:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # nobody would call: there is `tune`
            return
        _awake[0] = True
        loop.call_later(seconds, _turn)


def _turn() -> None:
    _awake[0] = False
    if not tuning.noted:
        return
    before, _flushes[0] = _flushes[0], counts["flushes"]
    if before == _flushes[0] and not _watched() and _busy.acquire(blocking=False):
        task = asyncio.ensure_future(_slice_async())
        _tasks.add(task)
        task.add_done_callback(_turned)
    else:
        _wake(_IDLE)


def _turned(task: Any) -> None:
    _tasks.discard(task)
    _busy.release()
    if tuning.noted:
        _wake(_NEXT)


def stop() -> None:
    """Measures nothing more of what was noted so far, and lets its memory go."""
    tuning.noted.clear()
    _now.clear()
    graph.waited = None


_bridges.on_close(stop)
_bridges.keeps(vars(graph), "waited", lambda: None)

__all__ = ["begin", "measure", "stop", "tune", "tune_all"]
