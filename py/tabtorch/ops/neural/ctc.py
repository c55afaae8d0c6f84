"""Connectionist temporal classification (Graves et al., 2006): the loss of all ways to align a target with a longer sequence.

The states of a target of S labels are its labels with a blank before, between and after them, 2·S + 1 in all. One kernel makes
the log-probabilities alpha[n, t, s] of all prefixes that end in state s at time t; the same kernel from the other end
makes beta, and the gradient is a formula of both.
"""

from __future__ import annotations

import math
from typing import Any

from tabtorch import ops
from tabtorch.autograd.grad_mode import no_grad
from tabtorch.autograd.tape import record
from tabtorch.base import dtypes
from tabtorch.core.shapes import type_name
from tabtorch.core.tensor import Tensor
from tabtorch.engine.expr import Expr, cast, const, exp, log, maximum, where
from tabtorch.engine.graph import Custom, inst
from tabtorch.engine.lower import Kernel
from tabtorch.engine.plan import Lowering
from tabtorch.engine.view import contiguous_meta
from tabtorch.ops.indexing.index_maps import every_example, host_values, row_sums
from tabtorch.ops.machinery.asserts import Complaint, assert_range
from tabtorch.ops.machinery.integer_bounds import Range
from tabtorch.ops.machinery.operation import run
from tabtorch.ops.machinery.promotion import SINGLE_DOUBLE, check_kernel
from tabtorch.ops.machinery.registry import register


def _lower(i: Any, low: Lowering) -> None:
    """Inputs: log-probabilities (N, T, C), labels of the states (N, L), lengths in time and in states (N). One thread a sample.

    The output (N, T, L): the log-probability of all ways to a state, or of the likeliest (BEST). `static`: whether from the end.
    """
    n, steps, classes = i.ins[0].shape
    states = i.ins[1].shape[1]
    if i.out.numel == 0:
        return

    def body(k: Kernel, t: Expr) -> None:
        et, ec, es = k.dim(steps, "T"), k.dim(classes, "C"), k.dim(states, "L")
        nothing = const(-math.inf, i.compute)

        def get(j: int, at: Expr, type: str) -> Expr:
            e: Expr = cast(k.load(low.input(j), low.index(k, i.ins[j], at, j)), type)
            return e

        length = k.let(get(2, t, "u32"), "length")
        count = k.let(get(3, t, "u32"), "count")

        def label(s: Expr) -> Expr:
            return k.let(get(1, t * es + s, "u32"), "label")

        def place(time: Expr, s: Expr) -> Expr:
            if i.static:
                time, s = length - 1 - time, count - 1 - s
            return k.let((t * et + time) * es + s, "at")

        with k.loop(length, hint="time") as time:
            row = k.let((t * et + (length - 1 - time if i.static else time)) * ec, "row")
            first = k.let(time == 0, "first")
            before = k.let(where(first, time, time - 1), "before")
            with k.loop(count, hint="s") as s:
                here = label(count - 1 - s if i.static else s)
                total = k.var(nothing)
                with k.when(first):
                    k.assign(total, where(s < 2, const(0, i.compute), nothing))
                with k.when(time > 0):
                    # from the same state, from the one before, and over a blank between two labels that differ
                    parts = [k.var(nothing) for _ in range(3)]
                    k.assign(parts[0], k.load(low.output, place(before, s)))
                    with k.when(s > 0):
                        k.assign(parts[1], k.load(low.output, place(before, s - 1)))
                    with k.when(s > 1):
                        other = label(count + 1 - s if i.static else s - 2)
                        with k.when(other != here):
                            k.assign(parts[2], k.load(low.output, place(before, s - 2)))
                    top = k.let(maximum(maximum(parts[0], parts[1]), parts[2]), "top")
                    with k.when(top > nothing):
                        sums = log(exp(parts[0] - top) + exp(parts[1] - top) + exp(parts[2] - top)) + top
                        k.assign(total, top if i.op is BEST else sums)
                k.store(low.output, place(time, s), total + get(0, row + here, i.compute))

    low.clear(low.output)
    low.launch(i.op.name, n, body)


