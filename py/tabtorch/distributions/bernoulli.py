"""1 with probability p, else 0."""

from __future__ import annotations

import math
from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.distributions import constraints
from tabtorch.distributions._chance import Chance, one_of
from tabtorch.distributions.exp_family import ExponentialFamily
from tabtorch.distributions.utils import broadcast_all
from tabtorch.nn import functional as F


class Bernoulli(Chance, ExponentialFamily):
    """1 with probability `probs` (or with log odds `logits`), else 0."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0
    _fields = "probs logits"

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._begin(validate_args, **one_of(probs, logits))

    @property
    def mean(self) -> Any:
        return self.probs

    @property
    def mode(self) -> Any:
        return (self.probs >= 0.5).to(self.probs).masked_fill(self.probs == 0.5, math.nan)

    @property
    def variance(self) -> Any:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with torch.no_grad():
            return torch.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return -F.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._enumerated(torch.arange(2, dtype=self._param.dtype, device=self._param.device), expand)

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (torch.logit(self.probs),)

    def _log_normalizer(self, x: Any) -> Tensor:
        return torch.log1p(torch.exp(x))
