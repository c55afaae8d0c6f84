"""The forms that kernels have on a real GPU: tiles in workgroup memory, k cut into parts, rows walked by a workgroup, several
elements a thread. A software adapter gets others, because barriers are dear there; here it is given these, and small sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tabtorch
from sidebyside import to_tab
from tabtorch.engine import tiles

pytestmark = pytest.mark.usefixtures("made_up_gpu")


def agree(f: Callable[..., Any], *xs: torch.Tensor, **tolerance: float) -> None:
    want = f(torch, *xs)
    got = f(tabtorch, *(to_tab(x, "webgpu") for x in xs))
    got = torch.from_numpy(got.float().numpy())
    torch.testing.assert_close(got, want.float(), **(tolerance or {"rtol": 1e-5, "atol": 1e-4}))


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("left", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("right", [False, True], ids=["columns", "rows"])
@pytest.mark.parametrize("m, k, n", [(100, 70, 90), (16, 5, 16), (129, 200, 260), (64, 8, 64)])
def test_tiles(m: int, k: int, n: int, left: bool, right: bool) -> None:
    a = draw(k, m).T if left else draw(m, k)
    b = draw(n, k).T if right else draw(k, n)
    agree(lambda _, a, b: a @ b, a, b)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of any size are large enough for loads and stores of four neighbours."""
    monkeypatch.setattr(tiles, "_LARGE", 1)


