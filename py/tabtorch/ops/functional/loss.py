"""Losses of regression and of probabilities. ``reduction``: "mean", "sum" or "none"."""

import math
import warnings

import tabtorch as torch
from tabtorch import ops as _ops
from tabtorch.base.dtypes import CXX_NAMES
from tabtorch.ops.functional._common import (
    assert_between,
    check_reduction,
    legacy_reduction,
    named,
    reduced,
    scalar_type,
)
from tabtorch.ops.functional.linear import pairwise_distance
from tabtorch.ops.machinery.out_types import CASTABLE
from tabtorch.ops.machinery.promotion import FLOATING, FLOATING_COMPLEX, check_kernel

#: what `torch.nn.functional` shows
__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_embedding_loss",
    "ctc_loss",
    "gaussian_nll_loss",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "margin_ranking_loss",
    "mse_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]


def _warn_size(input, target):
    if target.size() != input.size():
        warnings.warn(
            f"Using a target size ({target.size()}) that is different to the input size ({input.size()}). "
            "This will likely lead to incorrect results due to broadcasting. "
            "Please ensure they have the same size.",
            stacklevel=3,
        )


def _weighted(loss, weight, reduction):
    """The reduction of a loss with a weight for each element: the mean divides by the sum of weights."""
    if weight is None:
        return reduced(loss, reduction)
    if weight.size() != loss.size():
        raise ValueError("Weights and input must have the same size.")
    loss = loss * weight
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    if reduction == "mean":
        return loss.sum() / weight.sum()
    raise ValueError(f"Invalid reduction mode: {reduction}. Expected one of 'none', 'mean', 'sum'.")


def mse_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """(x - y)²."""
    _warn_size(input, target)
    reduction = legacy_reduction(size_average, reduce, reduction)
    check_kernel("mse_cpu", torch.promote_types(input.dtype, target.dtype), FLOATING)
    d = input - target
    loss = _weighted(d * d, weight, reduction)
    return named(loss, "MseLossBackward0", input, target) if weight is None else loss


def l1_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """|x - y|."""
    _warn_size(input, target)
    reduction = legacy_reduction(size_average, reduce, reduction)
    return _weighted((input - target).abs(), weight, reduction)


def smooth_l1_loss(input, target, size_average=None, reduce=None, reduction="mean", beta=1.0):
    """d² / (2 beta) where d = |x - y| < beta, else d - beta / 2."""
    _warn_size(input, target)
    reduction = legacy_reduction(size_average, reduce, reduction)
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    if beta == 0.0:
        return reduced((input - target).abs(), reduction)
    check_kernel("smooth_l1_cpu", torch.promote_types(input.dtype, target.dtype), FLOATING)
    d = (input - target).abs()
    near = torch.where(d > beta, beta, d)  # an infinite distance has no part in the square's gradient
    loss = torch.where(d >= beta, d - 0.5 * beta, near * near * (0.5 / beta))
    return named(reduced(loss, reduction), "SmoothL1LossBackward0", input, target)


def huber_loss(input, target, reduction="mean", delta=1.0, weight=None):
    """d² / 2 where d = |x - y| ≤ delta, else delta · (d - delta / 2)."""
    _warn_size(input, target)
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    common = torch.promote_types(input.dtype, target.dtype)
    check_kernel("huber_cpu", common, FLOATING)
    CASTABLE(common, input.dtype)  # the type of PyTorch's result
    d = (input - target).abs()
    near = torch.where(d > delta, delta, d)  # an infinite distance has no part in the square's gradient
    loss = _weighted(torch.where(d > delta, (d - 0.5 * delta) * delta, near * near * 0.5), weight, reduction)
    return named(loss, "HuberLossBackward0", input, target) if weight is None else loss


def kl_div(input, target, size_average=None, reduce=None, reduction="mean", log_target=False):
    """target · (log(target) - input), ``input`` being log-probabilities; "batchmean" divides by the batch size."""
    if size_average is not None or reduce is not None:
        reduction = legacy_reduction(size_average, reduce, reduction)
    elif reduction == "mean":
        warnings.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support size."
            "'batchmean' divides only by the batch size, and aligns with the KL div math definition."
            "'mean' will be changed to behave the same as 'batchmean' in the next major release.",
            stacklevel=2,
        )
    if input.is_complex() or target.is_complex():
        raise RuntimeError("kl_div: Complex inputs not supported.")
    if not (input.is_floating_point() and target.is_floating_point()):
        raise RuntimeError("kl_div: Integral inputs not supported.")
    loss = target.exp() * (target - input) if log_target else torch.xlogy(target, target) - target * input
    if reduction == "batchmean":
        return loss.sum() / input.size(0) if input.dim() else loss.sum()
    return reduced(loss, reduction)


