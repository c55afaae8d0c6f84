"""Attention by the kernels of GPUs with workgroup memory: results and gradients beside PyTorch's, and what takes the formula. A
software adapter takes the formula always; here it is told that it is a GPU, and given small sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import tabtorch
from sidebyside import to_tab
from tabtorch.engine import graph, schedules
from tabtorch.engine.target import target
from tabtorch.engine.template import Template, template
from tabtorch.ops.neural import attention, attention_kernels
from test_counts import counted

ours = tabtorch.nn.functional.scaled_dot_product_attention


pytestmark = pytest.mark.usefixtures("made_up_gpu")


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def plain(t: Any) -> torch.Tensor:
    return torch.from_numpy(t.detach().float().numpy())


def agree(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None, **kw: Any) -> Any:
    """Result and gradients of both, that of a mask too if it wants one, and the counts of the kernels: no formula."""
    xs = [x.detach().requires_grad_() for x in (q, k, v)]
    learnt = mask is not None and mask.requires_grad
    want, kept = reference(*xs, mask, **kw)
    g = draw(*want.shape).to(want.dtype)
    ys = [to_tab(x, "webgpu") for x in xs]
    seen = None if mask is None else to_tab(mask, "webgpu")
    h = to_tab(g, "webgpu")
    if learnt:
        xs.append(mask)
        ys.append(seen)
    graph.flush()
    tabtorch.manual_seed(SEED)
    with counted() as forward:
        got = ours(*ys[:3], attn_mask=seen, **kw)
        graph.flush()
    assert forward.dispatches == 1
    with counted() as backward:
        found = tabtorch.autograd.grad(got, ys, h)
        graph.flush()
    # what of the mask was broadcast along rows or keys is summed up afterwards
    summed = learnt and any(m == 1 < n for m, n in zip(mask.shape[-2:], (q.shape[-2], k.shape[-2]), strict=False))
    assert backward.dispatches == 3 + learnt + (summed or (learnt and mask.dtype is not torch.float32))
    assert (tabtorch.random.device_generator.get_offset() > 0) == kept
    wide = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}.get(q.dtype, 2e-5)
    for a, b in zip([want, *torch.autograd.grad(want, xs, g)], [got, *found], strict=True):
        assert str(a.dtype) == str(b.dtype)
        torch.testing.assert_close(plain(b), a.detach().float(), rtol=wide, atol=wide)
    return got


SEED = 5


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, dropout_p: float = 0.0, **kw: Any
) -> tuple[torch.Tensor, bool]:
    """PyTorch's result, with the elements dropped that dropout of the scores drops here; whether there is dropout."""
    if not dropout_p:
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, **kw), False
    shape = (*q.shape[:-1], k.shape[-2])
    tabtorch.manual_seed(SEED)
    kept = plain(tabtorch.dropout(tabtorch.ones(shape, device="webgpu"), dropout_p, True))
    one = torch.eye(k.shape[-2], dtype=torch.float32).expand(*k.shape[:-2], -1, -1)
    wide = None if mask is None else mask if mask.dtype is torch.bool else mask.float()
    weights = scaled_dot_product_attention(q.float(), k.float(), one, attn_mask=wide, **kw)
    many = v.float() if v.shape[:-2] == q.shape[:-2] else v.float().repeat_interleave(q.shape[-3] // v.shape[-3], -3)
    return (weights * kept @ many).to(q.dtype), True


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rows, keys", [(32, 32), (70, 45), (17, 99)])
def test_lengths(rows: int, keys: int, causal: bool) -> None:
    out = agree(draw(2, 2, rows, 24), draw(2, 2, keys, 24), draw(2, 2, keys, 24), is_causal=causal)
    assert out.grad_fn.name() == "ScaledDotProductFlashAttentionForCpuBackward0"


def test_without_gradients_there_is_the_result_alone() -> None:
    for xs in ([draw(2, 2, 32, 24)] * 3, [draw(1, 40, 8).half()] * 3):
        ys = [to_tab(x, "webgpu") for x in xs]
        graph.flush()
        with tabtorch.no_grad(), counted() as count:
            got = ours(*ys, is_causal=True)
            graph.flush()
        assert count.dispatches == 1
        want = scaled_dot_product_attention(*xs, is_causal=True).float()
        torch.testing.assert_close(plain(got), want, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("width, values", [(32, 32), (7, 5), (100, 256)])
def test_widths(width: int, values: int) -> None:
    agree(draw(3, 20, width), draw(3, 37, width), draw(3, 37, values), scale=0.3)


def test_without_batches() -> None:
    agree(draw(20, 8), draw(18, 8), draw(18, 8), is_causal=True)


def test_tiles_of_64_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_kernels, "_BUSY", 1)
    agree(draw(2, 70, 50), draw(2, 40, 50), draw(2, 40, 50), is_causal=True)
    agree(draw(1, 70, 130), draw(1, 40, 130), draw(1, 40, 130))


def test_views_are_read_as_they_are() -> None:
    q, k, v = (x.view(2, 40, 2, 16).transpose(1, 2) for x in draw(2, 40, 96).chunk(3, -1))
    agree(q, k, v, is_causal=True)
    wide = draw(2, 2, 40, 51)
    agree(wide[..., 1:17], wide[..., 3:19], wide[..., ::2][..., :16])


@pytest.mark.parametrize("rows", [3, 20])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3), (0, 1, 3, 2), (0, 2, 3, 1), (3, 2, 1, 0)])
def test_layout_of_the_result(order: tuple[int, ...], rows: int) -> None:
    """As queries lie, where their rows are rows in memory; else PyTorch's formula makes the result anew. order: of dimensions."""
    back = [order.index(d) for d in range(4)]
    views = [torch.randn(4, 3, n, 8).permute(order).contiguous().permute(back) for n in (rows, 24, 24)]
    own = [tabtorch.empty_strided(x.shape, x.stride(), device="webgpu").copy_(to_tab(x, "webgpu")) for x in views]
    assert [x.stride() for x in own] == [x.stride() for x in views]
    expected = scaled_dot_product_attention(*views)
    found = tabtorch.nn.functional.scaled_dot_product_attention(*own)
    assert found.stride() == expected.stride()
    torch.testing.assert_close(torch.from_numpy(found.cpu().numpy()), expected)


