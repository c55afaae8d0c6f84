"""`python -m fuzz.exported --programs 200 [--seed S]`: random modules through files of `torch.export`, both ways; exits 1 on a finding.

A module is drawn as a list of steps, which run over either library. What PyTorch exports, in either dialect, we load; what we export,
PyTorch and we load; at the batch of the example and at others the results are those of PyTorch's module. Where PyTorch itself
refuses, nothing is asked; where only we refuse, it is counted.
"""

from __future__ import annotations

import argparse
import io
import secrets
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import torch

import tabtorch
from conformance.translate import Translator

#: the batch in the example, and others: no other size of a program is one of these
BATCH, OTHERS = 5, (7, 9)
Step = tuple[Callable[..., Any], tuple[int, ...]]

_UNARY: tuple[Callable[[Any, Any], Any], ...] = (
    lambda t, x: x.relu(),
    lambda t, x: t.sigmoid(x),
    lambda t, x: x.tanh(),
    lambda t, x: x.sin() + x.cos(),
    lambda t, x: (-x.abs()).exp(),
    lambda t, x: t.nn.functional.gelu(x),
    lambda t, x: t.nn.functional.silu(x, inplace=False),
    lambda t, x: t.nn.functional.softplus(x),
    lambda t, x: t.nn.functional.leaky_relu(x, 0.1),
    lambda t, x: t.nn.functional.hardtanh(x, -0.5, 0.7),
    lambda t, x: t.log1p(x.abs()),
    lambda t, x: t.sqrt(x * x + 0.1),
    lambda t, x: (x.abs() + 0.2) ** 1.5,
    lambda t, x: 2 - x,
    lambda t, x: 1 / (x.abs() + 0.5),
    lambda t, x: x.clamp(-0.4, 0.9),
    lambda t, x: t.where(x > 0.1, x, x * 0.5),
    lambda t, x: x.masked_fill(x < 0, 0.25),
    lambda t, x: x.double().mul(3).float(),
    lambda t, x: (x * 3).to(t.int64).to(x.dtype),
    lambda t, x: x * x.shape[0],
    lambda t, x: x + x.shape[0] // 2,
    lambda t, x: x / (x.size(0) * 2 + 1),
    lambda t, x: x - x.numel() * 0.01,
    lambda t, x: x + t.ones_like(x) * 0.5,
    lambda t, x: x * t.full((), 1.5),
    lambda t, x: x + t.arange(x.shape[0], dtype=x.dtype).reshape(-1, *[1] * (x.dim() - 1)) * 0.1,
    lambda t, x: x + t.zeros(x.shape[0], *x.shape[1:]),
    lambda t, x: x.new_full(x.shape, 0.3) + x,
    lambda t, x: t.lerp(x, x * 2, 0.3),
    lambda t, x: t.addcmul(x, x, x, value=0.2),
    lambda t, x: x.detach() * 2,
    lambda t, x: t.nan_to_num(x.log()),
    lambda t, x: (x > 0).logical_and(x < 1).float() + x,
    lambda t, x: x.isfinite().all() * x,
)
_WRITES: tuple[Callable[[Any, Any], Any], ...] = (
    lambda t, x: x.clone().add_(1).mul_(0.5),
    lambda t, x: x.clone().clamp_(min=0),
    lambda t, x: x.clone().fill_(0.2),
    lambda t, x: x.clone().zero_() + 1,
)
_BINARY: tuple[Callable[[Any, Any, Any], Any], ...] = (
    lambda t, x, y: x + y,
    lambda t, x, y: x - y * 0.5,
    lambda t, x, y: x * y,
    lambda t, x, y: t.maximum(x, y),
    lambda t, x, y: x / (y.abs() + 1),
    lambda t, x, y: t.where(x > y, x, y * 2),
    lambda t, x, y: t.stack([x, y]).mean(0),
    lambda t, x, y: t.cat([x, y], 0)[: x.shape[0]],
    lambda t, x, y: t.cat([x, y], -1),
    lambda t, x, y: t.add(x, y, alpha=2),
    lambda t, x, y: x.clone().copy_(y),
    lambda t, x, y: t.nn.functional.mse_loss(x, y) + x,
    lambda t, x, y: t.nn.functional.cosine_similarity(x, y, dim=-1),
)


def _along(r: Random, n: int) -> tuple[Callable[..., Any], ...]:
    """Of a tensor of n dimensions, those that have dimensions as arguments; the batch is never the only one left."""
    d = r.randrange(n)
    last = r.randrange(1, n) - n if n > 1 else -1
    k = r.randrange(3)
    return (
        lambda t, x: t.softmax(x, last),
        lambda t, x: t.log_softmax(x, dim=last),
        lambda t, x: x.cumsum(d),
        lambda t, x: x - x.mean(d, keepdim=True),
        lambda t, x: x / (x.norm(dim=last, keepdim=True) + 1),
        lambda t, x: x * x.amax(d, keepdim=True),
        lambda t, x: x - x.logsumexp(last, keepdim=True),
        lambda t, x: x + x.std(last, keepdim=True, unbiased=False),
        lambda t, x: x.sum(last, keepdim=True).expand_as(x) * 0.1,
        lambda t, x: x.max(last, keepdim=True).values + x,
        lambda t, x: x.argmax(last, keepdim=True) * 0.1 + x,
        lambda t, x: x.sort(last).values,
        lambda t, x: x.flip(d),
        lambda t, x: x.roll(k, d),
        lambda t, x: x.topk(1, last).values + x,
        lambda t, x: x.gather(last, t.zeros_like(x, dtype=t.int64)) + x,
        lambda t, x: x.prod(last, keepdim=True) + x,
        lambda t, x: x.index_select(last, t.tensor([0, 0])),
    )


def _shapes(r: Random, shape: tuple[int, ...]) -> list[Callable[..., Any]]:
    """Of a tensor of that shape, whose first dimension is the batch."""
    n = len(shape)
    found: list[Callable[..., Any]] = [
        lambda t, x: x.unsqueeze(1),
        lambda t, x: x[:, None],
        lambda t, x: x.unsqueeze(-1).expand(*x.shape, 2),
        lambda t, x: x[..., None].squeeze(-1),
        lambda t, x: x.clone().contiguous(),
    ]
    if n > 1:
        m, k = shape[-1], r.randrange(shape[-1])
        found += [
            lambda t, x: x.flatten(1),
            lambda t, x: x.reshape(x.shape[0], -1),
            lambda t, x: x[..., k],
            lambda t, x: x[..., k:],
            lambda t, x: x[..., ::2],
            lambda t, x: x.select(-1, k).unsqueeze(-1),
            lambda t, x: x.narrow(-1, k, 1),
            lambda t, x: x.repeat(*[1] * (n - 1), 2),
            lambda t, x: t.nn.functional.pad(x, (1, k), value=0.5),
            lambda t, x: t.cat(x.split(1, -1)[::-1], -1),
            lambda t, x: x.unbind(-1)[k],
            lambda t, x: x.chunk(2, -1)[0],
            lambda t, x: x.transpose(0, 1).sin().transpose(0, 1),
            lambda t, x: x.view(x.shape[0], *x.shape[1:-1], 1, m) if x.is_contiguous() else x,
            lambda t, x: t.einsum("b...i,b...i->b...", x, x),
            lambda t, x: t.nn.functional.layer_norm(x, (m,)),
            lambda t, x: x.movedim(-1, 1),
            lambda t, x: x.tril() if x.dim() == 3 else x,
            lambda t, x: x[t.arange(x.shape[0]).flip(0)],
            lambda t, x: x[t.arange(x.shape[0]), k % x.shape[1]],
            lambda t, x: _put(x, k),
            lambda t, x: _scaled(x, k),
            lambda t, x: x.sum((0, -1), keepdim=True) + x,
            lambda t, x: t.nn.functional.one_hot((x.abs() * 2).long() % 3, 3).to(x.dtype),
            lambda t, x: x.unflatten(-1, (1, m)),
            lambda t, x: t.nn.functional.normalize(x, dim=-1),
        ]
    if n == 3:
        found += [
            lambda t, x: t.bmm(x, x.transpose(1, 2)),
            lambda t, x: x @ x.mT,
            lambda t, x: t.einsum("bij,bkj->bik", x, x),
            lambda t, x: t.nn.functional.scaled_dot_product_attention(x, x, x),
            lambda t, x: x.permute(0, 2, 1),
            lambda t, x: t.nn.functional.avg_pool1d(x, 1, 1),
            lambda t, x: t.baddbmm(x, x, x.new_ones(x.shape[0], x.shape[2], x.shape[2])),
            lambda t, x: t.nn.functional.max_pool1d(x, x.shape[-1]),
            lambda t, x: t.nn.functional.interpolate(x, scale_factor=2),
        ]
    if n == 2:
        found += [
            lambda t, x: x.t().matmul(x) @ x.t(),
            lambda t, x: (x @ x.T) @ x / x.shape[0],
            lambda t, x: x.reshape(x.shape[0], 1, -1),
        ]
    return found


def _put(x: Any, k: int) -> Any:
    y = x.clone()
    y[..., k] = 0.5
    y[:, 0] += 1
    return y


def _scaled(x: Any, k: int) -> Any:
    y = x * 1
    y[..., k].mul_(2)
    y.select(-1, k).add_(0.1)
    return y


class Program:
    """A module as drawn. steps: of values so far, by their numbers, another value; layers: (where, kind, arguments)."""

    def __init__(self, seed: str) -> None:
        self.seed = seed
        r = self.random = Random(seed)
        self.shapes = [(BATCH, *r.choice([(4,), (3, 4), (2, 3, 4), (6,), (4, 2)])) for _ in range(r.randint(1, 2))]
        self.steps: list[Step] = []
        self.layers: list[tuple[str, tuple[Any, ...]]] = []
        self.kind = r.choice(["tensor", "tuple", "dict", "sizes"])
        self.counts = r.random() < 0.3
        torch.manual_seed(0)
        values = [self.input(i, BATCH) for i in range(len(self.shapes))]
        module = self.module(torch)
        for _ in range(r.randint(3, 10)):
            self._draw(values, module)
        self.results = sorted({len(values) - 1, *(r.randrange(len(values)) for _ in range(r.randrange(3)))})

    def input(self, i: int, batch: int) -> torch.Tensor:
        shape = (batch, *self.shapes[i][1:])
        return (torch.arange(torch.Size(shape).numel(), dtype=torch.float32) * (0.37 + i)).sin().reshape(shape)

    def _draw(self, values: list[torch.Tensor], module: Any) -> None:
        """Another step, if the first that is tried gives a value that others can take."""
        r = self.random
        i = r.choice([len(values) - 1, r.randrange(len(values))])
        x = values[i]
        kind = r.randrange(9)
        same = [j for j, y in enumerate(values) if y.shape == x.shape]
        step: Step
        layers = len(self.layers)
        if kind < 2:
            step = _numbered(r.choice(_UNARY)), (i,)
        elif kind == 2:
            step = _numbered(r.choice(_WRITES)), (i,)
        elif kind == 3:
            step = _numbered(r.choice(_BINARY)), (i, r.choice(same))
        elif kind == 4 and x.dim() > 1:
            step = _numbered(r.choice(_along(r, x.dim()))), (i,)
        elif kind < 8 or x.dim() < 2:
            step = _numbered(r.choice(_shapes(r, tuple(x.shape)))), (i,)
        else:
            name, args = r.choice(
                [("Linear", (x.shape[-1], 3)), ("LayerNorm", (x.shape[-1],)), ("Linear", (x.shape[-1], 2, False))]
                + [("Conv1d", (x.shape[1], 2, 1)), ("BatchNorm1d", (x.shape[1],))] * (x.dim() == 3)
                + [("BatchNorm1d", (x.shape[1],)), ("PReLU", ())] * (x.dim() == 2)
            )
            self.layers.append((name, args))
            module.add(torch, name, args)
            step = (lambda t, m, x, at=layers: m.layers[at](x)), (i,)
        try:
            with torch.no_grad():
                made = step[0](torch, module, *[values[j] for j in step[1]])
        except (RuntimeError, IndexError, ValueError):
            made = None
        good = made is not None and 0 < made.dim() <= 5 and made.shape[0] == BATCH and 0 < made.numel() < 2000
        if good and made.dtype is torch.float32 and bool(made.isfinite().all()) and float(made.abs().max()) < 1e3:
            values.append(made)
            self.steps.append(step)
        elif len(self.layers) > layers:
            self.layers.pop()
            module.layers.pop(-1)

    def module(self, t: Any) -> Any:
        """Over this library, in evaluation."""
        program = self

        class Drawn(t.nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.layers = t.nn.ModuleList()
                self.register_buffer("calls", t.zeros(()))
                for name, args in program.layers:
                    self.add(t, name, args)
                self.eval()

            def add(self, t: Any, name: str, args: tuple[Any, ...]) -> None:
                layer = getattr(t.nn, name)(*args).eval()
                with t.no_grad():
                    for k, p in enumerate(layer.parameters()):
                        p.copy_((t.arange(p.numel()) * 0.7 + k).cos().reshape(p.shape) * 0.5)
                self.layers.append(layer)

            def forward(self, *inputs: Any) -> Any:
                values = list(inputs)
                if program.counts:
                    self.calls.add_(1)
                for f, given in program.steps:
                    values.append(f(t, self, *[values[i] for i in given]))
                found = [values[i] for i in program.results]
                if program.counts:
                    found.append(values[-1] + self.calls)
                if program.kind == "tensor":
                    return found[-1]
                if program.kind == "dict":
                    return {"last": found[-1], "rest": found}
                return (*found, inputs[0].shape[0]) if program.kind == "sizes" else tuple(found)

        made = Drawn()
        # a module's forward has names for its inputs
        names = [f"x{i}" for i in range(len(self.shapes))]
        scope: dict[str, Any] = {"forward": Drawn.forward}
        exec(f"def named(self, {', '.join(names)}): return forward(self, {', '.join(names)})", scope)
        Drawn.forward = scope["named"]  # type: ignore[method-assign]
        return made


def _numbered(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda t, m, *given: f(t, *given)


# ---- through files


def _flat(x: Any, t: Any) -> list[Any]:
    leaves = t.utils._pytree.tree_leaves(x)
    return [y.detach().cpu().double().tolist() if isinstance(y, t.Tensor) else y for y in leaves]


def _equal(want: Any, got: Any) -> bool:
    if isinstance(want, list):
        return isinstance(got, list) and len(want) == len(got) and all(map(_equal, want, got))
    return type(want) is type(got) and (want == got or abs(want - got) <= 1e-3 + 2e-3 * abs(want) or want != want)


def check(seed: str) -> tuple[list[str], Counter[str]]:
    """(what was found, what was asked and what refused)."""
    p = Program(seed)
    counts: Counter[str] = Counter()
    found: list[str] = []
    to = Translator("cpu")
    inputs = {n: tuple(p.input(i, n) for i in range(len(p.shapes))) for n in (BATCH, *OTHERS)}
    # a fresh module for each, which counts its calls
    with torch.no_grad():
        want = {n: _flat(p.module(torch)(*x), torch) for n, x in inputs.items()}

    def compare(what: str, run: Callable[[int], Any]) -> None:
        for n in inputs:
            try:
                got = run(n)
            except Exception as e:
                found.append(f"{seed} {what} at {n}: {type(e).__name__}: {str(e)[:300]}")
                return
            if not _equal(want[n], got):
                found.append(f"{seed} {what} at {n}: {got}, not {want[n]}"[:600])
        counts[what] += 1

    def theirs(data: bytes, n: int) -> Any:
        with torch.no_grad():
            return _flat(torch.export.load(io.BytesIO(data)).module()(*inputs[n]), torch)

    def ours(data: bytes, n: int) -> Any:
        with tabtorch.no_grad():
            return _flat(tabtorch.export.load(data, map_location="cpu").module()(*map(to, inputs[n])), tabtorch)

    dims = tuple({0: torch.export.Dim("batch", min=2, max=64)} for _ in p.shapes)
    for core in (False, True):
        dialect = "core" if core else "training"
        try:
            file = io.BytesIO()
            ep = torch.export.export(p.module(torch), inputs[BATCH], dynamic_shapes=dims)
            torch.export.save(ep.run_decompositions() if core else ep, file)
            for n in inputs:
                if not _equal(want[n], theirs(file.getvalue(), n)):
                    raise ValueError("PyTorch's own program is not the module")
        except Exception:
            counts[f"PyTorch cannot: {dialect}"] += 1
            continue
        compare(f"loaded here, {dialect}", partial(ours, file.getvalue()))
    with tabtorch.device("cpu"):
        batch = tabtorch.export.Dim("batch", min=2, max=64)
        module = p.module(tabtorch)
        try:
            file = io.BytesIO()
            ep = tabtorch.export.export(
                module, tuple(map(to, inputs[BATCH])), dynamic_shapes=tuple({0: batch} for _ in p.shapes)
            )
            tabtorch.export.save(ep, file)
        except (NotImplementedError, tabtorch.export.UserError) as e:
            counts[f"we refuse: {str(e).splitlines()[0][:150]}"] += 1
            return found, counts
        except Exception as e:
            return [*found, f"{seed} exporting: {type(e).__name__}: {str(e)[:300]}"], counts
    compare("ours in PyTorch", lambda n: theirs(file.getvalue(), n))
    compare("ours here", lambda n: ours(file.getvalue(), n))
    return found, counts


def run(programs: int, seed: str, tell: bool = False) -> tuple[list[str], Counter[str]]:
    found: list[str] = []
    counts: Counter[str] = Counter()
    with warnings.catch_warnings():  # PyTorch's, of its own code
        warnings.simplefilter("ignore")
        for number in range(programs):
            more, asked = check(f"{seed}-{number}")
            found += more
            counts += asked
            if more and tell:
                print(*more, sep="\n", flush=True)
    return found, counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", default=secrets.token_hex(4))
    args = parser.parse_args()
    found, counts = run(args.programs, args.seed, tell=True)
    for what, n in sorted(counts.items()):
        print(f"{n:6} {what}")
    print(f"{args.programs} programs of seed {args.seed}: {len(found)} findings")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