_BCE = None


def _bce(input, target):
    """-(t · log(x) + (1 - t) · log(1 - x)), logs at least -100, and PyTorch's finite gradient at 0 and 1."""
    global _BCE
    if _BCE is None:

        class BinaryCrossEntropy(torch.autograd.Function):
            @staticmethod
            def forward(ctx, input, target):
                ctx.save_for_backward(input, target)
                log, log1m = input.log().clamp(min=-100), (-input).log1p().clamp(min=-100)
                return (target - 1) * log1m - target * log

            @staticmethod
            def backward(ctx, grad):
                input, target = ctx.saved_tensors
                grad_input = grad * (input - target) / ((1 - input) * input).clamp(min=1e-12)
                grad_target = None
                if ctx.needs_input_grad[1]:
                    grad_target = grad * ((-input).log1p().clamp(min=-100) - input.log().clamp(min=-100))
                return grad_input, grad_target

        _BCE = BinaryCrossEntropy
    return _BCE.apply(input, target)


def binary_cross_entropy(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """-(t · log(x) + (1 - t) · log(1 - x)) for probabilities x; logs are taken to be at least -100."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    check_reduction(reduction)
    if target.size() != input.size():
        raise ValueError(
            f"Using a target size ({target.size()}) that is different to the input size ({input.size()}) is "
            "deprecated. Please ensure they have the same size."
        )
    if input.dtype != target.dtype:
        raise RuntimeError(f"Found dtype {scalar_type(target.dtype)} but expected {scalar_type(input.dtype)}")
    check_kernel("binary_cross_entropy", input.dtype, FLOATING)
    for name, t in (("input", input), ("target", target)):
        text = f"all elements of {name} should be between 0 and 1"
        assert_between(t, 0.0, 1.0, "binary_cross_entropy", RuntimeError, text)
    loss = _bce(input, target)
    if weight is not None:
        loss = loss * weight.expand(torch.broadcast_shapes(target.size(), weight.size()))
    return named(reduced(loss, reduction), "BinaryCrossEntropyBackward0", input, target)


def binary_cross_entropy_with_logits(
    input, target, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None
):
    """(1 - t) · x - (1 + (pos_weight - 1) · t) · log(sigmoid(x)) for logits x."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if target.size() != input.size():
        raise ValueError(f"Target size ({target.size()}) must be the same as input size ({input.size()})")
    log_sigmoid = _ops.logsigmoid(input)
    if pos_weight is not None:
        log_sigmoid = ((pos_weight - 1) * target + 1) * log_sigmoid
    loss = (1 - target) * input - log_sigmoid
    if weight is not None:
        loss = loss * weight
    return named(reduced(loss, reduction), "BinaryCrossEntropyWithLogitsBackward0", input, target)


def poisson_nll_loss(
    input,
    target,
    log_input=True,
    full=False,
    size_average=None,
    eps=1e-8,
    reduce=None,
    reduction="mean",
):
    """exp(x) - t · x for log-rates x, or x - t · log(x + eps) for rates; ``full`` adds Stirling's term."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    check_reduction(reduction)
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        loss = loss + torch.where(target > 1, stirling, 0.0)
    return reduced(loss, reduction)


def gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """½ · (log(var) + (x - t)² / var), var at least ``eps``; ``full`` adds ½ · log(2π)."""
    if isinstance(var, (int, float)):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = var * torch.ones_like(input)
    else:
        text = "var has negative entry/entries"
        assert_between(var, 0.0, math.inf, "gaussian_nll_loss", ValueError, text, exempt=math.nan)
    if var.size() != input.size():
        if input.size()[:-1] == var.size():
            var = var.unsqueeze(-1)  # one variance for all of the last dimension
        elif not (input.size()[:-1] == var.size()[:-1] and var.size(-1) == 1) and not (
            var.dim() == input.dim() and all(v in (1, i) for v, i in zip(var.shape, input.shape, strict=True))
        ):
            raise ValueError("var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(reduction + " is not valid")
    if var.dtype not in FLOATING_COMPLEX:
        raise RuntimeError(f"result type Float can't be cast to the desired output type {CXX_NAMES[var.dtype.name]}")
    # The clamp is not differentiated: below eps the gradient still pushes the variance.
    var = var + (var.detach().clamp(min=eps) - var.detach())
    d = input - target
    loss = 0.5 * (var.log() + d * d / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduced(loss, reduction)


def soft_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """log(1 + exp(-y · x)), y being ±1."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    z = -target * input
    if input.dtype not in FLOATING_COMPLEX:
        CASTABLE(torch.get_default_dtype(), input.dtype)  # the type of PyTorch's result
    # softplus without its threshold: its second gradient does not overflow where e^2x does
    loss = z.exp().log1p() if z.is_complex() else torch.nn.functional.softplus(z, 1, math.inf)
    return named(reduced(loss, reduction), "SoftMarginLossBackward0")


def hinge_embedding_loss(input, target, margin=1.0, size_average=None, reduce=None, reduction="mean"):
    """x where y = 1, max(0, margin - x) where y = -1."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if input.dtype not in FLOATING_COMPLEX:
        margin = torch.full((), margin, dtype=input.dtype, device=input.device)
    far = torch.where(target == 1, 0, (margin - input).clamp_min(0))
    near = torch.where(target == -1, 0, input)
    return reduced(far + near, reduction)


def margin_ranking_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    """max(0, -y · (x1 - x2) + margin)."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if not input1.dim() == input2.dim() == target.dim():
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {input1.size()}, input2: {input2.size()}, target: {target.size()} "
        )
    return reduced((-target * (input1 - input2) + margin).clamp_min(0), reduction)


