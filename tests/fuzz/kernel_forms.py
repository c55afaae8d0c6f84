"""The forms that kernels have on a GPU: programs that lead to each, and which forms a plan has."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from tabtorch.bridge import get_bridge
from tabtorch.engine import builder, graph, plan, repeats, row_chunks, row_kernel, row_registers, row_windows, tiles
from tabtorch.ops.fourier import fft_kernels
from tabtorch.ops.neural import attention_kernels
from tabtorch.ops.reductions import scan_kernel, sort_kernel


class Theme(NamedTuple):
    """What leads to a form: the dims of the input `a`, and lines of which `several` are in a program. n: its last dim, one: a dim."""

    dims: Callable[[random.Random], list[int]]
    lines: tuple[str, ...]
    several: int = 1


def _shaped(*choices: tuple[int, ...]) -> Callable[[random.Random], list[int]]:
    return lambda r: [r.choice(c) for c in choices]


_ALONG = (
    "{a}.softmax(-1)",
    "{a}.sum(-1)",
    "F.layer_norm({a}, [{n}])",
    "({a} - {a}.mean(-1, keepdim=True))",
    "{a}.var(-1, correction=0)",
    "{a}.amax(-1)",
    "({a} > {a}.mean(-1, keepdim=True))",
)
_DOWN = tuple(x.replace("-1", "0") for x in _ALONG if "layer_norm" not in x)
_HEADS = "{a}.reshape(1, 2, -1, 16)"
_GRADIENT = "torch.autograd.grad((lambda q, k, v: {f})(*x).sin().sum(), x)[{i}]"
_ATTEND = "F.scaled_dot_product_attention(q, k, v, is_causal={causal})"
_ATTENTION = tuple(
    f"(lambda q, k, v: {_ATTEND.format(causal=causal)})({_HEADS}, {_HEADS}.flip(2), {_HEADS}.sin())"
    for causal in (False, True)
)
_ATTENTION_GRADIENT = tuple(
    f"(lambda *x: {_GRADIENT.format(f=_ATTEND.format(causal=causal), i=i)})"
    f"(*[t.detach().requires_grad_() for t in ({_HEADS}, {_HEADS}.flip(2), {_HEADS}.sin())])"
    for causal in (False, True)
    for i in range(3)
) + tuple(
    f"(lambda *x: torch.autograd.grad(F.scaled_dot_product_attention(*x).sin().sum(), x)[{i}])"
    f"(*[t.detach().requires_grad_() for t in ({_HEADS}, {_HEADS}.flip(2), {_HEADS}.sin(), {_HEADS}[..., :1]{turned})])"
    for i, turned in ((1, ".mT"), (3, ".mT"), (3, "[:, :1]"))
)

#: form -> how to get there; first those that a software adapter compiles soonest
THEMES = {
    "shared launches": Theme(
        _shaped((20, 33), (40, 64)),
        ("{a}.sum(0)", "({a} * 2).amax(1)", "{a}[:7].exp()", "{a}[:, :5].mean(0)", "{a}[3:] + 1", "{a}[1].var(0)"),
        4,
    ),
    "columns": Theme(_shaped((16, 33, 130, 250), (9, 33, 64, 100)), _DOWN),
    "chunked columns": Theme(_shaped((257, 700, 2600), (3, 5, 16)), _DOWN),
    "chunks": Theme(_shaped((1, 2, 4), (8192, 9000, 13000)), _ALONG),
    "registers": Theme(_shaped((1, 3, 8), (130, 257, 700, 1000, 2600, 4000)), _ALONG),
    "short rows": Theme(
        lambda r: [-(-(1 << 16) // (n := r.choice((16, 33, 64, 100, 127)))), n], _ALONG[1:2] + _ALONG[4:6]
    ),
    "sort": Theme(
        _shaped((1, 3, 5), (130, 700, 1500)),
        ("{a}.sort(dim=-1, stable=True)[1]", "{a}.sort(dim=-1, descending=True)[0]"),
    ),
    "parts of k": Theme(_shaped((16, 20, 33), (700, 1024, 2600)), ("{a} @ ({a} * 0.1).T", "({a} @ {a}.T).half()")),
    "tiles": Theme(_shaped((16, 33, 50, 130), (16, 64, 128)), ("{a} @ ({a} * 0.1).T", "(({a} @ {a}.T) * 0.1).relu()")),
    "tiles by vectors": Theme(
        _shaped((16, 36, 52, 132), (16, 64, 132)),
        (
            "{a} @ ({a} * 0.1).T",
            "(({a} @ {a}.T) * 0.1).relu()",
            "({a} @ {a}.T).half()",
            "({a}.half().T @ {a}.half()) > 0",
        ),
    ),
    "windows": Theme(
        _shaped((3, 8), (9, 16), (8, 13)),
        ("(lambda a: F.conv2d(a[None], a[:, None, :3, :3] * 0.1, padding=1, groups=len(a)))({a})",),
    ),
    "ragged tiles": Theme(
        _shaped((16, 33, 50, 130), (17, 33, 100, 130, 257)), ("{a} @ ({a} * 0.1).T", "(({a} @ {a}.T) * 0.1).relu()")
    ),
    "FFT": Theme(
        _shaped((1, 3, 5), (60, 128, 700, 1000, 2048)),
        ("torch.fft.rfft({a}, norm='ortho').abs()", "torch.fft.irfft(torch.fft.rfft({a} + 1)) + 0"),
    ),
    "attention": Theme(lambda r: [4, r.choice((17, 33, 64)) * 8], _ATTENTION),
    "merge": Theme(_shaped((1, 2), (2600, 4100, 9000)), ("{a}.sort(-1)[0]", "{a}.long().sort(dim=-1, stable=True)[1]")),
    "attention gradient": Theme(lambda r: [4, r.choice((17, 33)) * 8], _ATTENTION_GRADIENT),
    "scan": Theme(
        _shaped((1, 3, 5), (700, 2600, 9000)),
        ("{a}.cumsum(-1)", "{a}.cummax(-1)[0]", "({a} * 0.1).logcumsumexp(-1)", "{a}.long().cumsum(-1)"),
    ),
}


@contextmanager
def reached() -> Iterator[Counter[str]]:
    """Counts how often kernels of each form are written meanwhile; those of GPUs are told apart."""
    found: Counter[str] = Counter()

    def noting(owner: Any, name: str, form: Callable[..., str]) -> Any:
        plain = getattr(owner, name)

        def noted(*args: Any, **kw: Any) -> Any:
            if kind := form(*args):
                found[kind] += 1
            return plain(*args, **kw)

        return patch.object(owner, name, noted)

    def row(self: Any, b: Any, g: Any, *_: Any) -> str:
        near = row_kernel.neighbours(b, g)
        if isinstance(self, row_chunks.ChunkKernel):
            return "chunks" if near else "chunked columns"
        if isinstance(self, row_registers.RegisterKernel):
            return "short rows" if g.K < 128 else "registers"
        if isinstance(self, row_windows.WindowKernel):
            return "windows"
        return ("rows" if near else "columns") if type(self) is row_kernel.RowKernel else ""

    def tile(b: Any, g: Any) -> str:
        i = b.nodes[tiles.contraction(b, g)].inst
        if not b.target.barriers:
            return "tiles"
        if tiles.parts(b.target, *tiles.sizes(i)).cut > 1:
            return "parts of k"
        return "ragged tiles" if tiles.sizes(i)[3] % 8 else "tiles"

    with (
        noting(row_kernel.RowKernel, "__init__", row),
        noting(tiles, "emit", tile),
        noting(tiles, "_emit", lambda b, g, fours: "tiles by vectors" if fours else ""),
        noting(repeats, "together", lambda *x: "shared launches"),
        noting(scan_kernel.ScanKernel, "lower", lambda *x: "scan"),
        noting(sort_kernel.SortKernel, "launch", lambda self, name, *x: "merge" if name == "merge" else "sort"),
        noting(fft_kernels._Passes, "in_workgroup", lambda *x: "FFT"),
        noting(
            attention_kernels._Writer,
            "__init__",
            lambda *x: "attention" if x[3] == "attention" else "attention gradient",
        ),
    ):
        yield found


@contextmanager
def unsent() -> Iterator[None]:
    """What is planned meanwhile is not told to the device, and not run: its values are lost."""
    ids = iter(range(1, 1 << 30))

    def run(self: Any, nodes: list[Any], inputs: list[Any], scalars: list[Any]) -> None:
        graph.give_up(nodes)

    bridge = get_bridge()
    with (
        patch.object(plan.Plan, "run", run),
        patch.object(builder, "_kernels", {}),
        patch.object(bridge, "define_kernel", lambda spec: next(ids)),
        patch.object(bridge, "define_plan", lambda spec: next(ids)),
        patch.object(bridge, "bind_plan", lambda *x: next(ids)),
        patch.object(bridge, "forget_plans", lambda ids: None),
    ):
        yield
