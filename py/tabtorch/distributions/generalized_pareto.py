"""The generalized Pareto distribution."""

from __future__ import annotations

import math
from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.distributions import constraints
from tabtorch.distributions.distribution import Distribution


def _guarded(concentration: Any) -> tuple[Any, Any]:
    """Where it is zero, and itself with ones there."""
    zero = torch.isclose(concentration, torch.zeros_like(concentration))
    return zero, torch.where(zero, 1.0, concentration)


class GeneralizedPareto(Distribution):
    """The tail above `loc`, of shape `concentration`: exponential for 0, bounded for less, heavy for more."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}
    has_rsample = True
    _fields = "loc scale concentration"

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._begin(validate_args, loc=loc, scale=scale, concentration=concentration)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(torch.rand(shape, dtype=self.loc.dtype, device=self.loc.device))

    def log_prob(self, value: Any) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        z = (value - self.loc) / self.scale
        zero, c = _guarded(self.concentration)
        y = 1 / c + torch.ones_like(z)
        tail = torch.where(y == 0, y, y * torch.log1p(c * z))
        return -self.scale.log() - torch.where(zero, z, tail)

    def log_survival_function(self, value: Any) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        z = (value - self.loc) / self.scale
        zero, c = _guarded(self.concentration)
        return torch.where(zero, -z, -torch.log1p(c * z) / c)

    def log_cdf(self, value: Any) -> Tensor:
        return torch.log1p(-torch.exp(self.log_survival_function(value)))

    def cdf(self, value: Any) -> Tensor:
        return torch.exp(self.log_cdf(value))

    def icdf(self, value: Any) -> Tensor:
        zero, c = _guarded(self.concentration)
        logu = torch.log1p(-value)
        tail = self.loc + self.scale / c * torch.expm1(-c * logu)
        return torch.where(zero, self.loc - self.scale * logu, tail)

    @property
    def mean(self) -> Any:
        valid = self.concentration < 1
        c = torch.where(valid, self.concentration, 0.5)
        return torch.where(valid, self.loc + self.scale / (1 - c), math.nan)

    @property
    def variance(self) -> Any:
        valid = self.concentration < 0.5
        c = torch.where(valid, self.concentration, 0.25)
        return torch.where(valid, self.scale**2 / ((1 - c) ** 2 * (1 - 2 * c)), math.nan)

    def entropy(self) -> Tensor:
        return torch.broadcast_to(torch.log(self.scale) + self.concentration + 1, self._batch_shape)

    @property
    def mode(self) -> Any:
        return self.loc

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        c = self.concentration
        return constraints.interval(self.loc, torch.where(c < 0, self.loc - self.scale / c, math.inf))
