# ruff: noqa: B023
"""Cases of dynamo_cases.py: operators that have graphs as arguments, and what a graph is made of besides operations."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from dynamo_models import PLACES, close, compiled, counted, mlp, raises, same


def case_cond() -> None:
    """A branch by a value, forward and backward; with constants, in another, and with a number."""
    rows = torch.arange(4.0)

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x, y: x.sin() * y, lambda x, y: y - x * 2, (x, y)) + 1

    def nested(x: torch.Tensor) -> torch.Tensor:
        def inner(x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x[0] > 1, lambda x: x * rows.to(x.device), lambda x: x + 1, (x,))

        return torch.cond(x.sum() > 0, inner, lambda x: x - 1, (x,))

    same(f, torch.ones(3), torch.randn(3), grads=True)
    same(f, -torch.ones(3), torch.randn(3), grads=True)
    for value in (0.5, 2.0, -1.0):
        same(nested, torch.full((4,), value))
    run = compiled(f, dynamic=True, fullgraph=True)
    for n in range(3, 7):
        x, y = torch.randn(n), torch.randn(n)
        close(run(x.to("webgpu"), y.to("webgpu")), f(x, y))


def case_while_loop() -> None:
    from torch._higher_order_ops import while_loop

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        steps = torch.zeros((), dtype=torch.int64, device=x.device)
        return while_loop(lambda i, x: (x.sum() < 50) & (i < 9), lambda i, x: (i + 1, x * 2), (steps, x))

    for first in (1.0, 30.0, -1.0):  # some steps, none, all
        same(f, torch.full((3,), first))


def case_loops() -> None:
    """`map`, `scan` and `associative_scan` are written out: one plan."""
    from torch._higher_order_ops import associative_scan, scan
    from torch._higher_order_ops.map import map as mapped

    def by_map(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return mapped(lambda row, y: (row * y).cumsum(0), x, y)

    def by_scan(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return scan(lambda carry, row: (carry * 0.5 + row, carry * row), y, x)

    def by_associative_scan(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return associative_scan(lambda a, b: a * b, x + y, 0, combine_mode="generic")

    x, y = torch.randn(4, 3), torch.randn(3)
    same(by_map, x, y, grads=True)
    same(by_scan, x, y, grads=True)
    same(by_associative_scan, x, y, grads=True)
    x, y = x.to("webgpu"), y.to("webgpu")
    for f in (by_map, by_scan):
        run = compiled(f)
        for _ in range(3):
            run(x, y)
        assert counted(lambda: run(x, y))["runs"] == 1


def case_flex_attention() -> None:
    """PyTorch's own formula over the whole of the scores."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v = torch.randn(3, 1, 2, 8, 16)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 8, 8, device="cpu")

    def f(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return flex_attention(q, k, v, lambda s, b, h, i, j: s + (i - j) * 0.1, mask)

    bias = (torch.arange(8)[:, None] - torch.arange(8)) * 0.1
    bias = bias.masked_fill(torch.ones(8, 8).tril() == 0, -torch.inf)
    run = compiled(f, fullgraph=True)
    for _ in range(3):
        close(run(q, k, v), F.scaled_dot_product_attention(q, k, v, bias), 1e-4)


def case_regions() -> None:
    """Functions that are compiled once for several places, regions without gradients or in another type, checkpoints with draws."""

    @torch.compiler.nested_compile_region
    def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w).relu()

    def blocks(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return block(block(x, w), w)

    def without(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = x * 3
        return x * y

    def in_half(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(x.device.type, torch.bfloat16):
            y = x @ x.t()
        return y.float() + x.sum()

    same(blocks, torch.randn(3, 4), torch.randn(4, 4), grads=True)
    same(without, torch.randn(3), grads=True)
    same(in_half, torch.randn(3, 3), grads=True, tolerance=2e-2)

    from torch.utils.checkpoint import checkpoint

    for place in PLACES:
        x = torch.ones(64, 64, device=place, requires_grad=True)
        run = compiled(lambda x: checkpoint(lambda x: F.dropout(x.sin(), 0.5) * 1, x, use_reentrant=False))
        out = run(x)
        out.sum().backward()
        close(x.grad, out.detach() / x.detach().sin() * x.detach().cos())  # the mask of the forward


def case_computed_numbers() -> None:
    """Numbers that come of values, and sizes that do, where Dynamo is told to take them into the graph."""

    def f(x: torch.Tensor) -> tuple[Any, ...]:
        n = x.sum().item()
        return x * n, n

    def g(x: torch.Tensor) -> torch.Tensor:
        return x.nonzero() * 2

    same(
        lambda x: torch.linalg.qr(x)[1].abs(), torch.randn(3, 3), tolerance=1e-4
    )  # on the host, which is no warning's matter

    with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        for place in PLACES:
            run = compiled(f, fullgraph=True)
            for x in (torch.tensor([1, 2]), torch.tensor([3, 4])):
                out, n = run(x.to(place))
                close(out, x * x.sum())
                assert n == x.sum().item()
            run = compiled(g, fullgraph=True)
            for x in (torch.tensor([1.0, 0, 2]), torch.tensor([0.0, 0, 2])):
                close(run(x.to(place)), g(x))


def case_views_of_one() -> None:
    """Results that are parts of one memory: of an argument's, also where that begins elsewhere, or of a value's."""
    for f in (lambda x: x.split(2), lambda x: (x[0], x[1:], x.t()), lambda x: (x * 2).split(2)):
        for place in PLACES:
            run = compiled(f)
            base = torch.randn(6, 5)
            here = base.clone().to(place)
            for begin in (1, 2):
                x, y = base[begin : begin + 4], here[begin : begin + 4]
                for a, b in zip(f(x), run(y), strict=True):
                    close(b, a)
                    a.add_(5), b.add_(5)
                    close(y, x)


def case_own_operators() -> None:
    """Operators of the script's own run as they are: where PyTorch has their arguments."""

    @torch.library.custom_op("dynamo_control::halved", mutates_args=())
    def halved(x: torch.Tensor, by: float) -> torch.Tensor:
        seen.append(x.device.type)
        return x.clone() / by

    seen: list[str] = []
    halved.register_fake(lambda x, by: torch.empty_like(x))
    halved.register_autograd(
        lambda ctx, g: (g / ctx.by, None), setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[1])
    )

    @torch.library.custom_op("dynamo_control::add_to", mutates_args=("x",))
    def add_to(x: torch.Tensor, y: torch.Tensor) -> None:
        x.add_(y)

    def writes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x * 2
        torch.ops.dynamo_control.add_to(z, y)
        torch.ops.dynamo_control.add_to(x, y)
        return z + 1

    for place in PLACES:
        seen.clear()
        run = compiled(lambda x: torch.ops.dynamo_control.halved(x * 3, 2.0) + 1, fullgraph=True)
        for _ in range(3):
            x = torch.ones(2, 3, device=place, requires_grad=True)
            out = run(x)
            close(out, torch.full((2, 3), 2.5))
            out.sum().backward()
            close(x.grad, torch.full((2, 3), 1.5))
        assert seen == [place] * 3, seen
    same(writes, torch.randn(3), torch.randn(3))


def case_learning_rates() -> None:
    """A learning rate that is a tensor, and that a scheduler changes, is one graph and one plan for all steps."""
    for make in (torch.optim.AdamW, torch.optim.RMSprop, torch.optim.SGD):
        torch.manual_seed(0)
        a = mlp()
        b = copy.deepcopy(a).to("webgpu")
        capturable = {} if make is torch.optim.SGD else {"capturable": True}
        first, second = make(a.parameters(), 0.01), make(b.parameters(), torch.tensor(0.01), **capturable)
        plans = [torch.optim.lr_scheduler.StepLR(opt, 1, 0.9) for opt in (first, second)]
        x = torch.randn(16, 8)
        step = compiled(second.step)
        torch._dynamo.utils.counters.clear()
        for _ in range(5):
            for net, opt, s, plan in ((a, first, first.step, plans[0]), (b, second, step, plans[1])):
                opt.zero_grad()
                net(x.to(next(net.parameters()).device)).square().mean().backward()
                s()
                plan.step()
        for p, q in zip(a.parameters(), b.parameters(), strict=True):
            close(q, p)
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
        count = counted(step)
        assert count["runs"] == 1 and count["planned"] == 0, count


def case_recurrent() -> None:
    """Dynamo breaks its graph at these, or takes them as a whole where it is told to."""
    warnings.filterwarnings("ignore", "The .grad attribute")  # Dynamo hides this one, which it asks for itself
    for allowed in (False, True):
        with torch._dynamo.config.patch(allow_rnn=allowed):
            for kind in (nn.LSTM, nn.GRU):
                net = kind(4, 6, bidirectional=True)
                own = copy.deepcopy(net).to("webgpu")
                run = compiled(own, fullgraph=allowed)
                for _ in range(2):
                    x = torch.randn(3, 2, 4)
                    close(run(x.to("webgpu"))[0], net(x)[0])


def case_compiler_words() -> None:
    """`torch._dynamo.explain`, `disable`, `set_stance`, functions in functions, copies of compiled modules, saved artifacts."""
    net = mlp().to("webgpu")
    x = torch.randn(4, 8, device="webgpu")
    torch._dynamo.reset()
    assert torch._dynamo.explain(net)(x).graph_count == 1
    plain = torch.compiler.disable(lambda x: x.sin())
    with torch.no_grad():
        close(compiled(lambda x: plain(net(x)) + 1)(x), net(x).sin() + 1)
    run = compiled(net)
    outer = torch.compile(lambda x: run(x) * 2, backend="webgpu")
    for _ in range(3):
        close(outer(x), net(x) * 2)
    run(x)
    with torch.compiler.set_stance("fail_on_recompile"):
        close(run(x), net(x))
        with raises(RuntimeError, "ecompile"):
            run(x[None])
    with torch.compiler.set_stance("force_eager"):
        close(run(x[None]), net(x)[None])
    other = copy.deepcopy(run)
    with torch.no_grad():
        next(other.parameters()).add_(1)
    close(run(x), net(x))
    assert not torch.equal(other(x).cpu(), run(x).cpu())
    saved = torch.compiler.save_cache_artifacts()
    if saved is not None:
        torch.compiler.load_cache_artifacts(saved[0])
    same(lambda x: x * 2, torch.ones(3), grads=True)
    same(lambda x: x * 3, torch.ones(3), grads=True)  # which is another graph's artifact


def case_effects() -> None:
    """An operation that looks at a value to raise an error does so; one that cannot be is named."""
    spd = torch.eye(3) * 2 + 1
    for place in PLACES:
        run = compiled(torch.linalg.cholesky, fullgraph=True)
        close(run(spd.to(place)), torch.linalg.cholesky(spd))
        with raises(torch.linalg.LinAlgError, "not positive-definite"):
            run(-spd.to(place))

    def prints(x: torch.Tensor) -> torch.Tensor:
        torch._higher_order_ops.print("{}", x)
        return x + 1

    with raises(torch._dynamo.exc.BackendCompilerFailed, "the higher-order operator print is not supported"):
        compiled(prints)(torch.ones(2))


def case_constants() -> None:
    """What is written to a result that a graph gives of its constants, or gives twice, is not seen by the next call."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        return torch.tensor([1.0, 2.0], device=x.device), y, y.clone(), y.contiguous().to(y.dtype, copy=True)

    for place in PLACES:
        run = compiled(f)
        for _ in range(3):
            x = torch.ones(2, device=place)
            found = run(x)
            for a, b in zip(found, f(x), strict=True):
                close(a, b)
            for a in found:
                a.add_(5)
            close(found[1], torch.full((2,), 7.0))
