"""The inverse gamma distribution."""

from __future__ import annotations

import math
from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.distributions import constraints
from tabtorch.distributions.distribution import one_read
from tabtorch.distributions.gamma import Gamma
from tabtorch.distributions.transformed_distribution import TransformedDistribution, of_base
from tabtorch.distributions.transforms import PowerTransform


class InverseGamma(TransformedDistribution):
    """1 / x of a gamma x with this `concentration` and `rate`."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive
    has_rsample = True
    _fields = ""

    @one_read()
    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        base = Gamma(concentration, rate, validate_args=validate_args)
        self._given = base._given
        super().__init__(base, PowerTransform(-base.rate.new_ones(())), validate_args=validate_args)

    concentration = of_base("concentration")
    rate = of_base("rate")

    @property
    def mean(self) -> Any:
        a = self.concentration
        return torch.where(a > 1, self.rate / (a - 1), math.inf)

    @property
    def mode(self) -> Any:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Any:
        a = self.concentration
        return torch.where(a > 2, self.rate.square() / ((a - 1).square() * (a - 2)), math.inf)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()
