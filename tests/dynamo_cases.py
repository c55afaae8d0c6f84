# ruff: noqa: B023
"""What test_backend_compile.py checks of `torch.compile(backend="webgpu")` of real PyTorch; run in a process of its own, as one has
one such device. Each function `case_NAME`, here and in dynamo_sizes.py and dynamo_control.py, is a test. `python dynamo_cases.py`
reads names of cases, and answers each with a line of JSON.
"""

from __future__ import annotations

import copy
import gc
import json
import sys
import threading
import traceback
import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import dynamo_control
import dynamo_sizes
import tabtorch.backend
import tabtorch.backend.dynamo
from dynamo_models import MODELS, PLACES, close, compiled, counted, losses, mlp, raises, same
from tabtorch.bridge import get_bridge
from tabtorch.engine import graph

# ---- training and inference


def _train(name: str, steps: int = 5) -> None:
    expected = losses(name, "cpu", steps, False)
    for place in PLACES:
        found = losses(name, place, steps, True)
        assert max(abs(a - b) for a, b in zip(expected, found, strict=True)) < 1e-4, (place, expected, found)


def case_train_mlp() -> None:
    _train("mlp")


def case_train_cnn() -> None:
    _train("cnn")


def case_train_gpt() -> None:
    _train("gpt", 4)


def case_train_transformer() -> None:
    _train("transformer")


def case_train_lstm() -> None:
    with torch._dynamo.config.patch(allow_rnn=True):
        _train("lstm")


def case_inference() -> None:
    """Logits, and what a call costs: one replay, nothing new; parameters on the CPU are uploaded once."""
    for name in ("mlp", "cnn", "gpt"):
        model, data, _ = MODELS[name]
        for place in PLACES:
            torch.manual_seed(0)
            net = model().eval()
            x = data()[0]
            expected = net(x)
            net, x = net.to(place), x.to(place)
            run = compiled(net, fullgraph=True)
            for mode in (torch.no_grad, torch.inference_mode):
                with mode():
                    for _ in range(3):
                        close(run(x), expected)
                    count = counted(lambda: run(x))
                assert count["runs"] == 1 and count["planned"] == 0 and count["kernels"] == 0, count
                reads = place == "cpu"
                assert reads <= count["reads"] <= 2 * reads, count  # the second asks if an index was out of range
                assert count["uploadBytes"] <= (x.nbytes if place == "cpu" else 0), count


def case_training_counts() -> None:
    """After warm-up, forward and backward are a replay each, on whichever side the model is."""
    for name in ("mlp", "cnn", "gpt", "transformer"):
        model, data, _ = MODELS[name]
        for place in PLACES:
            net = model().to(place)
            x = data()[0].to(place)
            run = compiled(net)
            g = torch.ones_like(net(x).detach())

            def step() -> None:
                net.zero_grad()
                out = run(x)
                graph.flush()
                out.backward(g)

            for _ in range(4):
                step()
            count = counted(step)
            asked = place == "cpu" and count["runs"] == 3  # a read asks if an index was out of range
            assert count["runs"] == 2 + asked and count["planned"] == 0 and count["kernels"] == 0, (name, place, count)


def case_written_parameters() -> None:
    """A write to a parameter on the CPU is seen, by an optimizer or by `copy_`."""
    net = nn.Linear(3, 2)
    run = compiled(net)
    x = torch.randn(4, 3)
    with torch.no_grad():
        for _ in range(4):
            close(run(x), net(x))
            net.weight.add_(1)
        net.load_state_dict(nn.Linear(3, 2).state_dict())
        close(run(x), net(x))
        net.weight = nn.Parameter(torch.zeros(2, 3))
        close(run(x), net(x))
        net.weight.data = torch.ones(2, 3)
        close(run(x), net(x))
        net.weight.data.mul_(3)
        close(run(x), net(x))
        net.bias.numpy()[1] = 7
        close(run(x), net(x))
    net = nn.Linear(512, 512)
    run, x = compiled(net), torch.randn(1, 512)
    with torch.no_grad():
        close(run(x), net(x))
        net.weight.data.mul_(2)
        close(run(x), net(x))
        net.weight.numpy()[77, 133] = 1000  # one element of many
        close(run(x), net(x))
        net.weight.data = net.weight.data.t()  # which does not lie row by row
        close(run(x), net(x))
        net.weight.data[200, 311] = 2000
        close(run(x), net(x))
        close(run(x), net(x))
        assert counted(lambda: run(x))["uploadBytes"] <= x.nbytes


def case_memory() -> None:
    """What is kept of a model on the CPU goes with it; and nothing grows with the steps."""
    graph.flush()
    gc.collect()

    def held() -> int:
        gc.collect()
        graph.flush()
        return tabtorch.webgpu.memory_allocated() if get_bridge().info.get("webgpu") else get_bridge().stats()["bytes"]

    net = nn.Linear(256, 256)
    run = compiled(net)
    x = torch.randn(2, 256)
    opt = torch.optim.SGD(net.parameters(), 0.01)
    start = 0
    for n in range(205):
        opt.zero_grad()
        run(x).sum().backward()
        opt.step()
        start = held() if n == 5 else start
    assert held() <= start + 4096, (held(), start)
    del net, run, opt
    torch._dynamo.reset()
    assert held() < start - 256 * 256 * 4 + 4096, (held(), start)


# ---- graphs


def case_dynamic() -> None:
    """Another size makes no new kernels, and, recorded once, no new run of the program."""
    for name in ("mlp", "gpt"):
        model = MODELS[name][0]
        for place in PLACES:
            torch.manual_seed(0)
            net = model().to(place)
            run = compiled(net, dynamic=True, fullgraph=True)

            def step(n: int) -> None:
                x = torch.randint(0, 50, (n, 5 + n)) if name == "gpt" else torch.randn(n, 8)
                x = x.to(place)
                net.zero_grad()
                run(x).square().mean().backward()
                got = [p.grad.clone() for p in net.parameters()]
                net.zero_grad()
                net(x).square().mean().backward()
                for a, p in zip(got, net.parameters(), strict=True):
                    close(a, p.grad, 1e-4)

            for n in (8, 9, 10, 8):
                step(n)
            inputs = [torch.randint(0, 50, (n, 5 + n)) if name == "gpt" else torch.ones(n, 8) for n in (7, 11)]
            inputs = [x.to(place) for x in inputs]
            gs = [torch.ones_like(net(x).detach()) for x in inputs]
            net.zero_grad()
            graph.flush()
            pairs = zip(inputs, gs, strict=True)
            count = counted(lambda: [torch.autograd.grad(run(x), list(net.parameters()), g) for x, g in pairs])
            assert count["kernels"] == 0, (name, place, count)


def case_automatic_dynamic() -> None:
    """The second size makes the graph one of any size, as PyTorch has it."""
    net = mlp()
    run = compiled(net)
    counter = torch._dynamo.utils.counters["stats"]
    counter.clear()
    with torch.no_grad():
        for n in (4, 5, 6, 7, 8):
            x = torch.randn(n, 8)
            close(run(x), net(x))
    assert counter["unique_graphs"] == 2, counter


def case_graph_break() -> None:
    """A function that reads a value is compiled on both sides of that; `fullgraph` says so instead."""

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return y + 1 if y.sum().item() > 0 else y - 1

    for place in PLACES:
        for sign in (1.0, -1.0):
            x = torch.full((3,), sign, device=place)
            close(compiled(f)(x), f(x.cpu()))
        with raises(torch._dynamo.exc.TorchDynamoException, "item"):
            compiled(f, fullgraph=True)(x)


def case_mutation() -> None:
    def writes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        y[1:] = x[:-1]
        return x + y

    def through_view(x: torch.Tensor) -> torch.Tensor:
        x.view(-1)[1::2].add_(10)
        return x.t()

    same(writes, torch.randn(4, 3), torch.randn(4, 3))
    same(through_view, torch.randn(4, 3))

    for place in PLACES:  # an alias of what is written sees it
        x = torch.arange(6.0, device=place)
        seen = x.view(2, 3)
        compiled(lambda x: x.add_(1))(x)
        close(seen, torch.arange(6.0).view(2, 3) + 1)


