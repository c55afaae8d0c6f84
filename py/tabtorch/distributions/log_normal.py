"""exp of a normal number."""

from __future__ import annotations

from typing import Any

from tabtorch.core.tensor import Tensor
from tabtorch.distributions import constraints
from tabtorch.distributions.distribution import one_read
from tabtorch.distributions.normal import Normal
from tabtorch.distributions.transformed_distribution import TransformedDistribution, of_base
from tabtorch.distributions.transforms import ExpTransform


class LogNormal(TransformedDistribution):
    """exp(x) of a normal x with mean `loc` and standard deviation `scale`."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.positive
    has_rsample = True
    _fields = ""

    @one_read()
    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        self._given = base._given
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    loc = of_base("loc")
    scale = of_base("scale")

    @property
    def mean(self) -> Any:
        return (self.loc + self.scale.pow(2) / 2).exp()

    @property
    def mode(self) -> Any:
        return (self.loc - self.scale.square()).exp()

    @property
    def variance(self) -> Any:
        variance = self.scale.pow(2)
        return variance.expm1() * (2 * self.loc + variance).exp()

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc
