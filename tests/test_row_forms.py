"""Made-up reductions in all the forms that rows have on a GPU, beside PyTorch's results: lengths around the limits of each form,
views of every kind, all dtypes, values that are no numbers, with subgroups and without.

More of them: `python -m test_row_forms SEED SECONDS` in tests/.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import tabtorch
from sidebyside import to_tab
from tabtorch.engine import graph, row_registers, schedules
from tabtorch.engine.target import target

#: elements of an input at most
_MOST = 150_000

_LIMITS = sorted(
    {n for forms in (row_registers._SHORT, row_registers._FORMS, row_registers._VECTORS) for n, _, _ in forms}
)
LENGTHS = sorted(
    {n for limit in [9, *_LIMITS, 70_000] for n in (limit - 4, limit - 1, limit, limit + 1, limit + 4) if n > 0}
    | {1, 2, 3, 4, 5, 300, 600, 2000, 20_000}
)


@contextmanager
def as_on_a_gpu(subgroups: bool) -> Iterator[None]:
    """Kernels have the forms of a GPU meanwhile, however little there is to do."""
    graph.flush()
    t = target(0)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("software", False), ("barriers", True), ("subgroups", subgroups and t.subgroups)):
            patch.setattr(t, name, value)
        patch.setattr(graph, "_plans", {})
        patch.setattr(row_registers, "_FEW", 0)
        patch.setattr(schedules, "_families", {})
        yield
        graph.flush()


# ---- what is reduced: d is the dimension


def _gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    def of(m: Any, x: Any, d: int) -> Any:
        x = x.detach().float().requires_grad_()
        y = f(m, x, d)
        return m.autograd.grad(y, x, y.detach().cos())[0]

    return of


def _normal(m: Any, x: Any, d: int) -> Any:
    off = x - x.mean(d, keepdim=True)
    return off * (off.square().mean(d, keepdim=True) + 1e-5).rsqrt()


FLOATS: list[Callable[..., Any]] = [
    lambda m, x, d: m.softmax(x, d),
    lambda m, x, d: m.log_softmax(x * 2, d),
    lambda m, x, d: m.logsumexp(x, d),
    lambda m, x, d: (x.float().var(d), x.float().std(d, keepdim=True)),
    lambda m, x, d: m.nn.functional.layer_norm(x.float(), x.shape[-1:]),
    lambda m, x, d: (x.sum(d), x.amax(d), x.argmax(d), x.argmin(d, keepdim=True)),
    lambda m, x, d: (_normal(m, x.float(), d), (x > 0).sum(d)),
    lambda m, x, d: ((x.float() * 0.01 + 1).prod(d), m.linalg.vector_norm(x.float(), dim=d)),
    lambda m, x, d: x.float().cumsum(d) - x.float().sum(d, keepdim=True),
    lambda m, x, d: (x - x.amax(d, keepdim=True)).half(),
    lambda m, x, d: x > x.float().mean(d, keepdim=True),
    lambda m, x, d: (x.float().sum(), x.amax(), x.float().mean(d)),
    lambda m, x, d: x.float().cummax(d).values + x.float().nansum(d, keepdim=True) * 0.01,
    lambda m, x, d: (x.float() - x.float().amax(-1, keepdim=True)).sum(0),
    lambda m, x, d: ((x.float() - x.float().amax(0)) * 2).sum(-1),
    _gradient(lambda m, x, d: m.softmax(x, d)),
    _gradient(_normal),
]
INTS: list[Callable[..., Any]] = [
    lambda m, x, d: (x.sum(d), x.amax(d), x.argmin(d)),
    lambda m, x, d: x - x.amin(d, keepdim=True),
    lambda m, x, d: (x.any(d), x.all(d, keepdim=True), x.sum()),
    lambda m, x, d: m.count_nonzero(x, d) + x.amax(d),
]
BOOLS: list[Callable[..., Any]] = [
    lambda m, x, d: (x.any(d), x.all(d), x.sum(d)),
    lambda m, x, d: x ^ x.any(d, keepdim=True),
]
DTYPES = [torch.float32] * 6 + [torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool]


def _values(r: random.Random, dims: list[int], dtype: torch.dtype) -> torch.Tensor:
    by = torch.Generator().manual_seed(r.randrange(1 << 30))
    x = torch.randn(*dims, generator=by)
    if dtype is torch.bool:
        return x > r.choice([-3, 0, 3])
    if not dtype.is_floating_point:
        x = (x * 30).abs() if dtype is torch.uint8 else x * (3e9 if dtype is torch.int64 else 1e3)
    elif r.random() < 0.2:
        flat = x.view(-1)
        for _ in range(3):
            flat[r.randrange(len(flat))] = r.choice([torch.nan, torch.inf, -torch.inf])
    elif r.random() < 0.2:
        x = (x * 2).round() / 2  # ties
    return x.to(dtype)


def case(seed: int) -> tuple[str, torch.Tensor, Callable[..., Any], Callable[..., Any], int]:
    """(what it is, an input, how it is seen, what is made of that, along which dimension)."""
    r = random.Random(seed)
    length = r.choice(LENGTHS)
    other = r.choice([n for n in (1, 2, 3, 4, 5, 8, 11, 64, 68, 260, 300) if n * length <= _MOST])
    dtype = r.choice(DTYPES)
    table = FLOATS if dtype.is_floating_point else BOOLS if dtype is torch.bool else INTS
    which = r.randrange(len(table))
    kind = r.choice(["whole"] * 3 + ["down", "down", "part", "offset", "turned", "middle", "spread", "flipped"])
    dims, seen, d = [other, length], (lambda x: x), 1
    if kind == "down":
        dims, d = [length, other], 0
    elif kind == "part":  # neighbours, at strides that are multiples of 4 or not
        dims, seen = [other, length + r.choice([4, 3])], lambda x: x[:, :length]
    elif kind == "offset":
        dims, seen = [other + 1, length + 3], lambda x: x[1:, 3:]
    elif kind == "turned":
        dims, seen = [length, other], lambda x: x.t()
    elif kind == "middle":
        dims = [2, length, max(1, other // 2)]
    elif kind == "spread":
        dims, seen = [1, length], lambda x: x.expand(other, length)
    elif kind == "flipped":
        seen = lambda x: x[:, ::2] if length > 1 else x  # noqa: E731
    return f"{seed}: {kind} {dims} {dtype} {which}", _values(r, dims, dtype), seen, table[which], d


def _list(x: Any) -> list[Any]:
    return list(x) if isinstance(x, tuple) else [x]


def check(seed: int) -> str:
    """What is wrong with a case; "" if nothing is."""
    text, x, seen, f, d = case(seed)
    try:
        want = _list(f(torch, seen(x), d))
    except RuntimeError:  # as what has no gradient, or no such dtype
        return ""
    got = _list(f(tabtorch, seen(to_tab(x, "webgpu")), d))
    for g, w in zip(got, want, strict=True):
        rough = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}.get(
            x.dtype if x.dtype.is_floating_point else w.dtype, 0.0
        )
        try:
            have = torch.from_numpy(g.float().numpy()) if w.is_floating_point() else torch.from_numpy(g.numpy())
            wanted = w.float() if w.is_floating_point() else w
            tolerance = max(rough, 2e-5 if w.dtype is not torch.float16 else 2e-3)
            scale = (
                float(wanted.nan_to_num(0, 0, 0).abs().amax()) if wanted.is_floating_point() and wanted.numel() else 1
            )
            torch.testing.assert_close(
                have, wanted, rtol=tolerance, atol=tolerance * max(1, min(scale, 300)), equal_nan=True
            )
        except AssertionError as e:
            return f"{text}: {e}"
    return ""


def run_many(first: int, seconds: float, most: int) -> tuple[int, list[str]]:
    """Cases from number `first` on: how many there were in that time, and what was wrong."""
    until = time.monotonic() + seconds
    wrong = []
    ran = 0
    while ran < most and time.monotonic() < until:
        if said := check(first + ran):
            wrong.append(said)
        ran += 1
    return ran, wrong


@pytest.mark.parametrize("subgroups", [True, False], ids=["subgroups", "shared memory"])
def test_made_up_reductions(subgroups: bool) -> None:
    with as_on_a_gpu(subgroups):
        ran, wrong = run_many(0 if subgroups else 1000, 10, 60)
    assert not wrong, "\n\n".join(wrong)
    assert ran > 1


if __name__ == "__main__":
    first, seconds = int(sys.argv[1]), float(sys.argv[2])
    for subgroups in (True, False):
        with as_on_a_gpu(subgroups):
            ran, wrong = run_many(first, seconds / 2, 1 << 30)
            print(f"subgroups {subgroups}: {ran} cases, {len(wrong)} wrong", *wrong, sep="\n\n")
