"""Student's t-distribution."""

from __future__ import annotations

import math
from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.distributions import constraints
from tabtorch.distributions.chi2 import Chi2
from tabtorch.distributions.distribution import Distribution, one_read
from tabtorch.distributions.utils import _standard_normal, broadcast_all


class StudentT(Distribution):
    """With `df` degrees of freedom, moved by `loc` and stretched by `scale`."""

    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    _fields = "df loc scale _chi2"

    @one_read()
    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        df, loc, scale = broadcast_all(df, loc, scale)
        self._chi2 = Chi2(df)
        self._begin(validate_args, df=df, loc=loc, scale=scale)

    @property
    def mean(self) -> Any:
        return self.loc.masked_fill(self.df <= 1, math.nan)

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        finite = self.df > 2
        df = torch.where(finite, self.df, 3.0)
        infinite = torch.where(self.df > 1, math.inf, math.nan).to(df.dtype)
        return torch.where(finite, self.scale.pow(2) * df / (df - 2), infinite)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        x = _standard_normal(self._extended_shape(sample_shape), self.df.dtype, self.df.device)
        return self.loc + self.scale * (x * torch.rsqrt(self._chi2.rsample(sample_shape) / self.df))

    def log_prob(self, value: Any) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        df = self.df
        y = (value - self.loc) / self.scale
        Z = self.scale.log() + 0.5 * df.log() + 0.5 * math.log(math.pi)
        Z = Z + torch.lgamma(0.5 * df) - torch.lgamma(0.5 * (df + 1.0))
        return -0.5 * (df + 1.0) * torch.log1p(y**2.0 / df) - Z

    def entropy(self) -> Tensor:
        df = self.df
        half, above = 0.5 * df, 0.5 * (df + 1)
        lbeta = torch.lgamma(half) + math.lgamma(0.5) - torch.lgamma(above)
        return self.scale.log() + above * (torch.digamma(above) - torch.digamma(half)) + 0.5 * df.log() + lbeta
