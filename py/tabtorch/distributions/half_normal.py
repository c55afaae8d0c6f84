"""The absolute value of a normal number."""

from __future__ import annotations

import math
from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.distributions import constraints
from tabtorch.distributions.distribution import one_read
from tabtorch.distributions.normal import Normal
from tabtorch.distributions.transformed_distribution import TransformedDistribution, of_base
from tabtorch.distributions.transforms import AbsTransform


class Half(TransformedDistribution):
    """The absolute value of a number that is symmetric about 0, of the given `scale`."""

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _fields = ""
    _whole: Any

    @one_read()
    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        base = self._whole(0, scale, validate_args=False)
        self._given = base._given
        super().__init__(base, AbsTransform(), validate_args=validate_args)

    scale = of_base("scale")

    @property
    def mode(self) -> Any:
        return torch.zeros_like(self.scale)

    @one_read()
    def log_prob(self, value: Any) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return torch.where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    @one_read()
    def cdf(self, value: Any) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, prob: Any) -> Tensor:
        return self.base_dist.icdf((prob + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)


class HalfNormal(Half):
    """|x| of a normal x with mean 0 and standard deviation `scale`."""

    _whole = Normal

    @property
    def mean(self) -> Any:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Any:
        return self.scale.pow(2) * (1 - 2 / math.pi)
