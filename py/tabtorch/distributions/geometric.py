"""Failures before the first success."""

from __future__ import annotations

from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.distributions import constraints
from tabtorch.distributions._chance import Chance, one_of
from tabtorch.distributions.distribution import _ask, one_read
from tabtorch.distributions.utils import broadcast_all
from tabtorch.nn import functional as F


class Geometric(Chance):
    """The number of failures before the first success, of probability `probs`."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer
    _fields = "probs logits"

    @one_read()
    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._begin(validate_args, **one_of(probs, logits))
        if self._validate_args and probs is not None:
            value = self.probs
            _ask([(value > 0, lambda: self._not_positive(value))])

    def _not_positive(self, value: Any) -> ValueError:
        return ValueError(
            f"Expected parameter probs ({type(value).__name__} of shape {tuple(value.shape)}) "
            f"of distribution {self!r} to be positive but found invalid values:\n{value.data[~(value > 0)]}"
        )

    @property
    def mean(self) -> Any:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Any:
        return torch.zeros_like(self.probs)

    @property
    def variance(self) -> Any:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with torch.no_grad():
            u = self.probs.new(self._extended_shape(sample_shape)).uniform_(torch.finfo(self.probs.dtype).tiny, 1)
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Any) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        value, probs = broadcast_all(value, self.probs)
        probs = probs.masked_fill((probs == 1) & (value == 0), 0)
        return value * (-probs).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs
