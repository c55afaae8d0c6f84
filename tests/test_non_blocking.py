"""Copies to the cpu that are not waited for: `to("cpu", non_blocking=True)`, `copy_`, and who waits in the end."""

from __future__ import annotations

import gc
import io
import random
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import tabtorch as torch
from tabtorch.bridge import CPU, LOCK, WEBGPU, close, get_bridge
from tabtorch.engine import graph
from tabtorch.engine.memory import memory

pytestmark = pytest.mark.usefixtures("webgpu")

#: longer than what is kept on the host when it is read
N = 3000


@contextmanager
def waits() -> Iterator[list[str]]:
    """Lists how often Python waits for the runtime."""
    bridge, found = get_bridge(), []
    where, name = (bridge, "_ask") if bridge.kind == "node" else (sys.modules[type(bridge).__module__], "run_sync")
    wait = getattr(where, name)

    def counted(*args: Any) -> Any:
        found.append(name)
        return wait(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, name, counted)
        yield found


def numbers(start: int = 0, n: int = N) -> Any:
    """What is `start`, `start + 1`, … on the GPU, and computed there."""
    x = torch.arange(n, dtype=torch.float32) + start
    torch.webgpu.synchronize()
    return x


def counting(start: int = 0, n: int = N) -> list[float]:
    return [float(start + k) for k in range(n)]


def test_python_goes_on() -> None:
    x = numbers()
    x.to("cpu")
    with waits() as found:
        x.to("cpu")
    assert found  # so it would be seen
    with waits() as found:
        y = (x + 1).to("cpu", non_blocking=True)
        z = torch.empty(N, device="cpu").copy_(x, non_blocking=True)
        both = y + z
        graph.flush()
        assert found == [] and both.shape == (N,)
        assert y.is_cpu and y.tolist() == counting(1)
        assert found
    assert z.tolist() == counting()
    assert both.tolist() == [2 * k + 1 for k in counting()]


def test_many_are_on_their_way() -> None:
    """None is waited for before it is looked at; each is sent when it is asked for, as one submit, and read once."""
    x, bridge = numbers(), get_bridge()
    bridge.reset_stats()
    with waits() as found:
        copies = [(x[k : k + 1000] if k % 2 else x).to("cpu", non_blocking=True) for k in range(12)]
        assert found == []
    stats = bridge.stats()
    assert (stats["submits"], stats["reads"], stats["uploads"]) == (12, 12, 0)
    for k, t in enumerate(copies):
        assert t.tolist() == (counting(k, 1000) if k % 2 else counting())


def test_later_writes_change_nothing() -> None:
    x = numbers()
    y = x.to("cpu", non_blocking=True)
    x += 1
    z = x[10:20].to("cpu", non_blocking=True)
    x.zero_()
    graph.flush()
    v = (x + 5).to("cpu", non_blocking=True)
    del x
    gc.collect()
    others = [torch.ones(N) * k for k in range(4)]  # in the memory that is free now
    graph.flush()
    assert (y.tolist(), z.tolist(), v.tolist()) == (counting(), counting(11, 10), [5.0] * N)
    assert [t[0].item() for t in others] == [0, 1, 2, 3]


def test_several_arrive_in_any_order() -> None:
    sizes = [1, 7, N, 50_000, 20, 100_000]
    copies = [numbers(k, n).to("cpu", non_blocking=True) for k, n in enumerate(sizes)]
    for k in random.Random(0).sample(range(len(sizes)), len(sizes)):
        assert copies[k].tolist() == counting(k, sizes[k])


def test_other_tensors_of_the_cpu() -> None:
    other = torch.arange(5, device="cpu")
    y = numbers().to("cpu", non_blocking=True)
    assert (other * 2).tolist() == [0, 2, 4, 6, 8]
    assert (other + y[:5]).tolist() == [0, 2, 4, 6, 8]
    assert (other - 1).tolist() == [-1, 0, 1, 2, 3]


