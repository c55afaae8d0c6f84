"""Categories as one-hot vectors."""

from __future__ import annotations

from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.distributions import constraints
from tabtorch.distributions.categorical import OverCategorical
from tabtorch.distributions.distribution import one_read
from tabtorch.nn import functional as F


class OneHotCategorical(OverCategorical):
    """One-hot vectors of length K, by `probs` or `logits` (…, K)."""

    support = constraints.one_hot
    has_enumerate_support = True
    _fields = "_categorical"

    @one_read()
    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._over(probs, logits, validate_args)

    @property
    def mean(self) -> Any:
        return self.probs

    @property
    def mode(self) -> Any:
        return F.one_hot(self.probs.argmax(dim=-1), num_classes=self.probs.shape[-1]).to(self.probs)

    @property
    def variance(self) -> Any:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return F.one_hot(self._categorical.sample(sample_shape), self._categorical._num_events).to(self.probs)

    @one_read()
    def log_prob(self, value: Any) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return self._categorical.log_prob(value.max(-1)[1])

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n = self.event_shape[0]
        values = torch.eye(n, dtype=self._param.dtype, device=self._param.device)
        values = values.view((n,) + (1,) * len(self.batch_shape) + (n,))
        return values.expand((n, *self.batch_shape, n)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """One-hot vectors whose gradient is that of `probs`: Bengio et al. (2013), arXiv:1308.3432."""

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        samples = self.sample(sample_shape)
        return samples + (self.probs - self.probs.detach())