CTC, BEST = Custom("ctc", _lower), Custom("ctc_best", _lower)


def best_ways(log_probs: Tensor, labels: Tensor, lengths: Tensor, counts: Tensor) -> Tensor:
    """(N, T, L): the log-probability of the likeliest way to each state, in each frame.

    log_probs (N, T, C); labels of the states (N, L), blanks among them; how many frames and states there are (N).
    """
    return _walk(log_probs, labels, lengths, counts, False, BEST)


def _walk(log_probs: Tensor, labels: Tensor, lengths: Tensor, counts: Tensor, back: bool, op: Custom = CTC) -> Tensor:
    m = log_probs._tab_meta
    inputs = (log_probs, labels, lengths, counts)
    out = contiguous_meta((m.shape[0], m.shape[1], labels.shape[1]), m.dtype, m.device)
    return run(inst(op, tuple(t._tab_meta for t in inputs), out, static=back), out, *inputs)


_WHILE = "(while checking arguments for ctc_loss_allocate_outputs)"


def _assert(t: Tensor, low: int, high: int, text: str, below: str = "") -> None:
    """Asserts that low <= v <= high for the elements of `t`; what is said may have the value as {i}."""
    assert_range(every_example(t), Range(low, high), Complaint(RuntimeError, text, below), "ctc_loss")


def _lengths(name: str, given: Any, like: Tensor, n: int, limit: int) -> tuple[Any, list[int] | None]:
    """A tensor of `n` int64 on the device of `like`, and its elements if they are known on the host. All are 0 to `limit`."""
    if not isinstance(given, Tensor):
        given = ops.tensor([int(v) for v in given], dtype=dtypes.int64, device=like.device)
    elif given.dtype.category != 1 or given.dtype.name == "bool":
        raise RuntimeError(f"{name} must be integral")
    if given.numel() != n:
        raise RuntimeError(f"{name} must be of size batch_size")
    at_least, at_most = (
        f"Expected {name} to have value {bound}, but got value {{i}} {_WHILE}"
        for bound in ("at least 0", f"at most {limit}")
    )
    _assert(given, 0, limit, at_most, at_least)
    return given.reshape(-1).to(like.device, dtypes.int64), host_values(given)


def _padded(targets: Tensor, counts: Tensor, known: list[int] | None, n: int, steps: int) -> Tensor:
    """Targets as (N, S), from (N, S) or from all of them one after another."""
    size = f"for argument #2 'targets' {_WHILE}"
    if targets.ndim == 2:
        width = targets.shape[1]
        text = f"Expected tensor to have size at least {{i}} at dimension 1, but got size {width} {size}"
        _assert(counts if known is None else ops.tensor([max(known, default=0)]), -1, width, text)
        return targets
    total = targets.shape[0]
    text = f"Expected tensor to have size {{i}} at dimension 0, but got size {total} {size}"
    _assert(row_sums(counts), total, total, text)
    # a target longer than the sequence has no alignment, so where the lengths are on the device that many will do
    width = max(known, default=0) if known is not None else min(total, steps + 1)
    if total == 0:
        return targets.new_zeros((n, 0))
    start = counts.cumsum(0) - counts
    at = start.unsqueeze(1) + ops.arange(width, device=targets.device)
    return targets[at.clamp(max=total - 1)]


def _no_second(g: Tensor) -> Any:
    raise RuntimeError("derivative for aten::_ctc_loss_backward is not implemented")


