"""The Weibull distribution."""

from __future__ import annotations

from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.distributions import constraints
from tabtorch.distributions.distribution import one_read
from tabtorch.distributions.exponential import Exponential
from tabtorch.distributions.transformed_distribution import TransformedDistribution
from tabtorch.distributions.transforms import AffineTransform, PowerTransform
from tabtorch.distributions.utils import euler_constant


class Weibull(TransformedDistribution):
    """scale x^(1 / concentration) of an exponential x."""

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive
    _fields = "scale concentration"

    @one_read()
    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._set(scale=scale, concentration=concentration)
        base = Exponential(torch.ones_like(self.scale.detach()), validate_args=validate_args)
        super().__init__(base, self._made_of(self), validate_args=validate_args)

    @staticmethod
    def _made_of(w: Any) -> list[Any]:
        w.concentration_reciprocal = w.concentration.reciprocal()
        return [PowerTransform(exponent=w.concentration_reciprocal), AffineTransform(loc=0, scale=w.scale)]

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new.transforms = self._made_of(new)
        return new

    @property
    def mean(self) -> Any:
        return self.scale * torch.exp(torch.lgamma(1 + self.concentration_reciprocal))

    @property
    def mode(self) -> Any:
        c = self.concentration
        return self.scale * ((c - 1) / c) ** c.reciprocal()

    @property
    def variance(self) -> Any:
        r = self.concentration_reciprocal
        return self.scale.pow(2) * (torch.exp(torch.lgamma(1 + 2 * r)) - torch.exp(2 * torch.lgamma(1 + r)))

    def entropy(self) -> Tensor:
        r = self.concentration_reciprocal
        return euler_constant * (1 - r) + torch.log(self.scale * r) + 1
