"""Indexing, gather and scatter against real PyTorch: values, dtypes, errors, names of backward nodes, gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tabtorch
from sidebyside import DEVICES, compare, outcome, same, to_tab

L = torch.tensor


def inputs() -> dict[str, object]:
    return {
        "x": torch.arange(12.0).reshape(3, 4).requires_grad_(),
        "y": torch.arange(24.0).reshape(2, 3, 4).requires_grad_(),
        "z": torch.tensor(1.5).requires_grad_(),
        "s": (torch.arange(12.0).reshape(3, 4) * 2 - 3).requires_grad_(),
        "one": torch.tensor([2.5]).requires_grad_(),
        "w": torch.arange(60.0).reshape(3, 4, 5).permute(2, 0, 1),
        "i": torch.arange(12).reshape(3, 4),
        "m": torch.tensor([True, False, True]),
        "mm": torch.arange(12).reshape(3, 4) % 3 == 0,
        "u": torch.tensor([1, 0, 1], dtype=torch.uint8),
        "k": torch.tensor([2, 0, -1]),
        "k32": torch.tensor([1, 0], dtype=torch.int32),
        "kk": torch.tensor([[0, 1], [2, 2]]),
        "far": torch.tensor([5]),
        "c": torch.complex(torch.arange(4.0), torch.ones(4)),
        "b": torch.tensor([True, False, True, True]),
        "h": torch.arange(4.0).to(torch.float16),
        "s16": torch.arange(6, dtype=torch.int16),
        "u8": torch.arange(6, dtype=torch.uint8),
        "z0": torch.tensor(1),
    }


GET = """
x[0]; x[-1]; x[5]; x[-4]; x[0, 5]; x[1, 2]; x[0, 0, 0]; z[0]; z[None]; z[...]; z[()]; x[:]; x[1:]; x[:-1]; x[::2]
x[1::2, ::3]; x[5:]; x[2:1]; x[-2:]; x[::-1]; x[::0]; x[1.0]; x['a']; x[{}]; x[...]; x[..., 0]; x[0, ...]; x[None]
x[:, None]; x[None, None, 0]; x[..., None]; x[..., ...]; y[0, :, 1:3]; y[..., 1]; y[:, 1]; y[1:, None, 2, ::2]
y[0, None, 0, None]; y[-1, -1, -1]; x[1.5:]; x[True]; x[False]; x[True, None]; x[0, True]; x[m]; x[:, m]; x[mm]
x[u]; x[L([True, False])]; x[torch.zeros(3, 5, dtype=torch.bool)]; x[torch.zeros(2)]; x[k]; x[k32]; x[kk]; x[:, kk]
x[far]; x[L([-4])]; x[k, k]; x[k, :2]; x[1:, k]; x[k, None]; x[None, k]; x[kk, k[:2]]; x[L([0, 1]), L([0, 1, 2])]
x[[0, 2]]; x[[0, 1], [1, 2]]; x[[[0, 1], [1, 2]]]; x[[0, slice(None)]]; x[[1.0]]; x[range(2)]; x[(0, 1),]
x[[True, False, True]]; x[[True]]; x[[0], [0], [0]]; x[..., [0]]; x[0, [True, False, True, False]]
x[1:2, [True, False, True, False]]; x[np.array([0, 1])]; x[np.int64(1)]; x[np.array([True, False, True])]
x[np.array(1)]; x[z0]; x[L(5)]; x[L(True)]; x[L(1.5)]; x[z0, 0]; x[0, z0]; x[z0:L(2)]; x[:, z0]; x[m, 1:]; x[m, 0]
y[m[:2]]; y[:, m]; y[:, mm]; y[0, mm]; y[mm]; y[0, :, [0, 1]]; y[[0, 1], :, [0, 1]]; y[:, [0, 1], [0, 1]]
y[:, None, [0, 1]]; y[[0], :, None, [1]]; y[[]]; y[:, []]; y[[0, 1], [0, 2]]; y[..., [0, 1], :]
y[[0, 1], ..., [3, 2]]; y[0, [1, 2]]; y[[1], 0]; y[1, :, kk]; y[kk % 2, kk, kk]; y[[[0], [1]], [0, 1]]
x[True, [0, 1]]; x[[0, 1], True]; x.t()[k]; w[k]; w[[0, 4], :, [1, 3]]; w[k, None, 1]; i[k]; c[k]; b[k]; h[k]
s16[k]; u8[L([True, False] * 3)]; x[k][1:]; x[mm & (x > 3)]; x[x > 100]; x[:0][k[:0]]; y[:, :, m]; x[None, mm]
x[m][:, 1]; x[(slice(None), 1)]; y[True, :, 0]; y[0, True, [1]]; y[..., None, 0]; x[L([], dtype=torch.int64)]
x[k.reshape(3, 1), k]; z[True]; z[L(True)]; z[m]; z[k]
"""
#: PyTorch lays the result out as its source is; here it is row-major
PERMUTED = "w[:, k]; w[1:4:2, [2, 0]]; w[..., k, :]; y.mT[:, k]"
GATHER = """
x.gather(0, kk % 3); x.gather(1, i % 4); x.gather(0, i); x.gather(0, L([0])); x.gather(0, L([[0, 0, 0, 0, 0]]))
x.gather(2, L([[0]])); x.gather(0, L([[0.]])); x.gather(0, L([[7]])); x.gather(0, L([[-1]]))
x.gather(0, L([[0]], dtype=torch.int32)); y.gather(1, L([[[0, 1], [2, 0]]]))
y.gather(2, L([[[0, 1], [2, 0], [3, 3]]] * 2)); x.t().gather(0, kk); z.gather(0, L(0)); torch.gather(x, 1, kk)
x.gather(1, L([[]], dtype=torch.int64)); x.scatter(0, kk, s[:2, :2]); x.scatter(1, kk, s[1:, :2])
x.scatter(0, kk, 2.5); x.scatter(0, L([[7]]), s); x.scatter(0, L([0]), s); x.scatter(0, L([[0]]), i[:1])
x.scatter(0, L([[0]] * 4), torch.zeros(3, 1)); x.scatter(0, L([[0]] * 5), torch.zeros(5, 1))
x.scatter(1, L([[0, 1, 2, 3]] * 3), s); y.scatter(1, L([[[0, 1, 2, 0]]]), torch.ones(1, 1, 4))
x.t().scatter(0, L([[1, 2]]), torch.ones(1, 2)); i.scatter(0, L([[0, 1, 2, 0]]), 7); b.scatter(0, L([1]), True)
h.scatter(0, L([0, 2]), torch.ones(2, dtype=torch.float16)); s16.scatter(0, L([5]), 9)
u8.scatter(0, L([1, 3]), L([9, 8], dtype=torch.uint8)); c.scatter(0, L([1]), torch.ones(1, dtype=torch.complex64))
x.detach().scatter(0, L([[0, 0]]), torch.ones(1, 2), reduce='add')
x.detach().scatter(0, L([[0, 0], [0, 1]]), torch.ones(2, 2) * 3, reduce='multiply')
x.scatter(0, L([[0]]), 1., reduce='foo'); x.scatter_add(0, kk, s[:2, :2]); x.scatter_add(1, kk, s[1:, 2:])
x.scatter_add(0, L([[0, 0, 0, 0]] * 3), s); x.scatter_add(0, L([[0]]), i[:1]); x.scatter_add(0, L([[9]]), s[:1, :1])
y.scatter_add(2, L([[[0, 0, 3]]]), torch.ones(1, 1, 3)); z.scatter_add(0, L(0), z)
i.scatter_add(0, L([[0, 0, 0, 0]] * 3), i); h.scatter_add(0, L([1, 1, 1]), torch.ones(3, dtype=torch.float16))
s16.scatter_add(0, L([1, 1]), L([7, 8], dtype=torch.int16))
u8.scatter_add(0, L([1, 1]), L([250, 8], dtype=torch.uint8))
c.scatter_add(0, L([1, 1]), torch.ones(2, dtype=torch.complex64)); x.scatter_reduce(0, kk, s[:2, :2], 'sum')
x.scatter_reduce(0, kk, s[:2, :2], 'prod'); x.scatter_reduce(0, kk, s[:2, :2], 'mean')
x.scatter_reduce(0, kk, s[:2, :2], 'amax'); x.scatter_reduce(0, kk, s[:2, :2], 'amin')
x.scatter_reduce(1, kk, s[:2, 2:], 'amax', include_self=False)
x.scatter_reduce(0, L([[0]] * 3), s[:, :1], 'sum', include_self=False)
x.scatter_reduce(0, kk, s[:2, :2], 'mean', include_self=False)
x.scatter_reduce(0, kk, s[:2, :2], 'prod', include_self=False)
x.scatter_reduce(0, kk, s[:2, :2], 'amin', include_self=False); i.scatter_reduce(0, kk, i * 3, 'prod')
i.scatter_reduce(0, kk, i - 5, 'amax'); i.scatter_reduce(0, kk, i - 5, 'mean')
s16.scatter_reduce(0, L([1, 1]), L([7, -8], dtype=torch.int16), 'amin')
x.scatter_reduce(0, L([[0]]), torch.zeros(1, 1), 'foo')
i.to(torch.int32).scatter_reduce(0, L([[0, 0], [0, 0]]), L([[4, -7], [3, 9]], dtype=torch.int32), 'amin')
x.index_select(0, k[:2]); x.index_select(1, k32); x.index_select(0, L([[0]])); x.index_select(0, L([5]))
x.index_select(0, L([-1])); x.index_select(0, L([0.])); x.index_select(3, L([0])); x.index_select(0, L(0))
z.index_select(0, L(0)); y.index_select(-1, L([3, 3, 0])); w.index_select(0, L([4, 0]))
x.index_add(0, L([0, 0]), s[:2]); x.index_add(1, L([3, 0]), s[:, :2]); x.index_add(0, L([0, 2, 0]), s, alpha=2)
x.index_add(0, L([0]), s); x.index_add(0, L([0, 1, 7]), s); x.index_add(0, L([0, 1, 2]), s[:, :2])
x.index_add(0, L([0, 1, 2]), i); x.index_add(0, L([[0, 1, 2]]), s); i.index_add(0, L([0, 0, 0]), i)
h.index_add(0, L([1, 1]), torch.ones(2, dtype=torch.float16)); y.index_add(2, L([0, 0]), torch.ones(2, 3, 2))
x.index_copy(0, L([2, 0]), s[:2]); x.index_copy(1, L([3]), s[:, :1]); x.index_copy(0, L([0, 1, 9]), s)
x.index_copy(0, L([0]), s); x.index_copy(0, L([0]), i[:1]); x.index_fill(0, L([1]), 5)
x.index_fill(1, L([0, -1]), 2.5); x.index_fill(0, L([9]), 1); x.index_fill(0, L([0]), s)
x.index_fill(0, L([0.]), 1); x.index_fill(0, L([0, 2]), z); i.index_fill(0, L([0]), 3)
b.index_fill(0, L([0]), False); x.take(L([0, 5, -1])); x.take(kk); x.take(L([20])); x.take(L([0.]))
x.t().take(L([1, 2])); torch.take_along_dim(x, L([[0]]), 0); torch.take_along_dim(x, L([[0]]))
torch.take_along_dim(x, L([0]), 0); torch.take_along_dim(x, kk[:, :1], 1); torch.take_along_dim(y, L([[[-1]]]), 2)
x.put(L([0, 5]), one.expand(2)); x.put(L([1, 1]), s[0, :2], True); x.put(L([0, 1]), L([1.]))
x.put(L([20]), L([1.])); x.masked_fill(mm, 2); x.masked_fill(m[:, None], -1.5); x.masked_fill(mm, z)
x.masked_fill(L([True, False]), 1); x.masked_fill(x, 1); x.masked_fill(mm, L([1., 2.])); i.masked_fill(mm, 1.5)
i.masked_fill(mm, L(1.5)); one.masked_fill(mm, 0.); b.masked_fill(b, False); c.masked_fill(b, 1j)
h.masked_fill(b, float('-inf')); x.masked_select(mm); x.masked_select(m[:, None]); x.masked_select(L([True, False]))
x.masked_select(i); z.masked_select(L(True)); one.masked_select(mm); x.masked_scatter(mm, s)
x.masked_scatter(mm, L([1.])); x.masked_scatter(mm, i); x.masked_scatter(m[:, None], s); x.masked_scatter(x > 99, s)
x.nonzero(); mm.nonzero(); mm.nonzero(as_tuple=True); z.nonzero(); z.nonzero(as_tuple=True); torch.argwhere(i % 5)
torch.zeros(3).nonzero(); torch.zeros(0, 3).nonzero(); c.nonzero(); torch.nonzero(i > 4, as_tuple=True)
x.index_put((k,), s); x.index_put((L([0, 0]), L([1, 1])), s[0, :2], accumulate=True); x.index_put((mm,), z)
x.index_put((m, L([0, 1])), s[0, :2]); x.index_put((None, k), one.expand(3))
i.index_put((k,), i[:1], accumulate=True); b.index_put((k,), b[:3])
h.index_put((L([1, 1]),), h[:2], accumulate=True); F.embedding(kk, x); F.embedding(L([7]), x)
F.embedding(L([0.]), x); x.index_reduce(0, L([0, 0]), s[:2], 'amax')
x.index_reduce(0, L([0, 0]), s[:2], 'mean', include_self=False)
"""
SET = """
x[0] = 5; x[1, 2] = 7.5; x[:, 1] = one; x[0] = s[1]; x[0] = torch.zeros(3); x[0:2] = torch.zeros(3, 4)
x[0] = torch.zeros(1, 4); x[0] = torch.zeros(1, 1, 4); x[0] = torch.zeros(2, 4); x[[0, 1]] = torch.zeros(3)
x[[0, 1]] = s[:2]; x[[0, 1]] = torch.zeros(1, 2, 4); x[[0, 1]] = torch.zeros(3, 4); x[x > 3] = torch.zeros(3)
x[x > 3] = torch.zeros(1); x[x > 3] = 5; x[5] = 1; x[[5]] = 1; x[0] = [1, 2, 3, 4]; x[0] = np.ones(4); x[0] = 'a'
x[0] = 1j; i[0] = 1.5; i[0] = L(1.5); i[[0]] = L(1.5); i[[0]] = 1.5; i[i > 3] = 1.5; x[[0]] = L([1])
x[[0], [0]] = torch.zeros(2); x[True] = 3; x[False] = 3; x[None, 0] = 3; x[0, True] = 3; x[L([True, False])] = 1
x[L([0.5])] = 1; x[::-1] = 1; x[()] = 1; x[0, 0, 0] = 1; x[...] = torch.zeros(5); x[0] = None
x[0, 0] = torch.zeros(1, 1); x[0, 0] = torch.zeros(2); x[::2, 1:3] = s[:2, :2]; x[..., -1] = 9; x[k] = s
x[k, k] = s[0, :3]; x[:, k] = one; x[m] = s[:2]; x[m, 1:] = 4; x[mm] = s[mm]; x[kk] = 1; x[kk, 0] = s[:2, :2]
x[1:, [0, 3]] = s[:2, :2]; x[None, k] = 3; x[k, None] = s[:, None]; i[k] = i[0].clone(); b[k] = False; h[1:3] = 7
h[k] = 2; s16[::2] = 3; s16[[1, 3]] = L([8, 9], dtype=torch.int16); u8[1:4] = L([7, 8, 9], dtype=torch.uint8)
u8[u8 > 3] = 200; c[1] = 2j; c[k] = c[:3] * 2; x[z0] = 6; x[z0, 1:] = 7; x[:, 0] = x[:, 1]
x[0], x[1] = x[1] * 1, x[0] * 1; x[1:] = x[:-1].clone(); x[:2] += 1; x[mm] *= 2; x[[0, 2]] -= s[[0, 1]]
x.t()[0] = 1; x.t()[k] = 2; x.view(2, 6)[1, ::2] = one; x[torch.zeros(3, 4, dtype=torch.bool)] = 1
x[torch.zeros(0, dtype=torch.int64)] = 1; x[1] = np.float32(3); x[:, :] = z; x[0] = z; x[0] = i[0]; x[0, 1] = True
x.index_put_((k,), s); x.index_fill_(0, L([0]), 3); x.index_add_(0, L([1, 1]), s[:2])
x.index_copy_(1, L([3, 0]), s[:, :2]); x.scatter_(0, kk, 9.); x.scatter_(1, kk, s[1:, 2:])
x.scatter_add_(0, kk, s[:2, 2:]); x.scatter_reduce_(0, kk, s[:2, 1:3], 'amax'); x.masked_fill_(mm, 7)
x.masked_fill_(m[:, None], z); x.masked_fill_(torch.zeros(2, 3, 4, dtype=torch.bool), 1); x.masked_scatter_(mm, s)
x.put_(L([0, -1]), s[0, :2]); x[1:].masked_fill_(mm[1:], -1); x.t().index_fill_(0, L([1]), 8)
x[:, ::2].scatter_(0, kk, 3.); x[:, 1:3].index_add_(0, L([0, 0]), s[:2, :2]); x.tril_(); x[:, :3].triu_(1)
h.scatter_add_(0, L([0, 0]), h[:2] * 1); x.t().masked_scatter_(mm.t(), s); x.fill_diagonal_(3)
x.diagonal().fill_(2); x.diagonal()[1:] = s[0, :2]
"""


def split(text: str) -> list[str]:
    return [e.strip() for line in text.strip().split("\n") for e in line.split(";") if e.strip()]


#: writes to one place more than once -> the same without: which of them a GPU lets win is nowhere said
DISTINCT = {
    "x.scatter(1, kk, s[1:, :2])": "x.scatter(1, L([[0, 1], [2, 3]]), s[1:, :2])",
    "x.scatter_(1, kk, s[1:, 2:])": "x.scatter_(1, L([[0, 1], [2, 3]]), s[1:, 2:])",
    "x.index_put((k,), s)": "x.index_put((L([1, 0, -1]),), s)",
    "x.index_put_((k,), s)": "x.index_put_((L([1, 0, -1]),), s)",
    "x[k] = s": "x[L([1, 0, -1])] = s",
    "x[k, None] = s[:, None]": "x[L([1, 0, -1]), None] = s[:, None]",
    "x[kk, 0] = s[:2, :2]": "x[kk, L([0, 1])] = s[:2, :2]",
}


def check_all(expressions: list[str], device: str, **kw: bool) -> None:
    wrong = []
    for e in [DISTINCT.get(e, e) if device == "webgpu" else e for e in expressions]:
        try:
            compare(e, inputs, device, **kw)
        except Exception as err:  # all of them are wanted in one report
            wrong.append(f"{e}\n    {type(err).__name__}: {str(err).strip()[:500]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8", "ignore:Using a non-tuple sequence")
@pytest.mark.parametrize("device", DEVICES)
def test_getitem(device: str) -> None:
    check_all(split(GET), device)
    check_all(split(PERMUTED), device, strides=False)


@pytest.mark.filterwarnings("ignore:The reduce argument", "ignore:index_reduce")
@pytest.mark.parametrize("device", DEVICES)
def test_gather_and_scatter(device: str) -> None:
    check_all(split(GATHER), device, exact=False)


def run(statement: str, lib: object, names: dict[str, object]) -> object:
    """Executes on copies that are no leaves; gives back the changed tensors."""
    mine = {
        k: v * 1 if isinstance(v, (torch.Tensor, tabtorch.Tensor)) and v.requires_grad else v for k, v in names.items()
    }
    exec(statement, {"torch": lib, "np": np, "L": lib.tensor, **mine}, mine)  # type: ignore[attr-defined]
    return mine


@pytest.mark.parametrize("device", DEVICES)
def test_setitem_and_in_place(device: str) -> None:
    wrong = []
    for statement in [DISTINCT.get(s, s) if device == "webgpu" else s for s in split(SET)]:
        names = inputs()
        mine = {k: to_tab(v, device) for k, v in names.items()}
        kind, want = outcome(lambda: run(statement, torch, names))  # noqa: B023
        with tabtorch.device(device):
            got_kind, got = outcome(lambda: run(statement, tabtorch, mine))  # noqa: B023
        try:
            if kind == "error" or got_kind == "error":
                assert (kind, want) == (got_kind, got)
                continue
            for name in names:
                same(want[name], got[name], strides=False, where=f"{statement}: {name}")
            leaves = ["x", "s", "one", "z"]
            if want["x"].requires_grad:
                g = torch.arange(1.0, 13).reshape(3, 4).cos()
                a = torch.autograd.grad((want["x"] * g).sum(), [names[k] for k in leaves], allow_unused=True)
                b = tabtorch.autograd.grad(
                    (got["x"] * to_tab(g, device)).sum(), [mine[k] for k in leaves], allow_unused=True
                )
                for k, p, q in zip(leaves, a, b, strict=True):
                    assert (p is None) == (q is None), k
                    if p is not None:
                        same(p, q, strides=False, exact=False, where=f"gradient of {k}")
        except Exception as err:
            wrong.append(f"{statement}\n    {type(err).__name__}: {str(err).strip()[:500]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("device", DEVICES)
def test_many_elements(device: str) -> None:
    rng = np.random.default_rng(0)
    a = rng.random((50, 40)).astype(np.float32)
    index = rng.integers(0, 50, 300)
    x, y = torch.tensor(a), tabtorch.tensor(a, device=device)
    i, j = torch.tensor(index), tabtorch.tensor(index, device=device) * 1  # not known on the host
    same(x[i], y[j])
    same((x > 0.7).nonzero(), (y > 0.7).nonzero())
    same(x[x > 0.5], y[y > 0.5])
    same(x.index_add(0, i, x[i]), y.index_add(0, j, y[j]), exact=False)
    counts = torch.bincount(i, minlength=50)
    same(counts, tabtorch.zeros(50, dtype=tabtorch.int64, device=device).index_add(0, j, tabtorch.ones_like(j)))


def test_scalar_mask_assignment_reads_nothing() -> None:
    x = tabtorch.arange(6.0) * 1
    mask = x > 2
    from tabtorch.bridge import get_bridge

    before = get_bridge().stats()["reads"]
    x[mask] = 0.0
    tabtorch.zeros(3)[tabtorch.tensor([0, 2])] = 1.0
    assert get_bridge().stats()["reads"] == before
    assert x.tolist() == [0, 1, 2, 0, 0, 0]


def test_deterministic(device):
    """With `use_deterministic_algorithms`, writes that meet are made in the order of the cpu device, bit for bit."""
    torch.manual_seed(0)
    i, j, v = torch.randint(0, 5, (40,)), torch.randint(0, 5, (40, 7)), torch.randn(40, 7)
    k = torch.arange(40) % 7
    row, place, values, column = (to_tab(t, device) for t in (i, j, v, k))
    settings = ((True, False), (True, True), (False, False))
    for on, warn_only in settings:
        for m in (torch, tabtorch):
            m.use_deterministic_algorithms(on, warn_only=warn_only)
            assert m.are_deterministic_algorithms_enabled() == on
            assert m.get_deterministic_debug_mode() == (1 if warn_only else 2) * on
        if not on:
            break
        zeros = tabtorch.zeros(5, 7, device=device)
        assert zeros.index_add(0, row, values).tolist() == torch.zeros(5, 7).index_add(0, i, v).tolist()
        assert zeros.scatter_add(0, place, values).tolist() == torch.zeros(5, 7).scatter_add(0, j, v).tolist()
        want = torch.zeros(5, 7).index_put_((i, k), v[:, 0])
        assert zeros.clone().index_put_((row, column), values[:, 0]).tolist() == want.tolist()
    with pytest.raises(RuntimeError, match="invalid value of debug_mode, expected 0, 1, or 2, but got 5"):
        tabtorch.set_deterministic_debug_mode(5)
