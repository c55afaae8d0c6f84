"""`torch.compile` as programs use it: what is replayed, and that it is what eager gives, whatever surrounds it."""

from __future__ import annotations

import copy
import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tabtorch as torch
from tabtorch import nn
from tabtorch.nn import functional as F
from tabtorch.utils.data import DataLoader, TensorDataset


def compiled_of(f: Any) -> Any:
    return f.__dict__.get("_compiled") or f.__dict__["forward"]


def replays(f: Any) -> int:
    """How many recordings of a compiled function stand."""
    return sum(len(e.replays) for e in compiled_of(f).entries.values())


def whys(f: Any) -> list[str]:
    return [e.why for e in compiled_of(f).entries.values() if e.why]


def filled(value: float, *shape: int) -> Any:
    return torch.full(shape, float(value))


@pytest.fixture
def cpu() -> Iterator[None]:
    """What does not depend on the device is tested where it is fast."""
    with torch.device("cpu"):
        yield


class Holder:
    """Something with attributes."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


# ---- state


@pytest.mark.parametrize("needs_grad", [False, True])
def test_an_attribute_that_gets_another_tensor(needs_grad: bool, device: str) -> None:
    """A tensor like the one before in its place is a change too, and its value lives on."""
    state = Holder(mean=filled(1, 2))
    w = torch.ones(2, requires_grad=needs_grad)

    @torch.compile
    def f(x: Any) -> Any:
        state.mean = state.mean * 0.5 + x
        return w * x

    want = np.ones(2, "f")
    for i in range(9):
        out = f(filled(i, 2))
        want = want * 0.5 + i
        assert state.mean.tolist() == want.tolist() and out.tolist() == [float(i)] * 2
    assert replays(f) == 0


def test_a_part_is_written_after_the_whole(device: str) -> None:
    """The write of the part goes on what the first write left, not on what was there before."""
    state = torch.ones(4)

    @torch.compile
    def f(x: Any) -> None:
        x.mul_(2)
        x[..., ::2].add_(1)
        state.mul_(0.5)
        state[1:3] = 3.0

    for _ in range(4):
        x = filled(3, 2, 4)
        f(x)
        assert x.tolist() == [[7.0, 6.0, 7.0, 6.0]] * 2
    assert state.tolist() == [0.0625, 3.0, 3.0, 0.0625] and replays(f) == 1


def test_a_gradient_that_python_does_not_see(cpu: None) -> None:
    """A backward pass inside that reaches leaves of the caller's, and a result that needs grad besides."""

    def f(x: Any, h: Any) -> Any:
        (h * 2 * x).sum().backward()
        return (p * x).exp()

    p = nn.Parameter(torch.zeros(2))
    seen = []
    for g in (f, torch.compile(f)):
        p.grad = None
        w = torch.ones(2, requires_grad=True)
        for i in range(7):
            g(filled(i / 8, 2), w * 3).sum().backward()
        assert p.grad is not None and w.grad is not None
        seen.append([*p.grad.tolist(), *w.grad.tolist()])
    np.testing.assert_allclose(seen[0], seen[1], rtol=1e-6)


KEPT: list[Any] = []


def keep(x: Any) -> None:
    KEPT.append(x)


keep.__module__ = "tabtorch.testing"  # not looked into


def test_a_tensor_that_others_keep(cpu: None) -> None:
    KEPT.clear()
    p = nn.Parameter(torch.ones(1))

    @torch.compile
    def f(x: Any) -> Any:
        keep((x + 1) * 3)
        return p * x

    for i in range(8):
        f(filled(i, 1)).sum().backward()
    assert [k.item() for k in KEPT] == [3.0 * (i + 1) for i in range(8)]
    assert p.grad is not None and p.grad.item() == sum(range(8))
    assert whys(f) == ["a tensor outlives it: that of mul"]


def test_results_have_versions_and_sizes(cpu: None) -> None:
    @torch.compile
    def f(x: Any) -> Any:
        y = x * 2
        y.add_(1)
        return y, y.shape, x

    for _ in range(6):
        x = torch.ones(2, 3)
        y, shape, same = f(x)
        assert y._version == 1 and same is x and shape == (2, 3) and type(shape) is torch.Size
    assert replays(f) == 1