def test_masks() -> None:
    q, k, v = draw(2, 2, 40, 16), draw(2, 2, 33, 16), draw(2, 2, 33, 16)
    some = draw(2, 1, 40, 33) > 0
    some[:, :, 5] = False  # a row that sees nothing is zeros, and so are its gradients
    agree(q, k, v, some)
    added = draw(1, 2, 1, 33)
    added[..., :10] = -torch.inf
    agree(q, k, v, added.expand(2, 2, 40, 33))
    least = torch.zeros(40, 33)
    least[3] = torch.finfo(torch.float32).min
    got = ours(*(to_tab(x, "webgpu") for x in (q, k, v)), attn_mask=to_tab(least, "webgpu"))
    torch.testing.assert_close(plain(got), scaled_dot_product_attention(q, k, v, attn_mask=least))


def one_kernel(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None, **kw: Any) -> Any:
    """The result of both, without gradients."""
    want, _ = reference(q, k, v, mask, **kw)
    ys = [to_tab(x, "webgpu") for x in (q, k, v)]
    seen = None if mask is None else to_tab(mask, "webgpu")
    graph.flush()
    tabtorch.manual_seed(SEED)
    with tabtorch.no_grad(), counted() as count:
        got = ours(*ys, attn_mask=seen, **kw)
        graph.flush()
    assert count.dispatches == 1
    wide = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}.get(q.dtype, 2e-5)
    torch.testing.assert_close(plain(got), want.float(), rtol=wide, atol=wide)
    return got


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rows, keys", [(1, 1), (1, 300), (3, 99), (15, 7), (2, 2100)])
def test_few_rows(rows: int, keys: int, causal: bool) -> None:
    one_kernel(draw(2, 2, rows, 24), draw(2, 2, keys, 24), draw(2, 2, keys, 24), is_causal=causal)