USES = {
    "item": lambda y: y[7].item() == 7,
    "index": lambda y: torch.arange(8)[y[:2].long()].tolist() == [0, 1],
    "repr": lambda y: "2.9990e+03" in repr(y),
    "back": lambda y: (y.to("webgpu") + 1).tolist() == counting(1),
    "written to": lambda y: y.add_(1)[5:].mul_(1).tolist() == counting(6, N - 5),
    "sum": lambda y: y.double().sum().item() == N * (N - 1) / 2,
    "windows": lambda y: [t.tolist() for t in torch._foreach_add(list(y.split(1000)), 1)][1] == counting(1001, 1000),
    "read async": lambda y: _awaited(y.read()) == counting(),
    "random access": lambda y: [y[k].item() for k in (5, 3, N - 1)] == [5, 3, N - 1],
}


def _awaited(coroutine: Any) -> Any:
    if get_bridge().kind == "pyodide":
        from pyodide.ffi import run_sync

        return run_sync(coroutine)
    import asyncio

    return asyncio.run(coroutine)


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_whoever_needs_it(use: Any) -> None:
    y = numbers().to("cpu", non_blocking=True)
    assert use(y)
    assert use(numbers().to("cpu", non_blocking=True))  # with a plan that is there


def test_much_that_waits() -> None:
    """More than the runtime likes to hold back."""
    x = y = numbers().to("cpu", non_blocking=True)
    for _ in range(40):
        y = y + 1
        graph.flush()
    assert y.tolist() == counting(40) and x.tolist() == counting()


def test_saving() -> None:
    y = numbers().to("cpu", non_blocking=True)
    file = io.BytesIO()
    torch.save({"y": y}, file)
    file.seek(0)
    assert torch.load(file)["y"].tolist() == counting()


def test_dropping() -> None:
    """What is not waited for leaves nothing behind, and nothing comes to where others are by then."""
    x = numbers()
    gc.collect()
    torch.webgpu.synchronize()
    before, there = memory.live[CPU], get_bridge().stats()
    for _ in range(3):
        y = x.to("cpu", non_blocking=True)
        assert memory.live[CPU] == before + 4 * N
        del y
        assert memory.live[CPU] == before
        others = [torch.full((N,), float(k), device="cpu") for k in range(3)]  # with the number that is free now
        graph.flush()
        torch.webgpu.synchronize()
        assert [t.sum().item() for t in others] == [0, N, 2 * N]
        del others
    gc.collect()
    torch.webgpu.synchronize()
    after = get_bridge().stats()
    assert memory.live[CPU] == before
    assert (after["cpuBuffers"], after["cpuBytes"]) == (there["cpuBuffers"], there["cpuBytes"])


def test_copy_to_a_view_and_another_type() -> None:
    whole = torch.zeros(3, 4, dtype=torch.int64, device="cpu")
    x = numbers(1, 4)
    whole[1].copy_(x, non_blocking=True)
    whole[:, 3].copy_(x[:3] * 2, True)
    x.zero_()
    assert whole.tolist() == [[0, 0, 0, 2], [1, 2, 3, 4], [0, 0, 0, 6]]
    rows = torch.empty(2, 4, dtype=torch.float64, device="cpu").copy_(numbers(5, 4), non_blocking=True)
    assert rows.tolist() == [counting(5, 4)] * 2


def test_pinned() -> None:
    x, y = numbers(), torch.zeros(N, device="cpu").pin_memory()
    window = y[1000:1010]
    with waits() as found:
        assert y.copy_(x, non_blocking=True) is y
        assert found == [] and y.is_pinned()
    x.zero_()
    assert window.tolist() == counting(1000, 10) and y.tolist() == counting()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_modes(mode: Any) -> None:
    x = numbers().requires_grad_()
    with mode():
        y = (x * 2).to("cpu", non_blocking=True)
        z = torch.empty(N, device="cpu").copy_(x, non_blocking=True)
    assert y.requires_grad == z.requires_grad == (mode is torch.enable_grad)
    assert y.is_inference() == (mode is torch.inference_mode)
    assert y.tolist() == [2 * k for k in counting()] and z.tolist() == counting()