# ---- a compiled part of a network


def test_a_part_in_the_middle_of_a_network(device: str) -> None:
    """Its input has a history, its parameters are used twice, and some have hooks."""
    torch.manual_seed(0)
    first, block, last = nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 1)
    compiled = torch.compile(block)
    block[0].bias.register_hook(lambda g: g * 2)
    results = []
    for middle in (block, compiled):
        found = []
        for i in range(6):
            for module in (first, block, last):
                module.zero_grad()
            h = first(filled(i / 4, 2, 3))
            h.retain_grad()
            h.register_hook(lambda g: g * 3)
            loss = (last(middle(middle(h)) + h) ** 2).sum()
            loss.backward()
            grads = [p.grad.flatten() for m in (first, block, last) for p in m.parameters()]
            found.append(torch.cat([loss.detach()[None], h.grad.flatten(), *grads]).tolist())
        results.append(found)
    np.testing.assert_allclose(results[1], results[0], rtol=1e-4, atol=1e-5)
    assert replays(compiled) == 1


def test_one_of_several_outputs_as_an_argument(cpu: None) -> None:
    f = torch.compile(lambda a: a * a)
    for i in range(6):
        w = torch.arange(4.0).requires_grad_()
        a, b = (w * i).chunk(2)
        (f(b) + a).sum().backward()
        assert w.grad is not None and w.grad.tolist() == [i, i, 4.0 * i * i, 6.0 * i * i]
    assert replays(f) == 1


