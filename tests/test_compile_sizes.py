"""`torch.compile(dynamic=True)`: one recording for tensors of all sizes, right at each; what needs the very number is recorded for it."""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch as theirs

import tabtorch as torch
from fuzz import sizes as random_functions
from language_model import GPT
from tabtorch import nn
from tabtorch._dynamo.utils import counters
from tabtorch.compiled import dynamic
from tabtorch.compiled.replay import Replay
from tabtorch.nn import functional as F

FIRST = int(os.environ.get("TABTORCH_FUZZ_SEED") or 3_000_000)
#: seconds, and functions at most
BUDGET = {"cpu": (15, 200), "webgpu": (15, 12)}
#: `eps` of Adam. On webgpu a loss's gradient is not the same in two runs, eager ones either: an embedding's adds up rows of equal
#: ids with atomics, in any order (13 of 208 elements differ, by a last bit). Gradients that are 0 but for rounding (about 5e-10:
#: the bias of attention's keys, before softmax) then have nothing in common, and with eps=1e-8 Adam makes steps of `lr` of them:
#: with one last bit of an eager model's weights changed, biases of keys are 3e-3 apart after 8 steps, all others 5e-8; with this, 3e-6.
NOISE = 1e-5


@pytest.fixture(autouse=True)
def _counted() -> None:
    global MASK
    counters.clear()
    torch.manual_seed(0)
    MASK = torch.ones(40, 40, device="cpu").tril()


def recordings() -> int:
    """How many were made since the test began."""
    return counters["stats"]["unique_graphs"]


def runs() -> int:
    """How often the Python of compiled functions ran."""
    return counters["frames"]["total"]


def close(a: Any, b: Any) -> None:
    """Fails unless two results are the same."""
    assert type(a) is type(b), (a, b)
    if isinstance(a, (tuple, list)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            close(x, y)
    elif isinstance(a, torch.Tensor):
        assert a.shape == b.shape and a.dtype is b.dtype and a.stride() == b.stride()
        assert torch.allclose(a.float(), b.float(), atol=1e-4), (a, b)
    else:
        assert a == b


def called(f: Callable[..., Any], make: Callable[[int], Any], lengths: Any, **options: Any) -> Any:
    """Calls `f`, compiled and not, with what `make` gives for each length; the compiled function."""
    g = torch.compile(f, **{"dynamic": True, **options})
    for n in lengths:
        args = make(n)
        close(g(*args), f(*args))
    return g


def rows(device: str, width: int = 4) -> Callable[[int], Any]:
    return lambda n: (torch.randn(3, n, width, device=device),)


# ---- counts


def test_forward_of_30_lengths(device: str) -> None:
    model = GPT(16).to(device)
    with torch.no_grad():
        called(
            model,
            lambda n: (torch.arange(2 * n, device=device).reshape(2, n) % 13,),
            range(8, 38 if device == "cpu" else 18),
        )
    assert recordings() == 1 and runs() == 2


def test_forward_and_gradients_of_30_lengths() -> None:
    model = GPT(16).to("cpu")
    compiled = torch.compile(model, dynamic=True)
    wanted = list(model.parameters())
    for n in range(8, 38):
        ids = torch.arange(2 * n, device="cpu").reshape(2, n) % 13
        a, b = compiled(ids), model(ids)
        close(a, b)
        close(*[list(torch.autograd.grad(y.square().mean(), wanted)) for y in (a, b)])
    assert recordings() == 1 and runs() == 2


@pytest.mark.parametrize("setting", [True, None])
def test_training_steps_of_30_lengths(device: str, setting: Any) -> None:
    models = [GPT(16).to(device) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())

    def stepping(model: Any) -> Any:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=NOISE)

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
            loss.backward()
            optimizer.step()
            return loss

        return step

    step, plain = torch.compile(stepping(models[0]), dynamic=setting), stepping(models[1])
    for n in range(8, 38 if device == "cpu" else 16):
        x, y = (torch.randint(0, 13, (2, n)).to(device) for _ in range(2))
        close(step(x, y).detach(), plain(x, y).detach())
    close(*[[p.detach() for p in m.parameters()] for m in models])
    assert recordings() <= 2 and runs() <= 3  # the first step makes the state of the optimizer