@pytest.mark.parametrize("name", "float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64".split())
def test_as_if_it_were_waited_for(name: str) -> None:
    """Types, and layouts."""
    dtype, x = getattr(torch, name), ((torch.arange(120, dtype=torch.float32) - 50) * 1.3).view(4, 5, 6)
    x = x.clamp(0) if name == "uint8" else x
    t = x.to(dtype)
    for v in (t, t[1:, ::2], t.permute(2, 0, 1), t[2, 3, 4], t[:1, :, :1].expand(4, 5, 6)):
        for d in (dtype,) if dtype.is_complex else (dtype, torch.float32, torch.float64, torch.int32):
            got, want = v.to("cpu", d, non_blocking=True), v.to("cpu", d)
            assert (got.dtype, got.stride(), got.tolist()) == (want.dtype, want.stride(), want.tolist())
            got, want = (torch.zeros(v.shape, dtype=d, device="cpu").copy_(v, non_blocking=k) for k in (True, False))
            assert got.tolist() == want.tolist()


def test_the_other_way() -> None:
    """What is copied to the GPU is what the source was then."""
    for pinned in (False, True):
        x = torch.arange(float(N), device="cpu")
        x = x.pin_memory() if pinned else x
        y = x.to("webgpu", non_blocking=True)
        z = torch.empty(N).copy_(x, non_blocking=True)
        x.add_(1)
        assert y.tolist() == z.tolist() == counting() and x.tolist() == counting(1)


def test_gradients_go_back() -> None:
    x = numbers(1, 4).requires_grad_()
    y = (x * 2).to("cpu", non_blocking=True)
    assert y.requires_grad and y.is_cpu
    (y * y).sum().backward()
    assert x.grad.device.type == "webgpu" and x.grad.tolist() == [8, 16, 24, 32]
    other = torch.ones(4, device="cpu", requires_grad=True)
    (other * 1).copy_(x, non_blocking=True).sum().backward()
    assert other.grad.tolist() == [0, 0, 0, 0] and x.grad.tolist() == [9, 17, 25, 33]


FORMS = {
    "device": lambda t: t.to("cpu", non_blocking=True),
    "device, dtype, positional": lambda t: t.to("cpu", torch.float32, True),
    "device, positional": lambda t: t.to(torch.device("cpu"), None, True),
    "dtype": lambda t: t.to("cpu", torch.int32, non_blocking=True),
    "float64": lambda t: t.to("cpu", torch.float64, non_blocking=True),
    "tensor": lambda t: t.to(torch.ones(1, device="cpu"), True),
    "copy": lambda t: t.to("cpu", non_blocking=True, copy=True),
    "lists": lambda t: _listed(t),
    "transposed": lambda t: t.view(2, -1).t().to("cpu", non_blocking=True).t().reshape(-1),
}


def _listed(t: Any) -> Any:
    copies = [torch.empty(N, device="cpu") for _ in range(2)]
    torch._foreach_copy_(copies, [t, t + 1], non_blocking=True)
    return copies[0]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_forms(form: Any) -> None:
    x = numbers()
    with waits() as found:
        y = form(x)
    assert y.is_cpu and found == []
    assert y.tolist() == counting()


def test_forms_that_do_not_leave_the_gpu() -> None:
    x = numbers()
    assert x.to("webgpu", torch.float32, True) is x
    assert x.cpu().to("webgpu", non_blocking=True).tolist() == counting()
    m = torch.nn.Linear(2, 1, device="webgpu")
    want = m.weight.tolist()
    assert m.to("cpu", non_blocking=True).weight.tolist() == want and m.weight.is_cpu
    with pytest.raises(TypeError, match="invalid combination"):
        x.to("cpu", 1.5)


