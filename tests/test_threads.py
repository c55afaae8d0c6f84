"""Threads: programs that run at once come to what they come to alone, and modes are each thread's or everybody's as in PyTorch."""

from __future__ import annotations

import gc
import io
import os
import queue
import signal
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import tabtorch as tt
from at_once import BOTH, eager_switching, elsewhere, together  # noqa: F401  a fixture
from fuzz import threads as fuzz
from sidebyside import DEVICES
from tabtorch.autograd import tape
from tabtorch.bridge import base, get_bridge
from tabtorch.compiled import recording
from tabtorch.engine import graph, queues
from tabtorch.ops.machinery import asserts

# ---- programs


@pytest.mark.parametrize("name", DEVICES)
def test_programs(name: str) -> None:
    """The short form of `python -m fuzz.threads`."""
    before = tt.device(name)
    with warnings.catch_warnings(), before:
        warnings.simplefilter("error")

        class Pool(ThreadPoolExecutor):
            def submit(self, f: Any, *args: Any) -> Any:  # type: ignore[override]
                return super().submit(on(name, f), *args)

        world = fuzz.World(tt)
        world.pool = Pool(4)
        start = threading.Thread.run
        threading.Thread.run = on(name, start)  # type: ignore[method-assign]
        try:
            failures = fuzz.run(world, list(range(12 if name == "cpu" else 3)), 8)
        finally:
            threading.Thread.run = start  # type: ignore[method-assign]
    assert not failures, "\n".join(failures[:3])


