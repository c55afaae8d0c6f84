"""The Kumaraswamy distribution."""

from __future__ import annotations

import math
from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.distributions import constraints
from tabtorch.distributions.distribution import one_read
from tabtorch.distributions.transformed_distribution import TransformedDistribution
from tabtorch.distributions.transforms import AffineTransform, PowerTransform
from tabtorch.distributions.uniform import Uniform
from tabtorch.distributions.utils import euler_constant


class Kumaraswamy(TransformedDistribution):
    """On [0, 1], with the cumulated probability 1 - (1 - x^concentration1)^concentration0."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True
    _fields = "concentration1 concentration0"

    @one_read()
    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        a, b = self._set(concentration1=concentration1, concentration0=concentration0)
        base = Uniform(torch.full_like(b.detach(), 0), torch.full_like(b.detach(), 1), validate_args=validate_args)
        transforms = [
            PowerTransform(exponent=b.reciprocal()),
            AffineTransform(loc=1.0, scale=-1.0),
            PowerTransform(exponent=a.reciprocal()),
        ]
        super().__init__(base, transforms, validate_args=validate_args)

    def _moment(self, n: int) -> Tensor:
        b, x = self.concentration0, 1 + n / self.concentration1
        return b * torch.exp(torch.lgamma(x) + torch.lgamma(b) - torch.lgamma(x + b))

    @property
    def mean(self) -> Any:
        return self._moment(1)

    @property
    def mode(self) -> Any:
        a, b = self.concentration1, self.concentration0
        log_mode = b.reciprocal() * (-b).log1p() - (-b * a).log1p()
        return log_mode.masked_fill((b < 1) | (a < 1), math.nan).exp()

    @property
    def variance(self) -> Any:
        return self._moment(2) - self.mean.pow(2)

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        harmonic = torch.digamma(b + 1) + euler_constant
        return 1 - b.reciprocal() + (1 - a.reciprocal()) * harmonic - torch.log(a) - torch.log(b)