def cosine_embedding_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    """1 - cos(x1, x2) where y = 1, max(0, cos - margin) where y = -1. ``input`` (N, D) or (D,), ``target`` (N,) or ()."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if target.dim() not in (0, 1):
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if target.dim() == 1 and input1.dim() != 2:
        raise RuntimeError("1D target tensor expects 2D input tensors")
    if target.dim() == 0 and input1.dim() != 1:
        raise RuntimeError("0D target tensor expects 1D input tensors")
    tiny = 1e-12  # PyTorch's
    dot = (input1 * input2).sum(-1)
    cos = dot / (((input1 * input1).sum(-1) + tiny) * ((input2 * input2).sum(-1) + tiny)).sqrt()
    near = torch.where(target == 1, 1 - cos, 0.0)
    far = torch.where(target == -1, (cos - margin).clamp_min(0), 0.0)
    return reduced(near + far, reduction)


def triplet_margin_loss(
    anchor,
    positive,
    negative,
    margin=1.0,
    p=2,
    eps=1e-6,
    swap=False,
    size_average=None,
    reduce=None,
    reduction="mean",
):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), d being the p-norm."""
    reduction = legacy_reduction(size_average, reduce, reduction)

    def distance(a, b):
        return pairwise_distance(a, b, p, eps)

    return _triplet(anchor, positive, negative, distance, margin, swap, reduction)


def _triplet(anchor, positive, negative, distance, margin, swap, reduction):
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {anchor.dim()}D, positive {positive.dim()}D, and negative {negative.dim()}D inputs"
        )
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = torch.minimum(far, distance(positive, negative))
    return reduced((margin + near - far).clamp_min(0), reduction)


def triplet_margin_with_distance_loss(
    anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False, reduction="mean"
):
    """``triplet_margin_loss`` with any distance function."""
    check_reduction(reduction)
    distance = pairwise_distance if distance_function is None else distance_function
    return _triplet(anchor, positive, negative, distance, margin, swap, reduction)


def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    """-log of the probability of targets over all their alignments with a longer sequence (Graves et al., 2006).

    ``log_probs`` (T, N, C) or (T, C); ``targets`` (N, S), or all of them one after another; lengths (N). The mean is of each
    loss over the length of its target. ``zero_infinity``: a target too long for its sequence counts as 0.
    """
    check_reduction(reduction)
    mode = ("none", "mean", "sum").index(reduction)
    return torch.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, mode, zero_infinity)