def test_empty() -> None:
    assert torch.empty(0, 3).to("cpu", non_blocking=True).tolist() == []


SYNCHRONIZE = {
    "webgpu": lambda: torch.webgpu.synchronize(),
    "accelerator": lambda: torch.accelerator.synchronize(),
    "stream": lambda: torch.webgpu.current_stream().synchronize(),
    "event": lambda: torch.webgpu.Event().synchronize(),
    "query": lambda: torch.webgpu.Event().query(),
}


@pytest.mark.parametrize("synchronize", SYNCHRONIZE.values(), ids=SYNCHRONIZE)
def test_synchronize_waits_for_copies(synchronize: Any) -> None:
    y = numbers().to("cpu", non_blocking=True)
    synchronize()
    with waits() as found:
        assert y.tolist() == counting()
    if get_bridge().kind == "pyodide":  # the child is always asked: js/test has the rest
        assert found == []
    get_bridge().fault(reads=0)
    y = numbers().to("cpu", non_blocking=True)
    with pytest.raises(torch.AcceleratorError, match="lost"):
        synchronize()
    with pytest.raises(torch.AcceleratorError, match="lost"):
        y.tolist()
    get_bridge().fault()


def test_threads() -> None:
    if get_bridge().kind == "pyodide":
        pytest.skip("there are none")
    x, wrong = numbers(), []

    def work(k: int) -> None:
        for i in range(10):
            a, b = ((x + k * i + j).to("cpu", non_blocking=True) for j in (0, 1))
            if (a + b).tolist() != [2 * v + 1 for v in counting(k * i)] or b.tolist() != counting(k * i + 1):
                wrong.append((k, i))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []


def test_interrupted() -> None:
    """At any moment: what was copied is right afterwards, and what was not is as it was."""
    if get_bridge().kind == "pyodide":
        pytest.skip("there are no threads")
    main, before = threading.main_thread().ident, signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    kept: list[Any] = []
    try:
        for i in range(20):
            x = numbers(i)
            timer = threading.Timer(0.002 * (i % 10), signal.pthread_kill, (main, signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                timer.start()
                while True:
                    kept.append((i, x.to("cpu", non_blocking=True)))
                    kept.append((i, kept[-1][1] + 0))
                    kept[-2][1].tolist()
                    del kept[-40:-4]
            timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    for i, t in kept:
        assert t.tolist() == counting(i)


def test_where_python_cannot_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error, until it is there; and `await` goes on working."""
    bridge = get_bridge()
    if bridge.kind != "pyodide":
        pytest.skip("CPython can always wait")
    there, x = torch.ones(2, device="cpu"), numbers()
    y = x.to("cpu", non_blocking=True)
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules[type(bridge).__module__], "can_run_sync", lambda: False)
        assert there.tolist() == [1, 1]
        for way in (True, False):  # what cannot be waited for later is waited for now
            with pytest.raises(RuntimeError, match="no JSPI"):
                x.to("cpu", non_blocking=way)
        for t in (y, y + 1):
            with pytest.raises(
                RuntimeError, match=r"^read: a value is still on its way from the GPU.*await tensor.read\(\)"
            ):
                t.tolist()
        asked = y.read()
        asked.send(None)  # as far as it goes at once
        asked.close()
        assert _awaited(y.read()) == counting()
        assert y.tolist() == counting()


def test_in_compiled_functions() -> None:
    @torch.compile
    def f(x: Any) -> Any:
        y = (x * 2).to("cpu", non_blocking=True)
        return y + 1

    with pytest.warns(
        UserWarning, match="graph break"
    ):  # a call is recorded without what another one may have to wait for
        f(numbers(0, 5))
    for start in range(4):
        assert f(numbers(start, 5)).tolist() == [2 * k + 1 for k in counting(start, 5)]


def test_beside_compiled_functions() -> None:
    f, inplace = torch.compile(lambda t: t * 2 + 1), torch.compile(lambda t: t.add_(1))
    for start in range(4):
        x = numbers(start)
        with waits() as found:
            y = f(x).to("cpu", non_blocking=True)
            z = f(y)
            w = inplace(y)
        assert found == [] or start < 2
        assert z.tolist() == [4 * k + 3 for k in counting(start)]
        assert w is y and y.tolist() == [2 * k + 2 for k in counting(start)]


def test_in_vmap() -> None:
    x = numbers(0, 6).view(3, 2)
    assert torch.vmap(lambda t: t.to("cpu", non_blocking=True) * 2)(x).tolist() == [[0, 2], [4, 6], [8, 10]]


def test_what_the_device_found_is_raised_with_the_values() -> None:
    """A copy that was waited for would have told."""
    x, out_of_range = numbers(0, 5), numbers(7, 1).long()
    picked = x[out_of_range].to("cpu", non_blocking=True)
    with pytest.raises(IndexError, match="out of"):
        picked.tolist()
    assert x.to("cpu", non_blocking=True).tolist() == counting(0, 5)


def test_a_device_that_is_lost() -> None:
    there = torch.ones(3, device="cpu")
    x = numbers()
    get_bridge().fault(reads=0)
    y = x.to("cpu", non_blocking=True)
    z = y + 1
    for t in (y, y, z):
        with pytest.raises(torch.AcceleratorError, match="lost"):
            t.tolist()
    get_bridge().fault()
    assert (there + 1).tolist() == [2, 2, 2]
    assert numbers().to("cpu", non_blocking=True).tolist() == counting()


def test_what_has_no_value_says_why() -> None:
    x = numbers(0, 4)
    get_bridge().fault(allocations=0)
    y = x + 1
    with pytest.raises(torch.OutOfMemoryError):
        y.to("cpu", non_blocking=True).tolist()
    get_bridge().fault()
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError):
            y.to("cpu", non_blocking=True).tolist()
    assert (x + 2).to("cpu", non_blocking=True).tolist() == counting(2, 4)


def test_what_went_with_its_runtime() -> None:
    if get_bridge().kind == "pyodide":
        pytest.skip("there is one, as long as the page")
    x = numbers()
    y = x.to("cpu", non_blocking=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that generators start again
        close()
    for use in (lambda: y.tolist(), lambda: x.to("cpu", non_blocking=True)):
        with pytest.raises(torch.AcceleratorError, match="has no value any more"):
            use()
    assert numbers(1).to("cpu", non_blocking=True).tolist() == counting(1)


def test_every_command_waits_for_what_it_uses() -> None:
    """Also those that a tensor does not come by easily."""
    bridge = get_bridge()
    data = bytes(range(256)) * 4

    def each(use: Any) -> Any:
        with LOCK:
            source = bridge.upload(WEBGPU, data)
            copy = bridge.copy(CPU, source, len(data))
            bridge.free(source)
            return copy, use(copy)

    copy, window = each(lambda copy: bridge.alias(copy, 256, 16))
    assert bridge.read(window, CPU, 0, 16) == data[:16]
    copy, again = each(lambda copy: bridge.copy(CPU, copy, 300))
    assert bridge.read(again, CPU, 0, 300) == data[:300]
    copy, back = each(lambda copy: bridge.copy(WEBGPU, copy, 512))
    assert bridge.read(back, WEBGPU, 4, 508) == data[4:512]
    copy, _ = each(lambda copy: bridge.write(copy, 4, b"abcd"))
    assert bridge.read(copy, CPU, 2, 8) == data[2:4] + b"abcd" + data[8:10]
    copy, _ = each(lambda copy: bridge.flush())
    bridge.stats()  # carries out what it can, and no more
    later = [(copy, CPU, 0, 8), (bridge.upload(CPU, b"12345678"), CPU, 0, 8)]
    assert [bytes(found) for found in bridge.read_many(later)] == [data[:8], b"12345678"]