@register("ctc_loss")
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Tensor:
    """-log of the probability of each target over all its alignments.

    `log_probs` (T, N, C) or (T, C); `targets` (N, S), or all of them one after another; lengths (N) as tensors or tuples.
    As in PyTorch the gradient takes `log_probs` to be normalized. RuntimeError for sizes that do not fit.
    """
    batched = log_probs.ndim == 3
    d = log_probs.dtype
    check_kernel("ctc_loss_cpu", d, SINGLE_DOUBLE)
    if targets.dtype.name not in ("int32", "int64"):
        raise RuntimeError(
            "Expected object of scalar type Long or Int for argument #2 'targets' in call to ctc_loss, but got "
            f"{type_name(targets.dtype)}"
        )
    x = log_probs.transpose(0, 1) if batched else log_probs.unsqueeze(0)
    n, steps, classes = x.shape
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    if not batched and targets.ndim == 1:
        targets = targets.unsqueeze(0)
    times, _ = _lengths("input_lengths", input_lengths, x, n, steps)
    sizes, known_sizes = _lengths("target_lengths", target_lengths, x, n, 2**63 - 1)
    padded = _padded(targets.to(x.device, dtypes.int64), sizes, known_sizes, n, steps)
    width = padded.shape[1]
    # what is complained of must not lead the kernels out of their memory, nor let them run for ever
    times = times.clamp(0, steps)
    inside = ops.arange(width, device=x.device) < sizes.unsqueeze(1)
    bad_label = f"Expected targets to have values from 0 to {classes - 1}, but got value {{i}} {_WHILE}"
    _assert(ops.where(inside, padded, 0), 0, classes - 1, bad_label)
    # an index that is not a label reads the nearest one: places past a target's end hold anything
    spaced = ops.stack([ops.full_like(padded, blank), padded.clamp(0, classes - 1)], 2).reshape(n, 2 * width)
    labels = ops.cat([spaced, ops.full((n, 1), blank, dtype=dtypes.int64, device=x.device)], 1)
    counts = sizes.clamp(0, width) * 2 + 1
    alpha: Any = _walk(x.detach(), labels, times, counts, False)
    last = alpha.gather(1, (times - 1).clamp(min=0).reshape(n, 1, 1).expand(n, 1, labels.shape[1])).squeeze(1)
    ends = ops.stack([counts - 1, (counts - 2).clamp(min=0)], 1)
    ends = last.gather(1, ends)
    ends = ops.where(ops.stack([counts > 0, counts > 1], 1), ends, -math.inf)
    loss: Any = -ops.logaddexp(ends.select(1, 0), ends.select(1, 1))
    loss = ops.where(times == 0, ops.where(sizes == 0, 0.0, math.inf).to(d), loss)
    loss = ops.where(sizes > width, math.inf, loss)

    def back(g: Any, x: Any, alpha: Any, loss: Any) -> Any:
        with no_grad():
            y = x.transpose(0, 1) if batched else x.unsqueeze(0)
            beta = _walk(y, labels, times, counts, True)
            places = labels.unsqueeze(1).expand(alpha.shape)
            state = ops.arange(alpha.shape[2], device=alpha.device) < counts.reshape(n, 1, 1)
            # alpha and beta both hold the probability of the state itself
            share = (alpha + beta + loss.reshape(n, 1, 1) - y.gather(2, places)).exp()
            share = ops.zeros_like(y).scatter_add(2, places, ops.where(state, share, 0.0))
            inside = ops.arange(steps, device=y.device).reshape(1, steps, 1) < times.reshape(n, 1, 1)
            r = ops.where(inside, (y.exp() - share) * g.reshape(n, 1, 1), 0.0)
            if zero_infinity:
                r = ops.where((loss == math.inf).reshape(n, 1, 1), 0.0, r)
            r = r.transpose(0, 1) if batched else r.squeeze(0)
        record("NotImplemented", (g, x), r, _no_second)
        return r

    record("CtcLossBackward0", (log_probs,), loss, back, (log_probs, alpha, loss))
    if zero_infinity:
        loss = ops.where(loss == math.inf, 0.0, loss)
    if reduction == 1:
        return (loss / sizes.clamp(min=1)).mean()
    return loss.sum() if reduction == 2 else loss if batched else loss.squeeze(0)
