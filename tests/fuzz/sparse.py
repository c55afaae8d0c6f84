"""Random chains of operations over sparse tensors, on PyTorch and on tabtorch: values, layouts, gradients, or the same kind of error.

python -m fuzz.sparse [seconds] [first seed]
"""

from __future__ import annotations

import random
import sys
import time
import warnings
from typing import Any

import torch

import tabtorch

#: name -> (t, x, y, w, r): x sparse, y sparse of its shape, w dense of its shape, r a choice; gives sparse, mostly
STEPS: dict[str, Any] = {
    "scaled": lambda t, x, y, w, r: x * (r % 3 - 0.5),
    "sum of two": lambda t, x, y, w, r: x + y,
    "difference": lambda t, x, y, w, r: t.sub(x, y, alpha=2),
    "product": lambda t, x, y, w, r: x.coalesce() * y.coalesce(),  # else PyTorch stores zeros, too
    "by dense": lambda t, x, y, w, r: x * w,
    "sin": lambda t, x, y, w, r: x.sin(),
    "tanh": lambda t, x, y, w, r: t.tanh(x),
    "negative": lambda t, x, y, w, r: -x,
    "absolute": lambda t, x, y, w, r: x.abs(),
    "power": lambda t, x, y, w, r: x**2,
    "half": lambda t, x, y, w, r: x / 2,
    "turned": lambda t, x, y, w, r: x.transpose(0, 1),
    "coalesced": lambda t, x, y, w, r: x.coalesce(),
    "csr and back": lambda t, x, y, w, r: x.to_sparse_csr().to_sparse(),
    "csc and back": lambda t, x, y, w, r: x.to_sparse_csc().to_sparse(),
    "dense and back": lambda t, x, y, w, r: x.to_dense().to_sparse(),
    "masked": lambda t, x, y, w, r: w.sparse_mask(x.coalesce().detach()),
    "rows": lambda t, x, y, w, r: x.index_select(0, t.tensor([r % x.shape[0], 0, r % x.shape[0]])),
    "columns": lambda t, x, y, w, r: x.index_select(1, t.tensor([r % x.shape[1]])),
    "narrow": lambda t, x, y, w, r: x.narrow_copy(1, 0, max(1, x.shape[1] // 2)),
    "joined": lambda t, x, y, w, r: t.cat([x, y], r % 2),
    "summed": lambda t, x, y, w, r: x.sum(r % 2, keepdim=True),
    "softmax": lambda t, x, y, w, r: t.sparse.softmax(x, r % 2),
    "squared": lambda t, x, y, w, r: t.sparse.mm(x, y.t()),
    "cloned": lambda t, x, y, w, r: x.clone(),
    "added to dense": lambda t, x, y, w, r: w + x,
    "times dense": lambda t, x, y, w, r: t.sparse.mm(x, w.t()),
    "dense times": lambda t, x, y, w, r: w.t() @ x,
    "csr times dense": lambda t, x, y, w, r: x.to_sparse_csr() @ w.t(),
    "total": lambda t, x, y, w, r: x.sum(),
    "norm": lambda t, x, y, w, r: x.norm(),
    "slice": lambda t, x, y, w, r: x[r % x.shape[0]],
}


def _tensor(t: Any, drawn: tuple[Any, ...], grad: bool) -> Any:
    at, v, shape = drawn
    x = t.sparse_coo_tensor(t.tensor(at, dtype=t.int64).reshape(2, -1), t.tensor(v, dtype=t.float32), shape)
    return x.requires_grad_() if grad else x


def _drawn(rng: random.Random, shape: tuple[int, int]) -> tuple[Any, ...]:
    n = rng.choice((0, 1, 2, 5, 9))
    at = [[rng.randrange(s) for _ in range(n)] for s in shape]
    return at, [rng.choice((-2.0, -0.5, 0.25, 1.0, 3.0)) for _ in range(n)], shape


def _dense(x: Any) -> torch.Tensor:
    x = x.detach().to_dense()
    return x if isinstance(x, torch.Tensor) else torch.tensor(x.tolist(), dtype=torch.float32).reshape(tuple(x.shape))


def one(seed: int, device: str) -> str:
    """A chain; returns what it was. AssertionError where the two differ."""
    rng = random.Random(seed)
    shape = rng.randrange(1, 5), rng.randrange(1, 6)
    grad = rng.random() < 0.4
    start = _drawn(rng, shape)
    plain = torch, "cpu"
    ours = tabtorch, device
    values = [_tensor(t, start, grad) for t, _ in (plain,)]
    with tabtorch.device(device):
        values.append(_tensor(tabtorch, start, grad))
    leaves = list(values)
    said = [f"seed {seed}: {start}"]
    for _ in range(rng.randrange(1, 6)):
        name = rng.choice(list(STEPS))
        choice = rng.randrange(12)
        if values[0].layout is not torch.sparse_coo or values[0].dim() != 2 or 0 in values[0].shape:
            break
        other = _drawn(rng, tuple(values[0].shape))
        w = [[rng.choice((-1.0, 0.5, 2.0)) for _ in range(values[0].shape[1])] for _ in range(values[0].shape[0])]
        said.append(f"{name} {choice}")
        found: list[Any] = []
        for (t, where), x in zip((plain, ours), values, strict=True):
            with t.device(where):
                try:
                    found.append(STEPS[name](t, x, _tensor(t, other, False), t.tensor(w), choice))
                except Exception as e:
                    found.append(e)
        a, b = found
        where = "; ".join(said)
        if isinstance(a, Exception) or isinstance(b, Exception):
            assert isinstance(b, Exception), f"{where}: PyTorch raises {a!r}"
            assert isinstance(a, Exception), f"{where}: raises {b!r}"
            break
        assert str(a.layout) == str(b.layout), where
        assert tuple(a.shape) == tuple(b.shape), where
        torch.testing.assert_close(
            _dense(b), _dense(a), rtol=1e-3, atol=1e-4, equal_nan=True, msg=lambda m, w=where: f"{w}: {m}"
        )
        values = found
    if grad and values[0].requires_grad and values[0] is not leaves[0]:
        _gradients(leaves, values, "; ".join(said))
    return "; ".join(said)


def _gradients(leaves: list[Any], values: list[Any], where: str) -> None:
    """The gradients, at the elements that the leaf has: of others they are PyTorch's own choice of layout."""
    grads = []
    for leaf, x in zip(leaves, values, strict=True):
        try:
            r = x.to_dense()
            (r * r).sum().backward()
            grads.append(_dense(leaf.grad))
        except Exception as e:
            grads.append(e)
    a, b = grads
    if isinstance(a, Exception):  # PyTorch has no gradient of some
        return
    assert not isinstance(b, Exception), f"{where}: gradient raises {b!r}"
    there = torch.zeros(leaves[0].shape, dtype=torch.bool)
    there[tuple(leaves[0].detach()._indices())] = True
    torch.testing.assert_close(
        b * there, a * there, rtol=1e-3, atol=1e-3, equal_nan=True, msg=lambda m: f"{where}: gradient: {m}"
    )


def main() -> None:
    warnings.simplefilter("ignore")
    seconds, seed = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0, int(sys.argv[2]) if len(sys.argv) > 2 else 0
    end, first, bad = time.monotonic() + seconds, seed, 0
    while time.monotonic() < end:
        try:
            one(seed, ("cpu", "webgpu")[seed % 2])
        except AssertionError as e:
            bad += 1
            print(str(e)[:600], flush=True)
        seed += 1
    print(f"{seed - first} chains, {bad} differ")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
