"""FlexAttention by the attention kernels, beside PyTorch's formula: functions inside the kernels, and what takes the formula."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.attention.flex_attention as theirs
from torch._higher_order_ops.flex_attention import math_attention

import tabtorch
import tabtorch.nn.attention.flex_attention as ours
from sidebyside import to_tab
from tabtorch._dynamo.utils import counters
from tabtorch.engine import graph
from tabtorch.ops.neural.attention_functions import trace
from test_attention_kernels import draw, plain
from test_counts import counted

pytestmark = pytest.mark.usefixtures("made_up_gpu")

Make = Callable[[Any, Callable[[torch.Tensor], Any]], Any]  # (module, how a tensor is captured) -> function
SLOPES, RELATIVE, DOCUMENT = draw(4), draw(80), torch.arange(40) // 13


def agree(score: Make | None, mask: Make | None = None, heads: int = 2, block: int = 64, lse: bool = False) -> None:
    """Result and gradients of both; the kernels alone."""
    xs = [draw(1, n, m, 8).requires_grad_() for n, m in ((2, 35), (heads, 40), (heads, 40))]
    here = lambda f: None if f is None else f(torch, lambda t: t)  # noqa: E731
    there = lambda f: None if f is None else f(tabtorch, lambda t: to_tab(t, "webgpu"))  # noqa: E731
    q, k, v = (x.repeat_interleave(2 // x.shape[1], 1) for x in xs)
    empty = theirs._create_empty_block_mask(q, k)
    at = empty.as_tuple() if mask is None else (*empty.as_tuple()[:-1], here(mask))
    out, total, _ = math_attention(q, k, v, here(score) or (lambda s, *_: s), at, 8**-0.5, {}, (), ())
    ys = [to_tab(x.detach(), "webgpu").requires_grad_() for x in xs]
    seen = mask and ours.create_block_mask(there(mask), None, None, 35, 40, device="webgpu", BLOCK_SIZE=block)
    if seen:
        ours._table(seen)
    mod, g, h = there(score), draw(*out.shape), draw(*out.shape[:-1])
    grads, more = to_tab(g, "webgpu"), to_tab(h, "webgpu")
    graph.flush()
    with counted() as forward:
        found = ours.flex_attention(*ys, mod, seen, enable_gqa=heads == 1, return_aux=ours.AuxRequest(lse=lse))
        result = found[0]
        graph.flush()
    assert forward.dispatches == 1 + lse
    with counted() as backward:
        got = tabtorch.autograd.grad([result, found[1].lse] if lse else result, ys, [grads, more] if lse else grads)
        graph.flush()
    assert backward.dispatches <= 3 + lse
    wanted = torch.autograd.grad([out, total * torch.log(torch.tensor(2.0))] if lse else out, xs, [g, h] if lse else g)
    for a, b in zip([out, *wanted], [result, *got], strict=True):
        torch.testing.assert_close(plain(b), a.detach(), rtol=2e-5, atol=2e-5)
    if lse:
        torch.testing.assert_close(plain(found[1].lse), total.detach() * torch.log(torch.tensor(2.0)))


SCORES: dict[str, Make] = {
    "causal": lambda m, put: lambda s, b, h, q, k: m.where(q >= k, s, -float("inf")),
    "soft cap": lambda m, put: lambda s, b, h, q, k: 2 * m.tanh(s / 2),
    "relative": lambda m, put: (lambda t: lambda s, b, h, q, k: s + t[q - k + 39])(put(RELATIVE)),
    "alibi": lambda m, put: (lambda t: lambda s, b, h, q, k: s + t[h + b] * (k - q))(put(SLOPES)),
}
MASKS: dict[str, Make] = {
    "window": lambda m, put: lambda b, h, q, k: (q >= k) & (q - k <= 4),
    "document": lambda m, put: (lambda t: lambda b, h, q, k: t[q] == t[k])(put(DOCUMENT)),
    "prefix": lambda m, put: lambda b, h, q, k: (k < 7) | (q >= k),
}


@pytest.mark.parametrize("name", SCORES)
def test_scores(name: str) -> None:
    agree(SCORES[name])


@pytest.mark.parametrize("name", MASKS)
def test_masks(name: str) -> None:
    agree(None, MASKS[name], block=16 if name == "prefix" else 64)


def test_both_with_heads_in_groups() -> None:
    agree(SCORES["alibi"], MASKS["window"], heads=1)


def test_logarithms_of_the_totals() -> None:
    agree(SCORES["alibi"], lse=True)


def test_blocks_that_take_no_part_are_skipped() -> None:
    """Told by a mask whose function would let through what its blocks do not."""
    q, k, v = draw(1, 1, 70, 8), draw(1, 1, 130, 8), draw(1, 1, 130, 8)
    full = torch.tensor([[[[1], [2]]]], dtype=torch.int32), torch.tensor([[[[1, 0, 2], [0, 2, 1]]]], dtype=torch.int32)
    blocks = [to_tab(t, "webgpu") for t in full]
    none = tabtorch.zeros(1, 1, 2, dtype=tabtorch.int32, device="webgpu")
    seen = ours.BlockMask.from_kv_blocks(
        none, blocks[1], blocks[0].squeeze(-1), blocks[1], BLOCK_SIZE=64, seq_lengths=(70, 130)
    )
    allowed = torch.zeros(70, 130, dtype=torch.bool)
    allowed[:64, 64:128] = allowed[64:, :64] = allowed[64:, 128:] = True
    xs = [x.requires_grad_() for x in (q, k, v)]
    want = torch.nn.functional.scaled_dot_product_attention(*xs, attn_mask=allowed)
    ys = [to_tab(x.detach(), "webgpu").requires_grad_() for x in xs]
    ours._table(seen)
    graph.flush()
    with counted() as count:
        got = ours.flex_attention(*ys, block_mask=seen)
        graph.flush()
    assert count.dispatches == 1
    grads = torch.autograd.grad(want.square().sum(), xs), tabtorch.autograd.grad(got.square().sum(), ys)
    for a, b in zip([want, *grads[0]], [got, *grads[1]], strict=True):
        torch.testing.assert_close(plain(b), a.detach(), rtol=2e-5, atol=2e-5)


def traced(f: Any, gradient: bool = True) -> Any:
    return trace((1, 2, 35, 40), tabtorch.zeros(1, device="webgpu")._tab_meta.device, f, None, gradient)


def test_what_is_not_traced() -> None:
    """Values that are read, sums, places out of range, numbers that may overflow, draws."""
    bias = tabtorch.zeros(40, device="webgpu")
    wanted = tabtorch.zeros(40, device="webgpu", requires_grad=True)
    assert traced(lambda s, b, h, q, k: s + bias[k])
    assert traced(lambda s, b, h, q, k: s.detach() * 2)
    assert traced(lambda s, b, h, q, k: s + wanted[k]).wanted == [wanted]
    assert traced(lambda s, b, h, q, k: s + wanted[k], False).functions.slope is not None
    assert not traced(lambda s, b, h, q, k: s if q > k else -s)
    assert not traced(lambda s, b, h, q, k: s + bias.sum())
    assert not traced(lambda s, b, h, q, k: s + bias[:3].sum() * k)
    assert not traced(lambda s, b, h, q, k: s + bias[k + q])
    assert not traced(lambda s, b, h, q, k: s + q * k * 2000000)
    assert not traced(lambda s, b, h, q, k: s + tabtorch.rand_like(s))


@pytest.mark.parametrize("lse", [False, True])
def test_gradients_of_what_the_functions_read(lse: bool) -> None:
    """Leaves and others, of which the same may be read twice. Results and the other gradients take the kernels still."""
    xs = [draw(1, n, m, 8).requires_grad_() for n, m in ((2, 20), (1, 24), (1, 24))]
    xs += [SLOPES[:2].clone().requires_grad_(), RELATIVE[:44].clone().requires_grad_()]

    def score(m: Any, slopes: Any, relative: Any) -> Any:
        twice = relative * 2
        return lambda s, b, h, q, k: m.tanh(s) * slopes[h] + twice[q - k + 23] + slopes[h] * (q - k)

    rows = torch.arange(24)
    h, q, k = torch.arange(2)[:, None, None], rows[:20, None], rows
    scores = score(torch, *xs[3:])(xs[0] @ xs[1].mT * 8**-0.5, 0, h, q, k)
    want = [torch.softmax(scores, -1) @ xs[2], scores.logsumexp(-1)][: 1 + lse]
    ys = [to_tab(x.detach(), "webgpu").requires_grad_() for x in xs]
    mod = score(tabtorch, *ys[3:])
    graph.flush()
    with counted() as forward:
        found = ours.flex_attention(*ys[:3], mod, enable_gqa=True, return_aux=ours.AuxRequest(lse=lse))
        graph.flush()
    assert forward.dispatches <= 2 + lse  # the one beside: what is no leaf
    got = [found[0], found[1].lse][: 1 + lse]
    given = [draw(*x.shape) for x in want]
    put = [to_tab(g, "webgpu") for g in given]
    graph.flush()
    with counted() as count:
        some = tabtorch.autograd.grad(got, ys[:3], put, retain_graph=True)
        graph.flush()
    assert count.dispatches <= 3 + lse
    found = tabtorch.autograd.grad(got, ys[3:], put)
    for a, b in zip([*want, *torch.autograd.grad(want, xs, given)], [*got, *some, *found], strict=True):
        torch.testing.assert_close(plain(b), a.detach(), rtol=1e-4, atol=1e-4)


def test_gradients_of_what_is_read_alone_and_derived_twice() -> None:
    """With no other gradient wanted, of a mask's block that is skipped, and of gradients."""
    q = to_tab(draw(1, 2, 70, 8), "webgpu")
    table = to_tab(draw(70), "webgpu").requires_grad_()
    causal = ours.create_block_mask(lambda b, h, q, k: q >= k, None, None, 70, 70, device="webgpu", BLOCK_SIZE=64)
    out = ours.flex_attention(q, q, q, lambda s, b, h, q, k: s + table[k].square(), causal)
    (first,) = tabtorch.autograd.grad(out.square().sum(), table, create_graph=True)
    (again,) = tabtorch.autograd.grad(first.square().sum(), table)
    x, bias = draw(1, 2, 70, 8), draw(70).requires_grad_()
    scores = (x @ x.mT * 8**-0.5 + bias.square()).masked_fill(torch.ones(70, 70).triu(1).bool(), -torch.inf)
    (want,) = torch.autograd.grad((torch.softmax(scores, -1) @ x).square().sum(), bias, create_graph=True)
    torch.testing.assert_close(plain(first), want.detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(plain(again), torch.autograd.grad(want.square().sum(), bias)[0], rtol=1e-3, atol=1e-3)


def test_in_a_compiled_function_and_for_second_derivatives() -> None:
    slopes = to_tab(SLOPES, "webgpu")

    def first(q: Any) -> Any:
        q = q.detach().requires_grad_()
        out = ours.flex_attention(q, q, q, lambda s, b, h, q, k: s + slopes[h] * (k - q))
        return tabtorch.autograd.grad(out.square().sum(), q)[0]

    def second(q: Any) -> Any:
        q = q.detach().requires_grad_()
        out = ours.flex_attention(q, q, q, lambda s, b, h, q, k: s + slopes[h] * (k - q))
        return tabtorch.autograd.grad(
            tabtorch.autograd.grad(out.square().sum(), q, create_graph=True)[0].square().sum(), q
        )

    def formula(q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q = q.detach().requires_grad_()
        rows = torch.arange(35.0)
        bias = SLOPES[:2, None, None] * (rows[None] - rows[:, None])
        out = torch.softmax(q @ q.mT * 8**-0.5 + bias, -1) @ q
        grad = torch.autograd.grad(out.square().sum(), q, create_graph=True)[0]
        return grad.detach(), torch.autograd.grad(grad.square().sum(), q)[0]

    step = tabtorch.compile(first)
    for seed in range(3):
        q = draw(1, 2, 35, 8) + 0.1 * seed
        torch.testing.assert_close(plain(step(to_tab(q, "webgpu"))), formula(q)[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(plain(second(to_tab(q, "webgpu"))[0]), formula(q)[1], rtol=1e-3, atol=1e-3)


def test_what_the_functions_read_must_not_change_before_a_second_derivative() -> None:
    slopes = to_tab(SLOPES, "webgpu")
    xs = [to_tab(draw(1, 2, 20, 8), "webgpu").requires_grad_() for _ in range(3)]
    out = ours.flex_attention(*xs, lambda s, b, h, q, k: s * slopes[h])
    slopes.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        tabtorch.autograd.grad(out.sum(), xs, create_graph=True)


@pytest.mark.parametrize("lengths, learnt, compiled", [(64, False, False), (64, False, True), (20, True, True)])
def test_lengths_share_schedules(lengths: int, learnt: bool, compiled: bool) -> None:
    """Forward and backward: what functions read is as long as the keys, or places are counted from the end."""
    table = to_tab(RELATIVE.repeat(3), "webgpu")

    def f(q: Any, bias: Any) -> Any:
        n = q.shape[-2]
        out = ours.flex_attention(q, q, q, lambda s, b, h, i, j: s * 1.5 + bias[j] + table[i - j + n - 1])
        return out, *tabtorch.autograd.grad(out.square().sum(), [q, bias] if learnt else [q])

    counters.clear()
    g = tabtorch.compile(f, dynamic=True) if compiled else f
    before = graph.counts["schedules"]
    for n in range(33, 33 + lengths):
        x, bias = draw(1, 1, n, 8).requires_grad_(), draw(n).requires_grad_(learnt)
        got = g(to_tab(x, "webgpu"), to_tab(bias, "webgpu"))
        graph.flush()
        if n % 16 == 1:
            at = torch.arange(n)
            scores = x @ x.mT * 8**-0.5 * 1.5 + bias + RELATIVE.repeat(3)[at[:, None] - at + n - 1]
            out = torch.softmax(scores, -1) @ x
            want = [out, *torch.autograd.grad(out.square().sum(), [x, bias] if learnt else [x])]
            for a, b in zip(want, got, strict=True):
                torch.testing.assert_close(plain(b), a.detach(), rtol=1e-4, atol=1e-4)
    assert graph.counts["schedules"] - before <= 3
    assert counters["stats"]["unique_graphs"] == int(compiled)


def test_blocks_of_lengths_share_schedules() -> None:
    """A mask in blocks that a compiled function makes: one recording, and a schedule for a class of lengths."""

    def f(q: Any) -> Any:
        n = q.shape[-2]
        blocks = ours.create_block_mask(lambda b, h, i, j: i >= j, None, None, n, n, device="webgpu", BLOCK_SIZE=32)
        return ours.flex_attention(q, q, q, block_mask=blocks)

    counters.clear()
    g = tabtorch.compile(f, dynamic=True)
    before = graph.counts["schedules"]
    for n in range(66, 96):
        x = draw(1, 2, n, 8)
        want = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
        torch.testing.assert_close(plain(g(to_tab(x, "webgpu"))), want, rtol=2e-5, atol=2e-5)
    assert graph.counts["schedules"] - before <= 6
