"""The Pareto distribution."""

from __future__ import annotations

from typing import Any

from tabtorch.core.tensor import Tensor
from tabtorch.distributions import constraints
from tabtorch.distributions.distribution import one_read
from tabtorch.distributions.exponential import Exponential
from tabtorch.distributions.transformed_distribution import TransformedDistribution
from tabtorch.distributions.transforms import AffineTransform, ExpTransform


class Pareto(TransformedDistribution):
    """Above `scale`, with the tail (scale / x)^alpha."""

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}
    _fields = "scale alpha"

    @one_read()
    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self._set(scale=scale, alpha=alpha)
        base = Exponential(self.alpha, validate_args=validate_args)
        super().__init__(base, [ExpTransform(), AffineTransform(loc=0, scale=self.scale)], validate_args=validate_args)

    @property
    def mean(self) -> Any:
        a = self.alpha.clamp(min=1)  # so it is infinite below
        return a * self.scale / (a - 1)

    @property
    def mode(self) -> Any:
        return self.scale

    @property
    def variance(self) -> Any:
        a = self.alpha.clamp(min=2)
        return self.scale.pow(2) * a / ((a - 1).pow(2) * (a - 2))

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.greater_than_eq(self.scale)

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + (1 + self.alpha.reciprocal())
