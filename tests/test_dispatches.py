"""How many dispatches a GPU gets for what is common, with 10 and with 16 storage buffers a kernel. Plans are made for a made-up GPU, and
nothing is sent: so no memory is needed, and sizes are real ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

import tabtorch as torch
from tabtorch import nn
from tabtorch.bridge import close, get_bridge
from tabtorch.engine import builder, graph, plan, schedules
from tabtorch.engine.steps import Dispatch
from tabtorch.engine.target import target
from tabtorch.nn import functional as F

pytestmark = pytest.mark.usefixtures("webgpu", "whole_windows")


@pytest.fixture(autouse=True, scope="module")
def runtime_of_its_own() -> Iterator[None]:
    """What was planned here is for another GPU than the one that is there, and its buffers were never made."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that generators start again
        close()


@pytest.fixture(params=[10, 16], ids=["10 buffers", "16 buffers"])
def sent(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The labels of the dispatches that would be sent."""
    graph.flush()
    labels: list[str] = []
    t = target(0)
    for name, value in (("software", False), ("barriers", True), ("buffers", request.param)):
        monkeypatch.setattr(t, name, value)
    monkeypatch.setattr(graph, "_plans", {})
    monkeypatch.setattr(schedules, "_families", {})  # those that are known may be of the other form
    monkeypatch.setattr(get_bridge(), "portion", float("inf"))
    numbers = count(1)
    monkeypatch.setattr(builder, "_kernels", {})
    for name in ("define_kernel", "define_plan", "bind_plan"):  # nor compiled
        monkeypatch.setattr(get_bridge(), name, lambda *args: next(numbers))
    monkeypatch.setattr(get_bridge(), "forget_plans", lambda ids: None)

    def send(self: plan.Plan, ids: list[int], scalars: list[Any]) -> None:
        labels.extend(s.label for s in self.steps if type(s) is Dispatch)

    monkeypatch.setattr(plan.Plan, "send", send)
    yield labels
    graph.flush()


def values(*shape: int) -> Any:
    x = torch.ones(shape)
    graph.flush()
    return x


def dispatches(sent: list[str], f: Callable[[], Any], calls: int = 1) -> int:
    """Those of the last call."""
    for _ in range(calls):
        graph.flush()
        sent.clear()
        kept = f()
        graph.flush()
    assert kept is not None
    return len(sent)


@pytest.mark.parametrize(
    ("name", "f", "most"),
    [
        ("a mean loss", lambda x: F.mse_loss(x, x * 0.5), 2),
        ("a chain and its sum", lambda x: (x * 2 + 1).relu().sum(), 2),
        ("a chain and the sums of its columns", lambda x: (x * 2 + 1).sum(0), 2),
        ("a chain and a product, whose sums are in parts", lambda x: (x * 2 + 1).relu() @ x, 2),
        ("two sums of the same columns", lambda x: (x.sum(0), (x * x).sum(0)), 2),
        ("sums of columns of three values", lambda x: (x.sum(0), x[:, :500].sum(0), x[:, 500:].amax(0)), 2),
        ("softmax of one row", lambda x: F.softmax(x.view(1, -1), -1), 3),
        ("layer_norm of one row", lambda x: F.layer_norm(x.view(1, -1), (1_000_000,)), 3),
    ],
)
def test_long_reductions(sent: list[str], name: str, f: Callable[[Any], Any], most: int) -> None:
    x = values(1000, 1000)
    assert dispatches(sent, lambda: f(x)) <= most, (name, sent)


def test_layer_norm_and_its_gradients(sent: list[str]) -> None:
    x, w, b = (values(*s).requires_grad_() for s in ((8192, 768), (768,), (768,)))
    g = values(8192, 768)

    def f() -> Any:
        y = F.layer_norm(x, (768,), w, b)
        return y, torch.autograd.grad(y, (x, w, b), g)

    assert dispatches(sent, f) <= 3, sent


@pytest.mark.parametrize("shape", [(64, 10), (4096, 32_000)])
def test_cross_entropy_and_its_gradient(sent: list[str], shape: tuple[int, int]) -> None:
    """The large one is 500 MB: nothing but its gradient is stored in that size, and it is no reason to cut."""
    x, y = values(*shape).requires_grad_(), torch.zeros(shape[0], dtype=torch.long)

    def f() -> Any:
        loss = F.cross_entropy(x, y)
        return loss, torch.autograd.grad(loss, (x,))

    assert dispatches(sent, f, 2) <= 3, sent


def test_a_transposed_convolution_and_what_follows(sent: list[str]) -> None:
    """The gradient in its frame, the product of all phases, and the map that puts them between each other. There are results
    enough that the product's sums are not cut into parts, which are one launch more."""
    x, w, b = values(32, 256, 16, 16), values(256, 128, 4, 4), values(128)
    assert dispatches(sent, lambda: F.conv_transpose2d(x, w, b, 2, 1).relu()) <= 3, sent


@pytest.mark.parametrize(("rows", "n", "k", "most"), [(64, 50_257, 50, 3), (2, 50_257, 255, 4), (4096, 2048, 5, 2)])
def test_few_of_long_rows(sent: list[str], rows: int, n: int, k: int, most: int) -> None:
    """Blocks keep their first elements alone; nothing is merged."""
    x = values(rows, n)
    sent.clear()
    found = torch.topk(x, k)
    graph.flush()
    assert len(sent) <= most, sent
    assert "merge" not in sent
    del found


def test_equal_nodes_are_computed_once(sent: list[str]) -> None:
    a, b = values(300, 200), values(200, 100)

    def f() -> Any:
        return [(a @ b).t().contiguous() + i for i in range(4)]

    assert sum("matmul" in s for s in (dispatches(sent, f), sent)[1]) <= 2, sent  # one, and the sum of its parts


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        n, t, width = x.shape
        q, k, v = (
            z.view(n, t, self.heads, width // self.heads).transpose(1, 2)
            for z in self.qkv(self.norm1(x)).split(width, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, width)
        x = x + self.proj(y)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, layers: int, heads: int, width: int, length: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(65, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 65, bias=False)

    def forward(self, i: Any) -> Any:
        return self.head(self.norm(self.blocks(self.tokens(i) + self.places(torch.arange(i.shape[1])))))


class Perceptron(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        self.norm, self.out = nn.BatchNorm2d(16), nn.Linear(32 * 49, 10)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(F.relu(self.norm(self.conv1(x))), 2)
        return self.out(F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1))


class Residual(nn.Module):
    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.past: nn.Module = nn.Identity()
        if stride > 1:
            self.past = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Any) -> Any:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.past(x))


def resnet18() -> nn.Module:
    widths = [64, 64, 64, 128, 128, 256, 256, 512, 512]
    blocks = [Residual(a, b, 1 if a == b else 2) for a, b in zip(widths, widths[1:])]
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=1e-2, momentum=0.9)