@pytest.mark.parametrize("left", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("right", [False, True], ids=["columns", "rows"])
@pytest.mark.parametrize("m, k, n", [(100, 72, 92), (16, 4, 16), (129, 200, 260), (68, 28, 90), (33, 20, 64)])
@pytest.mark.parametrize("step", [8, 16])
def test_tiles_by_vectors(
    large: None, monkeypatch: pytest.MonkeyPatch, m: int, k: int, n: int, left: bool, right: bool, step: int
) -> None:
    monkeypatch.setattr(tiles, "_STEP", step)
    a = draw(k, m).T if left else draw(m, k)
    b = draw(n, k).T if right else draw(k, n)
    agree(lambda _, a, b: a @ b, a, b)
    agree(lambda _, a, b: a.half() @ b.half(), a, b, rtol=1e-3, atol=2e-2)


def test_what_follows_a_product_is_stored_by_vectors(large: None) -> None:
    a, b, bias, other = draw(40, 72), draw(72, 92), draw(92), draw(40, 92)
    agree(lambda m, a, b, c, o: m.nn.functional.gelu(a @ b + c) + o, a, b, bias, other)
    agree(lambda _, a, b, c: (a @ b + c) > 0, a, b, bias)
    agree(lambda m, a, b, c: (a @ b + c).to(m.bfloat16), a, b, bias, rtol=1.6e-2, atol=1e-5)
    agree(lambda m, a, b, c: (a @ b * 10).to(m.int64), a, b, bias, rtol=0, atol=1)
    agree(lambda m, a, b, o: o.clone().mul_(2).add_(a @ b).sin_(), a, b, other)
    agree(lambda m, a, b, o: m.stack([a @ b, o]).sum(0), a, b, other)


@pytest.mark.parametrize("m, k, n", [(40, 3000, 36), (20, 1032, 16), (130, 4352, 132)])
def test_a_long_sum_by_vectors_is_cut(large: None, m: int, k: int, n: int) -> None:
    agree(lambda _, a, b, c: (a @ b + c).relu() * 2, draw(m, k), draw(k, n), draw(n), rtol=1e-5, atol=2e-3)


def test_tiles_of_a_batch_whose_rows_are_no_straight_line() -> None:
    agree(lambda m, a, b: m.einsum("bihd,bjhd->bhij", a, b) * 0.5, draw(2, 40, 3, 16), draw(2, 33, 3, 16))


@pytest.mark.parametrize("m, k, n", [(40, 3000, 33), (20, 1030, 17), (64, 257, 64)])
def test_a_long_sum_is_cut_and_what_follows_is_done_once(m: int, k: int, n: int) -> None:
    agree(lambda _, a, b, c: (a @ b + c).relu() * 2, draw(m, k), draw(k, n), draw(n), rtol=1e-5, atol=1e-3)
    agree(lambda _, a, b: a @ b, draw(2, m, k), draw(2, k, n), rtol=1e-5, atol=1e-3)


def test_a_contraction_of_halves_is_rounded_once() -> None:
    agree(lambda _, a, b: a @ b, draw(40, 50).half(), draw(50, 61).half(), rtol=1e-3, atol=1e-3)
    agree(lambda _, a, b: a @ b, draw(41, 50).bfloat16(), draw(50, 61).bfloat16(), rtol=1.6e-2, atol=1e-5)


@pytest.mark.parametrize(
    "a, b",
    [
        ((1, 600), (600, 300)),
        ((300, 600), (600,)),
        ((100000,), (100000,)),
        ((3, 9000), (9000, 5)),
        ((5, 300), (300, 3)),
    ],
)
def test_few_results(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    agree(lambda _, a, b: (a @ b) * 2 + 1, draw(*a), draw(*b), rtol=1e-5, atol=2e-3)


def test_one_row_through_a_linear_layer() -> None:
    agree(lambda m, x, w, b: m.nn.functional.linear(x, w, b).tanh(), draw(1, 600), draw(300, 600) / 25, draw(300))


def convolution(m: Any, x: Any, w: Any) -> Any:
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    y = m.nn.functional.conv2d(x, w, padding=1)
    (y * y).sum().backward()
    return m.cat([y.detach().flatten(), x.grad.flatten(), w.grad.flatten()])


@pytest.mark.parametrize("channels, out, size", [(3, 16, 20), (16, 32, 9)])
def test_convolutions_and_their_gradients(channels: int, out: int, size: int) -> None:
    agree(convolution, draw(8, channels, size, size), draw(out, channels, 3, 3), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("size", [7, 8])
def test_a_convolution_of_a_batch_and_what_follows(large: None, size: int) -> None:
    """The batch is folded into the columns; images are no multiples of four, or are."""
    x, w, scale, shift, other = draw(5, 6, size, size), draw(20, 6, 3, 3), draw(20), draw(20), draw(5, 20, size, size)

    def f(m: Any, x: Any, w: Any, a: Any, b: Any, y: Any) -> Any:
        found = m.nn.functional.conv2d(x, w, padding=1)
        found = m.nn.functional.batch_norm(found, a, a * a + 1, b, a) + y
        return found.relu()

    agree(f, x, w, scale, shift, other)
    agree(lambda m, x, w: m.nn.functional.conv2d(x, w).half(), x, w, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("size, groups", [(3, 24), (5, 24), (7, 12)])
def test_windows_by_groups(size: int, groups: int) -> None:
    x, w = draw(6, 24, 24, 24), draw(24, 24 // groups, size, size)
    agree(lambda m, x, w: m.nn.functional.conv2d(x, w, padding=size // 2, groups=groups), x, w, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("length", [200, 1500])
def test_rows_walked_by_a_workgroup(length: int) -> None:
    x = draw(9, length)
    agree(lambda m, x: m.softmax(x, -1), x)
    agree(lambda m, x: m.nn.functional.layer_norm(x, (length,)), x)
    agree(lambda _, x: x.max(1).values + x.argmin(1) + x.sum(1), x)


@pytest.mark.parametrize("shape", [(700, 40), (300, 3), (2600, 9)])
def test_columns_in_chunks(shape: tuple[int, int]) -> None:
    x = draw(*shape)
    agree(lambda _, x: x.sum(0), x)
    agree(lambda _, x: x.var(0), x)
    agree(lambda _, x: x.max(0).values + x.argmax(0), x)
    agree(lambda _, x: (x * 0.01 + 1).prod(0), x)


def test_a_sum_of_everything() -> None:
    agree(lambda _, x: x.sum(), draw(300, 700), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("shape", [(2, 20_000), (1, 9001)])
def test_long_rows_are_walked_by_chunks(shape: tuple[int, int]) -> None:
    """A launch for each pass over the rows, with all that precedes and follows a reduction."""
    x = draw(*shape)
    agree(lambda m, x: m.softmax(x * 2 + 1, -1), x)
    agree(lambda m, x: m.nn.functional.layer_norm(x, shape[1:]) * 2 + x, x)
    agree(lambda _, x: (x * 2 + 1).relu().sum() + x.max(1).values + x.argmin(1) + x.var(1), x, rtol=1e-5, atol=1e-2)
    agree(lambda _, x: x - x.mean(1, keepdim=True) > 0.25, x)
    agree(lambda _, x: (x - x.mean(1, keepdim=True)).half(), x, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("shape", [(4200, 6), (1000, 33)])
def test_columns_in_chunks_with_what_follows(shape: tuple[int, int]) -> None:
    """The chunks are too many for each of them to join all: a launch of its own does."""
    x = draw(*shape)
    agree(lambda _, x: x.t().contiguous().float().sub(x.mean(0).unsqueeze(1)).pow(2).sum(1), x, rtol=1e-4, atol=1e-2)
    agree(lambda _, x: (x * 0.5 + 1).relu().sum(0) / (x * x).sum(0), x)


def test_equal_values_are_written_apart() -> None:
    """What is computed once for two names is still two values when one of them is written to."""

    def f(m: Any, x: Any, w: Any) -> Any:
        a, b, c = x @ w, x @ w, x @ w
        d = b.t().contiguous()
        a.add_(1)
        b[:2] = a[:2] * c[:2]
        c.mul_(0)
        return m.cat([a.flatten(), b.flatten(), c.flatten(), d.flatten(), (x + 1).sum(0), (x + 2).sum(0)])

    agree(f, draw(20, 30), draw(30, 18))


def test_parts_of_one_launch() -> None:
    """Sums that need nothing of each other, in both stages, beside maps; some are of packed types."""
    a, b, c = draw(600, 40), draw(600, 24), draw(9, 300)

    def f(m: Any, a: Any, b: Any, c: Any) -> Any:
        some = [
            a.sum(0),
            (b * b).sum(0),
            b.amax(0),
            (c > 0).any(1),
            c.half().sum(1),
            c.sum(1),
            (a[:5, :3] * 2).flatten(),
        ]
        return m.cat([x.float() for x in some])

    agree(f, a, b, c, rtol=1e-3, atol=1e-3)


def test_parts_of_one_launch_for_workgroups_of_other_sizes() -> None:
    """Few rows by 256 threads each beside some by 64: all have 256 then."""
    a, b = draw(3, 2000), draw(4, 300)
    agree(lambda m, a, b: m.cat([a.sum(1), b.amax(1), b.argmin(1), (b * b).sum(1), a.argmax(1)]), a, b)


def test_many_elements_take_a_thread_for_four() -> None:
    x = draw((1 << 22) + 77)
    agree(lambda _, x: (x * 2 + 1).clamp(-3, 3), x)
    agree(lambda _, x: x * 2 > 1, x)


@pytest.mark.parametrize("stride, padding, dilation", [(1, 1, 1), (2, (2, 1), 1), (1, (0, 2), 2)])
def test_convolutions_that_read_through_their_frame(stride: int, padding: Any, dilation: int) -> None:
    """Zeros around, and between for the input's gradient, are not stored; the input is a part of a larger tensor."""

    def f(m: Any, x: Any, w: Any) -> Any:
        x = x[1:, 2:].requires_grad_()
        w = w.requires_grad_()
        y = m.nn.functional.conv2d(x, w, None, stride, padding, dilation)
        gx, gw = m.autograd.grad((y * y).sum(), (x, w))
        return m.cat([y.flatten(), gx.flatten(), gw.flatten()]).detach()

    agree(f, draw(3, 18, 9, 7), draw(16, 16, 3, 3) / 8, rtol=1e-4, atol=1e-3)