@pytest.mark.parametrize("width, values", [(32, 32), (7, 5), (100, 256), (256, 130)])
def test_few_rows_of_any_width(width: int, values: int) -> None:
    one_kernel(draw(3, 2, width), draw(3, 37, width), draw(3, 37, values), scale=0.3)
    one_kernel(draw(1, width), draw(18, width), draw(18, values))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_few_rows_of_views_in_groups_with_masks(dtype: torch.dtype) -> None:
    cache = draw(2, 2, 60, 16).to(dtype)  # of which a decoder reads what it has filled
    q = draw(2, 1, 64).view(2, 1, 4, 16).transpose(1, 2).to(dtype)
    out = one_kernel(q, cache[:, :, :37], cache[:, :, 5:42], enable_gqa=True)
    assert out.shape == (2, 4, 1, 16)
    some = draw(2, 1, 1, 60) > 0
    some[1] = False  # a row that sees nothing is zeros
    one_kernel(q, cache, cache, some, enable_gqa=True)
    one_kernel(q, cache, cache, (draw(2, 4, 1, 60) * 3).to(dtype), enable_gqa=True)


def test_few_rows_that_are_not_finite() -> None:
    q, k, v = draw(2, 2, 16), draw(2, 40, 16), draw(2, 40, 16)
    k[0, 5], v[1, 7, 3] = torch.nan, torch.inf
    got = ours(*(to_tab(x, "webgpu") for x in (q, k, v)))
    torch.testing.assert_close(plain(got), scaled_dot_product_attention(q, k, v), equal_nan=True, rtol=2e-5, atol=2e-5)


def test_few_rows_with_dropout() -> None:
    one_kernel(draw(2, 2, 3, 16), draw(2, 2, 70, 16), draw(2, 2, 70, 16), dropout_p=0.3)


def test_few_rows_by_the_formula() -> None:
    """Where gradients are wanted, and where one workgroup would walk too many keys."""
    for shape, grad in (((1, 2, 3, 8), True), ((1, 2, 5000, 8), False)):
        q, k = draw(1, 2, 3, 8), draw(*shape)
        want = scaled_dot_product_attention(q, k, k)
        ys = [to_tab(q, "webgpu").requires_grad_(grad), to_tab(k, "webgpu")]
        graph.flush()
        with counted() as count:
            got = ours(ys[0], ys[1], ys[1])
            graph.flush()
        assert count.dispatches > 1
        torch.testing.assert_close(plain(got), want, rtol=2e-5, atol=2e-5)