def case_aliases() -> None:
    """Results that are views of an input, of one another, or the input itself are that."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        return x, x.t(), y, y[0], y.view(-1)

    for place in PLACES:
        x = torch.randn(2, 3, device=place)
        for run in (compiled(f), compiled(f, dynamic=True)):
            for _ in range(3):
                same_x, t, y, row, flat = run(x)
                assert same_x is x
                t[0, 0] = 5
                assert x[0, 0] == 5
                flat[0] = 7
                assert y[0, 0] == 7 and row[0] == 7


def case_shared_memory() -> None:
    """Results lie in one memory: of one that is used before the last step, of another type, of a training step, of an argument."""

    def f(x: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        part = y[1:]
        w = z * 1
        sums = y.sum() + part.sum()
        return part, y[:1], sums, w[0], w.imag, *x.unbind()

    for place in PLACES:
        x, z = torch.randn(3, 2, device=place), torch.randn(2, dtype=torch.complex64, device=place)
        run = compiled(f)
        for _ in range(3):
            expected = f(x.clone(), z)
            found = run(x, z)
            for a, b in zip(found, expected, strict=True):
                close(a, b)
            assert len({t.untyped_storage()._cdata for t in found[:2]}) == 1
            assert found[3].untyped_storage()._cdata == found[4].untyped_storage()._cdata
            assert found[5].untyped_storage()._cdata == x.untyped_storage()._cdata

        weight = torch.ones(2, device=place, requires_grad=True)
        train = compiled(lambda x, weight: (y := x * weight, y.detach(), y.detach().view(torch.int32)))
        for _ in range(3):
            y, seen, bits = train(x, weight)
            y.sum().backward()
            close(bits.view(torch.float32), y)
            assert len({t.untyped_storage()._cdata for t in (y, seen, bits)}) == 1
        close(weight.grad, 3 * x.sum(0))


def case_batch_norm() -> None:
    """Running statistics move as eagerly, and are used in evaluation."""
    for place in PLACES:
        torch.manual_seed(0)
        a, b = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
        b.to(place)
        run = compiled(b)
        for _ in range(4):
            x = torch.randn(8, 4) * 3 + 1
            close(run(x.to(place)), a(x))
            for p, q in zip(a.buffers(), b.buffers(), strict=True):
                close(q, p)
        xs = torch.randn(2, 8, 4)
        for net, f, where in ((a, a, "cpu"), (b, run, place)):  # a backward after another forward has moved them
            net.zero_grad()
            sum(o.square().sum() for o in [f(x) for x in xs.to(where)]).backward()
        close(b.weight.grad, a.weight.grad, 1e-4)
        a.eval(), b.eval()
        close(run(x.to(place)), a(x))


def case_dropout() -> None:
    """A replay draws anew; a seed gives the same numbers again; the backward has the mask of its forward."""
    for place in PLACES:
        x = torch.ones(64, 64, device=place, requires_grad=True)
        run = compiled(lambda x: F.dropout(x, 0.5) * 1)
        torch.manual_seed(3)
        first = [run(x) for _ in range(4)]
        assert all(not torch.equal(first[0], o) for o in first[1:])
        torch.manual_seed(3)
        for o in first:
            assert torch.equal(run(x), o)
        out = run(x)
        out.sum().backward()
        assert torch.equal(x.grad, out.detach()) and 0.4 < (out == 0).float().mean().item() < 0.6


def case_random() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x + torch.rand_like(x),
            torch.randn(3, 4, device=x.device),
            torch.randint(0, 9, (5,), device=x.device),
            torch.bernoulli(x),
        )

    for place in PLACES:
        x = torch.full((100,), 0.5, device=place)
        run = compiled(f, fullgraph=True)
        torch.manual_seed(1)
        first = [run(x) for _ in range(4)]
        torch.manual_seed(1)
        for outs in first:
            for a, b in zip(run(x), outs, strict=True):
                assert torch.equal(a, b)
        assert not torch.equal(first[2][0], first[3][0])

    def draws(x: torch.Tensor) -> list[torch.Tensor]:
        drawn = [torch.rand_like(x), torch.randn(x.shape[0], 4, device=x.device), torch.randperm(9, device=x.device)]
        drawn += [
            torch.empty_like(x).uniform_(-1, 2),
            x.new_empty(5).exponential_(),
            torch.full_like(x, 0.3).bernoulli_(0.4),
        ]
        return [
            *drawn,
            torch.randint(0, x.shape[0] + 3, (8,), device=x.device),
            torch.normal(1.0, 2.0, (3,), device=x.device),
        ]

    for place in PLACES:  # the numbers of the CPU
        for dynamic in (False, True):
            run = compiled(draws, dynamic=dynamic)
            for n in (4, 4, 6):
                x = torch.ones(n, 3)
                torch.manual_seed(n)
                want = draws(x)
                torch.manual_seed(n)
                for a, b in zip(run(x.to(place)), want, strict=True):
                    close(a, b)


def case_operations() -> None:
    """Functions whose graphs have what models have."""
    x, y = torch.randn(6, 8), torch.randn(6, 8)
    for f in (
        lambda x, y: torch.cat([x, y], 1).softmax(-1),
        lambda x, y: F.log_softmax(x * y, 0),
        lambda x, y: torch.where(x > y, x, y).cumsum(0),
        lambda x, y: (x @ y.t()).tril(),
        lambda x, y: torch.einsum("ij,kj->ik", x, y),
        lambda x, y: F.layer_norm(x, (8,)) * y.sigmoid(),
        lambda x, y: x.std(0) + y.var(1).sum(),
        lambda x, y: torch.stack([x, y]).amax(0),
        lambda x, y: x.view(2, 3, 8).permute(2, 0, 1),
        lambda x, y: F.pad(x, (1, 2), value=1.5)[:, ::2],
        lambda x, y: x.masked_fill(y > 0, float("-inf")).exp(),
        lambda x, y: torch.linalg.vector_norm(x - y, dim=1),
        lambda x, y: F.scaled_dot_product_attention(x[None, None], y[None, None], y[None, None], attn_mask=None),
        lambda x, y: F.gelu(x, approximate="tanh") + F.softplus(y),
        lambda x, y: x.repeat(2, 1).chunk(2)[1] + y.expand(6, 8),
        lambda x, y: x.sort(1)[0] + y.topk(8, 1)[0],
        lambda x, y: x.index_select(0, torch.tensor([0, 2, 4], device=x.device)) * y[::2],
        lambda x, y: x.scatter_add(0, (y > 0).long(), y),
    ):
        same(f, x, y, grads=True, tolerance=2e-5)
    z = torch.randn(2, 4, 8, 8)
    for g in (
        lambda z: F.interpolate(z, scale_factor=2.0, mode="nearest"),
        lambda z: F.interpolate(z, size=(5, 7), mode="bilinear"),
        lambda z: F.avg_pool2d(z, 2) + F.max_pool2d(z, 2),
        lambda z: F.pixel_shuffle(z, 2),
        lambda z: F.group_norm(z, 2),
        lambda z: z.mean((2, 3), keepdim=True).expand_as(z) - z,
    ):
        same(g, z, grads=True, tolerance=2e-5)


def case_types() -> None:
    same(lambda x: (x.long() + 1, x.to(torch.float16) * 2, x > 0, x.int() // 3), torch.randn(10) * 10)
    same(lambda x: torch.zeros(3, dtype=torch.int64, device=x.device) + x, torch.arange(3), tolerance=0)


def case_custom_function() -> None:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            return g * 2 * x * x  # no cube's: to see that this is what ran

    same(lambda x: Cube.apply(x * 2), torch.randn(5), grads=True)


def case_checkpoint() -> None:
    from torch.utils.checkpoint import checkpoint

    net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
    for place in PLACES:
        own = copy.deepcopy(net).to(place)
        x = torch.randn(4, 8)
        close(checkpoint(net, x, use_reentrant=False), net(x))
        net.zero_grad()
        checkpoint(net, x, use_reentrant=False).square().sum().backward()
        run = compiled(lambda x: checkpoint(own, x, use_reentrant=False))
        for _ in range(3):
            own.zero_grad()
            run(x.to(place)).square().sum().backward()
        for p, q in zip(net.parameters(), own.parameters(), strict=True):
            close(q.grad, p.grad)


def case_autocast() -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.LayerNorm(8))
    x = torch.randn(4, 8)

    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            y = net[0](x)
        return y, net(x)

    expected = f(x)
    run = compiled(f, fullgraph=True)
    for _ in range(3):
        for a, b in zip(run(x), expected, strict=True):
            close(a, b, 2e-2)


def case_threads() -> None:
    """Calls from several threads, forward and backward. Before torch 2.13 Dynamo itself refuses to compile in several at once."""
    if torch.__version__ < torch.torch_version.TorchVersion("2.13"):
        return
    net = mlp()
    run = compiled(net)
    x = torch.randn(16, 8)
    run(x).sum().backward()
    expected = net(x).detach()
    wrong: list[Any] = []

    def work() -> None:
        try:
            for _ in range(10):
                own = x.clone().requires_grad_()
                out = run(own)
                close(out, expected)
                out.sum().backward()
                assert own.grad is not None
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong, wrong


def case_optimizer_step() -> None:
    """`torch.compile` of an optimizer's step."""
    for make in (lambda p: torch.optim.SGD(p, 0.05, momentum=0.9), lambda p: torch.optim.AdamW(p, 0.01)):
        for place in PLACES:
            torch.manual_seed(0)
            a = mlp()
            b = copy.deepcopy(a).to(place)
            first, second = make(a.parameters()), make(b.parameters())
            step = compiled(second.step)
            x = torch.randn(16, 8)
            for _ in range(5):
                for net, opt, s in ((a, first, first.step), (b, second, step)):
                    opt.zero_grad()
                    net(x.to(next(net.parameters()).device)).square().mean().backward()
                    s()
            for p, q in zip(a.parameters(), b.parameters(), strict=True):
                close(q, p, 1e-5)