def on(name: str, f: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        with tt.device(name):
            return f(*args)

    return run


@pytest.mark.parametrize("name", DEVICES)
def test_reads_at_once(name: str) -> None:
    x = tt.ones(8, 8, device=name)

    def work(i: int) -> list[float]:
        return [((x @ x).relu() + i + k).sum(0)[0].item() for k in range(8)]

    found = together(*[lambda i=i: work(i) for i in range(8)])
    assert found == [[8.0 * (8 + i + k) for k in range(8)] for i in range(8)]


# ---- one tensor, many threads


@pytest.mark.parametrize("name", DEVICES)
def test_no_write_is_lost(name: str) -> None:
    count, rows, view = tt.zeros(3, device=name), tt.zeros(8, 4, device=name), tt.zeros(2, 3, device=name)

    def work(i: int) -> None:
        for k in range(50):
            count.add_(1)
            view[1].add_(2)
            rows[i] = rows[i] + k

    together(*[lambda i=i: work(i) for i in range(8)])
    assert count.tolist() == [400.0] * 3 and view.tolist() == [[0.0] * 3, [800.0] * 3]
    assert rows.tolist() == [[1225.0] * 4] * 8


@pytest.mark.parametrize("name", DEVICES)
def test_no_gradient_is_lost(name: str) -> None:
    w = tt.ones(3, device=name, requires_grad=True)
    model = tt.nn.Linear(3, 2, device=name)
    with tt.no_grad():
        model.weight.fill_(1.0)
    told: list[int] = []
    w.register_post_accumulate_grad_hook(lambda t: told.append(1))

    def work() -> None:
        for k in range(30):
            (w * k).sum().backward()
            model(tt.ones(1, 3, device=name)).sum().backward()

    together(*[work] * 8)
    assert w.grad.tolist() == [8 * 435.0] * 3 and len(told) == 240
    assert model.weight.grad.tolist() == [[240.0] * 3] * 2 and model.bias.grad.tolist() == [240.0] * 2


def test_no_first_gradient_is_lost() -> None:
    for _ in range(15):
        w = tt.ones(3, device="cpu", requires_grad=True)
        losses = [(w * (k + 1)).sum() for k in range(8)]
        together(*[loss.backward for loss in losses])
        assert w.grad.tolist() == [36.0] * 3


def exponential(ns: Any, w: Any) -> Any:
    """What keeps its output."""
    return (w * w).exp()


def in_place(ns: Any, w: Any) -> Any:
    base = w * w
    base[:].exp_()
    return base


def with_hooks(ns: Any, w: Any) -> Any:
    with ns.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        return (w * w).exp()


def normal(ns: Any, w: Any) -> Any:
    """What is no row of the table."""
    return ns.logsumexp(ns.stack([w * w - 0.6931472] * 2), 0).exp()


def custom(ns: Any, w: Any) -> Any:
    class Exp(ns.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.saved_tensors[0]

    return Exp.apply(w * w)


def compiled(ns: Any, w: Any) -> Any:
    f = _compiled.setdefault(ns, ns.compile(lambda w: (w * w).exp()))
    return f(w)


_compiled: dict[Any, Any] = {}


def shared_graph(ns: Any, make: Callable[[Any, Any], Any]) -> set[str]:
    w = ns.ones(3, requires_grad=True)
    loss = make(ns, w).sum()
    found = [str(e) for e in together(*[loss.backward] * 6)]
    through = found.count("None")
    assert through >= 1 and all(abs(x - through * 5.43656) < 1e-3 for x in w.grad.tolist())
    return {e[:60] for e in found if e != "None"}


@pytest.mark.parametrize("make", [exponential, in_place, with_hooks, normal, custom, compiled])
def test_one_graph_in_many_threads(make: Callable[[Any, Any], Any]) -> None:
    """Who comes when another has freed what was saved is told so, and adds nothing; each that goes through adds its gradient.
    One has to; how many do depends on when the threads take turns, so that is not compared."""
    told: set[str] = set() if make is compiled else shared_graph(torch, make)
    for _ in range(20):
        told |= shared_graph(tt, make)
    assert told <= {tape.freed_error().args[0][:60]}


def test_draws() -> None:
    """A generator that is shared gives each number once; one of a thread's own, its own numbers."""
    for seed in range(12):  # who draws first makes the state
        tt.manual_seed(seed)
        expected = sorted(tt.rand(8).tolist())
        tt.manual_seed(seed)
        assert sorted(together(*[lambda: tt.rand(1).item()] * 8)) == expected
    n = 600
    tt.manual_seed(7)
    expected = sorted(tt.rand(8 * n).tolist())
    tt.manual_seed(7)
    found = together(*[lambda: [tt.rand(10).tolist() for _ in range(n // 10)]] * 8)
    assert sorted(x for one in found for part in one for x in part) == expected

    def own(ns: Any, seed: int) -> Any:
        g = ns.Generator().manual_seed(seed)
        return [ns.randperm(9, generator=g).tolist(), ns.randn(20, generator=g).tolist()]

    found = together(*[lambda s=s: own(tt, s) for s in range(6)])
    for s, (order, values) in enumerate(found):
        assert order == own(torch, s)[0] and values == pytest.approx(own(torch, s)[1], abs=1e-5)


def test_hand_over() -> None:
    """A producer's tensors, not sent yet, are what a consumer computes with; and it may write to them."""
    pipe: queue.Queue[Any] = queue.Queue(3)

    def produce() -> None:
        for k in range(60):
            pipe.put((tt.ones(4) * k)[1:])
        pipe.put(None)

    def consume() -> list[float]:
        out = []
        while (x := pipe.get()) is not None:
            x.mul_(2)
            out.append((x + 1).sum().item())
        return out

    assert together(produce, consume)[1] == [3 * (2.0 * k + 1) for k in range(60)]


def test_lists_are_never_replaced() -> None:
    """While one thread sends windows all the time, no operation of another one gets lost."""
    end = threading.Event()

    def send() -> None:
        while not end.is_set():
            graph.flush()

    def work() -> list[Any]:
        out = []
        for k in range(300):
            x = tt.ones(2) + k
            y = x * 2
            out.append(y if k % 20 else y.tolist())
        end.set()
        return [y.tolist() if k % 20 else y for k, y in enumerate(out)]

    assert together(work, send)[0] == [[2.0 * (k + 1)] * 2 for k in range(300)]


def test_saving_and_loading() -> None:
    model = tt.nn.Linear(20, 20)
    file = io.BytesIO()
    tt.save(model.state_dict(), file)

    def work(k: int) -> Any:
        if k % 2:
            found = tt.load(io.BytesIO(file.getvalue()))
            return found["weight"].tolist()
        own = io.BytesIO()
        tt.save({n: v + 0 for n, v in model.state_dict().items()}, own)
        own.seek(0)
        return tt.load(own)["weight"].tolist()

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(work, range(18)))
    assert all(f == found[0] for f in found) and found[0] == model.weight.tolist()


def test_what_comes_while_a_window_is_taken_stays() -> None:
    x = tt.ones(2, device="cpu")
    q = x._tab_storage.node.inst.queue
    graph.flush()
    late: list[Any] = []

    class Sneaky(graph.Nodes):
        """Another thread appends between the look and the taking out."""

        __slots__ = ()

        def __getitem__(self, k: Any) -> Any:
            taken = list.__getitem__(self, k)
            if not late:
                late.append(None)
                late[0] = x + 5
            return taken

    y = x + 1
    q.nodes.__class__ = Sneaky
    try:
        assert y.tolist() == [2.0, 2.0]
    finally:
        q.nodes.__class__ = graph.Nodes
    assert late[0].tolist() == [6.0, 6.0]


# ---- torch.compile


@pytest.mark.parametrize("name", DEVICES)
def test_one_compiled_function(name: str) -> None:
    net = tt.nn.Sequential(tt.nn.Linear(4, 8), tt.nn.Tanh(), tt.nn.Linear(8, 2)).to(name)
    f = tt.compile(net)
    inputs = [tt.randn(3, 4, device=name) for _ in range(8)]
    with tt.no_grad():
        expected = [net(x).tolist() for x in inputs]
        found = together(*[lambda x=x: [no_grad(f, x).tolist() for _ in range(8)] for x in inputs])
    for rows, one in zip(found, expected):
        assert not isinstance(rows, Exception), rows
        assert all(fuzz.alike(one, r) for r in rows)
    before = graph.counts["plans"]
    assert fuzz.alike(expected[0], no_grad(f, inputs[0]).tolist()) and graph.counts["plans"] == before


def no_grad(f: Any, *args: Any) -> Any:
    with tt.no_grad():
        return f(*args)


@pytest.mark.parametrize("name", DEVICES)
def test_others_work_while_a_function_is_recorded(name: str) -> None:
    """What they emit, print, upload and draw is not taken for the function's."""
    inside, go = threading.Event(), threading.Event()

    def function(x: Any) -> Any:
        y = x * 2
        if not go.is_set():
            inside.set()
            go.wait(5)
        return y + 1

    f = tt.compile(function)
    x = tt.ones(3, device=name)
    seen: list[Any] = []

    def other() -> Any:
        inside.wait(5)
        kept = tt.arange(4.0, device=name) * 3
        seen.append(kept.tolist())
        seen.append(tt.compile(lambda t: t - 1)(kept).tolist())
        seen.append(tt.rand(2).shape)
        w = tt.ones(2, device=name, requires_grad=True)
        (w * 2).sum().backward()
        seen.append(w.grad.tolist())
        print("from another thread")
        waiting = kept + 1
        go.set()
        return waiting

    found, waiting = together(lambda: f(x).tolist(), other)
    assert found == [3.0] * 3 and waiting.tolist() == [1.0, 4.0, 7.0, 10.0]
    assert seen == [[0.0, 3.0, 6.0, 9.0], [-1.0, 2.0, 5.0, 8.0], (2,), [2.0, 2.0]]
    before = graph.counts["plans"]
    assert [f(x).tolist() for _ in range(4)] == [[3.0] * 3] * 4
    assert graph.counts["plans"] <= before + 2 and queues.recording is None


def test_nodes_of_others_are_kept_apart_from_a_recording() -> None:
    class Recording:
        closed = over = shared_with = False

        def shared(self) -> None:
            self.shared_with = True

    x = tt.ones(2, device="cpu")
    x.tolist()
    q = x._tab_storage.node.inst.queue
    hold = Recording()
    assert recording.begin(hold) and not elsewhere(lambda: recording.begin(Recording()))
    try:
        mine = x + 1
        theirs = elsewhere(lambda: x + 2)
        assert [n is mine._tab_storage.node for n in q.nodes] == [True]
        assert [n is theirs._tab_storage.node for n in q.nodes.others] == [True]
        assert elsewhere(lambda: theirs.tolist()) == [3.0, 3.0] and mine._tab_storage.node.buf is None
        assert not hold.shared_with
        assert elsewhere(lambda: (mine * 2).tolist()) == [4.0, 4.0] and hold.shared_with
    finally:
        recording.end()
    assert not q.nodes.others and mine.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("both_ways", [False, True])
def test_a_recording_that_shares_values_is_given_up(both_ways: bool) -> None:
    shared: queue.Queue[Any] = queue.Queue()
    back: queue.Queue[Any] = queue.Queue()
    live = [True]

    def function(x: Any) -> Any:
        y = x * 2
        if not live:
            return y + 10
        shared.put(y)
        z = back.get(timeout=5)
        return z + y if both_ways else y + 10

    f = tt.compile(function)

    def other() -> Any:
        y = shared.get(timeout=5)
        z = y * 5
        if not both_ways:
            found = z.tolist()
            back.put(None)
            return found
        back.put(z)
        return None

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = together(lambda: f(tt.ones(2)).tolist(), other)
    assert found == ([[12.0] * 2, None] if both_ways else [[12.0] * 2, [10.0] * 2])
    assert queues.recording is None and not tt.compiler.is_compiling()
    assert type(graph.queue_of(tt.ones(1)._tab_meta.device).nodes) is graph.Nodes


@pytest.mark.parametrize("name", DEVICES)
def test_gradients_of_a_recording_that_is_given_up(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what was computed for them is taken back, wherever it stands among what other threads have added."""
    own, theirs = asserts._emit, []

    def emitted(*args: Any) -> None:
        own(*args)
        if not theirs:  # the log leads from the function to another thread, and back
            theirs.append(None)
            theirs.append(elsewhere(lambda: x[k * 1]))

    monkeypatch.setattr(asserts, "_emit", emitted)
    w, x = tt.ones(3, device=name, requires_grad=True), tt.arange(3.0, device=name)
    i, j, k = (tt.tensor(v, device=name).to(tt.int32) for v in ([1, 2], [2, 0], [0, 2]))

    def function(x: Any) -> Any:
        return (w[i * 1] * x[j * 1]).exp()

    out = tt.compile(function)(x)
    out.sum().backward()
    e = 2.718281828**2
    assert out.tolist() == pytest.approx([e, 1.0], 1e-5) and theirs[1].tolist() == [0.0, 2.0]
    assert w.grad is not None and w.grad.tolist() == pytest.approx([0.0, 2 * e, 0.0], 1e-5)


# ---- interruptions of one thread


def test_a_finalizer_that_computes(device: str = "cpu") -> None:
    """Collected in the middle of whatever runs, it appends its nodes, and its uploads go between two commands."""
    made: list[tt.Tensor] = []

    class Cycle:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            made.append(tt.tensor([1.0, 2.0], device="cpu") + 1)

    thresholds = gc.get_threshold()
    gc.set_threshold(7, 2, 2)
    try:
        x = tt.ones(3, device="cpu")
        for k in range(60):
            Cycle()
            x = (x + k).relu()
            assert (x * 0 + tt.tensor([k, 1.0, 2.0], device="cpu")).tolist() == [k, 1.0, 2.0]
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    assert len(made) >= 50 and all(t.tolist() == [2.0, 3.0] for t in made)


def test_a_command_that_is_interrupted() -> None:
    """Another command comes between the two halves of one: neither is lost."""
    block = get_bridge().block
    plain = type(block).reserve
    inner: list[int] = []

    def reserve(self: Any, nbytes: int) -> int:
        pos = plain(self, nbytes)
        if not inner:
            inner.append(0)
            with base.LOCK:
                inner[0] = get_bridge().upload(1, b"from a finalizer")
        return pos

    type(block).reserve = reserve  # type: ignore[method-assign]
    try:
        with base.LOCK:
            outer = get_bridge().upload(1, b"what was asked for")
    finally:
        type(block).reserve = plain  # type: ignore[method-assign]
    for ident, data in ((outer, b"what was asked for"), (inner[0], b"from a finalizer")):
        assert get_bridge().read(ident, 1, 0, len(data)) == data
        get_bridge().free(ident)


def test_a_read_that_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers keep to their questions, whoever gave up waiting, and at whichever byte."""
    bridge: Any = get_bridge()
    x = tt.ones(64, 64, device="cpu")
    plain = os.read
    calls = 0

    def read(fd: int, n: int) -> bytes:
        nonlocal calls
        if fd == bridge._from and threading.current_thread() is threading.main_thread():
            calls += 1
            if calls % 3 == 1:
                raise KeyboardInterrupt
            return plain(fd, 5)
        return plain(fd, n)

    monkeypatch.setattr(os, "read", read)
    given_up = 0

    def work() -> list[float]:
        return [(x + k).sum().item() for k in range(40)]

    other: list[Any] = []
    thread = threading.Thread(target=lambda: other.extend(work()))
    thread.start()
    for k in range(40):
        try:
            assert (x * k).sum().item() == 4096.0 * k
        except KeyboardInterrupt:
            given_up += 1
    thread.join()
    assert given_up and other == [4096.0 * (k + 1) for k in range(40)]
    monkeypatch.undo()
    assert (x * 3).sum().item() == 3 * 4096.0 and not bridge._answers


def test_a_runtime_that_ends_while_others_wait() -> None:
    """Each of those who wait is told, and the next use starts another one."""
    x = tt.ones(300, 300, device="cpu")
    (x @ x).sum().item()
    child = get_bridge()._child  # type: ignore[attr-defined]

    def work() -> None:
        for _ in range(200):
            (x @ x).sum().item()

    def end() -> None:
        os.kill(child.pid, signal.SIGKILL)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = together(work, work, work, end)
        assert all(isinstance(e, RuntimeError) for e in found[:3]), found
        assert together(*[lambda: (tt.ones(2) + 1).tolist()] * 4) == [[2.0, 2.0]] * 4


# ---- processes


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_has_a_runtime_of_its_own() -> None:
    """Its generators go on from where they were, as in PyTorch; tensors of before say what to do; the parent's are not touched."""
    import multiprocessing

    context: Any = multiprocessing.get_context("fork")

    def child(ns: Any, sent: Any, pipe: Any) -> None:
        pipe.put(ns.rand(3).tolist())
        pipe.put(((ns.arange(4.0, device="cpu") * 2).sum() + sent.get()).tolist())
        for f in (lambda: kept.tolist(), lambda: (kept + 1).tolist()):
            try:
                pipe.put(f())
            except RuntimeError as e:
                pipe.put(str(e))

    results = []
    for ns in BOTH:
        ns.manual_seed(4)
        ns.rand(2).tolist()
        kept = ns.ones(2, device="cpu") * 3
        end = threading.Event()
        busy = threading.Thread(target=lambda: [(ns.ones(2) * 2).tolist() for _ in iter(end.is_set, True)])  # noqa: B023
        busy.start()
        sent, pipe = context.Queue(), context.Queue()
        process = context.Process(target=child, args=(ns, sent, pipe))
        process.start()
        end.set()
        sent.put(kept * 2)
        found = [pipe.get(timeout=30) for _ in range(4)]
        process.join(30)
        assert process.exitcode == 0
        busy.join()
        results.append((found[0], found[1], kept.tolist(), ns.rand(3).tolist()))
        if ns is tt:
            assert all("from before the fork" in said and "spawn" in said for said in found[2:]), found
    assert str(results[0]) == str(results[1])
