"""Packed weights whose scales are tensors of their own: each value as the published formula has it, written out here in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tabtorch as torch
from tabtorch import nn
from tabtorch.base.device import default_device
from tabtorch.engine import graph
from tabtorch.nn import functional as F
from tabtorch.packed import SCHEMES, Packed
from test_packed import counted

N, K, GROUP = 32, 64, 16  # rows, columns, columns of a group


def words(codes: Any, bits: int) -> Any:
    """Codes along the first dimension as a stream of bits, in words of 32 (as GPTQ packs): (codes * bits / 32, …), int32."""
    flat = codes.astype(np.uint64)
    out = np.zeros((codes.shape[0] * bits // 32, *codes.shape[1:]), np.uint64)
    for i, row in enumerate(flat):
        word, shift = divmod(i * bits, 32)
        out[word] |= (row << np.uint64(shift)) & np.uint64(0xFFFFFFFF)
        if shift + bits > 32:
            out[word + 1] |= row >> np.uint64(32 - shift)
    return out.astype(np.uint32).view(np.int32)


def gptq(bits: int, version: int, rng: Any) -> tuple[list[Any], Any]:
    codes = rng.integers(0, 1 << bits, (K, N))
    zeros = rng.integers(0, 1 << bits, (K // GROUP, N))  # as they are stored
    scales = rng.standard_normal((K // GROUP, N)).astype(np.float16)
    g_idx = rng.permutation(np.arange(K) // GROUP).astype(np.int32)  # act-order
    zero = (zeros + 1) % (1 << bits) if version == 1 else zeros
    want = scales[g_idx].astype(np.float32) * (codes - zero[g_idx]).astype(np.float32)
    return [words(codes, bits), np.ascontiguousarray(words(zeros.T, bits).T), scales, g_idx], want.T


def awq(rng: Any) -> tuple[list[Any], Any]:
    codes = rng.integers(0, 16, (K, N))
    zeros = rng.integers(0, 16, (K // GROUP, N))
    scales = rng.standard_normal((K // GROUP, N)).astype(np.float16)

    def packed(x: Any) -> Any:
        out = np.zeros((x.shape[0], x.shape[1] // 8), np.uint32)
        for place, column in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):
            out |= x[:, column::8].astype(np.uint32) << np.uint32(4 * place)
        return out.view(np.int32)

    each = np.repeat(np.arange(K // GROUP), GROUP)
    want = (codes - zeros[each]).astype(np.float32) * scales[each].astype(np.float32)
    return [packed(codes), packed(zeros), scales], want.T


def compressed(bits: int, asymmetric: bool, rng: Any) -> tuple[list[Any], Any]:
    offset = 1 << (bits - 1)
    codes = rng.integers(-offset, offset, (N, K))
    zeros = rng.integers(-offset, offset, (N, K // GROUP)) if asymmetric else np.zeros((N, K // GROUP), int)
    scales = rng.standard_normal((N, K // GROUP)).astype(np.float32)
    parts = [np.ascontiguousarray(words((codes + offset).T, bits).T), scales]
    if asymmetric:
        parts.append(words(zeros + offset, bits))
    each = np.repeat(np.arange(K // GROUP), GROUP)
    return parts, (codes - zeros[:, each]).astype(np.float32) * scales[:, each]


def nbits(bits: int, asymmetric: bool, rng: Any) -> tuple[list[Any], Any]:
    """As onnxruntime's MatMulNBits has them: the lowest bits of a byte first, zeros of a row's groups packed likewise."""
    per, groups = 8 // bits, K // GROUP

    def bytes_of(x: Any) -> Any:
        return sum(x[:, i::per] << i * bits for i in range(per)).astype(np.uint8)

    codes = rng.integers(0, 1 << bits, (N, K))
    zeros = rng.integers(0, 1 << bits, (N, groups)) if asymmetric else np.full((N, groups), 1 << bits - 1)
    scales = rng.standard_normal((N, groups)).astype(np.float32)
    each = np.repeat(np.arange(groups), GROUP)
    parts = [bytes_of(codes), scales, *([bytes_of(zeros)] if asymmetric else [])]
    return parts, (codes - zeros[:, each]).astype(np.float32) * scales[:, each]


def int8(rng: Any) -> tuple[list[Any], Any]:
    codes = rng.integers(-128, 128, (N, K)).astype(np.int8)
    scales = rng.standard_normal((N, 1)).astype(np.float32)
    return [codes, scales], codes.astype(np.float32) * scales


def int4(rng: Any) -> tuple[list[Any], Any]:
    codes = rng.integers(0, 16, (N, K))
    scales, zeros = rng.standard_normal((2, N, K // GROUP)).astype(np.float32)
    each = np.repeat(np.arange(K // GROUP), GROUP)
    packed = (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)
    want = (codes - 8).astype(np.float32) * scales[:, each] + zeros[:, each]
    return [packed, scales, zeros], want


def bnb(nested: bool, rng: Any) -> tuple[list[Any], Any]:
    codes = rng.integers(0, 16, N * K)
    table = rng.standard_normal(16).astype(np.float32)
    blocks = N * K // 64
    packed = (codes[::2] << 4 | codes[1::2]).astype(np.uint8)
    if not nested:
        absmax = rng.random(blocks, np.float32)
        return [packed, np.concatenate([table, absmax])], (table[codes] * np.repeat(absmax, 64)).reshape(N, K)
    second, most, offset = rng.standard_normal(256), rng.random(blocks // 8), rng.random(1)
    second, most, offset = (x.astype(np.float32) for x in (second, most, offset))
    coded = rng.integers(0, 256, blocks).astype(np.uint8)
    absmax = second[coded] * np.repeat(most, 8) + offset
    tables = np.concatenate([table, second, offset, most])
    return [packed, coded, tables], (table[codes] * np.repeat(absmax, 64)).reshape(N, K)


MADE: dict[str, Callable[[Any], tuple[list[Any], Any]]] = {
    **{f"GPTQ{b}": lambda rng, b=b: gptq(b, 1, rng) for b in (2, 3, 4, 8)},
    **{f"GPTQ{b}_V2": lambda rng, b=b: gptq(b, 2, rng) for b in (2, 3, 4, 8)},
    "AWQ4": awq,
    **{f"CT{b}": lambda rng, b=b: compressed(b, False, rng) for b in (4, 8)},
    **{f"CT{b}_ZEROS": lambda rng, b=b: compressed(b, True, rng) for b in (4, 8)},
    **{f"NBITS{b}": lambda rng, b=b: nbits(b, False, rng) for b in (2, 4, 8)},
    **{f"NBITS{b}_ZEROS": lambda rng, b=b: nbits(b, True, rng) for b in (2, 4, 8)},
    "INT8": int8,
    "INT4": int4,
    "BNB4": lambda rng: bnb(False, rng),
    "BNB4_NESTED": lambda rng: bnb(True, rng),
}
OPTIONS = {"BNB4": (64,), "BNB4_NESTED": (64, 8)}


#: whose value adds to a product that is rounded. WGSL lets a compiler round such a sum once, as NVIDIA's does
CONTRACTED = ("INT4", "BNB4_NESTED")


def same(got: Any, want: Any, name: str) -> bool:
    """Bit for bit; to the last place or two where a GPU may contract."""
    got, want = np.asarray(got.numpy(), np.float64), np.asarray(want, np.float64)
    loose = name in CONTRACTED and default_device().type == "webgpu"
    eps = 1e-6 if loose else 0
    return bool((np.abs(got - want) <= eps * np.abs(want).max()).all())


def made(name: str, seed: int = 0, **kw: Any) -> tuple[Packed, Any]:
    parts, want = MADE[name](np.random.default_rng(seed))
    tensors = [torch.from_numpy(np.ascontiguousarray(p)) for p in parts]
    return Packed(tensors, name, (N, K), options=OPTIONS.get(name, ()), **kw), np.ascontiguousarray(want, np.float32)


def test_every_scheme_is_here() -> None:
    from tabtorch.packed.schemes import SEPARATE

    assert set(MADE) == set(SEPARATE) and set(SEPARATE) < set(SCHEMES)


@pytest.mark.parametrize("name", MADE)
def test_each_value_is_as_published(device: str, name: str) -> None:
    w, want = made(name)
    assert same(w.dequantize(), want, name)
    half = w.to(torch.float16)
    assert isinstance(half, Packed) and half.packed_nbytes == w.packed_nbytes
    if name in CONTRACTED:  # what is rounded to float16 may come of either side of a middle
        assert np.allclose(half.dequantize().numpy(), want.astype(np.float16), rtol=1e-3, atol=0)
    else:
        assert np.array_equal(half.dequantize().numpy(), want.astype(np.float16))


@pytest.mark.parametrize("name", MADE)
def test_products_and_embeddings_unpack_in_their_own_kernels(device: str, name: str) -> None:
    w, dense = made(name)
    dense = torch.from_numpy(dense)
    bias = torch.randn(N)
    for m in (1, 3, 32):
        x = torch.randn(m, K) / 16
        graph.flush()
        with counted() as n:
            y = F.silu(F.linear(x, w, bias))
        assert (n.dispatches, n.temporaries) == (1, 0), (name, m)
        assert torch.allclose(y, F.silu(F.linear(x, dense, bias)), rtol=1e-4, atol=1e-3)
    ids = torch.tensor([[3, 31, 0], [7, 7, 1]])
    graph.flush()
    with counted() as n:
        y = F.embedding(ids, w) * 2
    assert (n.dispatches, n.temporaries) == (1, 0)
    assert same(y, (dense[ids] * 2).numpy(), name)
    assert same(w[5], dense[5].numpy(), name)
    assert same(w[2:4, ::2], dense[2:4, ::2].numpy(), name)


@pytest.mark.parametrize("name", ["GPTQ4", "AWQ4", "INT4", "BNB4_NESTED"])
def test_compiled_moved_saved_and_differentiated(device: str, name: str, tmp_path: Any) -> None:
    w, want = made(name)
    dense = torch.from_numpy(want)
    layer = nn.Linear(K, N)
    layer.weight = w
    f = torch.compile(lambda x: F.silu(layer(x)))
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(2, K) / 16
            assert torch.allclose(f(x), F.silu(F.linear(x, dense, layer.bias)), rtol=1e-4, atol=1e-3)
    a, b = (x.clone().requires_grad_() for _ in range(2))
    layer(a).tanh().sum().backward()
    F.linear(b, dense, layer.bias).tanh().sum().backward()
    assert torch.allclose(a.grad, b.grad, rtol=1e-3, atol=1e-4) and w.grad is None
    torch.save(layer.state_dict(), tmp_path / "state.pt")
    other = nn.Linear(K, N)
    other.load_state_dict(torch.load(tmp_path / "state.pt"), assign=True)
    assert isinstance(other.weight, Packed) and torch.equal(other(x), layer(x))
    assert np.array_equal(w.to("cpu").dequantize().numpy(), want)
    assert name in repr(w)
    with pytest.raises(RuntimeError, match="packed as"):
        w.mul_(2)


@pytest.mark.parametrize("name", MADE)
def test_parts_that_contradict_are_refused(device: str, name: str) -> None:
    w, _ = made(name)
    options = OPTIONS.get(name, ())
    good = list(w.parts)
    for shape in ((N, K * 2), (N * 2, K), (K,), (N, K, 1), (0, K), (N + 1, K), (N, K + 1)):
        with pytest.raises(ValueError):
            Packed(good, name, shape, options=options)
    for i, part in enumerate(good):
        for wrong in (part[:-1], part.to(torch.int64), part.unsqueeze(0)):
            with pytest.raises(ValueError):
                Packed([*good[:i], wrong, *good[i + 1 :]], name, (N, K), options=options)
    for parts in (good[:-1], [*good, good[-1]]):
        with pytest.raises(ValueError):
            Packed(parts, name, (N, K), options=options)
    for numbers in ((*options, 3), (*options, 3, 4), tuple(0 for _ in options) or (1,)):
        with pytest.raises(ValueError):
            Packed(good, name, (N, K), options=numbers)


def test_a_group_that_is_none_is_read_within_the_scales(device: str) -> None:
    parts, _ = gptq(4, 1, np.random.default_rng(0))
    parts[3] = np.full(K, -1, np.int32)
    w = Packed([torch.from_numpy(np.ascontiguousarray(p)) for p in parts], "GPTQ4", (N, K))
    assert torch.isfinite(w.dequantize()).all()