def test_automatic() -> None:
    """Static first; what has varied is recorded as such. And not at all, if that is asked for."""

    def f(x: Any) -> Any:
        return (x * 2).sum(1)

    called(f, rows("cpu"), [5, 6, 7, 8, 9, 10], dynamic=None)
    assert recordings() == 2 and runs() == 3
    counters.clear()
    called(f, rows("cpu"), [5, 6, 7], dynamic=False)
    assert recordings() == 3
    counters.clear()
    with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        called(f, rows("cpu"), [5, 6, 7], dynamic=None)
    assert recordings() == 3
    counters.clear()
    with torch._dynamo.config.patch(assume_static_by_default=False):
        called(f, rows("cpu"), [5, 6, 7], dynamic=None)
    assert recordings() == 1


def test_a_seen_size_is_bound_once() -> None:
    g = called(lambda x: x.softmax(1), rows("cpu"), [5, 6, 7, 8, 7, 5, 8, 6])
    assert runs() == 2
    from tabtorch.engine import graph

    x = torch.randn(3, 8, 4, device="cpu")
    g(x)
    before = graph.counts["plans"]
    g(x)
    assert graph.counts["plans"] == before


# ---- what Python does with sizes

MASK: (
    torch.Tensor
)  # of the module, as people have one; made for each test, as those of another file may have lost its device

