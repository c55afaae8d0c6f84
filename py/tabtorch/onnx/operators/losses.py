"""Losses."""

from __future__ import annotations

from typing import Any

import tabtorch as torch
import tabtorch.nn.functional as F
from tabtorch.onnx.registry import Tensor, operator


def _loss(
    log_probabilities: Tensor, target: Tensor, weight: Tensor | None, ignore: int | None, reduction: str
) -> Tensor:
    """Of (batch, classes, …), and classes (batch, …)."""
    classes = target.long()
    kept = None
    if ignore is not None:
        kept = classes != ignore
        classes = torch.where(kept, classes, torch.zeros_like(classes))
    loss = -torch.gather(log_probabilities, 1, classes.unsqueeze(1)).squeeze(1)
    weights = torch.ones_like(loss) if weight is None else weight[classes]
    if kept is not None:
        weights = torch.where(kept, weights, torch.zeros_like(weights))
    loss = loss * weights
    if reduction == "none":
        return loss
    return loss.sum() / weights.sum() if reduction == "mean" else loss.sum()


@operator("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(
    x: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore_index: int | None = None, reduction: str = "mean"
) -> Tensor:
    return _loss(x, target, weight, ignore_index, reduction)


@operator("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
    outputs: int = 1,
) -> Any:
    log_probabilities = F.log_softmax(scores, 1)
    return (_loss(log_probabilities, labels, weights, ignore_index, reduction), log_probabilities)[:outputs]
