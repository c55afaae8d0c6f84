"""What holds of lists of tensors on real PyTorch's device="webgpu", which backend/lists.py computes as one. As backend_cases.py.

TABTORCH_DEVICE=cpu|webgpu python tests/backend_list_cases.py [NAME ...]
"""

from __future__ import annotations

import copy
import gc
import io
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from backend_cases import CASES, W, case, main, raises, same
from tabtorch.bridge import get_bridge
from tabtorch.engine import graph

CASES.clear()


def model() -> nn.Module:
    """Of seed 0, on the CPU: ten parameters."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 8), nn.Linear(8, 1)
    )


def train(device: str, make: Callable[..., Any], steps: int = 6, **kw: Any) -> list[torch.Tensor]:
    """Parameters after some steps, between which they are written to as scripts do."""
    m = model().to(device)
    optimizer = make(m.parameters(), **kw)
    x, y = torch.randn(16, 8).to(device), torch.randn(16, 1).to(device)
    for i in range(steps):
        optimizer.zero_grad(set_to_none=i % 2 == 0)
        (m(x) - y).square().mean().backward()
        nn.utils.clip_grad_norm_(m.parameters(), 0.5)
        if i == 3:
            with torch.no_grad():
                m[0].weight.mul_(0.9)
                m[3].bias[2:] += 0.1
        if i == 4:
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        optimizer.step()
    return [p.detach().cpu() for p in m.parameters()]


@case
def optimizers() -> None:
    o = torch.optim
    for make, kw in (
        (o.AdamW, {}),
        (o.Adam, {"amsgrad": True, "weight_decay": 0.1}),
        (o.AdamW, {"maximize": True}),
        (o.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
        (o.RMSprop, {"momentum": 0.5, "centered": True}),
        (o.NAdam, {}),
        (o.Adamax, {}),
        (o.Adadelta, {}),
        (o.ASGD, {}),
        (o.Rprop, {}),
    ):
        for a, b in zip(train(W, make, **kw), train("cpu", make, **kw)):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=2e-5, msg=f"{make.__name__} {kw}")


@case
def pieces_are_plain_tensors() -> None:
    own = [torch.arange(6.0).reshape(2, 3), torch.ones(5), torch.full((70,), 2.0)]
    lists = {d: [t.to(d, copy=True) for t in own] for d in (W, "cpu")}
    seen: dict[str, list[Any]] = {}
    for d, ts in lists.items():
        views = [t.view(-1) for t in ts]
        addresses = [t.data_ptr() for t in ts]
        for _ in range(3):
            torch._foreach_mul_(ts, 1.5)
            torch._foreach_add_(ts, [torch.ones_like(t) for t in ts], alpha=2)
        kept = [t.clone() for t in ts]
        ts[0][1].zero_()  # which only this one sees
        torch._foreach_sub_(ts, 1.0)
        roots = torch._foreach_sqrt(torch._foreach_abs(ts))
        roots[1].neg_()
        file = io.BytesIO()
        torch.save(ts, file)
        file.seek(0)
        seen[d] = [*ts, *views, *kept, *roots, *torch.load(file), *copy.deepcopy(ts), ts[2][64:], ts[0].t() @ ts[0]]
        assert addresses == [t.data_ptr() for t in ts]
        seen[d].append(torch.tensor([t._version for t in ts]))
        assert all(t.is_contiguous() and not t.storage_offset() for t in roots)
    for a, b in zip(seen[W], seen["cpu"], strict=True):
        torch.testing.assert_close(a.cpu(), b)


@case
def lists_that_are_not_one() -> None:
    """Of what shares memory, of other types and layouts, and with numbers of their own: as on the CPU."""
    seen: dict[str, list[torch.Tensor]] = {}
    for d in (W, "cpu"):
        a, b, c = torch.arange(4.0).to(d), torch.ones(4).to(d), torch.arange(8.0).to(d)
        torch._foreach_add_([a, b], [b, a])  # the second reads what the first has written
        torch._foreach_mul_([a, a], 2.0)
        torch._foreach_add_([c[:4], c[4:]], 1.0)
        torch._foreach_mul_([a, b], [2.0, 3.0])
        mixed = [torch.arange(3).to(d), torch.ones(2, 2, dtype=torch.float16).to(d), torch.empty(0).to(d)]
        torch._foreach_add_(mixed, 2)
        turned = [torch.arange(6.0).to(d).reshape(2, 3).t(), torch.ones(3, 2).to(d)]
        torch._foreach_addcmul_(turned, turned, turned, 0.5)
        numbers = torch._foreach_div([a, b], torch.tensor(2.0).to(d))
        wide = torch._foreach_add(
            [torch.ones(3, 1).to(d), torch.ones(3).to(d)], [torch.ones(3).to(d), torch.ones(3).to(d)]
        )
        powers = [*torch._foreach_maximum([a, b], [b, a]), *torch._foreach_lerp([a, b], [b, a], 0.3)]
        seen[d] = [a, b, c, *mixed, *turned, *numbers, *wide, *powers]
        with raises(RuntimeError, "same number of tensors"):
            torch._foreach_add_([a, b], [a])
    for x, y in zip(seen[W], seen["cpu"], strict=True):
        torch.testing.assert_close(x.cpu(), y)
        assert x.device.type == W


@case
def gradients_of_what_was_a_piece() -> None:
    ps = [torch.ones(3, device=W, requires_grad=True), torch.full((2,), 2.0, device=W, requires_grad=True)]
    loss = (ps[0].sum() * ps[1].prod()).square()
    with torch.no_grad():
        torch._foreach_mul_(ps, 2.0)
    with raises(RuntimeError, "modified by an inplace operation"):
        loss.backward()
    out = torch._foreach_mul(ps, 3.0)  # recorded, a node of the tape each
    sum(t.sum() for t in out).backward()
    same(ps[0].grad, torch.full((3,), 3.0))


@case
def lists_larger_than_a_buffer() -> None:
    from tabtorch.backend import lists

    most, lists.MOST = lists.MOST, 2048
    try:
        ts = [torch.full((n,), float(n), device=W) for n in (1, 700, 5, 64, 200, 600, 3)]
        lists._runs.clear()
        for _ in range(2):
            torch._foreach_add_(ts, [t.clone() for t in ts])
        for t, r in zip(ts, torch._foreach_sqrt(ts)):
            same(t, torch.full(t.shape, 4.0 * t.numel()))
            same(r, torch.full(t.shape, 4.0 * t.numel()).sqrt())
        assert [b - a for a, b in lists._runs[tuple(map(_meta, ts))] or ()] == [1, 1, 3, 1, 1]
    finally:
        lists.MOST = most
        lists._runs.clear()


def _meta(t: torch.Tensor) -> Any:
    from tabtorch.backend.tensors import unwrap

    return unwrap(t)._tab_meta


@case
def a_chain_is_one_kernel() -> None:
    ts = [torch.ones(n, device=W) for n in range(1, 61)]
    gs = [torch.ones(n, device=W) for n in range(1, 61)]

    def step() -> None:
        torch._foreach_lerp_(ts, gs, 0.1)
        torch._foreach_addcdiv_(ts, gs, torch._foreach_add(torch._foreach_sqrt(ts), 1e-3), -0.5)
        graph.flush()

    step()
    step()
    graph.flush()
    before = get_bridge().stats()["dispatches"]
    step()
    assert get_bridge().stats()["dispatches"] - before <= 1


@case
def memory_of_training_is_flat() -> None:
    m = model().to(W)
    optimizer = torch.optim.AdamW(m.parameters())
    x = torch.randn(4, 8, device=W)
    seen = []
    for step in range(300):
        optimizer.zero_grad()
        m(x).square().mean().backward()
        optimizer.step()
        if step % 20 == 19:
            torch.webgpu.synchronize()
            gc.collect()
            seen.append((torch.webgpu.memory_allocated(), len(gc.get_objects())))
    assert seen[2][0] == seen[-1][0], seen
    assert abs(seen[-1][1] - seen[len(seen) // 2][1]) < 50, seen
    alone = m[0].weight.detach().clone()
    del m, optimizer, step
    gc.collect()
    torch.webgpu.synchronize()
    assert torch.webgpu.memory_allocated() - x.nbytes <= seen[-1][0] / 2, torch.webgpu.memory_allocated()
    assert alone.isfinite().all()


def compiled_training(where: str, steps: int) -> list[tuple[int, int]]:
    """(bytes allocated, objects that Python has) every 20 steps, of a compiled model that is on `where`."""
    import tabtorch.backend.dynamo  # noqa: F401

    torch._dynamo.reset()
    m = model().to(where)
    run = torch.compile(m, backend="webgpu")
    optimizer = torch.optim.AdamW(m.parameters())
    x = torch.randn(4, 8).to(where)
    seen = []
    for step in range(steps):
        optimizer.zero_grad()
        run(x).square().mean().backward()
        optimizer.step()
        if step % 20 == 19:
            torch.webgpu.synchronize()
            gc.collect()
            seen.append((torch.webgpu.memory_allocated(), len(gc.get_objects())))
    return seen


@case
def memory_of_compiled_training_is_flat() -> None:
    gc.collect()
    torch.webgpu.synchronize()
    before = torch.webgpu.memory_allocated()
    for where, steps in ((W, 300), ("cpu", 120)):
        seen = compiled_training(where, steps)
        assert seen[2][0] == seen[-1][0], (where, seen)
        assert abs(seen[-1][1] - seen[len(seen) // 2][1]) < 50, (where, seen)
        torch._dynamo.reset()
        gc.collect()
        torch.webgpu.synchronize()
        assert torch.webgpu.memory_allocated() - before <= 256, (where, torch.webgpu.memory_allocated(), before)


@case
def threads_ask_for_pieces() -> None:
    for _ in range(10):
        ts = [torch.full((n,), 1.0, device=W) for n in range(1, 33)]
        torch._foreach_add_(ts, 1.0)
        wrong: list[Any] = []

        def look(part: list[torch.Tensor], wrong: list[Any] = wrong) -> None:
            wrong += [t for t in part if t.sum().item() != 2 * t.numel()]

        threads = [threading.Thread(target=look, args=(ts[k % 2 :],)) for k in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not wrong


@case
def modes_of_the_thread_of_backward() -> None:
    """What a compiled backward turns off in PyTorch's thread stays on in the script's."""
    import tabtorch
    import tabtorch.backend.dynamo

    f = torch.compile(lambda x: (x * 2).sum(), backend="webgpu")
    x = torch.ones(3, device=W, requires_grad=True)
    for _ in range(3):
        f(x).backward()
        assert tabtorch.is_grad_enabled()
    same(x.grad, [6.0] * 3)


@case
def pieces_of_a_runtime_that_ended() -> None:
    """They say so as others do, and can be written over."""
    from tabtorch import bridge

    for flushed in (False, True):
        ts = [torch.ones(n, device=W) for n in (2, 3)]
        torch._foreach_add_(ts, 1.0)
        if flushed:
            torch.webgpu.synchronize()
        bridge.close()
        with raises(RuntimeError, "a tensor has no value any more"):
            ts[0].cpu()
        ts[1].zero_()
        same(ts[1], [0.0] * 3)
        torch._foreach_copy_(ts, [torch.ones(2, device=W), torch.ones(3, device=W)])
        same(ts[0], [1.0] * 2)


if __name__ == "__main__":
    main()
