"""torchaudio's compiled operators, `torch.ops.torchaudio.NAME`, as operations of ours: recursive filters, alignment, the transducer's loss.

`torch.library` defines them when somebody asks for that namespace, as it does torchvision's (see vision).
"""

from __future__ import annotations

import math
from math import prod
from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.engine.expr import Expr, cast, const, exp, imod, log, maximum
from tabtorch.engine.graph import Custom, Inst, inst
from tabtorch.engine.kernel import Kernel
from tabtorch.engine.lowering import Lowering
from tabtorch.engine.view import contiguous_meta
from tabtorch.ops.machinery.operation import run
from tabtorch.ops.neural.ctc import best_ways


def _recursion(i: Inst, low: Lowering) -> None:
    """Inputs: what stands before and after, (N, C, T + order - 1), of which the output starts as a copy; signal (N, C, T);
    coefficients, last first (C, order). One thread a channel of an example, for each value hangs on those before."""
    n, c, t = i.ins[1].shape
    order = i.ins[2].shape[1]

    def body(k: Kernel, row: Expr) -> None:
        length, taps = k.dim(t, "T"), k.dim(order, "order")
        channel = k.let(imod(row, k.dim(c, "C")) * taps, "channel")
        begin = k.let(row * (length + taps - 1), "begin")
        with k.loop(length, hint="time") as time:
            at = low.index(k, i.ins[1], k.let(row * length + time), 1)
            total = k.var(cast(k.load(low.input(1), at), i.compute))
            with k.loop(taps, hint="tap") as tap:
                a = cast(k.load(low.input(2), low.index(k, i.ins[2], channel + tap, 2)), i.compute)
                k.assign(total, total - a * cast(k.load(low.output, begin + time + tap), i.compute))
            k.store(low.output, k.let(begin + time + taps - 1), total)

    low.launch("recursive filter", n * c, body)


RECURSION = Custom("recursive filter", _recursion, in_place=True)


def lfilter_core_loop(input_signal_windows: Tensor, a_coeff_flipped: Tensor, padded_output_waveform: Tensor) -> None:
    """Writes y[t] = x[t] - Σ a[k] y[t - k] behind the first order - 1 values of each row of `padded_output_waveform`.

    input_signal_windows: x, (N, C, T). a_coeff_flipped: (C, order), the last one (a[0]) for what stands at t already.
    RuntimeError for other shapes.
    """
    x, a, y = input_signal_windows, a_coeff_flipped, padded_output_waveform
    torch._check(
        x.dim() == 3 and a.dim() == 2 and y.dim() == 3,
        lambda: "lfilter: expected (N, C, T), (C, order) and (N, C, T + order - 1)",
    )
    torch._check(
        x.size(1) == a.size(0) and y.shape == (*x.shape[:2], x.size(2) + a.size(1) - 1),
        lambda: f"lfilter: sizes {tuple(x.shape)}, {tuple(a.shape)} and {tuple(y.shape)} do not fit",
    )
    torch._check(
        x.dtype in (torch.float32, torch.float64), lambda: f'"lfilter_core_loop" not implemented for {x.dtype}'
    )
    if not prod(x.shape):
        return
    before = y.contiguous()
    m = contiguous_meta(tuple(y.shape), y.dtype, before._tab_meta.device)
    inputs = before, x, a
    y.copy_(run(inst(RECURSION, tuple([t._tab_meta for t in inputs]), m), m, *inputs))


def overdrive_core_loop(
    waveform: Tensor, temp: Tensor, last_in: Tensor, last_out: Tensor, output_waveform: Tensor
) -> None:
    """Writes waveform / 2 + 3/4 · y, where y[t] = temp[t] - temp[t - 1] + 0.995 y[t - 1]. All (C, T); `last_in`, `last_out`: (C,), what was
    before, and is written, too."""
    if not temp.numel():
        return
    steps = torch.cat([temp[:, :1] - last_in.unsqueeze(1), temp.diff(dim=1)], 1).unsqueeze(0)
    coefficients = torch.tensor([-0.995, 0.0], dtype=temp.dtype, device=temp.device).expand(temp.size(0), 2)
    padded = torch.cat([last_out.reshape(1, -1, 1), torch.zeros_like(steps)], 2)
    lfilter_core_loop(steps, coefficients, padded)
    y = padded[0, :, 1:]
    output_waveform.copy_(waveform.mul(0.5) + y.mul(0.75))
    last_in.copy_(temp[:, -1])
    last_out.copy_(y[:, -1])


