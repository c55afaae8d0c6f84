"""Formulas whose instructions are kept (ops/machinery/recorded.py): how many nodes they come to, and that nobody can tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch as pytorch

import tabtorch as torch
from bench import models
from tabtorch.engine import graph, queues, symbols
from tabtorch.nn import functional as F
from tabtorch.ops.machinery import recorded, registry


@pytest.fixture(autouse=True)
def no_symbols() -> Iterator[None]:
    """As in a process that has recorded nothing for sizes that vary: from then on formulas are not kept."""
    before, symbols.given[0] = symbols.given[0], False
    yield
    symbols.given[0] = before


def emitted(f: Callable[[], Any]) -> Counter[str]:
    """The names of the nodes that a call emits."""
    names: Counter[str] = Counter()

    def look(nodes: Any, n: Any) -> None:
        names[n.inst.op.name] += 1
        list.append(nodes, n)

    graph.flush()
    queues.set_spread(look)
    try:
        f()
    finally:
        queues.set_spread(None)
    return names


def inputs(*shapes: tuple[int, ...]) -> list[Any]:
    torch.manual_seed(1)
    return [torch.randn(s, device="cpu", requires_grad=True) for s in shapes]


def gradients(f: Callable[..., Any], *xs: Any) -> list[Any]:
    y = f(*xs)
    torch.manual_seed(2)
    return [y, *torch.autograd.grad(y, xs, torch.randn(y.shape, device="cpu"))]


CLASSES = [1, 4, -100, 0, 2, 2]


def classes() -> Any:
    """Made where it is used: another module's tests may have ended the runtime since this one was loaded."""
    return torch.tensor(CLASSES, device="cpu")


#: name -> (formula, shapes, the most nodes that it and its backward may take)
FORMULAS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], int]] = {
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (7,), w, b), [(6, 5, 7), (7,), (7,)], 17),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), [(6, 5, 7), (5,), (5,)], 20),
    "softmax": (lambda x: F.softmax(x, -1), [(6, 5)], 8),
    "log_softmax": (lambda x: F.log_softmax(x, 0), [(6, 5)], 8),
    "linear": (F.linear, [(3, 4, 5), (6, 5), (6,)], 5),
    "linear without bias": (lambda x, w: F.linear(x, w), [(3, 4, 5), (6, 5)], 3),
    "matmul": (lambda a, b: a @ b, [(2, 3, 4), (2, 4, 5)], 3),
    "attention": (F.scaled_dot_product_attention, [(2, 3, 6, 4)] * 3, 14),
    "causal attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        [(2, 3, 6, 4)] * 3,
        19,
    ),
    "cross_entropy": (lambda x: F.cross_entropy(x, classes()), [(6, 5)], 28),
    "cross_entropy, none": (lambda x: F.cross_entropy(x, classes(), reduction="none"), [(6, 5)], 24),
}