def adamw(parameters: Any) -> Any:
    return torch.optim.AdamW(parameters, lr=1e-3)


def test_a_batch_of_many_images_fits_a_grid(sent: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is folded into the columns of a product, as far as a grid has workgroups: 65535 in each direction."""
    grids: list[Any] = []

    def send(self: plan.Plan, ids: list[int], scalars: list[Any]) -> None:
        grids.extend(s.grid for s in self.steps if type(s) is Dispatch and "matmul" in s.label)

    monkeypatch.setattr(plan.Plan, "send", send)
    for images in (8, 8200):
        found = F.conv2d(torch.ones(images, 4, 32, 32), torch.ones(16, 4, 1, 1))
        graph.flush()
        del found
    assert len(grids) == 2 and max(map(max, grids)) <= 65535, grids
    assert grids[0][2] == 1, "folded"


# most bytes: of native PyTorch on CUDA, and a tenth more
@pytest.mark.parametrize(
    ("model", "optim", "shape", "labels", "most", "most_bytes"),
    [
        (Perceptron, adamw, (128, 784), (128,), 12, None),
        (Convolutional, adamw, (64, 1, 28, 28), (64,), 20, None),
        (lambda: GPT(4, 4, 128, 64), adamw, (12, 64), (12, 64), 120, None),
        (lambda: GPT(6, 6, 384, 256), adamw, (64, 256), (64, 256), 170, 2_831e6 * 1.1),
        (resnet18, sgd, (32, 3, 224, 224), (32,), 240, 986e6 * 1.1),
    ],
    ids=["perceptron", "convolutional", "gpt", "larger gpt", "resnet18"],
)
def test_compiled_training_steps(
    sent: list[str],
    model: Callable[[], Any],
    optim: Callable[[Any], Any],
    shape: tuple[int, ...],
    labels: tuple[int, ...],
    most: int,
    most_bytes: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    m = model()
    optimizer = optim(m.parameters())
    x = torch.zeros(shape, dtype=torch.long) if isinstance(m, GPT) else torch.ones(shape)
    y = torch.zeros(labels, dtype=torch.long)

    @torch.compile
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(m(x).flatten(0, -2), y.flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    plans: list[Any] = []
    send_first = plan.Plan.send

    def send(self: plan.Plan, ids: list[int], scalars: list[Any]) -> None:
        plans.append(self)
        send_first(self, ids, scalars)

    monkeypatch.setattr(plan.Plan, "send", send)
    assert dispatches(sent, lambda: step(x, y), 7) <= most, sent
    if most_bytes is not None:
        kept = [t for p in m.parameters() for t in (p, p.grad, *optimizer.state[p].values()) if t is not None]
        outside = sum(t.numel() * t.element_size() for t in (*kept, x))
        assert outside + sum(plans[-1].temps) <= most_bytes, (outside, plans[-1].temps)
