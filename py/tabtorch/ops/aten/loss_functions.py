"""Losses with ATen's arguments: `reduction` is 0 (none), 1 (mean) or 2 (sum), and what their gradients need comes with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabtorch import ops
from tabtorch.nn import functional as F
from tabtorch.ops.aten.table import ADAPTERS, Tensor, aten, grad_of
from tabtorch.ops.neural import ctc

REDUCTIONS = ("none", "mean", "sum")


def _loss(name: str, *names: str, **defaults: Any) -> Callable[..., Tensor]:
    """`torch.nn.functional.NAME` of `names` by position, those with a default last; and its gradient for the first of them."""

    def bound(args: tuple[Any, ...], kw: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        kw = defaults | dict(zip(names, args, strict=False)) | {"input" if k == "self" else k: v for k, v in kw.items()}
        kw["reduction"] = REDUCTIONS[kw["reduction"]]
        return kw.pop(names[0]), kw

    def loss(*args: Any, **kw: Any) -> Tensor:
        first, kw = bound(args, kw)
        return getattr(F, name)(first, **kw)

    def backward(grad_output: Tensor, *args: Any, **kw: Any) -> Tensor:
        first, kw = bound(args, kw)
        return grad_of(lambda x: getattr(F, name)(x, **kw), first, grad_output)

    ADAPTERS[name] = loss
    ADAPTERS[name + "_backward"] = backward
    return backward


_loss("mse_loss", "input", "target", "reduction", reduction=1)
_loss("l1_loss", "input", "target", "reduction", reduction=1)
_loss("smooth_l1_loss", "input", "target", "reduction", "beta", reduction=1, beta=1.0)
_loss("huber_loss", "input", "target", "reduction", "delta", reduction=1, delta=1.0)
_loss("soft_margin_loss", "input", "target", "reduction", reduction=1)
_loss("kl_div", "input", "target", "reduction", reduction=1)
_loss("binary_cross_entropy", "input", "target", "weight", "reduction", reduction=1)
_loss("binary_cross_entropy_with_logits", "input", "target", "weight", "pos_weight", "reduction", reduction=1)
_loss("multi_margin_loss", "input", "target", "p", "margin", "weight", "reduction", p=1, margin=1.0, reduction=1)
_loss("hinge_embedding_loss", "input", "target", "margin", "reduction", reduction=1)
_loss("margin_ranking_loss", "input1", "input2", "target", "margin", "reduction", margin=0.0, reduction=1)
_loss("cosine_embedding_loss", "input1", "input2", "target", "margin", "reduction", margin=0.0, reduction=1)
_loss("triplet_margin_loss", "anchor", "positive", "negative", "margin", "p", "eps", "swap", "reduction", reduction=1)
_loss(
    "cross_entropy",
    *("input", "target", "weight", "reduction", "ignore_index", "label_smoothing"),
    reduction=1,
    ignore_index=-100,
    label_smoothing=0.0,
)
ADAPTERS["cross_entropy_loss"] = ADAPTERS.pop("cross_entropy")
_nll_backward = _loss(
    "nll_loss", "input", "target", "weight", "reduction", "ignore_index", reduction=1, ignore_index=-100
)
_margin_backward = _loss("multilabel_margin_loss", "input", "target", "reduction", reduction=1)
ADAPTERS["nll_loss_nd"] = ADAPTERS["nll_loss2d"] = ADAPTERS["nll_loss"]


@aten("nll_loss_forward", "nll_loss2d_forward")
def _nll_loss_forward(
    self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """(the loss, the sum of the weights of the targets that count; 0 where there is nothing to divide by it)."""
    loss = ADAPTERS["nll_loss"](self, target, weight, reduction, ignore_index)
    if reduction == 0 and self.ndim > 1:
        return loss, self.new_zeros(())
    counts = target != ignore_index
    if weight is None:
        return loss, counts.sum().to(self.dtype)
    return loss, ops.where(counts, weight[ops.where(counts, target, 0)], 0).sum()


@aten("nll_loss_backward", "nll_loss2d_backward")
def _nll_loss_backward(
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Tensor:
    return _nll_backward(grad_output, self, target, weight, reduction, ignore_index)


@aten("multilabel_margin_loss_forward")
def _multilabel_margin_loss_forward(self: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """(the loss, 1 at each class that is a target, in the type of x)."""
    # targets end at the first -1
    counts = (target < 0).cumsum(-1) == 0
    classes = target.shape[-1] if target.ndim else 1
    each = ops.arange(classes, device=target.device)
    hit = (target.unsqueeze(-1) == each) & counts.unsqueeze(-1)
    is_target = hit.any(-2 if target.ndim else 0).reshape(target.shape).to(self.dtype)
    return ADAPTERS["multilabel_margin_loss"](self, target, reduction), is_target


@aten("multilabel_margin_loss_backward")
def _multilabel_margin_loss_backward(
    grad_output: Tensor, self: Tensor, target: Tensor, reduction: int, is_target: Tensor
) -> Tensor:
    return _margin_backward(grad_output, self, target, reduction)


# ---- connectionist temporal classification


@aten("_ctc_loss")
def _ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[Tensor, Tensor]:
    """(the loss of each example, a tensor that stands for alpha: the gradient computes it again). (T, N, C) or (T, C)."""
    loss = ctc.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, 0, False)
    longest = max([int(n) for n in target_lengths], default=0) if loss.ndim else int(target_lengths[0])
    return loss, log_probs.new_zeros((*loss.shape, log_probs.shape[0], 2 * longest + 1))


@aten("_ctc_loss_backward")
def _ctc_loss_backward(
    grad: Tensor,
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    neg_log_likelihood: Tensor,
    log_alpha: Tensor,
    blank: int,
    zero_infinity: bool = False,
) -> Tensor:
    return grad_of(
        lambda x: ctc.ctc_loss(x, targets, input_lengths, target_lengths, blank, 0, zero_infinity), log_probs, grad
    )


@aten("ctc_loss")
def _ctc(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Tensor:
    return ctc.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)
