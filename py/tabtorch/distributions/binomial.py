"""The number of successes in some trials."""

from __future__ import annotations

from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.distributions import constraints
from tabtorch.distributions._chance import Chance, one_of
from tabtorch.distributions.utils import broadcast_all


def _clamp_by_zero(x: Any) -> Any:
    """clamp(min=0), with a gradient of 1/2 at 0."""
    return (x.clamp(min=0) + x - x.clamp(max=0)) / 2


class Binomial(Chance):
    """Successes in `total_count` independent trials, each of probability `probs`."""

    arg_constraints = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True
    _fields = "total_count probs logits"

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        ((name, value),) = one_of(probs, logits).items()
        total_count, value = broadcast_all(total_count, value)
        self._begin(validate_args, total_count=total_count.type_as(value), **{name: value})

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Any:
        return self.total_count * self.probs

    @property
    def mode(self) -> Any:
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    @property
    def variance(self) -> Any:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with torch.no_grad():
            return torch.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Any) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        n, logits = self.total_count, self.logits
        normalizer = n * _clamp_by_zero(logits) + n * torch.log1p(torch.exp(-torch.abs(logits))) - torch.lgamma(n + 1)
        return value * logits - torch.lgamma(value + 1) - torch.lgamma(n - value + 1) - normalizer

    def _one_count(self, name: str) -> int:
        """The one count of all the batch. NotImplementedError if there are several."""
        low, high = torch.stack(torch.aminmax(self.total_count)).tolist()
        if low != int(high):
            raise NotImplementedError(f"Inhomogeneous total count not supported by `{name}`.")
        return int(high)

    def entropy(self) -> Tensor:
        self._one_count("entropy")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(torch.exp(log_prob) * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        count = self._one_count("enumerate_support")
        return self._enumerated(torch.arange(1 + count, dtype=self._param.dtype, device=self._param.device), expand)
