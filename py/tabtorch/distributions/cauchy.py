"""The Cauchy (Lorentz) distribution."""

from __future__ import annotations

import math
from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.distributions import constraints
from tabtorch.distributions.distribution import Distribution


class Cauchy(Distribution):
    """Median `loc`, half width at half height `scale`. It has no mean."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    _fields = "loc scale"

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self._begin(validate_args, loc=loc, scale=scale)

    @property
    def mean(self) -> Any:
        return self._all(math.nan, self.loc)

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        return self._all(math.inf, self.loc)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.loc + self.loc.new(self._extended_shape(sample_shape)).cauchy_() * self.scale

    def log_prob(self, value: Any) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return -math.log(math.pi) - self.scale.log() - (((value - self.loc) / self.scale) ** 2).log1p()

    def cdf(self, value: Any) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return torch.atan((value - self.loc) / self.scale) / math.pi + 0.5

    def icdf(self, value: Any) -> Tensor:
        return torch.tan(math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()
