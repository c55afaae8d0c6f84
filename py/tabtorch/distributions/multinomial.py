"""Counts of several categories."""

from __future__ import annotations

import math
from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.distributions import constraints
from tabtorch.distributions.binomial import Binomial
from tabtorch.distributions.categorical import OverCategorical
from tabtorch.distributions.distribution import one_read
from tabtorch.distributions.utils import broadcast_all


class Multinomial(OverCategorical):
    """How often each of K categories comes in `total_count` draws, by `probs` or `logits` (…, K)."""

    _fields = "total_count= _categorical"

    @one_read()
    def __init__(
        self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._over(probs, logits, validate_args)

    @property
    def mean(self) -> Any:
        return self.probs * self.total_count

    @property
    def variance(self) -> Any:
        return self.total_count * self.probs * (1 - self.probs)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        sample_shape = torch.Size(sample_shape)
        drawn = self._categorical.sample(torch.Size((self.total_count,)) + sample_shape)
        drawn = drawn.permute(*range(1, drawn.dim()), 0)
        counts = drawn.new_zeros(self._extended_shape(sample_shape))
        return counts.scatter_add_(-1, drawn, torch.ones_like(drawn)).type_as(self.probs)

    def entropy(self) -> Tensor:
        n = self.total_count
        binomial = Binomial(total_count=n, probs=self.probs, validate_args=False)
        counts = torch.arange(1 + n, dtype=self.probs.dtype, device=self.probs.device)[1:]
        counts = counts.view((-1,) + (1,) * self.probs.dim())
        repeated = torch.exp(binomial.log_prob(counts)) * torch.lgamma(counts + 1)
        each: Any = self._categorical.entropy()
        return n * each - math.lgamma(n + 1) + repeated.sum([0, -1])

    def log_prob(self, value: Any) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        logits = logits.masked_fill((value == 0) & (logits == -math.inf), 0)
        orders = torch.lgamma(value.sum(-1) + 1) - torch.lgamma(value + 1).sum(-1)
        return orders + (logits * value).sum(-1)
