"""The continuous Bernoulli distribution: Loaiza-Ganem & Cunningham (2019), arXiv:1907.06845."""

from __future__ import annotations

import math
from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.distributions import constraints
from tabtorch.distributions._chance import Chance, one_of
from tabtorch.distributions.exp_family import ExponentialFamily
from tabtorch.distributions.utils import broadcast_all, clamp_probs, lazy_property
from tabtorch.nn import functional as F


class ContinuousBernoulli(Chance, ExponentialFamily):
    """Density probs^x (1 - probs)^(1 - x), up to a factor, on [0, 1]. Between `lims` a Taylor series serves."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    _mean_carrier_measure = 0
    has_rsample = True
    _fields = "probs logits _lims="

    def __init__(
        self, probs: Any = None, logits: Any = None, lims: Any = (0.499, 0.501), validate_args: bool | None = None
    ) -> None:
        given = one_of(probs, logits)
        if probs is not None:
            (probs,) = broadcast_all(probs)
            if validate_args is not None and not self.arg_constraints["probs"].check(probs).all():
                raise ValueError("The parameter probs has invalid values")
            given = {"probs": clamp_probs(probs)}
        self._lims = lims
        self._begin(validate_args, **given)

    @lazy_property
    def probs(self) -> Any:
        return clamp_probs(torch.sigmoid(self.logits))

    def _off_centre(self, x: Any, shift: float = 0.0) -> Tensor:
        """Where the closed forms are stable."""
        return (x <= self._lims[0] - shift) | (x > self._lims[1] - shift)

    def _stable(self, closed: Any, taylor: Any) -> Tensor:
        """closed(p) where it is stable; elsewhere taylor(p - 1/2)."""
        p = self.probs
        outside = self._off_centre(p)
        return torch.where(outside, closed(torch.where(outside, p, self._lims[0])), taylor(p - 0.5))

    def _cont_bern_log_norm(self) -> Tensor:
        def closed(p: Any) -> Tensor:
            below = torch.log1p(-2.0 * torch.where(p <= 0.5, p, 0.0))
            above = torch.log(2.0 * torch.where(p >= 0.5, p, 1.0) - 1.0)
            return torch.log(torch.abs(torch.log1p(-p) - torch.log(p))) - torch.where(p <= 0.5, below, above)

        return self._stable(closed, lambda x: math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x.pow(2)) * x.pow(2))

    @property
    def mean(self) -> Any:
        return self._stable(
            lambda p: p / (2.0 * p - 1.0) + 1.0 / (torch.log1p(-p) - torch.log(p)),
            lambda x: 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x.pow(2)) * x,
        )

    @property
    def variance(self) -> Any:
        return self._stable(
            lambda p: p * (p - 1.0) / (1.0 - 2.0 * p).pow(2) + 1.0 / (torch.log1p(-p) - torch.log(p)).pow(2),
            lambda x: 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x.pow(2)) * x.pow(2),
        )

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(torch.rand(shape, dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value: Any) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return -F.binary_cross_entropy_with_logits(logits, value, reduction="none") + self._cont_bern_log_norm()

    def cdf(self, value: Any) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        inside = self._stable(
            lambda p: (p.pow(value) * (1.0 - p).pow(1.0 - value) + p - 1.0) / (2.0 * p - 1.0), lambda x: value
        )
        return torch.where(value <= 0.0, 0.0, torch.where(value >= 1.0, 1.0, inside))

    def icdf(self, value: Any) -> Tensor:
        return self._stable(
            lambda p: (torch.log1p(-p + value * (2.0 * p - 1.0)) - torch.log1p(-p)) / (torch.log(p) - torch.log1p(-p)),
            lambda x: value,
        )

    def entropy(self) -> Tensor:
        log0, log1 = torch.log1p(-self.probs), torch.log(self.probs)
        return self.mean * (log0 - log1) - self._cont_bern_log_norm() - log0

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (self.logits,)

    def _log_normalizer(self, x: Any) -> Tensor:
        outside = self._off_centre(x, 0.5)
        cut = torch.where(outside, x, self._lims[0] - 0.5)
        closed = torch.log(torch.abs(torch.expm1(cut))) - torch.log(torch.abs(cut))
        return torch.where(outside, closed, 0.5 * x + x.pow(2) / 24.0 - x.pow(4) / 2880.0)
