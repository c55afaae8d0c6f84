"""The F distribution."""

from __future__ import annotations

import math
from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.distributions import constraints
from tabtorch.distributions.distribution import Distribution, one_read
from tabtorch.distributions.gamma import Gamma
from tabtorch.distributions.utils import broadcast_all


class FisherSnedecor(Distribution):
    """The quotient of two chi-squared numbers, each over its degrees of freedom `df1`, `df2`."""

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True
    _fields = "df1 df2 _gamma1 _gamma2"

    @one_read()
    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        a, b = broadcast_all(df1, df2)
        self._gamma1 = Gamma(a * 0.5, a)
        self._gamma2 = Gamma(b * 0.5, b)
        self._begin(validate_args, df1=a, df2=b)

    @property
    def mean(self) -> Any:
        df2 = self.df2.masked_fill(self.df2 <= 2, math.nan)
        return df2 / (df2 - 2)

    @property
    def mode(self) -> Any:
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return mode.masked_fill(self.df1 <= 2, math.nan)

    @property
    def variance(self) -> Any:
        df2 = self.df2.masked_fill(self.df2 <= 4, math.nan)
        return 2 * df2.pow(2) * (self.df1 + df2 - 2) / (self.df1 * (df2 - 2).pow(2) * (df2 - 4))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        x1, x2 = self._gamma1.rsample(sample_shape), self._gamma2.rsample(sample_shape)
        tiny = torch.finfo(x2.dtype).tiny
        return (x1 / x2.clamp(min=tiny)).clamp(min=tiny)

    def log_prob(self, value: Any) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        a, b, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        t1 = (a + b).lgamma() - a.lgamma() - b.lgamma()
        t2 = a * ratio.log() + (a - 1) * torch.log(value)
        return t1 + t2 - (a + b) * torch.log1p(ratio * value)
