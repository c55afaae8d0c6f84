"""Successes before some number of failures."""

from __future__ import annotations

from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.distributions import constraints
from tabtorch.distributions._chance import Chance, one_of
from tabtorch.distributions.gamma import Gamma
from tabtorch.distributions.utils import broadcast_all, lazy_property
from tabtorch.nn import functional as F


class NegativeBinomial(Chance):
    """Successes, each of probability `probs`, before the trials end with the `total_count`-th failure."""

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer
    _fields = "total_count probs logits"

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        ((name, value),) = one_of(probs, logits).items()
        total_count, value = broadcast_all(total_count, value)
        self._begin(validate_args, total_count=total_count.type_as(value), **{name: value})

    @property
    def mean(self) -> Any:
        return self.total_count * torch.exp(self.logits)

    @property
    def mode(self) -> Any:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Any:
        return self.mean / torch.sigmoid(-self.logits)

    @lazy_property
    def _gamma(self) -> Any:
        return Gamma(concentration=self.total_count, rate=torch.exp(-self.logits), validate_args=False)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with torch.no_grad():
            return torch.poisson(self._gamma.sample(sample_shape=sample_shape))

    def log_prob(self, value: Any) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        n, logits = self.total_count, self.logits
        unnormalized = n * F.logsigmoid(-logits) + value * F.logsigmoid(logits)
        normalizer = -torch.lgamma(n + value) + torch.lgamma(1.0 + value) + torch.lgamma(n)
        return unnormalized - normalizer.masked_fill(n + value == 0.0, 0.0)
