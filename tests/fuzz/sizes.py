"""Random functions whose Python computes with sizes, compiled for all sizes and not, called with tensors of many sizes: results,
gradients and what is written must be the same.

    python -m fuzz.sizes --seconds 60 --device cpu      from `tests`, with tabtorch importable
    python -m fuzz.sizes --show 17                      the text of function 17, and what differs
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from random import Random
from typing import Any

CALLS = 9

#: expressions of sizes; `t` is the length of `y` at hand
NUMBERS = [
    "t",
    "t // 2",
    "t - 1",
    "t % 3",
    "b * t",
    "b + t",
    "max(t, 6)",
    "min(t, 9)",
    "x.numel()",
    "x.shape[1] // b",
    "-(-t // 4)",
    "x.size(-2)",
    "y.stride(0)",
    "len(y)",
    "int(t / 2)",
    "round(t * 0.3)",
    "abs(3 - t)",
    "sum(y.shape)",
    "LENGTHS.get(t, 4)",
]
REALS = ["1 / t", "t ** -0.5", "t / b", "0.5 * t", "math.sqrt(t)", "(t + 1) / (b + 2)", "t / 4 - 1", "float(t)"]
CONDITIONS = [
    "{n} > 7",
    "{n} % 2 == 0",
    "b == t",
    "{n} <= {m}",
    "not {n}",
    "t in (5, 6, 7)",
    "y.shape[1:] == x.shape[1:]",
    "t > 3 and b < 4",
    "{r} > 1.5",
]
STEPS = [
    "y = y * ({n})",
    "y = y + ({r})",
    "y = y / ({n} + 7)",
    "y = y[:, : max(1, {n})]",
    "y = y[:, min(t - 1, {n}) :]",
    "y = y[:, ::2]",
    "y = torch.cat([y, y[:, : {n}]], 1)[:, :60]",
    "y = y + torch.arange(t, dtype=torch.float32)[:, None]",
    "y = y + torch.arange({n} % 5, {n} % 5 + t)[None, :, None]",
    "y = y.softmax(1)",
    "y = y - y.mean(1, keepdim=True)",
    "y = y - y.mean((0, 1))",
    "y = y / (y.var(1, keepdim=True, correction=0) + 1)",
    "y = F.pad(y, (0, 0, ({n}) % 3, 1))",
    "y = (y @ y.transpose(1, 2)).softmax(-1) @ y",
    "y = (y @ y.transpose(1, 2)).masked_fill(MASK[:t, :t] == 0, -9.0).softmax(-1) @ y",
    "y = y @ w",
    "y = F.layer_norm(y, (4,))",
    "y = y.reshape(b * t, -1).relu().view(b, t, -1)",
    "y = y.transpose(1, 2).reshape(b, -1, 4)",
    "y = y.flip(1).cumsum(1)",
    "y = y.sort(1)[0]",
    "y = y.gather(1, torch.zeros(b, t, 4, dtype=torch.int64) + ({n}) % t)",
    "y = y[:, torch.arange(t - 1, -1, -1)]",
    "y = y[:, ({n}) % t][:, None].expand(-1, t, -1)",
    "y = torch.where(torch.ones(t, t).tril()[-1][:, None] > 0, y, y.new_full((), {n}))",
    "y = F.scaled_dot_product_attention(y, y, y, is_causal=True)",
    "y = F.conv1d(y.transpose(1, 2), K, padding=1).transpose(1, 2)",
    "y = y.clone(); y[:, ({n}) % t] = 1.5",
    "y = y.clone(); y[:, : t // 2] *= {r}",
    "y = torch.stack([y, y * 2], 1).flatten(1, 2)[:, :50]",
    "y = y.unfold(1, 1, 1).squeeze(-1) + torch.full((t, 1), {n})",
    "y = y.repeat(1, 2, 1).chunk(2, 1)[1]",
    "y = y.unflatten(1, (t, 1)).sum(2)",
    "y = torch.einsum('btc,bsc->bts', y, y)[:, :, :1] + y",
]
#: what a function does besides
EFFECTS = ["STATE.add_(y.detach().sum() / ({n} + 50))", "x.data[:, ({n}) % x.shape[1]] += 0.25", ""]
RETURNED = ["y", "(y, y.shape[1])", "{{'y': y, 'n': {n}}}", "(y, y.sum() / ({n} + 90), y.shape)", "(y.mean(), y[:, 0])"]


def text_of(seed: int) -> str:
    """The text of function `seed`."""
    draw = Random(seed)

    def fill(text: str) -> str:
        parts = {"n": f"({draw.choice(NUMBERS)})", "m": f"({draw.choice(NUMBERS)})", "r": f"({draw.choice(REALS)})"}
        return text.format(**parts)

    def step() -> list[str]:
        return [*fill(draw.choice(STEPS)).split("; "), "t = y.shape[1]"]

    lines = ["b, t, c = x.shape", "y = x * 1.5"]
    for _ in range(draw.randrange(1, 5)):
        if draw.random() < 0.25:
            lines.append(f"if {fill(draw.choice(CONDITIONS))}:")
            lines += ["    " + s for s in step()]
            if draw.random() < 0.5:
                lines += ["else:", *["    " + s for s in step()]]
        else:
            lines += step()
    effect = draw.choice(EFFECTS) if draw.random() < 0.3 else ""
    lines += [fill(effect)] if effect else []
    lines.append("return " + fill(draw.choice(RETURNED)))
    return "def f(x, w):\n" + "\n".join("    " + s for s in lines)


def _shown(x: Any) -> Any:
    if isinstance(x, dict):
        return {k: _shown(v) for k, v in x.items()}
    if isinstance(x, (tuple, list)):
        return [_shown(v) for v in x]
    if hasattr(x, "tolist"):
        return ("tensor", tuple(map(int, x.shape)), x.detach().tolist())
    return (type(x).__name__, x)


def _tensors(x: Any) -> list[Any]:
    if isinstance(x, dict):
        x = list(x.values())
    if isinstance(x, (tuple, list)):
        return [t for v in x for t in _tensors(v)]
    return [x] if hasattr(x, "requires_grad") else []


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(_close, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_close(a[k], b[k]) for k in a)
    if isinstance(a, float) and isinstance(b, float):
        return a == b or abs(a - b) <= 1e-3 * max(1.0, abs(a)) or (a != a and b != b)
    return bool(a == b and type(a) is type(b))


def carried_out(text: str, seed: int, torch: Any, device: str, dynamic: Any) -> list[Any]:
    """What there is to see after each call; dynamic: as `torch.compile` takes it, or "eager"."""
    import math

    draw = Random(seed + 1)
    sizes = [(draw.randrange(1, 5), draw.choice([*range(2, 12), *range(1, 41)])) for _ in range(CALLS)]
    if draw.random() < 0.6:  # one batch size
        sizes = [(max(2, sizes[0][0]), t) for _, t in sizes]
    looks: list[Any] = []
    with torch.device(device), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        space: dict[str, Any] = {
            "torch": torch,
            "F": torch.nn.functional,
            "math": math,
            "LENGTHS": {5: 1, 6: 2, 8: 3},
            "MASK": torch.ones(70, 70).tril(),
            "K": torch.randn(4, 4, 3) / 3,
            "STATE": torch.zeros(()),
            "__name__": "program",
        }
        exec(text, space)
        f = space["f"] if dynamic == "eager" else torch.compile(space["f"], dynamic=dynamic)
        w = (torch.randn(4, 4) / 2).requires_grad_(draw.random() < 0.7)
        wants = draw.random() < 0.5
        for b, t in sizes:
            x = torch.randn(b, t, 4).requires_grad_(wants)
            try:
                out = f(x, w)
                for y in _tensors(out):
                    if y.requires_grad:
                        y.square().mean().backward(retain_graph=True)
                looks.append([_shown(out), _shown(x), _shown(x.grad), _shown(w.grad), _shown(space["STATE"])])
            except Exception as e:
                looks.append(f"{type(e).__name__}: {e}".partition("\n")[0])
    return looks


def run(seed: int, device: str = "cpu") -> list[str]:
    """What differs in function `seed`."""
    import tabtorch as torch

    text = text_of(seed)
    want = carried_out(text, seed, torch, device, "eager")
    found = []
    for dynamic in (True, None):
        got = carried_out(text, seed, torch, device, dynamic)
        for i, (a, b) in enumerate(zip(want, got, strict=True)):
            if not _close(a, b):
                found.append(f"dynamic={dynamic}, call {i}: {str(a)[:150]} and {str(b)[:150]}")
    return found


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()) * 100_000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--show", type=int)
    options = parser.parse_args(argv)
    if options.show is not None:
        found = run(options.show, options.device)
        print(text_of(options.show), *found, sep="\n")
        return bool(found)
    until = time.time() + options.seconds
    ran, differing = 0, 0
    while time.time() < until:
        found = run(options.seed + ran, options.device)
        if found:
            differing += 1
            print(f"function {options.seed + ran}:", *found[:2], sep="\n    ", flush=True)
        ran += 1
    print(f"{ran} functions from seed {options.seed} on {options.device}: {differing} differ")
    return bool(differing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
