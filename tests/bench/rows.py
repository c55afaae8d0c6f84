"""What is timed: a row has a name and a function that makes a step, which is called again and again and whose result is kept.

Plain PyTorch, for both libraries: `torch` is the module, `device` where the work is. Inputs are made on the CPU with seeds, so
that they are the same in both and results can be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bench import models

Step = Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """`work`: floating-point operations (unit "TFLOP/s") or bytes (unit "TB/s") of a step of these sizes, where that is a measure."""

    name: str
    group: str
    make: Callable[..., Step]
    sizes: dict[str, Any] = field(default_factory=dict)
    small: dict[str, Any] = field(default_factory=dict)
    work: Callable[..., float] | None = None
    unit: str = ""


ROWS: dict[str, Row] = {}


def row(
    name: str, group: str, *, small: dict[str, Any] | None = None, work: Any = None, unit: str = "", **sizes: Any
) -> Any:
    """Adds a row; `small`: other sizes for an adapter that is software."""

    def add(make: Any) -> Any:
        ROWS[name] = Row(name, group, make, sizes, sizes | (small or {}), work, unit)
        return make

    return add


# ---- training steps and models


def _classifier(torch: Any, device: str, model: Any, batch: int, shape: tuple[int, ...], classes: int = 10) -> Step:
    F = torch.nn.functional
    torch.manual_seed(0)
    model = model(torch).to(device)
    x, y = torch.rand(batch, *shape).to(device), torch.randint(0, classes, (batch,)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step() -> Any:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@row("MLP step", "steps", batch=128, small={"batch": 32})
@row("MLP step, compiled", "steps", batch=128, compiled=True, small={"batch": 32})
def mlp(torch: Any, device: str, batch: int, compiled: bool = False) -> Step:
    step = _classifier(torch, device, models.perceptron, batch, (784,))
    return _compiled(torch, step) if compiled else step


@row("CNN step", "steps", batch=64, small={"batch": 4})
@row("CNN step, compiled", "steps", batch=64, compiled=True, small={"batch": 4})
def cnn(torch: Any, device: str, batch: int, compiled: bool = False) -> Step:
    step = _classifier(torch, device, models.convolutions, batch, (1, 28, 28))
    return _compiled(torch, step) if compiled else step


def _compiled(torch: Any, step: Step) -> Step:
    """At its best: native PyTorch with graphs of kernels where it can."""
    if torch.__name__ == "tabtorch" or not torch.cuda.is_available():
        return torch.compile(step)  # type: ignore[no-any-return]
    return torch.compile(step, mode="reduce-overhead")  # type: ignore[no-any-return]


_TINY = {"layers": 2, "heads": 2, "width": 32, "context": 16, "batch": 2}


@row("GPT 4/4/128/64/12 step", "steps", layers=4, heads=4, width=128, context=64, batch=12, small=_TINY)
@row(
    "GPT 4/4/128/64/12 step, compiled",
    "steps",
    layers=4,
    heads=4,
    width=128,
    context=64,
    batch=12,
    compiled=True,
    small=_TINY,
)
@row("GPT 6/6/384/256/64 step", "steps", layers=6, heads=6, width=384, context=256, batch=64, small=_TINY)
@row(
    "GPT 6/6/384/256/64 step, compiled",
    "steps",
    layers=6,
    heads=6,
    width=384,
    context=256,
    batch=64,
    compiled=True,
    small=_TINY,
)
@row(
    "GPT-2 124M step 4x512",
    "steps",
    layers=12,
    heads=12,
    width=768,
    context=512,
    batch=4,
    vocabulary=50257,
    small={**_TINY, "vocabulary": 65},
)
def gpt_step(
    torch: Any,
    device: str,
    layers: int,
    heads: int,
    width: int,
    context: int,
    batch: int,
    vocabulary: int = 65,
    compiled: bool = False,
) -> Step:
    F = torch.nn.functional
    torch.manual_seed(0)
    model = models.gpt(torch, layers, heads, width, context, vocabulary).to(device)
    ids = torch.randint(0, vocabulary, (batch, context + 1)).to(device)
    x, y = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> Any:
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return _compiled(torch, step) if compiled else step


@row("ResNet-18 step 32x224", "steps", batch=32, side=224, small={"batch": 1, "side": 32})
def resnet_step(torch: Any, device: str, batch: int, side: int) -> Step:
    return _classifier(torch, device, models.resnet18, batch, (3, side, side), 1000)


@row("ResNet-18 forward 1x224", "steps", batch=1, side=224, small={"batch": 1, "side": 32})
@row("ResNet-18 forward 32x224", "steps", batch=32, side=224, small={"batch": 1, "side": 32})
def resnet_forward(torch: Any, device: str, batch: int, side: int) -> Step:
    torch.manual_seed(0)
    model = models.resnet18(torch).to(device).eval()
    x = torch.rand(batch, 3, side, side).to(device)

    def step() -> Any:
        with torch.no_grad():
            return model(x)

    return step


_GPT2 = {"layers": 12, "heads": 12, "width": 768, "context": 1024, "vocabulary": 50257}
_TINY2 = {"layers": 2, "heads": 2, "width": 32, "context": 64, "vocabulary": 65}


@row("GPT-2 124M prefill 512", "steps", **_GPT2, length=512, small={**_TINY2, "length": 16})
def prefill(torch: Any, device: str, length: int, vocabulary: int, **sizes: Any) -> Step:
    torch.manual_seed(0)
    model = models.gpt(torch, vocabulary=vocabulary, **sizes).to(device).eval()
    ids = torch.randint(0, vocabulary, (1, length)).to(device)

    def step() -> Any:
        with torch.no_grad():
            return model(ids)[:, -1]

    return step


@row("GPT-2 124M decode, a token", "steps", **_GPT2, length=128, small={**_TINY2, "length": 16})
@row(
    "GPT-2 124M decode, a token, compiled",
    "steps",
    **_GPT2,
    length=128,
    compiled=True,
    small={**_TINY2, "length": 16},
)
def decode(
    torch: Any,
    device: str,
    layers: int,
    heads: int,
    width: int,
    context: int,
    vocabulary: int,
    length: int,
    compiled: bool = False,
) -> Step:
    """A token after `length` others, with a cache of keys and values; the same place each time."""
    torch.manual_seed(0)
    model = models.gpt(torch, layers, heads, width, context, vocabulary).to(device).eval()
    caches = [[torch.zeros(1, heads, context, width // heads).to(device) for _ in range(2)] for _ in range(layers)]
    ids = torch.randint(0, vocabulary, (1, length + 1)).to(device)
    last = ids[:, -1:].contiguous()
    with torch.no_grad():
        model(ids[:, :-1], caches)

    def step() -> Any:
        with torch.no_grad():
            return model(last, caches, length)[:, -1].argmax(-1)

    return _compiled(torch, step) if compiled else step


# ---- kernels


def _random(torch: Any, device: str, *shape: int, grad: bool = False) -> Any:
    """Numbers around 0: of a large tensor the same million again and again."""
    n = 1
    for s in shape:
        n *= s
    torch.manual_seed(0)
    x = torch.randn(min(n, 1 << 20)).to(device)
    if n > x.numel():
        x = x.repeat(-(-n // x.numel()))[:n]
    x = x.view(shape).clone()
    return x.requires_grad_(grad)


def _forward_backward(torch: Any, f: Callable[[], Any], leaves: list[Any]) -> Step:
    grad = None

    def step() -> Any:
        nonlocal grad
        y = f()
        if grad is None:
            grad = torch.ones_like(y)
        return torch.autograd.grad(y, leaves, grad)

    return step


def _flops(b: int = 1, m: int = 0, k: int = 0, n: int = 0, **_: Any) -> float:
    return 2.0 * b * m * k * n


_MM = {"work": _flops, "unit": "TFLOP/s", "small": {"m": 64, "k": 64, "n": 64}}


@row("matmul 1024", "kernels", m=1024, k=1024, n=1024, **_MM)
@row("matmul 2048", "kernels", m=2048, k=2048, n=2048, **_MM)
@row("matmul 4096", "kernels", m=4096, k=4096, n=4096, **_MM)
@row("matmul 16384x384x1536", "kernels", m=16384, k=384, n=1536, **_MM)
@row("matmul AT B 384x16384x1536", "kernels", m=384, k=16384, n=1536, transposed=True, **_MM)
@row(
    "bmm 384 x 256x64x256",
    "kernels",
    b=384,
    m=256,
    k=64,
    n=256,
    work=_flops,
    unit="TFLOP/s",
    small={"b": 4, "m": 32, "k": 16, "n": 32},
)
@row("matvec 1x4096x4096", "kernels", m=1, k=4096, n=4096, weight=True, small={"k": 128, "n": 128})
@row("matvec 16x4096x4096", "kernels", m=16, k=4096, n=4096, weight=True, small={"k": 128, "n": 128})
def matmul(
    torch: Any, device: str, m: int, k: int, n: int, b: int = 0, transposed: bool = False, weight: bool = False
) -> Step:
    batch = (b,) if b else ()
    x = _random(torch, device, *batch, *((k, m) if transposed else (m, k)))
    y = _random(torch, device, *batch, *((n, k) if weight else (k, n)))
    x = x.mT if transposed else x
    y = y.mT if weight else y
    return lambda: x @ y


def _bytes(times: int) -> Any:
    return lambda n=0, rows=1, **_: 4.0 * times * n * rows


@row("x * 2, 64 M", "kernels", n=1 << 26, small={"n": 1 << 16}, work=_bytes(2), unit="TB/s")
def double(torch: Any, device: str, n: int) -> Step:
    x = _random(torch, device, n)
    return lambda: x * 2


@row("tanh(x * 2 + 1) * x, 64 M", "kernels", n=1 << 26, small={"n": 1 << 16}, work=_bytes(2), unit="TB/s")
def chain(torch: Any, device: str, n: int) -> Step:
    x = _random(torch, device, n)
    return lambda: torch.tanh(x * 2 + 1) * x


@row("sum, 64 M", "kernels", n=1 << 26, small={"n": 1 << 16}, work=_bytes(1), unit="TB/s")
def total(torch: Any, device: str, n: int) -> Step:
    x = _random(torch, device, n)
    return lambda: x.sum()


@row(
    "sum of columns 4096x16384",
    "kernels",
    rows=4096,
    n=16384,
    small={"rows": 64, "n": 256},
    work=_bytes(1),
    unit="TB/s",
)
def columns(torch: Any, device: str, rows: int, n: int) -> Step:
    x = _random(torch, device, rows, n)
    return lambda: x.sum(0)


@row("softmax 8192x768", "kernels", rows=8192, n=768, small={"rows": 64}, work=_bytes(2), unit="TB/s")
@row("softmax 8192x768 and backward", "kernels", rows=8192, n=768, grad=True, small={"rows": 64})
def softmax(torch: Any, device: str, rows: int, n: int, grad: bool = False) -> Step:
    x = _random(torch, device, rows, n, grad=grad)
    f = lambda: torch.softmax(x, -1)  # noqa: E731
    return _forward_backward(torch, f, [x]) if grad else f


@row("layer_norm 8192x768", "kernels", rows=8192, n=768, small={"rows": 64}, work=_bytes(2), unit="TB/s")
@row("layer_norm 8192x768 and backward", "kernels", rows=8192, n=768, grad=True, small={"rows": 64})
def layer_norm(torch: Any, device: str, rows: int, n: int, grad: bool = False) -> Step:
    x, w, b = (
        _random(torch, device, rows, n, grad=grad),
        _random(torch, device, n, grad=grad),
        _random(torch, device, n, grad=grad),
    )
    f = lambda: torch.nn.functional.layer_norm(x, (n,), w, b)  # noqa: E731
    return _forward_backward(torch, f, [x, w, b]) if grad else f


@row("cross_entropy 4096x32000 and backward", "kernels", rows=4096, n=32000, small={"rows": 32, "n": 1000})
def cross_entropy(torch: Any, device: str, rows: int, n: int) -> Step:
    x = _random(torch, device, rows, n, grad=True)
    y = torch.randint(0, n, (rows,)).to(device)
    return _forward_backward(torch, lambda: torch.nn.functional.cross_entropy(x, y), [x])


_CONV_SMALL = {"batch": 1, "channels": 8, "side": 14, "out": 8}


@row("conv 3x3 8x64x56", "kernels", batch=8, channels=64, side=56, out=64, size=3, small=_CONV_SMALL)
@row(
    "conv 3x3 8x64x56 and backward",
    "kernels",
    batch=8,
    channels=64,
    side=56,
    out=64,
    size=3,
    grad=True,
    small=_CONV_SMALL,
)
@row("conv 3x3 32x256x14", "kernels", batch=32, channels=256, side=14, out=256, size=3, small=_CONV_SMALL)
@row("conv 1x1 32x256x14 to 1024", "kernels", batch=32, channels=256, side=14, out=1024, size=1, small=_CONV_SMALL)
@row(
    "conv 7x7 s2 32x3x224",
    "kernels",
    batch=32,
    channels=3,
    side=224,
    out=64,
    size=7,
    stride=2,
    small={**_CONV_SMALL, "channels": 3},
)
@row(
    "conv depthwise 3x3 32x256x28",
    "kernels",
    batch=32,
    channels=256,
    side=28,
    out=256,
    size=3,
    groups=256,
    small={**_CONV_SMALL, "groups": 8},
)
def convolution(
    torch: Any,
    device: str,
    batch: int,
    channels: int,
    side: int,
    out: int,
    size: int,
    stride: int = 1,
    groups: int = 1,
    grad: bool = False,
) -> Step:
    x = _random(torch, device, batch, channels, side, side, grad=grad)
    w = _random(torch, device, out, channels // groups, size, size, grad=grad)
    f = lambda: torch.nn.functional.conv2d(x, w, None, stride, size // 2, 1, groups)  # noqa: E731
    return _forward_backward(torch, f, [x, w]) if grad else f


@row(
    "attention 8x12x1024x64",
    "kernels",
    batch=8,
    heads=12,
    length=1024,
    width=64,
    small={"batch": 1, "heads": 2, "length": 64, "width": 16},
)
@row(
    "attention 8x12x1024x64 and backward",
    "kernels",
    batch=8,
    heads=12,
    length=1024,
    width=64,
    grad=True,
    small={"batch": 1, "heads": 2, "length": 64, "width": 16},
)
def attention(torch: Any, device: str, batch: int, heads: int, length: int, width: int, grad: bool = False) -> Step:
    q, k, v = (_random(torch, device, batch, heads, length, width, grad=grad) for _ in range(3))
    f = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)  # noqa: E731
    return _forward_backward(torch, f, [q, k, v]) if grad else f


@row("cumsum, 16 M", "kernels", n=1 << 24, small={"n": 1 << 14}, work=_bytes(2), unit="TB/s")
def cumsum(torch: Any, device: str, n: int) -> Step:
    x = _random(torch, device, n)
    return lambda: x.cumsum(0)


@row("sort, 1 M", "kernels", n=1 << 20, small={"n": 1 << 12})
def sort(torch: Any, device: str, n: int) -> Step:
    x = _random(torch, device, n)
    return lambda: torch.sort(x).values


@row("topk 50 of 64x50257", "kernels", rows=64, n=50257, small={"rows": 2, "n": 5000})
def topk(torch: Any, device: str, rows: int, n: int) -> Step:
    x = _random(torch, device, rows, n)
    return lambda: torch.topk(x, 50).values


@row(
    "embedding 50257x768 of 8192 and backward",
    "kernels",
    rows=50257,
    width=768,
    n=8192,
    small={"rows": 500, "width": 32, "n": 64},
)
def embedding(torch: Any, device: str, rows: int, width: int, n: int) -> Step:
    w = _random(torch, device, rows, width, grad=True)
    ids = torch.randint(0, rows, (n,)).to(device)
    return _forward_backward(torch, lambda: torch.nn.functional.embedding(ids, w), [w])


@row("AdamW, 124 M in 118 tensors", "kernels", elements=124_000_000, tensors=118, small={"elements": 118_000})
def adamw(torch: Any, device: str, elements: int, tensors: int) -> Step:
    n = elements // tensors
    ps = [torch.nn.Parameter(_random(torch, device, n)) for _ in range(tensors)]
    for p in ps:
        p.grad = torch.ones_like(p)
    optimizer = torch.optim.AdamW(ps, lr=1e-3)

    def step() -> Any:
        optimizer.step()
        return ps[0].detach()

    return step


@row("transpose copy 8192", "kernels", n=8192, small={"n": 128}, work=lambda n: 8.0 * n * n, unit="TB/s")
def transpose(torch: Any, device: str, n: int) -> Step:
    x = _random(torch, device, n, n)
    return lambda: x.t().contiguous()


@row(".item() of a sum of 64", "waiting")
def item(torch: Any, device: str) -> Step:
    x = _random(torch, device, 64)
    return lambda: (x + 1).sum().item()