def forced_align(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int = 0
) -> tuple[Tensor, Tensor]:
    """(path (1, T), log_probs): the likeliest labels, one a frame, that come to `targets` (1, L) by CTC's rules.

    log_probs: (1, T, C). The scores of all places are computed by one kernel; the way back through them is told here. RuntimeError for
    other sizes and for targets that are too long.
    """
    torch._check(log_probs.dim() == 3, lambda: "log_probs must be a 3-D tensor")
    torch._check(targets.dim() == 2, lambda: "targets must be a 2-D tensor")
    torch._check(log_probs.size(0) == 1, lambda: "The batch dimension for log_probs must be 1 at the current version.")
    torch._check(targets.size(0) == 1, lambda: "The batch dimension for targets must be 1 at the current version.")
    torch._check(0 <= blank < log_probs.size(2), lambda: "blank must be within [0, num classes)")
    torch._check(not targets.dtype.is_floating_point, lambda: "targets must be int32 or int64 type")
    frames = log_probs.size(1)
    torch._check(frames == int(input_lengths.max()), lambda: "input length mismatch")
    labels = targets[0].tolist()
    count = len(labels)
    torch._check(count == int(target_lengths.max()), lambda: "target length mismatch")
    repeats = sum(a == b for a, b in zip(labels, labels[1:], strict=False))
    torch._check(
        frames >= count + repeats,
        lambda: (
            f"targets length is too long for CTC. Found targets length: {count}, log_probs length: {frames}, and number of "
            f"repeats: {repeats}"
        ),
    )
    states = [blank if k % 2 == 0 else labels[k // 2] for k in range(2 * count + 1)]
    with torch.no_grad():
        where = log_probs.device
        wide = log_probs.detach() if log_probs.dtype is torch.float64 else log_probs.detach().float()
        ends = torch.tensor([frames], device=where), torch.tensor([len(states)], device=where)
        best: Any = best_ways(wide, torch.tensor([states], device=where), *ends)[0]
        # where each came from: the same state, the one before, or over a blank between two labels that differ
        skips = [k % 2 == 1 and k > 1 and labels[k // 2] != labels[k // 2 - 1] for k in range(len(states))]
        before: Any = torch.nn.functional.pad(best[:-1], (2, 0), value=-math.inf)
        stay, one = before[:, 2:], before[:, 1:-1]
        two: Any = torch.where(torch.tensor(skips, device=where), before[:, :-2], -math.inf)
        steps: Any = torch.where((two > one) & (two > stay), 2, torch.where((one > stay) & (one > two), 1, 0)).tolist()
        last = best[-1].tolist()
    state = len(states) - 1
    if count and not last[state] > last[state - 1]:
        state -= 1
    path = [states[state]]
    for row in reversed(steps):
        state -= row[state]
        path.append(states[state])
    return torch.tensor([path[::-1]], dtype=targets.dtype, device=targets.device), log_probs


def _transducer(i: Inst, low: Lowering) -> None:
    """Inputs: log-probabilities of silence (N, T, U + 1) and of the next label (N, T, U), how many frames and labels there are (N).

    The output (N, T, U + 1): of all ways from the beginning to a place, or (`static`) from there to the end. One thread an example.
    """
    n, t, places = i.ins[0].shape

    def body(k: Kernel, row: Expr) -> None:
        length, width = k.dim(t, "T"), k.dim(places, "places")
        back, nothing = i.static, const(-math.inf, i.compute)

        def known(j: int) -> Expr:
            return k.let(cast(k.load(low.input(j), low.index(k, i.ins[j], row, j)), "u32"), "known")

        def place(frame: Expr, at: Expr, wide: Expr) -> Expr:
            return k.let((row * length + frame) * wide + at, "place")

        def score(j: int, frame: Expr, at: Expr) -> Expr:
            where = place(frame, at, width - 1 if j else width)
            return k.let(cast(k.load(low.input(j), low.index(k, i.ins[j], where, j)), i.compute), "score")

        frames, count = known(2), known(3)
        with k.loop(frames, hint="time") as time, k.loop(k.let(count + 1), hint="label") as label:
            frame = k.let(frames - 1 - time if back else time, "frame")
            at = k.let(count - label if back else label, "at")
            ways = [k.var(nothing) for _ in range(2)]
            with k.when((time == 0) & (label == 0)):
                k.assign(ways[0], score(0, frame, at) if back else const(0, i.compute))
            with k.when(time > 0):  # in silence
                before = k.let(frame + 1 if back else frame - 1)
                silent = score(0, frame if back else before, at)
                k.assign(ways[0], k.load(low.output, place(before, at, width)) + silent)
            with k.when(label > 0):  # with a label
                before = k.let(at + 1 if back else at - 1)
                spoken = score(1, frame, at if back else before)
                k.assign(ways[1], k.load(low.output, place(frame, before, width)) + spoken)
            total = k.var(nothing)
            top = k.let(maximum(ways[0], ways[1]), "top")
            with k.when(top > nothing):
                k.assign(total, log(exp(ways[0] - top) + exp(ways[1] - top)) + top)
            k.store(low.output, place(frame, at, width), total)

    low.launch(i.op.name, n, body)


TRANSDUCER = Custom("transducer", _transducer)


def _ways(silent: Tensor, spoken: Tensor, frames: Tensor, counts: Tensor, back: bool) -> Any:
    inputs = silent, spoken, frames, counts
    m = contiguous_meta(tuple(silent.shape), silent.dtype, silent._tab_meta.device)
    return run(inst(TRANSDUCER, tuple([t._tab_meta for t in inputs]), m, static=back), m, *inputs)


def rnnt_loss_forward(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank: int,
    clamp: float,
    fused_log_softmax: bool,
) -> tuple[Tensor, Tensor]:
    """(costs (N,), gradient of the logits): the transducer's loss (Graves, 2012). logits: (N, T, U + 1, C); targets: (N, U) int32.

    clamp: the largest size of a gradient, if it is positive. fused_log_softmax: logits are no log-probabilities yet.
    """
    blank = blank % logits.size(3)
    n, frames, places, _ = logits.shape
    torch._check(targets.shape == (n, places - 1), lambda: "output length mismatch")
    torch._check(int(logit_lengths.max()) == frames, lambda: "input length mismatch")
    torch._check(int(target_lengths.max()) + 1 == places, lambda: "output length mismatch")
    shortest = int(logit_lengths.min()), int(target_lengths.min())
    torch._check(
        shortest[0] > 0 and shortest[1] >= 0, lambda: f"lengths must be positive, got {shortest[0]} and {shortest[1]}"
    )
    frames_of, counts = logit_lengths.long(), target_lengths.long()
    with torch.enable_grad():
        x = logits.detach() if logits.dtype is torch.float64 else logits.detach().float()
        x.requires_grad_()
        scores = x.log_softmax(3) if fused_log_softmax else x
        index = targets.long()[:, None, :, None].expand(n, frames, places - 1, 1)
        silent, spoken = scores[..., blank], scores[:, :, :-1].gather(3, index).squeeze(3)
    with torch.no_grad():
        given = silent.contiguous(), spoken.contiguous(), frames_of, counts
        before, after = _ways(*given, False), _ways(*given, True)
        total = after[:, :1, :1]
        # the probability of each step: of all ways that take it, over that of all ways
        times, labels = torch.arange(frames, device=x.device)[:, None], torch.arange(places, device=x.device)
        last, end = (frames_of - 1)[:, None, None], counts[:, None, None]
        later = torch.nn.functional.pad(after[:, 1:], (0, 0, 0, 1))
        silence = (before + silent + torch.where(times < last, later, 0.0) - total).exp()
        takes = (times < last) & (labels <= end) | (times == last) & (labels == end)
        speech = (before[:, :, :-1] + spoken + after[:, :, 1:] - total).exp()
        steps = torch.where(takes, silence, 0.0), torch.where((times <= last) & (labels[:-1] < end), speech, 0.0)
    gradient: Any = torch.autograd.grad((silent, spoken), x, [-s for s in steps])[0]
    costs = -total[:, 0, 0]
    if clamp > 0:
        gradient = gradient.clamp(-clamp, clamp)
    return costs.detach().to(logits.dtype), gradient.to(logits.dtype)


_LENGTHS = "Tensor input_lengths, Tensor target_lengths"
OPERATORS = {
    "_lfilter_core_loop(Tensor input_signal_windows, Tensor a_coeff_flipped, Tensor(a!) padded_output_waveform) -> ()": (
        lfilter_core_loop,
        None,
    ),
    "_overdrive_core_loop(Tensor waveform, Tensor temp, Tensor(a!) last_in, Tensor(b!) last_out, Tensor(c!) output_waveform) -> ()": (
        overdrive_core_loop,
        None,
    ),
    f"forced_align(Tensor log_probs, Tensor targets, {_LENGTHS}, int blank) -> (Tensor, Tensor)": (forced_align, None),
    "rnnt_loss_forward(Tensor logits, Tensor targets, Tensor logit_lengths, Tensor target_lengths, int blank, float clamp, "
    "bool fused_log_softmax) -> (Tensor, Tensor)": (rnnt_loss_forward, None),
}
#: what torchaudio asks of its library itself
ABOUT = {"cuda_version() -> int?": (lambda: None, None), "is_align_available() -> bool": (lambda: True, None)}