def test_each_layer_by_itself(cpu: None) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(*[nn.Linear(4, 4) for _ in range(3)])
    twin = copy.deepcopy(net)
    for i, layer in enumerate(net):
        net[i] = torch.compile(layer)
    assert list(net.state_dict()) == [f"{i}._orig_mod.{n}" for i in range(3) for n in ("weight", "bias")]
    optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in (net, twin)]
    for i in range(6):
        for m, optimizer in zip((net, twin), optimizers, strict=True):
            optimizer.zero_grad()
            m(filled(i / 4, 2, 4)).square().mean().backward()
            optimizer.step()
    for p, q in zip(net.parameters(), twin.parameters(), strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert all(replays(layer) for layer in net)


@pytest.mark.parametrize("to_none", [False, True])
def test_an_optimizers_step_by_itself(to_none: bool, device: str) -> None:
    """Gradients that are there already are clipped in their places."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    twin = copy.deepcopy(net)

    def update(m: Any, optimizer: Any) -> Any:
        norm = nn.utils.clip_grad_norm_(m.parameters(), 0.1)
        optimizer.step()
        return norm

    compiled = torch.compile(update)
    optimizers = [torch.optim.AdamW(m.parameters(), 0.01) for m in (net, twin)]
    schedules = [torch.optim.lr_scheduler.ExponentialLR(o, 0.8) for o in optimizers]
    for i in range(8):
        norms = []
        for m, optimizer, f in zip((net, twin), optimizers, (compiled, update), strict=True):
            for k in range(2):
                m(filled(i - k, 2, 3)).square().mean().backward()
            norms.append(f(m, optimizer).item())
            optimizer.zero_grad(to_none)
        assert norms[0] == pytest.approx(norms[1], rel=1e-4)
        for s in schedules:
            s.step()
    for p, q in zip(net.parameters(), twin.parameters(), strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-4, atol=1e-6)
    assert replays(compiled) == 1


# ---- values that are looked at


def test_indices_out_of_range(device: str) -> None:
    """What is known on the host is looked at in each call, and raises what eager raises."""
    table = torch.arange(8.0).reshape(4, 2)
    cases: list[tuple[Any, int]] = [
        (lambda i: F.embedding(i, table), 4),
        (lambda i: table[i], 4),
        (lambda i: table.index_select(0, i[1:]), 4),
        (lambda i: table.gather(0, i[:, None]), 4),
        (lambda i: torch.zeros(3).index_add(0, i, torch.ones(2)), 3),
        (lambda i: F.cross_entropy(table[:2], i), 2),
        (lambda i: F.one_hot(i, 3) * 2, 3),
    ]
    for f, size in cases:
        compiled = torch.compile(f)
        for k in range(5):
            i = torch.tensor([0, k % 2])
            assert compiled(i).tolist() == f(i).tolist()
        assert replays(compiled) == 1
        for _ in range(2):
            with pytest.raises((IndexError, RuntimeError)) as want:
                f(torch.tensor([0, size + 3]))
            with pytest.raises(want.type) as got:
                compiled(torch.tensor([0, size + 3]))
            assert str(got.value) == str(want.value)
            assert compiled(i).tolist() == f(i).tolist()
        assert replays(compiled) == 1


def test_an_index_that_is_ignored(cpu: None) -> None:
    f = torch.compile(lambda x, y: F.cross_entropy(x, y, ignore_index=7))
    x = torch.arange(6.0).reshape(2, 3)
    for y in ([0, 1], [2, 1], [0, 1], [7, 1], [0, 7], [2, 2]):
        t = torch.tensor(y)
        assert f(x, t).item() == pytest.approx(F.cross_entropy(x, t, ignore_index=7).item(), rel=1e-5)
    assert replays(f) == 1


def test_draws_from_weights_that_are_held() -> None:
    with torch.device("cpu"):
        p = filled(0.3, 12)

        def f(x: Any) -> Any:
            return x * torch.bernoulli(p), torch.multinomial(p, 3), torch.normal(x, p), F.one_hot(torch.arange(3), 4)

        compiled = torch.compile(f)
        seen = []
        for g in (f, compiled):
            torch.manual_seed(0)
            p.fill_(0.3)
            seen.append([[t.tolist() for t in g(torch.ones(12))] for _ in range(5)])
            p.fill_(0.9)
            seen[-1].append([t.tolist() for t in g(torch.ones(12))])
        assert seen[0] == seen[1] and replays(compiled) == 1
        p.fill_(1.5)
        with pytest.raises(RuntimeError, match="p_in >= 0 && p_in <= 1"):  # said when a value is read
            print(compiled(torch.ones(12)))
        p.fill_(0.5)
        assert set(compiled(torch.ones(12))[0].tolist()) <= {0.0, 1.0}


# ---- what surrounds a call


def test_autocast_around_a_call(device: str) -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    compiled = torch.compile(net)
    for i in range(12):
        x = filled(i, 2, 4)
        with torch.autocast(device, torch.bfloat16, enabled=i % 4 != 3):
            out, want = compiled(x), net(x)
        assert out.dtype is want.dtype is (torch.float32 if i % 4 == 3 else torch.bfloat16)
        grads = [torch.autograd.grad(t.float().sum(), net[0].weight)[0] for t in (out, want)]
        for a, b in ((out, want), grads):
            np.testing.assert_allclose(a.detach().float().numpy(), b.detach().float().numpy(), rtol=2e-2, atol=2e-2)
    assert replays(compiled) == 2


class _Counting(torch.overrides.TorchFunctionMode):
    def __init__(self) -> None:
        self.calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


def test_those_who_look_on_see_every_operation() -> None:
    with torch.device("cpu"):
        w = torch.ones(2, requires_grad=True)
        f = torch.compile(lambda x: (x * w).exp() + 1)
        x = torch.ones(2)
        for _ in range(5):
            f(x)
        assert replays(f) == 1
        with _Counting() as mode:
            f(x)
        packed: list[Any] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: (packed.append(t), t)[1], lambda t: t):
            f(x)
        assert mode.calls >= 3 and len(packed) >= 2
        with pytest.warns(UserWarning), torch.autograd.detect_anomaly():
            y = torch.compile(lambda t: t.log())(w * 0 - 1)
            with pytest.raises(RuntimeError, match="returned nan values"):
                (y * float("nan")).sum().backward()
        with torch.autograd.forward_ad.dual_level():
            out = f(torch.autograd.forward_ad.make_dual(x, x))
            tangent = torch.autograd.forward_ad.unpack_dual(out).tangent
            assert tangent is not None and tangent.tolist() == pytest.approx([np.e] * 2, rel=1e-5)


def test_a_larger_limit_within_a_patch() -> None:
    config = torch._dynamo.config
    with config.patch(recompile_limit=3):
        assert config.recompile_limit == 3
        with config.patch("cache_size_limit", 2), config.patch({"suppress_errors": True}):
            assert config.limit() == 2 and config.suppress_errors
        assert config.limit() == 3 and not config.suppress_errors
    assert config.limit() == 8
    torch._inductor.config.triton.unique_kernel_names = True
    torch._inductor.config.coordinate_descent_tuning = True
    torch._dynamo.mark_static(torch.ones(1))


# ---- forms of use


def test_decorators_and_methods(cpu: None) -> None:
    @torch.compile()
    def inner(x: Any) -> Any:
        return x + 1

    @torch.compile(fullgraph=True, dynamic=False)
    def outer(x: Any) -> Any:
        def parts() -> Any:
            for i in range(3):
                yield inner(x) * i

        return sum(parts())

    class Thing:
        def __init__(self, w: float) -> None:
            self.w = w

        @torch.compile
        def method(self, x: Any, *, more: Any = None) -> Any:
            return x * self.w if more is None else x * self.w + more["bias"]

        @staticmethod
        @torch.compile
        def static(x: Any) -> Any:
            try:
                return x.view(7)
            except RuntimeError:
                return x - 1

    one, two = Thing(2.0), Thing(3.0)
    for i in range(6):
        x = filled(i, 2)
        assert outer(x).tolist() == [3.0 * (i + 1)] * 2
        assert one.method(x).tolist() == [2.0 * i] * 2 and two.method(x).tolist() == [3.0 * i] * 2
        assert one.method(x, more={"bias": x}).tolist() == [3.0 * i] * 2
        assert Thing.static(x).tolist() == [i - 1.0] * 2
    assert replays(outer) == replays(Thing.static) == 1 and replays(Thing.method) == 3
    one.w = 5.0
    assert one.method(filled(1, 2)).tolist() == [5.0, 5.0]


def test_a_compiled_module_is_saved_copied_and_loaded() -> None:
    with torch.device("cpu"):
        net = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
        compiled = torch.compile(net)
        x = torch.ones(1, 2)
        compiled.eval()
        want = compiled(x).tolist()
        file = io.BytesIO()
        torch.save(compiled.state_dict(), file)
        file.seek(0)
        state = torch.load(file)
        assert list(state) == ["_orig_mod.0.weight", "_orig_mod.0.bias"]
        other = torch.compile(nn.Sequential(nn.Linear(2, 2), nn.Dropout())).eval()
        other.load_state_dict(state)
        plain = nn.Sequential(nn.Linear(2, 2), nn.Dropout()).eval()
        plain.load_state_dict({k.removeprefix("_orig_mod."): v for k, v in state.items()})
        file = io.BytesIO()
        torch.save(compiled, file)
        file.seek(0)
        whole = torch.load(file, weights_only=False)
        for each in (other, plain, whole, copy.deepcopy(compiled)):
            assert not each.training
            assert [each(x).tolist() for _ in range(4)] == [want] * 4


def test_the_last_batch_is_smaller(cpu: None) -> None:
    data = TensorDataset(torch.arange(22.0).reshape(11, 2) / 22, torch.arange(11) % 2)
    losses = []
    for compiled in (False, True):
        torch.manual_seed(0)
        net = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()  # noqa: B023
            loss = F.cross_entropy(net(x), y)  # noqa: B023
            loss.backward()
            optimizer.step()  # noqa: B023
            return loss

        f = torch.compile(step) if compiled else step
        loader = DataLoader(data, batch_size=4, shuffle=True)
        losses.append([f(x, y).item() for _ in range(4) for x, y in loader])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    assert replays(f) == 2