def test_heads_in_groups() -> None:
    mask = draw(6, 40, 33) > -1
    agree(draw(2, 6, 40, 16), draw(2, 2, 33, 16), draw(2, 2, 33, 16), mask, enable_gqa=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves(dtype: torch.dtype) -> None:
    q, k, v = (x.to(dtype) for x in (draw(2, 2, 40, 18), draw(2, 2, 33, 18), draw(2, 2, 33, 18)))
    mask = draw(40, 33).to(dtype) if dtype is torch.bfloat16 else None
    agree(q, k, v, mask, is_causal=mask is None)


def test_what_is_not_finite_stays() -> None:
    q, k, v = draw(1, 20, 8), draw(1, 20, 8), draw(1, 20, 8)
    q[0, 3, 0] = torch.nan
    v[0, 4, 1] = torch.inf
    got = ours(*(to_tab(x, "webgpu") for x in (q, k, v)))
    torch.testing.assert_close(plain(got), scaled_dot_product_attention(q, k, v), equal_nan=True)


def test_higher_derivatives() -> None:
    def second(m: Any, f: Any, *xs: Any) -> Any:
        out = f(*xs, is_causal=True)
        first = m.autograd.grad((out * out).sum(), xs, create_graph=True)
        return m.autograd.grad(sum((x * x * x).sum() for x in first), xs)

    xs = [
        draw(1, 2, 20, 8).requires_grad_(),
        draw(1, 2, 21, 8).requires_grad_(),
        draw(1, 2, 22, 8)[:, :, :21].requires_grad_(),
    ]
    with torch.nn.attention.sdpa_kernel(
        torch.nn.attention.SDPBackend.MATH
    ):  # PyTorch's kernel has no second derivatives
        want = second(torch, scaled_dot_product_attention, *xs)
    got = second(tabtorch, ours, *(to_tab(x, "webgpu") for x in xs))
    for a, b in zip(want, got, strict=True):
        torch.testing.assert_close(plain(b), a, rtol=1e-4, atol=1e-3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's own rules
def test_forward_mode_and_batches() -> None:
    q, k, v, t = draw(3, 2, 20, 8), draw(3, 2, 21, 8), draw(3, 2, 21, 8), draw(3, 2, 20, 8)
    a, b, c, d = (to_tab(x, "webgpu") for x in (q, k, v, t))
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # PyTorch's kernel has no forward mode
        want = torch.func.jvp(lambda q: scaled_dot_product_attention(q, k, v), (q,), (t,))
    got = tabtorch.func.jvp(lambda q: ours(q, b, c), (a,), (d,))
    for x, y in zip(want, got, strict=True):
        torch.testing.assert_close(plain(y), x, rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(plain(tabtorch.vmap(ours)(a, b, c)), scaled_dot_product_attention(q, k, v))
    loss = lambda m, f: m.func.vmap(m.func.grad(lambda q, k, v: (f(q, k, v) ** 2).sum()))  # noqa: E731
    torch.testing.assert_close(
        plain(loss(tabtorch, ours)(a, b, c)), loss(torch, scaled_dot_product_attention)(q, k, v), rtol=2e-5, atol=2e-5
    )
    x = to_tab(q.clone().requires_grad_(), "webgpu")
    each = tabtorch.autograd.grad(ours(x, b, c), x, tabtorch.stack([d, d * 2]), is_grads_batched=True)[0]
    y = q.clone().requires_grad_()
    (one,) = torch.autograd.grad(scaled_dot_product_attention(y, k, v), y, t)
    torch.testing.assert_close(plain(each), torch.stack([one, one * 2]), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_dropout(causal: bool) -> None:
    """The elements that the formula drops, forward and backward: 1 and 3 dispatches."""
    out = agree(draw(2, 2, 40, 8), draw(2, 2, 37, 8), draw(2, 2, 37, 5), dropout_p=0.3, is_causal=causal)
    assert out.grad_fn.name() == "UnsafeViewBackward0"


def test_dropout_with_masks_groups_and_halves() -> None:
    bias = draw(4, 1, 33).requires_grad_()
    agree(draw(2, 4, 20, 8), draw(2, 2, 33, 8), draw(2, 2, 33, 8), bias, enable_gqa=True, dropout_p=0.5)
    q, k, v = (x.half() for x in (draw(1, 2, 20, 18), draw(1, 2, 33, 18), draw(1, 2, 33, 18)))
    agree(q, k, v, draw(20, 33) > -1, dropout_p=0.1)


@pytest.mark.parametrize("counters", [2**32, 0])
def test_dropout_keeps_its_share_and_backward_knows_which(counters: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever numbers the elements: where scores could not be in memory, that of one is no single word."""
    monkeypatch.setattr(attention_kernels, "_COUNTERS", counters)
    q = tabtorch.zeros(2, 2, 64, 4, device="webgpu", requires_grad=True)
    k = tabtorch.zeros(2, 2, 48, 4, device="webgpu")
    v = tabtorch.eye(48, device="webgpu").expand(2, 2, 48, 48).detach().requires_grad_()
    out = ours(q, k, v, dropout_p=0.25)
    (of_v,) = tabtorch.autograd.grad(out, v, tabtorch.eye(64, 48, device="webgpu").expand(2, 2, 64, 48))
    kept = plain(out) * 48 * 0.75
    assert kept.round().unique().tolist() == [0.0, 1.0] and abs(kept.mean() - 0.75) < 0.02
    torch.testing.assert_close(plain(of_v).mT, plain(out)[..., :48, :])
    assert kept.flatten(0, 1).flatten(1).unique(dim=0).shape[0] == 4


@pytest.mark.parametrize(
    "shape", [(2, 2, 40, 33), (1, 2, 40, 33), (2, 1, 40, 33), (40, 33), (2, 2, 1, 33), (1, 2, 40, 1), (1, 1)]
)
def test_gradients_of_masks(shape: tuple[int, ...]) -> None:
    agree(draw(2, 2, 40, 8), draw(2, 2, 33, 8), draw(2, 2, 33, 8), draw(*shape).requires_grad_())


def test_gradients_of_masks_that_are_views_halves_or_alone() -> None:
    table = draw(33, 2, 40)
    table[3:9, 1, :] = -torch.inf
    bias = table.permute(1, 2, 0).requires_grad_()
    agree(draw(3, 2, 40, 40), draw(3, 2, 33, 40), draw(3, 2, 33, 7), bias)
    q, k, v = (x.bfloat16() for x in (draw(2, 20, 18), draw(2, 21, 18), draw(2, 21, 18)))
    agree(q, k, v, draw(20, 21).bfloat16().requires_grad_())
    xs = [draw(2, 20, 8), draw(2, 21, 8), draw(2, 21, 8)]
    mask = draw(20, 21).requires_grad_()
    seen = to_tab(mask, "webgpu")
    ours(*(to_tab(x, "webgpu") for x in xs), seen).square().sum().backward()
    scaled_dot_product_attention(*xs, mask).square().sum().backward()
    torch.testing.assert_close(plain(seen.grad), mask.grad, rtol=2e-5, atol=2e-5)


def test_second_derivatives_with_a_mask_and_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what the kernel has made; the formula of its gradients has the forms of a software adapter, which compile sooner."""

    def second(m: Any, out: Any, *xs: Any) -> Any:
        first = m.autograd.grad((out * out).sum(), xs, create_graph=True)
        return m.autograd.grad(sum((x * x * x).sum() for x in first), xs)

    xs = [x.requires_grad_() for x in (draw(1, 2, 20, 8), draw(1, 2, 21, 8), draw(1, 2, 21, 8), draw(2, 1, 21))]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        want = second(torch, reference(*xs, dropout_p=0.3)[0], *xs)
    tabtorch.manual_seed(SEED)
    ys = [to_tab(x, "webgpu") for x in xs]
    graph.flush()
    with counted() as count:
        out = ours(*ys, dropout_p=0.3)
        graph.flush()
    assert count.dispatches == 1
    for name, value in (("software", True), ("barriers", False)):
        monkeypatch.setattr(target(0), name, value)
    monkeypatch.setattr(graph, "_plans", {})
    monkeypatch.setattr(schedules, "_families", {})
    for a, b in zip(want, second(tabtorch, out, *ys), strict=True):
        torch.testing.assert_close(plain(b), a, rtol=1e-3, atol=1e-3)


def test_dropout_in_a_compiled_function() -> None:
    """Each call draws, what it would draw without `compile`, with gradients inside and outside."""
    q, k, b = to_tab(draw(1, 2, 20, 8), "webgpu"), to_tab(draw(1, 2, 21, 8), "webgpu"), draw(2, 1, 21)

    def f(q: Any, bias: Any) -> Any:
        return ours(q, k, k, bias, dropout_p=0.4)

    found = []
    for g in (f, tabtorch.compile(f)):
        tabtorch.manual_seed(SEED)
        for _ in range(4):
            bias = to_tab(b, "webgpu").requires_grad_()
            out = g(q, bias)
            out.square().sum().backward()
            found += [plain(out), plain(bias.grad)]
    for a, c in zip(found[:8], found[8:], strict=True):
        torch.testing.assert_close(a, c, rtol=2e-5, atol=2e-5)
    assert not torch.equal(found[0], found[2])


def test_what_takes_the_formula() -> None:
    """Few rows of which gradients are wanted, rows of halves that share a word, dropout of everything."""
    q = to_tab(draw(1, 2, 20, 8), "webgpu")
    few = q[:, :, :3]
    odd = q[..., :7].half()
    assert attention.served(q, q, q, None, False)
    assert attention.served(few, q, q, None, False)
    assert not attention.served(few.detach().requires_grad_(), q, q, None, False)
    assert not attention.served(odd, odd, odd, None, False)
    assert not ours(q, q, q, dropout_p=1.0).any()
    with pytest.raises(RuntimeError, match="dropout probability has to be between 0 and 1, but got 1.5"):
        ours(q, q, q, dropout_p=1.5)


def test_the_result_may_be_written_to() -> None:
    q = to_tab(draw(1, 2, 20, 8).requires_grad_(), "webgpu")
    out = ours(q, q, q)
    kept = out.detach().clone()
    out.mul_(2)
    assert tabtorch.equal(out, kept * 2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_in_a_compiled_function() -> None:
    @tabtorch.compile
    def step(q: Any, k: Any) -> Any:
        q = q.detach().requires_grad_()
        ours(q, k, k, is_causal=True).square().sum().backward()
        return q.grad

    for seed in range(4):
        q, k = draw(1, 2, 20, 8) + seed, draw(1, 2, 21, 8) * seed
        x = q.clone().requires_grad_()
        scaled_dot_product_attention(x, k, k, is_causal=True).square().sum().backward()
        torch.testing.assert_close(plain(step(to_tab(q, "webgpu"), to_tab(k, "webgpu"))), x.grad, rtol=1e-4, atol=1e-4)


def test_modules() -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
    with tabtorch.device("webgpu"):
        own = tabtorch.nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
    own.load_state_dict({n: to_tab(p.detach(), "webgpu") for n, p in layer.state_dict().items()})
    x = draw(2, 20, 32)
    layer(x).square().sum().backward()
    own(to_tab(x, "webgpu")).square().sum().backward()
    for a, b in zip(layer.parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(plain(b.grad), a.grad, rtol=1e-4, atol=1e-4)


def test_a_template_says_what_it_wants() -> None:
    t = template("matmul")
    assert {"load_a", "store4_out", "size_M"} <= t.wants
    assert t.overrides == ("A_ROWS", "B_ROWS", "A_FOUR", "B_FOUR", "A_TABLE", "B_TABLE", "RAGGED")
    with pytest.raises(AssertionError, match="no constant SPEED"):
        t.text({"SPEED": 1})


def test_a_template_writes_loops_out(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """const N = 2u;
const ALL = N * 2u;
fn main() {
  for (var i = 0u; i < N; i++) {  // unroll
    for (var j = i; j < ALL / 2u; j++) {  // unroll
      out[i] += first(j);
    }
  }
}"""
    monkeypatch.setattr("tabtorch.engine.template.kernel", lambda name: text)
    t = Template("any")
    assert t.wants == {"first"}
    assert [x.strip() for x in t.text().split("\n") if "first" in x] == [
        "out[0u] += first(0u);", "out[0u] += first(1u);", "out[1u] += first(1u);"
    ]  # fmt: skip
    assert t.text({"N": 3}).count("first") == 6
    assert t.text({"N": 3}) is t.text({"N": 3}), "it takes as long as to write all the rest of a kernel"


def test_a_template_keeps_arrays_in_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """const N = 2u;
fn main() {
  var a: array<vec4<f32>, N * 2u>;  // registers
  for (var i = 0u; i < N; i++) {  // unroll
    a[i + N] = f32(a[i].x) * b[i];
  }
}"""
    monkeypatch.setattr("tabtorch.engine.template.kernel", lambda name: text)
    found = [x.strip() for x in Template("any").text().split("\n")]
    assert [x for x in found if "var a" in x] == [f"var a_{i} = vec4<f32>();" for i in range(4)]
    assert "a_3 = f32(a_1.x) * b[1u];" in found
