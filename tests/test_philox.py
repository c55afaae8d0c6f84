"""Random numbers by Philox: the known answers, the same bits on both devices, and the laws of every distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tabtorch
from sidebyside import outcome
from tabtorch.base import dtypes
from tabtorch.engine import graph, philox
from tabtorch.engine.expr import const
from tabtorch.engine.view import contiguous_meta

KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> list[int]:
    return [int(w, 16) for w in text.split()]


def test_philox_known_answers(device: str) -> None:
    """The known answers of Random123 (kat_vectors, philox4x32 10)."""
    m = contiguous_meta((1,), dtypes.int64, tabtorch.zeros(1).device)
    for counter, key, out in KNOWN:
        for k, want in enumerate(words(out)):
            op = graph.Map("known", lambda p, k=k: philox.philox(*[p.scalar(j) for j in range(6)])[k], indexed=True)
            n = graph.emit(graph.inst(op, (), m, ("u32",) * 6), (), tuple(words(counter) + words(key)))
            assert tabtorch.Tensor._wrap(n, m).item() == want
    assert philox.multiply_high(const(5, "u32"), 7).type == "u32"


def philox_reference(seed: int, offset: int, i: int) -> int:
    """The first word of element i, written out once more."""
    c = [i, 0, offset & 0xFFFFFFFF, offset >> 32]
    k = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[0]


def test_philox_is_the_same_everywhere(device: str) -> None:
    g = tabtorch.random._unseeded(tabtorch.random.PhiloxGenerator, tabtorch.zeros(1).device).manual_seed(2**40 + 17)
    for k in range(2):
        got = tabtorch.rand(100, generator=g).tolist()
        assert got == [(philox_reference(2**40 + 17, 4 * k, i) >> 8) * 2.0**-24 for i in range(100)]
    assert g.get_offset() == 8
    g.set_offset(4)
    assert tabtorch.rand(100, generator=g).tolist() == got
    state = g.get_state()
    a = tabtorch.rand(3, generator=g).tolist()
    assert tabtorch.rand(3, generator=g.set_state(state)).tolist() == a
    assert outcome(lambda: g.set_offset(3)) == ("error", ("RuntimeError", "offset must be a multiple of 4"))


def test_philox_laws(device: str) -> None:
    g = tabtorch.random._unseeded(tabtorch.random.PhiloxGenerator, tabtorch.zeros(1).device).manual_seed(5)
    n = 40000

    def look(t: Any) -> Any:
        return t.double().numpy() if t.device.type == "cpu" else t.float().numpy()

    z = look(tabtorch.randn(n, generator=g))
    assert (
        abs(z.mean()) < 0.02 and abs(z.std() - 1) < 0.02 and abs((z**3).mean()) < 0.08 and abs((z**4).mean() - 3) < 0.2
    )
    z = look(tabtorch.empty(n).normal_(3, 0.5, generator=g))
    assert abs(z.mean() - 3) < 0.02 and abs(z.std() - 0.5) < 0.02
    u = look(tabtorch.empty(n).uniform_(-2, 1, generator=g))
    assert u.min() >= -2 and u.max() < 1 and abs(u.mean() + 0.5) < 0.02
    r = look(tabtorch.randint(-3, 7, (n,), generator=g))
    assert set(r) == set(range(-3, 7)) and np.bincount((r + 3).astype(int)).min() > n / 10 * 0.9
    for low, high in ((0, 2**32), (-(2**40), 2**41), (-(2**63), 2**63 - 1)):
        r = np.array(tabtorch.randint(low, high, (n,), generator=g).tolist(), dtype=np.float64)
        assert r.min() >= low and r.max() < high and abs((r.mean() - (low + high) / 2) / (high - low)) < 0.01
    assert tabtorch.empty(9, dtype=tabtorch.int64).random_(generator=g).min().item() >= 0
    assert tabtorch.randint(0, 2, (9,), dtype=tabtorch.bool, generator=g).dtype is tabtorch.bool
    for p in (0.0, 0.3, 1.0):
        assert abs(look(tabtorch.empty(n).bernoulli_(p, generator=g)).mean() - p) < 0.01
    p = tabtorch.full((n,), 0.8)
    assert abs(look(tabtorch.bernoulli(p, generator=g)).mean() - 0.8) < 0.01
    e = look(tabtorch.empty(n).exponential_(2, generator=g))
    assert e.min() > 0 and abs(e.mean() - 0.5) < 0.01
    k = look(tabtorch.empty(n).geometric_(0.25, generator=g))
    assert k.min() == 1 and abs(k.mean() - 4) < 0.1
    c = look(tabtorch.empty(n).cauchy_(1, 2, generator=g))
    assert abs(np.median(c) - 1) < 0.1
    e = look(tabtorch.empty(n).log_normal_(0, 0.5, generator=g))
    assert abs(np.log(e).mean()) < 0.02
    for m in (0, 1, 100):
        assert sorted(tabtorch.randperm(m, generator=g).tolist()) == list(range(m))
    w = tabtorch.tensor([[1.0, 0, 3], [2, 2, 0]])
    for replacement in (False, True):
        hits = look(tabtorch.multinomial(w.repeat(2000, 1), 2, replacement, generator=g))
        assert not (hits[::2] == 1).any() and not (hits[1::2] == 2).any()
        if replacement:
            assert abs((hits[::2] == 2).mean() - 0.75) < 0.03
    assert tabtorch.empty(3, 4).t().uniform_(generator=g).stride() == (1, 4)
    with pytest.raises(NotImplementedError, match="poisson"):
        tabtorch.poisson(tabtorch.ones(2), generator=g)


def test_gpu_generator(webgpu: None) -> None:
    g = tabtorch.Generator("webgpu").manual_seed(3)
    assert g.device == tabtorch.device("webgpu", 0)
    a = tabtorch.randn(5, generator=g)
    assert a.device.type == "webgpu"
    assert tabtorch.randn(5, generator=tabtorch.Generator(device="webgpu").manual_seed(3)).tolist() == a.tolist()
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'webgpu'"):
        tabtorch.rand(2, device="cpu", generator=g)
    assert tuple(g.get_state().shape) == (16,)
