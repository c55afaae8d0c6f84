"""The Gumbel distribution."""

from __future__ import annotations

import math
from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.distributions import constraints
from tabtorch.distributions.distribution import one_read
from tabtorch.distributions.transformed_distribution import TransformedDistribution
from tabtorch.distributions.transforms import AffineTransform, ExpTransform
from tabtorch.distributions.uniform import Uniform
from tabtorch.distributions.utils import euler_constant


class Gumbel(TransformedDistribution):
    """The largest of many: loc - scale log(-log(u)) of a uniform u."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    _fields = "loc scale"

    @one_read()
    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self._set(loc=loc, scale=scale)
        finfo = torch.finfo(self.loc.dtype)
        like = self.loc.detach()
        base = Uniform(
            torch.full_like(like, finfo.tiny), torch.full_like(like, 1 - finfo.eps), validate_args=validate_args
        )
        transforms = [
            ExpTransform().inv,
            AffineTransform(loc=0, scale=-torch.ones_like(self.scale)),
            ExpTransform().inv,
            AffineTransform(loc=loc, scale=-self.scale),
        ]
        super().__init__(base, transforms, validate_args=validate_args)

    def log_prob(self, value: Any) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        y = (self.loc - value) / self.scale
        return y - y.exp() - self.scale.log()

    @property
    def mean(self) -> Any:
        return self.loc + self.scale * euler_constant

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def stddev(self) -> Any:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Any:
        return self.stddev.pow(2)

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + euler_constant)
