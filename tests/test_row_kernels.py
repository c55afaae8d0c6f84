"""Rows that are held in registers, several elements at once, and states joined in two steps: the forms that GPUs get, given
here to a software adapter, beside PyTorch's results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import tabtorch
from sidebyside import to_tab
from tabtorch.bridge import get_bridge
from tabtorch.engine import builder, graph, row_registers, schedules
from tabtorch.engine.target import target


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Short rows are walked by several threads however few they are."""
    graph.flush()
    t = target(0)
    with monkeypatch.context() as patch:
        for name, value in (("software", False), ("barriers", True), ("invocations", 256)):
            patch.setattr(t, name, value)
        patch.setattr(graph, "_plans", {})
        patch.setattr(row_registers, "_FEW", 0)
        schedules.forget()
        yield
        graph.flush()
    schedules.forget()


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The text of kernels as they are made."""
    texts: list[str] = []
    bridge = get_bridge()
    define = bridge.define_kernel

    def defined(spec: dict[str, Any]) -> int:
        texts.append(spec["source"])
        return define(spec)

    monkeypatch.setattr(bridge, "define_kernel", defined)
    monkeypatch.setattr("tabtorch.engine.builder._kernels", {})
    return texts


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def agree(f: Callable[..., Any], *xs: torch.Tensor) -> None:
    want = f(torch, *xs)
    got = f(tabtorch, *(to_tab(x, "webgpu") for x in xs))
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(torch.from_numpy(g.numpy()), w, rtol=1e-5, atol=1e-5, equal_nan=True)


def several(m: Any, x: Any) -> tuple[Any, ...]:
    """Of one or more passes, with all levels of values stored, and reductions of several kinds in one pass."""
    centred = x - x.mean(1, keepdim=True)
    return (
        m.softmax(x, 1),
        centred * m.rsqrt(centred.square().mean(1, keepdim=True) + 1e-5),
        x.max(1).values,
        x.argmin(1),
        (x > 0).sum(1),
        centred > 0.25,
        m.logsumexp(x, 1),
    )


#: the shortest and the longest row of each form, and what has none
LENGTHS = [3, 9, 16, 17, 33, 64, 65, 97, 128, 129, 193, 256, 385, 700, 1000, 1025, 1537, 2049, 4096, 4097]


@pytest.mark.parametrize("length", LENGTHS)
def test_rows_of_every_form(length: int) -> None:
    agree(several, draw(5 if length > 200 else 11, length))


@pytest.mark.parametrize("length", [10, 100, 200])
def test_gradients(length: int) -> None:
    def f(m: Any, x: Any, w: Any, g: Any) -> tuple[Any, ...]:
        x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
        y = m.nn.functional.layer_norm(x, (length,), w).softmax(1)
        return m.autograd.grad(y, (x, w), g)

    agree(f, draw(9, length), draw(length), draw(9, length))


@pytest.mark.parametrize("length", [40, 300])
def test_what_is_no_number_stays_in_its_row(length: int) -> None:
    x = draw(7, length)
    x[1, length - 1] = torch.nan
    x[2, 0] = torch.inf
    x[3] = -torch.inf
    x[4, -1] = -torch.inf
    agree(lambda m, x: (m.softmax(x, 1), x.max(1).values, x.sum(1), x.amin(1)), x)


@pytest.mark.parametrize("length", [40, 300])
def test_ties_go_to_the_first(length: int) -> None:
    x = torch.arange(length).remainder(7).float().expand(9, length).contiguous()
    agree(lambda _, x: (x.argmax(1), x.argmin(1), x.max(1).indices), x)


@pytest.mark.parametrize("length", [20, 300])
def test_other_types(length: int) -> None:
    whole = torch.arange(3 * length).reshape(3, length) * 1_000_000_007
    agree(lambda _, x: (x.sum(1), x.amax(1), x - x.amin(1, keepdim=True)), whole)
    agree(lambda _, x: (x.sum(1), x - x.mean(1, keepdim=True)), torch.complex(draw(4, length), draw(4, length)))
    agree(lambda _, x: (x.any(1), x.all(1), x ^ x.any(1, keepdim=True)), draw(6, length) > 2)
    agree(lambda _, x: (x.amax(1), x - x.amax(1, keepdim=True)), draw(6, length).half())


def test_a_row_that_is_written_in_place() -> None:
    def f(m: Any, x: Any) -> tuple[Any, ...]:
        y = x + 1
        y.sub_(y.mean(1, keepdim=True))
        y.div_(y.abs().amax(1, keepdim=True))
        return (y, y.square().sum(1) / 100)

    agree(f, draw(6, 77))
    agree(f, draw(6, 500))


def test_one_value_for_all_elements() -> None:
    """Each joins the state, though all of them have one name."""
    agree(lambda m, x: ((x[:, :1].expand(5, 200) * 2).sum(1), (x[:, :1].expand(5, 50) * 2).sum(1)), draw(5, 7))


@pytest.mark.parametrize("shape", [(300, 40), (70, 3), (523, 5)])
def test_columns(shape: tuple[int, int]) -> None:
    agree(lambda _, x: (x.sum(0), x.amax(0), x.argmax(0), x.var(0)), draw(*shape))


def test_nothing_is_read_twice(sources: list[str]) -> None:
    """A softmax of 500 elements: 4 loads of 4 elements, and 16 exponentials, of each of 32 threads; a barrier for each of its
    reductions, where a subgroup has fewer threads than that."""
    x = to_tab(draw(200, 500), "webgpu")
    graph.flush()
    sources.clear()
    y = tabtorch.softmax(x, 1)
    graph.flush()
    (text,) = sources
    body = text[text.index("fn main") :]
    assert body.count("tt_exp_f32(") == 16
    assert body.count("= b0[") == body.count(">> 2u] = vec4<f32>(") == 4
    assert body.count("workgroupBarrier") == body.count("if (sgs < 32u)") == 2
    assert y.shape == (200, 500)


def test_few_rows_have_more_threads(sources: list[str]) -> None:
    """Of 500 elements a thread has four, not sixteen: what counts is how long one row takes."""
    x = draw(4, 500)
    y = to_tab(x, "webgpu")
    graph.flush()
    sources.clear()
    found = tabtorch.softmax(y, 1)
    graph.flush()
    (text,) = sources
    assert "workgroup_size(128, 1, 1)" in text
    assert text[text.index("fn main") :].count("tt_exp_f32(") == 4
    torch.testing.assert_close(torch.from_numpy(found.numpy()), x.softmax(1))


def test_reductions_of_a_pass_share_barriers(sources: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for subgroups, barriers in ((True, 1), (False, 2)):
        monkeypatch.setattr(target(0), "subgroups", subgroups)
        schedules.forget()
        monkeypatch.setattr(graph, "_plans", {})
        x = to_tab(draw(4, 700), "webgpu")
        graph.flush()
        sources.clear()
        y = x * 2
        kept = y.sum(1), y.amax(1), y.argmax(1)
        graph.flush()
        (text,) = sources
        assert text.count("workgroupBarrier") == barriers
        assert len(kept) == 3


@pytest.mark.parametrize(
    "lengths", [(1032, 1100, 1300, 1536, 1540), (1030, 1101, 1303, 1535, 1537)], ids=["by four", "others"]
)
def test_lengths_of_one_form_share_a_schedule(sources: list[str], lengths: tuple[int, ...]) -> None:
    """Multiples of 4 are of one form, others of another."""
    made = []
    for length in lengths:
        kept = tabtorch.softmax(to_tab(draw(130, length), "webgpu"), 1)
        graph.flush()
        made.append(len(sources))
        assert kept.shape == (130, length)
    assert made[0] == made[3] < made[4]


def _of_a_sum(sources: list[str], x: torch.Tensor, of: Callable[[Any], Any]) -> str:
    """The text of the kernel that reads `x`."""
    y = of(to_tab(x, "webgpu"))
    graph.flush()
    for known in (sources, graph._plans, builder._kernels):
        known.clear()
    schedules.forget()
    kept = y.sum(-1)
    graph.flush()
    assert torch.allclose(torch.from_numpy(kept.numpy()), of(x).sum(-1), rtol=1e-4, atol=1e-3)
    return sources[0]


def test_vectors_are_read_where_they_lie_in_memory(sources: list[str]) -> None:
    """Of what is a multiple of 4: lengths, strides; nothing that begins elsewhere than its memory, for where is not known."""
    x = draw(5, 612)
    for of, vectors in (
        (lambda x: x, True),
        (lambda x: x[:, :608], True),
        (lambda x: x[:, :607], False),
        (lambda x: x[:, 4:], False),
        (lambda x: x[1:], False),
        (lambda x: x[::2], True),
        (lambda x: x.expand(2, 5, 612), True),
        (lambda x: x.view(5, 4, 153).transpose(0, 1), False),
        (lambda x: x.view(5, 3, 204).transpose(0, 1), True),
    ):
        assert ("array<vec4<f32>>" in _of_a_sum(sources, x, of)) == vectors
    assert "array<vec4<f32>>" not in _of_a_sum(sources, draw(5, 611), lambda x: x)


def test_long_sums_and_columns_are_read_in_vectors(sources: list[str]) -> None:
    for x, of in ((draw(40_000), lambda x: x), (draw(300, 264), lambda x: x.t())):
        text = _of_a_sum(sources, x, of)
        assert "array<vec4<f32>>" in text
        assert "counts" not in text  # none has to be asked whether it is an element


def test_halves_are_written_a_word_at_a_time(sources: list[str]) -> None:
    x = to_tab(draw(6, 300).half(), "webgpu")
    graph.flush()
    sources.clear()
    y = x - x.amax(1, keepdim=True)
    graph.flush()
    (text,) = sources
    assert "atomic" not in text
    assert y.shape == (6, 300)


def test_a_kernel_whose_text_would_be_long_goes_over_the_row_again(
    sources: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_registers, "_MOST", 0)
    agree(several, draw(5, 300))
    assert any("for (; kb" in s for s in sources)


def test_long_text_is_shared_by_more_threads(sources: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_registers, "_MOST", 12)
    agree(lambda m, x: (m.softmax(x, 1),), draw(5, 400))
    (text,) = [s for s in sources if "tt_exp_f32" in s]
    assert "workgroup_size(256, 1, 1)" in text
    assert text[text.index("fn main") :].count("tt_exp_f32(") == 2