P = pytorch.nn.functional
#: the same in PyTorch
PYTORCH: dict[str, Callable[..., Any]] = {
    "layer_norm": lambda x, w, b: P.layer_norm(x, (7,), w, b),
    "batch_norm": lambda x, w, b: P.batch_norm(x, None, None, w, b, True),
    "softmax": lambda x: P.softmax(x, -1),
    "log_softmax": lambda x: P.log_softmax(x, 0),
    "linear": P.linear,
    "linear without bias": lambda x, w: P.linear(x, w),
    "matmul": lambda a, b: a @ b,
    "attention": lambda q, k, v: (
        (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
    ),  # whose kernel has no second derivative
    "causal attention": lambda q, k, v: (
        (q @ k.mT / q.shape[-1] ** 0.5)
        .masked_fill(pytorch.ones(q.shape[2], k.shape[2]).triu(1) > 0, -pytorch.inf)
        .softmax(-1)
        @ v
    ),
    "cross_entropy": lambda x: P.cross_entropy(x, pytorch.tensor(CLASSES)),
    "cross_entropy, none": lambda x: P.cross_entropy(x, pytorch.tensor(CLASSES), reduction="none"),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_kept_or_not_is_the_same_to_the_last_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f, shapes, most = FORMULAS[name]
    xs = inputs(*shapes)
    first = [t.tolist() for t in gradients(f, *xs)]
    again = [t.tolist() for t in gradients(f, *xs)]
    assert sum(emitted(lambda: gradients(f, *xs)).values()) <= most
    monkeypatch.setattr(registry, "exchanged", [True])
    monkeypatch.setattr(recorded, "exchanged", [True])
    plain = [t.tolist() for t in gradients(f, *xs)]
    assert first == again == plain


def test_only_what_is_wanted_is_computed() -> None:
    """A parameter that is frozen costs no nodes in backward."""
    f, shapes, _ = FORMULAS["layer_norm"]
    x, w, b = inputs(*shapes)

    def run(*wanted: Any) -> int:
        return sum(emitted(lambda: torch.autograd.grad(f(x, w, b).sum(), wanted)).values())

    for t in (w, b):
        run(x, w, b)
        whole = run(x, w, b)
        t.requires_grad_(False)
        wanted = [v for v in (x, w, b) if v.requires_grad]
        gradients(lambda *_: f(x, w, b), *wanted)
        assert run(*wanted) < whole
        t.requires_grad_(True)


def test_a_step_of_a_gpt_is_few_nodes(device: str) -> None:
    torch.manual_seed(0)
    model = models.gpt(torch, 2, 2, 16, 8, 11)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids, targets = torch.randint(0, 11, (3, 8)), torch.randint(0, 11, (24,))

    def step() -> None:
        loss = F.cross_entropy(model(ids).view(-1, 11), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for _ in range(2):
        step()
    assert sum(emitted(step).values()) <= 235


def test_one_tensor_twice_is_not_taken_for_two() -> None:
    x, w, b = inputs((3, 7), (7,), (7,))
    for args in ((w, w), (w, b), (w, w), (b, w)):
        want = pytorch.layer_norm(
            pytorch.tensor(x.tolist()), (7,), *[pytorch.tensor(t.tolist()) for t in args]
        )  # the same tensor as weight and bias, and then two
        for _ in range(2):
            found = F.layer_norm(x, (7,), *args)
            assert pytorch.allclose(pytorch.tensor(found.tolist()), want, atol=1e-5)


def test_who_looks_on_sees_what_is_called() -> None:
    """A formula that has been kept is called as it is under autocast, modes, vmap and forward mode."""
    x, w, b = inputs((3, 7), (7,), (7,))

    def f(t: Any) -> Any:
        return F.layer_norm(t, (7,), w, b)

    for _ in range(2):
        f(x)
    rows = torch.vmap(f)(x)
    assert torch.allclose(rows, f(x), atol=1e-6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert f(x).dtype is torch.float32
        assert f(x.bfloat16()).dtype is F.layer_norm(x.bfloat16(), (7,), w, b).dtype
    _, tangent = torch.func.jvp(f, (x.detach(),), (torch.ones(3, 7, device="cpu"),))
    assert tangent.abs().max() < 1e-5
    with torch.profiler.profile() as profile:
        f(x)
    assert any("mean" in e.key for e in profile.key_averages())


@pytest.mark.parametrize("name", FORMULAS)
def test_a_gradient_of_a_gradient(name: str) -> None:
    """What is kept has no history: a gradient that is to be differentiated is the formula's. As PyTorch has it."""
    f, shapes, _ = FORMULAS[name]

    def twice(m: Any, f: Any, xs: list[Any]) -> list[Any]:
        grads = m.autograd.grad(f(*xs).cos().sum(), xs, create_graph=True)
        return [g.tolist() for g in m.autograd.grad(sum((g * g).sum() for g in grads), xs)]

    xs = [x.detach().double().requires_grad_() for x in inputs(*shapes)]
    found = [twice(torch, f, xs) for _ in range(2)]
    plain = [pytorch.tensor(x.tolist(), dtype=pytorch.float64, requires_grad=True) for x in xs]
    want = twice(pytorch, PYTORCH[name], plain)
    for grads in found:
        for a, b in zip(grads, want, strict=True):
            assert pytorch.allclose(pytorch.tensor(a), pytorch.tensor(b), atol=1e-6)


def test_a_window_that_is_sent_within_a_formula() -> None:
    """The nodes of a formula that are sent before it ends are not kept as the whole of it."""
    x, w, b = inputs((4, 9), (9,), (9,))
    want = F.layer_norm(x, (9,), w, b).tolist()
    for begin in range(graph.WINDOW - recorded._LONGEST - 3, graph.WINDOW, 5):
        recorded_before = x + 0
        for _ in range(begin):
            recorded_before = recorded_before + 0
        assert F.layer_norm(recorded_before, (9,), w, b).tolist() == want


def test_what_is_written_to_is_noticed() -> None:
    x, w, b = inputs((3, 7), (7,), (7,))
    for _ in range(3):
        y = F.layer_norm(x * 1, (7,), w, b)
        with torch.no_grad():
            w.mul_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
    target = classes()
    z = inputs((6, 5))[0]
    for _ in range(3):
        loss = F.cross_entropy(z, target)
        target.add_(0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