#: functions of (3, n, 4) that one recording serves
GENERAL: dict[str, Callable[[Any], Any]] = {
    "scale": lambda x: x * x.shape[1],
    "divide": lambda x: x / x.shape[1] + x.shape[1] ** -0.5,
    "parity": lambda x: x * 2 if x.shape[1] % 4 == 1 else x + 1,
    "arange": lambda x: x + torch.arange(x.shape[1], device=x.device)[:, None],
    "mask": lambda x: (x @ x.transpose(1, 2)).masked_fill(MASK[: x.shape[1], : x.shape[1]] == 0, -9.0).softmax(-1),
    "cat": lambda x: torch.cat([x, x[:, 1:], x.new_zeros(3, x.shape[1] // 2, 4)], 1),
    "pad": lambda x: F.pad(x, (0, 0, 1, x.shape[1])),
    "parts": lambda x: (x[:, : x.shape[1] // 2], x[:, -1], x[:, x.shape[1] - 2 :]),
    "views": lambda x: (x.view(-1), x.reshape(x.shape[0] * x.shape[1], -1), x.permute(2, 0, 1).contiguous()),
    "moments": lambda x: (x.mean(1), x.var(1), x.std((0, 1)), x.softmax(1), F.layer_norm(x, (4,)), x.logsumexp(1)),
    "full": lambda x: (x.new_full((x.shape[1],), x.shape[1]), torch.zeros(x.shape), x.new_full((2,), x.numel())),
    "order": lambda x: (x.sort(1)[0], x.topk(2, 1)[0], x.cumsum(1), x.argmax(1), x.flip(1)),
    "index": lambda x: x[:, torch.arange(x.shape[1] - 1, -1, -1, device=x.device)],
    "convolution": lambda x: F.conv1d(x.transpose(1, 2), torch.ones(2, 4, 3, device=x.device), padding=1),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "einsum": lambda x: torch.einsum("btc,bsc->bts", x, x),
    "numbers": lambda x: (x.shape, x.shape[1] * 2, x.numel(), x.size(-2) / 2, x.sum()),
    "in place": lambda x: x.clone().add_(x.shape[1]).mul_(2),
}


@pytest.mark.parametrize("name", GENERAL)
def test_one_recording_serves_all(name: str) -> None:
    called(GENERAL[name], rows("cpu"), [5, 9, 13, 5, 17, 21, 9])
    assert recordings() == 1 and runs() == 2


LENGTHS = {5: 10.0, 7: 3.0}

#: functions that need the very length, and how many recordings five lengths take
PARTICULAR: dict[str, tuple[Callable[[Any], Any], int]] = {
    "root": (lambda x: x / math.sqrt(x.shape[1]), 5),
    "int": (lambda x: x * min(int(x.shape[1] / 2), 4), 5),
    "lookup": (lambda x: x * LENGTHS.get(x.shape[1], 1.0), 5),
    "text": (lambda x: x * len(f"{x.shape[1]}"), 5),
    "loop": (lambda x: sum([x[:, i] * i for i in range(x.shape[1])]), 5),
    "branch": (lambda x: x * 2 if x.shape[1] > 10 else x + 1, 2),
    "several": (lambda x: x * (1 if x.shape[1] < 8 else 2 if x.shape[1] < 12 else 3), 3),
    "type": (lambda x: x * 3 if type(x.shape[1]) is int else x, 5),
    "text of C": (lambda x: x * len(json.dumps(x.shape[1])), 5),
    "edge": (lambda x: x[:, : x.shape[1] - 5].sum(1), 2),
}


@pytest.mark.parametrize("name", PARTICULAR)
def test_what_needs_the_number_is_right(name: str) -> None:
    f, most = PARTICULAR[name]
    called(f, rows("cpu"), [6, 9, 13, 5, 7, 9, 13, 7, 5, 6])
    assert recordings() <= most + 1


def test_one_and_zero_are_apart() -> None:
    called(lambda x: (x + x.shape[1]).sum(1), rows("cpu"), [5, 6, 1, 7, 0, 1, 0, 8])
    assert runs() <= 6


def test_equal_by_chance() -> None:
    """A batch as large as a length is no reason for either to be fixed, unless it is asked."""

    def f(x: Any) -> Any:
        return x * 2 if x.shape[0] == x.shape[1] else x + 1

    g = torch.compile(f, dynamic=True)
    for b, n in [(4, 4), (4, 5), (6, 6), (7, 5), (8, 8), (5, 9)]:
        x = torch.randn(b, n, device="cpu")
        close(g(x), f(x))
    assert recordings() == 2
    with pytest.raises(RuntimeError, match="must match"):
        called(lambda x, y: x + y, lambda n: (torch.randn(n, device="cpu"), torch.randn(5, device="cpu")), [5, 6])


def test_the_types_that_a_function_sees() -> None:
    seen = []

    def f(x: Any) -> Any:
        n = x.shape[0]
        seen[:] = [isinstance(n, int), isinstance(n / 2, float), isinstance(n, float), isinstance(n, bool)]
        return x + n

    torch.compile(f, dynamic=True)(torch.ones(7, device="cpu"))
    assert seen == [True, True, False, False]


def test_marks() -> None:
    def f(x: Any, y: Any) -> Any:
        return x.sum(0) + y.sum(0)

    def make(mark: Any, index: Any) -> Callable[[int], Any]:
        def made(n: int) -> Any:
            x = torch.randn(n, 3, device="cpu")
            mark(x, index)
            return x, torch.ones(2, 3, device="cpu")

        return made

    called(f, make(torch._dynamo.mark_dynamic, 0), [4, 5, 6, 7], dynamic=None)
    assert recordings() == 1 and runs() == 2
    counters.clear()
    called(f, make(torch._dynamo.maybe_mark_dynamic, [0, 1]), [4, 5, 6, 7], dynamic=None)
    assert recordings() == 1
    counters.clear()
    called(f, make(torch._dynamo.mark_static, None), [4, 5, 6, 7], dynamic=True)
    assert recordings() == 4
    with pytest.raises(AttributeError, match="'list' object has no attribute '_dynamo_dynamic_indices'"):
        torch._dynamo.mark_dynamic([1], 0)


def in_range(x: Any) -> Any:
    return sum(x[i] for i in range(x.shape[0]))


#: functions, and arguments in which `mark` marks sizes: what PyTorch says of them is what tabtorch says
MARKED: dict[str, tuple[Any, Any]] = {
    "a view": (lambda x: x.view(4, 3) * 2, lambda m, mark: mark(m.ones(4, 3), 0)),
    "a range": (in_range, lambda m, mark: mark(m.ones(4, 3), 0)),
    "a comparison": (lambda x: x * 2 if x.shape[0] == 4 else x, lambda m, mark: mark(m.ones(4, 3), 0)),
    "another's size": (lambda x, y: x + y, lambda m, mark: (mark(m.ones(4, 3), 0)[0], m.ones(4, 3))),
    "an index": (lambda x: x * [1, 2, 3, 4, 5][x.shape[0]], lambda m, mark: mark(m.ones(4, 3), 0)),
    "two": (
        lambda x, y: x.view(4, 3) + y.view(5, 3)[:4],
        lambda m, mark: (*mark(m.ones(4, 3), 0), *mark(m.ones(5, 3), [0])),
    ),
    "in a dict": (lambda d: d["a"].view(4, 3), lambda m, mark: ({"a": mark(m.ones(4, 3), 0)[0]},)),
    "in a list of more": (lambda *xs: xs[1][0].view(4, 3), lambda m, mark: (1, [mark(m.ones(4, 3), 0)[0]])),
    "an int": (lambda x: x * int(x.shape[0]), lambda m, mark: mark(m.ones(4, 3), 0)),
    "less": (lambda x: x * 2 if x.shape[0] > 3 else x, lambda m, mark: mark(m.ones(4, 3), 0)),
    "equal ones": (lambda x, y: x + y, lambda m, mark: (*mark(m.ones(4, 3), 0), *mark(m.ones(4, 3), 0))),
    "one": (lambda x: x * 2, lambda m, mark: mark(m.ones(1, 3), 0)),
    "a multiple": (lambda x: x.view(-1, 2, 3), lambda m, mark: mark(m.ones(4, 3), 0)),
    "outside of its range": (lambda x: x * 2, lambda m, mark: mark(m.ones(20, 3), 0, min=0, max=8)),
    "inside of its range": (lambda x: x * 2, lambda m, mark: mark(m.ones(8, 3), 0, min=2, max=8)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MARKED)
def test_a_size_that_is_marked_must_not_be_made_a_constant(name: str) -> None:
    """In PyTorch's words, as often as it is called; a hint is no error."""
    f, make = MARKED[name]

    def said(m: Any, kind: str = "mark_dynamic", **kw: Any) -> list[str]:
        def mark(t: Any, index: Any, **kw: Any) -> Any:
            getattr(m._dynamo, kind)(t, index, **(kw if kind == "mark_dynamic" else {}))
            return (t,)

        m._dynamo.reset()
        compiled = m.compile(f, **({"backend": "eager"} if m is theirs else {}), **kw)
        found = []
        for _ in range(2):
            try:
                compiled(*make(m, mark))
                found.append("")
            except RuntimeError as e:
                assert type(e).__name__ == "ConstraintViolationError"
                lines = str(e).splitlines()
                found.append("\n".join([lines[0], *[x for x in lines if x.startswith("  - ")]]))  # no "User stack"
        return found

    logging.disable(logging.ERROR)
    try:
        want = said(theirs)
    finally:
        logging.disable(logging.NOTSET)
    with torch.device("cpu"):
        assert said(torch) == want
        assert said(torch, dynamic=False) == want
        assert said(torch, "maybe_mark_dynamic") == said(torch, "mark_static") == ["", ""]


def test_what_a_constant_size_stopped_is_as_it_was() -> None:
    """The error comes before anything has happened, and what is asked by the package itself is none."""
    total = torch.zeros(3, device="cpu")

    @torch.compile
    def f(x: Any) -> Any:
        total.add_(x.sum(0))
        return x.view(4, 3)

    x = torch.ones(4, 3, device="cpu")
    torch._dynamo.mark_dynamic(x, 0)
    for _ in range(3):
        with pytest.raises(
            torch.fx.experimental.symbolic_shapes.ConstraintViolationError, match="specialized it to be a constant"
        ):
            f(x)
    assert total.tolist() == [0.0] * 3
    assert f(torch.ones(4, 3, device="cpu")).shape == (4, 3) and total.tolist() == [4.0] * 3
    g = torch.compile(lambda x: x * math.sqrt(x.shape[0]))
    assert g(x)[0, 0] == 2


# ---- the world beside it


def test_arguments_that_want_gradients(device: str) -> None:
    w = torch.randn(4, 4, device=device, requires_grad=True)

    def f(x: Any) -> Any:
        h = (x @ w).tanh()
        return h[:, -1], h.transpose(1, 2), (h / h.shape[1]).sum()

    g = torch.compile(f, dynamic=True)
    for n in (5, 8, 11, 6, 8):
        x = torch.randn(2, n, 4, device=device).requires_grad_()
        found = []
        for each in (g, f):
            a, b, c = each(x)
            loss = a.square().sum() + (b * 2).sum() + c
            found.append([a.detach(), b.detach(), c.detach(), *torch.autograd.grad(loss, [x, w])])
        close(*found)
    assert recordings() == 1 and runs() == 2


def test_state_random_numbers_and_settings(device: str) -> None:
    """What is written stays written, dropout draws what it draws, and a learning rate that changes is the one of the day."""
    models = [
        nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 2)).to(device) for _ in range(2)
    ]
    models[1].load_state_dict(models[0].state_dict())

    def stepping(model: Any) -> Any:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, eps=NOISE)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return step, schedule

    (step, schedule), (plain, other) = map(stepping, models)
    step = torch.compile(step, dynamic=True)
    for n in (6, 9, 12, 7, 15, 9, 20, 6):
        x = torch.randn(n, 4, device=device)
        torch.manual_seed(n)
        a = step(x)
        torch.manual_seed(n)
        close(a.detach(), plain(x).detach())
        schedule.step()
        other.step()
    close(*[[v.detach() for v in m.state_dict().values()] for m in models])
    assert recordings() <= 3 and runs() <= 5


def test_slices_of_a_longer_tensor() -> None:
    data = torch.randn(50, 4, device="cpu")
    called(lambda x: x.cumsum(0) * x.shape[0], lambda n: (data[:n],), range(5, 20))
    assert recordings() == 1
    called(lambda x: x.cumsum(0) * x.shape[0], lambda n: (data[n : 2 * n],), range(5, 9))


def test_other_threads_meanwhile() -> None:
    model = GPT(16).to("cpu")
    compiled = torch.compile(model, dynamic=True)
    problems: list[Any] = []

    def work(seed: int) -> None:
        try:
            with torch.no_grad():
                for n in range(8 + seed, 26, 2):
                    ids = torch.arange(n, device="cpu").reshape(1, n) % 13
                    close(compiled(ids), model(ids))
        except BaseException as e:
            problems.append(e)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not problems


def test_after_a_reset() -> None:
    def f(x: Any) -> Any:
        return (x * x.shape[1]).sum(1)

    g = called(f, rows("cpu"), [5, 6, 7])
    torch.compiler.reset()
    for n in (8, 9, 10):
        x = torch.randn(3, n, 4, device="cpu")
        close(g(x), f(x))
    assert recordings() == 2


# ---- that it is never silently wrong


def test_what_is_foretold_wrongly_is_not_relied_on(monkeypatch: pytest.MonkeyPatch) -> None:
    right = dynamic.Values.scalar
    monkeypatch.setattr(dynamic.Values, "scalar", lambda self, x: right(self, x) + 1)
    called(lambda x: x * x.shape[1], rows("cpu"), [5, 6, 7, 8, 5, 6, 9])
    assert runs() >= 5


def test_a_failure_with_symbols_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where something cannot take a size that is not known, the function runs as if nothing had been."""
    state = torch.zeros(3, device="cpu")

    def f(x: Any) -> Any:
        state.add_(1)
        return x * len(json.dumps({"n": x.shape[1]}))

    g = torch.compile(f, dynamic=True)
    for n in (5, 6, 12, 6):
        x = torch.randn(3, n, 4, device="cpu")
        close(g(x), x * len(json.dumps({"n": n})))
    assert state.tolist() == [4, 4, 4]


def test_random_functions(device: str) -> None:
    seconds, most = BUDGET[device]
    until = time.monotonic() + seconds
    ran = 0
    while ran < most and (ran < 5 or time.monotonic() < until):
        found = random_functions.run(FIRST + ran, device)
        assert not found, f"function {FIRST + ran} on {device}: {found[:5]}"
        ran += 1


def test_a_fault_of_theirs_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where what is foretold wrongly is relied on, some of the random functions come out wrong."""
    right = dynamic.Values.scalar
    monkeypatch.setattr(dynamic.Values, "scalar", lambda self, x: x if right(self, x) is x else right(self, x) * 1.5)
    monkeypatch.setattr(Replay, "agrees", lambda self, plain: True)
    assert any(random_functions.run(seed, "cpu") for seed in range(25))
