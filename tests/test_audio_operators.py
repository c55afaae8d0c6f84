"""torchaudio's compiled operators, `torch.ops.torchaudio`, against what they stand for, written out with real PyTorch."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import tabtorch as tt
from sidebyside import DEVICES, to_tab

OURS: Any = tt.ops.torchaudio


def near(want: torch.Tensor, got: Any, tol: float = 1e-5) -> None:
    assert tuple(want.shape) == tuple(got.shape)
    torch.testing.assert_close(torch.tensor(got.cpu().tolist()), want.float(), rtol=tol, atol=tol)


@pytest.mark.parametrize("device", DEVICES)
def test_a_recursive_filter(device: str) -> None:
    torch.manual_seed(0)
    x, a, y = torch.randn(2, 3, 20), torch.rand(3, 4) * 0.3, torch.randn(2, 3, 23)
    y[:, :, 3:] = 0
    ours = to_tab([x, a, y], device)
    for t in range(20):
        y[:, :, t + 3] = x[:, :, t] - (a * y[:, :, t : t + 4]).sum(2)
    assert OURS._lfilter_core_loop(*ours) is None
    near(y, ours[2])
    with pytest.raises(RuntimeError, match="do not fit"):
        OURS._lfilter_core_loop(ours[0], ours[1][:2], ours[2])


@pytest.mark.parametrize("device", DEVICES)
def test_overdrive(device: str) -> None:
    torch.manual_seed(1)
    wave, temp, before_in, before_out, out = (
        torch.randn(2, 9),
        torch.randn(2, 9),
        torch.randn(2),
        torch.randn(2),
        torch.zeros(2, 9),
    )
    ours = to_tab([wave, temp, before_in, before_out, out], device)
    for t in range(9):
        before_out = temp[:, t] - before_in + 0.995 * before_out
        before_in = temp[:, t]
        out[:, t] = wave[:, t] * 0.5 + before_out * 0.75
    OURS._overdrive_core_loop(*ours)
    for want, got in ((out, ours[4]), (before_in, ours[2]), (before_out, ours[3])):
        near(want, got)


def collapsed(path: tuple[int, ...], blank: int) -> list[int]:
    return [k for k, _ in itertools.groupby(path) if k != blank]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("labels", "blank"), [([1, 2], 0), ([1, 1], 0), ([0, 2, 0], 1), ([2], 0)])
def test_forced_alignment(device: str, labels: list[int], blank: int) -> None:
    """The likeliest of all paths that come to the labels."""
    torch.manual_seed(2)
    scores = torch.randn(1, 6, 3).log_softmax(-1)
    paths = [p for p in itertools.product(range(3), repeat=6) if collapsed(p, blank) == labels]
    best = max(paths, key=lambda p: scores[0, torch.arange(6), torch.tensor(p)].sum().item())
    targets = torch.tensor([labels], dtype=torch.int32)
    lengths = torch.tensor([6]), torch.tensor([len(labels)])
    path, same = OURS.forced_align(*to_tab([scores, targets, *lengths], device), blank)
    assert tuple(path[0].tolist()) == best and path.dtype is tt.int32 and path.device.type == device
    near(scores, same)
    with pytest.raises(RuntimeError, match="targets length is too long for CTC"):
        OURS.forced_align(
            *to_tab([scores[:, :1], torch.tensor([[1, 1]]), torch.tensor([1]), torch.tensor([2])], device), 0
        )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("fused", [True, False])
def test_the_transducers_loss(device: str, fused: bool) -> None:
    """The sum over all ways through the lattice, and its gradient by autograd."""
    torch.manual_seed(3)
    logits = torch.randn(2, 4, 3, 5, requires_grad=True)
    targets, frames, counts = (
        torch.tensor([[1, 2], [3, 0]], dtype=torch.int32),
        torch.tensor([4, 3]),
        torch.tensor([2, 1]),
    )
    scores = logits.log_softmax(-1) if fused else logits
    costs = []
    for n in range(2):
        last, count = int(frames[n]), int(counts[n])
        ways = []
        for said in itertools.combinations_with_replacement(
            range(last), count
        ):  # the frame in which each label is said
            total, place = scores.new_zeros(()), 0
            for frame in range(last):
                while place < count and said[place] == frame:
                    total, place = total + scores[n, frame, place, targets[n, place]], place + 1
                total = total + scores[n, frame, place, 4]
            ways.append(total)
        costs.append(-torch.stack(ways).logsumexp(0))
    (gradient,) = torch.autograd.grad(torch.stack(costs).sum(), logits)
    ours = to_tab([logits.detach(), targets, frames.int(), counts.int()], device)
    cost, found = OURS.rnnt_loss_forward(*ours, -1, -1.0, fused)
    near(torch.stack(costs).detach(), cost)
    near(gradient, found)
    _, cut = OURS.rnnt_loss_forward(*ours, -1, 0.1, fused)
    near(gradient.clamp(-0.1, 0.1), cut)


def test_what_torchaudio_asks_of_its_library() -> None:
    tt.ops.load_library("somewhere/torchaudio/lib/libtorchaudio.abi3.so")
    assert tt.ops._torchaudio.is_align_available() is True and tt.ops._torchaudio.cuda_version() is None
    with pytest.raises(OSError, match="Could not load this library"):
        tt.ops.load_library("somewhere/torchaudio/lib/other.so")