# ---- words


def case_modes_and_options() -> None:
    x = torch.randn(3)
    for mode in ("default", "reduce-overhead", "max-autotune"):
        close(compiled(lambda x: x * 2, mode=mode)(x), x * 2)
    with raises(RuntimeError, "Unrecognized mode"):
        compiled(lambda x: x * 2, mode="fast")(x)
    with raises(RuntimeError, "Unexpected optimization option"):
        compiled(lambda x: x * 2, options={"triton": True})(x)
    assert "webgpu" in torch._dynamo.list_backends()


def case_errors() -> None:
    """What there is no function for is named, with the line."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.dynamo_cases.unknown(x)

    library = torch.library.Library("dynamo_cases", "DEF")
    library.define("unknown(Tensor x) -> Tensor")
    library.impl("unknown", lambda x: torch.empty_like(x), "Meta")
    with raises(torch._dynamo.exc.BackendCompilerFailed, "'dynamo_cases::unknown' has no function in tabtorch"):
        compiled(f)(torch.ones(3))
    with raises(torch._dynamo.exc.BackendCompilerFailed, "torch.ops.dynamo_cases.unknown(x)"):
        compiled(f)(torch.ones(3))


def case_lost_device() -> None:
    """What was kept on a device that was lost is uploaded again."""
    net, x = mlp(), torch.randn(4, 8)
    run = compiled(net)
    with torch.no_grad():
        for _ in range(4):
            close(run(x), net(x))
        if get_bridge().info.get("webgpu"):
            get_bridge().lose_device()
            with raises(RuntimeError, "lost"):
                run(x)
        for _ in range(4):
            close(run(x), net(x))


def case_output_code() -> None:
    """The program is Python, and can be read."""
    import logging

    from tabtorch.backend.dynamo import compiler

    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    compiler.output_code.addHandler(handler)
    torch._logging.set_logs(output_code=True)
    try:
        compiled(lambda x: torch.relu(x + 1))(torch.randn(3, 4))
    finally:
        torch._logging.set_logs()
        compiler.output_code.removeHandler(handler)
    assert len(said) == 1 and "relu = aten.relu(add)  # float32[3, 4]" in said[0] and "    del add\n" in said[0], said


def main() -> None:
    """Answers each name of a case with what went wrong: "" for nothing."""
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        name = line.strip()
        wrong = ""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)
                {**globals(), **vars(dynamo_sizes), **vars(dynamo_control)}["case_" + name]()
        except BaseException:
            wrong = traceback.format_exc()
        print(json.dumps(wrong), file=answers, flush=True)


if __name__ == "__main__":
    main()
